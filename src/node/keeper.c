/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper: what must happen some time, on a thread that nobody waits for: the catalog written
 * anew, the rebuild from page files, orphans, expiry, the scrubber, pages of a disk that was taken
 * out, recency. */
#include "model/checksum.h"
#include "node/internal.h"

#define HC_KEEPER_TICK_NS    HC_NS_PER_S
#define HC_RECENCY_EVERY_NS  (300 * HC_NS_PER_S)
#define HC_EXPIRE_EVERY_NS   (10 * HC_NS_PER_S)
#define HC_SWEEP_AFTER_NS    (60 * HC_NS_PER_S) /* after the start, once */
#define HC_KEEPER_BATCH      1024u
#define HC_SCRUB_PAGES       8u /* a tick, when nobody used the cache since the last one */
#define HC_SCRUB_DEADLINE_NS (30 * HC_NS_PER_S)

/* Entries picked under their shard's lock, to be worked on without it. */
struct hc_pick {
	struct hc_node *node;
	struct hc_page_info pages[HC_KEEPER_BATCH];
	size_t n;
	uint16_t disk;
	bool (*want)(struct hc_pick *pick, const struct hc_entry *entry);
};

static int hc_pick_one(void *arg, struct hc_entry *entry)
{
	struct hc_pick *pick = arg;

	if (pick->want(pick, entry))
		hc_entry_info(pick->node, entry, &pick->pages[pick->n++]);
	return 0;
}

/* Walks the whole index in steps and calls work on each batch of picked pages. */
static void hc_keeper_walk(struct hc_node *node, uint16_t disk,
			   bool (*want)(struct hc_pick *pick, const struct hc_entry *entry),
			   void (*work)(struct hc_node *node, const struct hc_page_info *page))
{
	struct hc_pick *pick = hc_zalloc(sizeof(*pick));
	uint64_t cursor = 0;
	bool more = pick;

	while (more && !atomic_load(&node->stop)) {
		pick->node = node;
		pick->n = 0;
		pick->disk = disk;
		pick->want = want;
		more = hc_index_step(node->index, &cursor, HC_KEEPER_BATCH, hc_pick_one, pick);
		for (size_t i = 0; i < pick->n; i++)
			work(node, &pick->pages[i]);
	}
	free(pick);
}

/* Removes a body if it is still that one. */
static bool hc_keeper_remove(struct hc_node *node, const struct hc_page_info *page, bool quarantine)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, page->entry);
	struct hc_entry *entry = hc_index_entry(node->index, page->entry);
	struct hc_after after = {0};
	bool removed = false;

	hc_shard_lock(shard);
	if (entry->sequence == page->sequence && entry->flags & HC_ENTRY_NAMED) {
		hc_entry_remove(node, shard, entry, quarantine, &after);
		removed = true;
	}
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	return removed;
}

static bool hc_want_expired(struct hc_pick *pick, const struct hc_entry *entry)
{
	return !hc_entry_pinned(entry) &&
	       entry->mtime_ns < hc_node_expire_before(pick->node, entry->series);
}

static void hc_work_expired(struct hc_node *node, const struct hc_page_info *page)
{
	if (hc_keeper_remove(node, page, false))
		hc_count(node, expired);
}

/* --- orphans: pages whose known parent is gone, and all behind them --- */

struct hc_child {
	uint64_t sequence;
	uint32_t number;
	uint32_t depth;
};

struct hc_children {
	struct hc_child *list;
	size_t n, room;
};

static int hc_child_note(void *arg, struct hc_entry *entry)
{
	struct hc_children *children = arg;

	if (!hc_hash_is_zero(&entry->parent) && children->n < children->room)
		children->list[children->n++] =
			(struct hc_child){entry->sequence, entry->number, entry->depth};
	return 0;
}

static int hc_child_compare(const void *a, const void *b)
{
	const struct hc_child *x = a, *y = b;

	return x->depth < y->depth ? -1 : x->depth > y->depth;
}

static void hc_child_judge(struct hc_node *node, const struct hc_child *child)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, child->number);
	struct hc_entry *entry = hc_index_entry(node->index, child->number), *parent;
	struct hc_key key = {0};
	bool orphan, there;

	hc_shard_lock(shard);
	there = entry->sequence == child->sequence && entry->flags & HC_ENTRY_NAMED;
	if (there)
		key = (struct hc_key){entry->series, entry->parent};
	hc_shard_unlock(shard);
	if (!there)
		return;
	hc_shard_lock(hc_node_shard(node, &key.hash));
	parent = hc_shard_find(hc_node_shard(node, &key.hash), &key);
	orphan = !parent || parent->flags & HC_ENTRY_ORPHAN;
	hc_shard_unlock(hc_node_shard(node, &key.hash));
	if (orphan)
		atomic_store(&node->orphans_known, true);
	hc_shard_lock(shard);
	if (entry->sequence == child->sequence && entry->flags & HC_ENTRY_NAMED &&
	    orphan != !!(entry->flags & HC_ENTRY_ORPHAN)) {
		entry->flags ^= HC_ENTRY_ORPHAN;
		/* The key fell: the old record would come too late, so a second one is filed. */
		entry->flags &= (uint16_t) ~(HC_ENTRY_IN_MEM | HC_ENTRY_IN_SPACE);
		hc_entry_push_mem(node, entry);
		hc_entry_push_space(node, entry);
	}
	hc_shard_unlock(shard);
}

/* Root first, so that one pass reaches the ends of all chains. */
static void hc_keeper_orphans(struct hc_node *node)
{
	struct hc_children children = {0};

	if (!atomic_exchange(&node->orphans, false))
		return;
	children.room = hc_index_count(node->index) + HC_KEEPER_BATCH;
	children.list = malloc(children.room * sizeof(*children.list));
	if (!children.list)
		return;
	hc_index_each(node->index, hc_child_note, &children);
	if (children.n)
		qsort(children.list, children.n, sizeof(*children.list), hc_child_compare);
	/* Found anew by the pass. */
	atomic_store(&node->orphans_known, false);
	for (size_t i = 0; i < children.n && !atomic_load(&node->stop); i++)
		hc_child_judge(node, &children.list[i]);
	free(children.list);
}

static bool hc_want_disk(struct hc_pick *pick, const struct hc_entry *entry)
{
	return entry->disk == pick->disk;
}

/* A disk that was taken out: its pages are misses, unless memory has them. */
static void hc_work_disk_out(struct hc_node *node, const struct hc_page_info *page)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, page->entry);
	struct hc_entry *entry = hc_index_entry(node->index, page->entry);
	struct hc_after after = {0};

	hc_shard_lock(shard);
	if (entry->sequence == page->sequence && entry->flags & HC_ENTRY_NAMED &&
	    entry->disk != HC_ENTRY_NO_DISK && !(entry->flags & HC_ENTRY_LOADING)) {
		if (entry->slot == HC_ENTRY_NO_SLOT) {
			hc_entry_lose(node, shard, entry, &after);
		} else {
			/* The row goes: the page lives on in memory, and must not come back after
			 * an unlink. */
			hc_entry_drop_disk(node, entry, false, &after);
			entry->flags =
				(uint16_t)((entry->flags | HC_ENTRY_SKIPPED) & ~HC_ENTRY_REMOVING);
			after.remove_file = false;
		}
	}
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
}

static void hc_keeper_disks(struct hc_node *node, uint64_t *out)
{
	for (uint16_t disk = 0; disk < hc_node_n_disks(node) && disk < HC_DISKS_MAX; disk++) {
		struct hc_store_disk_info info;

		if (*out >> disk & 1 || hc_node_disk_info(node, disk, &info) || !info.out)
			continue;
		*out |= (uint64_t)1 << disk;
		hc_count(node, disks_out);
		hc_keeper_walk(node, disk, hc_want_disk, hc_work_disk_out);
	}
}

static void hc_keeper_catalog(struct hc_node *node)
{
	int rc = hc_catalog_renew(node->catalog);

	if (!rc)
		rc = hc_registry_put_all(node->registry);
	if (rc) {
		hc_error(HC_NODE,
			 "the catalog cannot be written anew: %s; pages stay served, a restart "
			 "would lose them",
			 strerror(-rc));
		return;
	}
	atomic_store(&node->catalog_gone, false);
	rc = hc_rows_put_all(node);
	if (!rc && !atomic_load(&node->rebuilding))
		rc = hc_registry_rebuilt(node->registry);
	if (rc)
		hc_warn(HC_NODE,
			"the catalog is not whole yet: %s; the next start reads the page files",
			strerror(-rc));
	else
		hc_info(HC_NODE, "the catalog was written anew");
	if (!atomic_load(&node->catalog_gone))
		atomic_store(&node->catalog_renewing, false);
	hc_wait_wake(&node->room);
}

static int hc_row_pick(void *arg, struct hc_entry *entry)
{
	struct hc_pick *pick = arg;

	if (entry->disk != HC_ENTRY_NO_DISK)
		hc_entry_info(pick->node, entry, &pick->pages[pick->n++]);
	return 0;
}

int hc_rows_put_all(struct hc_node *node)
{
	struct hc_pick *pick = hc_zalloc(sizeof(*pick));
	uint64_t cursor = 0, ticket;
	bool more = pick;
	int rc = pick ? 0 : -ENOMEM;

	while (more && !rc) {
		pick->node = node;
		pick->n = 0;
		more = hc_index_step(node->index, &cursor, HC_KEEPER_BATCH, hc_row_pick, pick);
		for (size_t i = 0; i < pick->n && !rc; i++) {
			rc = hc_row_put(node, pick->pages[i].entry, pick->pages[i].sequence, false,
					&ticket);
			/* Gone meanwhile. */
			if (rc == -ESTALE || rc == -ENOENT)
				rc = 0;
		}
	}
	free(pick);
	return rc;
}

/* --- scrubber --- */

/* Reads one page back where it lies: 0, or -EBADMSG when it was bad and is gone now. */
int hc_scrub_page(struct hc_node *node, const struct hc_page_info *page, uint64_t deadline_ns)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, page->entry);
	struct hc_entry *entry = hc_index_entry(node->index, page->entry);
	struct hc_io *io;
	int rc = 0;

	if (page->on_disk && node->store) {
		io = hc_io_create(node, HC_STORE_VERIFY, NULL);
		if (!io)
			return -ENOMEM;
		hc_shard_lock(shard);
		if (entry->sequence != page->sequence || entry->disk == HC_ENTRY_NO_DISK) {
			hc_shard_unlock(shard);
			free(io);
			return 0;
		}
		io->request.disk = entry->disk;
		hc_entry_store_page(entry, &io->request.page);
		hc_shard_unlock(shard);
		rc = hc_io_run(node, io, deadline_ns);
	}
	hc_count(node, scrubbed);
	hc_count_n(node, scrubbed_bytes, page->size_bytes);
	if (rc == -EBADMSG || rc == -ENOENT || rc == -EIO) {
		/* The look and the file's removal may have crossed: only a body that is still named
		 * was bad. */
		if (!hc_keeper_remove(node, page, rc != -ENOENT))
			return 0;
		hc_count(node, bad_scrub);
		if (rc != -ENOENT) {
			hc_count_series(node, page->key.series, bad_checksum, 1);
			hc_count(node, quarantined);
		} else {
			hc_count_series(node, page->key.series, bad_missing, 1);
		}
		return -EBADMSG;
	}
	if (!rc && page->on_disk) {
		hc_shard_lock(shard);
		if (entry->sequence == page->sequence)
			entry->flags |= HC_ENTRY_CHECKED;
		hc_shard_unlock(shard);
	}
	return rc;
}

/* A memory copy, checked under a ref. */
int hc_scrub_memory(struct hc_node *node, const struct hc_page_info *page)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, page->entry);
	struct hc_entry *entry = hc_index_entry(node->index, page->entry);
	struct hc_ref ref = {.entry = page->entry, .sequence = page->sequence};
	struct hc_after after = {0};
	bool there, good;

	hc_shard_lock(shard);
	there = entry->sequence == page->sequence && entry->flags & HC_ENTRY_NAMED &&
		entry->slot != HC_ENTRY_NO_SLOT && !(entry->flags & HC_ENTRY_LOADING);
	if (there) {
		entry->refs++;
		ref.data = hc_pool_data(node->pool, entry->slot);
	}
	hc_shard_unlock(shard);
	if (!there)
		return 0;
	atomic_fetch_add(&node->n_refs, 1);
	good = hc_checksum(ref.data, page->size_bytes) == page->checksum;
	hc_shard_lock(shard);
	if (good) {
		entry->flags &= (uint16_t)~HC_ENTRY_UNVERIFIED;
	} else if (entry->flags & HC_ENTRY_NAMED) {
		hc_count(node, bad_scrub);
		hc_entry_remove(node, shard, entry, false, &after);
	}
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	hc_node_release(node, &ref, 1);
	return good ? 0 : -EBADMSG;
}

static bool hc_want_any(struct hc_pick *pick, const struct hc_entry *entry)
{
	(void)pick;
	return !(entry->flags & HC_ENTRY_LOADING);
}

static void hc_keeper_scrub(struct hc_node *node, uint64_t n)
{
	struct hc_pick *pick = hc_zalloc(sizeof(*pick));
	uint64_t done = 0, rounds = 0, cursor;

	while (pick && done < n && rounds < 2 && !atomic_load(&node->stop)) {
		pick->node = node;
		pick->n = 0;
		pick->want = hc_want_any;
		cursor = atomic_load(&node->scrub_cursor);
		if (!hc_index_step(node->index, &cursor, hc_min_u64(n - done, HC_KEEPER_BATCH),
				   hc_pick_one, pick)) {
			cursor = 0;
			rounds++;
		}
		/* Of two that scrub at once the last decides: both look at the same pages then. */
		atomic_store(&node->scrub_cursor, cursor);
		for (size_t i = 0; i < pick->n && !atomic_load(&node->stop); i++) {
			hc_ignore(hc_scrub_page(node, &pick->pages[i],
						hc_clock_now_ns() + HC_SCRUB_DEADLINE_NS));
			if (pick->pages[i].flags & HC_ENTRY_UNVERIFIED)
				hc_ignore(hc_scrub_memory(node, &pick->pages[i]));
		}
		done += pick->n;
	}
	free(pick);
}

/* --- recency --- */

struct hc_recency_fill {
	struct hc_recency *rows;
	size_t n, room;
};

static int hc_recency_one(void *arg, struct hc_entry *entry)
{
	struct hc_recency_fill *fill = arg;

	if (fill->n < fill->room)
		fill->rows[fill->n++] =
			(struct hc_recency){entry->sequence, entry->stamp, entry->hits};
	return 0;
}

static int hc_recency_order(const void *a, const void *b)
{
	const struct hc_recency *x = a, *y = b;

	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

void hc_recency_store(struct hc_node *node)
{
	struct hc_recency_fill fill = {.room = hc_index_count(node->index) + HC_KEEPER_BATCH};
	int rc = 0;

	fill.rows = malloc(fill.room * sizeof(*fill.rows));
	if (!fill.rows)
		return;
	hc_index_each(node->index, hc_recency_one, &fill);
	/* As a start wants them: it merges them with the rows. */
	if (fill.n)
		qsort(fill.rows, fill.n, sizeof(*fill.rows), hc_recency_order);
	rc = hc_catalog_recency_store(node->catalog, fill.rows, fill.n);
	if (rc)
		hc_warn(HC_NODE, "recency could not be stored: %s", strerror(-rc));
	free(fill.rows);
}

/* --- thread --- */

static uint64_t hc_keeper_activity(struct hc_node *node)
{
	return atomic_load(&node->count.acquires) + atomic_load(&node->count.published) +
	       atomic_load(&node->count.backed_up);
}

void hc_node_maintain(struct hc_node *node, uint64_t n_scrub)
{
	hc_keeper_orphans(node);
	hc_keeper_walk(node, 0, hc_want_expired, hc_work_expired);
	if (n_scrub)
		hc_keeper_scrub(node, n_scrub);
	hc_evict_disk(node, 0);
}

/* Files that a kill left without a row, or an unlink that found no room. */
static void hc_keeper_sweep(struct hc_node *node)
{
	uint64_t n, bytes;
	int rc = hc_sweep(node, false, &n, &bytes);

	if (rc && rc != -EAGAIN)
		hc_warn(HC_NODE,
			"cannot sweep page files without a row: %s; hicachectl gc tries again",
			strerror(-rc));
	else if (n)
		hc_info(HC_NODE, "swept %llu page files without a row (%llu bytes)",
			(unsigned long long)n, (unsigned long long)bytes);
}

static void *hc_keeper_main(void *arg)
{
	struct hc_node *node = arg;
	uint64_t activity = UINT64_MAX, expired_ns = 0, out = 0, started_ns = hc_clock_now_ns();
	bool swept = false;

	pthread_setname_np(pthread_self(), "hc-keeper");
	node->recency_ns = hc_clock_now_ns();
	while (!atomic_load(&node->stop)) {
		uint64_t rung = hc_wait_seen(&node->keeper_bell), now_ns = hc_clock_now_ns();
		uint64_t busy = hc_keeper_activity(node);

		if (atomic_load(&node->catalog_gone))
			hc_keeper_catalog(node);
		if (atomic_load(&node->rebuilding))
			hc_rebuild(node);
		hc_keeper_disks(node, &out);
		hc_keeper_orphans(node);
		if (now_ns - expired_ns >= HC_EXPIRE_EVERY_NS) {
			expired_ns = now_ns;
			hc_keeper_walk(node, 0, hc_want_expired, hc_work_expired);
		}
		if (busy == activity) {
			hc_keeper_scrub(node, HC_SCRUB_PAGES);
			if (!swept && now_ns - started_ns >= HC_SWEEP_AFTER_NS) {
				swept = true;
				atomic_store(&node->sweep, true);
			}
			if (node->store && !atomic_load(&node->rebuilding) &&
			    atomic_exchange(&node->sweep, false))
				hc_keeper_sweep(node);
		}
		activity = busy;
		if (node->catalog && now_ns - node->recency_ns >= HC_RECENCY_EVERY_NS) {
			node->recency_ns = now_ns;
			hc_recency_store(node);
		}
		if (!atomic_load(&node->stop))
			hc_wait_for(&node->keeper_bell, rung,
				    hc_clock_now_ns() + HC_KEEPER_TICK_NS);
	}
	return NULL;
}

int hc_keeper_start(struct hc_node *node)
{
	int rc = pthread_create(&node->thread_keeper, NULL, hc_keeper_main, node);

	node->has_keeper = !rc;
	return -rc;
}

void hc_keeper_stop(struct hc_node *node)
{
	if (!node->has_keeper)
		return;
	hc_wait_wake(&node->keeper_bell);
	pthread_join(node->thread_keeper, NULL);
	node->has_keeper = false;
}
