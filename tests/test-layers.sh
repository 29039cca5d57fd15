#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: check-layers finds each kind of broken include in a made-up tree, is silent on a good one, and
# our own tree is clean.
. "${top_srcdir:-.}/tests/functions.sh"

# source PATH LINE...: makes a file of the made-up tree.
source_file()
{
	mkdir -p "$tmp/tree/$(dirname "$1")"
	_path=$tmp/tree/$1
	shift
	printf '%s\n' "$@" >"$_path"
}

# broken PATTERN LINE PATH: this file with this line is found, named with its line.
broken()
{
	source_file "$3" "" "$2"
	_out=$("$top_srcdir/contrib/check-layers" "$tmp/tree") && fail "not found: $2 in $3"
	case $_out in
	"$3:2:"*"$1"*) ;;
	*) fail "$2 in $3: the message is: $_out" ;;
	esac
	rm "$tmp/tree/$3"
}

source_file src/util/log.h
source_file src/hicache.h
source_file src/model/hash.h '#include "util/log.h"'
source_file src/pool/pool.c '#include "model/hash.h"' '#include <util.h>' '#include "local.h"'
source_file src/pool/local.h
source_file src/hicache.c '#include "hicache.h"' '#include "node/node.h"'
source_file fuse/main.c '#include "hicache.h"' '  #  include "node/node.h"' '#include "fuse/ops.h"'
"$top_srcdir/contrib/check-layers" "$tmp/tree" || fail "a good tree is refused"

broken "level" '#include "model/hash.h"' src/util/log.c
broken "level" '#include "store/store.h"' src/pool/bad.c
broken "level" '#include "pool/pool.h"' src/store/bad.h
broken "level" '#include "node/node.h"' src/index/bad.c
broken "level" '#include "controller/x.h"' src/wire/bad.c
broken "level" '#include "hicache.h"' src/node/bad.c
broken "level" '#include "fuse/ops.h"' src/tool/bad.c
broken "level" '	#	include "tool/x.h"' fuse/bad.c
broken "relative" '#include "../model/hash.h"' src/util/bad.c
broken "quotation" '#include <util/log.h>' src/node/bad.c
broken "no folder" '#include "nowhere/x.h"' src/node/bad.c
broken "no folder" '#include "missing.h"' src/node/bad.c

source_file src/strange/x.c
"$top_srcdir/contrib/check-layers" "$tmp/tree" >/dev/null && fail "a folder without a level is accepted"
"$top_srcdir/contrib/check-layers" "$tmp/none" >/dev/null 2>&1
assert_eq "status for a missing tree" 2 $?

"$top_srcdir/contrib/check-layers" "$top_srcdir" || fail "layers are broken"
