/* SPDX-License-Identifier: Apache-2.0 */
/* See prefetch.h. One lock for everything; never held over a call into the node. */
#include "fuse/prefetch.h"

#include <pthread.h>
#include <signal.h>

#include "util/clock.h"
#include "util/log.h"

#define HC_PREFETCH_LOG "prefetch"
/* Two batches of the node: the disks always have the next one. */
#define HC_PREFETCH_TAKE (2 * HC_PREFETCH_BATCH)
/* A batch of pages of 64 MiB from a slow disk; a stop waits for one. */
#define HC_PREFETCH_NS (20 * HC_NS_PER_S)

struct hc_prefetch_job {
	uint32_t n_refs; /* of the asker and of each queued page */
	struct hc_prefetch_stats stats;
};

struct item {
	struct hc_key key;
	struct hc_prefetch_job *job;
};

struct hc_prefetcher {
	struct hc_node *node;
	pthread_t thread;
	pthread_mutex_t lock; /* all below, and jobs */
	pthread_cond_t more;  /* pages were queued, or stop */
	pthread_cond_t done;  /* pages were taken or done */
	bool stop;
	uint32_t first, n;
	struct hc_prefetch_stats stats;
	struct item items[HC_PREFETCH_QUEUE_MAX];
};

static void job_put_locked(struct hc_prefetch_job *job)
{
	if (job && --job->n_refs == 0)
		free(job);
}

static void add_result(struct hc_prefetch_stats *stats, const struct hc_prefetch_result *result)
{
	stats->sum.n_loaded += result->n_loaded;
	stats->sum.n_resident += result->n_resident;
	stats->sum.n_missing += result->n_missing;
	stats->sum.n_failed += result->n_failed;
}

/* Pages of one job, at most n. */
static size_t take_locked(struct hc_prefetcher *p, struct hc_key *keys, size_t n,
			  struct hc_prefetch_job **job_p)
{
	size_t taken = 0;

	*job_p = p->items[p->first].job;
	while (taken < n && p->n && p->items[p->first].job == *job_p) {
		keys[taken++] = p->items[p->first].key;
		p->first = (p->first + 1) % HC_PREFETCH_QUEUE_MAX;
		p->n--;
	}
	return taken;
}

static void *prefetch_main(void *arg)
{
	struct hc_prefetcher *p = arg;
	struct hc_key keys[HC_PREFETCH_TAKE];

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		struct hc_prefetch_result result;
		struct hc_prefetch_job *job;
		size_t n;

		if (!p->n) {
			pthread_cond_wait(&p->more, &p->lock);
			continue;
		}
		n = take_locked(p, keys, HC_ARRAY_SIZE(keys), &job);
		pthread_cond_broadcast(&p->done);
		pthread_mutex_unlock(&p->lock);
		hc_node_prefetch(p->node, keys, n, hc_clock_now_ns() + HC_PREFETCH_NS, &result);
		pthread_mutex_lock(&p->lock);
		p->stats.n_queued -= n;
		add_result(&p->stats, &result);
		if (job) {
			job->stats.n_queued -= n;
			add_result(&job->stats, &result);
		}
		for (size_t i = 0; job && i < n; i++)
			job_put_locked(job);
		pthread_cond_broadcast(&p->done);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int start(struct hc_prefetcher *p)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(&p->thread, NULL, prefetch_main, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		pthread_setname_np(p->thread, "hc-prefetch");
	else
		hc_error(HC_PREFETCH_LOG, "cannot start a thread: %s; raise the limit of processes",
			 strerror(-err));
	return err;
}

int hc_prefetcher_create(struct hc_node *node, struct hc_prefetcher **prefetcher_p)
{
	struct hc_prefetcher *p = hc_zalloc(sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->node = node;
	pthread_mutex_init(&p->lock, NULL);
	hc_cond_init(&p->more);
	hc_cond_init(&p->done);
	err = start(p);
	if (err) {
		pthread_mutex_destroy(&p->lock);
		pthread_cond_destroy(&p->more);
		pthread_cond_destroy(&p->done);
		free(p);
		return err;
	}
	*prefetcher_p = p;
	return 0;
}

void hc_prefetcher_destroy(struct hc_prefetcher *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->more);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	for (uint32_t i = 0; i < p->n; i++)
		job_put_locked(p->items[(p->first + i) % HC_PREFETCH_QUEUE_MAX].job);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->more);
	pthread_cond_destroy(&p->done);
	free(p);
}

void hc_prefetch_stats(struct hc_prefetcher *p, const struct hc_prefetch_job *job,
		       struct hc_prefetch_stats *stats_p)
{
	pthread_mutex_lock(&p->lock);
	*stats_p = job ? job->stats : p->stats;
	pthread_mutex_unlock(&p->lock);
}

int hc_prefetch_add(struct hc_prefetcher *p, struct hc_prefetch_job *job, const struct hc_key *key,
		    uint64_t deadline_ns)
{
	int err = 0;

	pthread_mutex_lock(&p->lock);
	while (!err && p->n == HC_PREFETCH_QUEUE_MAX)
		err = hc_cond_wait_until(&p->done, &p->lock, deadline_ns) ? -EAGAIN : 0;
	if (!err) {
		p->items[(p->first + p->n++) % HC_PREFETCH_QUEUE_MAX] = (struct item){*key, job};
		p->stats.n_queued++;
		p->stats.n_asked++;
		if (job) {
			job->n_refs++;
			job->stats.n_queued++;
			job->stats.n_asked++;
		}
		pthread_cond_signal(&p->more);
	}
	pthread_mutex_unlock(&p->lock);
	return err;
}

struct hc_prefetch_job *hc_prefetch_job_begin(struct hc_prefetcher *p)
{
	struct hc_prefetch_job *job = hc_zalloc(sizeof(*job));

	(void)p;
	if (job)
		job->n_refs = 1;
	return job;
}

bool hc_prefetch_job_wait(struct hc_prefetcher *p, struct hc_prefetch_job *job,
			  uint64_t deadline_ns)
{
	bool done;

	pthread_mutex_lock(&p->lock);
	while (job->stats.n_queued)
		if (hc_cond_wait_until(&p->done, &p->lock, deadline_ns))
			break;
	done = !job->stats.n_queued;
	pthread_mutex_unlock(&p->lock);
	return done;
}

void hc_prefetch_job_end(struct hc_prefetcher *p, struct hc_prefetch_job *job)
{
	pthread_mutex_lock(&p->lock);
	job_put_locked(job);
	pthread_mutex_unlock(&p->lock);
}
