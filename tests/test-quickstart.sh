#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: the set-up scripts say what is wrong and what to do. Method: bad options, nothing to stop, and
# the shared functions with steps that fail or take too long.
. "${top_srcdir:-.}/tests/functions.sh"

quickstart=$top_srcdir/contrib/quickstart
HICACHE_QUICKSTART_DIR=$tmp/none
export HICACHE_QUICKSTART_DIR
expect_error "usage" sh "$quickstart" --nonsense
sh "$quickstart" --help | grep -q -- --stop || fail "--help does not speak of --stop"
out=$(sh "$quickstart" --stop) || fail "--stop with nothing to stop: status $?"
case $out in
*"nothing to stop"*) ;;
*) fail "--stop says: $out" ;;
esac
[ ! -e "$tmp/none" ] || fail "--stop made a directory"

# run-step ARGUMENT...: the function step, in a program of its own.
cat >"$tmp/run-step" <<EOF
me=me
top=$top_srcdir
logs=$tmp
. "$top_srcdir/contrib/setup.sh"
step "\$@"
EOF

sh "$tmp/run-step" "a good one" 10 none true || fail "a good step fails"
expect_error "me: a bad one: sh ended with status 3" sh "$tmp/run-step" "a bad one" 10 "buy one" \
	sh -c 'echo the reason; exit 3'
case $_out in
*"the reason"*"What to do: buy one"*) ;;
*) fail "the message of a bad step: $_out" ;;
esac
expect_error "not done after 1 s" sh "$tmp/run-step" "a slow one" 1 none tail -f /dev/null

missing=$(sh -c 'me=me; top=$1; . "$top/contrib/setup.sh"; packages_missing no-such-package' sh "$top_srcdir")
assert_eq "missing packages" "no-such-package " "$missing"
exit 0
