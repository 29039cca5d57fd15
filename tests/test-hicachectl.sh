#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hicachectl against a daemon, and the daemon's control files: each command does what it says, counts truly, and names
# what is wrong. Method: a mount with a few pages, one of them damaged on disk, one of them open; a restart in between.
. "${top_srcdir:-.}/tests/functions.sh"

[ -x "$hicachectl_bin" ] || fail "$hicachectl_bin is not built"
expect_error 'a command is missing' "$hicachectl_bin"
expect_error 'frob: there is no such command' "$hicachectl_bin" frob
expect_error 'verify: --frob: there is no such option' "$hicachectl_bin" verify --frob
assert_eq "status of wrong usage" 2 "$_rc"
expect_error "no hicachefs is mounted there" "$hicachectl_bin" -m "$tmp" sync
assert_eq "status without a mount" 3 "$_rc"
expect_error "$tmp/no: no hicachefs is mounted there" env HICACHE_MOUNT="$tmp/no" "$hicachectl_bin" gc
requires_fuse

cache=$tmp/cache
mnt=$tmp/mnt
printf 'pool_size = 64M\nhigh = 90%%\nlow = 80%%\nkeep_pool = yes\n[space limited]\nquota = 1M\n' >"$tmp/h.conf"
start_daemon "$cache" "$mnt" --config "$tmp/h.conf" -o passthrough=off || fail "the daemon does not start: $(cat "$daemon_log")"
files=$mnt/.hicache

# page SPACE NUMBER [BYTES]: writes a page and prints its name.
page()
{
	_name=$(printf '%064x' "$2").bin
	head -c "${3:-100000}" /dev/urandom >"$mnt/$1/$_name" || fail "cannot write $1/$_name"
	echo "$_name"
}

# stat_of NAME
stat_of()
{
	sed -n "s/^$1 //p" "$files/stats"
}

# Files.
assert_eq "mode of control" 600 "$(stat -c %a "$files/control")"
grep -q '^hicachefs [0-9]' "$files/version" || fail "version: $(cat "$files/version")"
grep -q "^pool_size = 64M  # $tmp/h.conf:1\$" "$files/config" || fail "config: $(cat "$files/config")"
grep -q '^backup = publish  # default$' "$files/config" || fail "config: $(cat "$files/config")"
for name in lookups hits_memory bad_checksum n_pages pool_kind fs_opens; do
	grep -q "^$name " "$files/stats" || fail "stats has no $name"
done

# Spaces: a section of the config file holds for a space that came later.
mkdir "$mnt/limited" "$mnt/my space" "$mnt/sp"
assert_eq "quota of the section" 1M "$(cat "$files/spaces/limited/quota")"
echo 2G >"$files/spaces/sp/quota" || fail "a quota cannot be written"
assert_eq "quota as written" 2G "$(cat "$files/spaces/sp/quota")"
echo 90m >"$files/spaces/sp/max_age" && echo 7 >"$files/spaces/@root/priority" || fail "max_age, priority"
assert_eq "max_age as written" 5400s "$(cat "$files/spaces/sp/max_age")"
assert_eq "priority as written" 7 "$(cat "$files/spaces/@root/priority")"
(echo much >"$files/spaces/sp/quota") 2>/dev/null && fail "a bad quota was taken"
assert_eq "quota after a bad one" 2G "$(cat "$files/spaces/sp/quota")"
# Two lines at once: which should hold? Neither.
printf '3G\n4G\n' >"$tmp/two"
dd if="$tmp/two" of="$files/spaces/sp/quota" bs=64 2>/dev/null && fail "a quota of two lines was taken"
assert_eq "quota after two lines" 2G "$(cat "$files/spaces/sp/quota")"
printf '2G\n\n' | dd of="$files/spaces/sp/quota" bs=64 2>/dev/null || fail "an empty line after a quota is refused"

# Pages: sync, verify, status.
one=$(page sp 4097)
two=$(page sp 4098)
three=$(page 'my space' 4099)
ctl sync || fail "sync: status $?"
assert_eq "dirty pages after sync" 0 "$(stat_of n_dirty)"
assert_eq "page files" 3 "$(find "$cache/pages" -type f | wc -l)"
assert_eq "verify" "checked 3 pages (293K)
all are good" "$(ctl verify)"
ctl status >"$tmp/out" || fail "status: $?"
grep -q "^hicachefs .* on $mnt\$" "$tmp/out" || fail "status: $(cat "$tmp/out")"
grep -q '^memory .* 3 pages, 0 of them' "$tmp/out" || fail "status: $(cat "$tmp/out")"
grep -q '^my space  *98K ' "$tmp/out" || fail "status of the space: $(cat "$tmp/out")"
ctl status --json >"$tmp/out" || fail "status --json: $?"
grep -q "^  \"pid\": $daemon_pid,\$" "$tmp/out" || fail "status --json: $(cat "$tmp/out")"
grep -q '"name": "limited"' "$tmp/out" || fail "status --json: $(cat "$tmp/out")"
[ "$(grep -c fuse.hicachefs /proc/self/mountinfo)" != 1 ] ||
	timeout 20 "$hicachectl_bin" status >/dev/null || fail "status of the only mount"
grep -q "^{.*\"pid\":$daemon_pid," "$files/status" || fail "status file: $(cat "$files/status")"
HICACHE_MOUNT=$mnt timeout 20 "$hicachectl_bin" status >/dev/null || fail "status with HICACHE_MOUNT"

# evict --memory, and a page that was damaged on disk meanwhile.
assert_eq "evict --memory" "evicted 3 pages (293K) from memory" "$(ctl evict --memory)"
assert_eq "pages in memory" 0 "$(stat_of n_pages_memory)"
file=$(find "$cache/pages" -name "*-${two%.bin}-*")
printf '\377' | dd of="$file" bs=1 seek=5000 conv=notrunc 2>/dev/null
printf '\000' | dd of="$file" bs=1 seek=5001 conv=notrunc 2>/dev/null
out=$(ctl verify)
status=$?
# The scrubber of an idle node may have come first: then there are two good ones to check.
if [ $status != 0 ] || [ "${out%% (*}" != "checked 2 pages" ]; then
	assert_eq "status of verify with a bad page" 4 $status
	assert_eq "verify with a bad page" "checked 3 pages (293K)
1 page was bad and removed; the files are quarantined until gc" "$out"
fi
assert_eq "bad pages found" 1 "$(stat_of bad_scrub)"
assert_eq "bad_checksum" 1 "$(($(stat_of bad_checksum)))"
test ! -e "$mnt/sp/$two" || fail "the bad page is still shown"
test -e "$mnt/sp/$one" || fail "a good page is gone"
assert_eq "gc" "removed 1 file" "$(ctl gc | sed "s, (.*,,")"
assert_eq "second gc" "removed 0 files (0)" "$(ctl gc)"

# evict by path: absolute, of the current directory, of the mount, with a blank, a directory.
cat "$mnt/sp/$one" >/dev/null || fail "a page on disk cannot be read"
assert_eq "evict a page" "evicted 1 page (98K)" "$(ctl evict "$mnt/sp/$one")"
test ! -e "$mnt/sp/$one" || fail "an evicted page is still shown"
for way in "sp/$one" "./mnt/sp/$one" "mnt/sp/$one"; do
	page sp 4097 >/dev/null
	assert_eq "evict $way" "evicted 1 page (98K)" "$(cd "$tmp" && ctl evict "$way")"
done
assert_eq "evict with a blank" "evicted 1 page (98K)" "$(ctl evict "my space/$three")"
page sp 4097 >/dev/null
page sp 4098 >/dev/null
echo '{}' >"$mnt/sp/config.json"
assert_eq "evict a directory" "evicted 2 pages (195K)" "$(ctl evict sp)"
assert_eq "ordinary files stay" config.json "$(ls "$mnt/sp")"
expect_error 'sp/config.json: this is an ordinary file, not a page' "$hicachectl_bin" -m "$mnt" evict sp/config.json
expect_error "sp/nothere: there is no such page or directory" "$hicachectl_bin" -m "$mnt" evict sp/nothere
expect_error "/etc: this is not inside $mnt" "$hicachectl_bin" -m "$mnt" evict /etc

# An open page is kept, and counted.
page sp 4097 >/dev/null
page sp 4098 >/dev/null
exec 3<"$mnt/sp/$one"
out=$(ctl evict)
exec 3<&-
assert_eq "evict with an open page" "evicted 1 page (98K)
kept 1 page: leased, pinned, open or not on disk" "$out"
test -e "$mnt/sp/$one" || fail "an open page was evicted"

# The control file itself.
exec 3<>"$files/control"
echo frob >&3 2>/dev/null
assert_eq "an unknown command" "error frob: there is no such command; help lists them" "$(timeout 10 cat <&3)"
echo 'evict a%0' >&3 2>/dev/null
timeout 10 cat <&3 | grep -q '^error a%0: a path is written with' || fail "a bad escape"
exec 3<&-

# SIGHUP: limits and spaces of the changed file; a bad file changes nothing.
printf 'pool_size = 64M\nhigh = 70%%\nlow = 60%%\nkeep_pool = yes\n[space limited]\nquota = 3M\n' >"$tmp/h.conf"
kill -HUP "$daemon_pid"
config_says() { grep -q "^$1" "$files/config"; }
wait_until 10 config_says 'high = 70%' || fail "SIGHUP did not take high over: $(cat "$files/config")"
assert_eq "quota after SIGHUP" 3M "$(cat "$files/spaces/limited/quota")"
echo 'high = 200%' >"$tmp/h.conf"
kill -HUP "$daemon_pid"
wait_until 10 grep -q 'SIGHUP: the options stay as they were' "$daemon_log" || fail "a bad file at SIGHUP: $(cat "$daemon_log")"
config_says 'high = 70%' || fail "a bad file changed high"
rm "$tmp/h.conf"

# keep_pool: the pool outlives the daemon, is shown, refuses to be freed while in use, and is adopted or freed.
expect_error 'a daemon works with this pool' "$hicachectl_bin" pool free "$cache"
sum=$(sha256sum <"$mnt/sp/$one")
stop_daemon || fail "the daemon's exit status is $?"
if [ "$(id -u)" = 0 ] && unshare -m --propagation private true 2>/dev/null; then
	# Without the mounts of tests that run at the same time.
	alone='awk '\''$3 == "fuse.hicachefs" { print $2 }'\'' /proc/self/mounts | while read -r m; do umount -l "$m"; done
		exec timeout 20 "$@"'
	out=$(unshare -m --propagation private sh -c "$alone" sh "$hicachectl_bin" status)
	assert_eq "status of status without a daemon" 3 $?
	printf '%s\n' "$out" | grep -qF "of the cache $cache" || fail "status without a daemon: $out"
fi
start_daemon "$cache" "$mnt" -o pool_size=64M,keep_pool,passthrough=off || fail "the second start: $(cat "$daemon_log")"
assert_eq "adopted" 1 "$(stat_of adopted)"
assert_eq "bytes after the restart" "$sum" "$(sha256sum <"$mnt/sp/$one")"
# After a crash: the dead mount is in nobody's way, and the pool is adopted.
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
is_mounted "$mnt" || fail "the dead mount went by itself"
expect_error 'the daemon of this mount has died; mount it again' "$hicachectl_bin" -m "$mnt" status
assert_eq "status with a dead daemon" 3 "$_rc"
start_daemon "$cache" "$mnt" -o pool_size=64M,keep_pool,passthrough=off || fail "the start after a crash: $(cat "$daemon_log")"
# The dead mount looks ready to start_daemon.
answers() { ctl status >/dev/null 2>&1; }
wait_until 30 answers || fail "no answer after a crash: $(cat "$daemon_log")"
assert_eq "bytes after the crash" "$sum" "$(sha256sum <"$mnt/sp/$one")"
stop_daemon || fail "the daemon's exit status is $?"
"$hicachectl_bin" pool free "$cache" | grep -q '^freed ' || fail "the pool was not freed"
assert_eq "nothing to free" "$cache: there is no pool of this cache, nothing to free" "$("$hicachectl_bin" pool free "$cache")"

# In the background: the command returns when the mount answers.
timeout 60 "$hicachefs_bin" -o pool_size=64M "$cache" "$mnt" >"$tmp/background.log" 2>&1 ||
	fail "in the background: status $?: $(cat "$tmp/background.log")"
pid=$(sed -n 's/.*"pid": \([0-9]*\),.*/\1/p' <<END
$("$hicachectl_bin" -m "$mnt" status --json)
END
)
end_background() { end_process "$pid" 20; unmount "$mnt"; }
[ -n "$pid" ] || { unmount "$mnt"; fail "the daemon in the background does not tell its process"; }
cleanup_fn end_background
assert_eq "bytes out of the background" "$sum" "$(sha256sum <"$mnt/sp/$one")"
kill -TERM "$pid"
wait_until 30 has_ended "$pid" || fail "the daemon in the background does not stop"
! is_mounted "$mnt" || fail "it left $mnt mounted"
