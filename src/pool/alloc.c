/* SPDX-License-Identifier: Apache-2.0 */
/* Classes and runs: which segment serves whom, and which slots go to a reserve.
 *
 * A segment has one bit a slot (1: free) and one bit a word of those. A reserve takes the shortest
 * free run that is long enough, else the longest one and goes on; so a chain that fits one run gets
 * one, and else as few as can be. A class that has too few free slots takes an uncut segment, or
 * one of another class in which nothing is held. Zeroing (a change of domain) and the pages of the
 * table's rows are made without the lock: the segment is BUSY. */
#include "pool/internal.h"

#include <inttypes.h>

#include "util/clock.h"
#include "util/crash.h"
#include "util/log.h"

int hc_segment_bits_alloc(struct hc_segment *s, uint64_t segment_bytes, uint64_t slot_bytes)
{
	uint32_t n_slots = (uint32_t)(segment_bytes / slot_bytes);
	uint32_t n_words = (n_slots + 63) / 64;
	uint64_t *free_bits = calloc(n_words, sizeof(*free_bits));
	uint64_t *word_bits = calloc((n_words + 63) / 64, sizeof(*word_bits));

	if (!free_bits || !word_bits) {
		free(free_bits);
		free(word_bits);
		return -ENOMEM;
	}
	hc_segment_bits_free(s);
	s->slot_bytes = slot_bytes;
	s->n_slots = n_slots;
	s->n_words = n_words;
	s->free_bits = free_bits;
	s->word_bits = word_bits;
	return 0;
}

void hc_segment_bits_free(struct hc_segment *s)
{
	free(s->free_bits);
	free(s->word_bits);
	s->free_bits = NULL;
	s->word_bits = NULL;
	s->n_words = 0;
}

void hc_segment_bit_set(struct hc_segment *s, uint32_t index)
{
	uint32_t w = index / 64;

	hc_assert(!(s->free_bits[w] >> index % 64 & 1));
	s->free_bits[w] |= (uint64_t)1 << index % 64;
	s->word_bits[w / 64] |= (uint64_t)1 << w % 64;
}

void hc_segment_bit_clear(struct hc_segment *s, uint32_t index)
{
	uint32_t w = index / 64;

	s->free_bits[w] &= ~((uint64_t)1 << index % 64);
	if (!s->free_bits[w])
		s->word_bits[w / 64] &= ~((uint64_t)1 << w % 64);
}

/* Longer runs are not measured at each free. */
#define HC_BOUND_WORDS 8

/* Free slots from index on, to the right; more than fit the words that are looked at: UINT32_MAX.
 */
static uint32_t hc_segment_free_right(const struct hc_segment *s, uint32_t index)
{
	uint32_t w = index / 64, pos = index % 64, n = 0;

	for (uint32_t i = 0; i < HC_BOUND_WORDS; i++, w++, pos = 0) {
		uint64_t held;

		if (w == s->n_words)
			return n;
		held = ~s->free_bits[w] >> pos;
		if (held)
			return n + (uint32_t)__builtin_ctzll(held);
		n += 64 - pos;
	}
	return UINT32_MAX;
}

static uint32_t hc_segment_free_left(const struct hc_segment *s, uint32_t index)
{
	uint32_t w = index / 64, pos = index % 64, n = 0;

	for (uint32_t i = 0; i < HC_BOUND_WORDS; i++, w--, pos = 63) {
		uint64_t held = ~s->free_bits[w] << (63 - pos);

		if (held)
			return n + (uint32_t)__builtin_clzll(held);
		n += pos + 1;
		if (!w)
			return n;
	}
	return UINT32_MAX;
}

void hc_segment_slot_free_locked(struct hc_segment *s, uint32_t index)
{
	uint32_t left, right;

	hc_segment_bit_set(s, index);
	s->n_free++;
	left = hc_segment_free_left(s, index);
	right = hc_segment_free_right(s, index);
	if (left == UINT32_MAX || right == UINT32_MAX)
		s->run_bound = s->n_free;
	else if (left + right - 1 > s->run_bound)
		s->run_bound = left + right - 1;
}

/* The first word from w on that has a free slot; n_words if none. */
static uint32_t hc_segment_next_word(const struct hc_segment *s, uint32_t w)
{
	while (w < s->n_words) {
		uint64_t rest = s->word_bits[w / 64] >> w % 64;

		if (rest)
			return w + (uint32_t)__builtin_ctzll(rest);
		w = (w / 64 + 1) * 64;
	}
	return s->n_words;
}

/* The longest runs seen, up to a number: a heap with the shortest of them first. */
struct hc_longest {
	struct hc_run *runs;
	uint32_t max;
	uint32_t n;
};

static void hc_longest_sift(struct hc_longest *heap, uint32_t i)
{
	for (;;) {
		uint32_t child = 2 * i + 1;
		struct hc_run run = heap->runs[i];

		if (child >= heap->n)
			return;
		if (child + 1 < heap->n && heap->runs[child + 1].n < heap->runs[child].n)
			child++;
		if (run.n <= heap->runs[child].n)
			return;
		heap->runs[i] = heap->runs[child];
		heap->runs[child] = run;
		i = child;
	}
}

static void hc_longest_offer(struct hc_longest *heap, struct hc_run run)
{
	uint32_t i;

	if (heap->n == heap->max) {
		if (run.n <= heap->runs[0].n)
			return;
		heap->runs[0] = run;
		hc_longest_sift(heap, 0);
		return;
	}
	for (i = heap->n++; i && run.n < heap->runs[(i - 1) / 2].n; i = (i - 1) / 2)
		heap->runs[i] = heap->runs[(i - 1) / 2];
	heap->runs[i] = run;
}

/* Longest first; it is no heap afterwards. */
static void hc_longest_sort(struct hc_longest *heap)
{
	uint32_t n = heap->n;

	while (heap->n > 1) {
		struct hc_run run = heap->runs[0];

		heap->n--;
		heap->runs[0] = heap->runs[heap->n];
		heap->runs[heap->n] = run;
		hc_longest_sift(heap, 0);
	}
	heap->n = n;
}

/* A walk over the free runs of a segment, for the shortest that is long enough or for the longest.
 */
struct hc_scan {
	uint32_t want;
	uint32_t longest;
	struct hc_run run; /* that is growing */
	struct hc_run *best;
	struct hc_longest *heap; /* or NULL */
};

static void hc_scan_close(struct hc_scan *scan)
{
	uint32_t n = scan->run.n;

	if (n > scan->longest)
		scan->longest = n;
	if (n && scan->heap)
		hc_longest_offer(scan->heap, scan->run);
	else if (n >= scan->want && (!scan->best->n || n < scan->best->n))
		*scan->best = scan->run;
	scan->run.n = 0;
}

static void hc_scan_word(struct hc_scan *scan, uint32_t w, uint64_t word)
{
	for (uint32_t pos = 0; pos < 64;) {
		uint64_t rest = word >> pos;
		uint32_t n;

		if (!(rest & 1)) {
			hc_scan_close(scan);
			if (!rest)
				return;
			pos += (uint32_t)__builtin_ctzll(rest);
			continue;
		}
		n = ~rest ? (uint32_t)__builtin_ctzll(~rest) : 64;
		if (!scan->run.n)
			scan->run.first = w * 64 + pos;
		scan->run.n += n;
		pos += n;
	}
}

/* Offers the segment's free runs to the heap, or else to *best, until an exact fit (true). */
static bool hc_segment_scan(struct hc_pool *pool, uint32_t segment, uint32_t want,
			    struct hc_run *best, struct hc_longest *heap)
{
	struct hc_segment *s = &pool->segments[segment];
	struct hc_scan scan = {.want = want, .best = best, .heap = heap};
	uint32_t last = UINT32_MAX;

	scan.run.segment = segment;
	if (s->n_free == s->n_slots) {
		scan.run.n = s->n_slots;
		hc_scan_close(&scan);
		return best->n == want;
	}
	for (uint32_t w = hc_segment_next_word(s, 0); w < s->n_words;
	     w = hc_segment_next_word(s, w + 1)) {
		if (w != last + 1)
			hc_scan_close(&scan);
		hc_scan_word(&scan, w, s->free_bits[w]);
		last = w;
		if (best->n == want)
			return true;
	}
	hc_scan_close(&scan);
	s->run_bound = scan.longest;
	return best->n == want;
}

static bool hc_segment_serves(const struct hc_segment *s, const struct hc_domain *domain,
			      uint64_t slot_bytes)
{
	return s->state == HC_SEGMENT_CUT && !s->draining && s->slot_bytes == slot_bytes &&
	       hc_domain_equal(&s->domain, domain);
}

/* The shortest run of at least `want` slots in the segments of a class, on one NUMA node or all
 * (-1); n is 0 if there is none. *n_free_p: free slots seen. */
static struct hc_run hc_class_fit(struct hc_pool *pool, const struct hc_domain *domain,
				  uint64_t slot_bytes, uint32_t want, int node, uint64_t *n_free_p)
{
	struct hc_run best = {0};
	bool exact = false;

	*n_free_p = 0;
	for (uint32_t i = 0; i < pool->n_segments; i++) {
		struct hc_segment *s = &pool->segments[i];

		if (!hc_segment_serves(s, domain, slot_bytes) ||
		    (node >= 0 && s->numa_node != node))
			continue;
		*n_free_p += s->n_free;
		if (!exact && s->run_bound >= want)
			exact = hc_segment_scan(pool, i, want, &best, NULL);
	}
	return best;
}

/* No run is long enough: the longest ones, in one walk, the last cut to what is missing. Returns
 * how many. */
static uint32_t hc_class_split(struct hc_pool *pool, const struct hc_domain *domain,
			       uint64_t slot_bytes, uint32_t want, struct hc_run *runs,
			       uint32_t max_runs)
{
	struct hc_longest heap = {.runs = runs, .max = max_runs < want ? max_runs : want};
	struct hc_run none = {0};

	for (uint32_t i = 0; i < pool->n_segments; i++)
		if (hc_segment_serves(&pool->segments[i], domain, slot_bytes) &&
		    pool->segments[i].n_free)
			hc_segment_scan(pool, i, want, &none, &heap);
	hc_longest_sort(&heap);
	for (uint32_t i = 0; i < heap.n; i++) {
		uint32_t fit = i;

		if (runs[i].n < want) {
			want -= runs[i].n;
			continue;
		}
		/* Of those that are long enough for the rest, the shortest. */
		while (fit + 1 < heap.n && runs[fit + 1].n >= want)
			fit++;
		runs[i] = runs[fit];
		runs[i].n = want;
		return i + 1;
	}
	return heap.n;
}

static bool hc_segment_idle(const struct hc_segment *s)
{
	return s->state == HC_SEGMENT_UNCUT ||
	       (s->state == HC_SEGMENT_CUT && !s->draining && s->n_free == s->n_slots);
}

static bool hc_segment_needs_zero(const struct hc_segment *s, const struct hc_domain *domain)
{
	return s->used && !(s->known && hc_domain_equal(&s->domain, domain));
}

/* Which idle segment to cut for a class: preferred node, then uncut, then without zeroing.
 * n_segments: none. */
static uint32_t hc_pool_choose_idle(struct hc_pool *pool, const struct hc_domain *domain,
				    uint64_t slot_bytes, int node)
{
	uint32_t chosen = pool->n_segments;
	int chosen_cost = 8;

	for (uint32_t i = 0; i < pool->n_segments && chosen_cost; i++) {
		struct hc_segment *s = &pool->segments[i];
		int cost;

		if (!hc_segment_idle(s) || hc_segment_serves(s, domain, slot_bytes))
			continue;
		cost = (node >= 0 && s->numa_node != node) * 4 + (s->state == HC_SEGMENT_CUT) * 2 +
		       hc_segment_needs_zero(s, domain);
		if (cost < chosen_cost) {
			chosen = i;
			chosen_cost = cost;
		}
	}
	return chosen;
}

int hc_segment_rows_populate(struct hc_pool *pool, uint32_t segment, uint32_t n_slots)
{
	struct hc_table_row *rows = hc_table_row(pool->table, segment, 0);
	uintptr_t from = (uintptr_t)rows & ~(uintptr_t)(HC_BLOCK_BYTES - 1);
	uintptr_t to = hc_align_up((uintptr_t)(rows + n_slots), HC_BLOCK_BYTES);

	return hc_memory_populate((void *)from, to - from);
}

/* Without the lock; the segment is BUSY. A kill anywhere in here leaves it UNCUT in the table. */
static int hc_segment_cut(struct hc_pool *pool, uint32_t segment, const struct hc_domain *domain,
			  uint64_t slot_bytes)
{
	struct hc_segment *s = &pool->segments[segment];
	struct hc_table_segment *d = hc_table_segment(pool->table, segment);
	struct hc_table_row *rows = hc_table_row(pool->table, segment, 0);
	int rc;

	__atomic_store_n(&d->state, HC_TABLE_SEGMENT_UNCUT, __ATOMIC_RELEASE);
	if (hc_segment_needs_zero(s, domain))
		memset(hc_segment_data(pool, segment), 0, pool->segment_bytes);
	hc_crash_point("pool-recut");
	rc = hc_segment_rows_populate(pool, segment, (uint32_t)(pool->segment_bytes / slot_bytes));
	if (!rc)
		rc = hc_segment_bits_alloc(s, pool->segment_bytes, slot_bytes);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < s->n_slots; i++) {
		hc_segment_bit_set(s, i);
		/* Left by a segment that adoption had to drop. */
		if (rows[i].state != HC_SLOT_FREE)
			hc_table_row_clear(&rows[i]);
	}
	s->domain = *domain;
	s->known = true;
	s->used = true;
	d->n_slots = s->n_slots;
	d->slot_bytes = slot_bytes;
	d->uid = domain->uid;
	d->gid = domain->gid;
	d->mode = domain->mode;
	d->check = hc_table_segment_sum(d);
	hc_crash_point("pool-recut");
	__atomic_store_n(&d->state, HC_TABLE_SEGMENT_CUT, __ATOMIC_RELEASE);
	return 0;
}

/* Cuts an idle segment for the class. Gives the lock back for the time of the work. False: none
 * could be had. */
static bool hc_pool_cut_one_locked(struct hc_pool *pool, const struct hc_domain *domain,
				   uint64_t slot_bytes, int node)
{
	uint32_t segment = hc_pool_choose_idle(pool, domain, slot_bytes, node);
	struct hc_segment *s;
	bool again;
	int rc;

	if (segment == pool->n_segments)
		return false;
	s = &pool->segments[segment];
	again = s->used;
	s->state = HC_SEGMENT_BUSY;
	s->n_free = 0;
	pool->n_busy++;
	pthread_mutex_unlock(&pool->lock);
	rc = hc_segment_cut(pool, segment, domain, slot_bytes);
	if (rc)
		hc_error("pool",
			 "segment %" PRIu32
			 " cannot be cut: no room for its rows in the slot table: %s",
			 segment, strerror(-rc));
	pthread_mutex_lock(&pool->lock);
	s->state = rc ? HC_SEGMENT_UNCUT : HC_SEGMENT_CUT;
	if (!rc) {
		s->n_free = s->n_slots;
		s->run_bound = s->n_slots;
		pool->n_recuts += again;
	}
	pool->n_busy--;
	pool->progress++;
	pthread_cond_broadcast(&pool->progress_cond);
	return !rc;
}

void hc_segment_uncut_locked(struct hc_pool *pool, uint32_t segment)
{
	struct hc_segment *s = &pool->segments[segment];

	hc_assert(s->state == HC_SEGMENT_CUT && s->n_free == s->n_slots);
	s->state = HC_SEGMENT_UNCUT;
	s->draining = false;
	s->n_free = 0;
	__atomic_store_n(&hc_table_segment(pool->table, segment)->state, HC_TABLE_SEGMENT_UNCUT,
			 __ATOMIC_RELEASE);
	pool->progress++;
	pthread_cond_broadcast(&pool->progress_cond);
}

static void hc_run_take_locked(struct hc_pool *pool, const struct hc_run *run)
{
	struct hc_segment *s = &pool->segments[run->segment];

	for (uint32_t i = 0; i < run->n; i++)
		hc_segment_bit_clear(s, run->first + i);
	s->n_free -= run->n;
	if (s->run_bound > s->n_free)
		s->run_bound = s->n_free;
	pool->used_bytes += run->n * s->slot_bytes;
	pool->n_slots_used += run->n;
	pool->n_reserve_runs++;
	pool->n_reserve_slots += run->n;
}

static uint32_t hc_reserve_locked(struct hc_pool *pool, const struct hc_domain *domain,
				  uint64_t slot_bytes, uint32_t n, int node, struct hc_run *runs,
				  uint32_t max_runs, uint32_t *n_p)
{
	uint32_t n_runs = 0, got = 0;

	while (got < n && n_runs < max_runs) {
		struct hc_run fit = {0};
		uint32_t want = n - got, taken = 1;
		uint64_t n_free = 0;

		if (node >= 0)
			fit = hc_class_fit(pool, domain, slot_bytes, want, node, &n_free);
		if (!fit.n)
			fit = hc_class_fit(pool, domain, slot_bytes, want, -1, &n_free);
		if (n_free < want && hc_pool_cut_one_locked(pool, domain, slot_bytes, node))
			continue;
		if (fit.n) {
			fit.n = want;
			runs[n_runs] = fit;
		} else {
			taken = hc_class_split(pool, domain, slot_bytes, want, runs + n_runs,
					       max_runs - n_runs);
		}
		if (!taken)
			break;
		for (uint32_t r = n_runs; r < n_runs + taken; r++) {
			hc_run_take_locked(pool, &runs[r]);
			got += runs[r].n;
		}
		n_runs += taken;
	}
	*n_p = got;
	return n_runs;
}

int hc_pool_reserve(struct hc_pool *pool, const struct hc_domain *domain, uint64_t slot_bytes,
		    uint32_t n, int numa_node, enum hc_slot_state state, struct hc_run *runs,
		    uint32_t max_runs, uint32_t *n_runs_p, uint32_t *n_p)
{
	uint32_t n_runs, got;
	bool later;

	hc_assert(state == HC_SLOT_FILLING || state == HC_SLOT_LOADING);
	hc_assert(slot_bytes && slot_bytes % HC_BLOCK_BYTES == 0);
	*n_runs_p = 0;
	*n_p = 0;
	if (slot_bytes > pool->segment_bytes)
		return -EFBIG;
	pthread_mutex_lock(&pool->lock);
	n_runs = hc_reserve_locked(pool, domain, slot_bytes, n, numa_node, runs, max_runs, &got);
	later = !pool->populate_ended || pool->n_busy;
	pthread_mutex_unlock(&pool->lock);

	/* The slots are out of the bitmap, so nobody else sees these rows. */
	for (uint32_t r = 0; r < n_runs; r++) {
		struct hc_table_row *row =
			hc_table_row(pool->table, runs[r].segment, runs[r].first);

		for (uint32_t i = 0; i < runs[r].n; i++)
			__atomic_store_n(&row[i].state, state, __ATOMIC_RELEASE);
	}
	*n_runs_p = n_runs;
	*n_p = got;
	if (got == n)
		return 0;
	return later && n_runs < max_runs ? -EAGAIN : -ENOSPC;
}

int hc_pool_drain(struct hc_pool *pool, uint32_t segment)
{
	struct hc_segment *s = &pool->segments[segment];
	int rc = 0;

	hc_assert(segment < pool->n_segments);
	pthread_mutex_lock(&pool->lock);
	if (s->state != HC_SEGMENT_CUT) {
		rc = -EINVAL;
	} else if (s->draining) {
		rc = -EALREADY;
	} else {
		s->draining = true;
		if (s->n_free == s->n_slots)
			hc_segment_uncut_locked(pool, segment);
	}
	pthread_mutex_unlock(&pool->lock);
	return rc;
}

void hc_pool_undrain(struct hc_pool *pool, uint32_t segment)
{
	hc_assert(segment < pool->n_segments);
	pthread_mutex_lock(&pool->lock);
	pool->segments[segment].draining = false;
	pthread_mutex_unlock(&pool->lock);
}

uint64_t hc_pool_class_free(struct hc_pool *pool, const struct hc_domain *domain,
			    uint64_t slot_bytes)
{
	uint64_t n = 0;

	hc_assert(slot_bytes && slot_bytes % HC_BLOCK_BYTES == 0);
	pthread_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->n_segments; i++) {
		struct hc_segment *s = &pool->segments[i];

		if (hc_segment_serves(s, domain, slot_bytes))
			n += s->n_free;
		else if (hc_segment_idle(s))
			n += pool->segment_bytes / slot_bytes;
	}
	pthread_mutex_unlock(&pool->lock);
	return n;
}
