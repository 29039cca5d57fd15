/* SPDX-License-Identifier: Apache-2.0 */
/* See links.h. A word per entry number, in slabs that are made when they are first written:
 *
 *   | to: number, 32 bits | to: tag, 16 | from: tag, 15 | sure |
 *
 * from's tag tells a link of an earlier body that had the same number. */
#include "index/links.h"

#include <stdatomic.h>

#include "index/index.h"

#define HC_LINKS_SLAB  (1u << 14)
#define HC_LINKS_SLABS ((uint32_t)(((uint64_t)1 << 32) / HC_LINKS_SLAB))
#define HC_LINK_TO     0xffffu
#define HC_LINK_FROM   0x7fffu

struct hc_links {
	_Atomic(uint64_t) *_Atomic *slabs; /* HC_LINKS_SLABS */
	_Atomic uint64_t n_slabs;
};

static uint64_t hc_link_pack(struct hc_link from, struct hc_link to, bool sure)
{
	return (uint64_t)to.number << 32 | (to.tag & HC_LINK_TO) << 16 |
	       (from.tag & HC_LINK_FROM) << 1 | sure;
}

bool hc_link_equal(struct hc_link a, struct hc_link b)
{
	return a.number == b.number && !((a.tag ^ b.tag) & HC_LINK_TO);
}

static _Atomic(uint64_t) *hc_link_word(struct hc_links *links, uint32_t number, bool make)
{
	_Atomic(uint64_t) *_Atomic *slab_p = &links->slabs[number / HC_LINKS_SLAB];
	_Atomic(uint64_t) *slab = atomic_load_explicit(slab_p, memory_order_acquire), *made;

	if (!slab && make) {
		made = calloc(HC_LINKS_SLAB, sizeof(*made));
		if (!made)
			return NULL;
		if (atomic_compare_exchange_strong(slab_p, &slab, made)) {
			slab = made;
			atomic_fetch_add(&links->n_slabs, 1);
		} else {
			free(made);
		}
	}
	return slab ? &slab[number % HC_LINKS_SLAB] : NULL;
}

bool hc_links_next(struct hc_links *links, struct hc_link from, struct hc_link *next_p,
		   bool *sure_p)
{
	_Atomic(uint64_t) *word_p = NULL;
	uint64_t word;

	if (from.number != HC_ENTRY_NONE)
		word_p = hc_link_word(links, from.number, false);
	if (!word_p)
		return false;
	word = atomic_load_explicit(word_p, memory_order_relaxed);
	if (!word || (word >> 1 & HC_LINK_FROM) != (from.tag & HC_LINK_FROM))
		return false;
	*next_p = (struct hc_link){(uint32_t)(word >> 32), word >> 16 & HC_LINK_TO};
	*sure_p = word & 1;
	return true;
}

static void hc_links_put(struct hc_links *links, struct hc_link from, struct hc_link to, bool sure)
{
	_Atomic(uint64_t) *word_p = hc_link_word(links, from.number, true);

	if (word_p)
		atomic_store_explicit(word_p, hc_link_pack(from, to, sure), memory_order_relaxed);
}

void hc_links_set(struct hc_links *links, struct hc_link from, struct hc_link to)
{
	if (from.number != HC_ENTRY_NONE && to.number != HC_ENTRY_NONE)
		hc_links_put(links, from, to, true);
}

void hc_links_seen(struct hc_links *links, struct hc_link from, struct hc_link to)
{
	struct hc_link next;
	bool sure = false, is;

	if (from.number == HC_ENTRY_NONE || to.number == HC_ENTRY_NONE)
		return;
	is = hc_links_next(links, from, &next, &sure);
	if (is && hc_link_equal(next, to))
		hc_links_put(links, from, to, true);
	else
		hc_links_put(links, from, is && sure ? next : to, false);
}

uint64_t hc_links_bytes(struct hc_links *links)
{
	return atomic_load(&links->n_slabs) * HC_LINKS_SLAB * sizeof(uint64_t);
}

int hc_links_create(struct hc_links **links_p)
{
	struct hc_links *links = hc_zalloc(sizeof(*links));

	if (!links)
		return -ENOMEM;
	/* Zeroed pages that nobody touched cost nothing. */
	links->slabs = calloc(HC_LINKS_SLABS, sizeof(*links->slabs));
	if (!links->slabs) {
		free(links);
		return -ENOMEM;
	}
	*links_p = links;
	return 0;
}

void hc_links_destroy(struct hc_links *links)
{
	if (!links)
		return;
	for (uint32_t i = 0; i < HC_LINKS_SLABS && atomic_load(&links->n_slabs); i++) {
		_Atomic(uint64_t) *slab = atomic_load(&links->slabs[i]);

		if (slab) {
			free((void *)slab);
			atomic_fetch_sub(&links->n_slabs, 1);
		}
	}
	free((void *)links->slabs);
	free(links);
}
