/* SPDX-License-Identifier: Apache-2.0 */
/* Entries, their shards and tables. See index.h.
 *
 *   slab (4 MiB) = 128 chunks (32 KiB) = head + 215 entries       number = chunk << 8 | place in
 * the chunk a chunk belongs to one shard for ever; a shard keeps a list of its free entries
 *
 *   table of a shard: buckets of one cache line
 *     | 10 tags of 16 bits (0: empty) | overflow | - | 10 entry numbers |
 *   a key's way: its own bucket, the other of the pair of lines, then buckets all over the table,
 * at last one by one overflow counts the entries that passed the bucket on their way because it was
 * full: a look-up goes on only where it is not 0, and removal leaves no tombstones.
 *
 * The place in the table comes from the key by multiplications with secret numbers: who chooses
 * names cannot choose places. */
#include "index/index.h"

#include <endian.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "index/dirlist.h"
#include "util/log.h"
#include "util/rng.h"

#define HC_SLAB_BYTES       (4 * HC_MIB)
#define HC_CHUNK_BYTES      (32 * HC_KIB)
#define HC_CHUNK_HEAD_BYTES 88
#define HC_CHUNK_ENTRIES    ((HC_CHUNK_BYTES - HC_CHUNK_HEAD_BYTES) / sizeof(struct hc_entry))
#define HC_CHUNK_SHIFT      8
#define HC_SLAB_CHUNKS      (HC_SLAB_BYTES / HC_CHUNK_BYTES)
/* Every number below HC_ENTRY_NONE has its slab here; 1 MiB of address space, touched as it is
 * used. */
#define HC_SLABS_MAX      (((uint64_t)1 << (32 - HC_CHUNK_SHIFT)) / HC_SLAB_CHUNKS)
#define HC_CHUNKS_MAX     (HC_SLABS_MAX * HC_SLAB_CHUNKS - 1)
#define HC_BUCKET_SLOTS   10
#define HC_BUCKETS_MIN    4
#define HC_OVERFLOW_STUCK UINT16_MAX
/* From here on a way goes from bucket to bucket, so that it meets every one. */
#define HC_WAY_LINEAR 16
/* Keys whose lines are on their way from memory at one time. */
#define HC_PROBE_FIRST 8
#define HC_PROBE_GROUP 32

struct hc_bucket {
	uint16_t tags[HC_BUCKET_SLOTS];
	uint16_t overflow;
	uint16_t unused;
	uint32_t numbers[HC_BUCKET_SLOTS];
};
_Static_assert(sizeof(struct hc_bucket) == 64, "a bucket is a cache line");

struct hc_chunk {
	uint32_t shard;
	uint32_t chunk;
	uint8_t unused[HC_CHUNK_HEAD_BYTES - 8];
	struct hc_entry entries[HC_CHUNK_ENTRIES];
};
_Static_assert(sizeof(struct hc_chunk) <= HC_CHUNK_BYTES, "a chunk holds its entries");
_Static_assert(HC_CHUNK_ENTRIES <= 1u << HC_CHUNK_SHIFT, "places fit the number");

struct hc_shard {
	pthread_mutex_t lock; /* all below, and the fields of the shard's entries */
	/* Read without the lock too, only to prefetch: a stale pointer there is harmless. */
	struct hc_bucket *_Atomic buckets;
	_Atomic uint32_t n_buckets;
	uint32_t n_named;
	uint32_t n_named_max;   /* grow above */
	uint32_t free;          /* entry number, chained by dir_next */
	struct hc_chunk *chunk; /* with entries that were never given out */
	uint32_t chunk_used;
	uint32_t shard_i;
	struct hc_index *index;
} __attribute__((aligned(128)));

struct hc_index {
	struct hc_shard shards[HC_INDEX_SHARDS];
	uint64_t secret[6];
	struct hc_chunk *_Atomic *slabs; /* HC_SLABS_MAX */
	pthread_mutex_t slab_lock;       /* leaf: growth of slabs and n_chunks */
	_Atomic uint32_t n_chunks;
	_Atomic uint32_t n_slabs;
	_Atomic uint32_t stamp;
	_Atomic uint64_t table_bytes;
	struct hc_dirlists *dirs;
};

/* Places */

static inline uint64_t hc_fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hc_hash_mix(const struct hc_index *index, const struct hc_hash *hash)
{
	const uint64_t *s = index->secret;
	uint64_t w[4];

	memcpy(w, hash->bytes, sizeof(w));
	return hc_fold(hc_fold(w[0] ^ s[0], w[1] ^ s[1]) ^ s[4],
		       hc_fold(w[2] ^ s[2], w[3] ^ s[3]) ^ s[5]);
}

static inline uint64_t hc_key_mix(const struct hc_index *index, uint64_t mix, uint32_t series)
{
	return hc_fold(mix ^ index->secret[3], index->secret[0] + series);
}

static inline uint16_t hc_mix_tag(uint64_t key_mix)
{
	uint16_t tag = (uint16_t)key_mix;

	return tag ? tag : 1;
}

static inline uint32_t hc_mix_bucket(uint64_t key_mix, uint32_t n_buckets)
{
	return (uint32_t)(((key_mix >> 32) * n_buckets) >> 32);
}

/* The bucket after `step` full ones. */
static inline uint32_t hc_mix_way(uint64_t key_mix, uint32_t step, uint32_t n_buckets)
{
	uint32_t bucket_i = hc_mix_bucket(key_mix, n_buckets);

	if (hc_likely(!step))
		return bucket_i;
	if (step == 1)
		return (bucket_i ^ 1) < n_buckets ? bucket_i ^ 1 : 0;
	if (step < HC_WAY_LINEAR)
		return hc_mix_bucket(hc_fold(key_mix + step, 0x9e3779b97f4a7c15u), n_buckets);
	return (uint32_t)(((uint64_t)bucket_i + step) % n_buckets);
}

static inline struct hc_shard *hc_mix_shard(struct hc_index *index, uint64_t mix)
{
	return &index->shards[mix >> 58];
}

static inline struct hc_chunk *hc_number_chunk(struct hc_index *index, uint32_t number)
{
	uint32_t chunk_i = number >> HC_CHUNK_SHIFT;
	struct hc_chunk *slab =
		atomic_load_explicit(&index->slabs[chunk_i / HC_SLAB_CHUNKS], memory_order_acquire);

	return (struct hc_chunk *)((char *)slab + (chunk_i % HC_SLAB_CHUNKS) * HC_CHUNK_BYTES);
}

static inline struct hc_entry *hc_number_entry(struct hc_index *index, uint32_t number)
{
	return &hc_number_chunk(index, number)->entries[number & ((1u << HC_CHUNK_SHIFT) - 1)];
}

struct hc_entry *hc_index_entry(struct hc_index *index, uint32_t number)
{
	hc_assert(number >> HC_CHUNK_SHIFT <
		  atomic_load_explicit(&index->n_chunks, memory_order_acquire));
	return hc_number_entry(index, number);
}

struct hc_shard *hc_index_entry_shard(struct hc_index *index, uint32_t number)
{
	hc_assert(number >> HC_CHUNK_SHIFT <
		  atomic_load_explicit(&index->n_chunks, memory_order_acquire));
	return &index->shards[hc_number_chunk(index, number)->shard];
}

struct hc_shard *hc_entry_shard(struct hc_index *index, const struct hc_entry *entry)
{
	const struct hc_chunk *chunk =
		(const struct hc_chunk *)((uintptr_t)entry & ~(uintptr_t)(HC_CHUNK_BYTES - 1));

	return &index->shards[chunk->shard];
}

struct hc_shard *hc_index_shard(struct hc_index *index, const struct hc_hash *hash)
{
	return hc_mix_shard(index, hc_hash_mix(index, hash));
}

unsigned hc_shard_number(const struct hc_shard *shard)
{
	return shard->shard_i;
}

void hc_shard_lock(struct hc_shard *shard)
{
	pthread_mutex_lock(&shard->lock);
}

void hc_shard_unlock(struct hc_shard *shard)
{
	pthread_mutex_unlock(&shard->lock);
}

/* Buckets */

/* Bits 15, 31, 47, 63 for the lanes that may equal the tag: never too few; a lane above a true
 * match may be wrong. */
static inline uint64_t hc_lanes_equal(uint64_t word, uint64_t pattern)
{
	uint64_t x = word ^ pattern;

	return (x - 0x0001000100010001u) & ~x & 0x8000800080008000u;
}

/* Bit i set: slot i may hold the tag. */
static inline uint32_t hc_bucket_match(const struct hc_bucket *bucket, uint16_t tag)
{
	uint64_t pattern = (uint64_t)htole16(tag) * 0x0001000100010001u;
	uint32_t slots = 0;
	uint64_t words[3];

	/* The tags and the two counters after them. */
	memcpy(words, bucket, sizeof(words));
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t m = hc_lanes_equal(le64toh(words[i]), pattern);

		/* Gathers the four lane bits into the top four bits. */
		slots |= (uint32_t)(((m >> 15) * 0x1000200040008000u) >> 60) << (4 * i);
	}
	return slots & ((1u << HC_BUCKET_SLOTS) - 1);
}

static struct hc_entry *hc_shard_probe(struct hc_shard *shard, uint64_t key_mix, uint32_t series,
				       const struct hc_hash *hash)
{
	struct hc_bucket *buckets = atomic_load_explicit(&shard->buckets, memory_order_relaxed);
	uint32_t n = atomic_load_explicit(&shard->n_buckets, memory_order_relaxed);
	uint16_t tag = hc_mix_tag(key_mix);

	for (uint32_t step = 0; step < n + HC_WAY_LINEAR; step++) {
		const struct hc_bucket *bucket = &buckets[hc_mix_way(key_mix, step, n)];

		for (uint32_t m = hc_bucket_match(bucket, tag); m; m &= m - 1) {
			uint32_t slot_i = (uint32_t)__builtin_ctz(m);
			struct hc_entry *entry;

			if (bucket->tags[slot_i] != tag)
				continue;
			entry = hc_number_entry(shard->index, bucket->numbers[slot_i]);
			if (entry->series == series && hc_hash_equal(&entry->hash, hash))
				return entry;
		}
		if (!bucket->overflow)
			return NULL;
	}
	return NULL;
}

void hc_index_prefetch(struct hc_index *index, const struct hc_key *key)
{
	uint64_t mix = hc_hash_mix(index, &key->hash);
	struct hc_shard *shard = hc_mix_shard(index, mix);
	const struct hc_bucket *buckets =
		atomic_load_explicit(&shard->buckets, memory_order_relaxed);
	uint32_t n = atomic_load_explicit(&shard->n_buckets, memory_order_relaxed);

	__builtin_prefetch(&buckets[hc_mix_bucket(hc_key_mix(index, mix, key->series), n)]);
}

struct hc_entry *hc_shard_find(struct hc_shard *shard, const struct hc_key *key)
{
	struct hc_index *index = shard->index;
	uint64_t mix = hc_hash_mix(index, &key->hash);

	return hc_shard_probe(shard, hc_key_mix(index, mix, key->series), key->series, &key->hash);
}

/* The table has a free slot. */
static void hc_buckets_put(struct hc_bucket *buckets, uint32_t n, uint64_t key_mix, uint32_t number)
{
	for (uint32_t step = 0;; step++) {
		struct hc_bucket *bucket = &buckets[hc_mix_way(key_mix, step, n)];

		for (uint32_t i = 0; i < HC_BUCKET_SLOTS; i++) {
			if (!bucket->tags[i]) {
				bucket->tags[i] = hc_mix_tag(key_mix);
				bucket->numbers[i] = number;
				return;
			}
		}
		if (bucket->overflow != HC_OVERFLOW_STUCK)
			bucket->overflow++;
	}
}

static void hc_buckets_remove(struct hc_bucket *buckets, uint32_t n, uint64_t key_mix,
			      uint32_t number)
{
	for (uint32_t step = 0; step < n + HC_WAY_LINEAR; step++) {
		struct hc_bucket *bucket = &buckets[hc_mix_way(key_mix, step, n)];

		for (uint32_t i = 0; i < HC_BUCKET_SLOTS; i++) {
			if (bucket->tags[i] && bucket->numbers[i] == number) {
				bucket->tags[i] = 0;
				return;
			}
		}
		hc_assert(bucket->overflow);
		if (bucket->overflow != HC_OVERFLOW_STUCK)
			bucket->overflow--;
	}
	hc_assert(!"entry is in its table");
}

static uint32_t hc_buckets_named_max(uint32_t n_buckets)
{
	return (uint32_t)((uint64_t)n_buckets * HC_BUCKET_SLOTS * 85 / 100);
}

static struct hc_bucket *hc_buckets_create(uint32_t n)
{
	struct hc_bucket *buckets = aligned_alloc(64, (size_t)n * sizeof(*buckets));

	if (buckets)
		memset(buckets, 0, (size_t)n * sizeof(*buckets));
	return buckets;
}

static void hc_bucket_prefetch(struct hc_index *index, const struct hc_bucket *bucket)
{
	for (uint32_t i = 0; i < HC_BUCKET_SLOTS; i++) {
		if (bucket->tags[i])
			__builtin_prefetch(hc_number_entry(index, bucket->numbers[i]));
	}
}

/* Keys are read again from the entries: the table does not keep enough of them. */
static int hc_shard_grow(struct hc_shard *shard, uint32_t n)
{
	struct hc_index *index = shard->index;
	struct hc_bucket *old = atomic_load_explicit(&shard->buckets, memory_order_relaxed);
	uint32_t n_old = atomic_load_explicit(&shard->n_buckets, memory_order_relaxed);
	struct hc_bucket *buckets = hc_buckets_create(n);

	if (!buckets)
		return -ENOMEM;
	for (uint32_t b = 0; b < n_old; b++) {
		if (b + 2 < n_old)
			hc_bucket_prefetch(index, &old[b + 2]);
		for (uint32_t i = 0; i < HC_BUCKET_SLOTS; i++) {
			struct hc_entry *entry;
			uint64_t mix;

			if (!old[b].tags[i])
				continue;
			entry = hc_number_entry(index, old[b].numbers[i]);
			mix = hc_key_mix(index, hc_hash_mix(index, &entry->hash), entry->series);
			hc_buckets_put(buckets, n, mix, old[b].numbers[i]);
		}
	}
	atomic_store_explicit(&shard->buckets, buckets, memory_order_relaxed);
	atomic_store_explicit(&shard->n_buckets, n, memory_order_relaxed);
	shard->n_named_max = hc_buckets_named_max(n);
	atomic_fetch_add_explicit(&index->table_bytes, (uint64_t)(n - n_old) * sizeof(*buckets),
				  memory_order_relaxed);
	free(old);
	return 0;
}

/* Slabs */

static void *hc_slab_map(void)
{
	char *raw = mmap(NULL, 2 * HC_SLAB_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *slab;

	if (raw == MAP_FAILED)
		return NULL;
	slab = (char *)(((uintptr_t)raw + HC_SLAB_BYTES - 1) & ~(uintptr_t)(HC_SLAB_BYTES - 1));
	if (slab != raw)
		munmap(raw, (size_t)(slab - raw));
	munmap(slab + HC_SLAB_BYTES, (size_t)(raw + HC_SLAB_BYTES - slab));
	/* A random look-up misses the TLB with small pages; without huge pages it is only slower.
	 */
	madvise(slab, HC_SLAB_BYTES, MADV_HUGEPAGE);
	return slab;
}

static int hc_chunk_take_locked(struct hc_index *index, struct hc_shard *shard)
{
	uint32_t chunk_i = atomic_load_explicit(&index->n_chunks, memory_order_relaxed);
	uint32_t slab_i = chunk_i / HC_SLAB_CHUNKS;
	struct hc_chunk *chunk;

	if (chunk_i >= HC_CHUNKS_MAX)
		return -ENOMEM;
	if (!atomic_load_explicit(&index->slabs[slab_i], memory_order_relaxed)) {
		void *slab = hc_slab_map();

		if (!slab)
			return -ENOMEM;
		atomic_store_explicit(&index->slabs[slab_i], slab, memory_order_release);
		atomic_fetch_add_explicit(&index->n_slabs, 1, memory_order_relaxed);
	}
	chunk = hc_number_chunk(index, chunk_i << HC_CHUNK_SHIFT);
	chunk->shard = shard->shard_i;
	chunk->chunk = chunk_i;
	atomic_store_explicit(&index->n_chunks, chunk_i + 1, memory_order_release);
	shard->chunk = chunk;
	shard->chunk_used = 0;
	return 0;
}

/* number is set, all else zero. */
static struct hc_entry *hc_entry_alloc(struct hc_shard *shard)
{
	struct hc_index *index = shard->index;
	struct hc_entry *entry;
	uint32_t number;

	if (shard->free != HC_ENTRY_NONE) {
		number = shard->free;
		entry = hc_number_entry(index, number);
		shard->free = entry->dir_next;
	} else {
		if (!shard->chunk || shard->chunk_used == HC_CHUNK_ENTRIES) {
			int rc;

			pthread_mutex_lock(&index->slab_lock);
			rc = hc_chunk_take_locked(index, shard);
			pthread_mutex_unlock(&index->slab_lock);
			if (rc)
				return NULL;
		}
		number = shard->chunk->chunk << HC_CHUNK_SHIFT | shard->chunk_used;
		entry = &shard->chunk->entries[shard->chunk_used++];
	}
	memset(entry, 0, sizeof(*entry));
	entry->number = number;
	return entry;
}

void hc_shard_free(struct hc_shard *shard, struct hc_entry *entry)
{
	hc_assert(!(entry->flags & HC_ENTRY_NAMED) && !entry->dir);
	entry->sequence = 0;
	entry->flags = 0;
	entry->dir_next = shard->free;
	shard->free = entry->number;
}

int hc_shard_insert(struct hc_shard *shard, const struct hc_key *key, struct hc_entry **entry_p)
{
	struct hc_index *index = shard->index;
	uint64_t mix = hc_key_mix(index, hc_hash_mix(index, &key->hash), key->series);
	struct hc_entry *entry;
	uint32_t n = atomic_load_explicit(&shard->n_buckets, memory_order_relaxed);

	if (hc_shard_probe(shard, mix, key->series, &key->hash))
		return -EEXIST;
	/* When memory is out, a fuller table is slower, and a full one could not end a search. */
	if (shard->n_named >= shard->n_named_max && hc_shard_grow(shard, n + n / 4 + 1) &&
	    shard->n_named + n / 4 + 1 >= n * HC_BUCKET_SLOTS)
		return -ENOMEM;
	entry = hc_entry_alloc(shard);
	if (!entry)
		return -ENOMEM;
	entry->hash = key->hash;
	entry->series = key->series;
	entry->flags = HC_ENTRY_NAMED;
	entry->slot = HC_ENTRY_NO_SLOT;
	entry->disk = HC_ENTRY_NO_DISK;
	entry->dir_next = HC_ENTRY_NONE;
	entry->dir_prev = HC_ENTRY_NONE;
	n = atomic_load_explicit(&shard->n_buckets, memory_order_relaxed);
	hc_buckets_put(atomic_load_explicit(&shard->buckets, memory_order_relaxed), n, mix,
		       entry->number);
	shard->n_named++;
	*entry_p = entry;
	return 0;
}

void hc_shard_unname(struct hc_shard *shard, struct hc_entry *entry)
{
	struct hc_index *index = shard->index;
	uint64_t mix = hc_key_mix(index, hc_hash_mix(index, &entry->hash), entry->series);

	hc_assert(entry->flags & HC_ENTRY_NAMED);
	hc_buckets_remove(atomic_load_explicit(&shard->buckets, memory_order_relaxed),
			  atomic_load_explicit(&shard->n_buckets, memory_order_relaxed), mix,
			  entry->number);
	shard->n_named--;
	entry->flags &= (uint16_t)~HC_ENTRY_NAMED;
	if (entry->dir)
		hc_index_dir_remove(index, entry);
}

/* exists_prefix: three passes over a group of keys, so that the waits for memory overlap */

static void hc_probe_prefetch_table(struct hc_index *index, const uint32_t *series, size_t n_series,
				    const struct hc_hash *hashes, size_t n, uint64_t *mixes)
{
	for (size_t i = 0; i < n; i++) {
		struct hc_shard *shard;
		const struct hc_bucket *buckets;
		uint32_t n_buckets;

		mixes[i] = hc_hash_mix(index, &hashes[i]);
		shard = hc_mix_shard(index, mixes[i]);
		buckets = atomic_load_explicit(&shard->buckets, memory_order_relaxed);
		n_buckets = atomic_load_explicit(&shard->n_buckets, memory_order_relaxed);
		for (size_t s = 0; s < n_series; s++) {
			uint64_t mix = hc_key_mix(index, mixes[i], series[s]);

			__builtin_prefetch(&buckets[hc_mix_bucket(mix, n_buckets)]);
		}
	}
}

static void hc_probe_prefetch_entries(struct hc_index *index, const uint32_t *series,
				      size_t n_series, size_t n, const uint64_t *mixes)
{
	for (size_t i = 0; i < n; i++) {
		struct hc_shard *shard = hc_mix_shard(index, mixes[i]);
		const struct hc_bucket *buckets;
		uint32_t n_buckets;

		pthread_mutex_lock(&shard->lock);
		buckets = atomic_load_explicit(&shard->buckets, memory_order_relaxed);
		n_buckets = atomic_load_explicit(&shard->n_buckets, memory_order_relaxed);
		for (size_t s = 0; s < n_series; s++) {
			uint64_t mix = hc_key_mix(index, mixes[i], series[s]);
			const struct hc_bucket *bucket = &buckets[hc_mix_bucket(mix, n_buckets)];
			uint32_t m = hc_bucket_match(bucket, hc_mix_tag(mix));

			if (m) {
				const char *entry = (const char *)hc_number_entry(
					index, bucket->numbers[__builtin_ctz(m)]);

				__builtin_prefetch(entry);
				__builtin_prefetch(entry + 63);
			}
		}
		pthread_mutex_unlock(&shard->lock);
	}
}

static void hc_entry_touch(struct hc_entry *entry, uint32_t stamp, size_t position)
{
	hc_entry_hit(entry);
	if (stamp <= entry->stamp)
		return;
	entry->stamp = stamp;
	if (hc_hash_is_zero(&entry->parent))
		entry->depth = (uint32_t)hc_min_u64(position, (1u << 24) - 1);
}

struct hc_exists {
	struct hc_index *index;
	const uint32_t *series;
	const uint64_t *expire_before_ns;
	size_t n_series;
	uint32_t stamp;
};

static bool hc_exists_locked(const struct hc_exists *q, struct hc_shard *shard, uint64_t mix,
			     const struct hc_hash *hash, size_t position)
{
	for (size_t s = 0; s < q->n_series; s++) {
		const struct hc_entry *entry = hc_shard_probe(
			shard, hc_key_mix(q->index, mix, q->series[s]), q->series[s], hash);

		if (!entry)
			return false;
		if (q->expire_before_ns && entry->mtime_ns < q->expire_before_ns[s])
			return false;
		if (q->stamp && q->n_series == 1)
			hc_entry_touch((struct hc_entry *)entry, q->stamp, position);
	}
	for (size_t s = 0; q->stamp && q->n_series > 1 && s < q->n_series; s++) {
		/* Only now is it known that all are there. */
		struct hc_entry *entry = hc_shard_probe(
			shard, hc_key_mix(q->index, mix, q->series[s]), q->series[s], hash);

		hc_entry_touch(entry, q->stamp, position);
	}
	return true;
}

size_t hc_index_exists_prefix(struct hc_index *index, const uint32_t *series,
			      const uint64_t *expire_before_ns, size_t n_series,
			      const struct hc_hash *hashes, size_t n, uint32_t stamp)
{
	const struct hc_exists q = {index, series, expire_before_ns, n_series, stamp};
	uint64_t mixes[HC_PROBE_GROUP];
	size_t group = HC_PROBE_FIRST;

	for (size_t done = 0; done < n; done += group, group = HC_PROBE_GROUP) {
		if (group > n - done)
			group = n - done;
		hc_probe_prefetch_table(index, series, n_series, hashes + done, group, mixes);
		hc_probe_prefetch_entries(index, series, n_series, group, mixes);
		for (size_t i = 0; i < group; i++) {
			struct hc_shard *shard = hc_mix_shard(index, mixes[i]);
			bool found;

			pthread_mutex_lock(&shard->lock);
			found = hc_exists_locked(&q, shard, mixes[i], &hashes[done + i], done + i);
			pthread_mutex_unlock(&shard->lock);
			if (!found)
				return done + i;
		}
	}
	return n;
}

/* Stamps */

uint32_t hc_index_stamp(struct hc_index *index)
{
	uint32_t stamp = atomic_load_explicit(&index->stamp, memory_order_relaxed);

	do {
		if (stamp == UINT32_MAX)
			return stamp;
	} while (!atomic_compare_exchange_weak(&index->stamp, &stamp, stamp + 1));
	return stamp + 1;
}

void hc_index_stamp_restore(struct hc_index *index, uint32_t stamp)
{
	uint32_t old = atomic_load(&index->stamp);

	while (old < stamp && !atomic_compare_exchange_weak(&index->stamp, &old, stamp))
		;
}

static int hc_entry_rebase(void *arg, struct hc_entry *entry)
{
	uint32_t by = *(const uint32_t *)arg;

	entry->stamp -= entry->stamp < by ? entry->stamp : by;
	return 0;
}

void hc_index_rebase(struct hc_index *index, uint32_t by)
{
	uint32_t stamp = atomic_load(&index->stamp);

	while (!atomic_compare_exchange_weak(&index->stamp, &stamp, stamp < by ? 0 : stamp - by))
		;
	hc_index_each(index, hc_entry_rebase, &by);
}

/* Walks over all entries: by number, since numbers never move */

bool hc_index_step(struct hc_index *index, uint64_t *cursor_p, size_t n,
		   int (*each)(void *arg, struct hc_entry *entry), void *arg)
{
	uint64_t cursor = *cursor_p;
	int rc = 0;

	while (n && !rc) {
		uint32_t chunk_i = (uint32_t)(cursor >> HC_CHUNK_SHIFT);
		struct hc_chunk *chunk;
		struct hc_shard *shard;

		if (chunk_i >= atomic_load_explicit(&index->n_chunks, memory_order_acquire))
			break;
		chunk = hc_number_chunk(index, chunk_i << HC_CHUNK_SHIFT);
		shard = &index->shards[chunk->shard];
		pthread_mutex_lock(&shard->lock);
		for (uint64_t i = cursor & ((1u << HC_CHUNK_SHIFT) - 1);
		     i < HC_CHUNK_ENTRIES && n && !rc; i++, cursor++) {
			if (!(chunk->entries[i].flags & HC_ENTRY_NAMED))
				continue;
			n--;
			rc = each(arg, &chunk->entries[i]);
		}
		pthread_mutex_unlock(&shard->lock);
		if ((cursor & ((1u << HC_CHUNK_SHIFT) - 1)) >= HC_CHUNK_ENTRIES)
			cursor = (uint64_t)(chunk_i + 1) << HC_CHUNK_SHIFT;
	}
	*cursor_p = cursor;
	return cursor >> HC_CHUNK_SHIFT <
	       atomic_load_explicit(&index->n_chunks, memory_order_acquire);
}

struct hc_each {
	int (*each)(void *arg, struct hc_entry *entry);
	void *arg;
	int rc;
};

static int hc_each_call(void *arg, struct hc_entry *entry)
{
	struct hc_each *e = arg;

	e->rc = e->each(e->arg, entry);
	return e->rc;
}

int hc_index_each(struct hc_index *index, int (*each)(void *arg, struct hc_entry *entry), void *arg)
{
	struct hc_each e = {each, arg, 0};
	uint64_t cursor = 0;

	while (!e.rc && hc_index_step(index, &cursor, SIZE_MAX, hc_each_call, &e))
		;
	return e.rc;
}

uint64_t hc_index_count(struct hc_index *index)
{
	uint64_t n = 0;

	for (size_t i = 0; i < HC_INDEX_SHARDS; i++) {
		pthread_mutex_lock(&index->shards[i].lock);
		n += index->shards[i].n_named;
		pthread_mutex_unlock(&index->shards[i].lock);
	}
	return n;
}

uint64_t hc_index_bytes(struct hc_index *index)
{
	return sizeof(*index) + atomic_load(&index->n_slabs) * (HC_SLAB_BYTES + sizeof(void *)) +
	       atomic_load(&index->table_bytes) + hc_dirlists_bytes(index->dirs);
}

void hc_index_reserve(struct hc_index *index, uint64_t n)
{
	/* Shards differ by chance: a few in a hundred more than the mean. */
	uint64_t n_named = n / HC_INDEX_SHARDS * 103 / 100 + 1;
	uint64_t n_buckets = n_named * 100 / 85 / HC_BUCKET_SLOTS + 1;

	if (n > HC_ENTRY_NONE)
		return;
	for (size_t i = 0; i < HC_INDEX_SHARDS; i++) {
		struct hc_shard *shard = &index->shards[i];

		pthread_mutex_lock(&shard->lock);
		if (n_buckets > atomic_load_explicit(&shard->n_buckets, memory_order_relaxed) &&
		    hc_shard_grow(shard, (uint32_t)n_buckets))
			hc_debug("index", "tables grow as they are filled");
		pthread_mutex_unlock(&shard->lock);
	}
}

static uint32_t hc_shard_probe_max_locked(struct hc_shard *shard)
{
	const struct hc_bucket *buckets =
		atomic_load_explicit(&shard->buckets, memory_order_relaxed);
	uint32_t n = atomic_load_explicit(&shard->n_buckets, memory_order_relaxed);
	uint32_t longest = 0;

	for (uint32_t b = 0; b < n; b++) {
		for (uint32_t i = 0; i < HC_BUCKET_SLOTS; i++) {
			const struct hc_entry *entry;
			uint32_t step = 0;
			uint64_t mix;

			if (!buckets[b].tags[i])
				continue;
			entry = hc_number_entry(shard->index, buckets[b].numbers[i]);
			mix = hc_hash_mix(shard->index, &entry->hash);
			mix = hc_key_mix(shard->index, mix, entry->series);
			while (hc_mix_way(mix, step, n) != b)
				step++;
			longest = (uint32_t)hc_max_u64(longest, step + 1);
		}
	}
	return longest;
}

uint32_t hc_index_probe_max(struct hc_index *index)
{
	uint32_t longest = 0;

	for (size_t i = 0; i < HC_INDEX_SHARDS; i++) {
		struct hc_shard *shard = &index->shards[i];

		pthread_mutex_lock(&shard->lock);
		longest = (uint32_t)hc_max_u64(longest, hc_shard_probe_max_locked(shard));
		pthread_mutex_unlock(&shard->lock);
	}
	return longest;
}

/* Directory lists */

void hc_index_dir_add(struct hc_index *index, struct hc_entry *entry, uint32_t dir)
{
	hc_assert(!entry->dir && dir);
	if (hc_dirlists_add(index->dirs, entry, dir))
		hc_error("index", "memory is out: a page is not listed in its directory");
}

void hc_index_dir_add_many(struct hc_index *index, struct hc_entry *const *entries, size_t n,
			   uint32_t dir)
{
	hc_assert(dir);
	if (hc_dirlists_add_many(index->dirs, entries, n, dir))
		hc_error("index", "memory is out: %zu pages are not listed in their directory", n);
}

void hc_index_dir_remove(struct hc_index *index, struct hc_entry *entry)
{
	if (entry->dir)
		hc_dirlists_remove(index->dirs, entry);
}

uint64_t hc_index_dir_count(struct hc_index *index, uint32_t dir)
{
	return hc_dirlists_count(index->dirs, dir);
}

int hc_index_dir_snapshot(struct hc_index *index, uint32_t dir, struct hc_dir_item **items_p,
			  size_t *n_p)
{
	return hc_dirlists_snapshot(index->dirs, dir, items_p, n_p);
}

void hc_index_dir_begin(struct hc_index *index, struct hc_dir_cursor *cursor, uint32_t dir)
{
	hc_dirlists_begin(index->dirs, cursor, dir);
}

size_t hc_index_dir_read(struct hc_index *index, struct hc_dir_cursor *cursor,
			 struct hc_dir_item *items, size_t n)
{
	return hc_dirlists_read(index->dirs, cursor, items, n);
}

void hc_index_dir_end(struct hc_index *index, struct hc_dir_cursor *cursor)
{
	hc_dirlists_end(index->dirs, cursor);
}

/* Life */

static int hc_shard_init(struct hc_index *index, uint32_t shard_i)
{
	struct hc_shard *shard = &index->shards[shard_i];
	struct hc_bucket *buckets = hc_buckets_create(HC_BUCKETS_MIN);

	if (!buckets)
		return -ENOMEM;
	pthread_mutex_init(&shard->lock, NULL);
	atomic_init(&shard->buckets, buckets);
	atomic_init(&shard->n_buckets, HC_BUCKETS_MIN);
	shard->n_named_max = hc_buckets_named_max(HC_BUCKETS_MIN);
	shard->free = HC_ENTRY_NONE;
	shard->shard_i = shard_i;
	shard->index = index;
	atomic_fetch_add(&index->table_bytes, HC_BUCKETS_MIN * sizeof(*buckets));
	return 0;
}

int hc_index_create(struct hc_index **index_p)
{
	struct hc_index *index = aligned_alloc(128, sizeof(*index));
	void *slabs;
	int rc;

	if (!index)
		return -ENOMEM;
	memset(index, 0, sizeof(*index));
	hc_rng_system(index->secret, sizeof(index->secret));
	for (size_t i = 0; i < HC_ARRAY_SIZE(index->secret); i++)
		index->secret[i] |= 1;
	pthread_mutex_init(&index->slab_lock, NULL);
	slabs = mmap(NULL, HC_SLABS_MAX * sizeof(void *), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (slabs == MAP_FAILED) {
		free(index);
		return -ENOMEM;
	}
	index->slabs = slabs;
	rc = hc_dirlists_create(index, &index->dirs);
	for (uint32_t i = 0; !rc && i < HC_INDEX_SHARDS; i++)
		rc = hc_shard_init(index, i);
	if (rc) {
		hc_index_destroy(index);
		return rc;
	}
	*index_p = index;
	return 0;
}

void hc_index_destroy(struct hc_index *index)
{
	if (!index)
		return;
	for (uint32_t i = 0; i < HC_INDEX_SHARDS; i++) {
		struct hc_bucket *buckets = atomic_load(&index->shards[i].buckets);

		if (buckets)
			pthread_mutex_destroy(&index->shards[i].lock);
		free(buckets);
	}
	for (uint32_t i = 0; i < atomic_load(&index->n_slabs); i++)
		munmap(atomic_load(&index->slabs[i]), HC_SLAB_BYTES);
	munmap((void *)index->slabs, HC_SLABS_MAX * sizeof(void *));
	hc_dirlists_destroy(index->dirs);
	pthread_mutex_destroy(&index->slab_lock);
	free(index);
}
