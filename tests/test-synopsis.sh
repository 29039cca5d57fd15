#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What --help lists and what the man pages describe is the same: options of hicachefs, commands and options of hicachectl,
# exit statuses. The pages are sound POD. Method: compares the names in both texts, both ways.
. "${top_srcdir:-.}/tests/functions.sh"

man=$top_srcdir/man
"$hicachefs_bin" --help >"$tmp/fs.help" || fail "hicachefs --help: status $?"
"$hicachectl_bin" --help >"$tmp/ctl.help" || fail "hicachectl --help: status $?"
"$hicachefs_bin" --version | grep -q '^hicachefs [0-9]' || fail "hicachefs --version"
"$hicachectl_bin" --version | grep -q '^hicachectl [0-9]' || fail "hicachectl --version"

# same WHAT: the two sorted lists of names are equal.
same()
{
	sort -u "$tmp/in-help" >"$tmp/a"
	sort -u "$tmp/in-page" >"$tmp/b"
	[ -s "$tmp/a" ] || fail "$1: nothing found in --help"
	diff "$tmp/a" "$tmp/b" >"$tmp/diff" || fail "$1: --help (<) and the man page (>) differ:
$(cat "$tmp/diff")"
}

sed -n 's/^  \([a-z_]*\)=.*(.*)$/\1/p' "$tmp/fs.help" >"$tmp/in-help"
sed -n 's/^=item \(.*B<[a-z_]*>=.*\)$/\1/p' "$man/hicachefs.1.pod" | grep -v allow_other | grep -o 'B<[a-z_]*>' | tr -d 'B<>' >"$tmp/in-page"
same "options of -o"
grep -o -e '--[a-z-]*' "$tmp/fs.help" >"$tmp/in-help"
grep '^=item' "$man/hicachefs.1.pod" | grep -o -e '--[a-z-]*' >"$tmp/in-page"
same "long options of hicachefs"
# The defaults that the page tells.
sed -n 's/^  \([a-z_]*\)=.*(\([0-9]*%\))$/\1 \2/p' "$tmp/fs.help" | while read -r name preset; do
	sed -n "/^=item.*B<$name>=/,/^=item/p" "$man/hicachefs.1.pod" | grep -q -e "$preset" ||
		fail "the man page does not tell the default of $name, $preset"
done || exit 1

sed -n 's/^  \([a-z][a-z ]*[a-z]\)\( .*\)\{0,1\}$/\1/p' "$tmp/ctl.help" | sed 's/ *$//' >"$tmp/in-help"
sed -n 's/^=item B<\([a-z ]*\)>.*/\1/p' "$man/hicachectl.1.pod" >"$tmp/in-page"
same "commands of hicachectl"
grep -o -e '--[a-z-]*' "$tmp/ctl.help" >"$tmp/in-help"
{ grep '^=item' "$man/hicachectl.1.pod"; sed -n '/^B<hicachectl>/,/^=head1 COMMANDS/p' "$man/hicachectl.1.pod"; } |
	grep -o -e '--[a-z-]*' >"$tmp/in-page"
same "long options of hicachectl"

# Each option and section setting of the config file page is one that the parser takes.
for name in quota max_age priority; do
	grep -q "^=item B<$name> = " "$man/hicachefs.5.pod" || fail "hicachefs(5) does not tell of $name"
done
sed -n '/^=head1 EXAMPLE/,/^=head1 SEE/s/^  //p' "$man/hicachefs.5.pod" >"$tmp/example.conf"
[ -s "$tmp/example.conf" ] || fail "hicachefs(5) has no example"
expect_error "cache directory $tmp/none: No such file" "$hicachefs_bin" -f --config "$tmp/example.conf" "$tmp/none" "$tmp/mnt"

if command -v podchecker >/dev/null 2>&1; then
	for page in "$man"/*.pod; do
		podchecker -warnings "$page" >"$tmp/pod" 2>&1 || fail "$page: $(cat "$tmp/pod")"
		grep -q WARNING "$tmp/pod" && fail "$page: $(cat "$tmp/pod")"
	done
fi
exit 0
