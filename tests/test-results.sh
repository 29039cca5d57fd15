#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: what contrib/check counts is what happened. Made-up results go through the real drivers: TAP
# programs that pass, fail, skip, crash, hang or print too little; scripts that pass, fail and skip.
. "${top_srcdir:-.}/tests/functions.sh"
aux=$top_srcdir/build-aux
[ -r "$aux/tap-driver.sh" ] || fail "$aux/tap-driver.sh is missing"
mkdir -p "$tmp/b/tests"
cd "$tmp/b" || exit 99

# tap NAME [EXTENSION]: standard input is the program.
tap()
{
	cat >"$tmp/prog"
	AM_TAP_AWK=awk sh "$aux/tap-driver.sh" --test-name "tests/$1${2-}" --log-file "tests/$1.log" \
		--trs-file "tests/$1.trs" --color-tests no --enable-hard-errors yes --expect-failure no \
		-- sh "$top_srcdir/tests/tap-run" timeout -k 1 1 sh "$tmp/prog" >/dev/null 2>&1
}

# script NAME: standard input is the test.
script()
{
	cat >"$tmp/prog"
	sh "$aux/test-driver" --test-name "tests/$1.sh" --log-file "tests/$1.log" \
		--trs-file "tests/$1.trs" --color-tests no --enable-hard-errors yes --expect-failure no \
		-- sh "$tmp/prog" >/dev/null 2>&1
}

# expect STATUS SUMMARY
expect()
{
	"$top_srcdir/contrib/test-results" --skips "$tmp/skips" "$tmp/b" >"$tmp/out" 2>&1
	_rc=$?
	assert_eq "summary ($(cat "$tmp/out"))" "$2" "$(tail -n 1 "$tmp/out")"
	assert_eq "status of: $2" "$1" "$_rc"
}

# says LINE: one line of the output begins so.
says()
{
	grep -qF -e "$1" "$tmp/out" || fail "not said: $1; but: $(cat "$tmp/out")"
}

expect 1 "0 passed, 0 failed, 0 skipped"

printf 'echo 1..3\necho ok 1 - a\necho ok 2 - b\necho ok 3 - c\n' | tap good
printf 'exit 0\n' | script fine
expect 0 "4 passed, 0 failed, 0 skipped"
says "skipped: none"

printf 'echo 1..2\necho "# skip: no such disk"\necho not ok 1 "# SKIP" test_disk\necho ok 2 - b\n' | tap some
printf 'echo SKIP: no FUSE: none here\nexit 77\n' | script mount
printf 'exit 77\n' | script silent
expect 0 "5 passed, 0 failed, 3 skipped"
says "skipped: tests/some test_disk: no such disk"
says "skipped: tests/mount.sh: no FUSE: none here"
says "skipped: tests/silent.sh: no reason given"
assert_eq "lines in the list of skips" 3 "$(wc -l <"$tmp/skips")"
grep -q "^tests/some test_disk	no such disk$" "$tmp/skips" || fail "skips: $(cat "$tmp/skips")"

printf 'echo 1..2\necho not ok 1 - a\necho ok 2 - b\nexit 1\n' | tap bad
expect 1 "6 passed, 1 failed, 3 skipped"
says "failed:  FAIL: tests/bad 1 - a"
says "--- the end of tests/bad.log:"
rm tests/bad.trs tests/bad.log

# A script of cases: its results have no extension.
printf 'echo 1..3\necho not ok 1 - point a\necho ok 2 - b\necho ok 3 "# SKIP c: none here"\n' | tap cases .tap
expect 1 "6 passed, 1 failed, 4 skipped"
says "failed:  FAIL: tests/cases 1 - point a"
says "skipped: tests/cases c: none here"
rm tests/cases.trs tests/cases.log

# The plan not kept and the status: two results of the driver for each.
printf 'echo 1..2\necho ok 1 - a\nkill -SEGV $$\n' | tap crash
expect 1 "6 passed, 2 failed, 3 skipped"
rm tests/crash.trs tests/crash.log
# Longer than the limit of a second that tap gives it.
printf 'echo 1..2\necho ok 1 - a\nexec tail -f /dev/null\n' | tap hang
expect 1 "6 passed, 2 failed, 3 skipped"
rm tests/hang.trs tests/hang.log
printf 'exit 0\n' | tap mute
expect 1 "5 passed, 1 failed, 3 skipped"
rm tests/mute.trs tests/mute.log

printf 'echo what was wrong\nexit 1\n' | script wrong
printf 'kill -KILL $$\n' | script killed
expect 1 "5 passed, 2 failed, 3 skipped"
says "    what was wrong"
says "failed:  FAIL tests/wrong.sh (exit status: 1)"
: >tests/killed.trs
expect 1 "5 passed, 2 failed, 3 skipped"
says "failed:  tests/killed: no result"
