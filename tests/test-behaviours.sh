#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: tests/README.md names a test for each behaviour from 9 to 32, and each test that it names is
# there, and is run.
. "${top_srcdir:-.}/tests/functions.sh"

table=$top_srcdir/tests/README.md
i=9
while [ "$i" -le 32 ]; do
	grep -q "^| $i\\. .* | test-[a-z-]*\\.c test_" "$table" || fail "behaviour $i has no test in $table"
	i=$((i + 1))
done
# FILE TEST, one a line: a file's name holds for the tests that follow it.
sed -n 's/^|.*| \(test-.*\) |$/\1/p' "$table" | tr -d ',' | awk '{
	for (i = 1; i <= NF; i++)
		if ($i ~ /^test-/)
			file = $i
		else
			print file, $i
}' >"$tmp/tests"
[ -s "$tmp/tests" ] || fail "no test in $table"
while read -r file test; do
	grep -q "^static void $test(" "$top_srcdir/tests/$file" || fail "$file has no $test"
	[ "$(grep -c "[(]${test}[)]" "$top_srcdir/tests/$file")" -ge 1 ] || fail "$file does not run $test"
done <"$tmp/tests"
