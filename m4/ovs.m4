# -*- autoconf -*-

# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at:
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

dnl IPOIB_CHECK_OVS
dnl
dnl Finds a configured Open vSwitch build tree, or makes one below ./ovs, and
dnl takes from its Makefile what is needed to compile and link against it.
AC_DEFUN([IPOIB_CHECK_OVS],
  [AC_REQUIRE([IPOIB_CHECK_PROGRAMS])
   AC_ARG_WITH([ovs-source],
     [AS_HELP_STRING([--with-ovs-source=TARBALL|DIR],
        [Open vSwitch's source
         @<:@/usr/src/openvswitch/openvswitch.tar.gz@:>@])])
   AC_ARG_WITH([ovs-build],
     [AS_HELP_STRING([--with-ovs-build=DIR],
        [a configured Open vSwitch build tree, instead of one made here])])
   AC_ARG_WITH([dpdk],
     [AS_HELP_STRING([--with-dpdk@<:@=shared|static@:>@],
        [Open vSwitch with DPDK @<:@where libdpdk is installed@:>@])])
   AC_ARG_VAR([OVS_CONFIGURE_FLAGS],
     [arguments for the configure script of Open vSwitch])
   AC_ARG_VAR([OVS_CFLAGS], [CFLAGS for Open vSwitch @<:@-g -O2@:>@])

   case $with_dpdk in
   ''|yes|no|shared|static) ;;
   *) AC_MSG_ERROR([--with-dpdk=$with_dpdk: not one of shared, static, no]) ;;
   esac
   AS_IF([test -n "$with_ovs_build" && test "x$with_ovs_build" != xno],
     [AS_IF([test -n "$with_ovs_source"],
        [AC_MSG_ERROR([give --with-ovs-source or --with-ovs-build, not both])])
      IPOIB_OVS_READY_TREE],
     [IPOIB_OVS_MAKE_TREE])
   IPOIB_OVS_READ_MAKEFILE
   AC_SUBST([OVS_BUILD])
   AC_SUBST([OVS_SRC])])

dnl IPOIB_OVS_READY_TREE
AC_DEFUN([IPOIB_OVS_READY_TREE],
  [AC_MSG_CHECKING([for the Open vSwitch build tree])
   OVS_BUILD=`cd "$with_ovs_build" 2>/dev/null && pwd`
   AS_IF([test -z "$OVS_BUILD"],
     [AC_MSG_ERROR([--with-ovs-build=$with_ovs_build: no such directory])])
   for ipoib_file in Makefile config.h libtool; do
       AS_IF([test ! -e "$OVS_BUILD/$ipoib_file"],
         [AC_MSG_ERROR([--with-ovs-build=$with_ovs_build: dnl
not a configured Open vSwitch tree (no $ipoib_file in it)])])
   done
   AC_MSG_RESULT([$OVS_BUILD])])

dnl IPOIB_OVS_MAKE_TREE
dnl
dnl Unpacks and configures Open vSwitch below ./ovs.  The libraries are made
dnl by "make"; here only the headers that are generated, since the probes of
dnl IPOIB_CHECK_OVS_FEATURES need them.
AC_DEFUN([IPOIB_OVS_MAKE_TREE],
  [AS_IF([test -z "$with_ovs_source"],
     [with_ovs_source=/usr/src/openvswitch/openvswitch.tar.gz
      AS_IF([test ! -e $with_ovs_source],
        [IPOIB_MISSING([Open vSwitch's source ($with_ovs_source)],
                       [openvswitch-source])])])
   AC_MSG_CHECKING([for Open vSwitch's source])
   AS_IF([test -d "$with_ovs_source"],
     [OVS_SRC=`cd "$with_ovs_source" && pwd`
      AS_IF([test ! -x "$OVS_SRC/configure"],
        [AC_MSG_ERROR([$OVS_SRC has no configure script: dnl
run its ./boot.sh first])])
      AS_IF([test -e "$OVS_SRC/config.status"],
        [AC_MSG_ERROR([$OVS_SRC is configured in place: dnl
give it as --with-ovs-build])])],
     [test -f "$with_ovs_source"],
     [ipoib_sum=`sha256sum < "$with_ovs_source" | cut -c 1-16`
      OVS_SRC=`pwd`/ovs/src-$ipoib_sum
      AS_IF([test ! -e "$OVS_SRC/configure"],
        [rm -rf ovs/unpack
         AS_MKDIR_P([ovs/unpack])
         AS_IF([tar -x -f "$with_ovs_source" -C ovs/unpack \
                    --strip-components=1 && test -x ovs/unpack/configure],
           [rm -rf "$OVS_SRC"
            mv ovs/unpack "$OVS_SRC"],
           [AC_MSG_ERROR([$with_ovs_source: dnl
not a source archive of Open vSwitch])])])],
     [AC_MSG_ERROR([--with-ovs-source=$with_ovs_source: dnl
no such file or directory])])
   AC_MSG_RESULT([$OVS_SRC])

   ipoib_dpdk=
   AC_MSG_CHECKING([whether to build Open vSwitch with DPDK])
   case $with_dpdk in
   no) ;;
   shared|static) ipoib_dpdk=$with_dpdk ;;
   yes) ipoib_dpdk=shared ;;
   *) AS_IF([$PKG_CONFIG --exists libdpdk 2>/dev/null],
            [ipoib_dpdk=shared]) ;;
   esac
   AC_MSG_RESULT([${ipoib_dpdk:-no}])
   AS_IF([test -n "$ipoib_dpdk"],
     [AS_IF([test -z "$PKG_CONFIG"], [IPOIB_MISSING([pkg-config], [pkg-config])])
      AS_IF([$PKG_CONFIG --exists libdpdk], [],
        [IPOIB_MISSING([libdpdk], [libdpdk-dev])])])

   dnl Open vSwitch turns AF_XDP on by itself wherever it can.  Say which, so
   dnl that it is one or the other on purpose.
   ipoib_afxdp=--enable-afxdp
   for ipoib_header in bpf/libbpf.h xdp/xsk.h numa.h; do
       AC_CHECK_HEADER([$ipoib_header], [], [ipoib_afxdp=--disable-afxdp])
   done
   OVS_BUILD=`pwd`/ovs/build
   ipoib_args="--prefix=/usr --localstatedir=/var --sysconfdir=/etc"
   ipoib_args="$ipoib_args $ipoib_afxdp ${ipoib_dpdk:+--with-dpdk=$ipoib_dpdk}"
   ipoib_args="$ipoib_args $OVS_CONFIGURE_FLAGS"
   ipoib_cflags=${OVS_CFLAGS:--g -O2}
   ipoib_key="$OVS_SRC $CC $ipoib_cflags $PYTHON3 $ipoib_args"
   AS_IF([test "x`cat ovs/key 2>/dev/null`" = "x$ipoib_key" &&
          test -e ovs/build/config.status],
     [AC_MSG_NOTICE([Open vSwitch is configured already, in ovs/build])],
     [AC_MSG_NOTICE([configuring Open vSwitch, log in ovs/configure.log])
      rm -rf ovs/build ovs/key ovs.stamp
      AS_MKDIR_P([ovs/build])
      AS_IF([(cd ovs/build &&
              $SHELL "$OVS_SRC/configure" CC="$CC" CFLAGS="$ipoib_cflags" \
                  LDFLAGS= LIBS= CPPFLAGS= PYTHON3="$PYTHON3" $ipoib_args \
                  </dev/null) >ovs/configure.log 2>&1],
        [],
        [tail -n 5 ovs/configure.log >&2
         AC_MSG_ERROR([Open vSwitch cannot be configured: dnl
see ovs/configure.log])])
      AS_IF([(cd ovs/build &&
              printf 'include Makefile\nbuilt: $(BUILT_SOURCES)\n' |
              MAKEFLAGS= ${MAKE-make} -f - built) >>ovs/configure.log 2>&1],
        [AS_ECHO(["$ipoib_key"]) > ovs/key],
        [tail -n 5 ovs/configure.log >&2
         AC_MSG_ERROR([Open vSwitch's headers cannot be made: dnl
see ovs/configure.log])])])])

dnl IPOIB_OVS_VAR(VARIABLE, MAKE-VARIABLE)
dnl
dnl Sets VARIABLE to what MAKE-VARIABLE is in Open vSwitch's Makefile.
AC_DEFUN([IPOIB_OVS_VAR],
  [$1=`cd "$OVS_BUILD" &&
       printf 'include Makefile\nipoib-print: ; @echo "$[]($2)"\n' |
       MAKEFLAGS= ${MAKE-make} -s -f - ipoib-print`
   AC_SUBST([$1])])

dnl IPOIB_OVS_READ_MAKEFILE
AC_DEFUN([IPOIB_OVS_READ_MAKEFILE],
  [IPOIB_OVS_VAR([OVS_SRC], [abs_srcdir])
   AS_IF([test ! -e "$OVS_SRC/lib/netdev-provider.h"],
     [AC_MSG_ERROR([$OVS_BUILD: its source tree ($OVS_SRC) is gone])])
   IPOIB_OVS_VAR([OVS_VERSION], [VERSION])
   IPOIB_OVS_VAR([OVS_AM_CFLAGS], [AM_CFLAGS])
   IPOIB_OVS_VAR([OVS_LIBS], [LIBS])
   IPOIB_OVS_VAR([OVS_DPDK_LDFLAGS], [DPDK_vswitchd_LDFLAGS])

   dnl What the stock daemon is made of, as absolute names.
   IPOIB_OVS_VAR([ipoib_objects], [vswitchd_ovs_vswitchd_OBJECTS])
   IPOIB_OVS_VAR([ipoib_ldadd], [vswitchd_ovs_vswitchd_LDADD])
   OVS_VSWITCHD_LIBS=
   for ipoib_file in $ipoib_objects $ipoib_ldadd; do
       case $ipoib_file in
       /*|-*) ;;
       *) ipoib_file=$OVS_BUILD/$ipoib_file ;;
       esac
       OVS_VSWITCHD_LIBS="$OVS_VSWITCHD_LIBS $ipoib_file"
   done
   AC_SUBST([OVS_VSWITCHD_LIBS])
   AS_IF([grep -q 'build_libtool_libs=yes' "$OVS_BUILD/libtool"],
     [AC_MSG_ERROR([$OVS_BUILD builds shared libraries, which hide what a dnl
netdev class needs: configure it with --disable-shared])])

   OVS_DPDK=no
   OVS_AFXDP=no
   AS_IF([grep -q '^#define DPDK_NETDEV 1' "$OVS_BUILD/config.h"],
         [OVS_DPDK=yes])
   AS_IF([grep -q '^#define HAVE_AF_XDP 1' "$OVS_BUILD/config.h"],
         [OVS_AFXDP=yes])
   AC_SUBST([OVS_DPDK])
   AC_SUBST([OVS_AFXDP])
   AS_IF([test -n "$with_dpdk" && test "x$with_dpdk" != xno],
     [AS_IF([test $OVS_DPDK = no],
        [AC_MSG_ERROR([--with-dpdk: $OVS_BUILD was built without])])],
     [test "x$with_dpdk" = xno && test $OVS_DPDK = yes],
     [AC_MSG_ERROR([--without-dpdk: $OVS_BUILD was built with DPDK])])])

dnl IPOIB_OVS_MEMBER(STRUCT, MEMBER, MACRO, HEADER)
dnl
dnl Defines MACRO if STRUCT of Open vSwitch's HEADER has MEMBER.
AC_DEFUN([IPOIB_OVS_MEMBER],
  [IPOIB_OVS_COMPILE([whether Open vSwitch's struct $1 has $2], [$3], [$4],
     [struct $1 *x = 0; (void) sizeof x->$2;])])

dnl IPOIB_OVS_COMPILE(MESSAGE, MACRO, HEADERS, BODY)
AC_DEFUN([IPOIB_OVS_COMPILE],
  [AC_CACHE_CHECK([$1], [AS_TR_SH([ipoib_cv_$2])],
     [AC_COMPILE_IFELSE(
        [AC_LANG_PROGRAM([[#include <config.h>]
m4_foreach_w([header], [$3], [[#include "]header["
]])], [$4])],
        [AS_TR_SH([ipoib_cv_$2])=yes],
        [AS_TR_SH([ipoib_cv_$2])=no])])
   AS_IF([test "$AS_TR_SH([ipoib_cv_$2])" = yes], [IPOIB_DEFINE([$2])])])

dnl IPOIB_CHECK_OVS_FEATURES
dnl
dnl One macro for each thing that differs between releases of Open vSwitch.
dnl Only lib/ipoib-compat.h uses them.
AC_DEFUN([IPOIB_CHECK_OVS_FEATURES],
  [AC_REQUIRE([IPOIB_CHECK_OVS])
   ipoib_save_CPPFLAGS=$CPPFLAGS
   ipoib_save_CFLAGS=$CFLAGS
   CPPFLAGS="-I$OVS_BUILD -I$OVS_SRC -I$OVS_SRC/include dnl
-I$OVS_BUILD/include -I$OVS_SRC/lib -I$OVS_BUILD/lib $CPPFLAGS"
   CFLAGS="$OVS_AM_CFLAGS $CFLAGS -Werror=implicit-function-declaration"

   dnl If not even this compiles, then the answers below would mean nothing.
   AC_MSG_CHECKING([whether Open vSwitch's headers can be compiled])
   AC_COMPILE_IFELSE(
     [AC_LANG_PROGRAM([[#include <config.h>
                        #include "netdev-provider.h"
                        #include "dp-packet.h"
                        #include "unixctl.h"]],
                      [[struct netdev_class c; (void) sizeof c.rxq_recv;]])],
     [AC_MSG_RESULT([yes])],
     [AC_MSG_RESULT([no])
      AC_MSG_ERROR([the headers in $OVS_SRC cannot be compiled: dnl
see config.log])])

   IPOIB_OVS_MEMBER([netdev_class], [get_speed], [HAVE_NETDEV_GET_SPEED],
                    [netdev-provider.h])
   IPOIB_OVS_MEMBER([netdev_class], [get_duplex], [HAVE_NETDEV_GET_DUPLEX],
                    [netdev-provider.h])
   IPOIB_OVS_MEMBER([dp_packet], [offloads], [HAVE_DP_PACKET_OFFLOADS],
                    [dp-packet.h])
   IPOIB_OVS_COMPILE([whether Open vSwitch completes checksums itself],
     [HAVE_DP_PACKET_OL_SEND_PREPARE], [dp-packet.h],
     [(void) &dp_packet_ol_send_prepare;])
   IPOIB_OVS_MEMBER([dp_packet_batch], [capacity],
                    [HAVE_DP_PACKET_BATCH_CAPACITY], [dp-packet.h])
   IPOIB_OVS_COMPILE([whether Open vSwitch has unixctl_command_reply_json()],
     [HAVE_UNIXCTL_REPLY_JSON], [unixctl.h],
     [(void) &unixctl_command_reply_json;])
   IPOIB_OVS_COMPILE([whether compose_nd_ns() can address one station],
     [HAVE_COMPOSE_ND_NS_MULTICAST], [packets.h],
     [struct eth_addr mac = eth_addr_zero;
      compose_nd_ns((struct dp_packet *) 0, true, mac,
                    &in6addr_any, &in6addr_any);])
   IPOIB_OVS_COMPILE([whether daemonize_start() takes hardware access],
     [HAVE_DAEMONIZE_START_HW], [daemon.h],
     [daemonize_start(true, true);])
   IPOIB_OVS_COMPILE([whether Open vSwitch has json_array_at()],
     [HAVE_JSON_ARRAY_AT], [openvswitch/json.h],
     [(void) &json_array_at;])
   CPPFLAGS=$ipoib_save_CPPFLAGS
   CFLAGS=$ipoib_save_CFLAGS])
