/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the front end share. Not for control files or main: they know fs.h alone. */
#ifndef HC_FUSE_INTERNAL_H
#define HC_FUSE_INTERNAL_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <semaphore.h>

#include "fuse/bodies.h"
#include "fuse/fs.h"
#include "fuse/notify.h"
#include "fuse/tree.h"

#define HC_FS_IO_BYTES_MAX HC_MIB             /* one request */
#define HC_SYNC_NS         (60 * HC_NS_PER_S) /* longest fsync */

struct hc_virtual;
struct hc_openers;
struct hc_openfiles;
struct hc_handles;
struct hc_listings;
struct hc_pass;

/* What the kernel offered in INIT, and what is in force. */
struct hc_kernel {
	uint64_t init_unique; /* INIT is being answered */
	uint32_t minor;       /* of the kernel, not of libfuse */
	bool has_parallel_dirops;
	bool has_killpriv_v2;
	bool has_direct_mmap;
	bool has_passthrough;
	bool has_epoch;
};

/* Events of the node that this thread causes itself: the kernel knows. */
extern __thread bool hc_fs_quiet;

struct hc_fs {
	struct hc_fs_options options;
	struct hc_node *node;
	struct hc_registry *registry;
	struct fuse_session *session;
	struct hc_kernel kernel;
	struct hc_tree *tree;
	struct hc_bodies bodies;
	struct hc_notifier *notifier;
	struct hc_virtual *virtuals;
	struct hc_openers *openers;
	struct hc_openfiles *openfiles;
	struct hc_handles *handles;
	struct hc_listings *listings;
	struct hc_pass *pass;
	double timeout_s;
	uint64_t budget_ns;
	uint32_t uid, gid; /* the daemon's */
	atomic_bool mounted;
	sem_t stop;
	atomic_uint n_handles;
	struct hc_timing timings[HC_FS_N_TIMINGS];
	struct {
#define HC_FS_COUNTER_ATOMIC(name) atomic_ullong name;
		HC_FS_COUNTERS(HC_FS_COUNTER_ATOMIC)
#undef HC_FS_COUNTER_ATOMIC
	} counters;
};

#define hc_fs_count(fs, name) \
	atomic_fetch_add_explicit(&(fs)->counters.name, 1, memory_order_relaxed)
#define hc_fs_add(fs, name, n) \
	atomic_fetch_add_explicit(&(fs)->counters.name, (n), memory_order_relaxed)

/* --- init.c --- */
/* fuse_session_custom_io on the session's fd: sees INIT, adds to its answer what libfuse does not
 * pass on. */
int hc_init_hook(struct hc_fs *fs) HC_MUST_CHECK;
void hc_init_capabilities(struct hc_fs *fs, struct fuse_conn_info *conn);

/* --- passthrough.c --- */
int hc_pass_create(struct hc_fs *fs, struct hc_pass **pass_p) HC_MUST_CHECK;
void hc_pass_destroy(struct hc_pass *pass);
/* INIT is being answered: begin before the answer goes out, probe after it. Who asks in between
 * waits. offered: by the kernel. */
void hc_pass_probe_begin(struct hc_fs *fs);
void hc_pass_probe(struct hc_fs *fs, bool offered);
/* In force on any data directory. */
bool hc_pass_is_on(struct hc_fs *fs);
/* For bodies under construction, too. */
bool hc_pass_writes(struct hc_fs *fs);

struct hc_handle;
/* How the bytes of a handle go. */
enum hc_path {
	HC_PATH_DAEMON,
	HC_PATH_FILE,    /* the kernel reads and writes the file behind it */
	HC_PATH_WATCHED, /* the daemon, on an inode whose other handles are FILE */
};
struct hc_way {
	enum hc_path path;
	int32_t id;   /* FILE, WATCHED: of the backing file */
	uint64_t ino; /* that was opened; 0: not counted */
};
/* A further open of an inode that is open by FILE; false: it is not. */
bool hc_pass_join(struct hc_fs *fs, uint64_t ino, struct hc_way *way_p);
/* Counts an open. The first one decides: FILE with that file, or (fd -1, or the kernel does not
 * want it) DAEMON. ref (may be NULL) is kept until the last open ends, or given back at once.
 * other: 0, or the sequence of the page that is served for what the inode stands for; false: the
 * inode is open with other bytes, and a map, which all handles share, would show both. */
bool hc_pass_enter(struct hc_fs *fs, uint64_t ino, uint64_t other, int fd, struct hc_ref *ref,
		   struct hc_way *way_p) HC_MUST_CHECK;
/* Anyhow, also by a handle of what another node stands for. */
bool hc_pass_is_open(struct hc_fs *fs, uint64_t ino);
void hc_pass_leave(struct hc_fs *fs, struct hc_way *way);
/* Keeps a page from eviction until the last open ends. False: the inode is not open by FILE. */
bool hc_pass_hold(struct hc_fs *fs, uint64_t ino, uint32_t entry, uint64_t sequence);
/* The way of a handle that has none yet. -EBUSY, and of a body's first writer -ENOSPC, -EDQUOT. */
int hc_pass_open(struct hc_fs *fs, struct hc_handle *handle, uint64_t ino, int flags) HC_MUST_CHECK;
/* As fuse_reply_open and fuse_reply_create: not 0 when the caller was interrupted. */
int hc_pass_reply_open(fuse_req_t req, const struct hc_handle *handle,
		       const struct fuse_file_info *fi);
int hc_pass_reply_create(fuse_req_t req, const struct hc_handle *handle,
			 const struct fuse_entry_param *entry, const struct fuse_file_info *fi);
uint32_t hc_pass_n_ids(struct hc_fs *fs);

/* --- openers.c --- */
int hc_openers_create(struct hc_openers **openers_p) HC_MUST_CHECK;
void hc_openers_destroy(struct hc_openers *openers);
/* The process of a thread id; tgid 0 when it cannot be seen (tid 0, or gone). */
void hc_opener_of(struct hc_fs *fs, int tid, struct hc_opener *opener_p);
/* The size that a new body will probably have: last published in the series, else by this process
 * in the directory. */
uint64_t hc_size_guess(struct hc_fs *fs, uint32_t series, int tgid, uint32_t dir);
void hc_size_learn(struct hc_fs *fs, uint32_t series, int tgid, uint32_t dir, uint64_t size_bytes);

/* --- names: what a name shows (ops-lookup.c) --- */
struct hc_there {
	enum hc_fkind kind; /* NONE, DIR, FILE, BODY, PAGE */
	bool busy;          /* bodies under construction: nothing may be cached */
	bool is_page_name;  /* by its text: writers get bodies of their own */
	struct hc_name id;
	struct hc_body *body; /* reference */
	union {
		struct hc_dir_info dir;
		struct hc_file_info file;
		struct hc_page_info page;
	};
};
/* Looks in bodies, pages, directories and files. 0 also when nothing is there. -ENOENT (parent
 * gone), -ENAMETOOLONG. */
int hc_there_look(struct hc_fs *fs, uint32_t dir, const char *name, int tid,
		  struct hc_there *there_p) HC_MUST_CHECK;
void hc_there_end(struct hc_there *there);
/* Fills an entry and remembers it; the fnode (NULL for directories) stays pinned for the caller. */
int hc_there_entry(struct hc_fs *fs, const struct hc_there *there, struct fuse_entry_param *entry_p,
		   struct hc_fnode **fnode_p) HC_MUST_CHECK;
/* Whose a new thing is, and with which mode. */
void hc_owner_new(struct hc_fs *fs, fuse_req_t req, uint32_t dir, mode_t mode, bool is_dir,
		  struct hc_owner *owner_p);
/* A directory of ours behind a node id: 0, -ENOTDIR, -ESTALE; -EACCES below .hicache. */
int hc_dir_of_ino(struct hc_fs *fs, uint64_t ino, struct hc_dir_info *info_p) HC_MUST_CHECK;
/* A body for a writer of a name that shows something already: begins as a copy unless trunc.
 * Reference; pending: its OPEN is to come, else it has no handle yet. */
int hc_there_own(struct hc_fs *fs, const struct hc_there *there, uint32_t dir, const char *name,
		 const struct hc_opener *opener, const struct hc_owner *owner, bool trunc,
		 bool pending, struct hc_body **body_p) HC_MUST_CHECK;
/* Of what is there; false: nothing. */
bool hc_there_owner(const struct hc_there *there, struct hc_owner *owner_p);
bool hc_is_virtual_name(uint64_t parent, const char *name);

/* --- attributes (ops-attr.c) --- */
void hc_attr_dir(struct hc_fs *fs, const struct hc_dir_info *info, struct stat *st);
void hc_attr_file(struct hc_fs *fs, uint64_t ino, const struct hc_file_info *info, struct stat *st);
void hc_attr_page(struct hc_fs *fs, const struct hc_page_info *info, uint64_t atime_ns,
		  struct stat *st);
void hc_attr_body(struct hc_fs *fs, struct hc_body *body, struct stat *st);
/* -ESTALE. */
int hc_attr_view(struct hc_fs *fs, const struct hc_fview *view, struct stat *st,
		 double *timeout_p) HC_MUST_CHECK;

/* --- handles (handles.c) --- */
struct hc_openfile;
enum hc_hkind { HC_H_PAGE, HC_H_BODY, HC_H_FILE };
/* What a handle remembers of a page: fstat goes on after the name went. */
struct hc_handle_attr {
	struct hc_owner owner;
	uint64_t size_bytes;
	uint64_t mtime_ns;
};
struct hc_handle {
	struct hc_handle *next, **place; /* in its bucket */
	struct hc_handle
		*next_detached; /* among those that write what their node does not tell of */
	uint64_t detached_ino;  /* the node that was opened; 0: its own */
	int tgid;               /* detached: of the process */
	enum hc_hkind kind;
	bool writer;
	bool outside;           /* a writer that is not seen */
	struct hc_fnode *fnode; /* pinned */
	struct hc_ref ref;      /* PAGE: held from open to release, but by FILE */
	struct hc_way way;
	_Atomic uint64_t touched_ns; /* PAGE: when its use was last noted */
	struct hc_handle_attr attr;
	struct hc_body *body;   /* BODY: reference and one open */
	struct hc_openfile *of; /* FILE */
};
int hc_handles_create(struct hc_handles **handles_p) HC_MUST_CHECK;
/* Ends all that the kernel did not release; their writers publish nothing that was not flushed. */
void hc_handles_end(struct hc_fs *fs);
void hc_handles_destroy(struct hc_handles *handles);
/* The pin is the handle's from now on; NULL when memory is out. */
struct hc_handle *hc_handle_new(struct hc_fs *fs, enum hc_hkind kind, struct hc_fnode *fnode,
				bool writer, const struct hc_handle_attr *attr);
/* Gives everything back. */
void hc_handle_end(struct hc_fs *fs, struct hc_handle *handle);
/* What open and create answer in flags. */
void hc_handle_flags(const struct hc_handle *handle, struct fuse_file_info *fi);
/* Attributes that an open handle of a page remembers. */
bool hc_handle_find(struct hc_fs *fs, uint64_t ino, struct hc_handle_attr *attr_p);
/* A writer opened this node and got a body that it does not tell of. fstat() by that process
 * means the body, where nobody reads the node: find returns the newest, NULL: none. Reference. */
void hc_handle_detach(struct hc_fs *fs, struct hc_handle *handle, uint64_t ino, int tgid);
struct hc_body *hc_handle_find_detached(struct hc_fs *fs, uint64_t ino, int tid);
/* Of whatever kind. */
bool hc_handle_is_open(struct hc_fs *fs, uint64_t ino);
/* The body that an open handle of this node reads, also when it is a page or file by now, or was
 * one and is gone; NULL: none. Reference. */
struct hc_body *hc_handle_find_body(struct hc_fs *fs, uint64_t ino);
/* What is behind a handle at this moment: a body (NULL: a page), or, with *of_p set, an ordinary
 * file, which the reference keeps. Reference. */
struct hc_body *hc_handle_target(struct hc_handle *handle, struct hc_openfile **of_p);

/* --- open directories (ops-dir.c) --- */
int hc_listings_create(struct hc_listings **listings_p) HC_MUST_CHECK;
/* Ends all that the kernel did not release: they hold bodies. */
void hc_listings_end(struct hc_fs *fs);
void hc_listings_destroy(struct hc_listings *listings);

/* --- open ordinary files (openfile.c) --- */
int hc_openfiles_create(struct hc_openfiles **files_p) HC_MUST_CHECK;
void hc_openfiles_destroy(struct hc_openfiles *files);
/* One for all handles of a file. -ESTALE when it is gone. */
int hc_openfile_open(struct hc_fs *fs, struct hc_fnode *fnode, uint64_t file, bool writer,
		     bool trunc, struct hc_openfile **of_p) HC_MUST_CHECK;
void hc_openfile_release(struct hc_fs *fs, struct hc_openfile *of, bool writer);
/* Attributes of an open file, also when its name is gone; false: not open. */
bool hc_openfile_attr(struct hc_fs *fs, uint64_t file, struct hc_handle_attr *attr_p);
/* The body that it became, or NULL. Reference. */
struct hc_body *hc_openfile_body(struct hc_openfile *of);
int hc_openfile_read(struct hc_openfile *of, void *buf, size_t n, uint64_t offset,
		     size_t *got_p) HC_MUST_CHECK;
/* May turn the file into a body. append: at its end, wherever that is. */
int hc_openfile_write(struct hc_fs *fs, struct hc_openfile *of, const void *data, size_t n,
		      uint64_t offset, bool append) HC_MUST_CHECK;
int hc_openfile_truncate(struct hc_fs *fs, struct hc_openfile *of,
			 uint64_t size_bytes) HC_MUST_CHECK;
int hc_openfile_allocate(struct hc_fs *fs, struct hc_openfile *of, uint64_t end_bytes,
			 bool keep_size) HC_MUST_CHECK;
int hc_openfile_fsync(struct hc_openfile *of) HC_MUST_CHECK;
/* An ordinary file becomes a body: under its name, or (named false) without one. Reference. */
int hc_file_to_body(struct hc_fs *fs, const struct hc_file_info *info, bool named,
		    struct hc_body **body_p) HC_MUST_CHECK;
/* Unlink of a file that is open for writing goes on as a body without a name. */
void hc_file_unlinked(struct hc_fs *fs, const struct hc_file_info *info);

/* --- virtual files (virtual.c) --- */
int hc_virtual_create(struct hc_fs *fs, struct hc_virtual **virtuals_p) HC_MUST_CHECK;
void hc_virtual_destroy(struct hc_virtual *virtuals);
#define HC_VIRTUAL_ROOT HC_INO_VIRTUAL
/* 0, -ENOENT. */
int hc_virtual_lookup(struct hc_fs *fs, uint64_t parent, const char *name,
		      uint64_t *ino_p) HC_MUST_CHECK;
int hc_virtual_attr(struct hc_fs *fs, uint64_t ino, struct stat *st) HC_MUST_CHECK;
void hc_virtual_open(struct hc_fs *fs, fuse_req_t req, uint64_t ino, struct fuse_file_info *fi);
void hc_virtual_read(struct hc_fs *fs, fuse_req_t req, size_t n, off_t offset,
		     struct fuse_file_info *fi);
void hc_virtual_write(struct hc_fs *fs, fuse_req_t req, const char *data, size_t n,
		      struct fuse_file_info *fi);
void hc_virtual_flush(struct hc_fs *fs, fuse_req_t req, struct fuse_file_info *fi);
void hc_virtual_release(struct hc_fs *fs, struct fuse_file_info *fi);
/* Children: heap array of {name, ino, is_dir}. */
struct hc_virtual_item {
	char name[HC_NAME_BYTES];
	uint64_t ino;
	bool is_dir;
};
int hc_virtual_list(struct hc_fs *fs, uint64_t ino, struct hc_virtual_item **items_p,
		    size_t *n_p) HC_MUST_CHECK;
/* Ends background commands. */
void hc_virtual_cancel(struct hc_fs *fs);

/* The page behind a view as it is; -ESTALE when that body is gone. */
static inline HC_MUST_CHECK int hc_view_stat(struct hc_fs *fs, const struct hc_fview *view,
					     struct hc_page_info *info_p)
{
	if (view->entry == HC_ENTRY_NONE)
		return -ESTALE;
	return hc_node_stat_body(fs->node, view->entry, view->sequence, info_p);
}

/* --- requests --- */
static inline struct hc_fs *hc_req_fs(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* Engines know ENOSPC: a quota that is full is answered with it, too. */
static inline void hc_reply_err(fuse_req_t req, int err)
{
	if (err == -EIO)
		hc_fs_count(hc_req_fs(req), eio_replies);
	fuse_reply_err(req, err == -EDQUOT ? ENOSPC : -err);
}

static inline int hc_req_tid(fuse_req_t req)
{
	return fuse_req_ctx(req)->pid;
}

/* The caller of a FLUSH is ended by a signal. */
bool hc_req_is_killed(fuse_req_t req);

void hc_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void hc_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
void hc_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void hc_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void hc_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		   struct fuse_file_info *fi);
void hc_op_statfs(fuse_req_t req, fuse_ino_t ino);
void hc_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void hc_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void hc_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void hc_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		  const char *new_name, unsigned int flags);
void hc_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
void hc_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name);
void hc_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void hc_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void hc_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		  struct fuse_file_info *fi);
void hc_op_read(fuse_req_t req, fuse_ino_t ino, size_t n, off_t offset, struct fuse_file_info *fi);
void hc_op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t n, off_t offset,
		 struct fuse_file_info *fi);
void hc_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void hc_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void hc_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void hc_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		     struct fuse_file_info *fi);
void hc_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void hc_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		   struct fuse_file_info *fi);
void hc_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi);
void hc_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void hc_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void hc_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		    size_t size, int flags);
void hc_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void hc_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void hc_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
