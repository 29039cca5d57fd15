/* SPDX-License-Identifier: Apache-2.0 */
/* What a name shows: bodies first, then pages, directories and ordinary files; LOOKUP and FORGET.
 */
#include "fuse/internal.h"
#include "util/clock.h"

#define HC_LOOK_TRIES 8 /* names of others move, too */

bool hc_is_virtual_name(uint64_t parent, const char *name)
{
	return parent == HC_DIR_ROOT && strcmp(name, ".hicache") == 0;
}

int hc_dir_of_ino(struct hc_fs *fs, uint64_t ino, struct hc_dir_info *info_p)
{
	if (ino >= HC_INO_FILES)
		return -ENOTDIR;
	if (ino >= HC_INO_VIRTUAL)
		return -EACCES;
	return hc_dir_get(fs->registry, (uint32_t)ino, info_p) ? -ESTALE : 0;
}

static bool look_page(struct hc_fs *fs, uint32_t dir, const char *name, struct hc_there *there)
{
	struct hc_key key = there->id.key;
	bool opaque;

	if (there->id.kind == HC_NAME_ORDINARY) {
		/* Where it outgrew its limit it is a page, named by its path. */
		if (hc_name_resolve_page(fs->registry, dir, name, false, &key, &opaque))
			return false;
	} else if (!there->id.known) {
		return false;
	}
	if (hc_node_stat(fs->node, &key, true, &there->page))
		return false;
	there->kind = HC_F_PAGE;
	return true;
}

static bool look_dir(struct hc_fs *fs, uint32_t dir, const char *name, struct hc_there *there)
{
	if (hc_dir_find(fs->registry, dir, name, &there->dir))
		return false;
	there->kind = HC_F_DIR;
	return true;
}

static bool look_file(struct hc_fs *fs, uint32_t dir, const char *name, struct hc_there *there)
{
	if (hc_file_find(fs->registry, dir, name, &there->file))
		return false;
	there->kind = HC_F_FILE;
	return true;
}

static int look_once(struct hc_fs *fs, uint32_t dir, const char *name, int tid,
		     struct hc_there *there)
{
	int err = hc_name_resolve(fs->registry, dir, name, false, &there->id);

	if (err)
		return err;
	there->is_page_name = there->id.kind == HC_NAME_PAGE || there->id.kind == HC_NAME_OPAQUE;
	there->body = hc_bodies_show(fs, dir, name, tid, &there->busy);
	if (there->body) {
		there->kind = HC_F_BODY;
		return 0;
	}
	/* The likely one first. */
	if (there->is_page_name)
		(void)(look_page(fs, dir, name, there) || look_dir(fs, dir, name, there) ||
		       look_file(fs, dir, name, there));
	else
		(void)(look_dir(fs, dir, name, there) || look_file(fs, dir, name, there) ||
		       (there->id.kind == HC_NAME_ORDINARY && look_page(fs, dir, name, there)));
	return 0;
}

int hc_there_look(struct hc_fs *fs, uint32_t dir, const char *name, int tid,
		  struct hc_there *there_p)
{
	unsigned before, now = atomic_load(&fs->bodies.n_moves);
	int err = 0;

	memset(there_p, 0, offsetof(struct hc_there, dir));
	if (strlen(name) >= HC_NAME_BYTES)
		return -ENAMETOOLONG;
	/* One kind is looked at after the other: what went past meanwhile, as a page does that a
	 * body replaces, is never a miss. */
	for (int i = 0; i < HC_LOOK_TRIES; i++) {
		before = now;
		err = look_once(fs, dir, name, tid, there_p);
		now = atomic_load(&fs->bodies.n_moves);
		if (err || there_p->kind != HC_F_NONE || now == before)
			break;
	}
	return err;
}

void hc_there_end(struct hc_there *there)
{
	hc_body_put(there->body);
	there->body = NULL;
}

int hc_there_entry(struct hc_fs *fs, const struct hc_there *there, struct fuse_entry_param *entry_p,
		   struct hc_fnode **fnode_p)
{
	struct fuse_entry_param entry = {.attr_timeout = fs->timeout_s,
					 .entry_timeout = there->busy ? 0 : fs->timeout_s};
	struct hc_fnode *fnode = NULL;
	struct hc_fview view;

	switch (there->kind) {
	case HC_F_DIR:
		entry.ino = there->dir.id;
		hc_attr_dir(fs, &there->dir, &entry.attr);
		break;
	case HC_F_FILE:
		fnode = hc_tree_file(fs->tree, there->file.id);
		if (fnode)
			hc_attr_file(fs, hc_fnode_ino(fnode), &there->file, &entry.attr);
		break;
	case HC_F_PAGE:
		fnode = hc_tree_page(fs->tree, &there->page);
		if (fnode) {
			hc_tree_view(fs->tree, fnode, &view);
			hc_attr_page(fs, &there->page, view.atime_ns, &entry.attr);
			hc_body_put(view.body);
		}
		break;
	default:
		fnode = hc_tree_pin(fs->tree, there->body->fnode);
		hc_attr_body(fs, there->body, &entry.attr);
		entry.attr_timeout = 0;
		entry.entry_timeout = 0;
		break;
	}
	if (there->kind != HC_F_DIR) {
		if (!fnode)
			return -ENOMEM;
		entry.ino = hc_fnode_ino(fnode);
		hc_tree_remember(fs->tree, fnode);
	}
	*entry_p = entry;
	*fnode_p = fnode;
	return 0;
}

static int copy_there(struct hc_fs *fs, const struct hc_there *there, struct hc_body *body)
{
	hc_autofd int fd = -1;
	int err = 0;

	if (there->kind == HC_F_BODY)
		return hc_body_copy_from(body, there->body);
	if (there->kind == HC_F_FILE) {
		err = hc_file_open(fs->registry, there->file.id, &fd);
		if (!err)
			err = hc_body_copy_file(body, fd);
	}
	return err;
}

/* As in a file that is written anew: its attributes stay. Without memory they do not. */
static void copy_attrs(struct hc_fs *fs, const struct hc_there *there, struct hc_body *body)
{
	struct hc_attrs *attrs = hc_registry_attrs(fs->registry);
	struct hc_attrset set = {0};

	if (there->kind == HC_F_PAGE) {
		hc_ignore(hc_attrs_get(attrs, HC_ATTRS_PAGE, there->page.sequence, &set));
	} else if (there->kind == HC_F_FILE) {
		hc_ignore(hc_attrs_get(attrs, HC_ATTRS_FILE, there->file.id, &set));
	} else if (there->kind == HC_F_BODY) {
		pthread_rwlock_rdlock(&there->body->rw);
		hc_ignore(hc_attrset_copy(there->body->attrs.bytes, there->body->attrs.n_bytes,
					  &set));
		pthread_rwlock_unlock(&there->body->rw);
	}
	if (!set.n_bytes)
		return;
	pthread_rwlock_wrlock(&body->rw);
	if (body->attrs.n_bytes)
		hc_attrset_fini(&set);
	else
		body->attrs = set;
	pthread_rwlock_unlock(&body->rw);
}

int hc_there_own(struct hc_fs *fs, const struct hc_there *there, uint32_t dir, const char *name,
		 const struct hc_opener *opener, const struct hc_owner *owner, bool trunc,
		 bool pending, struct hc_body **body_p)
{
	struct hc_body_make make = {.dir = dir,
				    .name = name,
				    .temporary = there->id.kind == HC_NAME_TEMPORARY,
				    .created = there->kind == HC_F_NONE,
				    .pending_tid = pending ? opener->tid : 0,
				    .maker = *opener,
				    .owner = *owner};
	struct hc_dir_info info;
	uint32_t series = there->id.known ? there->id.key.series : 0;
	int err;

	err = hc_dir_get(fs->registry, dir, &info);
	if (err)
		return -ENOENT;
	make.space = info.space;
	make.size_hint = hc_size_guess(fs, series, opener->tgid, dir);
	if (there->kind == HC_F_PAGE) {
		make.size_hint = there->page.size_bytes;
		if (!trunc) {
			make.source_key = there->page.key;
			make.source_bytes = there->page.size_bytes;
		}
	}
	err = hc_body_create(fs, &make, body_p);
	if (!err)
		copy_attrs(fs, there, *body_p);
	if (!err && !trunc) {
		err = copy_there(fs, there, *body_p);
		if (err) {
			hc_body_drop(fs, *body_p);
			hc_body_put(*body_p);
		}
	}
	return err;
}

bool hc_there_owner(const struct hc_there *there, struct hc_owner *owner_p)
{
	switch (there->kind) {
	case HC_F_PAGE:
		*owner_p = there->page.owner;
		return true;
	case HC_F_FILE:
		*owner_p = there->file.owner;
		return true;
	case HC_F_BODY:
		pthread_rwlock_rdlock(&there->body->rw);
		*owner_p = there->body->owner;
		pthread_rwlock_unlock(&there->body->rw);
		return true;
	default:
		return false;
	}
}

/* A name that shows this thread something that is not its own, although its OPEN was sent round for
 * its own. */
static bool wants_own(struct hc_fs *fs, const struct hc_there *there, int tid)
{
	bool wants;

	if (there->kind == HC_F_PAGE)
		return true;
	if (there->kind == HC_F_FILE)
		return there->is_page_name;
	if (there->kind != HC_F_BODY)
		return false;
	pthread_mutex_lock(&fs->bodies.lock);
	wants = there->body->state != HC_B_SHARED && there->body->pending_tid != tid;
	pthread_mutex_unlock(&fs->bodies.lock);
	return wants;
}

static int second_writer(struct hc_fs *fs, struct hc_there *there, uint32_t dir, const char *name,
			 int tid, enum hc_mark_kind mark)
{
	struct hc_opener opener;
	struct hc_owner owner;
	struct hc_body *body;
	int err;

	hc_opener_of(fs, tid, &opener);
	if (!hc_there_owner(there, &owner))
		return -ESTALE;
	err = hc_there_own(fs, there, dir, name, &opener, &owner, mark == HC_MARK_TRUNC, true,
			   &body);
	if (err)
		return err;
	hc_fs_count(fs, second_writers);
	hc_there_end(there);
	there->body = body;
	there->kind = HC_F_BODY;
	there->busy = true;
	return 0;
}

static void reply_there(struct hc_fs *fs, fuse_req_t req, uint32_t dir, const char *name,
			const struct hc_there *there)
{
	struct fuse_entry_param entry;
	struct hc_fnode *fnode;
	int err;

	if (there->kind == HC_F_NONE) {
		if (there->busy || there->id.kind == HC_NAME_TEMPORARY || fs->timeout_s <= 0) {
			fuse_reply_err(req, ENOENT);
			return;
		}
		memset(&entry, 0, sizeof(entry));
		entry.entry_timeout = fs->timeout_s;
		fuse_reply_entry(req, &entry);
		return;
	}
	err = hc_there_entry(fs, there, &entry, &fnode);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	/* The OPEN that follows may write a body of its own behind this node, and publish it. */
	if (fnode && hc_mark_show(fs, hc_req_tid(req), dir, name, entry.ino))
		entry.entry_timeout = 0;
	/* An interrupted caller takes no reference. */
	if (fuse_reply_entry(req, &entry))
		hc_tree_forget(fs->tree, entry.ino, 1);
	hc_tree_put(fs->tree, fnode);
}

static void lookup_virtual(struct hc_fs *fs, fuse_req_t req, uint64_t parent, const char *name)
{
	struct fuse_entry_param entry = {.ino = HC_VIRTUAL_ROOT};
	int err = 0;

	if (parent >= HC_INO_VIRTUAL)
		err = hc_virtual_lookup(fs, parent, name, &entry.ino);
	if (!err)
		err = hc_virtual_attr(fs, entry.ino, &entry.attr);
	if (err)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &entry);
}

void hc_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct hc_fs *fs = hc_req_fs(req);
	int tid = hc_req_tid(req), err = 0;
	uint32_t dir = (uint32_t)parent;
	enum hc_mark_kind mark;
	struct hc_there there;

	hc_fs_count(fs, lookups);
	if (hc_is_virtual_name(parent, name) ||
	    (parent >= HC_INO_VIRTUAL && parent < HC_INO_FILES)) {
		lookup_virtual(fs, req, parent, name);
		return;
	}
	if (parent >= HC_INO_FILES) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	hc_bodies_park(fs, dir, name);
	err = hc_there_look(fs, dir, name, tid, &there);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	if (there.is_page_name) {
		hc_fs_count(fs, page_lookups);
		if (there.kind == HC_F_NONE)
			hc_fs_count(fs, page_lookups_absent);
	}
	mark = hc_mark_get(fs, tid, dir, name);
	for (int i = 0; mark != HC_MARK_NONE && wants_own(fs, &there, tid); i++) {
		err = second_writer(fs, &there, dir, name, tid, mark);
		if (err != -ESTALE || i == HC_LOOK_TRIES)
			break;
		/* What was to be copied is a page by now. */
		hc_there_end(&there);
		err = hc_there_look(fs, dir, name, tid, &there);
		if (err)
			break;
	}
	/* A body may have come since the name was looked at: then the kernel must not keep this. */
	there.busy = there.busy || hc_bodies_busy(fs, dir, name);
	if (err)
		hc_reply_err(req, err);
	else
		reply_there(fs, req, dir, name, &there);
	hc_there_end(&there);
}

void hc_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	hc_tree_forget(hc_req_fs(req)->tree, ino, n);
	fuse_reply_none(req);
}

void hc_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		hc_tree_forget(hc_req_fs(req)->tree, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}
