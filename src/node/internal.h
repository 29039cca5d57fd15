/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of node/ share. Not for other folders.
 *
 * Threads (ARCHITECTURE.md has the table): callers; the evictor (frees slots, disk room, quotas; no
 * I/O); the backup thread (feeds the store with dirty pages); the progress thread (reaps store
 * completions); the keeper (scrub, expiry, recency, orphans, rebuild; apart, so that a hung disk
 * stops nothing else).
 *
 * An entry is *settled* when nobody holds it: refs 0, neither WRITING nor LOADING. An unnamed entry
 * is freed, with its slot and its file, by whoever settles it. */
#ifndef HC_NODE_INTERNAL_H
#define HC_NODE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "index/order.h"
#include "index/rows.h"
#include "index/walk.h"
#include "node/node.h"
#include "util/clock.h"
#include "util/crash.h"
#include "util/log.h"
#include "util/sysinfo.h"

#define HC_NODE "node"

#define HC_CLASSES_MAX   512u /* (domain, slot size) pairs seen */
#define HC_SEGMENTS_MAX  65536u
#define HC_SEGMENTS_FEW  4u
#define HC_SPACE_CHUNK   1024u
#define HC_SPACE_CHUNKS  1024u /* a million spaces over the life of a cache */
#define HC_WAIT_BUCKETS  64u
#define HC_BACKUP_FLIGHT 64u /* pages given to the store at once */
#define HC_VERDICT_LOCKS 64u
#define HC_BACKUP_BYTES  (256 * HC_MIB)
#define HC_REAP_BATCH    64u
#define HC_REMOVALS_MAX                                                          \
	(1u << 18) /* files waiting for room in the store's queue to be unlinked \
		    */
#define HC_LOAD_RUNS      32u
#define HC_VERIFY_NS      (60 * HC_NS_PER_S) /* for one page */
#define HC_DISKS_MAX      64u
#define HC_SIBLINGS_MAX   64u    /* series of a space that are asked for their verdict */
#define HC_EVICT_SCAN_MAX 65536u /* records looked at in one call before it gives up */
#define HC_INDEX_PAGE_BYTES \
	208u /* of index_memory: entry, records in two orders, its part of the tables */

/* Eventcount: read the count, look at the condition, wait for the count to move. */
struct hc_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint64_t count; /* under lock */
};

void hc_wait_init(struct hc_wait *wait);
void hc_wait_destroy(struct hc_wait *wait);
uint64_t hc_wait_seen(struct hc_wait *wait);
/* false at the deadline. */
bool hc_wait_for(struct hc_wait *wait, uint64_t seen, uint64_t deadline_ns);
void hc_wait_wake(struct hc_wait *wait);

/* Pages of one domain and slot size in memory. */
struct hc_class {
	struct hc_domain domain;
	uint64_t slot_bytes;
	struct hc_order *order;
	_Atomic uint64_t n_short;     /* times a reserve found no slot; the evictor looks at it */
	_Atomic uint64_t compared_ns; /* when a look at the other classes last found none colder */
};

/* Children that were counted while their parent has no entry: guarded by the parent's shard lock.
 */
struct hc_ghosts;
struct hc_ghosts *hc_ghosts_create(void);
void hc_ghosts_destroy(struct hc_ghosts *ghosts);
int hc_ghosts_add(struct hc_ghosts *ghosts, const struct hc_key *key, int mem, int disk);
void hc_ghosts_take(struct hc_ghosts *ghosts, const struct hc_key *key, uint32_t *mem_p,
		    uint32_t *disk_p);

struct hc_backup_item {
	uint32_t number;
	uint64_t sequence;
};

/* A growing ring. Guarded by its owner. */
struct hc_queue {
	struct hc_backup_item *items;
	size_t head, n, room;
};
int hc_queue_push(struct hc_queue *queue, struct hc_backup_item item);
bool hc_queue_pop(struct hc_queue *queue, struct hc_backup_item *item_p);

/* A page file to be unlinked or quarantined. */
struct hc_removal {
	struct hc_store_page page; /* without a name */
	uint32_t number;           /* entry */
	uint16_t disk;
	bool quarantine;
};

struct hc_node_counters {
#define HC_NODE_COUNTER_ATOMIC(name) _Atomic uint64_t name;
	HC_NODE_COUNTERS(HC_NODE_COUNTER_ATOMIC)
#undef HC_NODE_COUNTER_ATOMIC
};

#define hc_count(node, field) hc_count_n(node, field, 1)
#define hc_count_n(node, field, n) \
	atomic_fetch_add_explicit(&(node)->count.field, (n), memory_order_relaxed)
/* Also for the space of the series: fields of HC_SPACE_COUNTERS. */
#define hc_count_series(node, series, field, n)                                               \
	do {                                                                                  \
		uint64_t hc_counted = (n);                                                    \
                                                                                              \
		hc_count_n(node, field, hc_counted);                                          \
		hc_space_count((node)->registry, series, HC_SPACE_COUNT_##field, hc_counted); \
	} while (0)

struct hc_node {
	struct hc_node_config config; /* strings are not kept: see dirs */
	struct hc_registry *registry;
	struct hc_catalog *catalog; /* NULL: memory only */
	struct hc_owners *owners;
	struct hc_index *index;
	struct hc_links *links;
	struct hc_times *times;
	struct hc_walks *walks;
	struct hc_pool *pool;
	struct hc_store *store; /* NULL: memory only or disk_off */
	struct hc_ghosts *ghosts[HC_INDEX_SHARDS];
	struct hc_opaques *opaques;
	struct hc_marks *marks;
	char pool_dir[4096];
	bool opened; /* wholly */

	pthread_mutex_t lock; /* class "node": classes (append-only), limits, threads' flags */
	struct hc_class *classes[HC_CLASSES_MAX];
	atomic_uint n_classes;
	_Atomic uint16_t segment_class[HC_SEGMENTS_MAX];
	/* Entry number + 1 of a slot, 0: none yet. A sparse map, written while the slot is held. */
	_Atomic uint32_t *slot_entry;
	size_t slot_entry_bytes;
	_Atomic(struct hc_order **) space_chunks[HC_SPACE_CHUNKS];
	atomic_uint n_spaces;         /* highest space id with an order, plus 1 */
	struct hc_node_limits limits; /* under lock; read as a whole */

	struct hc_wait room; /* slots were freed, backups ended */
	struct hc_wait loads[HC_WAIT_BUCKETS];

	/* backup: under backup_lock (leaf) */
	pthread_mutex_t backup_lock;
	pthread_cond_t backup_cond;
	struct hc_queue backup_queue;
	struct hc_queue row_queue;    /* pages on disk whose catalog row is to be put */
	struct hc_io *backup_waiting; /* written, parent not yet; linked by arg */
	uint32_t backup_flight;
	uint64_t backup_flight_bytes;
	bool backup_paused;
	uint64_t budget_day;
	uint64_t budget_used_bytes;

	/* evictor and keeper */
	struct hc_wait evict_bell;
	struct hc_wait keeper_bell;
	atomic_bool stop;
	atomic_bool stop_progress;
	atomic_bool
		orphans; /* a parent with children was removed, or came back: look for orphans */
	atomic_bool orphans_known; /* some entries are marked as orphans */
	atomic_bool rebuilding;
	atomic_bool draining;
	atomic_bool catalog_renewing; /* from its loss until all rows were put again */
	atomic_bool catalog_gone;
	pthread_mutex_t
		recut_lock;    /* one re-cut at a time; taken before every other lock of the node */
	uint32_t recut_failed; /* segment that could not be emptied last time; under recut_lock */
	pthread_t thread_evict, thread_backup, thread_progress, thread_keeper;
	bool has_evict, has_backup, has_progress, has_keeper;
	pthread_mutex_t gc_lock; /* one gc at a time; before every other lock */
	uint64_t gc_sequence;    /* under gc_lock */
	pthread_rwlock_t
		adopt_lock; /* read: a staging file becomes a page; write: gc takes its mark */
	pthread_mutex_t
		verdict_lock[HC_VERDICT_LOCKS]; /* by hash: series of one chain are judged one after
						   the other; before shard locks */
	_Atomic uint64_t scrub_cursor;
	uint64_t recency_ns; /* keeper: when it was last stored */
	int progress_fd;     /* eventfd that ends the progress thread */

	_Atomic uint64_t n_rows;    /* rows on their way */
	_Atomic uint64_t n_staged;  /* bodies, for the choice of their disks */
	_Atomic uint64_t n_outside; /* writers of bodies that nobody sees */
	/* unlinks: under remove_lock (taken before the store's locks, after every other) */
	pthread_mutex_t remove_lock;
	struct hc_removal *removals; /* ring */
	size_t removal_i, n_removals, removals_room;
	atomic_bool sweep;                              /* a file without a row was left behind */
	_Atomic uint64_t removing_bytes[HC_DISKS_MAX];  /* unlinks on their way */
	_Atomic uint64_t disk_held_bytes[HC_DISKS_MAX]; /* of pages on that disk */
	_Atomic uint64_t disk_coming_bytes;             /* of backups under way */

	pthread_mutex_t io_lock; /* leaf: requests that the store has */
	struct hc_io *ios;
	_Atomic uint64_t n_io;        /* requests given to the store and not yet finished */
	_Atomic uint64_t ahead_bytes; /* of pages read ahead and not used since */
	_Atomic uint64_t n_memory, memory_bytes, n_disk, disk_bytes, n_dirty, dirty_bytes, n_refs;
	struct hc_node_counters count;
	struct hc_timing timings[HC_NODE_N_TIMINGS];
};

static inline uint64_t hc_ppm(uint64_t bytes, uint32_t ppm)
{
	return bytes / 1000000 * ppm + bytes % 1000000 * ppm / 1000000;
}

static inline struct hc_shard *hc_node_shard(struct hc_node *node, const struct hc_hash *hash)
{
	return hc_index_shard(node->index, hash);
}

/* --- node.c --- */
struct hc_order *hc_node_space_order(struct hc_node *node, uint32_t space, bool make);
struct hc_class *hc_node_class(struct hc_node *node, const struct hc_domain *domain,
			       uint64_t slot_bytes, bool make);
struct hc_class *hc_node_slot_class(struct hc_node *node, hc_slot_id slot);
void hc_node_space_domain(struct hc_node *node, uint32_t space, struct hc_domain *domain_p);
void hc_node_note_runs(struct hc_node *node, struct hc_class *class, const struct hc_run *runs,
		       uint32_t n_runs);
/* Wall time before which a page of the series counts as expired; 0: never. */
uint64_t hc_node_expire_before(struct hc_node *node, uint32_t series);
uint64_t hc_node_pool_bytes(struct hc_node *node);
uint64_t hc_node_segment_bytes(struct hc_node *node);
uint8_t hc_node_space_priority(struct hc_node *node, uint32_t space);

/* --- times.c --- */
struct hc_times;
int hc_times_create(struct hc_times **times_p);
void hc_times_destroy(struct hc_times *times);
/* A new stamp, whose time is remembered. */
uint32_t hc_node_stamp(struct hc_node *node);
/* Wall time when it was given, or a little before; 0: in an earlier run. No lock. */
uint64_t hc_times_of(struct hc_node *node, uint32_t stamp);
void hc_times_rebase(struct hc_node *node, uint32_t by);

/* For walks: a new stamp of the node (arg). */
uint32_t hc_stamp_call(void *arg);
/* Shard locked: a page is opened, or touched, as the next one of a walk. */
void hc_walk_entry(struct hc_node *node, const struct hc_walk_who *who, struct hc_entry *entry,
		   bool want_ahead, struct hc_walk_step *step_p);

static inline struct hc_link hc_entry_link(const struct hc_entry *entry)
{
	return (struct hc_link){entry->number, (uint32_t)entry->sequence};
}

/* --- entry.c: every one needs the entry's shard locked unless it says otherwise --- */
void hc_entry_push_mem(struct hc_node *node, struct hc_entry *entry);
void hc_entry_push_space(struct hc_node *node, struct hc_entry *entry);
bool hc_entry_settled(const struct hc_entry *entry);
/* Clears DIRTY with its accounting. */
void hc_entry_clean(struct hc_node *node, struct hc_entry *entry);
void hc_entry_dirty(struct hc_node *node, struct hc_entry *entry);
/* Work that must happen after the shard was unlocked. */
struct hc_after {
	struct hc_key parent; /* of children counts to take back */
	int mem, disk;
	bool removed; /* send REMOVED */
	bool orphans;
	bool freed; /* slots came free */
	bool remove_file;
	bool quarantine; /* with remove_file: keep the file aside */
	bool remove_row;
	uint16_t disk_id;
	uint32_t number; /* with remove_file: of the entry */
	uint64_t node_id;
	uint32_t dir;
	struct hc_store_page page; /* of the file */
	char name[HC_NAME_BYTES];
	bool quiet;
	bool attrs; /* the page had some */
};
/* Takes the name; frees what nobody holds. The file goes (or is quarantined). */
void hc_entry_remove(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		     bool quarantine, struct hc_after *after);
/* The two halves of a replacement. A kill between them finds two bodies of one key, and the later
 * wins: so the old one goes when the new one would outlive the process, not before. replace takes
 * the name and holds the entry; replaced lets it go (and its slot); only then hc_after_run. */
void hc_entry_replace(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		      struct hc_after *after);
void hc_entry_replaced(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		       struct hc_after *after);
/* Takes the name of a page whose disk was taken out. File and row stay: the disk may be whole again
 * at the next start. */
void hc_entry_lose(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		   struct hc_after *after);
/* Drops the memory copy of a settled, clean entry that stays named. */
void hc_entry_drop_slot(struct hc_node *node, struct hc_entry *entry, struct hc_after *after);
/* Counts pages (n = 1, -1) and bytes on a disk. No lock needed. */
void hc_disk_account(struct hc_node *node, uint16_t disk, int n, uint64_t size_bytes);
/* Drops the disk copy of an entry. */
void hc_entry_drop_disk(struct hc_node *node, struct hc_entry *entry, bool quarantine,
			struct hc_after *after);
/* After refs, WRITING or LOADING changed: frees an unnamed settled entry, else files it for
 * eviction again. */
void hc_entry_settle(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		     struct hc_after *after);
/* Unlocked: does what `after` says. */
void hc_after_run(struct hc_node *node, struct hc_after *after);
/* Unlocked: counts (or takes back) a child at the parent's key. Counting comes before the child is
 * there. */
int hc_family_add(struct hc_node *node, uint32_t series, const struct hc_hash *parent, int mem,
		  int disk);
/* The same with the parent's shard locked. */
int hc_family_add_locked(struct hc_node *node, struct hc_shard *shard, const struct hc_key *key,
			 int mem, int disk);
/* A fresh entry takes the counts of children that came before it. */
void hc_family_adopt(struct hc_node *node, struct hc_entry *entry);
void hc_entry_info(struct hc_node *node, const struct hc_entry *entry, struct hc_page_info *info_p);
void hc_entry_store_page(const struct hc_entry *entry, struct hc_store_page *page_p);
void hc_entry_slot_page(struct hc_node *node, const struct hc_entry *entry,
			struct hc_slot_page *page_p);
/* Opaque names: kept by entry number; see opaque.c. */
struct hc_opaques;
int hc_opaques_create(struct hc_opaques **opaques_p);
void hc_opaques_destroy(struct hc_opaques *opaques);
int hc_opaque_set(struct hc_node *node, uint32_t number, const char *path);
bool hc_opaque_get(struct hc_node *node, uint32_t number, char path[HC_PATH_BYTES]);
void hc_opaque_drop(struct hc_node *node, uint32_t number);

/* --- page_file.c --- */
/* Marks of page files that were found right, by entry number; any thread, no lock. */
struct hc_marks;
int hc_marks_create(struct hc_marks **marks_p);
void hc_marks_destroy(struct hc_marks *marks);
/* 0: none; HC_MARK_COMING: its file is being read ahead, and verified. */
#define HC_MARK_COMING 1u
void hc_mark_file(struct hc_node *node, uint32_t number, uint64_t mark);
uint64_t hc_mark_of(struct hc_node *node, uint32_t number);
/* evict --memory: the mark goes, and what the page cache holds of the file. */
void hc_file_cool(struct hc_node *node, const struct hc_page_info *page);

/* --- store_io.c --- */
struct hc_io; /* one request with its context */
typedef void (*hc_io_done_t)(struct hc_node *node, struct hc_io *io);
struct hc_io {
	struct hc_store_request request;
	hc_io_done_t done; /* progress thread; frees the io */
	uint32_t number;
	uint64_t sequence;
	hc_slot_id slot;
	void *arg;
	struct hc_io *next, **prev_p; /* in node->ios */
	uint64_t coming_bytes;        /* counted in disk_coming_bytes */
	char staging[64];
	char name[HC_PATH_BYTES]; /* opaque */
};
struct hc_io *hc_io_create(struct hc_node *node, enum hc_store_op op, hc_io_done_t done);
/* Hands over all of them, waiting for room in the store's queue until the deadline; those left over
 * complete with -ETIMEDOUT on this thread. */
void hc_io_submit(struct hc_node *node, struct hc_io **ios, size_t n, uint64_t deadline_ns);
/* Submits one and waits; the result, or -ETIMEDOUT (it then goes on alone and is forgotten). */
int hc_io_run(struct hc_node *node, struct hc_io *io, uint64_t deadline_ns);
/* The same for ADOPT and OPEN, which answer a mark and (OPEN) a descriptor. */
struct hc_io_answer {
	uint64_t mark;
	int fd; /* of OPEN, the caller's */
};
int hc_io_run_file(struct hc_node *node, struct hc_io *io, uint64_t deadline_ns,
		   struct hc_io_answer *answer_p);
/* Unlinks or quarantines a file some time; never waits. */
void hc_io_remove(struct hc_node *node, const struct hc_removal *removal);
int hc_io_start(struct hc_node *node);
void hc_io_stop(struct hc_node *node);

/* --- evict.c --- */
/* Frees up to n slots of a class, coldest leaves first. Returns how many. *n_coming_p (may be
 * NULL): how many more go to disk first (backup=evict) and come free when they are there; none is
 * sent while n_writes are on their way. */
uint32_t hc_evict_class(struct hc_node *node, struct hc_class *class, uint32_t n, uint64_t n_writes,
			uint32_t *n_coming_p);
/* Frees pages of a space until bytes fit below its quota. */
bool hc_evict_space(struct hc_node *node, uint32_t space, uint64_t bytes);
/* Frees slots for a class: its own coldest leaves, or a segment of a colder class. Returns true
 * when slots may have come free. may_recut: a re-cut copies and may take a while. */
bool hc_evict_for(struct hc_node *node, struct hc_class *class, uint32_t n, bool may_recut);
bool hc_recut(struct hc_node *node, struct hc_class *class, bool even_if_warmer);
/* Down to the low mark when more_bytes would bring the disks above the high one; below min_free on
 * a disk: its pages. */
void hc_evict_disk(struct hc_node *node, uint64_t more_bytes);
/* No room for more_bytes: over the limit, or below min_free on every disk. Room that unlinks under
 * way will give counts. */
bool hc_disk_over(struct hc_node *node, uint64_t more_bytes);
/* The disk has room above its min_free. with_removing: room that unlinks under way will give
 * counts. */
bool hc_disk_has_room(struct hc_node *node, uint16_t disk, uint64_t more_bytes, bool with_removing);
int hc_evict_start(struct hc_node *node);
void hc_evict_stop(struct hc_node *node);

/* --- backup.c --- */
/* Unlocked: whether a new page's backup is skipped, by chain: as its parent, as the other series of
 * its hash, else by the dirty limit. */
bool hc_backup_verdict(struct hc_node *node, const struct hc_publish *item, bool previous_skipped);
/* Shard locked: makes a new page DIRTY and queues it (true), or SKIPPED. */
bool hc_backup_admit(struct hc_node *node, struct hc_entry *entry, bool skip);
/* False when the write budget of today is used up: publish then acts as reuse. */
bool hc_budget_left(struct hc_node *node);
/* Unlocked: backup=reuse, at a hit. */
void hc_backup_reuse(struct hc_node *node, uint32_t number);
/* Shard locked. Asks for the backup of a page in memory whatever admission said. */
void hc_backup_force(struct hc_node *node, struct hc_entry *entry);
/* Shard locked. Queues a dirty page that could not be written before. */
void hc_backup_again(struct hc_node *node, struct hc_entry *entry);
/* Unlocked. */
void hc_backup_force_key(struct hc_node *node, const struct hc_key *key);
/* Progress thread: written pages whose parent's fate is known by now. */
void hc_backup_retry_waiting(struct hc_node *node);
/* After the store was closed. */
void hc_backup_drop_waiting(struct hc_node *node);
/* Puts the rows that wait for it. */
void hc_rows_drain(struct hc_node *node);
int hc_backup_start(struct hc_node *node);
void hc_backup_stop(struct hc_node *node);
/* Puts the catalog row of an entry (unlocked); takes it back when the body went meanwhile. */
int hc_row_put(struct hc_node *node, uint32_t number, uint64_t sequence, bool now,
	       uint64_t *ticket_p);

/* --- adopt.c --- */
int hc_adopt_all(struct hc_node *node, bool rebuild);
/* --- keeper.c --- */
int hc_keeper_start(struct hc_node *node);
void hc_keeper_stop(struct hc_node *node);
void hc_recency_store(struct hc_node *node);
int hc_rows_put_all(struct hc_node *node);
void hc_rebuild(struct hc_node *node);
/* Reads a page back from disk (scrub_page) or sums its slot (scrub_memory): 0, -EBADMSG: bad and
 * removed, or why it could not be read. */
int hc_scrub_page(struct hc_node *node, const struct hc_page_info *page, uint64_t deadline_ns);
int hc_scrub_memory(struct hc_node *node, const struct hc_page_info *page);
/* --- admin.c --- */
/* Files without a row, and quarantined ones. */
int hc_sweep(struct hc_node *node, bool quarantine, uint64_t *n_removed_p, uint64_t *bytes_p);
int hc_backup_quiet(struct hc_node *node, uint64_t deadline_ns);
/* Which entry fills a slot. The note may be of an earlier page: compare entry->slot, its shard
 * locked. */
static inline void hc_slot_note_entry(struct hc_node *node, hc_slot_id slot, uint32_t number)
{
	atomic_store_explicit(&node->slot_entry[slot], number + 1, memory_order_relaxed);
}

static inline bool hc_slot_noted_entry(struct hc_node *node, hc_slot_id slot, uint32_t *number_p)
{
	uint32_t noted = atomic_load_explicit(&node->slot_entry[slot], memory_order_relaxed);

	if (noted)
		*number_p = noted - 1;
	return noted;
}

/* --- hints.c --- */
struct hc_hints {
	uint8_t priority;
	uint8_t session; /* enum hc_session */
	bool pinned;
};
/* What holds for a page: its own hints, else those of the nearest directory above that has them,
 * else the space's priority. Takes the registry's locks: no shard may be locked. */
void hc_hints_find(struct hc_node *node, const struct hc_attrset *own, uint32_t dir,
		   uint8_t space_priority, struct hc_hints *hints_p);
/* At adoption: true when the page has attributes. */
bool hc_hints_claim(struct hc_node *node, uint64_t sequence, uint32_t dir, uint8_t space_priority,
		    struct hc_hints *hints_p);
/* _locked. */
static inline void hc_hints_give(struct hc_entry *entry, const struct hc_hints *hints)
{
	entry->priority = hints->priority;
	entry->session = hints->session & 3u;
	entry->pinned = hints->pinned;
}

/* --- publish.c --- */
struct hc_publish_place {
	uint32_t stamp;
	uint32_t depth;
	uint32_t dir;
	struct hc_hints hints;
	bool skip;                /* no backup */
	struct hc_walk_step step; /* with an opener */
};
struct hc_slots_want {
	struct hc_domain domain;
	uint64_t size_bytes;
	int numa_node;
	enum hc_slot_state state;
	uint32_t n;
	bool some; /* rather a few at once than all of them later */
	/* What the caller itself holds, which does not come free while it waits here. */
	uint32_t n_refs, n_slots;
	uint64_t deadline_ns;
};
/* Up to n slots of the class, evicting and waiting until the deadline, or until only the caller
 * could make room. Returns how many, in *n_runs_p runs. */
uint32_t hc_slots_get(struct hc_node *node, const struct hc_slots_want *want, struct hc_run *runs,
		      uint32_t max_runs, uint32_t *n_runs_p);
/* As many as are free, in state LOADING: never evicts, never waits. */
uint32_t hc_slots_spare(struct hc_node *node, const struct hc_domain *domain, uint64_t size_bytes,
			uint32_t n, struct hc_run *runs, uint32_t max_runs, uint32_t *n_runs_p);
/* --- promote.c --- */
void hc_promote_done(struct hc_node *node, struct hc_io *io);
/* Rung when a load of that entry has ended. */
struct hc_wait *hc_load_wait(struct hc_node *node, uint32_t number);
/* Shard locked. A ref and a touch. stamp: of the batch; openers have a walk's, and *step_p. */
void hc_acquire_hold(struct hc_node *node, const struct hc_acquire *how, struct hc_entry *entry,
		     uint32_t stamp, bool want_ahead, struct hc_ref *ref_p,
		     struct hc_walk_step *step_p);
/* Gives a slot to a page that is on disk only and prepares its load; NULL: it is not needed, or
 * cannot be, and the slot is free again. ahead_stamp: not 0: read ahead, with this stamp. */
struct hc_io *hc_load_attach(struct hc_node *node, const struct hc_ref *ref, hc_slot_id slot,
			     uint32_t ahead_stamp);
/* --- ahead.c --- */
/* Queues the pages that a step of a walk asks for; never waits. by_file: the kernel reads their
 * files, so they are read into its page cache, and verified, not into the pool. */
void hc_ahead_run(struct hc_node *node, uint32_t series, const struct hc_walk_step *step,
		  bool by_file);
/* Shard locked: a page that was read ahead is used. */
void hc_ahead_used(struct hc_node *node, struct hc_entry *entry);
/* Shard locked: it leaves memory unused. */
void hc_ahead_lost(struct hc_node *node, struct hc_entry *entry);

#endif
