/* SPDX-License-Identifier: Apache-2.0 */
/* Read-ahead for engines that open page after page. A walk (index/walk.h) says how far; here the
 * pages behind it, by the links of their publishes, are given slots and queued in the store, behind
 * everything that is waited for.
 *
 * It takes free slots only and evicts nothing: no page goes for one that is merely expected. The
 * evictor keeps some free. What is read ahead and not yet used is at most an eighth of the pool. A
 * page that is unlinked meanwhile is read for nothing and freed. Nobody waits here, and nobody is
 * woken when such a page is there.
 *
 * Where the kernel reads the files of pages itself, it is their files that are read, by the store's
 * readers into its page cache; a file that was not verified since the start is, so that its open
 * finds it done. */
#include "node/internal.h"

/* Pages looked at for one window, whatever their size. */
#define HC_AHEAD_PAGES_MAX 128u
/* Part of the pool that may hold pages nobody has used. */
#define HC_AHEAD_POOL_PART 8u

/* Of files no room in the pool is counted. */
static void hc_ahead_end(struct hc_node *node, struct hc_entry *entry)
{
	entry->flags &= (uint16_t)~HC_ENTRY_AHEAD;
	if (entry->slot != HC_ENTRY_NO_SLOT)
		atomic_fetch_sub(&node->ahead_bytes, entry->size_bytes);
}

void hc_ahead_used(struct hc_node *node, struct hc_entry *entry)
{
	if (!(entry->flags & HC_ENTRY_AHEAD))
		return;
	hc_ahead_end(node, entry);
	hc_count(node, ahead_hits);
}

void hc_ahead_lost(struct hc_node *node, struct hc_entry *entry)
{
	if (!(entry->flags & HC_ENTRY_AHEAD))
		return;
	hc_ahead_end(node, entry);
	hc_count(node, ahead_wasted);
}

/* Where the look along the links stands. */
struct hc_ahead {
	struct hc_node *node;
	uint32_t series;
	uint64_t expire_before_ns;
	struct hc_link tail; /* last page that was looked at */
	uint64_t left_bytes;
	uint32_t left_pages;
};

/* The next page; false: none, or not within what is left. ref_p->slot is HC_SLOT_NONE where it is
 * on disk only. */
static bool hc_ahead_next(struct hc_ahead *ahead, struct hc_ref *ref_p)
{
	struct hc_node *node = ahead->node;
	struct hc_shard *shard;
	struct hc_entry *entry;
	struct hc_link next;
	bool sure, good;

	if (!ahead->left_pages || !hc_links_next(node->links, ahead->tail, &next, &sure) || !sure)
		return false;
	shard = hc_index_entry_shard(node->index, next.number);
	hc_shard_lock(shard);
	entry = hc_index_entry(node->index, next.number);
	good = hc_link_equal(hc_entry_link(entry), next) && entry->flags & HC_ENTRY_NAMED &&
	       entry->series == ahead->series && entry->mtime_ns >= ahead->expire_before_ns &&
	       entry->size_bytes <= ahead->left_bytes;
	if (good)
		*ref_p = (struct hc_ref){
			.entry = entry->number,
			.slot = entry->slot,
			.size_bytes = entry->size_bytes,
			.sequence = entry->sequence,
			.series = entry->series,
		};
	hc_shard_unlock(shard);
	return good;
}

static void hc_ahead_step(struct hc_ahead *ahead, const struct hc_ref *ref)
{
	ahead->tail = (struct hc_link){ref->entry, (uint32_t)ref->sequence};
	ahead->left_bytes -= ref->size_bytes;
	ahead->left_pages--;
}

/* Queues the loads of n pages of one size; how many leading ones have a slot or need none. */
static size_t hc_ahead_load(struct hc_ahead *ahead, const struct hc_ref *refs, size_t n,
			    uint32_t stamp)
{
	struct hc_node *node = ahead->node;
	struct hc_run runs[HC_LOAD_RUNS];
	struct hc_io *ios[HC_LOAD_RUNS];
	uint32_t n_runs, got, k = 0, n_ios = 0;
	struct hc_domain domain;

	hc_node_space_domain(node, hc_series_space(node->registry, ahead->series), &domain);
	got = hc_slots_spare(node, &domain, refs[0].size_bytes, (uint32_t)n, runs, HC_LOAD_RUNS,
			     &n_runs);
	for (uint32_t r = 0; r < n_runs; r++) {
		for (uint32_t s = 0; s < runs[r].n; s++, k++) {
			hc_slot_id slot =
				hc_pool_slot(node->pool, runs[r].segment, runs[r].first + s);

			ios[n_ios] = hc_load_attach(node, &refs[k], slot, stamp);
			n_ios += ios[n_ios] ? 1 : 0;
		}
	}
	hc_io_submit(node, ios, n_ios, 0);
	return got;
}

static void hc_ahead_file_done(struct hc_node *node, struct hc_io *io)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, io->number);
	struct hc_entry *entry = hc_index_entry(node->index, io->number);

	bool good = !io->request.result, same;

	/* Before the mark: who sees that sees the number, too. An error is for the open to find. */
	if (good)
		hc_count(node, files_verified);
	hc_shard_lock(shard);
	same = entry->sequence == io->sequence && entry->disk == io->request.disk;
	if (hc_mark_of(node, io->number) == HC_MARK_COMING || (good && same))
		hc_mark_file(node, io->number, good && same ? io->request.mark : 0);
	hc_shard_unlock(shard);
	hc_wait_wake(hc_load_wait(node, io->number));
	if (good)
		close(io->request.fd);
	free(io);
}

/* The same for the file of a page. */
static struct hc_io *hc_ahead_file(struct hc_node *node, const struct hc_ref *ref, uint32_t stamp)
{
	struct hc_io *io = hc_io_create(node, HC_STORE_OPEN, hc_ahead_file_done);
	struct hc_shard *shard = hc_index_entry_shard(node->index, ref->entry);
	struct hc_entry *entry = hc_index_entry(node->index, ref->entry);
	bool good;

	if (!io)
		return NULL;
	hc_shard_lock(shard);
	good = entry->sequence == ref->sequence && entry->slot == HC_ENTRY_NO_SLOT &&
	       entry->disk != HC_ENTRY_NO_DISK && !(entry->flags & HC_ENTRY_AHEAD);
	if (good) {
		entry->stamp = (uint32_t)hc_max_u64(entry->stamp, stamp);
		entry->flags |= HC_ENTRY_AHEAD;
		hc_count(node, ahead_pages);
		io->number = entry->number;
		io->sequence = entry->sequence;
		io->request.disk = entry->disk;
		io->request.mark = hc_mark_of(node, entry->number);
		if (!io->request.mark)
			hc_mark_file(node, entry->number, HC_MARK_COMING);
		io->request.flags =
			HC_STORE_AHEAD | (node->config.no_verify ? HC_STORE_NO_VERIFY : 0);
		hc_entry_store_page(entry, &io->request.page);
	}
	hc_shard_unlock(shard);
	if (good)
		return io;
	free(io);
	return NULL;
}

static size_t hc_ahead_files(struct hc_ahead *ahead, const struct hc_ref *refs, size_t n,
			     uint32_t stamp)
{
	struct hc_io *ios[HC_LOAD_RUNS];
	size_t n_ios = 0;

	for (size_t i = 0; i < n; i++) {
		ios[n_ios] = hc_ahead_file(ahead->node, &refs[i], stamp);
		n_ios += ios[n_ios] ? 1 : 0;
	}
	hc_io_submit(ahead->node, ios, n_ios, 0);
	return n;
}

static uint64_t hc_ahead_room(struct hc_node *node)
{
	uint64_t most = hc_node_pool_bytes(node) / HC_AHEAD_POOL_PART;
	uint64_t used = atomic_load(&node->ahead_bytes);

	return used < most ? most - used : 0;
}

void hc_ahead_run(struct hc_node *node, uint32_t series, const struct hc_walk_step *step,
		  bool by_file)
{
	uint64_t want_bytes =
		by_file ? step->ahead_bytes : hc_min_u64(step->ahead_bytes, hc_ahead_room(node));
	struct hc_ahead ahead = {
		.node = node,
		.series = series,
		.expire_before_ns = hc_node_expire_before(node, series),
		.tail = step->ahead_from,
		.left_bytes = want_bytes,
		.left_pages = HC_AHEAD_PAGES_MAX,
	};
	struct hc_ref refs[HC_LOAD_RUNS], ref;
	bool more = node->store;

	while (more) {
		struct hc_ahead begin = ahead;
		size_t n = 0, got;

		/* A batch of one size; what is in memory already needs nothing. */
		while (n < HC_LOAD_RUNS && (more = hc_ahead_next(&ahead, &ref))) {
			if (ref.slot == HC_SLOT_NONE) {
				if (n && ref.size_bytes != refs[0].size_bytes)
					break;
				refs[n++] = ref;
			}
			hc_ahead_step(&ahead, &ref);
		}
		if (by_file)
			got = hc_ahead_files(&ahead, refs, n, step->stamp);
		else
			got = n ? hc_ahead_load(&ahead, refs, n, step->stamp) : 0;
		if (got == n)
			continue;
		/* No more room: as if the walk had been looked at up to there only. */
		ahead = begin;
		for (size_t i = 0; i < got && hc_ahead_next(&ahead, &ref);) {
			i += ref.entry == refs[i].entry;
			hc_ahead_step(&ahead, &ref);
		}
		more = false;
	}
	hc_walk_ahead_done(node->walks, step, ahead.tail, want_bytes - ahead.left_bytes);
}
