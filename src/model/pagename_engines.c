/* SPDX-License-Identifier: Apache-2.0 */
/* File names as engines build them, for tools and tests: see the end of pagename.h. */
#include "model/pagename.h"

#include <stdarg.h>

struct name {
	char text[HC_NAME_BYTES];
	size_t used;
	bool failed;
};

HC_PRINTF(2, 3) static void add(struct name *name, const char *format, ...)
{
	size_t room = sizeof(name->text) - name->used;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(name->text + name->used, room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= room)
		name->failed = true;
	else
		name->used += (size_t)n;
}

static void add_hash(struct name *name, const struct hc_hash *hash)
{
	char text[HC_HASH_TEXT];

	hc_hash_format(hash, text);
	add(name, "%s", text);
}

/* The served model name with - for /. */
static void add_model(struct name *name, const char *model)
{
	size_t first = name->used;

	add(name, "%s", model);
	for (size_t i = first; i < name->used; i++) {
		if (name->text[i] == '/')
			name->text[i] = '-';
	}
}

static int finish(const struct name *name, char text[HC_NAME_BYTES])
{
	if (name->failed)
		return -ENAMETOOLONG;
	memcpy(text, name->text, name->used + 1);
	return 0;
}

int hc_pagename_sglang_file(const struct hc_kvspec *spec, const struct hc_hash *hash,
			    char name[HC_NAME_BYTES])
{
	bool mla = spec->attention == HC_ATTENTION_MLA;
	struct name out = {.used = 0};

	add_hash(&out, hash);
	if (spec->component[0])
		add(&out, ".%s", spec->component);
	add(&out, "_");
	add_model(&out, spec->model);
	/* Mamba states differ by rank also where the attention's latents do not. */
	if (!mla || !strcmp(spec->component, "mamba"))
		add(&out, "_%u_%u", spec->tp.rank, spec->tp.size);
	if (spec->pp.size > 1)
		add(&out, "_%u_%u", spec->pp.size, spec->pp.rank);
	if (spec->cp.size > 1)
		add(&out, "_cp%u_%u", spec->cp.rank, spec->cp.size);
	if (mla && spec->dcp.size > 1)
		add(&out, "_tp%u_dcp%u_%u_page%u", spec->tp.size, spec->dcp.rank, spec->dcp.size,
		    spec->page_tokens);
	add(&out, ".bin");
	return finish(&out, name);
}

int hc_pagename_sglang_mooncake(const struct hc_kvspec *spec, const char *tag,
				const struct hc_hash *hash, uint32_t split_i, uint32_t n_splits,
				const char *object, char name[HC_NAME_BYTES])
{
	struct name out = {.used = 0};

	if (!n_splits || split_i >= n_splits)
		return -EINVAL;
	if (tag) {
		add(&out, "%s%s", tag, tag[0] ? "_" : "");
		add_model(&out, spec->model);
		add(&out, "_");
	}
	add_hash(&out, hash);
	add(&out, "_");
	/* MLA has no rank of tensor parallelism; the place for it stays, empty. */
	if (spec->attention != HC_ATTENTION_MLA)
		add(&out, "%u", spec->tp.rank * n_splits + split_i);
	if (spec->pp.size > 1)
		add(&out, "%s%u", spec->attention == HC_ATTENTION_MLA ? "" : "_", spec->pp.rank);
	if (spec->component[0])
		add(&out, "_%s", spec->component);
	add(&out, "_%s", object);
	return finish(&out, name);
}
