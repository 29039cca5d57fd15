#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: what an engine gains and what damage does, from end to end. Method: the demo's check on a mount with
# generated pages (no package is needed): pages of one process are reused by the next, bit for bit; a page
# file that was damaged on disk is missed and counted; all of it is warm again after a restart.
. "${top_srcdir:-.}/tests/functions.sh"

requires python3
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "python3 is older than 3.9"
requires_fuse
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
mkdir "$tmp/state"

demo()
{
	timeout 120 python3 "$top_srcdir/contrib/demo/demo.py" "$@" "$tmp/mnt" --generated --state "$tmp/state" \
		--cachedir "$tmp/cache" --hicachectl "$hicachectl_bin"
}

start_daemon "$tmp/cache" "$tmp/mnt" -o pool_size=128M || fail "the daemon did not start"
demo check || fail "check"
stop_daemon || fail "the daemon ended with status $?"

start_daemon "$tmp/cache" "$tmp/mnt" -o pool_size=128M || fail "the daemon did not start again"
demo again || fail "the cache did not outlive a restart"
stop_daemon || fail "the daemon ended with status $?"
exit 0
