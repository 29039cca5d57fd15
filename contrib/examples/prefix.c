/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine does with the cache, without the engine: look how much of a prompt is there, read
 * that, compute the rest (here: fill pages with numbers) and publish it.
 *
 *	cc prefix.c $(pkg-config --cflags --libs hicache) -o prefix
 *	./prefix /var/cache/example 1 2 3 ... (token ids; a page is 4 tokens)
 *
 * Run it twice, then with another tail: only pages that are new are computed. */
#include <errno.h>
#include <hicache.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_TOKENS = 4, MAX_PAGES = 256, TIMEOUT_MS = 2000 };

/* Everything that decides what the bytes of a page mean: another model never sees these pages. */
static const char spec[] = "model=example/tiny attention=mha layers=2 kv_heads=2 head_dim=64 "
			   "dtype=fp16 page_tokens=4 layout=page_unified";

static int fail(const char *what, int rc)
{
	fprintf(stderr, "prefix: %s: %s\n", what, strerror(-rc));
	return 1;
}

/* Leading pages that the cache has; each is read. */
static size_t read_prefix(struct hicache *hc, struct hicache_series *series,
			  const struct hicache_hash *hashes, size_t n)
{
	struct hicache_page pages[MAX_PAGES];
	size_t got, i;

	if (hicache_acquire(series, hashes, n, TIMEOUT_MS, pages, &got))
		return 0; /* a miss, whatever the reason */
	for (i = 0; i < got; i++)
		printf("page %zu: hit, first byte %u\n", i, *(unsigned char *)pages[i].data);
	hicache_release(hc, pages, got);
	return got;
}

static int write_rest(struct hicache *hc, struct hicache_series *series,
		      const struct hicache_hash *hashes, size_t have, size_t n)
{
	struct hicache_publish_params at = {.size = sizeof(at)};
	struct hicache_page pages[MAX_PAGES];
	int results[MAX_PAGES], rc = 0;
	size_t got, i;

	for (; have < n && !rc; have += got) {
		rc = hicache_reserve(series, 0, -1, n - have, TIMEOUT_MS, pages, &got);
		if (rc)
			break;
		for (i = 0; i < got; i++)
			memset(pages[i].data, (int)(have + i), pages[i].size_bytes);
		at.parent = have ? &hashes[have - 1] : NULL;
		at.depth = (uint32_t)have;
		rc = hicache_publish(series, pages, hashes + have, got, &at, results);
		if (rc)
			hicache_abort(hc, pages, got); /* nothing was consumed */
		for (i = 0; i < got && !rc; i++)
			printf("page %zu: %s\n", have + i,
			       results[i] ? strerror(-results[i]) : "computed and stored");
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct hicache_hash_params how = {
		.size = sizeof(how), .page_tokens = PAGE_TOKENS, .token_bytes = 4};
	struct hicache_params params = {.size = sizeof(params), .pool_bytes = 128u << 20};
	struct hicache_hash hashes[MAX_PAGES];
	uint32_t tokens[MAX_PAGES * PAGE_TOKENS];
	struct hicache_series *series = NULL;
	struct hicache_space *space = NULL;
	struct hicache *hc = NULL;
	char where[4096];
	size_t n = 0, n_pages;
	int rc;

	if (argc < 2 || argc - 2 > MAX_PAGES * PAGE_TOKENS)
		return fail("usage: prefix DIR TOKEN...", -EINVAL);
	for (; argc > 2 + (int)n; n++)
		tokens[n] = (uint32_t)strtoul(argv[2 + n], NULL, 10);
	snprintf(where, sizeof(where), "dir:%s", argv[1]);
	if ((rc = hicache_page_hash(&how, tokens, n, hashes, MAX_PAGES, &n_pages)) ||
	    (rc = hicache_open(where, &params, &hc)) ||
	    (rc = hicache_space_open(hc, "example", HICACHE_CREATE, NULL, &space)) ||
	    (rc = hicache_series_open(space, spec, NULL, HICACHE_CREATE, &series)))
		return fail("open", rc);
	rc = write_rest(hc, series, hashes, read_prefix(hc, series, hashes, n_pages), n_pages);
	hicache_series_close(series);
	hicache_space_close(space);
	hicache_close(hc); /* writes to disk what is not there yet */
	return rc ? fail("publish", rc) : 0;
}
