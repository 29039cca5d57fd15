/* SPDX-License-Identifier: Apache-2.0 */
/* kill -9 inside publish, write-behind, catalog commit, eviction and re-cut. Goal: after the next
 * start every visible page is whole and right, nothing removed comes back, nothing synced is lost,
 * slots in memory are adopted. Method: this program starts itself as the victim, which notes each
 * finished operation in a file (written before the next one begins) and dies at a named point; the
 * parent opens what is left and compares. */
#include "hctest.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/wait.h>

#include "node/node.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/log.h"
#include "util/rng.h"

#define SMALL_BYTES ((size_t)16384)
#define BIG_BYTES   ((size_t)65536)
#define N_PAGES     400u

/* A note of a finished operation. */
struct note {
	uint32_t what; /* 'p' published, 's' synced, 'r' removed */
	uint32_t page;
};

static const char *self;

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static struct hc_hash hash_of(uint32_t page)
{
	struct hc_hash hash;
	struct hc_rng rng;

	hc_rng_seed(&rng, page + 1);
	for (size_t i = 0; i < 4; i++) {
		uint64_t v = hc_rng_next(&rng);

		memcpy(hash.bytes + 8 * i, &v, 8);
	}
	return hash;
}

static size_t bytes_of(uint32_t page)
{
	return page % 4 == 3 ? BIG_BYTES : SMALL_BYTES;
}

static bool page_right(const void *data, uint32_t page)
{
	struct hc_hash hash = hash_of(page);

	for (size_t at = 0; at < bytes_of(page); at += sizeof(hash)) {
		if (memcmp((const char *)data + at, &hash, sizeof(hash)))
			return false;
	}
	return true;
}

static int node_open(const char *dir, struct hc_node **node_p, uint32_t *series_p,
		     uint32_t *space_p)
{
	static const struct hc_owner owner = {0, 0, 0755};
	char pool[300];
	struct hc_node_config config = {
		.cachedir = dir,
		.pool_path = pool,
		.pool_bytes = 4 * HC_MIB,
		.segment_bytes = 2 * HC_MIB,
		.max_page_bytes = HC_MIB,
		.keep_pool = true,
		.root = owner,
	};
	struct hc_space_info space;
	struct hc_dir_info info;
	int rc;

	snprintf(pool, sizeof(pool), "%s-pool", dir);
	if (mkdir(pool, 0700) && errno != EEXIST)
		return -errno;
	rc = hc_node_open(&config, node_p);
	if (rc)
		return rc;
	rc = hc_dir_make(hc_node_registry(*node_p), HC_DIR_ROOT, "s", &owner, &info);
	if (rc && rc != -EEXIST)
		return rc;
	rc = hc_space_find(hc_node_registry(*node_p), "s", &space);
	if (rc)
		return rc;
	*space_p = space.id;
	return hc_series_open(hc_node_registry(*node_p), space.id, "{64}", NULL, true, series_p);
}

static void note(int fd, uint32_t what, uint32_t page)
{
	struct note n = {what, page};

	if (write(fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
		_exit(4);
}

static void victim_publish(struct hc_node *node, uint32_t series, uint32_t space, uint32_t page)
{
	struct hc_reserve how = {.space = space,
				 .size_bytes = bytes_of(page),
				 .numa_node = -1,
				 .deadline_ns = hc_clock_now_ns() + 5 * HC_NS_PER_S};
	struct hc_publish item = {
		.key = {series, hash_of(page)}, .size_bytes = bytes_of(page), .replace = true};
	struct hc_ref ref;
	size_t got;
	int result;

	if (hc_node_reserve(node, &how, 1, &ref, &got))
		return;
	for (size_t at = 0; at < bytes_of(page); at += sizeof(item.key.hash))
		memcpy((char *)ref.data + at, &item.key.hash, sizeof(item.key.hash));
	hc_node_publish(node, &ref, &item, 1, &result);
}

/* One page, replaced again and again: at every moment there is a body of it. */
static void victim_replace(struct hc_node *node, uint32_t series, uint32_t space)
{
	struct hc_key key = {series, hash_of(0)};
	struct hc_page_info info;

	for (int i = 0; i < 6; i++) {
		victim_publish(node, series, space, 0);
		if (i == 2 && !hc_node_stat(node, &key, false, &info))
			hc_ignore(hc_node_sync_page(node, info.entry, info.sequence,
						    hc_clock_now_ns() + 10 * HC_NS_PER_S));
	}
}

#define SEED_REPLACE 0u

/* Random operations until the crash point is passed (or the steps are done). */
static int victim(const char *dir, const char *notes, uint64_t seed)
{
	int fd = open(notes, O_WRONLY | O_CREAT | O_APPEND, 0600);
	struct hc_node *node;
	uint32_t series, space;
	struct hc_rng rng;

	hc_log_set_level(HC_LOG_ERROR);
	hc_rng_seed(&rng, seed);
	if (fd < 0 || node_open(dir, &node, &series, &space))
		return 3;
	if (seed == SEED_REPLACE)
		victim_replace(node, series, space);
	for (uint32_t step = 0; seed != SEED_REPLACE && step < 1500; step++) {
		/* Sizes come in phases, so that segments are re-cut. */
		uint32_t page = (uint32_t)hc_rng_below(&rng, N_PAGES / 4) * 4 +
				(step / 150 % 2 ? 3 : step % 3);
		struct hc_hash hash = hash_of(page);
		struct hc_key key = {series, hash};
		struct hc_page_info info;
		uint64_t dice = hc_rng_below(&rng, 100);

		if (dice < 80) {
			victim_publish(node, series, space, page);
			note(fd, 'p', page);
		} else if (dice < 90) {
			hc_node_remove(node, series, &hash, 1);
			note(fd, 'r', page);
		} else if (dice < 92 && !hc_node_stat(node, &key, false, &info) &&
			   !hc_node_sync_page(node, info.entry, info.sequence,
					      hc_clock_now_ns() + 10 * HC_NS_PER_S)) {
			note(fd, 's', page);
		}
	}
	hc_node_close(node, NULL);
	return 0;
}

/* What must hold for a page: the last notes decide. */
struct expect {
	bool gone;   /* removed, and not published since */
	bool synced; /* synced, and neither removed nor replaced since */
};

static void read_notes(const char *path, struct expect *expect, uint32_t *pending_p)
{
	struct note n;
	int fd = open(path, O_RDONLY);

	assert_true(fd >= 0);
	*pending_p = 0;
	while (read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n)) {
		expect[n.page].gone = n.what == 'r';
		expect[n.page].synced = n.what == 's';
		++*pending_p;
	}
	close(fd);
}

static void look(const char *dir, const struct expect *expect, uint64_t *adopted_p)
{
	struct hc_node_stats stats;
	struct hc_node *node;
	uint32_t series, space, n_there = 0, n_unexpected = 0, n_lost = 0;
	uint64_t removed, bytes;
	int rc;

	assert_int_equal(node_open(dir, &node, &series, &space), 0);
	hc_node_stats(node, &stats);
	*adopted_p = stats.adopted;
	for (uint32_t page = 0; page < N_PAGES; page++) {
		struct hc_acquire how = {.series = series,
					 .deadline_ns = hc_clock_now_ns() + 10 * HC_NS_PER_S};
		struct hc_hash hash = hash_of(page);
		bool exists = hc_node_exists_prefix(node, &series, 1, &hash, 1, false);
		struct hc_ref ref;
		size_t got;

		rc = hc_node_acquire(node, &how, &hash, 1, &ref, &got);
		assert_int_equal(exists, !rc); /* what is shown is served */
		if (!rc) {
			assert_int_equal(ref.size_bytes, bytes_of(page));
			assert_true(page_right(ref.data, page));
			hc_node_release(node, &ref, 1);
			n_there++;
		}
		/* The operation that was cut may have been any one of them, once. */
		n_unexpected += expect[page].gone && exists;
		n_lost += expect[page].synced && !exists;
	}
	assert_true(n_unexpected <= 1);
	assert_true(n_lost <= 1);
	assert_int_equal(hc_node_gc(node, &removed, &bytes), 0);
	hc_node_stats(node, &stats);
	assert_int_equal(stats.bad_checksum, 0);
	hc_node_close(node, NULL);
	(void)n_there;
}

static int run_victim(const char *dir, const char *notes, const char *point, int nth, uint64_t seed)
{
	char where[96], text[32];
	int status;
	pid_t pid;

	snprintf(where, sizeof(where), "%s:%d", point, nth);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		setenv("HICACHE_CRASH_AT", where, 1);
		execl(self, self, "victim", dir, notes, text, (char *)NULL);
		_exit(5);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_crash_points(void **state)
{
	static const struct {
		const char *name;
		int nth[2];
	} points[] = {
		{"pool-publish-row", {3, 200}},
		{"publish", {5, 301}},
		{"backup-submit", {2, 150}},
		{"store-put-data", {1, 90}},
		{"store-put-xattr", {2, 77}},
		{"backup-row", {3, 120}},
		{"catalog-commit-before", {2, 4}},
		{"catalog-commit-after", {1, 3}},
		{"catalog-journal", {4, 60}},
		{"evict-free", {1, 50}},
		{"remove-row", {8, 40}},
		{"recut-drain", {1, 2}},
		{"recut-move", {1, 9}},
		{"pool-recut", {1, 2}},
		{"pool-free", {1, 90}},
	};
	uint64_t adopted_all = 0;
	unsigned n_killed = 0;

	for (size_t i = 0; i < HC_ARRAY_SIZE(points); i++) {
		for (int k = 0; k < 2; k++) {
			static struct expect expect[N_PAGES];
			char dir[64], notes[80], pool[80];
			uint64_t adopted;
			uint32_t n_notes;
			int status;

			snprintf(dir, sizeof(dir), "%s/hctest-crash-XXXXXX",
				 getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
			assert_non_null(mkdtemp(dir));
			snprintf(notes, sizeof(notes), "%s-notes", dir);
			snprintf(pool, sizeof(pool), "%s-pool", dir);
			memset(expect, 0, sizeof(expect));
			status = run_victim(dir, notes, points[i].name, points[i].nth[k],
					    10 * i + (unsigned)k);
			assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL
							: WEXITSTATUS(status) == 0);
			if (WIFSIGNALED(status))
				n_killed++;
			else
				print_message("%s:%d was not reached\n", points[i].name,
					      points[i].nth[k]);
			read_notes(notes, expect, &n_notes);
			look(dir, expect, &adopted);
			adopted_all += adopted;
			nftw(dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
			nftw(pool, remove_one, 32, FTW_DEPTH | FTW_PHYS);
			unlink(notes);
		}
	}
	/* Points that depend on timing may be missed now and then, but not many. */
	assert_true(n_killed >= HC_ARRAY_SIZE(points) * 2 - 4);
	assert_true(adopted_all > 0);
}

static void test_replaced(void **state)
{
	static const struct {
		const char *name;
		int nth;
	} points[] = {
		{"pool-publish-row", 2}, {"pool-publish-row", 4}, {"publish", 2},
		{"publish", 4},          {"pool-free", 1},        {"pool-free", 3},
		{"evict-free", 1},       {"remove-row", 2},       {"remove-row", 4},
	};

	for (size_t i = 0; i < HC_ARRAY_SIZE(points); i++) {
		char dir[64], notes[80], pool[80];
		struct hc_hash hash = hash_of(0);
		struct hc_node *node;
		uint32_t series, space;
		int status;

		snprintf(dir, sizeof(dir), "%s/hctest-crash-XXXXXX",
			 getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
		assert_non_null(mkdtemp(dir));
		snprintf(notes, sizeof(notes), "%s-notes", dir);
		snprintf(pool, sizeof(pool), "%s-pool", dir);
		status = run_victim(dir, notes, points[i].name, points[i].nth, SEED_REPLACE);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		assert_int_equal(node_open(dir, &node, &series, &space), 0);
		if (hc_node_exists_prefix(node, &series, 1, &hash, 1, false) != 1)
			fail_msg("%s:%d: neither the old body nor the new one", points[i].name,
				 points[i].nth);
		hc_node_close(node, NULL);
		nftw(dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
		nftw(pool, remove_one, 32, FTW_DEPTH | FTW_PHYS);
		unlink(notes);
	}
}

/* READY slots are adopted: served although their files were moved away. */
static void test_adopted_without_files(void **state)
{
	char dir[64], notes[80], pool[80], from[80], to[80];
	struct hc_node *node;
	uint32_t series, space, n_memory = 0;
	struct hc_node_stats stats;
	int status;

	snprintf(dir, sizeof(dir), "%s/hctest-crash-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
	assert_non_null(mkdtemp(dir));
	snprintf(notes, sizeof(notes), "%s-notes", dir);
	snprintf(pool, sizeof(pool), "%s-pool", dir);
	status = run_victim(dir, notes, "publish", 100, 7);
	assert_true(WIFSIGNALED(status));
	snprintf(from, sizeof(from), "%s/pages", dir);
	snprintf(to, sizeof(to), "%s/pages-away", dir);
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(node_open(dir, &node, &series, &space), 0);
	for (uint32_t page = 0; page < N_PAGES; page++) {
		struct hc_acquire how = {.series = series,
					 .deadline_ns = hc_clock_now_ns() + 5 * HC_NS_PER_S};
		struct hc_key key = {series, hash_of(page)};
		struct hc_page_info info;
		struct hc_ref ref;
		size_t got;

		if (hc_node_stat(node, &key, false, &info) || !info.in_memory)
			continue;
		assert_int_equal(hc_node_acquire(node, &how, &key.hash, 1, &ref, &got), 0);
		assert_true(page_right(ref.data, page));
		hc_node_release(node, &ref, 1);
		n_memory++;
	}
	hc_node_stats(node, &stats);
	assert_true(n_memory > 20);
	assert_int_equal(stats.promoted, 0);
	assert_int_equal(stats.adopted, n_memory);
	hc_node_close(node, NULL);
	nftw(dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	nftw(pool, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	unlink(notes);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_crash_points),
	cmocka_unit_test(test_replaced),
	cmocka_unit_test(test_adopted_without_files),
};

int main(int argc, char **argv)
{
	self = "/proc/self/exe";
	if (argc == 5 && !strcmp(argv[1], "victim"))
		return victim(argv[2], argv[3], strtoull(argv[4], NULL, 10));
	hc_log_set_level(HC_LOG_ERROR);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
