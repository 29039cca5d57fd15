/* SPDX-License-Identifier: Apache-2.0 */
/* Ordinary files: names, owners and sizes in memory and in the catalog; contents in
 * CACHEDIR/files/<id> (without a CACHEDIR: a memfd each). A file whose name was taken stays known
 * by its id, and charged, until hc_file_forget. The size in CACHEDIR is the truth after a kill:
 * rows follow the writes. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "index/rows.h"
#include "node/registry_internal.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/size.h"

/* Ids need no mixing beyond this: they come one after the other. */
static uint32_t id_hash(uint64_t id)
{
	return (uint32_t)(id ^ id >> 32);
}

static struct hc_file *file_at(struct hc_registry *registry, uint64_t id)
{
	struct hc_link *link = hc_map_first(&registry->file_ids_map, id_hash(id));

	for (; link; link = hc_map_match(link->next, id_hash(id))) {
		struct hc_file *file =
			(struct hc_file *)((char *)link - offsetof(struct hc_file, by_id));

		if (file->id == id)
			return file;
	}
	return NULL;
}

struct hc_file *hc_file_named(struct hc_registry *registry, const struct hc_dir *dir,
			      const char *name)
{
	uint32_t hash;
	struct hc_link *link;

	if (!dir->n_files)
		return NULL;
	hash = hc_registry_hash(registry, dir->link.id, name, strlen(name));
	link = hc_map_first(&registry->file_names, hash);
	for (; link; link = hc_map_match(link->next, hash)) {
		struct hc_file *file = (struct hc_file *)link;

		if (file->dir == dir && !strcmp(file->name, name))
			return file;
	}
	return NULL;
}

static void name_locked(struct hc_registry *registry, struct hc_file *file, struct hc_dir *dir)
{
	file->dir = dir;
	file->prev = NULL;
	file->next = dir->files;
	if (dir->files)
		dir->files->prev = file;
	dir->files = file;
	dir->n_files++;
	hc_map_add(&registry->file_names, &file->link,
		   hc_registry_hash(registry, dir->link.id, file->name, strlen(file->name)));
}

static void unname_locked(struct hc_registry *registry, struct hc_file *file)
{
	struct hc_dir *dir = file->dir;

	hc_map_remove(&registry->file_names, &file->link);
	if (file->prev)
		file->prev->next = file->next;
	else
		dir->files = file->next;
	if (file->next)
		file->next->prev = file->prev;
	dir->n_files--;
	file->dir = NULL;
}

static void add_locked(struct hc_registry *registry, struct hc_file *file, struct hc_dir *dir)
{
	name_locked(registry, file, dir);
	hc_map_add(&registry->file_ids_map, &file->by_id, id_hash(file->id));
	file->space = hc_space_at(registry, dir->space);
	file->space->files_bytes += file->size_bytes;
	file->space->n_files++;
}

/* A named file ends to be one of its space. */
static void move_charge_locked(struct hc_file *file, struct hc_space *space)
{
	file->space->files_bytes -= file->size_bytes;
	file->space->n_files--;
	file->space = space;
	if (!space)
		return;
	space->files_bytes += file->size_bytes;
	space->n_files++;
}

void hc_file_free(struct hc_file *file)
{
	if (file && file->memfd >= 0)
		close(file->memfd);
	free(file);
}

static int put_as(struct hc_registry *registry, const struct hc_file *file,
		  const struct hc_file_info *info, bool now)
{
	struct hc_row_file row = {
		.size_bytes = info->size_bytes,
		.mtime_ns = info->mtime_ns,
		.dir = info->dir,
		.uid = info->owner.uid,
		.gid = info->owner.gid,
		.mode = (uint16_t)info->owner.mode,
	};
	uint8_t out[HC_ROW_BYTES_MAX];
	uint64_t ticket;

	if (!registry->catalog)
		return 0;
	memcpy(row.name, info->name, sizeof(row.name));
	return hc_catalog_put(registry->catalog, HC_TABLE_FILES, file->id, out,
			      hc_row_file_pack(&row, out), now, &ticket);
}

static void fill_file(const struct hc_file *file, struct hc_file_info *info)
{
	info->id = file->id;
	info->dir = file->dir ? file->dir->link.id : 0;
	info->owner = file->owner;
	info->size_bytes = file->size_bytes;
	info->mtime_ns = file->mtime_ns;
	info->node_id = file->node_id;
	memcpy(info->name, file->name, sizeof(info->name));
}

int hc_file_put(struct hc_registry *registry, const struct hc_file *file, bool now)
{
	struct hc_file_info info;

	fill_file(file, &info);
	return put_as(registry, file, &info, now);
}

static int delete_row(struct hc_registry *registry, uint64_t id)
{
	uint64_t ticket;

	if (!registry->catalog)
		return 0;
	return hc_catalog_del(registry->catalog, HC_TABLE_FILES, id, true, &ticket);
}

int hc_file_find(struct hc_registry *registry, uint32_t dir_id, const char *name,
		 struct hc_file_info *info_p)
{
	struct hc_file *file = NULL;
	struct hc_dir *dir;

	if (strnlen(name, HC_NAME_BYTES) >= HC_NAME_BYTES)
		return -ENAMETOOLONG;
	hc_registry_read(registry);
	dir = hc_dir_at(registry, dir_id);
	if (dir)
		file = hc_file_named(registry, dir, name);
	if (file)
		fill_file(file, info_p);
	hc_registry_done(registry);
	return file ? 0 : -ENOENT;
}

int hc_file_get(struct hc_registry *registry, uint64_t id, struct hc_file_info *info_p)
{
	struct hc_file *file;

	hc_registry_read(registry);
	file = file_at(registry, id);
	if (file)
		fill_file(file, info_p);
	hc_registry_done(registry);
	return file ? 0 : -ENOENT;
}

static int file_new(struct hc_registry *registry, const char *name, struct hc_file **file_p)
{
	struct hc_file *file = hc_zalloc(sizeof(*file));

	if (!file)
		return -ENOMEM;
	snprintf(file->name, sizeof(file->name), "%s", name);
	file->memfd = -1;
	if (registry->files_fd < 0)
		file->memfd = memfd_create("hicachefs-file", MFD_CLOEXEC);
	if (registry->files_fd < 0 && file->memfd < 0) {
		int err = -errno;

		free(file);
		return err;
	}
	*file_p = file;
	return 0;
}

static int make_under_change(struct hc_registry *registry, struct hc_dir *dir, const char *name,
			     const struct hc_owner *owner, struct hc_file **file_p,
			     uint64_t *replaced_p)
{
	struct hc_file *old, *file;
	struct hc_space *space = hc_space_at(registry, dir->space);
	struct hc_file_info info;
	int err = hc_dir_check_name(registry, dir, name);

	if (err)
		return err;
	if (hc_dir_child(registry, dir, name))
		return -EEXIST;
	if (space->n_files >= HC_FILES_MAX || space->files_bytes >= HC_FILES_BYTES_MAX)
		return -EDQUOT;
	err = file_new(registry, name, &file);
	if (err)
		return err;
	file->id = hc_counter_next(registry, &registry->file_ids);
	file->node_id = hc_counter_next(registry, &registry->node_ids);
	file->owner = (struct hc_owner){owner->uid, owner->gid, owner->mode & 07777};
	file->mtime_ns = hc_clock_wall_ns();
	fill_file(file, &info);
	info.dir = dir->link.id;
	old = hc_file_named(registry, dir, name);
	/* The new one first: of two rows of one name the later id holds. */
	err = put_as(registry, file, &info, true);
	if (!err && old)
		err = delete_row(registry, old->id);
	if (err) {
		hc_file_free(file);
		return err;
	}
	hc_registry_write(registry);
	if (old)
		unname_locked(registry, old);
	add_locked(registry, file, dir);
	dir->mtime_ns = file->mtime_ns;
	hc_registry_done(registry);
	*replaced_p = old ? old->id : 0;
	*file_p = file;
	return 0;
}

int hc_file_make(struct hc_registry *registry, uint32_t dir_id, const char *name,
		 const struct hc_owner *owner, struct hc_file_info *info_p, uint64_t *replaced_p)
{
	struct hc_file *file;
	struct hc_dir *dir;
	int err = -ENOENT;

	pthread_mutex_lock(&registry->change);
	dir = hc_dir_at(registry, dir_id);
	if (dir)
		err = make_under_change(registry, dir, name, owner, &file, replaced_p);
	if (!err)
		fill_file(file, info_p);
	pthread_mutex_unlock(&registry->change);
	return err;
}

static void content_name(uint64_t id, char name[24])
{
	snprintf(name, 24, "%llu", (unsigned long long)id);
}

int hc_file_open(struct hc_registry *registry, uint64_t id, int *fd_p)
{
	struct hc_file *file;
	char name[24];
	int fd = -1;

	hc_registry_read(registry);
	file = file_at(registry, id);
	if (file && file->memfd >= 0)
		fd = fcntl(file->memfd, F_DUPFD_CLOEXEC, 3);
	hc_registry_done(registry);
	if (!file)
		return -ENOENT;
	if (registry->files_fd >= 0) {
		content_name(id, name);
		fd = openat(registry->files_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
			    0600);
	}
	if (fd < 0) {
		int err = -errno;

		hc_error(HC_REGISTRY_COMPONENT, "%s: cannot open contents of file %llu: %s",
			 registry->path ? registry->path : "memory", (unsigned long long)id,
			 strerror(-err));
		return err;
	}
	*fd_p = fd;
	return 0;
}

static int set_under_change(struct hc_registry *registry, struct hc_file *file,
			    const struct hc_file_info *info, bool size, uint32_t what)
{
	struct hc_file_info changed;
	int err = 0;

	fill_file(file, &changed);
	if (size)
		changed.size_bytes = info->size_bytes;
	if (changed.size_bytes > file->size_bytes) {
		uint64_t more = changed.size_bytes - file->size_bytes;

		if (changed.size_bytes > HC_FILE_BYTES_MAX)
			return -EFBIG;
		if (file->space->files_bytes + more > HC_FILES_BYTES_MAX)
			return -EDQUOT;
	}
	if (what & HC_DIR_SET_MODE)
		changed.owner.mode = info->owner.mode & 07777;
	if (what & HC_DIR_SET_UID)
		changed.owner.uid = info->owner.uid;
	if (what & HC_DIR_SET_GID)
		changed.owner.gid = info->owner.gid;
	if (what & HC_DIR_SET_MTIME)
		changed.mtime_ns = info->mtime_ns;
	if (file->dir)
		err = put_as(registry, file, &changed, true);
	if (err)
		return err;
	hc_registry_write(registry);
	file->space->files_bytes += changed.size_bytes - file->size_bytes;
	file->size_bytes = changed.size_bytes;
	file->owner = changed.owner;
	file->mtime_ns = changed.mtime_ns;
	hc_registry_done(registry);
	return 0;
}

int hc_file_set(struct hc_registry *registry, const struct hc_file_info *info, bool size,
		uint32_t what)
{
	struct hc_file *file;
	int err = -ENOENT;

	pthread_mutex_lock(&registry->change);
	file = file_at(registry, info->id);
	if (file)
		err = set_under_change(registry, file, info, size, what);
	pthread_mutex_unlock(&registry->change);
	return err;
}

static int remove_under_change(struct hc_registry *registry, uint32_t dir_id, const char *name,
			       uint64_t *id_p)
{
	struct hc_dir *dir = hc_dir_at(registry, dir_id);
	struct hc_file *file;
	int err;

	if (!dir)
		return -ENOENT;
	file = hc_file_named(registry, dir, name);
	if (!file)
		return hc_dir_child(registry, dir, name) ? -EISDIR : -ENOENT;
	err = delete_row(registry, file->id);
	if (err)
		return err;
	hc_registry_write(registry);
	unname_locked(registry, file);
	dir->mtime_ns = hc_clock_wall_ns();
	hc_registry_done(registry);
	*id_p = file->id;
	return 0;
}

int hc_file_remove(struct hc_registry *registry, uint32_t dir, const char *name, uint64_t *id_p)
{
	int err;

	if (strnlen(name, HC_NAME_BYTES) >= HC_NAME_BYTES)
		return -ENAMETOOLONG;
	pthread_mutex_lock(&registry->change);
	err = remove_under_change(registry, dir, name, id_p);
	pthread_mutex_unlock(&registry->change);
	return err;
}

static int check_move(struct hc_registry *registry, const struct hc_file *file,
		      const struct hc_dir *new_dir, const char *new_name)
{
	struct hc_space *space = hc_space_at(registry, new_dir->space);
	int err = hc_dir_check_name(registry, new_dir, new_name);

	if (err)
		return err;
	if (hc_dir_child(registry, new_dir, new_name))
		return -EISDIR;
	if (space != file->space && (space->n_files >= HC_FILES_MAX ||
				     space->files_bytes + file->size_bytes > HC_FILES_BYTES_MAX))
		return -EDQUOT;
	return 0;
}

static int rename_under_change(struct hc_registry *registry, struct hc_file *file,
			       struct hc_dir *new_dir, const char *new_name, uint64_t *replaced_p)
{
	struct hc_file *old = hc_file_named(registry, new_dir, new_name);
	struct hc_file_info info;
	int err = 0;

	*replaced_p = 0;
	if (old == file)
		return 0;
	err = check_move(registry, file, new_dir, new_name);
	if (err)
		return err;
	fill_file(file, &info);
	info.dir = new_dir->link.id;
	snprintf(info.name, sizeof(info.name), "%s", new_name);
	/* The replaced row first: a kill in between leaves the old name, never two of one. */
	if (old)
		err = delete_row(registry, old->id);
	if (!err)
		err = put_as(registry, file, &info, true);
	if (err)
		return err;
	hc_registry_write(registry);
	if (old)
		unname_locked(registry, old);
	file->dir->mtime_ns = new_dir->mtime_ns = hc_clock_wall_ns();
	unname_locked(registry, file);
	memcpy(file->name, info.name, sizeof(file->name));
	name_locked(registry, file, new_dir);
	move_charge_locked(file, hc_space_at(registry, new_dir->space));
	hc_registry_done(registry);
	*replaced_p = old ? old->id : 0;
	return 0;
}

int hc_file_rename(struct hc_registry *registry, uint64_t id, uint32_t new_dir_id,
		   const char *new_name, uint64_t *replaced_p)
{
	struct hc_file *file;
	struct hc_dir *new_dir;
	uint64_t replaced = 0;
	int err = -ENOENT;

	if (strnlen(new_name, HC_NAME_BYTES) >= HC_NAME_BYTES)
		return -ENAMETOOLONG;
	pthread_mutex_lock(&registry->change);
	file = file_at(registry, id);
	new_dir = hc_dir_at(registry, new_dir_id);
	if (file && file->dir && new_dir)
		err = rename_under_change(registry, file, new_dir, new_name, &replaced);
	pthread_mutex_unlock(&registry->change);
	if (!err)
		*replaced_p = replaced;
	return err;
}

void hc_file_forget(struct hc_registry *registry, uint64_t id)
{
	struct hc_file *file;
	char name[24];

	pthread_mutex_lock(&registry->change);
	file = file_at(registry, id);
	hc_assert(!file || !file->dir);
	if (file) {
		hc_registry_write(registry);
		hc_map_remove(&registry->file_ids_map, &file->by_id);
		move_charge_locked(file, NULL);
		hc_registry_done(registry);
	}
	pthread_mutex_unlock(&registry->change);
	if (!file)
		return;
	hc_file_free(file);
	hc_attrs_drop(registry->attrs, HC_ATTRS_FILE, id);
	content_name(id, name);
	if (registry->files_fd >= 0 && unlinkat(registry->files_fd, name, 0) && errno != ENOENT)
		hc_warn(HC_REGISTRY_COMPONENT, "%s/files/%s cannot be removed: %m", registry->path,
			name);
}

int hc_file_list(struct hc_registry *registry, uint32_t dir_id, struct hc_file_info **files_p,
		 size_t *n_p)
{
	struct hc_file_info *files = NULL;
	struct hc_dir *dir;
	size_t n = 0;

	hc_registry_read(registry);
	dir = hc_dir_at(registry, dir_id);
	if (dir)
		files = malloc(((size_t)dir->n_files + 1) * sizeof(*files));
	for (struct hc_file *file = files ? dir->files : NULL; file; file = file->next)
		fill_file(file, &files[n++]);
	hc_registry_done(registry);
	if (!files)
		return dir ? -ENOMEM : -ENOENT;
	*files_p = files;
	*n_p = n;
	return 0;
}

uint64_t hc_files_used(struct hc_registry *registry, uint32_t id)
{
	struct hc_space *space = hc_space_at(registry, id);
	uint64_t used;

	hc_registry_read(registry);
	used = space ? space->files_bytes : 0;
	hc_registry_done(registry);
	return used;
}

/* --- at open --- */

static void drop_row(struct hc_registry *registry, uint64_t id, const char *why)
{
	hc_warn(HC_REGISTRY_COMPONENT, "%s/files/%llu: %s: the file is forgotten", registry->path,
		(unsigned long long)id, why);
	if (delete_row(registry, id))
		hc_debug(HC_REGISTRY_COMPONENT, "row of file %llu stays", (unsigned long long)id);
}

int hc_file_load_row(struct hc_registry *registry, uint64_t id, const struct hc_row_file *row)
{
	struct hc_file *file, *old;
	struct hc_dir *dir = row->dir ? hc_dir_at(registry, row->dir) : NULL;
	struct stat st;
	char name[24];
	int err;

	content_name(id, name);
	/* A file that was never opened has no contents: it is empty. */
	if (fstatat(registry->files_fd, name, &st, AT_SYMLINK_NOFOLLOW)) {
		st.st_size = 0;
		st.st_mode = S_IFREG;
	}
	if (!dir || !S_ISREG(st.st_mode) || hc_dir_check_name(registry, dir, row->name) ||
	    hc_dir_child(registry, dir, row->name)) {
		drop_row(registry, id, "its name or contents cannot be used");
		return 0;
	}
	if ((uint64_t)st.st_size < row->size_bytes)
		hc_warn(HC_REGISTRY_COMPONENT, "%s/files/%s (%s): shorter than it was",
			registry->path, name, row->name);
	err = file_new(registry, row->name, &file);
	if (err)
		return err;
	file->id = id;
	file->node_id = hc_counter_next(registry, &registry->node_ids);
	file->owner = (struct hc_owner){row->uid, row->gid, row->mode};
	file->size_bytes = (uint64_t)st.st_size;
	file->mtime_ns = row->mtime_ns;
	/* Rows come in order of ids: a replacement that was cut short. */
	old = hc_file_named(registry, dir, row->name);
	if (old) {
		unname_locked(registry, old);
		if (delete_row(registry, old->id))
			hc_debug(HC_REGISTRY_COMPONENT, "row of a replaced file stays");
		hc_map_remove(&registry->file_ids_map, &old->by_id);
		move_charge_locked(old, NULL);
		hc_file_free(old);
	}
	add_locked(registry, file, dir);
	return 0;
}

void hc_files_sweep(struct hc_registry *registry)
{
	int fd = openat(registry->files_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	uint64_t id;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		if (hc_u64_parse(entry->d_name, &id) || file_at(registry, id))
			continue;
		if (unlinkat(registry->files_fd, entry->d_name, 0))
			hc_warn(HC_REGISTRY_COMPONENT, "%s/files/%s: cannot be removed: %m",
				registry->path, entry->d_name);
	}
	closedir(dir);
}
