#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Passthrough: pages that lie on disk alone are opened by the kernel. Each part looks at the counters, so that the
# other path cannot pass for it. What is damaged is a miss, also when the damage came after the first use; a page
# that is open keeps its bytes; O_DIRECT and pages in memory go through the daemon; both paths on one page at once.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
# shellcheck disable=SC2034 # of functions.sh: each mount here says it itself
HC_TEST_PASSTHROUGH=

mnt=$tmp/mnt
start_daemon "$tmp/cache" "$mnt" -o pool_size=128M || fail "the daemon did not start"
grep -qx '# passthrough in force: on' "$mnt/.hicache/config" ||
	skip "no passthrough: $(sed -n 's/^# passthrough in force: //p' "$mnt/.hicache/config")"
assert_eq "passthrough in the stats" 1 "$(sed -n 's/^fs_has_passthrough //p' "$mnt/.hicache/stats")"

stat_of()
{
	sed -n "s/^$1 //p" "$mnt/.hicache/stats"
}

no_backing_ids()
{
	[ "$(stat_of fs_n_backing_ids)" = 0 ]
}

page()
{
	printf '%s/s/%064x.data' "$mnt" "$1"
}

# file NUMBER: where its bytes lie.
file()
{
	ls "$tmp/cache/pages"/*/*-"$(printf %064x "$1")"-*
}

# damage NUMBER OFFSET: random bytes may be one that is written, but not three.
damage()
{
	printf '\377\000\377' | dd of="$(file "$1")" bs=1 seek="$2" conv=notrunc 2>"$tmp/dd" || fail "cannot damage: $(cat "$tmp/dd")"
}

mkdir "$mnt/s"
for i in 1 2 3 4 5 6; do
	head -c $((1000000 + i)) /dev/urandom >"$tmp/$i"
	cp "$tmp/$i" "$(page $i).tmp" && mv "$(page $i).tmp" "$(page $i)" || fail "page $i cannot be written"
done
ctl sync >/dev/null || fail "sync"
ctl evict --memory >/dev/null || fail "evict"
assert_eq "pages in memory" 0 "$(stat_of n_pages_memory)"

# The first open verifies, later ones do not; no byte goes through the daemon.
verified=$(stat_of files_verified)
opens=$(stat_of fs_passthrough_opens)
reads=$(stat_of fs_reads)
for round in 1 2; do
	for i in 1 2 3 4 5 6; do
		cmp "$tmp/$i" "$(page $i)" || fail "page $i differs, round $round"
	done
done
assert_eq "passthrough opens" $((opens + 12)) "$(stat_of fs_passthrough_opens)"
assert_eq "verifications" $((verified + 6)) "$(stat_of files_verified)"
assert_eq "reads through the daemon" "$reads" "$(stat_of fs_reads)"
assert_eq "pages in memory" 0 "$(stat_of n_pages_memory)"
wait_until 60 no_backing_ids || fail "backing files stay open"

# evict --memory forgets that they were right.
ctl evict --memory >/dev/null
cmp "$tmp/1" "$(page 1)" || fail "page 1 differs"
assert_eq "verifications after evict --memory" $((verified + 7)) "$(stat_of files_verified)"

# An open page is no victim, and keeps its bytes without its name.
exec 3<"$(page 1)"
ctl evict "$(page 1)" | grep -q 'kept 1 page' || fail "a page that is open was evicted"
rm "$(page 1)"
cmp "$tmp/1" - <&3 || fail "a page that was unlinked differs"
exec 3<&-
[ ! -e "$(page 1)" ] || fail "it is there still"

# Damage after the first use changes the file's times: a miss, and out of the way.
damage 2 5000
! cat "$(page 2)" >/dev/null 2>&1 || fail "a damaged page was served"
grep -q "page [0-9]*-$(printf %064x 2) is damaged on disk: a miss" "$daemon_log" || fail "the log does not say so"
[ ! -e "$(page 2)" ] || fail "a damaged page has its name still"
quarantined()
{
	[ -n "$(find "$tmp/cache/quarantine" -type f)" ]
}
# The reaper puts it there, behind the answer.
wait_until 20 quarantined || fail "it is not in quarantine"
truncate -s 5 "$(file 3)"
! cat "$(page 3)" >/dev/null 2>&1 || fail "a page cut short was served"

# O_DIRECT, of a size that a disk would refuse: by the daemon, while another handle of it is the kernel's.
exec 3<"$(page 4)"
dd if="$(page 4)" of="$tmp/got" bs=1000004 count=1 iflag=direct 2>"$tmp/dd" || fail "O_DIRECT: $(cat "$tmp/dd")"
cmp "$tmp/4" "$tmp/got" || fail "O_DIRECT differs"
cmp "$tmp/4" - <&3 || fail "the other handle differs"
exec 3<&-
# It is in memory, too: by the daemon.
opens=$(stat_of fs_passthrough_opens)
wait_until 60 no_backing_ids || fail "backing files stay open"
cmp "$tmp/4" "$(page 4)" || fail "page 4 differs"
assert_eq "passthrough opens of a page in memory" "$opens" "$(stat_of fs_passthrough_opens)"

# No open fails with EIO, however the name is opened, written anew, renamed over and unlinked meanwhile.
timeout 250 "$top_builddir/tests/fuse-passthrough" "$mnt/s" "${HC_TEST_OPENS:-2000}" >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
cat "$tmp/out"

stop_daemon || fail "the daemon ended with status $?"
start_daemon "$tmp/cache" "$mnt" -o pool_size=128M,passthrough=writes || fail "the daemon did not start with passthrough=writes"
grep -qx '# passthrough in force: on, for writes too' "$mnt/.hicache/config" || fail "it says: $(tail -1 "$mnt/.hicache/config")"
timeout 250 "$top_builddir/tests/fuse-passthrough" "$mnt/s" "${HC_TEST_OPENS:-2000}" >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"

# Bodies are files from the start: written, read and mapped by the kernel, while they are written and after.
opens=$(stat_of fs_passthrough_opens)
writes=$(stat_of fs_writes)
for i in 7 8; do
	head -c $((3000000 + i)) /dev/urandom >"$tmp/$i"
done
cp "$tmp/7" "$(page 7).tmp" && mv "$(page 7).tmp" "$(page 7)" || fail "page 7 cannot be written"
cp "$tmp/8" "$(page 8)" || fail "page 8 cannot be written in place"
cmp "$tmp/7" "$(page 7)" || fail "page 7 differs"
cmp "$tmp/8" "$(page 8)" || fail "page 8 differs"
assert_eq "passthrough opens of two sets and gets" $((opens + 4)) "$(stat_of fs_passthrough_opens)"
assert_eq "writes through the daemon" "$writes" "$(stat_of fs_writes)"
ctl sync >/dev/null || fail "sync"
[ "$(file 7 | wc -l)" = 1 ] || fail "page 7 is not on disk"
exec 3>"$(page 9).tmp"
head -c 100000 "$tmp/7" >&3
assert_eq "size while it is written" 100000 "$(stat -c %s "$(page 9).tmp")"
head -c 100000 "$tmp/7" | cmp - "$(page 9).tmp" || fail "what is written so far differs"
mv "$(page 9).tmp" "$(page 9)"
tail -c +100001 "$tmp/7" >&3
exec 3>&-
cmp "$tmp/7" "$(page 9)" || fail "page 9, renamed before it was whole, differs"
touch -d '2020-02-02 02:02:02 UTC' "$tmp/7"
cp -p "$tmp/7" "$(page 10)" || fail "cp -p"
assert_eq "time of a copy" "$(stat -c %Y "$tmp/7")" "$(stat -c %Y "$(page 10)")"

# A killed writer's body is none.
(
	exec 3>"$(page 11)"
	head -c 100000 "$tmp/7" >&3
	kill -KILL "$(sh -c 'echo $PPID')"
)
[ ! -e "$(page 11)" ] || fail "half a page of a killed writer is there"
wait_until 60 no_backing_ids || fail "backing files stay open"

# Damage between two runs.
stop_daemon || fail "the daemon ended with status $?"
damage 5 1000000
start_daemon "$tmp/cache" "$mnt" -o pool_size=128M || fail "the daemon did not start again"
! cat "$(page 5)" >/dev/null 2>&1 || fail "a page damaged between two runs was served"
grep -q "page [0-9]*-$(printf %064x 5) is damaged on disk: a miss" "$daemon_log" || fail "the log does not say so"
for i in 6 7 8; do
	cmp "$tmp/$i" "$(page $i)" || fail "page $i differs after a restart"
done
stop_daemon || fail "the daemon ended with status $?"

# Off is off.
start_daemon "$tmp/cache" "$mnt" -o pool_size=128M,passthrough=off || fail "the daemon did not start with passthrough=off"
grep -qx '# passthrough in force: off: passthrough=off' "$mnt/.hicache/config" || fail "it says: $(tail -1 "$mnt/.hicache/config")"
cmp "$tmp/6" "$(page 6)" || fail "page 6 differs without passthrough"
assert_eq "passthrough opens" 0 "$(stat_of fs_passthrough_opens)"
stop_daemon || fail "the daemon ended with status $?"
start_daemon "$tmp/cache" "$mnt" -o pool_size=128M,disk_size=0 || fail "the daemon did not start with disk_size=0"
grep -qx '# passthrough in force: off: disk_size=0' "$mnt/.hicache/config" || fail "it says: $(tail -1 "$mnt/.hicache/config")"
stop_daemon
