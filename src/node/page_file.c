/* SPDX-License-Identifier: Apache-2.0 */
/* Pages as files: what a front end hands to the kernel instead of bytes. A file is verified before
 * its first use after a start, and again when its mark (size, times) is not the one of the last
 * time; a wrong one is a miss and goes to quarantine. Marks lie beside the entries, in chunks that
 * are made when first needed: a node that opens no files pays nothing. */
#include "node/internal.h"

#define HC_MARKS_CHUNK  65536u
#define HC_MARKS_CHUNKS 65536u

struct hc_marks {
	_Atomic(_Atomic uint64_t *) chunks[HC_MARKS_CHUNKS];
};

int hc_marks_create(struct hc_marks **marks_p)
{
	struct hc_marks *marks = hc_zalloc(sizeof(*marks));

	if (!marks)
		return -ENOMEM;
	*marks_p = marks;
	return 0;
}

void hc_marks_destroy(struct hc_marks *marks)
{
	if (!marks)
		return;
	for (size_t i = 0; i < HC_MARKS_CHUNKS; i++)
		free((void *)atomic_load(&marks->chunks[i]));
	free(marks);
}

/* NULL: no memory, and then nothing is remembered. */
static _Atomic uint64_t *hc_mark_place(struct hc_node *node, uint32_t number, bool make)
{
	_Atomic(_Atomic uint64_t *) *place = &node->marks->chunks[number / HC_MARKS_CHUNK];
	_Atomic uint64_t *chunk = atomic_load(place), *none = NULL;

	if (!chunk && make) {
		chunk = hc_zalloc(HC_MARKS_CHUNK * sizeof(*chunk));
		if (chunk && !atomic_compare_exchange_strong(place, &none, chunk)) {
			free((void *)chunk);
			chunk = none;
		}
	}
	return chunk ? &chunk[number % HC_MARKS_CHUNK] : NULL;
}

void hc_mark_file(struct hc_node *node, uint32_t number, uint64_t mark)
{
	_Atomic uint64_t *place = hc_mark_place(node, number, mark != 0);

	if (place)
		atomic_store_explicit(place, mark, memory_order_relaxed);
}

uint64_t hc_mark_of(struct hc_node *node, uint32_t number)
{
	_Atomic uint64_t *place = hc_mark_place(node, number, false);

	return place ? atomic_load_explicit(place, memory_order_relaxed) : 0;
}

void hc_file_cool(struct hc_node *node, const struct hc_page_info *page)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, page->entry);
	struct hc_entry *entry = hc_index_entry(node->index, page->entry);
	struct hc_store_page object;
	uint16_t disk;

	if (!node->store)
		return;
	hc_shard_lock(shard);
	disk = entry->sequence == page->sequence ? entry->disk : HC_ENTRY_NO_DISK;
	if (disk != HC_ENTRY_NO_DISK) {
		hc_entry_store_page(entry, &object);
		hc_mark_file(node, entry->number, 0);
	}
	hc_shard_unlock(shard);
	if (disk != HC_ENTRY_NO_DISK)
		node->store->ops->drop_cache(node->store, disk, &object);
}

/* What cannot be read is not there, or engines would not write it again. */
static void hc_file_bad(struct hc_node *node, const struct hc_ref *ref,
			const struct hc_store_page *object, int rc)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, ref->entry);
	struct hc_entry *entry = hc_index_entry(node->index, ref->entry);
	struct hc_after after = {0};
	bool bytes_bad = rc == -EBADMSG, removed = false;
	char text[HC_HASH_TEXT];

	if (rc != -EBADMSG && rc != -ENOENT && rc != -EIO && rc != -ENODEV)
		return;
	hc_shard_lock(shard);
	/* An eviction from disk may have taken the file between look and open. */
	if (entry->flags & HC_ENTRY_NAMED && entry->disk != HC_ENTRY_NO_DISK) {
		if (bytes_bad) {
			hc_count_series(node, entry->series, bad_checksum, 1);
			hc_count(node, quarantined);
		} else if (rc == -ENOENT) {
			hc_count_series(node, entry->series, bad_missing, 1);
		}
		if (rc == -ENODEV)
			hc_entry_lose(node, shard, entry, &after);
		else
			hc_entry_remove(node, shard, entry, bytes_bad, &after);
		removed = true;
	}
	hc_shard_unlock(shard);
	if (removed && bytes_bad) {
		hc_hash_format(&object->hash, text);
		hc_warn(HC_NODE, "page %u-%s is damaged on disk: a miss, the file is quarantined",
			object->series, text);
	}
	hc_after_run(node, &after);
}

/* Through the store's readers: it may take as long as the disk does. */
static int hc_file_verify_open(struct hc_node *node, const struct hc_acquire *how,
			       const struct hc_ref *ref, uint16_t disk,
			       const struct hc_store_page *object, uint64_t known, int *fd_p)
{
	struct hc_io *io = hc_io_create(node, HC_STORE_OPEN, NULL);
	struct hc_io_answer answer;
	int rc;

	if (!io)
		return -ENOMEM;
	io->request.disk = disk;
	io->request.flags = HC_STORE_URGENT | (node->config.no_verify ? HC_STORE_NO_VERIFY : 0);
	io->request.page = *object;
	io->request.mark = known;
	rc = hc_io_run_file(node, io, how->deadline_ns, &answer);
	if (rc == -ETIMEDOUT)
		hc_count(node, misses_deadline);
	if (rc)
		return rc;
	hc_count(node, files_verified);
	hc_mark_file(node, ref->entry, answer.mark);
	*fd_p = answer.fd;
	return 0;
}

/* Its file is being read ahead: twice would take longer. */
static uint64_t hc_file_mark_wait(struct hc_node *node, const struct hc_acquire *how,
				  const struct hc_ref *ref, uint16_t disk)
{
	struct hc_wait *wait = hc_load_wait(node, ref->entry);
	uint64_t seen = hc_wait_seen(wait), mark = hc_mark_of(node, ref->entry);

	if (mark != HC_MARK_COMING)
		return mark;
	node->store->ops->hurry(node->store, disk, ref->sequence);
	while (mark == HC_MARK_COMING && hc_wait_for(wait, seen, how->deadline_ns)) {
		seen = hc_wait_seen(wait);
		mark = hc_mark_of(node, ref->entry);
	}
	return mark == HC_MARK_COMING ? 0 : mark;
}

/* Inline where the file was looked at before: its name and inode are in the kernel then. */
static int hc_file_open_held(struct hc_node *node, const struct hc_acquire *how,
			     const struct hc_ref *ref, uint16_t disk,
			     const struct hc_store_page *object, int *fd_p)
{
	uint64_t known = hc_file_mark_wait(node, how, ref, disk), mark;
	int fd, rc;

	if (known) {
		rc = node->store->ops->open_file(node->store, disk, object, &fd, &mark);
		if (rc)
			return rc;
		if (mark == known) {
			*fd_p = fd;
			return 0;
		}
		close(fd);
	}
	return hc_file_verify_open(node, how, ref, disk, object, known, fd_p);
}

int hc_node_open_file(struct hc_node *node, const struct hc_acquire *how,
		      const struct hc_hash *hash, struct hc_ref *ref_p, int *fd_p)
{
	uint64_t expire_before_ns = hc_node_expire_before(node, how->series);
	struct hc_key key = {how->series, *hash};
	struct hc_shard *shard = hc_node_shard(node, hash);
	struct hc_walk_step step = {0};
	struct hc_store_page object;
	struct hc_entry *entry;
	struct hc_ref ref;
	uint16_t disk = 0;
	int rc = 0;

	hc_shard_lock(shard);
	entry = hc_shard_find(shard, &key);
	if (!entry || entry->mtime_ns < expire_before_ns || entry->refs == HC_ENTRY_REFS_MAX)
		rc = -ENOENT;
	else if (entry->slot != HC_ENTRY_NO_SLOT || entry->disk == HC_ENTRY_NO_DISK)
		rc = -EAGAIN;
	if (!rc) {
		hc_acquire_hold(node, how, entry, how->opener ? 0 : hc_node_stamp(node), true, &ref,
				&step);
		hc_entry_store_page(entry, &object);
		disk = entry->disk;
	}
	hc_shard_unlock(shard);
	if (rc == -EAGAIN)
		return rc;
	hc_count(node, acquires);
	if (rc) {
		hc_count_series(node, how->series, misses, 1);
		return rc;
	}
	atomic_fetch_add_explicit(&node->n_refs, 1, memory_order_relaxed);
	hc_count_series(node, how->series, hits_disk, 1);
	if (step.ahead_bytes)
		hc_ahead_run(node, how->series, &step, true);
	rc = hc_file_open_held(node, how, &ref, disk, &object, fd_p);
	if (rc) {
		hc_file_bad(node, &ref, &object, rc);
		hc_node_release(node, &ref, 1);
		hc_count_series(node, how->series, misses, 1);
		return rc == -ENOMEM ? rc : -ENOENT;
	}
	*ref_p = ref;
	return 0;
}

int hc_node_hold(struct hc_node *node, uint32_t number, uint64_t sequence, struct hc_ref *ref_p)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, number);
	struct hc_entry *entry;
	int rc = -ESTALE;

	if (!shard)
		return rc;
	hc_shard_lock(shard);
	entry = hc_index_entry(node->index, number);
	if (entry && entry->sequence == sequence && entry->flags & HC_ENTRY_NAMED &&
	    entry->refs < HC_ENTRY_REFS_MAX) {
		entry->refs++;
		*ref_p = (struct hc_ref){
			.entry = number,
			.slot = HC_SLOT_NONE,
			.size_bytes = entry->size_bytes,
			.sequence = sequence,
			.series = entry->series,
		};
		rc = 0;
	}
	hc_shard_unlock(shard);
	if (!rc)
		atomic_fetch_add_explicit(&node->n_refs, 1, memory_order_relaxed);
	return rc;
}

int hc_node_probe_file(struct hc_node *node, uint16_t disk, int *fd_p, char *name, size_t room)
{
	if (node->config.disk_off || disk >= hc_node_n_disks(node))
		return -ENODEV;
	return node->store->ops->staging_create(node->store, disk, fd_p, name, room);
}
