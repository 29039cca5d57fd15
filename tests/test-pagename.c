/* SPDX-License-Identifier: Apache-2.0 */
/* model/pagename: what a file name means, for every engine's names, and back. Goals: golden tables;
 * parse and format are each other's inverse on any path; no two paths share a (pattern, hash). */
#include "hctest.h"

#include "model/pagehash.h"
#include "model/pagename.h"
#include "util/rng.h"

#define K    "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"
#define H32  "0123456789abcdef0123456789abcdef"
#define UUID "9f1c2d3e4a5b6c7d8e9f0a1b2c3d4e5f"

struct golden {
	const char *dir, *name;
	enum hc_name_kind kind;
	const char *pattern; /* PAGE */
	const char *digits;
};

static const struct golden pages[] = {
	/* SGLang file: MHA, MLA, PP, CP, DCP, components, Mamba on MLA, no model. */
	{"", K "_org-m_1_4.bin", HC_NAME_PAGE, "{64}_org-m_1_4.bin", K},
	{"", K "_org-m.bin", HC_NAME_PAGE, "{64}_org-m.bin", K},
	{"", K "_org-m_1_4_2_0.bin", HC_NAME_PAGE, "{64}_org-m_1_4_2_0.bin", K},
	{"", K "_org-m_cp1_2.bin", HC_NAME_PAGE, "{64}_org-m_cp1_2.bin", K},
	{"", K "_org-m_tp4_dcp0_2_page128.bin", HC_NAME_PAGE, "{64}_org-m_tp4_dcp0_2_page128.bin",
	 K},
	{"", K ".mamba_org-m_2_4_tp4_dcp0_2_page128.bin", HC_NAME_PAGE,
	 "{64}.mamba_org-m_2_4_tp4_dcp0_2_page128.bin", K},
	{"", K ".deepseek_v4_c4_org-m.bin", HC_NAME_PAGE, "{64}.deepseek_v4_c4_org-m.bin", K},
	{"", K ".draft_org-m_0_1.bin", HC_NAME_PAGE, "{64}.draft_org-m_0_1.bin", K},
	{"", K "__0_1.bin", HC_NAME_PAGE, "{64}__0_1.bin", K},
	{"sub/dir", K ".bin", HC_NAME_PAGE, "sub/dir/{64}.bin", K},
	/* A served model path with a git revision in it: the page hash is the longer run. */
	{"", K "_-hub-snapshots-0123456789abcdef0123456789abcdef01234567_0_1.bin", HC_NAME_PAGE,
	 "{64}_-hub-snapshots-0123456789abcdef0123456789abcdef01234567_0_1.bin", K},
	/* SGLang mooncake, simm, mori: both underscores, head-split ranks, side pools, model
	   prefix. */
	{"", K "_3_k", HC_NAME_PAGE, "{64}_3_k", K},
	{"", K "_3_1_v", HC_NAME_PAGE, "{64}_3_1_v", K},
	{"", K "__k", HC_NAME_PAGE, "{64}__k", K},
	{"", K "_7_v", HC_NAME_PAGE, "{64}_7_v", K},
	{"", K "_0_indexer_k", HC_NAME_PAGE, "{64}_0_indexer_k", K},
	{"", K "_0_mamba_conv_2", HC_NAME_PAGE, "{64}_0_mamba_conv_2", K},
	{"", "tag_org-m_" K "_0_k", HC_NAME_PAGE, "tag_org-m_{64}_0_k", K},
	{"", "tp4_dcp2_page128_pp1_cp1_" K "_dcp1_cp0", HC_NAME_PAGE,
	 "tp4_dcp2_page128_pp1_cp1_{64}_dcp1_cp0", K},
	{"", "sglang-hicache:" K, HC_NAME_PAGE, "sglang-hicache:{64}", K},
	/* SGLang nixl: buckets are no digits of the hash. Unless by chance: a series of its own,
	   the same path back. */
	{"ac", K "_m_0_1_k", HC_NAME_PAGE, "ac/{64}_m_0_1_k", K},
	{"ac", K "_m_swa_temporal", HC_NAME_PAGE, "ac/{64}_m_swa_temporal", K},
	{"cf", K "_m_0_1_k", HC_NAME_PAGE, "{2}/{64}_m_0_1_k", K},
	/* SGLang hf3fs, eic, seaweedfs, unified keys. */
	{"", K "-k", HC_NAME_PAGE, "{64}-k", K},
	{"", "org-m_mha_attn_page_first_0_4_@sglang_" K, HC_NAME_PAGE,
	 "org-m_mha_attn_page_first_0_4_@sglang_{64}", K},
	{"scope/0_1", K, HC_NAME_PAGE, "scope/0_1/{64}", K},
	{"", K "_ukv1-0011223344556677_L0-16_H3", HC_NAME_PAGE,
	 "{64}_ukv1-0011223344556677_L0-16_H3", K},
	/* vLLM fs tier and llm-d: the whole tree. */
	{"org_m_0123456789ab_r0/cf9/7a_g0", K ".bin", HC_NAME_PAGE,
	 "org_m_0123456789ab_r0/{3}/{2}_g0/{64}.bin", K},
	{"org_m_0123456789ab_r3/cf9/7a_g12", K ".bin", HC_NAME_PAGE,
	 "org_m_0123456789ab_r3/{3}/{2}_g12/{64}.bin", K},
	{"org_m_0123456789ab_r0/cf9/7b_g0", K ".bin", HC_NAME_PAGE,
	 "org_m_0123456789ab_r0/{3}/7b_g0/{64}.bin", K},
	{"m_r0/012/34_g0", "0123456789abcdef.bin", HC_NAME_PAGE, "m_r0/{3}/{2}_g0/{16}.bin",
	 "0123456789abcdef"},
	/* LMCache: in process, remote fs, multi-process server, nixl, GDS. */
	{"", "org-m@1@0@0123456789abcdef@half.pt", HC_NAME_PAGE, "org-m@1@0@{16}@half.pt",
	 "0123456789abcdef"},
	{"", "org-m@1@0@-3123456789abcdef@half.pt", HC_NAME_PAGE, "org-m@1@0@-{16}@half.pt",
	 "3123456789abcdef"},
	{"", "org-SEP-m@0x00000004@0@" K ".data", HC_NAME_PAGE, "org-SEP-m@0x00000004@0@{64}.data",
	 K},
	{"", "org-SEP-m@0x00000004@" K "@tenant a.data", HC_NAME_PAGE,
	 "org-SEP-m@0x00000004@{64}@tenant{x20}a.data", K},
	{"cf/97", "org--m_00000004_0_" K "@salt.bin", HC_NAME_PAGE,
	 "{2}/{2}/org--m_00000004_0_{64}@salt.bin", K},
	{"cf/97", "org%2Fm%401%400%40" K "%40half.kvcache.safetensors", HC_NAME_PAGE,
	 "{2}/{2}/org%2Fm%401%400%40{64}%40half.kvcache.safetensors", K},
	/* AIBrix, UCM. */
	{"conn/01/23", H32, HC_NAME_PAGE, "conn/{2}/{2}/{32}", H32},
	{"data", H32, HC_NAME_PAGE, "data/{32}", H32},
	/* A directory that repeats the whole hash; one digit is no repetition; digits go on from
	   left to right. */
	{K, K, HC_NAME_PAGE, "{64}/{64}", K},
	{"c/f9", K, HC_NAME_PAGE, "c/f9/{64}", K},
	{"cf/cf", K, HC_NAME_PAGE, "{2}/cf/{64}", K},
	{"cf/x/97ade-y", K, HC_NAME_PAGE, "{2}/x/{5}-y/{64}", K},
	{"cf97b", K, HC_NAME_PAGE, "cf97b/{64}", K},
	/* The longest run, the first at a tie; capitals are no digits; an odd count. */
	{"", "0123456789abcdef-" H32, HC_NAME_PAGE, "0123456789abcdef-{32}", H32},
	{"", "0000000000000001-0000000000000002", HC_NAME_PAGE, "{16}-0000000000000002",
	 "0000000000000001"},
	{"", "ABCDEF0123456789abcdef", HC_NAME_PAGE, "ABCDEF{16}", "0123456789abcdef"},
	{"", "%40" K "%2f" H32 "%", HC_NAME_PAGE, "%40{64}%2f" H32 "%", K},
	{"", "x0123456789abcdef0", HC_NAME_PAGE, "x{17}", "0123456789abcdef0"},
	/* What a pattern must escape. */
	{"a b", "{64}\n" K "\x7f}", HC_NAME_PAGE, "a{x20}b/{x7b}64{x7d}{x0a}{64}{x7f}{x7d}", K},
};

/* What is no page by its hash. */
static const struct golden others[] = {
	{"org_m_0123456789ab_r0", "config.json", HC_NAME_ORDINARY, NULL, NULL},
	{"", "README", HC_NAME_ORDINARY, NULL, NULL},
	{"", "0123456789abcde", HC_NAME_ORDINARY, NULL, NULL},
	{"", "0123456789ABCDEF", HC_NAME_ORDINARY, NULL, NULL},
	{"", "ABCDEF0123456789abc", HC_NAME_ORDINARY, NULL, NULL},
	{"", "dynamo-kvbm-disk-cache-a1b2C3", HC_NAME_ORDINARY, NULL, NULL},
	{"", "obj_0_1a2b.bin", HC_NAME_ORDINARY, NULL, NULL},
	{K, "note", HC_NAME_ORDINARY, NULL, NULL},
	/* LMCache's integer hashes: short, signed. */
	{"", "org-m@1@0@3f2a@half.pt", HC_NAME_OPAQUE, NULL, NULL},
	{"", "org-m@1@0@-5d41402abc4b2a7@half.pt", HC_NAME_OPAQUE, NULL, NULL},
	{"", "org-m@1@0@-5d41402abc4b2a7.data", HC_NAME_OPAQUE, NULL, NULL},
	{"or/g%", "x.kvcache.safetensors", HC_NAME_OPAQUE, NULL, NULL},
	/* More digits than a hash has. */
	{"", K "0", HC_NAME_OPAQUE, NULL, NULL},
	{"", K "0-" H32, HC_NAME_OPAQUE, NULL, NULL},
};

struct temporary {
	const char *dir, *name;
	const char *target_dir, *target_name; /* NULL: not known */
};

static const struct temporary temporaries[] = {
	/* SGLang: with process, thread and UUID; 0.5.23. */
	{"", K "_org-m_0_1.bin.tmp.4711.140123.cafebabe", "", K "_org-m_0_1.bin"},
	{"", "." UUID ".tmp", NULL, NULL},
	/* vLLM, llm-d. */
	{"m_r0/cf9/7a_g0", K ".bin_9223372036854775807.tmp", "m_r0/cf9/7a_g0", K ".bin"},
	{"m_r0/cf9/7a_g0", K ".bin_12ab34cd56ef.tmp", "m_r0/cf9/7a_g0", K ".bin"},
	{"", ".o_direct_probe_3.tmp", NULL, NULL},
	/* LMCache: .tmp for .data; a directory .tmp; nixl; GDS. */
	{"", "org-SEP-m@0x00000004@0@" K ".tmp", "", "org-SEP-m@0x00000004@0@" K ".data"},
	{".tmp", "org-SEP-m@0x00000004@0@" K ".data", "", "org-SEP-m@0x00000004@0@" K ".data"},
	{"lmc/.tmp", "m@0x00000004@0@" K ".data", "lmc", "m@0x00000004@0@" K ".data"},
	{"cf/97", "m_00000004_0_" K ".bin.tmp." UUID, "cf/97", "m_00000004_0_" K ".bin"},
	{"cf/97", "m%40" K ".kvcache.safetensors.tmp1a2b3c4d", "cf/97",
	 "m%40" K ".kvcache.safetensors"},
	/* AIBrix, UCM. */
	{"conn/01/23", H32 ".tmp", "conn/01/23", H32},
	/* rsync. */
	{"x", "." K ".bin.aB3xY9", "x", K ".bin"},
	/* Bare, and twice. */
	{"", ".tmp", NULL, NULL},
	{"", ".tmp.x", NULL, NULL},
	{"", "a.tmp.tmp", NULL, NULL},
	{"", "a.tmp.b.tmpcafe", NULL, NULL},
	{".tmp", ".tmp", NULL, NULL},
};

static void assert_path_back(const struct hc_pagename *parsed, const char *dir, const char *name)
{
	char expected[2 * HC_PATH_BYTES], path[HC_PATH_BYTES], last[HC_NAME_BYTES];

	snprintf(expected, sizeof(expected), "%s%s%s", dir, dir[0] ? "/" : "", name);
	assert_int_equal(hc_pagename_format(parsed->pattern, &parsed->hash, path), 0);
	assert_int_equal(hc_pagename_format_name(parsed->pattern, &parsed->hash, last), 0);
	assert_string_equal(last, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
	assert_string_equal(path, expected);
}

static void test_pages(void **state)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(pages); i++) {
		const struct golden *g = &pages[i];
		char digits[HC_HASH_TEXT];
		struct hc_pagename parsed;
		uint32_t n_digits = 0;

		assert_int_equal(hc_pagename_parse(g->dir, g->name, &parsed), 0);
		assert_int_equal(parsed.kind, HC_NAME_PAGE);
		assert_string_equal(parsed.pattern, g->pattern);
		assert_int_equal(parsed.n_digits, strlen(g->digits));
		hc_hash_format(&parsed.hash, digits);
		assert_memory_equal(digits, g->digits, parsed.n_digits);
		assert_int_equal(strspn(digits + parsed.n_digits, "0"), 64 - parsed.n_digits);
		assert_int_equal(hc_pagename_pattern_check(parsed.pattern, &n_digits), 0);
		assert_int_equal(n_digits, parsed.n_digits);
		assert_path_back(&parsed, g->dir, g->name);
	}
}

static void test_others(void **state)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(others); i++) {
		const struct golden *g = &others[i];
		char path[HC_PATH_BYTES];
		struct hc_pagename parsed;
		struct hc_hash hash;

		assert_int_equal(hc_pagename_parse(g->dir, g->name, &parsed), 0);
		assert_int_equal(parsed.kind, g->kind);
		assert_string_equal(parsed.pattern, HC_PATTERN_OPAQUE);
		snprintf(path, sizeof(path), "%s%s%s", g->dir, g->dir[0] ? "/" : "", g->name);
		hc_sha256(path, strlen(path), &hash);
		assert_true(hc_hash_equal(&hash, &parsed.hash));
		assert_int_equal(hc_pagename_format(parsed.pattern, &parsed.hash, path), -EINVAL);
	}
}

/* Behaviour 7: no form of temporary is a page; where the name tells, its page is known at create.
 */
static void test_temporaries(void **state)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(temporaries); i++) {
		const struct temporary *t = &temporaries[i];
		char dir[HC_PATH_BYTES], name[HC_NAME_BYTES];
		struct hc_pagename parsed, target;

		assert_int_equal(hc_pagename_parse(t->dir, t->name, &parsed), 0);
		assert_int_equal(parsed.kind, HC_NAME_TEMPORARY);
		assert_int_equal(hc_pagename_target(t->dir, t->name, dir, name),
				 t->target_name != NULL);
		assert_int_equal(parsed.has_target, t->target_name != NULL);
		if (!t->target_name)
			continue;
		assert_string_equal(dir, t->target_dir);
		assert_string_equal(name, t->target_name);
		assert_int_equal(hc_pagename_parse(t->target_dir, t->target_name, &target), 0);
		assert_string_equal(parsed.pattern, target.pattern);
		assert_true(hc_hash_equal(&parsed.hash, &target.hash));
		assert_int_equal(parsed.n_digits, target.n_digits);
	}
}

static void test_is_temporary(void **state)
{
	static const char *const yes[] = {"a.tmp",     ".tmp",          "a.tmp.b",
					  "a.tmp.",    "a.tmpdeadbeef", "a.tmp0",
					  ".a.bcdefg", ".x.tmp",        ".a.b.123456"};
	static const char *const no[] = {"a.tmpx",     "tmp",      "a.temp",   ".a.bcdef",
					 ".a.bcdefgh", "a.bcdefg", "..bcdefg", ".a.bcd-fg",
					 "a.tmpDEAD",  "",         ".bcdefg"};
	char dir[HC_PATH_BYTES], name[HC_NAME_BYTES];

	for (size_t i = 0; i < HC_ARRAY_SIZE(yes); i++) {
		assert_true(hc_pagename_is_temporary(yes[i], NULL));
		assert_true(hc_pagename_is_temporary(yes[i], "dir"));
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(no); i++) {
		assert_false(hc_pagename_is_temporary(no[i], NULL));
		assert_false(hc_pagename_is_temporary(no[i], "tmp"));
		assert_true(hc_pagename_is_temporary(no[i], ".tmp"));
	}
	/* Only the parent, not any directory above it. */
	assert_false(hc_pagename_target(".tmp/x", "a", dir, name));
}

static void test_bad_paths(void **state)
{
	static const struct {
		const char *dir, *name;
	} bad[] = {{"", ""},    {"", "."},   {"", ".."},    {"", "a/b"},   {"/", "a"},
		   {"/a", "a"}, {"a/", "a"}, {"a//b", "c"}, {"a/..", "c"}, {"./a", "c"}};
	char name[400], dir[HC_PATH_BYTES + 1];
	struct hc_pagename parsed;

	for (size_t i = 0; i < HC_ARRAY_SIZE(bad); i++)
		assert_int_equal(hc_pagename_parse(bad[i].dir, bad[i].name, &parsed), -EINVAL);
	memset(name, 'x', sizeof(name));
	name[255] = 0;
	assert_int_equal(hc_pagename_parse("", name, &parsed), 0);
	assert_int_equal(hc_pagename_parse(name, "y", &parsed), 0);
	name[255] = 'x';
	name[256] = 0;
	assert_int_equal(hc_pagename_parse("", name, &parsed), -ENAMETOOLONG);
	assert_int_equal(hc_pagename_parse(name, "y", &parsed), -ENAMETOOLONG);
	for (size_t i = 0; i < HC_PATH_BYTES; i++)
		dir[i] = i % 2 ? '/' : 'd';
	dir[HC_PATH_BYTES - 5] = 0; /* ends in d; with "/" and 3 bytes 4,095 */
	assert_int_equal(hc_pagename_parse(dir, "abc", &parsed), 0);
	assert_int_equal(hc_pagename_parse(dir, "abcd", &parsed), -ENAMETOOLONG);
}

/* A path whose pattern would not fit is an opaque page, never a cut-off pattern. */
static void test_long_pattern(void **state)
{
	char dir[HC_PATH_BYTES] = "";
	struct hc_pagename parsed;
	size_t used = 0;

	while (used < 1200) {
		memset(dir + used, ' ', 200);
		used += 200;
		dir[used++] = '/';
	}
	dir[used - 1] = 0;
	assert_int_equal(hc_pagename_parse(dir, K, &parsed), 0);
	assert_int_equal(parsed.kind, HC_NAME_OPAQUE);
	assert_string_equal(parsed.pattern, HC_PATTERN_OPAQUE);
	/* At the limit from below it is a page and comes back whole. */
	dir[800] = 0;
	assert_int_equal(hc_pagename_parse(dir, K, &parsed), 0);
	assert_int_equal(parsed.kind, HC_NAME_PAGE);
	assert_path_back(&parsed, dir, K);
}

/* Patterns that no path has, and pairs that no path has. */
static void test_bad_patterns(void **state)
{
	static const char *const bad[] = {
		"",
		"x",
		"{64",
		"{15}",
		"{65}",
		"{}",
		"{0x40}",
		"{064}",
		"a{64}",
		"{64}f",
		"{64}_{64}",
		"{2}f/{64}",
		"{64}/x",
		"{64}.tmp",
		".tmp/{64}",
		"{x61}{64}",
		"{x7B}{64}",
		"{x00}{64}",
		"{32}-" K,
		"a b{64}",
		"{1}/{64}",
		"{40}/{40}/{64}",
		"x{2}/{64}",
		"{17}/{16}",
		"/{64}",
		"{64}/",
		"../{64}",
		HC_PATTERN_OPAQUE,
		".{16}.abcdef",
		"{1234567890123}",
	};
	char path[HC_PATH_BYTES] = "untouched";
	struct hc_hash hash, tail;
	uint32_t n_digits = 77;

	assert_int_equal(hc_hash_parse(K, &hash), 0);
	for (size_t i = 0; i < HC_ARRAY_SIZE(bad); i++) {
		assert_int_not_equal(hc_pagename_pattern_check(bad[i], &n_digits), 0);
		assert_int_not_equal(hc_pagename_format(bad[i], &hash, path), 0);
	}
	assert_int_equal(n_digits, 77);
	assert_string_equal(path, "untouched");
	/* Digits beyond the pattern's. */
	assert_int_equal(hc_pagename_format("{32}", &hash, path), -EINVAL);
	memset(&tail, 0, sizeof(tail));
	memcpy(tail.bytes, hash.bytes, 16);
	assert_int_equal(hc_pagename_format("{32}", &tail, path), 0);
	/* A literal directory that repeats this very hash belongs to another series; the pattern is
	 * good for others. */
	assert_int_equal(hc_pagename_format("cf/{64}", &hash, path), -EINVAL);
	assert_int_equal(hc_pagename_pattern_check("cf/{64}", &n_digits), 0);
	assert_int_equal(n_digits, 64);
	assert_int_equal(hc_pagename_format("{64}{x2e}", &hash, path), -EINVAL);
}

/* Random paths with a taste for what the grammar looks at. */
static size_t random_text(struct hc_rng *rng, char *text, const char *hash)
{
	static const char *const bits[] = {
		".tmp", "{", "}",  "{64}",  "{x20}", "_",        "-",  ".bin", "a", "0",
		"f",    " ", "\n", ".data", ".",     "\xc3\xa9", "g0", "@",    "%", "\x01"};
	size_t used = 0;
	size_t n = hc_rng_below(rng, 4) + 1;

	for (size_t i = 0; i < n; i++) {
		size_t pick = hc_rng_below(rng, HC_ARRAY_SIZE(bits) + 8);

		if (pick >= HC_ARRAY_SIZE(bits)) {
			size_t from = hc_rng_below(rng, 3) ? 0 : hc_rng_below(rng, 60);
			size_t part_n = hc_rng_below(rng, 3) ? hc_rng_below(rng, 6)
							     : hc_rng_below(rng, 65 - from);

			memcpy(text + used, hash + from, part_n);
			used += part_n;
		} else {
			memcpy(text + used, bits[pick], strlen(bits[pick]));
			used += strlen(bits[pick]);
		}
	}
	text[used] = 0;
	return used;
}

static void test_random_round_trip(void **state)
{
	uint64_t n_pages = 0, n_temporary = 0, n_placed = 0;
	struct hc_rng rng;

	hc_rng_seed(&rng, 30);
	for (int round = 0; round < 200000; round++) {
		char hash[HC_HASH_TEXT], dir[1200] = "", name[400], dir_part[400];
		struct hc_pagename parsed;
		struct hc_hash bytes;
		size_t used = 0;

		for (size_t i = 0; i < sizeof(bytes.bytes); i++)
			bytes.bytes[i] =
				(uint8_t)hc_rng_below(&rng, hc_rng_below(&rng, 2) ? 2 : 256);
		hc_hash_format(&bytes, hash);
		for (size_t n_dirs = hc_rng_below(&rng, 4); n_dirs; n_dirs--) {
			used += (size_t)snprintf(
				dir + used, sizeof(dir) - used, "%s%s", used ? "/" : "",
				random_text(&rng, dir_part, hash) ? dir_part : "x");
		}
		if (hc_rng_below(&rng, 2))
			snprintf(name, sizeof(name), "%s.bin",
				 hash + hc_rng_below(&rng, 2) * hc_rng_below(&rng, 48));
		else
			random_text(&rng, name, hash);
		if (hc_pagename_parse(dir, name, &parsed))
			continue;
		n_temporary += parsed.kind == HC_NAME_TEMPORARY;
		if (parsed.kind != HC_NAME_PAGE)
			continue;
		n_pages++;
		n_placed += strchr(parsed.pattern, '{') < strrchr(parsed.pattern, '/');
		assert_path_back(&parsed, dir, name);
	}
	/* The generator reaches what it is for. */
	assert_true(n_pages > 50000);
	assert_true(n_temporary > 5000);
	assert_true(n_placed > 5000);
}

struct seen {
	struct hc_hash id, path;
};

static int compare_seen(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct seen));
}

/* Paths that could be mistaken for one another: equal (pattern, hash) only for equal paths. */
static void test_no_two_paths(void **state)
{
	static const char *const dirs[] = {
		"",  "aa",  "{2}",   "{x7b}2}", "ab",     "aa/ab",  "aa/aa",  "aaa",
		"a", "aab", "aa_g0", "ab_g0",   "{2}_g0", "aa/{2}", "{2}/aa", "abab/ab"};
	static const char *const before[] = {"",   "x",   "{", "{16}", "-", "aaaaaaaaaaaaaaaa-",
					     "b-", "%aa", "%"};
	static const char *const runs[] = {
		"aaaaaaaaaaaaaaaa", "abababababababab",  "aaaaaaaaaaaaaaaa0", "aabababababababa",
		"aaaaaaaaaaaaaaab", "abababababababab0", "aaaaaaaaaaaaaaaaaa"};
	static const char *const after[] = {"", "x", "}", "-0", ".bin", "-aaaaaaaaaaaaaaaa"};
	static struct seen seen[HC_ARRAY_SIZE(dirs) * HC_ARRAY_SIZE(before) * HC_ARRAY_SIZE(runs) *
				HC_ARRAY_SIZE(after)];
	size_t n_same = 0;

	for (size_t i = 0; i < HC_ARRAY_SIZE(seen); i++) {
		char name[HC_NAME_BYTES], hash[HC_HASH_TEXT];
		char id[HC_PATTERN_BYTES + HC_HASH_TEXT];
		struct hc_pagename parsed;
		size_t rest = i;
		const char *dir = dirs[rest % HC_ARRAY_SIZE(dirs)];

		rest /= HC_ARRAY_SIZE(dirs);
		snprintf(name, sizeof(name), "%s%s%s", before[rest % HC_ARRAY_SIZE(before)],
			 runs[rest / HC_ARRAY_SIZE(before) % HC_ARRAY_SIZE(runs)],
			 after[rest / HC_ARRAY_SIZE(before) / HC_ARRAY_SIZE(runs)]);
		assert_int_equal(hc_pagename_parse(dir, name, &parsed), 0);
		hc_pagename_opaque_hash(dir, name, &seen[i].path);
		seen[i].id = seen[i].path;
		if (parsed.kind != HC_NAME_PAGE)
			continue;
		assert_path_back(&parsed, dir, name);
		hc_hash_format(&parsed.hash, hash);
		snprintf(id, sizeof(id), "%s %s", hash, parsed.pattern);
		hc_sha256(id, strlen(id), &seen[i].id);
	}
	qsort(seen, HC_ARRAY_SIZE(seen), sizeof(*seen), compare_seen);
	for (size_t i = 1; i < HC_ARRAY_SIZE(seen); i++) {
		bool same = hc_hash_equal(&seen[i - 1].path, &seen[i].path);

		assert_int_equal(hc_hash_equal(&seen[i - 1].id, &seen[i].id), same);
		n_same += same;
	}
	assert_true(n_same < HC_ARRAY_SIZE(seen) / 8);
}

static void spec_of(struct hc_kvspec *spec, enum hc_attention attention, const char *model)
{
	hc_kvspec_init(spec);
	spec->attention = attention;
	snprintf(spec->model, sizeof(spec->model), "%s", model);
	spec->page_tokens = 64;
}

/* Behaviour 7: what SGLang's file backend calls the pages of a specification. */
static void test_sglang_file(void **state)
{
	char name[HC_NAME_BYTES];
	struct hc_kvspec spec;
	struct hc_hash hash;

	assert_int_equal(hc_hash_parse(K, &hash), 0);
	spec_of(&spec, HC_ATTENTION_MHA, "org/m");
	spec.tp = (struct hc_rank){1, 4};
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_string_equal(name, K "_org-m_1_4.bin");
	spec.pp = (struct hc_rank){0, 2};
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_string_equal(name, K "_org-m_1_4_2_0.bin");
	spec.pp = (struct hc_rank){0, 1};
	snprintf(spec.component, sizeof(spec.component), "draft");
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_string_equal(name, K ".draft_org-m_1_4.bin");
	spec_of(&spec, HC_ATTENTION_MHA, "");
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_string_equal(name, K "__0_1.bin");

	spec_of(&spec, HC_ATTENTION_MLA, "org/m");
	spec.tp = (struct hc_rank){2, 4};
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_string_equal(name, K "_org-m.bin");
	spec.cp = (struct hc_rank){1, 2};
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_string_equal(name, K "_org-m_cp1_2.bin");
	spec.cp = (struct hc_rank){0, 1};
	spec.dcp = (struct hc_rank){0, 2};
	spec.page_tokens = 128;
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_string_equal(name, K "_org-m_tp4_dcp0_2_page128.bin");
	snprintf(spec.component, sizeof(spec.component), "mamba");
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_string_equal(name, K ".mamba_org-m_2_4_tp4_dcp0_2_page128.bin");

	/* 64 + "_" + model + "_0_1.bin": 255 bytes with a model of 182. */
	spec_of(&spec, HC_ATTENTION_MHA, "");
	memset(spec.model, 'm', 182);
	spec.model[182] = 0;
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), 0);
	assert_int_equal(strlen(name), 255);
	spec.model[182] = 'm';
	spec.model[183] = 0;
	name[0] = 'u';
	assert_int_equal(hc_pagename_sglang_file(&spec, &hash, name), -ENAMETOOLONG);
	assert_int_equal(name[0], 'u');
}

/* Behaviour 8. */
static void test_sglang_mooncake(void **state)
{
	char name[HC_NAME_BYTES];
	struct hc_kvspec spec;
	struct hc_hash hash;

	assert_int_equal(hc_hash_parse(K, &hash), 0);
	spec_of(&spec, HC_ATTENTION_MHA, "org/m");
	spec.tp = (struct hc_rank){3, 4};
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 0, 1, "k", name), 0);
	assert_string_equal(name, K "_3_k");
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, "tag", &hash, 0, 1, "v", name), 0);
	assert_string_equal(name, "tag_org-m_" K "_3_v");
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, "", &hash, 0, 1, "v", name), 0);
	assert_string_equal(name, "org-m_" K "_3_v");
	/* tp_lcm_size 8: rank 3 of 4 owns the virtual ranks 6 and 7. */
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 0, 2, "k", name), 0);
	assert_string_equal(name, K "_6_k");
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 1, 2, "v", name), 0);
	assert_string_equal(name, K "_7_v");
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 2, 2, "v", name), -EINVAL);
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 0, 0, "v", name), -EINVAL);
	spec.pp = (struct hc_rank){1, 2};
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 0, 1, "k", name), 0);
	assert_string_equal(name, K "_3_1_k");
	snprintf(spec.component, sizeof(spec.component), "swa");
	spec.pp = (struct hc_rank){0, 1};
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 0, 1, "k", name), 0);
	assert_string_equal(name, K "_3_swa_k");

	spec_of(&spec, HC_ATTENTION_MLA, "org/m");
	spec.tp = (struct hc_rank){3, 4};
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 0, 1, "k", name), 0);
	assert_string_equal(name, K "__k");
	spec.pp = (struct hc_rank){1, 2};
	assert_int_equal(hc_pagename_sglang_mooncake(&spec, NULL, &hash, 0, 1, "k", name), 0);
	assert_string_equal(name, K "_1_k");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_pages),           cmocka_unit_test(test_others),
	cmocka_unit_test(test_temporaries),     cmocka_unit_test(test_is_temporary),
	cmocka_unit_test(test_bad_paths),       cmocka_unit_test(test_long_pattern),
	cmocka_unit_test(test_bad_patterns),    cmocka_unit_test(test_random_round_trip),
	cmocka_unit_test(test_no_two_paths),    cmocka_unit_test(test_sglang_file),
	cmocka_unit_test(test_sglang_mooncake),
};

HC_TEST_MAIN(tests)
