/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of store.h, over every store that is built in: each test runs once per variant. */
#include "store-rig.h"

#include <pthread.h>

struct variant {
	const char *name;
	uint16_t n_disks;
	bool buffered;
	bool faulty;
	const char *base;
};

static const struct variant variants[] = {
	{.name = "file", .n_disks = 1},
	{.name = "file on 3 disks", .n_disks = 3},
	{.name = "file, buffered", .n_disks = 1, .buffered = true},
	{.name = "file on tmpfs", .n_disks = 2, .base = "/dev/shm"},
	{.name = "fault(file)", .n_disks = 2, .faulty = true},
};

static int setup(void **state)
{
	const struct variant *variant = *state;
	struct rig *rig = rig_zalloc(sizeof(*rig));

	rig->n_disks = variant->n_disks;
	rig->buffered = variant->buffered;
	rig->faulty = variant->faulty;
	rig_start(rig, variant->base);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	rig_stop(*state);
	free(*state);
	return 0;
}

/* Goal: bytes come back as they went, for sizes around leaves and blocks, on every disk. */
static void test_put_get(void **state)
{
	static const uint64_t sizes[] = {1, 511, 4095, 4096, 4097, 65536, 65537, 1048579, 8388608};
	struct rig *rig = *state;

	for (size_t i = 0; i < HC_ARRAY_SIZE(sizes); i++) {
		uint16_t disk = (uint16_t)(i % rig->n_disks);
		struct hc_store_page page = rig_page(rig->data, i, sizes[i]);
		struct hc_store_request verify = {
			.op = HC_STORE_VERIFY, .disk = disk, .page = page};

		assert_int_equal(
			rig_op(rig, HC_STORE_PUT, &page, disk, i & 1 ? HC_STORE_DURABLE : 0), 0);
		memset(rig->data, 0xee, RIG_ROOM);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, disk, HC_STORE_URGENT), 0);
		assert_true(rig_same(rig->data, i, sizes[i]));
		assert_int_equal(rig_run(rig->store, &verify), 0);
	}
}

/* Goal: nothing outside the page's room is written by a get. */
static void test_get_keeps_to_its_room(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 5000, 0);
	const uint8_t *bytes = rig->data;

	memset(rig->data, 0xee, 65536);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
	for (size_t i = 8192; i < 65536; i++)
		assert_int_equal(bytes[i], 0xee);
}

static void test_absent(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_page(rig->data, 1, 4096);

	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -ENOENT);
	assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &page, 0, 0), -ENOENT);
	assert_int_equal(rig_op(rig, HC_STORE_REMOVE, &page, 0, 0), 0);
	assert_int_equal(rig_op(rig, HC_STORE_QUARANTINE, &page, 0, 0), 0);
}

static void test_remove(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	struct hc_store_page other = page;

	/* Another sequence, series or hash is another object. */
	other.sequence++;
	assert_int_equal(rig_op(rig, HC_STORE_REMOVE, &other, 0, 0), 0);
	other = page;
	other.series++;
	assert_int_equal(rig_op(rig, HC_STORE_REMOVE, &other, 0, 0), 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
	assert_int_equal(rig_op(rig, HC_STORE_REMOVE, &page, 0, HC_STORE_DURABLE), 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -ENOENT);
}

/* Goal: what differs from the caller's size or checksum is never called good. */
static void test_mismatch(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 100000, 0), wrong = page;

	wrong.checksum ^= 1;
	assert_int_equal(rig_op(rig, HC_STORE_GET, &wrong, 0, 0), -EBADMSG);
	assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &wrong, 0, 0), -EBADMSG);
	memset(rig->data, 0, 100000);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &wrong, 0, HC_STORE_NO_VERIFY), 0);
	assert_true(rig_same(rig->data, 1, 100000));
	for (int i = 0; i < 4; i++) {
		static const int64_t steps[] = {-1, 1, -4096, 4096};

		wrong = page;
		wrong.size_bytes += (uint64_t)steps[i];
		assert_int_equal(rig_op(rig, HC_STORE_GET, &wrong, 0, HC_STORE_NO_VERIFY),
				 -EBADMSG);
		assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &wrong, 0, 0), -EBADMSG);
	}
}

/* Goal: a request that makes no sense is answered once, and touches nothing. */
static void test_invalid(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_page(rig->data, 1, 4096);
	struct hc_store_request good = {.op = HC_STORE_PUT, .page = page, .data = rig->data}, bad;

	bad = good;
	bad.disk = rig->n_disks;
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	bad = good;
	bad.page.size_bytes = 0;
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	bad.page.size_bytes = HC_PAGE_BYTES_MAX + 1;
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	bad = good;
	bad.data = (char *)rig->data + 512;
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	bad.data = NULL;
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	bad = good;
	bad.page.flags = HC_STORE_PAGE_OPAQUE;
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	bad = good;
	bad.op = (enum hc_store_op)99;
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	bad = good;
	bad.op = HC_STORE_ADOPT;
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	bad.staging = "../.hicachefs-disk";
	assert_int_equal(rig_run(rig->store, &bad), -EINVAL);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -ENOENT);
}

/* Goal: each accepted request completes exactly once, however small the queue. */
static void test_exactly_once(void **state)
{
	enum { N = 600 };
	struct rig *rig = *state;
	struct hc_store_request *requests = rig_zalloc(N * sizeof(*requests)), *refs[N], *done[7];
	size_t submitted = 0, reaped = 0;
	unsigned char *seen = rig_zalloc(N * 1);

	rig->queue_max = 8;
	rig_reopen(rig);
	for (size_t i = 0; i < N; i++) {
		requests[i] = (struct hc_store_request){
			.op = HC_STORE_PUT,
			.disk = (uint16_t)(i % rig->n_disks),
			.data = (char *)rig->data + 4096 * i,
			.arg = &seen[i],
		};
		requests[i].page = rig_page(requests[i].data, i, 4096);
		refs[i] = &requests[i];
	}
	while (reaped < N) {
		struct pollfd fd = {.fd = rig->store->ops->event_fd(rig->store), .events = POLLIN};
		size_t n;

		submitted += rig->store->ops->submit(rig->store, refs + submitted, N - submitted);
		assert_true(poll(&fd, 1, RIG_WAIT_MS) == 1);
		n = rig->store->ops->reap(rig->store, done, HC_ARRAY_SIZE(done));
		for (size_t i = 0; i < n; i++) {
			assert_int_equal(done[i]->result, 0);
			assert_int_equal(++*(unsigned char *)done[i]->arg, 1);
		}
		reaped += n;
	}
	assert_null(rig_wait(rig->store, 10));
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(seen[i], 1);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &requests[i].page, requests[i].disk, 0),
				 0);
	}
	free(requests);
	free(seen);
}

/* Goal: the event fd is readable exactly while completions wait. */
static void test_event_fd(void **state)
{
	struct rig *rig = *state;
	struct pollfd fd = {.fd = rig->store->ops->event_fd(rig->store), .events = POLLIN};
	struct hc_store_request request[2], *refs[] = {&request[0], &request[1]}, *done;

	for (int i = 0; i < 2; i++)
		request[i] = (struct hc_store_request){.op = HC_STORE_REMOVE,
						       .page = rig_page(rig->data, 1, 1)};
	assert_int_equal(poll(&fd, 1, 0), 0);
	assert_int_equal(rig->store->ops->submit(rig->store, refs, 2), 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(poll(&fd, 1, RIG_WAIT_MS), 1);
		assert_int_equal(rig->store->ops->reap(rig->store, &done, 1), 1);
	}
	assert_int_equal(poll(&fd, 1, 0), 0);
	assert_int_equal(rig->store->ops->reap(rig->store, &done, 1), 0);
}

static void test_list(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page pages[20];
	struct rig_list *list;

	for (uint64_t i = 0; i < 20; i++) {
		pages[i] = rig_page(rig->data, i, 100 + i * 4096);
		if (i % 3 == 0) {
			pages[i].flags = HC_STORE_PAGE_OPAQUE | HC_STORE_PAGE_UNNAMED;
			pages[i].name = "some directory/a name with \xc3\xa9 and spaces.bin";
		}
		assert_int_equal(
			rig_op(rig, HC_STORE_PUT, &pages[i], (uint16_t)(i % rig->n_disks), 0), 0);
	}
	rig_reopen(rig);
	list = rig_list(rig);
	assert_int_equal(list->n, 20);
	for (uint64_t i = 0; i < 20; i++) {
		const struct rig_listed *one = rig_find(list, i + 1);

		assert_non_null(one);
		assert_int_equal(one->status, 0);
		assert_int_equal(one->disk, i % rig->n_disks);
		assert_int_equal(one->page.size_bytes, pages[i].size_bytes);
		assert_int_equal(one->page.checksum, pages[i].checksum);
		assert_int_equal(one->page.series, pages[i].series);
		assert_int_equal(one->page.depth, pages[i].depth);
		assert_int_equal(one->page.flags, pages[i].flags);
		assert_true(hc_hash_equal(&one->page.hash, &pages[i].hash));
		assert_true(hc_hash_equal(&one->page.parent, &pages[i].parent));
		assert_string_equal(one->name, pages[i].name ? pages[i].name : "");
		assert_int_equal(access(one->path, F_OK), 0);
	}
	free(list);
	assert_int_equal(rig->store->ops->list(rig->store, rig->n_disks, rig_each, NULL), -EINVAL);
}

static void stage(struct rig *rig, uint16_t disk, uint64_t number, size_t n, char name[64])
{
	int fd;

	assert_int_equal(rig->store->ops->staging_create(rig->store, disk, &fd, name, 64), 0);
	rig_fill(rig->data, number, n);
	assert_int_equal(write(fd, rig->data, n), n);
	close(fd);
}

/* Goal: a staging file becomes an object with its metadata, once; a wrong size is refused. */
static void test_adopt(void **state)
{
	struct rig *rig = *state;
	uint16_t disk = (uint16_t)(rig->n_disks - 1);
	struct hc_store_page page = rig_page(rig->data, 3, 70001);
	struct hc_store_request adopt = {
		.op = HC_STORE_ADOPT, .flags = HC_STORE_DURABLE, .disk = disk, .page = page};
	char name[64], other[64];
	struct rig_list *list;

	stage(rig, disk, 3, 70001, name);
	stage(rig, disk, 3, 70001, other);
	assert_string_not_equal(name, other);
	adopt.staging = name;
	adopt.page.size_bytes--;
	assert_int_equal(rig_run(rig->store, &adopt), -EBADMSG);
	adopt.page = page;
	assert_int_equal(rig_run(rig->store, &adopt), 0);
	assert_int_equal(rig_run(rig->store, &adopt), -ENOENT);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, disk, 0), 0);
	assert_true(rig_same(rig->data, 3, 70001));
	list = rig_list(rig);
	assert_int_equal(list->n, 1);
	assert_int_equal(list->at[0].status, 0);
	assert_int_equal(list->at[0].page.checksum, page.checksum);
	free(list);
	assert_int_equal(rig->store->ops->staging_remove(rig->store, disk, other), 0);
	assert_int_equal(rig->store->ops->staging_remove(rig->store, disk, other), -ENOENT);
	assert_int_equal(rig->store->ops->staging_remove(rig->store, disk, "../pages"), -EINVAL);
}

static bool keep_odd(void *arg, uint32_t series, const struct hc_hash *hash, uint64_t sequence)
{
	(*(int *)arg)++;
	return sequence & 1;
}

/* Goal: sweep removes what keep() refuses, leftovers of staging from an earlier run and nothing of
 * this run. */
static void test_sweep(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page pages[10];
	uint64_t n = 99, bytes = 99;
	char old[64], live[64];
	int asked = 0;

	for (uint64_t i = 0; i < 10; i++)
		pages[i] = rig_put(rig, i, 8192, 0);
	stage(rig, 0, 1, 4096, old);
	rig_reopen(rig);
	stage(rig, 0, 1, 4096, live);
	assert_string_not_equal(old, live);
	assert_int_equal(rig->store->ops->sweep(rig->store, 0, keep_odd, &asked, false, &n, &bytes),
			 0);
	assert_int_equal(asked, 10);
	assert_int_equal(n, 6);
	assert_int_equal(bytes, 5 * 8192 + 4096);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(rig_op(rig, HC_STORE_GET, &pages[i], 0, 0),
				 (i + 1) & 1 ? 0 : -ENOENT);
	assert_int_equal(rig->store->ops->staging_remove(rig->store, 0, old), -ENOENT);
	assert_int_equal(rig->store->ops->staging_remove(rig->store, 0, live), 0);
	/* Without keep() only staging and quarantine are looked at. */
	assert_int_equal(rig->store->ops->sweep(rig->store, 0, NULL, NULL, true, &n, &bytes), 0);
	assert_int_equal(n, 0);
	assert_int_equal(rig->store->ops->sweep(rig->store, 77, NULL, NULL, true, &n, &bytes),
			 -EINVAL);
}

static void test_quarantine(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	struct rig_list *list;
	char path[320];
	uint64_t n, bytes;

	assert_int_equal(rig_op(rig, HC_STORE_QUARANTINE, &page, 0, 0), 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -ENOENT);
	list = rig_list(rig);
	assert_int_equal(list->n, 0);
	free(list);
	snprintf(path, sizeof(path), "%s/quarantine", rig->dirs[0]);
	assert_int_equal(rig_count_entries(path), 1);
	assert_int_equal(rig->store->ops->sweep(rig->store, 0, NULL, NULL, false, &n, &bytes), 0);
	assert_int_equal(rig_count_entries(path), 1);
	assert_int_equal(rig->store->ops->sweep(rig->store, 0, NULL, NULL, true, &n, &bytes), 0);
	assert_int_equal(n, 1);
	assert_int_equal(bytes, 4096);
	assert_int_equal(rig_count_entries(path), 0);
}

/* Goal: close with work under way: each request gets its result, and what says 0 is stored, what
 * does not is not. */
static void test_close_busy(void **state)
{
	enum { N = 64, SIZE = 65537 };
	struct rig *rig = *state;
	struct hc_store_request *requests = rig_zalloc(N * sizeof(*requests));
	size_t accepted = 0, good = 0;
	struct rig_list *list;

	for (size_t i = 0; i < N; i++) {
		struct hc_store_request *request = &requests[i];

		request->op = HC_STORE_PUT;
		request->data = (char *)rig->data + i * (SIZE + 65535);
		request->page = rig_page(request->data, i, SIZE);
		request->result = 1;
		accepted += rig->store->ops->submit(rig->store, &request, 1);
	}
	rig_reopen(rig);
	list = rig_list(rig);
	for (size_t i = 0; i < accepted; i++) {
		const struct rig_listed *one = rig_find(list, i + 1);

		assert_true(requests[i].result == 0 || requests[i].result == -ECANCELED);
		assert_true(!!one == !requests[i].result);
		good += !requests[i].result;
	}
	assert_int_equal(list->n, good);
	free(list);
	free(requests);
}

static void test_disk_info(void **state)
{
	struct rig *rig = *state;
	struct hc_store_disk_info *a = rig_zalloc(2 * sizeof(*a)), *b = a + 1;

	assert_int_equal(rig->store->ops->n_disks(rig->store), rig->n_disks);
	assert_int_equal(rig->store->ops->register_memory(rig->store, rig->data, RIG_ROOM), 0);
	for (uint16_t d = 0; d < rig->n_disks; d++) {
		assert_int_equal(rig->store->ops->disk_info(rig->store, d, a), 0);
		assert_string_equal(a->dir, rig->dirs[d]);
		assert_true(a->total_bytes >= a->free_bytes && a->free_bytes > 0);
		assert_false(a->out);
		assert_int_equal(a->n_errors, 0);
		rig_reopen(rig);
		assert_int_equal(rig->store->ops->disk_info(rig->store, d, b), 0);
		assert_memory_equal(a->uuid, b->uuid, sizeof(a->uuid));
	}
	assert_int_equal(rig->store->ops->disk_info(rig->store, rig->n_disks, a), -EINVAL);
	assert_int_equal(rig->store->ops->sync(rig->store, 0, UINT64_MAX), 0);
	assert_int_equal(rig->store->ops->sync(rig->store, rig->n_disks, UINT64_MAX), -EINVAL);
	free(a);
}

/* Goal: the number of open files does not grow with work, failures included. */
static void test_fds(void **state)
{
	struct rig *rig = *state;
	int before = rig_count_entries("/proc/self/fd"), closed;
	struct hc_store_page page, absent;

	for (uint64_t i = 0; i < 30; i++) {
		page = rig_put(rig, i, 5000, 0);
		absent = rig_page(rig->data, i + 1000, 5000);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &absent, 0, 0), -ENOENT);
		page.size_bytes++;
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -EBADMSG);
		assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &page, 0, 0), -EBADMSG);
		free(rig_list(rig));
	}
	assert_int_equal(rig_count_entries("/proc/self/fd"), before);
	rig_reopen(rig);
	assert_int_equal(rig_count_entries("/proc/self/fd"), before);
	rig_close(rig);
	closed = rig_count_entries("/proc/self/fd");
	assert_int_equal(rig_try_open(rig), 0);
	rig_close(rig);
	assert_int_equal(rig_count_entries("/proc/self/fd"), closed);
}

/* ---- threads ---- */

#define CROWD_THREADS  4
#define CROWD_REQUESTS 120

struct crowd {
	struct rig *rig;
	atomic_int left;
	atomic_int bad;
};

struct crowd_member {
	struct crowd *crowd;
	int number;
	pthread_t thread;
	struct hc_store_request *requests;
	char *data;
};

/* A completed put is read back by whoever reaped it; a completed get is compared. */
static void crowd_next(struct crowd *crowd, struct hc_store_request *request)
{
	struct hc_store *store = crowd->rig->store;
	uint64_t number = request->page.sequence - 1;

	if (request->result)
		atomic_fetch_add(&crowd->bad, 1);
	if (request->op == HC_STORE_PUT && !request->result) {
		memset(request->data, 0, (size_t)request->page.size_bytes);
		request->op = HC_STORE_GET;
	} else if (request->op == HC_STORE_GET && !request->result) {
		if (!rig_same(request->data, number, request->page.size_bytes))
			atomic_fetch_add(&crowd->bad, 1);
		request->op = number & 1 ? HC_STORE_REMOVE : HC_STORE_VERIFY;
	} else {
		atomic_fetch_sub(&crowd->left, 1);
		return;
	}
	while (!store->ops->submit(store, &request, 1))
		sched_yield();
}

static void *crowd_run(void *arg)
{
	struct crowd_member *me = arg;
	struct hc_store *store = me->crowd->rig->store;
	struct hc_store_request *done[4];
	size_t sent = 0;

	while (atomic_load(&me->crowd->left) > 0 && !atomic_load(&me->crowd->bad)) {
		size_t n;

		if (sent < CROWD_REQUESTS) {
			struct hc_store_request *request = &me->requests[sent];

			sent += store->ops->submit(store, &request, 1);
		} else {
			struct pollfd fd = {.fd = store->ops->event_fd(store), .events = POLLIN};

			poll(&fd, 1, 5);
		}
		n = store->ops->reap(store, done, HC_ARRAY_SIZE(done));
		for (size_t i = 0; i < n; i++)
			crowd_next(me->crowd, done[i]);
	}
	return NULL;
}

/* Goal: submit, reap and disk_info from several threads at once; whole pages, no request lost. */
static void test_threads(void **state)
{
	struct rig *rig = *state;
	struct crowd crowd = {.rig = rig, .left = CROWD_THREADS * CROWD_REQUESTS};
	struct crowd_member members[CROWD_THREADS];
	struct hc_store_disk_info *info = rig_alloc(sizeof(*info));

	rig->queue_max = 32;
	rig_reopen(rig);
	for (int t = 0; t < CROWD_THREADS; t++) {
		struct crowd_member *me = &members[t];

		*me = (struct crowd_member){.crowd = &crowd, .number = t};
		me->requests = rig_zalloc(CROWD_REQUESTS * sizeof(*me->requests));
		me->data = rig_alloc(CROWD_REQUESTS * 12288);
		for (int i = 0; i < CROWD_REQUESTS; i++) {
			struct hc_store_request *request = &me->requests[i];
			uint64_t number = (uint64_t)(t * CROWD_REQUESTS + i);

			request->op = HC_STORE_PUT;
			request->disk = (uint16_t)(i % rig->n_disks);
			request->data = me->data + i * 12288;
			request->page = rig_page(request->data, number, 8000 + number);
		}
	}
	for (int t = 0; t < CROWD_THREADS; t++)
		assert_int_equal(pthread_create(&members[t].thread, NULL, crowd_run, &members[t]),
				 0);
	while (atomic_load(&crowd.left) > 0 && !atomic_load(&crowd.bad))
		assert_int_equal(rig->store->ops->disk_info(rig->store, 0, info), 0);
	for (int t = 0; t < CROWD_THREADS; t++)
		pthread_join(members[t].thread, NULL);
	rig_close(rig);
	for (int t = 0; t < CROWD_THREADS; t++) {
		free(members[t].requests);
		free(members[t].data);
	}
	free(info);
	assert_int_equal(crowd.bad, 0);
	assert_int_equal(crowd.left, 0);
}

static const struct CMUnitTest contract[] = {
	cmocka_unit_test(test_put_get),      cmocka_unit_test(test_get_keeps_to_its_room),
	cmocka_unit_test(test_absent),       cmocka_unit_test(test_remove),
	cmocka_unit_test(test_mismatch),     cmocka_unit_test(test_invalid),
	cmocka_unit_test(test_exactly_once), cmocka_unit_test(test_event_fd),
	cmocka_unit_test(test_list),         cmocka_unit_test(test_adopt),
	cmocka_unit_test(test_sweep),        cmocka_unit_test(test_quarantine),
	cmocka_unit_test(test_close_busy),   cmocka_unit_test(test_disk_info),
	cmocka_unit_test(test_fds),          cmocka_unit_test(test_threads),
};

int main(void)
{
	static struct CMUnitTest all[HC_ARRAY_SIZE(contract) * HC_ARRAY_SIZE(variants)];
	static char names[HC_ARRAY_SIZE(all)][96];
	size_t n = 0;

	for (size_t v = 0; v < HC_ARRAY_SIZE(variants); v++) {
		for (size_t t = 0; t < HC_ARRAY_SIZE(contract); t++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s", variants[v].name,
				 contract[t].name);
			all[n] = contract[t];
			all[n].name = names[n];
			all[n].setup_func = setup;
			all[n].teardown_func = teardown;
			all[n].initial_state = (void *)&variants[v];
		}
	}
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return _cmocka_run_group_tests("store contract", all, n, NULL, NULL);
}
