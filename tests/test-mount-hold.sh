#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What must hold of a mount whoever uses it (tests/fuse-hold.c), and random operations against a
# model (tests/fuse-fsx.c). HC_FSX_SEED and HC_FSX_OPS: another sequence, a longer one.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

mnt=$tmp/mnt
# Other users reach the mount.
chmod 0711 "$tmp"

hold()
{
	timeout 120 "$top_builddir/tests/fuse-hold" "$mnt/s" "$@" >"$tmp/out" 2>&1 || fail "fuse-hold $*: status $?: $(cat "$tmp/out")"
	cat "$tmp/out"
}

# No handle, no body; but temporaries of killed clients wait for gc.
nothing_open()
{
	awk '$1 == "fs_n_handles" { h = $2 } $1 == "fs_n_bodies" { b = $2 } $1 == "fs_n_temporaries" { t = $2 } END { exit h || b != t }' \
		"$mnt/.hicache/stats"
}

# end_daemon: what is open is counted first.
end_daemon()
{
	wait_until 10 nothing_open || fail "bodies or handles are left: $(grep fs_n_ "$mnt/.hicache/stats")"
	stop_daemon || fail "the daemon ended with status $?"
}

# random SEED OPS OPTION: every byte of random operations, also after a restart.
random()
{
	_seed=$1
	_ops=$2
	_cache=$tmp/fsx-$1-$3
	_options=pool_size=256M,disk_size=4G,max_page_bytes=2M,$3
	start_daemon "$_cache" "$mnt" -o "$_options" || fail "the daemon does not start: $(cat "$daemon_log")"
	mkdir "$mnt/s"
	timeout $((60 + _ops / 50)) "$top_builddir/tests/fuse-fsx" "$mnt/s" "$_seed" "$_ops" 2097152 >"$tmp/out" 2>&1 ||
		fail "fuse-fsx, seed $_seed, $3: status $?: $(cat "$tmp/out")"
	cat "$tmp/out"
	# Temporaries and scratch files are not meant to last.
	(cd "$mnt/s" && find . -type f ! -name '*tmp*' -size -4097 -exec sha256sum {} +) >"$tmp/sums"
	[ -s "$tmp/sums" ] || fail "no file is left to compare"
	stop_daemon || fail "the daemon ended with status $?"
	start_daemon "$_cache" "$mnt" -o "$_options" || fail "the daemon does not start again: $(cat "$daemon_log")"
	(cd "$mnt/s" && sha256sum --quiet -c "$tmp/sums") >"$tmp/out" 2>&1 || fail "after a restart: $(cat "$tmp/out")"
	end_daemon
}

# plain SEED: ordinary files do what they do on the file system of the temporary directory.
plain()
{
	for _dir in "$tmp/plain-$1" "$mnt/s/plain-$1"; do
		mkdir "$_dir"
		timeout 120 "$top_builddir/tests/fuse-fsx" "$_dir" "$1" 2000 2097152 ordinary >"$tmp/out" 2>&1 ||
			fail "fuse-fsx, ordinary files in $_dir, seed $1: status $?: $(cat "$tmp/out")"
		rm -r "$_dir" || fail "rm -r $_dir: status $?"
	done
}

# Threads in one directory while everything is thrown out again and again.
races()
{
	timeout 120 "$top_builddir/tests/fuse-hold" "$mnt/s" races >"$tmp/out" 2>&1 &
	_races=$!
	while is_running $_races; do
		ctl evict >"$tmp/evict" || fail "evict: $(cat "$tmp/evict")"
	done
	wait $_races || fail "races under evictions: $(cat "$tmp/out")"
	cat "$tmp/out"
}

random "${HC_FSX_SEED:-21}" "${HC_FSX_OPS:-10000}" passthrough=off
random "${HC_FSX_SEED:-9}" "${HC_FSX_OPS:-10000}" passthrough=auto
start_daemon "$tmp/cache" "$mnt" -o pool_size=512M,disk_size=4G || fail "the daemon does not start: $(cat "$daemon_log")"
mkdir "$mnt/s"
for seed in 1 2 3; do
	plain $seed
done
hold rights
hold names
hold killed
hold big
hold many
races
end_daemon

# The same where no byte goes around the daemon.
start_daemon "$tmp/cache2" "$mnt" -o pool_size=512M,disk_size=4G,passthrough=off ||
	fail "the daemon does not start: $(cat "$daemon_log")"
mkdir "$mnt/s"
plain 4
hold rights
hold killed
hold big
races
page=0123456789abcdef.bin
head -c 100000 /dev/zero >"$mnt/s/$page"
ctl sync || fail "sync: status $?"
end_daemon

# A client whose open waits for a disk that hangs, under signals: it returns, and is killed at once.
HICACHE_STORE_HANG=read
export HICACHE_STORE_HANG
start_daemon "$tmp/cache2" "$mnt" -o pool_size=512M,disk_size=4G,passthrough=off,budget_ms=1500 ||
	fail "the daemon does not start on a disk that hangs: $(cat "$daemon_log")"
unset HICACHE_STORE_HANG
hold interrupted $page
cat "$mnt/s/$page" >"$tmp/got" 2>&1 &
reader=$!
kill -KILL $reader
wait_until 20 has_ended $reader || fail "a reader of a disk that hangs does not die"
wait_until 20 nothing_open || fail "handles are left: $(grep fs_n_ "$mnt/.hicache/stats")"
HC_STOP_SECONDS=90 stop_daemon || fail "the daemon ended with status $?"
