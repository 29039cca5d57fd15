#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ends: of a writer in mid write, of the daemon under writers and readers, of a mount in use; two daemons, two mounts.
# Goal: what was finished stays, what was not is nowhere, and nothing waits without an end.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires python3

mnt=$tmp/mnt
options=pool_size=64M,disk_size=1G,max_page_bytes=2M
mkdir "$tmp/ready"

hash_of()
{
	printf '%064x' "$((0xdef00 + $1))"
}

# writer NUMBER PATH: writes a part, says so, and holds the file open until it is killed.
writer()
{
	python3 -c '
import os, sys, time
fd = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o644)
os.write(fd, b"x" * 50000)
open(sys.argv[1], "w").close()
try:
    while True:
        os.write(fd, b"y")
        time.sleep(0.05)
except OSError:
    pass
' "$tmp/ready/$1" "$2" &
	writer_pid=$!
	wait_until 10 test -e "$tmp/ready/$1" || fail "writer $1 does not come to its write"
}

# reader NUMBER PATH: reads a byte and holds the file open.
reader()
{
	python3 -c '
import os, sys, time
fd = os.open(sys.argv[2], os.O_RDONLY)
os.read(fd, 1)
open(sys.argv[1], "w").close()
time.sleep(60)
' "$tmp/ready/$1" "$2" &
	readers="$readers $!"
	wait_until 10 test -e "$tmp/ready/$1" || fail "reader $1 does not come to its read"
}
start_daemon "$tmp/cache" "$mnt" -o $options || fail "the daemon does not start"
mkdir "$mnt/sp"

# SIGKILL of a writer: in place nothing is published; the temporary of the other never becomes a page.
writer 1 "$mnt/sp/$(hash_of 1).bin"
kill -KILL "$writer_pid"
wait "$writer_pid" 2>/dev/null
no_bodies()
{
	[ "$(sed -n 's/^fs_n_handles //p' "$mnt/.hicache/stats")" = 0 ]
}
wait_until 10 no_bodies || fail "the handle of a killed writer is left"
[ ! -e "$mnt/sp/$(hash_of 1).bin" ] || fail "a killed writer published"
assert_eq "listed after a killed writer" "" "$(ls "$mnt/sp")"

# Two daemons on one CACHEDIR; two mounts of two caches.
mkdir "$tmp/mnt2"
expect_error "in use|already" "$hicachefs_bin" -f -o $options "$tmp/cache" "$tmp/mnt2"
! is_mounted "$tmp/mnt2" || fail "the second daemon on one CACHEDIR is mounted"
first_pid=$daemon_pid
start_daemon "$tmp/cache2" "$tmp/mnt2" -o $options || fail "a second mount of another cache does not start"
mkdir "$tmp/mnt2/sp"
head -c 100000 /dev/urandom >"$tmp/one"
head -c 100000 /dev/urandom >"$tmp/two"
cp "$tmp/one" "$mnt/sp/$(hash_of 2).bin" && cp "$tmp/two" "$tmp/mnt2/sp/$(hash_of 2).bin" || fail "cp"
cmp "$tmp/one" "$mnt/sp/$(hash_of 2).bin" && cmp "$tmp/two" "$tmp/mnt2/sp/$(hash_of 2).bin" || fail "two mounts mix their pages"

# umount of a mount in use is refused by the kernel; umount -l lets the reader go on to its end.
readers=
reader 2 "$tmp/mnt2/sp/$(hash_of 2).bin"
umount "$tmp/mnt2" 2>/dev/null && fail "umount of a mount in use succeeded"
cmp "$tmp/two" "$tmp/mnt2/sp/$(hash_of 2).bin" || fail "after a refused umount"
umount -l "$tmp/mnt2" || fail "umount -l"
kill -KILL $readers
wait_until 20 has_ended "$daemon_pid" || fail "the daemon does not end after umount -l and its last reader"
wait "$daemon_pid" || fail "its status after umount -l is $?"
is_running "$first_pid" || fail "the other daemon ended, too"
cmp "$tmp/one" "$mnt/sp/$(hash_of 2).bin" || fail "the other mount after umount -l"

# SIGTERM under writers and three readers.
readers=
writer 3 "$mnt/sp/$(hash_of 3).bin"
one=$writer_pid
writer 4 "$mnt/sp/$(hash_of 4).bin.tmp"
two=$writer_pid
for i in 5 6 7; do
	reader $i "$mnt/sp/$(hash_of 2).bin"
done
_pick_daemon "$mnt"
kill -TERM "$_pid"
wait_until 40 has_ended "$_pid" || fail "the daemon does not stop under writers and readers"
wait "$_pid" || fail "the status of the daemon stopped under writers and readers is $?"
! is_mounted "$mnt" || fail "it left its mount point mounted"
kill -KILL $readers "$one" "$two" 2>/dev/null
start_daemon "$tmp/cache" "$mnt" -o $options || fail "the daemon does not start again"
assert_eq "listed after SIGTERM" "$(hash_of 2).bin" "$(ls -A "$mnt/sp")"
cmp "$tmp/one" "$mnt/sp/$(hash_of 2).bin" || fail "a finished page after SIGTERM"
stop_daemon || fail "the daemon ended with status $?"
