/* SPDX-License-Identifier: Apache-2.0 */
/* Page hashes of 64-token pages through hicache_page_hash, against a bare loop of libcrypto's
 * SHA256_Init, _Update and _Final over the same chain of pages. Both take turns in one run; aim:
 * >= 0.9 of the bare loop, also for 8-byte ids, which have to be narrowed on the way. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "bench.h"

#include <openssl/sha.h>

#include "hicache.h"

#define AIM         0.9
#define PAGE_TOKENS 64
#define N_PAGES     1024
#define N_TOKENS    (PAGE_TOKENS * N_PAGES)
#define N_ROUNDS    41

static uint32_t tokens[N_TOKENS];
static uint64_t wide_ids[N_TOKENS];
static struct hicache_hash bare[N_PAGES], hashes[N_PAGES];

/* The pages of one prompt: each after the hash of the one before. */
static void run_bare(void)
{
	for (size_t i = 0; i < N_PAGES; i++) {
		SHA256_CTX sha;

		SHA256_Init(&sha);
		if (i)
			SHA256_Update(&sha, bare[i - 1].bytes, 32);
		SHA256_Update(&sha, tokens + i * PAGE_TOKENS, PAGE_TOKENS * sizeof(tokens[0]));
		SHA256_Final(bare[i].bytes, &sha);
	}
}

static int run_ours(uint32_t token_bytes)
{
	struct hicache_hash_params params = {
		.size = sizeof(params), .page_tokens = PAGE_TOKENS, .token_bytes = token_bytes};
	const void *ids = token_bytes == 4 ? (const void *)tokens : wide_ids;
	size_t n;

	return hicache_page_hash(&params, ids, N_TOKENS, hashes, N_PAGES, &n);
}

static double pages_per_s(uint64_t begin_ns)
{
	return N_PAGES * 1e9 / (double)(hc_clock_now_ns() - begin_ns + 1);
}

int main(void)
{
	double base[N_ROUNDS], narrow[N_ROUNDS], wide[N_ROUNDS], b;
	int rc = 0;

	for (uint32_t i = 0; i < N_TOKENS; i++)
		wide_ids[i] = tokens[i] = i * 2654435761u % 151936u;
	for (int r = 0; r < N_ROUNDS && !rc; r++) {
		uint64_t begin_ns = hc_clock_now_ns();

		run_bare();
		base[r] = pages_per_s(begin_ns);
		begin_ns = hc_clock_now_ns();
		rc = run_ours(4);
		narrow[r] = pages_per_s(begin_ns);
		if (!rc && memcmp(bare, hashes, sizeof(bare)))
			rc = -EBADMSG;
		begin_ns = hc_clock_now_ns();
		if (!rc)
			rc = run_ours(8);
		wide[r] = pages_per_s(begin_ns);
		if (!rc && memcmp(bare, hashes, sizeof(bare)))
			rc = -EBADMSG;
	}
	if (rc) {
		fprintf(stderr, "bench-hash: %s\n", strerror(-rc));
		return 1;
	}
	b = bench_percentile(base, N_ROUNDS, 50);
	printf("page hash, pages of %d tokens: bare loop %.0f k pages/s\n", PAGE_TOKENS, b / 1e3);
	printf("  4-byte ids: %.0f k pages/s, ratio %.3f (aim >= %.1f)\n",
	       bench_percentile(narrow, N_ROUNDS, 50) / 1e3,
	       bench_percentile(narrow, N_ROUNDS, 50) / b, AIM);
	printf("  8-byte ids: %.0f k pages/s, ratio %.3f\n",
	       bench_percentile(wide, N_ROUNDS, 50) / 1e3,
	       bench_percentile(wide, N_ROUNDS, 50) / b);
	return 0;
}
