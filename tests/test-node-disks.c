/* SPDX-License-Identifier: Apache-2.0 */
/* Disks that fail, fill up or hang under a node, and what a start makes of a damaged or foreign
 * CACHEDIR. Hangs are made by store/fault and ended by the test: what must not wait for them
 * completes while they last, and no time is measured. */
#include "node-rig.h"

#include <sys/mount.h>

#include "pool/place.h"
#include "util/io.h"

static void damage(const char *dir, const char *name, const char *text)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void test_pages_spread(void **state)
{
	struct rig *rig = *state;
	uint64_t sum = 0;

	rig_several_disks(rig);
	rig_up(rig);
	for (uint32_t chain = 0; chain < 60; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 2), 2);
	rig_flush(rig);
	for (size_t i = 0; i < RIG_DISKS_MAX; i++) {
		size_t n = rig_count_files(rig->disk_dirs[i]);

		assert_in_range(n, 10, 80);
		sum += n;
	}
	assert_int_equal(sum, 120);
	rig_drop_memory(rig);
	for (uint32_t chain = 0; chain < 60; chain++)
		assert_int_equal(rig_get(rig, chain, 2), 2);
	rig_down(rig);
	rig_up(rig);
	for (uint32_t chain = 0; chain < 60; chain++)
		assert_int_equal(rig_get(rig, chain, 2), 2);
}

/* Every read of the disk fails: misses, never an error, and what is missed can be written again. */
static void gone_disk(struct rig *rig, int error)
{
	rig_faulty(rig);
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 6), 6);
	rig_flush(rig);
	rig_drop_memory(rig);
	assert_int_equal(rig_put(rig, 2, 0, 6), 6);
	rig_quiet(rig);
	rig_fault(rig, HC_STORE_GET, HC_FAULT_ERROR, error);
	assert_int_equal(rig_get(rig, 1, 6), 0);
	assert_false(rig_there(rig, 1, 0));
	assert_int_equal(rig_get(rig, 2, 6), 6);
	assert_int_equal(rig_put(rig, 1, 0, 1), 1);
	assert_true(rig_get(rig, 1, 6) >= 1);
	assert_true(rig_stats(rig).disk_errors > 0);
	rig_fault(rig, HC_STORE_GET, HC_FAULT_NONE, 0);
	assert_int_equal(rig_stats(rig).n_refs, 0);
}

static void test_reads_fail_eio(void **state)
{
	gone_disk(*state, -EIO);
}

static void test_reads_fail_enodev(void **state)
{
	gone_disk(*state, -ENODEV);
}

/* No descriptor is left: a miss, and no page is lost for it, neither to readers nor to the
 * scrubber. */
static void test_reads_lack_descriptors(void **state)
{
	struct rig *rig = *state;
	struct hc_verify_result result;

	rig_faulty(rig);
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 6), 6);
	rig_flush(rig);
	rig_drop_memory(rig);
	rig_fault(rig, HC_STORE_GET, HC_FAULT_ERROR, -EAGAIN);
	assert_int_equal(rig_get(rig, 1, 6), 0);
	assert_true(rig_there(rig, 1, 0));
	rig_fault(rig, HC_STORE_GET, HC_FAULT_NONE, 0);
	rig_fault(rig, HC_STORE_VERIFY, HC_FAULT_ERROR, -EAGAIN);
	assert_int_equal(hc_node_verify(rig->node, NULL, NULL, &result), -EAGAIN);
	rig_fault(rig, HC_STORE_VERIFY, HC_FAULT_NONE, 0);
	assert_int_equal(rig_get(rig, 1, 6), 6);
	assert_int_equal(rig_stats(rig).disk_errors, 0);
	assert_int_equal(rig_stats(rig).bad_checksum, 0);
	assert_int_equal(rig_stats(rig).n_refs, 0);
}

/* One of three disks goes: its pages are misses, those of the others stay, new ones go to the
 * others. */
static void test_one_disk_out(void **state)
{
	struct rig *rig = *state;
	struct hc_store_disk_info info;
	size_t there = 0, files[RIG_DISKS_MAX];

	rig_several_disks(rig);
	rig_up(rig);
	for (uint32_t chain = 0; chain < 60; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 1), 1);
	rig_flush(rig);
	rig_drop_memory(rig);
	for (size_t i = 0; i < RIG_DISKS_MAX; i++)
		files[i] = rig_count_files(rig->disk_dirs[i]);
	/* Its directories become files, so that everything fails there but with errors of a path.
	 */
	{
		char from[4096], to[4096];

		snprintf(from, sizeof(from), "%s/pages", rig->disk_dirs[1]);
		snprintf(to, sizeof(to), "%s/away", rig->root);
		assert_int_equal(rename(from, to), 0);
		for (uint32_t chain = 0; chain < 60; chain++)
			there += rig_get(rig, chain, 1);
		/* An open directory is still found by those that hold it. */
		assert_true(there == 60 || there == files[0] + files[2]);
		assert_int_equal(rename(to, from), 0);
	}
	assert_int_equal(hc_node_disk_info(rig->node, 1, &info), 0);
	assert_false(info.out);
	for (uint32_t chain = 100; chain < 120; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 1), 1);
	rig_flush(rig);
}

/* ENOSPC is a failed backup, never a failure of the cache. What fits into the pool stays whole; in
 * a full pool pages go on being published, and what is left is backed up once there is room. */
static void test_full_at_put(void **state)
{
	struct rig *rig = *state;
	uint64_t left, n_there, n_got = 0;

	rig_faulty(rig);
	rig_up(rig);
	rig_fault(rig, HC_STORE_PUT, HC_FAULT_ERROR, -ENOSPC);
	for (uint32_t chain = 0; chain < 8; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 10), 10);
	for (uint32_t chain = 0; chain < 8; chain++)
		assert_int_equal(rig_get(rig, chain, 10), 10);
	assert_int_equal(hc_node_sync(rig->node, rig_soon(RIG_WAIT_MS), &left), -EIO);
	assert_int_equal(left, 80);
	assert_int_equal(rig_stats(rig).n_pages_disk, 0);
	for (uint32_t chain = 8; chain < 20; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 10), 10);
	assert_int_equal(rig_stats(rig).n_pages_disk, 0);
	rig_fault(rig, HC_STORE_PUT, HC_FAULT_NONE, 0);
	rig_flush(rig);
	rig_drop_memory(rig);
	n_there = rig_stats(rig).n_pages_disk;
	assert_in_range(n_there, 60, 200);
	for (uint32_t chain = 0; chain < 20; chain++)
		n_got += rig_get(rig, chain, 10);
	assert_int_equal(n_got, n_there);
}

static void test_real_full_disk(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats s;

	if (geteuid())
		hc_test_skip("mounting a tmpfs needs root");
	if (mount("hctest", rig->disk_dirs[0], "tmpfs", 0, "size=8m,mode=0700"))
		hc_test_skip("this container may not mount a tmpfs");
	rig->config.disks = rig->disks;
	rig->config.n_disks = 1;
	rig->config.disk_bytes = HC_GIB; /* more than there is */
	if (hc_node_open(&rig->config, &rig->node)) {
		umount2(rig->disk_dirs[0], MNT_DETACH);
		hc_test_skip("this kernel's tmpfs has no user xattrs");
	}
	rig_down(rig);
	rig_up(rig);
	for (uint32_t chain = 0; chain < 20; chain++) {
		assert_int_equal(rig_put(rig, chain, 0, 16), 16);
		rig_quiet(rig);
	}
	assert_int_equal(rig_get(rig, 19, 16), 16);
	s = rig_stats(rig);
	assert_true(s.backed_up > 64);
	assert_true(s.disk_used_bytes <= 8 * HC_MIB);
	/* What it says is there can be read. */
	rig_quiet(rig);
	for (uint32_t chain = 0; chain < 20; chain++) {
		size_t n = rig_exists(rig, chain, 16, false);

		assert_int_equal(rig_get(rig, chain, 16), n);
	}
	rig_down(rig);
	assert_int_equal(umount2(rig->disk_dirs[0], MNT_DETACH), 0);
}

/* A disk below min_free (of other people's bytes, say) costs no pages of the others, and no
 * eviction without end. */
static void test_room_by_disk(void **state)
{
	struct rig *rig = *state;
	size_t n;

	if (geteuid())
		hc_test_skip("mounting a tmpfs needs root");
	if (mount("hctest", rig->disk_dirs[0], "tmpfs", 0, "size=8m,mode=0700"))
		hc_test_skip("this container may not mount a tmpfs");
	rig_several_disks(rig);
	rig->config.no_evictor = true;
	rig->config.min_free_bytes = HC_MIB;
	rig->config.disk_bytes = HC_GIB;
	if (hc_node_open(&rig->config, &rig->node)) {
		umount2(rig->disk_dirs[0], MNT_DETACH);
		hc_test_skip("this kernel's tmpfs has no user xattrs");
	}
	rig_down(rig);
	rig_up(rig);
	for (uint32_t chain = 0; chain < 40; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 2), 2);
	rig_flush(rig);
	n = rig_count_files(rig->disk_dirs[1]) + rig_count_files(rig->disk_dirs[2]);
	{
		char path[4096];
		int fd;

		snprintf(path, sizeof(path), "%s/foreign", rig->root);
		snprintf(path, sizeof(path), "%s/staging/foreign", rig->disk_dirs[0]);
		fd = open(path, O_RDWR | O_CREAT, 0600);
		assert_true(fd >= 0);
		hc_ignore(posix_fallocate(fd, 0, 8 * HC_MIB));
		for (size_t i = 0; i < 200; i++) {
			char block[65536] = {1};

			if (write(fd, block, sizeof(block)) < (ssize_t)sizeof(block))
				break;
		}
		close(fd);
	}
	for (int i = 0; i < 4; i++)
		hc_node_maintain(rig->node, 0);
	assert_int_equal(rig_count_files(rig->disk_dirs[1]) + rig_count_files(rig->disk_dirs[2]),
			 n);
	assert_true(rig_stats(rig).evicted_disk <= 80 - n);
	/* New pages find the disks that have room. */
	for (uint32_t chain = 100; chain < 120; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 1), 1);
	rig_flush(rig);
	assert_int_equal(rig_count_files(rig->disk_dirs[1]) + rig_count_files(rig->disk_dirs[2]),
			 n + 20);
	rig_down(rig);
	assert_int_equal(umount2(rig->disk_dirs[0], MNT_DETACH), 0);
}

/* A file that cannot be unlinked: the others go, and the limit holds for what is known. */
static void test_undeletable(void **state)
{
	struct rig *rig = *state;
	struct hc_fault_rule rule = {
		.op = HC_STORE_REMOVE, .kind = HC_FAULT_ERROR, .error = -EIO, .nth = 1};

	rig->config.disk_bytes = 40 * RIG_PAGE_BYTES;
	rig_faulty(rig);
	rig_up(rig);
	hc_store_fault_set(rig->fault, &rule);
	for (uint32_t chain = 0; chain < 20; chain++) {
		assert_int_equal(rig_put(rig, chain, 0, 16), 16);
		rig_quiet(rig);
	}
	assert_true(rig_stats(rig).evicted_disk > 0);
	assert_true(rig_stats(rig).disk_used_bytes <= 40 * RIG_PAGE_BYTES);
	assert_true(rig_stats(rig).n_pages_disk > 0);
	assert_int_equal(rig_get(rig, 19, 16), 16);
	rule = (struct hc_fault_rule){.op = HC_STORE_REMOVE};
	hc_store_fault_set(rig->fault, &rule);
	{
		uint64_t n, bytes;

		assert_int_equal(hc_node_gc(rig->node, &n, &bytes), 0);
	}
	rig_wait(rig_count_files(rig->dir) == rig_stats(rig).n_pages_disk);
}

/* More unlinks than the store takes at once: none is forgotten. */
static void test_many_unlinks(void **state)
{
	struct rig *rig = *state;
	struct hc_evict_result result;

	rig->config.pool_bytes = 64 * HC_MIB;
	rig_up(rig);
	for (uint32_t chain = 0; chain < 50; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 16), 16);
	rig_flush(rig);
	assert_int_equal(rig_count_files(rig->dir), 800);
	assert_int_equal(hc_node_evict(rig->node, NULL, 0, false, rig_soon(RIG_WAIT_MS), &result),
			 0);
	assert_int_equal(result.n_evicted, 800);
	rig_wait(!rig_count_files(rig->dir));
}

/* While unlinks, writes and the scrubber's reads hang, reserve and acquire go on, with eviction
 * from memory. */
static void test_hangs_slow_nobody(void **state)
{
	struct rig *rig = *state;
	struct hc_hash hash = rig_hash(0, 15);
	uint32_t chain;

	rig->config.dirty_ppm = 0; /* the default: a quarter */
	rig_faulty(rig);
	rig_up(rig);
	for (chain = 0; chain < 3; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 16), 16);
	rig_flush(rig);
	rig_fault(rig, HC_STORE_REMOVE, HC_FAULT_HANG, 0);
	rig_fault(rig, HC_STORE_PUT, HC_FAULT_HANG, 0);
	rig_fault(rig, HC_STORE_VERIFY, HC_FAULT_HANG, 0);
	assert_int_equal(hc_node_remove(rig->node, rig->series[0], &hash, 1), 1);
	/* The scrubber comes in idle time. */
	rig_wait(hc_store_fault_hung(rig->fault) >= 2);
	for (chain = 10; chain < 30; chain++) {
		/* Each is one that may become dirty and stay, or is skipped; none waits for the
		 * disk. */
		for (uint32_t i = 0; i < 8; i++)
			assert_int_equal(
				rig_put_one(rig, rig->series[0], chain, i, rig_soon(RIG_WAIT_MS)),
				0);
	}
	assert_int_equal(rig_get(rig, 29, 8), 8);
	assert_int_equal(rig_get(rig, 1, 16), 16);
	assert_true(hc_store_fault_hung(rig->fault) >= 2);
	/* Close gives the hung ones up, and leaks nothing. */
	rig->config.flush_ns = 1;
	rig_down(rig);
}

/* The same with the hangs ended before the stop: everything is whole. */
static void test_hangs_end(void **state)
{
	struct rig *rig = *state;

	rig_faulty(rig);
	rig_up(rig);
	rig_fault(rig, HC_STORE_PUT, HC_FAULT_HANG, 0);
	assert_int_equal(rig_put(rig, 1, 0, 16), 16);
	rig_wait(hc_store_fault_hung(rig->fault) > 0);
	rig_fault(rig, HC_STORE_PUT, HC_FAULT_NONE, 0);
	rig_flush(rig);
	rig_down(rig);
	rig_up(rig);
	assert_int_equal(rig_get(rig, 1, 16), 16);
}

static void test_catalog_truncated(void **state)
{
	struct rig *rig = *state;
	char path[4096];

	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 10), 10);
	rig_flush(rig);
	snprintf(path, sizeof(path), "%s/catalog.mdb", rig->dir);
	assert_int_equal(truncate(path, 4096), 0);
	assert_int_equal(rig_get(rig, 1, 10), 10);
	/* The next commit finds it. */
	for (uint32_t i = 0; i < 200 && !rig_stats(rig).catalog_lost; i++) {
		uint64_t left;

		assert_int_equal(rig_put(rig, 100 + i, 0, 1), 1);
		/* It may say that the commit it waited for was lost. */
		hc_ignore(hc_node_sync(rig->node, rig_soon(RIG_WAIT_MS), &left));
	}
	assert_int_equal(rig_stats(rig).catalog_lost, 1);
	assert_int_equal(rig_get(rig, 1, 10), 10);
	assert_int_equal(rig_put(rig, 2, 0, 10), 10);
	/* Written anew: a sync succeeds again, and the next start needs no page file to know. */
	{
		uint64_t deadline_ns = rig_soon(RIG_WAIT_MS), left = 1;

		while (hc_node_sync(rig->node, rig_soon(RIG_WAIT_MS), &left) &&
		       hc_clock_now_ns() < deadline_ns)
			sched_yield();
		assert_int_equal(left, 0);
	}
	rig_down(rig);
	rig_up(rig);
	rig_wait(!rig_stats(rig).rebuilding);
	assert_int_equal(rig_get(rig, 1, 10), 10);
	assert_int_equal(rig_get(rig, 2, 10), 10);
	assert_int_equal(rig_get(rig, 100, 1), 1);
}

static void with_pages(struct rig *rig)
{
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 10), 10);
	rig_down(rig);
}

static void comes_back(struct rig *rig)
{
	rig_up(rig);
	rig_wait(!rig_stats(rig).rebuilding);
	assert_int_equal(rig_stats(rig).rebuilt, 10);
	assert_int_equal(rig_get(rig, 1, 10), 10);
	rig_down(rig);
	rig_up(rig);
	assert_int_equal(rig_stats(rig).rebuilding, false);
	assert_int_equal(rig_get(rig, 1, 10), 10);
}

static void test_no_catalog(void **state)
{
	struct rig *rig = *state;
	char path[4096];

	with_pages(rig);
	snprintf(path, sizeof(path), "%s/catalog.mdb", rig->dir);
	assert_int_equal(unlink(path), 0);
	comes_back(rig);
}

static void test_garbage_catalog(void **state)
{
	struct rig *rig = *state;

	with_pages(rig);
	damage(rig->dir, "catalog.mdb", "this is not a catalog");
	comes_back(rig);
}

/* A CACHEDIR of a newer version is refused, and nothing in it changes. */
static void test_newer_cachedir(void **state)
{
	struct rig *rig = *state;
	char path[4096], text[4096], newer[4096], *at;
	struct stat before, after;
	struct hc_node *node;
	ssize_t n;
	int fd;

	with_pages(rig);
	snprintf(path, sizeof(path), "%s/.hicachefs", rig->dir);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 0);
	text[n] = 0;
	at = strstr(text, "hicachefs ");
	assert_non_null(at);
	at += strcspn(at, "0123456789");
	snprintf(newer, sizeof(newer), "%.*s9%s", (int)(at - text), text, at);
	damage(rig->dir, ".hicachefs", newer);
	snprintf(path, sizeof(path), "%s/catalog.mdb", rig->dir);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(hc_node_open(&rig->config, &node), -EPROTO);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
	assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	assert_int_equal(rig_count_files(rig->dir), 10);
	damage(rig->dir, ".hicachefs", text);
	rig_up(rig);
	assert_int_equal(rig_get(rig, 1, 10), 10);
}

/* What is not ours in pages/ is neither served nor in the way. */
static void test_foreign_files(void **state)
{
	struct rig *rig = *state;
	char path[4096];
	struct hc_verify_result verified;
	uint64_t n, bytes;

	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 10), 10);
	rig_flush(rig);
	snprintf(path, sizeof(path), "%s/pages", rig->dir);
	damage(path, "README", "somebody's notes");
	snprintf(path, sizeof(path), "%s/pages/fff", rig->dir);
	assert_true(!mkdir(path, 0700) || errno == EEXIST);
	damage(path, "1-not-a-page", "x");
	assert_int_equal(hc_node_verify(rig->node, NULL, NULL, &verified), 0);
	assert_int_equal(verified.n_bad, 0);
	assert_int_equal(hc_node_gc(rig->node, &n, &bytes), 0);
	rig_down(rig);
	snprintf(path, sizeof(path), "%s/catalog.mdb", rig->dir);
	assert_int_equal(unlink(path), 0);
	comes_back(rig);
}

static void daemon_like(struct rig *rig, char *pool, size_t room)
{
	snprintf(pool, room, "%s/pool", rig->root);
	assert_int_equal(mkdir(pool, 0700), 0);
	rig->config.embedded = false;
	rig->config.pool_path = pool;
	rig->config.keep_pool = true;
}

/* The directory in pool_path that holds the slot table. */
static void slots_dir(const char *pool, char *dir, size_t room)
{
	struct dirent *item;
	DIR *d = opendir(pool);
	char path[8192];

	assert_non_null(d);
	snprintf(dir, room, "%s", pool);
	while ((item = readdir(d))) {
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s/slots", pool, item->d_name);
		if (item->d_name[0] != '.' && !stat(path, &st))
			snprintf(dir, room, "%s/%s", pool, item->d_name);
	}
	closedir(d);
}

static void bad_slots(struct rig *rig, bool newer)
{
	char pool[512], dir[4096], path[8192];
	struct hc_node *node;
	uint32_t version;
	int fd, rc;

	daemon_like(rig, pool, sizeof(pool));
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 10), 10);
	rig_flush(rig);
	rig_down(rig);
	rig_up(rig);
	assert_int_equal(rig_stats(rig).adopted, 10);
	assert_int_equal(rig_get(rig, 1, 10), 10);
	rig_down(rig);
	slots_dir(pool, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/slots", dir);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	if (newer) {
		/* magic 8, version 4 */
		assert_int_equal(pread(fd, &version, 4, 8), 4);
		version += 7;
		assert_int_equal(pwrite(fd, &version, 4, 8), 4);
	} else {
		assert_int_equal(pwrite(fd, "garbage!garbage!", 16, 0), 16);
	}
	close(fd);
	rc = hc_node_open(&rig->config, &node);
	assert_true(rc == (newer ? -EPROTO : -EBADMSG));
	assert_int_equal(access(path, F_OK), 0);
	rig->config.discard_pool = true;
	rig_up(rig);
	assert_int_equal(rig_stats(rig).adopted, 0);
	/* The pool went, CACHEDIR did not. */
	assert_int_equal(rig_get(rig, 1, 10), 10);
	rig->config.discard_pool = false;
	rig_down(rig);
	rig_up(rig);
	assert_int_equal(rig_stats(rig).adopted, 10);
	/* The rig's directory goes at the end; so does the pool in it. */
	rig_down(rig);
	assert_int_equal(hc_pool_place_free(dir), 0);
}

static void test_newer_slots(void **state)
{
	bad_slots(*state, true);
}

static void test_garbage_slots(void **state)
{
	bad_slots(*state, false);
}

/* A restart with a large pool: what the adopted pool holds counts as there. */
static void test_large_pool_again(void **state)
{
	struct rig *rig = *state;
	char pool[512], dir[4096];
	uint64_t held;

	assert_true(hc_pool_size_check((uint64_t)1 << 50, 0, HC_POOL_SHM) < 0);
	assert_int_equal(hc_pool_size_check((uint64_t)1 << 50, (uint64_t)1 << 50, HC_POOL_SHM), 0);
	daemon_like(rig, pool, sizeof(pool));
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 10), 10);
	rig_down(rig);
	slots_dir(pool, dir, sizeof(dir));
	held = hc_pool_place_held_bytes(dir);
	assert_true(held >= 2 * HC_MIB);
	assert_true(held <= 9 * HC_MIB);
	rig_up(rig);
	assert_int_equal(rig_stats(rig).adopted, 10);
	rig_down(rig);
	assert_int_equal(hc_pool_place_free(dir), 0);
}

static const struct CMUnitTest tests[] = {
	rig_test(test_pages_spread),      rig_test(test_reads_fail_eio),
	rig_test(test_reads_fail_enodev), rig_test(test_reads_lack_descriptors),
	rig_test(test_one_disk_out),      rig_test(test_full_at_put),
	rig_test(test_real_full_disk),    rig_test(test_room_by_disk),
	rig_test(test_undeletable),       rig_test(test_many_unlinks),
	rig_test(test_hangs_slow_nobody), rig_test(test_hangs_end),
	rig_test(test_catalog_truncated), rig_test(test_no_catalog),
	rig_test(test_garbage_catalog),   rig_test(test_newer_cachedir),
	rig_test(test_foreign_files),     rig_test(test_newer_slots),
	rig_test(test_garbage_slots),     rig_test(test_large_pool_again),
};

HC_TEST_MAIN(tests)
