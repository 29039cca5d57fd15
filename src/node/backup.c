/* SPDX-License-Identifier: Apache-2.0 */
/* Write-behind: dirty pages go to the store in the order of their publish. A page on disk never
 * lacks a known parent there: admission goes by chain, and a written page whose parent is not
 * written yet waits for it (its file has no row until then, so a crash leaves only a file to
 * sweep). */
#include "model/checksum.h"
#include "node/internal.h"
#include "store/place.h"

#define HC_DAY_S 86400u
/* How long a full store queue holds up the backup thread before the page is queued again. */
#define HC_BACKUP_SUBMIT_NS HC_NS_PER_S
/* How long unlinks under way are waited for on a full disk. */
#define HC_BACKUP_UNLINK_NS HC_NS_PER_S
#define HC_BACKUP_LOOK_NS   (10 * HC_NS_PER_MS)

enum hc_parent_state { HC_PARENT_NONE, HC_PARENT_DISK, HC_PARENT_PENDING, HC_PARENT_SKIPPED };

static enum hc_parent_state hc_parent_state(struct hc_node *node, uint32_t series,
					    const struct hc_hash *hash)
{
	struct hc_key key = {series, *hash};
	enum hc_parent_state state = HC_PARENT_NONE;
	struct hc_shard *shard;
	struct hc_entry *entry;

	if (hc_hash_is_zero(hash))
		return state;
	shard = hc_node_shard(node, hash);
	hc_shard_lock(shard);
	entry = hc_shard_find(shard, &key);
	if (entry && entry->disk != HC_ENTRY_NO_DISK)
		state = HC_PARENT_DISK;
	else if (entry && entry->flags & (HC_ENTRY_DIRTY | HC_ENTRY_WRITING))
		state = HC_PARENT_PENDING;
	else if (entry)
		state = HC_PARENT_SKIPPED;
	hc_shard_unlock(shard);
	return state;
}

/* What was decided for the same hash in another series of its space (another rank). */
static enum hc_parent_state hc_sibling_state(struct hc_node *node, const struct hc_key *key)
{
	enum hc_parent_state state = HC_PARENT_NONE;
	struct hc_space_info space;
	uint32_t *ids;
	size_t n;

	if (hc_space_get(node->registry, hc_series_space(node->registry, key->series), &space) ||
	    space.n_series < 2 || space.n_series > HC_SIBLINGS_MAX ||
	    hc_series_list(node->registry, space.id, &ids, &n))
		return state;
	for (size_t i = 0; i < n && state == HC_PARENT_NONE; i++) {
		if (ids[i] != key->series)
			state = hc_parent_state(node, ids[i], &key->hash);
	}
	free(ids);
	return state;
}

bool hc_budget_left(struct hc_node *node)
{
	uint64_t day = hc_clock_wall_ns() / HC_NS_PER_S / HC_DAY_S;
	bool left;

	if (!node->config.write_budget_bytes)
		return true;
	pthread_mutex_lock(&node->backup_lock);
	if (day != node->budget_day) {
		node->budget_day = day;
		node->budget_used_bytes = 0;
	}
	left = node->budget_used_bytes < node->config.write_budget_bytes;
	pthread_mutex_unlock(&node->backup_lock);
	return left;
}

bool hc_backup_verdict(struct hc_node *node, const struct hc_publish *item, bool previous_skipped)
{
	enum hc_parent_state parent, sibling;
	struct hc_node_limits limits;
	uint64_t limit;

	hc_node_limits_get(node, &limits);
	if (!node->store || limits.backup != HC_BACKUP_PUBLISH)
		return true;
	if (!hc_budget_left(node)) {
		hc_count(node, backup_budget_held);
		return true;
	}
	parent = hc_parent_state(node, item->key.series, &item->parent);
	if (parent == HC_PARENT_SKIPPED || previous_skipped)
		return true;
	sibling = hc_sibling_state(node, &item->key);
	if (sibling != HC_PARENT_NONE)
		return sibling == HC_PARENT_SKIPPED;
	limit = hc_ppm(hc_node_pool_bytes(node), limits.dirty_ppm);
	return atomic_load(&node->dirty_bytes) + item->size_bytes > limit;
}

/* A page that cannot be queued is one whose backup failed: left dirty it would wait for ever. */
static bool hc_backup_push(struct hc_node *node, struct hc_entry *entry)
{
	struct hc_backup_item item = {entry->number, entry->sequence};
	int rc;

	pthread_mutex_lock(&node->backup_lock);
	rc = hc_queue_push(&node->backup_queue, item);
	pthread_cond_signal(&node->backup_cond);
	pthread_mutex_unlock(&node->backup_lock);
	if (!rc)
		return true;
	hc_warn(HC_NODE, "no memory to queue a backup");
	hc_count_series(node, entry->series, backup_failed, 1);
	hc_entry_clean(node, entry);
	entry->flags |= HC_ENTRY_SKIPPED;
	return false;
}

void hc_backup_again(struct hc_node *node, struct hc_entry *entry)
{
	if (entry->flags & HC_ENTRY_NAMED && entry->flags & HC_ENTRY_DIRTY &&
	    !(entry->flags & HC_ENTRY_WRITING) && !hc_backup_push(node, entry) &&
	    hc_entry_settled(entry))
		hc_entry_push_mem(node, entry);
}

bool hc_backup_admit(struct hc_node *node, struct hc_entry *entry, bool skip)
{
	if (skip) {
		entry->flags |= HC_ENTRY_SKIPPED;
		hc_count(node, backup_skipped);
		return false;
	}
	hc_entry_dirty(node, entry);
	return hc_backup_push(node, entry);
}

void hc_backup_force(struct hc_node *node, struct hc_entry *entry)
{
	if (!node->store || node->config.disk_off || entry->slot == HC_ENTRY_NO_SLOT ||
	    entry->disk != HC_ENTRY_NO_DISK || entry->flags & HC_ENTRY_LOADING)
		return;
	entry->flags |= HC_ENTRY_FORCED;
	if (entry->flags & (HC_ENTRY_DIRTY | HC_ENTRY_WRITING))
		return;
	hc_entry_dirty(node, entry);
	if (!hc_backup_push(node, entry) && hc_entry_settled(entry))
		hc_entry_push_mem(node, entry);
}

void hc_backup_force_key(struct hc_node *node, const struct hc_key *key)
{
	struct hc_shard *shard = hc_node_shard(node, &key->hash);
	struct hc_entry *entry;

	hc_shard_lock(shard);
	entry = hc_shard_find(shard, key);
	if (entry)
		hc_backup_force(node, entry);
	hc_shard_unlock(shard);
}

void hc_backup_reuse(struct hc_node *node, uint32_t number)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, number);
	struct hc_entry *entry = hc_index_entry(node->index, number);
	struct hc_hash parent;
	uint32_t series;

	parent = entry->parent; /* fixed while the caller holds its ref */
	series = entry->series;
	if (hc_parent_state(node, series, &parent) == HC_PARENT_SKIPPED)
		return;
	hc_shard_lock(shard);
	if (entry->flags & HC_ENTRY_NAMED && entry->flags & HC_ENTRY_SKIPPED && entry->hits >= 2)
		hc_backup_force(node, entry);
	hc_shard_unlock(shard);
}

static int hc_row_make(struct hc_node *node, const struct hc_entry *entry, void *out, size_t *n_p)
{
	struct hc_owner owner;
	struct hc_row_page *row = hc_zalloc(sizeof(*row));
	char path[HC_PATH_BYTES];

	if (!row)
		return -ENOMEM;
	hc_owners_get(node->owners, entry->owner, &owner);
	row->hash = entry->hash;
	row->parent = entry->parent;
	row->size_bytes = entry->size_bytes;
	row->checksum = entry->checksum;
	row->mtime_ns = entry->mtime_ns;
	row->series = entry->series;
	row->depth = entry->depth;
	row->dir = entry->dir;
	row->uid = owner.uid;
	row->gid = owner.gid;
	row->mode = (uint16_t)owner.mode;
	row->disk = entry->disk;
	if (entry->flags & HC_ENTRY_OPAQUE && hc_opaque_get(node, entry->number, path)) {
		row->flags |= HC_ROW_PAGE_OPAQUE;
		snprintf(row->name, sizeof(row->name), "%.*s", (int)sizeof(row->name) - 1, path);
	}
	*n_p = hc_row_page_pack(row, out);
	free(row);
	return 0;
}

int hc_row_put(struct hc_node *node, uint32_t number, uint64_t sequence, bool now,
	       uint64_t *ticket_p)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, number);
	struct hc_entry *entry = hc_index_entry(node->index, number);
	uint8_t value[2][HC_ROW_BYTES_MAX];
	bool there, same, put = false;
	unsigned turn = 0;
	size_t n = 0;
	int rc = 0;

	if (!node->catalog)
		return 0;
	do {
		size_t n_before = n;

		hc_shard_lock(shard);
		there = entry->sequence == sequence && entry->flags & HC_ENTRY_NAMED &&
			entry->disk != HC_ENTRY_NO_DISK;
		if (there)
			rc = hc_row_make(node, entry, value[turn], &n);
		/* What was put is still so; else (setattr) it is put again. */
		same = there && !rc && n == n_before && !memcmp(value[0], value[1], n);
		if (same)
			entry->flags |= HC_ENTRY_CATALOGUED;
		hc_shard_unlock(shard);
		if (rc || same || !there)
			break;
		rc = hc_catalog_put(node->catalog, HC_TABLE_PAGES, sequence, value[turn], n, now,
				    ticket_p);
		put = put || !rc;
		turn = !turn;
	} while (!rc);
	if (rc || !put)
		return rc;
	/* A page that went between the two locks takes its row along. */
	hc_wait_wake(&node->room);
	return there ? 0 : hc_catalog_del(node->catalog, HC_TABLE_PAGES, sequence, true, ticket_p);
}

static void hc_row_put_one(struct hc_node *node, struct hc_backup_item item)
{
	uint64_t ticket;

	if (hc_row_put(node, item.number, item.sequence, false, &ticket))
		hc_warn(HC_NODE, "a page on disk has no catalog row: it is lost at the next start");
	atomic_fetch_sub(&node->n_rows, 1);
	hc_wait_wake(&node->room);
}

/* The backup thread puts rows: a catalog that cannot take more must not hold up the progress
 * thread, which also ends promotions. */
static void hc_rows_push(struct hc_node *node, struct hc_backup_item item)
{
	int rc;

	pthread_mutex_lock(&node->backup_lock);
	rc = hc_queue_push(&node->row_queue, item);
	pthread_cond_signal(&node->backup_cond);
	pthread_mutex_unlock(&node->backup_lock);
	if (rc)
		hc_row_put_one(node, item);
}

void hc_rows_drain(struct hc_node *node)
{
	struct hc_backup_item item;
	bool got = true;

	while (got) {
		pthread_mutex_lock(&node->backup_lock);
		got = hc_queue_pop(&node->row_queue, &item);
		pthread_mutex_unlock(&node->backup_lock);
		if (got)
			hc_row_put_one(node, item);
	}
}

static void hc_backup_ended(struct hc_node *node, uint64_t size_bytes)
{
	pthread_mutex_lock(&node->backup_lock);
	node->backup_flight--;
	node->backup_flight_bytes -= size_bytes;
	pthread_cond_signal(&node->backup_cond);
	pthread_mutex_unlock(&node->backup_lock);
}

/* written: its file is there, and goes. */
static void hc_backup_bad(struct hc_node *node, struct hc_io *io, int rc, bool written)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, io->number);
	struct hc_entry *entry = hc_index_entry(node->index, io->number);
	struct hc_after after = {0};

	atomic_fetch_sub(&node->disk_coming_bytes, io->coming_bytes);
	hc_shard_lock(shard);
	entry->flags &= (uint16_t)~HC_ENTRY_WRITING;
	if (written)
		entry->flags |= HC_ENTRY_REMOVING;
	if (!(entry->flags & HC_ENTRY_NAMED) || rc != -ETIMEDOUT || !hc_backup_push(node, entry)) {
		/* FORCED stays: with backup=evict it says that the page had its chance. */
		hc_count_series(node, entry->series, backup_failed, 1);
		hc_entry_clean(node, entry);
		entry->flags |= HC_ENTRY_SKIPPED;
	}
	hc_entry_settle(node, shard, entry, &after);
	hc_shard_unlock(shard);
	if (rc == -ENOSPC) {
		hc_count(node, no_space_disk);
		hc_wait_wake(&node->evict_bell);
	}
	after.freed = true;
	hc_after_run(node, &after);
}

static void hc_backup_good(struct hc_node *node, struct hc_io *io)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, io->number);
	struct hc_entry *entry = hc_index_entry(node->index, io->number);
	struct hc_after after = {0};
	bool named;

	/* Counted before the page is clean: a sync that sees nothing dirty must still wait for the
	 * row. */
	atomic_fetch_add(&node->n_rows, 1);
	atomic_fetch_sub(&node->disk_coming_bytes, io->coming_bytes);
	hc_shard_lock(shard);
	named = entry->flags & HC_ENTRY_NAMED;
	entry->flags &= (uint16_t) ~(HC_ENTRY_WRITING | HC_ENTRY_FORCED | HC_ENTRY_SKIPPED);
	hc_entry_clean(node, entry);
	entry->disk = io->request.disk;
	hc_disk_account(node, io->request.disk, 1, entry->size_bytes);
	if (!named)
		hc_entry_drop_disk(node, entry, false, &after);
	hc_entry_settle(node, shard, entry, &after);
	hc_shard_unlock(shard);
	if (named) {
		hc_count(node, backed_up);
		hc_count_n(node, backed_up_bytes, io->request.page.size_bytes);
		hc_crash_point("backup-row");
		hc_rows_push(node, (struct hc_backup_item){io->number, io->sequence});
	} else {
		atomic_fetch_sub(&node->n_rows, 1);
	}
	after.freed = true;
	hc_after_run(node, &after);
}

/* A written page. True when it is done with; false while its parent is not on disk yet. */
static bool hc_backup_settle(struct hc_node *node, struct hc_io *io)
{
	switch (hc_parent_state(node, io->request.page.series, &io->request.page.parent)) {
	case HC_PARENT_PENDING:
		return false;
	case HC_PARENT_SKIPPED: {
		struct hc_after after = {
			.remove_file = true,
			.disk_id = io->request.disk,
			.number = io->number,
			.page = io->request.page,
		};

		after.parent = (struct hc_key){io->request.page.series, io->request.page.parent};
		after.disk = 1;
		hc_backup_bad(node, io, -ECANCELED, true);
		hc_after_run(node, &after);
		break;
	}
	default:
		hc_backup_good(node, io);
	}
	return true;
}

void hc_backup_retry_waiting(struct hc_node *node)
{
	struct hc_io *io, *list;
	bool moved = true;

	while (moved) {
		moved = false;
		pthread_mutex_lock(&node->backup_lock);
		list = node->backup_waiting;
		node->backup_waiting = NULL;
		pthread_mutex_unlock(&node->backup_lock);
		while (list) {
			io = list;
			list = io->arg;
			if (hc_backup_settle(node, io)) {
				moved = true;
				free(io);
				continue;
			}
			pthread_mutex_lock(&node->backup_lock);
			io->arg = node->backup_waiting;
			node->backup_waiting = io;
			pthread_mutex_unlock(&node->backup_lock);
		}
	}
}

static void hc_backup_done(struct hc_node *node, struct hc_io *io)
{
	uint64_t size_bytes = io->request.page.size_bytes;
	int rc = io->request.result;
	bool done = true;

	hc_timing_add(&node->timings[HC_TIMING_BACKUP],
		      hc_clock_now_ns() - io->request.submitted_ns);
	/* Counted before the child is on disk, so that its parent is not evicted from there
	 * meanwhile. */
	if (!rc)
		rc = hc_family_add(node, io->request.page.series, &io->request.page.parent, 0, 1);
	if (rc) {
		hc_backup_bad(node, io, rc, false);
	} else {
		done = hc_backup_settle(node, io);
		if (!done) {
			pthread_mutex_lock(&node->backup_lock);
			io->arg = node->backup_waiting;
			node->backup_waiting = io;
			pthread_mutex_unlock(&node->backup_lock);
		}
	}
	hc_backup_ended(node, size_bytes);
	if (done)
		free(io);
}

void hc_backup_drop_waiting(struct hc_node *node)
{
	while (node->backup_waiting) {
		struct hc_io *io = node->backup_waiting;

		node->backup_waiting = io->arg;
		free(io);
	}
}

/* An adopted page is checked before it goes to disk: the checksum would otherwise vouch for bad
 * bytes. */
static bool hc_backup_verify(struct hc_node *node, struct hc_entry *entry, struct hc_shard *shard)
{
	bool unverified, good;
	uint64_t checksum;
	void *data;

	hc_shard_lock(shard);
	unverified = entry->flags & HC_ENTRY_UNVERIFIED;
	checksum = entry->checksum;
	data = hc_pool_data(node->pool, entry->slot);
	hc_shard_unlock(shard);
	if (!unverified)
		return true;
	good = hc_checksum(data, entry->size_bytes) == checksum;
	hc_shard_lock(shard);
	if (good) {
		entry->flags &= (uint16_t)~HC_ENTRY_UNVERIFIED;
	} else if (entry->flags & HC_ENTRY_NAMED) {
		struct hc_after after = {0};

		hc_count_series(node, entry->series, bad_adopted, 1);
		hc_entry_remove(node, shard, entry, false, &after);
		hc_shard_unlock(shard);
		hc_after_run(node, &after);
		return false;
	}
	hc_shard_unlock(shard);
	return good;
}

/* The disk of a page: its parent's while they share a 64 MiB unit of the chain, else by weighted
 * hash. */
static uint16_t hc_backup_pick_disk(struct hc_node *node, const struct hc_entry *entry)
{
	uint64_t weights[HC_DISKS_MAX], unit = hc_max_u64(1, 64 * HC_MIB / entry->size_bytes);
	uint16_t n = (uint16_t)hc_min_u64(hc_node_n_disks(node), HC_DISKS_MAX),
		 parent = HC_ENTRY_NO_DISK;
	struct hc_key key = {entry->series, entry->parent};

	if (n < 2)
		return 0;
	if (!hc_hash_is_zero(&entry->parent) && entry->depth % unit) {
		struct hc_shard *shard = hc_node_shard(node, &entry->parent);
		struct hc_entry *above;

		hc_shard_lock(shard);
		above = hc_shard_find(shard, &key);
		parent = above ? above->disk : HC_ENTRY_NO_DISK;
		hc_shard_unlock(shard);
	}
	for (uint16_t disk = 0; disk < n; disk++) {
		struct hc_store_disk_info info;

		weights[disk] =
			hc_node_disk_info(node, disk, &info) || info.out ||
					!hc_disk_has_room(node, disk, entry->size_bytes, true)
				? 0
				: info.total_bytes;
	}
	if (parent < n && weights[parent])
		return parent;
	return hc_disk_pick(weights, n, &entry->hash);
}

/* No memory for a request: the page stays in memory as one whose backup failed. Left dirty it would
 * wait for ever. */
static void hc_backup_refuse(struct hc_node *node, struct hc_backup_item item)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, item.number);
	struct hc_entry *entry = hc_index_entry(node->index, item.number);
	struct hc_after after = {.freed = true};

	hc_shard_lock(shard);
	if (entry->sequence == item.sequence && entry->flags & HC_ENTRY_NAMED &&
	    entry->flags & HC_ENTRY_DIRTY && !(entry->flags & HC_ENTRY_WRITING)) {
		hc_count_series(node, entry->series, backup_failed, 1);
		hc_entry_clean(node, entry);
		entry->flags |= HC_ENTRY_SKIPPED;
		hc_entry_settle(node, shard, entry, &after);
	}
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
}

static struct hc_io *hc_backup_prepare(struct hc_node *node, struct hc_backup_item item)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, item.number);
	struct hc_entry *entry = hc_index_entry(node->index, item.number);
	struct hc_io *io = hc_io_create(node, HC_STORE_PUT, hc_backup_done);
	bool wanted;

	if (!io) {
		hc_backup_refuse(node, item);
		return NULL;
	}
	hc_shard_lock(shard);
	wanted = entry->sequence == item.sequence && entry->flags & HC_ENTRY_NAMED &&
		 entry->flags & HC_ENTRY_DIRTY &&
		 !(entry->flags & (HC_ENTRY_WRITING | HC_ENTRY_REMOVING)) &&
		 entry->slot != HC_ENTRY_NO_SLOT;
	if (wanted) {
		entry->flags |= HC_ENTRY_WRITING;
		io->number = item.number;
		io->sequence = item.sequence;
		io->slot = entry->slot;
		io->request.data = hc_pool_data(node->pool, entry->slot);
		hc_entry_store_page(entry, &io->request.page);
		if (entry->flags & HC_ENTRY_OPAQUE && hc_opaque_get(node, entry->number, io->name))
			io->request.page.name = io->name;
	}
	hc_shard_unlock(shard);
	if (!wanted) {
		free(io);
		return NULL;
	}
	/* WRITING holds the entry from here on. */
	if (!hc_backup_verify(node, entry, shard)) {
		hc_backup_bad(node, io, -EBADMSG, false);
		free(io);
		return NULL;
	}
	io->request.disk = hc_backup_pick_disk(node, entry);
	return io;
}

/* A parent that was refused takes its descendants along, unless somebody asked for the page itself.
 */
static bool hc_backup_chain_ok(struct hc_node *node, const struct hc_io *io)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, io->number);
	struct hc_entry *entry = hc_index_entry(node->index, io->number);
	bool forced;

	if (hc_parent_state(node, io->request.page.series, &io->request.page.parent) !=
	    HC_PARENT_SKIPPED)
		return true;
	hc_shard_lock(shard);
	forced = entry->flags & HC_ENTRY_FORCED;
	hc_shard_unlock(shard);
	if (forced) {
		struct hc_key key = {io->request.page.series, io->request.page.parent};

		hc_backup_force_key(node, &key);
	}
	return forced;
}

/* Makes room on disk. Unlinks that are under way are waited for where the page would not fit
 * before. */
static bool hc_backup_room(struct hc_node *node, uint16_t disk, uint64_t size_bytes)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_BACKUP_UNLINK_NS;

	if (hc_disk_over(node, size_bytes)) {
		hc_evict_disk(node, size_bytes);
		if (hc_disk_over(node, size_bytes))
			return false;
	}
	for (;;) {
		uint64_t seen = hc_wait_seen(&node->room), now_ns = hc_clock_now_ns();

		if (hc_disk_has_room(node, disk, size_bytes, false) || now_ns >= deadline_ns ||
		    atomic_load(&node->stop))
			return true;
		if (!hc_disk_has_room(node, disk, size_bytes, true))
			return true;
		hc_wait_for(&node->room, seen, hc_min_u64(deadline_ns, now_ns + HC_BACKUP_LOOK_NS));
	}
}

static void hc_backup_send(struct hc_node *node, struct hc_backup_item item)
{
	struct hc_io *io = hc_backup_prepare(node, item);
	int rc = 0;

	if (!io)
		return;
	if (!hc_backup_chain_ok(node, io))
		rc = -ECANCELED;
	else if (!hc_backup_room(node, io->request.disk, io->request.page.size_bytes))
		rc = -ENOSPC;
	if (rc) {
		hc_backup_bad(node, io, rc, false);
		free(io);
		return;
	}
	io->coming_bytes = io->request.page.size_bytes;
	atomic_fetch_add(&node->disk_coming_bytes, io->coming_bytes);
	pthread_mutex_lock(&node->backup_lock);
	node->backup_flight++;
	node->backup_flight_bytes += io->request.page.size_bytes;
	node->budget_used_bytes += io->request.page.size_bytes;
	pthread_mutex_unlock(&node->backup_lock);
	hc_crash_point("backup-submit");
	hc_io_submit(node, &io, 1, hc_clock_now_ns() + HC_BACKUP_SUBMIT_NS);
}

static void *hc_backup_main(void *arg)
{
	struct hc_node *node = arg;

	pthread_setname_np(pthread_self(), "hc-backup");
	for (;;) {
		struct hc_backup_item item;
		bool got = false;

		pthread_mutex_lock(&node->backup_lock);
		while (!atomic_load(&node->stop) && !node->row_queue.n) {
			if (!node->backup_paused && node->backup_flight < HC_BACKUP_FLIGHT &&
			    node->backup_flight_bytes < HC_BACKUP_BYTES &&
			    (got = hc_queue_pop(&node->backup_queue, &item)))
				break;
			hc_ignore(hc_cond_wait_until(&node->backup_cond, &node->backup_lock,
						     UINT64_MAX));
		}
		pthread_mutex_unlock(&node->backup_lock);
		hc_rows_drain(node);
		if (got)
			hc_backup_send(node, item);
		else if (atomic_load(&node->stop))
			return NULL;
	}
}

int hc_backup_start(struct hc_node *node)
{
	int rc = pthread_create(&node->thread_backup, NULL, hc_backup_main, node);

	node->has_backup = !rc;
	return -rc;
}

void hc_backup_stop(struct hc_node *node)
{
	if (!node->has_backup)
		return;
	pthread_mutex_lock(&node->backup_lock);
	pthread_cond_broadcast(&node->backup_cond);
	pthread_mutex_unlock(&node->backup_lock);
	pthread_join(node->thread_backup, NULL);
	node->has_backup = false;
}

void hc_node_pause_backup(struct hc_node *node, bool pause)
{
	pthread_mutex_lock(&node->backup_lock);
	node->backup_paused = pause;
	pthread_cond_broadcast(&node->backup_cond);
	pthread_mutex_unlock(&node->backup_lock);
}
