/* SPDX-License-Identifier: Apache-2.0 */
/* The index. Goal: it holds exactly what was put in, finds it, lists it, counts and touches it,
 * whoever chose the keys and however many threads there are. Method: random operations against a
 * plain model; the same from several threads, for the thread sanitizer and for invariants at the
 * end. */
#include "hctest.h"

#include <stdatomic.h>

#include "index/index.h"
#include "util/rng.h"

#define N_HASHES 300
#define N_SERIES 3
#define N_DIRS   5

static struct hc_hash hash_of(uint64_t i)
{
	struct hc_hash hash;
	struct hc_rng rng;

	hc_rng_seed(&rng, i);
	for (size_t w = 0; w < 4; w++) {
		uint64_t v = hc_rng_next(&rng);

		memcpy(hash.bytes + 8 * w, &v, 8);
	}
	return hash;
}

/* Puts a named entry in; it must not be there. */
static struct hc_entry *insert(struct hc_index *index, const struct hc_hash *hash, uint32_t series,
			       uint64_t sequence)
{
	struct hc_shard *shard = hc_index_shard(index, hash);
	struct hc_key key = {series, *hash};
	struct hc_entry *entry;

	hc_shard_lock(shard);
	assert_int_equal(hc_shard_insert(shard, &key, &entry), 0);
	entry->sequence = sequence;
	hc_shard_unlock(shard);
	return entry;
}

static struct hc_entry *find(struct hc_index *index, const struct hc_hash *hash, uint32_t series)
{
	struct hc_shard *shard = hc_index_shard(index, hash);
	struct hc_key key = {series, *hash};
	struct hc_entry *entry;

	hc_shard_lock(shard);
	entry = hc_shard_find(shard, &key);
	hc_shard_unlock(shard);
	return entry;
}

static void drop(struct hc_index *index, struct hc_entry *entry)
{
	struct hc_shard *shard = hc_entry_shard(index, entry);

	hc_shard_lock(shard);
	hc_shard_unname(shard, entry);
	hc_shard_free(shard, entry);
	hc_shard_unlock(shard);
}

/* The model: one place a key. */
struct place {
	struct hc_entry *entry; /* NULL: absent */
	uint64_t sequence;
	uint32_t dir;
};

struct model {
	struct hc_index *index;
	struct hc_hash hashes[N_HASHES];
	struct place places[N_HASHES][N_SERIES];
	struct hc_entry *unnamed[64];
	uint64_t unnamed_sequences[64];
	size_t n_unnamed;
	size_t n_named;
	uint64_t sequence;
};

static void model_insert(struct model *m, size_t h, uint32_t s)
{
	struct hc_key key = {s, m->hashes[h]};
	struct hc_shard *shard = hc_index_shard(m->index, &key.hash);
	struct place *place = &m->places[h][s];
	struct hc_entry *entry = NULL;
	int rc;

	hc_shard_lock(shard);
	rc = hc_shard_insert(shard, &key, &entry);
	if (place->entry) {
		assert_int_equal(rc, -EEXIST);
		assert_null(entry);
		hc_shard_unlock(shard);
		return;
	}
	assert_int_equal(rc, 0);
	assert_int_equal(entry->flags, HC_ENTRY_NAMED);
	assert_int_equal(entry->slot, HC_ENTRY_NO_SLOT);
	assert_int_equal(entry->disk, HC_ENTRY_NO_DISK);
	assert_int_equal(entry->sequence, 0);
	assert_int_equal(entry->refs + entry->pins + entry->stamp + entry->hits + entry->dir, 0);
	entry->sequence = ++m->sequence;
	*place = (struct place){entry, m->sequence, 0};
	m->n_named++;
	hc_shard_unlock(shard);
}

static void model_free_one(struct model *m, size_t i)
{
	struct hc_entry *entry = m->unnamed[i];
	struct hc_shard *shard = hc_entry_shard(m->index, entry);

	hc_shard_lock(shard);
	assert_int_equal(entry->sequence, m->unnamed_sequences[i]);
	assert_false(entry->flags & HC_ENTRY_NAMED);
	hc_shard_free(shard, entry);
	hc_shard_unlock(shard);
	m->n_unnamed--;
	m->unnamed[i] = m->unnamed[m->n_unnamed];
	m->unnamed_sequences[i] = m->unnamed_sequences[m->n_unnamed];
}

static void model_unname(struct model *m, size_t h, uint32_t s)
{
	struct place *place = &m->places[h][s];
	struct hc_shard *shard = hc_index_shard(m->index, &m->hashes[h]);

	if (!place->entry)
		return;
	if (m->n_unnamed == HC_ARRAY_SIZE(m->unnamed))
		model_free_one(m, 0);
	hc_shard_lock(shard);
	hc_shard_unname(shard, place->entry);
	hc_shard_unlock(shard);
	m->unnamed_sequences[m->n_unnamed] = place->sequence;
	m->unnamed[m->n_unnamed++] = place->entry;
	*place = (struct place){0};
	m->n_named--;
}

static void model_move(struct model *m, size_t h, uint32_t s, uint32_t dir)
{
	struct place *place = &m->places[h][s];
	struct hc_shard *shard = hc_index_shard(m->index, &m->hashes[h]);

	if (!place->entry)
		return;
	hc_shard_lock(shard);
	hc_index_dir_remove(m->index, place->entry);
	if (dir)
		hc_index_dir_add(m->index, place->entry, dir);
	hc_shard_unlock(shard);
	place->dir = dir;
}

static int count_each(void *arg, struct hc_entry *entry)
{
	struct model *m = arg;

	assert_true(entry->flags & HC_ENTRY_NAMED);
	m->n_named--;
	return 0;
}

static void check_dir(struct model *m, uint32_t dir)
{
	struct hc_dir_item *items;
	size_t n, n_model = 0;

	assert_int_equal(hc_index_dir_snapshot(m->index, dir, &items, &n), 0);
	assert_int_equal(hc_index_dir_count(m->index, dir), n);
	for (size_t h = 0; h < N_HASHES; h++) {
		for (uint32_t s = 0; s < N_SERIES; s++)
			n_model += m->places[h][s].entry && m->places[h][s].dir == dir;
	}
	assert_int_equal(n, n_model);
	for (size_t i = 0; i < n; i++) {
		const struct hc_entry *entry = hc_index_entry(m->index, items[i].number);

		assert_int_equal(entry->sequence, items[i].sequence);
		assert_int_equal(entry->dir, dir);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(items[i].number, items[j].number);
	}
	free(items);
}

static void check_all(struct model *m)
{
	size_t n_named = m->n_named;

	for (size_t h = 0; h < N_HASHES; h++) {
		for (uint32_t s = 0; s < N_SERIES; s++) {
			const struct place *place = &m->places[h][s];
			struct hc_entry *entry = find(m->index, &m->hashes[h], s);

			assert_ptr_equal(entry, place->entry);
			if (!entry)
				continue;
			assert_int_equal(entry->sequence, place->sequence);
			assert_ptr_equal(hc_index_entry(m->index, entry->number), entry);
			assert_ptr_equal(hc_index_entry_shard(m->index, entry->number),
					 hc_index_shard(m->index, &m->hashes[h]));
			assert_ptr_equal(hc_entry_shard(m->index, entry),
					 hc_index_shard(m->index, &m->hashes[h]));
			assert_true(hc_shard_number(hc_entry_shard(m->index, entry)) <
				    HC_INDEX_SHARDS);
		}
	}
	for (uint32_t dir = 1; dir <= N_DIRS; dir++)
		check_dir(m, dir);
	assert_int_equal(hc_index_count(m->index), n_named);
	assert_int_equal(hc_index_each(m->index, count_each, m), 0);
	assert_int_equal(m->n_named, 0);
	m->n_named = n_named;
}

static void test_model(void **state)
{
	struct model *m = hc_zalloc(sizeof(*m));
	struct hc_rng rng;

	assert_int_equal(hc_index_create(&m->index), 0);
	for (size_t h = 0; h < N_HASHES; h++)
		m->hashes[h] = hash_of(h);
	hc_rng_seed(&rng, 1);
	for (int i = 0; i < 60000; i++) {
		size_t h = hc_rng_below(&rng, N_HASHES);
		uint32_t s = (uint32_t)hc_rng_below(&rng, N_SERIES);
		/* Growing and shrinking in turn. */
		bool grow = i / 5000 % 2 == 0;

		switch (hc_rng_below(&rng, 4)) {
		case 0:
			if (grow || hc_rng_below(&rng, 3) == 0)
				model_insert(m, h, s);
			break;
		case 1:
			if (!grow || hc_rng_below(&rng, 3) == 0)
				model_unname(m, h, s);
			break;
		case 2:
			model_move(m, h, s, (uint32_t)hc_rng_below(&rng, N_DIRS + 1));
			break;
		default:
			if (m->n_unnamed)
				model_free_one(m, hc_rng_below(&rng, m->n_unnamed));
		}
		if (i % 2500 == 0)
			check_all(m);
	}
	check_all(m);
	hc_index_destroy(m->index);
	free(m);
}

/* Many directories come and go: the table of heads grows, shrinks and keeps every one. */
static void test_many_dirs(void **state)
{
	enum { N = 20000 };
	struct hc_entry **entries = calloc(N, sizeof(*entries));
	struct hc_index *index;
	uint64_t empty_bytes;

	assert_int_equal(hc_index_create(&index), 0);
	for (uint32_t i = 0; i < N; i++) {
		struct hc_hash hash = hash_of(i);

		entries[i] = insert(index, &hash, 0, i + 1);
	}
	empty_bytes = hc_index_bytes(index);
	for (int lap = 0; lap < 2; lap++) {
		for (uint32_t i = 0; i < N; i++) {
			hc_shard_lock(hc_entry_shard(index, entries[i]));
			hc_index_dir_add(index, entries[i], i / 2 * 7 + 1);
			hc_shard_unlock(hc_entry_shard(index, entries[i]));
		}
		assert_true(hc_index_bytes(index) > empty_bytes);
		for (uint32_t i = 0; i < N; i++)
			assert_int_equal(hc_index_dir_count(index, i / 2 * 7 + 1), 2);
		assert_int_equal(hc_index_dir_count(index, 2), 0);
		for (uint32_t i = 0; i < N; i++) {
			uint32_t j = i * 7919 % N;

			hc_shard_lock(hc_entry_shard(index, entries[j]));
			hc_index_dir_remove(index, entries[j]);
			hc_shard_unlock(hc_entry_shard(index, entries[j]));
			assert_true(hc_index_dir_count(index, j / 2 * 7 + 1) <= 1);
		}
	}
	assert_true(hc_index_bytes(index) < empty_bytes + 16384);
	hc_index_destroy(index);
	free(entries);
}

/* Tables grow through many sizes and entries never move; what was freed is used again. */
static void test_growth(void **state)
{
	enum { N = 200000 };
	struct hc_entry **entries = calloc(N, sizeof(*entries));
	struct hc_index *index;
	uint64_t full_bytes;

	assert_int_equal(hc_index_create(&index), 0);
	for (uint32_t i = 0; i < N; i++) {
		struct hc_hash hash = hash_of(i);

		entries[i] = insert(index, &hash, i % 7, i + 1);
	}
	for (uint32_t i = 0; i < N; i++) {
		struct hc_hash hash = hash_of(i);

		assert_ptr_equal(find(index, &hash, i % 7), entries[i]);
		assert_null(find(index, &hash, i % 7 + 1));
		assert_int_equal(entries[i]->sequence, i + 1);
	}
	assert_int_equal(hc_index_count(index), N);
	full_bytes = hc_index_bytes(index);
	/* A slab of 4 MiB and its chunks are not full; the aim of 160 is for a million. */
	assert_true(full_bytes < (uint64_t)N * 185);
	for (uint32_t i = 0; i < N; i += 2)
		drop(index, entries[i]);
	for (uint32_t i = 0; i < N; i += 2) {
		struct hc_hash hash = hash_of(i);

		assert_null(find(index, &hash, i % 7));
		insert(index, &hash, i % 7, i + 1);
	}
	assert_int_equal(hc_index_count(index), N);
	assert_int_equal(hc_index_bytes(index), full_bytes);
	hc_index_destroy(index);
	free(entries);
}

/* Reserved tables do not grow while they are filled; what is in them already stays. */
static void test_reserve(void **state)
{
	enum { N = 100000 };
	struct hc_index *index, *other;
	uint64_t empty_bytes;

	assert_int_equal(hc_index_create(&index), 0);
	assert_int_equal(hc_index_create(&other), 0);
	hc_index_reserve(other, N);
	hc_index_reserve(other, 10);
	empty_bytes = hc_index_bytes(index);
	assert_true(hc_index_bytes(other) > empty_bytes + N * 6);
	for (uint32_t i = 0; i < N; i++) {
		struct hc_hash hash = hash_of(i);

		insert(index, &hash, 0, i + 1);
		insert(other, &hash, 0, i + 1);
		if (i == N / 2)
			hc_index_reserve(index, N);
	}
	for (uint32_t i = 0; i < N; i++) {
		struct hc_hash hash = hash_of(i);

		assert_int_equal(find(index, &hash, 0)->sequence, i + 1);
		assert_int_equal(find(other, &hash, 0)->sequence, i + 1);
	}
	hc_index_destroy(index);
	hc_index_destroy(other);
}

/* Keys that a user would choose to hurt: equal but for a few bytes at any place, counters, one hash
 * in many series. No key is far from its place. */
static void test_hostile_keys(void **state)
{
	enum { N = 30000 };

	for (size_t kind = 0; kind < 9; kind++) {
		struct hc_index *index;

		assert_int_equal(hc_index_create(&index), 0);
		for (uint32_t i = 0; i < N; i++) {
			struct hc_hash hash = {{0}};
			uint64_t spread = (uint64_t)i << 32 | i;

			if (kind < 7)
				memcpy(hash.bytes + 4 * kind, kind % 2 ? &spread : &(uint64_t){i},
				       8);
			else if (kind == 7)
				memset(hash.bytes, 0xff, sizeof(hash.bytes) - 4);
			if (kind == 7)
				memcpy(hash.bytes + 28, &i, 4);
			insert(index, &hash, kind == 8 ? i : 3, i + 1);
		}
		assert_in_range(hc_index_probe_max(index), 1, 24);
		hc_index_destroy(index);
	}
}

/* exists_prefix against plain look-ups: sets of series, absent at a random place, expired ones,
 * touching. */
struct page {
	uint64_t mtime_ns[N_SERIES]; /* 0: absent */
	uint32_t stamp[N_SERIES];
	uint32_t hits[N_SERIES];
	uint32_t depth[N_SERIES];
	bool has_parent;
};

static bool page_exists(const struct page *page, const uint32_t *series, const uint64_t *expire,
			size_t n_series)
{
	for (size_t i = 0; i < n_series; i++) {
		uint64_t mtime_ns = page->mtime_ns[series[i]];

		if (!mtime_ns || (expire && mtime_ns < expire[i]))
			return false;
	}
	return true;
}

static void page_touch(struct page *page, const uint32_t *series, size_t n_series, uint32_t stamp,
		       size_t position)
{
	for (size_t i = 0; i < n_series; i++) {
		uint32_t s = series[i];

		page->hits[s]++;
		if (stamp <= page->stamp[s])
			continue;
		page->stamp[s] = stamp;
		if (!page->has_parent)
			page->depth[s] = (uint32_t)position;
	}
}

static void check_pages(struct hc_index *index, const struct page *pages,
			const struct hc_hash *hashes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		for (uint32_t s = 0; s < N_SERIES; s++) {
			const struct hc_entry *entry = find(index, &hashes[i], s);

			assert_int_equal(entry != NULL, pages[i].mtime_ns[s] != 0);
			if (!entry)
				continue;
			assert_int_equal(entry->stamp, pages[i].stamp[s]);
			assert_int_equal(entry->hits, pages[i].hits[s]);
			assert_int_equal(entry->depth, pages[i].depth[s]);
		}
	}
}

static void test_exists_prefix(void **state)
{
	enum { N = 700 };
	struct page *pages = calloc(N, sizeof(*pages));
	struct hc_hash *hashes = calloc(N, sizeof(*hashes));
	struct hc_index *index;
	struct hc_rng rng;

	hc_rng_seed(&rng, 21);
	assert_int_equal(hc_index_create(&index), 0);
	for (size_t i = 0; i < N; i++) {
		hashes[i] = hash_of(i);
		pages[i].has_parent = hc_rng_below(&rng, 2);
		for (uint32_t s = 0; s < N_SERIES; s++) {
			struct hc_entry *entry;

			if (!hc_rng_below(&rng, 200))
				continue;
			entry = insert(index, &hashes[i], s, i * N_SERIES + s + 1);
			pages[i].mtime_ns[s] = 1000 + hc_rng_below(&rng, 1000);
			entry->mtime_ns = pages[i].mtime_ns[s];
			if (pages[i].has_parent)
				entry->parent = hashes[i ? i - 1 : N - 1];
		}
	}
	for (int round = 0; round < 3000; round++) {
		size_t first = hc_rng_below(&rng, N), n = hc_rng_below(&rng, N - first + 1),
		       want = 0;
		size_t n_series = hc_rng_below(&rng, N_SERIES + 1);
		uint32_t series[N_SERIES] = {0, 1, 2}, swap, stamp = 0;
		uint64_t expire[N_SERIES];
		bool expires = hc_rng_below(&rng, 3) == 0;

		swap = (uint32_t)hc_rng_below(&rng, N_SERIES);
		series[0] = swap;
		series[swap] = 0;
		for (size_t i = 0; i < N_SERIES; i++)
			expire[i] = hc_rng_below(&rng, 2) ? 0 : 1000 + hc_rng_below(&rng, 30);
		/* Sometimes an older stamp than the pages have. */
		if (hc_rng_below(&rng, 2))
			stamp = hc_index_stamp(index) - (uint32_t)hc_rng_below(&rng, 2);
		while (want < n && page_exists(&pages[first + want], series,
					       expires ? expire : NULL, n_series)) {
			if (stamp)
				page_touch(&pages[first + want], series, n_series, stamp, want);
			want++;
		}
		assert_int_equal(hc_index_exists_prefix(index, series, expires ? expire : NULL,
							n_series, hashes + first, n, stamp),
				 want);
		if (round % 100 == 0)
			check_pages(index, pages, hashes, N);
	}
	check_pages(index, pages, hashes, N);
	hc_index_destroy(index);
	free(pages);
	free(hashes);
}

static void test_stamps(void **state)
{
	struct hc_hash a = hash_of(1), b = hash_of(2);
	struct hc_entry *old, *young;
	struct hc_index *index;
	uint32_t stamp;

	assert_int_equal(hc_index_create(&index), 0);
	assert_int_equal(hc_index_stamp(index), 1);
	assert_int_equal(hc_index_stamp(index), 2);
	hc_index_stamp_restore(index, 1000);
	hc_index_stamp_restore(index, 10);
	assert_int_equal(hc_index_stamp(index), 1001);
	old = insert(index, &a, 0, 1);
	young = insert(index, &b, 0, 2);
	old->stamp = 5;
	young->stamp = 1001;
	hc_index_rebase(index, 900);
	assert_int_equal(old->stamp, 0);
	assert_int_equal(young->stamp, 101);
	assert_int_equal(hc_index_stamp(index), 102);
	hc_index_stamp_restore(index, HC_INDEX_STAMP_REBASE - 1);
	stamp = hc_index_stamp(index);
	assert_true(stamp >= HC_INDEX_STAMP_REBASE);
	hc_index_stamp_restore(index, UINT32_MAX - 1);
	assert_int_equal(hc_index_stamp(index), UINT32_MAX);
	assert_int_equal(hc_index_stamp(index), UINT32_MAX);
	for (uint32_t i = 0; i < 70000; i++)
		hc_entry_hit(young);
	assert_int_equal(young->hits, UINT16_MAX);
	hc_index_destroy(index);
}

/* A background walk in small steps meets every entry that is there all the time, once, while others
 * come and go. */
static int step_seen(void *arg, struct hc_entry *entry)
{
	uint8_t *seen = arg;

	if (entry->sequence < 5000)
		seen[entry->sequence]++;
	return 0;
}

static int step_stop(void *arg, struct hc_entry *entry)
{
	return --*(int *)arg == 0 ? 42 : 0;
}

static void test_step(void **state)
{
	uint8_t *seen = hc_zalloc(5000);
	struct hc_entry *guest = NULL;
	struct hc_index *index;
	uint64_t cursor = 0, extra = 5000;
	int left = 7;

	assert_int_equal(hc_index_create(&index), 0);
	assert_false(hc_index_step(index, &cursor, 10, step_seen, seen));
	for (uint32_t i = 0; i < 5000; i++) {
		struct hc_hash hash = hash_of(i);

		insert(index, &hash, 0, i);
	}
	cursor = 0;
	while (hc_index_step(index, &cursor, 13, step_seen, seen)) {
		struct hc_hash hash = hash_of(extra);

		if (guest && extra % 3 == 0) {
			drop(index, guest);
			guest = NULL;
		} else if (extra < 9000) {
			guest = insert(index, &hash, 0, extra);
		}
		extra++;
	}
	for (size_t i = 0; i < 5000; i++)
		assert_int_equal(seen[i], 1);
	assert_int_equal(hc_index_each(index, step_stop, &left), 42);
	assert_int_equal(left, 0);
	hc_index_destroy(index);
	free(seen);
}

/* Goal: a cursor reads each entry that is in the directory all the time exactly once, one that is
 * removed at most once, one that is added meanwhile never; several cursors do not disturb each
 * other, and the entries they stand at may go. Method: random pieces, removals (often right at a
 * cursor), additions to this directory and moves into another. */
#define CURSOR_N    2000u
#define CURSOR_MORE 2000u

struct reader {
	struct hc_dir_cursor cursor;
	uint8_t seen[CURSOR_N + CURSOR_MORE];
	bool ended;
};

static void reader_step(struct hc_index *index, struct reader *r, size_t n)
{
	struct hc_dir_item items[50];

	n = hc_index_dir_read(index, &r->cursor, items, n);
	r->ended = !n;
	for (size_t i = 0; i < n; i++) {
		assert_true(items[i].sequence >= 1 && items[i].sequence <= CURSOR_N + CURSOR_MORE);
		r->seen[items[i].sequence - 1]++;
	}
}

static void cursor_put(struct hc_index *index, struct hc_entry **entries, uint32_t i)
{
	struct hc_hash hash = hash_of(i);
	struct hc_shard *shard = hc_index_shard(index, &hash);

	entries[i] = insert(index, &hash, 0, i + 1);
	hc_shard_lock(shard);
	hc_index_dir_add(index, entries[i], 7);
	hc_shard_unlock(shard);
}

static void cursor_take(struct hc_index *index, struct hc_entry **entries, uint32_t i, bool move)
{
	struct hc_shard *shard = hc_entry_shard(index, entries[i]);

	if (!move) {
		drop(index, entries[i]);
	} else {
		hc_shard_lock(shard);
		hc_index_dir_remove(index, entries[i]);
		hc_index_dir_add(index, entries[i], 8);
		hc_shard_unlock(shard);
	}
	entries[i] = NULL;
}

/* The one a reader stands at, else any. */
static uint32_t cursor_victim(struct hc_index *index, const struct reader *r, struct hc_rng *rng)
{
	const struct hc_entry *entry;

	if (r->cursor.at == HC_ENTRY_NONE || hc_rng_below(rng, 3) == 0)
		return (uint32_t)hc_rng_below(rng, CURSOR_N);
	entry = hc_index_entry(index, r->cursor.at);
	return (uint32_t)(entry->sequence - 1);
}

static void test_cursor(void **state)
{
	struct hc_entry **entries = hc_zalloc((CURSOR_N + CURSOR_MORE) * sizeof(*entries));
	struct reader *readers = hc_zalloc(3 * sizeof(*readers));
	uint32_t n_added = 0;
	struct hc_index *index;
	struct hc_rng rng;

	hc_rng_seed(&rng, 11);
	assert_int_equal(hc_index_create(&index), 0);
	for (uint32_t i = 0; i < CURSOR_N; i++)
		cursor_put(index, entries, i);
	for (int k = 0; k < 3; k++)
		hc_index_dir_begin(index, &readers[k].cursor, 7);
	while (!readers[0].ended || !readers[1].ended) {
		uint32_t i = cursor_victim(index, &readers[hc_rng_below(&rng, 3)], &rng);

		if (entries[i] && hc_rng_below(&rng, 2))
			cursor_take(index, entries, i, hc_rng_below(&rng, 2));
		if (n_added < CURSOR_MORE && hc_rng_below(&rng, 4) == 0)
			cursor_put(index, entries, CURSOR_N + n_added++);
		reader_step(index, &readers[hc_rng_below(&rng, 2)], 1 + hc_rng_below(&rng, 30));
	}
	/* The third one waited at the first entry, through all of it. */
	while (!readers[2].ended)
		reader_step(index, &readers[2], 50);
	for (uint32_t i = 0; i < CURSOR_N; i++) {
		for (int k = 0; k < 3; k++)
			assert_true(entries[i] ? readers[k].seen[i] == 1 : readers[k].seen[i] <= 1);
	}
	for (uint32_t i = CURSOR_N; i < CURSOR_N + CURSOR_MORE; i++) {
		for (int k = 0; k < 3; k++)
			assert_int_equal(readers[k].seen[i], 0);
	}
	assert_true(n_added > 20);
	/* The end, an empty directory, and one that empties under a cursor. */
	hc_index_dir_begin(index, &readers[0].cursor, 99);
	reader_step(index, &readers[0], 5);
	assert_true(readers[0].ended);
	hc_index_dir_begin(index, &readers[1].cursor, 7);
	for (uint32_t i = 0; i < CURSOR_N + CURSOR_MORE; i++) {
		if (entries[i])
			cursor_take(index, entries, i, false);
	}
	reader_step(index, &readers[1], 5);
	assert_true(readers[1].ended);
	for (int k = 0; k < 3; k++)
		hc_index_dir_end(index, &readers[k].cursor);
	hc_index_destroy(index);
	free(readers);
	free(entries);
}

/* Threads on the same few keys: every operation at once. At the end the books agree. */
struct worker {
	struct hc_index *index;
	uint64_t seed;
	const struct hc_hash *hashes;
	uint64_t n_inserted, n_removed;
	size_t n_errors;
};

static int worker_each(void *arg, struct hc_entry *entry)
{
	*(size_t *)arg += !(entry->flags & HC_ENTRY_NAMED) || !entry->sequence;
	return 0;
}

static void worker_change(struct worker *w, struct hc_rng *rng)
{
	struct hc_key key = {(uint32_t)hc_rng_below(rng, N_SERIES),
			     w->hashes[hc_rng_below(rng, N_HASHES)]};
	struct hc_shard *shard = hc_index_shard(w->index, &key.hash);
	struct hc_entry *entry;

	hc_shard_lock(shard);
	entry = hc_shard_find(shard, &key);
	if (!entry && !hc_shard_insert(shard, &key, &entry)) {
		entry->sequence = hc_rng_next(rng) | 1;
		hc_index_dir_add(w->index, entry, 1 + (uint32_t)hc_rng_below(rng, N_DIRS));
		w->n_inserted++;
	} else if (entry && hc_rng_below(rng, 2)) {
		hc_shard_unname(shard, entry);
		hc_shard_free(shard, entry);
		w->n_removed++;
	} else if (entry) {
		w->n_errors += entry->dir == 0;
		hc_index_dir_remove(w->index, entry);
		hc_index_dir_add(w->index, entry, 1 + (uint32_t)hc_rng_below(rng, N_DIRS));
	}
	hc_shard_unlock(shard);
}

static void worker_cursor(struct worker *w, struct hc_rng *rng)
{
	struct hc_dir_cursor cursor;
	struct hc_dir_item items[5];
	size_t n, n_pieces = hc_rng_below(rng, 10);

	hc_index_dir_begin(w->index, &cursor, 1 + (uint32_t)hc_rng_below(rng, N_DIRS));
	do {
		n = hc_index_dir_read(w->index, &cursor, items, 1 + hc_rng_below(rng, 5));
		for (size_t i = 0; i < n; i++)
			w->n_errors += !items[i].sequence;
	} while (n && n_pieces--);
	hc_index_dir_end(w->index, &cursor);
}

static void worker_read(struct worker *w, struct hc_rng *rng)
{
	static const uint32_t series[N_SERIES] = {0, 1, 2};
	size_t first = hc_rng_below(rng, N_HASHES), n = N_HASHES - first;
	struct hc_dir_item *items;
	uint64_t cursor = 0;

	switch (hc_rng_below(rng, 40)) {
	case 3:
		worker_cursor(w, rng);
		break;
	case 0:
		if (hc_index_dir_snapshot(w->index, 1 + (uint32_t)hc_rng_below(rng, N_DIRS), &items,
					  &n)) {
			w->n_errors++;
			return;
		}
		for (size_t i = 0; i < n; i++) {
			struct hc_shard *shard = hc_index_entry_shard(w->index, items[i].number);

			/* The entry may be another one by now: then its sequence tells. */
			hc_shard_lock(shard);
			w->n_errors += !items[i].sequence;
			hc_shard_unlock(shard);
		}
		free(items);
		break;
	case 1:
		while (hc_index_step(w->index, &cursor, 50, worker_each, &w->n_errors))
			;
		break;
	case 2:
		w->n_errors += hc_index_count(w->index) > N_HASHES * N_SERIES;
		break;
	default:
		n = hc_rng_below(rng, n + 1);
		w->n_errors += hc_index_exists_prefix(
				       w->index, series, NULL, 1 + hc_rng_below(rng, N_SERIES),
				       w->hashes + first, n, hc_index_stamp(w->index)) > n;
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct hc_rng rng;

	hc_rng_seed(&rng, w->seed);
	for (int i = 0; i < 30000; i++) {
		if (hc_rng_below(&rng, 2))
			worker_change(w, &rng);
		else
			worker_read(w, &rng);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct hc_hash hashes[N_HASHES];
	struct worker workers[4];
	uint64_t n_named = 0, n_listed = 0;
	struct hc_index *index;
	pthread_t threads[4];

	assert_int_equal(hc_index_create(&index), 0);
	for (size_t i = 0; i < N_HASHES; i++)
		hashes[i] = hash_of(i);
	for (size_t i = 0; i < 4; i++) {
		workers[i] = (struct worker){.index = index, .seed = i, .hashes = hashes};
		assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
	}
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(workers[i].n_errors, 0);
		n_named += workers[i].n_inserted - workers[i].n_removed;
	}
	assert_int_equal(hc_index_count(index), n_named);
	for (uint32_t dir = 1; dir <= N_DIRS; dir++)
		n_listed += hc_index_dir_count(index, dir);
	assert_int_equal(n_listed, n_named);
	hc_index_destroy(index);
	hc_index_destroy(NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_model),         cmocka_unit_test(test_many_dirs),
	cmocka_unit_test(test_growth),        cmocka_unit_test(test_hostile_keys),
	cmocka_unit_test(test_exists_prefix), cmocka_unit_test(test_stamps),
	cmocka_unit_test(test_step),          cmocka_unit_test(test_threads),
	cmocka_unit_test(test_reserve),       cmocka_unit_test(test_cursor),
};

HC_TEST_MAIN(tests)
