/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog's page rows become entries on disk: the largest part of a start. Several threads take
 * pieces of the table. A piece is worked on shard by shard, so that a lock, a table and the end of
 * a slab are fetched once for many rows; what would make the threads wait for each other (directory
 * lists, eviction orders, accounts) each collects and hands over many at a time.
 *
 * Nothing else of the node runs: entries are only added, and a child may be counted at its parent
 * after it was inserted. A second row of a key is put aside for later: which body wins goes by
 * sequence, and pieces come in any order. */
#include "node/adopt.h"

/* Rows that are unpacked, their places fetched, before the first of them is inserted. */
#define HC_ROWS_GROUP 16u
/* Entries and records that a thread collects before it hands them over. */
#define HC_PART_ROOM 512u
#define HC_PART_DIRS 1024u
/* A thread is worth its start from so many rows on. */
#define HC_ROWS_A_THREAD 16384u

/* Rows of a piece by shard. */
struct hc_part_sort {
	uint8_t shards[HC_CATALOG_PIECE_ROWS];
	uint16_t sorted[HC_CATALOG_PIECE_ROWS]; /* places in the piece; those of a shard in order */
	uint16_t begin[HC_INDEX_SHARDS + 1];    /* of each shard in `sorted` */
};

/* What a thread has of its own. */
struct hc_part {
	const struct hc_adopt *adopt;
	struct hc_adopt_laters *laters;
	struct hc_adopt_seams *seams;
	/* Of the piece at work, by place in it. */
	const struct hc_catalog_row *packed;
	const struct hc_hash *hashes[HC_CATALOG_PIECE_ROWS];  /* NULL: not used */
	const struct hc_hash *parents[HC_CATALOG_PIECE_ROWS]; /* NULL: none, or not used */
	const struct hc_recency *recency[HC_CATALOG_PIECE_ROWS];
	struct hc_hints hints[HC_CATALOG_PIECE_ROWS]; /* only with has_hints */
	bool attrs[HC_CATALOG_PIECE_ROWS];
	const struct hc_entry *entries[HC_CATALOG_PIECE_ROWS]; /* NULL: not used */
	struct hc_part_sort by_hash, by_parent;

	bool has_hints; /* some page or directory has attributes */
	struct hc_row_page rows[HC_ROWS_GROUP];

	uint32_t series; /* of the row before, its space and that one's priority */
	uint32_t space;
	uint8_t priority;
	struct hc_owner owner; /* of the row before */
	uint16_t owner_number;
	bool has_owner;
	uint32_t dirs[HC_PART_DIRS]; /* known to be there, by their low bits */

	uint32_t listed_dir; /* of `listed` */
	size_t n_listed;
	struct hc_entry *listed[HC_PART_ROOM];
	uint32_t filed_space; /* of `filed` and space_bytes */
	size_t n_filed;
	struct hc_order_record filed[HC_PART_ROOM];
	uint64_t space_bytes;
	uint64_t n_disk[HC_DISKS_MAX], disk_bytes[HC_DISKS_MAX];
	uint64_t sequence_max;
	uint64_t n_bad;
};

static void hc_part_list(struct hc_part *part)
{
	if (part->n_listed)
		hc_index_dir_add_many(part->adopt->node->index, part->listed, part->n_listed,
				      part->listed_dir);
	part->n_listed = 0;
}

static int hc_part_file(struct hc_part *part)
{
	struct hc_node *node = part->adopt->node;
	struct hc_order *order;
	int rc = 0;

	if (!part->n_filed)
		return 0;
	order = hc_node_space_order(node, part->filed_space, true);
	rc = order ? hc_order_append(order, part->filed, part->n_filed) : -ENOMEM;
	hc_ignore(
		hc_space_use(node->registry, part->filed_space, (int64_t)part->space_bytes, true));
	part->n_filed = 0;
	part->space_bytes = 0;
	return rc;
}

static int hc_part_end(struct hc_part *part)
{
	struct hc_node *node = part->adopt->node;

	hc_part_list(part);
	for (uint16_t disk = 0; disk < HC_DISKS_MAX; disk++) {
		if (part->n_disk[disk])
			hc_disk_account(node, disk, (int)part->n_disk[disk],
					part->disk_bytes[disk]);
	}
	if (part->sequence_max)
		hc_registry_sequence_seen(node->registry, part->sequence_max);
	return hc_part_file(part);
}

static void hc_part_series(struct hc_part *part, uint32_t series)
{
	struct hc_node *node = part->adopt->node;

	if (series == part->series)
		return;
	part->series = series;
	part->space = hc_series_space(node->registry, series);
	part->priority = part->space ? hc_node_space_priority(node, part->space) : 0;
}

static bool hc_part_has_dir(struct hc_part *part, uint32_t dir)
{
	uint32_t *known = &part->dirs[dir % HC_PART_DIRS];
	struct hc_dir_info info;

	if (!dir || (*known != dir && hc_dir_get(part->adopt->node->registry, dir, &info)))
		return false;
	*known = dir;
	return true;
}

static uint16_t hc_part_owner(struct hc_part *part, const struct hc_row_page *row)
{
	struct hc_owner owner = {row->uid, row->gid, row->mode};

	if (part->has_owner && part->owner.uid == owner.uid && part->owner.gid == owner.gid &&
	    part->owner.mode == owner.mode)
		return part->owner_number;
	if (hc_owners_intern(part->adopt->node->owners, &owner, &part->owner_number))
		part->owner_number = 0;
	part->owner = owner;
	part->has_owner = true;
	return part->owner_number;
}

/* Before any shard is locked. Few caches have attributes: what they cost is paid by these. */
static void hc_part_hints(struct hc_part *part, size_t i)
{
	const struct hc_catalog_row *packed = &part->packed[i];
	struct hc_row_page *row = &part->rows[0];

	if (hc_row_page_unpack(packed->value, packed->n_bytes, row))
		return;
	hc_part_series(part, row->series);
	part->attrs[i] = hc_hints_claim(part->adopt->node, packed->key, row->dir, part->priority,
					&part->hints[i]);
}

static void hc_part_fill(struct hc_part *part, const struct hc_row_page *row, size_t i,
			 struct hc_entry *entry)
{
	struct hc_node *node = part->adopt->node;

	entry->parent = row->parent;
	entry->sequence = part->packed[i].key;
	entry->checksum = row->checksum;
	entry->mtime_ns = row->mtime_ns;
	entry->size_bytes = (uint32_t)row->size_bytes;
	entry->depth = row->depth & 0xffffff;
	if (part->has_hints) {
		hc_hints_give(entry, &part->hints[i]);
		entry->attrs = part->attrs[i];
	} else {
		hc_hints_give(entry, &(struct hc_hints){.priority = part->priority,
							.session = HC_SESSION_NONE});
	}
	entry->disk = row->disk;
	entry->owner = hc_part_owner(part, row);
	entry->flags |= HC_ENTRY_SUMMED | HC_ENTRY_CATALOGUED | HC_ENTRY_IN_SPACE;
	if (row->flags & HC_ROW_PAGE_OPAQUE && !hc_opaque_set(node, entry->number, row->name))
		entry->flags |= HC_ENTRY_OPAQUE;
	hc_family_adopt(node, entry);
	hc_adopt_stamp(part->adopt, part->recency[i], entry);
}

/* What is handed over by many. */
static int hc_part_collect(struct hc_part *part, const struct hc_row_page *row,
			   struct hc_entry *entry)
{
	int rc = 0;

	if (hc_part_has_dir(part, row->dir)) {
		if (row->dir != part->listed_dir || part->n_listed == HC_PART_ROOM)
			hc_part_list(part);
		part->listed_dir = row->dir;
		part->listed[part->n_listed++] = entry;
	}
	if (part->space != part->filed_space || part->n_filed == HC_PART_ROOM)
		rc = hc_part_file(part);
	part->filed_space = part->space;
	part->filed[part->n_filed++] = (struct hc_order_record){hc_order_key(entry), entry->number,
								(uint32_t)entry->sequence};
	part->space_bytes += row->size_bytes;
	part->n_disk[row->disk]++;
	part->disk_bytes[row->disk] += row->size_bytes;
	return rc;
}

static int hc_laters_add(struct hc_adopt_laters *laters, const struct hc_catalog_row *row)
{
	uint8_t *value = malloc(row->n_bytes);
	int rc = value ? 0 : -ENOMEM;

	pthread_mutex_lock(&laters->lock);
	if (!rc && laters->n == laters->room) {
		size_t room = laters->room ? laters->room * 2 : 64;
		struct hc_adopt_later *items = realloc(laters->items, room * sizeof(*items));

		if (items) {
			laters->items = items;
			laters->room = room;
		} else {
			rc = -ENOMEM;
		}
	}
	if (!rc) {
		memcpy(value, row->value, row->n_bytes);
		laters->items[laters->n++] = (struct hc_adopt_later){row->key, value, row->n_bytes};
	}
	pthread_mutex_unlock(&laters->lock);
	if (rc)
		free(value);
	return rc;
}

/* Shard locked. Row i of the piece. -ENOMEM alone ends the load. */
static int hc_part_insert(struct hc_part *part, struct hc_shard *shard,
			  const struct hc_row_page *row, size_t i)
{
	struct hc_node *node = part->adopt->node;
	struct hc_key key = {row->series, row->hash};
	struct hc_entry *entry;
	int rc;

	hc_part_series(part, row->series);
	if (!part->space || row->disk >= hc_node_n_disks(node) || !row->size_bytes ||
	    row->size_bytes > UINT32_MAX) {
		part->n_bad++;
		part->parents[i] = NULL;
		return 0;
	}
	part->sequence_max = hc_max_u64(part->sequence_max, part->packed[i].key);
	rc = hc_shard_insert(shard, &key, &entry);
	if (rc) {
		part->parents[i] = NULL;
		return rc == -EEXIST ? hc_laters_add(part->laters, &part->packed[i]) : rc;
	}
	part->entries[i] = entry;
	hc_part_fill(part, row, i, entry);
	return hc_part_collect(part, row, entry);
}

/* Shard locked. */
static int hc_part_group(struct hc_part *part, struct hc_shard *shard, const uint16_t *places,
			 size_t n)
{
	struct hc_node *node = part->adopt->node;
	bool bad[HC_ROWS_GROUP];
	int rc = 0;

	for (size_t g = 0; g < n; g++) {
		const struct hc_catalog_row *packed = &part->packed[places[g]];
		struct hc_row_page *row = &part->rows[g];

		bad[g] = hc_row_page_unpack(packed->value, packed->n_bytes, row);
		if (!bad[g]) {
			hc_index_prefetch(node->index, &(struct hc_key){row->series, row->hash});
		} else {
			part->n_bad++;
			part->parents[places[g]] = NULL;
		}
	}
	for (size_t g = 0; g < n && !rc; g++) {
		if (!bad[g])
			rc = hc_part_insert(part, shard, &part->rows[g], places[g]);
	}
	return rc;
}

static int hc_part_insert_all(struct hc_part *part)
{
	const struct hc_part_sort *sort = &part->by_hash;
	int rc = 0;

	for (unsigned s = 0; s < HC_INDEX_SHARDS && !rc; s++) {
		struct hc_shard *shard;

		if (sort->begin[s] == sort->begin[s + 1])
			continue;
		shard = hc_index_shard(part->adopt->node->index,
				       part->hashes[sort->sorted[sort->begin[s]]]);
		hc_shard_lock(shard);
		for (unsigned i = sort->begin[s]; i < sort->begin[s + 1] && !rc; i += HC_ROWS_GROUP)
			rc = hc_part_group(part, shard, sort->sorted + i,
					   hc_min_u64(sort->begin[s + 1] - i, HC_ROWS_GROUP));
		hc_shard_unlock(shard);
	}
	return rc;
}

static int hc_part_count_all(struct hc_part *part)
{
	const struct hc_part_sort *sort = &part->by_parent;
	struct hc_node *node = part->adopt->node;
	int rc = 0;

	for (unsigned s = 0; s < HC_INDEX_SHARDS && !rc; s++) {
		struct hc_shard *shard = NULL;

		for (unsigned i = sort->begin[s]; i < sort->begin[s + 1]; i++) {
			uint16_t place = sort->sorted[i];

			if (part->parents[place])
				hc_index_prefetch(node->index,
						  &(struct hc_key){part->entries[place]->series,
								   *part->parents[place]});
		}
		for (unsigned i = sort->begin[s]; i < sort->begin[s + 1] && !rc; i++) {
			const struct hc_hash *parent = part->parents[sort->sorted[i]];
			struct hc_key key;

			if (!parent)
				continue;
			if (!shard) {
				shard = hc_index_shard(node->index, parent);
				hc_shard_lock(shard);
			}
			key = (struct hc_key){part->entries[sort->sorted[i]]->series, *parent};
			rc = hc_family_add_locked(node, shard, &key, 0, 1);
		}
		if (shard)
			hc_shard_unlock(shard);
	}
	return rc;
}

static int hc_part_link_all(struct hc_part *part, size_t n)
{
	struct hc_adopt_seam *seam = hc_zalloc(sizeof(*seam));
	int rc;

	if (!seam)
		return -ENOMEM;
	seam->first = part->packed[0].key;
	hc_tails_clear(&seam->tails);
	for (size_t i = 0; i < n; i++) {
		if (part->entries[i] &&
		    !hc_tails_add(part->adopt->node, &seam->tails, part->entries[i]))
			hc_seam_head(seam, part->entries[i]);
	}
	rc = hc_seams_add(part->seams, seam);
	if (rc)
		free(seam);
	return rc;
}

static void hc_part_sort(struct hc_part *part, struct hc_part_sort *sort,
			 const struct hc_hash *const *hashes, size_t n)
{
	uint16_t at[HC_INDEX_SHARDS + 1] = {0};

	for (size_t i = 0; i < n; i++) {
		if (!hashes[i])
			continue;
		sort->shards[i] = (uint8_t)hc_shard_number(
			hc_index_shard(part->adopt->node->index, hashes[i]));
		at[sort->shards[i] + 1]++;
	}
	for (unsigned s = 0; s < HC_INDEX_SHARDS; s++)
		at[s + 1] = (uint16_t)(at[s + 1] + at[s]);
	memcpy(sort->begin, at, sizeof(at));
	for (size_t i = 0; i < n; i++) {
		if (hashes[i])
			sort->sorted[at[sort->shards[i]]++] = (uint16_t)i;
	}
}

static int hc_part_piece(void *arg, unsigned thread_i, const struct hc_catalog_row *rows, size_t n)
{
	struct hc_part *part = &((struct hc_part *)arg)[thread_i];
	const struct hc_adopt *adopt = part->adopt;
	const struct hc_recency *recency = hc_adopt_recency_find(adopt, rows[0].key);
	const struct hc_recency *end = adopt->recency + adopt->n_recency;
	int rc;

	part->packed = rows;
	memset(part->entries, 0, n * sizeof(part->entries[0]));
	for (size_t i = 0; i < n; i++) {
		if (hc_row_page_peek(rows[i].value, rows[i].n_bytes, &part->hashes[i],
				     &part->parents[i])) {
			part->hashes[i] = part->parents[i] = NULL;
			part->n_bad++;
		}
		/* Both are in the order of their sequence. */
		while (recency && recency->sequence < rows[i].key)
			recency = recency + 1 < end ? recency + 1 : NULL;
		part->recency[i] = recency;
		if (part->has_hints && part->hashes[i])
			hc_part_hints(part, i);
	}
	hc_part_sort(part, &part->by_hash, part->hashes, n);
	hc_part_sort(part, &part->by_parent, part->parents, n);
	rc = hc_part_insert_all(part);
	if (!rc)
		rc = hc_part_count_all(part);
	return rc ? rc : hc_part_link_all(part, n);
}

int hc_adopt_rows(struct hc_adopt *adopt, struct hc_adopt_laters *laters)
{
	struct hc_catalog *catalog = adopt->node->catalog;
	uint64_t n_rows = hc_catalog_n_rows(catalog, HC_TABLE_PAGES);
	unsigned n_threads = (unsigned)hc_min_u64(
		hc_min_u64((uint64_t)hc_sysinfo_cpus(), HC_CATALOG_THREADS_MAX),
		1 + n_rows / HC_ROWS_A_THREAD);
	struct hc_part *parts = calloc(n_threads, sizeof(*parts));
	struct hc_adopt_seams seams = {.n = 0};
	struct hc_attrs *attrs = hc_registry_attrs(adopt->node->registry);
	int rc;

	if (!parts)
		return -ENOMEM;
	hc_index_reserve(adopt->node->index, n_rows);
	for (unsigned i = 0; i < n_threads; i++) {
		parts[i].adopt = adopt;
		parts[i].laters = laters;
		parts[i].seams = &seams;
		parts[i].has_hints =
			hc_attrs_count(attrs, HC_ATTRS_PAGE) || hc_attrs_count(attrs, HC_ATTRS_DIR);
	}
	pthread_mutex_init(&seams.lock, NULL);
	rc = hc_catalog_load_pieces(catalog, HC_TABLE_PAGES, n_threads, hc_part_piece, parts);
	for (unsigned i = 0; i < n_threads; i++) {
		int end_rc = hc_part_end(&parts[i]);

		adopt->n_bad += parts[i].n_bad;
		rc = rc ? rc : end_rc;
	}
	hc_seams_link(adopt->node, &seams);
	hc_seams_free(&seams);
	pthread_mutex_destroy(&seams.lock);
	free(parts);
	return rc;
}
