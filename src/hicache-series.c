/* SPDX-License-Identifier: Apache-2.0 */
/* See hicache.h: spaces and series. */
#include "hicache-internal.h"

#define HC_SPACE_PARAMS_BYTES_MIN offsetof(struct hicache_space_params, mode)
#define HC_SPACE_SET_ALL          (HICACHE_SET_QUOTA | HICACHE_SET_MAX_AGE | HICACHE_SET_PRIORITY)

_Static_assert(HICACHE_SET_QUOTA == HC_SPACE_SET_QUOTA &&
		       HICACHE_SET_MAX_AGE == HC_SPACE_SET_MAX_AGE &&
		       HICACHE_SET_PRIORITY == HC_SPACE_SET_PRIORITY,
	       "the bits are the registry's");

static int hc_public_space_params(const struct hicache_space_params *given,
				  struct hicache_space_params *params)
{
	int rc = hc_public_params("space params", given, HC_SPACE_PARAMS_BYTES_MIN, params,
				  sizeof(*params));

	if (rc)
		return rc;
	if (params->set & ~HC_SPACE_SET_ALL || params->priority > UINT8_MAX ||
	    params->mode & ~0777u) {
		hc_error(HC_PUBLIC,
			 "space params: set %#x, priority %u (0 to 255), mode %o (at most 0777): "
			 "out of range",
			 params->set, params->priority, params->mode);
		return -EINVAL;
	}
	return 0;
}

static int hc_public_space_make(struct hicache *hc, const char *name, uint32_t mode,
				struct hc_space_info *info_p)
{
	struct hc_owner owner = {.uid = geteuid(), .gid = getegid(), .mode = mode ? mode : 0755};
	struct hc_dir_info dir;
	int rc;

	if (!*name || strchr(name, '/')) {
		hc_error(HC_PUBLIC, "space '%s': a name is one directory name", name);
		return -EINVAL;
	}
	rc = hc_dir_make(hc->registry, HC_DIR_ROOT, name, &owner, &dir);
	/* Another thread may have been faster: its space is as good. */
	if (!rc || rc == -EEXIST) {
		int found = hc_space_find(hc->registry, name, info_p);

		if (!found)
			return 0;
		rc = rc ? rc : found;
	}
	hc_error(HC_PUBLIC, "space '%s' cannot be made: %s", name, strerror(-rc));
	return rc;
}

static int hc_public_space_apply(struct hicache *hc, uint32_t id,
				 const struct hicache_space_params *params)
{
	struct hc_space_info info = {
		.quota_bytes = params->quota_bytes,
		.max_age_s = params->max_age_s,
		.priority = (uint8_t)params->priority,
	};
	int rc;

	if (!params->set)
		return 0;
	rc = hc_space_set(hc->registry, id, &info, params->set);
	if (!rc)
		hc_node_space_changed(hc->node, id);
	return rc;
}

int hicache_space_open(struct hicache *hc, const char *name, uint32_t flags,
		       const struct hicache_space_params *given, struct hicache_space **space_p)
{
	struct hicache_space_params params;
	struct hicache_space *space;
	struct hc_space_info info;
	int rc;

	if (hc_public_foreign(hc))
		return -ESTALE;
	if (flags & ~HICACHE_CREATE) {
		hc_error(HC_PUBLIC, "space '%s': flags %#x: unknown bits", name, flags);
		return -EINVAL;
	}
	rc = hc_public_space_params(given, &params);
	if (rc)
		return rc;
	rc = hc_space_find(hc->registry, name, &info);
	if (rc == -ENOENT && flags & HICACHE_CREATE)
		rc = hc_public_space_make(hc, name, params.mode, &info);
	if (!rc)
		rc = hc_public_space_apply(hc, info.id, &params);
	if (rc)
		return rc;
	space = hc_zalloc(sizeof(*space));
	if (!space)
		return -ENOMEM;
	space->hc = hc;
	space->id = info.id;
	space->dir = info.dir;
	space->owner = info.owner;
	memcpy(space->name, info.name, sizeof(space->name));
	atomic_fetch_add(&hc->n_handles, 1);
	*space_p = space;
	return 0;
}

int hicache_space_close(struct hicache_space *space)
{
	if (!space)
		return 0;
	if (hc_public_foreign(space->hc))
		return -ESTALE;
	atomic_fetch_sub(&space->hc->n_handles, 1);
	free(space);
	return 0;
}

int hicache_space_set(struct hicache_space *space, const struct hicache_space_params *given)
{
	struct hicache_space_params params;
	int rc;

	if (hc_public_foreign(space->hc))
		return -ESTALE;
	rc = hc_public_space_params(given, &params);
	return rc ? rc : hc_public_space_apply(space->hc, space->id, &params);
}

int hicache_space_get(struct hicache_space *space, struct hicache_space_info *info)
{
	struct hicache_space_info own = {0};
	struct hc_space_info found;
	int rc;

	if (hc_public_foreign(space->hc))
		return -ESTALE;
	rc = hc_space_get(space->hc->registry, space->id, &found);
	if (rc)
		return rc;
	own.quota_bytes = found.quota_bytes;
	own.used_bytes = hc_space_used(space->hc->registry, space->id);
	own.max_age_s = found.max_age_s;
	own.priority = found.priority;
	own.mode = found.owner.mode;
	own.uid = found.owner.uid;
	own.gid = found.owner.gid;
	own.n_series = found.n_series;
	return hc_public_fill("space info", info, &own, sizeof(own));
}

/* The directories below the root are spaces of their own: here only the pages in it count. */
static int hc_public_clear_root(struct hicache *hc, uint64_t deadline_ns,
				struct hc_evict_result *result_p)
{
	struct hc_dir_item *items;
	struct hc_key *keys;
	size_t n, n_keys = 0;
	int rc = hc_node_dir_pages(hc->node, HC_DIR_ROOT, &items, &n);

	if (rc)
		return rc;
	keys = malloc((n + 1) * sizeof(*keys));
	for (size_t i = 0; keys && i < n; i++) {
		struct hc_page_info page;

		if (!hc_node_stat_body(hc->node, items[i].number, items[i].sequence, &page))
			keys[n_keys++] = page.key;
	}
	rc = keys ? hc_node_evict(hc->node, keys, n_keys, false, deadline_ns, result_p) : -ENOMEM;
	free(keys);
	free(items);
	return rc;
}

int hicache_space_clear(struct hicache_space *space, uint32_t timeout_ms, uint64_t *n_removed_p,
			uint64_t *n_kept_p)
{
	uint64_t deadline_ns = hc_public_deadline(timeout_ms);
	struct hc_evict_result result;
	int rc;

	if (hc_public_foreign(space->hc))
		return -ESTALE;
	if (space->dir == HC_DIR_ROOT)
		rc = hc_public_clear_root(space->hc, deadline_ns, &result);
	else
		rc = hc_node_evict_dir(space->hc->node, space->dir, false, deadline_ns, &result);
	if (rc)
		return rc;
	if (n_removed_p)
		*n_removed_p = result.n_evicted;
	if (n_kept_p)
		*n_kept_p = result.n_kept;
	return 0;
}

/* --- series --- */

/* Text as the caller gave it, checked: canonical text and what follows from it. */
static int hc_public_kvspec(const char *kvspec, struct hc_kvspec *spec,
			    char text[HC_KVSPEC_TEXT_BYTES])
{
	char error[HC_KVSPEC_ERROR_BYTES];
	int rc = hc_kvspec_parse(kvspec, spec, error);

	if (!rc && spec->layout == HC_LAYOUT_UNDECLARED) {
		snprintf(error, sizeof(error),
			 "layout: undeclared is no layout; leave the kvspec out");
		rc = -EINVAL;
	}
	if (rc) {
		hc_error(HC_PUBLIC, "kvspec '%s': %s", kvspec, error);
		return rc;
	}
	hc_kvspec_format(spec, text);
	return 0;
}

static int hc_public_pattern(const struct hicache_space *space, const char *pattern)
{
	uint32_t n_digits;
	int rc = hc_pagename_pattern_check(pattern, &n_digits);

	if (rc) {
		hc_error(HC_PUBLIC,
			 "pattern '%s': it is a path with {64} (or {16} to {63}) where the digits "
			 "of the "
			 "hash are",
			 pattern);
		return rc;
	}
	if (space->dir == HC_DIR_ROOT && strchr(pattern, '/')) {
		hc_error(HC_PUBLIC,
			 "pattern '%s': in space '.' it has no directory: those are spaces of "
			 "their own",
			 pattern);
		return -EINVAL;
	}
	return 0;
}

/* Layout declared for pages that are there already is a promise that only the caller can make.
 * *intern_p: whether the registry may write. */
static int hc_public_may_declare(struct hicache_space *space, const char *pattern, uint32_t flags,
				 bool *intern_p)
{
	struct hc_registry *registry = space->hc->registry;
	struct hc_series_info *info;
	uint32_t id;
	int rc;

	if (hc_series_open(registry, space->id, pattern, NULL, false, &id))
		return 0;
	if (flags & HICACHE_DECLARE) {
		*intern_p = true;
		return 0;
	}
	info = malloc(sizeof(*info));
	if (!info)
		return -ENOMEM;
	rc = hc_series_get(registry, id, info);
	if (!rc && !info->declared) {
		hc_error(HC_PUBLIC,
			 "series '%s' of space '%s' has pages of unknown layout: HICACHE_DECLARE "
			 "says that this "
			 "kvspec is theirs",
			 pattern, space->name);
		rc = -ENODATA;
	}
	free(info);
	return rc;
}

/* The handle of a series that is there. */
static int hc_public_series_make(struct hicache_space *space, uint32_t id,
				 struct hicache_series **series_p)
{
	struct hc_series_info *info = malloc(sizeof(*info));
	struct hicache_series *series = NULL;
	char error[HC_KVSPEC_ERROR_BYTES];
	struct hc_kvspec spec;
	int rc = info ? hc_series_get(space->hc->registry, id, info) : -ENOMEM;

	if (!rc && info->declared) {
		rc = hc_kvspec_parse(info->kvspec, &spec, error);
		if (rc)
			hc_error(HC_PUBLIC, "series '%s': its kvspec is damaged: %s", info->pattern,
				 error);
	}
	if (!rc) {
		series = hc_zalloc(sizeof(*series) + strlen(info->pattern) + 1);
		if (series)
			series->kvspec = strdup(info->kvspec);
		if (!series || !series->kvspec)
			rc = -ENOMEM;
	}
	if (rc) {
		free(series);
		free(info);
		return rc;
	}
	series->hc = space->hc;
	series->id = id;
	series->space = space->id;
	series->owner = space->owner;
	series->n_digits = info->n_digits;
	series->nested = strchr(info->pattern, '/') != NULL;
	memcpy(series->pattern, info->pattern, strlen(info->pattern) + 1);
	if (info->declared) {
		series->page_bytes = hc_kvspec_page_bytes(&spec);
		series->page_tokens = spec.page_tokens;
		hc_kvspec_fingerprint(&spec, series->fingerprint);
	}
	free(info);
	*series_p = series;
	return 0;
}

static int hc_public_series_open(struct hicache_space *space, const char *kvspec,
				 const char *pattern, uint32_t flags, uint32_t *id_p)
{
	char text[HC_KVSPEC_TEXT_BYTES], made[64], fingerprint[HC_KVSPEC_FINGERPRINT];
	bool intern = flags & HICACHE_CREATE;
	struct hc_kvspec spec;
	int rc = 0;

	if (kvspec) {
		rc = hc_public_kvspec(kvspec, &spec, text);
		if (rc)
			return rc;
	}
	if (!pattern) {
		hc_kvspec_fingerprint(&spec, fingerprint);
		snprintf(made, sizeof(made), "s-%s%c{64}.kv", fingerprint,
			 space->dir == HC_DIR_ROOT ? '-' : '/');
		pattern = made;
	}
	rc = hc_public_pattern(space, pattern);
	if (!rc && kvspec)
		rc = hc_public_may_declare(space, pattern, flags, &intern);
	if (!rc)
		rc = hc_series_open(space->hc->registry, space->id, pattern, kvspec ? text : NULL,
				    intern, id_p);
	if (rc == -EEXIST)
		hc_error(HC_PUBLIC, "series '%s' of space '%s' holds pages of another kvspec",
			 pattern, space->name);
	else if (rc == -ENOSPC)
		hc_error(HC_PUBLIC, "space '%s' has %u series: no more", space->name,
			 HC_SERIES_MAX);
	return rc;
}

int hicache_series_open(struct hicache_space *space, const char *kvspec, const char *pattern,
			uint32_t flags, struct hicache_series **series_p)
{
	uint32_t id;
	int rc;

	if (hc_public_foreign(space->hc))
		return -ESTALE;
	if (!kvspec && !pattern) {
		hc_error(HC_PUBLIC, "series: neither a kvspec nor a pattern is given");
		return -EINVAL;
	}
	if (flags & ~(HICACHE_CREATE | HICACHE_DECLARE)) {
		hc_error(HC_PUBLIC, "series: flags %#x: unknown bits", flags);
		return -EINVAL;
	}
	rc = hc_public_series_open(space, kvspec, pattern, flags, &id);
	if (!rc)
		rc = hc_public_series_make(space, id, series_p);
	if (!rc)
		atomic_fetch_add(&space->hc->n_handles, 1);
	return rc;
}

int hicache_series_close(struct hicache_series *series)
{
	if (!series)
		return 0;
	if (hc_public_foreign(series->hc))
		return -ESTALE;
	atomic_fetch_sub(&series->hc->n_handles, 1);
	free(series->kvspec);
	free(series);
	return 0;
}

int hicache_series_get(struct hicache_series *series, struct hicache_series_info *info)
{
	struct hicache_series_info own = {
		.page_bytes = series->page_bytes,
		.page_tokens = series->page_tokens,
		.hash_digits = series->n_digits,
		.pattern = series->pattern,
		.kvspec = series->kvspec,
		.fingerprint = series->fingerprint,
	};

	return hc_public_fill("series info", info, &own, sizeof(own));
}

uint64_t hicache_series_page_bytes(const struct hicache_series *series)
{
	return series->page_bytes;
}
