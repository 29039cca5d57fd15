#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Directories, ordinary files, listings and attributes; what of them survives kill -9 and a clean stop.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

mnt=$tmp/mnt
chmod 755 "$tmp"
start_daemon "$tmp/cache" "$mnt" -o pool_size=256M || fail "the daemon did not start"
mkdir "$mnt/names"
timeout 100 "$top_builddir/tests/fuse-names" "$mnt/names" || fail "fuse-names: status $?"
rmdir "$mnt/names" || fail "something is left in the directory: $(ls -la "$mnt/names")"

# Durable: made once and never again, whatever happens to the daemon.
mkdir -p "$mnt/model/shards/0a/1b" "$mnt/model/.tmp"
chmod 711 "$mnt/model/shards"
echo '{"a": 1}' >"$mnt/model/config.json"
echo one >"$mnt/model/log"
echo two >>"$mnt/model/log"
hash=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
head -c 300000 /dev/urandom >"$tmp/page"
cp "$tmp/page" "$mnt/model/shards/0a/1b/$hash.bin"
sync "$mnt/model/shards/0a/1b/$hash.bin" || fail "fsync of a page"
head -c 5000 /dev/urandom >"$mnt/model/.tmp/$hash.bin"
check_all()
{
	[ -d "$mnt/model/shards/0a/1b" ] || fail "$1: a directory is lost"
	[ -d "$mnt/model/.tmp" ] || fail "$1: the empty directory is lost"
	assert_eq "$1: mode of shards" 711 "$(stat -c %a "$mnt/model/shards")"
	assert_eq "$1: config.json" '{"a": 1}' "$(cat "$mnt/model/config.json")"
	assert_eq "$1: log" "one
two" "$(cat "$mnt/model/log")"
	cmp "$tmp/page" "$mnt/model/shards/0a/1b/$hash.bin" || fail "$1: the page differs"
	assert_eq "$1: size of the page" 300000 "$(stat -c %s "$mnt/model/shards/0a/1b/$hash.bin")"
}
check_all "before"
[ -e "$mnt/model/.tmp/$hash.bin" ] || fail "a temporary is not shown to others"
mtime=$(stat -c %Y "$mnt/model/shards/0a/1b/$hash.bin")
kill_daemon
start_daemon "$tmp/cache" "$mnt" -o pool_size=256M || fail "the daemon did not start again"
check_all "after kill -9"
assert_eq "mtime after kill -9" "$mtime" "$(stat -c %Y "$mnt/model/shards/0a/1b/$hash.bin")"
assert_eq "temporaries after kill -9" "" "$(ls -A "$mnt/model/.tmp")"
rm "$mnt/model/log"
stop_daemon || fail "the daemon ended with status $?"
start_daemon "$tmp/cache" "$mnt" -o pool_size=256M || fail "the daemon did not start a third time"
[ ! -e "$mnt/model/log" ] || fail "a removed file came back"
echo one >"$mnt/model/log"
echo two >>"$mnt/model/log"
check_all "after a clean stop"

# Tools work on it.
assert_eq "find" 3 "$(find "$mnt/model" -type f | wc -l)"
cp -r "$mnt/model" "$tmp/copy" && diff -r "$mnt/model" "$tmp/copy" || fail "cp -r differs"
[ "$(du -s "$mnt/model" | cut -f1)" -ge 290 ] || fail "du: $(du -s "$mnt/model")"
mv "$mnt/model/config.json" "$mnt/model/config.old" || fail "mv"
rm -r "$mnt/model" || fail "rm -r"
assert_eq "the root" "" "$(ls "$mnt")"
assert_eq "the root with dots" ".hicache" "$(ls -A "$mnt")"
stop_daemon || fail "the daemon ended with status $?"
