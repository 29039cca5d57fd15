/* SPDX-License-Identifier: Apache-2.0 */
/* When a stamp was given: for the time of a page's last use, which is not kept with the page. A few
 * samples, thinned out as they grow old: a second apart at first, then two, and so on. Stamps of an
 * earlier run have no time. Any thread. */
#include "node/internal.h"

#define HC_TIMES_MAX 1024u

struct hc_time_sample {
	_Atomic uint32_t stamp;
	_Atomic uint64_t wall_ns;
};

struct hc_times {
	pthread_mutex_t lock;     /* of those who write; leaf */
	_Atomic uint64_t version; /* odd while somebody writes: readers look again */
	_Atomic uint32_t n;
	_Atomic uint64_t next_ns; /* of the wall clock: when the next sample is taken */
	uint64_t apart_ns;        /* under lock */
	struct hc_time_sample samples[HC_TIMES_MAX];
};

int hc_times_create(struct hc_times **times_p)
{
	struct hc_times *times = hc_zalloc(sizeof(*times));

	if (!times)
		return -ENOMEM;
	pthread_mutex_init(&times->lock, NULL);
	times->apart_ns = HC_NS_PER_S;
	*times_p = times;
	return 0;
}

void hc_times_destroy(struct hc_times *times)
{
	if (!times)
		return;
	pthread_mutex_destroy(&times->lock);
	free(times);
}

static void hc_times_thin(struct hc_times *times)
{
	for (uint32_t i = 0; i < HC_TIMES_MAX / 2; i++) {
		times->samples[i].stamp = times->samples[2 * i].stamp;
		times->samples[i].wall_ns = times->samples[2 * i].wall_ns;
	}
	times->n = HC_TIMES_MAX / 2;
	times->apart_ns *= 2;
}

/* lock held. */
static void hc_times_add(struct hc_times *times, uint32_t stamp, uint64_t now_ns)
{
	const struct hc_time_sample *last = times->n ? &times->samples[times->n - 1] : NULL;

	if (last && (stamp <= last->stamp || now_ns < last->wall_ns + times->apart_ns))
		return;
	times->version++;
	if (times->n == HC_TIMES_MAX)
		hc_times_thin(times);
	times->samples[times->n].stamp = stamp;
	times->samples[times->n].wall_ns = now_ns;
	times->n++;
	times->version++;
	times->next_ns = now_ns + times->apart_ns;
}

uint32_t hc_node_stamp(struct hc_node *node)
{
	struct hc_times *times = node->times;
	uint64_t now_ns = hc_clock_wall_ns();
	uint32_t stamp = hc_index_stamp(node->index);

	if (now_ns >= atomic_load_explicit(&times->next_ns, memory_order_relaxed)) {
		pthread_mutex_lock(&times->lock);
		hc_times_add(times, stamp, now_ns);
		pthread_mutex_unlock(&times->lock);
	}
	return stamp;
}

/* The last sample that is not newer. */
static uint64_t hc_times_find(struct hc_times *times, uint32_t stamp)
{
	uint32_t low = 0, high = (uint32_t)hc_min_u64(times->n, HC_TIMES_MAX);

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (times->samples[middle].stamp <= stamp)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? times->samples[low - 1].wall_ns : 0;
}

uint64_t hc_times_of(struct hc_node *node, uint32_t stamp)
{
	struct hc_times *times = node->times;
	uint64_t version, wall_ns;

	/* Written once a second at most. */
	do {
		version = times->version;
		wall_ns = hc_times_find(times, stamp);
	} while (version & 1 || version != times->version);
	return wall_ns;
}

void hc_times_rebase(struct hc_node *node, uint32_t by)
{
	struct hc_times *times = node->times;

	pthread_mutex_lock(&times->lock);
	times->version++;
	for (uint32_t i = 0; i < times->n; i++)
		times->samples[i].stamp -=
			times->samples[i].stamp < by ? times->samples[i].stamp : by;
	times->version++;
	pthread_mutex_unlock(&times->lock);
}
