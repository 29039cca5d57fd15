#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: the examples work with nothing but hicache.h and the library: contrib/examples/prefix.c as C11
# (the second run reads what the first one stored; another tail computes only that; a page that is
# damaged in the directory is a miss and is computed again), contrib/examples/transfer.c (tensors of
# an engine on the CPU), contrib/examples/smoke.py by ctypes.
. "${top_srcdir:-.}/tests/functions.sh"

cc=${CC:-cc}
[ "${HC_SANITIZE:-no}" = no ] || skip "the library of a sanitizer build needs a program built like it"
requires "${cc%% *}"
example=$top_srcdir/contrib/examples/prefix.c
lib=$top_builddir/.libs
[ -e "$lib/libhicache.so" ] || fail "$lib/libhicache.so is not built"
[ "$(wc -l <"$example")" -lt 100 ] || fail "the example has 100 lines or more"
$cc -std=c11 -Wall -Wextra -Wpedantic -Werror "-I$top_srcdir/src" "$example" "-L$lib" -lhicache \
	-o "$tmp/prefix" || fail "the example does not compile"

prefix()
{
	LD_LIBRARY_PATH=$lib timeout 60 "$tmp/prefix" "$@" >"$tmp/out" 2>"$tmp/err" || {
		cat "$tmp/out" "$tmp/err" >&2
		fail "prefix $*"
	}
}

# lines TEXT: how many lines of the output have it
lines()
{
	grep -c -- "$1" "$tmp/out"
}

mkdir "$tmp/cache"
prefix "$tmp/cache" 1 2 3 4 5 6 7 8 9 10 11 12 13
assert_eq "computed at first" 3 "$(lines 'computed and stored')"
prefix "$tmp/cache" 1 2 3 4 5 6 7 8 9 10 11 12 13
assert_eq "computed the second time" 0 "$(lines 'computed and stored')"
for i in 0 1 2; do
	assert_eq "page $i" "page $i: hit, first byte $i" "$(sed -n "$((i + 1))p" "$tmp/out")"
done
prefix "$tmp/cache" 1 2 3 4 5 6 7 8 70 80 90 100
assert_eq "read with another tail" 2 "$(lines hit)"
assert_eq "computed with another tail" 1 "$(lines 'computed and stored')"

# One bit in the middle of the page of the first tokens.
find "$tmp/cache/pages" -type f >"$tmp/files"
assert_eq "page files" 4 "$(wc -l <"$tmp/files")"
while read -r file; do
	printf '\377' | dd of="$file" bs=1 seek=1000 conv=notrunc status=none || fail "cannot damage $file"
done <"$tmp/files"
prefix "$tmp/cache" 1 2 3 4 5 6 7 8 9 10 11 12 13
assert_eq "read of damaged pages" 0 "$(lines hit)"
prefix "$tmp/cache" 1 2 3 4 5 6 7 8 9 10 11 12 13
assert_eq "read after they were computed again" 3 "$(lines hit)"

# A directory that somebody else's file is in.
mkdir "$tmp/foreign"
echo precious >"$tmp/foreign/file"
LD_LIBRARY_PATH=$lib "$tmp/prefix" "$tmp/foreign" 1 2 3 4 >"$tmp/out" 2>"$tmp/err" &&
	fail "a foreign directory was taken"
grep -q 'is not a cache directory' "$tmp/err" || fail "the message: $(cat "$tmp/err")"
assert_eq "the foreign file" precious "$(cat "$tmp/foreign/file")"

# Pages of tensors to the cache and back.
example=$top_srcdir/contrib/examples/transfer.c
[ "$(wc -l <"$example")" -lt 100 ] || fail "$example has 100 lines or more"
$cc -std=c11 -Wall -Wextra -Wpedantic -Werror "-I$top_srcdir/src" "$example" "-L$lib" -lhicache \
	-o "$tmp/transfer" || fail "$example does not compile"
LD_LIBRARY_PATH=$lib timeout 60 "$tmp/transfer" >"$tmp/out" 2>"$tmp/err" || {
	cat "$tmp/out" "$tmp/err" >&2
	fail "transfer"
}
assert_eq "what transfer says" "7 has ended: 4 pages
8 has ended: 4 pages
4 pages are the same" "$(cat "$tmp/out")"

command -v python3 >/dev/null 2>&1 || {
	echo "python3 is not installed: the library was not called from another language"
	exit 0
}
timeout 60 python3 "$top_srcdir/contrib/examples/smoke.py" "$lib/libhicache.so.0" || fail "smoke.py"
