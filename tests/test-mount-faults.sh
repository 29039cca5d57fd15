#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Disks that hang or die under the mount, and a cache of a newer version. Goal: look-ups and opens answer in
# time with a miss, the daemon stops in time and says what it leaves, the pages of the other disk stay, what is
# newer is not touched. Method: a store whose requests never end; a file system that is shut down under us.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires python3

mnt=$tmp/mnt
head -c 100000 /dev/urandom >"$tmp/page"

name()
{
	printf '%x%062x0.bin' $(($1 % 15 + 1)) "$1"
}

stat_of()
{
	sed -n "s/^$1 //p" "$mnt/.hicache/stats"
}

put()
{
	cp "$tmp/page" "$mnt/s/$(name "$1")" || fail "page $1 cannot be written"
}

# within SECONDS COMMAND...: its status; fails the test when it takes longer.
within()
{
	_limit=$1
	shift
	_begin=$(date +%s%N)
	"$@"
	_rc=$?
	_ms=$((($(date +%s%N) - _begin) / 1000000))
	[ $_ms -le $((_limit * 1000)) ] || fail "$*: $_ms ms, the limit is $_limit s"
	return $_rc
}

# Reads hang. A page that is on disk only is a miss within budget_ms + 1 s, by each way an engine has; one in
# memory is served meanwhile; the daemon stops.
start_daemon "$tmp/hang" "$mnt" -o pool_size=64M,disk_size=1G,max_page_bytes=2M || fail "the daemon does not start"
mkdir "$mnt/s"
for i in 1 2 3 4 5 6; do
	put $i
done
ctl sync || fail "sync: status $?"
stop_daemon || fail "the daemon ended with status $?"
for passthrough in off auto; do
	HICACHE_STORE_HANG="read"
	export HICACHE_STORE_HANG
	start_daemon "$tmp/hang" "$mnt" -o "pool_size=64M,disk_size=1G,max_page_bytes=2M,budget_ms=500,passthrough=$passthrough" ||
		fail "the daemon does not start on a disk that hangs"
	unset HICACHE_STORE_HANG
	# The size of the first is not known: it goes to the disk at once. The second is in memory.
	put 7
	wait_until 10 test -e "$mnt/s/$(name 7)" || fail "page 7 is not there"
	put 8
	for i in 1 2 3 4; do
		# A margin for the machine beside the second that is promised.
		within 12 cat "$mnt/s/$(name $i)" >"$tmp/got" 2>"$tmp/err" && fail "page $i was read from a disk that hangs"
		grep -q 'No such file' "$tmp/err" || fail "page $i: $(cat "$tmp/err")"
	done
	python3 - "$mnt/s" "$passthrough" 3<"$tmp/page" <<'P' || fail "reads beside a disk that hangs"
import os, sys, time, threading
d = sys.argv[1]
names = sorted(os.listdir(d))
n = len(names)
want = os.fdopen(3, "rb").read()
slowest = 0
def one(n):
    global slowest
    for _ in range(3):
        t = time.monotonic()
        try:
            with open(os.path.join(d, n), "rb") as f:
                assert f.read() == want
                got.add(n)
        except FileNotFoundError:
            missed.add(n)
        slowest = max(slowest, time.monotonic() - t)
got, missed = set(), set()
threads = [threading.Thread(target=one, args=(n,)) for n in names]
for t in threads: t.start()
for t in threads: t.join()
# By passthrough nothing is in the pool: what was written just now may be served from its file.
assert len(got) == 1 if sys.argv[2] == "off" else len(got) <= 2, got
assert len(got) + len(missed) == n >= 6, (got, missed)
print("slowest open beside a hung disk: %.2f s" % slowest)
assert slowest < 10, slowest
P
	ls -l "$mnt/s" >/dev/null || fail "ls on a disk that hangs"
	rm -f "$mnt/s/$(name 5)" || fail "rm of a page on a disk that hangs"
	within 50 stop_daemon || fail "the daemon ended with status $?"
done

# Writes hang: the stop waits flush_s for them, says what is left, and its status is 3.
HICACHE_STORE_HANG="write"
export HICACHE_STORE_HANG
start_daemon "$tmp/flush" "$mnt" -o pool_size=64M,disk_size=1G,max_page_bytes=2M,flush_s=1,passthrough=off ||
	fail "the daemon does not start"
unset HICACHE_STORE_HANG
mkdir "$mnt/s"
for i in 1 2 3; do
	put $i
	wait_until 10 test -e "$mnt/s/$(name $i)" || fail "page $i is not there"
done
cmp "$mnt/s/$(name 2)" "$tmp/page" || fail "a page whose backup hangs"
log=$daemon_log
within 40 stop_daemon
assert_eq "exit status of a stop that leaves pages" 3 $?
grep -Eq '[12] pages? ' "$log" || fail "the log does not say what is left: $(cat "$log")"

# threads: so many serve.
serve()
{
	[ "$(grep -lx hc-fuse "/proc/$daemon_pid"/task/*/comm 2>/dev/null | wc -l)" = "$1" ]
}
for n in 3 13; do
	start_daemon "$tmp/threads" "$mnt" -o "pool_size=64M,disk_size=1G,max_page_bytes=2M,threads=$n" ||
		fail "threads=$n: the daemon does not start"
	wait_until 20 serve "$n" || fail "threads=$n: $(cat "/proc/$daemon_pid"/task/*/comm)"
	stop_daemon || fail "the daemon ended with status $?"
done

# numa: a node that is there, and one that is not.
start_daemon "$tmp/threads" "$mnt" -o pool_size=64M,disk_size=1G,max_page_bytes=2M,numa=0 || fail "numa=0: $(cat "$daemon_log")"
stop_daemon || fail "the daemon ended with status $?"
expect_error 'numa' "$hicachefs_bin" -f -o pool_size=64M,numa=1000 "$tmp/threads" "$mnt"

# A cache of a newer version is named, and nothing of it is touched.
sums()
{
	(cd "$tmp/threads" && find . -type f -exec sha256sum {} + | sort)
}
cp -a "$tmp/threads" "$tmp/saved"
sed -i '1s/.*/hicachefs 99/' "$tmp/threads/.hicachefs"
sums >"$tmp/before"
expect_error "threads.*(newer|version)" "$hicachefs_bin" -f -o pool_size=64M "$tmp/threads" "$mnt"
sums >"$tmp/after"
cmp "$tmp/before" "$tmp/after" || fail "a cache of a newer version was changed: $(diff "$tmp/before" "$tmp/after")"
is_mounted "$mnt" && fail "a cache of a newer version was mounted"

# One of two disks dies: its pages are misses, the other's stay, new ones go to the other.
command -v mkfs.ext4 >/dev/null || {
	echo "note: no mkfs.ext4: a dead disk was not tried"
	exit 0
}
unmount_disks()
{
	umount -l "$tmp/disk0" "$tmp/disk1" 2>/dev/null
}
cleanup_fn unmount_disks
for i in 0 1; do
	truncate -s 64M "$tmp/image$i"
	mkfs.ext4 -q -F "$tmp/image$i" || fail "mkfs.ext4"
	mkdir "$tmp/disk$i"
	mount -o loop "$tmp/image$i" "$tmp/disk$i" 2>"$tmp/err" || {
		echo "note: no loop mounts here ($(cat "$tmp/err")): a dead disk was not tried"
		exit 0
	}
	rmdir "$tmp/disk$i/lost+found"
done
start_daemon "$tmp/two" "$mnt" -o "pool_size=64M,disk_size=1G,max_page_bytes=2M,min_free=1M,passthrough=off,disk=$tmp/disk0,disk=$tmp/disk1,budget_ms=1000" ||
	fail "the daemon does not start: $(cat "$daemon_log")"
mkdir "$mnt/s"
for i in $(seq 1 60); do
	put "$i"
done
ctl sync || fail "sync: status $?"
ctl evict --memory >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
n0=$(find "$tmp/disk0/pages" -type f | wc -l)
n1=$(find "$tmp/disk1/pages" -type f | wc -l)
assert_eq "page files on both disks" 60 $((n0 + n1))
[ "$n0" -ge 5 ] && [ "$n1" -ge 5 ] || fail "the disks have $n0 and $n1 pages"
python3 -c '
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(fd, 0x8004587d, struct.pack("I", 2))  # FS_IOC_SHUTDOWN, without its log
' "$tmp/disk1" || fail "the file system cannot be shut down"
n=0
for i in $(seq 1 60); do
	cat "$mnt/s/$(name "$i")" >"$tmp/got" 2>"$tmp/err" || {
		grep -q 'No such file' "$tmp/err" || fail "page $i on a dead disk: $(cat "$tmp/err")"
		continue
	}
	cmp "$tmp/got" "$tmp/page" || fail "page $i differs"
	n=$((n + 1))
done
assert_eq "pages left of those on the disk that lives" "$n0" "$n"
is_out()
{
	grep -Eiq 'disk1.*out' "$daemon_log"
}
wait_until 20 is_out || fail "nobody says that the disk is out: $(cat "$daemon_log")"
for i in $(seq 101 140); do
	put "$i"
done
ctl sync || fail "sync with a disk out: status $?"
ctl evict --memory >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
for i in $(seq 101 140); do
	cmp "$mnt/s/$(name "$i")" "$tmp/page" || fail "page $i, written with a disk out"
done
ls -l "$mnt/s" >/dev/null || fail "ls with a disk out"
stop_daemon || fail "the daemon ended with status $?"

# A data directory whose file system becomes read-only: taken out, said so; what is written meanwhile is served from
# memory, what lay there only is a miss.
mount -o remount,errors=remount-ro "$tmp/disk0" || fail "remount of disk0"
loop=$(awk -v dir="$tmp/disk0" '$2 == dir { sub(".*/", "", $1); print $1 }' /proc/self/mounts)
trigger=/sys/fs/ext4/$loop/trigger_fs_error
[ -w "$trigger" ] || {
	echo "note: no $trigger: a disk that becomes read-only was not tried"
	exit 0
}
start_daemon "$tmp/ro" "$mnt" -o "pool_size=64M,disk_size=1G,max_page_bytes=2M,min_free=1M,disk=$tmp/disk0" ||
	fail "the daemon does not start: $(cat "$daemon_log")"
mkdir "$mnt/s"
put 1
ctl sync || fail "sync: status $?"
ctl evict --memory >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
echo hc-test >"$trigger" || fail "the file system cannot be made read-only"
for i in $(seq 2 20); do
	put "$i"
	cmp "$mnt/s/$(name "$i")" "$tmp/page" || fail "page $i, written beside a disk that is read-only"
done
is_read_only()
{
	grep -Eq "disk0: the file system has become read-only: the disk is taken out .*repair or replace" "$daemon_log"
}
wait_until 20 is_read_only || fail "nobody says that the disk is out: $(cat "$daemon_log")"
# The size of a body that is not known: it begins in a file, which cannot be made there any more.
for i in $(seq 21 24); do
	dd if="$tmp/page" of="$mnt/s/$(name "$i")" bs=7000 2>"$tmp/err" || fail "page $i: $(cat "$tmp/err")"
	cmp "$mnt/s/$(name "$i")" "$tmp/page" || fail "page $i, begun beside a disk that is out"
done
cat "$mnt/s/$(name 1)" >"$tmp/got" 2>"$tmp/err" && fail "a page of a disk that is out"
grep -q 'No such file' "$tmp/err" || fail "page 1 on a disk that is out: $(cat "$tmp/err")"
ctl status >"$tmp/out" || fail "status with a disk out"
grep -qi 'out of use\|taken out\|OUT' "$tmp/out" || fail "the status does not say that the disk is out: $(cat "$tmp/out")"
stop_daemon
[ "$?" -le 3 ] || fail "the daemon does not stop"
