/* SPDX-License-Identifier: Apache-2.0 */
/* Between the node and its store: requests with a context, back-pressure, and the progress thread that reaps
 * completions and calls each request's `done` (without locks). */
#include "node/internal.h"

#include <poll.h>
#include <sys/eventfd.h>

/* How long a full store queue is waited for between two tries. */
#define HC_IO_RETRY_NS (2 * HC_NS_PER_MS)
/* How often written pages are looked at again whose parent is not on disk yet. */
#define HC_IO_WAITING_MS 20
/* How long requests in flight may take to end when the node closes. */
#define HC_IO_STOP_NS  (5 * HC_NS_PER_S)

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

static void hc_io_finish(struct hc_node *node, struct hc_io *io)
{
	atomic_fetch_sub(&node->n_io, 1);
	if (io->request.result == -EIO || io->request.result == -ENODEV)
		hc_count(node, disk_errors);
	if (io->done)
		io->done(node, io);
	else
		free(io);
}

void hc_io_submit(struct hc_node *node, struct hc_io **ios, size_t n, uint64_t deadline_ns)
{
	struct hc_store_request *requests[HC_BACKUP_FLIGHT];

	atomic_fetch_add(&node->n_io, n);
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
		hc_wait_for(&node->room, seen, hc_min_u64(deadline_ns, hc_clock_now_ns() + HC_IO_RETRY_NS));
	}
	for (size_t i = 0; i < n; i++) {
		/* A removal that finds no room leaves a file without a row: gc and the sweep find it. */
		ios[i]->request.result = -ETIMEDOUT;
		hc_io_finish(node, ios[i]);
	}
}

/* One synchronous request. Two hold it: the caller and the progress thread; the last one frees. */
struct hc_io_sync {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done, left;
	int result;
};

static void hc_io_sync_done(struct hc_node *node, struct hc_io *io)
{
	struct hc_io_sync *sync = io->arg;
	bool left;

	(void)node;
	pthread_mutex_lock(&sync->lock);
	sync->done = true;
	sync->result = io->request.result;
	left = sync->left;
	pthread_cond_signal(&sync->cond);
	pthread_mutex_unlock(&sync->lock);
	free(io);
	if (left) {
		pthread_mutex_destroy(&sync->lock);
		pthread_cond_destroy(&sync->cond);
		free(sync);
	}
}

int hc_io_run(struct hc_node *node, struct hc_io *io, uint64_t deadline_ns)
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
	while (!sync->done && hc_clock_now_ns() < deadline_ns)
		hc_ignore(hc_cond_wait_until(&sync->cond, &sync->lock, deadline_ns));
	if (!sync->done) {
		sync->left = true;
		pthread_mutex_unlock(&sync->lock);
		return -ETIMEDOUT;
	}
	result = sync->result;
	pthread_mutex_unlock(&sync->lock);
	pthread_mutex_destroy(&sync->lock);
	pthread_cond_destroy(&sync->cond);
	free(sync);
	return result;
}

static size_t hc_io_reap(struct hc_node *node)
{
	struct hc_store_request *done[HC_REAP_BATCH];
	size_t n = node->store->ops->reap(node->store, done, HC_REAP_BATCH);

	for (size_t i = 0; i < n; i++)
		hc_io_finish(node, done[i]->arg);
	if (n)
		hc_wait_wake(&node->room);
	return n;
}

static void *hc_io_progress(void *arg)
{
	struct hc_node *node = arg;
	struct pollfd fds[2] = {
		{.fd = node->store->ops->event_fd(node->store), .events = POLLIN},
		{.fd = node->progress_fd, .events = POLLIN},
	};

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
			hc_wait_for(&node->room, seen, hc_min_u64(deadline_ns, hc_clock_now_ns() + 5 * HC_IO_RETRY_NS));
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
	if (node->progress_fd >= 0)
		close(node->progress_fd);
}
