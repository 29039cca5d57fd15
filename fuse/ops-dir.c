/* SPDX-License-Identifier: Apache-2.0 */
/* Listings. Which directories, files and bodies there are is taken when a directory is read from
 * the beginning; pages are taken piece by piece as they are wanted: there may be millions, and the
 * first name must not wait for the last. Names are made one by one while they are handed out, what
 * vanished meanwhile is passed over. Positions are stable within a handle, which remembers what it
 * took. */
#include "fuse/internal.h"

/* Pages taken at once. */
#define HC_LISTING_PIECE 512u

struct hc_listing {
	struct hc_listing *next, **place; /* among the open ones, under their lock */
	pthread_mutex_t lock;
	uint64_t ino;
	uint64_t parent;
	bool loaded;
	struct hc_virtual_item *virtuals;
	size_t n_virtuals;
	struct hc_dir_info *dirs;
	size_t n_dirs;
	struct hc_file_info *files;
	size_t n_files;
	struct hc_body **bodies;
	size_t n_bodies;
	struct hc_dir_cursor cursor;
	struct hc_dir_item *pages; /* what the cursor has passed */
	size_t n_pages, pages_room;
};

/* The lock is a leaf. */
struct hc_listings {
	pthread_mutex_t lock;
	struct hc_listing *first;
};

struct hc_item {
	char name[HC_NAME_BYTES];
	struct fuse_entry_param entry;
	struct hc_fnode *fnode; /* to be remembered when it is handed out */
};

static void unload(struct hc_fs *fs, struct hc_listing *list)
{
	if (list->loaded && list->ino < HC_INO_VIRTUAL)
		hc_node_dir_end(fs->node, &list->cursor);
	for (size_t i = 0; i < list->n_bodies; i++)
		hc_body_put(list->bodies[i]);
	free(list->virtuals);
	free(list->dirs);
	free(list->files);
	free(list->bodies);
	free(list->pages);
	list->virtuals = NULL;
	list->dirs = NULL;
	list->files = NULL;
	list->bodies = NULL;
	list->pages = NULL;
	list->n_virtuals = list->n_dirs = list->n_files = list->n_bodies = 0;
	list->n_pages = list->pages_room = 0;
	list->loaded = false;
}

static int load(struct hc_fs *fs, struct hc_listing *list)
{
	uint32_t dir = (uint32_t)list->ino;
	struct hc_dir_info info;
	int err;

	unload(fs, list);
	if (list->ino >= HC_INO_VIRTUAL) {
		list->parent = HC_DIR_ROOT;
		err = hc_virtual_list(fs, list->ino, &list->virtuals, &list->n_virtuals);
	} else {
		err = hc_dir_get(fs->registry, dir, &info);
		list->parent = info.parent ? info.parent : HC_DIR_ROOT;
		if (!err)
			err = hc_dir_list(fs->registry, dir, &list->dirs, &list->n_dirs);
		if (!err)
			err = hc_file_list(fs->registry, dir, &list->files, &list->n_files);
		/* Bodies before pages: what is published in between is a page, and no body any
		 * more. */
		if (!err)
			err = hc_bodies_list(fs, dir, &list->bodies, &list->n_bodies);
		if (!err)
			hc_node_dir_begin(fs->node, &list->cursor, dir);
	}
	list->loaded = !err;
	return err;
}

/* False at the end of the directory. */
static bool take_pages(struct hc_fs *fs, struct hc_listing *list, int *err_p)
{
	size_t room = hc_max_u64(2 * list->pages_room, HC_LISTING_PIECE), n;
	struct hc_dir_item *pages;

	if (list->ino >= HC_INO_VIRTUAL)
		return false;
	if (list->n_pages == list->pages_room) {
		pages = realloc(list->pages, room * sizeof(*pages));
		if (!pages) {
			*err_p = -ENOMEM;
			return false;
		}
		list->pages = pages;
		list->pages_room = room;
	}
	n = hc_node_dir_read(fs->node, &list->cursor, list->pages + list->n_pages,
			     hc_min_u64(list->pages_room - list->n_pages, HC_LISTING_PIECE));
	list->n_pages += n;
	return n > 0;
}

static void plain(struct hc_item *item, uint64_t ino, mode_t mode)
{
	item->entry.attr.st_ino = ino;
	item->entry.attr.st_mode = mode;
}

static void set_name(struct hc_item *item, const char *name)
{
	snprintf(item->name, sizeof(item->name), "%s", name);
}

/* An entry of what was looked up already. */
static bool there_item(struct hc_fs *fs, struct hc_item *item, const struct hc_there *there,
		       bool plus)
{
	if (plus)
		return hc_there_entry(fs, there, &item->entry, &item->fnode) == 0;
	switch (there->kind) {
	case HC_F_DIR:
		plain(item, there->dir.id, S_IFDIR);
		break;
	case HC_F_FILE:
		plain(item, hc_tree_file_ino(fs->tree, there->file.id), S_IFREG);
		break;
	case HC_F_PAGE:
		plain(item, there->page.node_id ? there->page.node_id : there->page.sequence + 1,
		      S_IFREG);
		break;
	default:
		plain(item, there->body->ino, S_IFREG);
		break;
	}
	return true;
}

static bool dir_item(struct hc_fs *fs, struct hc_listing *list, size_t i, struct hc_item *item,
		     bool plus)
{
	struct hc_there there = {.kind = HC_F_DIR};

	set_name(item, list->dirs[i].name);
	/* Attributes of this moment: the listing may be old. */
	if (hc_dir_get(fs->registry, list->dirs[i].id, &there.dir))
		return false;
	return there_item(fs, item, &there, plus);
}

static bool file_item(struct hc_fs *fs, struct hc_listing *list, size_t i, struct hc_item *item,
		      bool plus)
{
	struct hc_there there = {.kind = HC_F_FILE};

	set_name(item, list->files[i].name);
	if (hc_file_get(fs->registry, list->files[i].id, &there.file))
		return false;
	there.busy = hc_bodies_busy(fs, (uint32_t)list->ino, item->name);
	return there_item(fs, item, &there, plus);
}

static bool body_item(struct hc_fs *fs, struct hc_listing *list, size_t i, struct hc_item *item,
		      bool plus)
{
	struct hc_there there = {.kind = HC_F_BODY, .body = list->bodies[i]};
	uint32_t dir;

	if (!hc_body_name(fs, there.body, &dir, item->name) || dir != (uint32_t)list->ino)
		return false;
	return there_item(fs, item, &there, plus);
}

static bool page_item(struct hc_fs *fs, struct hc_listing *list, size_t i, struct hc_item *item,
		      bool plus)
{
	const struct hc_dir_item *page = &list->pages[i];
	struct hc_there there = {.kind = HC_F_PAGE};
	uint64_t node_id;

	if (hc_node_page_name(fs->node, page->number, page->sequence, item->name, &node_id))
		return false;
	if (!plus) {
		/* Names alone tell nothing of bodies. */
		plain(item, node_id ? node_id : page->sequence + 1, S_IFREG);
		return true;
	}
	if (hc_node_stat_body(fs->node, page->number, page->sequence, &there.page))
		return false;
	if (!there.page.node_id && hc_node_stat(fs->node, &there.page.key, true, &there.page))
		return false;
	there.busy = hc_bodies_busy(fs, (uint32_t)list->ino, item->name);
	return there_item(fs, item, &there, plus);
}

static bool virtual_item(struct hc_fs *fs, struct hc_listing *list, size_t i, struct hc_item *item)
{
	set_name(item, list->virtuals[i].name);
	plain(item, list->virtuals[i].ino, list->virtuals[i].is_dir ? S_IFDIR : S_IFREG);
	item->entry.ino = list->virtuals[i].ino;
	return hc_virtual_attr(fs, item->entry.ino, &item->entry.attr) == 0;
}

enum hc_step { HC_STEP_ITEM, HC_STEP_SKIP, HC_STEP_END };

/* The item at a position: the dots, .hicache in the root, then each kind in turn. */
static enum hc_step item_at(struct hc_fs *fs, struct hc_listing *list, uint64_t at,
			    struct hc_item *item, bool plus, int *err_p)
{
	item->name[0] = 0;
	item->fnode = NULL;
	memset(&item->entry, 0, sizeof(item->entry));
	if (at < 2) {
		set_name(item, at ? ".." : ".");
		plain(item, at ? list->parent : list->ino, S_IFDIR);
		return HC_STEP_ITEM;
	}
	at -= 2;
	if (list->ino == HC_DIR_ROOT) {
		if (at == 0) {
			set_name(item, ".hicache");
			plain(item, HC_VIRTUAL_ROOT, S_IFDIR);
			item->entry.ino = HC_VIRTUAL_ROOT;
			return hc_virtual_attr(fs, HC_VIRTUAL_ROOT, &item->entry.attr)
				       ? HC_STEP_SKIP
				       : HC_STEP_ITEM;
		}
		at--;
	}
	if (at < list->n_virtuals)
		return virtual_item(fs, list, at, item) ? HC_STEP_ITEM : HC_STEP_SKIP;
	at -= list->n_virtuals;
	if (at < list->n_dirs)
		return dir_item(fs, list, at, item, plus) ? HC_STEP_ITEM : HC_STEP_SKIP;
	at -= list->n_dirs;
	if (at < list->n_files)
		return file_item(fs, list, at, item, plus) ? HC_STEP_ITEM : HC_STEP_SKIP;
	at -= list->n_files;
	if (at < list->n_bodies)
		return body_item(fs, list, at, item, plus) ? HC_STEP_ITEM : HC_STEP_SKIP;
	at -= list->n_bodies;
	/* A position beyond what was taken is of a later piece. */
	while (at >= list->n_pages && take_pages(fs, list, err_p))
		;
	if (at < list->n_pages)
		return page_item(fs, list, at, item, plus) ? HC_STEP_ITEM : HC_STEP_SKIP;
	return HC_STEP_END;
}

/* Bytes added, 0 when there is no room. */
static size_t add(struct hc_fs *fs, fuse_req_t req, char *buf, size_t room, struct hc_item *item,
		  off_t next, bool plus)
{
	size_t need;

	if (!plus) {
		need = fuse_add_direntry(req, buf, room, item->name, &item->entry.attr, next);
		return need <= room ? need : 0;
	}
	need = fuse_add_direntry_plus(req, buf, room, item->name, &item->entry, next);
	if (need <= room)
		return need;
	/* Not handed out: not remembered. */
	if (item->fnode)
		hc_tree_forget(fs->tree, item->entry.ino, 1);
	return 0;
}

static void reply_list(fuse_req_t req, size_t size, off_t offset, struct fuse_file_info *fi,
		       bool plus)
{
	struct hc_listing *list = (struct hc_listing *)(uintptr_t)fi->fh;
	struct hc_fs *fs = hc_req_fs(req);
	hc_autofree char *buf = malloc(size ? size : 1);
	struct hc_item item;
	size_t used = 0;
	int err = buf ? 0 : -ENOMEM;

	pthread_mutex_lock(&list->lock);
	if (!err && (!list->loaded || !offset))
		err = load(fs, list);
	for (uint64_t at = (uint64_t)offset; !err; at++) {
		enum hc_step step = item_at(fs, list, at, &item, plus, &err);
		size_t n;

		if (step == HC_STEP_SKIP)
			continue;
		if (step == HC_STEP_END)
			break;
		n = add(fs, req, buf + used, size - used, &item, (off_t)at + 1, plus);
		hc_tree_put(fs->tree, item.fnode);
		if (!n)
			break;
		used += n;
	}
	pthread_mutex_unlock(&list->lock);
	if (err)
		hc_reply_err(req, err == -ENOENT ? -ESTALE : err);
	else
		fuse_reply_buf(req, buf, used);
}

int hc_listings_create(struct hc_listings **listings_p)
{
	struct hc_listings *listings = hc_zalloc(sizeof(*listings));

	if (!listings)
		return -ENOMEM;
	pthread_mutex_init(&listings->lock, NULL);
	*listings_p = listings;
	return 0;
}

void hc_listings_destroy(struct hc_listings *listings)
{
	if (!listings)
		return;
	pthread_mutex_destroy(&listings->lock);
	free(listings);
}

static void listing_add(struct hc_listings *listings, struct hc_listing *list)
{
	pthread_mutex_lock(&listings->lock);
	list->next = listings->first;
	list->place = &listings->first;
	if (list->next)
		list->next->place = &list->next;
	listings->first = list;
	pthread_mutex_unlock(&listings->lock);
}

static void listing_end(struct hc_fs *fs, struct hc_listing *list)
{
	struct hc_listings *listings = fs->listings;

	pthread_mutex_lock(&listings->lock);
	*list->place = list->next;
	if (list->next)
		list->next->place = list->place;
	pthread_mutex_unlock(&listings->lock);
	unload(fs, list);
	pthread_mutex_destroy(&list->lock);
	free(list);
}

void hc_listings_end(struct hc_fs *fs)
{
	while (fs->listings->first)
		listing_end(fs, fs->listings->first);
}

void hc_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_listing *list;

	if (ino >= HC_INO_FILES) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	list = hc_zalloc(sizeof(*list));
	if (!list) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (ino < HC_INO_VIRTUAL)
		hc_bodies_park_dir(fs, (uint32_t)ino);
	pthread_mutex_init(&list->lock, NULL);
	list->ino = ino;
	listing_add(fs->listings, list);
	fi->fh = (uintptr_t)list;
	if (fuse_reply_open(req, fi))
		listing_end(fs, list);
}

void hc_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		   struct fuse_file_info *fi)
{
	reply_list(req, size, offset, fi, false);
}

void hc_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	reply_list(req, size, offset, fi, true);
}

void hc_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);

	listing_end(fs, (struct hc_listing *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

/* Directories are durable before mkdir answers. */
void hc_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	fuse_reply_err(req, 0);
}
