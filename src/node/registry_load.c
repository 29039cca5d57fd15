/* SPDX-License-Identifier: Apache-2.0 */
/* The registry from its rows, at open; nobody else looks yet. Rows are input: what hangs nowhere is
 * dropped with a message. A top-level directory without a space gets one, a space without a
 * directory too (a change that was cut short, or a catalog that was lost). */
#include <endian.h>

#include "index/rows.h"
#include "node/registry_internal.h"
#include "util/clock.h"
#include "util/log.h"

#define HC_SEQUENCE_BLOCK 65536u
#define HC_NODE_ID_BLOCK  65536u
#define HC_DIR_ID_BLOCK   1024u
#define HC_FILE_ID_BLOCK  1024u

struct load {
	struct hc_registry *registry;
	uint64_t meta[HC_META_REBUILD + 1];
	uint32_t *parents; /* by load order */
	struct hc_dir **dirs;
	size_t n_dirs, room;
	struct file_row *files;
	size_t n_files, files_room;
	uint64_t max_dir, max_file;
	int err;
};

struct file_row {
	uint64_t id;
	struct hc_row_file row;
};

static int load_meta(void *arg, uint64_t key, const void *value, size_t n_bytes)
{
	struct load *load = arg;
	uint64_t le;

	if (key >= HC_ARRAY_SIZE(load->meta) || n_bytes != sizeof(le))
		return 0;
	memcpy(&le, value, sizeof(le));
	load->meta[key] = le64toh(le);
	return 0;
}

static int load_space(void *arg, uint64_t key, const void *value, size_t n_bytes)
{
	struct load *load = arg;
	struct hc_row_space row;
	struct hc_space *space =
		key <= UINT32_MAX ? hc_space_at(load->registry, (uint32_t)key) : NULL;

	load->err = hc_row_space_unpack(value, n_bytes, &row);
	if (load->err || !space)
		return load->err;
	atomic_store(&space->quota_bytes, row.quota_bytes);
	space->max_age_s = row.max_age_s;
	space->priority = row.priority;
	return 0;
}

static int remember(struct load *load, struct hc_dir *dir, uint32_t parent)
{
	if (load->n_dirs == load->room) {
		size_t room = load->room ? 2 * load->room : 1024;
		struct hc_dir **dirs = realloc(load->dirs, room * sizeof(*dirs));
		uint32_t *parents;

		if (!dirs)
			return -ENOMEM;
		load->dirs = dirs;
		parents = realloc(load->parents, room * sizeof(*parents));
		if (!parents)
			return -ENOMEM;
		load->parents = parents;
		load->room = room;
	}
	load->dirs[load->n_dirs] = dir;
	load->parents[load->n_dirs++] = parent;
	return 0;
}

static int load_dir(void *arg, uint64_t key, const void *value, size_t n_bytes)
{
	struct load *load = arg;
	struct hc_row_dir row;
	struct hc_dir *dir;

	load->err = hc_row_dir_unpack(value, n_bytes, &row);
	if (!load->err && (!key || key > UINT32_MAX ||
			   (key != HC_DIR_ROOT && (!row.name[0] || !strcmp(row.name, ".")))))
		load->err = -EBADMSG;
	if (!load->err)
		load->err = hc_dir_new(load->registry, (uint32_t)key, row.name, &dir);
	if (load->err)
		return load->err;
	dir->uid = row.uid;
	dir->gid = row.gid;
	dir->mode = row.mode;
	dir->mtime_ns = row.mtime_ns;
	load->err = remember(load, dir, key == HC_DIR_ROOT ? 0 : row.parent);
	if (load->err) {
		free(dir);
		return load->err;
	}
	hc_idmap_set(&load->registry->dirs, (uint32_t)key, dir);
	load->registry->n_dirs++;
	load->max_dir = hc_max_u64(load->max_dir, key);
	return 0;
}

/* Kept until directories hang together. */
static int load_file(void *arg, uint64_t key, const void *value, size_t n_bytes)
{
	struct load *load = arg;
	size_t room = load->files_room ? 2 * load->files_room : 64;
	struct file_row *files;

	load->max_file = hc_max_u64(load->max_file, key);
	if (load->n_files == load->files_room) {
		files = realloc(load->files, room * sizeof(*files));
		if (!files) {
			load->err = -ENOMEM;
			return load->err;
		}
		load->files = files;
		load->files_room = room;
	}
	load->files[load->n_files].id = key;
	load->err = hc_row_file_unpack(value, n_bytes, &load->files[load->n_files].row);
	if (!load->err)
		load->n_files++;
	return load->err;
}

static int load_table(struct load *load, enum hc_table table,
		      int (*each)(void *, uint64_t, const void *, size_t))
{
	int err;

	load->err = 0;
	if (!load->registry->catalog)
		return 0;
	err = hc_catalog_load(load->registry->catalog, table, each, load);
	return load->err ? load->err : err;
}

static void drop_dir(struct hc_registry *registry, struct hc_dir *dir)
{
	hc_warn(HC_REGISTRY_COMPONENT, "%s: directory %u (%s) hangs nowhere: dropped",
		registry->path, dir->link.id, dir->name);
	if (dir->parent)
		hc_dir_unlink_locked(registry, dir);
	hc_idmap_clear(&registry->dirs, dir->link.id);
	registry->n_dirs--;
	free(dir);
}

/* Sets the space of every directory below, without recursion. Those reached have one. */
static void spread_space(struct hc_dir *top)
{
	struct hc_dir *dir = top;

	for (;;) {
		if (dir != top)
			dir->space = top->space;
		if (dir->child) {
			dir = dir->child;
			continue;
		}
		while (dir != top && !dir->next)
			dir = dir->parent;
		if (dir == top)
			return;
		dir = dir->next;
	}
}

static struct hc_space *live_space(struct hc_registry *registry, const char *name)
{
	for (uint32_t id = HC_SPACE_ROOT + 1; id < registry->next_space; id++) {
		struct hc_space *space = hc_space_at(registry, id);

		if (space && !atomic_load(&space->gone) && !space->dir &&
		    !strcmp(space->name, name))
			return space;
	}
	return NULL;
}

static int add_space_of(struct hc_registry *registry, const struct hc_dir *dir,
			struct hc_space **space_p)
{
	struct hc_owner owner = {.uid = dir->uid, .gid = dir->gid, .mode = dir->mode};
	struct hc_space *space;
	int err = hc_space_new(registry, registry->next_space, dir->name, &space);

	if (err)
		return err;
	space->owner = owner;
	err = hc_names_put_space(registry, space, dir->name, &owner);
	if (err) {
		hc_space_free(space);
		return err;
	}
	hc_space_add(registry, space);
	*space_p = space;
	return 0;
}

/* Directories at the root and the spaces of `names` find each other. */
static int match_spaces(struct hc_registry *registry)
{
	struct hc_space *space = hc_space_at(registry, HC_SPACE_ROOT);

	space->dir = HC_DIR_ROOT;
	registry->root->space = HC_SPACE_ROOT;
	for (struct hc_dir *dir = registry->root->child; dir; dir = dir->next) {
		int err = 0;

		space = live_space(registry, dir->name);
		if (!space)
			err = add_space_of(registry, dir, &space);
		if (err)
			return err;
		space->dir = dir->link.id;
		dir->space = space->id;
		spread_space(dir);
	}
	return 0;
}

/* After match_spaces and the counters: makes rows. */
static int make_missing(struct hc_registry *registry)
{
	uint32_t end = registry->next_space;

	for (uint32_t id = HC_SPACE_ROOT + 1; id < end; id++) {
		struct hc_space *space = hc_space_at(registry, id);
		struct hc_dir *dir;
		int err;

		if (!space || space->dir || atomic_load(&space->gone))
			continue;
		if (hc_dir_check_name(registry, registry->root, space->name) ||
		    hc_dir_child(registry, registry->root, space->name)) {
			/* Two ids of one name: the one that has the directory holds. */
			atomic_store(&space->gone, true);
			continue;
		}
		err = hc_dir_new(registry, (uint32_t)hc_counter_next(registry, &registry->dir_ids),
				 space->name, &dir);
		if (err)
			return err;
		dir->uid = space->owner.uid;
		dir->gid = space->owner.gid;
		dir->mode = (uint16_t)space->owner.mode;
		dir->mtime_ns = hc_clock_wall_ns();
		dir->space = id;
		space->dir = dir->link.id;
		hc_dir_link_locked(registry, dir, registry->root);
		hc_idmap_set(&registry->dirs, dir->link.id, dir);
		registry->n_dirs++;
		err = hc_dir_put(registry, dir, true);
		if (err)
			return err;
	}
	return 0;
}

static int make_root(struct hc_registry *registry, const struct hc_owner *owner)
{
	int err = hc_dir_new(registry, HC_DIR_ROOT, "", &registry->root);

	if (err)
		return err;
	registry->root->uid = owner->uid;
	registry->root->gid = owner->gid;
	registry->root->mode = (uint16_t)(owner->mode & 07777);
	registry->root->mtime_ns = hc_clock_wall_ns();
	hc_idmap_set(&registry->dirs, HC_DIR_ROOT, registry->root);
	registry->n_dirs++;
	hc_space_at(registry, HC_SPACE_ROOT)->owner =
		(struct hc_owner){owner->uid, owner->gid, owner->mode & 07777};
	return hc_dir_put(registry, registry->root, true);
}

/* Parents are looked up when all rows are there: a renamed directory may lie in a younger one. */
static void link_dirs(struct load *load)
{
	struct hc_registry *registry = load->registry;

	for (size_t i = 0; i < load->n_dirs; i++) {
		struct hc_dir *dir = load->dirs[i];
		struct hc_dir *parent = hc_dir_at(registry, load->parents[i]);

		if (dir == registry->root || !parent || parent == dir ||
		    hc_dir_child(registry, parent, dir->name))
			continue;
		hc_dir_link_locked(registry, dir, parent);
	}
}

/* What has no way to the root has no space; rings too. */
static void drop_unreached(struct load *load)
{
	struct hc_registry *registry = load->registry;

	for (size_t i = 0; i < load->n_dirs; i++) {
		struct hc_dir *dir = load->dirs[i];

		if (dir->space)
			continue;
		/* Children are unreached as well, and dropped in their turn. */
		for (struct hc_dir *child = dir->child; child; child = dir->child)
			hc_dir_unlink_locked(registry, child);
		drop_dir(registry, dir);
	}
}

static void start_counters(struct load *load)
{
	struct hc_registry *registry = load->registry;
	uint64_t wall = hc_clock_wall_ns() / HC_NS_PER_S << 32;

	hc_counter_start(&registry->sequences, hc_max_u64(load->meta[HC_META_NEXT_SEQUENCE], 1),
			 HC_SEQUENCE_BLOCK, HC_META_NEXT_SEQUENCE);
	hc_counter_start(&registry->node_ids, hc_max_u64(load->meta[HC_META_NEXT_NODE_ID], wall),
			 HC_NODE_ID_BLOCK, HC_META_NEXT_NODE_ID);
	hc_counter_start(&registry->dir_ids,
			 hc_max_u64(load->meta[HC_META_NEXT_DIR],
				    hc_max_u64(load->max_dir, HC_DIR_ROOT) + 1),
			 HC_DIR_ID_BLOCK, HC_META_NEXT_DIR);
	hc_counter_start(&registry->file_ids,
			 hc_max_u64(load->meta[HC_META_NEXT_FILE], load->max_file + 1),
			 HC_FILE_ID_BLOCK, HC_META_NEXT_FILE);
}

/* Everything is read before anything is put. */
static int load_tables(struct load *load)
{
	int err = load_table(load, HC_TABLE_META, load_meta);

	if (!err)
		err = load_table(load, HC_TABLE_SPACES, load_space);
	if (!err)
		err = load_table(load, HC_TABLE_DIRS, load_dir);
	if (!err)
		err = load_table(load, HC_TABLE_FILES, load_file);
	if (!err)
		err = hc_attrs_load(load->registry->attrs, load->registry->catalog);
	return err;
}

static int load_all(struct load *load, const struct hc_owner *root)
{
	struct hc_registry *registry = load->registry;
	int err = load_tables(load);

	if (err)
		return err;
	start_counters(load);
	registry->root = hc_dir_at(registry, HC_DIR_ROOT);
	/* Its row is there from the first moment on, unless a fresh catalog was cut short. */
	if (load->meta[HC_META_REBUILD] || (!registry->root && !registry->fresh))
		registry->rebuild = true;
	if (registry->rebuild)
		err = hc_registry_mark_rebuild(registry, true);
	if (!err && !registry->root)
		err = make_root(registry, root);
	if (err)
		return err;
	link_dirs(load);
	err = match_spaces(registry);
	if (err)
		return err;
	drop_unreached(load);
	err = make_missing(registry);
	for (size_t i = 0; i < load->n_files && !err; i++)
		err = hc_file_load_row(registry, load->files[i].id, &load->files[i].row);
	return err;
}

static bool has_dir(void *arg, uint64_t id)
{
	return id <= UINT32_MAX && hc_dir_at(arg, (uint32_t)id);
}

static bool has_file(void *arg, uint64_t id)
{
	struct hc_file_info info;

	return !hc_file_get(arg, id, &info);
}

int hc_registry_load(struct hc_registry *registry, const struct hc_owner *root)
{
	struct load load = {.registry = registry};
	int err = load_all(&load, root);

	if (!err) {
		hc_attrs_sweep(registry->attrs, HC_ATTRS_DIR, has_dir, registry);
		hc_attrs_sweep(registry->attrs, HC_ATTRS_FILE, has_file, registry);
	}

	free(load.dirs);
	free(load.parents);
	free(load.files);
	return err;
}

static void free_files(struct hc_registry *registry)
{
	struct hc_table_map *map = &registry->file_ids_map;

	for (uint32_t i = 0; map->buckets && i <= map->mask; i++) {
		while (map->buckets[i]) {
			struct hc_link *link = map->buckets[i];
			struct hc_file *file =
				(struct hc_file *)((char *)link - offsetof(struct hc_file, by_id));

			map->buckets[i] = link->next;
			map->n--;
			hc_file_free(file);
		}
	}
}

void hc_registry_reset(struct hc_registry *registry)
{
	struct hc_idmap *dirs = &registry->dirs;

	free_files(registry);
	for (uint32_t top = 0; dirs->top && top < dirs->n_top; top++) {
		struct hc_idmap_chunk *chunk = atomic_load(&dirs->top[top]);

		for (uint32_t i = 0; chunk && i < HC_IDMAP_CHUNK; i++)
			free(atomic_load(&chunk->at[i]));
		free(chunk);
		if (chunk)
			atomic_store(&dirs->top[top], NULL);
	}
	for (struct hc_table_map *map = &registry->dir_names;; map = &registry->file_names) {
		for (uint32_t i = 0; map->buckets && i <= map->mask; i++)
			map->buckets[i] = NULL;
		map->n = 0;
		if (map == &registry->file_names)
			break;
	}
	for (uint32_t id = 1; id < registry->next_space; id++) {
		struct hc_space *space = hc_space_at(registry, id);

		if (!space)
			continue;
		space->dir = 0;
		space->files_bytes = 0;
		space->n_files = 0;
	}
	registry->root = NULL;
	registry->n_dirs = 0;
}
