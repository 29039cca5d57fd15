#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A page as operators see it, on both byte paths: its name is its key and its content the flat page that
# a program has published; a name that nobody published is not there (behaviour 63 of SGLang's
# controller, but that names can be written); a prefix that is there in part is a chain: each page tells
# its parent, and pages are listed by depth (behaviour 64).
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires getfattr
cc=${CC:-cc}
[ "${HC_SANITIZE:-no}" = no ] || skip "the library of a sanitizer build needs a program built like it"
requires "${cc%% *}"
page_bytes=4096 # of the example's model

$cc "-I$top_srcdir/src" "$top_srcdir/contrib/examples/prefix.c" "-L$top_builddir/.libs" -lhicache -o "$tmp/prefix" ||
	fail "the example does not compile"
publish()
{
	LD_LIBRARY_PATH=$top_builddir/.libs timeout 60 "$tmp/prefix" "$tmp/cache" "$@" >"$tmp/out" 2>&1 ||
		fail "prefix: $(cat "$tmp/out")"
}
hashes()
{
	"$hicachectl_bin" hash --page-tokens 4
}
attr()
{
	getfattr --only-values --absolute-names -n "user.hicache.$1" "$2" 2>/dev/null
}

mkdir "$tmp/cache"
publish $(seq 1 24)
seq 1 24 | hashes >"$tmp/chain"
assert_eq "pages of the prompt" 6 "$(wc -l <"$tmp/chain")"
# Another tail: the pages before it are the same ones.
publish $(seq 1 12) 70 80 90 100
{ seq 1 12; echo 70 80 90 100; } | hashes | tail -n 1 >"$tmp/other"

check_page()
{
	_file=$dir/$1.kv
	[ -f "$_file" ] || fail "page $2: $1 is not there"
	assert_eq "size of page $2" "$page_bytes" "$(stat -c %s "$_file")"
	head -c "$page_bytes" /dev/zero | tr '\0' "\\$(printf %03o "$2")" | cmp - "$_file" || fail "page $2 differs"
	assert_eq "hash of page $2" "$1" "$(attr hash "$_file")"
	assert_eq "depth of page $2" "$2" "$(attr depth "$_file")"
	assert_eq "parent of page $2" "$3" "$(attr parent "$_file")"
}

for mode in auto off; do
	start_daemon "$tmp/cache" "$tmp/mnt" -o "pool_size=64M,passthrough=$mode" || fail "the daemon did not start"
	dir=$(dirname "$(find "$tmp/mnt/example" -name "$(head -n 1 "$tmp/chain").kv")")
	[ "$dir" != . ] || fail "the first page is not in the mount"
	sort "$tmp/chain" "$tmp/other" | sed 's/$/.kv/' >"$tmp/want"
	ls "$dir" | sort | diff "$tmp/want" - || fail "ls shows other names"
	parent=
	depth=0
	while read -r hash; do
		check_page "$hash" "$depth" "$parent"
		parent=$hash
		depth=$((depth + 1))
	done <"$tmp/chain"
	check_page "$(cat "$tmp/other")" 3 "$(sed -n 3p "$tmp/chain")"

	# The beginning of the prompt comes first.
	ctl ls --sort depth -r "$dir" >"$tmp/sorted" || fail "ls --sort depth"
	for n in 1 2 3; do
		grep -q "$(sed -n ${n}p "$tmp/chain")" <<-END || fail "not by depth: $(cat "$tmp/sorted")"
		$(grep '\.kv' "$tmp/sorted" | sed -n ${n}p)
		END
	done
	unknown=$dir/$(seq 501 504 | hashes).kv
	[ ! -e "$unknown" ] || fail "a page that nobody published is there"
	! cat "$unknown" 2>"$tmp/err" || fail "a page that nobody published can be read"
	grep -q 'No such file' "$tmp/err" || fail "$(cat "$tmp/err")"
	stop_daemon || fail "the daemon ended with status $?"
done

# Of a prompt of which the end was removed the beginning is still a chain.
start_daemon "$tmp/cache" "$tmp/mnt" -o pool_size=64M || fail "the daemon did not start"
sed -n '5,6p' "$tmp/chain" | while read -r hash; do
	rm "$dir/$hash.kv" || fail "rm"
done
parent=
depth=0
sed 4q "$tmp/chain" | while read -r hash; do
	check_page "$hash" "$depth" "$parent"
	parent=$hash
	depth=$((depth + 1))
done || exit 1
stop_daemon || fail "the daemon ended with status $?"
publish $(seq 1 24)
assert_eq "pages of the prompt that were read" 4 "$(grep -c hit "$tmp/out")"
