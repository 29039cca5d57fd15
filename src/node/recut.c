/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a segment from a colder class: it is drained, the coldest leaves of its class are evicted,
 * and pages that are worth keeping move into the slots that this frees elsewhere. One at a time. */
#include "node/internal.h"

#define HC_RECUT_SAMPLES    64u
#define HC_RECUT_COMPARE_NS (10 * HC_NS_PER_MS)

static int hc_stamp_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t hc_segment_median(struct hc_node *node, const struct hc_pool_segment_info *info)
{
	uint32_t stamps[HC_RECUT_SAMPLES], n = 0;
	uint32_t step = info->n_slots / HC_RECUT_SAMPLES + 1;

	for (uint32_t i = 0; i < info->n_slots && n < HC_RECUT_SAMPLES; i += step) {
		hc_slot_id slot = hc_pool_slot(node->pool, info->segment, i);
		struct hc_shard *shard;
		struct hc_entry *entry;
		uint32_t number;

		if (hc_pool_state(node->pool, slot) == HC_SLOT_FREE ||
		    !hc_slot_noted_entry(node, slot, &number))
			continue;
		shard = hc_index_entry_shard(node->index, number);
		hc_shard_lock(shard);
		entry = hc_index_entry(node->index, number);
		if (entry && entry->slot == slot)
			stamps[n++] = entry->stamp;
		hc_shard_unlock(shard);
	}
	if (!n)
		return 0;
	qsort(stamps, n, sizeof(stamps[0]), hc_stamp_compare);
	return stamps[n / 2];
}

/* The segment of another class with the oldest median stamp. */
static bool hc_recut_pick(struct hc_node *node, const struct hc_class *class, uint32_t *segment_p,
			  uint32_t *stamp_p)
{
	uint32_t best = 0;
	bool found = false;

	for (uint32_t i = 0; i < hc_pool_n_segments(node->pool); i++) {
		struct hc_pool_segment_info info;
		uint32_t stamp;

		hc_pool_segment_info(node->pool, i, &info);
		if (!info.usable || !info.cut || info.draining || i == node->recut_failed ||
		    (info.slot_bytes == class->slot_bytes &&
		     !memcmp(&info.domain, &class->domain, sizeof(info.domain))))
			continue;
		stamp = info.n_free == info.n_slots ? 0 : hc_segment_median(node, &info);
		if (!found || stamp < best) {
			*segment_p = i;
			best = stamp;
			found = true;
		}
	}
	*stamp_p = best;
	return found;
}

/* The stamp of a class's coldest page; UINT32_MAX when it has none. */
static uint32_t hc_class_coldest(struct hc_node *node, const struct hc_class *class)
{
	struct hc_order_record record;
	struct hc_shard *shard;
	uint32_t stamp;

	if (!hc_order_peek(class->order, &record))
		return UINT32_MAX;
	shard = hc_index_entry_shard(node->index, record.number);
	hc_shard_lock(shard);
	stamp = hc_index_entry(node->index, record.number)->stamp;
	hc_shard_unlock(shard);
	return stamp;
}

/* Moves a page from a slot of the drained segment to `to`. True: `to` is used. */
static bool hc_page_move(struct hc_node *node, hc_slot_id from, hc_slot_id to)
{
	struct hc_after after = {0};
	struct hc_slot_page row;
	struct hc_shard *shard;
	struct hc_entry *entry;
	uint32_t number;
	bool moved = false;

	if (!hc_slot_noted_entry(node, from, &number))
		return false;
	shard = hc_index_entry_shard(node->index, number);
	entry = hc_index_entry(node->index, number);
	hc_shard_lock(shard);
	if (!entry || entry->slot != from || !hc_entry_settled(entry) ||
	    !(entry->flags & HC_ENTRY_NAMED)) {
		hc_shard_unlock(shard);
		return false;
	}
	entry->refs++; /* holds bytes and entry while they are copied */
	hc_shard_unlock(shard);
	memcpy(hc_pool_data(node->pool, to), hc_pool_data(node->pool, from), entry->size_bytes);
	hc_shard_lock(shard);
	entry->refs--;
	if (hc_entry_settled(entry) && entry->flags & HC_ENTRY_NAMED) {
		hc_entry_slot_page(node, entry, &row);
		hc_pool_publish(node->pool, to, &row);
		hc_crash_point("recut-move");
		hc_pool_free(node->pool, from);
		entry->slot = to;
		hc_slot_note_entry(node, to, number);
		moved = true;
	}
	hc_entry_settle(node, shard, entry, &after);
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	return moved;
}

/* One slot of the drained segment's class elsewhere. */
static hc_slot_id hc_recut_room(struct hc_node *node, struct hc_class *victim)
{
	struct hc_run run;
	uint32_t n_runs = 0, n = 0;
	int rc = hc_pool_reserve(node->pool, &victim->domain, victim->slot_bytes, 1, -1,
				 HC_SLOT_FILLING, &run, 1, &n_runs, &n);

	return rc || !n ? HC_SLOT_NONE : hc_pool_slot(node->pool, run.segment, run.first);
}

/* Frees one slot: its page moves where there is room, else colder leaves go until it went itself or
 * made room. */
static void hc_recut_slot(struct hc_node *node, hc_slot_id from, struct hc_class *victim)
{
	while (hc_pool_state(node->pool, from) != HC_SLOT_FREE) {
		hc_slot_id to = hc_recut_room(node, victim);

		if (to != HC_SLOT_NONE) {
			if (!hc_page_move(node, from, to))
				hc_pool_free(node->pool, to);
			return;
		}
		if (!hc_evict_class(node, victim, 1, 1, NULL))
			return;
	}
}

/* Empties a draining segment as far as possible. True when it was given up by its class. */
static bool hc_recut_empty(struct hc_node *node, uint32_t segment, struct hc_class *victim)
{
	struct hc_pool_segment_info info;

	hc_pool_segment_info(node->pool, segment, &info);
	for (uint32_t i = 0; info.cut && info.draining && i < info.n_slots; i++) {
		hc_recut_slot(node, hc_pool_slot(node->pool, segment, i), victim);
		hc_pool_segment_info(node->pool, segment, &info);
	}
	return !info.cut || !info.draining;
}

bool hc_recut(struct hc_node *node, struct hc_class *class, bool even_if_warmer)
{
	uint64_t now_ns = hc_clock_now_ns();
	uint32_t segment = UINT32_MAX, stamp = 0;
	struct hc_pool_segment_info info;
	struct hc_class *victim;
	bool done = false;

	if (!even_if_warmer && !node->config.no_evictor &&
	    now_ns - atomic_load(&class->compared_ns) < HC_RECUT_COMPARE_NS)
		return false;
	/* Another re-cut is under way: it may serve this class too, and a reserve has a deadline.
	 */
	if (pthread_mutex_trylock(&node->recut_lock))
		return false;
	if (!hc_recut_pick(node, class, &segment, &stamp) ||
	    (!even_if_warmer && stamp >= hc_class_coldest(node, class))) {
		node->recut_failed = UINT32_MAX;
		pthread_mutex_unlock(&node->recut_lock);
		atomic_store(&class->compared_ns, now_ns);
		return false;
	}
	if (!hc_pool_drain(node->pool, segment)) {
		/* Only now its class cannot change any more; the node's own note of it may lag. */
		hc_crash_point("recut-drain");
		hc_pool_segment_info(node->pool, segment, &info);
		victim = hc_node_class(node, &info.domain, info.slot_bytes, true);
		done = victim && hc_recut_empty(node, segment, victim);
		if (!done)
			hc_pool_undrain(node->pool, segment);
	}
	node->recut_failed = done ? UINT32_MAX : segment;
	pthread_mutex_unlock(&node->recut_lock);
	if (done)
		hc_count(node, recut_segments);
	return done;
}
