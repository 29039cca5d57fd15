/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog. Goal: what was promised survives kill -9, a damaged or vanished file is noticed and
 * replaced, a full disk is an error and not an end. Method: real files in a temporary directory,
 * forked children that die at crash points, files damaged behind the catalog's back. */
#include "hctest.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <lmdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "index/catalog.h"
#include "index/rows.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/log.h"
#include "util/rng.h"
#include "util/size.h"

#define WAIT_NS  (20 * HC_NS_PER_S)
#define ROWS_MAX 4096

struct fixture {
	char dir[64];
	struct hc_catalog_config config;
	atomic_int n_lost;
};

static uint64_t deadline(void)
{
	return hc_clock_now_ns() + WAIT_NS;
}

static void on_lost(void *arg, int error)
{
	struct fixture *f = arg;

	assert_int_equal(error, -EBADMSG);
	atomic_fetch_add(&f->n_lost, 1);
}

static struct hc_catalog_config config_of(const char *dir)
{
	return (struct hc_catalog_config){
		.dir = dir, .uuid = "sixteen bytes id", .map_bytes = HC_MIB, .lost = on_lost};
}

static int setup(void **state)
{
	struct fixture *f = hc_zalloc(sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/hc-test-catalog-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->config = config_of(f->dir);
	f->config.arg = f;
	/* The errors that the tests provoke would hide real ones. */
	hc_log_set_level(HC_LOG_ERROR);
	*state = f;
	return 0;
}

static void path_of(const struct fixture *f, const char *name, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%s", f->dir, name);
}

static void empty_dir(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	empty_dir(f->dir);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	hc_log_set_level(HC_LOG_INFO);
	return 0;
}

static void quiet_sink(void *arg, enum hc_log_level level, const char *component, const char *text)
{
	(void)arg, (void)level, (void)component, (void)text;
}

/* What a table holds, by small keys. */
struct rows {
	bool there[ROWS_MAX];
	uint64_t value[ROWS_MAX];
	uint64_t last;
	size_t n;
	size_t stop_at;
};

static int each_row(void *arg, uint64_t key, const void *value, size_t n_bytes)
{
	struct rows *rows = arg;

	assert_true(key < ROWS_MAX);
	assert_true(!rows->n || key > rows->last);
	assert_true(n_bytes >= 8 || n_bytes == 0);
	rows->there[key] = true;
	rows->value[key] = 0;
	if (n_bytes)
		memcpy(&rows->value[key], value, 8);
	rows->last = key;
	rows->n++;
	return rows->stop_at && rows->n == rows->stop_at;
}

static void load(struct hc_catalog *c, enum hc_table table, struct rows *rows)
{
	memset(rows, 0, sizeof(*rows));
	assert_int_equal(hc_catalog_load(c, table, each_row, rows), 0);
}

static void put(struct hc_catalog *c, uint64_t key, uint64_t value, size_t n_bytes, bool now)
{
	uint8_t bytes[HC_ROW_BYTES_MAX] = {0};

	memcpy(bytes, &value, sizeof(value));
	assert_int_equal(hc_catalog_put(c, HC_TABLE_PAGES, key, bytes, n_bytes, now, NULL), 0);
}

static struct hc_catalog *create(struct fixture *f)
{
	struct hc_catalog *c;

	assert_int_equal(hc_catalog_create(&f->config, &c), 0);
	return c;
}

static struct hc_catalog *reopen(struct fixture *f)
{
	struct hc_catalog *c;

	assert_int_equal(hc_catalog_open(&f->config, &c), 0);
	return c;
}

/* Random puts and deletes in all tables, against a model, over several openings; values up to the
 * largest. */
static void test_round_trip(void **state)
{
	struct fixture *f = *state;
	struct rows *model = hc_zalloc(HC_TABLE_N * sizeof(*model)),
		    *found = hc_zalloc(sizeof(*found));
	struct hc_catalog *c = create(f);
	uint8_t value[HC_ROW_BYTES_MAX] = {0};
	struct hc_rng rng;

	hc_rng_seed(&rng, 7);
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 4000; i++) {
			int t = (int)hc_rng_below(&rng, HC_TABLE_N);
			uint64_t key = 16 + hc_rng_below(&rng, 600), v = hc_rng_next(&rng);
			bool now = !hc_rng_below(&rng, 5);
			size_t n = 8 + (hc_rng_below(&rng, 50) ? hc_rng_below(&rng, 150)
							       : ROWS_MAX - 8);

			memcpy(value, &v, 8);
			model[t].there[key] = hc_rng_below(&rng, 3) > 0;
			model[t].value[key] = v;
			if (model[t].there[key])
				assert_int_equal(hc_catalog_put(c, (enum hc_table)t, key, value, n,
								now, NULL),
						 0);
			else
				assert_int_equal(
					hc_catalog_del(c, (enum hc_table)t, key, now, NULL), 0);
		}
		if (round % 2)
			assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
		hc_catalog_close(c);
		c = reopen(f);
		for (int t = 0; t < HC_TABLE_N; t++) {
			load(c, (enum hc_table)t, found);
			for (size_t k = 16; k < ROWS_MAX; k++) {
				assert_int_equal(found->there[k], model[t].there[k]);
				if (found->there[k])
					assert_int_equal(found->value[k], model[t].value[k]);
			}
		}
	}
	memset(found, 0, sizeof(*found));
	found->stop_at = 5;
	assert_int_equal(hc_catalog_load(c, HC_TABLE_PAGES, each_row, found), 0);
	assert_int_equal(found->n, 5);
	hc_catalog_close(c);
	assert_int_equal(atomic_load(&f->n_lost), 0);
	free(model);
	free(found);
}

/* A map of 16 MiB is outgrown: it doubles, nothing is lost. */
static void test_map_grows(void **state)
{
	struct fixture *f = *state;
	struct rows *found = hc_zalloc(sizeof(*found));
	struct hc_catalog *c = create(f);

	for (int lap = 0; lap < 3; lap++) {
		for (uint64_t k = 0; k < ROWS_MAX; k++)
			put(c, k, k * 3 + 1, HC_ROW_BYTES_MAX, false);
	}
	for (uint64_t k = 0; k < 3 * (uint64_t)ROWS_MAX; k++) {
		uint8_t value[HC_ROW_BYTES_MAX] = {1};

		assert_int_equal(
			hc_catalog_put(c, HC_TABLE_FILES, k, value, sizeof(value), false, NULL), 0);
	}
	assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
	assert_false(hc_catalog_is_lost(c));
	hc_catalog_close(c);
	c = reopen(f);
	load(c, HC_TABLE_PAGES, found);
	assert_int_equal(found->n, ROWS_MAX);
	for (uint64_t k = 0; k < ROWS_MAX; k++)
		assert_int_equal(found->value[k], k * 3 + 1);
	hc_catalog_close(c);
	free(found);
}

/* A change is committed by itself after commit_ns, and a sync does not wait for that. */
static void test_commit_times(void **state)
{
	struct fixture *f = *state;
	struct hc_catalog_stats stats;
	struct hc_catalog *c;
	uint64_t ticket, start_ns;

	f->config.commit_ns = 3600 * HC_NS_PER_S;
	c = create(f);
	start_ns = hc_clock_now_ns();
	assert_int_equal(hc_catalog_put(c, HC_TABLE_PAGES, 1, "12345678", 8, false, &ticket), 0);
	assert_int_equal(hc_catalog_sync(c, ticket, deadline()), 0);
	hc_catalog_stats(c, &stats);
	assert_int_equal(stats.n_commits, 1);
	assert_int_equal(stats.n_queued, 0);
	assert_int_equal(hc_catalog_sync(c, ticket, deadline()), 0);
	assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
	assert_true(hc_clock_now_ns() - start_ns < WAIT_NS);
	/* A full batch does not wait for the hour either. */
	for (uint64_t k = 0; k < 5000; k++)
		put(c, k % ROWS_MAX, k, 8, false);
	do {
		hc_catalog_stats(c, &stats);
	} while (stats.n_queued > 4096 && hc_clock_now_ns() - start_ns < WAIT_NS);
	assert_true(stats.n_commits >= 2);
	hc_catalog_close(c);

	f->config.commit_ns = HC_NS_PER_MS;
	c = reopen(f);
	put(c, 2, 2, 8, false);
	start_ns = hc_clock_now_ns();
	do {
		hc_catalog_stats(c, &stats);
	} while (stats.n_queued && hc_clock_now_ns() - start_ns < WAIT_NS);
	assert_int_equal(stats.n_queued, 0);
	assert_int_equal(hc_catalog_sync(c, 0, 0), 0);
	hc_catalog_close(c);
}

/* Refusals: absent, in use, another cache's, empty, garbage, short, newer. Only create replaces,
 * and never a newer one. */
static void write_file(const struct fixture *f, const char *name, const void *data, size_t n)
{
	char path[PATH_MAX];
	int fd;

	path_of(f, name, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(hc_pwrite_full(fd, data, n, 0), 0);
	close(fd);
}

static bool exists(const struct fixture *f, const char *name)
{
	char path[PATH_MAX];

	path_of(f, name, path);
	return !access(path, F_OK);
}

static void test_refusals(void **state)
{
	struct fixture *f = *state;
	struct hc_catalog *c = NULL, *other = NULL;
	uint8_t garbage[65536];

	hc_log_set_sink(quiet_sink, NULL);
	assert_int_equal(hc_catalog_open(&f->config, &c), -ENOENT);
	assert_false(exists(f, "catalog.mdb"));
	c = create(f);
	assert_int_equal(hc_catalog_open(&f->config, &other), -EBUSY);
	assert_int_equal(hc_catalog_create(&f->config, &other), -EBUSY);
	assert_null(other);
	hc_catalog_close(c);
	f->config.uuid[0] ^= 1;
	assert_int_equal(hc_catalog_open(&f->config, &other), -EBADMSG);
	f->config.uuid[0] ^= 1;
	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (uint8_t)(i * 131 + 7);
	for (size_t n = 0; n <= sizeof(garbage); n = n ? n * 4 : 1) {
		write_file(f, "catalog.mdb", garbage, n);
		assert_int_equal(hc_catalog_open(&f->config, &other), -EBADMSG);
	}
	c = create(f);
	assert_true(exists(f, "catalog.mdb.bad-1"));
	hc_catalog_close(c);
	write_file(f, "catalog.mdb", garbage, sizeof(garbage));
	hc_catalog_close(create(f));
	assert_false(exists(f, "catalog.mdb.bad-1"));
	assert_true(exists(f, "catalog.mdb.bad-2"));
	hc_log_set_sink(NULL, NULL);
}

static void set_format(const struct fixture *f, uint64_t format)
{
	uint64_t key = htobe64(1), value = htole64(format);
	MDB_val k = {8, &key}, v = {8, &value};
	char path[PATH_MAX];
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	path_of(f, "catalog.mdb", path);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 8), 0);
	assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOLOCK, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, "meta", 0, &dbi), 0);
	assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

static void test_newer(void **state)
{
	struct fixture *f = *state;
	struct hc_catalog *c = create(f);
	char *before, *after, path[PATH_MAX];
	size_t n_before, n_after;

	hc_log_set_sink(quiet_sink, NULL);
	put(c, 1, 42, 8, true);
	hc_catalog_close(c);
	set_format(f, 2);
	path_of(f, "catalog.mdb", path);
	assert_int_equal(hc_file_read(AT_FDCWD, path, HC_GIB, &before, &n_before), 0);
	assert_int_equal(hc_catalog_open(&f->config, &c), -EPROTO);
	assert_int_equal(hc_catalog_create(&f->config, &c), -EPROTO);
	assert_int_equal(hc_file_read(AT_FDCWD, path, HC_GIB, &after, &n_after), 0);
	assert_int_equal(n_before, n_after);
	assert_memory_equal(before, after, n_before);
	free(before);
	free(after);
	set_format(f, 1);
	hc_catalog_close(reopen(f));
	hc_log_set_sink(NULL, NULL);
}

/* A catalog from before there was the table of attributes: it gets one, and keeps all else. */
static void test_older(void **state)
{
	struct fixture *f = *state;
	struct hc_catalog *c = create(f);
	struct rows *found = hc_zalloc(sizeof(*found));
	char path[PATH_MAX];
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	put(c, 1, 42, 8, false);
	hc_catalog_close(c);
	path_of(f, "catalog.mdb", path);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 8), 0);
	assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOLOCK, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, "attrs", 0, &dbi), 0);
	assert_int_equal(mdb_drop(txn, dbi, 1), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
	for (int i = 0; i < 2; i++) {
		c = reopen(f);
		load(c, HC_TABLE_PAGES, found);
		assert_int_equal(found->n, 1);
		assert_int_equal(found->value[1], 42);
		load(c, HC_TABLE_ATTRS, found);
		assert_int_equal(found->n, i);
		assert_int_equal(hc_catalog_put(c, HC_TABLE_ATTRS, 2, "12345678", 8, true, NULL),
				 0);
		hc_catalog_close(c);
	}
	free(found);
}

/* A child works until it is killed at a crash point. It tells on a pipe what it was promised: 'S' +
 * key: synced, 'J' + key: journaled, 'D' + key: deleted, journaled. After the next open each
 * promise holds. */
struct promise {
	char kind;
	uint64_t key;
};

static void child_work(struct fixture *f, int out, uint64_t seed)
{
	struct hc_catalog *c;
	struct hc_rng rng;
	uint64_t key = 0;

	hc_rng_seed(&rng, seed);
	f->config.commit_ns = HC_NS_PER_MS;
	if (hc_catalog_open(&f->config, &c))
		_exit(9);
	for (int i = 0; i < 20000; i++) {
		uint64_t what = hc_rng_below(&rng, 40), ticket, v = seed;
		struct promise p = {0, 0};
		int rc;

		if (what == 0) {
			p = (struct promise){'S', hc_rng_below(&rng, ROWS_MAX / 2)};
			rc = hc_catalog_put(c, HC_TABLE_PAGES, p.key, &v, 8, false, &ticket);
			rc = rc ? rc : hc_catalog_sync(c, ticket, deadline());
		} else if (what < 10) {
			p = (struct promise){'J', hc_rng_below(&rng, ROWS_MAX / 2)};
			rc = hc_catalog_put(c, HC_TABLE_PAGES, p.key, &v, 8, true, NULL);
		} else if (what < 20) {
			p = (struct promise){'D', hc_rng_below(&rng, ROWS_MAX / 2)};
			rc = hc_catalog_del(c, HC_TABLE_PAGES, p.key, true, NULL);
		} else {
			key = ROWS_MAX / 2 + hc_rng_below(&rng, ROWS_MAX / 2);
			rc = hc_catalog_put(c, HC_TABLE_PAGES, key, &v, 8, false, NULL);
		}
		if (rc)
			_exit(8);
		if (p.kind && write(out, &p, sizeof(p)) != sizeof(p))
			_exit(7);
	}
	hc_catalog_close(c);
	_exit(0);
}

static bool run_and_kill(struct fixture *f, const char *point, uint64_t seed,
			 uint8_t promised[ROWS_MAX])
{
	struct promise p;
	int fds[2], status;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		/* A fresh program: this one may have read already that nothing is armed. */
		char seed_text[32];

		snprintf(seed_text, sizeof(seed_text), "%" PRIu64, seed);
		setenv("HICACHE_CRASH_AT", point, 1);
		dup2(fds[1], STDOUT_FILENO);
		execl("/proc/self/exe", "test-catalog", f->dir, seed_text, NULL);
		_exit(6);
	}
	close(fds[1]);
	while (read(fds[0], &p, sizeof(p)) == sizeof(p))
		promised[p.key] = (uint8_t)p.kind;
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status))
		assert_int_equal(WEXITSTATUS(status), 0);
	else
		assert_int_equal(WTERMSIG(status), SIGKILL);
	return WIFSIGNALED(status);
}

static void test_kill(void **state)
{
	static const char *const points[] = {
		"catalog-commit-before:1", "catalog-commit-before:7", "catalog-commit-before:23",
		"catalog-commit-after:1",  "catalog-commit-after:12", "catalog-commit-after:31",
		"catalog-journal:1",       "catalog-journal:150",     "catalog-journal:2500",
		"catalog-journal:5000",
	};
	struct fixture *f = *state;
	struct rows *found = hc_zalloc(sizeof(*found));
	uint8_t *promised = hc_zalloc(ROWS_MAX);
	size_t n_killed = 0;

	hc_catalog_close(create(f));
	for (size_t i = 0; i < HC_ARRAY_SIZE(points); i++) {
		struct hc_catalog *c;

		n_killed += run_and_kill(f, points[i], 100 + i, promised);
		c = reopen(f);
		load(c, HC_TABLE_PAGES, found);
		for (size_t k = 0; k < ROWS_MAX / 2; k++) {
			/* The change in flight at the kill was not promised either way. */
			if (promised[k] == 'S' || promised[k] == 'J')
				f->n_lost += !found->there[k];
			else if (promised[k] == 'D')
				f->n_lost += found->there[k];
			promised[k] = found->there[k] ? 'J' : 'D';
		}
		assert_true(f->n_lost <= 1);
		f->n_lost = 0;
		hc_catalog_close(c);
	}
	assert_int_equal(n_killed, HC_ARRAY_SIZE(points));
	free(found);
	free(promised);
}

/* A record torn at every length, a flipped byte in it, and what an earlier turn left behind it:
 * only whole records of tickets that are not committed count. */
static void test_journal_damage(void **state)
{
	struct fixture *f = *state;
	struct rows *found = hc_zalloc(sizeof(*found));
	char *text[2], path[2][PATH_MAX], mdb[PATH_MAX], *mdb_text;
	size_t n[2], n_mdb, whole;
	struct hc_catalog *c;
	struct hc_rng rng;

	hc_rng_seed(&rng, 3);
	path_of(f, "journal.0", path[0]);
	path_of(f, "journal.1", path[1]);
	path_of(f, "catalog.mdb", mdb);
	f->config.commit_ns = 3600 * HC_NS_PER_S;
	c = create(f);
	assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
	assert_int_equal(hc_file_read(AT_FDCWD, mdb, HC_GIB, &mdb_text, &n_mdb), 0);
	for (uint64_t k = 0; k < 8; k++)
		put(c, k, k + 1, 13, true);
	assert_int_equal(hc_file_read(AT_FDCWD, path[0], HC_GIB, &text[0], &n[0]), 0);
	hc_catalog_close(c);
	assert_true(n[0] > 0 && n[0] % 8 == 0);
	whole = n[0] / 8;
	for (size_t cut = 0; cut <= n[0]; cut += 1 + hc_rng_below(&rng, 9)) {
		size_t at = cut ? hc_rng_below(&rng, cut) : 0;
		bool flip = cut && hc_rng_below(&rng, 2);
		size_t n_want = flip ? at / whole : cut / whole;

		write_file(f, "catalog.mdb", mdb_text, n_mdb);
		text[0][at] ^= flip;
		write_file(f, "journal.0", text[0], cut);
		text[0][at] ^= flip;
		write_file(f, "journal.1", "", 0);
		c = reopen(f);
		load(c, HC_TABLE_PAGES, found);
		assert_int_equal(found->n, n_want);
		for (size_t k = 0; k < n_want; k++)
			assert_int_equal(found->value[k], k + 1);
		hc_catalog_close(c);
	}
	/* The same records again, now committed: they must not undo what came later. */
	write_file(f, "catalog.mdb", mdb_text, n_mdb);
	write_file(f, "journal.0", text[0], n[0]);
	c = reopen(f);
	assert_int_equal(hc_catalog_del(c, HC_TABLE_PAGES, 3, false, NULL), 0);
	hc_catalog_close(c);
	write_file(f, "journal.1", text[0], n[0]);
	c = reopen(f);
	load(c, HC_TABLE_PAGES, found);
	assert_int_equal(found->n, 7);
	assert_false(found->there[3]);
	hc_catalog_close(c);
	/* Records of another environment do not count. */
	c = create(f);
	hc_catalog_close(c);
	write_file(f, "journal.0", text[0], n[0]);
	c = reopen(f);
	load(c, HC_TABLE_PAGES, found);
	assert_int_equal(found->n, 0);
	hc_catalog_close(c);
	free(text[0]);
	free(mdb_text);
	free(found);
}

/* The file loses its bytes, or its name, under the running catalog: lost is told once, puts go on,
 * renew works. */
static void check_loss(struct fixture *f, struct hc_catalog *c, struct rows *found)
{
	uint64_t give_up_ns = deadline(), ticket = 0;
	int rc = 0;

	for (uint64_t k = 0; !hc_catalog_is_lost(c) && hc_clock_now_ns() < give_up_ns; k++) {
		put(c, k % ROWS_MAX, k, 8, false);
		rc = hc_catalog_sync(c, 0, deadline());
	}
	assert_true(hc_catalog_is_lost(c));
	assert_int_equal(rc, -EIO);
	while (!atomic_load(&f->n_lost) && hc_clock_now_ns() < give_up_ns)
		sched_yield();
	assert_int_equal(atomic_load(&f->n_lost), 1);
	assert_false(exists(f, "catalog.mdb"));
	assert_int_equal(hc_catalog_put(c, HC_TABLE_PAGES, 77, "xxxxxxxx", 8, true, &ticket), 0);
	assert_int_equal(hc_catalog_sync(c, ticket, deadline()), -EIO);
	assert_int_equal(hc_catalog_load(c, HC_TABLE_PAGES, each_row, found), -EBADMSG);
	assert_int_equal(hc_catalog_renew(c), 0);
	assert_false(hc_catalog_is_lost(c));
	assert_int_equal(hc_catalog_sync(c, ticket, deadline()), -EIO);
	assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
	put(c, 5, 55, 8, true);
	put(c, 6, 66, 8, false);
	assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
	hc_catalog_close(c);
	c = reopen(f);
	load(c, HC_TABLE_PAGES, found);
	assert_int_equal(found->n, 2);
	assert_int_equal(found->value[5], 55);
	hc_catalog_close(c);
	assert_int_equal(atomic_load(&f->n_lost), 1);
	atomic_store(&f->n_lost, 0);
}

static struct hc_catalog *filled(struct fixture *f)
{
	struct hc_catalog *c = create(f);

	for (uint64_t k = 0; k < ROWS_MAX; k++)
		put(c, k, k, 900, false);
	assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
	return c;
}

static void test_truncated(void **state)
{
	static const off_t sizes[] = {0, 4096, 65536, 1 << 20};
	struct fixture *f = *state;
	struct rows *found = hc_zalloc(sizeof(*found));
	char path[PATH_MAX];

	hc_log_set_sink(quiet_sink, NULL);
	path_of(f, "catalog.mdb", path);
	for (size_t i = 0; i < HC_ARRAY_SIZE(sizes); i++) {
		struct hc_catalog *c = filled(f);

		assert_int_equal(truncate(path, sizes[i]), 0);
		check_loss(f, c, found);
	}
	hc_log_set_sink(NULL, NULL);
	free(found);
}

static void test_removed(void **state)
{
	struct fixture *f = *state;
	struct rows *found = hc_zalloc(sizeof(*found));
	struct hc_catalog *c = filled(f);
	char path[PATH_MAX];

	hc_log_set_sink(quiet_sink, NULL);
	path_of(f, "catalog.mdb", path);
	assert_int_equal(unlink(path), 0);
	check_loss(f, c, found);
	hc_log_set_sink(NULL, NULL);
	free(found);
}

static int each_any(void *arg, uint64_t key, const void *value, size_t n_bytes)
{
	size_t *n = arg;

	(void)key, (void)value;
	assert_true(n_bytes <= HC_ROW_BYTES_MAX);
	++*n;
	return 0;
}

/* Truncated between two starts, to any length: an error at open or at load, then a fresh one; never
 * a crash. */
static void test_truncated_at_open(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX], *text;
	size_t n_text, n_bad = 0;
	struct hc_rng rng;

	hc_log_set_sink(quiet_sink, NULL);
	hc_rng_seed(&rng, 5);
	hc_catalog_close(filled(f));
	path_of(f, "catalog.mdb", path);
	assert_int_equal(hc_file_read(AT_FDCWD, path, HC_GIB, &text, &n_text), 0);
	for (int i = 0; i < 40; i++) {
		size_t cut = i < 8 ? (size_t)i * 4096 : hc_rng_below(&rng, n_text), n = 0;
		struct hc_catalog *c;
		int rc;

		write_file(f, "catalog.mdb", text, cut);
		rc = hc_catalog_open(&f->config, &c);
		assert_true(rc == 0 || rc == -EBADMSG);
		if (rc) {
			n_bad++;
			continue;
		}
		rc = hc_catalog_load(c, HC_TABLE_PAGES, each_any, &n);
		assert_true(rc == 0 || rc == -EBADMSG);
		n_bad += rc != 0;
		if (!rc)
			assert_int_equal(n, ROWS_MAX);
		else
			assert_int_equal(hc_catalog_renew(c), 0);
		hc_catalog_close(c);
	}
	assert_true(n_bad >= 38);
	hc_log_set_sink(NULL, NULL);
	free(text);
}

/* One bit of a page's head in the file: LMDB would take a wild `upper` for granted when it writes
 * there. Either the damage is seen at load, or the page was free and changes go through. */
static void test_damaged_heads(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX], *text;
	size_t n_text, n_bad = 0;
	struct hc_rng rng;

	hc_log_set_sink(quiet_sink, NULL);
	hc_rng_seed(&rng, 23);
	hc_catalog_close(filled(f));
	path_of(f, "catalog.mdb", path);
	assert_int_equal(hc_file_read(AT_FDCWD, path, HC_GIB, &text, &n_text), 0);
	for (int i = 0; i < 40; i++) {
		size_t at = (2 + hc_rng_below(&rng, n_text / 4096 - 2)) * 4096 + 15, n = 0;
		struct hc_catalog *c;
		int rc;

		text[at] ^= 0x40;
		write_file(f, "catalog.mdb", text, n_text);
		text[at] ^= 0x40;
		rc = hc_catalog_open(&f->config, &c);
		n_bad += rc != 0;
		if (rc)
			continue;
		rc = hc_catalog_load(c, HC_TABLE_PAGES, each_any, &n);
		n_bad += rc != 0;
		for (uint64_t k = 0; !rc && k < ROWS_MAX; k += 3)
			assert_int_equal(hc_catalog_del(c, HC_TABLE_PAGES, k, false, NULL), 0);
		if (!rc)
			assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
		hc_catalog_close(c);
	}
	assert_true(n_bad > 20);
	hc_log_set_sink(NULL, NULL);
	free(text);
}

/* A SIGBUS that is not the catalog's reaches the handler that was there before, or ends the
 * process; sent or by an access; also where that handler came after the first catalog. */
static void on_sigbus(int number)
{
	(void)number;
	_exit(42);
}

static void sigbus_child(struct fixture *f, bool handled, bool access, bool late)
{
	struct sigaction action = {.sa_handler = handled ? on_sigbus : SIG_DFL};
	volatile char *map;
	int fd;

	if (late)
		hc_catalog_close(reopen(f));
	sigaction(SIGBUS, &action, NULL);
	hc_catalog_close(reopen(f));
	if (access) {
		fd = openat(AT_FDCWD, f->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
		_exit(map != MAP_FAILED && map[0] ? 1 : 2);
	}
	raise(SIGBUS);
	_exit(3);
}

static void test_sigbus_of_others(void **state)
{
	struct fixture *f = *state;

	hc_catalog_close(create(f));
	for (unsigned i = 0; i < 8; i++) {
		bool handled = i & 1;
		int status;
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (!pid)
			sigbus_child(f, handled, i & 2, i & 4);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (handled)
			assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
		else
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	}
}

/* A small file system fills up: sync says so, the rows are there once there is room again. */
static void test_disk_full(void **state)
{
	struct fixture *f = *state;
	struct rows *found = hc_zalloc(sizeof(*found));
	struct hc_catalog_stats stats;
	struct hc_catalog *c;
	int fd, rc = 0;

	if (geteuid() || mount("none", f->dir, "tmpfs", 0, "size=8m")) {
		free(found);
		hc_test_skip("mounting a tmpfs needs root");
	}
	hc_log_set_sink(quiet_sink, NULL);
	c = create(f);
	put(c, 0, 1, 8, false);
	assert_int_equal(hc_catalog_sync(c, 0, deadline()), 0);
	fd = openat(AT_FDCWD, f->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (off_t at = 0; !fallocate(fd, 0, at, 65536); at += 65536)
		;
	for (uint64_t k = 1; !rc && k < 200; k++) {
		put(c, k, k + 1, HC_ROW_BYTES_MAX, false);
		rc = hc_catalog_sync(c, 0, deadline());
	}
	assert_int_equal(rc, -ENOSPC);
	assert_false(hc_catalog_is_lost(c));
	put(c, 300, 301, 8, true);
	close(fd);
	do {
		rc = hc_catalog_sync(c, 0, deadline());
	} while (rc == -ENOSPC);
	assert_int_equal(rc, 0);
	hc_catalog_stats(c, &stats);
	assert_int_equal(stats.n_queued, 0);
	hc_catalog_close(c);
	c = reopen(f);
	load(c, HC_TABLE_PAGES, found);
	assert_true(found->there[300] && found->there[1]);
	hc_catalog_close(c);
	hc_log_set_sink(NULL, NULL);
	assert_int_equal(umount2(f->dir, 0), 0);
	free(found);
}

/* Threads put, delete and sync at the same time; what each wrote last is there. */
struct writer {
	struct hc_catalog *c;
	uint64_t first;
	int n_errors;
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	for (uint64_t i = 0; i < 2000; i++) {
		uint64_t key = w->first + i % 100, value = i, ticket;

		w->n_errors += hc_catalog_put(w->c, HC_TABLE_PAGES, key, &value, 8, i % 3 == 0,
					      &ticket) != 0;
		if (i % 500 == 0)
			w->n_errors += hc_catalog_sync(w->c, ticket, deadline()) != 0;
		if (i >= 1990)
			w->n_errors += hc_catalog_del(w->c, HC_TABLE_PAGES, key, i % 2, NULL) != 0;
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct fixture *f = *state;
	struct rows *found = hc_zalloc(sizeof(*found));
	struct writer writers[4];
	pthread_t threads[4];
	struct hc_catalog *c;

	f->config.commit_ns = HC_NS_PER_MS;
	c = create(f);
	for (uint64_t i = 0; i < 4; i++) {
		writers[i] = (struct writer){c, i * 100, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, writer_main, &writers[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(writers[i].n_errors, 0);
	}
	hc_catalog_close(c);
	c = reopen(f);
	load(c, HC_TABLE_PAGES, found);
	assert_int_equal(found->n, 4 * 90);
	for (uint64_t i = 0; i < 400; i++) {
		assert_int_equal(found->there[i], i % 100 < 90);
		if (found->there[i])
			assert_int_equal(found->value[i], 1900 + i % 100);
	}
	hc_catalog_close(c);
	free(found);
}

static void test_recency(void **state)
{
	struct fixture *f = *state;
	struct hc_catalog *c = create(f);
	struct hc_recency rows[5000], *back = NULL;
	char path[PATH_MAX], *text;
	struct hc_rng rng;
	size_t n, n_text;

	hc_rng_seed(&rng, 11);
	for (size_t i = 0; i < HC_ARRAY_SIZE(rows); i++)
		rows[i] = (struct hc_recency){hc_rng_next(&rng), (uint32_t)hc_rng_next(&rng),
					      (uint32_t)i};
	assert_int_equal(hc_catalog_recency_load(c, &back, &n), 0);
	assert_int_equal(n, 0);
	free(back);
	for (size_t n_rows = 0; n_rows <= HC_ARRAY_SIZE(rows); n_rows += 2500) {
		assert_int_equal(hc_catalog_recency_store(c, rows, n_rows), 0);
		assert_int_equal(hc_catalog_recency_load(c, &back, &n), 0);
		assert_int_equal(n, n_rows);
		assert_memory_equal(back, rows, n_rows * sizeof(rows[0]));
		free(back);
	}
	hc_log_set_sink(quiet_sink, NULL);
	path_of(f, "recency", path);
	assert_int_equal(hc_file_read(AT_FDCWD, path, HC_GIB, &text, &n_text), 0);
	for (int i = 0; i < 50; i++) {
		size_t at = i < 24 ? (size_t)i : hc_rng_below(&rng, n_text);
		size_t cut = i % 2 ? n_text : hc_rng_below(&rng, n_text);

		text[at] ^= 0x10;
		write_file(f, "recency", text, cut);
		text[at] ^= 0x10;
		assert_int_equal(hc_catalog_recency_load(c, &back, &n), 0);
		assert_int_equal(n, 0);
		free(back);
	}
	hc_log_set_sink(NULL, NULL);
	free(text);
	hc_catalog_close(c);
}

#define WITH_DIR(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

static const struct CMUnitTest tests[] = {
	WITH_DIR(test_round_trip),
	WITH_DIR(test_map_grows),
	WITH_DIR(test_commit_times),
	WITH_DIR(test_refusals),
	WITH_DIR(test_newer),
	WITH_DIR(test_older),
	WITH_DIR(test_kill),
	WITH_DIR(test_journal_damage),
	WITH_DIR(test_truncated),
	WITH_DIR(test_removed),
	WITH_DIR(test_truncated_at_open),
	WITH_DIR(test_sigbus_of_others),
	WITH_DIR(test_disk_full),
	WITH_DIR(test_threads),
	WITH_DIR(test_recency),
	WITH_DIR(test_damaged_heads),
};

int main(int argc, char **argv)
{
	if (argc == 3) {
		struct fixture f = {.config = config_of(argv[1])};
		uint64_t seed;

		if (hc_u64_parse(argv[2], &seed))
			return 2;
		child_work(&f, STDOUT_FILENO, seed);
	}
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
