/* SPDX-License-Identifier: Apache-2.0 */
/* Of the tests of hicache.h: a cache in a fresh directory or in memory, pages whose bytes follow
 * from their hash, the log caught. One thread, but for page_fill and page_check. */
#ifndef HC_HICACHE_RIG_H
#define HC_HICACHE_RIG_H

#include "hctest.h"

#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "hicache.h"
#include "model/pagehash.h"
#include "util/clock.h"
#include "util/rng.h"

#define RIG_POOL    (32 * HC_MIB)
#define RIG_TIMEOUT 20000u
/* Pages of 4,096 bytes. */
#define RIG_SPEC                                                                               \
	"model=org/m attention=mha layers=2 kv_heads=2 head_dim=16 dtype=fp16 page_tokens=16 " \
	"layout=page_unified tp=0/1 pp=0/1"
#define RIG_PAGE 4096u

static char rig_dir[64];
static char rig_where[80];
static char rig_error[1024]; /* the last line of level error */
static struct hicache *rig_hc;
static struct hicache_space *rig_space;
static struct hicache_series *rig_series;

static inline void rig_log(void *arg, int level, const char *component, const char *text)
{
	(void)arg;
	(void)component;
	if (level == HICACHE_LOG_ERROR)
		snprintf(rig_error, sizeof(rig_error), "%s", text);
}

/* The last call failed, and told so with these words. */
#define assert_error(words)                                                     \
	do {                                                                    \
		if (!strstr(rig_error, words))                                  \
			fail_msg("message without '%s': %s", words, rig_error); \
		rig_error[0] = 0;                                               \
	} while (0)

static inline int rig_unlink(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline int rig_begin(void **state)
{
	(void)state;
	hicache_log_sink_set(rig_log, NULL);
	snprintf(rig_dir, sizeof(rig_dir), "%s/hc-hicache-XXXXXX",
		 getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 40 ? getenv("TMPDIR") : "/tmp");
	rig_error[0] = 0;
	if (!mkdtemp(rig_dir))
		return -1;
	snprintf(rig_where, sizeof(rig_where), "dir:%s", rig_dir);
	return 0;
}

static inline void rig_close(void)
{
	assert_int_equal(hicache_series_close(rig_series), 0);
	assert_int_equal(hicache_space_close(rig_space), 0);
	assert_int_equal(hicache_close(rig_hc), 0);
	rig_series = NULL;
	rig_space = NULL;
	rig_hc = NULL;
}

static inline int rig_end(void **state)
{
	(void)state;
	hc_clock_fake_off();
	/* After a failed assertion what it left open is left to the process. */
	rig_series = NULL;
	rig_space = NULL;
	rig_hc = NULL;
	hicache_log_sink_set(NULL, NULL);
	return nftw(rig_dir, rig_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void rig_open_with(const char *where, uint32_t flags)
{
	struct hicache_params params = {
		.size = sizeof(params),
		.pool_bytes = RIG_POOL,
		.max_page_bytes = HC_MIB,
		.min_free_bytes = 1,
		.disk_bytes = HC_GIB,
		.flags = flags,
	};

	assert_int_equal(hicache_open(where, &params, &rig_hc), 0);
	assert_int_equal(hicache_space_open(rig_hc, "m", HICACHE_CREATE, NULL, &rig_space), 0);
	assert_int_equal(
		hicache_series_open(rig_space, RIG_SPEC, NULL, HICACHE_CREATE, &rig_series), 0);
}

static inline void rig_open(const char *where)
{
	rig_open_with(where, 0);
}

/* n hashes of one chain; another seed, another chain. */
static inline void rig_chain(uint32_t seed, struct hicache_hash *hashes, size_t n)
{
	struct hicache_hash_params params = {
		.size = sizeof(params), .page_tokens = 1, .token_bytes = 4};
	uint32_t *tokens = calloc(n + 1, sizeof(*tokens));
	size_t got;

	assert_non_null(tokens);
	for (size_t i = 0; i < n; i++)
		tokens[i] = seed + (uint32_t)i;
	assert_int_equal(hicache_page_hash(&params, tokens, n, hashes, n, &got), 0);
	assert_int_equal(got, n);
	free(tokens);
}

static inline void page_fill(const struct hicache_page *page, const struct hicache_hash *hash,
			     uint8_t salt)
{
	uint8_t *bytes = page->data;

	for (uint64_t i = 0; i < page->size_bytes; i++)
		bytes[i] = (uint8_t)(hash->bytes[i % 32] + i / 32 + salt);
}

static inline bool page_good(const struct hicache_page *page, const struct hicache_hash *hash,
			     uint8_t salt)
{
	const uint8_t *bytes = page->data;

	for (uint64_t i = 0; i < page->size_bytes; i++) {
		if (bytes[i] != (uint8_t)(hash->bytes[i % 32] + i / 32 + salt))
			return false;
	}
	return true;
}

/* Reserves, fills and publishes n pages of one chain; each result must be `expect`. */
static inline void rig_publish_into(struct hicache_series *series,
				    const struct hicache_hash *hashes, size_t n, uint8_t salt,
				    int expect)
{
	struct hicache_page *pages = calloc(n, sizeof(*pages));
	int *results = calloc(n, sizeof(*results));
	size_t at = 0;

	assert_true(pages && results);
	while (at < n) {
		size_t got;

		assert_int_equal(
			hicache_reserve(series, 0, -1, n - at, RIG_TIMEOUT, pages + at, &got), 0);
		at += got;
	}
	for (size_t i = 0; i < n; i++)
		page_fill(&pages[i], &hashes[i], salt);
	assert_int_equal(hicache_publish(series, pages, hashes, n, NULL, results), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(results[i], expect);
		assert_null(pages[i].data);
	}
	free(pages);
	free(results);
}

static inline void rig_publish(const struct hicache_hash *hashes, size_t n)
{
	rig_publish_into(rig_series, hashes, n, 0, 0);
}

/* All n are acquired and hold what page_fill wrote. */
static inline void rig_expect(struct hicache_series *series, const struct hicache_hash *hashes,
			      size_t n, uint8_t salt)
{
	struct hicache_page *pages = calloc(n, sizeof(*pages));
	size_t got = 0;

	assert_non_null(pages);
	assert_int_equal(hicache_acquire(series, hashes, n, RIG_TIMEOUT, pages, &got), 0);
	assert_int_equal(got, n);
	for (size_t i = 0; i < n; i++)
		assert_true(page_good(&pages[i], &hashes[i], salt));
	assert_int_equal(hicache_release(rig_hc, pages, n), 0);
	free(pages);
}

static inline void rig_expect_miss(struct hicache_series *series, const struct hicache_hash *hash)
{
	struct hicache_page page;
	size_t got = 99;

	assert_int_equal(hicache_acquire(series, hash, 1, RIG_TIMEOUT, &page, &got), -ENOENT);
	assert_int_equal(got, 99);
}

static inline size_t rig_prefix(struct hicache_series *series, const struct hicache_hash *hashes,
				size_t n)
{
	size_t got = 99;

	assert_int_equal(hicache_exists_prefix(&series, 1, hashes, n, 0, &got), 0);
	return got;
}

static inline uint64_t rig_stat(const char *name)
{
	uint64_t value = 0;

	assert_int_equal(hicache_stats_get(rig_hc, name, &value), 0);
	return value;
}

static inline struct hicache_page_info rig_info(const struct hicache_hash *hash)
{
	struct hicache_page_info info = {.size = sizeof(info)};

	assert_int_equal(hicache_page_stat(rig_series, hash, &info), 0);
	return info;
}

#endif
