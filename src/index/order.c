/* SPDX-License-Identifier: Apache-2.0 */
/* A heap with four children a node: a quarter of the levels' cache misses of two. See order.h.
 *
 *   key, 64 bits:   | not an orphan, 1 | session not ended, 1 | priority, 8 | session alive, 1 |
 *                   | stamp, 32 | depth counted down, 21 |   smallest goes first */
#include "index/order.h"

#define HC_ORDER_CHILDREN   4
#define HC_ORDER_ROOM_MIN   64
#define HC_ORDER_DEPTH_BITS 21
#define HC_ORDER_DEPTH_MAX  ((1u << HC_ORDER_DEPTH_BITS) - 1)
#define HC_ORDER_STAMP_MASK ((uint64_t)UINT32_MAX << HC_ORDER_DEPTH_BITS)

_Static_assert(sizeof(struct hc_order_record) == 16, "records are most of the order's memory");

struct hc_order {
	pthread_mutex_t lock; /* all below */
	struct hc_order_record *heap;
	size_t n;
	size_t room;
	bool loose; /* appended to: not a heap */
};

int hc_order_create(struct hc_order **order_p)
{
	struct hc_order *order = hc_zalloc(sizeof(*order));

	if (!order)
		return -ENOMEM;
	pthread_mutex_init(&order->lock, NULL);
	*order_p = order;
	return 0;
}

void hc_order_destroy(struct hc_order *order)
{
	if (!order)
		return;
	pthread_mutex_destroy(&order->lock);
	free(order->heap);
	free(order);
}

uint64_t hc_order_key(const struct hc_entry *entry)
{
	/* Deeper than 2 Mi pages is all one. */
	uint64_t depth = hc_min_u64(entry->depth, HC_ORDER_DEPTH_MAX);

	return (uint64_t) !(entry->flags & HC_ENTRY_ORPHAN) << 63 |
	       (uint64_t)(entry->session != HC_SESSION_ENDED) << 62 |
	       (uint64_t)entry->priority << 54 |
	       (uint64_t)(entry->session == HC_SESSION_ALIVE) << 53 |
	       (uint64_t)entry->stamp << HC_ORDER_DEPTH_BITS | (HC_ORDER_DEPTH_MAX - depth);
}

static void hc_heap_up(struct hc_order_record *heap, size_t i, struct hc_order_record record)
{
	while (i) {
		size_t parent = (i - 1) / HC_ORDER_CHILDREN;

		if (heap[parent].key <= record.key)
			break;
		heap[i] = heap[parent];
		i = parent;
	}
	heap[i] = record;
}

static void hc_heap_down(struct hc_order_record *heap, size_t n, size_t i,
			 struct hc_order_record record)
{
	for (;;) {
		size_t first = i * HC_ORDER_CHILDREN + 1;
		size_t last = first + HC_ORDER_CHILDREN < n ? first + HC_ORDER_CHILDREN : n;
		size_t least = first;

		if (first >= n)
			break;
		for (size_t c = first + 1; c < last; c++) {
			if (heap[c].key < heap[least].key)
				least = c;
		}
		if (heap[least].key >= record.key)
			break;
		heap[i] = heap[least];
		i = least;
	}
	heap[i] = record;
}

static int hc_order_resize(struct hc_order *order, size_t room)
{
	struct hc_order_record *heap = realloc(order->heap, room * sizeof(*heap));

	if (!heap)
		return -ENOMEM;
	order->heap = heap;
	order->room = room;
	return 0;
}

static void hc_order_build_locked(struct hc_order *order)
{
	for (size_t i = order->n / HC_ORDER_CHILDREN + 1; i-- > 0;) {
		if (i < order->n)
			hc_heap_down(order->heap, order->n, i, order->heap[i]);
	}
	order->loose = false;
}

int hc_order_append(struct hc_order *order, const struct hc_order_record *records, size_t n)
{
	int rc = 0;

	pthread_mutex_lock(&order->lock);
	if (order->room - order->n < n)
		rc = hc_order_resize(order, order->n + n + order->n / 2 + HC_ORDER_ROOM_MIN);
	if (!rc && n) {
		memcpy(order->heap + order->n, records, n * sizeof(*records));
		order->n += n;
		order->loose = true;
	}
	pthread_mutex_unlock(&order->lock);
	return rc;
}

int hc_order_push(struct hc_order *order, const struct hc_order_record *record)
{
	int rc = 0;

	pthread_mutex_lock(&order->lock);
	if (order->n == order->room)
		rc = hc_order_resize(order, order->room ? order->room + order->room / 2
							: HC_ORDER_ROOM_MIN);
	if (!rc && order->loose)
		order->heap[order->n++] = *record;
	else if (!rc)
		hc_heap_up(order->heap, order->n++, *record);
	pthread_mutex_unlock(&order->lock);
	return rc;
}

static bool hc_order_take_locked(struct hc_order *order, struct hc_order_record *record_p)
{
	if (!order->n)
		return false;
	if (order->loose)
		hc_order_build_locked(order);
	*record_p = order->heap[0];
	if (--order->n)
		hc_heap_down(order->heap, order->n, 0, order->heap[order->n]);
	/* A failed shrink only keeps the memory. */
	if (order->room > HC_ORDER_ROOM_MIN && order->n < order->room / 4 &&
	    hc_order_resize(order, order->room / 2))
		return true;
	return true;
}

bool hc_order_pop(struct hc_order *order, struct hc_order_record *record_p)
{
	bool found;

	pthread_mutex_lock(&order->lock);
	found = hc_order_take_locked(order, record_p);
	pthread_mutex_unlock(&order->lock);
	return found;
}

bool hc_order_peek(struct hc_order *order, struct hc_order_record *record_p)
{
	bool found;

	pthread_mutex_lock(&order->lock);
	found = order->n > 0;
	if (order->loose)
		hc_order_build_locked(order);
	if (found)
		*record_p = order->heap[0];
	pthread_mutex_unlock(&order->lock);
	return found;
}

uint64_t hc_order_count(struct hc_order *order)
{
	uint64_t n;

	pthread_mutex_lock(&order->lock);
	n = order->n;
	pthread_mutex_unlock(&order->lock);
	return n;
}

void hc_order_rebase(struct hc_order *order, uint32_t by)
{
	pthread_mutex_lock(&order->lock);
	for (size_t i = 0; i < order->n; i++) {
		uint64_t key = order->heap[i].key;
		uint64_t stamp = (key & HC_ORDER_STAMP_MASK) >> HC_ORDER_DEPTH_BITS;

		stamp -= hc_min_u64(stamp, by);
		order->heap[i].key = (key & ~HC_ORDER_STAMP_MASK) | stamp << HC_ORDER_DEPTH_BITS;
	}
	/* Different stamps may have become one, where depth decides: the heap is built anew. */
	hc_order_build_locked(order);
	pthread_mutex_unlock(&order->lock);
}
