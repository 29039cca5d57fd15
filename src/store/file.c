/* SPDX-License-Identifier: Apache-2.0 */
/* Store "file": queues, worker threads, completion, and the judgement when a disk is taken out.
 * See file.h for what it promises and file-internal.h for its parts. */
#include <inttypes.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/statvfs.h>

#include "model/checksum.h"
#include "store/file-internal.h"
#include "util/clock.h"
#include "util/log.h"

#define HC_LOG "store"

static struct hc_store_file *hc_file_of(struct hc_store *store)
{
	return (struct hc_store_file *)store;
}

static bool hc_file_urgent(const struct hc_store_request *request)
{
	return request->flags & HC_STORE_URGENT;
}

/* ---- completion ---- */

static void hc_file_complete(struct hc_store_file *store, struct hc_store_request *request,
			     int result)
{
	const uint64_t one = 1;
	bool first;

	request->result = result;
	pthread_mutex_lock(&store->done_lock);
	first = !store->done.first;
	hc_file_list_add(&store->done, request);
	/* Under the lock, so that the eventfd is readable exactly while the list holds something.
	 */
	if (first && write(store->event_fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		hc_error(HC_LOG, "cannot signal a completion: %m");
	pthread_mutex_unlock(&store->done_lock);
}

static size_t hc_file_reap(struct hc_store *base, struct hc_store_request **done, size_t max)
{
	struct hc_store_file *store = hc_file_of(base);
	uint64_t count;
	size_t n = 0;

	pthread_mutex_lock(&store->done_lock);
	while (n < max && store->done.first)
		done[n++] = hc_file_list_take(&store->done);
	if (n && !store->done.first && read(store->event_fd, &count, sizeof(count)) < 0)
		hc_error(HC_LOG, "cannot clear the completion event: %m");
	pthread_mutex_unlock(&store->done_lock);
	return n;
}

static int hc_file_event_fd(struct hc_store *base)
{
	return hc_file_of(base)->event_fd;
}

/* ---- a disk that fails ---- */

/* Ends what waits in a group; running requests end by themselves. */
static void hc_file_group_flush(struct hc_file_group *group, int result)
{
	struct hc_file_list all;
	struct hc_store_request *request;

	hc_file_list_init(&all);
	pthread_mutex_lock(&group->lock);
	while ((request = hc_file_list_take(&group->urgent)) ||
	       (request = hc_file_list_take(&group->normal))) {
		group->n_accepted[hc_file_urgent(request)]--;
		hc_file_list_add(&all, request);
	}
	pthread_mutex_unlock(&group->lock);
	while ((request = hc_file_list_take(&all)))
		hc_file_complete(group->disk->store, request, result);
}

static void hc_file_take_out(struct hc_file_disk *disk, const char *why)
{
	if (atomic_exchange(&disk->out, true))
		return;
	hc_error(HC_LOG,
		 "%s: %s: the disk is taken out and its pages are misses; "
		 "look at the kernel's log, repair or replace the disk, then restart",
		 disk->dir, why);
	for (int i = 0; i < HC_FILE_N_GROUPS; i++)
		hc_file_group_flush(&disk->groups[i], -ENODEV);
}

/* Says what failed, seldom enough that a broken disk does not fill the log. */
static void hc_file_log_failure(struct hc_file_disk *disk, const struct hc_store_request *request,
				int error)
{
	static const char *const verbs[] = {"read",   "write",      "adopt", "verify",
					    "remove", "quarantine", "open"};
	uint64_t now_ns = hc_clock_now_ns();
	uint64_t last_ns = atomic_load(&disk->logged_ns);
	char path[160];

	if (last_ns && now_ns - last_ns < HC_FILE_LOG_SPAN_NS)
		return;
	if (!atomic_compare_exchange_strong(&disk->logged_ns, &last_ns, now_ns))
		return;
	hc_store_file_path(&request->page, path);
	hc_warn(HC_LOG, "cannot %s %s/%s: %s", verbs[request->op], disk->dir, path,
		strerror(-error));
}

void hc_file_disk_judge(struct hc_file_disk *disk, int error)
{
	uint64_t now_ns, oldest_ns;

	atomic_fetch_add(&disk->n_errors, 1);
	if (error == -EROFS) {
		hc_file_take_out(disk, "the file system has become read-only");
		return;
	}
	if (error == -ENODEV || error == -ENOMEDIUM) {
		hc_file_take_out(disk, "the device is gone");
		return;
	}
	if (error != -EIO && error != -EUCLEAN && error != -ESHUTDOWN)
		return;
	now_ns = hc_clock_now_ns();
	pthread_mutex_lock(&disk->error_lock);
	disk->eio_ns[disk->eio_i] = now_ns;
	disk->eio_i = (disk->eio_i + 1) % HC_FILE_EIO_MAX;
	/* The slot after the newest holds the oldest of the last three. */
	oldest_ns = disk->eio_ns[disk->eio_i];
	pthread_mutex_unlock(&disk->error_lock);
	if (oldest_ns && now_ns - oldest_ns < HC_FILE_EIO_SPAN_NS)
		hc_file_take_out(disk, "three input/output errors within 10 s");
}

static void hc_file_judge(struct hc_file_disk *disk, const struct hc_store_request *request,
			  int error)
{
	if (!error || error == -ENOENT || error == -EINVAL || error == -EBADMSG)
		return;
	hc_file_log_failure(disk, request, error);
	if (error != -ENOSPC && error != -EDQUOT)
		hc_file_disk_judge(disk, error);
}

/* ---- workers ---- */

static void *hc_file_worker(void *arg)
{
	struct hc_file_group *group = arg;
	struct hc_file_disk *disk = group->disk;
	struct hc_file_scratch scratch = {0};
	struct hc_store_request *request;

	if (group->kind == HC_FILE_GROUP_SCRUB) {
		scratch.part = aligned_alloc(HC_BLOCK_BYTES, HC_FILE_PART_BYTES);
		scratch.leaves =
			malloc(hc_checksum_n_leaves(HC_PAGE_BYTES_MAX) * sizeof(*scratch.leaves));
	}
	pthread_mutex_lock(&group->lock);
	for (;;) {
		int result, medium = 0;

		request = hc_file_list_take(&group->urgent);
		if (!request)
			request = hc_file_list_take(&group->normal);
		if (!request) {
			if (group->closing)
				break;
			group->n_idle++;
			pthread_cond_wait(&group->more, &group->lock);
			group->n_idle--;
			continue;
		}
		pthread_mutex_unlock(&group->lock);
		if (atomic_load(&disk->out))
			result = -ENODEV;
		else if (group->kind == HC_FILE_GROUP_SCRUB && (!scratch.part || !scratch.leaves))
			result = -EAGAIN;
		else
			result = hc_file_run(disk, request, &scratch, &medium);
		hc_file_judge(disk, request, medium);
		pthread_mutex_lock(&group->lock);
		group->n_accepted[hc_file_urgent(request)]--;
		pthread_mutex_unlock(&group->lock);
		hc_file_complete(disk->store, request, result);
		pthread_mutex_lock(&group->lock);
	}
	pthread_mutex_unlock(&group->lock);
	free(scratch.part);
	free(scratch.leaves);
	return NULL;
}

static int hc_file_group_start(struct hc_file_group *group, struct hc_file_disk *disk,
			       enum hc_file_group_kind kind, uint32_t n_threads)
{
	static const char *const names[] = {"read", "write", "scrub", "reap"};
	sigset_t all, before;
	char name[16];
	int rc = 0;

	group->disk = disk;
	group->kind = kind;
	group->threads = calloc(n_threads, sizeof(*group->threads));
	if (!group->threads)
		return -ENOMEM;
	snprintf(name, sizeof(name), "hc-%s-%u", names[kind], disk->disk_i);
	/* Signals belong to the threads of the program. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (group->n_threads < n_threads && !rc) {
		rc = -pthread_create(&group->threads[group->n_threads], NULL, hc_file_worker,
				     group);
		if (!rc)
			pthread_setname_np(group->threads[group->n_threads++], name);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		hc_error(HC_LOG,
			 "%s: cannot start a thread: %s; raise the limit of processes (ulimit -u)",
			 disk->dir, strerror(-rc));
	return rc;
}

static void hc_file_group_stop(struct hc_file_group *group)
{
	pthread_mutex_lock(&group->lock);
	group->closing = true;
	pthread_cond_broadcast(&group->more);
	pthread_mutex_unlock(&group->lock);
	for (uint32_t i = 0; i < group->n_threads; i++)
		pthread_join(group->threads[i], NULL);
	free(group->threads);
}

/* ---- submit ---- */

static const enum hc_file_group_kind hc_file_group_of[] = {
	[HC_STORE_GET] = HC_FILE_GROUP_READ,    [HC_STORE_PUT] = HC_FILE_GROUP_WRITE,
	[HC_STORE_ADOPT] = HC_FILE_GROUP_WRITE, [HC_STORE_VERIFY] = HC_FILE_GROUP_SCRUB,
	[HC_STORE_REMOVE] = HC_FILE_GROUP_REAP, [HC_STORE_QUARANTINE] = HC_FILE_GROUP_REAP,
	[HC_STORE_OPEN] = HC_FILE_GROUP_READ,
};

static bool hc_file_request_ok(struct hc_store_file *store, const struct hc_store_request *request)
{
	const struct hc_store_page *page = &request->page;
	uint64_t number;
	const char *end;

	if ((size_t)request->op >= HC_ARRAY_SIZE(hc_file_group_of) ||
	    request->disk >= store->n_disks)
		return false;
	if (request->op == HC_STORE_REMOVE || request->op == HC_STORE_QUARANTINE)
		return true;
	if (!page->size_bytes || page->size_bytes > HC_PAGE_BYTES_MAX)
		return false;
	if ((request->op == HC_STORE_GET || request->op == HC_STORE_PUT) &&
	    (!request->data || (uintptr_t)request->data % HC_BLOCK_BYTES))
		return false;
	if (request->op != HC_STORE_PUT && request->op != HC_STORE_ADOPT)
		return true;
	if (page->flags & HC_STORE_PAGE_OPAQUE &&
	    (!page->name || !page->name[0] ||
	     strnlen(page->name, HC_FILE_NAME_MAX + 1) > HC_FILE_NAME_MAX))
		return false;
	return request->op != HC_STORE_ADOPT ||
	       (request->staging &&
		hc_file_parse_number(request->staging, UINT64_MAX, &number, &end) && !*end);
}

static size_t hc_file_submit(struct hc_store *base, struct hc_store_request **requests, size_t n)
{
	struct hc_store_file *store = hc_file_of(base);
	uint64_t now_ns = hc_clock_now_ns();

	for (size_t i = 0; i < n; i++) {
		struct hc_store_request *request = requests[i];
		struct hc_file_group *group;
		struct hc_file_disk *disk;
		bool full, urgent;

		request->submitted_ns = now_ns;
		if (!hc_file_request_ok(store, request)) {
			hc_file_complete(store, request, -EINVAL);
			continue;
		}
		disk = &store->disks[request->disk];
		if (atomic_load(&disk->out)) {
			hc_file_complete(store, request, -ENODEV);
			continue;
		}
		group = &disk->groups[hc_file_group_of[request->op]];
		pthread_mutex_lock(&group->lock);
		urgent = hc_file_urgent(request);
		full = group->n_accepted[urgent] >= store->queue_max;
		if (!full) {
			group->n_accepted[urgent]++;
			hc_file_list_add(urgent ? &group->urgent : &group->normal, request);
			if (group->n_idle)
				pthread_cond_signal(&group->more);
		}
		pthread_mutex_unlock(&group->lock);
		if (full)
			return i;
		/* Taken out in between: nobody else would end it while the workers hang. */
		if (atomic_load(&disk->out))
			hc_file_group_flush(group, -ENODEV);
	}
	return n;
}

/* Moved from one queue to the other with its place in the counts. */
static void hc_file_hurry(struct hc_store *base, uint16_t disk_i, uint64_t sequence)
{
	struct hc_store_file *store = hc_file_of(base);
	struct hc_store_request **at, *request;
	struct hc_file_group *group;

	if (disk_i >= store->n_disks)
		return;
	group = &store->disks[disk_i].groups[HC_FILE_GROUP_READ];
	pthread_mutex_lock(&group->lock);
	for (at = &group->normal.first; (request = *at); at = &request->next) {
		if (request->page.sequence != sequence)
			continue;
		*at = request->next;
		if (!*at)
			group->normal.last_p = at;
		request->flags |= HC_STORE_URGENT;
		group->n_accepted[false]--;
		group->n_accepted[true]++;
		hc_file_list_add(&group->urgent, request);
		break;
	}
	pthread_mutex_unlock(&group->lock);
}

/* ---- the rest of the table ---- */

static int hc_file_register_memory(struct hc_store *base, void *addr, size_t size_bytes)
{
	return 0;
}

static uint16_t hc_file_n_disks(struct hc_store *base)
{
	return hc_file_of(base)->n_disks;
}

static void hc_file_tell_late(struct hc_file_disk *disk, bool late)
{
	if (atomic_load(&disk->late_told) == late ||
	    atomic_exchange(&disk->late_told, late) == late)
		return;
	if (late)
		hc_warn(HC_LOG,
			"%s does not answer: what is new stays in memory until it does; look at "
			"the "
			"disk and at the kernel's log",
			disk->dir);
	else
		hc_info(HC_LOG, "%s answers again", disk->dir);
}

static int hc_file_disk_info(struct hc_store *base, uint16_t disk_i,
			     struct hc_store_disk_info *info_p)
{
	struct hc_store_file *store = hc_file_of(base);
	struct hc_file_disk *disk;
	struct statvfs vfs = {0};
	bool late = false;
	int rc;

	if (disk_i >= store->n_disks)
		return -EINVAL;
	disk = &store->disks[disk_i];
	rc = hc_file_aside_stat(disk->asides[HC_FILE_ASIDE_STAT], &vfs, &late);
	hc_file_tell_late(disk, late);
	if (rc && !atomic_load(&disk->out))
		return rc == -ETIMEDOUT ? rc : hc_file_map_error(rc);
	snprintf(info_p->dir, sizeof(info_p->dir), "%s", disk->dir);
	memcpy(info_p->uuid, disk->uuid, sizeof(info_p->uuid));
	info_p->total_bytes = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	info_p->free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	info_p->out = atomic_load(&disk->out);
	info_p->n_errors = atomic_load(&disk->n_errors);
	return 0;
}

static int hc_file_sync(struct hc_store *base, uint16_t disk_i, uint64_t deadline_ns)
{
	struct hc_store_file *store = hc_file_of(base);
	struct hc_file_disk *disk;
	int rc;

	if (disk_i >= store->n_disks)
		return -EINVAL;
	disk = &store->disks[disk_i];
	if (atomic_load(&disk->out))
		return -ENODEV;
	rc = hc_file_aside_sync(disk->asides[HC_FILE_ASIDE_SYNC], deadline_ns);
	return rc == -ETIMEDOUT ? rc : hc_file_map_error(rc);
}

static void hc_file_close(struct hc_store *base)
{
	struct hc_store_file *store = hc_file_of(base);

	for (uint16_t d = 0; d < store->n_disks; d++)
		for (int i = 0; i < HC_FILE_N_GROUPS; i++)
			hc_file_group_flush(&store->disks[d].groups[i], -ECANCELED);
	for (uint16_t d = 0; d < store->n_disks; d++) {
		struct hc_file_disk *disk = &store->disks[d];

		for (int i = 0; i < HC_FILE_N_GROUPS; i++)
			hc_file_group_stop(&disk->groups[i]);
		for (int i = 0; i < HC_FILE_N_ASIDES; i++)
			hc_file_aside_destroy(disk->asides[i]);
		hc_file_disk_close(disk);
		for (int i = 0; i < HC_FILE_N_GROUPS; i++) {
			pthread_mutex_destroy(&disk->groups[i].lock);
			pthread_cond_destroy(&disk->groups[i].more);
		}
		pthread_mutex_destroy(&disk->error_lock);
	}
	if (store->event_fd >= 0)
		close(store->event_fd);
	pthread_mutex_destroy(&store->done_lock);
	free(store->disks);
	free(store);
}

static const struct hc_store_ops hc_file_ops = {
	.name = "file",
	.close = hc_file_close,
	.submit = hc_file_submit,
	.reap = hc_file_reap,
	.hurry = hc_file_hurry,
	.event_fd = hc_file_event_fd,
	.register_memory = hc_file_register_memory,
	.n_disks = hc_file_n_disks,
	.disk_info = hc_file_disk_info,
	.list = hc_file_list_pages,
	.staging_create = hc_file_staging_create,
	.staging_remove = hc_file_staging_remove,
	.open_file = hc_file_open_cached,
	.drop_cache = hc_file_drop_cache,
	.sync = hc_file_sync,
	.sweep = hc_file_sweep,
};

/* Everything that close() will undo, so that it can be called from here on. */
static void hc_file_disk_init(struct hc_file_disk *disk, struct hc_store_file *store,
			      uint16_t disk_i)
{
	disk->store = store;
	disk->disk_i = disk_i;
	disk->dir_fd = disk->pages_fd = disk->staging_fd = disk->quarantine_fd = disk->identity_fd =
		-1;
	pthread_mutex_init(&disk->error_lock, NULL);
	for (int i = 0; i < HC_FILE_N_GROUPS; i++) {
		struct hc_file_group *group = &disk->groups[i];

		group->disk = disk;
		pthread_mutex_init(&group->lock, NULL);
		hc_cond_init(&group->more);
		hc_file_list_init(&group->urgent);
		hc_file_list_init(&group->normal);
	}
}

static int hc_file_disk_start(struct hc_file_disk *disk, const struct hc_store_file_config *config)
{
	const uint32_t n_threads[HC_FILE_N_GROUPS] = {
		[HC_FILE_GROUP_READ] = config->n_readers ? config->n_readers : HC_FILE_READERS,
		[HC_FILE_GROUP_WRITE] = config->n_writers ? config->n_writers : HC_FILE_WRITERS,
		[HC_FILE_GROUP_SCRUB] = 1,
		[HC_FILE_GROUP_REAP] = 1,
	};
	int rc = hc_file_disk_open(disk, config->dirs[disk->disk_i], config->init_empty);

	for (int i = 0; i < HC_FILE_N_ASIDES && !rc; i++)
		rc = hc_file_aside_create((enum hc_file_aside_kind)i, disk->dir_fd, disk->disk_i,
					  &disk->asides[i]);
	for (int i = 0; i < HC_FILE_N_GROUPS && !rc; i++)
		rc = hc_file_group_start(&disk->groups[i], disk, (enum hc_file_group_kind)i,
					 n_threads[i]);
	return rc;
}

int hc_store_file_open(const struct hc_store_file_config *config, struct hc_store **store_p)
{
	struct hc_store_file *store;
	int rc = 0;

	if (!config->n_dirs || config->n_dirs > HC_FILE_DISKS_MAX) {
		hc_error(HC_LOG, "1 to %d data directories can be used, not %u", HC_FILE_DISKS_MAX,
			 config->n_dirs);
		return -EINVAL;
	}
	store = calloc(1, sizeof(*store));
	if (!store)
		return -ENOMEM;
	store->store.ops = &hc_file_ops;
	store->queue_max = config->queue_max ? config->queue_max : HC_FILE_QUEUE;
	pthread_mutex_init(&store->done_lock, NULL);
	hc_file_list_init(&store->done);
	store->disks = calloc(config->n_dirs, sizeof(*store->disks));
	store->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!store->disks || store->event_fd < 0) {
		rc = store->disks ? -errno : -ENOMEM;
		hc_error(HC_LOG, "cannot open the store: %s", strerror(-rc));
	}
	for (uint16_t i = 0; i < config->n_dirs && !rc; i++) {
		hc_file_disk_init(&store->disks[i], store, i);
		store->n_disks++;
		rc = hc_file_disk_start(&store->disks[i], config);
	}
	if (rc) {
		hc_file_close(&store->store);
		return rc;
	}
	*store_p = &store->store;
	return 0;
}
