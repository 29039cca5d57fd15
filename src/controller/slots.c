/* SPDX-License-Identifier: Apache-2.0 */
/* See slots.h. A byte a page: whole runs are looked for first, from where the last one ended. */
#include "controller/slots.h"

#include "util/log.h"

enum { FREE, TAKEN, MARKED };

struct hc_slots {
	uint32_t n_pages, n_free, page_tokens, next;
	uint8_t state[];
};

int hc_slots_create(uint32_t n_pages, uint32_t page_tokens, struct hc_slots **slots_p)
{
	struct hc_slots *slots;

	if (!n_pages || !page_tokens)
		return -EINVAL;
	slots = hc_zalloc(sizeof(*slots) + n_pages);
	if (!slots)
		return -ENOMEM;
	slots->n_pages = slots->n_free = n_pages;
	slots->page_tokens = page_tokens;
	*slots_p = slots;
	return 0;
}

void hc_slots_destroy(struct hc_slots *slots)
{
	free(slots);
}

uint32_t hc_slots_n_free(const struct hc_slots *slots)
{
	return slots->n_free;
}

bool hc_slots_taken(const struct hc_slots *slots, uint32_t page)
{
	return page < slots->n_pages && slots->state[page] != FREE;
}

/* The first of n free neighbours at or after `from`; n_pages: none. */
static uint32_t find_run(const struct hc_slots *slots, uint32_t from, uint32_t n)
{
	uint32_t length = 0;

	for (uint32_t i = from; i < slots->n_pages; i++) {
		length = slots->state[i] == FREE ? length + 1 : 0;
		if (length == n)
			return i + 1 - n;
	}
	return slots->n_pages;
}

int hc_slots_alloc(struct hc_slots *slots, uint64_t n_tokens, uint32_t *pages)
{
	uint64_t n = n_tokens / slots->page_tokens;
	uint32_t at;

	if (!n || n_tokens % slots->page_tokens) {
		hc_error("controller", "%llu tokens are not whole pages of %u",
			 (unsigned long long)n_tokens, slots->page_tokens);
		return -EINVAL;
	}
	if (n > slots->n_free)
		return -ENOSPC;
	at = find_run(slots, slots->next, (uint32_t)n);
	if (at == slots->n_pages)
		at = find_run(slots, 0, (uint32_t)n);
	if (at == slots->n_pages)
		at = 0;
	for (uint64_t i = 0; i < n; at++) {
		if (slots->state[at] != FREE)
			continue;
		slots->state[at] = TAKEN;
		pages[i++] = at;
	}
	slots->next = at == slots->n_pages ? 0 : at;
	slots->n_free -= (uint32_t)n;
	return 0;
}

int hc_slots_free(struct hc_slots *slots, const uint32_t *pages, size_t n)
{
	size_t n_marked = 0;

	while (n_marked < n && pages[n_marked] < slots->n_pages &&
	       slots->state[pages[n_marked]] == TAKEN)
		slots->state[pages[n_marked++]] = MARKED;
	if (n_marked < n) {
		hc_error("controller", "page %u is freed that is not taken, or twice",
			 pages[n_marked]);
		while (n_marked)
			slots->state[pages[--n_marked]] = TAKEN;
		return -EINVAL;
	}
	for (size_t i = 0; i < n; i++)
		slots->state[pages[i]] = FREE;
	slots->n_free += (uint32_t)n;
	return 0;
}
