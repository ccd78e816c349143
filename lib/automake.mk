# To add a source: one line here.
noinst_LTLIBRARIES += lib/libipoib.la
lib_libipoib_la_SOURCES = \
	lib/ipoib-compat.h \
	lib/ipoib-hca.c \
	lib/ipoib-hca.h \
	lib/ipoib-host.c \
	lib/ipoib-host.h \
	lib/ipoib-hostqp.c \
	lib/ipoib-hostqp.h \
	lib/ipoib-mad.c \
	lib/ipoib-mad.h \
	lib/ipoib-mcast.c \
	lib/ipoib-mcast.h \
	lib/ipoib-msgq.c \
	lib/ipoib-msgq.h \
	lib/ipoib-neigh.c \
	lib/ipoib-neigh.h \
	lib/ipoib-packet.c \
	lib/ipoib-packet.h \
	lib/ipoib-path.c \
	lib/ipoib-path.h \
	lib/ipoib-pool-private.h \
	lib/ipoib-pool.c \
	lib/ipoib-pool.h \
	lib/ipoib-ring-private.h \
	lib/ipoib-ring.c \
	lib/ipoib-ring.h \
	lib/ipoib-rx.c \
	lib/ipoib-rx.h \
	lib/ipoib-sa.c \
	lib/ipoib-sa.h \
	lib/ipoib-snoop.c \
	lib/ipoib-snoop.h \
	lib/ipoib-stats.h \
	lib/ipoib-slots.c \
	lib/ipoib-slots.h \
	lib/ipoib-table.c \
	lib/ipoib-table.h \
	lib/ipoib-tx.c \
	lib/ipoib-tx.h \
	lib/ipoib-verbs.h \
	lib/ipoib-wire.c \
	lib/ipoib-wire.h
