/* SPDX-License-Identifier: Apache-2.0 */
/* Look-up of prefixes in the index: chains of 256 pages, a million entries, chains that are there
 * and chains that miss a page at a random place, one and two threads, with and without touching.
 *
 * The baseline answers the same question with nothing around it: one flat open-addressing table of
 * as many slots as the index has, the 32-byte hashes in the slots, linear steps, no locks, no entry
 * behind the slot, both on the same kind of memory. Aims: 5 M examined keys/s on a quiet machine, a
 * ratio of 0.25, 160 bytes an entry. usage: bench-exists [ENTRIES] */
#include <pthread.h>

#include "bench.h"
#include "index/index.h"
#include "util/rng.h"
#include "util/size.h"

#define CHAIN     256
#define ROUNDS    9
#define N_THREADS 2
#define QUERIES   1500
#define MIB_COPY  ((size_t)64 << 20)

struct flat {
	struct hc_hash *slots;
	size_t n;
	uint64_t secret;
};

/* What one measurement does. */
struct run {
	struct hc_index *index; /* NULL: the flat table */
	const struct flat *flat;
	const struct hc_hash *chains;
	size_t n_chains;
	bool absent, touch;
	uint64_t seed;
	uint64_t n_examined;
	pthread_barrier_t *begin;
};

static size_t flat_place(const struct flat *flat, const struct hc_hash *hash)
{
	uint64_t w[2];

	memcpy(w, hash->bytes, sizeof(w));
	w[0] = (w[0] ^ flat->secret) * 0x9e3779b97f4a7c15u ^ w[1];
	return (size_t)(((unsigned __int128)w[0] * flat->n) >> 64);
}

static void flat_insert(const struct flat *flat, const struct hc_hash *hash)
{
	size_t i = flat_place(flat, hash);

	while (!hc_hash_is_zero(&flat->slots[i]))
		i = i + 1 == flat->n ? 0 : i + 1;
	flat->slots[i] = *hash;
}

static size_t flat_exists_prefix(const struct flat *flat, const struct hc_hash *hashes, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		size_t i = flat_place(flat, &hashes[k]);

		while (!hc_hash_equal(&flat->slots[i], &hashes[k])) {
			if (hc_hash_is_zero(&flat->slots[i]))
				return k;
			i = i + 1 == flat->n ? 0 : i + 1;
		}
	}
	return n;
}

static void *run_thread(void *arg)
{
	struct run *run = arg;
	struct hc_hash hashes[CHAIN];
	const uint32_t series = 1;
	struct hc_rng rng;

	hc_rng_seed(&rng, run->seed);
	pthread_barrier_wait(run->begin);
	for (int q = 0; q < QUERIES; q++) {
		size_t found;

		/* A request's keys are fresh copies, as they come out of a message. */
		memcpy(hashes, run->chains + hc_rng_below(&rng, run->n_chains) * CHAIN,
		       sizeof(hashes));
		if (run->absent)
			hashes[hc_rng_below(&rng, CHAIN)].bytes[hc_rng_below(&rng, 32)] ^= 1;
		if (run->index)
			found = hc_index_exists_prefix(run->index, &series, NULL, 1, hashes, CHAIN,
						       run->touch ? hc_index_stamp(run->index) : 0);
		else
			found = flat_exists_prefix(run->flat, hashes, CHAIN);
		hc_assert(run->absent == (found < CHAIN));
		run->n_examined += found + run->absent;
	}
	return NULL;
}

/* Examined keys a second. */
static double measure(const struct run *plan, unsigned n_threads, bool index)
{
	struct run runs[N_THREADS];
	pthread_t threads[N_THREADS];
	pthread_barrier_t begin;
	uint64_t begin_ns, n_examined = 0;

	pthread_barrier_init(&begin, NULL, n_threads + 1);
	for (unsigned t = 0; t < n_threads; t++) {
		runs[t] = *plan;
		runs[t].index = index ? plan->index : NULL;
		runs[t].seed = plan->seed * N_THREADS + t;
		runs[t].begin = &begin;
		hc_assert(!pthread_create(&threads[t], NULL, run_thread, &runs[t]));
	}
	pthread_barrier_wait(&begin);
	begin_ns = hc_clock_now_ns();
	for (unsigned t = 0; t < n_threads; t++) {
		pthread_join(threads[t], NULL);
		n_examined += runs[t].n_examined;
	}
	pthread_barrier_destroy(&begin);
	return (double)n_examined * 1e9 / (double)(hc_clock_now_ns() - begin_ns);
}

static void compare(struct run *plan, unsigned n_threads)
{
	double ratios[ROUNDS], ours[ROUNDS], flats[ROUNDS];

	for (int r = 0; r < ROUNDS; r++) {
		plan->seed = (uint64_t)r + 1;
		ours[r] = measure(plan, n_threads, true) / 1e6;
		flats[r] = measure(plan, n_threads, false) / 1e6;
		ratios[r] = ours[r] / flats[r];
	}
	printf("%-8s %-5s %u thread%s  %6.1f M keys/s (p90 %5.1f)   flat %6.1f   ratio %.2f\n",
	       plan->absent ? "absent" : "present", plan->touch ? "touch" : "look", n_threads,
	       n_threads > 1 ? "s" : " ", bench_percentile(ours, ROUNDS, 50),
	       bench_percentile(ours, ROUNDS, 10), bench_percentile(flats, ROUNDS, 50),
	       bench_percentile(ratios, ROUNDS, 50));
}

static struct hc_index *fill(const struct hc_hash *chains, size_t n)
{
	struct hc_index *index;
	uint64_t begin_ns;

	hc_assert(!hc_index_create(&index));
	begin_ns = hc_clock_now_ns();
	for (size_t i = 0; i < n; i++) {
		struct hc_shard *shard = hc_index_shard(index, &chains[i]);
		struct hc_key key = {1, chains[i]};
		struct hc_entry *entry;

		hc_shard_lock(shard);
		hc_assert(!hc_shard_insert(shard, &key, &entry));
		entry->sequence = i + 1;
		hc_shard_unlock(shard);
	}
	printf("insert   %.0f ns an entry, %.1f bytes an entry, longest way %u buckets\n",
	       (double)(hc_clock_now_ns() - begin_ns) / (double)n,
	       (double)hc_index_bytes(index) / (double)n, hc_index_probe_max(index));
	return index;
}

int main(int argc, char **argv)
{
	uint64_t n = 1000000;
	struct run plan = {0};
	struct flat flat;
	struct hc_hash *chains;
	struct hc_rng rng;
	void *copy = bench_memory(MIB_COPY);
	double copy_rate;

	if (argc > 2 || (argc == 2 && (hc_u64_parse(argv[1], &n) || n < CHAIN || n > 1000000000))) {
		fprintf(stderr, "usage: bench-exists [ENTRIES]\n");
		return 2;
	}
	hc_assert(copy);
	copy_rate = bench_memcpy_rate(copy, MIB_COPY);
	munmap(copy, MIB_COPY);
	n = n / CHAIN * CHAIN;
	chains = bench_memory(n * sizeof(*chains));
	/* The load of the index's table at a million entries. */
	flat = (struct flat){.n = (size_t)((double)n / 0.8), .secret = 0x1234567};
	flat.slots = bench_memory(flat.n * sizeof(*flat.slots));
	hc_assert(chains && flat.slots);
	hc_rng_seed(&rng, 42);
	for (size_t i = 0; i < n * 4; i++) {
		uint64_t v = hc_rng_next(&rng);

		memcpy((char *)chains + 8 * i, &v, 8);
	}
	for (size_t i = 0; i < n; i++)
		flat_insert(&flat, &chains[i]);
	printf("%llu entries, chains of %d, %d %% of the flat table on huge pages, memcpy %.1f "
	       "GB/s%s\n",
	       (unsigned long long)n, CHAIN, bench_huge_percent(flat.slots), copy_rate,
	       copy_rate < BENCH_MEMCPY_MIN ? ": the machine is busy, no verdict" : "");
	plan = (struct run){.flat = &flat, .chains = chains, .n_chains = n / CHAIN};
	plan.index = fill(chains, n);
	for (int mode = 0; mode < 4; mode++) {
		plan.absent = mode & 1;
		plan.touch = mode & 2;
		for (unsigned t = 1; t <= N_THREADS; t++)
			compare(&plan, t);
	}
	hc_index_destroy(plan.index);
	return 0;
}
