# To add a source: one line here.
noinst_LTLIBRARIES += lib/libipoib.la
lib_libipoib_la_SOURCES = \
	lib/ipoib-compat.h \
	lib/ipoib-packet.h \
	lib/ipoib-verbs.h \
	lib/ipoib-wire.c \
	lib/ipoib-wire.h
