/* SPDX-License-Identifier: Apache-2.0 */
/* Between the node and its store: requests with a context, back-pressure, and the progress thread
 * that reaps completions and calls each request's `done` (without locks). */
#include "node/internal.h"

#include <poll.h>
#include <sys/eventfd.h>

/* How long a full store queue is waited for between two tries. */
#define HC_IO_RETRY_NS (2 * HC_NS_PER_MS)
/* How often written pages are looked at again whose parent is not on disk yet. */
#define HC_IO_WAITING_MS 20
/* How often a wait looks whether the node stops. */
#define HC_IO_STOP_LOOK_NS (100 * HC_NS_PER_MS)
/* How long requests in flight may take to end when the node closes. */
#define HC_IO_STOP_NS (5 * HC_NS_PER_S)

struct hc_io *hc_io_create(struct hc_node *node, enum hc_store_op op, hc_io_done_t done)
{
	struct hc_io *io = hc_zalloc(sizeof(*io));

	(void)node;
	if (!io)
		return NULL;
	io->request.op = op;
	io->request.arg = io;
	io->done = done;
	io->slot = HC_SLOT_NONE;
	return io;
}

static void hc_io_track(struct hc_node *node, struct hc_io *io)
{
	pthread_mutex_lock(&node->io_lock);
	io->next = node->ios;
	io->prev_p = &node->ios;
	if (io->next)
		io->next->prev_p = &io->next;
	node->ios = io;
	pthread_mutex_unlock(&node->io_lock);
	atomic_fetch_add(&node->n_io, 1);
}

static void hc_io_untrack(struct hc_node *node, struct hc_io *io)
{
	pthread_mutex_lock(&node->io_lock);
	*io->prev_p = io->next;
	if (io->next)
		io->next->prev_p = io->prev_p;
	pthread_mutex_unlock(&node->io_lock);
	atomic_fetch_sub(&node->n_io, 1);
}

static void hc_io_finish(struct hc_node *node, struct hc_io *io)
{
	hc_io_untrack(node, io);
	if (io->request.result == -EIO || io->request.result == -ENODEV) {
		hc_count(node, disk_errors);
		/* Perhaps a disk was taken out. */
		hc_wait_wake(&node->keeper_bell);
	}
	if (io->done)
		io->done(node, io);
	else
		free(io);
}

void hc_io_submit(struct hc_node *node, struct hc_io **ios, size_t n, uint64_t deadline_ns)
{
	struct hc_store_request *requests[HC_BACKUP_FLIGHT];

	for (size_t i = 0; i < n; i++)
		hc_io_track(node, ios[i]);
	while (n) {
		size_t batch = hc_min_u64(n, HC_BACKUP_FLIGHT), taken;
		uint64_t seen = hc_wait_seen(&node->room);

		for (size_t i = 0; i < batch; i++)
			requests[i] = &ios[i]->request;
		taken = node->store->ops->submit(node->store, requests, batch);
		ios += taken;
		n -= taken;
		if (taken == batch)
			continue;
		if (hc_clock_now_ns() >= deadline_ns)
			break;
		hc_wait_for(&node->room, seen,
			    hc_min_u64(deadline_ns, hc_clock_now_ns() + HC_IO_RETRY_NS));
	}
	for (size_t i = 0; i < n; i++) {
		ios[i]->request.result = -ETIMEDOUT;
		hc_io_finish(node, ios[i]);
	}
}

/* --- unlinks: a queue of their own before the store's, for whole batches are evicted at once ---
 */

static void hc_removal_ended(struct hc_node *node, const struct hc_removal *removal)
{
	struct hc_shard *shard;
	struct hc_entry *entry;

	if (!removal->quarantine && removal->disk < HC_DISKS_MAX)
		atomic_fetch_sub(&node->removing_bytes[removal->disk], removal->page.size_bytes);
	/* A file that never got an entry. */
	if (removal->number == HC_ENTRY_NONE)
		return;
	shard = hc_index_entry_shard(node->index, removal->number);
	entry = hc_index_entry(node->index, removal->number);
	hc_shard_lock(shard);
	if (entry->sequence == removal->page.sequence && entry->flags & HC_ENTRY_REMOVING) {
		entry->flags &= (uint16_t)~HC_ENTRY_REMOVING;
		hc_backup_again(node, entry);
	}
	hc_shard_unlock(shard);
}

static void hc_removal_done(struct hc_node *node, struct hc_io *io)
{
	struct hc_removal removal = {
		.page = io->request.page,
		.number = io->number,
		.disk = io->request.disk,
		.quarantine = io->request.op == HC_STORE_QUARANTINE,
	};

	hc_removal_ended(node, &removal);
	free(io);
}

/* remove_lock held. */
static bool hc_removal_submit(struct hc_node *node, const struct hc_removal *removal)
{
	struct hc_io *io = hc_io_create(
		node, removal->quarantine ? HC_STORE_QUARANTINE : HC_STORE_REMOVE, hc_removal_done);
	struct hc_store_request *request;

	if (!io)
		return false;
	io->number = removal->number;
	io->request.disk = removal->disk;
	io->request.page = removal->page;
	request = &io->request;
	hc_io_track(node, io);
	if (node->store->ops->submit(node->store, &request, 1))
		return true;
	hc_io_untrack(node, io);
	free(io);
	return false;
}

/* remove_lock held. */
static bool hc_removal_push(struct hc_node *node, const struct hc_removal *removal)
{
	if (node->n_removals == node->removals_room) {
		size_t room = node->removals_room ? 2 * node->removals_room : 256;
		struct hc_removal *removals =
			room <= HC_REMOVALS_MAX ? malloc(room * sizeof(*removals)) : NULL;

		if (!removals)
			return false;
		for (size_t i = 0; i < node->n_removals; i++)
			removals[i] = node->removals[(node->removal_i + i) % node->removals_room];
		free(node->removals);
		node->removals = removals;
		node->removal_i = 0;
		node->removals_room = room;
	}
	node->removals[(node->removal_i + node->n_removals++) % node->removals_room] = *removal;
	return true;
}

void hc_io_remove(struct hc_node *node, const struct hc_removal *removal)
{
	bool taken;

	if (!removal->quarantine && removal->disk < HC_DISKS_MAX)
		atomic_fetch_add(&node->removing_bytes[removal->disk], removal->page.size_bytes);
	pthread_mutex_lock(&node->remove_lock);
	taken = (!node->n_removals && hc_removal_submit(node, removal)) ||
		hc_removal_push(node, removal);
	pthread_mutex_unlock(&node->remove_lock);
	if (taken)
		return;
	if (!atomic_exchange(&node->sweep, true))
		hc_warn(HC_NODE, "more page files to unlink than can be queued: the rest is swept "
				 "in idle time");
	hc_removal_ended(node, removal);
}

static void hc_removals_drain(struct hc_node *node)
{
	pthread_mutex_lock(&node->remove_lock);
	while (node->n_removals && hc_removal_submit(node, &node->removals[node->removal_i])) {
		node->removal_i = (node->removal_i + 1) % node->removals_room;
		node->n_removals--;
	}
	pthread_mutex_unlock(&node->remove_lock);
}

/* One synchronous request. Two hold it: the caller and the progress thread; the last one frees. */
struct hc_io_sync {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done, left;
	int result;
	struct hc_io_answer answer;
};

static void hc_io_sync_done(struct hc_node *node, struct hc_io *io)
{
	struct hc_io_sync *sync = io->arg;
	bool left;

	(void)node;
	pthread_mutex_lock(&sync->lock);
	sync->done = true;
	sync->result = io->request.result;
	sync->answer.mark = io->request.mark;
	sync->answer.fd = io->request.fd;
	left = sync->left;
	/* Nobody waits for the descriptor any more. */
	if (left && io->request.op == HC_STORE_OPEN && !io->request.result)
		close(io->request.fd);
	pthread_cond_signal(&sync->cond);
	pthread_mutex_unlock(&sync->lock);
	free(io);
	if (left) {
		pthread_mutex_destroy(&sync->lock);
		pthread_cond_destroy(&sync->cond);
		free(sync);
	}
}

int hc_io_run_file(struct hc_node *node, struct hc_io *io, uint64_t deadline_ns,
		   struct hc_io_answer *answer_p)
{
	struct hc_io_sync *sync = hc_zalloc(sizeof(*sync));
	int result;

	if (!sync) {
		free(io);
		return -ENOMEM;
	}
	pthread_mutex_init(&sync->lock, NULL);
	hc_cond_init(&sync->cond);
	io->done = hc_io_sync_done;
	io->arg = sync;
	hc_io_submit(node, &io, 1, deadline_ns);
	pthread_mutex_lock(&sync->lock);
	/* A node that stops does not wait for a hung disk. */
	while (!sync->done && !atomic_load(&node->stop) && hc_clock_now_ns() < deadline_ns)
		hc_ignore(hc_cond_wait_until(
			&sync->cond, &sync->lock,
			hc_min_u64(deadline_ns, hc_clock_now_ns() + HC_IO_STOP_LOOK_NS)));
	if (!sync->done) {
		sync->left = true;
		pthread_mutex_unlock(&sync->lock);
		return -ETIMEDOUT;
	}
	result = sync->result;
	if (!result)
		*answer_p = sync->answer;
	pthread_mutex_unlock(&sync->lock);
	pthread_mutex_destroy(&sync->lock);
	pthread_cond_destroy(&sync->cond);
	free(sync);
	return result;
}

int hc_io_run(struct hc_node *node, struct hc_io *io, uint64_t deadline_ns)
{
	struct hc_io_answer answer;

	return hc_io_run_file(node, io, deadline_ns, &answer);
}

static size_t hc_io_reap(struct hc_node *node)
{
	struct hc_store_request *done[HC_REAP_BATCH];
	size_t n = node->store->ops->reap(node->store, done, HC_REAP_BATCH);

	for (size_t i = 0; i < n; i++)
		hc_io_finish(node, done[i]->arg);
	if (n) {
		hc_removals_drain(node);
		/* A parent may have come to disk, or failed. */
		hc_backup_retry_waiting(node);
		hc_wait_wake(&node->room);
	}
	return n;
}

static void *hc_io_progress(void *arg)
{
	struct hc_node *node = arg;
	struct pollfd fds[2] = {
		{.fd = node->store->ops->event_fd(node->store), .events = POLLIN},
		{.fd = node->progress_fd, .events = POLLIN},
	};

	pthread_setname_np(pthread_self(), "hc-progress");
	while (!atomic_load(&node->stop_progress)) {
		bool waiting;

		pthread_mutex_lock(&node->backup_lock);
		waiting = node->backup_waiting;
		pthread_mutex_unlock(&node->backup_lock);
		if (poll(fds, 2, waiting ? HC_IO_WAITING_MS : -1) < 0 && errno != EINTR)
			hc_warn(HC_NODE, "poll of store completions failed: %m");
		hc_backup_retry_waiting(node);
		while (hc_io_reap(node) == HC_REAP_BATCH)
			;
	}
	return NULL;
}

int hc_io_start(struct hc_node *node)
{
	int rc;

	node->progress_fd = eventfd(0, EFD_CLOEXEC);
	if (node->progress_fd < 0)
		return -errno;
	rc = pthread_create(&node->thread_progress, NULL, hc_io_progress, node);
	node->has_progress = !rc;
	return -rc;
}

void hc_io_stop(struct hc_node *node)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_IO_STOP_NS;

	while (node->has_progress && atomic_load(&node->n_io) && hc_clock_now_ns() < deadline_ns) {
		uint64_t seen = hc_wait_seen(&node->room);

		if (atomic_load(&node->n_io))
			hc_wait_for(
				&node->room, seen,
				hc_min_u64(deadline_ns, hc_clock_now_ns() + 5 * HC_IO_RETRY_NS));
	}
	if (atomic_load(&node->n_io))
		hc_warn(HC_NODE, "%llu store requests did not end: they are given up",
			(unsigned long long)atomic_load(&node->n_io));
	if (node->has_progress) {
		uint64_t one = 1;

		atomic_store(&node->stop_progress, true);
		if (write(node->progress_fd, &one, sizeof(one)) < 0)
			hc_warn(HC_NODE, "cannot wake the progress thread: %m");
		pthread_join(node->thread_progress, NULL);
		node->has_progress = false;
	}
	node->store->ops->close(node->store);
	node->store = NULL;
	/* Nobody waits for these any more; what they did is found at the next start. */
	while (node->ios) {
		struct hc_io *io = node->ios;

		hc_io_untrack(node, io);
		if (io->done == hc_io_sync_done)
			hc_io_sync_done(node, io);
		else
			free(io);
	}
	hc_backup_drop_waiting(node);
	if (node->progress_fd >= 0)
		close(node->progress_fd);
}
