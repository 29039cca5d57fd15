#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: a program with nothing but hicache.h compiles as C11 and as C++11 without a warning, links with
# the library and runs; against the build tree, and against an installed tree found by pkg-config.
. "${top_srcdir:-.}/tests/functions.sh"

cc=${CC:-cc}
cxx=${HEADER_CXX:-no}
[ "${HC_SANITIZE:-no}" = no ] || skip "the library of a sanitizer build needs a program built like it"
requires make "${cc%% *}"
warn="-Wall -Wextra -Wpedantic -Werror"

cat >"$tmp/use.c" <<'END'
#include <hicache.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	const char *version = hicache_version();

	puts(version);
	return version && strlen(version) ? 0 : 1;
}
END
cp "$tmp/use.c" "$tmp/use.cpp"
printf '#include <hicache.h>\n#include <hicache.h>\nextern int unused;\n' >"$tmp/alone.c"
cp "$tmp/alone.c" "$tmp/alone.cpp"

# try INCLUDE-FLAGS LINK-FLAGS LIBRARY-FOLDER
try()
{
	# The flags are lists.
	# shellcheck disable=SC2086
	{
		$cc -std=c11 $warn $1 -c "$tmp/alone.c" -o "$tmp/alone.o" || fail "the header alone is no C11"
		$cc -std=c11 $warn $1 "$tmp/use.c" $2 -o "$tmp/use-c" || fail "C11"
		[ "$cxx" = no ] || {
			$cxx -std=c++11 $warn $1 -c "$tmp/alone.cpp" -o "$tmp/alone.o" ||
				fail "the header alone is no C++"
			$cxx -std=c++11 $warn $1 "$tmp/use.cpp" $2 -o "$tmp/use-cpp" || fail "C++"
		}
	}
	for _p in "$tmp"/use-*; do
		LD_LIBRARY_PATH=$3 "$_p" >"$tmp/out" || fail "$_p does not run"
	done
}

lib=$top_builddir/.libs
[ -e "$lib/libhicache.so" ] || fail "$lib/libhicache.so is not built"
try "-I$top_srcdir/src" "-L$lib -lhicache" "$lib"

MAKEFLAGS='' make -s -C "$top_builddir" DESTDIR="$tmp/dest" prefix=/usr libdir=/usr/lib \
	includedir=/usr/include pkgconfigdir=/usr/lib/pkgconfig install-libLTLIBRARIES \
	install-includeHEADERS install-pkgconfigDATA >"$tmp/install.log" 2>&1 || {
	cat "$tmp/install.log"
	fail "make install"
}
[ "$(cd "$tmp/dest/usr/include" && ls)" = hicache.h ] || fail "more is installed than hicache.h"
pc=$tmp/dest/usr/lib/pkgconfig/hicache.pc
grep -q '@' "$pc" && fail "hicache.pc holds what configure should have filled in"
assert_eq "version in hicache.pc" "$(cat "$tmp/out")" "$(sed -n 's/^Version: //p' "$pc")"
requires "${PKG_CONFIG:-pkg-config}"
query()
{
	# hicache.pc names the configured prefix; the tree was installed elsewhere.
	PKG_CONFIG_PATH=$tmp/dest/usr/lib/pkgconfig "${PKG_CONFIG:-pkg-config}" \
		--define-variable=includedir="$tmp/dest/usr/include" \
		--define-variable=libdir="$tmp/dest/usr/lib" "$@" hicache
}
rm -f "$tmp"/use-*
try "$(query --cflags)" "$(query --libs)" "$tmp/dest/usr/lib"
