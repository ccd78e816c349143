# Unit tests: one program, each test a sub-command.  To add a file: one line.
noinst_PROGRAMS += tests/ipoib-ovstest
nodist_tests_ipoib_ovstest_SOURCES = tests/ovstest-main.c
tests_ipoib_ovstest_SOURCES = \
	tests/fuzz-ipoib-packet.c \
	tests/ipoib-null-verbs.c \
	tests/ipoib-null-verbs.h \
	tests/ipoib-test-gateway.c \
	tests/ipoib-test-gateway.h \
	tests/ipoib-vectors.h \
	tests/test-ipoib-compat.c \
	tests/test-ipoib-datapath.c \
	tests/test-ipoib-fake.c \
	tests/test-ipoib-fake.h \
	tests/test-ipoib-mcast.c \
	tests/test-ipoib-packet.c \
	tests/test-ipoib-path.c \
	tests/test-ipoib-sa.c \
	tests/test-ipoib-subnet.c \
