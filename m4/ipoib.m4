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

dnl IPOIB_MISSING(WHAT, DEBIAN-PACKAGE)
dnl
dnl Stops configure with the name of the package that has WHAT.
AC_DEFUN([IPOIB_MISSING],
  [AC_MSG_ERROR([$1 is missing.  On Debian: apt-get install $2])])

dnl IPOIB_DEFINE(MACRO)
dnl
dnl Adds "#define MACRO 1" to ipoib-config.h.
AC_DEFUN([IPOIB_DEFINE],
  [ipoib_defines="$ipoib_defines $1"])

dnl IPOIB_CONFIG_HEADER(FILE)
dnl
dnl Writes FILE from what IPOIB_DEFINE collected, and leaves it alone when it
dnl would stay the same, so that a new run of configure compiles nothing.
AC_DEFUN([IPOIB_CONFIG_HEADER],
  [AC_CONFIG_COMMANDS([$1],
     [{
        echo "/* Made by configure. */"
        echo
        for ipoib_macro in $ipoib_defines; do
            echo "#define $ipoib_macro 1"
        done
        echo
        echo "#define IPOIB_VERSION \"$ipoib_version\""
      } > $1.tmp
      if cmp -s $1 $1.tmp; then
          rm -f $1.tmp
      else
          mv -f $1.tmp $1
      fi],
     [ipoib_defines='$ipoib_defines'
      ipoib_version='$PACKAGE_VERSION'])])

dnl IPOIB_CCACHE
dnl
dnl Compiles through ccache where it is installed, unless the user chose CC.
dnl Objects are shared between build trees only if the names of files are
dnl relative to the tree, hence the two variables, which go to make as well.
AC_DEFUN([IPOIB_CCACHE],
  [AC_BEFORE([$0], [AC_PROG_CC])
   AC_ARG_VAR([CCACHE_BASEDIR],
              [directory below which ccache takes file names as relative])
   ipoib_ccache=no
   case $CC in
   '') if (ccache --version && gcc --version) >/dev/null 2>&1; then
           CC="ccache gcc"
           ipoib_ccache=yes
       fi ;;
   *ccache*) ipoib_ccache=yes ;;
   esac
   if test "$ipoib_ccache" = yes; then
       if test -z "$CCACHE_BASEDIR"; then
           ipoib_top=`cd "$srcdir" && pwd`
           case `pwd`/ in
           "$ipoib_top"/*) CCACHE_BASEDIR=$ipoib_top ;;
           *) CCACHE_BASEDIR=`pwd` ;;
           esac
       fi
       CCACHE_NOHASHDIR=1
       export CCACHE_BASEDIR CCACHE_NOHASHDIR
   fi
   AM_CONDITIONAL([USE_CCACHE], [test "$ipoib_ccache" = yes])])

dnl IPOIB_REFUSE_LTO
dnl
dnl -Wl,--wrap, which hooks the class into the stock daemon, misses references
dnl that link-time optimisation has resolved before.
AC_DEFUN([IPOIB_REFUSE_LTO],
  [case " $CC $CFLAGS $LDFLAGS " in
   *" -flto"*) AC_MSG_ERROR([-flto cannot be used: it defeats -Wl,--wrap]) ;;
   esac])

dnl IPOIB_CHECK_PROGRAMS
AC_DEFUN([IPOIB_CHECK_PROGRAMS],
  [AC_ARG_VAR([PYTHON3], [path of Python 3])
   dnl Prefer the system's own interpreter to what may be a slow wrapper.
   AS_IF([test -z "$PYTHON3" && test -x /usr/bin/python3],
         [PYTHON3=/usr/bin/python3])
   AC_PATH_PROG([PYTHON3], [python3])
   AS_IF([test -z "$PYTHON3"], [IPOIB_MISSING([python3], [python3])])
   AC_ARG_VAR([PKG_CONFIG], [path of pkg-config])
   AC_PATH_PROG([PKG_CONFIG], [pkg-config])
   AC_ARG_VAR([AUTOM4TE], [path of autom4te, which makes the test suites])
   AC_CHECK_PROGS([AUTOM4TE], [autom4te],
                  [\${SHELL} '$ac_aux_dir/missing' autom4te])])

dnl IPOIB_CHECK_RST2MAN
dnl
dnl Manual pages are made where docutils are installed.
AC_DEFUN([IPOIB_CHECK_RST2MAN],
  [AC_ARG_VAR([RST2MAN], [path of rst2man, which makes the manual pages])
   AC_PATH_PROGS([RST2MAN], [rst2man rst2man.py])
   AS_IF([test -z "$RST2MAN"],
     [AC_MSG_NOTICE([no manual pages without rst2man.  dnl
On Debian: apt-get install python3-docutils])])
   AM_CONDITIONAL([HAVE_RST2MAN], [test -n "$RST2MAN"])])

dnl IPOIB_CHECK_VERBS
AC_DEFUN([IPOIB_CHECK_VERBS],
  [AC_CHECK_HEADER([infiniband/verbs.h], [],
     [IPOIB_MISSING([infiniband/verbs.h], [libibverbs-dev])])
   AC_CHECK_HEADER([infiniband/umad.h], [],
     [IPOIB_MISSING([infiniband/umad.h], [libibumad-dev])])
   ipoib_save_LIBS=$LIBS
   LIBS=
   AC_SEARCH_LIBS([ibv_get_device_list], [ibverbs], [],
     [IPOIB_MISSING([libibverbs], [libibverbs-dev])])
   AC_SEARCH_LIBS([umad_init], [ibumad], [],
     [IPOIB_MISSING([libibumad], [libibumad-dev])])
   IPOIB_LIBS="$LIBS -lpthread"
   LIBS=$ipoib_save_LIBS
   AC_SUBST([IPOIB_LIBS])])

dnl IPOIB_ENABLE_WERROR
AC_DEFUN([IPOIB_ENABLE_WERROR],
  [AC_ARG_ENABLE([Werror],
     [AS_HELP_STRING([--enable-Werror], [make warnings errors])])
   IPOIB_WERROR=
   AS_IF([test "x$enable_Werror" = xyes], [IPOIB_WERROR=-Werror])
   AC_SUBST([IPOIB_WERROR])])

dnl IPOIB_ENABLE_SANITIZERS
dnl
dnl Of our own objects only: Open vSwitch's are linked as they are.
AC_DEFUN([IPOIB_ENABLE_SANITIZERS],
  [AC_ARG_ENABLE([sanitizers],
     [AS_HELP_STRING([--enable-sanitizers],
        [find bad use of memory and undefined behaviour at run time])])
   IPOIB_SANITIZE=
   AS_IF([test "x$enable_sanitizers" = xyes],
     [ipoib_save_CFLAGS=$CFLAGS
      IPOIB_SANITIZE="-fsanitize=address,undefined -fno-omit-frame-pointer"
      CFLAGS="$CFLAGS $IPOIB_SANITIZE"
      AC_MSG_CHECKING([whether sanitizers link])
      AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([$CC cannot link $IPOIB_SANITIZE])])
      CFLAGS=$ipoib_save_CFLAGS])
   AC_SUBST([IPOIB_SANITIZE])])

dnl IPOIB_CHECK_FAST_CPU
dnl
dnl The data path is compiled once more for CPUs that have these extensions.
AC_DEFUN([IPOIB_CHECK_FAST_CPU],
  [FAST_CPU_CFLAGS="-mavx2 -mbmi -mbmi2 -mmovbe -DIPOIB_FAST_CPU"
   ipoib_save_CFLAGS=$CFLAGS
   CFLAGS="$CFLAGS $FAST_CPU_CFLAGS"
   AC_CACHE_CHECK([whether $CC compiles for newer x86-64 CPUs],
     [ipoib_cv_fast_cpu],
     [AC_LINK_IFELSE([AC_LANG_PROGRAM([
@%:@include <cpuid.h>
@%:@include <immintrin.h>],
        [[#if !defined(__x86_64__) || !defined(__AVX2__) || !bit_MOVBE
          #error
          #endif
          return __builtin_cpu_supports("bmi2");]])],
        [ipoib_cv_fast_cpu=yes], [ipoib_cv_fast_cpu=no])])
   CFLAGS=$ipoib_save_CFLAGS
   AS_IF([test "$ipoib_cv_fast_cpu" = yes],
     [IPOIB_DEFINE([HAVE_FAST_CPU_VARIANT])])
   AM_CONDITIONAL([FAST_CPU_VARIANT], [test "$ipoib_cv_fast_cpu" = yes])
   AC_SUBST([FAST_CPU_CFLAGS])])
