/* SPDX-License-Identifier: Apache-2.0 */
/* The io_uring engine of bench-disk: as many threads as processors (at most two), each with its
 * share of the queue depth in its own ring; open, xattr and checksum in that thread, reads and
 * writes in the ring. */
#include "bench-disk.h"

#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>

#define URING_THREADS 2

struct uring_shared {
	struct bench_disk *disk;
	const struct bench_job *jobs;
	size_t n;
	_Atomic size_t next;
	atomic_int error;
	bool put;
	unsigned int depth;
};

struct uring_slot {
	const struct bench_job *job;
	int fd;
};

static bool uring_feed(struct uring_shared *shared, struct io_uring *ring, struct uring_slot *slot)
{
	size_t i = atomic_fetch_add(&shared->next, 1);
	struct io_uring_sqe *sqe;
	unsigned int n;

	if (i >= shared->n || atomic_load(&shared->error))
		return false;
	slot->job = &shared->jobs[i];
	slot->fd = shared->put ? bench_open_put(shared->disk, &slot->job->page)
			       : bench_open_get(shared->disk, &slot->job->page);
	sqe = slot->fd < 0 ? NULL : io_uring_get_sqe(ring);
	if (!sqe) {
		atomic_store(&shared->error, slot->fd < 0 ? slot->fd : -EIO);
		return false;
	}
	n = (unsigned int)slot->job->page.size_bytes;
	if (shared->put)
		io_uring_prep_write(sqe, slot->fd, slot->job->data, n, 0);
	else
		io_uring_prep_read(sqe, slot->fd, slot->job->data, n, 0);
	io_uring_sqe_set_data(sqe, slot);
	return true;
}

static void *uring_thread(void *arg)
{
	struct uring_shared *shared = arg;
	struct uring_slot slots[BENCH_READERS];
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	unsigned int busy = 0;
	int rc = io_uring_queue_init(BENCH_READERS, &ring, 0);

	if (rc) {
		atomic_store(&shared->error, rc);
		return NULL;
	}
	while (busy < shared->depth && uring_feed(shared, &ring, &slots[busy]))
		busy++;
	while (busy) {
		struct uring_slot *slot;

		rc = io_uring_submit_and_wait(&ring, 1);
		if (rc < 0 || io_uring_peek_cqe(&ring, &cqe)) {
			atomic_store(&shared->error, rc < 0 ? rc : -EIO);
			break;
		}
		slot = io_uring_cqe_get_data(cqe);
		rc = cqe->res == (int)slot->job->page.size_bytes ? 0
		     : cqe->res < 0                              ? cqe->res
								 : -EIO;
		io_uring_cqe_seen(&ring, cqe);
		if (!rc)
			rc = shared->put ? bench_end_put(slot->fd, slot->job)
					 : bench_end_get(slot->fd, slot->job);
		if (rc)
			atomic_store(&shared->error, rc);
		if (!uring_feed(shared, &ring, slot))
			busy--;
	}
	io_uring_queue_exit(&ring);
	return NULL;
}

static int uring_run(struct bench_disk *disk, const struct bench_job *jobs, size_t n, bool put)
{
	struct uring_shared shared = {
		.disk = disk,
		.jobs = jobs,
		.n = n,
		.put = put,
		.depth = (put ? BENCH_WRITERS : BENCH_READERS) / URING_THREADS,
	};
	pthread_t threads[URING_THREADS];
	int n_threads = 0, rc = 0;

	while (n_threads < URING_THREADS && !rc) {
		rc = -pthread_create(&threads[n_threads], NULL, uring_thread, &shared);
		n_threads += !rc;
	}
	while (n_threads)
		pthread_join(threads[--n_threads], NULL);
	return rc ? rc : atomic_load(&shared.error);
}

static int uring_get(struct bench_disk *disk, const struct bench_job *jobs, size_t n)
{
	return uring_run(disk, jobs, n, false);
}

static int uring_put(struct bench_disk *disk, const struct bench_job *jobs, size_t n)
{
	return uring_run(disk, jobs, n, true);
}

const bench_run_t bench_uring_get = uring_get;
const bench_run_t bench_uring_put = uring_put;

bool bench_uring_works(void)
{
	struct io_uring ring;

	if (io_uring_queue_init(2, &ring, 0))
		return false;
	io_uring_queue_exit(&ring);
	return true;
}
