/* SPDX-License-Identifier: Apache-2.0 */
/* New pages: slots are reserved (colder pages make room), filled by the caller, and get their names
 * here. */
#include "model/checksum.h"
#include "node/internal.h"

/* Room is looked for again at least this often while a reserve waits. */
#define HC_RESERVE_LOOK_NS (10 * HC_NS_PER_MS)
/* How long a rename in a data directory may take before its publish fails. */
#define HC_ADOPT_NS (20 * HC_NS_PER_S)

static bool hc_slots_wait(struct hc_node *node, int rc, uint64_t deadline_ns, uint64_t seen,
			  uint64_t *populated_p)
{
	uint64_t now_ns = hc_clock_now_ns();

	if (now_ns >= deadline_ns)
		return false;
	if (rc == -EAGAIN)
		*populated_p =
			hc_pool_populate_wait(node->pool, *populated_p,
					      hc_min_u64(deadline_ns, now_ns + HC_RESERVE_LOOK_NS));
	else
		hc_wait_for(&node->room, seen,
			    hc_min_u64(deadline_ns, now_ns + HC_RESERVE_LOOK_NS));
	return true;
}

/* Nothing that is under way can free a slot: what is not pinned is held by the caller alone. */
static bool hc_slots_hopeless(struct hc_node *node, uint64_t n_refs, uint64_t n_slots)
{
	struct hc_pool_stats stats;

	if (atomic_load(&node->n_refs) > n_refs || atomic_load(&node->n_dirty) ||
	    atomic_load(&node->n_io) || pthread_mutex_trylock(&node->recut_lock))
		return false;
	pthread_mutex_unlock(&node->recut_lock);
	/* Others fill slots, which will be pages or free. */
	hc_pool_stats(node->pool, &stats);
	return stats.n_slots_used <= atomic_load(&node->n_memory) + n_slots;
}

uint32_t hc_slots_get(struct hc_node *node, const struct hc_slots_want *want, struct hc_run *runs,
		      uint32_t max_runs, uint32_t *n_runs_p)
{
	uint64_t slot_bytes = hc_pool_slot_bytes(want->size_bytes), populated = 0;
	struct hc_class *class = hc_node_class(node, &want->domain, slot_bytes, true);
	uint32_t got = 0, n_runs = 0, n = want->n, n_hopeless = 0;

	*n_runs_p = 0;
	while (class && got < n && n_runs < max_runs) {
		uint64_t seen = hc_wait_seen(&node->room);
		uint32_t more = 0, more_runs = 0;
		int rc = hc_pool_reserve(node->pool, &want->domain, slot_bytes, n - got,
					 want->numa_node, want->state, runs + n_runs,
					 max_runs - n_runs, &more_runs, &more);

		if (rc == -EFBIG || rc == -EINVAL)
			break;
		hc_node_note_runs(node, class, runs + n_runs, more_runs);
		got += more;
		n_runs += more_runs;
		if (got == n)
			break;
		if (rc == -ENOSPC) {
			atomic_fetch_add(&class->n_short, 1);
			if (hc_evict_for(node, class, n - got,
					 want->deadline_ns || node->config.no_evictor))
				continue;
			hc_wait_wake(&node->evict_bell);
		}
		if (want->some && got)
			break;
		/* Twice: a page may be on its way from one count to another. */
		n_hopeless =
			rc == -ENOSPC && hc_slots_hopeless(node, want->n_refs, want->n_slots + got)
				? n_hopeless + 1
				: 0;
		if (n_hopeless > 1 || !hc_slots_wait(node, rc, want->deadline_ns, seen, &populated))
			break;
	}
	if (got < (want->some ? 1 : n))
		hc_count(node, no_space_memory);
	*n_runs_p = n_runs;
	return got;
}

uint32_t hc_slots_spare(struct hc_node *node, const struct hc_domain *domain, uint64_t size_bytes,
			uint32_t n, struct hc_run *runs, uint32_t max_runs, uint32_t *n_runs_p)
{
	uint64_t slot_bytes = hc_pool_slot_bytes(size_bytes), n_free;
	struct hc_class *class = hc_node_class(node, domain, slot_bytes, true);
	uint32_t got = 0;
	int rc;

	*n_runs_p = 0;
	n_free = hc_pool_class_free(node->pool, domain, slot_bytes);
	if (n_free < n)
		hc_wait_wake(&node->evict_bell);
	n = (uint32_t)hc_min_u64(n, n_free);
	if (!class || !n)
		return 0;
	rc = hc_pool_reserve(node->pool, domain, slot_bytes, n, -1, HC_SLOT_LOADING, runs, max_runs,
			     n_runs_p, &got);
	if (rc == -EFBIG || rc == -EINVAL)
		return 0;
	hc_node_note_runs(node, class, runs, *n_runs_p);
	return got;
}

static int hc_quota_take(struct hc_node *node, uint32_t space, uint64_t bytes, uint64_t deadline_ns)
{
	struct hc_space_info info;

	if (!hc_space_use(node->registry, space, (int64_t)bytes, false))
		return 0;
	/* What can never fit must not evict everything else. */
	if (hc_space_get(node->registry, space, &info))
		return -ENOENT;
	if (info.quota_bytes && bytes > info.quota_bytes) {
		hc_count(node, no_quota);
		return -EDQUOT;
	}
	for (;;) {
		uint64_t seen = hc_wait_seen(&node->room), now_ns, used;

		if (!hc_space_use(node->registry, space, (int64_t)bytes, false))
			return 0;
		used = hc_space_used(node->registry, space) + bytes;
		if (used <= info.quota_bytes ||
		    hc_evict_space(node, space, used - info.quota_bytes))
			continue;
		now_ns = hc_clock_now_ns();
		if (now_ns >= deadline_ns) {
			hc_count(node, no_quota);
			return -EDQUOT;
		}
		hc_wait_for(&node->room, seen,
			    hc_min_u64(deadline_ns, now_ns + HC_RESERVE_LOOK_NS));
	}
}

static void hc_quota_give(struct hc_node *node, uint32_t space, uint64_t bytes)
{
	if (bytes && hc_space_use(node->registry, space, -(int64_t)bytes, true))
		hc_debug(HC_NODE, "space %u has no account", space);
}

/* The page pays for its own size, in the space of its series: before it has a name (somebody may
 * remove it at once), the other space is charged; after it, what was reserved beyond is given back.
 */
static void hc_quota_before(struct hc_node *node, uint32_t account, const struct hc_publish *item)
{
	uint32_t space = hc_series_space(node->registry, item->key.series);

	if (space != account &&
	    hc_space_use(node->registry, space, (int64_t)item->size_bytes, true))
		hc_debug(HC_NODE, "series %u has no account", item->key.series);
}

static void hc_quota_after(struct hc_node *node, uint32_t account, uint64_t reserved_bytes,
			   const struct hc_publish *item, bool published)
{
	uint32_t space = hc_series_space(node->registry, item->key.series);

	if (!published) {
		if (space != account)
			hc_quota_give(node, space, item->size_bytes);
		return;
	}
	hc_quota_give(node, account,
		      space == account ? reserved_bytes - item->size_bytes : reserved_bytes);
}

int hc_node_charge(struct hc_node *node, uint32_t space, int64_t bytes)
{
	if (bytes > 0)
		return hc_quota_take(node, space, (uint64_t)bytes, 0);
	hc_quota_give(node, space, (uint64_t)-bytes);
	return 0;
}

int hc_node_reserve(struct hc_node *node, const struct hc_reserve *how, size_t n,
		    struct hc_ref *refs, size_t *n_p)
{
	struct hc_run runs[HC_LOAD_RUNS];
	uint32_t n_runs, got = 0;
	int rc;

	if (!how->size_bytes || !n)
		return -EINVAL;
	if (how->size_bytes > node->config.max_page_bytes)
		return -EFBIG;
	n = hc_min_u64(n, UINT32_MAX);
	/* As many as the quota lets in at once: a large batch may exceed it where one page does
	 * not. */
	while ((rc = hc_quota_take(node, how->space, how->size_bytes * n,
				   n > 1 ? 0 : how->deadline_ns)) &&
	       n > 1)
		n /= 2;
	if (rc)
		return rc;
	while (got < n) {
		struct hc_slots_want want = {
			.domain = how->domain,
			.size_bytes = how->size_bytes,
			.numa_node = how->numa_node,
			.state = HC_SLOT_FILLING,
			.n = (uint32_t)n - got,
			.n_slots = got,
			.deadline_ns = how->deadline_ns,
		};
		uint32_t more = hc_slots_get(node, &want, runs, HC_LOAD_RUNS, &n_runs);

		for (uint32_t r = 0; r < n_runs; r++) {
			for (uint32_t s = 0; s < runs[r].n; s++) {
				hc_slot_id slot = hc_pool_slot(node->pool, runs[r].segment,
							       runs[r].first + s);

				refs[got++] = (struct hc_ref){
					.entry = HC_ENTRY_NONE,
					.slot = slot,
					.data = hc_pool_data(node->pool, slot),
					.size_bytes = how->size_bytes,
					.sequence = how->space, /* the account, until publish or
								   abort */
				};
			}
		}
		if (!more || (n_runs < HC_LOAD_RUNS && got < n))
			break;
	}
	hc_quota_give(node, how->space, how->size_bytes * (n - got));
	if (!got)
		return how->size_bytes > hc_node_segment_bytes(node) ? -EFBIG : -ENOSPC;
	*n_p = got;
	return 0;
}

void hc_node_abort(struct hc_node *node, struct hc_ref *refs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (refs[i].slot == HC_SLOT_NONE)
			continue;
		hc_assert(refs[i].entry == HC_ENTRY_NONE);
		hc_pool_free(node->pool, refs[i].slot);
		hc_quota_give(node, (uint32_t)refs[i].sequence, refs[i].size_bytes);
		refs[i].slot = HC_SLOT_NONE;
	}
	if (n)
		hc_wait_wake(&node->room);
}

static bool hc_publish_has_attrs(const struct hc_publish *item)
{
	return item->attrs && item->attrs->n_bytes;
}

/* Before the page can be seen: a kill in between leaves a row without a page, which is swept. */
static int hc_publish_attrs(struct hc_node *node, const struct hc_publish *item, uint64_t sequence)
{
	if (!hc_publish_has_attrs(item))
		return 0;
	return hc_attrs_put(hc_registry_attrs(node->registry), HC_ATTRS_PAGE, sequence, item->attrs,
			    true);
}

static void hc_publish_attrs_undo(struct hc_node *node, const struct hc_publish *item,
				  uint64_t sequence)
{
	if (hc_publish_has_attrs(item))
		hc_attrs_drop(hc_registry_attrs(node->registry), HC_ATTRS_PAGE, sequence);
}

static int hc_publish_fill(struct hc_node *node, struct hc_entry *entry,
			   const struct hc_publish *item, uint64_t sequence,
			   const struct hc_publish_place *place)
{
	int rc = hc_owners_intern(node->owners, &item->owner, &entry->owner);

	if (rc)
		return rc;
	if (item->opaque_path) {
		rc = hc_opaque_set(node, entry->number, item->opaque_path);
		if (rc)
			return rc;
		entry->flags |= HC_ENTRY_OPAQUE;
	}
	entry->parent = item->parent;
	entry->sequence = sequence;
	entry->node_id = item->node_id;
	entry->checksum = item->checksum;
	entry->mtime_ns = item->mtime_ns ? item->mtime_ns : hc_clock_wall_ns();
	entry->size_bytes = (uint32_t)item->size_bytes;
	entry->stamp = place->stamp;
	entry->depth = (uint32_t)hc_min_u64(place->depth, (1u << 24) - 1);
	hc_hints_give(entry, &place->hints);
	entry->attrs = hc_publish_has_attrs(item);
	entry->flags |= HC_ENTRY_SUMMED;
	hc_family_adopt(node, entry);
	if (place->dir)
		hc_index_dir_add(node->index, entry, place->dir);
	return 0;
}

static void hc_publish_event(struct hc_node *node, const struct hc_publish *item, uint32_t dir)
{
	struct hc_event event = {HC_EVENT_PUBLISHED, item->key, item->node_id, dir, NULL};
	char name[HC_NAME_BYTES];

	if (!node->config.event || item->quiet || hc_name_of_page(node->registry, &item->key, name))
		return;
	event.name = name;
	node->config.event(node->config.event_arg, &event);
}

/* What a new body takes the place of. */
struct hc_replaced {
	struct hc_entry *old; /* NULL: nothing */
	struct hc_after after;
};

/* The new body outlives a kill from here on. Shard locked. */
static void hc_publish_replaced(struct hc_node *node, struct hc_shard *shard,
				struct hc_replaced *replaced)
{
	if (replaced->old)
		hc_entry_replaced(node, shard, replaced->old, &replaced->after);
	replaced->old = NULL;
}

/* Inserts the entry of a new body, replacing or keeping what was there. Shard locked. */
static int hc_publish_insert(struct hc_node *node, struct hc_shard *shard,
			     const struct hc_publish *item, const struct hc_publish_place *place,
			     uint64_t sequence, struct hc_replaced *replaced,
			     struct hc_entry **entry_p)
{
	struct hc_entry *old = hc_shard_find(shard, &item->key), *entry;
	int rc;

	/* What is still being read back may yet turn out damaged; these bytes are whole. */
	if (old && !item->replace && !(old->flags & HC_ENTRY_LOADING)) {
		/* The first stays; being written again is a use. */
		old->stamp = (uint32_t)hc_max_u64(old->stamp, place->stamp);
		return -EEXIST;
	}
	if (old) {
		replaced->after.quiet = true;
		replaced->old = old;
		hc_entry_replace(node, shard, old, &replaced->after);
		hc_count(node, replaced);
	}
	rc = hc_shard_insert(shard, &item->key, &entry);
	if (rc)
		return rc;
	rc = hc_publish_fill(node, entry, item, sequence, place);
	if (rc) {
		hc_shard_unname(shard, entry);
		hc_shard_free(shard, entry);
		return rc;
	}
	*entry_p = entry;
	return 0;
}

static int hc_publish_slot(struct hc_node *node, struct hc_ref *ref, const struct hc_publish *item,
			   const struct hc_publish_place *place, struct hc_link *link_p)
{
	struct hc_shard *shard = hc_node_shard(node, &item->key.hash);
	struct hc_replaced replaced = {0};
	struct hc_slot_page row;
	struct hc_entry *entry;
	uint64_t sequence;
	bool dirty = false;
	int rc = hc_family_add(node, item->key.series, &item->parent, 1, 0);

	if (rc)
		return rc;
	sequence = hc_registry_next_sequence(node->registry);
	rc = hc_publish_attrs(node, item, sequence);
	hc_shard_lock(shard);
	if (!rc)
		rc = hc_publish_insert(node, shard, item, place, sequence, &replaced, &entry);
	if (!rc) {
		entry->slot = ref->slot;
		*link_p = hc_entry_link(entry);
		hc_slot_note_entry(node, ref->slot, entry->number);
		hc_entry_slot_page(node, entry, &row);
		hc_pool_publish(node->pool, ref->slot, &row);
		hc_crash_point("publish");
		atomic_fetch_add(&node->n_memory, 1);
		atomic_fetch_add(&node->memory_bytes, entry->size_bytes);
		hc_entry_push_space(node, entry);
		dirty = hc_backup_admit(node, entry, place->skip);
		if (!dirty)
			hc_entry_push_mem(node, entry);
	}
	hc_publish_replaced(node, shard, &replaced);
	hc_shard_unlock(shard);
	if (rc) {
		hc_publish_attrs_undo(node, item, sequence);
		hc_ignore(hc_family_add(node, item->key.series, &item->parent, -1, 0));
	} else if (item->opener) {
		hc_walk_published(node->walks, &place->step, *link_p, !dirty);
	}
	hc_after_run(node, &replaced.after);
	return rc;
}

/* Where in order, tree and chain a new page stands. */
static void hc_publish_place(struct hc_node *node, const struct hc_publish *item, uint32_t stamp,
			     struct hc_publish_place *place_p)
{
	bool previous_skipped = false;

	*place_p = (struct hc_publish_place){
		.stamp = stamp,
		.depth = item->depth,
		.dir = item->dir,
	};
	if (item->opener) {
		struct hc_walk_who who = {item->opener, item->thread, item->tree};

		hc_walk_publish(node->walks, &who, hc_clock_now_ns(), hc_stamp_call, node,
				&place_p->step);
		place_p->stamp = place_p->step.stamp;
		previous_skipped = place_p->step.previous_skipped;
		if (item->unnamed)
			place_p->depth = place_p->step.position;
	}
	place_p->skip = hc_backup_verdict(node, item, previous_skipped);
	if (!place_p->dir && !item->opaque_path &&
	    hc_name_dir_of_page(node->registry, &item->key, &place_p->dir))
		place_p->dir = 0;
	hc_hints_find(
		node, item->attrs, place_p->dir,
		hc_node_space_priority(node, hc_series_space(node->registry, item->key.series)),
		&place_p->hints);
}

void hc_node_publish(struct hc_node *node, struct hc_ref *refs, const struct hc_publish *items,
		     size_t n, int *results)
{
	uint32_t stamp = hc_node_stamp(node);
	struct hc_link link = {.number = HC_ENTRY_NONE}, last = link;

	for (size_t i = 0; i < n; i++) {
		struct hc_publish item = items[i];
		uint32_t account = (uint32_t)refs[i].sequence;
		struct hc_publish_place place;
		pthread_mutex_t *verdict;

		hc_assert(refs[i].entry == HC_ENTRY_NONE && refs[i].slot != HC_SLOT_NONE);
		hc_assert(item.size_bytes && item.size_bytes <= refs[i].size_bytes);
		if (!item.summed)
			item.checksum = hc_checksum(refs[i].data, item.size_bytes);
		verdict = &node->verdict_lock[item.key.hash.bytes[0] % HC_VERDICT_LOCKS];
		pthread_mutex_lock(verdict);
		hc_publish_place(node, &item, stamp, &place);
		hc_quota_before(node, account, &item);
		results[i] = hc_publish_slot(node, &refs[i], &item, &place, &link);
		hc_quota_after(node, account, refs[i].size_bytes, &item, !results[i]);
		pthread_mutex_unlock(verdict);
		if (results[i]) {
			if (results[i] == -EEXIST)
				hc_count(node, publish_existing);
			hc_node_abort(node, &refs[i], 1);
			continue;
		}
		refs[i].slot = HC_SLOT_NONE;
		if (i && !results[i - 1] && item.key.series == items[i - 1].key.series &&
		    hc_hash_equal(&item.parent, &items[i - 1].key.hash))
			hc_links_set(node->links, last, link);
		last = link;
		hc_count_series(node, item.key.series, published, 1);
		hc_count_series(node, item.key.series, published_bytes, item.size_bytes);
		hc_publish_event(node, &item, place.dir);
	}
}

/* The key is not known yet: bodies are spread by what is free, in the proportion of a fixed order.
 */
static uint16_t hc_stage_disk(struct hc_node *node)
{
	uint16_t n_disks = hc_node_n_disks(node), best = 0;
	uint64_t turn = atomic_fetch_add(&node->n_staged, 1) * 0x9e3779b97f4a7c15u >> 40;
	uint64_t free_mib[HC_DISKS_MAX] = {0}, total_mib = 0, at;

	for (uint16_t disk = 0; n_disks > 1 && disk < n_disks && disk < HC_DISKS_MAX; disk++) {
		struct hc_store_disk_info info;

		if (!hc_node_disk_info(node, disk, &info) && !info.out)
			free_mib[disk] = info.free_bytes / HC_MIB;
		total_mib += free_mib[disk];
	}
	at = (uint64_t)((__uint128_t)turn * total_mib >> 24);
	while (total_mib && at >= free_mib[best])
		at -= free_mib[best++];
	return best;
}

int hc_node_stage(struct hc_node *node, uint64_t expect_bytes, uint16_t *disk_p, int *fd_p,
		  char *name, size_t room)
{
	uint16_t disk;
	int rc;

	if (!hc_node_n_disks(node) || node->config.disk_off)
		return -ENODEV;
	if (hc_disk_over(node, expect_bytes)) {
		hc_evict_disk(node, expect_bytes);
		if (hc_disk_over(node, expect_bytes)) {
			hc_count(node, no_space_disk);
			return -ENOSPC;
		}
	}
	disk = hc_stage_disk(node);
	rc = node->store->ops->staging_create(node->store, disk, fd_p, name, room);
	if (!rc)
		*disk_p = disk;
	return rc;
}

void hc_node_unstage(struct hc_node *node, uint16_t disk, const char *name)
{
	int rc = node->store->ops->staging_remove(node->store, disk, name);

	if (rc)
		hc_warn(HC_NODE, "staging file %s stays behind until the next start: %s", name,
			strerror(-rc));
}

static int hc_stage_adopt(struct hc_node *node, uint16_t disk, const char *staging,
			  const struct hc_publish *item, uint32_t depth, uint64_t sequence,
			  struct hc_io_answer *answer_p)
{
	struct hc_io *io = hc_io_create(node, HC_STORE_ADOPT, NULL);

	if (!io)
		return -ENOMEM;
	io->request.disk = disk;
	snprintf(io->staging, sizeof(io->staging), "%s", staging);
	io->request.staging = io->staging;
	io->request.page = (struct hc_store_page){
		.sequence = sequence,
		.size_bytes = item->size_bytes,
		.checksum = item->checksum,
		.hash = item->key.hash,
		.parent = item->parent,
		.series = item->key.series,
		.depth = depth,
		.flags = (item->opaque_path ? HC_STORE_PAGE_OPAQUE : 0) |
			 (item->unnamed ? HC_STORE_PAGE_UNNAMED : 0),
	};
	if (item->opaque_path) {
		snprintf(io->name, sizeof(io->name), "%s", item->opaque_path);
		io->request.page.name = io->name;
	}
	return hc_io_run_file(node, io, hc_clock_now_ns() + HC_ADOPT_NS, answer_p);
}

/* adopt_lock held for reading. */
static int hc_publish_adopted(struct hc_node *node, uint16_t disk, const char *staging,
			      const struct hc_publish *item, const struct hc_publish_place *place,
			      uint64_t sequence, struct hc_replaced *replaced, uint32_t *number_p)
{
	struct hc_shard *shard = hc_node_shard(node, &item->key.hash);
	struct hc_io_answer answer;
	struct hc_entry *entry;
	uint32_t space = hc_series_space(node->registry, item->key.series);
	int rc;

	/* Counted before the child is on disk. */
	rc = hc_family_add(node, item->key.series, &item->parent, 0, 1);
	if (rc)
		return rc;
	rc = hc_stage_adopt(node, disk, staging, item, place->depth, sequence, &answer);
	if (rc) {
		hc_ignore(hc_family_add(node, item->key.series, &item->parent, 0, -1));
		return rc;
	}
	/* Paid before it can be removed by somebody else. */
	hc_ignore(hc_space_use(node->registry, space, (int64_t)item->size_bytes, true));
	hc_shard_lock(shard);
	rc = hc_publish_insert(node, shard, item, place, sequence, replaced, &entry);
	if (!rc) {
		entry->disk = disk;
		*number_p = entry->number;
		hc_disk_account(node, disk, 1, entry->size_bytes);
		hc_entry_push_space(node, entry);
		/* The checksum is of what the file holds. */
		hc_mark_file(node, entry->number, answer.mark);
	}
	hc_shard_unlock(shard);
	if (rc) {
		struct hc_after after = {
			.remove_file = true, .disk_id = disk, .number = HC_ENTRY_NONE};

		after.page = (struct hc_store_page){
			.sequence = sequence,
			.size_bytes = item->size_bytes,
			.series = item->key.series,
			.hash = item->key.hash,
		};
		hc_after_run(node, &after);
		hc_ignore(hc_family_add(node, item->key.series, &item->parent, 0, -1));
		hc_quota_give(node, space, item->size_bytes);
	}
	return rc;
}

int hc_node_publish_staged(struct hc_node *node, uint16_t disk, const char *staging,
			   const struct hc_publish *item)
{
	struct hc_shard *shard = hc_node_shard(node, &item->key.hash);
	struct hc_replaced replaced = {0};
	struct hc_publish_place place;
	uint64_t sequence, ticket;
	uint32_t number = HC_ENTRY_NONE;
	int rc;

	hc_assert(item->summed && item->size_bytes);
	hc_publish_place(node, item, hc_node_stamp(node), &place);
	pthread_rwlock_rdlock(&node->adopt_lock);
	sequence = hc_registry_next_sequence(node->registry);
	rc = hc_publish_attrs(node, item, sequence);
	if (!rc)
		rc = hc_publish_adopted(node, disk, staging, item, &place, sequence, &replaced,
					&number);
	if (rc)
		hc_publish_attrs_undo(node, item, sequence);
	pthread_rwlock_unlock(&node->adopt_lock);
	if (!rc && hc_row_put(node, number, sequence, true, &ticket))
		hc_warn(HC_NODE, "a page on disk has no catalog row: it is lost at the next start");
	hc_shard_lock(shard);
	hc_publish_replaced(node, shard, &replaced);
	hc_shard_unlock(shard);
	hc_after_run(node, &replaced.after);
	if (rc)
		return rc;
	if (item->opener)
		hc_walk_published(node->walks, &place.step,
				  (struct hc_link){number, (uint32_t)sequence}, false);
	hc_count_series(node, item->key.series, published, 1);
	hc_count_series(node, item->key.series, published_bytes, item->size_bytes);
	hc_publish_event(node, item, place.dir);
	return 0;
}
