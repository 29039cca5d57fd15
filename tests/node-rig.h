/* SPDX-License-Identifier: Apache-2.0 */
/* A node on temporary directories with small pages, for the tests of src/node/. Bytes of a page are
 * derived from its hash, so that whoever reads one finds any wrong byte. The rig's functions may be
 * called from any thread, except those that open and close. */
#ifndef HC_TEST_NODE_RIG_H
#define HC_TEST_NODE_RIG_H

#include "hctest.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/node.h"
#include "store/fault.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/rng.h"

#define RIG_PAGE_BYTES ((size_t)65536)
#define RIG_DISKS_MAX  3
#define RIG_SERIES_MAX 2
#define RIG_WAIT_MS    60000 /* a machine under load; nothing is judged by it */

struct rig {
	char root[256];
	char dir[288]; /* CACHEDIR */
	char disk_dirs[RIG_DISKS_MAX][288];
	const char *disks[RIG_DISKS_MAX];
	struct hc_node_config config;
	struct hc_node *node;
	struct hc_store *fault; /* with rig_faulty */
	uint32_t space;
	struct hc_domain domain; /* the space's */
	uint32_t series[RIG_SERIES_MAX];
	uint32_t publish_dir; /* of what is published; 0: the series' own */
};

static inline uint64_t rig_soon(uint64_t ms)
{
	return hc_clock_now_ns() + ms * HC_NS_PER_MS;
}

static inline struct hc_hash rig_hash(uint32_t chain, uint32_t depth)
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

static inline uint64_t rig_seed_of(const struct hc_hash *hash, uint32_t series)
{
	uint64_t seed;

	memcpy(&seed, hash->bytes, 8);
	return seed ^ (uint64_t)series << 40;
}

static inline void rig_fill(void *data, size_t n, const struct hc_hash *hash, uint32_t series)
{
	uint64_t seed = rig_seed_of(hash, series);
	uint64_t *p = data;

	for (size_t i = 0; i < n / 8; i++)
		p[i] = seed + i * 0x9e3779b97f4a7c15u;
}

static inline bool rig_right(const void *data, size_t n, const struct hc_hash *hash,
			     uint32_t series)
{
	uint64_t seed = rig_seed_of(hash, series);
	const uint64_t *p = data;

	for (size_t i = 0; i < n / 8; i++) {
		if (p[i] != seed + i * 0x9e3779b97f4a7c15u)
			return false;
	}
	return true;
}

static inline int rig_rm_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static inline struct hc_store *rig_wrap(void *arg, struct hc_store *inner)
{
	struct rig *rig = arg;

	assert_int_equal(hc_store_fault_open(inner, 1, &rig->fault), 0);
	return rig->fault;
}

static inline int rig_setup(void **state)
{
	struct rig *rig = hc_zalloc(sizeof(*rig));

	assert_non_null(rig);
	snprintf(rig->root, sizeof(rig->root), "%s/hctest-node-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
	assert_non_null(mkdtemp(rig->root));
	snprintf(rig->dir, sizeof(rig->dir), "%s/cache", rig->root);
	assert_int_equal(mkdir(rig->dir, 0700), 0);
	for (size_t i = 0; i < RIG_DISKS_MAX; i++) {
		snprintf(rig->disk_dirs[i], sizeof(rig->disk_dirs[i]), "%s/disk%zu", rig->root, i);
		assert_int_equal(mkdir(rig->disk_dirs[i], 0700), 0);
		rig->disks[i] = rig->disk_dirs[i];
	}
	hc_log_set_level(getenv("HC_TEST_VERBOSE") ? HC_LOG_DEBUG : HC_LOG_ERROR);
	rig->config = (struct hc_node_config){
		.cachedir = rig->dir,
		.embedded = true,
		.pool_bytes = 8 * HC_MIB,
		.segment_bytes = 2 * HC_MIB,
		.max_page_bytes = HC_MIB,
		.root = {0, 0, 0755},
		.dirty_ppm = 900000,
	};
	*state = rig;
	return 0;
}

static inline void rig_faulty(struct rig *rig)
{
	rig->config.wrap_store = rig_wrap;
	rig->config.wrap_arg = rig;
}

static inline void rig_several_disks(struct rig *rig)
{
	rig->config.disks = rig->disks;
	rig->config.n_disks = RIG_DISKS_MAX;
}

static inline void rig_up(struct rig *rig)
{
	static const char *const patterns[RIG_SERIES_MAX] = {"{64}.r0", "{64}.r1"};
	struct hc_owner owner = {0, 0, 0755};
	struct hc_space_info space;
	struct hc_registry *registry;
	struct hc_dir_info dir;
	int rc;

	assert_int_equal(hc_node_open(&rig->config, &rig->node), 0);
	registry = hc_node_registry(rig->node);
	rc = hc_dir_make(registry, HC_DIR_ROOT, "m", &owner, &dir);
	assert_true(rc == 0 || rc == -EEXIST);
	assert_int_equal(hc_space_find(registry, "m", &space), 0);
	rig->space = space.id;
	rig->domain = (struct hc_domain){space.owner.uid, space.owner.gid, space.owner.mode};
	for (size_t i = 0; i < RIG_SERIES_MAX; i++)
		assert_int_equal(hc_series_open(registry, space.id, patterns[i], NULL, true,
						&rig->series[i]),
				 0);
}

static inline void rig_down(struct rig *rig)
{
	hc_node_close(rig->node, NULL);
	rig->node = NULL;
	rig->fault = NULL;
}

static inline int rig_teardown(void **state)
{
	struct rig *rig = *state;

	hc_clock_fake_off();
	if (rig->node)
		rig_down(rig);
	nftw(rig->root, rig_rm_one, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	free(rig);
	return 0;
}

static inline struct hc_node_stats rig_stats(struct rig *rig)
{
	struct hc_node_stats s;

	hc_node_stats(rig->node, &s);
	return s;
}

/* Publishes one page; 0 or why not. */
static inline int rig_put_sized(struct rig *rig, uint32_t series, uint32_t chain, uint32_t depth,
				size_t size_bytes, uint64_t deadline_ns)
{
	struct hc_reserve how = {
		.space = rig->space,
		.size_bytes = size_bytes,
		.numa_node = -1,
		.domain = rig->domain,
		.deadline_ns = deadline_ns,
	};
	struct hc_publish item = {
		.key = {series, rig_hash(chain, depth)},
		.depth = depth,
		.size_bytes = size_bytes,
		.dir = rig->publish_dir,
	};
	struct hc_ref ref;
	size_t got;
	int rc = hc_node_reserve(rig->node, &how, 1, &ref, &got);

	if (rc)
		return rc;
	rig_fill(ref.data, size_bytes, &item.key.hash, series);
	if (depth)
		item.parent = rig_hash(chain, depth - 1);
	hc_node_publish(rig->node, &ref, &item, 1, &rc);
	return rc;
}

static inline int rig_put_one(struct rig *rig, uint32_t series, uint32_t chain, uint32_t depth,
			      uint64_t deadline_ns)
{
	return rig_put_sized(rig, series, chain, depth, RIG_PAGE_BYTES, deadline_ns);
}

/* Pages [from, to) of a chain; how many were taken. */
static inline int rig_put(struct rig *rig, uint32_t chain, uint32_t from, uint32_t to)
{
	int n = 0;

	for (uint32_t i = from; i < to; i++)
		n += !rig_put_one(rig, rig->series[0], chain, i, rig_soon(RIG_WAIT_MS));
	return n;
}

/* Acquires the chain's first n pages and checks their bytes; how many leading ones were to be had.
 */
static inline size_t rig_get_within(struct rig *rig, uint32_t series, uint32_t chain, uint32_t n,
				    size_t size_bytes, uint32_t wait_ms)
{
	struct hc_acquire how = {.series = series, .deadline_ns = rig_soon(wait_ms)};
	struct hc_hash *hashes = calloc(n, sizeof(*hashes));
	struct hc_ref *refs = calloc(n, sizeof(*refs));
	size_t got = 0;

	for (uint32_t i = 0; i < n; i++)
		hashes[i] = rig_hash(chain, i);
	if (hc_node_acquire(rig->node, &how, hashes, n, refs, &got))
		assert_int_equal(got, 0);
	for (size_t i = 0; i < got; i++) {
		assert_int_equal(refs[i].size_bytes, size_bytes);
		assert_true(rig_right(refs[i].data, size_bytes, &hashes[i], series));
	}
	hc_node_release(rig->node, refs, got);
	free(hashes);
	free(refs);
	return got;
}

static inline size_t rig_get_sized(struct rig *rig, uint32_t series, uint32_t chain, uint32_t n,
				   size_t size_bytes)
{
	return rig_get_within(rig, series, chain, n, size_bytes, RIG_WAIT_MS);
}

static inline size_t rig_get(struct rig *rig, uint32_t chain, uint32_t n)
{
	return rig_get_sized(rig, rig->series[0], chain, n, RIG_PAGE_BYTES);
}

static inline bool rig_info(struct rig *rig, uint32_t series, uint32_t chain, uint32_t depth,
			    struct hc_page_info *info_p)
{
	struct hc_key key = {series, rig_hash(chain, depth)};

	return !hc_node_stat(rig->node, &key, false, info_p);
}

static inline bool rig_there(struct rig *rig, uint32_t chain, uint32_t depth)
{
	struct hc_page_info info;

	return rig_info(rig, rig->series[0], chain, depth, &info);
}

static inline bool rig_on_disk(struct rig *rig, uint32_t series, uint32_t chain, uint32_t depth)
{
	struct hc_page_info info;

	return rig_info(rig, series, chain, depth, &info) && info.on_disk;
}

static inline size_t rig_exists(struct rig *rig, uint32_t chain, uint32_t n, bool touch)
{
	struct hc_hash *hashes = calloc(n, sizeof(*hashes));
	size_t hits;

	for (uint32_t i = 0; i < n; i++)
		hashes[i] = rig_hash(chain, i);
	hits = hc_node_exists_prefix(rig->node, &rig->series[0], 1, hashes, n, touch);
	free(hashes);
	return hits;
}

static inline void rig_flush(struct rig *rig)
{
	uint64_t left = 1;

	assert_int_equal(hc_node_sync(rig->node, rig_soon(RIG_WAIT_MS), &left), 0);
	assert_int_equal(left, 0);
}

static inline void rig_drop_memory(struct rig *rig)
{
	struct hc_evict_result result;

	assert_int_equal(hc_node_evict(rig->node, NULL, 0, true, rig_soon(RIG_WAIT_MS), &result),
			 0);
	assert_int_equal(result.n_kept, 0);
	assert_int_equal(rig_stats(rig).n_pages_memory, 0);
}

/* Waits until no page is dirty. */
static inline void rig_quiet(struct rig *rig)
{
	uint64_t deadline_ns = rig_soon(RIG_WAIT_MS);

	while (rig_stats(rig).n_dirty && hc_clock_now_ns() < deadline_ns)
		sched_yield();
	assert_int_equal(rig_stats(rig).n_dirty, 0);
}

static inline void rig_fault(struct rig *rig, enum hc_store_op op, enum hc_fault_kind kind,
			     int error)
{
	struct hc_fault_rule rule = {.op = op, .kind = kind, .error = error, .rate_ppm = 1000000};

	hc_store_fault_set(rig->fault, &rule);
}

/* Waits for a condition that background work brings about. */
#define rig_wait(condition)                                                 \
	do {                                                                \
		uint64_t rig_deadline_ns = rig_soon(RIG_WAIT_MS);           \
                                                                            \
		while (!(condition) && hc_clock_now_ns() < rig_deadline_ns) \
			sched_yield();                                      \
		assert_true(condition);                                     \
	} while (0)

/* How many page files a data directory has. */
static inline size_t rig_count_files(const char *data_dir)
{
	char path[4096];
	size_t n = 0;
	struct dirent *item;
	DIR *pages;

	snprintf(path, sizeof(path), "%s/pages", data_dir);
	pages = opendir(path);
	while (pages && (item = readdir(pages))) {
		struct dirent *file;
		DIR *dir;

		if (item->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/pages/%s", data_dir, item->d_name);
		dir = opendir(path);
		while (dir && (file = readdir(dir)))
			n += file->d_name[0] != '.';
		if (dir)
			closedir(dir);
	}
	if (pages)
		closedir(pages);
	return n;
}

#define rig_test(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

#endif
