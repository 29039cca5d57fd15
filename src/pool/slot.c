/* SPDX-License-Identifier: Apache-2.0 */
/* States of held slots: rows of the slot table, without the pool's lock (the holder owns the slot).
 */
#include "pool/internal.h"

#include "util/crash.h"

uint64_t hc_pool_slot_bytes(uint64_t page_bytes)
{
	return hc_align_up(hc_max_u64(page_bytes, 1), HC_BLOCK_BYTES);
}

hc_slot_id hc_pool_slot(struct hc_pool *pool, uint32_t segment, uint32_t index)
{
	hc_assert(segment < pool->n_segments && index < pool->slots_per_segment);
	return segment * pool->slots_per_segment + index;
}

void hc_pool_locate(struct hc_pool *pool, hc_slot_id slot, uint32_t *segment_p, uint32_t *index_p)
{
	hc_assert(slot / pool->slots_per_segment < pool->n_segments);
	*segment_p = slot / pool->slots_per_segment;
	*index_p = slot % pool->slots_per_segment;
}

void *hc_pool_data(struct hc_pool *pool, hc_slot_id slot)
{
	uint32_t segment, index;

	hc_pool_locate(pool, slot, &segment, &index);
	hc_assert(index < pool->segments[segment].n_slots);
	return (char *)hc_segment_data(pool, segment) + index * pool->segments[segment].slot_bytes;
}

void *hc_pool_segment_data(struct hc_pool *pool, hc_slot_id slot, uint64_t *size_bytes_p)
{
	uint32_t segment, index;

	hc_pool_locate(pool, slot, &segment, &index);
	*size_bytes_p = pool->segment_bytes;
	return hc_segment_data(pool, segment);
}

uint64_t hc_pool_slot_size(struct hc_pool *pool, hc_slot_id slot)
{
	uint32_t segment, index;

	hc_pool_locate(pool, slot, &segment, &index);
	return pool->segments[segment].slot_bytes;
}

uint32_t hc_pool_generation(struct hc_pool *pool, hc_slot_id slot)
{
	return __atomic_load_n(&hc_pool_row(pool, slot)->generation, __ATOMIC_ACQUIRE);
}

enum hc_slot_state hc_pool_state(struct hc_pool *pool, hc_slot_id slot)
{
	return (enum hc_slot_state)__atomic_load_n(&hc_pool_row(pool, slot)->state,
						   __ATOMIC_ACQUIRE);
}

void hc_pool_publish(struct hc_pool *pool, hc_slot_id slot, const struct hc_slot_page *page)
{
	struct hc_table_row *row = hc_pool_row(pool, slot);
	enum hc_slot_state state = hc_pool_state(pool, slot);

	hc_assert(state == HC_SLOT_FILLING || state == HC_SLOT_LOADING);
	hc_assert(page->size_bytes <= hc_pool_slot_size(pool, slot));
	hc_table_row_fill(row, slot, page);
	hc_crash_point("pool-publish-row");
	__atomic_store_n(&row->state, HC_SLOT_READY, __ATOMIC_RELEASE);
}

void hc_pool_set_checksum(struct hc_pool *pool, hc_slot_id slot, uint64_t checksum)
{
	struct hc_table_row *row = hc_pool_row(pool, slot);
	enum hc_slot_state state = hc_pool_state(pool, slot);

	/* The page may have been doomed or quarantined while its sum was computed. */
	hc_assert(state == HC_SLOT_READY || state == HC_SLOT_DOOMED ||
		  state == HC_SLOT_QUARANTINED);
	row->checksum = checksum;
	__atomic_fetch_or(&row->flags, HC_SLOT_FLAG_SUMMED, __ATOMIC_RELEASE);
}

void hc_pool_doom(struct hc_pool *pool, hc_slot_id slot)
{
	struct hc_table_row *row = hc_pool_row(pool, slot);
	uint32_t was = HC_SLOT_READY;

	hc_assert(__atomic_compare_exchange_n(&row->state, &was, HC_SLOT_DOOMED, false,
					      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

void hc_pool_quarantine(struct hc_pool *pool, hc_slot_id slot)
{
	uint32_t was = __atomic_exchange_n(&hc_pool_row(pool, slot)->state, HC_SLOT_QUARANTINED,
					   __ATOMIC_ACQ_REL);

	hc_assert(was != HC_SLOT_FREE);
}

void hc_pool_free(struct hc_pool *pool, hc_slot_id slot)
{
	struct hc_table_row *row = hc_pool_row(pool, slot);
	struct hc_segment *s;
	uint32_t segment, index;

	hc_assert(hc_pool_state(pool, slot) != HC_SLOT_FREE);
	/* First: a lease that names the old generation must never meet a new page. */
	__atomic_fetch_add(&row->generation, 1, __ATOMIC_RELEASE);
	hc_crash_point("pool-free");
	hc_assert(__atomic_exchange_n(&row->state, HC_SLOT_FREE, __ATOMIC_ACQ_REL) != HC_SLOT_FREE);

	hc_pool_locate(pool, slot, &segment, &index);
	s = &pool->segments[segment];
	pthread_mutex_lock(&pool->lock);
	hc_assert(s->state == HC_SEGMENT_CUT && index < s->n_slots);
	hc_segment_slot_free_locked(s, index);
	pool->used_bytes -= s->slot_bytes;
	pool->n_slots_used--;
	if (s->draining && s->n_free == s->n_slots)
		hc_segment_uncut_locked(pool, segment);
	pthread_mutex_unlock(&pool->lock);
}
