/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the pool, shared by its files: pool.c (open, close, questions), segment.c (files,
 * mappings, the populate thread), adopt.c (what a found pool holds), alloc.c (classes, runs,
 * cutting), slot.c (states). */
#ifndef HC_POOL_INTERNAL_H
#define HC_POOL_INTERNAL_H

#include <pthread.h>

#include "pool/pool.h"
#include "pool/table.h"

/* Pieces of fallocate and populate, so that closing does not wait for a whole segment. */
#define HC_POPULATE_STEP_BYTES (64 * HC_MIB)
/* The longest that open waits for its first segment: 1 GiB of small pages takes about 1 s. */
#define HC_OPEN_WAIT_NS (120 * HC_NS_PER_S)

enum hc_segment_state {
	HC_SEGMENT_ABSENT, /* not populated yet */
	HC_SEGMENT_FAILED, /* could not be populated */
	HC_SEGMENT_UNCUT,
	HC_SEGMENT_BUSY, /* one thread zeroes and cuts it, without the lock */
	HC_SEGMENT_CUT,
};

/* All fields are under the pool's lock; slot_bytes and data also belong to whoever holds a slot of
 * it, domain, bitmaps and n_slots to the thread that made it BUSY. */
struct hc_segment {
	enum hc_segment_state state;
	bool draining;
	bool used;  /* has been cut since it was populated: holds bytes of `domain` */
	bool known; /* `domain` is its last user (else anybody may have been) */
	bool adopted;
	int fd;
	int numa_node;
	struct hc_domain domain;
	uint64_t slot_bytes;
	uint32_t n_slots;
	uint32_t n_free;
	uint32_t run_bound; /* no free run is longer */
	uint32_t n_words;
	uint64_t *free_bits; /* one bit a slot, 1: free */
	uint64_t *word_bits; /* one bit a word of free_bits, 1: not 0 */
};

struct hc_pool {
	enum hc_pool_kind kind;
	uint64_t segment_bytes;
	uint32_t n_segments;
	uint32_t slots_per_segment;
	struct hc_numa numa;
	char *dir; /* for messages; NULL: memfd */
	int dirfd;
	int segments_fd; /* directory of the segment files; equals dirfd but on hugetlbfs */
	int lock_fd;
	uint8_t *data; /* segments side by side */
	void *table;
	uint64_t table_bytes;

	pthread_t populate_thread;
	bool populate_started;

	pthread_mutex_t lock; /* "pool" in the lock order; guards all below and the segments */
	pthread_cond_t progress_cond;
	uint64_t progress;
	bool stop;
	bool populate_ended;
	uint32_t n_busy;
	int populate_error;
	uint64_t populated_bytes;
	uint64_t adopted_bytes;
	uint64_t used_bytes;
	uint64_t n_slots_used;
	uint64_t n_recuts;
	uint64_t n_reserve_runs;
	uint64_t n_reserve_slots;
	uint64_t huge_bytes; /* as of huge_at_bytes populated */
	uint64_t huge_at_bytes;
	struct hc_segment *segments;
};

static inline bool hc_domain_equal(const struct hc_domain *a, const struct hc_domain *b)
{
	return a->uid == b->uid && a->gid == b->gid && a->mode == b->mode;
}

static inline void *hc_segment_data(struct hc_pool *pool, uint32_t segment)
{
	return pool->data + (uint64_t)segment * pool->segment_bytes;
}

static inline struct hc_table_row *hc_pool_row(struct hc_pool *pool, hc_slot_id slot)
{
	hc_assert(slot / pool->slots_per_segment < pool->n_segments);
	return (struct hc_table_row *)((char *)pool->table + HC_TABLE_ROWS_AT) + slot;
}

/* segment.c */
void hc_segment_file_name(uint32_t segment, char name[16]);
/* Maps the segment's fd at its place, with the advice that all segments get. */
int hc_segment_map(struct hc_pool *pool, uint32_t segment, int fd) HC_MUST_CHECK;
int hc_populate_start(struct hc_pool *pool) HC_MUST_CHECK;
void hc_populate_stop(struct hc_pool *pool);
/* madvise(MADV_POPULATE_WRITE): pages are there afterwards, or -errno (no SIGBUS). */
int hc_memory_populate(void *addr, size_t size_bytes) HC_MUST_CHECK;
/* Of the mapping [addr, addr + size): bytes mapped by huge pages. */
uint64_t hc_memory_huge_bytes(const void *addr, uint64_t size_bytes);
/* Removes segment files from number `from` on, whatever made them. */
void hc_segment_files_remove(int segments_fd, uint32_t from);

/* alloc.c */
int hc_segment_bits_alloc(struct hc_segment *s, uint64_t segment_bytes,
			  uint64_t slot_bytes) HC_MUST_CHECK;
void hc_segment_bits_free(struct hc_segment *s);
void hc_segment_bit_set(struct hc_segment *s, uint32_t index);
void hc_segment_bit_clear(struct hc_segment *s, uint32_t index);
/* Puts the slot back into the bitmap. */
void hc_segment_slot_free_locked(struct hc_segment *s, uint32_t index);
/* A cut segment without held slots goes back to the uncut ones. */
void hc_segment_uncut_locked(struct hc_pool *pool, uint32_t segment);

/* Makes the pages of the rows of the segment's first n_slots slots: no later store into them meets
 * a full file system. */
int hc_segment_rows_populate(struct hc_pool *pool, uint32_t segment,
			     uint32_t n_slots) HC_MUST_CHECK;

/* adopt.c */
struct hc_found_table {
	bool found; /* the rest is set, the pool can be adopted */
	uint32_t n_segments;
	uint64_t segment_bytes;
};
/* Looks at the slot table in the directory. segment_bytes: what a new pool would have; an old one
 * need have it only if the config asks for a size. Removes a pool that is not to be adopted
 * (config->adopt and discard, an earlier boot, another shape) and what is left of one. Errors as
 * hc_pool_open. */
int hc_adopt_look(const struct hc_pool_config *config, uint64_t segment_bytes, int dirfd,
		  int segments_fd, const uint8_t boot_id[16],
		  struct hc_found_table *found_p) HC_MUST_CHECK;
/* Fits the found table's file to a new number of segments. */
int hc_adopt_resize(int table_fd, int segments_fd, const struct hc_pool_config *config,
		    const uint8_t boot_id[16], const struct hc_found_table *found,
		    uint32_t n_segments) HC_MUST_CHECK;
/* After the table is mapped: takes over the segments and rows that can be believed. */
void hc_adopt_segments(struct hc_pool *pool);

/* numa.c */
int hc_numa_bind(void *arg, void *addr, size_t size_bytes, int node) HC_MUST_CHECK;

/* pool.c */
/* Takes the daemon's lock of a pool directory; held until the fd closes. -EBUSY when somebody has
 * it. */
int hc_pool_lock_take(int dirfd, int *fd_p) HC_MUST_CHECK;
/* Somebody holds it; fd is an open `lock`. */
bool hc_pool_lock_held(int fd);
/* Opens the directory that the segment files are in: `segments` in the pool's directory if it is
 * there. */
int hc_pool_segments_open(int dirfd, int *fd_p) HC_MUST_CHECK;

/* place.c: where our own places are made and mounts are listed. Tests move them, before anything
 * else. */
struct hc_place_roots {
	const char *run;
	const char *shm;
	const char *mounts;
};
void hc_pool_place_roots_set(const struct hc_place_roots *roots);

#endif
