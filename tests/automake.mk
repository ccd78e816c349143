# Unit tests: one program, each test a sub-command.  To add a file: one line.
noinst_PROGRAMS += tests/ipoib-ovstest
nodist_tests_ipoib_ovstest_SOURCES = tests/ovstest-main.c
tests_ipoib_ovstest_SOURCES =
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
	tests/ipoib-macros.at \
	tests/ipoib-source.at \
	tests/ipoib-vswitchd.at

EXTRA_DIST += \
	$(TESTSUITE_AT) \
	tests/check-layers \
	tests/lsan.supp

TESTSUITE = tests/testsuite
AUTOTEST = $(AUTOM4TE) --language=autotest
AUTOTEST_PATH = vswitchd:utilities:tests:$(OVS_BUILD)/utilities:$(OVS_BUILD)/ovsdb

# Tests mostly wait, hence more at a time than there are processors.
TESTSUITEFLAGS = -j4

check-local: all tests/atconfig tests/atlocal $(TESTSUITE)
	$(SHELL) $(TESTSUITE) -C tests AUTOTEST_PATH='$(AUTOTEST_PATH)' \
		$(TESTSUITEFLAGS)

# Open vSwitch's macros come from its source tree.
OVS_MACROS_AT = \
	$(OVS_SRC)/tests/ovs-macros.at \
	$(OVS_SRC)/tests/ovsdb-macros.at \
	$(OVS_SRC)/tests/ofproto-macros.at
$(TESTSUITE): tests/package.m4 $(TESTSUITE_AT) $(OVS_MACROS_AT)
	$(AM_V_GEN)$(AUTOTEST) -I tests -I '$(srcdir)' -I '$(OVS_SRC)' \
		-o $@.tmp '$(srcdir)/tests/testsuite.at' && mv $@.tmp $@

tests/package.m4: $(top_srcdir)/configure.ac
	$(AM_V_GEN){ \
	  echo 'm4_define([AT_PACKAGE_NAME],      [$(PACKAGE_NAME)])'; \
	  echo 'm4_define([AT_PACKAGE_TARNAME],   [$(PACKAGE_TARNAME)])'; \
	  echo 'm4_define([AT_PACKAGE_VERSION],   [$(PACKAGE_VERSION)])'; \
	  echo 'm4_define([AT_PACKAGE_STRING],    [$(PACKAGE_STRING)])'; \
	  echo 'm4_define([AT_PACKAGE_BUGREPORT], [$(PACKAGE_BUGREPORT)])'; \
	} > $@.tmp && mv $@.tmp $@

CLEANFILES += tests/package.m4 $(TESTSUITE)
DISTCLEANFILES += tests/atconfig

CLEAN_LOCAL += clean-tests
clean-tests:
	test ! -f $(TESTSUITE) || $(SHELL) $(TESTSUITE) -C tests --clean
	rm -rf tests/*testsuite.dir tests/*testsuite.log

# Judges from outside this project, which are skipped where they are absent
# (IPOIB_SHARED): a conformance suite, and a virtual machine with Linux's own
# IPoIB.
JUDGE = TOP_BUILDDIR='$(abs_top_builddir)' OVS_BUILD='$(OVS_BUILD)' \
	OVS_SRC='$(OVS_SRC)'
EXTRA_DIST += \
	tests/lab-lib.sh \
	tests/conformance/judge.py \
	tests/conformance/known-failures \
	tests/conformance/run \
	tests/kernel/run \
	tests/kernel/sweep.py

check-conformance: all
	$(JUDGE) '$(srcdir)/tests/conformance/run'

check-kernel: all
	$(JUDGE) '$(srcdir)/tests/kernel/run'

.PHONY: check-conformance check-kernel
