# The stock daemon's own objects, and our class.
pkglibexec_PROGRAMS += vswitchd/ovs-vswitchd
vswitchd_ovs_vswitchd_SOURCES = vswitchd/ipoib-init.c
vswitchd_ovs_vswitchd_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=bridge_init $(OVS_DPDK_LDFLAGS)
vswitchd_ovs_vswitchd_LDADD = \
	lib/libipoib.la \
	$(OVS_VSWITCHD_LIBS) \
	$(IPOIB_LIBS)
EXTRA_vswitchd_ovs_vswitchd_DEPENDENCIES = ovs.stamp
