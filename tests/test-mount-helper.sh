#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mount.hicachefs, mount(8) with a private fstab, pid files. Goal: the mount answers when the command returns, exit
# statuses are those of mount(8), what only fstab needs is ignored, what is wrong is refused by name. Method: the helper
# by hand; then mount(8) in a mount namespace in which /sbin has the helper.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

mnt=$tmp/mnt
cache=$tmp/cache
pid_file=$tmp/pid
mkdir "$mnt" "$cache"
ln -s "$(realpath "$hicachefs_bin")" "$tmp/mount.hicachefs"
small=pool_size=64M,max_page_bytes=4M,disk_size=1G,pid_file=$pid_file

# helper ARGUMENT...: what it says is in $tmp/out, its status in $rc.
helper()
{
	timeout 60 "$tmp/mount.hicachefs" "$@" >"$tmp/out" 2>&1 </dev/null
	rc=$?
}

# refused STATUS PATTERN ARGUMENT...
refused()
{
	_want=$1
	_says=$2
	shift 2
	helper "$@"
	assert_eq "status of mount.hicachefs $*: $(cat "$tmp/out")" "$_want" "$rc"
	grep -Eq -e "$_says" "$tmp/out" || fail "mount.hicachefs $*: expected \"$_says\": $(cat "$tmp/out")"
}

# known: the daemon that the helper started is ended by the test's clean-up.
known()
{
	daemon_pid=$(cat "$pid_file") || fail "no pid file"
	is_running "$daemon_pid" || fail "the pid file names $daemon_pid, which does not run"
	daemons="$daemons$daemon_pid $mnt
"
	caches="$caches$cache
"
}

# gone: after umount the daemon ends by itself, and its pid file with it.
gone()
{
	wait_until 60 has_ended "$daemon_pid" || fail "the daemon does not end after umount"
	_forget_daemon "$daemon_pid"
	[ ! -e "$pid_file" ] || fail "the pid file was left"
}

# By hand.
refused 1 'there is no option "frobnicate"' "$cache" "$mnt" -o frobnicate
refused 1 'remount: a mount is not changed in place; limits change with the config file and SIGHUP' "$cache" "$mnt" -o remount,rw
refused 1 '-N .*: the daemon mounts in the namespace where it is started' "$cache" "$mnt" -N "$tmp/ns"
refused 1 'only hicachefs is mounted here' "$cache" "$mnt" -t ext4
refused 1 'MOUNTPOINT is missing' "$cache" -o rw
refused 32 'nothere: No such file' "$tmp/nothere" "$mnt"
refused 32 'cache directory .*nothere' -f "$tmp/nothere" "$mnt"
helper -f "$cache" "$mnt" -o "rw,$small"
assert_eq "status of -f: $(cat "$tmp/out")" 0 "$rc"
assert_eq "what -f left" "" "$(ls -A "$cache")"
! is_mounted "$mnt" || fail "-f mounted"
helper "$cache" "$mnt" -n -o "rw,defaults,noauto,user=root,users,owner,nofail,_netdev,x-systemd.automount,x-gvfs-hide,X-mount.mkdir,comment=x,nosuid,nodev,$small"
assert_eq "status of the mount: $(cat "$tmp/out")" 0 "$rc"
assert_eq "what it says without -v" "" "$(cat "$tmp/out")"
# At once: the helper returns when the mount answers.
grep -q '^hicachefs ' "$mnt/.hicache/version" || fail "the mount does not answer"
known
case $(grep " $mnt " /proc/self/mounts) in
*nosuid*nodev*) ;;
*) fail "nosuid, nodev: $(grep " $mnt " /proc/self/mounts)" ;;
esac
refused 32 "a hicachefs is mounted on $mnt already" "$cache" "$mnt" -o "$small"
mkdir "$tmp/mnt2" "$tmp/cache2"
refused 32 'in use' "$cache" "$tmp/mnt2" -o pool_size=64M
refused 32 "pid file $pid_file: its daemon, process $daemon_pid, is running" "$tmp/cache2" "$tmp/mnt2" -o "$small"
assert_eq "the pid file after a refused start" "$daemon_pid" "$(cat "$pid_file")"
# In use: refused by the kernel, and the daemon lives.
mkdir "$mnt/s"
exec 9<"$mnt/s" || fail "open"
umount "$mnt" 2>"$tmp/out" && fail "umount of a mount in use"
grep -q busy "$tmp/out" || fail "umount of a mount in use: $(cat "$tmp/out")"
exec 9<&-
[ -d "$mnt/s" ] && is_running "$daemon_pid" || fail "the daemon suffered from umount"
umount "$mnt" || fail "umount"
gone

# Sloppy, talkative; a pid file that nobody owns is taken over.
echo 999999999 >"$pid_file"
helper "$cache" "$mnt" -s -v -o "frobnicate,$small"
assert_eq "status with -s: $(cat "$tmp/out")" 0 "$rc"
grep -q 'frobnicate: there is no such option, ignored' "$tmp/out" || fail "-s: $(cat "$tmp/out")"
grep -q 'process 999999999 has left it, taken over' "$tmp/out" || fail "a left pid file: $(cat "$tmp/out")"
grep -q 'pool of 64M' "$tmp/out" || fail "-v: $(cat "$tmp/out")"
known
# A daemon that dies leaves pid file and mount; the next one needs no help.
kill -KILL "$daemon_pid"
wait_until 20 has_ended "$daemon_pid" || fail "kill"
_forget_daemon "$daemon_pid"
is_mounted "$mnt" || fail "there is no dead mount to take away"
helper "$cache" "$mnt" -o "$small"
assert_eq "status over a dead mount: $(cat "$tmp/out")" 0 "$rc"
grep -q "a daemon that died had left its mount on $mnt: taken away" "$tmp/out" || fail "a dead mount: $(cat "$tmp/out")"
known
assert_eq "mounts after a dead one" 1 "$(grep -c " $mnt " /proc/self/mounts)"
umount "$mnt" || fail "umount"
gone

# Pid files that are none are left alone.
echo 'do not lose this' >"$pid_file"
refused 32 'there is something else in this file' "$cache" "$mnt" -o "$small"
assert_eq "a foreign file" 'do not lose this' "$(cat "$pid_file")"
rm "$pid_file"
ln -s "$tmp/elsewhere" "$pid_file"
refused 32 'this is a symbolic link' "$cache" "$mnt" -o "$small"
[ ! -e "$tmp/elsewhere" ] || fail "a symbolic link was followed"
rm "$pid_file"
mkdir "$pid_file"
refused 32 "pid file $pid_file: " "$cache" "$mnt" -o "$small"
rmdir "$pid_file"
refused 32 "pid file $tmp/nothere/pid: No such file" "$cache" "$mnt" -o "pool_size=64M,pid_file=$tmp/nothere/pid"

# mount(8): its helpers are in /sbin, so that is replaced where only this test sees it.
helpers=$(realpath /sbin)
unshare -m --propagation private true 2>/dev/null || {
	echo "note: no mount namespaces here: mount(8) was not tried"
	exit 0
}
mkdir "$tmp/sbin" "$tmp/old-sbin"
cat >"$tmp/fstab" <<END
$cache $mnt hicachefs config=$tmp/conf,noinit,nofail,_netdev,x-systemd.requires-mounts-for=$tmp 0 0
END
printf 'pool_size = 64M\nmax_page_bytes = 4M\npid_file = %s\n' "$pid_file" >"$tmp/conf"
cat >"$tmp/inside" <<END
set -e
mount --bind "$helpers" "$tmp/old-sbin"
for f in "$tmp/old-sbin"/*; do
	ln -s "\$f" "$tmp/sbin/\${f##*/}"
done
rm -f "$tmp/sbin/mount.hicachefs"
ln -s "$(realpath "$hicachefs_bin")" "$tmp/sbin/mount.hicachefs"
mount --bind "$tmp/sbin" "$helpers"
trap 'umount -l "$mnt" 2>/dev/null || :' EXIT
check()
{
	grep -q '^hicachefs ' "$mnt/.hicache/version" || { echo "\$1: no answer"; exit 1; }
	grep -q "^pid_file = $pid_file" "$mnt/.hicache/config" || { echo "\$1: the options did not arrive"; exit 1; }
}
# The daemon writes and ends after umount has returned.
unmounted()
{
	pid=\$(cat "$pid_file")
	timeout 60 umount "$mnt"
	timeout 60 tail --pid="\$pid" -f /dev/null || { echo "\$1: the daemon does not end"; exit 1; }
	[ ! -e "$pid_file" ] || { echo "\$1: the pid file was left"; exit 1; }
}
timeout 60 mount -T "$tmp/fstab" "$mnt"
check 'mount MNT'
timeout 60 mount -T "$tmp/fstab" "$mnt" 2>"$tmp/again" && { echo 'mounted twice'; exit 1; }
timeout 60 mount -T "$tmp/fstab" -a
check 'mount -a when it is mounted'
timeout 60 mount -T "$tmp/fstab" -o remount "$mnt" 2>"$tmp/again" && { echo 'remounted'; exit 1; }
grep -q 'remount: a mount is not changed in place' "$tmp/again" || { cat "$tmp/again"; exit 1; }
check 'after remount'
unmounted 'umount MNT'
timeout 60 mount -T "$tmp/fstab" -a
check 'mount -a'
grep -q ' $mnt fuse.hicachefs ' /proc/self/mounts || { echo 'not in the table'; exit 1; }
unmounted 'umount after -a'
timeout 60 mount -t hicachefs -o "$small" "$cache" "$mnt"
check 'mount -t'
unmounted 'umount after -t'
END
timeout 280 unshare -m --propagation private sh "$tmp/inside" >"$tmp/out" 2>&1 </dev/null || fail "mount(8): status $?: $(cat "$tmp/out")"
