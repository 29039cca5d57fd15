/* SPDX-License-Identifier: Apache-2.0 */
/* See registry.h: opening, closing and putting everything again. Order of opening: identity and its
 * lock, `names`, catalog, rows; of a fresh CACHEDIR the identity is completed last. */
#include <xxhash.h>

#include "node/registry_internal.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/rng.h"

#define HC_CATALOG_MAP_BYTES (256 * HC_MIB)
#define HC_CATALOG_SYNC_NS   (30 * HC_NS_PER_S)

uint32_t hc_registry_hash(struct hc_registry *registry, uint64_t parent, const char *name, size_t n)
{
	/* Names are chosen by users: the seed is not known to them. */
	uint64_t hash =
		XXH3_64bits_withSeed(name, n, registry->seed ^ parent * 0x9e3779b97f4a7c15u);

	return (uint32_t)(hash ^ hash >> 32);
}

static int create(struct hc_registry **registry_p)
{
	struct hc_registry *registry = hc_zalloc(sizeof(*registry));
	pthread_rwlockattr_t attr;
	int err;

	if (!registry)
		return -ENOMEM;
	registry->dir_fd = registry->lock_fd = registry->files_fd = registry->names_fd = -1;
	pthread_mutex_init(&registry->ids, NULL);
	pthread_mutex_init(&registry->change, NULL);
	/* A stream of look-ups must not keep a mkdir out. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&registry->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	hc_rng_system(&registry->seed, sizeof(registry->seed));
	*registry_p = registry;
	err = hc_idmap_init(&registry->spaces, HC_REGISTRY_IDS_TOP);
	if (!err)
		err = hc_idmap_init(&registry->series, HC_REGISTRY_IDS_TOP);
	if (!err)
		err = hc_idmap_init(&registry->dirs, HC_REGISTRY_DIRS_TOP);
	if (!err)
		err = hc_map_init(&registry->dir_names);
	if (!err)
		err = hc_map_init(&registry->file_names);
	if (!err)
		err = hc_map_init(&registry->file_ids_map);
	if (!err)
		err = hc_map_init(&registry->series_names);
	if (!err)
		err = hc_owners_create(&registry->owners);
	if (!err)
		err = hc_attrs_create(&registry->attrs);
	return err;
}

static void destroy(struct hc_registry *registry)
{
	hc_registry_reset(registry);
	for (uint32_t id = 1; registry->spaces.top && id < registry->next_space; id++)
		hc_space_free(hc_space_at(registry, id));
	hc_idmap_fini(&registry->spaces);
	hc_idmap_fini(&registry->series);
	hc_idmap_fini(&registry->dirs);
	hc_map_fini(&registry->dir_names);
	hc_map_fini(&registry->file_names);
	hc_map_fini(&registry->file_ids_map);
	hc_map_fini(&registry->series_names);
	hc_owners_destroy(registry->owners);
	hc_attrs_destroy(registry->attrs);
	hc_identity_close(registry);
	if (registry->names_fd >= 0)
		close(registry->names_fd);
	pthread_mutex_destroy(&registry->ids);
	pthread_mutex_destroy(&registry->change);
	pthread_rwlock_destroy(&registry->lock);
	free(registry);
}

static struct hc_catalog_config catalog_config(const struct hc_registry *registry,
					       const struct hc_registry_config *config)
{
	struct hc_catalog_config out = {
		.dir = config->catalog_dir ? config->catalog_dir : config->cachedir,
		.map_bytes = HC_CATALOG_MAP_BYTES,
		.lost = config->catalog_lost,
		.arg = config->arg,
	};

	memcpy(out.uuid, registry->uuid, sizeof(out.uuid));
	return out;
}

/* In place of one that is not there or not whole. */
static int fresh_catalog(struct hc_registry *registry, const struct hc_registry_config *config)
{
	struct hc_catalog_config catalog = catalog_config(registry, config);
	int err = hc_catalog_create(&catalog, &registry->catalog);

	if (err)
		hc_error(HC_REGISTRY_COMPONENT, "%s: cannot make a catalog: %s", catalog.dir,
			 strerror(-err));
	return err;
}

static int refuse_catalog(const struct hc_registry_config *config, int err)
{
	const char *dir = config->catalog_dir ? config->catalog_dir : config->cachedir;

	if (err == -EPROTO)
		hc_error(HC_REGISTRY_COMPONENT,
			 "%s: the catalog was written by a newer hicachefs: use that version, or "
			 "name "
			 "another directory; nothing was changed",
			 dir);
	else if (err == -EBUSY)
		hc_error(HC_REGISTRY_COMPONENT,
			 "%s: the catalog is in use by another process: end it first", dir);
	else
		hc_error(HC_REGISTRY_COMPONENT, "%s: the catalog cannot be opened: %s", dir,
			 strerror(-err));
	return err;
}

static int open_catalog(struct hc_registry *registry, const struct hc_registry_config *config)
{
	struct hc_catalog_config catalog = catalog_config(registry, config);
	int err;

	if (registry->fresh)
		return fresh_catalog(registry, config);
	err = hc_catalog_open(&catalog, &registry->catalog);
	if (!err)
		return 0;
	if (err != -ENOENT && err != -EBADMSG)
		return refuse_catalog(config, err);
	hc_warn(HC_REGISTRY_COMPONENT, "%s: the catalog is %s: it is rebuilt from the page files",
		catalog.dir, err == -ENOENT ? "not there" : "damaged");
	registry->rebuild = true;
	return fresh_catalog(registry, config);
}

static int load_or_renew(struct hc_registry *registry, const struct hc_registry_config *config)
{
	int err = hc_registry_load(registry, &config->root);

	if (err == -EPROTO)
		return refuse_catalog(config, err);
	if (err != -EBADMSG || !registry->catalog)
		return err;
	hc_warn(HC_REGISTRY_COMPONENT,
		"%s: the catalog is damaged: it is rebuilt from the page files", registry->path);
	registry->rebuild = true;
	hc_registry_reset(registry);
	hc_catalog_close(registry->catalog);
	registry->catalog = NULL;
	err = fresh_catalog(registry, config);
	return err ? err : hc_registry_load(registry, &config->root);
}

static int put_dirs(struct hc_registry *registry)
{
	struct hc_dir *dir = registry->root;

	for (;;) {
		int err = hc_dir_put(registry, dir, false);

		for (struct hc_file *file = dir->files; file && !err; file = file->next)
			err = hc_file_put(registry, file, false);
		if (err)
			return err;
		if (dir->child) {
			dir = dir->child;
			continue;
		}
		while (dir != registry->root && !dir->next)
			dir = dir->parent;
		if (dir == registry->root)
			return 0;
		dir = dir->next;
	}
}

static int put_spaces(struct hc_registry *registry)
{
	for (uint32_t id = 1; id < registry->next_space; id++) {
		struct hc_space *space = hc_space_at(registry, id);
		struct hc_dir *dir;
		int err;

		if (!space || !space->dir)
			continue;
		dir = hc_dir_at(registry, space->dir);
		err = hc_space_put(registry, space,
				   &(struct hc_owner){dir->uid, dir->gid, dir->mode}, false);
		if (err)
			return err;
	}
	return 0;
}

int hc_registry_mark_rebuild(struct hc_registry *registry, bool rebuild)
{
	static const uint8_t one[8] = {1};
	uint64_t ticket;

	if (!registry->catalog)
		return 0;
	if (!rebuild)
		return hc_catalog_del(registry->catalog, HC_TABLE_META, HC_META_REBUILD, true,
				      &ticket);
	return hc_catalog_put(registry->catalog, HC_TABLE_META, HC_META_REBUILD, one, sizeof(one),
			      true, &ticket);
}

static int put_all(struct hc_registry *registry)
{
	int err = put_dirs(registry);

	if (!err)
		err = put_spaces(registry);
	if (!err)
		err = hc_attrs_put_all(registry->attrs);
	if (!err)
		err = hc_counter_put(registry, &registry->sequences, false);
	if (!err)
		err = hc_counter_put(registry, &registry->node_ids, false);
	if (!err)
		err = hc_counter_put(registry, &registry->dir_ids, false);
	if (!err)
		err = hc_counter_put(registry, &registry->file_ids, false);
	if (!err)
		err = hc_catalog_sync(registry->catalog, 0, hc_clock_now_ns() + HC_CATALOG_SYNC_NS);
	if (err)
		hc_error(HC_REGISTRY_COMPONENT, "%s: the catalog does not take its rows: %s",
			 registry->path, strerror(-err));
	return err;
}

static int open_stored(struct hc_registry *registry, const struct hc_registry_config *config)
{
	int err = hc_identity_open(registry, config);

	if (!err)
		err = hc_names_load(registry);
	if (!err)
		err = open_catalog(registry, config);
	if (!err)
		err = load_or_renew(registry, config);
	if (err)
		return err;
	if (registry->fresh || registry->rebuild)
		err = put_all(registry);
	if (!err && registry->fresh)
		err = hc_identity_commit(registry, config->embedded);
	if (!err)
		hc_files_sweep(registry);
	return err;
}

static int open_memory(struct hc_registry *registry, const struct hc_registry_config *config)
{
	struct hc_space *space;
	int err;

	hc_rng_system(registry->uuid, sizeof(registry->uuid));
	registry->next_space = HC_SPACE_ROOT + 1;
	registry->next_series = 1;
	err = hc_space_new(registry, HC_SPACE_ROOT, ".", &space);
	if (err)
		return err;
	hc_space_add(registry, space);
	return hc_registry_load(registry, &config->root);
}

int hc_registry_open(const struct hc_registry_config *config, struct hc_registry **registry_p,
		     bool *rebuild_p)
{
	struct hc_registry *registry = NULL;
	int err = create(&registry);

	if (!err)
		err = config->cachedir ? open_stored(registry, config)
				       : open_memory(registry, config);
	if (err) {
		if (registry && registry->catalog)
			hc_catalog_close(registry->catalog);
		if (registry)
			destroy(registry);
		return err;
	}
	*registry_p = registry;
	*rebuild_p = registry->rebuild;
	return 0;
}

void hc_registry_close(struct hc_registry *registry)
{
	if (!registry)
		return;
	if (registry->catalog) {
		hc_counter_stop(registry, &registry->sequences);
		hc_counter_stop(registry, &registry->node_ids);
		hc_counter_stop(registry, &registry->dir_ids);
		hc_counter_stop(registry, &registry->file_ids);
		hc_catalog_close(registry->catalog);
	}
	destroy(registry);
}

const uint8_t *hc_registry_uuid(struct hc_registry *registry)
{
	return registry->uuid;
}

struct hc_catalog *hc_registry_catalog(struct hc_registry *registry)
{
	return registry->catalog;
}

struct hc_owners *hc_registry_owners(struct hc_registry *registry)
{
	return registry->owners;
}

struct hc_attrs *hc_registry_attrs(struct hc_registry *registry)
{
	return registry->attrs;
}

int hc_registry_put_all(struct hc_registry *registry)
{
	int err;

	if (!registry->catalog)
		return 0;
	pthread_mutex_lock(&registry->change);
	err = hc_registry_mark_rebuild(registry, true);
	if (!err)
		err = put_all(registry);
	pthread_mutex_unlock(&registry->change);
	return err;
}

int hc_registry_rebuilt(struct hc_registry *registry)
{
	int err = 0;

	/* The rows must be there before the word that they are. */
	if (registry->catalog)
		err = hc_catalog_sync(registry->catalog, 0, hc_clock_now_ns() + HC_CATALOG_SYNC_NS);
	return err ? err : hc_registry_mark_rebuild(registry, false);
}
