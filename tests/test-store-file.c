/* SPDX-License-Identifier: Apache-2.0 */
/* store/file beyond the contract: damage behind its back, groups that do not wait for each other,
 * disks that fail, names and metadata. Directories it refuses and crashes: test-store-dirs.c. */
#include "store-rig.h"

#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/xattr.h>

#include "store/place.h"
#include "util/log.h"

/* Stands between the workers and the medium: holds ops, fails ops, notes the order. */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t change;
	unsigned int held_ops; /* bits */
	uint32_t n_held;
	int error; /* for ops in error_ops on disk 0 */
	unsigned int error_ops;
	uint64_t order[64];
	size_t n_order;
};

/* Static, as the requests of tests that use it: a failed test leaves both to the store until
 * teardown. */
static struct gate the_gate = {.lock = PTHREAD_MUTEX_INITIALIZER,
			       .change = PTHREAD_COND_INITIALIZER};

static void gate_set(struct gate *gate, unsigned int held_ops)
{
	pthread_mutex_lock(&gate->lock);
	gate->held_ops = held_ops;
	pthread_cond_broadcast(&gate->change);
	pthread_mutex_unlock(&gate->lock);
}

static int setup(void **state)
{
	struct rig *rig = rig_zalloc(sizeof(*rig));

	rig->n_disks = 2;
	rig->queue_max = 16;
	rig_start(rig, NULL);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	gate_set(&the_gate, 0);
	hc_clock_fake_off();
	hc_log_set_sink(NULL, NULL);
	rig_stop(*state);
	free(*state);
	return 0;
}

/* ---- names and metadata ---- */

static void test_names(void **state)
{
	static const char hex[] =
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	static const char *const bad[] = {"",
					  "7",
					  "7-",
					  "-%s-1",
					  "7-%s",
					  "7-%s-",
					  "7-%s-1x",
					  "07-%s-1",
					  "7-%s-01",
					  "+7-%s-1",
					  "7-%s0-1",
					  "4294967296-%s-1",
					  "7-%s-18446744073709551616",
					  " 7-%s-1",
					  "7-%s-1 ",
					  "7-%.63s-1",
					  "7-%.63sA-1"};
	struct hc_store_page page = {.series = UINT32_MAX, .sequence = UINT64_MAX};
	char path[160], name[160], want[160];
	struct hc_hash hash;
	uint32_t series;
	uint64_t sequence;

	assert_int_equal(hc_hash_parse(hex, &page.hash), 0);
	hc_store_file_path(&page, path);
	snprintf(want, sizeof(want), "pages/012/4294967295-%s-18446744073709551615", hex);
	assert_string_equal(path, want);
	assert_int_equal(
		hc_store_file_parse(path + strlen("pages/012/"), &series, &hash, &sequence), 0);
	assert_int_equal(series, UINT32_MAX);
	assert_int_equal(sequence, UINT64_MAX);
	assert_true(hc_hash_equal(&hash, &page.hash));
	for (size_t i = 0; i < HC_ARRAY_SIZE(bad); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
		snprintf(name, sizeof(name), bad[i], hex);
#pragma GCC diagnostic pop
		assert_int_equal(hc_store_file_parse(name, &series, &hash, &sequence), -EINVAL);
	}
	snprintf(name, sizeof(name), "0-%s-0", hex);
	assert_int_equal(hc_store_file_parse(name, &series, &hash, &sequence), 0);
}

/* Goal: the bytes of version 1 never change; impossible ones are refused. */
static void test_xattr(void **state)
{
	struct hc_store_page page = {.checksum = 0x1122334455667788,
				     .size_bytes = 0x1000001,
				     .depth = 0x0a0b0c,
				     .flags = 3};
	struct hc_store_page back = {0};
	static const uint8_t want[24] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
					 0x01, 0,    0,    0x01, 0,    0,    0,    0,
					 0x0c, 0x0b, 0x0a, 3,    1,    0,    0,    0};
	uint8_t bytes[HC_XATTR_PAGE_BYTES + 8] = {0}, bad[sizeof(bytes)];

	memset(page.parent.bytes, 0xab, sizeof(page.parent.bytes));
	hc_xattr_pack(&page, bytes);
	assert_memory_equal(bytes, page.parent.bytes, 32);
	assert_memory_equal(bytes + 32, want, sizeof(want));
	assert_int_equal(hc_xattr_unpack(bytes, HC_XATTR_PAGE_BYTES, &back), 0);
	assert_memory_equal(&back, &page, sizeof(page));
	for (size_t n = 0; n < sizeof(bytes); n++)
		if (n != HC_XATTR_PAGE_BYTES)
			assert_int_equal(hc_xattr_unpack(bytes, n, &back), -EBADMSG);
	static const struct {
		int at;
		uint8_t value;
		int rc;
	} cases[] = {{51, 0x80, -EBADMSG}, {52, 0, -EBADMSG}, {52, 2, -EPROTO}, {52, 255, -EPROTO},
		     {53, 1, -EBADMSG},    {55, 1, -EBADMSG}, {47, 1, -EBADMSG}};
	for (size_t i = 0; i < HC_ARRAY_SIZE(cases); i++) {
		memcpy(bad, bytes, sizeof(bad));
		bad[cases[i].at] = cases[i].value;
		assert_int_equal(hc_xattr_unpack(bad, HC_XATTR_PAGE_BYTES, &back), cases[i].rc);
	}
	/* A longer one of a newer version is newer, not damaged. */
	bytes[52] = 9;
	assert_int_equal(hc_xattr_unpack(bytes, sizeof(bytes), &back), -EPROTO);
	/* Size 0 is impossible; a depth beyond 24 bits saturates. */
	page.size_bytes = 0;
	page.depth = UINT32_MAX;
	hc_xattr_pack(&page, bytes);
	assert_int_equal(hc_xattr_unpack(bytes, HC_XATTR_PAGE_BYTES, &back), -EBADMSG);
	page.size_bytes = 1;
	hc_xattr_pack(&page, bytes);
	assert_int_equal(hc_xattr_unpack(bytes, HC_XATTR_PAGE_BYTES, &back), 0);
	assert_int_equal(back.depth, 0xffffff);
}

/* Goal: shares follow the weights; a changed weight moves pages from or to that disk only. */
static void test_place(void **state)
{
	const uint64_t weights[] = {100, 0, 300, 600}, more[] = {100, 0, 300, 1200};
	uint32_t share[4] = {0}, moved = 0;
	const int n = 100000;
	struct hc_rng rng;

	hc_rng_seed(&rng, 42);
	for (int i = 0; i < n; i++) {
		struct hc_hash hash;
		uint16_t a, b;

		for (int j = 0; j < HC_HASH_BYTES; j++)
			hash.bytes[j] = (uint8_t)hc_rng_next(&rng);
		a = hc_disk_pick(weights, 4, &hash);
		b = hc_disk_pick(more, 4, &hash);
		share[a]++;
		assert_int_equal(a, hc_disk_pick(weights, 4, &hash));
		if (a != b) {
			assert_int_equal(b, 3);
			moved++;
		}
		/* A disk added at the end takes pages, and moves none between the others. */
		b = hc_disk_pick(weights, 3, &hash);
		assert_true(a == 3 || a == b);
	}
	assert_int_equal(share[1], 0);
	assert_in_range(share[0], n * 9 / 100, n * 11 / 100);
	assert_in_range(share[2], n * 29 / 100, n * 31 / 100);
	assert_in_range(share[3], n * 59 / 100, n * 61 / 100);
	/* 600 of 1000 becomes 1200 of 1600: 15 % move. */
	assert_in_range(moved, n * 14 / 100, n * 16 / 100);
	assert_int_equal(hc_disk_pick((const uint64_t[]){0, 0}, 2, &(struct hc_hash){0}), 2);
}

/* ---- damage ---- */

/* Goal: a flipped bit anywhere is -EBADMSG for get and verify, never wrong bytes called right. */
static void test_flips(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 200001, 0);
	char path[512];
	struct hc_rng rng;
	uint8_t byte;
	int fd;

	rig_path(rig, 0, &page, path);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	hc_rng_seed(&rng, 7);
	for (int i = 0; i < 40; i++) {
		off_t at = i < 2 ? i * 200000 : (off_t)hc_rng_below(&rng, 200001);
		uint8_t bit = (uint8_t)(1u << hc_rng_below(&rng, 8));

		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= bit;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -EBADMSG);
		assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &page, 0, 0), -EBADMSG);
		byte ^= bit;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
	close(fd);
}

/* Goal: truncated, lengthened, emptied, deleted, replaced by another kind of file: a miss each
 * time, and no worker is lost to it. */
static void test_wrong_files(void **state)
{
	static const off_t sizes[] = {0, 1, 4096, 9999, 10001, 12288, 1 << 20};
	struct rig *rig = *state;
	struct hc_store_page page;
	char path[512];

	for (size_t i = 0; i < HC_ARRAY_SIZE(sizes); i++) {
		page = rig_put(rig, i, 10000, 0);
		rig_path(rig, 0, &page, path);
		assert_int_equal(truncate(path, sizes[i]), 0);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, HC_STORE_NO_VERIFY), -EBADMSG);
		assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &page, 0, 0), -EBADMSG);
	}
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -ENOENT);
	for (int i = 0; i < 20; i++) {
		struct rig_list *list;

		if (i % 3 == 0)
			assert_int_equal(mkfifo(path, 0600), 0);
		else if (i % 3 == 1)
			assert_int_equal(mkdir(path, 0700), 0);
		else
			assert_int_equal(symlink("/dev/zero", path), 0);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -EBADMSG);
		assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &page, 0, 0), -EBADMSG);
		list = rig_list(rig);
		assert_non_null(rig_find(list, page.sequence));
		assert_int_equal(rig_find(list, page.sequence)->status, -EBADMSG);
		free(list);
		assert_int_equal(rig_op(rig, HC_STORE_QUARANTINE, &page, 0, 0), 0);
		snprintf(path, sizeof(path), "%s/quarantine", rig->dirs[0]);
		rig_rm(path);
		assert_int_equal(mkdir(path, 0700), 0);
		rig_reopen(rig);
		rig_path(rig, 0, &page, path);
	}
}

/* Goal: a page deleted with its whole shard, or with pages/, is a miss, and a put makes the shard
 * again. */
static void test_lost_shard(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	char path[512];

	rig_path(rig, 0, &page, path);
	*strrchr(path, '/') = 0;
	rig_rm(path);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -ENOENT);
	assert_int_equal(rig_op(rig, HC_STORE_REMOVE, &page, 0, 0), 0);
	page = rig_page(rig->data, 1, 4096);
	assert_int_equal(rig_op(rig, HC_STORE_PUT, &page, 0, HC_STORE_DURABLE), 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
}

/* Goal: list says what is wrong with the metadata; the bytes are served by what the caller knows.
 */
static void test_list_damaged(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page pages[6];
	uint8_t meta[HC_XATTR_PAGE_BYTES];
	static const int want[] = {0, -EBADMSG, -EPROTO, -EBADMSG, -EBADMSG, -EBADMSG};
	struct rig_list *list;
	char paths[6][512];

	for (uint64_t i = 0; i < 6; i++) {
		pages[i] = rig_page(rig->data, i, 4096);
		pages[i].flags = i == 5 ? HC_STORE_PAGE_OPAQUE : 0;
		pages[i].name = "x/y";
		assert_int_equal(rig_op(rig, HC_STORE_PUT, &pages[i], 1, 0), 0);
		rig_path(rig, 1, &pages[i], paths[i]);
	}
	assert_int_equal(removexattr(paths[1], HC_XATTR_PAGE), 0);
	hc_xattr_pack(&pages[2], meta);
	meta[52] = 2;
	assert_int_equal(setxattr(paths[2], HC_XATTR_PAGE, meta, sizeof(meta), 0), 0);
	assert_int_equal(setxattr(paths[3], HC_XATTR_PAGE, "rubbish", 7, 0), 0);
	pages[4].size_bytes++;
	hc_xattr_pack(&pages[4], meta);
	pages[4].size_bytes--;
	assert_int_equal(setxattr(paths[4], HC_XATTR_PAGE, meta, sizeof(meta), 0), 0);
	assert_int_equal(removexattr(paths[5], HC_XATTR_NAME), 0);
	list = rig_list(rig);
	assert_int_equal(list->n, 6);
	for (uint64_t i = 0; i < 6; i++) {
		assert_int_equal(rig_find(list, i + 1)->status, want[i]);
		assert_int_equal(rig_find(list, i + 1)->page.size_bytes, 4096);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &pages[i], 1, 0), 0);
	}
	free(list);
}

static bool keep_none(void *arg, uint32_t series, const struct hc_hash *hash, uint64_t sequence)
{
	return false;
}

/* Goal: what is not ours by its name is neither listed nor removed. */
static void test_foreign(void **state)
{
	static const char *const names[] = {"pages/notes.txt", "pages/000/readme", "pages/zzz/x",
					    "staging/x", "quarantine/y"};
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	char path[512], moved[640];
	uint64_t n, bytes;

	for (size_t i = 0; i < HC_ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", rig->dirs[0], names[i]);
		*strrchr(path, '/') = 0;
		assert_true(!mkdir(path, 0700) || errno == EEXIST);
		snprintf(path, sizeof(path), "%s/%s", rig->dirs[0], names[i]);
		close(open(path, O_CREAT | O_WRONLY, 0600));
	}
	/* A page in another shard than its own is foreign too. */
	rig_path(rig, 0, &page, path);
	snprintf(moved, sizeof(moved), "%s/pages/zzz%s", rig->dirs[0], strrchr(path, '/'));
	assert_int_equal(rename(path, moved), 0);
	struct rig_list *list = rig_list(rig);
	assert_int_equal(list->n, 0);
	free(list);
	assert_int_equal(rig->store->ops->sweep(rig->store, 0, keep_none, NULL, true, &n, &bytes),
			 0);
	assert_int_equal(n, 0);
	assert_int_equal(access(moved, F_OK), 0);
	for (size_t i = 0; i < HC_ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", rig->dirs[0], names[i]);
		assert_int_equal(access(path, F_OK), 0);
	}
}

static bool set_immutable(const char *path, bool on)
{
	int fd = open(path, O_RDONLY), flags = 0;
	bool ok = fd >= 0 && !ioctl(fd, FS_IOC_GETFLAGS, &flags);

	flags = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
	ok = ok && !ioctl(fd, FS_IOC_SETFLAGS, &flags);
	close(fd);
	return ok;
}

/* Goal: a file that cannot be removed is an error of its own, not of the disk, and does not stop a
 * sweep. */
static void test_undeletable(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page stuck = rig_put(rig, 1, 4096, 0), other = rig_put(rig, 2, 4096, 0);
	struct hc_store_disk_info *info = rig_alloc(sizeof(*info));
	char path[512];
	uint64_t n, bytes;

	rig_path(rig, 0, &stuck, path);
	if (!set_immutable(path, true)) {
		free(info);
		hc_test_skip("the immutable attribute needs root and a file system that has it");
	}
	for (int i = 0; i < 5; i++)
		assert_int_equal(rig_op(rig, HC_STORE_REMOVE, &stuck, 0, 0), -EIO);
	assert_int_equal(rig->store->ops->disk_info(rig->store, 0, info), 0);
	assert_false(info->out);
	assert_int_equal(info->n_errors, 5);
	free(info);
	assert_int_equal(rig->store->ops->sweep(rig->store, 0, keep_none, NULL, false, &n, &bytes),
			 0);
	assert_int_equal(n, 1);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &other, 0, 0), -ENOENT);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &stuck, 0, 0), 0);
	assert_true(set_immutable(path, false));
}

/* Goal: a put that fails in the middle leaves no file behind. Method: a limit on the size of files.
 */
static void test_put_cut_short(void **state)
{
	struct rig *rig = *state;
	struct rlimit before, small;
	struct hc_store_page page;
	struct rig_list *list;
	int rc;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 1 << 20;
	page = rig_page(rig->data, 1, 4 << 20);
	/* The workers block all signals, SIGXFSZ too. */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	rc = rig_op(rig, HC_STORE_PUT, &page, 0, 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(rc, -EIO);
	list = rig_list(rig);
	assert_int_equal(list->n, 0);
	free(list);
	assert_int_equal(rig_op(rig, HC_STORE_PUT, &page, 0, 0), 0);
}

/* Goal: a leftover of the same name is overwritten whole. */
static void test_put_over_leftover(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	char path[512];
	int fd;

	rig_path(rig, 0, &page, path);
	fd = open(path, O_WRONLY | O_TRUNC);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	page = rig_put(rig, 1, 4096, 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
}

/* ---- calls aside ---- */

struct aside_gate {
	pthread_mutex_t lock;
	pthread_cond_t change;
	bool held[HC_FILE_N_ASIDES];
	uint32_t n_calls[HC_FILE_N_ASIDES];
};

static void aside_hook(void *arg, enum hc_file_aside_kind kind)
{
	struct aside_gate *gate = arg;

	pthread_mutex_lock(&gate->lock);
	gate->n_calls[kind]++;
	pthread_cond_broadcast(&gate->change);
	while (gate->held[kind])
		pthread_cond_wait(&gate->change, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
}

static void aside_hold(struct aside_gate *gate, enum hc_file_aside_kind kind, bool held)
{
	pthread_mutex_lock(&gate->lock);
	gate->held[kind] = held;
	pthread_cond_broadcast(&gate->change);
	pthread_mutex_unlock(&gate->lock);
}

/* Goal: on a file system that does not answer fstatvfs and syncfs, callers get the last answer, or
 * -ETIMEDOUT at their deadline; no staging file is begun there; all is well again when it answers.
 * Method: the threads of these calls are held. */
static void test_hung_asides(void **state)
{
	static struct aside_gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER,
					 .change = PTHREAD_COND_INITIALIZER};
	struct hc_store_disk_info *info = rig_zalloc(2 * sizeof(*info));
	struct rig *rig = *state;
	const struct hc_store_ops *ops = rig->store->ops;
	uint32_t n_calls;
	uint64_t begin_ns, deadline_ns;
	char name[64];
	int fd;

	for (int i = 0; i < HC_FILE_N_ASIDES; i++)
		hc_file_aside_hook(rig->file->disks[0].asides[i], aside_hook, &gate);
	assert_int_equal(ops->disk_info(rig->store, 0, &info[0]), 0);
	assert_true(info[0].total_bytes > 0);
	assert_int_equal(ops->sync(rig->store, 0, hc_clock_now_ns() + 60 * HC_NS_PER_S), 0);
	assert_int_equal(ops->staging_create(rig->store, 0, &fd, name, sizeof(name)), 0);
	close(fd);

	aside_hold(&gate, HC_FILE_ASIDE_SYNC, true);
	deadline_ns = hc_clock_now_ns() + 20 * HC_NS_PER_MS;
	assert_int_equal(ops->sync(rig->store, 0, deadline_ns), -ETIMEDOUT);
	assert_true(hc_clock_now_ns() >= deadline_ns);
	/* A hung sync is no disk without an answer. */
	assert_int_equal(ops->staging_create(rig->store, 0, &fd, name, sizeof(name)), 0);
	close(fd);

	aside_hold(&gate, HC_FILE_ASIDE_STAT, true);
	/* What is young is not asked again. */
	begin_ns = hc_clock_now_ns();
	while (!hc_file_aside_late(rig->file->disks[0].asides[HC_FILE_ASIDE_STAT]))
		assert_int_equal(ops->disk_info(rig->store, 0, &info[1]), 0);
	assert_true(hc_clock_now_ns() - begin_ns >= HC_FILE_STAT_WAIT_NS);
	assert_int_equal(info[1].total_bytes, info[0].total_bytes);
	assert_false(info[1].out);
	assert_int_equal(ops->staging_create(rig->store, 0, &fd, name, sizeof(name)), -ENODEV);
	/* And nobody waits for it a second time. */
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ops->disk_info(rig->store, 0, &info[1]), 0);
	pthread_mutex_lock(&gate.lock);
	n_calls = gate.n_calls[HC_FILE_ASIDE_STAT];
	pthread_mutex_unlock(&gate.lock);
	assert_true(n_calls < 1000);

	aside_hold(&gate, HC_FILE_ASIDE_STAT, false);
	aside_hold(&gate, HC_FILE_ASIDE_SYNC, false);
	while (hc_file_aside_late(rig->file->disks[0].asides[HC_FILE_ASIDE_STAT]))
		sched_yield();
	assert_int_equal(ops->staging_create(rig->store, 0, &fd, name, sizeof(name)), 0);
	close(fd);
	assert_int_equal(ops->sync(rig->store, 0, hc_clock_now_ns() + 60 * HC_NS_PER_S), 0);
	free(info);
}

/* ---- groups and disks ---- */

static int gate_hook(void *arg, const struct hc_store_request *request)
{
	struct gate *gate = arg;
	int rc = 0;

	pthread_mutex_lock(&gate->lock);
	if (request->op == HC_STORE_GET && gate->n_order < HC_ARRAY_SIZE(gate->order))
		gate->order[gate->n_order++] = request->page.sequence;
	gate->n_held++;
	pthread_cond_broadcast(&gate->change);
	while (gate->held_ops & 1u << request->op)
		pthread_cond_wait(&gate->change, &gate->lock);
	gate->n_held--;
	if (gate->error_ops & 1u << request->op && !request->disk)
		rc = gate->error;
	pthread_mutex_unlock(&gate->lock);
	return rc;
}

static void gate_wait_held(struct gate *gate, uint32_t n)
{
	pthread_mutex_lock(&gate->lock);
	while (gate->n_held < n)
		pthread_cond_wait(&gate->change, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
}

static void gate_install(struct gate *gate, struct rig *rig)
{
	pthread_mutex_lock(&gate->lock);
	gate->n_order = 0;
	gate->error_ops = 0;
	pthread_mutex_unlock(&gate->lock);
	rig->file->hook = gate_hook;
	rig->file->hook_arg = gate;
}

/* Goal: with every put, adopt, verify, remove and quarantine hung and their queues full, gets
 * complete. */
static void test_hung_groups(void **state)
{
	static const enum hc_store_op ops[] = {HC_STORE_PUT, HC_STORE_ADOPT, HC_STORE_VERIFY,
					       HC_STORE_REMOVE, HC_STORE_QUARANTINE};
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	struct hc_store_request *hung = rig_zalloc(200 * sizeof(*hung)), *one, get;
	size_t n = 0, full = 0;

	gate_install(&the_gate, rig);
	gate_set(&the_gate, ~(1u << HC_STORE_GET));
	for (size_t i = 0; i < 200; i++) {
		one = &hung[n];
		*one = (struct hc_store_request){
			.op = ops[i % 5], .data = rig->data, .staging = "999999"};
		one->page = page;
		one->page.sequence = 100 + i;
		one->result = 1;
		if (rig->store->ops->submit(rig->store, &one, 1))
			n++;
		else
			full++;
	}
	/* 3 groups of 16 requests; the rest was pushed back. */
	assert_int_equal(n, 48);
	assert_int_equal(full, 152);
	gate_wait_held(&the_gate, HC_FILE_WRITERS + 2);
	for (int i = 0; i < 100; i++) {
		get = (struct hc_store_request){
			.op = HC_STORE_GET, .page = page, .data = rig->data};
		assert_int_equal(rig_run(rig->store, &get), 0);
	}
	for (size_t i = 0; i < n; i++)
		assert_int_equal(hung[i].result, 1);
	gate_set(&the_gate, 0);
	for (size_t i = 0; i < n; i++)
		assert_non_null(rig_wait(rig->store, RIG_WAIT_MS));
	free(hung);
}

/* Goal: urgent requests overtake what waits, and find room where the others' queue is full. */
static void test_urgent(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page;
	static struct hc_store_request requests[20];
	struct hc_store_request *refs[20];

	rig->n_readers = 1;
	rig_reopen(rig);
	page = rig_put(rig, 1, 4096, 0);
	gate_install(&the_gate, rig);
	gate_set(&the_gate, 1u << HC_STORE_GET);
	for (size_t i = 0; i < 20; i++) {
		requests[i] = (struct hc_store_request){
			.op = HC_STORE_GET, .page = page, .data = rig->data};
		requests[i].page.sequence = 100 + i;
		requests[i].flags = i >= 18 ? HC_STORE_URGENT : 0;
		refs[i] = &requests[i];
	}
	assert_int_equal(rig->store->ops->submit(rig->store, refs, 1), 1);
	gate_wait_held(&the_gate, 1);
	assert_int_equal(rig->store->ops->submit(rig->store, refs + 1, 17), 15);
	assert_int_equal(rig->store->ops->submit(rig->store, refs + 18, 2), 2);
	gate_set(&the_gate, 0);
	for (size_t i = 0; i < 18; i++)
		assert_non_null(rig_wait(rig->store, RIG_WAIT_MS));
	assert_int_equal(the_gate.n_order, 18);
	assert_int_equal(the_gate.order[0], 100);
	assert_int_equal(the_gate.order[1], 118);
	assert_int_equal(the_gate.order[2], 119);
	for (size_t i = 3; i < 18; i++)
		assert_int_equal(the_gate.order[i], 98 + i);
}

static void count_taken_out(void *arg, enum hc_log_level level, const char *component,
			    const char *text)
{
	if (strstr(text, "taken out"))
		atomic_fetch_add((atomic_int *)arg, 1);
}

static bool disk_out(struct rig *rig, uint16_t disk)
{
	struct hc_store_disk_info *info = rig_alloc(sizeof(*info));
	bool out;

	assert_int_equal(rig->store->ops->disk_info(rig->store, disk, info), 0);
	out = info->out;
	free(info);
	return out;
}

/* Goal: three EIO within 10 s take the disk out, three over a longer time do not; one line; the
 * other disk serves. */
static void test_eio(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0), other = rig_put(rig, 2, 4096, 1);
	atomic_int lines = 0;
	uint64_t now_ns = HC_NS_PER_S;
	static const enum hc_store_op ops[] = {HC_STORE_GET, HC_STORE_PUT, HC_STORE_REMOVE,
					       HC_STORE_VERIFY};
	uint64_t n, bytes;

	hc_log_set_sink(count_taken_out, &lines);
	gate_install(&the_gate, rig);
	the_gate.error = -EIO;
	the_gate.error_ops = 1u << HC_STORE_GET;
	for (int i = 0; i < 12; i++) {
		hc_clock_fake_set_ns(now_ns, now_ns);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -EIO);
		assert_false(disk_out(rig, 0));
		now_ns += 5 * HC_NS_PER_S + 1;
	}
	now_ns -= 3 * HC_NS_PER_S;
	hc_clock_fake_set_ns(now_ns, now_ns);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -EIO);
	assert_true(disk_out(rig, 0));
	the_gate.error_ops = 0;
	for (size_t i = 0; i < HC_ARRAY_SIZE(ops); i++)
		assert_int_equal(rig_op(rig, ops[i], &page, 0, 0), -ENODEV);
	assert_int_equal(rig->store->ops->list(rig->store, 0, rig_each, NULL), -ENODEV);
	assert_int_equal(rig->store->ops->sync(rig->store, 0, UINT64_MAX), -ENODEV);
	assert_int_equal(rig->store->ops->sweep(rig->store, 0, NULL, NULL, false, &n, &bytes),
			 -ENODEV);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &other, 1, 0), 0);
	assert_int_equal(lines, 1);
}

/* Goal: EROFS and ENODEV take a disk out at once; what waits behind hung workers is answered, not
 * left. */
static void test_disk_gone(void **state)
{
	static const int errors[] = {-EROFS, -ENODEV};
	struct rig *rig = *state;
	static struct hc_store_request gets[12];
	struct hc_store_request *one;
	struct hc_store_page page;

	for (size_t e = 0; e < HC_ARRAY_SIZE(errors); e++) {
		size_t n_gone = 0;

		rig_reopen(rig);
		page = rig_put(rig, 1, 4096, 0);
		gate_install(&the_gate, rig);
		the_gate.error = errors[e];
		the_gate.error_ops = 1u << HC_STORE_PUT;
		gate_set(&the_gate, 1u << HC_STORE_GET);
		for (size_t i = 0; i < 12; i++) {
			gets[i] = (struct hc_store_request){.op = HC_STORE_GET,
							    .page = page,
							    .data = (char *)rig->data + 4096 * i};
			one = &gets[i];
			assert_int_equal(rig->store->ops->submit(rig->store, &one, 1), 1);
		}
		gate_wait_held(&the_gate, HC_FILE_READERS);
		one = &(struct hc_store_request){
			.op = HC_STORE_PUT, .page = page, .data = rig->data};
		assert_int_equal(rig->store->ops->submit(rig->store, &one, 1), 1);
		/* The 4 that wait and the put come back while 8 workers hang. */
		for (int i = 0; i < 5; i++) {
			struct hc_store_request *done = rig_wait(rig->store, RIG_WAIT_MS);

			assert_non_null(done);
			n_gone += done->result == -ENODEV;
		}
		assert_int_equal(n_gone, errors[e] == -ENODEV ? 5 : 4);
		assert_true(disk_out(rig, 0));
		gate_set(&the_gate, 0);
		for (int i = 0; i < HC_FILE_READERS; i++)
			assert_non_null(rig_wait(rig->store, RIG_WAIT_MS));
	}
}

/* Goal: other errors are mapped into the fixed set and are no judgement on the disk. */
static void test_error_set(void **state)
{
	static const struct {
		int medium, result;
	} cases[] = {{-ENOSPC, -ENOSPC}, {-EDQUOT, -ENOSPC}, {-EMFILE, -EAGAIN},
		     {-EACCES, -EIO},    {-ENOMEM, -EAGAIN}, {-ESTALE, -ESTALE},
		     {-ENXIO, -EIO},     {-ENFILE, -EAGAIN}};
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);

	gate_install(&the_gate, rig);
	the_gate.error_ops = 1u << HC_STORE_PUT;
	for (size_t i = 0; i < HC_ARRAY_SIZE(cases); i++) {
		the_gate.error = cases[i].medium;
		for (int j = 0; j < 4; j++)
			assert_int_equal(rig_op(rig, HC_STORE_PUT, &page, 0, 0), cases[i].result);
		assert_false(disk_out(rig, 0));
	}
}

#define FILE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_xattr),
		cmocka_unit_test(test_place),
		FILE_TEST(test_flips),
		FILE_TEST(test_wrong_files),
		FILE_TEST(test_lost_shard),
		FILE_TEST(test_list_damaged),
		FILE_TEST(test_foreign),
		FILE_TEST(test_undeletable),
		FILE_TEST(test_put_cut_short),
		FILE_TEST(test_put_over_leftover),
		FILE_TEST(test_hung_asides),
		FILE_TEST(test_hung_groups),
		FILE_TEST(test_urgent),
		FILE_TEST(test_eio),
		FILE_TEST(test_disk_gone),
		FILE_TEST(test_error_set),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
