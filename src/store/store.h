/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of every storage backend. A store moves whole pages between registered memory and
 * its medium; it knows nothing of names, chains or eviction.
 *
 * Order: requests of one submit may run in any order. Completion: every accepted request completes
 * exactly once, by reap(), whatever happens; deadlines belong to the caller. Ownership: a request
 * and its buffer belong to the store from submit to reap. Threads: submit, reap, remove_file,
 * disk_info from any thread; open and close from one. No function blocks on the medium except open,
 * close, list and the ones that say so. Errors are of a fixed set: -ENOENT (not there), -EBADMSG
 * (bytes differ from size or checksum), -EIO, -ENOSPC, -EROFS, -ENODEV (disk taken out), -ESTALE,
 * -EINVAL, -ECANCELED (closed before it began), -EAGAIN (no descriptor or memory was left: it says
 * nothing about the object). */
#ifndef HC_STORE_STORE_H
#define HC_STORE_STORE_H

#include "model/hash.h"
#include "util/base.h"

struct hc_store;

enum hc_store_op {
	HC_STORE_GET, /* read size_bytes into data; verified against checksum unless
			 HC_STORE_NO_VERIFY */
	HC_STORE_PUT, /* write data as a new object; durable (data and metadata) at completion with
			 HC_STORE_DURABLE */
	HC_STORE_ADOPT,      /* make the staging file `staging` the object (rename, metadata); data
				unused */
	HC_STORE_VERIFY,     /* read and verify without a destination (scrubber); data NULL */
	HC_STORE_REMOVE,     /* unlink the object; absent is success */
	HC_STORE_QUARANTINE, /* move the object out of the way, kept for inspection; absent is
				success */
	HC_STORE_OPEN, /* open the object's file for reading through the page cache, verified as
			  GET does, unless its mark is still the one given */
};

#define HC_STORE_NO_VERIFY 0x1u
#define HC_STORE_DURABLE   0x2u /* fdatasync of file and of its directory before completion */
#define HC_STORE_AHEAD \
	0x8u /* OPEN: nobody reads it yet; what is not read to verify it is fetched */
#define HC_STORE_URGENT 0x4u /* demand read: goes before everything else */

/* What names an object, and what is stored beside its bytes. offset 0 and length = size until run
 * files exist. */
struct hc_store_page {
	uint64_t sequence;
	uint64_t size_bytes;
	uint64_t checksum;
	struct hc_hash hash;
	struct hc_hash parent;
	uint32_t series;
	uint32_t depth;
	uint32_t flags;   /* HC_STORE_PAGE_* */
	const char *name; /* opaque pages: path relative to the space, kept in a second xattr; else
			     NULL */
};

#define HC_STORE_PAGE_OPAQUE  0x1u
#define HC_STORE_PAGE_UNNAMED 0x2u /* parent unknown */

struct hc_store_request {
	enum hc_store_op op;
	uint32_t flags;
	uint16_t disk;
	struct hc_store_page page;
	void *data;          /* 4 KiB aligned, room for size_bytes rounded up to 4 KiB */
	const char *staging; /* ADOPT: name of the file in the disk's staging/ */
	/* What tells whether a file was changed since (size, mtime, ctime); 0: none, never 1. OPEN:
	 * in, of the last time it was verified; out, of now. ADOPT: out. */
	uint64_t mark;
	int fd;                        /* OPEN: out, the caller's on success */
	uint64_t submitted_ns;         /* store's own */
	int result;                    /* set before reap: 0 or -errno */
	void *arg;                     /* the caller's */
	struct hc_store_request *next; /* store's own while submitted */
};

struct hc_store_disk_info {
	char dir[4096];
	uint8_t uuid[16];
	uint64_t total_bytes;
	uint64_t free_bytes; /* available to us (statvfs) */
	bool out; /* taken out after repeated EIO, EROFS or ENODEV: every request fails with -ENODEV
		   */
	uint64_t n_errors;
};

/* list: one call per object found. page->name is valid during the call. checksum, parent, depth,
 * flags come from the metadata; status 0, or -EBADMSG when metadata is missing, damaged, newer
 * (-EPROTO) or disagrees with the size. */
typedef void (*hc_store_each_t)(void *arg, uint16_t disk, const struct hc_store_page *page,
				int status, const char *path);

struct hc_store_ops {
	const char *name;
	/* Waits for running requests; queued ones get the result -ECANCELED. All that was not
	 * reaped before is the caller's again when it returns, with its result set. */
	void (*close)(struct hc_store *store);
	/* Accepts a leading part of reqs; returns how many (0..n): the rest is back-pressure. */
	size_t (*submit)(struct hc_store *store, struct hc_store_request **reqs, size_t n);
	/* Completed requests, at most max; 0 when none. */
	size_t (*reap)(struct hc_store *store, struct hc_store_request **done, size_t max);
	/* A queued GET or OPEN of that body becomes urgent: somebody waits for it. Nothing when it
	 * runs or has ended. */
	void (*hurry)(struct hc_store *store, uint16_t disk, uint64_t sequence);
	/* eventfd, readable while completions wait; owned by the store. */
	int (*event_fd)(struct hc_store *store);
	/* Memory that data pointers will lie in; once per segment. May be a no-op. */
	int (*register_memory)(struct hc_store *store, void *addr, size_t size_bytes);
	uint16_t (*n_disks)(struct hc_store *store);
	int (*disk_info)(struct hc_store *store, uint16_t disk, struct hc_store_disk_info *info_p);
	/* Blocking walk over all objects of a disk. */
	int (*list)(struct hc_store *store, uint16_t disk, hc_store_each_t each, void *arg);
	/* New empty file in the disk's staging/ (0600, O_RDWR): fd and name (>= 64 bytes of room).
	 * Blocking (a create). */
	int (*staging_create)(struct hc_store *store, uint16_t disk, int *fd_p, char *name,
			      size_t room);
	int (*staging_remove)(struct hc_store *store, uint16_t disk, const char *name);
	/* The object's file for reading through the page cache, unverified: fd and mark as in OPEN.
	 * Blocks as long as an open does. */
	int (*open_file)(struct hc_store *store, uint16_t disk, const struct hc_store_page *page,
			 int *fd_p, uint64_t *mark_p);
	/* Gives up what the page cache holds of an object. Blocking. */
	void (*drop_cache)(struct hc_store *store, uint16_t disk, const struct hc_store_page *page);
	/* Makes everything that completed before durable (syncfs). -ETIMEDOUT at the deadline. */
	int (*sync)(struct hc_store *store, uint16_t disk, uint64_t deadline_ns);
	/* Removes leftovers: staging files (all at start, before any staging_create), objects for
	 * which keep() returns false, quarantined files when quarantine is true. Blocking. Counts
	 * what was removed. */
	int (*sweep)(struct hc_store *store, uint16_t disk,
		     bool (*keep)(void *arg, uint32_t series, const struct hc_hash *hash,
				  uint64_t sequence),
		     void *arg, bool quarantine, uint64_t *n_removed_p, uint64_t *bytes_removed_p);
};

/* Every backend's struct begins with this. */
struct hc_store {
	const struct hc_store_ops *ops;
};

#endif
