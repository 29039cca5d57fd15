#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Engines' own call sequences on the directory of their file backend.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

start_daemon "$tmp/cache" "$tmp/mnt" -o pool_size=512M || fail "the daemon did not start"
mkdir "$tmp/mnt/space"
timeout 120 "$top_builddir/tests/fuse-engines" "$tmp/mnt/space" || fail "fuse-engines: status $?"
# The root is a space, too: an engine's default directory works with no flag.
timeout 120 "$top_builddir/tests/fuse-engines" "$tmp/mnt" lmcache || fail "fuse-engines in the root: status $?"
assert_eq "temporaries listed" "" "$(find "$tmp/mnt/space" -type f -name '*tmp*')"
stop_daemon || fail "the daemon ended with status $?"
