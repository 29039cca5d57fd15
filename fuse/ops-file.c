/* SPDX-License-Identifier: Apache-2.0 */
/* Open, create, read, write, flush, release, fsync, fallocate. What an open answered with success
 * is readable to its end: a page's bytes are held from open to release. */
#include <fcntl.h>
#include <linux/falloc.h>

#include "fuse/internal.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/sysinfo.h"

#define HC_TOUCH_NS HC_NS_PER_S

#define HC_NAMED_TRIES 8

/* --- open --- */

/* One OPEN. What the thread's mark says is read once, at its begin: a mark set while it is answered
 * is for the next one. */
struct hc_ask {
	struct hc_opener opener;
	uint64_t ino;
	bool writer;
	bool trunc;
	bool direct;  /* O_DIRECT */
	bool again;   /* sent round before; the node is what its LOOKUP was told */
	bool sent;    /* it is answered ESTALE, and marked */
	bool entered; /* the way of the handle is chosen */
	int flags;
	/* of the node, as it was told; size 0, mode 0: not known */
	uint64_t size_bytes;
	struct hc_owner owner;
};

/* Somebody else's body, or a page: the kernel is sent round again for an own one. */
static int second_open(struct hc_fs *fs, struct hc_ask *ask)
{
	if (ask->opener.tid && ask->opener.tgid &&
	    hc_mark_set(fs, ask->opener.tid, ask->trunc ? HC_MARK_TRUNC : HC_MARK_WRITE)) {
		ask->sent = true;
		hc_fs_count(fs, stale_opens);
		return -ESTALE;
	}
	hc_fs_count(fs, second_writers_busy);
	return -EBUSY;
}

/* Another body than the one that was looked up serves as well when its size is what was told, and
 * nobody else has the node open as something else: 0 or its sequence, UINT64_MAX: it does not. */
static uint64_t served_as(const struct hc_fview *view, const struct hc_ask *ask,
			  const struct hc_ref *ref)
{
	if (ref->sequence == view->sequence && ask->ino == view->ino)
		return 0;
	return ref->sequence == view->sequence || ref->size_bytes == view->size_bytes
		       ? ref->sequence
		       : UINT64_MAX;
}

/* From memory, where it is brought if need be. */
static int page_in_memory(struct hc_fs *fs, const struct hc_acquire *how,
			  const struct hc_fview *view, const struct hc_ask *ask,
			  struct hc_ref *ref_p, struct hc_way *way_p)
{
	size_t n = 0;
	int err = hc_node_acquire(fs->node, how, &view->key.hash, 1, ref_p, &n);
	uint64_t other;

	if (err || n != 1)
		return -ENOENT;
	other = served_as(view, ask, ref_p);
	if (other == UINT64_MAX || !hc_pass_enter(fs, ask->ino, other, -1, NULL, way_p)) {
		hc_node_release(fs->node, ref_p, 1);
		return -ESTALE;
	}
	/* The kernel has its file, and this handle reads by us. */
	if (way_p->path == HC_PATH_FILE)
		way_p->path = HC_PATH_WATCHED;
	return 0;
}

/* As a file, where it is on disk alone. 0: way_p is FILE, and ref_p has no data. -EAGAIN: from
 * memory; -ENOENT, -ESTALE. */
static int page_on_disk(struct hc_fs *fs, const struct hc_acquire *how, const struct hc_fview *view,
			const struct hc_ask *ask, struct hc_ref *ref_p, struct hc_way *way_p)
{
	int fd = -1, err;
	uint64_t other;

	if (hc_pass_join(fs, view->ino, way_p)) {
		hc_node_touch(fs->node, view->entry, view->sequence, how->opener, how->tree);
		ref_p->size_bytes = view->size_bytes;
		return 0;
	}
	err = hc_node_open_file(fs->node, how, &view->key.hash, ref_p, &fd);
	if (err)
		return err;
	other = served_as(view, ask, ref_p);
	if (other == UINT64_MAX) {
		hc_node_release(fs->node, ref_p, 1);
		err = -ESTALE;
	} else if (!hc_pass_enter(fs, view->ino, other, fd, ref_p, way_p)) {
		err = -ESTALE;
	} else if (way_p->path != HC_PATH_FILE) {
		hc_pass_leave(fs, way_p);
		err = -EAGAIN;
	}
	close(fd);
	return err;
}

/* O_DIRECT would go past the page cache, and wants aligned sizes: memory serves it better. A node
 * that another one's file is opened by is not in the table of that file: memory, too. */
static int page_hold(struct hc_fs *fs, const struct hc_fview *view, const struct hc_ask *ask,
		     struct hc_ref *ref_p, struct hc_way *way_p)
{
	struct hc_acquire how = {.series = view->key.series,
				 .opener = (uint32_t)ask->opener.tgid,
				 .thread = (uint32_t)ask->opener.tid,
				 .tree = view->key.series,
				 .deadline_ns = hc_clock_now_ns() + fs->budget_ns};
	struct hc_page_info info;
	int err = -EAGAIN;

	if (!ask->direct && ask->ino == view->ino && hc_pass_is_on(fs))
		err = page_on_disk(fs, &how, view, ask, ref_p, way_p);
	if (err == -EAGAIN)
		err = page_in_memory(fs, &how, view, ask, ref_p, way_p);
	/* There, but not deliverable in time: a miss, decided. Gone or replaced, though somebody
	 * may hold it still: the name is asked again. */
	if (err == -ENOENT &&
	    (hc_node_stat(fs->node, &view->key, false, &info) || info.sequence != view->sequence))
		err = -ESTALE;
	return err;
}

static int open_page(struct hc_fs *fs, struct hc_fnode *fnode, const struct hc_fview *view,
		     const struct hc_ask *ask, struct hc_handle **handle_p)
{
	struct hc_ref ref = {.entry = HC_ENTRY_NONE};
	struct hc_handle_attr attr = {0};
	struct hc_way way = {0};
	struct hc_page_info info;
	struct hc_handle *handle;
	int err;

	err = page_hold(fs, view, ask, &ref, &way);
	if (err)
		return err;
	attr.size_bytes = ref.size_bytes;
	if (hc_node_stat(fs->node, &view->key, false, &info) == 0) {
		attr.owner = info.owner;
		attr.mtime_ns = info.mtime_ns;
	}
	handle = hc_handle_new(fs, HC_H_PAGE, fnode, false, &attr);
	if (!handle) {
		if (way.path != HC_PATH_FILE)
			hc_node_release(fs->node, &ref, 1);
		hc_pass_leave(fs, &way);
		return -ENOMEM;
	}
	if (way.path != HC_PATH_FILE)
		handle->ref = ref;
	handle->way = way;
	atomic_store(&handle->touched_ns, hc_clock_now_ns());
	hc_tree_opened(fs->tree, fnode, hc_clock_wall_ns());
	*handle_p = handle;
	return 0;
}

static int open_own(struct hc_fs *fs, struct hc_fnode *fnode, struct hc_body *body,
		    const struct hc_opener *opener, bool writer, bool trunc,
		    struct hc_handle **handle_p)
{
	struct hc_handle *handle;
	int err = 0;

	if (!trunc)
		err = hc_body_hold_source(body, opener);
	if (!err)
		err = hc_body_open(fs, body, writer, writer && trunc);
	if (err)
		return err == -ENOENT ? -ESTALE : err;
	handle = hc_handle_new(fs, HC_H_BODY, fnode, writer, NULL);
	if (!handle) {
		hc_body_release(fs, body, writer);
		return -ENOMEM;
	}
	handle->body = hc_body_get(body);
	*handle_p = handle;
	return 0;
}

/* Which way the handle reads and writes. -ESTALE: the node is open as something else; the handle is
 * gone then, as after every error. */
static int enter(struct hc_fs *fs, struct hc_ask *ask, struct hc_handle *handle)
{
	int err = ask->entered ? 0 : hc_pass_open(fs, handle, ask->ino, ask->flags);

	ask->entered = !err;
	if (err)
		hc_handle_end(fs, handle);
	return err;
}

static int open_detached(struct hc_fs *fs, struct hc_ask *ask, struct hc_handle **handle_p);

/* Sent round once; the second ESTALE within one open() would reach the caller. */
static int open_other(struct hc_fs *fs, struct hc_ask *ask, struct hc_handle **handle_p)
{
	return ask->again ? open_detached(fs, ask, handle_p) : second_open(fs, ask);
}

static int open_body(struct hc_fs *fs, struct hc_fnode *fnode, const struct hc_fview *view,
		     struct hc_ask *ask, struct hc_handle **handle_p)
{
	const struct hc_opener *opener = &ask->opener;
	int err;

	if (ask->writer && !hc_body_is_own(view->body, opener, ask->trunc))
		return open_other(fs, ask, handle_p);
	/* Made for a writer that gave up: nobody must read what was never written. */
	if (!ask->writer && hc_body_is_pending(view->body, opener)) {
		hc_mark_clear(fs, opener->tid);
		hc_body_drop(fs, view->body);
		return -ESTALE;
	}
	err = open_own(fs, fnode, view->body, opener, ask->writer, ask->trunc, handle_p);
	/* It has begun to be a page in between. */
	if (err == -ESTALE && ask->writer && !hc_body_is_own(view->body, opener, ask->trunc))
		err = open_other(fs, ask, handle_p);
	return err;
}

/* A small file under a page's name (made by a create that wrote nothing) is written like a page. */
static bool is_page_named(struct hc_fs *fs, uint64_t file)
{
	struct hc_file_info info;
	struct hc_name id;

	return hc_file_get(fs->registry, file, &info) == 0 &&
	       hc_name_resolve(fs->registry, info.dir, info.name, false, &id) == 0 &&
	       id.kind != HC_NAME_ORDINARY && id.kind != HC_NAME_TEMPORARY;
}

static int open_file(struct hc_fs *fs, struct hc_fnode *fnode, uint64_t file,
		     const struct hc_ask *ask, struct hc_handle **handle_p)
{
	struct hc_openfile *of;
	struct hc_handle *handle;
	int err;

	err = hc_openfile_open(fs, fnode, file, ask->writer, ask->trunc, &of);
	if (err)
		return err;
	handle = hc_handle_new(fs, HC_H_FILE, fnode, ask->writer, NULL);
	if (!handle) {
		hc_openfile_release(fs, of, ask->writer);
		return -ENOMEM;
	}
	handle->of = of;
	*handle_p = handle;
	return 0;
}

static int open_named_file(struct hc_fs *fs, uint64_t file, const struct hc_ask *ask,
			   struct hc_handle **handle_p)
{
	struct hc_fnode *fnode = hc_tree_file(fs->tree, file);
	int err;

	if (!fnode)
		return -ENOMEM;
	err = open_file(fs, fnode, file, ask, handle_p);
	if (err)
		hc_tree_put(fs->tree, fnode);
	return err;
}

static int open_named_body(struct hc_fs *fs, struct hc_body *body, const struct hc_ask *ask,
			   struct hc_handle **handle_p)
{
	int err;

	hc_tree_pin(fs->tree, body->fnode);
	err = open_own(fs, body->fnode, body, &ask->opener, ask->writer, ask->trunc, handle_p);
	if (err)
		hc_tree_put(fs->tree, body->fnode);
	return err;
}

static int open_named_page(struct hc_fs *fs, const struct hc_page_info *page,
			   const struct hc_ask *ask, struct hc_handle **handle_p)
{
	struct hc_fnode *fnode = hc_tree_page(fs->tree, page);
	struct hc_fview view;
	int err = -ESTALE;

	if (!fnode)
		return -ENOMEM;
	hc_tree_view(fs->tree, fnode, &view);
	if (view.kind == HC_F_PAGE)
		err = open_page(fs, fnode, &view, ask, handle_p);
	hc_body_put(view.body);
	if (err)
		hc_tree_put(fs->tree, fnode);
	return err;
}

/* The kernel tells the caller the size of the node that is gone: another is a miss. */
static int read_named(struct hc_fs *fs, const struct hc_there *there, const struct hc_ask *ask,
		      struct hc_handle **handle_p)
{
	uint64_t size = ask->size_bytes;
	int err = -ENOENT;

	if (there->kind == HC_F_FILE && (!size || there->file.size_bytes == size))
		err = open_named_file(fs, there->file.id, ask, handle_p);
	else if (there->kind == HC_F_PAGE && (!size || there->page.size_bytes == size))
		err = open_named_page(fs, &there->page, ask, handle_p);
	else if (there->kind == HC_F_BODY && (!size || hc_body_size(there->body) == size) &&
		 !hc_body_is_pending(there->body, &ask->opener))
		err = open_named_body(fs, there->body, ask, handle_p);
	return err;
}

static int write_named(struct hc_fs *fs, const struct hc_there *there, uint32_t dir,
		       const char *name, const struct hc_ask *ask, struct hc_handle **handle_p)
{
	struct hc_owner owner;
	struct hc_body *body;
	int err;

	if (there->kind == HC_F_FILE && !there->is_page_name)
		return open_named_file(fs, there->file.id, ask, handle_p);
	if (there->kind == HC_F_BODY && hc_body_is_own(there->body, &ask->opener, ask->trunc))
		return open_named_body(fs, there->body, ask, handle_p);
	if (there->kind == HC_F_DIR)
		return -EISDIR;
	/* The name went meanwhile, too (a rename): it may have been O_CREAT, which OPEN does not
	 * say. */
	owner = ask->owner;
	if (!hc_there_owner(there, &owner) && !owner.mode)
		return -ENOENT;
	err = hc_there_own(fs, there, dir, name, &ask->opener, &owner, ask->trunc, false, &body);
	if (err)
		return err;
	err = open_named_body(fs, body, ask, handle_p);
	if (err)
		hc_body_drop(fs, body);
	hc_body_put(body);
	return err;
}

/* Somebody has the node open as another page, whose bytes its maps share: until it is closed the
 * page that the name shows cannot be opened by it. Ever longer, 127 ms in all tries. */
static void wait_for_close(struct hc_fs *fs, int try)
{
	uint64_t deadline_ns =
		hc_clock_now_ns() + (HC_NS_PER_MS << hc_min_u64((uint64_t)try, HC_NAMED_TRIES - 2));

	pthread_mutex_lock(&fs->bodies.lock);
	while (hc_cond_wait_until(&fs->bodies.changed, &fs->bodies.lock, deadline_ns) != -ETIMEDOUT)
		;
	pthread_mutex_unlock(&fs->bodies.lock);
}

/* Half of the workers wait longer, as long as an open may take: the RELEASE needs one, too. */
static bool wait_begin(struct hc_fs *fs)
{
	bool may;

	pthread_mutex_lock(&fs->bodies.lock);
	may = atomic_load(&fs->bodies.n_parked) < fs->options.n_threads / 2;
	atomic_fetch_add(&fs->bodies.n_parked, may);
	pthread_mutex_unlock(&fs->bodies.lock);
	return may;
}

/* What the node id stood for is gone, or another's, and the kernel does not ask again: the handle
 * is of what its name shows now, and the node id does not tell of it. The name is the one that the
 * thread looked up; what the node is called by now may be another. */
static int open_detached(struct hc_fs *fs, struct hc_ask *ask, struct hc_handle **handle_p)
{
	uint64_t deadline_ns = hc_clock_now_ns() + fs->budget_ns;
	char name[HC_NAME_BYTES];
	struct hc_there there;
	bool waits = false;
	uint32_t dir;
	int err = -ESTALE;

	hc_fs_count(fs, detached_opens);
	if (!hc_mark_name(fs, ask->opener.tid, ask->ino, &dir, name))
		return ask->writer ? -ESTALE : -ENOENT;
	/* It may be replaced under us again. */
	for (int i = 0; err == -ESTALE; i++) {
		if (i == HC_NAMED_TRIES)
			waits = !ask->writer && wait_begin(fs);
		if (i >= HC_NAMED_TRIES && (!waits || hc_clock_now_ns() >= deadline_ns))
			break;
		if (i && !ask->writer)
			wait_for_close(fs, i - 1);
		if (hc_there_look(fs, dir, name, ask->opener.tid, &there))
			break;
		err = ask->writer ? write_named(fs, &there, dir, name, ask, handle_p)
				  : read_named(fs, &there, ask, handle_p);
		if (!err)
			err = enter(fs, ask, *handle_p);
		hc_there_end(&there);
	}
	atomic_fetch_sub(&fs->bodies.n_parked, waits);
	return err == -ESTALE && !ask->writer ? -ENOENT : err;
}

static int open_view(struct hc_fs *fs, struct hc_fnode *fnode, const struct hc_fview *view,
		     struct hc_ask *ask, struct hc_handle **handle_p)
{
	switch (view->kind) {
	case HC_F_FILE:
		if (ask->writer && is_page_named(fs, view->file))
			return open_other(fs, ask, handle_p);
		return open_file(fs, fnode, view->file, ask, handle_p);
	case HC_F_BODY:
		return open_body(fs, fnode, view, ask, handle_p);
	case HC_F_PAGE:
		if (ask->writer)
			return open_other(fs, ask, handle_p);
		return open_page(fs, fnode, view, ask, handle_p);
	default:
		return -ESTALE;
	}
}

/* Gone: looked up again once; the second time within one open() it is what the name shows, or a
 * miss. A mark that an earlier open() left says nothing: a miss that is not looked up stays in what
 * the kernel knows until the notifier has told it. */
static int open_gone(struct hc_fs *fs, struct hc_ask *ask, struct hc_handle **handle_p)
{
	int tid = ask->opener.tid, err = -ESTALE;

	if (ask->again)
		err = open_detached(fs, ask, handle_p);
	else if (!ask->writer && !tid)
		err = -ENOENT;
	if (err != -ESTALE) {
		hc_mark_clear(fs, tid);
		if (err == -ENOENT)
			hc_fs_count(fs, open_misses);
		return err;
	}
	(void)hc_mark_set(fs, tid,
			  !ask->writer ? HC_MARK_READ
			  : ask->trunc ? HC_MARK_TRUNC
				       : HC_MARK_WRITE);
	hc_fs_count(fs, stale_opens);
	return -ESTALE;
}

static struct hc_owner body_owner(struct hc_body *body)
{
	struct hc_owner owner;

	pthread_rwlock_rdlock(&body->rw);
	owner = body->owner;
	pthread_rwlock_unlock(&body->rw);
	return owner;
}

/* What the node stands for; the handle has a reference of its own. */
static int open_entered(struct hc_fs *fs, struct hc_fnode *fnode, const struct hc_fview *view,
			struct hc_ask *ask, struct hc_handle **handle_p)
{
	int err = open_view(fs, fnode, view, ask, handle_p);

	if (err)
		return err;
	/* One that is open by its name has a reference of its own. */
	if (!ask->entered)
		hc_tree_pin(fs->tree, fnode);
	return enter(fs, ask, *handle_p);
}

static int open_ino(struct hc_fs *fs, struct hc_fnode *fnode, struct hc_ask *ask,
		    struct hc_handle **handle_p)
{
	struct hc_fview view = {0};
	int err = -ESTALE;

	if (fnode) {
		hc_tree_view(fs->tree, fnode, &view);
		ask->size_bytes = view.size_bytes;
		ask->owner = view.owner;
		if (view.body)
			ask->owner = body_owner(view.body);
		err = open_entered(fs, fnode, &view, ask, handle_p);
		/* It turned into a page or file between view and open. */
		if (err == -ESTALE && !ask->sent && view.kind == HC_F_BODY) {
			hc_body_put(view.body);
			hc_tree_view(fs->tree, fnode, &view);
			if (!ask->writer || view.kind != HC_F_BODY)
				err = open_entered(fs, fnode, &view, ask, handle_p);
		}
		hc_body_put(view.body);
	}
	if (err == -ESTALE && !ask->sent)
		err = open_gone(fs, ask, handle_p);
	return err;
}

void hc_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct hc_ask ask = {.ino = ino,
			     .writer = (fi->flags & O_ACCMODE) != O_RDONLY,
			     .trunc = fi->flags & O_TRUNC,
			     .direct = fi->flags & O_DIRECT,
			     .flags = fi->flags};
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_handle *handle = NULL;
	struct hc_fnode *fnode;
	int err;

	if (ino >= HC_INO_VIRTUAL && ino < HC_INO_FILES) {
		hc_virtual_open(fs, req, ino, fi);
		return;
	}
	hc_opener_of(fs, hc_req_tid(req), &ask.opener);
	ask.again = hc_mark_is_for(fs, ask.opener.tid, ino);
	fnode = hc_tree_get(fs->tree, ino);
	err = open_ino(fs, fnode, &ask, &handle);
	hc_tree_put(fs->tree, fnode);
	if (err) {
		hc_reply_err(req, err);
		return;
	}
	hc_mark_clear(fs, ask.opener.tid);
	if (handle->body && handle->writer && hc_fnode_ino(handle->fnode) != ino)
		hc_handle_detach(fs, handle, ino, ask.opener.tgid);
	hc_fs_count(fs, opens);
	hc_handle_flags(handle, fi);
	if (hc_pass_reply_open(req, handle, fi))
		hc_handle_end(fs, handle);
}

/* --- create --- */

void hc_owner_new(struct hc_fs *fs, fuse_req_t req, uint32_t dir, mode_t mode, bool is_dir,
		  struct hc_owner *owner_p)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct hc_dir_info info;

	*owner_p = (struct hc_owner){ctx->uid, ctx->gid, mode & (is_dir ? 01777 : 0777)};
	if (hc_dir_get(fs->registry, dir, &info) == 0 && info.owner.mode & 02000) {
		owner_p->gid = info.owner.gid;
		owner_p->mode |= is_dir ? 02000 : 0;
	}
}

static int create_file(struct hc_fs *fs, struct hc_there *there, uint32_t dir, const char *name,
		       const struct hc_owner *owner)
{
	uint64_t replaced = 0;
	int err;

	err = hc_file_make(fs->registry, dir, name, owner, &there->file, &replaced);
	if (err)
		return err;
	if (replaced)
		hc_file_forget(fs->registry, replaced);
	there->kind = HC_F_FILE;
	return 0;
}

/* Makes, or finds, what the handle will be of. */
static int create_there(struct hc_fs *fs, struct hc_there *there, uint32_t dir, const char *name,
			const struct hc_opener *opener, const struct hc_owner *owner, int flags)
{
	struct hc_body *body;
	bool shared = false;
	int err;

	if (flags & O_EXCL && (there->kind != HC_F_NONE || there->busy))
		return -EEXIST;
	if (there->kind == HC_F_DIR)
		return -EISDIR;
	if (there->kind == HC_F_FILE && !there->is_page_name)
		return 0;
	if (there->kind == HC_F_BODY) {
		pthread_mutex_lock(&fs->bodies.lock);
		shared = there->body->state == HC_B_SHARED;
		pthread_mutex_unlock(&fs->bodies.lock);
	}
	if (shared)
		return 0;
	if (there->kind == HC_F_NONE && there->id.kind == HC_NAME_ORDINARY)
		return create_file(fs, there, dir, name, owner);
	err = hc_there_own(fs, there, dir, name, opener, owner,
			   flags & O_TRUNC || there->kind == HC_F_BODY, false, &body);
	if (err)
		return err;
	hc_there_end(there);
	there->body = body;
	there->kind = HC_F_BODY;
	there->busy = true;
	return 0;
}

static void reply_create(struct hc_fs *fs, fuse_req_t req, const struct hc_there *there,
			 const struct hc_opener *opener, struct fuse_file_info *fi)
{
	struct hc_ask ask = {.opener = *opener, .writer = true, .trunc = fi->flags & O_TRUNC};
	struct hc_handle *handle = NULL;
	struct fuse_entry_param entry;
	struct hc_fnode *fnode;
	struct hc_fview view;
	int err;

	err = hc_there_entry(fs, there, &entry, &fnode);
	if (err) {
		hc_reply_err(req, err);
		return;
	}
	hc_tree_view(fs->tree, fnode, &view);
	if (view.kind == HC_F_BODY && there->kind == HC_F_BODY)
		err = open_own(fs, fnode, there->body, opener, true, ask.trunc, &handle);
	else
		err = open_view(fs, fnode, &view, &ask, &handle);
	hc_body_put(view.body);
	if (err) {
		hc_tree_forget(fs->tree, entry.ino, 1);
		hc_tree_put(fs->tree, fnode);
		hc_reply_err(req, err == -ESTALE ? -EBUSY : err);
		return;
	}
	err = hc_pass_open(fs, handle, entry.ino, fi->flags);
	if (err) {
		/* Nothing is there, not even an empty file. */
		if (handle->body && there->kind == HC_F_BODY)
			hc_body_drop(fs, handle->body);
		hc_tree_forget(fs->tree, entry.ino, 1);
		hc_handle_end(fs, handle);
		hc_reply_err(req, err);
		return;
	}
	hc_fs_count(fs, creates);
	hc_handle_flags(handle, fi);
	if (hc_pass_reply_create(req, handle, &entry, fi)) {
		hc_tree_forget(fs->tree, entry.ino, 1);
		hc_handle_end(fs, handle);
	}
}

void hc_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		  struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_dir_info info;
	struct hc_opener opener;
	struct hc_owner owner;
	struct hc_there there;
	int err;

	err = hc_is_virtual_name(parent, name) ? -EEXIST : hc_dir_of_ino(fs, parent, &info);
	if (err) {
		hc_reply_err(req, err);
		return;
	}
	hc_opener_of(fs, hc_req_tid(req), &opener);
	hc_mark_clear(fs, opener.tid);
	hc_owner_new(fs, req, info.id, mode, false, &owner);
	err = hc_there_look(fs, info.id, name, opener.tid, &there);
	if (err) {
		hc_reply_err(req, err);
		return;
	}
	err = create_there(fs, &there, info.id, name, &opener, &owner, fi->flags);
	if (err)
		hc_reply_err(req, err);
	else
		reply_create(fs, req, &there, &opener, fi);
	hc_there_end(&there);
}

/* --- read and write --- */

/* A page that stays open and is read again is used again, once a second at most. */
static void touch_page(struct hc_fs *fs, struct hc_handle *handle)
{
	uint64_t now_ns = hc_clock_now_ns(), last_ns = atomic_load(&handle->touched_ns);

	if (!handle->ref.data || now_ns - last_ns < HC_TOUCH_NS ||
	    !atomic_compare_exchange_strong(&handle->touched_ns, &last_ns, now_ns))
		return;
	hc_node_touch(fs->node, handle->ref.entry, handle->ref.sequence, 0, 0);
	hc_tree_opened(fs->tree, handle->fnode, hc_clock_wall_ns());
}

static void read_page(fuse_req_t req, const struct hc_ref *ref, size_t n, uint64_t offset)
{
	if (!ref->data) {
		/* The kernel reads the file by itself. */
		fuse_reply_err(req, EIO);
		return;
	}
	if (offset >= ref->size_bytes)
		n = 0;
	else
		n = hc_min_u64(n, ref->size_bytes - offset);
	fuse_reply_buf(req, n ? (const char *)ref->data + offset : NULL, n);
}

/* `want` bytes are there: fewer, or none, is a failure that no engine should ever see. */
static void reply_read(fuse_req_t req, const void *data, size_t got, size_t want, int err)
{
	if (err || got < want)
		hc_fs_count(hc_req_fs(req), read_failures);
	if (err)
		hc_reply_err(req, err);
	else
		fuse_reply_buf(req, data, got);
}

/* rw held for reading. */
static void read_body_locked(fuse_req_t req, struct hc_body *body, size_t n, uint64_t offset)
{
	hc_autofree char *buf = NULL;
	const void *data = NULL;
	uint64_t size;
	size_t got = 0, want;
	struct stat st;
	int err = 0;

	if (body->has_page) {
		read_page(req, &body->page, n, offset);
		return;
	}
	if (body->fill) {
		size = hc_fill_size(body->fill);
		n = offset >= size ? 0 : hc_min_u64(n, size - offset);
		data = n ? hc_fill_peek(body->fill, offset, n) : NULL;
	} else if (body->fd >= 0 && fstat(body->fd, &st) == 0) {
		n = offset >= (uint64_t)st.st_size ? 0
						   : hc_min_u64(n, (uint64_t)st.st_size - offset);
	}
	want = n;
	if (n && !data) {
		buf = malloc(n);
		if (!buf)
			err = -ENOMEM;
		else if (body->fill)
			err = hc_fill_read(body->fill, buf, n, offset, &got);
		else if (body->fd >= 0)
			err = hc_pread_full(body->fd, buf, n, (off_t)offset, &got);
		else
			err = -EIO;
		data = buf;
		n = got;
	}
	reply_read(req, data, n, want, err);
}

static void read_file(fuse_req_t req, struct hc_openfile *of, size_t n, uint64_t offset)
{
	hc_autofree char *buf = malloc(n);
	size_t got = 0;
	int err = buf ? hc_openfile_read(of, buf, n, offset, &got) : -ENOMEM;

	reply_read(req, buf, got, 0, err);
}

void hc_op_read(fuse_req_t req, fuse_ino_t ino, size_t n, off_t offset, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_handle *handle;
	struct hc_openfile *of;
	struct hc_body *body;

	if (ino >= HC_INO_VIRTUAL && ino < HC_INO_FILES) {
		hc_virtual_read(fs, req, n, offset, fi);
		return;
	}
	handle = (struct hc_handle *)(uintptr_t)fi->fh;
	hc_fs_count(fs, reads);
	hc_fs_add(fs, read_bytes, n);
	if (handle->kind == HC_H_PAGE) {
		touch_page(fs, handle);
		read_page(req, &handle->ref, n, (uint64_t)offset);
		return;
	}
	body = hc_handle_target(handle, &of);
	if (of) {
		read_file(req, of, n, (uint64_t)offset);
	} else {
		hc_body_read_lock(body);
		read_body_locked(req, body, n, (uint64_t)offset);
		pthread_rwlock_unlock(&body->rw);
	}
	hc_body_put(body);
}

void hc_op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t n, off_t offset,
		 struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_handle *handle;
	int err;

	if (ino >= HC_INO_VIRTUAL && ino < HC_INO_FILES) {
		hc_virtual_write(fs, req, data, n, fi);
		return;
	}
	handle = (struct hc_handle *)(uintptr_t)fi->fh;
	hc_fs_count(fs, writes);
	hc_fs_add(fs, write_bytes, n);
	if (handle->kind == HC_H_BODY)
		err = hc_body_write(handle->body, data, n, (uint64_t)offset);
	else if (handle->kind == HC_H_FILE)
		err = hc_openfile_write(fs, handle->of, data, n, (uint64_t)offset,
					fi->flags & O_APPEND);
	else
		err = -EBADF;
	if (err)
		hc_reply_err(req, err);
	else
		fuse_reply_write(req, n);
}

/* --- end of a handle --- */

/* The closing thread waits for the answer, so what is seen of it stands still. A killed writer
 * looks like a closing one but for that. */
bool hc_req_is_killed(fuse_req_t req)
{
	return hc_sysinfo_is_killed(hc_req_tid(req));
}

void hc_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_handle *handle = (struct hc_handle *)(uintptr_t)fi->fh;
	struct hc_openfile *of = NULL;
	struct hc_body *body = NULL;

	if (ino >= HC_INO_VIRTUAL && ino < HC_INO_FILES) {
		hc_virtual_flush(fs, req, fi);
		return;
	}
	if (ino >= HC_INO_FILES && handle->writer)
		body = hc_handle_target(handle, &of);
	if (body && handle->outside)
		hc_body_outside_seen(body);
	if (body && !of)
		hc_body_flush(fs, body, hc_req_is_killed(req));
	hc_body_put(body);
	fuse_reply_err(req, 0);
}

void hc_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);

	if (ino >= HC_INO_VIRTUAL && ino < HC_INO_FILES)
		hc_virtual_release(fs, fi);
	else
		hc_handle_end(fs, (struct hc_handle *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

static int sync_handle(struct hc_fs *fs, struct hc_handle *handle)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_SYNC_NS;
	struct hc_openfile *of;
	struct hc_body *body = hc_handle_target(handle, &of);
	struct hc_fview view;
	int err = 0;

	hc_tree_view(fs->tree, handle->fnode, &view);
	if (view.kind == HC_F_PAGE && view.entry != HC_ENTRY_NONE)
		err = hc_node_sync_page(fs->node, view.entry, view.sequence, deadline_ns);
	else if (of)
		err = hc_openfile_fsync(of);
	else if (view.kind != HC_F_PAGE && body)
		err = hc_body_fsync(body);
	hc_body_put(view.body);
	hc_body_put(body);
	/* Gone meanwhile: nothing that could be lost. */
	return err == -ENOENT || err == -ESTALE ? 0 : err == -ETIMEDOUT ? -EIO : err;
}

void hc_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	int err = 0;

	if (ino >= HC_INO_FILES)
		err = sync_handle(fs, (struct hc_handle *)(uintptr_t)fi->fh);
	hc_reply_err(req, err);
}

void hc_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		     struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_handle *handle = (struct hc_handle *)(uintptr_t)fi->fh;
	bool keep_size = mode & FALLOC_FL_KEEP_SIZE;
	uint64_t end = (uint64_t)offset + (uint64_t)length;
	int err = -EBADF;

	if (ino < HC_INO_FILES || mode & ~FALLOC_FL_KEEP_SIZE) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	if (handle->kind == HC_H_BODY)
		err = hc_body_allocate(handle->body, end, keep_size);
	else if (handle->kind == HC_H_FILE)
		err = hc_openfile_allocate(fs, handle->of, end, keep_size);
	hc_reply_err(req, err);
}
