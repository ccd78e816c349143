# To add a document: one line here, and one in Documentation/index.rst.
EXTRA_DIST += \
	CONTRIBUTING.rst \
	README.md \
	Documentation/index.rst \
	Documentation/intro/install.rst \
	Documentation/intro/quickstart.rst \
	Documentation/topics/control-plane.rst \
	Documentation/topics/design.rst \
	Documentation/topics/dhcp.rst \
	Documentation/topics/multicast.rst \
	Documentation/topics/nat.rst \
	Documentation/topics/operations.rst \
	Documentation/topics/features.rst \
	Documentation/topics/openflow.rst \
	Documentation/topics/performance.rst \
	Documentation/topics/performance/arp-storm.svg \
	Documentation/topics/performance/ladder.svg \
	Documentation/topics/performance/latency.svg \
	Documentation/topics/performance/memory.svg \
	Documentation/topics/performance/neighbours.svg \
	Documentation/topics/performance/results.json \
	Documentation/topics/performance/sizes.svg \
	Documentation/topics/soft-fabric.rst \
	Documentation/topics/testing.rst \
	$(MANUALS_RST)

MANUALS_RST = \
	Documentation/ref/ovs-ipoib.7.rst \
	Documentation/ref/ovs-ipoib-fabric.8.rst \
	Documentation/ref/ovs-ipoib-gateway.8.rst \
	Documentation/ref/ovs-ipoib-host.8.rst

# Manual pages, where rst2man is installed.
if HAVE_RST2MAN
MANUALS = $(MANUALS_RST:.rst=)
nodist_man_MANS = $(MANUALS)
CLEANFILES += $(MANUALS)
$(MANUALS): %: %.rst
	$(AM_V_GEN)$(MKDIR_P) Documentation/ref && \
		$(RST2MAN) --halt=warning $< $@.tmp && mv $@.tmp $@
endif
