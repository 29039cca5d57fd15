/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction: slots of a class, room on disk, quotas. Victims are the coldest leaves (index/order.h);
 * a page that cannot go now (held, pinned, dirty, with children) is parked: its record is dropped
 * and it is filed again by the event that frees it. No I/O here: files are removed by the store's
 * reapers. */
#include "node/internal.h"

#define HC_EVICTOR_TICK_NS HC_NS_PER_S

static bool hc_victim_free(const struct hc_entry *entry)
{
	return hc_entry_settled(entry) && !hc_entry_pinned(entry) &&
	       !(entry->flags & HC_ENTRY_DIRTY);
}

/* The entry of a popped record, its shard locked, if the record is true; pushes it again when it is
 * stale. */
static struct hc_entry *hc_order_take(struct hc_node *node, struct hc_order *order,
				      const struct hc_order_record *record, uint16_t flag,
				      struct hc_shard **shard_p)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, record->number);
	struct hc_entry *entry = hc_index_entry(node->index, record->number);
	struct hc_order_record again = *record;

	hc_shard_lock(shard);
	if ((uint32_t)entry->sequence == record->tag && entry->flags & HC_ENTRY_NAMED &&
	    entry->flags & flag) {
		again.key = hc_order_key(entry);
		if (again.key <= record->key) {
			entry->flags &= (uint16_t)~flag;
			*shard_p = shard;
			return entry;
		}
		if (hc_order_push(order, &again))
			entry->flags &= (uint16_t)~flag;
	}
	hc_shard_unlock(shard);
	return NULL;
}

enum hc_evicted { HC_EVICT_KEPT, HC_EVICT_FREED, HC_EVICT_COMING, HC_EVICT_ENOUGH };

/* Shard locked. to_disk: backup=evict. enough: as many as are wanted go to disk already. */
static enum hc_evicted hc_evict_memory_entry(struct hc_node *node, struct hc_shard *shard,
					     struct hc_entry *entry, bool to_disk, bool enough,
					     struct hc_after *after)
{
	uint64_t size_bytes = entry->size_bytes;
	uint32_t series = entry->series; /* the entry may be freed below */

	if (entry->slot == HC_ENTRY_NO_SLOT || !hc_victim_free(entry) || entry->n_children_mem)
		return HC_EVICT_KEPT;
	if (entry->disk == HC_ENTRY_NO_DISK) {
		if (entry->n_children_disk)
			return HC_EVICT_KEPT;
		/* FORCED and clean: it was tried, and failed. */
		if (to_disk && !(entry->flags & HC_ENTRY_FORCED)) {
			if (enough) {
				hc_entry_push_mem(node, entry);
				return HC_EVICT_ENOUGH;
			}
			hc_backup_force(node, entry);
			return entry->flags & HC_ENTRY_DIRTY ? HC_EVICT_COMING : HC_EVICT_KEPT;
		}
		if (entry->flags & HC_ENTRY_ORPHAN)
			hc_count(node, evicted_orphans);
		hc_entry_remove(node, shard, entry, false, after);
	} else {
		hc_entry_drop_slot(node, entry, after);
		hc_entry_push_space(node, entry);
	}
	hc_count_series(node, series, evicted_memory, 1);
	hc_count_series(node, series, evicted_memory_bytes, size_bytes);
	return HC_EVICT_FREED;
}

uint32_t hc_evict_class(struct hc_node *node, struct hc_class *class, uint32_t n, uint64_t n_writes,
			uint32_t *n_coming_p)
{
	struct hc_node_limits limits;
	struct hc_order_record record;
	uint32_t freed = 0, coming = 0;
	bool to_disk;

	hc_node_limits_get(node, &limits);
	to_disk = limits.backup == HC_BACKUP_EVICT && node->store;
	for (uint32_t i = 0;
	     i < HC_EVICT_SCAN_MAX && freed + coming < n && hc_order_pop(class->order, &record);
	     i++) {
		struct hc_after after = {0};
		struct hc_shard *shard;
		struct hc_entry *entry =
			hc_order_take(node, class->order, &record, HC_ENTRY_IN_MEM, &shard);

		if (!entry)
			continue;
		if (entry->slot != HC_ENTRY_NO_SLOT &&
		    hc_node_slot_class(node, entry->slot) != class) {
			hc_entry_push_mem(node, entry);
		} else {
			bool enough = atomic_load(&node->n_dirty) >= n_writes;
			enum hc_evicted what =
				hc_evict_memory_entry(node, shard, entry, to_disk, enough, &after);

			freed += what == HC_EVICT_FREED;
			coming += what == HC_EVICT_COMING ? 1 : what == HC_EVICT_ENOUGH ? n : 0;
		}
		hc_shard_unlock(shard);
		hc_after_run(node, &after);
	}
	if (n_coming_p)
		*n_coming_p = coming;
	return freed;
}

bool hc_evict_for(struct hc_node *node, struct hc_class *class, uint32_t n, bool may_recut)
{
	uint32_t n_coming;

	if (may_recut && hc_recut(node, class, false))
		return true;
	if (hc_evict_class(node, class, n, n, &n_coming))
		return true;
	return may_recut && !n_coming && hc_recut(node, class, true);
}

bool hc_evict_space(struct hc_node *node, uint32_t space, uint64_t bytes)
{
	struct hc_order *order = hc_node_space_order(node, space, false);
	struct hc_order_record record;
	uint64_t freed_bytes = 0;

	for (uint32_t i = 0;
	     order && i < HC_EVICT_SCAN_MAX && freed_bytes < bytes && hc_order_pop(order, &record);
	     i++) {
		struct hc_after after = {0};
		struct hc_shard *shard;
		struct hc_entry *entry =
			hc_order_take(node, order, &record, HC_ENTRY_IN_SPACE, &shard);

		if (!entry)
			continue;
		if (hc_victim_free(entry) && !entry->n_children_mem && !entry->n_children_disk) {
			freed_bytes += entry->size_bytes;
			hc_entry_remove(node, shard, entry, false, &after);
			hc_count(node, evicted_quota);
		}
		hc_shard_unlock(shard);
		hc_after_run(node, &after);
	}
	return freed_bytes;
}

/* --- disk --- */

/* Bytes that must go so that `more` fit below `ppm` of the limit. */
static uint64_t hc_disk_excess(struct hc_node *node, const struct hc_node_limits *limits,
			       uint64_t more, uint32_t ppm)
{
	uint64_t used = atomic_load(&node->disk_bytes) + atomic_load(&node->disk_coming_bytes) +
			more,
		 limit;

	limit = hc_ppm(limits->disk_bytes, ppm);
	return limits->disk_bytes && used > limit ? used - limit : 0;
}

/* Bytes that a disk lacks so that `more` fit above its min_free. A disk that was taken out has no
 * room and lacks none. */
static uint64_t hc_disk_lacks(struct hc_node *node, const struct hc_node_limits *limits,
			      uint16_t disk, uint64_t more, bool with_removing, bool *out_p)
{
	struct hc_store_disk_info info;
	uint64_t wanted, free_bytes;

	*out_p = hc_node_disk_info(node, disk, &info) || info.out;
	if (*out_p)
		return 0;
	wanted =
		hc_max_u64(limits->min_free_bytes, hc_ppm(info.total_bytes, limits->min_free_ppm)) +
		more;
	free_bytes = info.free_bytes;
	if (with_removing && disk < HC_DISKS_MAX)
		free_bytes += atomic_load(&node->removing_bytes[disk]);
	return free_bytes < wanted ? wanted - free_bytes : 0;
}

bool hc_disk_has_room(struct hc_node *node, uint16_t disk, uint64_t more_bytes, bool with_removing)
{
	struct hc_node_limits limits;
	bool out;

	hc_node_limits_get(node, &limits);
	return !hc_disk_lacks(node, &limits, disk, more_bytes, with_removing, &out) && !out;
}

bool hc_disk_over(struct hc_node *node, uint64_t more_bytes)
{
	struct hc_node_limits limits;
	bool all_out = true;

	hc_node_limits_get(node, &limits);
	if (hc_disk_excess(node, &limits, more_bytes, 1000000))
		return true;
	for (uint16_t disk = 0; disk < hc_node_n_disks(node); disk++) {
		bool out;

		if (!hc_disk_lacks(node, &limits, disk, more_bytes, true, &out) && !out)
			return false;
		all_out &= out;
	}
	/* Where every disk is out it is not room that lacks: requests fail with their own error. */
	return !all_out;
}

/* The space whose coldest page is coldest of all. */
static struct hc_order *hc_coldest_space(struct hc_node *node)
{
	struct hc_order *best = NULL;
	uint64_t best_key = 0;

	for (uint32_t space = 0; space < atomic_load(&node->n_spaces); space++) {
		struct hc_order *order = hc_node_space_order(node, space, false);
		struct hc_order_record record;

		if (order && hc_order_peek(order, &record) && (!best || record.key < best_key)) {
			best = order;
			best_key = record.key;
		}
	}
	return best;
}

/* Shard locked. Returns the bytes freed on disk. *aside_p: not on disk, to be filed again. */
static uint64_t hc_evict_disk_entry(struct hc_node *node, struct hc_shard *shard,
				    struct hc_entry *entry, struct hc_after *after, bool *aside_p)
{
	uint64_t size_bytes = entry->size_bytes;
	uint32_t series = entry->series; /* the entry may be freed below */

	*aside_p = entry->disk == HC_ENTRY_NO_DISK;
	if (*aside_p || !hc_entry_settled(entry) || hc_entry_pinned(entry) ||
	    entry->n_children_disk)
		return 0;
	if (entry->slot != HC_ENTRY_NO_SLOT) {
		hc_entry_drop_disk(node, entry, false, after);
		entry->flags |= HC_ENTRY_SKIPPED;
		*aside_p = true;
	} else {
		if (entry->n_children_mem)
			return 0;
		hc_entry_remove(node, shard, entry, false, after);
	}
	hc_count_series(node, series, evicted_disk, 1);
	hc_count_series(node, series, evicted_disk_bytes, size_bytes);
	return size_bytes;
}

struct hc_aside {
	struct hc_order *order;
	struct hc_order_record record;
};

/* What has to go: bytes of any disk, and of each one. */
struct hc_lack {
	uint64_t bytes;
	uint64_t disk_bytes[HC_DISKS_MAX];
	uint64_t freed;
};

static bool hc_lack_of(const struct hc_lack *lack, uint16_t disk)
{
	return lack->freed < lack->bytes || (disk < HC_DISKS_MAX && lack->disk_bytes[disk]);
}

static bool hc_lack_any(const struct hc_lack *lack)
{
	bool any = lack->freed < lack->bytes;

	for (uint16_t disk = 0; disk < HC_DISKS_MAX && !any; disk++)
		any = lack->disk_bytes[disk];
	return any;
}

static void hc_evict_disk_bytes(struct hc_node *node, struct hc_lack *lack)
{
	struct hc_aside *aside = malloc(HC_EVICT_SCAN_MAX * sizeof(*aside));
	size_t n_aside = 0;

	for (uint32_t i = 0; aside && i < HC_EVICT_SCAN_MAX && hc_lack_any(lack); i++) {
		struct hc_order *order = hc_coldest_space(node);
		struct hc_order_record record;
		struct hc_after after = {0};
		struct hc_shard *shard;
		struct hc_entry *entry;
		bool to_file = false;
		uint64_t freed;
		uint16_t disk;

		if (!order)
			break;
		if (!hc_order_pop(order, &record))
			continue;
		entry = hc_order_take(node, order, &record, HC_ENTRY_IN_SPACE, &shard);
		if (!entry)
			continue;
		disk = entry->disk;
		if (disk != HC_ENTRY_NO_DISK && !hc_lack_of(lack, disk)) {
			to_file = true;
		} else {
			freed = hc_evict_disk_entry(node, shard, entry, &after, &to_file);
			lack->freed += freed;
			if (freed && disk < HC_DISKS_MAX)
				lack->disk_bytes[disk] -= hc_min_u64(lack->disk_bytes[disk], freed);
		}
		if (to_file) {
			/* Filed again behind this pass, or it would come up for ever. */
			entry->flags |= HC_ENTRY_IN_SPACE;
			aside[n_aside++] = (struct hc_aside){order, record};
		}
		hc_shard_unlock(shard);
		hc_after_run(node, &after);
	}
	for (size_t i = 0; i < n_aside; i++)
		hc_ignore(hc_order_push(aside[i].order, &aside[i].record));
	free(aside);
}

/* What would not fit if all pages went must not take them with it. */
static bool hc_disk_could_take(struct hc_node *node, const struct hc_node_limits *limits,
			       uint64_t more_bytes)
{
	if (!more_bytes)
		return true;
	if (hc_disk_excess(node, limits, more_bytes, 1000000) > atomic_load(&node->disk_bytes))
		return false;
	for (uint16_t disk = 0; disk < hc_node_n_disks(node) && disk < HC_DISKS_MAX; disk++) {
		bool out;

		if (hc_disk_lacks(node, limits, disk, more_bytes, true, &out) <=
			    atomic_load(&node->disk_held_bytes[disk]) &&
		    !out)
			return true;
	}
	return false;
}

void hc_evict_disk(struct hc_node *node, uint64_t more_bytes)
{
	struct hc_node_limits limits;
	struct hc_lack lack = {0};

	if (!node->store)
		return;
	hc_node_limits_get(node, &limits);
	if (!hc_disk_could_take(node, &limits, more_bytes))
		return;
	lack.bytes = hc_disk_excess(node, &limits, more_bytes, limits.high_ppm);
	if (lack.bytes)
		lack.bytes = hc_disk_excess(node, &limits, more_bytes, limits.low_ppm);
	/* By what the pages there are need: memory of the index that once was big is used again,
	 * not given back. */
	if (hc_index_count(node->index) * HC_INDEX_PAGE_BYTES > node->config.index_bytes)
		lack.bytes = hc_max_u64(lack.bytes, atomic_load(&node->disk_bytes) / 16 + 1);
	for (uint16_t disk = 0; disk < hc_node_n_disks(node) && disk < HC_DISKS_MAX; disk++) {
		bool out;

		if (atomic_load(&node->disk_held_bytes[disk]))
			lack.disk_bytes[disk] =
				hc_disk_lacks(node, &limits, disk, more_bytes, true, &out);
	}
	if (hc_lack_any(&lack))
		hc_evict_disk_bytes(node, &lack);
}

/* --- the evictor --- */

static void hc_evict_watermark(struct hc_node *node)
{
	struct hc_node_limits limits;
	struct hc_pool_stats stats;
	uint64_t low, coming_bytes = 0;

	hc_node_limits_get(node, &limits);
	hc_pool_stats(node->pool, &stats);
	if (stats.used_bytes <= hc_ppm(stats.size_bytes, limits.high_ppm))
		return;
	low = hc_ppm(stats.size_bytes, limits.low_ppm);
	while (stats.used_bytes > low + coming_bytes) {
		struct hc_class *best = NULL;
		uint64_t best_key = 0;
		uint32_t n_coming = 0;

		for (unsigned i = 0; i < atomic_load(&node->n_classes); i++) {
			struct hc_order_record record;

			if (hc_order_peek(node->classes[i]->order, &record) &&
			    (!best || record.key < best_key)) {
				best = node->classes[i];
				best_key = record.key;
			}
		}
		/* A class of which nothing can go has an empty order afterwards. */
		if (!best || atomic_load(&node->stop))
			return;
		hc_evict_class(node, best, 1, (stats.used_bytes - low) / best->slot_bytes + 1,
			       &n_coming);
		coming_bytes += n_coming * best->slot_bytes;
		hc_pool_stats(node->pool, &stats);
	}
}

static void hc_evict_quotas(struct hc_node *node)
{
	struct hc_space_info *list;
	size_t n;

	if (hc_space_list(node->registry, &list, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		uint64_t used = hc_space_used(node->registry, list[i].id);

		if (list[i].quota_bytes && used > list[i].quota_bytes)
			hc_evict_space(node, list[i].id, used - list[i].quota_bytes);
	}
	free(list);
}

/* Classes that were short since the last round get a segment of a colder class. */
static void hc_evict_classes(struct hc_node *node, uint64_t *seen)
{
	for (unsigned i = 0; i < atomic_load(&node->n_classes); i++) {
		struct hc_class *class = node->classes[i];
		uint64_t n_short = atomic_load(&class->n_short);

		if (n_short == seen[i])
			continue;
		seen[i] = n_short;
		hc_recut(node, class, !hc_order_count(class->order));
	}
}

static void hc_stamps_check(struct hc_node *node)
{
	uint32_t by = UINT32_C(1) << 31;

	if (hc_index_stamp(node->index) < HC_INDEX_STAMP_REBASE)
		return;
	hc_index_rebase(node->index, by);
	for (unsigned i = 0; i < atomic_load(&node->n_classes); i++)
		hc_order_rebase(node->classes[i]->order, by);
	for (uint32_t space = 0; space < atomic_load(&node->n_spaces); space++) {
		struct hc_order *order = hc_node_space_order(node, space, false);

		if (order)
			hc_order_rebase(order, by);
	}
	hc_walks_rebase(node->walks, by);
	hc_times_rebase(node, by);
}

static void *hc_evict_main(void *arg)
{
	struct hc_node *node = arg;
	uint64_t seen[HC_CLASSES_MAX] = {0};

	pthread_setname_np(pthread_self(), "hc-evict");
	while (!atomic_load(&node->stop)) {
		uint64_t rung = hc_wait_seen(&node->evict_bell);

		hc_evict_classes(node, seen);
		hc_evict_watermark(node);
		hc_evict_quotas(node);
		hc_evict_disk(node, 0);
		hc_stamps_check(node);
		if (!atomic_load(&node->stop))
			hc_wait_for(&node->evict_bell, rung,
				    hc_clock_now_ns() + HC_EVICTOR_TICK_NS);
	}
	return NULL;
}

int hc_evict_start(struct hc_node *node)
{
	int rc = pthread_create(&node->thread_evict, NULL, hc_evict_main, node);

	node->has_evict = !rc;
	return -rc;
}

void hc_evict_stop(struct hc_node *node)
{
	if (!node->has_evict)
		return;
	hc_wait_wake(&node->evict_bell);
	pthread_join(node->thread_evict, NULL);
	node->has_evict = false;
}
