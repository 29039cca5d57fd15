/* SPDX-License-Identifier: Apache-2.0 */
/* The node's life cycle, on a real directory with small pages: publish, acquire, evict, promote,
 * restart, damage. Method: pages hold bytes derived from their hash, so that any wrong byte is
 * found by whoever reads one. */
#include "hctest.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "node/internal.h"
#include "store/fault.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/log.h"
#include "util/rng.h"

#define PAGE_BYTES ((size_t)65536)

struct fixture {
	char dir[64];
	struct hc_node_config config;
	struct hc_node *node;
	struct hc_store *fault; /* the wrapper, when asked for */
	uint32_t space, series;
	uint32_t dir_id; /* of what is published; 0: the series' own */
};

static uint64_t soon(uint64_t ms)
{
	return hc_clock_now_ns() + ms * HC_NS_PER_MS;
}

static struct hc_hash hash_of(uint32_t chain, uint32_t depth)
{
	struct hc_hash hash;
	struct hc_rng rng;

	hc_rng_seed(&rng, ((uint64_t)chain << 32) + depth + 1);
	for (size_t i = 0; i < sizeof(hash.bytes); i += 8) {
		uint64_t v = hc_rng_next(&rng);

		memcpy(hash.bytes + i, &v, 8);
	}
	return hash;
}

static void fill_page(void *data, size_t n, const struct hc_hash *hash)
{
	uint64_t seed;
	uint64_t *p = data;

	memcpy(&seed, hash->bytes, 8);
	for (size_t i = 0; i < n / 8; i++)
		p[i] = seed + i * 0x9e3779b97f4a7c15u;
}

static bool page_right(const void *data, size_t n, const struct hc_hash *hash)
{
	const uint64_t *p = data;
	uint64_t seed;

	memcpy(&seed, hash->bytes, 8);
	for (size_t i = 0; i < n / 8; i++) {
		if (p[i] != seed + i * 0x9e3779b97f4a7c15u)
			return false;
	}
	return true;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static struct hc_store *wrap_fault(void *arg, struct hc_store *inner)
{
	struct fixture *f = arg;

	assert_int_equal(hc_store_fault_open(inner, 1, &f->fault), 0);
	return f->fault;
}

static void node_up(struct fixture *f)
{
	static const struct hc_owner owner = {0, 0, 0755};
	struct hc_space_info space;
	struct hc_dir_info dir;
	int rc;

	assert_int_equal(hc_node_open(&f->config, &f->node), 0);
	rc = hc_dir_make(hc_node_registry(f->node), HC_DIR_ROOT, "m", &owner, &dir);
	assert_true(rc == 0 || rc == -EEXIST);
	assert_int_equal(hc_space_find(hc_node_registry(f->node), "m", &space), 0);
	f->space = space.id;
	assert_int_equal(hc_series_open(hc_node_registry(f->node), f->space, "{64}.kv", NULL, true,
					&f->series),
			 0);
}

static void node_down(struct fixture *f)
{
	hc_node_close(f->node, NULL);
	f->node = NULL;
}

static int setup(void **state)
{
	struct fixture *f = hc_zalloc(sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "%s/hctest-node-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
	assert_non_null(mkdtemp(f->dir));
	hc_log_set_level(getenv("HC_TEST_VERBOSE") ? HC_LOG_DEBUG : HC_LOG_ERROR);
	f->config = (struct hc_node_config){
		.cachedir = f->dir,
		.embedded = true,
		.pool_bytes = 8 * HC_MIB,
		.segment_bytes = 2 * HC_MIB,
		.max_page_bytes = HC_MIB,
		.root = {0, 0, 0755},
		.dirty_ppm = 900000,
	};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->node)
		hc_node_close(f->node, NULL);
	hc_clock_fake_off();
	nftw(f->dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	free(f);
	return 0;
}

/* Publishes pages [from, to) of a chain; returns how many results were 0. */
static int put_sized(struct fixture *f, uint32_t series, uint32_t chain, uint32_t from, uint32_t to,
		     size_t bytes)
{
	struct hc_reserve how = {
		.space = f->space, .size_bytes = bytes, .numa_node = -1, .deadline_ns = soon(5000)};
	int n = 0;

	for (uint32_t i = from; i < to; i++) {
		struct hc_publish item = {.key = {series, hash_of(chain, i)},
					  .depth = i,
					  .size_bytes = bytes,
					  .dir = f->dir_id};
		struct hc_ref ref;
		size_t got;
		int result;

		how.deadline_ns = soon(30000);
		if (hc_node_reserve(f->node, &how, 1, &ref, &got))
			return n;
		fill_page(ref.data, bytes, &item.key.hash);
		if (i)
			item.parent = hash_of(chain, i - 1);
		hc_node_publish(f->node, &ref, &item, 1, &result);
		n += !result;
	}
	return n;
}

static int put(struct fixture *f, uint32_t chain, uint32_t from, uint32_t to)
{
	return put_sized(f, f->series, chain, from, to, PAGE_BYTES);
}

/* Acquires the chain's first n pages; checks the bytes of all; returns how many there were. */
static size_t get_sized(struct fixture *f, uint32_t series, uint32_t chain, uint32_t n,
			size_t bytes)
{
	struct hc_acquire how = {.series = series, .deadline_ns = soon(10000)};
	struct hc_hash *hashes = calloc(n, sizeof(*hashes));
	struct hc_ref *refs = calloc(n, sizeof(*refs));
	size_t got = 0;

	for (uint32_t i = 0; i < n; i++)
		hashes[i] = hash_of(chain, i);
	if (hc_node_acquire(f->node, &how, hashes, n, refs, &got))
		assert_int_equal(got, 0);
	for (size_t i = 0; i < got; i++) {
		assert_int_equal(refs[i].size_bytes, bytes);
		assert_true(page_right(refs[i].data, bytes, &hashes[i]));
	}
	hc_node_release(f->node, refs, got);
	free(hashes);
	free(refs);
	return got;
}

static size_t get(struct fixture *f, uint32_t chain, uint32_t n)
{
	return get_sized(f, f->series, chain, n, PAGE_BYTES);
}

static size_t exists(struct fixture *f, uint32_t chain, uint32_t n)
{
	struct hc_hash *hashes = calloc(n, sizeof(*hashes));
	size_t hits;

	for (uint32_t i = 0; i < n; i++)
		hashes[i] = hash_of(chain, i);
	hits = hc_node_exists_prefix(f->node, &f->series, 1, hashes, n, false);
	free(hashes);
	return hits;
}

static struct hc_node_stats stats(struct fixture *f)
{
	struct hc_node_stats s;

	hc_node_stats(f->node, &s);
	return s;
}

static void flush(struct fixture *f)
{
	uint64_t left = 1;

	assert_int_equal(hc_node_sync(f->node, soon(20000), &left), 0);
	assert_int_equal(left, 0);
}

static void drop_memory(struct fixture *f)
{
	struct hc_evict_result result;

	assert_int_equal(hc_node_evict(f->node, NULL, 0, true, soon(20000), &result), 0);
	assert_int_equal(result.n_kept, 0);
	assert_int_equal(stats(f).n_pages_memory, 0);
}

/* The page file of (chain, depth). */
static void page_path(struct fixture *f, uint32_t chain, uint32_t depth, char *path, size_t room)
{
	struct hc_hash hash = hash_of(chain, depth);
	char text[HC_HASH_TEXT], dir[256];
	struct dirent *item;
	DIR *d;

	hc_hash_format(&hash, text);
	snprintf(dir, sizeof(dir), "%s/pages/%.3s", f->dir, text);
	d = opendir(dir);
	assert_non_null(d);
	path[0] = 0;
	while ((item = readdir(d))) {
		if (strstr(item->d_name, text))
			snprintf(path, room, "%s/%s", dir, item->d_name);
	}
	closedir(d);
	assert_true(path[0]);
}

static void test_round_trip(void **state)
{
	struct fixture *f = *state;

	node_up(f);
	assert_int_equal(put(f, 1, 0, 10), 10);
	assert_int_equal(exists(f, 1, 12), 10);
	assert_int_equal(get(f, 1, 12), 10);
	assert_int_equal(get(f, 2, 3), 0);
	/* The first stays. */
	assert_int_equal(put(f, 1, 0, 10), 0);
	assert_int_equal(stats(f).publish_existing, 10);
	assert_int_equal(stats(f).n_refs, 0);
}

static void test_disk(void **state)
{
	struct fixture *f = *state;

	node_up(f);
	assert_int_equal(put(f, 1, 0, 10), 10);
	flush(f);
	assert_int_equal(stats(f).n_pages_disk, 10);
	drop_memory(f);
	assert_int_equal(exists(f, 1, 12), 10);
	assert_int_equal(get(f, 1, 12), 10);
	assert_int_equal(stats(f).promoted, 10);
}

static void test_reopen(void **state)
{
	struct fixture *f = *state;

	node_up(f);
	assert_int_equal(put(f, 1, 0, 20), 20);
	node_down(f);
	node_up(f);
	assert_int_equal(exists(f, 1, 20), 20);
	assert_int_equal(get(f, 1, 20), 20);
	/* Removed is removed, also behind a restart. */
	{
		struct hc_hash hash = hash_of(1, 19);

		assert_int_equal(hc_node_remove(f->node, f->series, &hash, 1), 1);
	}
	assert_int_equal(put(f, 1, 19, 20), 1);
	node_down(f);
	node_up(f);
	assert_int_equal(get(f, 1, 20), 20);
}

static void test_pool_eviction(void **state)
{
	struct fixture *f = *state;

	node_up(f);
	/* 8 MiB hold 128 pages; four times as many go through, all stay readable from disk. */
	for (uint32_t chain = 0; chain < 32; chain++) {
		assert_int_equal(put(f, chain, 0, 16), 16);
		flush(f); /* or admission to disk may refuse some */
	}
	for (uint32_t chain = 0; chain < 32; chain++)
		assert_int_equal(get(f, chain, 16), 16);
	assert_true(stats(f).evicted_memory > 0);
	assert_int_equal(stats(f).n_pages, 32 * 16);
}

static void test_two_sizes(void **state)
{
	struct fixture *f = *state;
	uint32_t big;

	f->config.disk_off = true;
	node_up(f);
	assert_int_equal(
		hc_series_open(hc_node_registry(f->node), f->space, "{64}.big", NULL, true, &big),
		0);
	for (int turn = 0; turn < 3; turn++) {
		uint32_t base = (uint32_t)turn * 1000;

		assert_int_equal(put(f, base, 0, 110), 110);
		assert_true(get(f, base, 110) >= 110);
		assert_int_equal(put_sized(f, big, base + 1, 0, 26, 4 * PAGE_BYTES), 26);
		assert_true(get_sized(f, big, base + 1, 26, 4 * PAGE_BYTES) >= 26);
	}
	assert_true(stats(f).recut_segments > 0);
}

/* Goal: a re-cut moves pages only to slots of their own size, also while the node's note of a
 * segment's class lags behind the pool. Method: the note is made wrong by hand. */
static void test_recut_trusts_the_pool(void **state)
{
	struct fixture *f = *state;
	struct hc_domain domain = {0}; /* as put_sized reserves */
	struct hc_class *small;
	uint32_t little;

	f->config.disk_off = true;
	f->config.no_evictor = true;
	node_up(f);
	assert_int_equal(hc_series_open(hc_node_registry(f->node), f->space, "{64}.little", NULL,
					true, &little),
			 0);
	assert_int_equal(put(f, 1, 0, 90), 90);
	assert_int_equal(put_sized(f, little, 2, 0, 1, 8192), 1);
	small = hc_node_class(f->node, &domain, 8192, false);
	assert_non_null(small);
	for (uint32_t i = 0; i < hc_pool_n_segments(f->node->pool); i++) {
		for (uint16_t k = 0; k < atomic_load(&f->node->n_classes); k++) {
			if (f->node->classes[k] == small)
				atomic_store(&f->node->segment_class[i], (uint16_t)(k + 1));
		}
	}
	hc_recut(f->node, small, true);
	assert_true(get(f, 1, 90) > 0);
	assert_int_equal(get_sized(f, little, 2, 1, 8192), 1);
}

static void damage(const char *path, int how)
{
	int fd = open(path, O_RDWR);
	struct stat st;
	char c;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	switch (how) {
	case 0:
		assert_int_equal(pread(fd, &c, 1, st.st_size / 2), 1);
		c = (char)(c ^ 0x40);
		assert_int_equal(pwrite(fd, &c, 1, st.st_size / 2), 1);
		break;
	case 1:
		assert_int_equal(ftruncate(fd, st.st_size - 1), 0);
		break;
	case 2:
		assert_int_equal(pwrite(fd, "x", 1, st.st_size), 1);
		break;
	default:
		assert_int_equal(unlink(path), 0);
	}
	close(fd);
}

static void test_damage(void **state)
{
	struct fixture *f = *state;
	char path[512];

	node_up(f);
	for (uint32_t how = 0; how < 4; how++)
		assert_int_equal(put(f, how, 0, 3), 3);
	drop_memory(f);
	for (uint32_t how = 0; how < 4; how++) {
		page_path(f, how, 1, path, sizeof(path));
		damage(path, (int)how);
		assert_int_equal(get(f, how, 3), 1);
		/* Not there any more, so it is written again. */
		assert_int_equal(exists(f, how, 3), 1);
		assert_int_equal(put(f, how, 1, 2), 1);
		assert_int_equal(get(f, how, 3), 3);
	}
	assert_int_equal(stats(f).bad_checksum, 3);
	assert_int_equal(stats(f).bad_missing, 1);
	assert_int_equal(stats(f).quarantined, 3);
}

static void test_scrub_finds_flips(void **state)
{
	struct fixture *f = *state;
	struct hc_verify_result result;
	char path[512];

	node_up(f);
	assert_int_equal(put(f, 1, 0, 8), 8);
	flush(f);
	page_path(f, 1, 5, path, sizeof(path));
	damage(path, 0);
	assert_int_equal(hc_node_verify(f->node, NULL, NULL, &result), 0);
	assert_int_equal(result.n_checked, 8);
	assert_int_equal(result.n_bad, 1);
	assert_int_equal(stats(f).bad_scrub, 1);
	assert_int_equal(exists(f, 1, 8), 5);
}

static void test_lease_outlives_removal(void **state)
{
	struct fixture *f = *state;
	struct hc_acquire how = {.deadline_ns = soon(1000)};
	struct hc_hash hash = hash_of(1, 0);
	struct hc_evict_result result;
	struct hc_ref ref;
	size_t got;

	node_up(f);
	how.series = f->series;
	assert_int_equal(put(f, 1, 0, 1), 1);
	assert_int_equal(hc_node_acquire(f->node, &how, &hash, 1, &ref, &got), 0);
	flush(f);
	assert_int_equal(hc_node_evict(f->node, NULL, 0, false, soon(1000), &result), 0);
	assert_int_equal(result.n_kept, 1);
	assert_int_equal(hc_node_remove(f->node, f->series, &hash, 1), 1);
	assert_int_equal(exists(f, 1, 1), 0);
	for (uint32_t chain = 10; chain < 30; chain++)
		put(f, chain, 0, 16);
	assert_true(page_right(ref.data, PAGE_BYTES, &hash));
	hc_node_release(f->node, &ref, 1);
	assert_int_equal(stats(f).n_refs, 0);
}

static void test_quota(void **state)
{
	struct fixture *f = *state;
	struct hc_space_info info = {.quota_bytes = 10 * PAGE_BYTES};

	node_up(f);
	assert_int_equal(
		hc_space_set(hc_node_registry(f->node), f->space, &info, HC_SPACE_SET_QUOTA), 0);
	for (uint32_t chain = 0; chain < 10; chain++) {
		put(f, chain, 0, 4);
		flush(f); /* dirty pages are no victims: a new page could be the only one that is
			     not */
		assert_true(hc_space_used(hc_node_registry(f->node), f->space) <= 10 * PAGE_BYTES);
	}
	assert_int_equal(get(f, 9, 4), 4);
	assert_int_equal(exists(f, 0, 4), 0);
}

static void test_max_age(void **state)
{
	struct fixture *f = *state;
	struct hc_space_info info = {.max_age_s = 100};
	uint64_t mono = hc_clock_now_ns(), wall = hc_clock_wall_ns();

	f->config.no_evictor = true;
	node_up(f);
	assert_int_equal(
		hc_space_set(hc_node_registry(f->node), f->space, &info, HC_SPACE_SET_MAX_AGE), 0);
	hc_clock_fake_set_ns(mono, wall);
	assert_int_equal(put(f, 1, 0, 3), 3);
	flush(f);
	hc_clock_fake_set_ns(mono, wall + 99 * HC_NS_PER_S);
	assert_int_equal(exists(f, 1, 3), 3);
	hc_clock_fake_set_ns(mono, wall + 101 * HC_NS_PER_S);
	assert_int_equal(exists(f, 1, 3), 0);
	assert_int_equal(get(f, 1, 3), 0);
	hc_node_maintain(f->node, 0);
	assert_int_equal(stats(f).n_pages, 0);
	assert_int_equal(stats(f).expired, 3);
}

/* Engines make their directories once: an hour in which all of its pages expire leaves it. */
static void test_empty_directory_stays(void **state)
{
	struct fixture *f = *state;
	struct hc_space_info info = {.max_age_s = 100}, space;
	uint64_t mono = hc_clock_now_ns(), wall = hc_clock_wall_ns();
	struct hc_owner owner = {0, 0, 0755};
	struct hc_registry *registry;
	struct hc_dir_info dir, again;

	f->config.no_evictor = true;
	node_up(f);
	registry = hc_node_registry(f->node);
	assert_int_equal(hc_space_find(registry, "m", &space), 0);
	assert_int_equal(hc_dir_make(registry, space.dir, "shard", &owner, &dir), 0);
	assert_int_equal(hc_space_set(registry, f->space, &info, HC_SPACE_SET_MAX_AGE), 0);
	f->dir_id = dir.id;
	for (uint64_t minute = 0; minute <= 60; minute += 5) {
		hc_clock_fake_set_ns(mono, wall + minute * 60 * HC_NS_PER_S);
		assert_int_equal(put(f, 1 + (uint32_t)minute, 0, 3), 3);
		flush(f);
		assert_int_equal(hc_node_dir_n_pages(f->node, dir.id) >= 3, 1);
		hc_node_maintain(f->node, 0);
	}
	hc_clock_fake_set_ns(mono, wall + 3800 * HC_NS_PER_S);
	hc_node_maintain(f->node, 0);
	assert_int_equal(hc_node_dir_n_pages(f->node, dir.id), 0);
	assert_int_equal(hc_dir_find(registry, space.dir, "shard", &again), 0);
	assert_int_equal(again.id, dir.id);
}

static void test_memory_only(void **state)
{
	struct fixture *f = *state;
	char path[128];

	f->config.disk_off = true;
	node_up(f);
	assert_int_equal(put(f, 1, 0, 16), 16);
	assert_int_equal(get(f, 1, 16), 16);
	for (uint32_t chain = 2; chain < 20; chain++)
		assert_int_equal(put(f, chain, 0, 16), 16);
	assert_int_equal(stats(f).n_pages_disk, 0);
	assert_true(stats(f).n_pages <= 128);
	snprintf(path, sizeof(path), "%s/pages", f->dir);
	node_down(f);
	node_up(f);
	assert_int_equal(stats(f).n_pages, 0);
}

/* A full disk is a failed backup, never a failure of the cache; chains stay whole on disk. */
static void test_disk_errors(void **state)
{
	struct fixture *f = *state;
	struct hc_fault_rule rule = {
		.op = HC_STORE_PUT, .kind = HC_FAULT_ERROR, .error = -ENOSPC, .nth = 3};
	uint64_t left;

	f->config.wrap_store = wrap_fault;
	f->config.wrap_arg = f;
	node_up(f);
	hc_store_fault_set(f->fault, &rule);
	assert_int_equal(put(f, 1, 0, 6), 6);
	while (stats(f).n_dirty)
		hc_node_maintain(f->node, 0);
	/* Descendants published after the failure were not even tried. */
	assert_int_equal(stats(f).backup_failed + stats(f).backup_skipped + stats(f).backed_up, 6);
	assert_int_equal(stats(f).n_pages_disk, 2);
	assert_int_equal(get(f, 1, 6), 6);
	/* Asked for, it is tried again. */
	assert_int_equal(hc_node_sync(f->node, soon(10000), &left), 0);
	assert_int_equal(left, 0);
	assert_int_equal(stats(f).n_pages_disk, 6);
}

static void test_hung_write_slows_nobody(void **state)
{
	struct fixture *f = *state;
	struct hc_fault_rule rule = {
		.op = HC_STORE_PUT, .kind = HC_FAULT_HANG, .rate_ppm = 1000000};

	f->config.wrap_store = wrap_fault;
	f->config.wrap_arg = f;
	node_up(f);
	assert_int_equal(put(f, 1, 0, 4), 4);
	flush(f);
	drop_memory(f);
	hc_store_fault_set(f->fault, &rule);
	assert_int_equal(put(f, 2, 0, 4), 4);
	assert_int_equal(get(f, 2, 4), 4);
	assert_int_equal(get(f, 1, 4), 4);
	rule.kind = HC_FAULT_NONE;
	hc_store_fault_set(f->fault, &rule);
	flush(f);
}

static void test_sync_page(void **state)
{
	struct fixture *f = *state;
	struct hc_page_info info;
	struct hc_key key;

	f->config.backup = HC_BACKUP_OFF;
	node_up(f);
	assert_int_equal(put(f, 1, 0, 5), 5);
	key = (struct hc_key){f->series, hash_of(1, 3)};
	assert_int_equal(hc_node_stat(f->node, &key, false, &info), 0);
	assert_int_equal(stats(f).n_pages_disk, 0);
	/* With its ancestors: a page on disk never lacks a known parent. */
	assert_int_equal(hc_node_sync_page(f->node, info.entry, info.sequence, soon(5000)), 0);
	assert_int_equal(stats(f).n_pages_disk, 4);
	node_down(f);
	node_up(f);
	assert_int_equal(get(f, 1, 5), 5);
}

static void test_rebuild(void **state)
{
	struct fixture *f = *state;
	char path[128];
	uint64_t deadline;

	node_up(f);
	assert_int_equal(put(f, 1, 0, 9), 9);
	node_down(f);
	snprintf(path, sizeof(path), "%s/catalog.mdb", f->dir);
	assert_int_equal(unlink(path), 0);
	node_up(f);
	for (deadline = soon(20000); stats(f).rebuilding && hc_clock_now_ns() < deadline;)
		sched_yield();
	assert_int_equal(stats(f).rebuilt, 9);
	assert_int_equal(get(f, 1, 9), 9);
	node_down(f);
	node_up(f);
	assert_int_equal(get(f, 1, 9), 9);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
	cmocka_unit_test_setup_teardown(test_disk, setup, teardown),
	cmocka_unit_test_setup_teardown(test_reopen, setup, teardown),
	cmocka_unit_test_setup_teardown(test_pool_eviction, setup, teardown),
	cmocka_unit_test_setup_teardown(test_two_sizes, setup, teardown),
	cmocka_unit_test_setup_teardown(test_recut_trusts_the_pool, setup, teardown),
	cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
	cmocka_unit_test_setup_teardown(test_scrub_finds_flips, setup, teardown),
	cmocka_unit_test_setup_teardown(test_lease_outlives_removal, setup, teardown),
	cmocka_unit_test_setup_teardown(test_quota, setup, teardown),
	cmocka_unit_test_setup_teardown(test_max_age, setup, teardown),
	cmocka_unit_test_setup_teardown(test_empty_directory_stays, setup, teardown),
	cmocka_unit_test_setup_teardown(test_memory_only, setup, teardown),
	cmocka_unit_test_setup_teardown(test_disk_errors, setup, teardown),
	cmocka_unit_test_setup_teardown(test_hung_write_slows_nobody, setup, teardown),
	cmocka_unit_test_setup_teardown(test_sync_page, setup, teardown),
	cmocka_unit_test_setup_teardown(test_rebuild, setup, teardown),
};

HC_TEST_MAIN(tests)
