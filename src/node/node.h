/* SPDX-License-Identifier: Apache-2.0 */
/* The node: the life cycle of pages over pool, store, index and catalog. The heart of the daemon
 * and of the embedded library. Everything above (FUSE, library, socket) speaks to it.
 *
 *   reserve -> (filled by the caller) -> publish -> [backup] -> evicted from memory -> [promote] ->
 * acquire -> ...
 *
 * A *ref* holds a page: its bytes stay where `data` points until release. Any thread may call
 * anything; no call holds a lock while it waits; every wait ends at its deadline (of
 * hc_clock_now_ns). Errors: a page that is absent, expired, damaged or not deliverable in time is a
 * miss (-ENOENT or a short count), never wrong bytes. Lock order: registry, index shard, directory
 * list, order heap, pool, store; see ARCHITECTURE.md. */
#ifndef HC_NODE_NODE_H
#define HC_NODE_NODE_H

#include "index/index.h"
#include "node/registry.h"
#include "pool/pool.h"
#include "store/store.h"
#include "util/timing.h"

struct hc_node;

enum hc_backup_mode { HC_BACKUP_PUBLISH, HC_BACKUP_REUSE, HC_BACKUP_EVICT, HC_BACKUP_OFF };

enum hc_event_kind {
	HC_EVENT_PUBLISHED, /* a name appeared (by the library or a rebuild) */
	HC_EVENT_REMOVED,   /* a name went: evicted, expired, damaged, replaced by the library */
	HC_EVENT_FLUSH,     /* so many at once that all cached names should be asked again */
};

/* What the front end must tell the kernel. Called from any thread, without locks; must only queue.
 */
struct hc_event {
	enum hc_event_kind kind;
	struct hc_key key;
	uint64_t node_id; /* 0: the front end never saw the page */
	uint32_t dir;
	const char *name; /* last component; valid during the call */
};

struct hc_node_config {
	/* where */
	const char *cachedir;     /* NULL: memory only, nothing is stored */
	const char *catalog_dir;  /* NULL: cachedir */
	const char *const *disks; /* data directories; none: cachedir */
	uint16_t n_disks;
	bool noinit;
	struct hc_owner root; /* directory 1 of a fresh cache */
	/* memory */
	bool embedded; /* memfd pool that adopts nothing */
	const char *pool_path;
	uint64_t pool_bytes; /* 0: default (daemon 10 % of available, <= 64 GiB; embedded 1 GiB) */
	uint64_t segment_bytes; /* 0: default */
	bool keep_pool;
	bool discard_pool;
	const struct hc_numa *numa; /* NULL: none */
	/* disk */
	bool disk_off;       /* disk_size=0 */
	uint64_t disk_bytes; /* limit over all disks; 0: 80 % of what is free (plus what we hold) */
	uint64_t min_free_bytes; /* with min_free_ppm: the larger holds; per disk */
	uint32_t min_free_ppm;
	uint32_t high_ppm, low_ppm; /* of pool and disk; 0: 950000, 900000; 1000000 = at 100 % */
	uint32_t dirty_ppm;         /* of the pool; 0: 250000 */
	enum hc_backup_mode backup;
	uint64_t write_budget_bytes; /* a day; 0: no limit */
	/* limits */
	uint64_t max_page_bytes; /* 0: 64 MiB */
	uint64_t index_bytes;    /* 0: 1 % of memory */
	uint64_t budget_ns;      /* 0: 2 s; look-ups and opens */
	uint64_t flush_ns;       /* 0: 20 s; at close */
	uint64_t ahead_bytes;    /* 0: 64 MiB; the most that is read ahead of one walk */
	bool no_ahead;           /* no read-ahead */
	bool no_verify;
	bool no_evictor; /* tests: evict only inline, deterministic (replay) */
	/* front end */
	void (*event)(void *arg, const struct hc_event *event);
	void *event_arg;
	/* tests: wraps the store (fault injection) */
	struct hc_store *(*wrap_store)(void *arg, struct hc_store *inner);
	void *wrap_arg;
};

/* Messages say what was wrong and what to do. Errors of registry, pool and store opens. */
int hc_node_open(const struct hc_node_config *config, struct hc_node **node_p) HC_MUST_CHECK;
/* Flushes with the deadline flush_ns, stores recency, ends the threads; frees the pool unless
 * keep_pool. All refs must have been released. n_lost_p (may be NULL): dirty pages that could not
 * be written. */
void hc_node_close(struct hc_node *node, uint64_t *n_lost_p);
struct hc_registry *hc_node_registry(struct hc_node *node);

/* --- pages by key --- */
struct hc_ref {
	uint32_t entry; /* index entry number; HC_ENTRY_NONE for a reservation */
	hc_slot_id slot;
	void *data;
	uint64_t size_bytes; /* of the page; of a reservation: what was asked */
	uint64_t sequence;
	uint32_t series;
};

struct hc_page_info {
	struct hc_key key;
	struct hc_hash parent;
	uint64_t sequence;
	uint64_t node_id;
	uint64_t size_bytes;
	uint64_t checksum;
	uint64_t mtime_ns;
	uint64_t used_ns; /* wall clock, last use in this run, to a second or more; 0: none */
	struct hc_owner owner;
	uint32_t entry; /* with sequence: what a front end remembers of a body */
	uint32_t dir;
	uint32_t depth;
	uint32_t stamp;
	uint32_t hits;
	uint32_t refs;
	uint16_t pins;
	uint16_t flags; /* HC_ENTRY_* */
	uint8_t priority;
	uint8_t session; /* enum hc_session */
	bool pinned;     /* by a hint; counted in pins, too */
	bool in_memory;
	bool on_disk;
};

/* Leading hashes that exist in every series (a page on any tier exists). touch: as one batch, one
 * stamp. */
size_t hc_node_exists_prefix(struct hc_node *node, const uint32_t *series, size_t n_series,
			     const struct hc_hash *hashes, size_t n, bool touch);
/* -ENOENT. Gives the page a node id when want_node_id. Expired pages are misses. No I/O. */
int hc_node_stat(struct hc_node *node, const struct hc_key *key, bool want_node_id,
		 struct hc_page_info *info_p) HC_MUST_CHECK;
/* The same by what a front end remembers; -ESTALE when that body is gone. */
int hc_node_stat_body(struct hc_node *node, uint32_t entry, uint64_t sequence,
		      struct hc_page_info *info_p) HC_MUST_CHECK;

struct hc_acquire {
	uint32_t series;
	uint32_t opener; /* tgid of a process that opens files one by one: walk; 0: one batch = one
			    stamp */
	uint32_t thread; /* tid of the opener, 0: not known */
	uint64_t tree;   /* walk: directory tree */
	uint64_t deadline_ns;
	bool uncounted; /* nobody asked for the page: no hit, no miss, no use */
};
/* Leading pages that could be made resident by the deadline, verified; each ref must be released.
 * *n_p may be 0. Returns 0, or -ENOENT when the first page is a miss. Promotions that miss the
 * deadline go on in the background. */
int hc_node_acquire(struct hc_node *node, const struct hc_acquire *how,
		    const struct hc_hash *hashes, size_t n, struct hc_ref *refs,
		    size_t *n_p) HC_MUST_CHECK;
void hc_node_release(struct hc_node *node, struct hc_ref *refs, size_t n);
/* One page as the file on disk that it is, for reading through the page cache: what it holds was
 * verified, by this call unless the file is unchanged since the last time. The ref keeps the page
 * from eviction and has no data; released as others, the descriptor is the caller's. -ENOENT: a
 * miss, as in acquire. -EAGAIN: it is in memory, or on its way there: acquire serves it. */
int hc_node_open_file(struct hc_node *node, const struct hc_acquire *how,
		      const struct hc_hash *hash, struct hc_ref *ref_p, int *fd_p) HC_MUST_CHECK;
/* A ref on a body without data (entry, sequence): keeps it from eviction. -ESTALE. */
int hc_node_hold(struct hc_node *node, uint32_t entry, uint64_t sequence,
		 struct hc_ref *ref_p) HC_MUST_CHECK;
/* An empty file on that disk, to try something with; goes with hc_node_unstage. */
int hc_node_probe_file(struct hc_node *node, uint16_t disk, int *fd_p, char *name,
		       size_t room) HC_MUST_CHECK;
/* Pages into memory without holding them, each by itself. Waits until the deadline; promotions that
 * miss it go on. */
#define HC_PREFETCH_BATCH 32u /* loads that are asked for at once */
struct hc_prefetch_result {
	uint64_t n_loaded;
	uint64_t n_resident; /* were there */
	uint64_t n_missing;  /* no such page */
	uint64_t n_failed;   /* damaged, no room in memory, or too late */
};
void hc_node_prefetch(struct hc_node *node, const struct hc_key *keys, size_t n,
		      uint64_t deadline_ns, struct hc_prefetch_result *result_p);
/* Takes the names of pages; held ones live on until released. Returns how many were there. */
size_t hc_node_remove(struct hc_node *node, uint32_t series, const struct hc_hash *hashes,
		      size_t n);
/* Removes the body (entry, sequence) if its name still shows it: unlink through the mount. -ENOENT.
 */
int hc_node_remove_body(struct hc_node *node, uint32_t entry, uint64_t sequence) HC_MUST_CHECK;
/* pins +1 / -1. -ENOENT, -ERANGE. */
int hc_node_pin(struct hc_node *node, const struct hc_key *key, bool pin) HC_MUST_CHECK;
/* Hints: what an operator or an engine wishes for a page. */
enum hc_hint {
	HC_HINT_PINNED,   /* 1: no victim of eviction, on any tier; 0: even if its directory is */
	HC_HINT_PRIORITY, /* 0 to 255, instead of the space's */
	HC_HINT_SESSION, /* HC_SESSION_ALIVE: stays longer than others of its priority; _ENDED: goes
			    first */
	HC_HINT_N
};
#define HC_HINT_NONE      (-1)
#define HC_PRIORITY_SPACE 256 /* "normal": the space's, whatever directories say */
/* The attribute that keeps it, without "user.". */
const char *hc_hint_name(enum hc_hint hint);
/* HC_HINT_N: no hint of that name. */
enum hc_hint hc_hint_of(const char *name);
/* 0, 1; 0 to 255, low, normal, high; alive, ended, none. -EINVAL. */
int hc_hint_parse(enum hc_hint hint, const char *text, size_t n, int *value_p) HC_MUST_CHECK;
/* Reads, changes and keeps the attributes of a page as one (hc_attrs_change), and does what its
 * hints say from here on. -ESTALE: the body is gone. */
int hc_node_attrs_change(struct hc_node *node, uint32_t entry, uint64_t sequence,
			 int (*change)(void *arg, struct hc_attrset *set), void *arg) HC_MUST_CHECK;
/* After hints of a directory or the priority of a space changed: all pages below follow. */
int hc_node_hints_below(struct hc_node *node, uint32_t dir) HC_MUST_CHECK;
/* Sets or (HC_HINT_NONE) ends a hint of a page. -ENOENT, -EINVAL. */
int hc_node_hint_page(struct hc_node *node, const struct hc_key *key, enum hc_hint hint,
		      int value) HC_MUST_CHECK;
/* Owner and times of a published page (setattr); HC_DIR_SET_* bits; mtime stays across restarts.
 * -ESTALE. */
int hc_node_set(struct hc_node *node, uint32_t entry, uint64_t sequence,
		const struct hc_page_info *info, uint32_t what) HC_MUST_CHECK;
/* A touch (utimens, read): O(1). */
void hc_node_touch(struct hc_node *node, uint32_t entry, uint64_t sequence, uint32_t opener,
		   uint64_t tree);

/* --- new pages --- */
struct hc_reserve {
	uint32_t space;
	uint64_t size_bytes; /* of each page */
	int numa_node;       /* -1: any */
	struct hc_domain domain;
	uint64_t deadline_ns; /* 0: never waits */
};
/* Up to n slots in as few runs as possible, evicting colder pages if need be. -ENOSPC (none in
 * time), -EDQUOT, -EFBIG (above max_page_bytes or a segment). *n_p >= 1 on success. Space quota is
 * charged at once. */
int hc_node_reserve(struct hc_node *node, const struct hc_reserve *how, size_t n,
		    struct hc_ref *refs, size_t *n_p) HC_MUST_CHECK;

struct hc_publish {
	struct hc_key key;
	struct hc_hash parent; /* zero: root, or unknown when `unnamed` */
	uint32_t depth;
	bool unnamed; /* parent unknown: through the mount */
	bool replace; /* the mount: rename over a page replaces it; the library keeps the first */
	bool summed;  /* checksum is given */
	uint64_t checksum;
	uint64_t size_bytes; /* <= what was reserved */
	uint64_t mtime_ns;   /* 0: now */
	uint64_t node_id;    /* of the body that becomes this page, 0: none */
	struct hc_owner owner;
	uint32_t dir;            /* 0: from the series pattern */
	const char *opaque_path; /* opaque series: path relative to the space */
	uint32_t opener;         /* walk; 0: none */
	uint32_t thread;         /* tid of the opener, 0: not known */
	uint64_t tree;
	bool quiet;                     /* no PUBLISHED event (the kernel knows already) */
	const struct hc_attrset *attrs; /* of the page, hints among them; NULL: none */
};
/* Gives names to reserved slots, in order. result per item: 0, -EEXIST (a page was there and is
 * kept; the slot is free again), -ENAMETOOLONG, -ENOMEM. Every reservation is consumed. Computes
 * missing checksums. */
void hc_node_publish(struct hc_node *node, struct hc_ref *refs, const struct hc_publish *items,
		     size_t n, int *results);
void hc_node_abort(struct hc_node *node, struct hc_ref *refs, size_t n);
/* A staging file of the store becomes a page on disk. The file is consumed on success and removed
 * on error. */
int hc_node_publish_staged(struct hc_node *node, uint16_t disk, const char *staging,
			   const struct hc_publish *item) HC_MUST_CHECK;
/* The disk to stage a new body on, and a fresh staging file. -ENOSPC (disk limit, min_free),
 * -ENODEV (memory only). The caller charges the space for what it writes (hc_node_charge) and takes
 * that back before publish or unstage: the page then pays for itself. */
int hc_node_stage(struct hc_node *node, uint64_t expect_bytes, uint16_t *disk_p, int *fd_p,
		  char *name, size_t room) HC_MUST_CHECK;
/* Charges (or gives back, bytes < 0) bytes of bodies under construction. -EDQUOT when no pages of
 * the space can go. */
int hc_node_charge(struct hc_node *node, uint32_t space, int64_t bytes) HC_MUST_CHECK;
void hc_node_unstage(struct hc_node *node, uint16_t disk, const char *name);

/* The memory around a slot that a ref holds: a segment of the pool, mapped as long as the node is
 * open. For who registers it with a device. */
void *hc_node_segment(struct hc_node *node, const struct hc_ref *ref, uint64_t *size_bytes_p);

/* --- whole node --- */
/* The page (and its known ancestors) on disk and in the catalog, also when its backup was skipped.
 * -ENOENT, -EIO, -ENOSPC, -ETIMEDOUT; 0 at once with disk_off. */
int hc_node_sync_page(struct hc_node *node, uint32_t entry, uint64_t sequence,
		      uint64_t deadline_ns) HC_MUST_CHECK;
/* Everything dirty, likewise. *n_left_p pages that are not. */
int hc_node_sync(struct hc_node *node, uint64_t deadline_ns, uint64_t *n_left_p) HC_MUST_CHECK;

struct hc_evict_result {
	uint64_t n_evicted;
	uint64_t bytes_evicted;
	uint64_t n_kept; /* leased, pinned, open, or could not be backed up (memory_only) */
};
/* keys NULL: all. memory_only: backs up what is dirty, then drops memory copies; else pages leave
 * every tier. */
int hc_node_evict(struct hc_node *node, const struct hc_key *keys, size_t n, bool memory_only,
		  uint64_t deadline_ns, struct hc_evict_result *result_p) HC_MUST_CHECK;
/* Every page below a directory (id), as evict with keys. */
int hc_node_evict_dir(struct hc_node *node, uint32_t dir, bool memory_only, uint64_t deadline_ns,
		      struct hc_evict_result *result_p) HC_MUST_CHECK;

/* Every page below a directory at one moment: heap array, the caller frees. */
int hc_node_pages_below(struct hc_node *node, uint32_t dir, struct hc_page_info **pages_p,
			size_t *n_p) HC_MUST_CHECK;
/* Draining: no new bodies and leases, so that everything can be written. What is under way ends. */
void hc_node_drain(struct hc_node *node, bool drain);
bool hc_node_draining(struct hc_node *node);

struct hc_verify_result {
	uint64_t n_checked;
	uint64_t n_bad;
	uint64_t bytes_checked;
};
/* Re-reads everything in both tiers; what is bad is removed (file quarantined). progress may be
 * NULL; when it returns false, verify ends with -ECANCELED. */
int hc_node_verify(struct hc_node *node, bool (*progress)(void *arg, uint64_t done, uint64_t total),
		   void *arg, struct hc_verify_result *result_p) HC_MUST_CHECK;
/* Files without a row, temporaries of dead runs, quarantined files. -EAGAIN: another one runs, or a
 * disk has kept a publish from ending for 45 s. */
int hc_node_gc(struct hc_node *node, uint64_t *n_removed_p, uint64_t *bytes_p) HC_MUST_CHECK;
/* Re-reads limits (SIGHUP, spaces file): quotas and the like are in the registry; these are
 * node-wide. */
struct hc_node_limits {
	uint64_t disk_bytes;
	uint64_t min_free_bytes;
	uint32_t min_free_ppm, high_ppm, low_ppm, dirty_ppm;
	enum hc_backup_mode backup;
};
void hc_node_limits_get(struct hc_node *node, struct hc_node_limits *limits_p);
void hc_node_limits_set(struct hc_node *node, const struct hc_node_limits *limits);
/* A space's quota, max_age or priority changed: judge its pages again soon. */
void hc_node_space_changed(struct hc_node *node, uint32_t space);
/* Tests: one round of background work now, on the calling thread (scrub n pages, expire, evict). */
void hc_node_maintain(struct hc_node *node, uint64_t n_scrub);
/* Backup is held back (bench, tests) until resumed. */
void hc_node_pause_backup(struct hc_node *node, bool pause);

/* Counters only rise. Each is one line `name value` of MOUNT/.hicache/stats, in this order; units
 * in the names. */
/* clang-format off */
#define HC_NODE_COUNTERS(X) \
	X(lookups) X(lookup_hits) X(acquires) X(hits_memory) X(hits_disk) X(misses) \
	X(misses_deadline) X(published) X(published_bytes) X(publish_existing) X(replaced) \
	X(removed) X(evicted_memory) X(evicted_memory_bytes) X(evicted_disk) \
	X(evicted_disk_bytes) X(evicted_quota) X(expired) X(evicted_orphans) \
	X(recut_segments) X(backed_up) X(backed_up_bytes) X(backup_skipped) \
	X(backup_failed) X(backup_budget_held) X(promoted) X(promoted_bytes) \
	X(promote_failed) X(bad_checksum) X(bad_size) X(bad_missing) X(bad_scrub) \
	X(bad_adopted) X(quarantined) X(adopted) X(adopt_dropped) X(rebuilt) X(scrubbed) \
	X(scrubbed_bytes) X(disk_errors) X(disks_out) X(no_space_memory) X(no_space_disk) \
	X(no_quota) X(catalog_lost) X(files_verified) X(ahead_pages) \
	X(ahead_hits) X(ahead_wasted) X(prefetched) X(prefetch_resident) \
	X(prefetch_missing) X(prefetch_failed)
/* clang-format on */

struct hc_node_stats {
#define HC_NODE_COUNTER_FIELD(name) uint64_t name;
	HC_NODE_COUNTERS(HC_NODE_COUNTER_FIELD)
#undef HC_NODE_COUNTER_FIELD
	/* state now */
	uint64_t n_pages;
	uint64_t n_pages_memory;
	uint64_t n_pages_disk;
	uint64_t n_dirty;
	uint64_t memory_bytes;    /* of pages in memory */
	uint64_t disk_used_bytes; /* of pages on disk */
	uint64_t disk_limit_bytes;
	uint64_t dirty_bytes;
	uint64_t index_bytes;
	uint64_t n_refs;
	uint64_t n_quarantined_slots;
	bool rebuilding;
	struct hc_pool_stats pool;
	struct hc_catalog_stats catalog;
};
void hc_node_stats(struct hc_node *node, struct hc_node_stats *stats_p);
/* How long the store took, with the wait in its queue. */
enum hc_node_timing { HC_TIMING_PROMOTION, HC_TIMING_BACKUP, HC_NODE_N_TIMINGS };
const struct hc_timing *hc_node_timing(struct hc_node *node, enum hc_node_timing which);
/* Pages of each space by tier, at about one moment: a walk over the index, in small steps. Heap
 * array by space id, of *n_p; the caller frees. */
struct hc_space_pages {
	uint64_t n_memory, n_disk;
	uint64_t memory_bytes, disk_bytes;
};
int hc_node_space_pages(struct hc_node *node, struct hc_space_pages **list_p,
			size_t *n_p) HC_MUST_CHECK;
uint16_t hc_node_n_disks(struct hc_node *node);
int hc_node_disk_info(struct hc_node *node, uint16_t disk,
		      struct hc_store_disk_info *info_p) HC_MUST_CHECK;
/* Pages of a directory at one moment (index numbers; look each up with hc_node_stat_body). */
int hc_node_dir_pages(struct hc_node *node, uint32_t dir, struct hc_dir_item **items_p,
		      size_t *n_p) HC_MUST_CHECK;
/* The same piece by piece, see hc_index_dir_begin. */
void hc_node_dir_begin(struct hc_node *node, struct hc_dir_cursor *cursor, uint32_t dir);
size_t hc_node_dir_read(struct hc_node *node, struct hc_dir_cursor *cursor,
			struct hc_dir_item *items, size_t n);
void hc_node_dir_end(struct hc_node *node, struct hc_dir_cursor *cursor);
uint64_t hc_node_dir_n_pages(struct hc_node *node, uint32_t dir);
/* Last component of a page's path (opaque ones too), and its node id (0: none yet). -ESTALE when
 * the body is gone. */
int hc_node_page_name(struct hc_node *node, uint32_t entry, uint64_t sequence,
		      char name[HC_NAME_BYTES], uint64_t *node_id_p) HC_MUST_CHECK;

#endif
