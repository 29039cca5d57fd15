#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What counts as a use of a page, seen by what a full pool evicts: touch and touch -a, open and read, a read through a
# handle that was opened long before. stat and ls are none. The time of the last use is shown as atime.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

mnt=$tmp/mnt
page=65536

name_of()
{
	printf '%s/s/%02x%062x.bin' "$mnt" $((1 + $1 % 250)) "$1"
}

# put FROM TO: each by a process of its own, so that no two are of one walk.
put()
{
	for _i in $(seq "$1" "$2"); do
		head -c $page /dev/zero >"$(name_of "$_i")" || fail "page $_i cannot be written"
	done
}

start_daemon "$tmp/cache" "$mnt" -o \
	"pool_size=$((512 * page)),max_page_bytes=$page,disk_size=0,high=100%,low=100%" || fail "the daemon did not start"
mkdir "$mnt/s"
put 1 500
exec 9<"$(name_of 5)"
before=$(date +%s)
# So that times differ, and a read through an old handle counts.
wait_until 10 sh -c "[ \$(date +%s) -gt $((before + 2)) ]" || fail "the clock stands still"
touch "$(name_of 2)" || fail "touch: status $?"
touch -a "$(name_of 3)" || fail "touch -a: status $?"
cat "$(name_of 4)" >/dev/null
head -c 100 <&9 >/dev/null
exec 9<&-
stat "$(name_of 1)" >/dev/null
ls -l "$mnt/s" >/dev/null
for i in 2 3 4 5; do
	[ "$(stat -c %X "$(name_of $i)")" -gt "$((before + 1))" ] || fail "page $i: its use is not shown as atime"
done
assert_eq "atime of a page that was only looked at" "$(stat -c %Y "$(name_of 1)")" "$(stat -c %X "$(name_of 1)")"
assert_eq "nothing was evicted yet" 500 "$(sed -n 's/^n_pages //p' "$mnt/.hicache/stats")"
put 501 900
for i in 2 3 4 5; do
	[ -e "$(name_of $i)" ] || fail "page $i was used, and evicted before others"
done
for i in 1 6 7 8 100; do
	[ ! -e "$(name_of $i)" ] || fail "page $i was not used, and stays"
done
stop_daemon || fail "the daemon ended with status $?"
