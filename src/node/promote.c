/* SPDX-License-Identifier: Apache-2.0 */
/* Acquire: the leading pages of a list, resident and verified by a deadline. Pages on disk only are
 * promoted: a slot is reserved, the store fills it (LOADING), the progress thread makes it valid. A
 * promotion that misses its caller's deadline goes on and serves the next one. */
#include "model/checksum.h"
#include "node/internal.h"

struct hc_wait *hc_load_wait(struct hc_node *node, uint32_t number)
{
	return &node->loads[number % HC_WAIT_BUCKETS];
}

static void hc_load_good(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
			 struct hc_after *after)
{
	struct hc_slot_page page;

	atomic_fetch_add(&node->n_memory, 1);
	atomic_fetch_add(&node->memory_bytes, entry->size_bytes);
	entry->flags = (uint16_t)((entry->flags & ~HC_ENTRY_LOADING) | HC_ENTRY_CHECKED);
	if (entry->flags & HC_ENTRY_NAMED) {
		hc_entry_slot_page(node, entry, &page);
		hc_pool_publish(node->pool, entry->slot, &page);
	}
	hc_count(node, promoted);
	hc_count_n(node, promoted_bytes, entry->size_bytes);
	if (hc_entry_settled(entry))
		hc_entry_settle(node, shard, entry, after);
	else
		hc_entry_push_mem(node, entry);
}

static void hc_load_bad(struct hc_node *node, struct hc_shard *shard, struct hc_entry *entry,
			int rc, struct hc_after *after)
{
	bool bytes_bad = rc == -EBADMSG;

	/* Read-ahead that found no room in the store's queue is no failure. */
	if (rc != -ETIMEDOUT || !(entry->flags & HC_ENTRY_AHEAD))
		hc_count(node, promote_failed);
	hc_entry_drop_slot(node, entry, after);
	if (bytes_bad)
		hc_count_series(node, entry->series, bad_checksum, 1);
	if (rc == -ENOENT && entry->flags & HC_ENTRY_NAMED)
		hc_count_series(node, entry->series, bad_missing, 1);
	/* What cannot be read is not there: else engines would not write it again. */
	if (rc == -ENODEV && entry->flags & HC_ENTRY_NAMED && entry->disk != HC_ENTRY_NO_DISK) {
		hc_entry_lose(node, shard, entry, after);
		return;
	}
	if ((bytes_bad || rc == -ENOENT || rc == -EIO) && entry->flags & HC_ENTRY_NAMED) {
		if (bytes_bad)
			hc_count(node, quarantined);
		hc_entry_remove(node, shard, entry, bytes_bad, after);
		return;
	}
	hc_entry_settle(node, shard, entry, after);
}

void hc_promote_done(struct hc_node *node, struct hc_io *io)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, io->number);
	struct hc_entry *entry = hc_index_entry(node->index, io->number);
	struct hc_after after = {0};
	int rc = io->request.result;
	char text[HC_HASH_TEXT];

	hc_timing_add(&node->timings[HC_TIMING_PROMOTION],
		      hc_clock_now_ns() - io->request.submitted_ns);
	/* Counted before the child is resident; the entry cannot go while it is LOADING. */
	if (!rc)
		rc = hc_family_add(node, io->request.page.series, &io->request.page.parent, 1, 0);
	if (rc == -EBADMSG) {
		hc_hash_format(&io->request.page.hash, text);
		hc_warn(HC_NODE, "page %u-%s is damaged on disk: a miss, the file is quarantined",
			io->request.page.series, text);
	}
	hc_shard_lock(shard);
	hc_assert(entry->sequence == io->sequence && entry->flags & HC_ENTRY_LOADING);
	if (!rc)
		hc_load_good(node, shard, entry, &after);
	else
		hc_load_bad(node, shard, entry, rc, &after);
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	hc_wait_wake(hc_load_wait(node, io->number));
	free(io);
}

struct hc_io *hc_load_attach(struct hc_node *node, const struct hc_ref *ref, hc_slot_id slot,
			     uint32_t ahead_stamp)
{
	struct hc_io *io = hc_io_create(node, HC_STORE_GET, hc_promote_done);
	struct hc_shard *shard = hc_index_entry_shard(node->index, ref->entry);
	struct hc_entry *entry = hc_index_entry(node->index, ref->entry);
	bool attached = false;

	hc_shard_lock(shard);
	if (io && entry->sequence == ref->sequence && entry->slot == HC_ENTRY_NO_SLOT &&
	    entry->disk != HC_ENTRY_NO_DISK) {
		entry->slot = slot;
		entry->flags |= HC_ENTRY_LOADING;
		hc_slot_note_entry(node, slot, entry->number);
		io->number = entry->number;
		io->sequence = entry->sequence;
		io->slot = slot;
		io->request.disk = entry->disk;
		io->request.flags = (ahead_stamp ? 0 : HC_STORE_URGENT) |
				    (node->config.no_verify ? HC_STORE_NO_VERIFY : 0);
		if (ahead_stamp) {
			/* As recent as the walk that will use it, or it would be the first to go.
			 */
			entry->stamp = (uint32_t)hc_max_u64(entry->stamp, ahead_stamp);
			entry->flags |= HC_ENTRY_AHEAD;
			atomic_fetch_add(&node->ahead_bytes, entry->size_bytes);
			hc_count(node, ahead_pages);
		}
		hc_entry_store_page(entry, &io->request.page);
		attached = true;
	}
	hc_shard_unlock(shard);
	if (attached) {
		io->request.data = hc_pool_data(node->pool, slot);
		return io;
	}
	hc_pool_free(node->pool, slot);
	hc_wait_wake(&node->room);
	free(io);
	return NULL;
}

/* Loads those of refs[0..n) that lie on disk only. Stops where no slot can be had. n_held: refs
 * that the caller holds, these and others. */
static void hc_load_all(struct hc_node *node, struct hc_ref *refs, size_t n, size_t n_held,
			uint64_t deadline_ns)
{
	struct hc_slots_want how = {.numa_node = -1,
				    .state = HC_SLOT_LOADING,
				    .some = true,
				    .n_refs = (uint32_t)n_held,
				    .deadline_ns = deadline_ns};
	struct hc_run runs[HC_LOAD_RUNS];
	struct hc_io *ios[HC_LOAD_RUNS];
	size_t i = 0;

	while (i < n) {
		uint32_t n_runs, got, k = 0, n_ios = 0, want = 0;
		uint64_t size_bytes = refs[i].size_bytes;
		size_t first = i;

		if (refs[i].slot != HC_SLOT_NONE) {
			i++;
			continue;
		}
		while (i < n && want < HC_LOAD_RUNS && refs[i].slot == HC_SLOT_NONE &&
		       refs[i].size_bytes == size_bytes) {
			want++;
			i++;
		}
		hc_node_space_domain(node, hc_series_space(node->registry, refs[first].series),
				     &how.domain);
		how.size_bytes = size_bytes;
		how.n = want;
		got = hc_slots_get(node, &how, runs, HC_LOAD_RUNS, &n_runs);
		for (uint32_t r = 0; r < n_runs; r++) {
			for (uint32_t s = 0; s < runs[r].n; s++, k++) {
				ios[n_ios] =
					hc_load_attach(node, &refs[first + k],
						       hc_pool_slot(node->pool, runs[r].segment,
								    runs[r].first + s),
						       0);
				n_ios += ios[n_ios] ? 1 : 0;
			}
		}
		hc_io_submit(node, ios, n_ios, deadline_ns);
		/* Those are on their way while the others wait for room. */
		if (!got)
			return;
		i = first + got;
	}
}

/* Shard locked. A load that was queued behind others is waited for now. */
static void hc_acquire_hurry(struct hc_node *node, const struct hc_entry *entry)
{
	if (entry->flags & HC_ENTRY_LOADING && entry->flags & HC_ENTRY_AHEAD)
		node->store->ops->hurry(node->store, entry->disk, entry->sequence);
}

void hc_acquire_hold(struct hc_node *node, const struct hc_acquire *how, struct hc_entry *entry,
		     uint32_t stamp, bool want_ahead, struct hc_ref *ref_p,
		     struct hc_walk_step *step_p)
{
	struct hc_walk_who who = {how->opener, how->thread, how->tree};

	if (how->opener)
		hc_walk_entry(node, &who, entry, want_ahead, step_p);
	else /* another batch may have been quicker */
		entry->stamp = (uint32_t)hc_max_u64(entry->stamp, stamp);
	hc_acquire_hurry(node, entry);
	hc_ahead_used(node, entry);
	if (!how->uncounted)
		hc_entry_hit(entry);
	entry->refs++;
	*ref_p = (struct hc_ref){
		.entry = entry->number,
		.slot = entry->slot, /* also when LOADING: waited for by the caller */
		.size_bytes = entry->size_bytes,
		.sequence = entry->sequence,
		.series = entry->series,
	};
}

/* Takes a ref on each leading page that exists on any tier. *step_p: the walk's, behind the last
 * one. */
static size_t hc_acquire_find(struct hc_node *node, const struct hc_acquire *how,
			      const struct hc_hash *hashes, size_t n, struct hc_ref *refs,
			      struct hc_walk_step *step_p)
{
	uint64_t expire_before_ns = hc_node_expire_before(node, how->series);
	uint32_t stamp = how->opener ? 0 : hc_node_stamp(node);
	size_t i, n_disk = 0;

	for (i = 0; i < n; i++) {
		struct hc_key key = {how->series, hashes[i]};
		struct hc_shard *shard = hc_node_shard(node, &key.hash);
		struct hc_entry *entry;

		hc_shard_lock(shard);
		entry = hc_shard_find(shard, &key);
		if (!entry || entry->mtime_ns < expire_before_ns ||
		    entry->refs == HC_ENTRY_REFS_MAX) {
			hc_shard_unlock(shard);
			break;
		}
		hc_acquire_hold(node, how, entry, stamp, i == n - 1, &refs[i], step_p);
		hc_shard_unlock(shard);
		n_disk += refs[i].slot == HC_SLOT_NONE;
	}
	if (!how->uncounted) {
		hc_count_series(node, how->series, hits_disk, n_disk);
		hc_count_series(node, how->series, hits_memory, i - n_disk);
	}
	atomic_fetch_add_explicit(&node->n_refs, i, memory_order_relaxed);
	return i;
}

/* A slot that an earlier run left, checked at its first use. False: damaged, and no longer there.
 */
static bool hc_acquire_verify(struct hc_node *node, struct hc_ref *ref, uint64_t checksum)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, ref->entry);
	struct hc_entry *entry = hc_index_entry(node->index, ref->entry);
	bool good = hc_checksum(ref->data, ref->size_bytes) == checksum;
	struct hc_after after = {0};

	hc_shard_lock(shard);
	if (good) {
		entry->flags &= (uint16_t)~HC_ENTRY_UNVERIFIED;
	} else if (entry->flags & HC_ENTRY_NAMED) {
		hc_count_series(node, entry->series, bad_adopted, 1);
		hc_entry_remove(node, shard, entry, false, &after);
	}
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	return good;
}

/* Waits for one page to be resident. */
static bool hc_acquire_wait(struct hc_node *node, struct hc_ref *ref, uint64_t deadline_ns)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, ref->entry);
	struct hc_entry *entry = hc_index_entry(node->index, ref->entry);
	struct hc_wait *wait = hc_load_wait(node, ref->entry);

	for (;;) {
		uint64_t seen = hc_wait_seen(wait), checksum;
		bool loading, unverified;

		hc_shard_lock(shard);
		loading = entry->flags & HC_ENTRY_LOADING;
		unverified = entry->flags & HC_ENTRY_UNVERIFIED;
		checksum = entry->checksum;
		ref->slot = entry->slot;
		hc_shard_unlock(shard);
		if (ref->slot == HC_SLOT_NONE)
			return false;
		if (!loading) {
			ref->data = hc_pool_data(node->pool, ref->slot);
			return !unverified || node->config.no_verify ||
			       hc_acquire_verify(node, ref, checksum);
		}
		if (!hc_wait_for(wait, seen, deadline_ns) && hc_clock_now_ns() >= deadline_ns) {
			hc_count(node, misses_deadline);
			return false;
		}
	}
}

/* backup=reuse: the second use of a page that was not backed up asks for it. */
static void hc_acquire_reuse(struct hc_node *node, const struct hc_ref *refs, size_t n)
{
	struct hc_node_limits limits;

	hc_node_limits_get(node, &limits);
	if (limits.backup != HC_BACKUP_REUSE &&
	    (limits.backup != HC_BACKUP_PUBLISH || hc_budget_left(node)))
		return;
	for (size_t i = 0; i < n; i++)
		hc_backup_reuse(node, refs[i].entry);
}

int hc_node_acquire(struct hc_node *node, const struct hc_acquire *how,
		    const struct hc_hash *hashes, size_t n, struct hc_ref *refs, size_t *n_p)
{
	struct hc_walk_step step = {0};
	size_t found = hc_acquire_find(node, how, hashes, n, refs, &step), got = 0;
	bool to_load = false, again = false;

	if (!how->uncounted)
		hc_count(node, acquires);
	for (size_t i = 0; i < found && !to_load; i++)
		to_load = refs[i].slot == HC_SLOT_NONE;
	if (to_load)
		hc_load_all(node, refs, found, found, how->deadline_ns);
	/* Behind what is waited for, before the wait. */
	if (step.ahead_bytes)
		hc_ahead_run(node, how->series, &step, false);
	while (got < found) {
		if (hc_acquire_wait(node, &refs[got], how->deadline_ns)) {
			got++;
			continue;
		}
		/* A load that was begun for somebody else, and given up: once more for this one. */
		if (again || refs[got].slot != HC_SLOT_NONE || !node->store)
			break;
		again = true;
		hc_load_all(node, refs + got, found - got, found, how->deadline_ns);
	}
	if (got < found)
		hc_node_release(node, refs + got, found - got);
	if (!how->uncounted)
		hc_acquire_reuse(node, refs, got);
	if (got < n && !how->uncounted)
		hc_count_series(node, how->series, misses, 1);
	*n_p = got;
	return n && !got ? -ENOENT : 0;
}

/* --- prefetch --- */

/* Takes a ref on a page that is there, as used in this batch. No hit: nobody asked for it yet. */
static bool hc_prefetch_find(struct hc_node *node, const struct hc_key *key, uint32_t stamp,
			     struct hc_ref *ref_p)
{
	uint64_t expire_before_ns = hc_node_expire_before(node, key->series);
	struct hc_shard *shard = hc_node_shard(node, &key->hash);
	struct hc_entry *entry;
	bool there;

	hc_shard_lock(shard);
	entry = hc_shard_find(shard, key);
	there = entry && entry->mtime_ns >= expire_before_ns && entry->refs < HC_ENTRY_REFS_MAX;
	if (there) {
		entry->stamp = (uint32_t)hc_max_u64(entry->stamp, stamp);
		entry->refs++;
		*ref_p = (struct hc_ref){
			.entry = entry->number,
			.slot = entry->slot,
			.size_bytes = entry->size_bytes,
			.sequence = entry->sequence,
			.series = entry->series,
		};
	}
	hc_shard_unlock(shard);
	if (there)
		atomic_fetch_add_explicit(&node->n_refs, 1, memory_order_relaxed);
	return there;
}

void hc_node_prefetch(struct hc_node *node, const struct hc_key *keys, size_t n,
		      uint64_t deadline_ns, struct hc_prefetch_result *result_p)
{
	struct hc_prefetch_result result = {0};
	uint32_t stamp = hc_node_stamp(node);

	for (size_t first = 0; first < n; first += HC_PREFETCH_BATCH) {
		size_t n_keys = hc_min_u64(n - first, HC_PREFETCH_BATCH), n_refs = 0;
		struct hc_ref refs[HC_PREFETCH_BATCH];
		bool resident[HC_PREFETCH_BATCH];

		for (size_t i = 0; i < n_keys; i++) {
			if (!hc_prefetch_find(node, &keys[first + i], stamp, &refs[n_refs]))
				continue;
			resident[n_refs] = refs[n_refs].slot != HC_SLOT_NONE;
			n_refs++;
		}
		result.n_missing += n_keys - n_refs;
		hc_load_all(node, refs, n_refs, n_refs, deadline_ns);
		for (size_t i = 0; i < n_refs; i++) {
			bool good = hc_acquire_wait(node, &refs[i], deadline_ns);

			result.n_failed += !good;
			result.n_resident += good && resident[i];
			result.n_loaded += good && !resident[i];
		}
		hc_node_release(node, refs, n_refs);
	}
	hc_count_n(node, prefetched, result.n_loaded);
	hc_count_n(node, prefetch_resident, result.n_resident);
	hc_count_n(node, prefetch_missing, result.n_missing);
	hc_count_n(node, prefetch_failed, result.n_failed);
	*result_p = result;
}
