/* SPDX-License-Identifier: Apache-2.0 */
/* Read-ahead. Goal: of an engine that opens pages one by one in the order in which they were
 * published, the third page and all behind it are found in memory; nothing is evicted for them,
 * nothing waits for them, and what is read for nothing is counted. */
#include "node-rig.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#define N_PAGES 60u

/* A page as the mount publishes it: parent not known. */
static void put_unnamed(struct rig *rig, uint32_t opener, uint32_t series, uint32_t chain,
			uint32_t i)
{
	struct hc_reserve how = {
		.space = rig->space,
		.size_bytes = RIG_PAGE_BYTES,
		.numa_node = -1,
		.domain = rig->domain,
		.deadline_ns = rig_soon(RIG_WAIT_MS),
	};
	struct hc_publish item = {
		.key = {series, rig_hash(chain, i)},
		.unnamed = true,
		.size_bytes = RIG_PAGE_BYTES,
		.opener = opener,
		.thread = opener,
		.tree = series,
	};
	struct hc_ref ref;
	size_t got;
	int rc;

	assert_int_equal(hc_node_reserve(rig->node, &how, 1, &ref, &got), 0);
	rig_fill(ref.data, RIG_PAGE_BYTES, &item.key.hash, series);
	hc_node_publish(rig->node, &ref, &item, 1, &rc);
	assert_int_equal(rc, 0);
}

static int open_for(struct rig *rig, uint32_t opener, uint32_t series, uint32_t chain, uint32_t i,
		    uint64_t wait_ms)
{
	struct hc_acquire how = {
		.series = series,
		.opener = opener,
		.thread = opener,
		.tree = series,
		.deadline_ns = rig_soon(wait_ms),
	};
	struct hc_hash hash = rig_hash(chain, i);
	struct hc_ref ref;
	size_t got;
	int rc = hc_node_acquire(rig->node, &how, &hash, 1, &ref, &got);

	if (rc)
		return rc;
	assert_int_equal(got, 1);
	assert_true(rig_right(ref.data, RIG_PAGE_BYTES, &hash, series));
	hc_node_release(rig->node, &ref, 1);
	return 0;
}

static void open_one(struct rig *rig, uint32_t chain, uint32_t i)
{
	assert_int_equal(open_for(rig, 9, rig->series[0], chain, i, RIG_WAIT_MS), 0);
}

/* A chain on disk only. */
static void setup_chain(struct rig *rig, uint32_t n)
{
	rig_up(rig);
	for (uint32_t i = 0; i < n; i++)
		put_unnamed(rig, 7, rig->series[0], 1, i);
	rig_flush(rig);
	rig_drop_memory(rig);
}

/* Also after a restart: the order is that of the catalog. */
static void walk_all(struct rig *rig)
{
	struct hc_node_stats s;

	open_one(rig, 1, 0);
	assert_int_equal(rig_stats(rig).ahead_pages, 0);
	open_one(rig, 1, 1);
	assert_int_equal(rig_stats(rig).ahead_pages, 2);
	for (uint32_t i = 2; i < N_PAGES; i++)
		open_one(rig, 1, i);
	s = rig_stats(rig);
	assert_int_equal(s.ahead_pages, N_PAGES - 2);
	assert_int_equal(s.ahead_hits, N_PAGES - 2);
	assert_int_equal(s.ahead_wasted, 0);
	assert_int_equal(s.promoted, N_PAGES);
	assert_int_equal(s.promote_failed, 0);
}

static void test_order(void **state)
{
	struct rig *rig = *state;

	rig->config.no_evictor = true;
	setup_chain(rig, N_PAGES);
	walk_all(rig);
	rig_down(rig);
	rig_up(rig);
	walk_all(rig);
}

static void test_off(void **state)
{
	struct rig *rig = *state;

	rig->config.no_ahead = true;
	setup_chain(rig, N_PAGES);
	for (uint32_t i = 0; i < N_PAGES; i++)
		open_one(rig, 1, i);
	assert_int_equal(rig_stats(rig).ahead_pages, 0);
	assert_int_equal(rig_stats(rig).promoted, N_PAGES);
}

/* Two ranks, or keys and values, in turns: each series has its own walk. */
static void test_two_series(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats s;

	rig_up(rig);
	for (uint32_t i = 0; i < 30; i++) {
		put_unnamed(rig, 7, rig->series[0], 1, i);
		put_unnamed(rig, 7, rig->series[1], 1, i);
	}
	rig_flush(rig);
	rig_drop_memory(rig);
	for (uint32_t i = 0; i < 30; i++) {
		for (uint32_t k = 0; k < 2; k++)
			assert_int_equal(open_for(rig, 9, rig->series[k], 1, i, RIG_WAIT_MS), 0);
	}
	s = rig_stats(rig);
	assert_int_equal(s.ahead_hits, 56);
	assert_int_equal(s.promoted, 60);
}

/* Chains of the library, whose parents are known, opened through the mount. */
static void test_known_parents(void **state)
{
	struct rig *rig = *state;
	struct hc_reserve how = {.size_bytes = RIG_PAGE_BYTES, .numa_node = -1};
	struct hc_publish items[20] = {0};
	struct hc_ref refs[20];
	int results[20];
	size_t got = 0;

	rig_up(rig);
	how.space = rig->space;
	how.deadline_ns = rig_soon(RIG_WAIT_MS);
	assert_int_equal(hc_node_reserve(rig->node, &how, 20, refs, &got), 0);
	assert_int_equal(got, 20);
	for (uint32_t i = 0; i < 20; i++) {
		items[i].key = (struct hc_key){rig->series[0], rig_hash(1, i)};
		items[i].depth = i;
		items[i].size_bytes = RIG_PAGE_BYTES;
		if (i)
			items[i].parent = rig_hash(1, i - 1);
		rig_fill(refs[i].data, RIG_PAGE_BYTES, &items[i].key.hash, rig->series[0]);
	}
	hc_node_publish(rig->node, refs, items, 20, results);
	rig_flush(rig);
	rig_drop_memory(rig);
	for (uint32_t i = 0; i < 20; i++)
		open_one(rig, 1, i);
	assert_int_equal(rig_stats(rig).ahead_hits, 18);
}

/* What nobody opens is counted when it leaves memory. */
static void test_wasted(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats s;

	setup_chain(rig, N_PAGES);
	for (uint32_t i = 0; i < 10; i++)
		open_one(rig, 1, i);
	open_one(rig, 1, 50);
	rig_wait(rig_stats(rig).promoted == rig_stats(rig).ahead_pages + 3);
	s = rig_stats(rig);
	assert_int_equal(s.ahead_hits, 8);
	assert_true(s.ahead_pages > s.ahead_hits);
	rig_drop_memory(rig);
	s = rig_stats(rig);
	assert_int_equal(s.ahead_wasted, s.ahead_pages - s.ahead_hits);
}

/* A full pool: no page goes for one that is only expected. */
static void test_evicts_nothing(void **state)
{
	struct rig *rig = *state;
	uint64_t before;

	rig->config.no_evictor = true;
	setup_chain(rig, 40);
	assert_int_equal(rig_put(rig, 2, 0, 128), 128);
	rig_flush(rig);
	rig_drop_memory(rig);
	assert_int_equal(rig_get(rig, 2, 128), 128);
	assert_int_equal(rig_stats(rig).pool.n_slots_used, 128);
	before = rig_stats(rig).evicted_memory;
	for (uint32_t i = 0; i < 20; i++)
		open_one(rig, 1, i);
	assert_int_equal(rig_stats(rig).ahead_pages, 0);
	assert_int_equal(rig_stats(rig).evicted_memory, before + 20);
}

/* Never more than an eighth of the pool: 16 pages. */
static void test_room(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats s;

	setup_chain(rig, N_PAGES);
	for (uint32_t opener = 20; opener < 30; opener++) {
		for (uint32_t i = 0; i < 2; i++)
			assert_int_equal(open_for(rig, opener, rig->series[0], 1,
						  6 * (opener - 20) + i, RIG_WAIT_MS),
					 0);
	}
	s = rig_stats(rig);
	assert_true(s.ahead_pages - s.ahead_hits <= 16);
	assert_true(s.ahead_pages >= 10);
}

/* Names taken while their pages are read ahead on a disk that hangs; others stay usable. */
static void test_unlink_while_read(void **state)
{
	struct rig *rig = *state;
	struct hc_hash hash = rig_hash(1, 2);

	rig_faulty(rig);
	setup_chain(rig, 10);
	open_one(rig, 1, 0);
	rig_fault(rig, HC_STORE_GET, HC_FAULT_HANG, 0);
	assert_int_equal(open_for(rig, 9, rig->series[0], 1, 1, 20), -ENOENT);
	assert_int_equal(hc_store_fault_hung(rig->fault), 3);
	assert_int_equal(rig_stats(rig).ahead_pages, 2);
	assert_int_equal(hc_node_remove(rig->node, rig->series[0], &hash, 1), 1);
	assert_false(rig_there(rig, 1, 2));
	rig_fault(rig, HC_STORE_GET, HC_FAULT_NONE, 0);
	assert_int_equal(open_for(rig, 9, rig->series[0], 1, 2, RIG_WAIT_MS), -ENOENT);
	open_one(rig, 1, 1);
	open_one(rig, 1, 3);
	assert_int_equal(rig_stats(rig).ahead_wasted, 1);
	assert_int_equal(rig_stats(rig).ahead_hits, 1);
	rig_wait(rig_stats(rig).pool.n_slots_used == rig_stats(rig).n_pages_memory);
}

/* An opener that comes while the page is read ahead waits for that, no longer than its budget. */
static void test_meets_load(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats s;

	rig_faulty(rig);
	setup_chain(rig, 10);
	open_one(rig, 1, 0);
	rig_fault(rig, HC_STORE_GET, HC_FAULT_HANG, 0);
	assert_int_equal(open_for(rig, 9, rig->series[0], 1, 1, 20), -ENOENT);
	assert_int_equal(open_for(rig, 9, rig->series[0], 1, 2, 20), -ENOENT);
	rig_fault(rig, HC_STORE_GET, HC_FAULT_NONE, 0);
	open_one(rig, 1, 2);
	s = rig_stats(rig);
	assert_int_equal(s.misses_deadline, 2);
	/* Page 2 was used when it was asked for first. */
	assert_int_equal(s.ahead_hits, 1);
}

/* Damaged on disk: read ahead it is a miss, and gone, as at an open. */
static void test_damaged(void **state)
{
	struct rig *rig = *state;

	rig_faulty(rig);
	setup_chain(rig, 10);
	open_one(rig, 1, 0);
	hc_store_fault_set(
		rig->fault,
		&(struct hc_fault_rule){.op = HC_STORE_GET, .kind = HC_FAULT_FLIP, .nth = 2});
	open_one(rig, 1, 1);
	assert_int_equal(open_for(rig, 9, rig->series[0], 1, 2, RIG_WAIT_MS), -ENOENT);
	assert_int_equal(rig_stats(rig).bad_checksum, 1);
	open_one(rig, 1, 3);
}

/* *fd_p: the caller's. */
static int open_file_fd(struct rig *rig, uint32_t i, uint64_t wait_ms, int *fd_p)
{
	struct hc_acquire how = {
		.series = rig->series[0],
		.opener = 9,
		.thread = 9,
		.tree = rig->series[0],
		.deadline_ns = rig_soon(wait_ms),
	};
	struct hc_hash hash = rig_hash(1, i);
	struct hc_ref ref;
	int rc = hc_node_open_file(rig->node, &how, &hash, &ref, fd_p);

	if (!rc)
		hc_node_release(rig->node, &ref, 1);
	return rc;
}

static int open_file(struct rig *rig, uint32_t i, uint64_t wait_ms)
{
	int fd, rc = open_file_fd(rig, i, wait_ms, &fd);

	if (!rc)
		close(fd);
	return rc;
}

static size_t n_cached(int fd)
{
	size_t n = RIG_PAGE_BYTES / (size_t)sysconf(_SC_PAGESIZE), n_resident = 0;
	void *map = mmap(NULL, RIG_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	unsigned char resident[RIG_PAGE_BYTES / 4096];

	assert_true(map != MAP_FAILED);
	assert_int_equal(mincore(map, RIG_PAGE_BYTES, resident), 0);
	munmap(map, RIG_PAGE_BYTES);
	for (size_t i = 0; i < n; i++)
		n_resident += resident[i] & 1;
	return n_resident;
}

/* Evicted from memory: also what the kernel holds of the page's file. */
static void test_files_cooled(void **state)
{
	struct rig *rig = *state;
	char data[4096];
	struct statfs fs;
	int fd;

	setup_chain(rig, 3);
	assert_int_equal(open_file_fd(rig, 0, RIG_WAIT_MS, &fd), 0);
	assert_int_equal(fstatfs(fd, &fs), 0);
	if (fs.f_type == TMPFS_MAGIC) {
		close(fd);
		hc_test_skip("files of tmpfs have no page cache that could be dropped");
	}
	for (size_t at = 0; at < RIG_PAGE_BYTES; at += sizeof(data))
		assert_int_equal(pread(fd, data, sizeof(data), (off_t)at), sizeof(data));
	assert_true(n_cached(fd) > 0);
	rig_drop_memory(rig);
	assert_int_equal(n_cached(fd), 0);
	close(fd);
	assert_int_equal(rig_stats(rig).files_verified, 1);
	/* The mark went, too. */
	assert_int_equal(open_file(rig, 0, RIG_WAIT_MS), 0);
	assert_int_equal(rig_stats(rig).files_verified, 2);
}

/* Pages that the kernel reads as files: their files are read, and verified; the pool stays empty.
 */
static void test_files(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats s;

	setup_chain(rig, 40);
	for (unsigned round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 40; i++)
			assert_int_equal(open_file(rig, i, RIG_WAIT_MS), 0);
		s = rig_stats(rig);
		/* Each once: an open that meets the read-ahead waits for it. */
		assert_int_equal(s.files_verified, 40 * (round + 1));
		assert_int_equal(s.ahead_pages, 38 * (round + 1));
		assert_int_equal(s.ahead_hits, 38 * (round + 1));
		assert_int_equal(s.n_pages_memory, 0);
		/* Read through the pool they are as good. */
		if (round)
			open_one(rig, 1, 5);
		rig_drop_memory(rig);
	}
	assert_int_equal(hc_node_remove(rig->node, rig->series[0], &(struct hc_hash){{0}}, 1), 0);
}

/* A disk on which nothing ends: what is known of its pages is told, reading them is a miss in time,
 * and new pages are taken. */
static void test_frozen_disk(void **state)
{
	static const enum hc_store_op ops[] = {HC_STORE_GET,    HC_STORE_PUT,    HC_STORE_ADOPT,
					       HC_STORE_VERIFY, HC_STORE_REMOVE, HC_STORE_OPEN};
	struct rig *rig = *state;
	struct hc_hash hash = rig_hash(1, 29);
	uint64_t left;

	rig_faulty(rig);
	setup_chain(rig, 30);
	for (size_t i = 0; i < HC_ARRAY_SIZE(ops); i++)
		rig_fault(rig, ops[i], HC_FAULT_HANG, 0);
	assert_int_equal(rig_exists(rig, 1, 30, false), 30);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(open_for(rig, 9, rig->series[0], 1, i, 20), -ENOENT);
	/* The next ones are on their way to memory; these as files. */
	assert_int_equal(open_file(rig, 20, 20), -ENOENT);
	assert_int_equal(open_file(rig, 21, 20), -ENOENT);
	assert_int_equal(open_file(rig, 22, 20), -ENOENT);
	assert_int_equal(hc_node_remove(rig->node, rig->series[0], &hash, 1), 1);
	assert_int_equal(rig_put(rig, 2, 0, 20), 20);
	assert_int_equal(rig_get(rig, 2, 20), 20);
	assert_int_equal(hc_node_sync(rig->node, rig_soon(20), &left), -ETIMEDOUT);
	assert_int_equal(left, 20);
	assert_true(rig_stats(rig).misses_deadline >= 7);
	for (size_t i = 0; i < HC_ARRAY_SIZE(ops); i++)
		rig_fault(rig, ops[i], HC_FAULT_NONE, 0);
	for (uint32_t i = 0; i < 29; i++)
		open_one(rig, 1, i);
	rig_flush(rig);
}

static const struct CMUnitTest tests[] = {
	rig_test(test_order),       rig_test(test_off),
	rig_test(test_two_series),  rig_test(test_known_parents),
	rig_test(test_wasted),      rig_test(test_evicts_nothing),
	rig_test(test_room),        rig_test(test_unlink_while_read),
	rig_test(test_meets_load),  rig_test(test_damaged),
	rig_test(test_files),       rig_test(test_files_cooled),
	rig_test(test_frozen_disk),
};

HC_TEST_MAIN(tests)
