/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog: LMDB tables of everything that must be known after a restart, plus a journal that
 * makes small changes survive kill -9 before their commit.
 *
 * In CATALOGDIR: catalog.mdb, the tables pages (key: sequence), dirs, files, spaces, meta, attrs;
 * keys are 8 bytes, big-endian.
 *
 * journal.0 and .1, records of changes with `now`, replayed at open up to the last committed
 * ticket.
 *
 * recency, a flat array (sequence, stamp, hits), replaced every few minutes and at close.
 *
 * Every change gets a ticket, in queue order. One thread owns the LMDB environment: it commits
 * (synced, never MDB_NOSYNC) every 100 ms, every 4,096 changes, or at once when somebody waits. The
 * committed ticket is in the same transaction, so that replay is exact. The queue is bounded (1 Mi
 * changes): put blocks with a deadline of 30 s beyond. The thread touches the map only under a
 * SIGBUS guard of its own: MDB_CORRUPTED, MDB_MAP_FULL that cannot grow, or SIGBUS (file truncated
 * under us) = catalog lost: the file is renamed to catalog.mdb.bad-N, so that a start from here on
 * rebuilds too, and `lost` is called once from the catalog thread. Changes are still accepted, and
 * forgotten, until hc_catalog_renew makes a fresh environment. Other errors (disk full) are logged,
 * and the commit is tried again.
 *
 * Threads: put, del, sync from any thread; load before the first put. */
#ifndef HC_INDEX_CATALOG_H
#define HC_INDEX_CATALOG_H

#include "util/base.h"

enum hc_table {
	HC_TABLE_PAGES,
	HC_TABLE_DIRS,
	HC_TABLE_FILES,
	HC_TABLE_SPACES,
	HC_TABLE_META,
	HC_TABLE_ATTRS,
	HC_TABLE_N
};

/* meta keys used by the catalog itself: 1 format version, 2 committed ticket, 3 cache uuid, 4 epoch
 * of the journal. Others start at 16. A fresh catalog is whole and empty at once: a caller that
 * fills it from the page files says so in a row of its own until it is done, or a crash in between
 * would show a whole catalog that lacks pages. */
#define HC_META_NEXT_SEQUENCE 16
#define HC_META_NEXT_NODE_ID  17
#define HC_META_CLEAN         18
#define HC_META_NEXT_DIR      19
#define HC_META_NEXT_FILE     20
#define HC_META_REBUILD       21

struct hc_catalog;

struct hc_catalog_config {
	const char *dir;
	uint8_t uuid[16];
	uint64_t map_bytes;                 /* initial map size; grows by doubling */
	uint64_t commit_ns;                 /* 0: 100 ms */
	void (*lost)(void *arg, int error); /* catalog thread; must not call back */
	void *arg;
};

/* -ENOENT no catalog there (nothing is made: call hc_catalog_renew); -EPROTO newer version
 * (refused; CACHEDIR is never touched); -EBADMSG damaged: caller may renew and rebuild; -EBUSY
 * locked. */
int hc_catalog_open(const struct hc_catalog_config *config,
		    struct hc_catalog **catalog_p) HC_MUST_CHECK;
/* Makes a fresh, empty catalog: an unreadable one is kept aside as catalog.mdb.bad-N (newest only).
 */
int hc_catalog_create(const struct hc_catalog_config *config,
		      struct hc_catalog **catalog_p) HC_MUST_CHECK;
/* After `lost`, or -EBADMSG of hc_catalog_load: replaces the environment by an empty one under the
 * same handle and starts to commit again. The caller then puts everything it knows. Blocking; any
 * thread but the catalog's. */
int hc_catalog_renew(struct hc_catalog *catalog) HC_MUST_CHECK;
/* Commits what is queued (unless lost), stops the thread. */
void hc_catalog_close(struct hc_catalog *catalog);
bool hc_catalog_is_lost(struct hc_catalog *catalog);

/* Every row of a table in key order, before the first put. each returns non-zero to stop. value is
 * valid during the call. -EBADMSG when the environment turns out to be damaged: it counts as lost,
 * without a call of `lost`. */
int hc_catalog_load(struct hc_catalog *catalog, enum hc_table table,
		    int (*each)(void *arg, uint64_t key, const void *value, size_t n_bytes),
		    void *arg) HC_MUST_CHECK;

/* The same in pieces, by up to n_threads threads at a time (one of them is the caller's; fewer when
 * they cannot be made): pieces come in any order, the rows of one in key order. thread_i, below
 * n_threads, tells the threads apart. What piece returns but 0 ends it and is returned. */
#define HC_CATALOG_THREADS_MAX 8u
#define HC_CATALOG_PIECE_ROWS  2048u /* at most */
struct hc_catalog_row {
	uint64_t key;
	const void *value;
	size_t n_bytes;
};
typedef int hc_catalog_piece_t(void *arg, unsigned thread_i, const struct hc_catalog_row *rows,
			       size_t n);
int hc_catalog_load_pieces(struct hc_catalog *catalog, enum hc_table table, unsigned n_threads,
			   hc_catalog_piece_t *piece, void *arg) HC_MUST_CHECK;
/* About how many rows a table has, without reading them; before the first put. */
uint64_t hc_catalog_n_rows(struct hc_catalog *catalog, enum hc_table table);

/* Queues a change; n_bytes <= 4096. now: also in the journal before return, so that it survives
 * kill -9 (not power loss before the commit). The ticket (may be NULL) is for hc_catalog_sync.
 * -ENOMEM, -ETIMEDOUT (queue full), the error of the commits (queue full because they fail); -EIO:
 * the change is queued, but could not be journaled. */
int hc_catalog_put(struct hc_catalog *catalog, enum hc_table table, uint64_t key, const void *value,
		   size_t n_bytes, bool now, uint64_t *ticket_p) HC_MUST_CHECK;
int hc_catalog_del(struct hc_catalog *catalog, enum hc_table table, uint64_t key, bool now,
		   uint64_t *ticket_p) HC_MUST_CHECK;
/* Waits until the ticket is committed (durable). ticket 0: everything queued. -ETIMEDOUT; -EIO when
 * lost before it was committed; the error of a commit that failed meanwhile (-ENOSPC), which is
 * tried again all the same. */
int hc_catalog_sync(struct hc_catalog *catalog, uint64_t ticket,
		    uint64_t deadline_ns) HC_MUST_CHECK;

struct hc_recency {
	uint64_t sequence;
	uint32_t stamp;
	uint32_t hits;
};
/* Replaces the recency file (checksummed); load gives 0 rows for an absent or damaged one. */
int hc_catalog_recency_store(struct hc_catalog *catalog, const struct hc_recency *rows,
			     size_t n) HC_MUST_CHECK;
int hc_catalog_recency_load(struct hc_catalog *catalog, struct hc_recency **rows_p,
			    size_t *n_p) HC_MUST_CHECK;

struct hc_catalog_stats {
	uint64_t n_commits;
	uint64_t n_changes;
	uint64_t n_queued;
	uint64_t n_journal_bytes;
	uint64_t n_lost;
};
void hc_catalog_stats(struct hc_catalog *catalog, struct hc_catalog_stats *stats_p);

#endif
