/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies under construction and what their names show: the part of the name space that the node
 *does not know yet.
 *
 *	PRIVATE    made in place under a page's name; only its maker's handles see it until the last
 *writer's RELEASE TEMPORARY  under a temporary name; LOOKUP answers the asker's own, else the
 *newest closed, else the newest SHOWN      renamed to its final name while a writer still holds it
 *(unsealed): served to all from here SHARED     an ordinary file that outgrew its limit, or a
 *scratch file: one body for all writers UNNAMED    unlinked or replaced; lives for the handles that
 *hold it DONE       became a page or an ordinary file; handles read on
 *
 * Locks: `hc_bodies.lock` guards names, lists, states, counts and marks; no call into the node is
 *made under it. `hc_body.rw` guards bytes: held for reading while a reply is made from them, for
 *writing while they change or become a page. rw comes before the lock, an open file's lock before
 *rw. */
#ifndef HC_FUSE_BODIES_H
#define HC_FUSE_BODIES_H

#include <pthread.h>
#include <stdatomic.h>

#include "fuse/tree.h"
#include "node/fill.h"

#define HC_BODIES_FILTER \
	65536u /* counters of names by hash: a look-up of another name takes no lock */
#define HC_BODIES_BUCKETS 16384u
#define HC_MARKS_MAX      1024u /* threads between ESTALE and the next try; more are answered -EBUSY */
#define HC_MARK_PLACES    16u
/* How long a thread's open() may be on its way round. A writer's waits for the directory, which a
 * rename that syncs holds for long; a reader's waits for nobody. */
#define HC_MARK_NS      (5 * HC_NS_PER_S)
#define HC_MARK_READ_NS HC_NS_PER_S
#define HC_PARK_NS      (50 * HC_NS_PER_MS)
#define HC_SETTLE_NS                                                                      \
	(45 * HC_NS_PER_S) /* longest wait for another worker's publish: a rename on disk \
			    * and a sync may take 20 s each */

struct hc_fs;
struct hc_bname;
struct hc_openfile;

enum hc_bstate {
	HC_B_PRIVATE,
	HC_B_TEMPORARY,
	HC_B_SHOWN,
	HC_B_SHARED,
	HC_B_UNNAMED,
	HC_B_DONE,
};

/* A process, told apart from a later one with the same number. */
struct hc_opener {
	int tid;
	int tgid; /* 0: not visible to us */
	uint64_t start_ticks;
};

struct hc_body {
	struct hc_fs *fs;
	atomic_uint n_refs;
	uint64_t ino;
	uint64_t moved_ino;     /* number of the page that is moved by it; 0: none */
	struct hc_fnode *fnode; /* pinned until the body ends */
	/* under hc_bodies.lock */
	struct hc_bname *name; /* NULL: none */
	struct hc_body *next;  /* in its name's list */
	enum hc_bstate state;
	struct hc_opener maker;
	uint32_t n_opens;
	uint32_t n_writers;
	int pending_tid;  /* made by a LOOKUP for this thread, whose OPEN is to come */
	uint64_t idle_ns; /* since when nobody holds it (or it is pending) */
	bool created;     /* by CREATE: closed empty it is an ordinary file */
	bool flushed;     /* a RELEASE is on its way */
	bool killed;      /* verdict of the last FLUSH */
	bool settling;    /* on its way to be a page or file */
	bool ended;
	atomic_bool wrote;
	atomic_bool synced; /* fsync: on disk, too, when it is published */
	/* under rw */
	pthread_rwlock_t rw;
	struct hc_fill *fill; /* NULL when DONE */
	struct hc_ref page;   /* copy-up: what it begins with; DONE: what handles read */
	bool has_page;
	int fd; /* DONE as an ordinary file or as a page that went to disk by itself: its bytes */
	struct hc_ref hold; /* of such a page: no victim while it is open */
	bool has_hold;
	/* DONE as an ordinary file: what its handles go on with; NULL: not yet, or none of them is
	 * left */
	struct hc_openfile *_Atomic of;
	uint64_t source_bytes; /* size of what it begins with, before OPEN held it; of the page it
				  became */
	struct hc_key source_key; /* series 0: none */
	struct hc_owner owner;
	struct hc_attrset attrs; /* until it is DONE: then they are the page's or file's */
	uint64_t mtime_ns;
	uint32_t space;
};

struct hc_bname {
	struct hc_bname *next;
	struct hc_body *made;  /* PRIVATE, TEMPORARY: newest first */
	struct hc_body *shown; /* SHOWN, SHARED */
	uint64_t hash;
	uint32_t dir;
	uint32_t n_settling;
	uint32_t n_renaming; /* bodies that are becoming it: a RELEASE of the one before waits */
	uint32_t n_waiting;  /* threads that hold this pointer while they wait */
	bool temporary;
	char text[];
};

enum hc_mark_kind { HC_MARK_NONE, HC_MARK_READ, HC_MARK_WRITE, HC_MARK_TRUNC };

struct hc_mark {
	int tid;
	enum hc_mark_kind kind;
	uint64_t set_ns;
	uint64_t ino; /* told to its LOOKUP; 0: none yet, and no name */
	uint32_t dir;
	char name[HC_NAME_BYTES];
};

struct hc_bodies {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a body was published, dropped or settled */
	struct hc_bname *buckets[HC_BODIES_BUCKETS];
	atomic_uint filter[HC_BODIES_FILTER];
	struct hc_mark marks[HC_MARKS_MAX];
	atomic_uint n_marks;
	atomic_uint n_parked;
	atomic_uint n_moves; /* names that went from one kind of thing to another */
	uint32_t n_bodies;
	uint32_t n_temporaries;
	uint32_t n_shown;
};

int hc_bodies_init(struct hc_bodies *bodies) HC_MUST_CHECK;
void hc_bodies_fini(struct hc_bodies *bodies);

/* References keep the memory, not the name. */
struct hc_body *hc_body_get(struct hc_body *body);
void hc_body_put(struct hc_body *body);

/* A new body under a name (TEMPORARY or PRIVATE by the name), with one open handle unless
 * pending_tid. -ENOSPC, -EDQUOT, -ENOMEM. ino 0: a new number. The reference is the caller's. */
struct hc_body_make {
	uint32_t dir;
	const char *name;
	bool temporary;
	bool created;
	int pending_tid;
	struct hc_opener maker;
	struct hc_owner owner;
	uint32_t space;
	uint64_t size_hint;
	uint64_t source_bytes;
	struct hc_key source_key;
};
int hc_body_create(struct hc_fs *fs, const struct hc_body_make *make,
		   struct hc_body **body_p) HC_MUST_CHECK;
/* A body of an fnode that is an ordinary file, with its bytes (fd) and attributes: SHARED under
 * that name, or UNNAMED (name NULL). On error nothing has changed. */
struct hc_body_share {
	struct hc_fnode *fnode;
	uint64_t file;
	int fd;
	uint32_t n_opens;
	uint32_t n_writers;
};
int hc_body_create_shared(struct hc_fs *fs, const struct hc_body_make *make,
			  const struct hc_body_share *share, struct hc_body **body_p) HC_MUST_CHECK;

/* What a name shows to a thread, from here alone; NULL: nothing. busy_p: the name has bodies under
 * construction (answers about it must not be cached). */
struct hc_body *hc_bodies_show(struct hc_fs *fs, uint32_t dir, const char *name, int tid,
			       bool *busy_p);
bool hc_bodies_busy(struct hc_fs *fs, uint32_t dir, const char *name);
/* Waits at most 50 ms for the RELEASE of a flushed body of that name to come, once per flush, and
 * for one that is being worked on as long as a look-up may take (budget_ms). */
void hc_bodies_park(struct hc_fs *fs, uint32_t dir, const char *name);
/* The same for a listing of a directory: a name that was closed before is in it. */
void hc_bodies_park_dir(struct hc_fs *fs, uint32_t dir);
/* The body that an OPEN of this inode may write: own, pending for it, or shared. */
bool hc_body_is_pending(struct hc_body *body, const struct hc_opener *opener);
bool hc_body_is_own(struct hc_body *body, const struct hc_opener *opener, bool trunc);

/* Counts a handle in and out. open: -ESTALE when the body has ended meanwhile, or became a page or
 * file and a writer wants it; trunc clears it. release settles. */
int hc_body_open(struct hc_fs *fs, struct hc_body *body, bool writer, bool trunc) HC_MUST_CHECK;
void hc_body_flush(struct hc_fs *fs, struct hc_body *body, bool killed);
void hc_body_release(struct hc_fs *fs, struct hc_body *body, bool writer);

/* Takes the name of what hc_bodies_show would answer. False: nothing there. */
bool hc_bodies_unlink(struct hc_fs *fs, uint32_t dir, const char *name, int tid);
/* Takes the name of this body. */
void hc_body_drop(struct hc_fs *fs, struct hc_body *body);
/* Every visible body of a directory (for listings and rmdir): heap array of references. */
int hc_bodies_list(struct hc_fs *fs, uint32_t dir, struct hc_body ***list_p,
		   size_t *n_p) HC_MUST_CHECK;
/* Visible or not. */
uint32_t hc_bodies_count_dir(struct hc_fs *fs, uint32_t dir);
/* A copy of the name and directory of a body; false: none. */
bool hc_body_name(struct hc_fs *fs, struct hc_body *body, uint32_t *dir_p,
		  char name[HC_NAME_BYTES]);

/* Moves the body to another name: published at once when nobody writes it any more, else shown
 * there. noreplace was judged before. Errors leave it where it was. */
int hc_body_rename(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		   const struct hc_opener *opener) HC_MUST_CHECK;

/* Temporaries that nobody holds for max_age_ns (0: those whose process is gone, after some
 * seconds), bodies whose OPEN never came. The number of temporaries. */
uint64_t hc_bodies_reap(struct hc_fs *fs, uint64_t max_age_ns);
/* At the end: publishes what is shown, drops the rest. */
void hc_bodies_end(struct hc_fs *fs);

/* Marks: threads whose open() the kernel is repeating. */
bool hc_mark_set(struct hc_fs *fs, int tid, enum hc_mark_kind kind);
/* A writer's mark that may be for this name. */
enum hc_mark_kind hc_mark_get(struct hc_fs *fs, int tid, uint32_t dir, const char *name);
/* The thread's LOOKUP of a name, not of a directory, is told this node. A mark for another name is
 * over. True: it is the one that the mark is for. */
bool hc_mark_show(struct hc_fs *fs, int tid, uint32_t dir, const char *name, uint64_t ino);
/* A mark whose LOOKUP was told this node: an OPEN of it is the repeated one. */
bool hc_mark_is_for(struct hc_fs *fs, int tid, uint64_t ino);
/* Of such a mark: the name that was looked up. */
bool hc_mark_name(struct hc_fs *fs, int tid, uint64_t ino, uint32_t *dir_p,
		  char name[HC_NAME_BYTES]);
void hc_mark_clear(struct hc_fs *fs, int tid);
void hc_marks_expire(struct hc_fs *fs);

/* --- bytes (body-io.c) --- */
/* Takes rw so that what the body has can be read. */
void hc_body_read_lock(struct hc_body *body);
uint64_t hc_body_size(struct hc_body *body);
int hc_body_write(struct hc_body *body, const void *data, size_t n, uint64_t offset) HC_MUST_CHECK;
int hc_body_truncate(struct hc_body *body, uint64_t size_bytes) HC_MUST_CHECK;
int hc_body_allocate(struct hc_body *body, uint64_t end_bytes, bool keep_size) HC_MUST_CHECK;
int hc_body_fsync(struct hc_body *body) HC_MUST_CHECK;
/* Its bytes get their place, before the first writer: in a file if that is wanted and can be. */
int hc_body_begin(struct hc_body *body, bool as_file) HC_MUST_CHECK;
/* The file, for the kernel to open; -1: it has none, or (fresh) has bytes already. */
int hc_body_backing(struct hc_body *body, bool fresh, uint16_t *disk_p);
/* A writer that is not seen. seen: what it wrote so far. */
void hc_body_outside_begin(struct hc_body *body);
void hc_body_outside_seen(struct hc_body *body);
void hc_body_outside_end(struct hc_body *body);
/* By its last writer, which still counts as one: what the kernel wrote is summed. A rename that
 * comes meanwhile finds the body unsealed, and does not wait. */
void hc_body_sum(struct hc_body *body);
/* Holds what the body begins with (copy-up). -ENOENT. */
int hc_body_hold_source(struct hc_body *body, const struct hc_opener *opener) HC_MUST_CHECK;
/* Fill a new body, which nobody else knows yet, with what another or a file has. -ESTALE: that one
 * is a page or a file by now. */
int hc_body_copy_from(struct hc_body *body, struct hc_body *from) HC_MUST_CHECK;
int hc_body_copy_file(struct hc_body *body, int fd) HC_MUST_CHECK;
/* Copies it. rw held for writing. */
int hc_body_copy_up_locked(struct hc_body *body) HC_MUST_CHECK;

/* --- becoming something (settle.c) --- */
enum hc_settled { HC_SETTLED_PAGE, HC_SETTLED_FILE, HC_SETTLED_SCRATCH };
/* Makes the bytes the page or file that the name says; see DESIGN of names. Takes rw. renamed: for
 * a rename, which replaces a body that is SHOWN, too. On error all is as before. */
int hc_body_settle(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		   bool renamed, enum hc_settled *settled_p) HC_MUST_CHECK;
/* For settle: it is a page or file, and what the name showed until then goes. */
void hc_body_done(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		  bool renamed);
/* Removes what the node or the registry shows under a name: page (not the one with node id
 * `but_ino`), file (not `but_file`). */
void hc_name_clear(struct hc_fs *fs, uint32_t dir, const char *name, uint64_t but_ino,
		   uint64_t but_file);

/* By the mount: the kernel need not be told. False: nothing there. */
bool hc_remove_page(struct hc_fs *fs, const struct hc_key *key);

uint64_t hc_bname_hash(uint32_t dir, const char *name);

#endif
