/* SPDX-License-Identifier: Apache-2.0 */
/* Pages by key: look-up, release, removal, pins, attributes. Acquire is in promote.c. */
#include "node/internal.h"

size_t hc_node_exists_prefix(struct hc_node *node, const uint32_t *series, size_t n_series,
			     const struct hc_hash *hashes, size_t n, bool touch)
{
	uint64_t expire_before_ns[64];
	size_t hits;

	if (!n_series || n_series > HC_ARRAY_SIZE(expire_before_ns))
		return 0;
	for (size_t i = 0; i < n_series; i++)
		expire_before_ns[i] = hc_node_expire_before(node, series[i]);
	hits = hc_index_exists_prefix(node->index, series, expire_before_ns, n_series, hashes, n,
				      touch ? hc_node_stamp(node) : 0);
	hc_count_series(node, series[0], lookups, n);
	hc_count_series(node, series[0], lookup_hits, hits);
	return hits;
}

static bool hc_entry_expired(struct hc_node *node, const struct hc_entry *entry)
{
	return entry->mtime_ns < hc_node_expire_before(node, entry->series);
}

int hc_node_stat(struct hc_node *node, const struct hc_key *key, bool want_node_id,
		 struct hc_page_info *info_p)
{
	struct hc_shard *shard = hc_node_shard(node, &key->hash);
	uint64_t node_id = 0;
	struct hc_entry *entry;
	bool there;

	hc_count_series(node, key->series, lookups, 1);
	for (;;) {
		hc_shard_lock(shard);
		entry = hc_shard_find(shard, key);
		there = entry && !hc_entry_expired(node, entry);
		if (!there || !want_node_id || entry->node_id || node_id)
			break;
		/* A new block of ids is journaled: not under a shard's lock. */
		hc_shard_unlock(shard);
		node_id = hc_registry_next_node_id(node->registry);
	}
	if (there) {
		if (!entry->node_id)
			entry->node_id = node_id;
		hc_entry_info(node, entry, info_p);
		hc_count_series(node, key->series, lookup_hits, 1);
	}
	hc_shard_unlock(shard);
	return there ? 0 : -ENOENT;
}

/* Locks the shard of (number, sequence) and gives the entry, or unlocks and gives NULL. */
static struct hc_entry *hc_body_lock(struct hc_node *node, uint32_t number, uint64_t sequence,
				     struct hc_shard **shard_p)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, number);
	struct hc_entry *entry;

	if (!shard)
		return NULL;
	hc_shard_lock(shard);
	entry = hc_index_entry(node->index, number);
	if (entry && entry->sequence == sequence &&
	    (entry->flags & HC_ENTRY_NAMED || entry->refs)) {
		*shard_p = shard;
		return entry;
	}
	hc_shard_unlock(shard);
	return NULL;
}

int hc_node_stat_body(struct hc_node *node, uint32_t number, uint64_t sequence,
		      struct hc_page_info *info_p)
{
	struct hc_shard *shard;
	struct hc_entry *entry = hc_body_lock(node, number, sequence, &shard);

	if (!entry)
		return -ESTALE;
	hc_entry_info(node, entry, info_p);
	hc_shard_unlock(shard);
	return 0;
}

void hc_node_release(struct hc_node *node, struct hc_ref *refs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct hc_shard *shard;
		struct hc_entry *entry;
		struct hc_after after = {0};

		if (refs[i].entry == HC_ENTRY_NONE)
			continue;
		shard = hc_index_entry_shard(node->index, refs[i].entry);
		hc_shard_lock(shard);
		entry = hc_index_entry(node->index, refs[i].entry);
		hc_assert(entry && entry->sequence == refs[i].sequence && entry->refs);
		entry->refs--;
		hc_entry_settle(node, shard, entry, &after);
		hc_shard_unlock(shard);
		atomic_fetch_sub_explicit(&node->n_refs, 1, memory_order_relaxed);
		hc_after_run(node, &after);
		refs[i].entry = HC_ENTRY_NONE;
	}
}

size_t hc_node_remove(struct hc_node *node, uint32_t series, const struct hc_hash *hashes, size_t n)
{
	size_t n_removed = 0;

	for (size_t i = 0; i < n; i++) {
		struct hc_key key = {series, hashes[i]};
		struct hc_shard *shard = hc_node_shard(node, &key.hash);
		struct hc_after after = {0};
		struct hc_entry *entry;

		hc_shard_lock(shard);
		entry = hc_shard_find(shard, &key);
		if (entry) {
			hc_entry_remove(node, shard, entry, false, &after);
			n_removed++;
		}
		hc_shard_unlock(shard);
		hc_after_run(node, &after);
	}
	hc_count_n(node, removed, n_removed);
	return n_removed;
}

int hc_node_remove_body(struct hc_node *node, uint32_t number, uint64_t sequence)
{
	struct hc_shard *shard;
	struct hc_entry *entry = hc_body_lock(node, number, sequence, &shard);
	struct hc_after after = {.quiet = true}; /* the kernel asked: it knows */
	int rc = -ENOENT;

	if (!entry)
		return rc;
	if (entry->flags & HC_ENTRY_NAMED) {
		hc_entry_remove(node, shard, entry, false, &after);
		hc_count(node, removed);
		rc = 0;
	}
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	return rc;
}

int hc_node_pin(struct hc_node *node, const struct hc_key *key, bool pin)
{
	struct hc_shard *shard = hc_node_shard(node, &key->hash);
	struct hc_after after = {0};
	struct hc_entry *entry;
	int rc = 0;

	hc_shard_lock(shard);
	entry = hc_shard_find(shard, key);
	if (!entry)
		rc = -ENOENT;
	else if (pin ? entry->pins == HC_ENTRY_PINS_MAX : !entry->pins)
		rc = -ERANGE;
	else {
		entry->pins = (pin ? entry->pins + 1u : entry->pins - 1u) & HC_ENTRY_PINS_MAX;
		hc_entry_settle(node, shard, entry, &after);
	}
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	return rc;
}

int hc_node_set(struct hc_node *node, uint32_t number, uint64_t sequence,
		const struct hc_page_info *info, uint32_t what)
{
	struct hc_shard *shard;
	struct hc_entry *entry = hc_body_lock(node, number, sequence, &shard);
	struct hc_owner owner;
	uint16_t owner_number;
	bool on_disk;
	uint64_t ticket;
	int rc;

	if (!entry)
		return -ESTALE;
	hc_owners_get(node->owners, entry->owner, &owner);
	if (what & HC_DIR_SET_UID)
		owner.uid = info->owner.uid;
	if (what & HC_DIR_SET_GID)
		owner.gid = info->owner.gid;
	if (what & HC_DIR_SET_MODE)
		owner.mode = info->owner.mode & 07777;
	rc = hc_owners_intern(node->owners, &owner, &owner_number);
	if (!rc) {
		entry->owner = owner_number;
		if (what & HC_DIR_SET_MTIME)
			entry->mtime_ns = info->mtime_ns;
	}
	on_disk = !rc && entry->disk != HC_ENTRY_NO_DISK;
	hc_shard_unlock(shard);
	if (on_disk)
		rc = hc_row_put(node, number, sequence, true, &ticket);
	return rc;
}

void hc_node_touch(struct hc_node *node, uint32_t number, uint64_t sequence, uint32_t opener,
		   uint64_t tree)
{
	struct hc_shard *shard;
	struct hc_entry *entry = hc_body_lock(node, number, sequence, &shard);
	struct hc_walk_who who = {.opener = opener, .tree = tree};
	struct hc_walk_step step;

	if (!entry)
		return;
	if (opener)
		hc_walk_entry(node, &who, entry, false, &step);
	else
		entry->stamp = hc_node_stamp(node);
	hc_shard_unlock(shard);
}

void hc_walk_entry(struct hc_node *node, const struct hc_walk_who *who, struct hc_entry *entry,
		   bool want_ahead, struct hc_walk_step *step_p)
{
	struct hc_walk_page page = {
		.page = hc_entry_link(entry),
		.stamp = entry->stamp,
		.depth = entry->depth,
		.size_bytes = entry->size_bytes,
		.ahead = entry->flags & HC_ENTRY_AHEAD,
	};

	hc_walk_open(node->walks, who, &page, want_ahead, hc_clock_now_ns(), hc_stamp_call, node,
		     step_p);
	/* Another one may have been quicker. */
	entry->stamp = (uint32_t)hc_max_u64(entry->stamp, step_p->stamp);
}

uint32_t hc_stamp_call(void *arg)
{
	struct hc_node *node = arg;

	return hc_node_stamp(node);
}

int hc_node_dir_pages(struct hc_node *node, uint32_t dir, struct hc_dir_item **items_p, size_t *n_p)
{
	return hc_index_dir_snapshot(node->index, dir, items_p, n_p);
}

void hc_node_dir_begin(struct hc_node *node, struct hc_dir_cursor *cursor, uint32_t dir)
{
	hc_index_dir_begin(node->index, cursor, dir);
}

size_t hc_node_dir_read(struct hc_node *node, struct hc_dir_cursor *cursor,
			struct hc_dir_item *items, size_t n)
{
	return hc_index_dir_read(node->index, cursor, items, n);
}

void hc_node_dir_end(struct hc_node *node, struct hc_dir_cursor *cursor)
{
	hc_index_dir_end(node->index, cursor);
}

uint64_t hc_node_dir_n_pages(struct hc_node *node, uint32_t dir)
{
	return hc_index_dir_count(node->index, dir);
}

int hc_node_page_name(struct hc_node *node, uint32_t number, uint64_t sequence,
		      char name[HC_NAME_BYTES], uint64_t *node_id_p)
{
	struct hc_shard *shard;
	struct hc_entry *entry = hc_body_lock(node, number, sequence, &shard);
	char path[HC_PATH_BYTES];
	struct hc_key key;
	bool opaque;

	if (!entry)
		return -ESTALE;
	key = (struct hc_key){entry->series, entry->hash};
	*node_id_p = entry->node_id;
	opaque = entry->flags & HC_ENTRY_OPAQUE && hc_opaque_get(node, number, path);
	hc_shard_unlock(shard);
	if (opaque) {
		const char *slash = strrchr(path, '/');

		snprintf(name, HC_NAME_BYTES, "%.255s", slash ? slash + 1 : path);
		return 0;
	}
	return hc_name_of_listed(node->registry, &key, name);
}

uint16_t hc_node_n_disks(struct hc_node *node)
{
	return node->store ? node->store->ops->n_disks(node->store) : 0;
}

int hc_node_disk_info(struct hc_node *node, uint16_t disk, struct hc_store_disk_info *info_p)
{
	return node->store ? node->store->ops->disk_info(node->store, disk, info_p) : -ENODEV;
}
