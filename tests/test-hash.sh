#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hicachectl hash against sha256sum: chains, wide tokens, bigrams, priors, and what is refused.
. "${top_srcdir:-.}/tests/functions.sh"
requires sha256sum awk

[ -x "$hicachectl_bin" ] || fail "$hicachectl_bin is not built"

# bytes HEX: as octal escapes for printf.
bytes()
{
	printf '%s' "$1" | awk '{
		for (i = 1; i < length($0); i += 2)
			printf "\\%03o", 16 * (index("0123456789abcdef", substr($0, i, 1)) - 1) + index("0123456789abcdef", substr($0, i + 1, 1)) - 1
	}'
}

# sha HEX: SHA-256 of these bytes.
sha()
{
	printf "$(bytes "$1")" | sha256sum | cut -d ' ' -f 1
}

page_hash()
{
	timeout 20 "$hicachectl_bin" hash "$@"
}

first=$(sha 0100000002000000)
second=$(sha "${first}0300000004010000")
assert_eq "two pages" "$first
$second" "$(printf '1 2\n3,260\n5' | page_hash --page-tokens 2)"
assert_eq "all separators" "$first" "$(printf ',, 1\r\n\t,2,\n' | page_hash --page-tokens 2)"
assert_eq "no whole page" "" "$(echo 1 | page_hash --page-tokens 2)"
assert_eq "no token" "" "$(page_hash --page-tokens 2 </dev/null)"
assert_eq "a prior" "$second" "$(echo 3 260 | page_hash --page-tokens 2 --prior "$first")"
assert_eq "a wide page" "$(sha ff01000000000000000000000001000000)" "$(echo 1 4294967296 | page_hash --page-tokens 2)"
assert_eq "the largest token" "$(sha ffffffffffffffff7f)" "$(echo 9223372036854775807 | page_hash --page-tokens 1)"
assert_eq "bigrams" "$(sha 01000000020000000200000003000000)" "$(echo 1 2 3 | page_hash --page-tokens 2 --bigram)"
# More tokens than are hashed at once, in one page and in many.
want=$(awk 'BEGIN { for (i = 0; i < 10000; i++) printf "%c%c%c%c", 65, 0, 0, 0 }' | sha256sum | cut -d ' ' -f 1)
[ "$(awk 'BEGIN { printf "%c", 0 }' | wc -c)" != 1 ] ||
	assert_eq "10,000 tokens" "$want" "$(awk 'BEGIN { for (i = 0; i < 10000; i++) print 65 }' | page_hash --page-tokens 10000)"
assert_eq "10,000 pages" 10000 "$(seq 1 10000 | page_hash --page-tokens 1 | wc -l)"

# Namespaces: another root, and only the root differs.
plain=$(echo 1 2 3 4 | page_hash --page-tokens 2)
key=$(echo 1 2 3 4 | page_hash --page-tokens 2 --extra-key tenant)
salt=$(echo 1 2 3 4 | page_hash --page-tokens 2 --cache-salt tenant)
[ "$plain" != "$key" ] && [ "$key" != "$salt" ] && [ "$plain" != "$salt" ] || fail "namespaces do not separate"
assert_eq "the chain goes on from the namespace's first page" "${key#*
}" "$(echo 3 4 | page_hash --page-tokens 2 --prior "${key%%
*}")"

# refused STATUS PATTERN TOKENS ARGUMENT...
refused()
{
	_want=$1
	_says=$2
	printf '%s' "$3" >"$tmp/tokens"
	shift 3
	_out=$(page_hash "$@" <"$tmp/tokens" 2>&1 >/dev/null)
	assert_eq "status: $*" "$_want" $?
	printf '%s\n' "$_out" | grep -Eq -e "$_says" || fail "hash $*: the message does not say \"$_says\": $_out"
}
refused 1 'token 3, -7: a token id is not negative' '1,2 -7' --page-tokens 1
refused 1 'token 2, 9223372036854775808: a token id has at most 63 bits' '1 9223372036854775808' --page-tokens 1
refused 1 'token 1, 99999999999999999999999: a token id has at most 63 bits' 99999999999999999999999 --page-tokens 1
refused 1 'token 2, 0x10: this is not a token id' '1 0x10' --page-tokens 1
refused 1 'token 1, 1.5: this is not a token id' 1.5 --page-tokens 1
refused 1 'token 1, \[1: this is not a token id' '[1, 2]' --page-tokens 1
refused 2 '--page-tokens is missing' 1
refused 2 '--page-tokens 0: a number from 1' 1 --page-tokens 0
refused 2 '--page-tokens 2000000: a number from 1' 1 --page-tokens 2000000
refused 2 '--prior abc: the hash of the page before' 1 --page-tokens 1 --prior abc
refused 2 '--prior .*: the hash of the page before' 1 --page-tokens 1 --prior "$(printf '%s' "$first" | tr a-f A-F)"
refused 2 '--prior : the hash of the page before' 1 --page-tokens 1 --prior ''
refused 2 'tokens are read from standard input' 1 --page-tokens 1 extra
