/* SPDX-License-Identifier: Apache-2.0 */
/* Entries: filing for eviction, taking names, settling, and the counts of children that keep a
 * parent from being evicted before them. Functions need the entry's shard locked unless their head
 * says otherwise; what must happen without the lock is noted in a struct hc_after and done by
 * hc_after_run. */
#include "node/internal.h"

static unsigned hc_shard_index(struct hc_node *node, const struct hc_hash *hash)
{
	return hc_shard_number(hc_index_shard(node->index, hash));
}

void hc_entry_push_mem(struct hc_node *node, struct hc_entry *entry)
{
	struct hc_class *class;
	struct hc_order_record record;

	if (entry->slot == HC_ENTRY_NO_SLOT || entry->flags & (HC_ENTRY_IN_MEM | HC_ENTRY_LOADING))
		return;
	class = hc_node_slot_class(node, entry->slot);
	record = (struct hc_order_record){hc_order_key(entry), entry->number,
					  (uint32_t)entry->sequence};
	if (class && !hc_order_push(class->order, &record))
		entry->flags |= HC_ENTRY_IN_MEM;
}

void hc_entry_push_space(struct hc_node *node, struct hc_entry *entry)
{
	struct hc_order *order;
	struct hc_order_record record;

	if (entry->flags & HC_ENTRY_IN_SPACE || !(entry->flags & HC_ENTRY_NAMED))
		return;
	order = hc_node_space_order(node, hc_series_space(node->registry, entry->series), true);
	record = (struct hc_order_record){hc_order_key(entry), entry->number,
					  (uint32_t)entry->sequence};
	if (order && !hc_order_push(order, &record))
		entry->flags |= HC_ENTRY_IN_SPACE;
}

bool hc_entry_settled(const struct hc_entry *entry)
{
	return !entry->refs && !(entry->flags & (HC_ENTRY_WRITING | HC_ENTRY_LOADING));
}

void hc_entry_clean(struct hc_node *node, struct hc_entry *entry)
{
	if (!(entry->flags & HC_ENTRY_DIRTY))
		return;
	entry->flags &= (uint16_t)~HC_ENTRY_DIRTY;
	atomic_fetch_sub(&node->n_dirty, 1);
	atomic_fetch_sub(&node->dirty_bytes, entry->size_bytes);
}

void hc_entry_dirty(struct hc_node *node, struct hc_entry *entry)
{
	if (entry->flags & HC_ENTRY_DIRTY)
		return;
	entry->flags = (uint16_t)((entry->flags | HC_ENTRY_DIRTY) & ~HC_ENTRY_SKIPPED);
	atomic_fetch_add(&node->n_dirty, 1);
	atomic_fetch_add(&node->dirty_bytes, entry->size_bytes);
}

void hc_entry_store_page(const struct hc_entry *entry, struct hc_store_page *page_p)
{
	*page_p = (struct hc_store_page){
		.sequence = entry->sequence,
		.size_bytes = entry->size_bytes,
		.checksum = entry->checksum,
		.hash = entry->hash,
		.parent = entry->parent,
		.series = entry->series,
		.depth = entry->depth,
		.flags = entry->flags & HC_ENTRY_OPAQUE ? HC_STORE_PAGE_OPAQUE : 0,
	};
}

void hc_entry_slot_page(struct hc_node *node, const struct hc_entry *entry,
			struct hc_slot_page *page_p)
{
	struct hc_owner owner;

	hc_owners_get(node->owners, entry->owner, &owner);
	*page_p = (struct hc_slot_page){
		.sequence = entry->sequence,
		.size_bytes = entry->size_bytes,
		.checksum = entry->checksum,
		.mtime_ns = entry->mtime_ns,
		.hash = entry->hash,
		.parent = entry->parent,
		.space = hc_series_space(node->registry, entry->series),
		.series = entry->series,
		.depth = entry->depth,
		.uid = owner.uid,
		.gid = owner.gid,
		.mode = owner.mode,
		.flags = (entry->flags & HC_ENTRY_SUMMED ? HC_SLOT_FLAG_SUMMED : 0) |
			 (entry->flags & HC_ENTRY_OPAQUE ? HC_SLOT_FLAG_OPAQUE : 0),
	};
}

void hc_entry_info(struct hc_node *node, const struct hc_entry *entry, struct hc_page_info *info_p)
{
	*info_p = (struct hc_page_info){
		.key = {entry->series, entry->hash},
		.parent = entry->parent,
		.sequence = entry->sequence,
		.node_id = entry->node_id,
		.size_bytes = entry->size_bytes,
		.checksum = entry->checksum,
		.mtime_ns = entry->mtime_ns,
		.dir = entry->dir,
		.depth = entry->depth,
		.stamp = entry->stamp,
		.hits = entry->hits,
		.refs = entry->refs,
		.pins = (uint16_t)(entry->pins + entry->pinned),
		.pinned = entry->pinned,
		.priority = entry->priority,
		.session = entry->session,
		.flags = entry->flags,
		.entry = entry->number,
		.in_memory = entry->slot != HC_ENTRY_NO_SLOT && !(entry->flags & HC_ENTRY_LOADING),
		.on_disk = entry->disk != HC_ENTRY_NO_DISK,
	};
	/* What was only read ahead was not used. */
	if (!(entry->flags & HC_ENTRY_AHEAD))
		info_p->used_ns = hc_times_of(node, entry->stamp);
	hc_owners_get(node->owners, entry->owner, &info_p->owner);
}

void hc_entry_drop_slot(struct hc_node *node, struct hc_entry *entry, struct hc_after *after)
{
	hc_assert(entry->slot != HC_ENTRY_NO_SLOT);
	hc_entry_clean(node, entry);
	hc_ahead_lost(node, entry);
	if (!(entry->flags & HC_ENTRY_LOADING)) {
		if (!hc_hash_is_zero(&entry->parent))
			after->mem++;
		atomic_fetch_sub(&node->n_memory, 1);
		atomic_fetch_sub(&node->memory_bytes, entry->size_bytes);
	}
	hc_crash_point("evict-free");
	hc_pool_free(node->pool, entry->slot);
	entry->slot = HC_ENTRY_NO_SLOT;
	entry->flags &= (uint16_t) ~(HC_ENTRY_LOADING | HC_ENTRY_UNVERIFIED | HC_ENTRY_SKIPPED);
	after->parent = (struct hc_key){entry->series, entry->parent};
	after->freed = true;
}

void hc_disk_account(struct hc_node *node, uint16_t disk, int n, uint64_t size_bytes)
{
	uint64_t bytes = n < 0 ? -size_bytes : size_bytes;

	atomic_fetch_add(&node->n_disk, (uint64_t)(int64_t)n);
	atomic_fetch_add(&node->disk_bytes, bytes);
	if (disk < HC_DISKS_MAX)
		atomic_fetch_add(&node->disk_held_bytes[disk], bytes);
}

void hc_entry_drop_disk(struct hc_node *node, struct hc_entry *entry, bool quarantine,
			struct hc_after *after)
{
	hc_assert(entry->disk != HC_ENTRY_NO_DISK);
	if (!hc_hash_is_zero(&entry->parent))
		after->disk++;
	hc_disk_account(node, entry->disk, -1, entry->size_bytes);
	after->parent = (struct hc_key){entry->series, entry->parent};
	after->remove_file = true;
	after->quarantine = quarantine;
	after->remove_row = entry->flags & HC_ENTRY_CATALOGUED;
	after->disk_id = entry->disk;
	after->number = entry->number;
	hc_entry_store_page(entry, &after->page);
	entry->disk = HC_ENTRY_NO_DISK;
	entry->flags &= (uint16_t) ~(HC_ENTRY_CATALOGUED | HC_ENTRY_CHECKED);
	/* A backup of the same body would have the same file: not before this one is gone. */
	entry->flags |= HC_ENTRY_REMOVING;
}

/* The last holder of an unnamed entry gives everything back. */
static void hc_entry_finish(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
			    struct hc_after *after)
{
	if (entry->slot != HC_ENTRY_NO_SLOT)
		hc_entry_drop_slot(node, entry, after);
	if (entry->flags & HC_ENTRY_OPAQUE)
		hc_opaque_drop(node, entry->number);
	hc_shard_free(shard, entry);
}

static void hc_entry_take_name(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
			       bool quarantine, struct hc_after *after)
{
	struct hc_key key = {entry->series, entry->hash};
	uint32_t space = hc_series_space(node->registry, entry->series);

	hc_assert(entry->flags & HC_ENTRY_NAMED);
	hc_ahead_lost(node, entry);
	after->removed = true;
	after->page.series = entry->series;
	after->page.hash = entry->hash;
	after->page.sequence = entry->sequence;
	after->attrs = entry->attrs;
	after->node_id = entry->node_id;
	after->dir = entry->dir;
	if (entry->flags & HC_ENTRY_OPAQUE) {
		char path[HC_PATH_BYTES];

		if (hc_opaque_get(node, entry->number, path)) {
			const char *slash = strrchr(path, '/');

			snprintf(after->name, sizeof(after->name), "%.255s",
				 slash ? slash + 1 : path);
		}
	}
	if (entry->disk != HC_ENTRY_NO_DISK)
		hc_entry_drop_disk(node, entry, quarantine, after);
	hc_entry_clean(node, entry);
	hc_shard_unname(shard, entry);
	if (entry->n_children_mem || entry->n_children_disk) {
		hc_ghosts_add(node->ghosts[hc_shard_index(node, &key.hash)], &key,
			      (int)entry->n_children_mem, (int)entry->n_children_disk);
		after->orphans = true;
	}
	if (hc_space_use(node->registry, space, -(int64_t)entry->size_bytes, true))
		hc_debug(HC_NODE, "space %u has no account", space);
}

void hc_entry_remove(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		     bool quarantine, struct hc_after *after)
{
	if (entry->slot != HC_ENTRY_NO_SLOT && !(entry->flags & HC_ENTRY_LOADING))
		hc_pool_doom(node->pool, entry->slot);
	hc_entry_take_name(node, shard, entry, quarantine, after);
	if (hc_entry_settled(entry))
		hc_entry_finish(node, shard, entry, after);
}

void hc_entry_replace(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		      struct hc_after *after)
{
	entry->refs++;
	hc_entry_take_name(node, shard, entry, false, after);
}

void hc_entry_replaced(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		       struct hc_after *after)
{
	if (entry->slot != HC_ENTRY_NO_SLOT &&
	    hc_pool_state(node->pool, entry->slot) == HC_SLOT_READY)
		hc_pool_doom(node->pool, entry->slot);
	entry->refs--;
	hc_entry_settle(node, shard, entry, after);
}

void hc_entry_lose(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		   struct hc_after *after)
{
	hc_entry_remove(node, shard, entry, false, after);
	after->remove_file = false;
	after->remove_row = false;
	after->attrs = false;
}

void hc_entry_settle(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
		     struct hc_after *after)
{
	if (!hc_entry_settled(entry))
		return;
	if (!(entry->flags & HC_ENTRY_NAMED)) {
		hc_entry_finish(node, shard, entry, after);
		return;
	}
	hc_entry_push_mem(node, entry);
	hc_entry_push_space(node, entry);
}

int hc_family_add_locked(struct hc_node *node, struct hc_shard *shard, const struct hc_key *key,
			 int mem, int disk)
{
	struct hc_entry *entry = hc_shard_find(shard, key);

	if (!entry)
		return hc_ghosts_add(node->ghosts[hc_shard_number(shard)], key, mem, disk);
	hc_assert(mem >= 0 || entry->n_children_mem >= (uint32_t)-mem);
	hc_assert(disk >= 0 || entry->n_children_disk >= (uint32_t)-disk);
	entry->n_children_mem += (uint32_t)mem;
	entry->n_children_disk += (uint32_t)disk;
	/* Parked while it had children: a victim again. */
	if ((mem < 0 || disk < 0) && hc_entry_settled(entry)) {
		if (!entry->n_children_mem)
			hc_entry_push_mem(node, entry);
		hc_entry_push_space(node, entry);
	}
	return 0;
}

int hc_family_add(struct hc_node *node, uint32_t series, const struct hc_hash *parent, int mem,
		  int disk)
{
	struct hc_key key = {series, *parent};
	struct hc_shard *shard;
	int rc;

	if (hc_hash_is_zero(parent) || (!mem && !disk))
		return 0;
	shard = hc_node_shard(node, parent);
	hc_shard_lock(shard);
	rc = hc_family_add_locked(node, shard, &key, mem, disk);
	hc_shard_unlock(shard);
	return rc;
}

void hc_family_adopt(struct hc_node *node, struct hc_entry *entry)
{
	struct hc_key key = {entry->series, entry->hash};

	hc_ghosts_take(node->ghosts[hc_shard_index(node, &entry->hash)], &key,
		       &entry->n_children_mem, &entry->n_children_disk);
	/* Its children are no orphans any more. */
	if ((entry->n_children_mem || entry->n_children_disk) && atomic_load(&node->orphans_known))
		atomic_store(&node->orphans, true);
}

static void hc_after_file(struct hc_node *node, const struct hc_after *after)
{
	struct hc_removal removal = {
		.page = after->page,
		.number = after->number,
		.disk = after->disk_id,
		.quarantine = after->quarantine,
	};

	removal.page.name = NULL;
	if (node->store)
		hc_io_remove(node, &removal);
}

static void hc_after_event(struct hc_node *node, const struct hc_after *after)
{
	struct hc_event event = {
		.kind = HC_EVENT_REMOVED,
		.key = {after->page.series, after->page.hash},
		.node_id = after->node_id,
		.dir = after->dir,
		.name = after->name,
	};
	char name[HC_NAME_BYTES];

	/* What the kernel never saw it has not cached. */
	if (!node->config.event || !after->node_id || after->quiet)
		return;
	if (!after->name[0]) {
		if (hc_name_of_page(node->registry, &event.key, name))
			return;
		event.name = name;
	}
	node->config.event(node->config.event_arg, &event);
}

void hc_after_run(struct hc_node *node, struct hc_after *after)
{
	uint64_t ticket;

	if (after->remove_row && node->catalog &&
	    hc_catalog_del(node->catalog, HC_TABLE_PAGES, after->page.sequence, true, &ticket))
		hc_debug(HC_NODE, "a catalog row outlives its page until the next start");
	hc_crash_point("remove-row");
	if (after->attrs)
		hc_attrs_drop(hc_registry_attrs(node->registry), HC_ATTRS_PAGE,
			      after->page.sequence);
	if (after->remove_file)
		hc_after_file(node, after);
	if (after->mem || after->disk)
		hc_ignore(hc_family_add(node, after->parent.series, &after->parent.hash,
					-after->mem, -after->disk));
	/* The keeper looks at its next tick: one walk for many removals. */
	if (after->orphans)
		atomic_store(&node->orphans, true);
	if (after->freed)
		hc_wait_wake(&node->room);
	if (after->removed)
		hc_after_event(node, after);
}
