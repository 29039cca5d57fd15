/* SPDX-License-Identifier: Apache-2.0 */
/* What a cache of any size keeps to: names are found without reading directories or files, however
 * many pages there are; the oldest goes first, also after a restart; the index has its limit; a
 * file that cannot be removed holds up nothing; counters only rise. Method: a million rows put into
 * the catalog behind the node's back; look-ups under a filter that kills the process at the first
 * system call on a file; a store that refuses to remove. */
#include "node-rig.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "index/rows.h"
#include "node/internal.h"

#define N_DIRS    256u
#define N_LOOKUPS 20000u

/* Fewer where every instruction counts: under valgrind and the sanitizers. */
static uint32_t many(void)
{
	const char *sanitize = getenv("HC_SANITIZE");

	if (getenv("HC_VALGRIND"))
		return 20000;
	return sanitize && strcmp(sanitize, "no") ? 100000 : 1000000;
}

/* --- a million names --- */

/* Page i lies in directory i % N_DIRS, which repeats the first digits of its hash. */
static struct hc_hash sharded_hash(uint32_t i)
{
	struct hc_hash hash = rig_hash(i / 64, i % 64);

	hash.bytes[0] = (uint8_t)(i % N_DIRS);
	return hash;
}

static void sharded_name(uint32_t i, char name[HC_NAME_BYTES])
{
	struct hc_hash hash = sharded_hash(i);
	char text[HC_HASH_TEXT];

	hc_hash_format(&hash, text);
	snprintf(name, HC_NAME_BYTES, "%s.kv", text);
}

static void make_shards(struct rig *rig, uint32_t *dirs)
{
	struct hc_registry *registry = hc_node_registry(rig->node);
	const struct hc_owner owner = {0, 0, 0755};
	struct hc_space_info space;
	struct hc_dir_info dir;
	char name[HC_NAME_BYTES];
	int rc;

	assert_int_equal(hc_space_get(registry, rig->space, &space), 0);
	for (uint32_t i = 0; i < N_DIRS; i++) {
		snprintf(name, sizeof(name), "%02x", i);
		rc = hc_dir_make(registry, space.dir, name, &owner, &dir);
		if (rc == -EEXIST)
			rc = hc_dir_find(registry, space.dir, name, &dir);
		assert_int_equal(rc, 0);
		dirs[i] = dir.id;
	}
}

/* As if each page had been published through the mount, written and catalogued. */
static void put_rows(struct rig *rig, const uint32_t *dirs, uint32_t n)
{
	struct hc_registry *registry = hc_node_registry(rig->node);
	struct hc_catalog *catalog = hc_registry_catalog(registry);
	struct hc_row_page row = {.size_bytes = RIG_PAGE_BYTES, .mode = 0644};
	uint8_t packed[HC_ROW_BYTES_MAX];
	struct hc_key key;
	char name[HC_NAME_BYTES];
	bool opaque;

	sharded_name(0, name);
	assert_int_equal(hc_name_resolve_page(registry, dirs[0], name, true, &key, &opaque), 0);
	assert_false(opaque);
	row.series = key.series;
	row.mtime_ns = hc_clock_wall_ns();
	for (uint32_t i = 0; i < n; i++) {
		row.hash = sharded_hash(i);
		row.dir = dirs[i % N_DIRS];
		assert_int_equal(hc_catalog_put(catalog, HC_TABLE_PAGES,
						hc_registry_next_sequence(registry), packed,
						hc_row_page_pack(&row, packed), false, NULL),
				 0);
	}
	assert_int_equal(hc_catalog_sync(catalog, 0, rig_soon(RIG_WAIT_MS)), 0);
}

/* From here on this thread dies at a system call that opens, reads or looks at a file or directory.
 */
static void forbid_files(void)
{
	static const int calls[] = {
#ifdef SYS_open
		SYS_open,       SYS_stat,    SYS_lstat,  SYS_access,    SYS_getdents,
		SYS_newfstatat,
#endif
		SYS_openat,     SYS_openat2, SYS_statx,  SYS_faccessat, SYS_getdents64,
		SYS_read,       SYS_pread64, SYS_preadv, SYS_getxattr,  SYS_fgetxattr,
	};
	struct sock_filter filter[HC_ARRAY_SIZE(calls) + 3];
	struct sock_fprog program = {.filter = filter};
	unsigned short n = 0;

	filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						   offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < HC_ARRAY_SIZE(calls); i++)
		filter[n++] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i],
						     (unsigned char)(HC_ARRAY_SIZE(calls) - i), 0);
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	program.len = n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(77);
}

/* Names, as the mount resolves them, then keys, as the library asks; there and absent, in random
 * order. */
static int look_up(struct rig *rig, const uint32_t *dirs, uint32_t n)
{
	struct hc_registry *registry = hc_node_registry(rig->node);
	struct hc_page_info info;
	struct hc_hash hashes[64];
	struct hc_key key;
	char name[HC_NAME_BYTES];
	struct hc_rng rng;
	bool opaque;

	hc_rng_seed(&rng, 55);
	for (uint32_t k = 0; k < N_LOOKUPS; k++) {
		/* Every other one is beyond the last. */
		uint32_t i = (uint32_t)(hc_rng_next(&rng) % n) + (k % 2 ? n : 0);
		int rc;

		sharded_name(i, name);
		rc = hc_name_resolve_page(registry, dirs[i % N_DIRS], name, true, &key, &opaque);
		if (rc || opaque)
			return 1;
		rc = hc_node_stat(rig->node, &key, true, &info);
		if (k % 2 ? rc != -ENOENT
			  : rc || info.size_bytes != RIG_PAGE_BYTES || info.dir != dirs[i % N_DIRS])
			return 2;
		for (uint32_t j = 0; j < 64; j++)
			hashes[j] = sharded_hash(i + j);
		if (hc_node_exists_prefix(rig->node, &key.series, 1, hashes, 64, false) !=
		    (i >= n ? 0 : hc_min_u64(64, n - i)))
			return 3;
	}
	return 0;
}

static int in_child(int (*body)(struct rig *, const uint32_t *, uint32_t), struct rig *rig,
		    const uint32_t *dirs, uint32_t n)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		/* Its own node: threads do not cross a fork. */
		rig_up(rig);
		forbid_files();
		_exit(body(rig, dirs, n));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* That the filter bites. */
static int read_dir(struct rig *rig, const uint32_t *dirs, uint32_t n)
{
	DIR *dir = opendir(rig->dir);

	(void)dirs;
	(void)n;
	return dir && readdir(dir) ? 0 : 1;
}

static void test_million_names(void **state)
{
	struct rig *rig = *state;
	uint32_t dirs[N_DIRS], n = many();
	int rc;

	rig->config.index_bytes = 1024 * HC_MIB;
	rig->config.disk_bytes = 1024 * 1024 * HC_MIB;
	rig->config.no_evictor = true; /* nor a scrubber, which would miss the files */
	rig_up(rig);
	make_shards(rig, dirs);
	put_rows(rig, dirs, n);
	rig_down(rig);
	rc = in_child(read_dir, rig, dirs, n);
	/* ThreadSanitizer reads files of its own. */
	if (rc == 77 || getenv("HC_VALGRIND") || IS_TSAN)
		hc_test_skip("system calls cannot be filtered here");
	assert_int_equal(rc, -SIGSYS);
	assert_int_equal(in_child(look_up, rig, dirs, n), 0);
	rig_up(rig);
	assert_int_equal(rig_stats(rig).n_pages, n);
}

/* --- the oldest first, also after a restart --- */

#define N_CHAINS 12u
#define CHAIN    4u

static void test_oldest_after_restart(void **state)
{
	struct rig *rig = *state;
	struct hc_node_limits limits;

	rig->config.disk_bytes = 64 * HC_MIB;
	rig->config.max_page_bytes = RIG_PAGE_BYTES; /* room is kept for one of them */
	rig_up(rig);
	for (uint32_t chain = 0; chain < N_CHAINS; chain++)
		assert_int_equal(rig_put(rig, chain, 0, CHAIN), CHAIN);
	rig_flush(rig);
	/* Reading makes the two oldest the newest. */
	assert_int_equal(rig_get(rig, 1, CHAIN), CHAIN);
	assert_int_equal(rig_get(rig, 0, CHAIN), CHAIN);
	rig_down(rig);
	rig_up(rig);
	/* Memory is empty. Room for 6 of the 12 chains; a page more or less of the sixth. */
	hc_node_limits_get(rig->node, &limits);
	limits.disk_bytes = 6 * CHAIN * RIG_PAGE_BYTES;
	limits.high_ppm = limits.low_ppm = 1000000;
	hc_node_limits_set(rig->node, &limits);
	rig_wait(rig_stats(rig).disk_used_bytes <= limits.disk_bytes);
	for (uint32_t chain = 0; chain < N_CHAINS; chain++) {
		size_t there = rig_exists(rig, chain, CHAIN, false);

		if (chain == N_CHAINS - 4)
			assert_true(there >= CHAIN - 1);
		else
			assert_int_equal(there, chain < 2 || chain > N_CHAINS - 4 ? CHAIN : 0);
	}
	assert_int_equal(rig_get(rig, 0, CHAIN), CHAIN);
	assert_int_equal(rig_get(rig, N_CHAINS - 1, CHAIN), CHAIN);
	/* A page above the limit is refused, and takes nothing away. */
	{
		struct hc_reserve how = {
			.space = rig->space,
			.size_bytes = rig->config.max_page_bytes + 1,
			.numa_node = -1,
			.deadline_ns = rig_soon(RIG_WAIT_MS),
		};
		struct hc_ref ref;
		size_t got;

		assert_int_equal(hc_node_reserve(rig->node, &how, 1, &ref, &got), -EFBIG);
	}
	assert_true(rig_stats(rig).n_pages >= 6 * CHAIN - 1);
}

/* --- memory of the index --- */

static void test_index_memory(void **state)
{
	struct rig *rig = *state;
	uint64_t n_max = 100;

	rig->config.index_bytes = n_max * HC_INDEX_PAGE_BYTES;
	rig->config.disk_bytes = 1024 * HC_MIB;
	rig_up(rig);
	for (uint32_t chain = 0; chain < 60; chain++) {
		assert_int_equal(rig_put(rig, chain, 0, CHAIN), CHAIN);
		rig_quiet(rig);
	}
	assert_true(rig_stats(rig).published == 60 * CHAIN);
	/* The disk gives way as if it were full, long before it is. */
	assert_int_equal(hc_node_evict(rig->node, NULL, 0, true, rig_soon(RIG_WAIT_MS),
				       &(struct hc_evict_result){0}),
			 0);
	rig_wait(rig_stats(rig).n_pages <= n_max);
	assert_true(rig_stats(rig).n_pages > n_max / 4);
	assert_true(rig_stats(rig).evicted_disk > 0);
	assert_int_equal(rig_get(rig, 59, CHAIN), CHAIN);
	assert_int_equal(rig_exists(rig, 0, CHAIN, false), 0);
}

/* --- a sync of more than the disk may hold --- */

/* Goal: pages that a sync wrote, and that went from the disk again to make room for the next, met
 * the limit of the disk: ENOSPC, and no EIO, however much is free when it ends. Method: three times
 * what the disk may hold in memory; the evictor frees up to the low mark. */
static void test_sync_over_limit(void **state)
{
	struct rig *rig = *state;
	uint64_t n_left = 0;

	rig->config.max_page_bytes = RIG_PAGE_BYTES;
	rig->config.disk_bytes = 40 * RIG_PAGE_BYTES;
	rig->config.high_ppm = 900000;
	rig->config.low_ppm = 500000;
	rig->config.backup = HC_BACKUP_OFF;
	rig_up(rig);
	for (uint32_t chain = 0; chain < 30; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 4), 4);
	assert_int_equal(rig_stats(rig).n_pages_disk, 0);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(hc_node_sync(rig->node, rig_soon(RIG_WAIT_MS), &n_left), -ENOSPC);
		assert_true(n_left > 0 && n_left < 120);
	}
}

/* --- files that cannot be removed --- */

static void test_unremovable(void **state)
{
	struct rig *rig = *state;
	struct hc_fault_rule rule = {
		.op = HC_STORE_REMOVE, .kind = HC_FAULT_ERROR, .error = -EPERM, .rate_ppm = 300000};
	size_t there[100];
	uint64_t n_removed, bytes, n_disk;

	rig_faulty(rig);
	rig->config.max_page_bytes = RIG_PAGE_BYTES;
	rig->config.disk_bytes = 40 * RIG_PAGE_BYTES;
	rig_up(rig);
	hc_store_fault_set(rig->fault, &rule);
	for (uint32_t chain = 0; chain < 100; chain++) {
		assert_int_equal(rig_put(rig, chain, 0, CHAIN), CHAIN);
		rig_quiet(rig);
		rig_wait(rig_stats(rig).disk_used_bytes <= rig->config.disk_bytes);
		/* What was just put is always there, and right. */
		assert_int_equal(rig_get(rig, chain, CHAIN), CHAIN);
	}
	assert_true(rig_stats(rig).evicted_disk > 200);
	rule.kind = HC_FAULT_NONE;
	hc_store_fault_set(rig->fault, &rule);
	/* Some files stayed behind; nothing that was evicted or removed comes back with them. */
	rig_quiet(rig);
	for (uint32_t chain = 0; chain < 100; chain++)
		there[chain] = rig_exists(rig, chain, CHAIN, false);
	/* How many depends on how soon the sweep takes the files that stayed: they use the disk. */
	n_disk = rig_stats(rig).n_pages_disk;
	rig_down(rig);
	rig_up(rig);
	assert_true(rig_stats(rig).disk_used_bytes <= rig->config.disk_bytes);
	assert_true(!n_disk || rig_stats(rig).n_pages);
	for (uint32_t chain = 0; chain < 100; chain++)
		assert_true(rig_exists(rig, chain, CHAIN, false) <= there[chain]);
	assert_int_equal(hc_node_gc(rig->node, &n_removed, &bytes), 0);
	assert_int_equal(rig_count_files(rig->dir), rig_stats(rig).n_pages_disk);
}

/* --- counters --- */

static void counters_of(struct rig *rig, uint64_t *values, size_t *n_p)
{
	struct hc_node_stats s = rig_stats(rig);
	size_t n = 0;

#define COUNTER_VALUE(name) values[n++] = s.name;
	HC_NODE_COUNTERS(COUNTER_VALUE)
#undef COUNTER_VALUE
	hc_space_counters(hc_node_registry(rig->node), rig->space, values + n);
	*n_p = n + HC_SPACE_N_COUNTERS;
}

static void test_counters_rise(void **state)
{
	struct rig *rig = *state;
	uint64_t before[256] = {0}, after[256], space[HC_SPACE_N_COUNTERS];
	struct hc_evict_result gone;
	struct hc_node_stats s;
	struct hc_rng rng;
	size_t n;

	rig->config.disk_bytes = 3 * HC_MIB;
	rig_up(rig);
	hc_rng_seed(&rng, 65);
	for (int round = 0; round < 400; round++) {
		uint32_t chain = (uint32_t)(hc_rng_next(&rng) % 60);
		struct hc_hash hash = rig_hash(chain, CHAIN - 1);

		switch (hc_rng_next(&rng) % 4) {
		case 0:
		case 1:
			rig_put(rig, chain, 0, CHAIN);
			break;
		case 2:
			rig_get(rig, chain, CHAIN + 1);
			break;
		case 3:
			if (round % 10 == 0)
				assert_int_equal(hc_node_evict(rig->node, NULL, 0, true,
							       rig_soon(RIG_WAIT_MS), &gone),
						 0);
			else
				hc_node_remove(rig->node, rig->series[0], &hash, 1);
		}
		counters_of(rig, after, &n);
		assert_true(n < HC_ARRAY_SIZE(after));
		for (size_t i = 0; i < n; i++)
			assert_true(after[i] >= before[i]);
		memcpy(before, after, sizeof(before));
	}
	/* One space did it all. */
	rig_quiet(rig);
	s = rig_stats(rig);
	hc_space_counters(hc_node_registry(rig->node), rig->space, space);
	assert_true(s.published > 100 && s.hits_memory > 10 && s.hits_disk > 0 && s.misses > 10 &&
		    s.evicted_disk > 0);
#define COUNTER_SAME(name) assert_int_equal(space[HC_SPACE_COUNT_##name], s.name);
	COUNTER_SAME(lookups)
	COUNTER_SAME(lookup_hits)
	COUNTER_SAME(hits_memory)
	COUNTER_SAME(hits_disk)
	COUNTER_SAME(misses)
	COUNTER_SAME(published)
	COUNTER_SAME(published_bytes)
	COUNTER_SAME(bad_checksum)
	COUNTER_SAME(backup_failed)
#undef COUNTER_SAME
}

static const struct CMUnitTest tests[] = {
	rig_test(test_million_names), rig_test(test_oldest_after_restart),
	rig_test(test_index_memory),  rig_test(test_sync_over_limit),
	rig_test(test_unremovable),   rig_test(test_counters_rise),
};

HC_TEST_MAIN(tests)
