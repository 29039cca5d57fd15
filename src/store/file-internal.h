/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of store "file", shared by its sources; tests may use the hook. Not for other folders.
 *
 *   submit -> group queue (urgent first) -> one worker thread runs the request -> done list +
 * eventfd -> reap
 *
 * Locks: a group's and the store's done lock are leaves; neither is held over I/O. */
#ifndef HC_STORE_FILE_INTERNAL_H
#define HC_STORE_FILE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/statvfs.h>

#include "store/file.h"

#define HC_FILE_READERS   8
#define HC_FILE_WRITERS   4
#define HC_FILE_QUEUE     256
#define HC_FILE_VERSION   1
#define HC_FILE_DISKS_MAX 64
/* A user.n value that fits beside user.h into one ext4 block of 4 KiB. */
#define HC_FILE_NAME_MAX 3584
/* VERIFY reads in parts of this size; whole leaves and whole blocks. */
#define HC_FILE_PART_BYTES ((size_t)1 << 20)
/* So many EIO within so long take a disk out. */
#define HC_FILE_EIO_MAX 3
/* At most one line about failed requests of a disk in so long. */
#define HC_FILE_LOG_SPAN_NS (10 * HC_NS_PER_S)
#define HC_FILE_EIO_SPAN_NS (10 * HC_NS_PER_S)

enum hc_file_group_kind {
	HC_FILE_GROUP_READ,  /* GET, OPEN */
	HC_FILE_GROUP_WRITE, /* PUT, ADOPT */
	HC_FILE_GROUP_SCRUB, /* VERIFY */
	HC_FILE_GROUP_REAP,  /* REMOVE, QUARANTINE */
	HC_FILE_N_GROUPS,
};

/* What is free is asked again when the last answer is older; an answer is waited for so long. */
#define HC_FILE_STAT_AGE_NS  (10 * HC_NS_PER_MS)
#define HC_FILE_STAT_WAIT_NS (2 * HC_NS_PER_S)

enum hc_file_aside_kind { HC_FILE_ASIDE_STAT, HC_FILE_ASIDE_SYNC, HC_FILE_N_ASIDES };

struct hc_file_aside;
struct hc_file_disk;

struct hc_file_list {
	struct hc_store_request *first;
	struct hc_store_request **last_p;
};

struct hc_file_group {
	struct hc_file_disk *disk;
	enum hc_file_group_kind kind;
	pthread_mutex_t lock;
	pthread_cond_t more;
	/* below: under lock */
	struct hc_file_list urgent;
	struct hc_file_list normal;
	uint32_t n_accepted[2]; /* queued or running; [1] urgent: has its own room */
	uint32_t n_idle;
	bool closing;
	/* set at open */
	uint32_t n_threads;
	pthread_t *threads;
};

struct hc_file_disk {
	struct hc_store_file *store;
	uint16_t disk_i;
	char *dir;
	uint8_t uuid[16];
	int dir_fd;
	int pages_fd;
	int staging_fd;
	int quarantine_fd;
	int identity_fd; /* holds the flock */
	bool direct;     /* O_DIRECT works here */
	struct hc_file_group groups[HC_FILE_N_GROUPS];
	struct hc_file_aside *asides[HC_FILE_N_ASIDES];
	atomic_bool out;
	atomic_bool late_told;            /* that the disk does not answer */
	_Atomic uint64_t n_shards_made;   /* in pages/, by this run */
	_Atomic uint64_t n_shards_synced; /* so many are durable */
	_Atomic uint64_t n_errors;
	_Atomic uint64_t logged_ns; /* the last line about a failed request */
	_Atomic uint64_t staging_next;
	uint64_t staging_first; /* names below it are leftovers of an earlier run */
	pthread_mutex_t error_lock;
	uint64_t eio_ns[HC_FILE_EIO_MAX]; /* under error_lock: a ring of the last times */
	uint32_t eio_i;
};

struct hc_store_file {
	struct hc_store store; /* first */
	uint32_t queue_max;
	uint16_t n_disks;
	struct hc_file_disk *disks;
	int event_fd;
	pthread_mutex_t done_lock;
	struct hc_file_list done; /* under done_lock */
	/* Tests: runs in the worker right before the medium is touched; a non-zero return is taken
	 * for the errno of the medium. Set before the first submit. */
	int (*hook)(void *arg, const struct hc_store_request *request);
	void *hook_arg;
};

static inline void hc_file_list_init(struct hc_file_list *list)
{
	list->first = NULL;
	list->last_p = &list->first;
}

static inline void hc_file_list_add(struct hc_file_list *list, struct hc_store_request *request)
{
	request->next = NULL;
	*list->last_p = request;
	list->last_p = &request->next;
}

static inline struct hc_store_request *hc_file_list_take(struct hc_file_list *list)
{
	struct hc_store_request *request = list->first;

	if (request) {
		list->first = request->next;
		if (!list->first)
			list->last_p = &list->first;
		request->next = NULL;
	}
	return request;
}

/* file-dir.c: identity, probes, directories of one disk. Messages are logged. */
int hc_file_disk_open(struct hc_file_disk *disk, const char *dir, bool init_empty) HC_MUST_CHECK;
void hc_file_disk_close(struct hc_file_disk *disk);
/* Makes pages/<3 hex> of a page; it is durable after the next durable put. */
int hc_file_shard_make(struct hc_file_disk *disk, const struct hc_store_page *page) HC_MUST_CHECK;
/* file.c: an errno of the medium, of other than a lack of room, is counted; the disk is taken out
 * where it says that the disk is going. */
void hc_file_disk_judge(struct hc_file_disk *disk, int error);
/* file-aside.c: calls that may hang, in threads of their own. Any thread. */
int hc_file_aside_create(enum hc_file_aside_kind kind, int fd, unsigned disk_i,
			 struct hc_file_aside **aside_p) HC_MUST_CHECK;
/* Waits at most a second; what hangs then is left behind. */
void hc_file_aside_destroy(struct hc_file_aside *aside);
/* syncfs. -ETIMEDOUT at the deadline. */
int hc_file_aside_sync(struct hc_file_aside *aside, uint64_t deadline_ns) HC_MUST_CHECK;
/* fstatvfs, or what it said last, when the disk does not answer (*late_p). -ETIMEDOUT where it
 * never said anything. */
int hc_file_aside_stat(struct hc_file_aside *aside, struct statvfs *vfs_p,
		       bool *late_p) HC_MUST_CHECK;
/* Whether somebody waited in vain for the call that runs. NULL: no. */
bool hc_file_aside_late(struct hc_file_aside *aside);
/* Tests: runs in the thread before the call. */
void hc_file_aside_hook(struct hc_file_aside *aside,
			void (*hook)(void *arg, enum hc_file_aside_kind kind), void *arg);
/* file-walk.c */
int hc_file_list_pages(struct hc_store *store, uint16_t disk, hc_store_each_t each, void *arg);
int hc_file_staging_create(struct hc_store *store, uint16_t disk, int *fd_p, char *name,
			   size_t room);
int hc_file_staging_remove(struct hc_store *store, uint16_t disk, const char *name);
int hc_file_sweep(struct hc_store *store, uint16_t disk,
		  bool (*keep)(void *arg, uint32_t series, const struct hc_hash *hash,
			       uint64_t sequence),
		  void *arg, bool quarantine, uint64_t *n_removed_p, uint64_t *bytes_removed_p);
/* file-io.c: runs one request to its end in the calling thread. The result is of the store's errno
 * set; *medium_p is the errno of the medium behind it (0: none), for the judgement on the disk.
 * part: room of HC_FILE_PART_BYTES and leaves for VERIFY, may be NULL in other groups. */
struct hc_file_scratch {
	void *part;
	uint64_t *leaves;
};
int hc_file_run(struct hc_file_disk *disk, struct hc_store_request *request,
		const struct hc_file_scratch *scratch, int *medium_p);
int hc_file_open_cached(struct hc_store *store, uint16_t disk, const struct hc_store_page *page,
			int *fd_p, uint64_t *mark_p);
void hc_file_drop_cache(struct hc_store *store, uint16_t disk, const struct hc_store_page *page);
/* Maps an errno of the medium to the store's set. */
int hc_file_map_error(int error);
/* Path of a page relative to pages/. */
const char *hc_file_page_path(const struct hc_store_page *page, char path[160]);
/* A decimal number without leading zeros that ends at *end_p. */
bool hc_file_parse_number(const char *text, uint64_t max, uint64_t *value_p, const char **end_p);

#endif
