#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: check-style finds each kind of offence in a made-up tree, is silent on a good one, and our own
# tree is clean.
. "${top_srcdir:-.}/tests/functions.sh"

spdx='/* SPDX-License-Identifier: Apache-2.0 */'

source_file()
{
	mkdir -p "$tmp/tree/$(dirname "$1")"
	_path=$tmp/tree/$1
	shift
	printf '%s\n' "$@" >"$_path"
}

# broken PATTERN PATH LINE...: the file is found, with what matches the pattern.
broken()
{
	_pattern=$1
	_file=$2
	shift
	source_file "$@"
	_out=$("$top_srcdir/contrib/check-style" "$tmp/tree") && fail "not found in $_file: $_pattern"
	case $_out in
	"$_file:"*"$_pattern"*) ;;
	*) fail "$_file: expected \"$_pattern\", the message is: $_out" ;;
	esac
	rm "$tmp/tree/$_file"
}

# The word is made up of two, so that this file itself passes.
nap=sle"ep"
dollar='$'

lines()
{
	awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) print text }'
}

source_file src/util/good.c "$spdx" '/* sprintf(x), signal(y) */' 'int f(void)' '{' "$(lines 68 '	g();')" \
	'}' 'const char *s = "strcpy(a, b) \" atoi(c)"; // gets(x)' 'snprintf(a, 1, "x"); hc_signal(1);' \
	'#ifdef HAVE_X' 'clock_gettime(0, &t); pthread_cond_signal(&c); strtok_r(a, b, c);'
source_file fuse/init.c "$spdx" '#if defined HAVE_X'
source_file tests/test-good.sh '#!/bin/sh' '# SPDX-License-Identifier: Apache-2.0' "# never $nap 1" 'wait_until 3 true'
source_file src/node/long.c "$spdx" "$(lines 999 'int x;')"
"$top_srcdir/contrib/check-style" "$tmp/tree" || fail "a good tree is refused"

for call in sprintf vsprintf strcpy strcat strtok atoi gets alloca signal; do
	broken "$call() is banned" src/node/bad.c "$spdx" "	x = $call(y);"
done
broken "sprintf() is banned" src/node/bad.c "$spdx" '	/* a */ sprintf (y); /* b'
broken "time() is banned" src/node/bad.c "$spdx" '	t = time(NULL);'
broken "rand() is banned" fuse/bad.c "$spdx" '	t = rand();'
broken "usleep() is banned" tests/bad.c "$spdx" '	usleep(1);'
broken "sleep in a test" tests/test-bad.sh '#!/bin/sh' '# SPDX-License-Identifier: Apache-2.0' "a && $nap 1"
broken "wait_until gets a value" tests/test-bad.sh '#!/bin/sh' '# SPDX-License-Identifier: Apache-2.0' \
	"wait_until 10 [ \"$dollar(x)\" = 0 ]"
broken "function of 71 lines" src/node/bad.c "$spdx" 'int f(void)' '{' "$(lines 69 '	g();')" '}'
broken "file of 1001 lines" src/node/bad.c "$spdx" "$(lines 1000 'int x;')"
broken "HAVE_ condition" src/node/bad.c "$spdx" '#ifdef HAVE_X'
broken "HAVE_ condition" fuse/main.c "$spdx" '#if defined(HAVE_X)'
broken "blank at the end" src/node/bad.c "$spdx" 'int x; '
broken "blank at the end" src/node/bad.h "$spdx" 'int x;	'
broken "SPDX" src/node/bad.c 'int x;' 'int y;' "$spdx"
broken "SPDX" contrib/bad '#!/bin/sh' 'true'
broken "SPDX" src/node/Makefile.inc 'X ='
"$top_srcdir/contrib/check-style" "$tmp/none" >/dev/null 2>&1
assert_eq "status for a missing tree" 2 $?

"$top_srcdir/contrib/check-style" "$top_srcdir" || fail "the style is broken"
