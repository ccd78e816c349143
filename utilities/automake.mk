# The software fabric.
bin_PROGRAMS += utilities/ovs-ipoib-fabric
utilities_ovs_ipoib_fabric_SOURCES = \
	utilities/fabric-commands.c \
	utilities/fabric-commands.h \
	utilities/fabric-fault.c \
	utilities/fabric-fault.h \
	utilities/fabric-forward.c \
	utilities/fabric-forward.h \
	utilities/fabric-groups.c \
	utilities/fabric-groups.h \
	utilities/fabric-ibsim.c \
	utilities/fabric-ibsim.h \
	utilities/fabric-inform.c \
	utilities/fabric-inform.h \
	utilities/fabric-opensm.c \
	utilities/fabric-opensm.h \
	utilities/fabric-pcap.c \
	utilities/fabric-pcap.h \
	utilities/fabric-ports.c \
	utilities/fabric-ports.h \
	utilities/fabric-rmpp.c \
	utilities/fabric-rmpp.h \
	utilities/fabric-sa-records.c \
	utilities/fabric-sa-records.h \
	utilities/fabric-sa.c \
	utilities/fabric-sa.h \
	utilities/fabric-sma.c \
	utilities/fabric-sma.h \
	utilities/fabric-switch.c \
	utilities/fabric-switch.h \
	utilities/fabric-transport.c \
	utilities/fabric-transport.h \
	utilities/fabric.h \
	utilities/ovs-ipoib-fabric.c
utilities_ovs_ipoib_fabric_LDFLAGS = $(AM_LDFLAGS) $(OVS_DPDK_LDFLAGS)
utilities_ovs_ipoib_fabric_LDADD = $(IPOIB_LDADD)

# The software station.
bin_PROGRAMS += utilities/ovs-ipoib-host
utilities_ovs_ipoib_host_SOURCES = \
	utilities/host-arp.c \
	utilities/host-hca.c \
	utilities/host-hca.h \
	utilities/host-neigh.c \
	utilities/host-neigh.h \
	utilities/host-remac.c \
	utilities/host-remac.h \
	utilities/host-show.c \
	utilities/host-station.c \
	utilities/host-station.h \
	utilities/host-tun.c \
	utilities/host-tun.h \
	utilities/ovs-ipoib-host.c
utilities_ovs_ipoib_host_LDADD = $(IPOIB_LDADD)
utilities_ovs_ipoib_host_LDFLAGS = $(AM_LDFLAGS) $(OVS_DPDK_LDFLAGS)

# Sets up gateways.
bin_SCRIPTS += utilities/ovs-ipoib-gateway
CLEANFILES += utilities/ovs-ipoib-gateway
EXTRA_DIST += utilities/ovs-ipoib-gateway.in
utilities/ovs-ipoib-gateway: utilities/ovs-ipoib-gateway.in
	$(AM_V_GEN)$(MKDIR_P) utilities && \
		sed 's,@VERSION[@],$(VERSION),' \
			'$(srcdir)/utilities/ovs-ipoib-gateway.in' > $@.tmp && \
		chmod +x $@.tmp && mv $@.tmp $@

# What sets up again, at boot, what is not in Open vSwitch's database.
systemdsystemunitdir = $(prefix)/lib/systemd/system
nodist_systemdsystemunit_DATA = utilities/ovs-ipoib-gateway.service
dist_systemdsystemunit_DATA = utilities/ovs-ipoib-gateway.timer
CLEANFILES += utilities/ovs-ipoib-gateway.service
EXTRA_DIST += utilities/ovs-ipoib-gateway.service.in
utilities/ovs-ipoib-gateway.service: \
		utilities/ovs-ipoib-gateway.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) utilities && \
		sed 's,@bindir[@],$(bindir),' \
			'$(srcdir)/utilities/ovs-ipoib-gateway.service.in' \
			> $@.tmp && mv $@.tmp $@
