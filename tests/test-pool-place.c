/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of where a pool lies and how large it may be. Our own places are moved into a temporary
 * directory; the mounts are real and need root. */
#include "hctest.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "pool/internal.h"
#include "pool/place.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/log.h"
#include "util/sysinfo.h"

#define POOL_BYTES (16 * HC_MIB)

static const uint8_t uuid_a[16] = {0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint8_t uuid_b[16] = {0xb0, 1};
#define UUID_A_TEXT "a0010203-0405-0607-0809-0a0b0c0d0e0f"

static char base[64], run_root[96], shm_root[96], explicit_dir[96];
static struct hc_place_roots roots = {run_root, shm_root, "/proc/self/mounts"};
static char last_error[1024];

static void keep_error(void *arg, enum hc_log_level level, const char *component, const char *text)
{
	if (level == HC_LOG_ERROR)
		snprintf(last_error, sizeof(last_error), "%s", text);
}

static int place_setup(void **state)
{
	snprintf(base, sizeof(base), "/tmp/hc-test-place-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	snprintf(run_root, sizeof(run_root), "%s/run", base);
	snprintf(shm_root, sizeof(shm_root), "%s/shm", base);
	snprintf(explicit_dir, sizeof(explicit_dir), "%s/a b/pool", base);
	roots = (struct hc_place_roots){run_root, shm_root, "/proc/self/mounts"};
	hc_pool_place_roots_set(&roots);
	hc_log_set_sink(keep_error, NULL);
	last_error[0] = 0;
	return mkdir(shm_root, 0700);
}

static int place_teardown(void **state)
{
	char path[192], command[128];

	/* Exactly the mounts that a failed test may have left. */
	snprintf(path, sizeof(path), "%s/" UUID_A_TEXT, run_root);
	umount2(path, MNT_DETACH);
	snprintf(path, sizeof(path), "%s/huge", base);
	umount2(path, MNT_DETACH);
	hc_log_set_sink(NULL, NULL);
	snprintf(command, sizeof(command), "rm -rf --one-file-system '%s'", base);
	return system(command);
}

/* No mount can be made there: the next place is taken. */
static void refuse_run(void)
{
	roots.run = "/dev/null/none";
	hc_pool_place_roots_set(&roots);
}

static struct hc_pool *open_place(const struct hc_pool_place *place, uint64_t size_bytes)
{
	struct hc_pool_config config = {
		.dir = place->dir,
		.kind = place->kind,
		.size_bytes = size_bytes,
		.segment_bytes = 4 * HC_MIB,
		.adopt = true,
	};
	struct hc_pool *pool;
	uint64_t seen = 0, next;

	memcpy(config.uuid, uuid_a, sizeof(uuid_a));
	assert_int_equal(hc_pool_open(&config, &pool), 0);
	while ((next = hc_pool_populate_wait(pool, seen, hc_clock_now_ns() + 60 * HC_NS_PER_S)) !=
	       seen)
		seen = next;
	return pool;
}

/* Room without pages written: quick on a disk, and given back by the teardown. */
static int fallocate_segment(const char *dir, uint64_t size_bytes)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/seg-0000", dir);
	hc_autofd int fd = open(path, O_RDWR | O_CREAT, 0600);

	return fd < 0 ? -errno : posix_fallocate(fd, 0, (off_t)size_bytes);
}

static bool exists(const char *path)
{
	struct stat st;

	return !lstat(path, &st);
}

/* Goal: a directory that the user names is made, claimed for one cache, found again by it and
 * refused to others. */
static void test_explicit(void **state)
{
	struct hc_pool_place place, other;
	struct hc_pool *pool;
	struct stat st;

	assert_int_equal(hc_pool_place_make(uuid_a, "/cache one", explicit_dir, POOL_BYTES, &place),
			 0);
	assert_string_equal(place.dir, explicit_dir);
	assert_false(place.mounted_here);
	assert_int_equal(stat(explicit_dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(hc_pool_place_held_bytes(place.dir), 0);
	pool = open_place(&place, POOL_BYTES);
	assert_int_equal(hc_pool_place_held_bytes(place.dir), POOL_BYTES);
	hc_pool_close(pool, true);
	assert_int_equal(hc_pool_place_held_bytes(place.dir), POOL_BYTES);

	assert_int_equal(hc_pool_place_make(uuid_a, "/cache one", explicit_dir, POOL_BYTES, &other),
			 0);
	assert_string_equal(other.dir, place.dir);
	assert_int_equal(hc_pool_place_make(uuid_b, "/cache two", explicit_dir, POOL_BYTES, &other),
			 -EBUSY);
	assert_non_null(strstr(last_error, "/cache one"));
	assert_non_null(strstr(last_error, "pool_path"));

	assert_int_equal(hc_pool_place_free(explicit_dir), 0);
	assert_int_equal(hc_pool_place_free(explicit_dir), -ENOENT);
	/* The directory is the user's. */
	assert_true(exists(explicit_dir));
	assert_int_equal(hc_pool_place_held_bytes(explicit_dir), 0);
}

/* Goal: a directory that others can write to is refused: they could plant segments. */
static void test_unsafe(void **state)
{
	struct hc_pool_place place;

	assert_int_equal(hc_mkdir_parents(AT_FDCWD, explicit_dir, 0700), 0);
	assert_int_equal(chmod(explicit_dir, 0777), 0);
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", explicit_dir, POOL_BYTES, &place),
			 -EPERM);
	assert_non_null(strstr(last_error, "chmod 700"));
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", "/dev/null/x", POOL_BYTES, &place),
			 -ENOTDIR);
}

/* Goal: without a mount of our own the pool goes to /dev/shm, where it is found again. */
static void test_shm(void **state)
{
	struct hc_pool_place place;
	char want[192];

	refuse_run();
	snprintf(want, sizeof(want), "%s/hicachefs-" UUID_A_TEXT, shm_root);
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", NULL, POOL_BYTES, &place), 0);
	assert_string_equal(place.dir, want);
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", NULL, POOL_BYTES, &place), 0);
	assert_string_equal(place.dir, want);
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", NULL, (uint64_t)1 << 60, &place),
			 -ENOSPC);
	assert_non_null(strstr(last_error, "pool_size"));
	assert_int_equal(hc_pool_place_free(place.dir), 0);
	assert_false(exists(want));
}

/* Goal: pools are found with their cache and size, live or left; a live one is not freed. */
static void test_find(void **state)
{
	struct hc_pool_found found[4];
	struct hc_pool_place place, second;
	struct hc_pool *pool;
	size_t n;

	refuse_run();
	assert_int_equal(hc_pool_find(NULL, found, 4, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(hc_pool_place_make(uuid_a, "/data/ca\nche", NULL, POOL_BYTES, &place), 0);
	assert_int_equal(hc_pool_place_make(uuid_b, "/data/b", explicit_dir, POOL_BYTES, &second),
			 0);
	pool = open_place(&place, POOL_BYTES);
	assert_int_equal(hc_pool_find(explicit_dir, found, 4, &n), 0);
	assert_int_equal(n, 2);
	assert_string_equal(found[0].dir, place.dir);
	assert_string_equal(found[0].cachedir, "/data/ca\nche");
	assert_string_equal(found[0].uuid, UUID_A_TEXT);
	assert_int_equal(found[0].size_bytes, POOL_BYTES);
	assert_true(found[0].live);
	assert_false(found[1].live);
	assert_int_equal(hc_pool_find(explicit_dir, found, 1, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(hc_pool_place_free(place.dir), -EBUSY);
	assert_non_null(strstr(last_error, "stop it"));
	hc_pool_close(pool, true);
	assert_int_equal(hc_pool_find(NULL, found, 4, &n), 0);
	assert_int_equal(n, 1);
	assert_false(found[0].live);
	assert_int_equal(hc_pool_place_free(place.dir), 0);
	assert_int_equal(hc_pool_find(NULL, found, 4, &n), 0);
	assert_int_equal(n, 0);
}

/* Goal: a `pool` file that is not ours is no pool, and nothing is removed because of it. */
static void test_foreign_text(void **state)
{
	static const char *const texts[] = {
		"",
		"uuid ",
		"hello\n",
		"uuid " UUID_A_TEXT "\nkind shm\n",
		"uuid " UUID_A_TEXT "\ncachedir /x",
		"uuid zz010203-0405-0607-0809-0a0b0c0d0e0f\ncachedir /x\n"};
	char path[128];
	struct hc_pool_found found;
	size_t n;

	assert_int_equal(hc_mkdir_parents(AT_FDCWD, explicit_dir, 0700), 0);
	snprintf(path, sizeof(path), "%s/pool", explicit_dir);
	for (size_t i = 0; i < HC_ARRAY_SIZE(texts); i++) {
		assert_int_equal(hc_file_replace(AT_FDCWD, path, texts[i], strlen(texts[i]), 0600),
				 0);
		assert_int_equal(hc_pool_find(explicit_dir, &found, 1, &n), 0);
		assert_int_equal(n, 0);
		assert_int_equal(hc_pool_place_free(explicit_dir), -EBADMSG);
		assert_true(exists(path));
	}
}

/* Goal: root gets a tmpfs of its own on huge pages: 0700, with room for pool and table, enlarged
 * when a later start asks for more, unmounted by free. */
static void test_mount(void **state)
{
	struct hc_pool_place place;
	struct hc_pool_stats stats;
	struct hc_pool *pool;
	struct statfs fs;
	struct stat st;
	char want[192];

	if (geteuid())
		hc_test_skip("mounting a tmpfs needs root");
	snprintf(want, sizeof(want), "%s/" UUID_A_TEXT, run_root);
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", NULL, POOL_BYTES, &place), 0);
	if (!place.mounted_here)
		hc_test_skip("this container may not mount a tmpfs with huge pages");
	assert_string_equal(place.dir, want);
	assert_int_equal(place.kind, HC_POOL_TMPFS_HUGE);
	assert_int_equal(statfs(want, &fs), 0);
	assert_int_equal(fs.f_type, TMPFS_MAGIC);
	assert_true((uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize > POOL_BYTES);
	assert_true((uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize < 16 * POOL_BYTES);
	assert_int_equal(stat(want, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	pool = open_place(&place, POOL_BYTES);
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.populated_bytes, POOL_BYTES);
	print_message("# %llu of %llu bytes on huge pages\n", (unsigned long long)stats.huge_bytes,
		      (unsigned long long)stats.populated_bytes);
	hc_pool_close(pool, true);

	assert_int_equal(hc_pool_place_make(uuid_a, "/c", NULL, 64 * POOL_BYTES, &place), 0);
	assert_true(place.mounted_here);
	assert_int_equal(statfs(want, &fs), 0);
	assert_true((uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize > 64 * POOL_BYTES);
	assert_int_equal(hc_pool_place_held_bytes(want), POOL_BYTES);
	pool = open_place(&place, 2 * POOL_BYTES);
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.adopted_bytes, POOL_BYTES);
	assert_int_equal(stats.populated_bytes, 2 * POOL_BYTES);
	hc_pool_close(pool, false);
	assert_int_equal(hc_pool_place_free(want), 0);
	assert_false(exists(want));
}

/* Goal: a tmpfs that is smaller than the pool fails in populate with the figures, not with SIGBUS;
 * what fits serves. */
static void test_full_file_system(void **state)
{
	struct hc_pool_config config = {
		.kind = HC_POOL_TMPFS_HUGE, .size_bytes = 64 * HC_MIB, .segment_bytes = 8 * HC_MIB};
	struct hc_domain domain = {0};
	struct hc_pool_stats stats;
	struct hc_pool *pool;
	struct hc_run runs[16];
	uint32_t n_runs, n;
	char dir[128];

	snprintf(dir, sizeof(dir), "%s/huge", base);
	assert_int_equal(mkdir(dir, 0700), 0);
	if (geteuid() || mount("hc-test", dir, "tmpfs", 0, "size=30M,mode=0700"))
		hc_test_skip("mounting a tmpfs needs root");
	for (int kind = 0; kind < 2; kind++) {
		config.dir = dir;
		config.kind = kind ? HC_POOL_SHM : HC_POOL_TMPFS_HUGE;
		assert_int_equal(hc_pool_open(&config, &pool), 0);
		for (uint64_t seen = 0, next;
		     (next = hc_pool_populate_wait(pool, seen,
						   hc_clock_now_ns() + 60 * HC_NS_PER_S)) != seen;)
			seen = next;
		hc_pool_stats(pool, &stats);
		assert_int_equal(stats.populated_bytes, 24 * HC_MIB);
		assert_int_equal(stats.populate_error, -ENOSPC);
		assert_non_null(strstr(last_error, "64M"));
		assert_non_null(strstr(last_error, "24M"));
		assert_non_null(strstr(last_error, "pool_size"));
		assert_int_equal(hc_pool_reserve(pool, &domain, 8 * HC_MIB, 4, -1, HC_SLOT_FILLING,
						 runs, 16, &n_runs, &n),
				 -ENOSPC);
		assert_int_equal(n, 3);
		for (uint32_t i = 0; i < n_runs; i++)
			memset(hc_pool_data(pool, hc_pool_slot(pool, runs[i].segment, 0)), 1,
			       8 * HC_MIB);
		hc_pool_close(pool, false);
	}
	/* Not even one segment. */
	config.segment_bytes = 32 * HC_MIB;
	assert_int_equal(hc_pool_open(&config, &pool), -ENOSPC);
}

/* Goal: segments on hugetlbfs, the rest beside. */
static void test_hugetlb(void **state)
{
	struct hc_pool_place place;
	struct hc_pool_stats stats;
	struct hc_pool *pool;
	uint64_t n_free, page_bytes;
	char dir[128];

	hc_sysinfo_hugetlb(&n_free, &page_bytes);
	snprintf(dir, sizeof(dir), "%s/huge", base);
	assert_int_equal(mkdir(dir, 0700), 0);
	if (!page_bytes || page_bytes > POOL_BYTES || n_free * page_bytes < POOL_BYTES)
		hc_test_skip("no huge pages are reserved (vm.nr_hugepages)");
	if (geteuid() || mount("hc-test", dir, "hugetlbfs", 0, "mode=0700"))
		hc_test_skip("mounting hugetlbfs needs root");
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", dir, POOL_BYTES, &place), 0);
	assert_int_equal(place.kind, HC_POOL_HUGETLB);
	pool = open_place(&place, POOL_BYTES);
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.huge_bytes, POOL_BYTES);
	hc_pool_close(pool, true);
	assert_int_equal(hc_pool_place_held_bytes(place.dir), POOL_BYTES);
	assert_int_equal(hc_pool_size_check(POOL_BYTES, POOL_BYTES, HC_POOL_HUGETLB), 0);
	assert_int_equal(hc_pool_size_check((uint64_t)1 << 60, POOL_BYTES, HC_POOL_HUGETLB),
			 -ENOMEM);
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", NULL, POOL_BYTES, &place), 0);
	assert_int_equal(place.kind, HC_POOL_HUGETLB);
	pool = open_place(&place, POOL_BYTES);
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.adopted_bytes, POOL_BYTES);
	hc_pool_close(pool, true);
	assert_int_equal(hc_pool_place_free(place.dir), 0);
	assert_false(exists(place.dir));
}

/* Goal: the default is a tenth of memory, and what does not fit is refused with the figures and the
 * remedy; bytes that an adopted pool holds are not counted twice. */
static void test_sizes(void **state)
{
	uint64_t total_bytes, available_bytes, size_bytes;

	assert_int_equal(hc_sysinfo_memory(&total_bytes, &available_bytes), 0);
	assert_int_equal(hc_pool_default_size(&size_bytes), 0);
	assert_true(size_bytes >= 2 * HC_MIB && size_bytes % (2 * HC_MIB) == 0);
	assert_true(size_bytes <= 64 * HC_GIB && size_bytes <= total_bytes / 10);
	assert_int_equal(hc_pool_size_check(size_bytes, 0, HC_POOL_SHM), 0);
	assert_int_equal(hc_pool_size_check(2 * total_bytes, 0, HC_POOL_SHM), -ENOMEM);
	assert_non_null(strstr(last_error, "pool_size"));
	assert_non_null(strstr(last_error, "at most"));
	/* A restart of a pool of any share of memory. */
	assert_int_equal(hc_pool_size_check(2 * total_bytes, 2 * total_bytes, HC_POOL_SHM), 0);
	assert_int_equal(hc_pool_size_check(2 * total_bytes, 2 * total_bytes - HC_MIB, HC_POOL_SHM),
			 0);
	assert_int_equal(hc_pool_size_check((uint64_t)1 << 60, 0, HC_POOL_HUGETLB), -ENOMEM);
	assert_non_null(strstr(last_error, "nr_hugepages"));
}

/* Goal: the default size of a pool that is there already does not follow the weather; one of quite
 * another size is not kept. Method: what counts as held are the blocks of segment files. */
static void test_default_again(void **state)
{
	uint64_t size_bytes, again_bytes;
	struct hc_pool_place place;
	struct statfs fs;
	struct hc_pool *pool;

	refuse_run();
	assert_int_equal(hc_pool_default_size_for(uuid_a, NULL, &size_bytes), 0);
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", NULL, POOL_BYTES, &place), 0);
	pool = open_place(&place, POOL_BYTES);
	hc_pool_close(pool, true);
	assert_int_equal(hc_pool_default_size_for(uuid_a, NULL, &again_bytes), 0);
	/* 16 MiB are no tenth of this machine's memory: the default stays near. */
	if (size_bytes > 4 * POOL_BYTES)
		assert_true(again_bytes > size_bytes / 2);
	assert_int_equal(hc_pool_place_free(place.dir), 0);
	/* A pool of about the default size, if that can be had for a test. */
	if (size_bytes > 4 * HC_GIB || statfs(base, &fs) || fs.f_type == TMPFS_MAGIC)
		return;
	assert_int_equal(hc_pool_place_make(uuid_a, "/c", NULL, size_bytes, &place), 0);
	assert_int_equal(fallocate_segment(place.dir, size_bytes), 0);
	assert_int_equal(hc_pool_default_size_for(uuid_a, NULL, &again_bytes), 0);
	assert_int_equal(again_bytes,
			 hc_pool_place_held_bytes(place.dir) / (2 * HC_MIB) * (2 * HC_MIB));
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, place_setup, place_teardown)

static const struct CMUnitTest tests[] = {
	place_test(test_explicit),
	place_test(test_unsafe),
	place_test(test_shm),
	place_test(test_find),
	place_test(test_foreign_text),
	place_test(test_mount),
	place_test(test_full_file_system),
	place_test(test_hugetlb),
	place_test(test_sizes),
	place_test(test_default_again),
};

HC_TEST_MAIN(tests)
