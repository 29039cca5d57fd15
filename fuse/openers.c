/* SPDX-License-Identifier: Apache-2.0 */
/* Who is behind a request: FUSE tells a thread id, the process is its tgid, from /proc. And how
 * large its next page will probably be. Two direct-mapped caches; a wrong hit of the size cache
 * costs a move, a thread id is asked again after a second (it could be another process by then).
 * One leaf lock. */
#include "fuse/internal.h"
#include "util/clock.h"
#include "util/sysinfo.h"

#define HC_OPENERS_CACHED 4096u
#define HC_SIZES_CACHED   4096u
#define HC_OPENER_NS      HC_NS_PER_S

struct hc_size_slot {
	uint64_t key;
	uint64_t size_bytes;
};

struct hc_openers {
	pthread_mutex_t lock;
	struct {
		struct hc_opener opener;
		uint64_t seen_ns;
	} cache[HC_OPENERS_CACHED];
	struct hc_size_slot sizes[HC_SIZES_CACHED];
};

int hc_openers_create(struct hc_openers **openers_p)
{
	struct hc_openers *openers = hc_zalloc(sizeof(*openers));

	if (!openers)
		return -ENOMEM;
	pthread_mutex_init(&openers->lock, NULL);
	*openers_p = openers;
	return 0;
}

void hc_openers_destroy(struct hc_openers *openers)
{
	if (!openers)
		return;
	pthread_mutex_destroy(&openers->lock);
	free(openers);
}

void hc_opener_of(struct hc_fs *fs, int tid, struct hc_opener *opener_p)
{
	struct hc_openers *openers = fs->openers;
	unsigned i = (unsigned)tid % HC_OPENERS_CACHED;
	uint64_t now_ns = hc_clock_now_ns();
	bool hit;

	*opener_p = (struct hc_opener){.tid = tid};
	if (!tid)
		return;
	pthread_mutex_lock(&openers->lock);
	hit = openers->cache[i].opener.tid == tid &&
	      now_ns - openers->cache[i].seen_ns < HC_OPENER_NS;
	if (hit)
		*opener_p = openers->cache[i].opener;
	pthread_mutex_unlock(&openers->lock);
	if (hit)
		return;
	if (hc_sysinfo_tgid(tid, &opener_p->tgid, &opener_p->start_ticks)) {
		opener_p->tgid = 0;
		return;
	}
	pthread_mutex_lock(&openers->lock);
	openers->cache[i].opener = *opener_p;
	openers->cache[i].seen_ns = now_ns;
	pthread_mutex_unlock(&openers->lock);
}

static struct hc_size_slot *slot_of(struct hc_openers *openers, uint64_t key)
{
	return &openers->sizes[(key * 0x9e3779b97f4a7c15u) >> 52];
}

static uint64_t series_key(uint32_t series)
{
	return (uint64_t)1 << 63 | series;
}

static uint64_t dir_key(int tgid, uint32_t dir)
{
	return (uint64_t)(uint32_t)tgid << 32 | dir;
}

_Static_assert(HC_SIZES_CACHED == 1u << 12, "the slot is the upper 12 bits of the product");

static uint64_t look(struct hc_openers *openers, uint64_t key)
{
	struct hc_size_slot *slot = slot_of(openers, key);

	return slot->key == key ? slot->size_bytes : 0;
}

uint64_t hc_size_guess(struct hc_fs *fs, uint32_t series, int tgid, uint32_t dir)
{
	struct hc_openers *openers = fs->openers;
	uint64_t size = 0;

	pthread_mutex_lock(&openers->lock);
	if (series)
		size = look(openers, series_key(series));
	if (!size && tgid)
		size = look(openers, dir_key(tgid, dir));
	pthread_mutex_unlock(&openers->lock);
	return size;
}

void hc_size_learn(struct hc_fs *fs, uint32_t series, int tgid, uint32_t dir, uint64_t size_bytes)
{
	struct hc_openers *openers = fs->openers;

	pthread_mutex_lock(&openers->lock);
	*slot_of(openers, series_key(series)) =
		(struct hc_size_slot){series_key(series), size_bytes};
	if (tgid)
		*slot_of(openers, dir_key(tgid, dir)) =
			(struct hc_size_slot){dir_key(tgid, dir), size_bytes};
	pthread_mutex_unlock(&openers->lock);
}
