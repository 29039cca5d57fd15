/* SPDX-License-Identifier: Apache-2.0 */
/* Names and patterns from outside. The input is read as a path: what parses as a page formats to
 * the same path, and a target is never temporary. It is read as a pattern: what formats, parses to
 * the same pattern and hash. */
#include "fuzz.h"

#include "model/pagename.h"

static void check_path(char *path)
{
	static char target_dir[HC_PATH_BYTES], target_name[HC_NAME_BYTES], back[HC_PATH_BYTES];
	static char last[HC_NAME_BYTES];
	static struct hc_pagename parsed;
	char *slash = strrchr(path, '/');
	const char *dir = slash ? path : "", *name = slash ? slash + 1 : path, *parent;
	uint32_t n_digits;

	/* Paths are relative. */
	if (slash == path)
		return;
	if (slash)
		*slash = 0;
	parent = strrchr(dir, '/');
	parent = parent ? parent + 1 : dir;
	if (hc_pagename_target(dir, name, target_dir, target_name)) {
		const char *target_parent = strrchr(target_dir, '/');

		target_parent = target_parent ? target_parent + 1 : target_dir;
		hc_assert(!hc_pagename_is_temporary(target_name, target_parent));
		hc_assert(hc_pagename_is_temporary(name, parent));
	}
	if (!hc_pagename_parse(dir, name, &parsed)) {
		hc_assert((parsed.kind == HC_NAME_TEMPORARY) ==
			  hc_pagename_is_temporary(name, parent));
		hc_assert(parsed.kind == HC_NAME_TEMPORARY || !parsed.has_target);
		if (parsed.kind == HC_NAME_PAGE) {
			hc_assert(!hc_pagename_format(parsed.pattern, &parsed.hash, back));
			hc_assert(!hc_pagename_format_name(parsed.pattern, &parsed.hash, last));
			hc_assert(!strcmp(last, name));
			if (slash)
				*slash = '/';
			hc_assert(!strcmp(back, path));
			hc_assert(!hc_pagename_pattern_check(parsed.pattern, &n_digits));
			hc_assert(n_digits == parsed.n_digits);
		}
	}
	if (slash)
		*slash = '/';
}

static void check_pattern(const char *pattern)
{
	static char path[HC_PATH_BYTES];
	static struct hc_pagename parsed;
	struct hc_hash hash = {{0xcf, 0x97, 0xad, 0xee, 0xdb, 0x59, 0xe0, 0x5b}};
	uint32_t n_digits = 0;
	char *slash;

	if (!hc_pagename_pattern_check(pattern, &n_digits))
		hc_assert(n_digits >= HC_NAME_DIGITS_MIN && n_digits <= HC_HASH_DIGITS);
	else
		hc_assert(!n_digits);
	if (hc_pagename_format(pattern, &hash, path))
		return;
	slash = strrchr(path, '/');
	if (slash)
		*slash = 0;
	hc_assert(!hc_pagename_parse(slash ? path : "", slash ? slash + 1 : path, &parsed));
	hc_assert(parsed.kind == HC_NAME_PAGE && !strcmp(parsed.pattern, pattern));
	hc_assert(hc_hash_equal(&parsed.hash, &hash));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	check_pattern(text);
	check_path(text);
	free(text);
	return 0;
}
