/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes: getattr, setattr, statfs. Sizes are exact before the first read. */
#include <sys/statvfs.h>

#include "fuse/internal.h"
#include "util/clock.h"
#include "util/log.h"

#define HC_STATFS_NAMES ((uint64_t)1 << 32)

static void set_time(struct timespec *ts, uint64_t ns)
{
	ts->tv_sec = (time_t)(ns / HC_NS_PER_S);
	ts->tv_nsec = (long)(ns % HC_NS_PER_S);
}

static void attr_begin(struct stat *st, uint64_t ino, mode_t type, const struct hc_owner *owner,
		       uint64_t size_bytes, uint64_t mtime_ns, uint64_t atime_ns)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_mode = type | owner->mode;
	st->st_nlink = 1;
	st->st_uid = owner->uid;
	st->st_gid = owner->gid;
	st->st_size = (off_t)size_bytes;
	st->st_blksize = (blksize_t)HC_BLOCK_BYTES;
	st->st_blocks = (blkcnt_t)(hc_align_up(size_bytes, HC_BLOCK_BYTES) / 512);
	set_time(&st->st_mtim, mtime_ns);
	set_time(&st->st_ctim, mtime_ns);
	set_time(&st->st_atim, atime_ns ? atime_ns : mtime_ns);
}

void hc_attr_dir(struct hc_fs *fs, const struct hc_dir_info *info, struct stat *st)
{
	attr_begin(st, info->id, S_IFDIR, &info->owner, 0, info->mtime_ns, 0);
	st->st_nlink = 2 + info->n_dirs + (info->id == HC_DIR_ROOT);
	st->st_size = (off_t)HC_BLOCK_BYTES;
}

void hc_attr_file(struct hc_fs *fs, uint64_t ino, const struct hc_file_info *info, struct stat *st)
{
	attr_begin(st, ino, S_IFREG, &info->owner, info->size_bytes, info->mtime_ns, 0);
}

void hc_attr_page(struct hc_fs *fs, const struct hc_page_info *info, uint64_t atime_ns,
		  struct stat *st)
{
	/* What the kernel forgot has the time of its stamp. */
	if (!atime_ns)
		atime_ns = hc_max_u64(info->used_ns, info->mtime_ns);
	attr_begin(st, info->node_id, S_IFREG, &info->owner, info->size_bytes, info->mtime_ns,
		   atime_ns);
}

void hc_attr_body(struct hc_fs *fs, struct hc_body *body, struct stat *st)
{
	uint64_t size = hc_body_size(body), mtime_ns;
	struct hc_owner owner;
	bool unnamed;

	pthread_rwlock_rdlock(&body->rw);
	owner = body->owner;
	mtime_ns = body->mtime_ns;
	if (body->fill)
		hc_ignore(hc_fill_mtime(body->fill, &mtime_ns));
	pthread_rwlock_unlock(&body->rw);
	pthread_mutex_lock(&fs->bodies.lock);
	unnamed = body->state == HC_B_UNNAMED;
	pthread_mutex_unlock(&fs->bodies.lock);
	attr_begin(st, body->ino, S_IFREG, &owner, size, mtime_ns, 0);
	st->st_nlink = !unnamed;
}

/* As the kernel was told. */
static void attr_as_told(const struct hc_fview *view, struct stat *st)
{
	attr_begin(st, view->ino, S_IFREG, &view->owner, view->size_bytes, view->mtime_ns,
		   view->atime_ns);
}

/* A page that was replaced is answered as it was: an ESTALE here, and a second one from the OPEN
 * that follows, would reach the caller of open(). One that is gone is ESTALE: then the name is
 * asked again. */
static int attr_page_view(struct hc_fs *fs, const struct hc_fview *view, struct stat *st,
			  double *timeout_p)
{
	struct hc_page_info page;

	if (hc_view_stat(fs, view, &page) == 0) {
		page.node_id = view->ino;
		hc_attr_page(fs, &page, view->atime_ns, st);
		return 0;
	}
	if (hc_node_stat(fs->node, &view->key, false, &page))
		return -ESTALE;
	attr_as_told(view, st);
	*timeout_p = 0;
	return 0;
}

int hc_attr_view(struct hc_fs *fs, const struct hc_fview *view, struct stat *st, double *timeout_p)
{
	struct hc_file_info file;
	struct hc_dir_info dir;
	int err = -ESTALE;

	*timeout_p = fs->timeout_s;
	switch (view->kind) {
	case HC_F_DIR:
		err = hc_dir_get(fs->registry, view->dir, &dir);
		if (!err)
			hc_attr_dir(fs, &dir, st);
		break;
	case HC_F_FILE:
		err = hc_file_get(fs->registry, view->file, &file);
		if (!err)
			hc_attr_file(fs, view->ino, &file, st);
		break;
	case HC_F_BODY:
		hc_attr_body(fs, view->body, st);
		*timeout_p = 0;
		return 0;
	case HC_F_PAGE:
		err = attr_page_view(fs, view, st, timeout_p);
		break;
	case HC_F_GONE:
		/* As of a file whose name was taken between look-up and stat. */
		if (!view->mtime_ns)
			break;
		attr_as_told(view, st);
		st->st_nlink = 0;
		*timeout_p = 0;
		return 0;
	case HC_F_VIRTUAL:
		*timeout_p = 0;
		return hc_virtual_attr(fs, view->ino, st) ? -ESTALE : 0;
	default:
		break;
	}
	if (err)
		hc_fs_count(fs, stale_nodes);
	return err ? -ESTALE : 0;
}

/* What an open handle remembers of a page that has lost its name: fstat must not fail. */
static int attr_of_handle(struct hc_fs *fs, const struct hc_fview *view, struct stat *st)
{
	struct hc_handle_attr attr;
	uint64_t ino = view->ino;
	struct hc_body *body;

	/* The second: by handles of what its name shows instead. */
	if (view->kind == HC_F_PAGE && (hc_handle_is_open(fs, ino) || hc_pass_is_open(fs, ino))) {
		attr_as_told(view, st);
		st->st_nlink = 0;
		return 0;
	}
	if (view->kind == HC_F_FILE ? hc_openfile_attr(fs, view->file, &attr)
				    : hc_handle_find(fs, ino, &attr)) {
		attr_begin(st, ino, S_IFREG, &attr.owner, attr.size_bytes, attr.mtime_ns, 0);
		st->st_nlink = 0;
		return 0;
	}
	/* Opened as a body, which became what has lost its name. */
	body = hc_handle_find_body(fs, ino);
	if (!body)
		return -ESTALE;
	hc_attr_body(fs, body, st);
	hc_body_put(body);
	st->st_ino = ino;
	st->st_nlink = 0;
	return 0;
}

/* The kernel asks the name again, once within one call: the second time a page whose name shows
 * another by now is as it was, and one whose name shows nothing a miss. */
static int gone_attr(struct hc_fs *fs, int tid, const struct hc_fview *view, struct stat *st)
{
	char name[HC_NAME_BYTES];
	struct hc_there there;
	uint32_t dir;
	bool shows = false;

	if (!hc_mark_is_for(fs, tid, view->ino)) {
		(void)hc_mark_set(fs, tid, HC_MARK_READ);
		return -ESTALE;
	}
	if (view->kind == HC_F_PAGE && hc_mark_name(fs, tid, view->ino, &dir, name) &&
	    hc_there_look(fs, dir, name, tid, &there) == 0) {
		shows = there.kind != HC_F_NONE && there.kind != HC_F_DIR;
		hc_there_end(&there);
	}
	if (!shows) {
		hc_mark_clear(fs, tid);
		return -ENOENT;
	}
	attr_as_told(view, st);
	return 0;
}

void hc_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_body *written = hc_handle_find_detached(fs, ino, hc_req_tid(req));
	struct hc_fview view;
	struct stat st;
	double timeout;
	int err;

	if (written) {
		hc_attr_body(fs, written, &st);
		hc_body_put(written);
		st.st_ino = ino;
		fuse_reply_attr(req, &st, 0);
		return;
	}
	hc_tree_see(fs->tree, ino, &view);
	err = hc_attr_view(fs, &view, &st, &timeout);
	if (err && (view.kind == HC_F_PAGE || view.kind == HC_F_FILE || view.kind == HC_F_GONE)) {
		err = attr_of_handle(fs, &view, &st);
		timeout = 0;
	}
	hc_body_put(view.body);
	if (err == -ESTALE && ino >= HC_INO_FILES && !fi)
		err = gone_attr(fs, hc_req_tid(req), &view, &st);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_attr(req, &st, timeout);
}

static uint64_t time_of(const struct timespec *ts)
{
	return (uint64_t)ts->tv_sec * HC_NS_PER_S + (uint64_t)ts->tv_nsec;
}

/* HC_DIR_SET_* bits and the values that belong to them. */
static uint32_t what_of(const struct stat *attr, int to_set, struct hc_owner *owner,
			uint64_t *mtime_ns)
{
	uint32_t what = 0;

	if (to_set & FUSE_SET_ATTR_MODE) {
		owner->mode = attr->st_mode & 0777;
		what |= HC_DIR_SET_MODE;
	}
	if (to_set & FUSE_SET_ATTR_UID) {
		owner->uid = attr->st_uid;
		what |= HC_DIR_SET_UID;
	}
	if (to_set & FUSE_SET_ATTR_GID) {
		owner->gid = attr->st_gid;
		what |= HC_DIR_SET_GID;
	}
	if (to_set & FUSE_SET_ATTR_MTIME_NOW) {
		*mtime_ns = hc_clock_wall_ns();
		what |= HC_DIR_SET_MTIME;
	} else if (to_set & FUSE_SET_ATTR_MTIME) {
		*mtime_ns = time_of(&attr->st_mtim);
		what |= HC_DIR_SET_MTIME;
	}
	return what;
}

static int set_dir(struct hc_fs *fs, uint32_t dir, const struct stat *attr, int to_set)
{
	struct hc_dir_info info;
	uint32_t what;
	int err;

	err = hc_dir_get(fs->registry, dir, &info);
	if (err)
		return -ESTALE;
	what = what_of(attr, to_set, &info.owner, &info.mtime_ns);
	if (to_set & FUSE_SET_ATTR_MODE) /* sticky and set-gid mean something on directories */
		info.owner.mode = attr->st_mode & 03777;
	return what ? hc_dir_set(fs->registry, dir, &info, what) : 0;
}

static int set_file_size(struct hc_fs *fs, const struct hc_fview *view, uint64_t size_bytes)
{
	struct hc_fnode *fnode = hc_tree_get(fs->tree, view->ino);
	struct hc_openfile *of;
	int err;

	if (!fnode)
		return -ESTALE;
	err = hc_openfile_open(fs, fnode, view->file, true, false, &of);
	if (!err) {
		err = hc_openfile_truncate(fs, of, size_bytes);
		hc_openfile_release(fs, of, true);
	}
	hc_tree_put(fs->tree, fnode);
	return err;
}

static int set_file(struct hc_fs *fs, const struct hc_fview *view, const struct stat *attr,
		    int to_set)
{
	struct hc_handle_attr attr_open;
	struct hc_file_info info;
	uint32_t what;
	int err = 0;

	if (to_set & FUSE_SET_ATTR_SIZE)
		err = set_file_size(fs, view, (uint64_t)attr->st_size);
	if (err)
		return err;
	if (hc_file_get(fs->registry, view->file, &info))
		/* It may have become a body, or lost its name while it is open. */
		return to_set & FUSE_SET_ATTR_SIZE || hc_openfile_attr(fs, view->file, &attr_open)
			       ? 0
			       : -ESTALE;
	what = what_of(attr, to_set, &info.owner, &info.mtime_ns);
	return what ? hc_file_set(fs->registry, &info, false, what) : 0;
}

/* Kept as long as the kernel knows the page. */
static void set_atime(struct hc_fs *fs, const struct hc_fview *view, const struct stat *attr,
		      int to_set)
{
	struct hc_fnode *fnode = hc_tree_get(fs->tree, view->ino);
	bool given = to_set & FUSE_SET_ATTR_ATIME && !(to_set & FUSE_SET_ATTR_ATIME_NOW);

	if (fnode && to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW))
		hc_tree_opened(fs->tree, fnode,
			       given ? time_of(&attr->st_atim) : hc_clock_wall_ns());
	hc_tree_put(fs->tree, fnode);
}

/* A page is immutable: truncating it means opening it for writing, which gives a body of its own.
 * `touch` and utime(NULL) renew its place in the eviction order and nothing on disk; an explicit
 * time is kept. */
static int set_page(struct hc_fs *fs, const struct hc_fview *view, const struct stat *attr,
		    int to_set, int tid)
{
	struct hc_page_info info;
	struct hc_opener opener;
	uint32_t what;
	int err;

	err = hc_view_stat(fs, view, &info);
	if (err)
		return -ESTALE;
	if (to_set & FUSE_SET_ATTR_SIZE && (uint64_t)attr->st_size != info.size_bytes)
		return -EPERM;
	if (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW)) {
		hc_opener_of(fs, tid, &opener);
		hc_node_touch(fs->node, view->entry, view->sequence, (uint32_t)opener.tgid,
			      info.key.series);
		set_atime(fs, view, attr, to_set);
	}
	what = what_of(attr, to_set & ~FUSE_SET_ATTR_MTIME_NOW, &info.owner, &info.mtime_ns);
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		what &= ~HC_DIR_SET_MTIME;
	return what ? hc_node_set(fs->node, view->entry, view->sequence, &info, what) : 0;
}

/* touch opens for writing, writes nothing and sets the times of what it opened: a copy that is
 * going to be dropped. They are meant for the page. */
static void set_source(struct hc_fs *fs, struct hc_body *body, const struct stat *attr, int to_set,
		       int tid)
{
	struct hc_page_info info;
	struct hc_fview view = {.kind = HC_F_PAGE};

	if (to_set & FUSE_SET_ATTR_SIZE || atomic_load(&body->wrote))
		return;
	pthread_rwlock_rdlock(&body->rw);
	view.key = body->source_key;
	pthread_rwlock_unlock(&body->rw);
	if (!view.key.series || hc_node_stat(fs->node, &view.key, false, &info))
		return;
	view.ino = info.node_id;
	view.entry = info.entry;
	view.sequence = info.sequence;
	if (set_page(fs, &view, attr, to_set, tid))
		hc_debug("fuse", "a page went before its times were set");
}

/* *moved_p: the body is a page or a file already, whose attributes these are to be; NULL: where
 * nothing else is known of it. */
static int set_body(struct hc_fs *fs, struct hc_body *body, const struct stat *attr, int to_set,
		    int tid, bool *moved_p)
{
	int err = 0;

	if (to_set & FUSE_SET_ATTR_SIZE)
		err = hc_body_truncate(body, (uint64_t)attr->st_size);
	if (err)
		return err;
	pthread_rwlock_wrlock(&body->rw);
	if (moved_p && !body->fill) {
		*moved_p = true;
		pthread_rwlock_unlock(&body->rw);
		return 0;
	}
	if (what_of(attr, to_set, &body->owner, &body->mtime_ns) & HC_DIR_SET_MTIME && body->fill)
		hc_fill_set_mtime(body->fill, body->mtime_ns);
	pthread_rwlock_unlock(&body->rw);
	set_source(fs, body, attr, to_set, tid);
	return 0;
}

/* ftruncate and the like: through the handle, which may write a body that the node id does not tell
 * of. False: not a body's. */
static bool set_by_handle(struct hc_fs *fs, fuse_req_t req, uint64_t ino, const struct stat *attr,
			  int to_set, struct fuse_file_info *fi)
{
	struct hc_openfile *of;
	struct hc_body *body = hc_handle_target((struct hc_handle *)(uintptr_t)fi->fh, &of);
	bool moved = false;
	struct stat st;
	int err;

	if (!body || of) {
		hc_body_put(body);
		return false;
	}
	err = set_body(fs, body, attr, to_set, hc_req_tid(req), &moved);
	if (moved) {
		hc_body_put(body);
		return false;
	}
	hc_attr_body(fs, body, &st);
	hc_body_put(body);
	st.st_ino = ino;
	if (err)
		hc_reply_err(req, err);
	else
		fuse_reply_attr(req, &st, 0);
	return true;
}

static int set_view(struct hc_fs *fs, const struct hc_fview *view, const struct stat *attr,
		    int to_set, int tid, bool *moved_p)
{
	switch (view->kind) {
	case HC_F_DIR:
		return set_dir(fs, view->dir, attr, to_set);
	case HC_F_FILE:
		return set_file(fs, view, attr, to_set);
	case HC_F_BODY:
		return set_body(fs, view->body, attr, to_set, tid, moved_p);
	case HC_F_PAGE:
		return set_page(fs, view, attr, to_set, tid);
	case HC_F_VIRTUAL: /* O_TRUNC of a shell's redirection */
		return to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)
			       ? -EPERM
			       : 0;
	default:
		return -ESTALE;
	}
}

void hc_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		   struct fuse_file_info *fi)
{
	struct hc_fs *fs = hc_req_fs(req);
	int tid = hc_req_tid(req), err;
	struct hc_fview view;
	bool moved = false;
	struct stat st;
	double timeout;

	hc_tree_see(fs->tree, ino, &view);
	if (fi && view.kind >= HC_F_FILE && set_by_handle(fs, req, ino, attr, to_set, fi)) {
		hc_body_put(view.body);
		return;
	}
	err = set_view(fs, &view, attr, to_set, tid, &moved);
	if (moved) {
		/* It turned into a page or file since it was seen. */
		hc_body_put(view.body);
		hc_tree_see(fs->tree, ino, &view);
		err = set_view(fs, &view, attr, to_set, tid, NULL);
	}
	hc_body_put(view.body);
	if (!err) {
		hc_tree_see(fs->tree, ino, &view);
		err = hc_attr_view(fs, &view, &st, &timeout);
		if (err && (view.kind == HC_F_FILE || view.kind == HC_F_GONE)) {
			err = attr_of_handle(fs, &view, &st);
			timeout = 0;
		}
		hc_body_put(view.body);
	}
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_attr(req, &st, timeout);
}

/* The space's quota where it has one, else the disk tier's limit, else the pool. */
static void room_of(struct hc_fs *fs, uint32_t dir, uint64_t *total_p, uint64_t *used_p)
{
	struct hc_space_info space;
	struct hc_node_stats stats;
	struct hc_dir_info info;

	if (hc_dir_get(fs->registry, dir, &info) == 0 &&
	    hc_space_get(fs->registry, info.space, &space) == 0 && space.quota_bytes) {
		*total_p = space.quota_bytes;
		*used_p = hc_space_used(fs->registry, space.id);
		return;
	}
	hc_node_stats(fs->node, &stats);
	if (hc_node_n_disks(fs->node) && stats.disk_limit_bytes) {
		*total_p = stats.disk_limit_bytes;
		*used_p = stats.disk_used_bytes;
	} else {
		*total_p = stats.pool.size_bytes;
		*used_p = stats.memory_bytes;
	}
}

/* The directory that a node id lies in; the root when that cannot be told. */
static uint32_t dir_of(struct hc_fs *fs, uint64_t ino)
{
	struct hc_page_info page;
	struct hc_file_info file;
	struct hc_fview view;
	uint32_t dir = HC_DIR_ROOT;
	char name[HC_NAME_BYTES];

	hc_tree_see(fs->tree, ino, &view);
	if (view.kind == HC_F_DIR)
		dir = view.dir;
	else if (view.kind == HC_F_FILE && hc_file_get(fs->registry, view.file, &file) == 0)
		dir = file.dir;
	else if (view.kind == HC_F_PAGE && hc_view_stat(fs, &view, &page) == 0)
		dir = page.dir;
	else if (view.kind == HC_F_BODY)
		(void)hc_body_name(fs, view.body, &dir, name);
	hc_body_put(view.body);
	return dir;
}

void hc_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct hc_fs *fs = hc_req_fs(req);
	uint64_t total = 0, used = 0, free_blocks;
	struct statvfs st = {.f_bsize = HC_BLOCK_BYTES,
			     .f_frsize = HC_BLOCK_BYTES,
			     .f_namemax = HC_NAME_BYTES - 1};

	room_of(fs, dir_of(fs, ino), &total, &used);
	free_blocks = (total - hc_min_u64(used, total)) / HC_BLOCK_BYTES;
	st.f_blocks = total / HC_BLOCK_BYTES;
	st.f_bfree = free_blocks;
	st.f_bavail = free_blocks;
	st.f_files = HC_STATFS_NAMES;
	st.f_ffree = HC_STATFS_NAMES;
	st.f_favail = HC_STATFS_NAMES;
	fuse_reply_statfs(req, &st);
}
