/* SPDX-License-Identifier: Apache-2.0 */
/* A body becomes what its final name says: a page of the node, an ordinary file, or a scratch file
 * that stays a body. Nothing is lost on the way: until the page or file is there, the body serves
 * its readers. */
#include "fuse/internal.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/log.h"

#define HC_COPY_BYTES (64 * HC_KIB)

static int path_of(struct hc_fs *fs, uint32_t dir, const char *name, char path[HC_PATH_BYTES])
{
	char parent[HC_PATH_BYTES];
	uint32_t space;
	int err, n;

	err = hc_dir_path(fs->registry, dir, parent, &space);
	if (err)
		return err;
	n = snprintf(path, HC_PATH_BYTES, "%s%s%s", parent, *parent ? "/" : "", name);
	return n < HC_PATH_BYTES ? 0 : -ENAMETOOLONG;
}

bool hc_remove_page(struct hc_fs *fs, const struct hc_key *key)
{
	bool removed;

	hc_fs_quiet = true;
	removed = hc_node_remove(fs->node, key->series, &key->hash, 1);
	hc_fs_quiet = false;
	return removed;
}

static void remove_file(struct hc_fs *fs, uint32_t dir, const char *name)
{
	uint64_t id;

	if (hc_file_remove(fs->registry, dir, name, &id) == 0)
		hc_file_forget(fs->registry, id);
}

static void remove_page(struct hc_fs *fs, uint32_t dir, const char *name, uint64_t but_ino)
{
	struct hc_page_info info;
	struct hc_key key;
	bool opaque;

	if (hc_name_resolve_page(fs->registry, dir, name, false, &key, &opaque) ||
	    hc_node_stat(fs->node, &key, false, &info) || (but_ino && info.node_id == but_ino))
		return;
	hc_remove_page(fs, &key);
}

void hc_name_clear(struct hc_fs *fs, uint32_t dir, const char *name, uint64_t but_ino,
		   uint64_t but_file)
{
	struct hc_file_info file;

	remove_page(fs, dir, name, but_ino);
	if (hc_file_find(fs->registry, dir, name, &file) == 0 && file.id != but_file)
		remove_file(fs, dir, name);
}

/* rw held. */
static int copy_out(struct hc_body *body, int fd, uint64_t size_bytes)
{
	hc_autofree char *buf = malloc(HC_COPY_BYTES);
	int err = buf ? 0 : -ENOMEM;

	for (uint64_t offset = 0; !err && offset < size_bytes; offset += HC_COPY_BYTES) {
		size_t n = hc_min_u64(HC_COPY_BYTES, size_bytes - offset), got = 0;

		err = hc_fill_read(body->fill, buf, n, offset, &got);
		if (!err)
			err = got == n ? hc_pwrite_full(fd, buf, n, (off_t)offset) : -EIO;
	}
	return err;
}

/* rw held for writing. Replaces a file of that name; a page of that name goes. */
static int to_file(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		   uint64_t *file_p)
{
	uint64_t size = hc_fill_size(body->fill), replaced = 0, id;
	struct hc_file_info info;
	hc_autofd int fd = -1;
	int err;

	err = hc_file_make(fs->registry, dir, name, &body->owner, &info, &replaced);
	if (err)
		return err;
	err = hc_file_open(fs->registry, info.id, &fd);
	if (!err)
		err = copy_out(body, fd, size);
	if (!err) {
		info.size_bytes = size;
		info.mtime_ns = body->mtime_ns;
		err = hc_file_set(fs->registry, &info, true, HC_DIR_SET_MTIME);
	}
	if (!err && body->attrs.n_bytes)
		err = hc_attrs_put(hc_registry_attrs(fs->registry), HC_ATTRS_FILE, info.id,
				   &body->attrs, true);
	if (!err && atomic_load(&body->synced))
		err = fdatasync(fd) ? -errno : 0;
	if (replaced)
		hc_file_forget(fs->registry, replaced);
	if (err) {
		if (hc_file_remove(fs->registry, dir, name, &id) == 0)
			hc_file_forget(fs->registry, id);
		return err;
	}
	atomic_fetch_add(&fs->bodies.n_moves, 1);
	remove_page(fs, dir, name, 0);
	hc_fill_discard(body->fill);
	body->fill = NULL;
	hc_attrset_fini(&body->attrs);
	body->fd = hc_steal_fd(&fd);
	hc_tree_become_file(fs->tree, body->fnode, info.id);
	*file_p = info.id;
	return 0;
}

/* Whoever has the body open has the file open from now on, which may grow, shrink and be a body
 * again: one handle of it for all of them, until the last is closed. A file that went already stays
 * as it was. */
static void join_file(struct hc_fs *fs, struct hc_body *body, uint64_t file)
{
	struct hc_openfile *of;
	bool is_open;

	pthread_mutex_lock(&fs->bodies.lock);
	is_open = body->n_opens;
	pthread_mutex_unlock(&fs->bodies.lock);
	if (is_open && hc_openfile_open(fs, body->fnode, file, false, false, &of) == 0)
		atomic_store(&body->of, of);
}

/* Handles beside the one whose RELEASE settles it; a rename has none of its own. */
static bool has_readers(struct hc_fs *fs, struct hc_body *body)
{
	bool has;

	pthread_mutex_lock(&fs->bodies.lock);
	has = body->n_opens > (body->state != HC_B_TEMPORARY);
	pthread_mutex_unlock(&fs->bodies.lock);
	return has;
}

/* rw held for writing. The page is there and carries our number: readers go on with it. Replaced
 * already: the number stands for a page that was. A page that went to disk by itself is read from
 * its file, which the body has open. */
static void adopt_page(struct hc_fs *fs, struct hc_body *body, const struct hc_key *key,
		       uint64_t size_bytes)
{
	struct hc_acquire how = {.series = key->series, .uncounted = true};
	struct hc_page_info info;
	size_t n = 0;

	if (has_readers(fs, body))
		how.deadline_ns = hc_clock_now_ns() + fs->budget_ns;
	if (hc_node_stat(fs->node, key, true, &info) || info.node_id != body->ino) {
		info = (struct hc_page_info){.key = *key,
					     .entry = HC_ENTRY_NONE,
					     .size_bytes = size_bytes,
					     .mtime_ns = body->mtime_ns,
					     .owner = body->owner};
	} else if (info.on_disk && body->fd >= 0 && (how.deadline_ns || hc_pass_is_on(fs))) {
		/* What is open is no victim; the bytes stay for those who come from here on, too.
		 */
		if (!hc_pass_hold(fs, body->ino, info.entry, info.sequence) && how.deadline_ns)
			body->has_hold =
				!hc_node_hold(fs->node, info.entry, info.sequence, &body->hold);
	} else if (hc_node_acquire(fs->node, &how, &key->hash, 1, &body->page, &n) == 0 && n == 1) {
		body->has_page = body->page.sequence == info.sequence;
		if (!body->has_page)
			hc_node_release(fs->node, &body->page, 1);
	}
	hc_tree_become_page(fs->tree, body->fnode, &info);
}

/* rw held for writing. */
static int to_page(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		   const struct hc_name *id)
{
	struct hc_publish item = {.unnamed = true,
				  .replace = true,
				  .quiet = true,
				  .mtime_ns = body->mtime_ns,
				  .node_id = body->moved_ino ? body->moved_ino : body->ino,
				  .owner = body->owner,
				  .dir = dir,
				  .opener = (uint32_t)body->maker.tgid,
				  .thread = (uint32_t)body->maker.tid};
	hc_autofree char *path = malloc(HC_PATH_BYTES);
	uint64_t size = hc_fill_size(body->fill);
	bool opaque = id->kind == HC_NAME_OPAQUE;
	hc_autofd int fd = -1;
	uint16_t disk;
	int err = path ? 0 : -ENOMEM;

	item.key = id->key;
	if (!err && id->kind == HC_NAME_ORDINARY)
		err = hc_name_resolve_page(fs->registry, dir, name, true, &item.key, &opaque);
	if (!err)
		err = path_of(fs, dir, name, path);
	if (err)
		return err;
	item.tree = item.key.series;
	item.opaque_path = opaque ? path : NULL;
	item.attrs = &body->attrs;
	/* Whoever reads the body goes on with it, though the page be replaced at once. */
	if (hc_fill_backing(body->fill, &disk, &fd))
		fd = -1;
	err = hc_fill_publish(body->fill, &item);
	if (err)
		return err;
	body->fill = NULL;
	body->fd = hc_steal_fd(&fd);
	body->source_bytes = size;
	hc_attrset_fini(&body->attrs);
	adopt_page(fs, body, &item.key, size);
	hc_size_learn(fs, item.key.series, body->maker.tgid, dir, size);
	atomic_fetch_add(&fs->bodies.n_moves, 1);
	remove_file(fs, dir, name);
	return 0;
}

static void sync_settled(struct hc_fs *fs, struct hc_body *body)
{
	uint64_t deadline_ns = hc_clock_now_ns() + 20 * HC_NS_PER_S;
	struct hc_fview view;
	int err = 0;

	hc_tree_view(fs->tree, body->fnode, &view);
	if (view.kind == HC_F_PAGE && view.entry != HC_ENTRY_NONE)
		err = hc_node_sync_page(fs->node, view.entry, view.sequence, deadline_ns);
	/* Replaced or removed meanwhile: nothing that could be lost. */
	if (err && err != -ENOENT)
		hc_warn("fuse", "a page that was synced before it had its name is not on disk: %s",
			strerror(-err));
	hc_body_put(view.body);
}

int hc_body_settle(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		   bool renamed, enum hc_settled *settled_p)
{
	enum hc_settled settled = HC_SETTLED_PAGE;
	struct hc_name id;
	uint64_t size, file = 0;
	int err;

	err = hc_name_resolve(fs->registry, dir, name, true, &id);
	if (err)
		return err;
	pthread_rwlock_wrlock(&body->rw);
	err = hc_body_copy_up_locked(body);
	if (!err) {
		size = hc_fill_size(body->fill);
		if (!size || (id.kind == HC_NAME_ORDINARY && size <= HC_FILE_BYTES_MAX))
			settled = HC_SETTLED_FILE;
		else if (size > fs->options.max_page_bytes)
			settled = HC_SETTLED_SCRATCH;
		if (settled == HC_SETTLED_FILE)
			err = to_file(fs, body, dir, name, &file);
		else if (settled == HC_SETTLED_PAGE)
			err = to_page(fs, body, dir, name, &id);
	}
	pthread_rwlock_unlock(&body->rw);
	if (err) {
		hc_debug("fuse", "%s cannot be published: %s", name, strerror(-err));
		return err;
	}
	if (settled == HC_SETTLED_SCRATCH) {
		hc_fs_count(fs, scratch_files);
	} else {
		hc_body_done(fs, body, dir, name, renamed);
		if (settled == HC_SETTLED_FILE)
			join_file(fs, body, file);
		if (atomic_load(&body->synced))
			sync_settled(fs, body);
	}
	*settled_p = settled;
	return 0;
}
