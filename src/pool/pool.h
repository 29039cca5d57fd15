/* SPDX-License-Identifier: Apache-2.0 */
/* The host pool: shared memory made of equal segments; a segment in use belongs to one domain and
 * one slot size; a slot holds one page, contiguous; a run is neighbouring slots.
 *
 *   segment 0            segment 1            segment 2
 *   [slot|slot|slot|..]  [slot   |slot   |..] (free: not yet cut)
 *
 * Beside the segments lies the slot table (table.h): one row a slot, daemon-only, enough to rebuild
 * the index after a restart.
 *
 * Life of a slot: FREE -> reserve -> FILLING -> publish -> READY -> doom -> DOOMED -> free -> FREE
 *                         reserve -> LOADING (a store writes into it) -> publish -> READY
 *                         any held state -> quarantine -> QUARANTINED -> free -> FREE
 * The caller (node) owns the transitions of a slot it holds; the pool owns FREE slots. free bumps
 * the generation. Data of a FREE slot may be reused at once; it is never punched, truncated or
 * shrunk.
 *
 * Threads: any thread, any function, unless said otherwise. One internal lock ("pool" in the lock
 * order), never held over I/O, populate or a call out. The populate thread is the pool's own. */
#ifndef HC_POOL_POOL_H
#define HC_POOL_POOL_H

#include "model/hash.h"
#include "util/base.h"

/* Global slot number: segment * slots_per_segment_max + index. */
typedef uint32_t hc_slot_id;
#define HC_SLOT_NONE UINT32_MAX

struct hc_pool;

/* Who may map a segment. Equal (uid, gid, mode) = one domain. */
struct hc_domain {
	uint32_t uid;
	uint32_t gid;
	uint32_t mode;
};

enum hc_pool_kind { HC_POOL_MEMFD, HC_POOL_HUGETLB, HC_POOL_TMPFS_HUGE, HC_POOL_SHM, HC_POOL_DIR };

/* NUMA nodes to bind segments to, in turn. Tests make one up; n = 0: no binding. */
struct hc_numa {
	int n;
	int node[64];
	/* NULL: mbind. Tests record the calls here. 0 or -errno; called before populate, by the
	 * populate thread. */
	int (*bind)(void *arg, void *addr, size_t size_bytes, int node);
	void *arg;
};

/* The nodes with memory that this process may use; n = 0 where there is only one. */
void hc_numa_detect(struct hc_numa *numa_p);

struct hc_pool_config {
	const char *dir; /* directory of segment files and table; NULL: memfd, adopts nothing */
	enum hc_pool_kind kind; /* what dir is on (see place.h); shown in stats */
	uint8_t uuid[16];       /* of the cache that owns the pool: another uuid in dir is -EBUSY */
	uint64_t size_bytes;    /* rounded down to whole segments; at least one segment */
	uint64_t segment_bytes; /* 0: 1 GiB, or 1/16 of a small pool, at least slot_bytes_max,
				   multiple of 2 MiB */
	uint64_t slot_bytes_max; /* largest slot that must fit a segment (max_page_bytes) */
	bool adopt;   /* take over a pool found in dir; else one found there is removed first */
	bool discard; /* a table of a newer or damaged format is dropped instead of refused */
	struct hc_numa numa;
};

/* Row contents that publish stores and adoption gives back. */
struct hc_slot_page {
	uint64_t sequence;
	uint64_t size_bytes;
	uint64_t checksum;
	uint64_t mtime_ns;
	struct hc_hash hash;
	struct hc_hash parent;
	uint32_t space;
	uint32_t series;
	uint32_t depth;
	uint32_t uid;
	uint32_t gid;
	uint32_t mode;
	uint32_t flags; /* HC_SLOT_FLAG_* */
};

#define HC_SLOT_FLAG_SUMMED  0x1u /* checksum is valid (else still pending) */
#define HC_SLOT_FLAG_OPAQUE  0x2u /* key is of a name without a hash; the name is elsewhere */
#define HC_SLOT_FLAG_UNNAMED 0x4u /* parent unknown (page came through the mount) */

enum hc_slot_state {
	HC_SLOT_FREE,
	HC_SLOT_FILLING,
	HC_SLOT_READY,
	HC_SLOT_LOADING,
	HC_SLOT_DOOMED,
	HC_SLOT_QUARANTINED,
};

struct hc_run {
	uint32_t segment;
	uint32_t first; /* slot index in the segment */
	uint32_t n;
};

/* Opens, or adopts, and starts to populate in the background. Returns when at least one segment is
 * usable or, with adopt, when the adopted ones are mapped. Errors: -EBUSY another daemon or uuid
 * holds dir; -EPROTO newer table; -EBADMSG damaged table (both: message names discard); -ENOMEM,
 * -ENOSPC with a message that says how much was wanted and there. */
int hc_pool_open(const struct hc_pool_config *config, struct hc_pool **pool_p) HC_MUST_CHECK;
/* keep: leave segments and table for the next daemon; else everything is removed. NULL accepted. */
void hc_pool_close(struct hc_pool *pool, bool keep);

/* Rounds a page size to the slot size it needs (4 KiB steps). */
uint64_t hc_pool_slot_bytes(uint64_t page_bytes);

/* Reserves up to n slots of slot_bytes for the domain in as few runs as possible (best fit; whole
 * segments are cut when the class has none left and a free segment is there). Slots become `state`,
 * FILLING or LOADING. numa_node: preferred, or -1. *n_p: slots got, 0 <= *n_p <= n, in *n_runs_p <=
 * max_runs runs. 0 when n slots were got; -ENOSPC when fewer (also with some got: the caller keeps
 * or frees them); -EFBIG when slot_bytes exceeds a segment; -EAGAIN when fewer were got while
 * populate still goes on or another thread cuts a segment (hc_pool_populate_wait waits for both).
 * Besides uncut segments, those of other classes in which no slot is held are cut anew; one of
 * another domain is zeroed first, which takes about 0.1 s a GiB. */
int hc_pool_reserve(struct hc_pool *pool, const struct hc_domain *domain, uint64_t slot_bytes,
		    uint32_t n, int numa_node, enum hc_slot_state state, struct hc_run *runs,
		    uint32_t max_runs, uint32_t *n_runs_p, uint32_t *n_p) HC_MUST_CHECK;
/* Blocks until populate made progress since `seen` (or ended) or the deadline; returns the new
 * progress count. */
uint64_t hc_pool_populate_wait(struct hc_pool *pool, uint64_t seen, uint64_t deadline_ns);

/* All of these take a slot that the caller holds. */
void *hc_pool_data(struct hc_pool *pool, hc_slot_id slot);
/* Where the segment of the slot lies. It stays mapped as long as the pool. */
void *hc_pool_segment_data(struct hc_pool *pool, hc_slot_id slot, uint64_t *size_bytes_p);
uint64_t hc_pool_slot_size(struct hc_pool *pool, hc_slot_id slot);
uint32_t hc_pool_generation(struct hc_pool *pool, hc_slot_id slot);
enum hc_slot_state hc_pool_state(struct hc_pool *pool, hc_slot_id slot);
/* Stores the row and only then (release) the state READY: a kill in between leaves FILLING. */
void hc_pool_publish(struct hc_pool *pool, hc_slot_id slot, const struct hc_slot_page *page);
/* Fills in a checksum that was pending at publish. */
void hc_pool_set_checksum(struct hc_pool *pool, hc_slot_id slot, uint64_t checksum);
void hc_pool_doom(struct hc_pool *pool, hc_slot_id slot);
void hc_pool_quarantine(struct hc_pool *pool, hc_slot_id slot);
void hc_pool_free(struct hc_pool *pool, hc_slot_id slot);
hc_slot_id hc_pool_slot(struct hc_pool *pool, uint32_t segment, uint32_t index);
void hc_pool_locate(struct hc_pool *pool, hc_slot_id slot, uint32_t *segment_p, uint32_t *index_p);

/* Adoption: calls each() for every READY row, in slot order, on the calling thread, before any
 * reserve. each returns 0 to keep the slot READY or non-zero to free it. FILLING, LOADING and
 * DOOMED slots were freed by open (no lease file names them). */
typedef int (*hc_pool_each_t)(void *arg, hc_slot_id slot, const struct hc_slot_page *page);
void hc_pool_adopted_each(struct hc_pool *pool, hc_pool_each_t each, void *arg);

/* Re-cutting. A class is (domain, slot_bytes). */
struct hc_pool_segment_info {
	uint32_t segment;
	bool usable;   /* populated */
	bool cut;      /* belongs to a class */
	bool draining; /* hands out no slots; free once the last held slot ends */
	int numa_node;
	struct hc_domain domain;
	uint64_t slot_bytes;
	uint32_t n_slots;
	uint32_t n_free;
};
uint32_t hc_pool_n_segments(struct hc_pool *pool);
void hc_pool_segment_info(struct hc_pool *pool, uint32_t segment,
			  struct hc_pool_segment_info *info_p);
/* Stops handing out the segment's slots. When its last held slot is freed it becomes uncut (zeroed
 * first if the next class is of another domain) and serves any class. -EALREADY, -EINVAL (not cut).
 * At most one at a time is the caller's rule. */
int hc_pool_drain(struct hc_pool *pool, uint32_t segment) HC_MUST_CHECK;
void hc_pool_undrain(struct hc_pool *pool, uint32_t segment);
/* Free slots of a class, slots of uncut segments counted as they would be cut. */
uint64_t hc_pool_class_free(struct hc_pool *pool, const struct hc_domain *domain,
			    uint64_t slot_bytes);

struct hc_pool_stats {
	enum hc_pool_kind kind;
	uint64_t size_bytes;
	uint64_t segment_bytes;
	uint64_t populated_bytes;
	uint64_t huge_bytes; /* of populated: on huge pages (from smaps / kind) */
	uint64_t used_bytes; /* slots not FREE */
	uint64_t adopted_bytes;
	uint64_t n_slots_used;
	uint64_t n_recuts;
	uint64_t n_reserve_runs; /* with n_reserve_slots: mean run length */
	uint64_t n_reserve_slots;
	int populate_error; /* 0 or -errno of the first segment that failed */
};
void hc_pool_stats(struct hc_pool *pool, struct hc_pool_stats *stats_p);
const char *hc_pool_kind_name(enum hc_pool_kind kind);

#endif
