/* SPDX-License-Identifier: Apache-2.0 */
/* A store on temporary data directories, for the tests of src/store/. One thread, but for rig_run
 * and rig_wait, which any thread may call. Directories lie in $TMPDIR or /var/tmp, which is a disk
 * where /tmp is memory. */
#ifndef HC_TEST_STORE_RIG_H
#define HC_TEST_STORE_RIG_H

#include "hctest.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "model/checksum.h"
#include "store/fault.h"
#include "store/file.h"
#include "store/file-internal.h"
#include "util/clock.h"
#include "util/rng.h"

#define RIG_DISKS_MAX 3
#define RIG_WAIT_MS   30000
#define RIG_ROOM      ((size_t)9 << 20)

struct rig {
	char root[256];
	char dirs[RIG_DISKS_MAX][288];
	uint16_t n_disks;
	uint32_t n_readers;
	uint32_t queue_max;
	bool buffered;
	bool faulty;
	struct hc_store *store;
	struct hc_store_file *file; /* the file store in it */
	void *data;                 /* RIG_ROOM bytes */
};

/* The test's own memory, block-aligned; without it the program ends (make check-faults). */
static inline void *rig_alloc(size_t size_bytes)
{
	void *p = aligned_alloc(HC_BLOCK_BYTES, (size_t)hc_align_up(size_bytes, HC_BLOCK_BYTES));

	if (!p) {
		printf("Bail out! no memory\n");
		exit(1);
	}
	return p;
}

static inline void *rig_zalloc(size_t size_bytes)
{
	return memset(rig_alloc(size_bytes), 0, size_bytes);
}

static inline int rig_rm_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline void rig_rm(const char *path)
{
	nftw(path, rig_rm_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline void rig_make_root(char *root, size_t room, const char *base)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(root, room, "%s/hc-store-XXXXXX", base ? base : tmp ? tmp : "/var/tmp");
	assert_non_null(mkdtemp(root));
}

static inline int rig_try_open(struct rig *rig)
{
	const char *dirs[RIG_DISKS_MAX];
	struct hc_store_file_config config = {
		.dirs = dirs,
		.n_dirs = rig->n_disks,
		.init_empty = true,
		.n_readers = rig->n_readers,
		.queue_max = rig->queue_max,
	};
	struct hc_store *store;
	int rc;

	for (int i = 0; i < rig->n_disks; i++)
		dirs[i] = rig->dirs[i];
	rc = hc_store_file_open(&config, &store);
	if (rc)
		return rc;
	rig->store = store;
	rig->file = (struct hc_store_file *)store;
	for (int i = 0; i < rig->n_disks && rig->buffered; i++)
		rig->file->disks[i].direct = false;
	if (rig->faulty)
		assert_int_equal(hc_store_fault_open(store, 1, &rig->store), 0);
	return 0;
}

static inline void rig_close(struct rig *rig)
{
	if (rig->store)
		rig->store->ops->close(rig->store);
	rig->store = NULL;
}

static inline void rig_reopen(struct rig *rig)
{
	rig_close(rig);
	assert_int_equal(rig_try_open(rig), 0);
}

/* The caller has set n_disks and what else differs from the defaults. */
static inline void rig_start(struct rig *rig, const char *base)
{
	rig_make_root(rig->root, sizeof(rig->root), base);
	for (int i = 0; i < rig->n_disks; i++) {
		snprintf(rig->dirs[i], sizeof(rig->dirs[i]), "%s/d%d", rig->root, i);
		assert_int_equal(mkdir(rig->dirs[i], 0700), 0);
	}
	rig->data = rig_alloc(RIG_ROOM);
	assert_non_null(rig->data);
	assert_int_equal(rig_try_open(rig), 0);
}

static inline void rig_stop(struct rig *rig)
{
	rig_close(rig);
	free(rig->data);
	rig_rm(rig->root);
}

/* Bytes and metadata of a page are functions of its number. */
static inline void rig_fill(void *data, uint64_t number, uint64_t size_bytes)
{
	uint64_t *at = data;
	struct hc_rng rng;

	hc_rng_seed(&rng, number);
	for (uint64_t i = 0; i < (size_bytes + 7) / 8; i++)
		at[i] = hc_rng_next(&rng);
}

static inline struct hc_store_page rig_page(void *data, uint64_t number, uint64_t size_bytes)
{
	struct hc_store_page page = {
		.sequence = number + 1,
		.size_bytes = size_bytes,
		.series = (uint32_t)(number % 5),
		.depth = (uint32_t)number,
	};
	struct hc_rng rng;

	rig_fill(data, number, size_bytes);
	page.checksum = hc_checksum(data, size_bytes);
	hc_rng_seed(&rng, number ^ 0x5eed);
	for (int i = 0; i < HC_HASH_BYTES; i++) {
		page.hash.bytes[i] = (uint8_t)hc_rng_next(&rng);
		page.parent.bytes[i] = (uint8_t)hc_rng_next(&rng);
	}
	/* 16 shards: making directories is the slow part of a fresh store. */
	page.hash.bytes[0] &= 0x0f;
	page.hash.bytes[1] &= 0x0f;
	return page;
}

static inline bool rig_same(const void *data, uint64_t number, uint64_t size_bytes)
{
	void *want = rig_alloc((size_t)hc_align_up(size_bytes, 8));
	bool same;

	rig_fill(want, number, size_bytes);
	same = !memcmp(data, want, (size_t)size_bytes);
	free(want);
	return same;
}

/* One completion, or NULL after wait_ms. */
static inline struct hc_store_request *rig_wait(struct hc_store *store, int wait_ms)
{
	struct pollfd fd = {.fd = store->ops->event_fd(store), .events = POLLIN};
	struct hc_store_request *done = NULL;

	while (!store->ops->reap(store, &done, 1))
		if (poll(&fd, 1, wait_ms) <= 0)
			return NULL;
	return done;
}

/* Submits one and waits for it; nothing else may be under way. */
static inline int rig_run(struct hc_store *store, struct hc_store_request *request)
{
	struct hc_store_request *done;

	request->result = 1;
	assert_int_equal(store->ops->submit(store, &request, 1), 1);
	done = rig_wait(store, RIG_WAIT_MS);
	assert_ptr_equal(done, request);
	return request->result;
}

static inline int rig_op(struct rig *rig, enum hc_store_op op, const struct hc_store_page *page,
			 uint16_t disk, uint32_t flags)
{
	struct hc_store_request request = {
		.op = op, .flags = flags, .disk = disk, .page = *page, .data = rig->data};

	return rig_run(rig->store, &request);
}

/* A page that is stored and right. */
static inline struct hc_store_page rig_put(struct rig *rig, uint64_t number, uint64_t size_bytes,
					   uint16_t disk)
{
	struct hc_store_page page = rig_page(rig->data, number, size_bytes);

	assert_int_equal(rig_op(rig, HC_STORE_PUT, &page, disk, 0), 0);
	return page;
}

static inline void rig_path(const struct rig *rig, uint16_t disk, const struct hc_store_page *page,
			    char path[512])
{
	char name[160];

	hc_store_file_path(page, name);
	snprintf(path, 512, "%s/%s", rig->dirs[disk], name);
}

/* ---- what list says ---- */

struct rig_listed {
	struct hc_store_page page;
	int status;
	uint16_t disk;
	char name[256];
	char path[512];
};

struct rig_list {
	struct rig_listed at[128];
	size_t n;
};

static inline void rig_each(void *arg, uint16_t disk, const struct hc_store_page *page, int status,
			    const char *path)
{
	struct rig_list *list = arg;
	struct rig_listed *one = &list->at[list->n++];

	assert_true(list->n <= HC_ARRAY_SIZE(list->at));
	one->page = *page;
	one->status = status;
	one->disk = disk;
	snprintf(one->name, sizeof(one->name), "%s", page->name ? page->name : "");
	snprintf(one->path, sizeof(one->path), "%s", path);
}

/* All disks. The caller frees. */
static inline struct rig_list *rig_list(struct rig *rig)
{
	struct rig_list *list = rig_zalloc(sizeof(*list));

	for (uint16_t d = 0; d < rig->n_disks; d++)
		assert_int_equal(rig->store->ops->list(rig->store, d, rig_each, list), 0);
	return list;
}

static inline const struct rig_listed *rig_find(const struct rig_list *list, uint64_t sequence)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->at[i].page.sequence == sequence)
			return &list->at[i];
	return NULL;
}

static inline int rig_count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = -2;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

#endif
