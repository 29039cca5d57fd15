#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: the demo's flow and its check tell right from wrong. Method: generated pages (no package is
# needed) in a plain directory: all is well; then a page is taken away, cut, and made unwritable.
. "${top_srcdir:-.}/tests/functions.sh"

requires python3
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "python3 is older than 3.9"
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
parent=$tmp/parent
mkdir "$parent" "$tmp/state"

demo()
{
	timeout 120 python3 "$top_srcdir/contrib/demo/demo.py" "$@"
}

# reused: of the last answer.
reused()
{
	demo ask "$parent" --generated -q "What is your name?" --logits "$tmp/logits" --json >"$tmp/answer" ||
		fail "ask: status $?"
	cmp -s "$tmp/logits" "$tmp/state/reference-logits" || fail "logits differ from those without a cache"
	sed 's/.*"hit_pages": \([0-9]*\).*/\1/' "$tmp/answer"
}

demo check "$parent" --generated --state "$tmp/state" || fail "check"
demo again "$parent" --generated --state "$tmp/state" || fail "again"

dir=$(demo where "$parent" --generated)
[ -z "$(find "$dir" -name '*.tmp*')" ] || fail "a temporary file is left"
reused >/dev/null
page=$(sed 's/.*"pages": \["\([0-9a-f]*\)", "\([0-9a-f]*\)".*/\2/' "$tmp/answer")
n_pages=$(ls "$dir" | wc -l)

mv "$dir/$page.kv" "$tmp/saved"
assert_eq "pages reused without the second page" 1 "$(reused)"
cmp "$dir/$page.kv" "$tmp/saved" || fail "the page that was stored anew is another"
truncate -s -1 "$dir/$page.kv"
assert_eq "pages reused with a short second page" 1 "$(reused)"
assert_eq "pages reused in the end" "$n_pages" "$(reused)"

# The check must fail when the cache lies: garbage of the right size.
tr '\0-\377' '\1-\377\0' <"$tmp/saved" >"$dir/$page.kv"
expect_error "checks above failed" python3 "$top_srcdir/contrib/demo/demo.py" check "$parent" --generated
expect_error "not a directory" python3 "$top_srcdir/contrib/demo/demo.py" check "$tmp/none" --generated
expect_error "run check" python3 "$top_srcdir/contrib/demo/demo.py" again "$parent" --generated \
	--state "$tmp"
exit 0
