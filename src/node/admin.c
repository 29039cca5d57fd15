/* SPDX-License-Identifier: Apache-2.0 */
/* What operators ask of the whole node: sync, evict, verify, gc, stats. */
#include "node/internal.h"

#define HC_ADMIN_BATCH   1024u
#define HC_ADMIN_LOOK_NS (20 * HC_NS_PER_MS)
#define HC_SYNC_ROUNDS   4 /* a sync of a cache that is written meanwhile */
/* A rename in a data directory may take 20 s, and another gc that long, too. */
#define HC_GC_WAIT_NS (45 * HC_NS_PER_S)

struct hc_admin_pick {
	struct hc_node *node;
	struct hc_page_info *pages;
	size_t n, room;
};

static int hc_admin_pick_one(void *arg, struct hc_entry *entry)
{
	struct hc_admin_pick *pick = arg;

	hc_entry_info(pick->node, entry, &pick->pages[pick->n++]);
	return 0;
}

/* Calls work on every page there is, in batches. */
static int hc_admin_walk(struct hc_node *node,
			 void (*work)(struct hc_node *node, const struct hc_page_info *page,
				      void *arg),
			 void *arg)
{
	struct hc_admin_pick pick = {.node = node, .room = HC_ADMIN_BATCH};
	uint64_t cursor = 0;
	bool more = true;

	pick.pages = malloc(pick.room * sizeof(*pick.pages));
	if (!pick.pages)
		return -ENOMEM;
	while (more) {
		pick.n = 0;
		more = hc_index_step(node->index, &cursor, pick.room, hc_admin_pick_one, &pick);
		for (size_t i = 0; i < pick.n; i++)
			work(node, &pick.pages[i], arg);
	}
	free(pick.pages);
	return 0;
}

/* --- sync --- */

static bool hc_backup_busy(struct hc_node *node)
{
	return atomic_load(&node->n_dirty) || atomic_load(&node->n_rows);
}

static bool hc_catalog_away(struct hc_node *node)
{
	return atomic_load(&node->catalog_renewing) || hc_catalog_is_lost(node->catalog);
}

/* A catalog that was lost is being written anew: what is in it then is waited for. */
static int hc_sync_catalog(struct hc_node *node, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t seen = hc_wait_seen(&node->room), now_ns = hc_clock_now_ns();
		int rc = hc_catalog_away(node) ? -EIO
					       : hc_catalog_sync(node->catalog, 0, deadline_ns);

		if (rc != -EIO || !hc_catalog_away(node) || now_ns >= deadline_ns)
			return rc;
		hc_wait_for(&node->room, seen, hc_min_u64(deadline_ns, now_ns + HC_ADMIN_LOOK_NS));
	}
}

/* A disk that is out has nothing that could be saved: its pages are misses. */
static int hc_sync_media(struct hc_node *node, uint64_t deadline_ns)
{
	uint16_t n_out = 0;

	for (uint16_t disk = 0; disk < hc_node_n_disks(node); disk++) {
		int rc = node->store->ops->sync(node->store, disk, deadline_ns);

		if (rc && (rc != -ENODEV || ++n_out == hc_node_n_disks(node)))
			return rc;
	}
	return node->catalog ? hc_sync_catalog(node, deadline_ns) : 0;
}

/* 0: on disk with its row; -EAGAIN: under way; else why it will not be. */
static int hc_sync_state(struct hc_node *node, uint32_t number, uint64_t sequence)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, number);
	struct hc_entry *entry;
	int rc;

	if (!shard)
		return -ENOENT;
	hc_shard_lock(shard);
	entry = hc_index_entry(node->index, number);
	if (!entry || entry->sequence != sequence || !(entry->flags & HC_ENTRY_NAMED))
		rc = -ENOENT;
	else if (entry->flags & HC_ENTRY_CATALOGUED)
		rc = 0;
	else if (entry->disk != HC_ENTRY_NO_DISK ||
		 entry->flags & (HC_ENTRY_DIRTY | HC_ENTRY_WRITING))
		rc = -EAGAIN;
	else
		rc = -EIO;
	hc_shard_unlock(shard);
	return rc;
}

/* Asks for the page and the ancestors that are not on disk, root first. */
static int hc_sync_force_chain(struct hc_node *node, uint32_t number, uint64_t sequence)
{
	struct hc_key *chain = NULL;
	struct hc_page_info info;
	size_t n = 0, room = 0;
	int rc = hc_node_stat_body(node, number, sequence, &info);

	if (rc)
		return -ENOENT;
	do {
		if (n == room) {
			size_t more = room ? 2 * room : 64;
			struct hc_key *grown = realloc(chain, more * sizeof(*chain));

			if (!grown) {
				free(chain);
				return -ENOMEM;
			}
			chain = grown;
			room = more;
		}
		chain[n++] = info.key;
	} while (!info.on_disk && !hc_hash_is_zero(&info.parent) && n < (1u << 24) &&
		 !hc_node_stat(node, &(struct hc_key){info.key.series, info.parent}, false, &info));
	while (n)
		hc_backup_force_key(node, &chain[--n]);
	free(chain);
	return 0;
}

int hc_node_sync_page(struct hc_node *node, uint32_t number, uint64_t sequence,
		      uint64_t deadline_ns)
{
	int rc;

	if (node->config.disk_off || !node->store)
		return 0;
	rc = hc_sync_force_chain(node, number, sequence);
	while (!rc) {
		uint64_t seen = hc_wait_seen(&node->room), now_ns = hc_clock_now_ns();

		rc = hc_sync_state(node, number, sequence);
		if (rc != -EAGAIN)
			break;
		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		hc_wait_for(&node->room, seen, hc_min_u64(deadline_ns, now_ns + HC_ADMIN_LOOK_NS));
		rc = 0;
	}
	if (rc == -EIO && hc_disk_over(node, node->config.max_page_bytes))
		rc = -ENOSPC;
	return rc ? rc : hc_sync_media(node, deadline_ns);
}

static void hc_sync_force_one(struct hc_node *node, const struct hc_page_info *page, void *arg)
{
	(void)arg;
	if (!page->on_disk && page->in_memory)
		hc_backup_force_key(node, &page->key);
}

static void hc_sync_count_one(struct hc_node *node, const struct hc_page_info *page, void *arg)
{
	uint64_t *n = arg;

	(void)node;
	if (!page->on_disk && page->in_memory)
		++*n;
}

/* One round: asks for everything, waits, counts what is not there. */
static int hc_sync_round(struct hc_node *node, uint64_t deadline_ns, uint64_t *n_left_p)
{
	int rc = hc_admin_walk(node, hc_sync_force_one, NULL);

	while (!rc && hc_backup_busy(node)) {
		uint64_t seen = hc_wait_seen(&node->room), now_ns = hc_clock_now_ns();

		if (now_ns >= deadline_ns)
			break;
		if (hc_backup_busy(node))
			hc_wait_for(&node->room, seen,
				    hc_min_u64(deadline_ns, now_ns + HC_ADMIN_LOOK_NS));
	}
	*n_left_p = 0;
	if (!rc)
		rc = hc_admin_walk(node, hc_sync_count_one, n_left_p);
	return rc;
}

static uint64_t hc_sync_n_off_disk(struct hc_node *node)
{
	return atomic_load(&node->count.evicted_disk);
}

/* Why pages of memory are not on disk after all rounds. What was written and had to make room for
 * the next has met a limit, whatever is free at this moment. */
static int hc_sync_why(struct hc_node *node, uint64_t n_off_disk_before)
{
	if (atomic_load(&node->n_dirty))
		return -ETIMEDOUT;
	if (hc_disk_over(node, node->config.max_page_bytes) ||
	    hc_sync_n_off_disk(node) != n_off_disk_before)
		return -ENOSPC;
	return -EIO;
}

int hc_node_sync(struct hc_node *node, uint64_t deadline_ns, uint64_t *n_left_p)
{
	uint64_t n_left = 0, n_off_disk;
	int rc = 0;

	*n_left_p = 0;
	if (node->config.disk_off || !node->store)
		return 0;
	n_off_disk = hc_sync_n_off_disk(node);
	/* What was published meanwhile is counted as left, but nobody had asked for it. */
	for (int i = 0; i < HC_SYNC_ROUNDS; i++) {
		rc = hc_sync_round(node, deadline_ns, &n_left);
		if (rc || !n_left || hc_clock_now_ns() >= deadline_ns)
			break;
	}
	*n_left_p = n_left;
	if (rc)
		return rc;
	rc = hc_sync_media(node, hc_max_u64(deadline_ns, hc_clock_now_ns() + HC_NS_PER_S));
	if (rc || !n_left)
		return rc;
	return hc_sync_why(node, n_off_disk);
}

/* --- evict --- */

struct hc_evict_call {
	struct hc_evict_result *result;
	bool memory_only;
};

static void hc_evict_one(struct hc_node *node, const struct hc_key *key, struct hc_evict_call *call)
{
	struct hc_shard *shard = hc_node_shard(node, &key->hash);
	struct hc_after after = {0};
	struct hc_entry *entry;
	uint64_t size_bytes = 0;
	bool kept = false, gone = false;

	hc_shard_lock(shard);
	entry = hc_shard_find(shard, key);
	if (entry && (!call->memory_only || entry->slot != HC_ENTRY_NO_SLOT)) {
		size_bytes = entry->size_bytes;
		kept = !hc_entry_settled(entry) || hc_entry_pinned(entry) ||
		       entry->flags & HC_ENTRY_DIRTY;
		if (call->memory_only)
			kept |= entry->disk == HC_ENTRY_NO_DISK;
		gone = !kept;
		if (gone && call->memory_only) {
			hc_entry_drop_slot(node, entry, &after);
			entry->flags &= (uint16_t) ~(HC_ENTRY_IN_MEM | HC_ENTRY_CHECKED);
			hc_entry_push_space(node, entry);
			hc_count_series(node, key->series, evicted_memory, 1);
			hc_count_series(node, key->series, evicted_memory_bytes, size_bytes);
		} else if (gone) {
			hc_entry_remove(node, shard, entry, false, &after);
		}
	}
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	call->result->n_kept += kept;
	call->result->n_evicted += gone;
	call->result->bytes_evicted += gone ? size_bytes : 0;
}

static int hc_key_deeper(const void *a, const void *b)
{
	const struct hc_page_info *x = a, *y = b;

	return x->depth > y->depth ? -1 : x->depth < y->depth;
}

struct hc_collect {
	struct hc_page_info *pages;
	size_t n, room;
	int rc;
};

static void hc_collect_one(struct hc_node *node, const struct hc_page_info *page, void *arg)
{
	struct hc_collect *collect = arg;

	(void)node;
	if (collect->n == collect->room) {
		size_t room = collect->room ? 2 * collect->room : HC_ADMIN_BATCH;
		struct hc_page_info *pages = realloc(collect->pages, room * sizeof(*pages));

		if (!pages) {
			collect->rc = -ENOMEM;
			return;
		}
		collect->pages = pages;
		collect->room = room;
	}
	collect->pages[collect->n++] = *page;
}

/* Deepest first, so that at no moment a page lacks its parent. */
static int hc_evict_pages(struct hc_node *node, struct hc_collect *collect, bool memory_only,
			  uint64_t deadline_ns, struct hc_evict_result *result_p)
{
	struct hc_evict_result result = {0};
	struct hc_evict_call call = {&result, memory_only};
	uint64_t n_left;
	int rc = 0;

	/* What cannot be backed up is kept, and counted. */
	if (node->store && !node->config.disk_off)
		rc = memory_only ? hc_node_sync(node, deadline_ns, &n_left)
				 : hc_backup_quiet(node, deadline_ns);
	if (rc)
		hc_debug(HC_NODE, "evict: not everything is backed up: %s", strerror(-rc));
	if (collect->n)
		qsort(collect->pages, collect->n, sizeof(*collect->pages), hc_key_deeper);
	for (size_t i = 0; i < collect->n; i++) {
		hc_evict_one(node, &collect->pages[i].key, &call);
		if (memory_only)
			hc_file_cool(node, &collect->pages[i]);
	}
	free(collect->pages);
	*result_p = result;
	return 0;
}

/* Waits until no backup is under way, so that pages which are just dirty can go. */
int hc_backup_quiet(struct hc_node *node, uint64_t deadline_ns)
{
	while (hc_backup_busy(node)) {
		uint64_t seen = hc_wait_seen(&node->room), now_ns = hc_clock_now_ns();

		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		if (hc_backup_busy(node))
			hc_wait_for(&node->room, seen,
				    hc_min_u64(deadline_ns, now_ns + HC_ADMIN_LOOK_NS));
	}
	return 0;
}

int hc_node_evict(struct hc_node *node, const struct hc_key *keys, size_t n, bool memory_only,
		  uint64_t deadline_ns, struct hc_evict_result *result_p)
{
	struct hc_collect collect = {0};
	int rc = 0;

	if (!keys) {
		rc = hc_admin_walk(node, hc_collect_one, &collect);
	} else {
		for (size_t i = 0; i < n; i++) {
			struct hc_page_info info;

			if (!hc_node_stat(node, &keys[i], false, &info))
				hc_collect_one(node, &info, &collect);
		}
	}
	if (!rc)
		rc = collect.rc;
	if (rc) {
		free(collect.pages);
		return rc;
	}
	return hc_evict_pages(node, &collect, memory_only, deadline_ns, result_p);
}

static int hc_collect_dir(struct hc_node *node, uint32_t dir, struct hc_collect *collect,
			  unsigned level)
{
	struct hc_dir_item *items;
	struct hc_dir_info *dirs;
	size_t n;
	int rc;

	if (level > 128)
		return -ELOOP;
	rc = hc_index_dir_snapshot(node->index, dir, &items, &n);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		struct hc_page_info info;

		if (!hc_node_stat_body(node, items[i].number, items[i].sequence, &info))
			hc_collect_one(node, &info, collect);
	}
	free(items);
	rc = hc_dir_list(node->registry, dir, &dirs, &n);
	for (size_t i = 0; !rc && i < n; i++)
		rc = hc_collect_dir(node, dirs[i].id, collect, level + 1);
	if (!rc || n)
		free(dirs);
	return rc ? rc : collect->rc;
}

int hc_node_evict_dir(struct hc_node *node, uint32_t dir, bool memory_only, uint64_t deadline_ns,
		      struct hc_evict_result *result_p)
{
	struct hc_collect collect = {0};
	int rc = hc_collect_dir(node, dir, &collect, 0);

	if (rc) {
		free(collect.pages);
		return rc;
	}
	return hc_evict_pages(node, &collect, memory_only, deadline_ns, result_p);
}

int hc_node_pages_below(struct hc_node *node, uint32_t dir, struct hc_page_info **pages_p,
			size_t *n_p)
{
	struct hc_collect collect = {0};
	int rc = hc_collect_dir(node, dir, &collect, 0);

	if (rc) {
		free(collect.pages);
		return rc;
	}
	*pages_p = collect.pages;
	*n_p = collect.n;
	return 0;
}

struct hc_count_spaces {
	struct hc_node *node;
	struct hc_space_pages *list;
	size_t n;
};

static int hc_count_space(void *arg, struct hc_entry *entry)
{
	struct hc_count_spaces *count = arg;
	uint32_t space = hc_series_space(count->node->registry, entry->series);
	struct hc_space_pages *pages = space < count->n ? &count->list[space] : NULL;

	if (pages && entry->slot != HC_ENTRY_NO_SLOT && !(entry->flags & HC_ENTRY_LOADING)) {
		pages->n_memory++;
		pages->memory_bytes += entry->size_bytes;
	}
	if (pages && entry->disk != HC_ENTRY_NO_DISK) {
		pages->n_disk++;
		pages->disk_bytes += entry->size_bytes;
	}
	return 0;
}

int hc_node_space_pages(struct hc_node *node, struct hc_space_pages **list_p, size_t *n_p)
{
	struct hc_count_spaces count = {.node = node};
	struct hc_space_info *spaces;
	uint64_t cursor = 0;
	size_t n;
	int rc = hc_space_list(node->registry, &spaces, &n);

	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++)
		count.n = hc_max_u64(count.n, spaces[i].id + (uint64_t)1);
	free(spaces);
	count.list = calloc(count.n + 1, sizeof(*count.list));
	if (!count.list)
		return -ENOMEM;
	while (hc_index_step(node->index, &cursor, HC_ADMIN_BATCH, hc_count_space, &count))
		;
	*list_p = count.list;
	*n_p = count.n;
	return 0;
}

void hc_node_drain(struct hc_node *node, bool drain)
{
	if (atomic_exchange(&node->draining, drain) != drain)
		hc_info(HC_NODE, drain ? "draining: no new pages until the drain ends"
				       : "the drain ended: new pages are taken again");
}

bool hc_node_draining(struct hc_node *node)
{
	return atomic_load_explicit(&node->draining, memory_order_relaxed);
}

/* --- verify and gc --- */

int hc_node_verify(struct hc_node *node, bool (*progress)(void *arg, uint64_t done, uint64_t total),
		   void *arg, struct hc_verify_result *result_p)
{
	struct hc_verify_result result = {0};
	struct hc_collect collect = {0};
	int rc = hc_admin_walk(node, hc_collect_one, &collect);

	if (!rc)
		rc = collect.rc;
	for (size_t i = 0; !rc && i < collect.n; i++) {
		const struct hc_page_info *page = &collect.pages[i];
		int disk = hc_scrub_page(node, page, hc_clock_now_ns() + HC_VERIFY_NS);
		int memory = hc_scrub_memory(node, page);

		result.n_checked++;
		result.bytes_checked += page->size_bytes;
		if (disk == -EBADMSG || memory == -EBADMSG)
			result.n_bad++;
		else if (disk)
			rc = disk;
		if (progress && !progress(arg, i + 1, collect.n) && !rc)
			rc = -ECANCELED;
	}
	free(collect.pages);
	if (!rc)
		*result_p = result;
	return rc;
}

static bool hc_gc_keep(void *arg, uint32_t series, const struct hc_hash *hash, uint64_t sequence)
{
	struct hc_node *node = arg;
	struct hc_key key = {series, *hash};
	struct hc_shard *shard = hc_node_shard(node, hash);
	struct hc_entry *entry;
	bool keep;

	/* What is newer than this walk may be on its way to its row. */
	if (sequence >= node->gc_sequence)
		return true;
	hc_shard_lock(shard);
	entry = hc_shard_find(shard, &key);
	keep = entry && entry->sequence == sequence;
	hc_shard_unlock(shard);
	return keep;
}

/* For locks, which know the wall clock only. */
static void hc_deadline_of(uint64_t wait_ns, struct timespec *deadline_p)
{
	uint64_t ns = hc_clock_wall_ns() + wait_ns;

	deadline_p->tv_sec = (time_t)(ns / HC_NS_PER_S);
	deadline_p->tv_nsec = (long)(ns % HC_NS_PER_S);
}

/* -EAGAIN: another one runs, or a disk keeps a publish from ending. */
int hc_sweep(struct hc_node *node, bool quarantine, uint64_t *n_removed_p, uint64_t *bytes_p)
{
	uint64_t n_removed = 0, bytes = 0;
	struct timespec deadline;
	int rc = 0;

	*n_removed_p = 0;
	*bytes_p = 0;
	if (!node->store)
		return 0;
	if (atomic_load(&node->rebuilding))
		return -EAGAIN;
	hc_deadline_of(HC_GC_WAIT_NS, &deadline);
	if (pthread_mutex_timedlock(&node->gc_lock, &deadline))
		return -EAGAIN;
	/* Staging files that are being adopted have their sequence, but no entry yet: wait for
	 * those. */
	if (pthread_rwlock_timedwrlock(&node->adopt_lock, &deadline)) {
		pthread_mutex_unlock(&node->gc_lock);
		return -EAGAIN;
	}
	node->gc_sequence = hc_registry_next_sequence(node->registry);
	pthread_rwlock_unlock(&node->adopt_lock);
	for (uint16_t disk = 0; !rc && disk < hc_node_n_disks(node); disk++) {
		uint64_t n, b;

		rc = node->store->ops->sweep(node->store, disk, hc_gc_keep, node, quarantine, &n,
					     &b);
		if (!rc) {
			n_removed += n;
			bytes += b;
		}
	}
	pthread_mutex_unlock(&node->gc_lock);
	*n_removed_p = n_removed;
	*bytes_p = bytes;
	return rc;
}

int hc_node_gc(struct hc_node *node, uint64_t *n_removed_p, uint64_t *bytes_p)
{
	return hc_sweep(node, true, n_removed_p, bytes_p);
}

void hc_node_stats(struct hc_node *node, struct hc_node_stats *stats_p)
{
	struct hc_node_stats stats = {0};
	struct hc_node_limits limits;

#define HC_NODE_COUNTER_COPY(name) \
	stats.name = atomic_load_explicit(&node->count.name, memory_order_relaxed);
	HC_NODE_COUNTERS(HC_NODE_COUNTER_COPY)
#undef HC_NODE_COUNTER_COPY
	hc_node_limits_get(node, &limits);
	stats.n_pages = hc_index_count(node->index);
	stats.n_pages_memory = atomic_load(&node->n_memory);
	stats.n_pages_disk = atomic_load(&node->n_disk);
	stats.n_dirty = atomic_load(&node->n_dirty);
	stats.memory_bytes = atomic_load(&node->memory_bytes);
	stats.disk_used_bytes = atomic_load(&node->disk_bytes);
	stats.disk_limit_bytes = limits.disk_bytes;
	stats.dirty_bytes = atomic_load(&node->dirty_bytes);
	stats.index_bytes = hc_index_bytes(node->index);
	stats.n_refs = atomic_load(&node->n_refs);
	stats.rebuilding = atomic_load(&node->rebuilding);
	hc_pool_stats(node->pool, &stats.pool);
	if (node->catalog)
		hc_catalog_stats(node->catalog, &stats.catalog);
	*stats_p = stats;
}
