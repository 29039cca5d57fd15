#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hicachectl doctor: what it finds on a machine that is well, on one that is not (made up of files), on mounts that
# answer, are dead or do not answer, and in directories; its exit status; that it waits for nothing.
. "${top_srcdir:-.}/tests/functions.sh"
requires python3

root=$tmp/root
mkdir -p "$root/proc/sys/kernel" "$root/proc/self" "$root/sys/kernel/mm/transparent_hugepage" "$root/dev"

# doctor ARGUMENT...: findings in $tmp/out, status in $rc.
doctor()
{
	timeout 60 "$hicachectl_bin" doctor "$@" >"$tmp/out" 2>"$tmp/err"
	rc=$?
	[ $rc -le 1 ] || fail "doctor $*: status $rc: $(cat "$tmp/out" "$tmp/err")"
}

# found LEVEL ABOUT PATTERN: a finding, and what follows as its remedy when the level is not ok.
found()
{
	grep -Eq "^$1 +$2 +.*$3" "$tmp/out" || fail "no finding $1 $2 \"$3\": $(cat "$tmp/out")"
}

not_found()
{
	! grep -Eq "^$1 +$2 +.*$3" "$tmp/out" || fail "a finding $1 $2 \"$3\": $(cat "$tmp/out")"
}

# machine KERNEL CAPS UID_MAP THP AVAILABLE_KIB
machine()
{
	echo "$1" >"$root/proc/sys/kernel/osrelease"
	printf 'Name:\tx\nCapEff:\t%s\n' "$2" >"$root/proc/self/status"
	echo "$3" >"$root/proc/self/uid_map"
	echo "$4" >"$root/sys/kernel/mm/transparent_hugepage/shmem_enabled"
	printf 'MemTotal: 100000000 kB\nMemAvailable: %s kB\nHugePages_Total: %s\nHugePages_Free: 3\nHugepagesize: 2048 kB\n' "$5" "${6:-0}" >"$root/proc/meminfo"
	printf 'nodev\ttmpfs\nnodev\tfuse\n' >"$root/proc/filesystems"
	: >"$root/dev/fuse"
	: >"$root/proc/self/mounts"
}

HICACHE_DOCTOR_ROOT=$root
export HICACHE_DOCTOR_ROOT
all="000001ffffffffff"
initial="0 0 4294967295"
machine 6.9.0-1-amd64 $all "$initial" 'always [advise] deny' 90000000
doctor
found ok kernel 'Linux 6.9.0-1-amd64: passthrough is possible'
found ok fuse '/dev/fuse can be used'
found ok memory '86G of 95G are available'
found ok 'huge pages' 'transparent ones can be had'
machine 6.1.0 $all "$initial" 'always advise [deny]' 1000
doctor
found warn kernel 'Linux 6.1.0: no passthrough'
found warn 'huge pages' 'none are reserved, and shmem_enabled is deny'
found warn memory '.* of 95G are available: the kernel may kill something'
grep -q '^ .*make the pool smaller' "$tmp/out" || fail "no remedy: $(cat "$tmp/out")"
machine 6.12.0 0000000000000000 "$initial" '[never]' 90000000 16
doctor
found warn kernel 'a daemon of this user does not'
grep -q '^ .*it needs CAP_SYS_ADMIN' "$tmp/out" || fail "no remedy: $(cat "$tmp/out")"
found ok 'huge pages' '3 of 16 pages of 2048 KiB are free'
machine 6.12.0 $all "0 100000 65536" '[never]' 90000000
doctor
grep -q '^ .*it needs the initial user namespace' "$tmp/out" || fail "no remedy: $(cat "$tmp/out")"
machine 4.18.0 $all "$initial" '[never]' 90000000
doctor
assert_eq "status with an old kernel" 1 $rc
found fail kernel 'Linux 4.18.0 is too old'
machine 6.12.0 $all "$initial" '[advise]' 90000000
rm "$root/dev/fuse"
doctor
assert_eq "status without /dev/fuse" 1 $rc
found fail fuse '/dev/fuse: No such file'
: >"$root/dev/fuse"
echo 'nodev	tmpfs' >"$root/proc/filesystems"
doctor
found fail fuse 'the kernel has no fuse file system'
# A container's bind mounts.
cat >"$root/proc/self/mountinfo" <<END
90 1 0:50 /kv $tmp/private rw,relatime - fuse.hicachefs /var/cache rw
91 1 0:50 /k\\040v $tmp/slave rw,relatime master:7 - fuse.hicachefs /var/cache rw
92 1 0:50 / $tmp/whole rw,relatime - fuse.hicachefs /var/cache rw
93 1 0:50 /kv $tmp/other rw,relatime - ext4 /dev/sda rw
END
doctor
found warn mount "$tmp/private shows the space kv, and takes no mounts from the host"
found ok mount "$tmp/slave shows the space k v, and follows"
not_found '[a-z]*' mount "$tmp/(whole|other) shows"
unset HICACHE_DOCTOR_ROOT

# Directories, without any daemon.
mkdir "$tmp/dir"
doctor "$tmp/nothere"
assert_eq "status for a directory that is not there" 1 $rc
found fail cache "CACHEDIR $tmp/nothere: No such file"
doctor "$tmp/dir"
found warn cache "$tmp/dir is no cache yet"
doctor --json "$tmp/dir"
python3 - "$tmp/out" "$rc" <<'END' || fail "doctor --json: $(cat "$tmp/out")"
import json, sys
rows = json.load(open(sys.argv[1]))
levels = {r["level"] for r in rows}
sys.exit(not rows or not levels <= {"ok", "warn", "fail"} or int(sys.argv[2]) != ("fail" in levels)
         or any(not r["change"] for r in rows if r["level"] == "fail"))
END
expect_error 'one CACHEDIR at most' "$hicachectl_bin" doctor a b
expect_error 'there is no such option' "$hicachectl_bin" doctor --cure

requires_root
requires_fuse
mnt=$tmp/mnt
cache=$tmp/cache

# A mount that answers.
start_daemon "$cache" "$mnt" -o pool_size=64M,max_page_bytes=4M,keep_pool || fail "the daemon does not start"
mkdir "$mnt/s"
head -c 100000 /dev/urandom >"$mnt/s/$(printf '%064x' 1)"
doctor "$cache"
found ok mount "$mnt answers; its cache is $cache"
found ok mount "$mnt: engines of all users may come in"
found ok pool '64M'
found ok cache "$cache is a cache"
found ok series '1 series, 1 of them undeclared'
found ok counters 'no damage'
grep -Eq '^(ok|warn) +passthrough +.*: (on|off)' "$tmp/out" || fail "nothing about passthrough: $(cat "$tmp/out")"
grep -Eq '^[0-9]+ ok, [0-9]+ to look at, [0-9]+ to change$' "$tmp/out" || fail "no sum: $(cat "$tmp/out")"
# Damage is found once it was seen.
ctl sync && ctl evict --memory >/dev/null || fail "evict"
printf '\377\000\377' | dd of="$(find "$cache/pages" -type f)" bs=1 seek=777 conv=notrunc 2>/dev/null
ctl verify >/dev/null
doctor
found warn counters '1 damaged pages were found'

# One that does not answer: its daemon is stopped. doctor tells, and ends.
kill -STOP "$daemon_pid"
doctor
kill -CONT "$daemon_pid"
assert_eq "status with a mount that does not answer" 1 $rc
found fail mount "$mnt does not answer within 5 s"

# One whose daemon died; then the pool that it left.
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
doctor
assert_eq "status with a dead mount" 1 $rc
found fail mount "$mnt: the daemon of this mount has died"
grep -q "^ .*mount it again: the next start takes the dead mount away; or umount -l $mnt" "$tmp/out" || fail "no remedy: $(cat "$tmp/out")"
unmount "$mnt" || fail "unmount"
_forget_daemon "$daemon_pid"
doctor
not_found fail mount "$mnt"
found warn pool "64M of the cache $cache are in memory without a daemon"
