/* SPDX-License-Identifier: Apache-2.0 */
/* See pagename.h. Parse decides; format expands a pattern and then asks parse whether the path
 * means what was asked for, so the two cannot drift apart. */
#include "model/pagename.h"

#include <ctype.h>

#include "model/pagehash.h"

static inline bool is_hex(char c)
{
	return hc_hex_digit(c) >= 0;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), end_n = strlen(end);

	return n >= end_n && !strcmp(text + n - end_n, end);
}

static bool all_hex(const char *text)
{
	return !text[hc_hex_run(text)];
}

static bool alphanumeric(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The last ".tmp" of a name, or NULL. */
static const char *find_tmp(const char *name)
{
	const char *found = NULL;

	for (const char *p = name; (p = strstr(p, ".tmp")); p += 4)
		found = p;
	return found;
}

/* rsync's .NAME.XXXXXX */
static bool is_rsync(const char *name)
{
	size_t n = strlen(name);

	if (n < 9 || name[0] != '.' || name[n - 7] != '.')
		return false;
	for (size_t i = n - 6; i < n; i++) {
		if (!alphanumeric(name[i]))
			return false;
	}
	return true;
}

bool hc_pagename_is_temporary(const char *name, const char *parent_name)
{
	const char *tmp;

	if (parent_name && !strcmp(parent_name, ".tmp"))
		return true;
	tmp = find_tmp(name);
	if (tmp && all_hex(tmp + 4))
		return true;
	return strstr(name, ".tmp.") || is_rsync(name);
}

static const char *last_component(const char *dir)
{
	const char *slash = strrchr(dir, '/');

	return slash ? slash + 1 : dir;
}

/* vLLM and llm-d: FINAL.bin_RANDOM.tmp. Cuts the stem back to FINAL.bin. */
static void cut_random(char *stem)
{
	char *bar = strrchr(stem, '_');

	if (!bar || !bar[1] || strlen(bar + 1) > 20 || !all_hex(bar + 1))
		return;
	*bar = 0;
	if (!ends_with(stem, ".bin"))
		*bar = '_';
}

static bool target_of_suffix(const char *name, char target_name[HC_NAME_BYTES])
{
	const char *tmp = find_tmp(name);
	size_t stem_n;

	if (!tmp) {
		/* rsync */
		stem_n = strlen(name) - 8;
		memcpy(target_name, name + 1, stem_n);
		target_name[stem_n] = 0;
		return true;
	}
	stem_n = (size_t)(tmp - name);
	/* SGLang's .UUID.tmp, probes: no name is left. */
	if (!stem_n || (name[0] == '.' && !tmp[4]))
		return false;
	memcpy(target_name, name, stem_n);
	target_name[stem_n] = 0;
	if (tmp[4])
		return true;
	cut_random(target_name);
	/* LMCache's keys have @; .tmp stands in the place of .data. */
	if (strchr(target_name, '@') && !ends_with(target_name, ".data")) {
		if (stem_n + 5 >= HC_NAME_BYTES)
			return false;
		memcpy(target_name + stem_n, ".data", 6);
	}
	return true;
}

bool hc_pagename_target(const char *dir, const char *name, char target_dir[HC_PATH_BYTES],
			char target_name[HC_NAME_BYTES])
{
	const char *parent = last_component(dir);
	bool by_dir = !strcmp(parent, ".tmp");
	size_t name_n = strlen(name), dir_n = strlen(dir);

	if (name_n >= HC_NAME_BYTES || dir_n >= HC_PATH_BYTES ||
	    !hc_pagename_is_temporary(name, parent))
		return false;
	if (!by_dir) {
		if (!target_of_suffix(name, target_name))
			return false;
	} else {
		dir_n = parent == dir ? 0 : (size_t)(parent - dir) - 1;
		memcpy(target_name, name, name_n + 1);
	}
	memcpy(target_dir, dir, dir_n);
	target_dir[dir_n] = 0;
	return target_name[0] && !hc_pagename_is_temporary(target_name, last_component(target_dir));
}

static bool is_percent_escape(const char *p)
{
	return p[0] == '%' && isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2]);
}

/* The longest run of hex digits, the first at a tie. */
static size_t find_run(const char *name, size_t *n_p)
{
	size_t best = 0, best_n = 0;

	for (size_t i = 0; name[i];) {
		size_t n;

		if (is_percent_escape(name + i)) {
			i += 3;
			continue;
		}
		n = hc_hex_run(name + i);
		if (n > best_n) {
			best = i;
			best_n = n;
		}
		i += n ? n : 1;
	}
	*n_p = best_n;
	return best;
}

static bool component_valid(const char *text, size_t n)
{
	return n && !(n == 1 && text[0] == '.') && !(n == 2 && text[0] == '.' && text[1] == '.');
}

static int check_path(const char *dir, const char *name)
{
	size_t dir_n = strnlen(dir, HC_PATH_BYTES), name_n = strnlen(name, HC_NAME_BYTES);

	if (name_n >= HC_NAME_BYTES || dir_n + (dir_n > 0) + name_n >= HC_PATH_BYTES)
		return -ENAMETOOLONG;
	if (strchr(name, '/') || !component_valid(name, name_n))
		return -EINVAL;
	for (const char *p = dir; dir_n;) {
		size_t n = strcspn(p, "/");

		if (n >= HC_NAME_BYTES)
			return -ENAMETOOLONG;
		if (!component_valid(p, n))
			return -EINVAL;
		if (!p[n])
			break;
		p += n + 1;
	}
	return 0;
}

void hc_pagename_opaque_hash(const char *dir, const char *name, struct hc_hash *hash_p)
{
	char path[HC_PATH_BYTES + HC_NAME_BYTES];
	int n = snprintf(path, sizeof(path), "%s%s%s", dir, dir[0] ? "/" : "", name);

	hc_assert(n > 0 && (size_t)n < sizeof(path));
	hc_sha256(path, (size_t)n, hash_p);
}

/* A pattern under construction; failed once it does not fit. */
struct out {
	char *text;
	size_t used, room;
	bool failed;
};

static void put(struct out *out, const char *text, size_t n)
{
	if (out->failed || n >= out->room - out->used) {
		out->failed = true;
		return;
	}
	memcpy(out->text + out->used, text, n);
	out->used += n;
	out->text[out->used] = 0;
}

static bool must_escape(unsigned char c)
{
	return c <= ' ' || c == 0x7f || c == '{' || c == '}';
}

static void put_literal(struct out *out, const char *text, size_t n)
{
	size_t plain = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)text[i];
		char escape[] = "{x00}";

		if (!must_escape(c))
			continue;
		put(out, text + plain, i - plain);
		plain = i + 1;
		hc_hex_encode(&c, 1, escape + 2);
		escape[4] = '}';
		put(out, escape, 5);
	}
	put(out, text + plain, n - plain);
}

/* {N} for N from 2 to 64: by hand, every look-up of a name comes through here. */
static void put_digits(struct out *out, size_t n)
{
	char text[4];
	size_t used = 0;

	text[used++] = '{';
	if (n > 9)
		text[used++] = (char)('0' + n / 10);
	text[used++] = (char)('0' + n % 10);
	text[used++] = '}';
	put(out, text, used);
}

/* digits: the hash's, n_digits of them. */
static void put_dir(struct out *out, const char *dir, const char *digits, size_t n_digits)
{
	size_t at = 0;

	while (*dir) {
		size_t n = strcspn(dir, "/"), run = 0;

		while (run < n && is_hex(dir[run]))
			run++;
		if (run >= 2 && run <= n_digits - at && !memcmp(dir, digits + at, run)) {
			put_digits(out, run);
			at += run;
		} else {
			run = 0;
		}
		put_literal(out, dir + run, n - run);
		put(out, "/", 1);
		dir += n;
		dir += *dir == '/';
	}
}

static void set_opaque(const char *dir, const char *name, enum hc_name_kind kind,
		       struct hc_pagename *parsed)
{
	parsed->kind = kind;
	parsed->n_digits = 0;
	memcpy(parsed->pattern, HC_PATTERN_OPAQUE, sizeof(HC_PATTERN_OPAQUE));
	hc_pagename_opaque_hash(dir, name, &parsed->hash);
}

static bool has_page_suffix(const char *name)
{
	return ends_with(name, ".data") || ends_with(name, ".pt") ||
	       ends_with(name, ".kvcache.safetensors");
}

static void parse_final(const char *dir, const char *name, struct hc_pagename *parsed)
{
	struct out out = {.text = parsed->pattern, .room = sizeof(parsed->pattern)};
	char digits[HC_HASH_TEXT];
	size_t n_digits;
	size_t at = find_run(name, &n_digits);

	if (n_digits < HC_NAME_DIGITS_MIN || n_digits > HC_HASH_DIGITS) {
		set_opaque(dir, name,
			   n_digits < HC_NAME_DIGITS_MIN && !has_page_suffix(name)
				   ? HC_NAME_ORDINARY
				   : HC_NAME_OPAQUE,
			   parsed);
		return;
	}
	put_dir(&out, dir, name + at, n_digits);
	put_literal(&out, name, at);
	put_digits(&out, n_digits);
	put_literal(&out, name + at + n_digits, strlen(name + at + n_digits));
	if (out.failed) {
		set_opaque(dir, name, HC_NAME_OPAQUE, parsed);
		return;
	}
	memset(digits, '0', HC_HASH_DIGITS);
	memcpy(digits, name + at, n_digits);
	hc_assert(!hc_hex_decode(digits, parsed->hash.bytes, HC_HASH_BYTES));
	parsed->kind = HC_NAME_PAGE;
	parsed->n_digits = (uint32_t)n_digits;
}

int hc_pagename_parse(const char *dir, const char *name, struct hc_pagename *parsed_p)
{
	char target_dir[HC_PATH_BYTES], target_name[HC_NAME_BYTES];
	int err = check_path(dir, name);

	if (err)
		return err;
	parsed_p->has_target = false;
	if (!hc_pagename_is_temporary(name, last_component(dir))) {
		parse_final(dir, name, parsed_p);
		return 0;
	}
	if (hc_pagename_target(dir, name, target_dir, target_name)) {
		parse_final(target_dir, target_name, parsed_p);
		parsed_p->has_target = parsed_p->kind != HC_NAME_ORDINARY;
	}
	parsed_p->kind = HC_NAME_TEMPORARY;
	if (!parsed_p->has_target) {
		parsed_p->n_digits = 0;
		memset(&parsed_p->hash, 0, sizeof(parsed_p->hash));
		parsed_p->pattern[0] = 0;
	}
	return 0;
}

/* Reads a "{N}" or "{xHH}" at p. Gives the number of digits, or 0 and the byte. NULL: neither. */
static const char *read_brace(const char *p, uint32_t *n_digits_p, char *byte_p)
{
	uint32_t n = 0;
	uint8_t byte;

	if (p[1] == 'x') {
		if (hc_hex_decode(p + 2, &byte, 1) || p[4] != '}' || !byte)
			return NULL;
		*byte_p = (char)byte;
		*n_digits_p = 0;
		return p + 5;
	}
	for (p++; *p >= '0' && *p <= '9' && n < 100; p++)
		n = n * 10 + (uint32_t)(*p - '0');
	if (*p != '}' || n < 2 || n > HC_HASH_DIGITS)
		return NULL;
	*n_digits_p = n;
	return p + 1;
}

static int expand(const char *pattern, const char digits[HC_HASH_TEXT], struct out *out)
{
	const char *name = strrchr(pattern, '/');
	uint32_t at = 0;

	for (const char *p = pattern; *p;) {
		uint32_t n;
		char byte;

		if (*p != '{') {
			const char *brace = strchrnul(p, '{');

			put(out, p, (size_t)(brace - p));
			p = brace;
			continue;
		}
		/* Digits of directories go on from left to right, the name has them all. */
		if (name && p > name)
			at = 0;
		p = read_brace(p, &n, &byte);
		if (!p || at + n > HC_HASH_DIGITS)
			return -EINVAL;
		if (n)
			put(out, digits + at, n);
		else
			put(out, &byte, 1);
		at += n;
	}
	return out->failed ? -ENAMETOOLONG : 0;
}

int hc_pagename_format(const char *pattern, const struct hc_hash *hash, char path[HC_PATH_BYTES])
{
	char room[HC_PATH_BYTES], digits[HC_HASH_TEXT];
	struct out out = {.text = room, .room = sizeof(room)};
	struct hc_pagename parsed;
	char *slash;
	int err;

	hc_hash_format(hash, digits);
	room[0] = 0;
	err = expand(pattern, digits, &out);
	if (err)
		return err;
	slash = strrchr(room, '/');
	if (slash)
		*slash = 0;
	err = hc_pagename_parse(slash ? room : "", slash ? slash + 1 : room, &parsed);
	if (err)
		return err;
	if (parsed.kind != HC_NAME_PAGE || strcmp(parsed.pattern, pattern) ||
	    !hc_hash_equal(&parsed.hash, hash))
		return -EINVAL;
	if (slash)
		*slash = '/';
	memcpy(path, room, out.used + 1);
	return 0;
}

int hc_pagename_format_name(const char *pattern, const struct hc_hash *hash,
			    char name[HC_NAME_BYTES])
{
	const char *slash = strrchr(pattern, '/');
	struct out out = {.text = name, .room = HC_NAME_BYTES};
	char digits[HC_HASH_TEXT];

	hc_hash_format(hash, digits);
	name[0] = 0;
	return expand(slash ? slash + 1 : pattern, digits, &out);
}

/* The number of digits in the name's placeholder; 0 if there is none. */
static uint32_t name_digits(const char *pattern)
{
	const char *slash = strrchr(pattern, '/');
	uint32_t n_digits = 0;

	for (const char *p = slash ? slash + 1 : pattern; *p;) {
		uint32_t n = 0;
		char byte;

		if (*p != '{') {
			p++;
			continue;
		}
		p = read_brace(p, &n, &byte);
		if (!p)
			return 0;
		if (n)
			n_digits = n;
	}
	return n_digits;
}

int hc_pagename_pattern_check(const char *pattern, uint32_t *n_digits_p)
{
	size_t pattern_n = strnlen(pattern, HC_PATTERN_BYTES);
	char path[HC_PATH_BYTES];
	uint32_t n_digits;

	if (pattern_n >= HC_PATTERN_BYTES)
		return -ENAMETOOLONG;
	n_digits = name_digits(pattern);
	if (n_digits < HC_NAME_DIGITS_MIN)
		return -EINVAL;
	/* Good if it stands for some path. Any one hash may by chance be repeated by a literal
	 * directory. */
	for (uint8_t i = 0; i < 16; i++) {
		char digits[HC_HASH_TEXT];
		struct hc_hash hash;

		hc_sha256(&i, 1, &hash);
		hc_hash_format(&hash, digits);
		memset(digits + n_digits, '0', HC_HASH_DIGITS - n_digits);
		hc_assert(!hc_hex_decode(digits, hash.bytes, HC_HASH_BYTES));
		if (!hc_pagename_format(pattern, &hash, path)) {
			*n_digits_p = n_digits;
			return 0;
		}
	}
	return -EINVAL;
}
