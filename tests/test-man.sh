#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: the manual pages are sound: POD without errors, a NAME line that other pages can be found by,
# every public function in exactly one of them, every page listed in man/Makefile.inc, and references
# only to pages of ours that are there.
. "${top_srcdir:-.}/tests/functions.sh"

man=$top_srcdir/man
set -- "$man"/*.pod
[ -e "$1" ] || fail "no page in $man"
for pod in "$@"; do
	page=${pod##*/}
	page=${page%.pod}
	grep -q "^	man/$page\( \\\\\)\{0,1\}\$" "$man/Makefile.inc" || fail "$page is not in man/Makefile.inc"
	sed -n '/^=head1 NAME/,/^=head1 [^N]/p' "$pod" | sed '1,2d' | head -n 1 >"$tmp/name"
	grep -Eq '^[a-z0-9_.]+(, [a-z0-9_.]+)* - .' "$tmp/name" || fail "$page: its NAME is not one line: NAMES - TEXT"
	sed 's/ - .*//' "$tmp/name" | tr -d ' ' | tr ',' '\n' | sed "s/\$/ $page/" >>"$tmp/names"
	grep -qx "${page%.*} $page" "$tmp/names" || fail "$page does not name itself"
done
sed -n 's/^	\(hicache_[a-z0-9_]*\);$/\1/p' "$top_srcdir/src/libhicache.map" | sort >"$tmp/map"
sed -n 's/^\(hicache_[a-z0-9_]*\) .*\.3$/\1/p' "$tmp/names" | sort >"$tmp/explained"
diff "$tmp/map" "$tmp/explained" || fail "functions (<) and the names that pages in section 3 explain (>) differ"

sed 's/\.\([0-9]\)$/ \1/; s/^\([^ ]*\) .* \([0-9]\)$/\1(\2)/' "$tmp/names" | sort -u >"$tmp/there"
grep -Eho '\b(hicache[a-z0-9_]*|mount\.hicachefs)\([1-8]\)' "$@" | sort -u >"$tmp/wanted"
comm -13 "$tmp/there" "$tmp/wanted" >"$tmp/missing"
# The pages of the daemon and its tool.
grep -Evx '(hicachefs|hicachectl)\(1\)|hicachefs\(5\)|mount\.hicachefs\(8\)' "$tmp/missing" && fail "these pages are not there"

command -v podchecker >/dev/null 2>&1 || {
	echo "podchecker is not installed: the syntax of the pages was not checked"
	exit 0
}
podchecker "$@" >"$tmp/podchecker" 2>&1 || {
	grep -v 'syntax OK' "$tmp/podchecker"
	fail "POD errors"
}
! grep -q WARNING "$tmp/podchecker" || {
	grep WARNING "$tmp/podchecker"
	fail "POD warnings"
}
