/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: a tree in memory, a row each in the catalog. A top-level one is a space. Each change
 * is journaled before it can be seen; the parent's mtime is of this run only. */
#include "index/rows.h"
#include "node/registry_internal.h"
#include "util/clock.h"
#include "util/log.h"

/* Room in the map is made here, so that linking cannot fail. */
int hc_dir_new(struct hc_registry *registry, uint32_t id, const char *name, struct hc_dir **dir_p)
{
	size_t n = strlen(name);
	struct hc_dir *dir;
	int err;

	hc_registry_write(registry);
	err = hc_idmap_prepare(&registry->dirs, id);
	hc_registry_done(registry);
	if (err)
		return err;
	dir = hc_zalloc(sizeof(*dir) + n + 1);
	if (!dir)
		return -ENOMEM;
	dir->link.id = id;
	dir->name_n = (uint8_t)n;
	memcpy(dir->name, name, n + 1);
	*dir_p = dir;
	return 0;
}

static uint32_t name_hash(struct hc_registry *registry, const struct hc_dir *parent,
			  const char *name, size_t n)
{
	return hc_registry_hash(registry, parent->link.id, name, n);
}

/* The new directory first: what was made last is asked for next. */
void hc_dir_link_locked(struct hc_registry *registry, struct hc_dir *dir, struct hc_dir *parent)
{
	dir->parent = parent;
	dir->prev = NULL;
	dir->next = parent->child;
	if (parent->child)
		parent->child->prev = dir;
	parent->child = dir;
	parent->n_dirs++;
	hc_map_add(&registry->dir_names, &dir->link,
		   name_hash(registry, parent, dir->name, dir->name_n));
}

void hc_dir_unlink_locked(struct hc_registry *registry, struct hc_dir *dir)
{
	struct hc_dir *parent = dir->parent;

	hc_map_remove(&registry->dir_names, &dir->link);
	if (dir->prev)
		dir->prev->next = dir->next;
	else
		parent->child = dir->next;
	if (dir->next)
		dir->next->prev = dir->prev;
	parent->n_dirs--;
	dir->parent = NULL;
}

struct hc_dir *hc_dir_child(struct hc_registry *registry, const struct hc_dir *parent,
			    const char *name)
{
	size_t n = strlen(name);
	uint32_t hash = name_hash(registry, parent, name, n);
	struct hc_link *link = hc_map_first(&registry->dir_names, hash);

	for (; link; link = hc_map_match(link->next, hash)) {
		struct hc_dir *dir = (struct hc_dir *)link;

		if (dir->parent == parent && dir->name_n == n && !memcmp(dir->name, name, n))
			return dir;
	}
	return NULL;
}

int hc_dir_put(struct hc_registry *registry, const struct hc_dir *dir, bool now)
{
	struct hc_row_dir row = {
		.mtime_ns = dir->mtime_ns,
		.parent = dir->parent ? dir->parent->link.id : 0,
		.uid = dir->uid,
		.gid = dir->gid,
		.mode = dir->mode,
	};
	uint8_t out[HC_ROW_BYTES_MAX];
	uint64_t ticket;

	if (!registry->catalog)
		return 0;
	memcpy(row.name, dir->name, (size_t)dir->name_n + 1);
	return hc_catalog_put(registry->catalog, HC_TABLE_DIRS, dir->link.id, out,
			      hc_row_dir_pack(&row, out), now, &ticket);
}

/* A put of what a directory is going to be. */
static int put_changed(struct hc_registry *registry, const struct hc_dir *dir,
		       struct hc_dir *parent, const char *name, const struct hc_dir_info *info)
{
	struct hc_dir *copy = hc_zalloc(sizeof(*copy) + HC_NAME_BYTES);
	size_t n = strlen(name);
	int err;

	if (!copy)
		return -ENOMEM;
	*copy = *dir;
	copy->parent = parent;
	copy->name_n = (uint8_t)n;
	memcpy(copy->name, name, n + 1);
	if (info) {
		copy->uid = info->owner.uid;
		copy->gid = info->owner.gid;
		copy->mode = (uint16_t)info->owner.mode;
		copy->mtime_ns = info->mtime_ns;
	}
	err = hc_dir_put(registry, copy, true);
	free(copy);
	return err;
}

int hc_dir_path_of(const struct hc_dir *dir, char path[HC_PATH_BYTES])
{
	size_t n = 0, at;

	/* The root and the top-level directories are where paths begin. */
	for (const struct hc_dir *d = dir; d->parent && d->parent->parent; d = d->parent)
		n += d->name_n + 1u;
	if (!n) {
		path[0] = 0;
		return 0;
	}
	if (n > HC_PATH_BYTES)
		return -ENAMETOOLONG;
	at = n - 1;
	path[at] = 0;
	for (const struct hc_dir *d = dir; d->parent && d->parent->parent; d = d->parent) {
		at -= d->name_n;
		memcpy(path + at, d->name, d->name_n);
		if (at)
			path[--at] = '/';
	}
	return 0;
}

static size_t path_bytes(const struct hc_dir *dir)
{
	size_t n = 0;

	for (; dir->parent && dir->parent->parent; dir = dir->parent)
		n += dir->name_n + 1u;
	return n;
}

int hc_dir_check_name(struct hc_registry *registry, const struct hc_dir *parent, const char *name)
{
	size_t n = strnlen(name, HC_NAME_BYTES);

	if (!n || !strcmp(name, ".") || !strcmp(name, "..") || strchr(name, '/'))
		return -EINVAL;
	if (parent == registry->root && !strcmp(name, ".hicache"))
		return -EINVAL;
	if (n >= HC_NAME_BYTES || path_bytes(parent) + n >= HC_PATH_BYTES)
		return -ENAMETOOLONG;
	return 0;
}

static void fill_dir(const struct hc_dir *dir, struct hc_dir_info *info)
{
	info->id = dir->link.id;
	info->parent = dir->parent ? dir->parent->link.id : 0;
	info->space = dir->space;
	info->n_dirs = dir->n_dirs;
	info->n_files = dir->n_files;
	info->owner = (struct hc_owner){.uid = dir->uid, .gid = dir->gid, .mode = dir->mode};
	info->mtime_ns = dir->mtime_ns;
	memcpy(info->name, dir->name, (size_t)dir->name_n + 1);
}

int hc_dir_get(struct hc_registry *registry, uint32_t id, struct hc_dir_info *info_p)
{
	struct hc_dir *dir;

	hc_registry_read(registry);
	dir = hc_dir_at(registry, id);
	if (dir)
		fill_dir(dir, info_p);
	hc_registry_done(registry);
	return dir ? 0 : -ENOENT;
}

int hc_dir_find(struct hc_registry *registry, uint32_t parent_id, const char *name,
		struct hc_dir_info *info_p)
{
	struct hc_dir *parent, *dir = NULL;

	if (strnlen(name, HC_NAME_BYTES) >= HC_NAME_BYTES)
		return -ENAMETOOLONG;
	hc_registry_read(registry);
	parent = hc_dir_at(registry, parent_id);
	if (parent)
		dir = hc_dir_child(registry, parent, name);
	if (dir)
		fill_dir(dir, info_p);
	hc_registry_done(registry);
	return dir ? 0 : -ENOENT;
}

/* The space of a new top-level directory, durable in `names`, not yet seen. */
static int new_space(struct hc_registry *registry, const char *name, const struct hc_owner *owner,
		     struct hc_space **space_p)
{
	struct hc_space *space;
	int err = hc_space_new(registry, registry->next_space, name, &space);

	if (err)
		return err;
	space->owner = *owner;
	hc_space_preset_apply(registry, space);
	err = hc_names_put_space(registry, space, name, owner);
	/* The number may stand in the file whatever the error was. */
	registry->next_space++;
	if (!err)
		err = hc_space_put(registry, space, owner, true);
	if (err) {
		hc_space_free(space);
		return err;
	}
	*space_p = space;
	return 0;
}

static int new_dir(struct hc_registry *registry, struct hc_dir *parent, const char *name,
		   const struct hc_owner *owner, struct hc_dir **dir_p)
{
	uint64_t id = hc_counter_next(registry, &registry->dir_ids);
	struct hc_dir *dir;
	int err;

	if (id > UINT32_MAX || registry->n_dirs >= HC_DIRS_MAX) {
		hc_warn(HC_REGISTRY_COMPONENT, "there are %u directories: no more can be made",
			registry->n_dirs);
		return -ENOSPC;
	}
	err = hc_dir_new(registry, (uint32_t)id, name, &dir);
	if (err)
		return err;
	dir->parent = parent;
	dir->space = parent->space;
	dir->uid = owner->uid;
	dir->gid = owner->gid;
	dir->mode = (uint16_t)(owner->mode & 07777);
	dir->mtime_ns = hc_clock_wall_ns();
	*dir_p = dir;
	return 0;
}

int hc_dir_make_under_change(struct hc_registry *registry, struct hc_dir *parent, const char *name,
			     const struct hc_owner *owner, struct hc_dir **dir_p)
{
	struct hc_space *space = NULL;
	struct hc_dir *dir;
	int err = hc_dir_check_name(registry, parent, name);

	if (err)
		return err;
	if (hc_dir_child(registry, parent, name) || hc_file_named(registry, parent, name))
		return -EEXIST;
	err = new_dir(registry, parent, name, owner, &dir);
	if (err)
		return err;
	if (parent == registry->root)
		err = new_space(registry, name, &(struct hc_owner){dir->uid, dir->gid, dir->mode},
				&space);
	if (!err)
		err = hc_dir_put(registry, dir, true);
	if (err) {
		/* A space of `names` without a directory is given one at the next start, or never
		 * seen. */
		if (space && hc_names_put_gone(registry, space->id))
			hc_debug(HC_REGISTRY_COMPONENT, "space %u stays in names", space->id);
		hc_space_free(space);
		free(dir);
		return err;
	}
	hc_registry_write(registry);
	if (space) {
		space->dir = dir->link.id;
		dir->space = space->id;
		hc_space_add(registry, space);
	}
	hc_dir_link_locked(registry, dir, parent);
	hc_idmap_set(&registry->dirs, dir->link.id, dir);
	registry->n_dirs++;
	parent->mtime_ns = dir->mtime_ns;
	hc_registry_done(registry);
	*dir_p = dir;
	return 0;
}

int hc_dir_make(struct hc_registry *registry, uint32_t parent_id, const char *name,
		const struct hc_owner *owner, struct hc_dir_info *info_p)
{
	struct hc_dir *parent, *dir;
	int err = -ENOENT;

	pthread_mutex_lock(&registry->change);
	parent = hc_dir_at(registry, parent_id);
	if (parent)
		err = hc_dir_make_under_change(registry, parent, name, owner, &dir);
	if (!err)
		fill_dir(dir, info_p);
	pthread_mutex_unlock(&registry->change);
	return err;
}

/* An empty directory ends, and its space with it. */
static int drop_under_change(struct hc_registry *registry, struct hc_dir *dir)
{
	struct hc_space *space = NULL;
	uint64_t ticket;
	int err = 0;

	if (dir->parent == registry->root)
		space = hc_space_at(registry, dir->space);
	if (registry->catalog)
		err = hc_catalog_del(registry->catalog, HC_TABLE_DIRS, dir->link.id, true, &ticket);
	if (!err && space && registry->catalog)
		err = hc_catalog_del(registry->catalog, HC_TABLE_SPACES, space->id, true, &ticket);
	if (!err && space)
		err = hc_names_put_gone(registry, space->id);
	if (err)
		/* What a row says must be what is seen. */
		return hc_dir_put(registry, dir, true) ? -EIO : err;
	hc_registry_write(registry);
	dir->parent->mtime_ns = hc_clock_wall_ns();
	hc_dir_unlink_locked(registry, dir);
	hc_idmap_clear(&registry->dirs, dir->link.id);
	registry->n_dirs--;
	if (space) {
		atomic_store_explicit(&space->gone, true, memory_order_release);
		space->dir = 0;
	}
	hc_registry_done(registry);
	hc_attrs_drop(registry->attrs, HC_ATTRS_DIR, dir->link.id);
	free(dir);
	return 0;
}

static int remove_under_change(struct hc_registry *registry, uint32_t parent_id, const char *name,
			       uint64_t n_others)
{
	struct hc_dir *parent = hc_dir_at(registry, parent_id), *dir;

	if (!parent)
		return -ENOENT;
	dir = hc_dir_child(registry, parent, name);
	if (!dir)
		return hc_file_named(registry, parent, name) ? -ENOTDIR : -ENOENT;
	if (dir->n_dirs || dir->n_files || n_others)
		return -ENOTEMPTY;
	return drop_under_change(registry, dir);
}

int hc_dir_remove(struct hc_registry *registry, uint32_t parent, const char *name,
		  uint64_t n_others)
{
	int err;

	if (strnlen(name, HC_NAME_BYTES) >= HC_NAME_BYTES)
		return -ENAMETOOLONG;
	pthread_mutex_lock(&registry->change);
	err = remove_under_change(registry, parent, name, n_others);
	pthread_mutex_unlock(&registry->change);
	return err;
}

/* Whether the space of a top-level directory may bear another name. */
static int check_space_rename(struct hc_registry *registry, const struct hc_dir *dir,
			      const struct hc_dir *new_parent)
{
	struct hc_space *space = hc_space_at(registry, dir->space);

	if (dir->parent != registry->root && new_parent != registry->root)
		return 0;
	return dir->parent != new_parent || space->series ? -EXDEV : 0;
}

static int check_rename(struct hc_registry *registry, const struct hc_dir *dir,
			const struct hc_dir *new_parent, const char *new_name, uint64_t n_others)
{
	const struct hc_dir *target;
	int err = hc_dir_check_name(registry, new_parent, new_name);

	if (err)
		return err;
	if (dir == new_parent)
		return -EINVAL;
	if (dir->n_dirs || dir->n_files || n_others)
		return -EXDEV;
	err = check_space_rename(registry, dir, new_parent);
	if (err)
		return err;
	if (hc_file_named(registry, new_parent, new_name))
		return -ENOTDIR;
	target = hc_dir_child(registry, new_parent, new_name);
	return target && (target->n_dirs || target->n_files) ? -ENOTEMPTY : 0;
}

/* The name has its length in the object: a new object in the place of the old one. */
static void replace_locked(struct hc_registry *registry, struct hc_dir *dir, struct hc_dir *renamed,
			   struct hc_dir *new_parent)
{
	dir->parent->mtime_ns = new_parent->mtime_ns = hc_clock_wall_ns();
	hc_dir_unlink_locked(registry, dir);
	renamed->uid = dir->uid;
	renamed->gid = dir->gid;
	renamed->mode = dir->mode;
	renamed->mtime_ns = dir->mtime_ns;
	renamed->space = new_parent == registry->root ? dir->space : new_parent->space;
	hc_dir_link_locked(registry, renamed, new_parent);
	hc_idmap_replace(&registry->dirs, renamed->link.id, renamed);
}

static int apply_rename(struct hc_registry *registry, struct hc_dir *dir, struct hc_dir *new_parent,
			const char *new_name)
{
	struct hc_dir *target = hc_dir_child(registry, new_parent, new_name);
	struct hc_owner owner = {.uid = dir->uid, .gid = dir->gid, .mode = dir->mode};
	struct hc_space *space = NULL;
	struct hc_dir *renamed;
	char *name = NULL;
	int err = hc_dir_new(registry, dir->link.id, new_name, &renamed);

	if (err)
		return err;
	if (new_parent == registry->root) {
		space = hc_space_at(registry, dir->space);
		name = strdup(new_name);
		err = name ? 0 : -ENOMEM;
	}
	if (!err && target)
		err = drop_under_change(registry, target);
	if (!err && space)
		err = hc_names_put_space(registry, space, new_name, &owner);
	if (!err)
		err = put_changed(registry, dir, new_parent, new_name, NULL);
	if (err) {
		free(name);
		free(renamed);
		return err;
	}
	hc_registry_write(registry);
	replace_locked(registry, dir, renamed, new_parent);
	if (space) {
		char *old = space->name;

		space->name = name;
		name = old;
	}
	hc_registry_done(registry);
	free(name);
	free(dir);
	return 0;
}

int hc_dir_rename(struct hc_registry *registry, uint32_t parent_id, const char *name,
		  uint32_t new_parent_id, const char *new_name, uint64_t n_others)
{
	struct hc_dir *parent, *new_parent, *dir = NULL;
	int err;

	if (strnlen(name, HC_NAME_BYTES) >= HC_NAME_BYTES ||
	    strnlen(new_name, HC_NAME_BYTES) >= HC_NAME_BYTES)
		return -ENAMETOOLONG;
	pthread_mutex_lock(&registry->change);
	parent = hc_dir_at(registry, parent_id);
	new_parent = hc_dir_at(registry, new_parent_id);
	if (parent && new_parent)
		dir = hc_dir_child(registry, parent, name);
	if (!dir)
		err = -ENOENT;
	else if (parent == new_parent && !strcmp(name, new_name))
		err = 0;
	else
		err = check_rename(registry, dir, new_parent, new_name, n_others);
	if (!err && dir && (parent != new_parent || strcmp(name, new_name)))
		err = apply_rename(registry, dir, new_parent, new_name);
	pthread_mutex_unlock(&registry->change);
	return err;
}

static int set_under_change(struct hc_registry *registry, struct hc_dir *dir,
			    const struct hc_dir_info *info, uint32_t what)
{
	struct hc_space *space = NULL;
	struct hc_dir_info changed;
	int err = 0;

	fill_dir(dir, &changed);
	if (what & HC_DIR_SET_MODE)
		changed.owner.mode = info->owner.mode & 07777;
	if (what & HC_DIR_SET_UID)
		changed.owner.uid = info->owner.uid;
	if (what & HC_DIR_SET_GID)
		changed.owner.gid = info->owner.gid;
	if (what & HC_DIR_SET_MTIME)
		changed.mtime_ns = info->mtime_ns;
	/* `names` keeps the owners of spaces for when the catalog is lost. */
	if (dir == registry->root || dir->parent == registry->root)
		space = hc_space_at(registry, dir->space);
	if (space && memcmp(&space->owner, &changed.owner, sizeof(space->owner))) {
		err = hc_names_put_space(registry, space, space->name, &changed.owner);
		if (!err)
			err = hc_space_put(registry, space, &changed.owner, true);
	}
	if (!err)
		err = put_changed(registry, dir, dir->parent, dir->name, &changed);
	if (err)
		return err;
	hc_registry_write(registry);
	dir->uid = changed.owner.uid;
	dir->gid = changed.owner.gid;
	dir->mode = (uint16_t)changed.owner.mode;
	dir->mtime_ns = changed.mtime_ns;
	if (space)
		space->owner = changed.owner;
	hc_registry_done(registry);
	return 0;
}

int hc_dir_set(struct hc_registry *registry, uint32_t id, const struct hc_dir_info *info,
	       uint32_t what)
{
	struct hc_dir *dir;
	int err = -ENOENT;

	pthread_mutex_lock(&registry->change);
	dir = hc_dir_at(registry, id);
	if (dir)
		err = set_under_change(registry, dir, info, what);
	pthread_mutex_unlock(&registry->change);
	return err;
}

int hc_dir_list(struct hc_registry *registry, uint32_t id, struct hc_dir_info **dirs_p,
		size_t *n_dirs_p)
{
	struct hc_dir_info *dirs = NULL;
	struct hc_dir *dir;
	size_t n = 0;

	hc_registry_read(registry);
	dir = hc_dir_at(registry, id);
	if (dir)
		dirs = malloc(((size_t)dir->n_dirs + 1) * sizeof(*dirs));
	for (struct hc_dir *d = dirs ? dir->child : NULL; d; d = d->next)
		fill_dir(d, &dirs[n++]);
	hc_registry_done(registry);
	if (!dirs)
		return dir ? -ENOMEM : -ENOENT;
	*dirs_p = dirs;
	*n_dirs_p = n;
	return 0;
}

int hc_dir_path(struct hc_registry *registry, uint32_t id, char path[HC_PATH_BYTES],
		uint32_t *space_p)
{
	struct hc_dir *dir;
	int err = -ENOENT;

	hc_registry_read(registry);
	dir = hc_dir_at(registry, id);
	if (dir)
		err = hc_dir_path_of(dir, path);
	if (!err)
		*space_p = dir->space;
	hc_registry_done(registry);
	return err;
}

/* Walks from the space's directory; the first missing component is where making begins. */
static int walk(struct hc_registry *registry, struct hc_dir *dir, const char *path, bool make,
		uint32_t *id_p)
{
	struct hc_owner owner = {.uid = dir->uid, .gid = dir->gid, .mode = dir->mode};
	char name[HC_NAME_BYTES];

	while (*path) {
		size_t n = strcspn(path, "/");
		struct hc_dir *child;
		int err;

		if (n >= sizeof(name))
			return -ENAMETOOLONG;
		memcpy(name, path, n);
		name[n] = 0;
		path += n + (path[n] == '/');
		child = hc_dir_child(registry, dir, name);
		if (!child && !make)
			return -ENOENT;
		if (!child) {
			err = hc_dir_make_under_change(registry, dir, name, &owner, &child);
			if (err)
				return err;
		}
		dir = child;
	}
	*id_p = dir->link.id;
	return 0;
}

static int walk_space(struct hc_registry *registry, uint32_t space_id, const char *path, bool make,
		      uint32_t *id_p)
{
	struct hc_space *space = hc_space_at(registry, space_id);

	if (!space || !space->dir || atomic_load(&space->gone))
		return -ENOENT;
	/* Directories at the root are spaces of their own. */
	if (space_id == HC_SPACE_ROOT && *path)
		return -EINVAL;
	return walk(registry, hc_dir_at(registry, space->dir), path, make, id_p);
}

int hc_dir_make_path(struct hc_registry *registry, uint32_t space, const char *path, uint32_t *id_p)
{
	int err;

	if (strnlen(path, HC_PATH_BYTES) >= HC_PATH_BYTES)
		return -ENAMETOOLONG;
	hc_registry_read(registry);
	err = walk_space(registry, space, path, false, id_p);
	hc_registry_done(registry);
	if (err != -ENOENT)
		return err;
	pthread_mutex_lock(&registry->change);
	err = walk_space(registry, space, path, true, id_p);
	pthread_mutex_unlock(&registry->change);
	return err;
}
