#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A daemon of an ordinary user, mounted by fusermount3. Goal: mount, use, tools, stop, and a restart over the mount of a
# daemon that died work without any right of root's; other users are kept out. Method: as the user nobody.
. "${top_srcdir:-.}/tests/functions.sh"
requires_fuse
requires setpriv fusermount3
requires_root
id nobody >/dev/null 2>&1 || skip "there is no user nobody"
[ -u "$(command -v fusermount3)" ] || skip "fusermount3 is not setuid root"

# Where users may not open /dev/fuse, a device of the same number is put over it, for this test alone.
if ! setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups sh -c ': <>/dev/fuse' 2>/dev/null; then
	[ -z "${HC_OWN_DEVICE-}" ] || skip "no device of our own can be used"
	mknod -m 666 "$tmp/fuse" c 10 229 2>/dev/null || skip "users may not open /dev/fuse, and no device can be made"
	unshare -m --propagation private true 2>/dev/null || skip "no mount namespace here, to put a device of our own in"
	HC_OWN_DEVICE=$tmp/fuse
	export HC_OWN_DEVICE
	unshare -m --propagation private sh -c 'mount --bind "$HC_OWN_DEVICE" /dev/fuse && exec sh "$0"' "$0"
	exit
fi

mnt=$tmp/home/mnt
cache=$tmp/home/cache
uid=$(id -u nobody)
gid=$(id -g nobody)
chmod 711 "$tmp"
mkdir "$tmp/home" "$mnt" "$cache"
chown -R "$uid:$gid" "$tmp/home"

# The programs may lie where only root looks.
mkdir "$tmp/bin"
cp "$hicachefs_bin" "$hicachectl_bin" "$tmp/bin/" || fail "cp"
hicachectl_bin=$tmp/bin/hicachectl
as_user="setpriv --reuid $uid --regid $gid --clear-groups --no-new-privs"
# fusermount3 must become root.
as_user_suid="setpriv --reuid $uid --regid $gid --clear-groups"
$as_user_suid "$tmp/bin/hicachefs" --version >/dev/null 2>&1 || skip "the programs cannot run as nobody"
printf '#!/bin/sh\nexec %s %s/bin/hicachefs "$@"\n' "$as_user_suid" "$tmp" >"$tmp/bin/as-nobody"
chmod 755 "$tmp/bin/as-nobody"
hicachefs_bin=$tmp/bin/as-nobody

user()
{
	$as_user timeout 60 "$@"
}

# Root does not see the mount.
_daemon_ready()
{
	has_ended "$daemon_pid" && return 0
	is_mounted "$daemon_mnt" && user stat "$daemon_mnt/.hicache/version" >/dev/null 2>&1
}

start()
{
	start_daemon "$cache" "$mnt" -o pool_size=64M,max_page_bytes=4M || {
		grep -Eq 'fusermount3?:.*(/dev/fuse|not permitted|denied)|user namespaces' "$daemon_log" && skip "fusermount3 may not mount here: $(grep fusermount "$daemon_log")"
		fail "the daemon of nobody does not start: $(cat "$daemon_log")"
	}
}

start
assert_eq "owner of the daemon" "$uid" "$(stat -c %u "/proc/$daemon_pid")"
assert_eq "owner of the mount" "$uid" "$(user stat -c %u "$mnt")"
name=$(printf '%064x' 77)
head -c 300000 /dev/urandom >"$tmp/page"
chmod 644 "$tmp/page"
user mkdir "$mnt/s" || fail "mkdir"
user cp "$tmp/page" "$mnt/s/$name" || fail "cp"
user cmp "$tmp/page" "$mnt/s/$name" || fail "the page differs"
user "$hicachectl_bin" -m "$mnt" sync || fail "hicachectl sync: status $?"
user "$hicachectl_bin" -m "$mnt" status >"$tmp/out" || fail "hicachectl status: $(cat "$tmp/out")"
# Without allow_other root itself is another user.
! ls "$mnt" >/dev/null 2>&1 || fail "others see the mount"
# What needs /etc/fuse.conf is said by fusermount3, and nothing is left.
if ! grep -q '^user_allow_other' /etc/fuse.conf 2>/dev/null; then
	$as_user mkdir "$tmp/home/mnt2" "$tmp/home/cache2"
	expect_error 'user_allow_other' "$hicachefs_bin" -f -o pool_size=64M,allow_other "$tmp/home/cache2" "$tmp/home/mnt2"
	! is_mounted "$tmp/home/mnt2" || fail "refused, but mounted"
fi

# Died: the next one takes the dead mount away, and has the page.
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
_forget_daemon "$daemon_pid"
is_mounted "$mnt" || fail "there is no dead mount"
start
grep -q "a daemon that died had left its mount on $mnt: taken away" "$daemon_log" || fail "dead mount: $(cat "$daemon_log")"
user cmp "$tmp/page" "$mnt/s/$name" || fail "the page differs after a crash"

# Its owner unmounts it.
$as_user_suid fusermount3 -u "$mnt" || fail "fusermount3 -u"
wait_until 60 has_ended "$daemon_pid" || fail "the daemon does not end after fusermount3 -u"
wait "$daemon_pid" || fail "its status after fusermount3 -u is $?"
_forget_daemon "$daemon_pid"
start
user cmp "$tmp/page" "$mnt/s/$name" || fail "the page differs after a restart"
stop_daemon || fail "the daemon ended with status $?"
