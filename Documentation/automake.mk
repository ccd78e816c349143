# To add a document: one line here.
EXTRA_DIST += \
	Documentation/ref/ovs-ipoib-fabric.8.rst \
	Documentation/ref/ovs-ipoib-host.8.rst \
	Documentation/topics/control-plane.rst \
	Documentation/topics/soft-fabric.rst
