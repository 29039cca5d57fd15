/* SPDX-License-Identifier: Apache-2.0 */
/* What a file name means, and back: (directory, name) <-> (series pattern, page hash). Pure
 * functions.
 *
 * The hash is the longest run of at least 16 lower-case hex digits of the last component, the first
 * at a tie; the two digits of a percent escape (LMCache's %40HASH) belong to no run. The
 * pattern is the path with that run cut out, and with the digits cut out of directories that begin
 * with the next (two or more) digits of the hash:
 *
 *	m_r0/abc/de_g0/abcdef...(64 digits).bin		m_r0/{3}/{2}_g0/{64}.bin
 *
 * {N} stands for N digits: in directories the next N from the left, in the name all of them.
 * Braces, blanks, control bytes and DEL are written {xHH}, so a pattern is one word on one line.
 * Guarantees: parse, then format, gives the same path; so no two paths share a (pattern, hash). A
 * path whose pattern does not fit, or whose run is longer than 64 digits, is opaque. */
#ifndef HC_MODEL_PAGENAME_H
#define HC_MODEL_PAGENAME_H

#include "model/hash.h"
#include "model/kvspec.h"

/* A component may have 255 bytes, a path inside its space 4,095. */
#define HC_NAME_BYTES    256
#define HC_PATH_BYTES    4096
#define HC_PATTERN_BYTES 4096
/* Runs of fewer digits name no page. */
#define HC_NAME_DIGITS_MIN 16
/* The pattern of all opaque pages of a space; no other pattern looks like it (it has no {N}). */
#define HC_PATTERN_OPAQUE "{opaque}"

enum hc_name_kind {
	HC_NAME_TEMPORARY = 1, /* never a page */
	/* An ordinary file while it is small enough; else an opaque page with this hash. */
	HC_NAME_ORDINARY,
	/* A page without a usable hash in its name: hash is the SHA-256 of the path. */
	HC_NAME_OPAQUE,
	HC_NAME_PAGE,
};

struct hc_pagename {
	enum hc_name_kind kind;
	/* TEMPORARY: hash, n_digits and pattern are those of the page it is going to be renamed to.
	 * A hint: the rename decides. */
	bool has_target;
	uint32_t n_digits; /* PAGE, or the target: 16 to 64; else 0 */
	struct hc_hash hash;
	char pattern[HC_PATTERN_BYTES];
};

/* dir: directory relative to the space, components joined by '/', "" for the space itself. -EINVAL:
 * an empty component, ".", "..", or a '/' in name; -ENAMETOOLONG: a component above 255 bytes or a
 * path above 4,095. */
int hc_pagename_parse(const char *dir, const char *name,
		      struct hc_pagename *parsed_p) HC_MUST_CHECK;

/* The path (relative to the space) of a hash in a series. -EINVAL: not a pattern, the opaque one, a
 * hash with digits beyond the pattern's, or a pair that no path parses to (a directory that by
 * chance repeats the hash); -ENAMETOOLONG as above. */
int hc_pagename_format(const char *pattern, const struct hc_hash *hash,
		       char path[HC_PATH_BYTES]) HC_MUST_CHECK;
/* The last component alone, of a pair that a path was parsed to: nothing is checked again. */
int hc_pagename_format_name(const char *pattern, const struct hc_hash *hash,
			    char name[HC_NAME_BYTES]) HC_MUST_CHECK;
/* Whether a text can be a pattern at all, and for how many digits of hash. -EINVAL otherwise. */
int hc_pagename_pattern_check(const char *pattern, uint32_t *n_digits_p) HC_MUST_CHECK;

/* name like *.tmp, *.tmp.*, *.tmp<hex>, .NAME. + 6 alphanumerics, or any name in a directory
 * ".tmp". parent_name: the last component of its directory, or "" or NULL. */
bool hc_pagename_is_temporary(const char *name, const char *parent_name);
/* What a temporary is going to be called, where its name tells: vLLM's, LMCache's, AIBrix's, UCM's,
 * SGLang's with process id, rsync's. False where it does not. */
bool hc_pagename_target(const char *dir, const char *name, char target_dir[HC_PATH_BYTES],
			char target_name[HC_NAME_BYTES]);
/* The key of a page without a hash in its name. */
void hc_pagename_opaque_hash(const char *dir, const char *name, struct hc_hash *hash_p);

/* File names that engines give the pages of a specification; -ENAMETOOLONG above 255 bytes.
 * SGLang's file backend (0.5.2 to 0.5.23):
 * HASH[.COMPONENT]_MODEL[_TP_TPS][_PPS_PP][_cpR_N][_tpS_dcpR_N_pageP].bin. */
int hc_pagename_sglang_file(const struct hc_kvspec *spec, const struct hc_hash *hash,
			    char name[HC_NAME_BYTES]) HC_MUST_CHECK;
/* SGLang's mooncake backend (and simm, mori): [TAG_MODEL_]HASH_RANK[_COMPONENT]_k; object is "k" or
 * "v". split_i of n_splits: with a page cut by heads for several TP sizes; 0 of 1 otherwise. tag
 * NULL: no prefix. */
int hc_pagename_sglang_mooncake(const struct hc_kvspec *spec, const char *tag,
				const struct hc_hash *hash, uint32_t split_i, uint32_t n_splits,
				const char *object, char name[HC_NAME_BYTES]) HC_MUST_CHECK;

#endif
