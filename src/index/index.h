/* SPDX-License-Identifier: Apache-2.0 */
/* The index: one entry for each page the node knows, found by key, linked by directory, ordered for
 * eviction.
 *
 * 64 shards by hash, a lock each; all series of one hash live in one shard. Table per shard: open
 * addressing over (tag, entry number), grown in place of the shard; entries live in slabs and never
 * move, so a pointer stays good while the entry is referenced or its shard is locked. The table
 * position is mixed with a random seed: names are chosen by users.
 *
 * An entry is *named* (in the table) or *unnamed* (unlinked or replaced, kept while held). Fields
 * are guarded by the shard's lock; `hash`, `series`, `number` never change while the entry is
 * allocated.
 *
 * Lock order inside: shard, then directory list, then order heap; never two shards. Functions with
 * `_locked` in their comment need the shard's lock held; all others take what they need and may be
 * called from any thread. */
#ifndef HC_INDEX_INDEX_H
#define HC_INDEX_INDEX_H

#include <pthread.h>

#include "model/hash.h"
#include "util/base.h"

#define HC_INDEX_SHARDS  64
#define HC_ENTRY_NONE    UINT32_MAX
#define HC_ENTRY_NO_SLOT UINT32_MAX
#define HC_ENTRY_NO_DISK UINT16_MAX

/* flags */
#define HC_ENTRY_NAMED   0x0001u /* in the table */
#define HC_ENTRY_DIRTY   0x0002u /* in memory, wants backup, not yet on disk */
#define HC_ENTRY_SKIPPED 0x0004u /* in memory, backup was refused by admission or failed */
#define HC_ENTRY_WRITING 0x0008u /* backup in flight: the store holds the slot */
#define HC_ENTRY_LOADING \
	0x0010u /* promotion in flight: the store fills `slot`, bytes not valid yet */
#define HC_ENTRY_UNVERIFIED \
	0x0020u /* bytes in the slot came from an adopted pool and were not checked yet */
#define HC_ENTRY_SUMMED     0x0040u /* checksum is valid */
#define HC_ENTRY_OPAQUE     0x0080u /* the name is not made from the hash */
#define HC_ENTRY_ORPHAN     0x0100u /* its known parent was removed or damaged: first victim */
#define HC_ENTRY_IN_MEM     0x0200u /* has a record in its memory order */
#define HC_ENTRY_IN_SPACE   0x0400u /* has a record in its space's order */
#define HC_ENTRY_CATALOGUED 0x0800u /* its row was given to the catalog */
#define HC_ENTRY_CHECKED    0x1000u /* disk bytes were verified since start */
#define HC_ENTRY_AHEAD      0x2000u /* read ahead, and not used since */
#define HC_ENTRY_FORCED     0x4000u /* backup asked for by fsync or sync: admission does not apply */
#define HC_ENTRY_REMOVING \
	0x8000u /* an earlier file of this body is being unlinked: no backup until that ended */

/* The first 64 bytes are what a look-up, its touch and an expiry check need. */
struct hc_entry {
	struct hc_hash hash;
	uint32_t series;
	uint32_t stamp;
	uint32_t depth : 24;
	uint32_t priority : 8;
	uint16_t hits; /* stays at its maximum: hc_entry_hit */
	uint16_t flags;
	uint64_t mtime_ns;
	uint32_t slot;         /* HC_ENTRY_NO_SLOT: not in memory */
	uint32_t refs : 20;    /* leases and opens, at most HC_ENTRY_REFS_MAX */
	uint32_t pins : 8;     /* of callers, at most HC_ENTRY_PINS_MAX */
	uint32_t pinned : 1;   /* by a hint: an operator's wish */
	uint32_t session : 2;  /* HC_SESSION_*, by a hint */
	uint32_t attrs : 1;    /* has extended attributes, kept by its sequence */
	struct hc_hash parent; /* all zero: root, or unknown */
	uint64_t sequence;     /* of the publish; unique per body; set before hc_index_dir_add */
	uint64_t node_id;      /* FUSE node id, 0: none given yet */
	uint64_t checksum;
	uint32_t number; /* of this entry */
	uint32_t size_bytes;
	uint16_t disk;     /* HC_ENTRY_NO_DISK: not on disk */
	uint16_t owner;    /* interned (uid, gid, mode), see owner.h */
	uint32_t dir;      /* directory id, 0: none */
	uint32_t dir_next; /* entry numbers, under the directory list's lock */
	uint32_t dir_prev;
	uint32_t n_children_mem; /* entries in memory with this parent that name it in their series
				  */
	uint32_t n_children_disk;
};
_Static_assert(sizeof(struct hc_entry) == 152,
	       "one entry per page: its size is most of index_memory");

/* The last one is kept for a replacement, which holds what it replaces. */
#define HC_ENTRY_REFS_MAX ((1u << 20) - 2)
#define HC_ENTRY_PINS_MAX ((1u << 8) - 1)

/* What is known of the conversation that a page belongs to. */
enum hc_session { HC_SESSION_NONE, HC_SESSION_ALIVE, HC_SESSION_ENDED };

static inline bool hc_entry_pinned(const struct hc_entry *entry)
{
	return entry->pins || entry->pinned;
}

static inline void hc_entry_hit(struct hc_entry *entry)
{
	if (entry->hits != UINT16_MAX)
		entry->hits++;
}

struct hc_index;
struct hc_shard;

int hc_index_create(struct hc_index **index_p) HC_MUST_CHECK;
void hc_index_destroy(struct hc_index *index);

struct hc_shard *hc_index_shard(struct hc_index *index, const struct hc_hash *hash);
/* 0 to HC_INDEX_SHARDS - 1; for tables that lie beside the shards under their locks. */
unsigned hc_shard_number(const struct hc_shard *shard);
void hc_shard_lock(struct hc_shard *shard);
void hc_shard_unlock(struct hc_shard *shard);
/* Fetches what a look-up or insert of the key reads first, while the caller does something else. */
void hc_index_prefetch(struct hc_index *index, const struct hc_key *key);
/* _locked. NULL when absent. */
struct hc_entry *hc_shard_find(struct hc_shard *shard, const struct hc_key *key);
/* _locked. New named entry, all else zero or NONE. -EEXIST (a named one is there), -ENOMEM. */
int hc_shard_insert(struct hc_shard *shard, const struct hc_key *key,
		    struct hc_entry **entry_p) HC_MUST_CHECK;
/* _locked. Takes the name: the entry leaves the table and its directory list, and stays allocated.
 */
void hc_shard_unname(struct hc_shard *shard, struct hc_entry *entry);
/* _locked. Gives an unnamed entry's memory back. */
void hc_shard_free(struct hc_shard *shard, struct hc_entry *entry);

/* The entry with that number, which was given out once (allocated or not by now): look at it only
 * with its shard locked, and compare `sequence` (0 in a free entry). */
struct hc_entry *hc_index_entry(struct hc_index *index, uint32_t number);
struct hc_shard *hc_index_entry_shard(struct hc_index *index, uint32_t number);
/* The entry's shard from a pointer. */
struct hc_shard *hc_entry_shard(struct hc_index *index, const struct hc_entry *entry);

/* How many leading hashes exist in every one of the series. A page older than expire_before_ns[s]
 * (0: never) does not exist; expire_before_ns may be NULL. stamp != 0: the counted pages are
 * touched: hits, stamp if it is newer, and with it depth = position where the entry has no parent.
 * Prefetches ahead; locks one shard at a time. */
size_t hc_index_exists_prefix(struct hc_index *index, const uint32_t *series,
			      const uint64_t *expire_before_ns, size_t n_series,
			      const struct hc_hash *hashes, size_t n, uint32_t stamp);

/* A new stamp for a touching batch: one more than the last, never 0; it stays at 2^32 - 1 when
 * there is no higher one. A caller that gets HC_INDEX_STAMP_REBASE or more calls hc_index_rebase,
 * hc_walks_rebase and hc_order_rebase soon; nobody sees a smaller stamp for a later batch except
 * across a rebase. */
#define HC_INDEX_STAMP_REBASE (UINT32_MAX - (1u << 20))
uint32_t hc_index_stamp(struct hc_index *index);
/* The next stamp will be greater than this one. */
void hc_index_stamp_restore(struct hc_index *index, uint32_t stamp);
/* Stamps fall by `by`, at least to 0, in the counter and in all entries. */
void hc_index_rebase(struct hc_index *index, uint32_t by);

/* Visits every allocated named entry, shard by shard, with its shard locked; each must not lock,
 * call back or free. Returns early when each returns non-zero. */
int hc_index_each(struct hc_index *index, int (*each)(void *arg, struct hc_entry *entry),
		  void *arg);
/* The same in steps for background walks: at most n entries from *cursor_p on (0: begin); false at
 * the end. */
bool hc_index_step(struct hc_index *index, uint64_t *cursor_p, size_t n,
		   int (*each)(void *arg, struct hc_entry *entry), void *arg);
uint64_t hc_index_count(struct hc_index *index);
/* Room in the tables for n entries in all: filling from a catalog is faster when nothing grows.
 * Only a wish. */
void hc_index_reserve(struct hc_index *index, uint64_t n);
uint64_t hc_index_bytes(struct hc_index *index);
/* The longest way from a key's place in its table to its entry, in buckets (1: none is out of
 * place). */
uint32_t hc_index_probe_max(struct hc_index *index);

/* Directory lists. add and remove need the entry's shard locked; each entry is in at most one list.
 * When memory is out add logs it and the entry stays in no list. */
void hc_index_dir_add(struct hc_index *index, struct hc_entry *entry, uint32_t dir);
/* The same for entries that were just inserted and that nobody else can have found yet: no lock
 * needed. */
void hc_index_dir_add_many(struct hc_index *index, struct hc_entry *const *entries, size_t n,
			   uint32_t dir);
void hc_index_dir_remove(struct hc_index *index, struct hc_entry *entry);
uint64_t hc_index_dir_count(struct hc_index *index, uint32_t dir);
struct hc_dir_item {
	uint32_t number;
	uint64_t sequence;
};
/* A place in a directory's list. From begin to end it belongs to the index, which moves it when the
 * entry where it stands is removed: each entry that is in the list all the time is read once, what
 * is added meanwhile is not read. */
struct hc_dir_cursor {
	struct hc_dir_cursor *next, *prev; /* of the stripe; both NULL: at the end */
	uint32_t dir;
	uint32_t at; /* the entry that comes next */
};
void hc_index_dir_begin(struct hc_index *index, struct hc_dir_cursor *cursor, uint32_t dir);
/* At most n items; 0 at the end. */
size_t hc_index_dir_read(struct hc_index *index, struct hc_dir_cursor *cursor,
			 struct hc_dir_item *items, size_t n);
void hc_index_dir_end(struct hc_index *index, struct hc_dir_cursor *cursor);
/* Heap copy of a directory's list at one moment; the caller frees it. */
int hc_index_dir_snapshot(struct hc_index *index, uint32_t dir, struct hc_dir_item **items_p,
			  size_t *n_p) HC_MUST_CHECK;

#endif
