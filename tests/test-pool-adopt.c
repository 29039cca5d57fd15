/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what a pool leaves behind and the next one takes over: whole rows only, after a clean
 * end, after kill -9 at the crash points, and from files that are damaged, missing, foreign or
 * newer. */
#include "hctest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "model/checksum.h"
#include "pool/pool.h"
#include "pool/table.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/rng.h"

#define SEGMENT_BYTES (2 * HC_MIB)
#define N_SEGMENTS    3
#define SLOT_BYTES    65536

static const struct hc_domain domain_a = {1000, 1000, 0700};
static const struct hc_domain domain_b = {1001, 1000, 0700};

static char test_dir[64];
static const char *test_program = "/proc/self/exe";

static int dir_setup(void **state)
{
	snprintf(test_dir, sizeof(test_dir), "/tmp/hc-test-pool-XXXXXX");
	return mkdtemp(test_dir) ? 0 : -1;
}

static int dir_teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", test_dir);
	return system(command);
}

static struct hc_pool_config config_of(const char *dir)
{
	return (struct hc_pool_config){
		.dir = dir,
		.kind = HC_POOL_DIR,
		.uuid = {7},
		.size_bytes = N_SEGMENTS * SEGMENT_BYTES,
		.segment_bytes = SEGMENT_BYTES,
		.slot_bytes_max = SLOT_BYTES,
		.adopt = true,
	};
}

static void populate_whole(struct hc_pool *pool)
{
	uint64_t seen = 0, next;

	while ((next = hc_pool_populate_wait(pool, seen, hc_clock_now_ns() + 60 * HC_NS_PER_S)) !=
	       seen)
		seen = next;
}

static struct hc_pool *open_dir(void)
{
	struct hc_pool_config config = config_of(test_dir);
	struct hc_pool *pool;

	assert_int_equal(hc_pool_open(&config, &pool), 0);
	populate_whole(pool);
	return pool;
}

static int open_fails(const struct hc_pool_config *config)
{
	struct hc_pool *pool = (struct hc_pool *)1;
	int rc = hc_pool_open(config, &pool);

	if (!rc)
		hc_pool_close(pool, true);
	else
		assert_ptr_equal(pool, (struct hc_pool *)1);
	return rc;
}

/* Reserves one slot, fills it with bytes that follow from the sequence number, and publishes it. */
static hc_slot_id put(struct hc_pool *pool, const struct hc_domain *domain, uint64_t slot_bytes,
		      uint64_t sequence)
{
	struct hc_slot_page page = {
		.sequence = sequence,
		.size_bytes = slot_bytes - sequence % 100,
		.mtime_ns = sequence + 5,
		.space = 3,
		.series = 4,
		.depth = (uint32_t)sequence,
		.uid = 10,
		.gid = 11,
		.mode = 0640,
		.flags = HC_SLOT_FLAG_SUMMED | HC_SLOT_FLAG_UNNAMED,
	};
	uint32_t n_runs, n;
	struct hc_run run;
	hc_slot_id slot;
	uint8_t *data;
	int rc = hc_pool_reserve(pool, domain, slot_bytes, 1, -1, HC_SLOT_FILLING, &run, 1, &n_runs,
				 &n);

	if (rc)
		return HC_SLOT_NONE;
	slot = hc_pool_slot(pool, run.segment, run.first);
	data = hc_pool_data(pool, slot);
	for (uint64_t i = 0; i < page.size_bytes; i += 8) {
		uint64_t word = sequence * 0x9e3779b97f4a7c15u + i;

		memcpy(data + i, &word, (size_t)hc_min_u64(8, page.size_bytes - i));
	}
	page.checksum = hc_checksum(data, page.size_bytes);
	memset(page.hash.bytes, (int)sequence, sizeof(page.hash.bytes));
	memset(page.parent.bytes, (int)sequence + 1, sizeof(page.parent.bytes));
	hc_pool_publish(pool, slot, &page);
	return slot;
}

struct seen {
	struct hc_pool *pool;
	uint64_t sequences[4096];
	hc_slot_id slots[4096];
	uint32_t n;
	bool drop;
};

/* Every adopted page is whole: its fields are those of its sequence number, its bytes those of its
 * checksum. */
static int see(void *arg, hc_slot_id slot, const struct hc_slot_page *page)
{
	struct seen *seen = arg;
	uint8_t hash[HC_HASH_BYTES];

	assert_true(seen->n < HC_ARRAY_SIZE(seen->slots));
	assert_true(!seen->n || slot > seen->slots[seen->n - 1]);
	assert_int_equal(page->size_bytes,
			 hc_pool_slot_size(seen->pool, slot) - page->sequence % 100);
	assert_int_equal(page->mtime_ns, page->sequence + 5);
	assert_int_equal(page->depth, page->sequence);
	assert_int_equal(page->space, 3);
	assert_int_equal(page->series, 4);
	assert_int_equal(page->uid, 10);
	assert_int_equal(page->gid, 11);
	assert_int_equal(page->mode, 0640);
	assert_true(page->flags & HC_SLOT_FLAG_SUMMED);
	memset(hash, (int)page->sequence, sizeof(hash));
	assert_memory_equal(page->hash.bytes, hash, sizeof(hash));
	assert_int_equal(hc_checksum(hc_pool_data(seen->pool, slot), page->size_bytes),
			 page->checksum);
	assert_int_equal(hc_pool_state(seen->pool, slot), HC_SLOT_READY);
	seen->sequences[seen->n] = page->sequence;
	seen->slots[seen->n++] = slot;
	return seen->drop;
}

/* Opens the directory again; all adopted pages are checked. */
static struct hc_pool *open_again(struct seen *seen)
{
	memset(seen, 0, sizeof(*seen));
	seen->pool = open_dir();
	hc_pool_adopted_each(seen->pool, see, seen);
	return seen->pool;
}

static void fill_and_keep(uint32_t n_pages)
{
	struct hc_pool *pool = open_dir();

	for (uint32_t i = 1; i <= n_pages; i++)
		assert_int_not_equal(put(pool, &domain_a, SLOT_BYTES, i), HC_SLOT_NONE);
	hc_pool_close(pool, true);
}

static void path_of(const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", test_dir, name);
}

static void poke(const char *name, uint64_t at, const void *data, size_t n)
{
	char path[128];
	int fd;

	path_of(name, path);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, n, (off_t)at), (ssize_t)n);
	close(fd);
}

static uint64_t row_at(uint32_t segment, uint32_t index)
{
	return HC_TABLE_ROWS_AT +
	       ((uint64_t)segment * (SEGMENT_BYTES / 4096) + index) * sizeof(struct hc_table_row);
}

/* Goal: READY pages come back with every field, in slot order; the others are freed and of the next
 * generation. */
static void test_adopt(void **state)
{
	struct hc_pool *pool = open_dir();
	struct hc_pool_stats stats;
	hc_slot_id slots[6];
	uint32_t generations[6];
	static struct seen seen;
	struct hc_run run;
	uint32_t n_runs, n;

	for (uint32_t i = 0; i < 6; i++)
		slots[i] = put(pool, &domain_a, SLOT_BYTES, i + 1);
	hc_pool_doom(pool, slots[2]);
	hc_pool_quarantine(pool, slots[3]);
	hc_pool_free(pool, slots[4]);
	assert_int_equal(hc_pool_reserve(pool, &domain_a, SLOT_BYTES, 1, -1, HC_SLOT_LOADING, &run,
					 1, &n_runs, &n),
			 0);
	assert_int_equal(hc_pool_slot(pool, run.segment, run.first), slots[4]);
	for (uint32_t i = 0; i < 6; i++)
		generations[i] = hc_pool_generation(pool, slots[i]);
	hc_pool_close(pool, true);

	pool = open_again(&seen);
	assert_int_equal(seen.n, 3);
	assert_int_equal(seen.sequences[0], 1);
	assert_int_equal(seen.sequences[1], 2);
	assert_int_equal(seen.sequences[2], 6);
	for (uint32_t i = 0; i < 6; i++) {
		bool kept = i < 2 || i == 5;

		assert_int_equal(hc_pool_state(pool, slots[i]),
				 kept ? HC_SLOT_READY : HC_SLOT_FREE);
		assert_int_equal(hc_pool_generation(pool, slots[i]), generations[i] + !kept);
	}
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.n_slots_used, 3);
	assert_int_equal(stats.adopted_bytes, stats.size_bytes);
	/* Freed slots serve again, kept ones do not. */
	assert_int_equal(hc_pool_class_free(pool, &domain_a, SLOT_BYTES), 96 - 3);
	hc_pool_close(pool, true);

	/* Pages that the caller does not want are freed. */
	memset(&seen, 0, sizeof(seen));
	seen.drop = true;
	seen.pool = pool = open_dir();
	hc_pool_adopted_each(pool, see, &seen);
	assert_int_equal(seen.n, 3);
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.n_slots_used, 0);
	hc_pool_close(pool, true);
}

/* Goal: a checksum that comes after publish is in the row. */
static void test_late_checksum(void **state)
{
	struct hc_pool *pool = open_dir();
	static struct seen seen;
	hc_slot_id slot = put(pool, &domain_a, SLOT_BYTES, 8);
	uint64_t right = hc_checksum(hc_pool_data(pool, slot), SLOT_BYTES - 8);
	struct hc_slot_page page = {.sequence = 9, .size_bytes = 1};
	struct hc_table_row row;

	hc_pool_set_checksum(pool, slot, 1);
	hc_pool_set_checksum(pool, slot, right);
	hc_pool_close(pool, true);
	pool = open_again(&seen);
	assert_int_equal(seen.n, 1);
	hc_pool_close(pool, false);
	hc_table_row_fill(&row, 5, &page);
	hc_table_row_page(&row, &page);
	assert_false(page.flags & HC_SLOT_FLAG_SUMMED);
}

/* Goal: not kept means nothing is left; not adopted means that what was there is gone. */
static void test_keep_and_remove(void **state)
{
	struct hc_pool_config config = config_of(test_dir);
	static struct seen seen;
	struct hc_pool *pool;
	char command[160];

	fill_and_keep(10);
	config.adopt = false;
	assert_int_equal(hc_pool_open(&config, &pool), 0);
	populate_whole(pool);
	hc_pool_close(pool, true);
	pool = open_again(&seen);
	assert_int_equal(seen.n, 0);
	hc_pool_close(pool, false);
	snprintf(command, sizeof(command), "test -z \"$(ls -A '%s')\"", test_dir);
	assert_int_equal(system(command), 0);
}

/* Goal: the pool's size may change from one start to the next; pages in segments that stay are
 * kept. */
static void test_resize(void **state)
{
	struct hc_pool_config config = config_of(test_dir);
	static struct seen seen;
	struct hc_pool *pool;
	struct stat st;
	char path[128];

	fill_and_keep(96);
	config.size_bytes = 2 * SEGMENT_BYTES;
	config.segment_bytes = 0;
	assert_int_equal(hc_pool_open(&config, &pool), 0);
	assert_int_equal(hc_pool_n_segments(pool), 2);
	seen = (struct seen){.pool = pool};
	hc_pool_adopted_each(pool, see, &seen);
	assert_int_equal(seen.n, 64);
	hc_pool_close(pool, true);
	path_of("seg-0002", path);
	assert_int_equal(stat(path, &st), -1);
	pool = open_again(&seen);
	assert_int_equal(hc_pool_n_segments(pool), 3);
	assert_int_equal(seen.n, 64);
	assert_int_equal(hc_pool_class_free(pool, &domain_a, SLOT_BYTES), 32);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_not_equal(put(pool, &domain_a, SLOT_BYTES, 200 + i), HC_SLOT_NONE);
	hc_pool_close(pool, true);
	pool = open_again(&seen);
	assert_int_equal(seen.n, 96);
	hc_pool_close(pool, false);
}

/* Goal: a segment size that is rounded is the same at the next start. */
static void test_odd_segment_size(void **state)
{
	struct hc_pool_config config = config_of(test_dir);
	struct hc_pool_stats stats;
	struct hc_pool *pool;

	config.segment_bytes = SEGMENT_BYTES - 5000;
	assert_int_equal(hc_pool_open(&config, &pool), 0);
	populate_whole(pool);
	hc_pool_close(pool, true);
	assert_int_equal(hc_pool_open(&config, &pool), 0);
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.segment_bytes, SEGMENT_BYTES);
	assert_int_equal(stats.adopted_bytes, N_SEGMENTS * SEGMENT_BYTES);
	hc_pool_close(pool, true);
	/* Larger pages than a segment holds: a new pool. */
	config.segment_bytes = 0;
	config.slot_bytes_max = 2 * SEGMENT_BYTES;
	assert_int_equal(hc_pool_open(&config, &pool), 0);
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.segment_bytes, 2 * SEGMENT_BYTES);
	assert_int_equal(stats.adopted_bytes, 0);
	hc_pool_close(pool, false);
}

/* Goal: a segment file that is missing, of another size, or no file costs its own pages only, and
 * rows of the lost ones never come back. */
static void test_lost_segment(void **state)
{
	static struct seen seen;
	struct hc_pool *pool;
	char path[128];

	for (int how = 0; how < 3; how++) {
		fill_and_keep(96);
		path_of("seg-0001", path);
		if (how == 1) {
			assert_int_equal(truncate(path, SEGMENT_BYTES / 2), 0);
		} else {
			assert_int_equal(unlink(path), 0);
			if (how == 2)
				assert_int_equal(symlink("/etc/passwd", path), 0);
		}
		pool = open_again(&seen);
		assert_int_equal(seen.n, 64);
		for (uint32_t i = 0; i < 64; i++)
			assert_true(seen.sequences[i] <= 32 || seen.sequences[i] > 64);
		/* Another slot size in the new segment: fewer rows are used than the old pages had.
		 */
		assert_int_not_equal(put(pool, &domain_a, 4096, 300), HC_SLOT_NONE);
		assert_int_equal(hc_pool_class_free(pool, &domain_a, 4096), 511);
		hc_pool_close(pool, true);
		pool = open_again(&seen);
		assert_int_equal(seen.n, 65);
		hc_pool_close(pool, false);
	}
}

/* Goal: a row or an entry of a segment that cannot be believed is dropped alone. */
static void test_damaged_rows(void **state)
{
	static struct seen seen;
	struct hc_pool *pool;
	const uint32_t junk = 77;
	struct hc_table_segment d;

	fill_and_keep(96);
	poke("slots", row_at(0, 3) + offsetof(struct hc_table_row, hash) + 5, &junk, 1);
	poke("slots", row_at(0, 4) + offsetof(struct hc_table_row, state), &junk, 4);
	poke("slots", row_at(0, 5) + offsetof(struct hc_table_row, size_bytes) + 4, &junk, 4);
	poke("slots", row_at(0, 6) + offsetof(struct hc_table_row, flags) + 1, &junk, 1);
	poke("slots", row_at(0, 7) + offsetof(struct hc_table_row, depth), &junk, 4);
	pool = open_again(&seen);
	assert_int_equal(seen.n, 91);
	hc_pool_close(pool, true);

	memset(&d, 0xff, sizeof(d));
	poke("slots", HC_TABLE_HEADER_BYTES + sizeof(d), &d, sizeof(d));
	d = (struct hc_table_segment){
		.state = HC_TABLE_SEGMENT_CUT, .n_slots = 1u << 30, .slot_bytes = 4096};
	d.check = hc_table_segment_sum(&d);
	poke("slots", HC_TABLE_HEADER_BYTES + 2 * sizeof(d), &d, sizeof(d));
	pool = open_again(&seen);
	assert_int_equal(seen.n, 27);
	hc_pool_close(pool, true);
	pool = open_again(&seen);
	assert_int_equal(seen.n, 27);
	hc_pool_close(pool, false);
}

static char last_error[1024];

static void keep_error(void *arg, enum hc_log_level level, const char *component, const char *text)
{
	if (level == HC_LOG_ERROR)
		snprintf(last_error, sizeof(last_error), "%s", text);
}

/* Goal: a table of a newer version, or one that is not whole, is refused with a remedy and dropped
 * only as asked. */
static void test_unreadable_table(void **state)
{
	const uint32_t newer = HC_TABLE_VERSION + 1;
	struct hc_pool_config config = config_of(test_dir);
	static struct seen seen;
	struct hc_pool *pool;
	char path[128];

	for (int how = 0; how < 5; how++) {
		int rc = how ? -EBADMSG : -EPROTO;

		fill_and_keep(10);
		path_of("slots", path);
		if (how == 0)
			poke("slots", offsetof(struct hc_table_header, version), &newer, 4);
		else if (how == 1)
			poke("slots", 0, "garbage", 7);
		else if (how == 2)
			poke("slots", offsetof(struct hc_table_header, n_segments), &newer, 4);
		else
			assert_int_equal(truncate(path, how == 3 ? 0 : 100000), 0);
		config = config_of(test_dir);
		hc_log_set_sink(keep_error, NULL);
		last_error[0] = 0;
		assert_int_equal(open_fails(&config), rc);
		assert_non_null(strstr(last_error, "--discard-pool"));
		config.adopt = false;
		assert_int_equal(open_fails(&config), rc);
		hc_log_set_sink(NULL, NULL);
		config.adopt = true;
		config.discard = true;
		assert_int_equal(hc_pool_open(&config, &pool), 0);
		hc_pool_close(pool, true);
		pool = open_again(&seen);
		assert_int_equal(seen.n, 0);
		hc_pool_close(pool, false);
	}
}

/* Goal: the pool of another cache is left alone; memory of an earlier boot is not believed. */
static void test_foreign(void **state)
{
	struct hc_pool_config config = config_of(test_dir);
	struct hc_table_header header;
	static struct seen seen;
	struct hc_pool *pool;
	uint8_t boot[16] = {1};

	fill_and_keep(10);
	config.uuid[3] = 9;
	hc_log_set_sink(keep_error, NULL);
	assert_int_equal(open_fails(&config), -EBUSY);
	hc_log_set_sink(NULL, NULL);
	pool = open_again(&seen);
	assert_int_equal(seen.n, 10);
	hc_pool_close(pool, true);

	config = config_of(test_dir);
	hc_table_header_fill(&header, config.uuid, boot, N_SEGMENTS, SEGMENT_BYTES);
	poke("slots", 0, &header, sizeof(header));
	pool = open_again(&seen);
	assert_int_equal(seen.n, 0);
	hc_pool_close(pool, false);
}

/* Goal: bytes of a domain are zeroed for another also when a restart lies in between. */
static void test_domain_over_restart(void **state)
{
	struct hc_pool *pool;
	struct hc_run run;
	static const uint8_t zero[4096];
	uint32_t n_runs, n;

	fill_and_keep(96);
	pool = open_dir();
	for (hc_slot_id i = 0; i < 96; i++)
		hc_pool_free(pool, hc_pool_slot(pool, i / 32, i % 32));
	hc_pool_close(pool, true);
	pool = open_dir();
	assert_int_equal(hc_pool_reserve(pool, &domain_b, 4096, 512, -1, HC_SLOT_FILLING, &run, 1,
					 &n_runs, &n),
			 0);
	for (uint32_t i = 0; i < 512; i++)
		assert_memory_equal(hc_pool_data(pool, hc_pool_slot(pool, run.segment, i)), zero,
				    sizeof(zero));
	hc_pool_close(pool, false);
}

/* Goal: one daemon a pool. Method: a child holds it. */
static void test_two_processes(void **state)
{
	struct hc_pool_config config = config_of(test_dir);
	int ready[2], end[2], status;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(end), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct hc_pool *pool = open_dir();

		close(end[1]);
		if (write(ready[1], "x", 1) != 1 || read(end[0], &byte, 1))
			_exit(1);
		hc_pool_close(pool, true);
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	hc_log_set_sink(keep_error, NULL);
	assert_int_equal(open_fails(&config), -EBUSY);
	assert_non_null(strstr(last_error, test_dir));
	hc_log_set_sink(NULL, NULL);
	close(end[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(open_fails(&config), 0);
}

/* The child of the crash tests: publishes, dooms, frees and re-cuts at random until the crash point
 * kills it. */
static int crash_child(const char *dir, uint64_t seed)
{
	static const uint64_t sizes[] = {4096, SLOT_BYTES, 3 * SLOT_BYTES};
	struct hc_pool_config config = config_of(dir);
	hc_slot_id held[1024];
	struct hc_pool *pool;
	uint32_t n_held = 0;
	struct hc_rng rng;

	hc_log_set_level(HC_LOG_WARN);
	if (hc_pool_open(&config, &pool))
		return 2;
	populate_whole(pool);
	hc_rng_seed(&rng, seed);
	for (int step = 0; step < 20000; step++) {
		/* Long phases of one class, so that segments empty and are cut anew. */
		uint64_t phase = (uint64_t)step / 500 + seed;
		const struct hc_domain *domain = phase % 2 ? &domain_a : &domain_b;

		if (n_held < HC_ARRAY_SIZE(held) && hc_rng_below(&rng, 5) < 3) {
			hc_slot_id slot = put(pool, domain, sizes[phase % 3],
					      1 + hc_rng_below(&rng, 1u << 20));

			if (slot != HC_SLOT_NONE) {
				held[n_held++] = slot;
				continue;
			}
		}
		/* At the end of a phase all but a few go. */
		for (uint64_t i = step % 500 > 480 ? n_held - n_held / 50 : hc_rng_below(&rng, 3);
		     i && n_held; i--) {
			uint64_t k = hc_rng_below(&rng, n_held);

			if (hc_rng_below(&rng, 2))
				hc_pool_doom(pool, held[k]);
			hc_pool_free(pool, held[k]);
			held[k] = held[--n_held];
		}
	}
	return 3;
}

static void crash_run(const char *point, uint32_t nth, uint64_t seed)
{
	char at[64], seed_text[32];
	int status;
	pid_t pid;

	snprintf(at, sizeof(at), "%s:%u", point, nth);
	snprintf(seed_text, sizeof(seed_text), "%" PRIu64, seed);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		setenv("HICACHE_CRASH_AT", at, 1);
		execl(test_program, "test-pool-adopt", "crash", test_dir, seed_text, (char *)NULL);
		_exit(9);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status))
		fail_msg("%s of seed %" PRIu64 " was not reached: status %d", at, seed, status);
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* Goal: kill -9 inside publish, free and re-cut leaves whole pages only, and a pool that works. */
static void test_crash(void **state)
{
	static const char *const points[] = {"pool-publish-row", "pool-recut", "pool-free"};
	static struct seen seen;
	struct hc_pool *pool;
	struct hc_rng rng;
	uint32_t n_pages = 0;

	hc_rng_seed(&rng, 5);
	hc_log_set_level(HC_LOG_WARN);
	for (uint32_t round = 0; round < 30; round++) {
		const char *point = points[round % 3];
		uint32_t nth = 1 + (uint32_t)hc_rng_below(&rng, round % 3 == 1 ? 14 : 1000);

		crash_run(point, nth, round);
		pool = open_again(&seen);
		n_pages += seen.n;
		/* Everything that was not kept is free, whichever way the segments are cut. */
		for (uint32_t i = 0; i < seen.n; i++)
			hc_pool_free(pool, seen.slots[i]);
		assert_int_equal(hc_pool_class_free(pool, &domain_a, 8192),
				 N_SEGMENTS * SEGMENT_BYTES / 8192);
		hc_pool_close(pool, round % 2);
	}
	hc_log_set_level(HC_LOG_INFO);
	assert_true(n_pages > 100);
}

/* Goal: the crash point inside publish lies between row and state: the page that was being
 * published is not there, all before it are. */
static void test_crash_publish(void **state)
{
	static struct seen seen;
	struct hc_pool *pool;

	crash_run("pool-publish-row", 1, 1);
	pool = open_again(&seen);
	assert_int_equal(seen.n, 0);
	hc_pool_close(pool, false);
}

#define adopt_test(f) cmocka_unit_test_setup_teardown(f, dir_setup, dir_teardown)

static const struct CMUnitTest tests[] = {
	adopt_test(test_adopt),
	adopt_test(test_late_checksum),
	adopt_test(test_keep_and_remove),
	adopt_test(test_resize),
	adopt_test(test_odd_segment_size),
	adopt_test(test_lost_segment),
	adopt_test(test_damaged_rows),
	adopt_test(test_unreadable_table),
	adopt_test(test_foreign),
	adopt_test(test_domain_over_restart),
	adopt_test(test_two_processes),
	adopt_test(test_crash),
	adopt_test(test_crash_publish),
};

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "crash"))
		return crash_child(argv[2], strtoull(argv[3], NULL, 10));
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
