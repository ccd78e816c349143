# Unit tests: one program, each test a sub-command.  To add a file: one line.
noinst_PROGRAMS += tests/ipoib-ovstest
nodist_tests_ipoib_ovstest_SOURCES = tests/ovstest-main.c
tests_ipoib_ovstest_SOURCES = \
	tests/fuzz-ipoib-packet.c \
	tests/ipoib-null-verbs.c \
	tests/ipoib-null-verbs.h \
	tests/ipoib-test-gateway.c \
	tests/ipoib-test-gateway.h \
	tests/ipoib-traffic.c \
	tests/ipoib-vectors.h \
	tests/test-ipoib-bench.c \
	tests/test-ipoib-compat.c \
	tests/test-ipoib-datapath.c \
	tests/test-ipoib-clock.c \
	tests/test-ipoib-clock.h \
	tests/test-ipoib-dhcp.c \
	tests/test-ipoib-events.c \
	tests/test-ipoib-fabric-external.c \
	tests/test-ipoib-fabric-lib.c \
	tests/test-ipoib-fabric-sa.c \
	tests/test-ipoib-fabric.c \
	tests/test-ipoib-fabric.h \
	tests/test-ipoib-fake.c \
	tests/test-ipoib-fake.h \
	tests/test-ipoib-groups.c \
	tests/test-ipoib-grow.c \
	tests/test-ipoib-host-neigh.c \
	tests/test-ipoib-hostqp.c \
	tests/test-ipoib-kernel.c \
	tests/test-ipoib-known.c \
	tests/test-ipoib-mcast.c \
	tests/test-ipoib-mtu.c \
	tests/test-ipoib-offload.c \
	tests/test-ipoib-packet.c \
	tests/test-ipoib-path.c \
	tests/test-ipoib-peer.c \
	tests/test-ipoib-pool.c \
	tests/test-ipoib-proof.c \
	tests/test-ipoib-twins.c \
	tests/test-ipoib-proxy.c \
	tests/test-ipoib-sa.c \
	tests/test-ipoib-snoop.c \
	tests/test-ipoib-soft-tso.c \
	tests/test-ipoib-prio.c \
	tests/test-ipoib-vlan.c \
	tests/test-ipoib-subnet.c \
	tests/test-ipoib-tables-load.c \
	tests/test-ipoib-tables-race.c \
	tests/test-ipoib-tables.c \
	tests/test-ipoib-tables.h \
	tests/test-ipoib-tx.c \
	tests/test-ipoib-umad.c \
	tests/test-ipoib-verbs-hostile.c \
	tests/test-ipoib-verbs-port.c \
	tests/test-ipoib-verbs-queues.c \
	tests/test-ipoib-verbs.c \
	tests/test-ipoib-verbs.h \
	tests/test-ipoib-wire.c \
	utilities/host-neigh.c \
	utilities/host-neigh.h \
	utilities/host-remac.c \
	utilities/host-remac.h
tests_ipoib_ovstest_CPPFLAGS = $(AM_CPPFLAGS) -I$(OVS_SRC)/tests
tests_ipoib_ovstest_LDFLAGS = $(AM_LDFLAGS) $(OVS_DPDK_LDFLAGS)
tests_ipoib_ovstest_LDADD = $(IPOIB_LDADD)

# main() is Open vSwitch's own.
BUILT_SOURCES += tests/ovstest-main.c
CLEANFILES += tests/ovstest-main.c
tests/ovstest-main.c: Makefile
	$(AM_V_GEN)$(MKDIR_P) tests && echo '#include "tests/ovstest.c"' > $@

# Test suites.  To add a file: one line here and one in tests/testsuite.at
# (tests/system-testsuite.at for what needs root and namespaces).
TESTSUITE_AT = \
	tests/testsuite.at \
	tests/ipoib-bench-harness.at \
	tests/ipoib-bench-micro.at \
	tests/ipoib-bench-instructions.at \
	tests/ipoib-bench-vswitchd.at \
	tests/ipoib-datapath.at \
	tests/ipoib-docs.at \
	tests/ipoib-fabric.at \
	tests/ipoib-macros.at \
	tests/ipoib-opensm.at \
	tests/ipoib-sa.at \
	tests/ipoib-source.at \
	tests/ipoib-umad.at \
	tests/ipoib-unit.at \
	tests/ipoib-verbs.at \
	tests/ipoib-vswitchd.at

SYSTEM_TESTSUITE_AT = \
	tests/system-testsuite.at \
	tests/ipoib-macros.at \
	tests/system-ipoib-ct.at \
	tests/system-ipoib-dhcp.at \
	tests/system-ipoib-docs.at \
	tests/system-ipoib-events.at \
	tests/system-ipoib-events-opensm.at \
	tests/system-ipoib-opensm.at \
	tests/system-ipoib-traffic.at \
	tests/system-ipoib-prio.at \
	tests/system-ipoib-vlan.at \
	tests/system-ipoib-gateway.at \
	tests/system-ipoib-host.at \
	tests/system-ipoib-macros.at \
	tests/system-ipoib-mtu.at \
	tests/system-ipoib-offload.at \
	tests/system-ipoib-mcast.at \
	tests/system-ipoib-moving.at \
	tests/system-ipoib-openflow.at \
	tests/system-ipoib-setup.at \
	tests/system-ipoib-router.at \
	tests/system-ipoib-scale.at \
	tests/system-ipoib-stats.at \
	tests/system-ipoib-vswitchd.at

EXTRA_DIST += \
	tests/announce.py \
	$(TESTSUITE_AT) \
	$(SYSTEM_TESTSUITE_AT) \
	tests/check-docs \
	tests/check-layers \
	tests/check-ovs \
	tests/crowd.py \
	tests/dhcp-client.py \
	tests/dhcp-script \
	tests/in-sandbox \
	tests/liar.py \
	tests/mcast.py \
	tests/packets.py \
	tests/ping-gap.py \
	tests/ping-silence.py \
	tests/sums.py \
	tests/lsan.supp \
	tests/many-paths.py \
	tests/run-document \
	tests/sim-fuzz.py \
	tests/sim-trap.py \
	tests/simclient.py \
	tests/verbs-control

TESTSUITE = tests/testsuite
SYSTEM_TESTSUITE = tests/system-testsuite
AUTOTEST = $(AUTOM4TE) --language=autotest
AUTOTEST_PATH = vswitchd:utilities:tests:$(OVS_BUILD)/utilities:$(OVS_BUILD)/ovsdb

# Tests mostly wait, hence more at a time than there are processors.
TESTSUITEFLAGS = -j4

# As with Open vSwitch, RECHECK=yes runs those that failed once more, alone: on
# a machine with other work to do a test may be late.
check-local: all tests/atconfig tests/atlocal $(TESTSUITE)
	set $(SHELL) $(TESTSUITE) -C tests AUTOTEST_PATH='$(AUTOTEST_PATH)'; \
	"$$@" $(TESTSUITEFLAGS) || (test X'$(RECHECK)' = Xyes && "$$@" --recheck)

# System tests need root.  They have namespaces, bridges and processes of their
# own, that share one network namespace: one test at a time.
SYSTEM_TESTSUITEFLAGS =
check-system: all tests/atconfig tests/atlocal $(SYSTEM_TESTSUITE)
	result=0; \
	set $(SHELL) $(srcdir)/tests/in-sandbox \
		$(SHELL) $(SYSTEM_TESTSUITE) -C tests \
		AUTOTEST_PATH='$(AUTOTEST_PATH)'; \
	"$$@" $(SYSTEM_TESTSUITEFLAGS) || \
		(test X'$(RECHECK)' = Xyes && "$$@" --recheck) || result=1; \
	$(MAKE) $(AM_MAKEFLAGS) check-conformance || result=1; \
	exit $$result

# Open vSwitch's own tests, on our daemon.
OVS_TEST_TARGETS = tests/ovstest utilities/ovs-pcap utilities/ovs-testcontroller
OVS_TESTSUITEFLAGS = -j6
check-ovs: all tests/atconfig tests/atlocal
	MAKE='$(MAKE)' $(SHELL) $(srcdir)/build-aux/ovs-build \
		$(OVS_BUILD) $(OVS_TEST_TARGETS)
	$(MKDIR_P) tests/upstream
	sed "s,^at_testdir=.*,at_testdir='tests/upstream'," tests/atconfig \
		> tests/upstream/atconfig
	cp tests/atlocal tests/upstream/atlocal
	SHELL='$(SHELL)' $(SHELL) $(srcdir)/tests/check-ovs \
		'$(OVS_SRC)' tests/upstream \
		'$(abs_top_builddir)/vswitchd:$(OVS_BUILD)/utilities:$(OVS_BUILD)/ovsdb:$(OVS_BUILD)/tests' \
		$(OVS_TESTSUITEFLAGS)

.PHONY: check-system check-ovs

# The macros come from Open vSwitch's source tree.
OVS_MACROS_AT = \
	$(OVS_SRC)/tests/ovs-macros.at \
	$(OVS_SRC)/tests/ovsdb-macros.at \
	$(OVS_SRC)/tests/ofproto-macros.at \
	$(OVS_SRC)/tests/system-userspace-macros.at \
	$(OVS_SRC)/tests/system-common-macros.at
MAKE_TESTSUITE = $(AUTOTEST) -I tests -I '$(srcdir)' -I '$(OVS_SRC)' -o $@.tmp \
	'$(srcdir)/$@.at' && mv $@.tmp $@
$(TESTSUITE): tests/package.m4 $(TESTSUITE_AT) $(OVS_MACROS_AT)
	$(AM_V_GEN)$(MAKE_TESTSUITE)
$(SYSTEM_TESTSUITE): tests/package.m4 $(SYSTEM_TESTSUITE_AT) $(OVS_MACROS_AT)
	$(AM_V_GEN)$(MAKE_TESTSUITE)

tests/package.m4: $(top_srcdir)/configure.ac
	$(AM_V_GEN){ \
	  echo 'm4_define([AT_PACKAGE_NAME],      [$(PACKAGE_NAME)])'; \
	  echo 'm4_define([AT_PACKAGE_TARNAME],   [$(PACKAGE_TARNAME)])'; \
	  echo 'm4_define([AT_PACKAGE_VERSION],   [$(PACKAGE_VERSION)])'; \
	  echo 'm4_define([AT_PACKAGE_STRING],    [$(PACKAGE_STRING)])'; \
	  echo 'm4_define([AT_PACKAGE_BUGREPORT], [$(PACKAGE_BUGREPORT)])'; \
	} > $@.tmp && mv $@.tmp $@

CLEANFILES += tests/package.m4 $(TESTSUITE) $(SYSTEM_TESTSUITE)
DISTCLEANFILES += tests/atconfig

CLEAN_LOCAL += clean-tests
clean-tests:
	rm -rf tests/*.dir tests/*testsuite.log tests/upstream

# Judges from outside this project, which are skipped where they are absent
# (IPOIB_SHARED): a conformance suite, and a virtual machine with Linux's own
# IPoIB.
JUDGE = TOP_BUILDDIR='$(abs_top_builddir)' OVS_BUILD='$(OVS_BUILD)' \
	OVS_SRC='$(OVS_SRC)'
EXTRA_DIST += \
	tests/crowd.py \
	tests/lab-lib.sh \
	tests/conformance/judge.py \
	tests/conformance/known-failures \
	tests/conformance/run \
	tests/kernel/events \
	tests/kernel/fabric-shim.py \
	tests/kernel/lost.py \
	tests/kernel/run \
	tests/kernel/sweep.py

check-conformance: all
	$(JUDGE) '$(srcdir)/tests/conformance/run'

check-kernel: all
	$(JUDGE) '$(srcdir)/tests/kernel/run'

.PHONY: check-conformance check-kernel

# Instructions a packet of the data path, by valgrind's callgrind.
EXTRA_DIST += tests/ipoib-callgrind
bench-instructions: tests/ipoib-ovstest
	'$(srcdir)/tests/ipoib-callgrind' tests/ipoib-ovstest
.PHONY: bench-instructions

# Benchmarks (Documentation/topics/performance.rst).  tests/bench/run says what
# each part is; "make bench" takes long, "make bench-quick" less than five
# minutes.
EXTRA_DIST += \
	tests/bench/arp-storm \
	tests/bench/judge \
	tests/bench/kernel-routing \
	tests/bench/memory \
	tests/bench/plot \
	tests/bench/record \
	tests/bench/result.py \
	tests/bench/run \
	tests/bench/targets.json \
	tests/bench/tree.py

noinst_PROGRAMS += tests/bench-arp tests/bench-kernel
tests_bench_arp_SOURCES = tests/bench-arp.c
tests_bench_arp_LDFLAGS = $(AM_LDFLAGS) $(OVS_DPDK_LDFLAGS)
tests_bench_arp_LDADD = $(IPOIB_LDADD)
tests_bench_kernel_SOURCES = tests/bench-clock.h tests/bench-kernel.c
tests_bench_kernel_LDFLAGS = $(AM_LDFLAGS) $(OVS_DPDK_LDFLAGS)
tests_bench_kernel_LDADD = $(IPOIB_LDADD)

noinst_PROGRAMS += tests/bench-micro
tests_bench_micro_SOURCES = \
	tests/bench-clock.h \
	tests/bench-micro-device.c \
	tests/bench-micro-driver.c \
	tests/bench-micro-floor.c \
	tests/bench-micro-held.c \
	tests/bench-micro-load.c \
	tests/bench-micro-pmds.c \
	tests/bench-micro-tables.c \
	tests/bench-micro-translate.c \
	tests/bench-micro.c \
	tests/bench-micro.h \
	tests/ipoib-null-verbs.c \
	tests/ipoib-null-verbs.h \
	tests/ipoib-test-gateway.c \
	tests/ipoib-test-gateway.h
tests_bench_micro_LDFLAGS = $(AM_LDFLAGS) $(OVS_DPDK_LDFLAGS)
tests_bench_micro_LDADD = $(IPOIB_LDADD)

# The exit status is that of the run.  What it is worth, judge says.  (Not a
# prerequisite, which would be made at the same time as "all".)
RUN_BENCH = \
	$(MAKE) $(AM_MAKEFLAGS) tests/bench-vswitchd || exit 1; \
	result=0; \
	'$(srcdir)/tests/bench/run' --build . -o bench.json $$quick || result=1; \
	'$(srcdir)/tests/bench/judge' bench.json \
		'$(srcdir)/tests/bench/targets.json'; \
	exit $$result
bench: all
	@quick=; $(RUN_BENCH)
bench-quick: all
	@quick=--quick; $(RUN_BENCH)
bench-plots:
	'$(srcdir)/tests/bench/plot' bench.json bench-plots
CLEANFILES += bench.json bench.log
CLEAN_LOCAL += clean-bench
clean-bench:
	rm -rf bench-plots
.PHONY: bench bench-quick bench-plots

# Our daemon with a traffic generator and a stopwatch, for benchmarks: made by
# "make check", or by name.
check_PROGRAMS += tests/bench-vswitchd
tests_bench_vswitchd_SOURCES = \
	tests/bench-clock.h \
	tests/bench-vswitchd-hca.c \
	tests/bench-vswitchd-netdev.c \
	tests/bench-vswitchd.c \
	tests/bench-vswitchd.h
tests_bench_vswitchd_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=bridge_init \
	-Wl,--wrap=netdev_rxq_recv -Wl,--wrap=pmd_perf_end_iteration \
	$(OVS_DPDK_LDFLAGS)
tests_bench_vswitchd_LDADD = $(vswitchd_ovs_vswitchd_LDADD)
EXTRA_DIST += tests/bench/vswitchd
