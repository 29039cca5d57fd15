/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces and series: see registry.h. A space lives as long as its top-level directory; its number
 * and its series' numbers are of `names` and are never given again. Objects are freed at close
 * only. */
#include "index/rows.h"
#include "node/registry_internal.h"
#include "util/log.h"

void hc_space_free(struct hc_space *space)
{
	struct hc_series *series = space ? space->series : NULL;

	while (series) {
		struct hc_series *next = series->next;

		free(series->kvspec);
		free(series);
		series = next;
	}
	if (space)
		free(space->name);
	free(space);
}

/* Room in the map is made here, so that hc_space_add cannot fail. */
int hc_space_new(struct hc_registry *registry, uint32_t id, const char *name,
		 struct hc_space **space_p)
{
	struct hc_space *space = hc_zalloc(sizeof(*space));
	int err = space ? hc_idmap_prepare(&registry->spaces, id) : -ENOMEM;

	if (!err) {
		space->id = id;
		space->name = strdup(name);
		err = space->name ? 0 : -ENOMEM;
	}
	if (err) {
		free(space);
		return err;
	}
	*space_p = space;
	return 0;
}

void hc_space_add(struct hc_registry *registry, struct hc_space *space)
{
	hc_idmap_set(&registry->spaces, space->id, space);
	if (space->id >= registry->next_space)
		registry->next_space = space->id + 1;
}

int hc_space_put(struct hc_registry *registry, const struct hc_space *space,
		 const struct hc_owner *owner, bool now)
{
	struct hc_row_space row = {
		.quota_bytes = atomic_load(&space->quota_bytes),
		.max_age_s = space->max_age_s,
		.uid = owner->uid,
		.gid = owner->gid,
		.mode = (uint16_t)owner->mode,
		.priority = space->priority,
	};
	uint8_t out[HC_ROW_BYTES_MAX];
	uint64_t ticket;

	if (!registry->catalog)
		return 0;
	return hc_catalog_put(registry->catalog, HC_TABLE_SPACES, space->id, out,
			      hc_row_space_pack(&row, out), now, &ticket);
}

static void fill_space(struct hc_registry *registry, struct hc_space *space,
		       struct hc_space_info *info)
{
	const struct hc_dir *dir = hc_dir_at(registry, space->dir);

	*info = (struct hc_space_info){
		.id = space->id,
		.dir = space->dir,
		.owner = {.uid = dir->uid, .gid = dir->gid, .mode = dir->mode},
		.quota_bytes = atomic_load_explicit(&space->quota_bytes, memory_order_relaxed),
		.max_age_s = space->max_age_s,
		.priority = space->priority,
		.n_series = space->n_series + (space->opaque != NULL),
	};
	snprintf(info->name, sizeof(info->name), "%s", space->name);
}

/* Live, and with its directory. */
static bool is_live(struct hc_space *space)
{
	return space && space->dir && !atomic_load_explicit(&space->gone, memory_order_acquire);
}

int hc_space_find(struct hc_registry *registry, const char *name, struct hc_space_info *info_p)
{
	struct hc_space *space = NULL;
	struct hc_dir *dir;

	hc_registry_read(registry);
	if (!strcmp(name, ".")) {
		space = hc_space_at(registry, HC_SPACE_ROOT);
	} else if (strlen(name) < HC_NAME_BYTES) {
		dir = hc_dir_child(registry, registry->root, name);
		if (dir)
			space = hc_space_at(registry, dir->space);
	}
	if (is_live(space))
		fill_space(registry, space, info_p);
	else
		space = NULL;
	hc_registry_done(registry);
	return space ? 0 : -ENOENT;
}

int hc_space_get(struct hc_registry *registry, uint32_t id, struct hc_space_info *info_p)
{
	struct hc_space *space;

	hc_registry_read(registry);
	space = hc_space_at(registry, id);
	if (is_live(space))
		fill_space(registry, space, info_p);
	else
		space = NULL;
	hc_registry_done(registry);
	return space ? 0 : -ENOENT;
}

static int set_under_change(struct hc_registry *registry, struct hc_space *space,
			    const struct hc_space_info *info, uint32_t what)
{
	const struct hc_dir *dir = hc_dir_at(registry, space->dir);
	struct hc_owner owner = {.uid = dir->uid, .gid = dir->gid, .mode = dir->mode};
	struct hc_space changed = {
		.id = space->id,
		.quota_bytes = what & HC_SPACE_SET_QUOTA ? info->quota_bytes
							 : atomic_load(&space->quota_bytes),
		.max_age_s = what & HC_SPACE_SET_MAX_AGE ? info->max_age_s : space->max_age_s,
		.priority = what & HC_SPACE_SET_PRIORITY ? info->priority : space->priority,
	};
	int err;

	/* The options of a start are set at each start. */
	if (atomic_load(&changed.quota_bytes) == atomic_load(&space->quota_bytes) &&
	    changed.max_age_s == space->max_age_s && changed.priority == space->priority)
		return 0;
	err = hc_names_put_space(registry, &changed, space->name, &owner);
	if (!err)
		err = hc_space_put(registry, &changed, &owner, true);
	if (err)
		return err;
	hc_registry_write(registry);
	atomic_store(&space->quota_bytes, atomic_load(&changed.quota_bytes));
	space->max_age_s = changed.max_age_s;
	space->priority = changed.priority;
	hc_registry_done(registry);
	return 0;
}

int hc_space_set(struct hc_registry *registry, uint32_t id, const struct hc_space_info *info,
		 uint32_t what)
{
	struct hc_space *space;
	int err = -ENOENT;

	pthread_mutex_lock(&registry->change);
	space = hc_space_at(registry, id);
	if (is_live(space))
		err = set_under_change(registry, space, info, what);
	pthread_mutex_unlock(&registry->change);
	return err;
}

void hc_space_preset_apply(struct hc_registry *registry, struct hc_space *space)
{
	for (size_t i = 0; i < registry->n_presets; i++) {
		const struct hc_space_preset *preset = &registry->presets[i];

		if (strcmp(preset->name, space->name))
			continue;
		if (preset->what & HC_SPACE_SET_QUOTA)
			atomic_store(&space->quota_bytes, preset->quota_bytes);
		if (preset->what & HC_SPACE_SET_MAX_AGE)
			space->max_age_s = preset->max_age_s;
		if (preset->what & HC_SPACE_SET_PRIORITY)
			space->priority = preset->priority;
	}
}

int hc_space_presets(struct hc_registry *registry, const struct hc_space_preset *presets, size_t n)
{
	struct hc_space_preset *copy = malloc((n + 1) * sizeof(*copy));
	int err = 0;

	if (!copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, presets, n * sizeof(*copy));
	pthread_mutex_lock(&registry->change);
	free(registry->presets);
	registry->presets = copy;
	registry->n_presets = n;
	pthread_mutex_unlock(&registry->change);
	for (size_t i = 0; i < n && !err; i++) {
		struct hc_space_info info;

		if (hc_space_find(registry, presets[i].name, &info))
			continue;
		info.quota_bytes = presets[i].quota_bytes;
		info.max_age_s = presets[i].max_age_s;
		info.priority = presets[i].priority;
		err = hc_space_set(registry, info.id, &info, presets[i].what);
	}
	/* One that went between the two is no error: it has nothing to limit. */
	return err == -ENOENT ? 0 : err;
}

int hc_space_list(struct hc_registry *registry, struct hc_space_info **list_p, size_t *n_p)
{
	struct hc_space_info *list;
	size_t n = 0;

	hc_registry_read(registry);
	/* One more than the top-level directories: the root's own. */
	list = calloc((size_t)registry->root->n_dirs + 1, sizeof(*list));
	if (list) {
		fill_space(registry, hc_space_at(registry, HC_SPACE_ROOT), &list[n++]);
		for (struct hc_dir *dir = registry->root->child; dir; dir = dir->next)
			fill_space(registry, hc_space_at(registry, dir->space), &list[n++]);
	}
	hc_registry_done(registry);
	if (!list)
		return -ENOMEM;
	*list_p = list;
	*n_p = n;
	return 0;
}

int hc_space_use(struct hc_registry *registry, uint32_t id, int64_t bytes, bool force)
{
	struct hc_space *space = hc_space_at(registry, id);
	uint64_t used, after, quota;

	if (!space)
		return -ENOENT;
	quota = atomic_load_explicit(&space->quota_bytes, memory_order_relaxed);
	used = atomic_load_explicit(&space->used_bytes, memory_order_relaxed);
	do {
		/* More given back than taken: a mistake of ours, but no reason to end the mount. */
		if (bytes < 0 && used < (uint64_t)-bytes) {
			hc_error(HC_REGISTRY_COMPONENT, "space %u gives back more than it has", id);
			after = 0;
		} else {
			after = used + (uint64_t)bytes;
		}
		if (bytes > 0 && !force && quota && after > quota)
			return -EDQUOT;
	} while (!atomic_compare_exchange_weak(&space->used_bytes, &used, after));
	return 0;
}

uint64_t hc_space_used(struct hc_registry *registry, uint32_t id)
{
	struct hc_space *space = hc_space_at(registry, id);

	return space ? atomic_load_explicit(&space->used_bytes, memory_order_relaxed) : 0;
}

void hc_space_count(struct hc_registry *registry, uint32_t series, enum hc_space_counter counter,
		    uint64_t n)
{
	struct hc_space *space = hc_space_at(registry, hc_series_space(registry, series));

	if (space)
		atomic_fetch_add_explicit(&space->counters[counter], n, memory_order_relaxed);
}

void hc_space_counters(struct hc_registry *registry, uint32_t id,
		       uint64_t values[HC_SPACE_N_COUNTERS])
{
	struct hc_space *space = hc_space_at(registry, id);

	for (size_t i = 0; i < HC_SPACE_N_COUNTERS; i++)
		values[i] =
			space ? atomic_load_explicit(&space->counters[i], memory_order_relaxed) : 0;
}

/* --- series --- */

int hc_series_new(struct hc_registry *registry, struct hc_space *space, uint32_t id,
		  const char *pattern, const char *kvspec, struct hc_series **series_p)
{
	bool opaque = !strcmp(pattern, HC_PATTERN_OPAQUE);
	size_t n = strlen(pattern);
	struct hc_series *series;
	uint32_t n_digits = 0;
	int err;

	if (!opaque) {
		err = hc_pagename_pattern_check(pattern, &n_digits);
		if (err)
			return err;
	}
	err = hc_idmap_prepare(&registry->series, id);
	if (err)
		return err;
	series = hc_zalloc(sizeof(*series) + n + 1);
	if (series && kvspec)
		series->kvspec = strdup(kvspec);
	if (!series || (kvspec && !series->kvspec)) {
		free(series);
		return -ENOMEM;
	}
	series->link.id = id;
	series->space = space;
	series->opaque = opaque;
	series->n_digits = n_digits;
	memcpy(series->pattern, pattern, n + 1);
	*series_p = series;
	return 0;
}

void hc_series_add_locked(struct hc_registry *registry, struct hc_series *series)
{
	struct hc_space *space = series->space;

	hc_map_add(&registry->series_names, &series->link,
		   hc_registry_hash(registry, space->id, series->pattern, strlen(series->pattern)));
	if (series->opaque)
		space->opaque = series;
	else
		space->n_series++;
	if (space->last_series)
		space->last_series->next = series;
	else
		space->series = series;
	space->last_series = series;
	hc_idmap_set(&registry->series, series->link.id, series);
	if (series->link.id >= registry->next_series)
		registry->next_series = series->link.id + 1;
}

struct hc_series *hc_series_find(struct hc_registry *registry, const struct hc_space *space,
				 const char *pattern)
{
	uint32_t hash = hc_registry_hash(registry, space->id, pattern, strlen(pattern));
	struct hc_link *link = hc_map_first(&registry->series_names, hash);

	for (; link; link = hc_map_match(link->next, hash)) {
		struct hc_series *series = (struct hc_series *)link;

		if (series->space == space && !strcmp(series->pattern, pattern))
			return series;
	}
	return NULL;
}

/* What a known series answers to an open with a specification (NULL: any will do). -ENODATA:
 * undeclared. */
static int compare_kvspec(const struct hc_series *series, const char *kvspec)
{
	if (!kvspec || (series->kvspec && !strcmp(series->kvspec, kvspec)))
		return 0;
	return series->kvspec ? -EEXIST : -ENODATA;
}

static int declare(struct hc_registry *registry, struct hc_series *series, const char *kvspec)
{
	char *copy = strdup(kvspec);
	int err;

	if (!copy)
		return -ENOMEM;
	err = hc_names_put_series(registry, series->link.id, series->space->id, series->pattern,
				  kvspec);
	if (err) {
		free(copy);
		return err;
	}
	hc_registry_write(registry);
	series->kvspec = copy;
	hc_registry_done(registry);
	return 0;
}

static int make_series(struct hc_registry *registry, struct hc_space *space, const char *pattern,
		       const char *kvspec, uint32_t *id_p)
{
	uint32_t id = registry->next_series;
	struct hc_series *series;
	int err;

	if (space->n_series >= HC_SERIES_MAX && strcmp(pattern, HC_PATTERN_OPAQUE)) {
		hc_debug(HC_REGISTRY_COMPONENT, "space %s has %u series: no more", space->name,
			 HC_SERIES_MAX);
		return -ENOSPC;
	}
	err = hc_series_new(registry, space, id, pattern, kvspec, &series);
	if (err)
		return err;
	err = hc_names_put_series(registry, id, space->id, pattern, kvspec);
	if (err) {
		free(series->kvspec);
		free(series);
		return err;
	}
	hc_registry_write(registry);
	hc_series_add_locked(registry, series);
	hc_registry_done(registry);
	*id_p = id;
	return 0;
}

static int open_under_change(struct hc_registry *registry, uint32_t space_id, const char *pattern,
			     const char *kvspec, uint32_t *id_p)
{
	struct hc_space *space = hc_space_at(registry, space_id);
	struct hc_series *series;
	int err;

	if (!is_live(space))
		return -ENOENT;
	series = hc_series_find(registry, space, pattern);
	if (!series)
		return make_series(registry, space, pattern, kvspec, id_p);
	err = compare_kvspec(series, kvspec);
	if (err == -ENODATA)
		err = declare(registry, series, kvspec);
	if (!err)
		*id_p = series->link.id;
	return err;
}

int hc_series_open(struct hc_registry *registry, uint32_t space_id, const char *pattern,
		   const char *kvspec, bool intern, uint32_t *id_p)
{
	struct hc_space *space = hc_space_at(registry, space_id);
	struct hc_series *series = NULL;
	int err = -ENOENT;

	if (strnlen(pattern, HC_PATTERN_BYTES) >= HC_PATTERN_BYTES)
		return -ENAMETOOLONG;
	if (kvspec && (strlen(kvspec) >= HC_KVSPEC_TEXT_BYTES || strchr(kvspec, '\n')))
		return -EINVAL;
	hc_registry_read(registry);
	if (is_live(space))
		series = hc_series_find(registry, space, pattern);
	if (series) {
		err = compare_kvspec(series, kvspec);
		if (!err)
			*id_p = series->link.id;
	}
	hc_registry_done(registry);
	/* Nobody has said what the pages of an undeclared series hold: not there for who needs to
	 * know. */
	if (!intern && err == -ENODATA)
		return -ENOENT;
	if (!intern || (err != -ENOENT && err != -ENODATA))
		return err;
	pthread_mutex_lock(&registry->change);
	err = open_under_change(registry, space_id, pattern, kvspec, id_p);
	pthread_mutex_unlock(&registry->change);
	return err;
}

int hc_series_get(struct hc_registry *registry, uint32_t id, struct hc_series_info *info_p)
{
	struct hc_series *series;

	hc_registry_read(registry);
	series = hc_idmap_get(&registry->series, id);
	if (series && atomic_load(&series->space->gone))
		series = NULL;
	if (series) {
		info_p->id = id;
		info_p->space = series->space->id;
		info_p->opaque = series->opaque;
		info_p->declared = series->kvspec != NULL;
		info_p->n_digits = series->n_digits;
		memcpy(info_p->pattern, series->pattern, strlen(series->pattern) + 1);
		snprintf(info_p->kvspec, sizeof(info_p->kvspec), "%s",
			 series->kvspec ? series->kvspec : "");
	}
	hc_registry_done(registry);
	return series ? 0 : -ENOENT;
}

uint32_t hc_series_space(struct hc_registry *registry, uint32_t id)
{
	struct hc_series *series = hc_idmap_get(&registry->series, id);

	if (!series || atomic_load_explicit(&series->space->gone, memory_order_relaxed))
		return 0;
	return series->space->id;
}

uint64_t hc_series_max_age(struct hc_registry *registry, uint32_t id)
{
	struct hc_series *series = hc_idmap_get(&registry->series, id);

	return series ? atomic_load_explicit(&series->space->max_age_s, memory_order_relaxed) : 0;
}

int hc_series_list(struct hc_registry *registry, uint32_t space_id, uint32_t **ids_p, size_t *n_p)
{
	struct hc_space *space = hc_space_at(registry, space_id);
	uint32_t *ids = NULL;
	size_t n = 0;
	bool live;

	hc_registry_read(registry);
	live = is_live(space);
	if (live)
		ids = calloc((size_t)space->n_series + 1, sizeof(*ids));
	for (struct hc_series *series = ids ? space->series : NULL; series; series = series->next)
		ids[n++] = series->link.id;
	hc_registry_done(registry);
	if (!ids)
		return live ? -ENOMEM : -ENOENT;
	*ids_p = ids;
	*n_p = n;
	return 0;
}
