dnl SPDX-License-Identifier: Apache-2.0
dnl How the tree is built for a special purpose: sanitizers, warnings as errors, coverage, fuzzing.
dnl Each macro sets a shell variable for the summary (hc_sanitize, hc_werror, hc_coverage, hc_fuzz) and
dnl appends to HC_CFLAGS and HC_LDFLAGS, never to the user's own CFLAGS.

dnl HC_LINK_FLAG(FLAG, IF-YES, IF-NO): can a program be compiled and linked with it?
AC_DEFUN([HC_LINK_FLAG], [
	hc_save_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS $1"
	AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdlib.h>]], [[free(malloc(1));]])], [hc_flag_works=yes],
		[hc_flag_works=no])
	CFLAGS=$hc_save_CFLAGS
	AS_IF([test "$hc_flag_works" = yes], [$2], [$3])
])

dnl HC_COMPILE_FLAG(FLAG): adds it to HC_CFLAGS where the compiler takes it without a warning.
AC_DEFUN([HC_COMPILE_FLAG], [
	AC_MSG_CHECKING([whether $CC accepts $1])
	hc_save_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS -Werror $1"
	AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[]], [[]])], [hc_flag_works=yes], [hc_flag_works=no])
	CFLAGS=$hc_save_CFLAGS
	AC_MSG_RESULT([$hc_flag_works])
	AS_IF([test "$hc_flag_works" = yes], [HC_CFLAGS="$HC_CFLAGS $1"])
])

AC_DEFUN([HC_SANITIZE], [
	AC_ARG_ENABLE([sanitize],
		[AS_HELP_STRING([--enable-sanitize=LIST],
			[build with sanitizers: address,undefined (also alone) or thread])],
		[hc_sanitize=$enableval], [hc_sanitize=no])
	AS_CASE([$hc_sanitize],
		[yes], [hc_sanitize=address,undefined],
		[no|address|undefined|address,undefined|undefined,address|thread], [],
		[AC_MSG_ERROR([--enable-sanitize=$hc_sanitize: use address,undefined or thread])])
	AS_IF([test "$hc_sanitize" != no], [
		AC_MSG_CHECKING([whether $CC links with -fsanitize=$hc_sanitize])
		HC_LINK_FLAG([-fsanitize=$hc_sanitize], [AC_MSG_RESULT([yes])], [
			AC_MSG_RESULT([no])
			AC_MSG_ERROR([$CC cannot link with -fsanitize=$hc_sanitize: install its sanitizer libraries (libasan, libubsan, libtsan; clang: libclang-rt-dev)])])
		hc_sanitize_flags="-fsanitize=$hc_sanitize -fno-omit-frame-pointer -g"
		AS_CASE([$hc_sanitize], [*undefined*],
			[hc_sanitize_flags="$hc_sanitize_flags -fno-sanitize-recover=undefined"])
		HC_CFLAGS="$HC_CFLAGS $hc_sanitize_flags"
		HC_LDFLAGS="$HC_LDFLAGS -fsanitize=$hc_sanitize"
	])
	AM_CONDITIONAL([SANITIZE], [test "$hc_sanitize" != no])
])

AC_DEFUN([HC_WERROR], [
	AC_ARG_ENABLE([werror],
		[AS_HELP_STRING([--enable-werror], [warnings are errors (for CI, not for packages)])],
		[hc_werror=$enableval], [hc_werror=no])
	AS_IF([test "$hc_werror" != no], [HC_CFLAGS="$HC_CFLAGS -Werror"])
])

AC_DEFUN([HC_COVERAGE], [
	AC_ARG_ENABLE([coverage],
		[AS_HELP_STRING([--enable-coverage], [count executed lines for "make coverage"])],
		[hc_coverage=$enableval], [hc_coverage=no])
	AS_IF([test "$hc_coverage" != no], [
		AC_MSG_CHECKING([whether $CC links with --coverage])
		HC_LINK_FLAG([--coverage], [AC_MSG_RESULT([yes])], [
			AC_MSG_RESULT([no])
			AC_MSG_ERROR([$CC cannot link with --coverage])])
		HC_CFLAGS="$HC_CFLAGS --coverage -fprofile-update=atomic -O0"
		HC_LDFLAGS="$HC_LDFLAGS --coverage"
	])
	AM_CONDITIONAL([COVERAGE], [test "$hc_coverage" != no])
])

AC_DEFUN([HC_FUZZ], [
	AC_ARG_ENABLE([fuzz],
		[AS_HELP_STRING([--enable-fuzz], [build the fuzz targets with libFuzzer (needs CC=clang)])],
		[hc_fuzz=$enableval], [hc_fuzz=no])
	AS_IF([test "$hc_fuzz" != no], [
		AC_MSG_CHECKING([whether $CC has libFuzzer])
		HC_LINK_FLAG([-fsanitize=fuzzer-no-link], [AC_MSG_RESULT([yes])], [
			AC_MSG_RESULT([no])
			AC_MSG_ERROR([--enable-fuzz needs clang: configure with CC=clang])])
		HC_CFLAGS="$HC_CFLAGS -fsanitize=fuzzer-no-link"
		HC_FUZZ_LIB=-fsanitize=fuzzer
	])
	AM_CONDITIONAL([LIBFUZZER], [test "$hc_fuzz" != no])
])
