#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The completion for bash offers each command and option that hicachectl --help lists, and nothing else. Method: calls its
# function as bash does.
. "${top_srcdir:-.}/tests/functions.sh"
requires bash

mkdir "$tmp/bin"
ln -s "$(realpath "$hicachectl_bin")" "$tmp/bin/hicachectl"
PATH=$tmp/bin:$PATH
export PATH

# offered WORD...: what is offered for the last word.
offered()
{
	bash -c '. "$1" && shift && COMP_WORDS=("$@") && COMP_CWORD=$(($# - 1)) && _hicachectl && printf "%s\n" "${COMPREPLY[@]}"' \
		- "$top_srcdir/contrib/completion/hicachectl" hicachectl "$@" 2>"$tmp/err" | sort -u
	[ ! -s "$tmp/err" ] || fail "completion of $*: $(cat "$tmp/err")"
}

hicachectl --help | sed -n 's/^  \([a-z][a-z-]*\).*/\1/p' | sort -u >"$tmp/commands"
assert_eq "commands" "$(cat "$tmp/commands")" "$(offered '')"
assert_eq "commands with a beginning" "$(grep '^s' "$tmp/commands")" "$(offered s)"
while read -r command; do
	assert_eq "options of $command" "$(hicachectl --help | grep "^  $command\b" | grep -o -e '--[a-z-]*' | sort -u)" "$(offered "$command" --)"
done <"$tmp/commands"
assert_eq "tiers" "disk
memory" "$(offered ls --tier '')"
assert_eq "log levels" "debug" "$(offered log-level d)"
assert_eq "after -m" "drain" "$(offered -m /mnt/x dr)"
: >"$tmp/file here"
cd "$tmp" || fail "cd"
assert_eq "files" "file here" "$(offered doctor f)"
assert_eq "nothing" "" "$(offered gc x)"
