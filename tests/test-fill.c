/* SPDX-License-Identifier: Apache-2.0 */
/* node/fill.h on a real node. Goal: whatever is written, in whatever order, is what is read, and
 * what the page holds after publish; charges end at nothing. Method: random operations against a
 * plain array, in each of the places that a body can have; page checksums against the whole page
 * summed at once. */
#include "hctest.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sys/stat.h>

#include "model/checksum.h"
#include "node/fill.h"
#include "node/fill_sums.h"
#include "store/fault.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/rng.h"

#define MAX_BYTES ((size_t)HC_MIB)
#define BLOCK     4096

struct fixture {
	char dir[64];
	struct hc_node_config config;
	struct hc_node *node;
	struct hc_store *fault;
	uint32_t space, series;
	uint32_t n_pages;
	struct hc_rng rng;
	/* what the body must hold */
	char *model;
	size_t model_bytes;
};

static const struct hc_domain domain = {0, 0, 0755};

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
	struct hc_registry *registry;
	struct hc_space_info space;
	struct hc_dir_info dir;
	int rc;

	assert_int_equal(hc_node_open(&f->config, &f->node), 0);
	registry = hc_node_registry(f->node);
	rc = hc_dir_make(registry, HC_DIR_ROOT, "m", &owner, &dir);
	assert_true(rc == 0 || rc == -EEXIST);
	assert_int_equal(hc_space_find(registry, "m", &space), 0);
	f->space = space.id;
	assert_int_equal(hc_series_open(registry, f->space, "{64}.kv", NULL, true, &f->series), 0);
}

static void node_down(struct fixture *f)
{
	hc_node_close(f->node, NULL);
	f->node = NULL;
}

static int setup(void **state)
{
	struct fixture *f = hc_zalloc(sizeof(*f));
	const char *tmp = getenv("TMPDIR");

	snprintf(f->dir, sizeof(f->dir), "%.40s/hc-fill-XXXXXX", tmp ? tmp : "/var/tmp");
	assert_non_null(mkdtemp(f->dir));
	hc_log_set_level(getenv("HC_TEST_VERBOSE") ? HC_LOG_DEBUG : HC_LOG_ERROR);
	f->model = hc_zalloc(16 * MAX_BYTES);
	hc_rng_seed(&f->rng, 7);
	f->config = (struct hc_node_config){
		.cachedir = f->dir,
		.embedded = true,
		.pool_bytes = 8 * HC_MIB,
		.segment_bytes = 2 * HC_MIB,
		.max_page_bytes = MAX_BYTES,
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
	nftw(f->dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	free(f->model);
	free(f);
	return 0;
}

static struct hc_fill *create(struct fixture *f, size_t hint)
{
	struct hc_fill *fill = NULL;

	assert_int_equal(hc_fill_create(f->node, f->space, &domain, hint, &fill), 0);
	f->model_bytes = 0;
	memset(f->model, 0, 16 * MAX_BYTES);
	return fill;
}

static uint64_t used(struct fixture *f)
{
	return hc_space_used(hc_node_registry(f->node), f->space);
}

static void write_at(struct fixture *f, struct hc_fill *fill, size_t n, size_t offset)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = hc_rng_next(&f->rng);

		memcpy(f->model + offset + i, &v, hc_min_u64(8, n - i));
	}
	assert_int_equal(hc_fill_write(fill, f->model + offset, n, offset), 0);
	if (offset + n > f->model_bytes)
		f->model_bytes = offset + n;
}

static void truncate_to(struct fixture *f, struct hc_fill *fill, size_t size)
{
	assert_int_equal(hc_fill_truncate(fill, size), 0);
	if (size < f->model_bytes)
		memset(f->model + size, 0, f->model_bytes - size);
	f->model_bytes = size;
}

static void check_range(struct fixture *f, struct hc_fill *fill, size_t n, size_t offset)
{
	hc_autofree char *buf = malloc(n + 1);
	size_t there = offset >= f->model_bytes ? 0 : hc_min_u64(n, f->model_bytes - offset);
	size_t got = 99;
	const void *data;

	assert_int_equal(hc_fill_size(fill), f->model_bytes);
	assert_int_equal(hc_fill_read(fill, buf, n, offset, &got), 0);
	assert_int_equal(got, there);
	assert_memory_equal(buf, f->model + offset, there);
	data = hc_fill_peek(fill, offset, there);
	if (data)
		assert_memory_equal(data, f->model + offset, there);
	if (offset < f->model_bytes)
		assert_null(hc_fill_peek(fill, offset, there + f->model_bytes));
}

static struct hc_publish next_item(struct fixture *f)
{
	struct hc_publish item = {.key.series = f->series, .unnamed = true, .replace = true};

	f->n_pages++;
	memcpy(item.key.hash.bytes, &f->n_pages, sizeof(f->n_pages));
	/* Not all alike in the first digits. */
	item.key.hash.bytes[31] = 1;
	return item;
}

/* The page is what the model is. */
static void check_page(struct fixture *f, const struct hc_key *key)
{
	struct hc_acquire how = {.series = key->series,
				 .deadline_ns = hc_clock_now_ns() + 10 * HC_NS_PER_S};
	struct hc_page_info info;
	struct hc_ref ref;
	size_t n = 0;

	assert_int_equal(hc_node_stat(f->node, key, false, &info), 0);
	assert_int_equal(info.size_bytes, f->model_bytes);
	assert_true(info.checksum == hc_checksum(f->model, f->model_bytes));
	assert_int_equal(hc_node_acquire(f->node, &how, &key->hash, 1, &ref, &n), 0);
	assert_int_equal(n, 1);
	assert_memory_equal(ref.data, f->model, f->model_bytes);
	hc_node_release(f->node, &ref, 1);
}

static void publish_and_check(struct fixture *f, struct hc_fill *fill)
{
	struct hc_publish item = next_item(f);
	uint64_t before;

	check_range(f, fill, f->model_bytes, 0);
	assert_int_equal(hc_fill_publish(fill, &item), 0);
	check_page(f, &item.key);
	before = used(f);
	assert_int_equal(before, f->model_bytes);
	assert_int_equal(hc_node_remove(f->node, f->series, &item.key.hash, 1), 1);
	assert_int_equal(used(f), 0);
}

/* Sizes as engines have them, and odd ones around leaves and blocks. */
static size_t some_size(struct fixture *f, size_t max)
{
	static const size_t around[] = {1, 4096, 65536, 131072, 200000};
	size_t n = around[hc_rng_below(&f->rng, HC_ARRAY_SIZE(around))] + hc_rng_below(&f->rng, 3);

	if (hc_rng_below(&f->rng, 3) == 0)
		n = 1 + hc_rng_below(&f->rng, 300000);
	return hc_min_u64(n, max);
}

static void some_operation(struct fixture *f, struct hc_fill *fill)
{
	size_t offset = hc_rng_below(&f->rng, 2) ? f->model_bytes : some_size(f, MAX_BYTES - 1);
	size_t n;

	switch (hc_rng_below(&f->rng, 10)) {
	case 0:
		truncate_to(f, fill, some_size(f, MAX_BYTES));
		break;
	case 1:
		n = some_size(f, MAX_BYTES);
		assert_int_equal(hc_fill_allocate(fill, n, true), 0);
		assert_int_equal(hc_fill_size(fill), f->model_bytes);
		break;
	case 2:
		n = some_size(f, MAX_BYTES);
		assert_int_equal(hc_fill_allocate(fill, n, false), 0);
		f->model_bytes = hc_max_u64(f->model_bytes, n);
		break;
	case 3:
	case 4:
		check_range(f, fill, some_size(f, MAX_BYTES), some_size(f, MAX_BYTES));
		break;
	default:
		if (offset < MAX_BYTES)
			write_at(f, fill, some_size(f, MAX_BYTES - offset), offset);
	}
}

static void many_bodies(struct fixture *f, int n_bodies)
{
	for (int i = 0; i < n_bodies; i++) {
		size_t hint = hc_rng_below(&f->rng, 3) ? some_size(f, MAX_BYTES) : 0;
		struct hc_fill *fill = create(f, hint);
		int n = 1 + (int)hc_rng_below(&f->rng, 25);

		for (int j = 0; j < n; j++)
			some_operation(f, fill);
		check_range(f, fill, MAX_BYTES, 0);
		if (!f->model_bytes || hc_rng_below(&f->rng, 4) == 0) {
			hc_fill_discard(fill);
			assert_int_equal(used(f), 0);
		} else {
			publish_and_check(f, fill);
		}
	}
}

static void test_random(void **state)
{
	struct fixture *f = *state;

	node_up(f);
	many_bodies(f, 150);
}

static void test_random_memory_only(void **state)
{
	struct fixture *f = *state;

	f->config.cachedir = NULL;
	node_up(f);
	many_bodies(f, 100);
}

static void test_random_disk_off(void **state)
{
	struct fixture *f = *state;

	f->config.disk_off = true;
	node_up(f);
	many_bodies(f, 100);
}

/* Goal: the sums that are made on the way are right for every way of arriving in order. */
static void test_in_order(void **state)
{
	static const size_t steps[] = {512, 4096, 65536, 131072, 100000, 65535, 65537, 1u << 20};
	struct fixture *f = *state;

	node_up(f);
	for (size_t s = 0; s < HC_ARRAY_SIZE(steps); s++) {
		for (int hint = 0; hint < 2; hint++) {
			size_t total = MAX_BYTES - (s & 1 ? 12345 : 0);
			struct hc_fill *fill = create(f, hint ? total : 0);

			for (size_t at = 0; at < total; at += steps[s])
				write_at(f, fill, hc_min_u64(steps[s], total - at), at);
			assert_true(hc_fill_on_disk(fill) == !hint);
			publish_and_check(f, fill);
		}
	}
}

static int read_nothing(void *arg, void *buf, size_t n, uint64_t offset)
{
	*(int *)arg += 1;
	memset(buf, 0, n);
	return 0;
}

/* Goal: a body in a file that came in order is not read again. */
static void test_sums_on_the_way(void **state)
{
	struct fixture *f = *state;
	struct hc_fill_sums sums;
	uint64_t checksum = 0, n_changes;
	int n_reads = 0;

	hc_fill_sums_init(&sums, MAX_BYTES);
	for (size_t i = 0; i < 300001; i++)
		f->model[i] = (char)hc_rng_next(&f->rng);
	for (size_t at = 0; at < 300001; at += 1000)
		hc_fill_sums_write(&sums, f->model + at, hc_min_u64(1000, 300001 - at), at, NULL,
				   false);
	assert_int_equal(hc_fill_sums_fold(&sums, 300001, NULL, read_nothing, &n_reads, &checksum),
			 0);
	assert_true(checksum == hc_checksum(f->model, 300001));
	assert_int_equal(n_reads, 0);
	/* One byte again: its leaf only. */
	hc_fill_sums_write(&sums, f->model + 70000, 1, 70000, NULL, false);
	assert_int_equal(hc_fill_sums_fold(&sums, 300001, NULL, read_nothing, &n_reads, &checksum),
			 0);
	assert_int_equal(n_reads, 1);
	assert_true(checksum != hc_checksum(f->model, 300001));
	/* A leaf that was read back before the last change is not taken. */
	n_changes = sums.n_changes;
	hc_fill_sums_write(&sums, f->model + 70000, 1, 70000, NULL, false);
	assert_false(hc_fill_sums_leaf(&sums, n_changes, HC_LEAF_BYTES, f->model));
	assert_true(
		hc_fill_sums_leaf(&sums, sums.n_changes, HC_LEAF_BYTES, f->model + HC_LEAF_BYTES));
	assert_int_equal(hc_fill_sums_fold(&sums, 300001, NULL, read_nothing, &n_reads, &checksum),
			 0);
	assert_int_equal(n_reads, 1);
	assert_true(checksum == hc_checksum(f->model, 300001));
	hc_fill_sums_fini(&sums);
}

/* As the kernel writes to a body's file: past the fill. */
static void write_outside(struct fixture *f, struct hc_fill *fill, size_t n, size_t offset)
{
	hc_autofd int fd = -1;
	uint16_t disk;

	assert_int_equal(hc_fill_backing(fill, &disk, &fd), 0);
	for (size_t i = offset; i < offset + n; i++)
		f->model[i] = (char)hc_rng_next(&f->rng);
	hc_fill_outside(fill, 1);
	assert_int_equal(pwrite(fd, f->model + offset, n, (off_t)offset), n);
	hc_fill_outside(fill, -1);
	f->model_bytes = hc_max_u64(f->model_bytes, offset + n);
}

/* Goal: what others wrote is summed ahead, and not read again; what changed since is. */
static void test_sums_ahead(void **state)
{
	struct fixture *f = *state;
	struct hc_publish item;
	struct hc_page_info info;
	struct hc_fill *fill;
	hc_autofd int fd = -1;
	uint16_t disk;

	node_up(f);
	for (int again = 0; again < 2; again++) {
		fill = create(f, 0);
		assert_int_equal(hc_fill_begin(fill, true), 0);
		write_outside(f, fill, 300001, 0);
		hc_fill_sum(fill);
		if (again)
			write_outside(f, fill, 1000, 150000);
		publish_and_check(f, fill);
	}
	/* Bytes that change unseen are not in the sum, so it was made before. */
	fill = create(f, 0);
	assert_int_equal(hc_fill_begin(fill, true), 0);
	write_outside(f, fill, 300001, 0);
	hc_fill_sum(fill);
	assert_int_equal(hc_fill_backing(fill, &disk, &fd), 0);
	assert_int_equal(pwrite(fd, "unseen", 6, 150000), 6);
	item = next_item(f);
	assert_int_equal(hc_fill_publish(fill, &item), 0);
	assert_int_equal(hc_node_stat(f->node, &item.key, false, &info), 0);
	assert_true(info.checksum == hc_checksum(f->model, f->model_bytes));
}

/* Goal: a slot that held something else shows none of it. */
static void test_holes_are_zero(void **state)
{
	struct fixture *f = *state;
	struct hc_reserve how = {.size_bytes = MAX_BYTES, .numa_node = -1};
	struct hc_ref refs[8];
	struct hc_fill *fill;
	size_t n = 0;

	f->config.cachedir = NULL;
	node_up(f);
	how.space = f->space;
	how.deadline_ns = hc_clock_now_ns() + 10 * HC_NS_PER_S;
	assert_int_equal(hc_node_reserve(f->node, &how, 8, refs, &n), 0);
	for (size_t i = 0; i < n; i++)
		memset(refs[i].data, 0xee, MAX_BYTES);
	hc_node_abort(f->node, refs, n);
	fill = create(f, MAX_BYTES);
	write_at(f, fill, 10, 500000);
	check_range(f, fill, MAX_BYTES, 0);
	truncate_to(f, fill, 900000);
	check_range(f, fill, MAX_BYTES, 0);
	write_at(f, fill, 100000, 800000);
	truncate_to(f, fill, 600000);
	truncate_to(f, fill, 900000);
	assert_non_null(hc_fill_peek(fill, 0, 900000));
	publish_and_check(f, fill);
}

static void test_overflow(void **state)
{
	struct fixture *f = *state;
	struct hc_fill *fill;

	node_up(f);
	fill = create(f, 100000);
	write_at(f, fill, 100000, 0);
	assert_false(hc_fill_on_disk(fill));
	assert_int_equal(used(f), 100000);
	write_at(f, fill, 1, 100000);
	assert_true(hc_fill_on_disk(fill));
	assert_null(hc_fill_peek(fill, 0, 1));
	check_range(f, fill, MAX_BYTES, 0);
	write_at(f, fill, 300000, 100001);
	publish_and_check(f, fill);
	/* A hint that was wrong before anything was written costs nothing. */
	fill = create(f, 1000);
	write_at(f, fill, 200000, 0);
	assert_false(hc_fill_on_disk(fill));
	publish_and_check(f, fill);
}

/* Goal: what is larger than a page may be is a sparse file, charged by its blocks, and never a
 * page. */
static void test_scratch(void **state)
{
	struct fixture *f = *state;
	struct hc_publish item;
	struct hc_fill *fill;

	node_up(f);
	item = next_item(f);
	fill = create(f, 0);
	assert_int_equal(hc_fill_truncate(fill, 1ull << 40), 0);
	assert_true(hc_fill_on_disk(fill));
	assert_int_equal(hc_fill_write(fill, "abc", 3, 1ull << 39), 0);
	assert_int_equal(hc_fill_size(fill), 1ull << 40);
	assert_in_range(used(f), 3, 64 * BLOCK);
	assert_in_range(hc_fill_blocks(fill), 1, 512);
	/* The same place again costs no more. */
	for (int i = 0; i < 100; i++)
		assert_int_equal(hc_fill_write(fill, "abc", 3, 1ull << 39), 0);
	assert_in_range(used(f), 3, 64 * BLOCK);
	assert_int_equal(hc_fill_publish(fill, &item), -EFBIG);
	assert_int_equal(hc_fill_size(fill), 1ull << 40);
	hc_fill_discard(fill);
	assert_int_equal(used(f), 0);
	/* A body that grows out of the page size under way. */
	fill = create(f, 500000);
	write_at(f, fill, 500000, 0);
	write_at(f, fill, 3 * MAX_BYTES, 500000);
	check_range(f, fill, 4 * MAX_BYTES, 0);
	assert_int_equal(hc_fill_publish(fill, &item), -EFBIG);
	truncate_to(f, fill, 700000);
	publish_and_check(f, fill);
}

static void test_quota(void **state)
{
	struct fixture *f = *state;
	struct hc_space_info info = {.quota_bytes = 200000};
	hc_autofree char *zeros = hc_zalloc(MAX_BYTES);
	struct hc_fill *fill = NULL;

	node_up(f);
	assert_int_equal(
		hc_space_set(hc_node_registry(f->node), f->space, &info, HC_SPACE_SET_QUOTA), 0);
	assert_int_equal(hc_fill_create(f->node, f->space, &domain, 300000, &fill), -EDQUOT);
	assert_int_equal(used(f), 0);
	fill = create(f, 0);
	write_at(f, fill, 100000, 0);
	assert_int_equal(hc_fill_write(fill, zeros, 200000, 100000), -EDQUOT);
	check_range(f, fill, MAX_BYTES, 0);
	assert_int_equal(hc_fill_allocate(fill, 500000, true), -EDQUOT);
	/* What is there may be written again, at the quota's edge too. */
	write_at(f, fill, 90000, 100000);
	for (int i = 0; i < 10; i++)
		write_at(f, fill, 190000, 0);
	publish_and_check(f, fill);
}

static void test_disk_off_limits(void **state)
{
	struct fixture *f = *state;
	struct hc_publish item;
	struct hc_fill *fill;

	f->config.disk_off = true;
	node_up(f);
	fill = create(f, 0);
	write_at(f, fill, MAX_BYTES, 0);
	assert_false(hc_fill_on_disk(fill));
	assert_int_equal(hc_fill_write(fill, "x", 1, MAX_BYTES), -EFBIG);
	assert_int_equal(hc_fill_truncate(fill, MAX_BYTES + 1), -EFBIG);
	assert_int_equal(hc_fill_allocate(fill, MAX_BYTES + 1, true), -EFBIG);
	check_range(f, fill, MAX_BYTES, 0);
	publish_and_check(f, fill);
	item = next_item(f);
	fill = create(f, 0);
	assert_int_equal(hc_fill_publish(fill, &item), -EINVAL);
	assert_int_equal(hc_fill_fsync(fill), 0);
	hc_fill_discard(fill);
	assert_int_equal(hc_fill_create(f->node, f->space, &domain, MAX_BYTES + 1, &fill), -EFBIG);
}

/* A pool that is full of bodies: the next goes to a file, or waits in memory of its own until there
 * is a slot. */
static void test_no_slot(void **state)
{
	struct fixture *f = *state;
	struct hc_fill *held[8], *fill;
	struct hc_publish item;

	for (int off = 0; off < 2; off++) {
		uint64_t before;

		f->config.disk_off = off;
		node_up(f);
		/* Reserving waits for nothing, so give the pool time to be there: any one slot will
		 * do. */
		for (int i = 0; i < 8; i++) {
			uint64_t deadline_ns = hc_clock_now_ns() + 20 * HC_NS_PER_S;

			for (;;) {
				held[i] = create(f, MAX_BYTES);
				write_at(f, held[i], 1, 0);
				if (hc_fill_peek(held[i], 0, 1))
					break;
				hc_fill_discard(held[i]);
				assert_true(hc_clock_now_ns() < deadline_ns);
			}
		}
		before = used(f);
		fill = create(f, MAX_BYTES);
		/* Of the size of the slots that are held: no other segment is cut for it. */
		write_at(f, fill, MAX_BYTES, 0);
		assert_null(hc_fill_peek(fill, 0, 1));
		assert_true(hc_fill_on_disk(fill) == !off);
		item = next_item(f);
		if (off) {
			assert_int_equal(hc_fill_publish(fill, &item), -ENOSPC);
			check_range(f, fill, MAX_BYTES, 0);
			hc_fill_discard(held[7]);
			held[7] = NULL;
			before -= MAX_BYTES;
		}
		assert_int_equal(hc_fill_publish(fill, &item), 0);
		assert_int_equal(used(f), before + MAX_BYTES);
		for (int i = 0; i < 8; i++)
			hc_fill_discard(held[i]);
		check_page(f, &item.key);
		node_down(f);
	}
}

static void test_copy(void **state)
{
	struct fixture *f = *state;
	struct hc_publish item;
	struct hc_fill *a, *b;
	struct hc_acquire how;
	struct hc_ref ref;
	size_t n;

	node_up(f);
	a = create(f, 0);
	write_at(f, a, 300000, 400000);
	assert_int_equal(hc_fill_create(f->node, f->space, &domain, 0, &b), 0);
	assert_int_equal(hc_fill_copy(b, a), 0);
	check_range(f, b, MAX_BYTES, 0);
	assert_non_null(hc_fill_peek(b, 0, 700000));
	hc_fill_discard(b);
	item = next_item(f);
	assert_int_equal(hc_fill_publish(a, &item), 0);
	/* Copy-up of a page, then a write into the middle: the page stays as it is. */
	how = (struct hc_acquire){.series = f->series,
				  .deadline_ns = hc_clock_now_ns() + 10 * HC_NS_PER_S};
	assert_int_equal(hc_node_acquire(f->node, &how, &item.key.hash, 1, &ref, &n), 0);
	assert_int_equal(hc_fill_create(f->node, f->space, &domain, 0, &b), 0);
	assert_int_equal(hc_fill_copy_page(b, &ref), 0);
	hc_node_release(f->node, &ref, 1);
	check_range(f, b, MAX_BYTES, 0);
	check_page(f, &item.key);
	write_at(f, b, 10, 5000);
	/* It replaces the page. */
	assert_int_equal(hc_fill_publish(b, &item), 0);
	check_page(f, &item.key);
	/* Who does not replace keeps the first; the body goes. */
	a = create(f, 0);
	write_at(f, a, 10, 0);
	item.replace = false;
	assert_int_equal(hc_fill_publish(a, &item), 0);
	assert_int_equal(used(f), 700000);
}

static int count_staging(struct fixture *f)
{
	char path[128];
	DIR *dir;
	int n = -2;

	snprintf(path, sizeof(path), "%s/staging", f->dir);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Goal: a publish that fails on the disk leaves no page, no charge, no file, and no bytes that
 * could be wrong. */
static void test_publish_fails(void **state)
{
	struct fixture *f = *state;
	struct hc_fault_rule rule = {
		.op = HC_STORE_ADOPT, .kind = HC_FAULT_ERROR, .error = -EIO, .rate_ppm = 1000000};
	struct hc_page_info info;
	struct hc_publish item;
	struct hc_fill *fill;
	size_t got;
	char c;

	f->config.wrap_store = wrap_fault;
	f->config.wrap_arg = f;
	node_up(f);
	hc_store_fault_set(f->fault, &rule);
	fill = create(f, 0);
	write_at(f, fill, 100000, 0);
	assert_int_equal(count_staging(f), 1);
	item = next_item(f);
	assert_int_equal(hc_fill_publish(fill, &item), -EIO);
	assert_int_equal(hc_fill_read(fill, &c, 1, 0, &got), -EIO);
	assert_int_equal(hc_fill_write(fill, "x", 1, 0), -EIO);
	assert_int_equal(hc_fill_publish(fill, &item), -EIO);
	hc_fill_discard(fill);
	assert_int_equal(hc_node_stat(f->node, &item.key, false, &info), -ENOENT);
	assert_int_equal(used(f), 0);
	assert_int_equal(count_staging(f), 0);
}

/* Goal: a page that was a file is right after a restart, and nothing of an unfinished body is left.
 */
static void test_restart(void **state)
{
	struct fixture *f = *state;
	struct hc_publish item;
	struct hc_fill *fill;

	node_up(f);
	fill = create(f, 0);
	write_at(f, fill, 100000, 0);
	write_at(f, fill, 50000, 200000);
	assert_int_equal(hc_fill_fsync(fill), 0);
	item = next_item(f);
	assert_int_equal(hc_fill_publish(fill, &item), 0);
	node_down(f);
	node_up(f);
	check_page(f, &item.key);
	assert_int_equal(used(f), 250000);
	assert_int_equal(count_staging(f), 0);
}

#define N_THREADS 4

struct worker {
	struct hc_fill *fill;
	int number;
};

/* Each has its own quarter, and reads the others'. */
static void *work(void *arg)
{
	struct worker *w = arg;
	char block[BLOCK], got[BLOCK];
	size_t quarter = MAX_BYTES / N_THREADS, n;

	for (size_t i = 0; i < quarter / BLOCK; i++) {
		size_t at = (size_t)w->number * quarter + i * BLOCK;

		memset(block, 'a' + w->number, sizeof(block));
		if (hc_fill_write(w->fill, block, sizeof(block), at) ||
		    hc_fill_read(w->fill, got, sizeof(got), at, &n) || n != sizeof(got) ||
		    memcmp(block, got, sizeof(got)))
			abort();
		if (hc_fill_size(w->fill) < at + BLOCK ||
		    hc_fill_read(w->fill, got, sizeof(got), i * BLOCK, &n))
			abort();
		hc_fill_peek(w->fill, 0, BLOCK);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct fixture *f = *state;

	node_up(f);
	for (int round = 0; round < 6; round++) {
		static const size_t hints[] = {0, MAX_BYTES, MAX_BYTES / 2};
		struct hc_fill *fill = create(f, hints[round % 3]);
		pthread_t threads[N_THREADS];
		struct worker workers[N_THREADS];

		for (int i = 0; i < N_THREADS; i++) {
			workers[i] = (struct worker){fill, i};
			memset(f->model + (size_t)i * MAX_BYTES / N_THREADS, 'a' + i,
			       MAX_BYTES / N_THREADS);
			assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
		}
		for (int i = 0; i < N_THREADS; i++)
			pthread_join(threads[i], NULL);
		f->model_bytes = MAX_BYTES;
		publish_and_check(f, fill);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
	TEST(test_random),         TEST(test_random_memory_only), TEST(test_random_disk_off),
	TEST(test_in_order),       TEST(test_sums_on_the_way),    TEST(test_sums_ahead),
	TEST(test_holes_are_zero), TEST(test_overflow),           TEST(test_scratch),
	TEST(test_quota),          TEST(test_disk_off_limits),    TEST(test_no_slot),
	TEST(test_copy),           TEST(test_publish_fails),      TEST(test_restart),
	TEST(test_threads),
};

HC_TEST_MAIN(tests)
