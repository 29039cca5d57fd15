/* SPDX-License-Identifier: Apache-2.0 */
/* From (directory, name) to a page's key and back: the grammar is model/pagename.h's, the series
 * are ours. */
#include "node/registry_internal.h"

/* The directory's path and space. */
static int dir_path(struct hc_registry *registry, uint32_t dir_id, char path[HC_PATH_BYTES],
		    uint32_t *space_p)
{
	struct hc_dir *dir;
	int err = -ENOENT;

	hc_registry_read(registry);
	dir = hc_dir_at(registry, dir_id);
	if (dir)
		err = hc_dir_path_of(dir, path);
	if (!err)
		*space_p = dir->space;
	hc_registry_done(registry);
	return err;
}

static bool is_full(struct hc_registry *registry, uint32_t space_id)
{
	struct hc_space *space = hc_space_at(registry, space_id);
	bool full;

	hc_registry_read(registry);
	full = space && space->n_series >= HC_SERIES_MAX;
	hc_registry_done(registry);
	return full;
}

/* 0 (the series is *id_p), -ENOENT (not known yet), or why not. */
static int find_opaque(struct hc_registry *registry, uint32_t space, bool intern, uint32_t *id_p)
{
	return hc_series_open(registry, space, HC_PATTERN_OPAQUE, NULL, intern, id_p);
}

/* The series of a parsed page; a space that is full of series has the opaque one for the rest.
 * *opaque_p: the key must be made of the path. */
static int find_series(struct hc_registry *registry, uint32_t space, const char *pattern,
		       bool intern, uint32_t *id_p, bool *opaque_p)
{
	int err = hc_series_open(registry, space, pattern, NULL, intern, id_p);

	*opaque_p = false;
	if ((err != -ENOENT && err != -ENOSPC) || !is_full(registry, space))
		return err;
	*opaque_p = true;
	return find_opaque(registry, space, intern, id_p);
}

/* What a temporary is going to be, or the name itself. Parsed is of the target where there is one.
 */
static int fill_page(struct hc_registry *registry, uint32_t space, const char *dir,
		     const char *name, const struct hc_pagename *parsed, bool intern,
		     struct hc_name *out)
{
	bool opaque;
	int err = find_series(registry, space, parsed->pattern, intern, &out->key.series, &opaque);

	out->known = !err;
	out->key.hash = parsed->hash;
	if (opaque && out->kind == HC_NAME_PAGE) {
		out->kind = HC_NAME_OPAQUE;
		hc_pagename_opaque_hash(dir, name, &out->key.hash);
	} else if (opaque) {
		/* The rename will decide. */
		out->has_target = false;
		out->known = false;
	}
	return err == -ENOENT ? 0 : err;
}

int hc_name_resolve(struct hc_registry *registry, uint32_t dir, const char *name, bool intern,
		    struct hc_name *name_p)
{
	struct hc_pagename parsed;
	char path[HC_PATH_BYTES];
	struct hc_name out;
	uint32_t space = 0;
	int err = dir_path(registry, dir, path, &space);

	if (!err)
		err = hc_pagename_parse(path, name, &parsed);
	if (err)
		return err;
	out.kind = parsed.kind;
	out.has_target = parsed.kind == HC_NAME_TEMPORARY && parsed.has_target;
	out.known = false;
	out.key.series = 0;
	memset(&out.key.hash, 0, sizeof(out.key.hash));
	if (parsed.kind == HC_NAME_PAGE || out.has_target) {
		err = fill_page(registry, space, path, name, &parsed, intern, &out);
	} else if (parsed.kind != HC_NAME_TEMPORARY) {
		/* Of an ordinary name: the page that it is once it is too large for a file. */
		err = find_opaque(registry, space, intern && parsed.kind == HC_NAME_OPAQUE,
				  &out.key.series);
		out.known = !err;
		out.key.hash = parsed.hash;
		err = err == -ENOENT ? 0 : err;
	}
	if (!err)
		*name_p = out;
	return err;
}

int hc_name_resolve_page(struct hc_registry *registry, uint32_t dir, const char *name, bool intern,
			 struct hc_key *key_p, bool *opaque_p)
{
	struct hc_pagename parsed;
	char path[HC_PATH_BYTES];
	struct hc_key key;
	uint32_t space = 0;
	bool opaque = true;
	int err = dir_path(registry, dir, path, &space);

	if (!err)
		err = hc_pagename_parse(path, name, &parsed);
	if (!err && parsed.kind == HC_NAME_TEMPORARY)
		err = -EINVAL;
	if (err)
		return err;
	key.hash = parsed.hash;
	if (parsed.kind == HC_NAME_PAGE)
		err = find_series(registry, space, parsed.pattern, intern, &key.series, &opaque);
	else
		err = find_opaque(registry, space, intern, &key.series);
	if (err)
		return err;
	if (parsed.kind == HC_NAME_PAGE && opaque)
		hc_pagename_opaque_hash(path, name, &key.hash);
	*key_p = key;
	*opaque_p = opaque;
	return 0;
}

static int page_path(struct hc_registry *registry, const struct hc_key *key,
		     char path[HC_PATH_BYTES], uint32_t *space_p)
{
	const struct hc_series *series = hc_idmap_get(&registry->series, key->series);

	*space_p = hc_series_space(registry, key->series);
	if (!series || !*space_p)
		return -ENOENT;
	if (series->opaque)
		return -EINVAL;
	/* Patterns never change. */
	return hc_pagename_format(series->pattern, &key->hash, path);
}

int hc_name_of_page(struct hc_registry *registry, const struct hc_key *key,
		    char name[HC_NAME_BYTES])
{
	char path[HC_PATH_BYTES];
	const char *slash;
	uint32_t space;
	int err = page_path(registry, key, path, &space);

	if (err)
		return err;
	slash = strrchr(path, '/');
	snprintf(name, HC_NAME_BYTES, "%s", slash ? slash + 1 : path);
	return 0;
}

int hc_name_of_listed(struct hc_registry *registry, const struct hc_key *key,
		      char name[HC_NAME_BYTES])
{
	const struct hc_series *series = hc_idmap_get(&registry->series, key->series);

	if (!series || !hc_series_space(registry, key->series))
		return -ENOENT;
	if (series->opaque)
		return -EINVAL;
	return hc_pagename_format_name(series->pattern, &key->hash, name);
}

int hc_name_dir_of_page(struct hc_registry *registry, const struct hc_key *key, uint32_t *dir_p)
{
	char path[HC_PATH_BYTES];
	uint32_t space;
	char *slash;
	int err = page_path(registry, key, path, &space);

	if (err)
		return err;
	slash = strrchr(path, '/');
	if (slash)
		*slash = 0;
	else
		path[0] = 0;
	return hc_dir_make_path(registry, space, path, dir_p);
}
