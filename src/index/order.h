/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction order: a heap of (key, entry number, sequence low bits), smallest key first. Keys of
 * entries only grow between push and pop, so a popped record whose key is stale is pushed again
 * with the true key: the first record popped with a true key is the true minimum (lazy re-filing).
 * A touch is therefore one plain store in the entry. Any thread; one lock each (a leaf but for the
 * allocator). */
#ifndef HC_INDEX_ORDER_H
#define HC_INDEX_ORDER_H

#include "index/index.h"

struct hc_order;

struct hc_order_record {
	uint64_t key;
	uint32_t number;
	uint32_t tag; /* low 32 bits of the entry's sequence */
};

int hc_order_create(struct hc_order **order_p) HC_MUST_CHECK;
void hc_order_destroy(struct hc_order *order);
/* Oldest first; in one stamp the deepest first; orphans before all, then those of ended sessions;
 * lower priority first, and in one priority those of no living session. */
uint64_t hc_order_key(const struct hc_entry *entry);
/* -ENOMEM: the page just is no victim until it is pushed again. */
int hc_order_push(struct hc_order *order, const struct hc_order_record *record);
/* n records at the price of a copy; they are sorted in by the next pop or peek. -ENOMEM: none was
 * pushed. */
int hc_order_append(struct hc_order *order, const struct hc_order_record *records,
		    size_t n) HC_MUST_CHECK;
/* false when empty. */
bool hc_order_pop(struct hc_order *order, struct hc_order_record *record_p);
bool hc_order_peek(struct hc_order *order, struct hc_order_record *record_p);
uint64_t hc_order_count(struct hc_order *order);
/* Stamps in all records fall by `by`, at least to 0. */
void hc_order_rebase(struct hc_order *order, uint32_t by);

#endif
