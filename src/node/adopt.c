/* SPDX-License-Identifier: Apache-2.0 */
/* What a start finds: catalog rows become pages on disk; READY slots of an earlier daemon's pool
 * become pages in memory (the highest sequence of a key wins); page files without a catalog are
 * read back in the background. Before any other thread of the node runs, except for the rebuild. */
#include "node/adopt.h"

static int hc_recency_compare(const void *a, const void *b)
{
	const struct hc_recency *x = a, *y = b;

	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

static void hc_adopt_recency(struct hc_adopt *adopt)
{
	bool sorted = true;

	if (hc_catalog_recency_load(adopt->node->catalog, &adopt->recency, &adopt->n_recency))
		adopt->n_recency = 0;
	for (size_t i = 0; i < adopt->n_recency; i++) {
		const struct hc_recency *row = &adopt->recency[i];

		sorted = sorted && (!i || row[-1].sequence < row->sequence);
		if (row->stamp > adopt->stamp_last)
			adopt->stamp_last = row->stamp;
	}
	/* Stored in that order. */
	if (!sorted)
		qsort(adopt->recency, adopt->n_recency, sizeof(*adopt->recency),
		      hc_recency_compare);
	if (adopt->n_recency)
		adopt->recency_last = adopt->recency[adopt->n_recency - 1].sequence;
	hc_index_stamp_restore(adopt->node->index, adopt->stamp_last + 1);
}

const struct hc_recency *hc_adopt_recency_find(const struct hc_adopt *adopt, uint64_t sequence)
{
	size_t from = 0, to = adopt->n_recency;

	while (from < to) {
		size_t at = from + (to - from) / 2;

		if (adopt->recency[at].sequence < sequence)
			from = at + 1;
		else
			to = at;
	}
	return from < adopt->n_recency ? &adopt->recency[from] : NULL;
}

/* What was published after recency was last stored is the newest of all. */
void hc_adopt_stamp(const struct hc_adopt *adopt, const struct hc_recency *recency,
		    struct hc_entry *entry)
{
	if (recency && recency->sequence == entry->sequence) {
		entry->stamp = recency->stamp;
		entry->hits = (uint16_t)hc_min_u64(recency->hits, UINT16_MAX);
	} else if (entry->sequence > adopt->recency_last) {
		entry->stamp = adopt->stamp_last + 1;
	}
}

static uint8_t hc_adopt_priority(struct hc_adopt *adopt, uint32_t space)
{
	if (space != adopt->space_last) {
		adopt->space_last = space;
		adopt->priority_last = hc_node_space_priority(adopt->node, space);
	}
	return adopt->priority_last;
}

/* Makes room for a body of `sequence`: an older one of the key goes. -EEXIST when a newer (or the
 * same) is there. */
static int hc_adopt_clear(struct hc_node *node, const struct hc_key *key, uint64_t sequence)
{
	struct hc_shard *shard = hc_node_shard(node, &key->hash);
	struct hc_after after = {.quiet = true};
	struct hc_entry *entry;
	int rc = 0;

	hc_shard_lock(shard);
	entry = hc_shard_find(shard, key);
	if (entry && entry->sequence >= sequence)
		rc = -EEXIST;
	else if (entry)
		hc_entry_remove(node, shard, entry, false, &after);
	hc_shard_unlock(shard);
	hc_after_run(node, &after);
	return rc;
}

/* A page on disk, from a row or from a file's metadata. */
static int hc_adopt_disk(struct hc_node *node, const struct hc_row_page *row, uint64_t sequence,
			 struct hc_adopt *adopt, bool catalogued)
{
	struct hc_key key = {row->series, row->hash};
	uint32_t space = hc_series_space(node->registry, row->series);
	struct hc_shard *shard = hc_node_shard(node, &row->hash);
	struct hc_owner owner = {row->uid, row->gid, row->mode};
	struct hc_hints hints;
	struct hc_entry *entry;
	bool attrs;
	int rc;

	if (!space || row->disk >= hc_node_n_disks(node) || !row->size_bytes ||
	    row->size_bytes > UINT32_MAX)
		return -EBADMSG;
	hc_registry_sequence_seen(node->registry, sequence);
	rc = hc_family_add(node, row->series, &row->parent, 0, 1);
	if (rc)
		return rc;
	attrs = hc_hints_claim(node, sequence, row->dir, hc_adopt_priority(adopt, space), &hints);
	/* Paid before somebody can remove it (a rebuild runs beside everything else). */
	hc_ignore(hc_space_use(node->registry, space, (int64_t)row->size_bytes, true));
	hc_shard_lock(shard);
	rc = hc_shard_insert(shard, &key, &entry);
	if (rc == -EEXIST) {
		/* Seldom: an older body of the key makes room. */
		hc_shard_unlock(shard);
		rc = hc_adopt_clear(node, &key, sequence);
		hc_shard_lock(shard);
		if (!rc)
			rc = hc_shard_insert(shard, &key, &entry);
	}
	if (!rc) {
		entry->parent = row->parent;
		entry->sequence = sequence;
		entry->checksum = row->checksum;
		entry->mtime_ns = row->mtime_ns;
		entry->size_bytes = (uint32_t)row->size_bytes;
		entry->depth = row->depth & 0xffffff;
		hc_hints_give(entry, &hints);
		entry->attrs = attrs;
		entry->disk = row->disk;
		entry->flags |= HC_ENTRY_SUMMED | (catalogued ? HC_ENTRY_CATALOGUED : 0);
		if (hc_owners_intern(node->owners, &owner, &entry->owner))
			entry->owner = 0;
		if (row->flags & HC_ROW_PAGE_OPAQUE &&
		    !hc_opaque_set(node, entry->number, row->name))
			entry->flags |= HC_ENTRY_OPAQUE;
		hc_family_adopt(node, entry);
		if (row->dir)
			hc_index_dir_add(node->index, entry, row->dir);
		hc_adopt_stamp(adopt, hc_adopt_recency_find(adopt, sequence), entry);
		hc_entry_push_space(node, entry);
		hc_disk_account(node, entry->disk, 1, entry->size_bytes);
	}
	hc_shard_unlock(shard);
	if (rc) {
		hc_ignore(hc_family_add(node, row->series, &row->parent, 0, -1));
		hc_ignore(hc_space_use(node->registry, space, -(int64_t)row->size_bytes, true));
	}
	return rc;
}

/* An older body of a page that is there: a kill came between the new row and its removal. */
static void hc_adopt_older(struct hc_node *node, const struct hc_row_page *row, uint64_t sequence)
{
	struct hc_after after = {
		.quiet = true,
		.remove_row = true,
		.remove_file = true,
		.disk_id = row->disk,
		.number = HC_ENTRY_NONE,
		.page =
			{
				.sequence = sequence,
				.size_bytes = row->size_bytes,
				.checksum = row->checksum,
				.hash = row->hash,
				.parent = row->parent,
				.series = row->series,
				.depth = row->depth,
			},
	};

	hc_attrs_drop(hc_registry_attrs(node->registry), HC_ATTRS_PAGE, sequence);
	hc_after_run(node, &after);
}

static int hc_adopt_row(struct hc_adopt *adopt, const struct hc_adopt_later *later)
{
	struct hc_row_page row;
	struct hc_dir_info dir;
	int rc = hc_row_page_unpack(later->value, later->n_bytes, &row);

	if (!rc && row.dir && row.dir != adopt->dir_last) {
		if (hc_dir_get(adopt->node->registry, row.dir, &dir))
			row.dir = 0;
		else
			adopt->dir_last = row.dir;
	}
	if (!rc)
		rc = hc_adopt_disk(adopt->node, &row, later->sequence, adopt, true);
	if (rc == -EEXIST)
		hc_adopt_older(adopt->node, &row, later->sequence);
	else if (rc && rc != -ENOMEM)
		adopt->n_bad++;
	return rc == -ENOMEM ? rc : 0;
}

static int hc_later_compare(const void *a, const void *b)
{
	const struct hc_adopt_later *x = a, *y = b;

	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

static int hc_adopt_catalog(struct hc_adopt *adopt)
{
	struct hc_adopt_laters laters = {.n = 0};
	int rc, err = 0;

	pthread_mutex_init(&laters.lock, NULL);
	rc = hc_adopt_rows(adopt, &laters);
	if (laters.n)
		qsort(laters.items, laters.n, sizeof(*laters.items), hc_later_compare);
	for (size_t i = 0; i < laters.n && !err; i++)
		err = hc_adopt_row(adopt, &laters.items[i]);
	for (size_t i = 0; i < laters.n; i++)
		free(laters.items[i].value);
	free(laters.items);
	pthread_mutex_destroy(&laters.lock);
	if (adopt->n_bad)
		hc_warn(HC_NODE, "%llu catalog rows could not be used",
			(unsigned long long)adopt->n_bad);
	return rc ? rc : err;
}

/* --- the pool --- */

static void hc_adopt_classes(struct hc_node *node)
{
	for (uint32_t i = 0; i < hc_pool_n_segments(node->pool); i++) {
		struct hc_pool_segment_info info;
		struct hc_run run = {.segment = i};
		struct hc_class *class;

		hc_pool_segment_info(node->pool, i, &info);
		if (!info.cut)
			continue;
		class = hc_node_class(node, &info.domain, info.slot_bytes, true);
		if (class)
			hc_node_note_runs(node, class, &run, 1);
	}
}

/* A slot of a page that the catalog does not know: published, but not backed up before the end. */
static int hc_adopt_new(struct hc_adopt *adopt, hc_slot_id slot, const struct hc_slot_page *page)
{
	struct hc_node *node = adopt->node;
	struct hc_key key = {page->series, page->hash};
	struct hc_shard *shard = hc_node_shard(node, &page->hash);
	struct hc_owner owner = {page->uid, page->gid, page->mode};
	uint8_t priority = hc_adopt_priority(adopt, hc_series_space(node->registry, page->series));
	struct hc_hints hints;
	struct hc_publish item = {
		.key = key, .parent = page->parent, .size_bytes = page->size_bytes};
	struct hc_entry *entry;
	uint32_t dir = 0;
	bool skip, attrs;
	int rc;

	/* The name of an opaque page is not in its row. */
	if (page->flags & HC_SLOT_FLAG_OPAQUE || hc_adopt_clear(node, &key, page->sequence))
		return -EEXIST;
	if (hc_name_dir_of_page(node->registry, &key, &dir))
		dir = 0;
	skip = hc_backup_verdict(node, &item, false);
	rc = hc_family_add(node, page->series, &page->parent, 1, 0);
	if (rc)
		return rc;
	attrs = hc_hints_claim(node, page->sequence, dir, priority, &hints);
	hc_shard_lock(shard);
	rc = hc_shard_insert(shard, &key, &entry);
	if (!rc) {
		entry->parent = page->parent;
		entry->sequence = page->sequence;
		entry->checksum = page->checksum;
		entry->mtime_ns = page->mtime_ns;
		entry->size_bytes = (uint32_t)page->size_bytes;
		entry->depth = page->depth & 0xffffff;
		hc_hints_give(entry, &hints);
		entry->attrs = attrs;
		entry->stamp = adopt->stamp_last + 1;
		entry->slot = slot;
		entry->flags |= HC_ENTRY_SUMMED | HC_ENTRY_UNVERIFIED;
		if (hc_owners_intern(node->owners, &owner, &entry->owner))
			entry->owner = 0;
		hc_family_adopt(node, entry);
		if (dir)
			hc_index_dir_add(node->index, entry, dir);
		hc_entry_push_space(node, entry);
		if (!hc_backup_admit(node, entry, skip))
			hc_entry_push_mem(node, entry);
	}
	hc_shard_unlock(shard);
	if (rc)
		hc_ignore(hc_family_add(node, page->series, &page->parent, -1, 0));
	else
		rc = hc_space_use(node->registry, hc_series_space(node->registry, page->series),
				  (int64_t)page->size_bytes, true);
	return rc;
}

static int hc_adopt_slot(void *arg, hc_slot_id slot, const struct hc_slot_page *page)
{
	struct hc_adopt *adopt = arg;
	struct hc_node *node = adopt->node;
	struct hc_key key = {page->series, page->hash};
	struct hc_shard *shard = hc_node_shard(node, &page->hash);
	struct hc_entry *entry;
	bool same = false, known;
	int rc = -EEXIST;

	known = hc_series_space(node->registry, page->series) &&
		page->flags & HC_SLOT_FLAG_SUMMED && page->size_bytes <= UINT32_MAX;
	if (known) {
		hc_registry_sequence_seen(node->registry, page->sequence);
		rc = hc_family_add(node, page->series, &page->parent, 1, 0);
	}
	if (known && !rc) {
		hc_shard_lock(shard);
		entry = hc_shard_find(shard, &key);
		same = entry && entry->sequence == page->sequence &&
		       entry->slot == HC_ENTRY_NO_SLOT && entry->size_bytes == page->size_bytes &&
		       entry->checksum == page->checksum;
		if (same) {
			entry->slot = slot;
			entry->flags |= HC_ENTRY_UNVERIFIED;
			hc_entry_push_mem(node, entry);
		}
		hc_shard_unlock(shard);
		if (!same) {
			hc_ignore(hc_family_add(node, page->series, &page->parent, -1, 0));
			rc = hc_adopt_new(adopt, slot, page);
		}
	}
	if (rc) {
		hc_count(node, adopt_dropped);
		return rc;
	}
	shard = hc_node_shard(node, &page->hash);
	hc_shard_lock(shard);
	entry = hc_shard_find(shard, &key);
	if (entry)
		hc_slot_note_entry(node, slot, entry->number);
	hc_shard_unlock(shard);
	atomic_fetch_add(&node->n_memory, 1);
	atomic_fetch_add(&node->memory_bytes, page->size_bytes);
	hc_count(node, adopted);
	return 0;
}

int hc_adopt_all(struct hc_node *node, bool rebuild)
{
	struct hc_adopt adopt = {.node = node, .space_last = UINT32_MAX};
	int rc = 0;

	if (node->catalog) {
		hc_adopt_recency(&adopt);
		rc = hc_adopt_catalog(&adopt);
		if (rc == -EBADMSG) {
			hc_error(HC_NODE,
				 "the catalog is damaged: it is rebuilt from the page files");
			hc_count(node, catalog_lost);
			rc = hc_catalog_renew(node->catalog);
			if (!rc)
				rc = hc_registry_put_all(node->registry);
			rebuild = true;
		}
	}
	if (!rc && node->pool_dir[0]) {
		hc_adopt_classes(node);
		hc_pool_adopted_each(node->pool, hc_adopt_slot, &adopt);
		if (atomic_load(&node->count.adopted) || atomic_load(&node->count.adopt_dropped))
			hc_info(HC_NODE, "adopted %llu pages in memory, dropped %llu slots",
				(unsigned long long)atomic_load(&node->count.adopted),
				(unsigned long long)atomic_load(&node->count.adopt_dropped));
	}
	/* What is told about pages that came back neither here nor on a disk that is missing. */
	if (!rc && !rebuild && !adopt.n_bad)
		hc_attrs_sweep(hc_registry_attrs(node->registry), HC_ATTRS_PAGE, NULL, NULL);
	free(adopt.recency);
	atomic_store(&node->rebuilding, !rc && rebuild && node->store);
	return rc;
}

/* --- rebuild from page files --- */

static void hc_rebuild_file(void *arg, uint16_t disk, const struct hc_store_page *page, int status,
			    const char *path)
{
	struct hc_adopt *adopt = arg;
	struct hc_node *node = adopt->node;
	struct hc_row_page row = {
		.hash = page->hash,
		.parent = page->parent,
		.size_bytes = page->size_bytes,
		.checksum = page->checksum,
		.mtime_ns = hc_clock_wall_ns(),
		.series = page->series,
		.depth = page->depth,
		.disk = disk,
	};
	struct hc_key key = {page->series, page->hash};
	struct hc_space_info space = {0};
	struct hc_page_info info;
	uint64_t ticket;
	int rc = status;

	if (atomic_load(&node->stop))
		return;
	if (!rc)
		rc = hc_space_get(node->registry, hc_series_space(node->registry, page->series),
				  &space);
	if (!rc) {
		/* The page comes back with its space's owner; a directory's search bits mean
		 * nothing on a file. */
		row.uid = space.owner.uid;
		row.gid = space.owner.gid;
		row.mode = space.owner.mode & 0666;
		if (page->flags & HC_STORE_PAGE_OPAQUE && page->name) {
			char dir[HC_PATH_BYTES];
			char *slash;

			row.flags |= HC_ROW_PAGE_OPAQUE;
			snprintf(row.name, sizeof(row.name), "%.*s", (int)sizeof(row.name) - 1,
				 page->name);
			snprintf(dir, sizeof(dir), "%s", row.name);
			slash = strrchr(dir, '/');
			if (slash)
				*slash = 0;
			rc = hc_dir_make_path(node->registry, space.id, slash ? dir : "", &row.dir);
		} else {
			rc = hc_name_dir_of_page(node->registry, &key, &row.dir);
		}
	}
	if (!rc)
		rc = hc_adopt_disk(node, &row, page->sequence, adopt, false);
	if (rc && rc != -EEXIST) {
		hc_debug(HC_NODE, "page file %s is not used: %s", path, strerror(-rc));
		return;
	}
	/* Also for a page that is known from the pool only: its file and slot are one body when the
	 * sequences agree. */
	if (!rc && !hc_node_stat(node, &key, false, &info)) {
		hc_count(node, rebuilt);
		if (hc_row_put(node, info.entry, info.sequence, false, &ticket))
			hc_warn(HC_NODE, "a rebuilt page has no catalog row");
	}
}

void hc_rebuild(struct hc_node *node)
{
	struct hc_adopt adopt = {.node = node, .space_last = UINT32_MAX};
	int failed = 0;

	hc_info(HC_NODE, "rebuilding the catalog from the page files");
	for (uint16_t disk = 0; disk < hc_node_n_disks(node); disk++) {
		int rc = node->store->ops->list(node->store, disk, hc_rebuild_file, &adopt);

		if (rc)
			hc_error(HC_NODE, "cannot list the page files of disk %u: %s", disk,
				 strerror(-rc));
		failed = failed ? failed : rc;
	}
	/* Until all rows are there every start does this again. */
	if (!failed && !atomic_load(&node->stop))
		failed = hc_registry_rebuilt(node->registry);
	if (failed)
		hc_warn(HC_NODE,
			"the catalog is not whole: the next start reads the page files again");
	atomic_store(&node->rebuilding, false);
	hc_info(HC_NODE, "rebuilt %llu pages",
		(unsigned long long)atomic_load(&node->count.rebuilt));
}
