#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: what the library exports, what libhicache.map lists, what hicache.h declares and what the man
# pages man/hicache*.pod explain are the same symbols; the map is sorted.
. "${top_srcdir:-.}/tests/functions.sh"
requires nm

map=$top_srcdir/src/libhicache.map
lib=$top_builddir/.libs/libhicache.so
[ -e "$lib" ] || fail "$lib is not built"

# same WHAT FILE WHAT FILE
same()
{
	diff "$2" "$4" >"$tmp/diff" || {
		sed -n "s/^</only in $1:/p; s/^>/only in $3:/p" "$tmp/diff"
		fail "$1 and $3 differ"
	}
}

sed -n 's/^	\(hicache_[a-z0-9_]*\);$/\1/p' "$map" >"$tmp/map-order"
[ -s "$tmp/map-order" ] || fail "$map lists no symbol"
assert_eq "lines of the map with a symbol that are not \"<tab>NAME;\"" "$(wc -l <"$tmp/map-order")" \
	"$(grep -c 'hicache_[a-z]' "$map")"
sort -u "$tmp/map-order" >"$tmp/map"
same "the map as it is" "$tmp/map-order" "the sorted map" "$tmp/map"

nm -D --defined-only "$lib" | sed -n 's/^[0-9a-f]* [TDBR] \([^@]*\).*$/\1/p' | sort -u >"$tmp/library"
same "the library" "$tmp/library" "the map" "$tmp/map"

# Comments name functions too.
${CC:-cc} -E -P -I"$top_srcdir/src" "$top_srcdir/src/hicache.h" >"$tmp/header.i" || fail "cannot read hicache.h"
grep -Eo 'hicache_[a-z0-9_]+[[:space:]]*\(' "$tmp/header.i" | tr -d '( \t' | sort -u >"$tmp/header"
same "hicache.h" "$tmp/header" "the map" "$tmp/map"

set -- "$top_srcdir"/man/hicache*.pod
[ -e "$1" ] || {
	echo "no man page yet: symbols and pages not compared"
	exit 0
}
grep -Eoh 'hicache_[a-z0-9_]+' "$@" | sort -u >"$tmp/pages-all"
comm -23 "$tmp/map" "$tmp/pages-all" >"$tmp/unexplained"
[ ! -s "$tmp/unexplained" ] || {
	cat "$tmp/unexplained"
	fail "these symbols are in no page man/hicache*.pod"
}
# A page that explains a function that is not there: names of functions carry brackets in pages.
grep -Eoh 'hicache_[a-z0-9_]+(>|\*)?\(' "$@" | tr -d '>*(' | sort -u >"$tmp/pages-functions"
comm -13 "$tmp/map" "$tmp/pages-functions" >"$tmp/unknown"
[ ! -s "$tmp/unknown" ] || {
	cat "$tmp/unknown"
	fail "pages in man/ explain functions that are not exported"
}
