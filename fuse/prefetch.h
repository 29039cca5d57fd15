/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetches asked for through .hicache: a bounded queue and one thread that brings its pages into
 * memory in batches. A job is what one asker waits for. Any thread. */
#ifndef HC_FUSE_PREFETCH_H
#define HC_FUSE_PREFETCH_H

#include "node/node.h"

/* 44 bytes each; at 8 MiB a page it is half a TiB of reads. */
#define HC_PREFETCH_QUEUE_MAX 65536u

struct hc_prefetcher;
struct hc_prefetch_job;

struct hc_prefetch_stats {
	uint64_t n_queued; /* now */
	uint64_t n_asked;
	struct hc_prefetch_result sum;
};

int hc_prefetcher_create(struct hc_node *node, struct hc_prefetcher **prefetcher_p) HC_MUST_CHECK;
/* Drops what is queued, and ends the thread within the deadline of one batch. NULL is accepted. */
void hc_prefetcher_destroy(struct hc_prefetcher *prefetcher);
/* Of everything (job NULL), or of a job. */
void hc_prefetch_stats(struct hc_prefetcher *prefetcher, const struct hc_prefetch_job *job,
		       struct hc_prefetch_stats *stats_p);

/* Queues a page for a job (NULL: nobody waits), waiting for room until the deadline. -EAGAIN: the
 * queue is full. */
int hc_prefetch_add(struct hc_prefetcher *prefetcher, struct hc_prefetch_job *job,
		    const struct hc_key *key, uint64_t deadline_ns) HC_MUST_CHECK;
/* NULL when memory is out. */
struct hc_prefetch_job *hc_prefetch_job_begin(struct hc_prefetcher *prefetcher);
/* Waits until all of the job is done, or the deadline; true: done. */
bool hc_prefetch_job_wait(struct hc_prefetcher *prefetcher, struct hc_prefetch_job *job,
			  uint64_t deadline_ns);
/* What is still queued goes on without it. */
void hc_prefetch_job_end(struct hc_prefetcher *prefetcher, struct hc_prefetch_job *job);

#endif
