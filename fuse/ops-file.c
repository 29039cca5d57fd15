/* SPDX-License-Identifier: Apache-2.0 */
/* Open, create, read, write, flush, release, fsync, fallocate. What an open answered with success
 * is readable to its end: a page's bytes are held from open to release. */
#include <fcntl.h>
#include <linux/falloc.h>

#include "fuse/internal.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/sysinfo.h"

/* --- open --- */

/* Somebody else's body, or a page: the kernel is sent round again for an own one. */
static int second_open(struct hc_fs *fs, const struct hc_opener *opener, bool trunc)
{
	if (opener->tid && opener->tgid &&
	    hc_mark_set(fs, opener->tid, trunc ? HC_MARK_TRUNC : HC_MARK_WRITE)) {
		hc_fs_count(fs, stale_opens);
		return -ESTALE;
	}
	hc_fs_count(fs, second_writers_busy);
	return -EBUSY;
}

/* A body that is gone: looked up again once; the second time within one open() it is a miss. */
static int gone_open(struct hc_fs *fs, int tid, bool writer, bool trunc)
{
	if (!writer && (!tid || hc_mark_kind(fs, tid) == HC_MARK_READ)) {
		hc_mark_clear(fs, tid);
		hc_fs_count(fs, open_misses);
		return -ENOENT;
	}
	(void)hc_mark_set(fs, tid, !writer ? HC_MARK_READ : trunc ? HC_MARK_TRUNC : HC_MARK_WRITE);
	hc_fs_count(fs, stale_opens);
	return -ESTALE;
}

static int open_page(struct hc_fs *fs, struct hc_fnode *fnode, const struct hc_fview *view,
		     const struct hc_opener *opener, struct hc_handle **handle_p)
{
	struct hc_acquire how = {.series = view->key.series,
				 .opener = (uint32_t)opener->tgid,
				 .tree = view->key.series,
				 .deadline_ns = hc_clock_now_ns() + fs->budget_ns};
	struct hc_handle_attr attr = {0};
	struct hc_page_info info;
	struct hc_handle *handle;
	struct hc_ref ref;
	size_t n = 0;
	int err;

	err = hc_node_acquire(fs->node, &how, &view->key.hash, 1, &ref, &n);
	if (err || n != 1) {
		/* There, but not deliverable in time: a miss, decided. Gone: the name is asked
		 * again. */
		err = hc_view_stat(fs, view, &info);
		return err ? -ESTALE : -ENOENT;
	}
	/* Replaced since it was looked up: the new body serves as well when the size that was told
	 * is right. */
	if (ref.sequence != view->sequence && ref.size_bytes != view->size_bytes) {
		hc_node_release(fs->node, &ref, 1);
		return -ESTALE;
	}
	attr.size_bytes = ref.size_bytes;
	if (hc_node_stat(fs->node, &view->key, false, &info) == 0) {
		attr.owner = info.owner;
		attr.mtime_ns = info.mtime_ns;
	}
	handle = hc_handle_new(fs, HC_H_PAGE, fnode, false, &attr);
	if (!handle) {
		hc_node_release(fs->node, &ref, 1);
		return -ENOMEM;
	}
	handle->ref = ref;
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

/* The name behind a node id. */
static int name_of(struct hc_fs *fs, const struct hc_fview *view, uint32_t *dir_p,
		   char name[HC_NAME_BYTES])
{
	struct hc_page_info page;
	struct hc_file_info file;

	if (view->kind == HC_F_BODY)
		return hc_body_name(fs, view->body, dir_p, name) ? 0 : -ESTALE;
	if (view->kind == HC_F_FILE) {
		if (hc_file_get(fs->registry, view->file, &file) || !file.dir)
			return -ESTALE;
		*dir_p = file.dir;
		memcpy(name, file.name, HC_NAME_BYTES);
		return 0;
	}
	if (hc_node_stat(fs->node, &view->key, false, &page))
		return -ESTALE;
	*dir_p = page.dir;
	return hc_node_page_name(fs->node, page.entry, page.sequence, name);
}

/* A body of its own behind another's node id. */
static int open_detached(struct hc_fs *fs, const struct hc_fview *view,
			 const struct hc_opener *opener, bool trunc, struct hc_handle **handle_p)
{
	char name[HC_NAME_BYTES];
	struct hc_there there;
	struct hc_owner owner;
	struct hc_body *body;
	uint32_t dir;
	int err;

	/* The name that was looked up: the body behind the node id may be called otherwise by now.
	 */
	err = hc_mark_name(fs, opener->tid, &dir, name) ? 0 : name_of(fs, view, &dir, name);
	if (!err)
		err = hc_there_look(fs, dir, name, opener->tid, &there);
	if (err)
		return -ESTALE;
	/* The one that its LOOKUP made already, or the name would show two of its own. */
	if (there.kind == HC_F_BODY && hc_body_is_pending(there.body, opener))
		body = hc_body_get(there.body);
	else if (!hc_there_owner(&there, &owner))
		err = -ESTALE;
	else
		err = hc_there_own(fs, &there, dir, name, opener, &owner, trunc, false, &body);
	hc_there_end(&there);
	if (err)
		return err;
	hc_tree_pin(fs->tree, body->fnode);
	err = open_own(fs, body->fnode, body, opener, true, trunc, handle_p);
	if (err) {
		hc_tree_put(fs->tree, body->fnode);
		hc_body_drop(fs, body);
	}
	hc_body_put(body);
	return err;
}

/* Sent round again once. Another thread's answer about the same name can come between this one's
 * LOOKUP and OPEN, and the second ESTALE would reach the caller: then the handle writes a body that
 * the node id does not tell of. */
static int open_other(struct hc_fs *fs, const struct hc_fview *view, const struct hc_opener *opener,
		      bool trunc, struct hc_handle **handle_p)
{
	enum hc_mark_kind mark = hc_mark_kind(fs, opener->tid);

	if (mark == HC_MARK_WRITE || mark == HC_MARK_TRUNC) {
		hc_fs_count(fs, detached_opens);
		return open_detached(fs, view, opener, trunc, handle_p);
	}
	return second_open(fs, opener, trunc);
}

static int open_body(struct hc_fs *fs, struct hc_fnode *fnode, const struct hc_fview *view,
		     const struct hc_opener *opener, bool writer, bool trunc,
		     struct hc_handle **handle_p)
{
	int err;

	if (writer && !hc_body_is_own(view->body, opener, trunc))
		return open_other(fs, view, opener, trunc, handle_p);
	/* Made for a writer that gave up: nobody must read what was never written. */
	if (!writer && hc_body_is_pending(view->body, opener)) {
		hc_mark_clear(fs, opener->tid);
		hc_body_drop(fs, view->body);
		return -ESTALE;
	}
	err = open_own(fs, fnode, view->body, opener, writer, trunc, handle_p);
	/* It has begun to be a page in between. */
	if (err == -ESTALE && writer && !hc_body_is_own(view->body, opener, trunc))
		err = open_other(fs, view, opener, trunc, handle_p);
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

static int open_file(struct hc_fs *fs, struct hc_fnode *fnode, const struct hc_fview *view,
		     const struct hc_opener *opener, bool writer, bool trunc,
		     struct hc_handle **handle_p)
{
	struct hc_openfile *of;
	struct hc_handle *handle;
	int err;

	if (writer && is_page_named(fs, view->file))
		return open_other(fs, view, opener, trunc, handle_p);
	err = hc_openfile_open(fs, fnode, view->file, writer, trunc, &of);
	if (err)
		return err;
	handle = hc_handle_new(fs, HC_H_FILE, fnode, writer, NULL);
	if (!handle) {
		hc_openfile_release(fs, of, writer);
		return -ENOMEM;
	}
	handle->of = of;
	*handle_p = handle;
	return 0;
}

static int open_view(struct hc_fs *fs, struct hc_fnode *fnode, const struct hc_fview *view,
		     const struct hc_opener *opener, int flags, struct hc_handle **handle_p)
{
	bool writer = (flags & O_ACCMODE) != O_RDONLY, trunc = flags & O_TRUNC;

	switch (view->kind) {
	case HC_F_FILE:
		return open_file(fs, fnode, view, opener, writer, trunc, handle_p);
	case HC_F_BODY:
		return open_body(fs, fnode, view, opener, writer, trunc, handle_p);
	case HC_F_PAGE:
		if (writer)
			return open_other(fs, view, opener, trunc, handle_p);
		return open_page(fs, fnode, view, opener, handle_p);
	default:
		return -ESTALE;
	}
}

void hc_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	bool writer = (fi->flags & O_ACCMODE) != O_RDONLY, trunc = fi->flags & O_TRUNC;
	struct hc_handle *handle = NULL;
	struct hc_opener opener;
	struct hc_fnode *fnode;
	struct hc_fview view = {0};
	int err = -ESTALE;

	if (ino >= HC_INO_VIRTUAL && ino < HC_INO_FILES) {
		hc_virtual_open(fs, req, ino, fi);
		return;
	}
	hc_opener_of(fs, hc_req_tid(req), &opener);
	fnode = hc_tree_get(fs->tree, ino);
	if (fnode) {
		hc_tree_view(fs->tree, fnode, &view);
		err = open_view(fs, fnode, &view, &opener, fi->flags, &handle);
		/* It turned into a page or file between view and open. */
		if (err == -ESTALE && view.kind == HC_F_BODY) {
			hc_body_put(view.body);
			hc_tree_view(fs->tree, fnode, &view);
			if (!writer || view.kind != HC_F_BODY)
				err = open_view(fs, fnode, &view, &opener, fi->flags, &handle);
		}
		hc_body_put(view.body);
	}
	if (err == -ESTALE && !(writer && (view.kind == HC_F_PAGE || view.kind == HC_F_FILE)))
		err = gone_open(fs, opener.tid, writer, trunc);
	else if (!err)
		hc_mark_clear(fs, opener.tid);
	if (err) {
		hc_tree_put(fs->tree, fnode);
		hc_reply_err(req, err);
		return;
	}
	if (handle->fnode != fnode)
		hc_tree_put(fs->tree, fnode);
	hc_fs_count(fs, opens);
	hc_handle_flags(handle, fi);
	if (fuse_reply_open(req, fi))
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
		err = open_own(fs, fnode, there->body, opener, true, fi->flags & O_TRUNC, &handle);
	else
		err = open_view(fs, fnode, &view, opener, fi->flags | O_WRONLY, &handle);
	hc_body_put(view.body);
	if (err) {
		hc_tree_forget(fs->tree, entry.ino, 1);
		hc_tree_put(fs->tree, fnode);
		hc_reply_err(req, err == -ESTALE ? -EBUSY : err);
		return;
	}
	hc_fs_count(fs, creates);
	hc_handle_flags(handle, fi);
	if (fuse_reply_create(req, &entry, fi)) {
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

static void read_page(fuse_req_t req, const struct hc_ref *ref, size_t n, uint64_t offset)
{
	if (offset >= ref->size_bytes)
		n = 0;
	else
		n = hc_min_u64(n, ref->size_bytes - offset);
	fuse_reply_buf(req, n ? (const char *)ref->data + offset : NULL, n);
}

/* rw held for reading. */
static void read_body_locked(fuse_req_t req, struct hc_body *body, size_t n, uint64_t offset)
{
	hc_autofree char *buf = NULL;
	const void *data = NULL;
	uint64_t size;
	size_t got = 0;
	int err = 0;

	if (body->has_page) {
		read_page(req, &body->page, n, offset);
		return;
	}
	if (body->fill) {
		size = hc_fill_size(body->fill);
		n = offset >= size ? 0 : hc_min_u64(n, size - offset);
		data = n ? hc_fill_peek(body->fill, offset, n) : NULL;
	}
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
	if (err)
		hc_reply_err(req, err);
	else
		fuse_reply_buf(req, data, n);
}

static void read_file(fuse_req_t req, struct hc_openfile *of, size_t n, uint64_t offset)
{
	hc_autofree char *buf = malloc(n);
	size_t got = 0;
	int err = buf ? hc_openfile_read(of, buf, n, offset, &got) : -ENOMEM;

	if (err)
		hc_reply_err(req, err);
	else
		fuse_reply_buf(req, buf, got);
}

void hc_op_read(fuse_req_t req, fuse_ino_t ino, size_t n, off_t offset, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_handle *handle;
	struct hc_body *body;

	if (ino >= HC_INO_VIRTUAL && ino < HC_INO_FILES) {
		hc_virtual_read(fs, req, n, offset, fi);
		return;
	}
	handle = (struct hc_handle *)(uintptr_t)fi->fh;
	hc_fs_count(fs, reads);
	hc_fs_add(fs, read_bytes, n);
	if (handle->kind == HC_H_PAGE) {
		read_page(req, &handle->ref, n, (uint64_t)offset);
		return;
	}
	body = hc_handle_body(handle);
	if (!body) {
		read_file(req, handle->of, n, (uint64_t)offset);
		return;
	}
	hc_body_read_lock(body);
	read_body_locked(req, body, n, (uint64_t)offset);
	pthread_rwlock_unlock(&body->rw);
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

/* The closing thread waits for the answer, so its flags stand still. A killed writer looks like a
 * closing one but for them. */
bool hc_req_is_killed(fuse_req_t req)
{
	const uint32_t killed = HC_TASK_EXITING | HC_TASK_SIGNALED;

	return (hc_sysinfo_task_flags(hc_req_tid(req)) & killed) == killed;
}

void hc_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_handle *handle = (struct hc_handle *)(uintptr_t)fi->fh;
	struct hc_body *body = NULL;

	if (ino >= HC_INO_VIRTUAL && ino < HC_INO_FILES) {
		hc_virtual_flush(fs, req, fi);
		return;
	}
	if (ino >= HC_INO_FILES && handle->writer)
		body = hc_handle_body(handle);
	if (body) {
		hc_body_flush(fs, body, hc_req_is_killed(req));
		hc_body_put(body);
	}
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
	struct hc_body *body = hc_handle_body(handle);
	struct hc_fview view;
	int err = 0;

	hc_tree_view(fs->tree, handle->fnode, &view);
	if (view.kind == HC_F_PAGE && view.entry != HC_ENTRY_NONE)
		err = hc_node_sync_page(fs->node, view.entry, view.sequence, deadline_ns);
	else if (view.kind != HC_F_PAGE && body)
		err = hc_body_fsync(body);
	else if (handle->of)
		err = hc_openfile_fsync(handle->of);
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
