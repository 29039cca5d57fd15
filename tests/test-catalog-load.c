/* SPDX-License-Identifier: Apache-2.0 */
/* A table of the catalog read whole by several threads. Goal: every row once, an error of the
 * callee or of the file ends it and is told. Method: a real file in a temporary directory, 30,000
 * rows of several lengths, one to three threads. */
#include "hctest.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "index/catalog.h"
#include "util/clock.h"
#include "util/log.h"

#define WAIT_NS (60 * HC_NS_PER_S)

static char dir[] = "/tmp/hc-test-catalog-load-XXXXXX";

static uint64_t deadline(void)
{
	return hc_clock_now_ns() + WAIT_NS;
}

static int setup(void **state)
{
	static struct hc_catalog_config config = {
		.dir = dir, .uuid = "sixteen bytes id", .map_bytes = HC_MIB};

	memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	assert_non_null(mkdtemp(dir));
	hc_log_set_level(HC_LOG_ERROR);
	*state = &config;
	return 0;
}

static int teardown(void **state)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	(void)state;
	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	assert_int_equal(rmdir(dir), 0);
	return 0;
}

static struct hc_catalog *reopen(const struct hc_catalog_config *config)
{
	struct hc_catalog *c;

	assert_int_equal(hc_catalog_open(config, &c), 0);
	return c;
}

static void put(struct hc_catalog *c, uint64_t key)
{
	uint64_t value[13] = {key * 3};

	assert_int_equal(hc_catalog_put(c, HC_TABLE_PAGES, key, value, 8 + key % 90, false, NULL),
			 0);
}

/* By pieces and threads: every row once, those of a piece in order; an error of the callee ends it
 * and is told. */
#define N_PIECE_ROWS 30000u

struct pieces {
	_Atomic uint8_t seen[N_PIECE_ROWS + 1];
	atomic_uint n_rows, n_pieces, threads;
	unsigned fail_at; /* piece, 0: none */
};

static int each_piece(void *arg, unsigned thread_i, const struct hc_catalog_row *rows, size_t n)
{
	struct pieces *p = arg;

	assert_true(n > 0 && n <= HC_CATALOG_PIECE_ROWS && thread_i < 3);
	atomic_fetch_or(&p->threads, 1u << thread_i);
	if (atomic_fetch_add(&p->n_pieces, 1) + 1 == p->fail_at)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uint64_t value;

		assert_true(rows[i].key <= N_PIECE_ROWS && (!i || rows[i].key > rows[i - 1].key));
		assert_int_equal(rows[i].n_bytes, 8 + rows[i].key % 90);
		memcpy(&value, rows[i].value, 8);
		assert_int_equal(value, rows[i].key * 3);
		p->seen[rows[i].key]++;
	}
	atomic_fetch_add(&p->n_rows, (unsigned)n);
	/* The other threads get their turn. */
	for (int i = 0; i < 3; i++)
		sched_yield();
	return 0;
}

static void test_pieces(void **state)
{
	const struct hc_catalog_config *config = *state;
	struct pieces *p = hc_zalloc(sizeof(*p));
	struct hc_catalog *c;

	assert_int_equal(hc_catalog_create(config, &c), 0);
	assert_int_equal(hc_catalog_n_rows(c, HC_TABLE_PAGES), 0);
	assert_int_equal(hc_catalog_load_pieces(c, HC_TABLE_PAGES, 3, each_piece, p), 0);
	assert_int_equal(atomic_load(&p->n_pieces), 0);
	for (uint64_t k = 1; k <= N_PIECE_ROWS; k++)
		put(c, k);
	assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
	hc_catalog_close(c);
	c = reopen(config);
	assert_int_equal(hc_catalog_n_rows(c, HC_TABLE_PAGES), N_PIECE_ROWS);
	for (unsigned n_threads = 1; n_threads <= 3; n_threads++) {
		memset(p, 0, sizeof(*p));
		assert_int_equal(
			hc_catalog_load_pieces(c, HC_TABLE_PAGES, n_threads, each_piece, p), 0);
		assert_int_equal(atomic_load(&p->n_rows), N_PIECE_ROWS);
		for (uint64_t k = 1; k <= N_PIECE_ROWS; k++)
			assert_int_equal(p->seen[k], 1);
	}
	memset(p, 0, sizeof(*p));
	p->fail_at = 4;
	assert_int_equal(hc_catalog_load_pieces(c, HC_TABLE_PAGES, 3, each_piece, p), -ENOMEM);
	assert_true(atomic_load(&p->n_rows) < N_PIECE_ROWS);
	assert_false(hc_catalog_is_lost(c));
	hc_catalog_close(c);
	free(p);
}

static void quiet_sink(void *arg, enum hc_log_level level, const char *component, const char *text)
{
	(void)arg, (void)level, (void)component, (void)text;
}

static int each_any(void *arg, unsigned thread_i, const struct hc_catalog_row *rows, size_t n)
{
	(void)thread_i, (void)rows;
	atomic_fetch_add((atomic_uint *)arg, (unsigned)n);
	return 0;
}

/* A page head damaged in the middle, or the file cut off under the map: whichever thread meets it,
 * the load says so and the catalog counts as lost. */
static void test_damage(void **state)
{
	const struct hc_catalog_config *config = *state;
	struct hc_catalog *c;
	char path[PATH_MAX];

	hc_log_set_sink(quiet_sink, NULL);
	snprintf(path, sizeof(path), "%s/catalog.mdb", dir);
	for (int cut = 0; cut < 2; cut++) {
		atomic_uint n = 0;
		int fd;

		assert_int_equal(hc_catalog_create(config, &c), 0);
		for (uint64_t k = 1; k <= N_PIECE_ROWS; k++)
			put(c, k);
		assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
		hc_catalog_close(c);
		c = reopen(config);
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		if (cut) {
			assert_int_equal(ftruncate(fd, (off_t)64 * 4096), 0);
		} else {
			/* The heads of a row of pages. */
			for (int page = 200; page < 210; page++)
				assert_int_equal(pwrite(fd, "\377\377", 2, page * 4096 + 14), 2);
		}
		close(fd);
		assert_int_equal(hc_catalog_load_pieces(c, HC_TABLE_PAGES, 3, each_any, &n),
				 -EBADMSG);
		assert_true(atomic_load(&n) < N_PIECE_ROWS);
		assert_true(hc_catalog_is_lost(c));
		assert_int_equal(hc_catalog_load_pieces(c, HC_TABLE_PAGES, 3, each_any, &n),
				 -EBADMSG);
		assert_int_equal(hc_catalog_renew(c), 0);
		assert_int_equal(hc_catalog_load_pieces(c, HC_TABLE_PAGES, 3, each_any, &n), 0);
		hc_catalog_close(c);
		assert_int_equal(unlink(path), 0);
	}
	hc_log_set_sink(NULL, NULL);
}

#define WITH_DIR(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

static const struct CMUnitTest tests[] = {
	WITH_DIR(test_pieces),
	WITH_DIR(test_damage),
};

HC_TEST_MAIN(tests)
