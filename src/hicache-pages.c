/* SPDX-License-Identifier: Apache-2.0 */
/* See hicache.h: pages. A held page carries the node's ref in its `lease` words:
 *
 *	lease[0]  sequence (of a reservation: the space that pays)
 *	lease[1]  slot << 32 | entry
 *	lease[2]  series << 32 | kind
 *
 * The node takes whole batches of refs: one batch is one stamp of the eviction order. */
#include "hicache-internal.h"

/* Batches up to this size need no memory of their own. */
#define HC_BATCH_SMALL    64
#define HC_SERIES_SET_MAX 64

enum hc_held { HC_HELD_NOTHING, HC_HELD_LEASE, HC_HELD_RESERVATION };

static enum hc_held hc_page_held(const struct hicache_page *page)
{
	return (enum hc_held)(uint32_t)page->lease[2];
}

static void hc_page_from_ref(struct hicache_page *page, const struct hc_ref *ref, enum hc_held held)
{
	*page = (struct hicache_page){
		.data = ref->data,
		.size_bytes = ref->size_bytes,
		.lease = {ref->sequence, (uint64_t)ref->slot << 32 | ref->entry,
			  (uint64_t)ref->series << 32 | held},
	};
}

static void hc_page_to_ref(const struct hicache_page *page, struct hc_ref *ref)
{
	*ref = (struct hc_ref){
		.entry = (uint32_t)page->lease[1],
		.slot = (hc_slot_id)(page->lease[1] >> 32),
		.data = page->data,
		.size_bytes = page->size_bytes,
		.sequence = page->lease[0],
		.series = (uint32_t)(page->lease[2] >> 32),
	};
}

/* --- what is there --- */

int hicache_exists_prefix(struct hicache_series *const *series, size_t n_series,
			  const struct hicache_hash *hashes, size_t n, uint32_t flags, size_t *n_p)
{
	uint32_t ids[HC_SERIES_SET_MAX];

	if (!n_series || n_series > HC_SERIES_SET_MAX || flags & ~HICACHE_TOUCH) {
		hc_error(HC_PUBLIC, "exists_prefix: %zu series (1 to %d), flags %#x", n_series,
			 HC_SERIES_SET_MAX, flags);
		return -EINVAL;
	}
	if (hc_public_foreign(series[0]->hc))
		return -ESTALE;
	for (size_t i = 0; i < n_series; i++) {
		if (series[i]->hc != series[0]->hc) {
			hc_error(HC_PUBLIC, "exists_prefix: the series are of different caches");
			return -EINVAL;
		}
		ids[i] = series[i]->id;
	}
	*n_p = n ? hc_node_exists_prefix(series[0]->hc->node, ids, n_series,
					 hc_public_hashes(hashes), n, flags & HICACHE_TOUCH)
		 : 0;
	return 0;
}

int hicache_page_stat(struct hicache_series *series, const struct hicache_hash *hash,
		      struct hicache_page_info *info)
{
	struct hc_key key = hc_public_key(series, hash);
	struct hicache_page_info own = {0};
	struct hc_page_info page;
	int rc;

	if (hc_public_foreign(series->hc))
		return -ESTALE;
	rc = hc_node_stat(series->hc->node, &key, false, &page);
	if (rc)
		return rc;
	own.size_bytes = page.size_bytes;
	own.mtime_ns = page.mtime_ns;
	own.checksum = page.checksum;
	memcpy(own.parent.bytes, page.parent.bytes, HC_HASH_BYTES);
	own.depth = page.depth;
	own.hits = page.hits;
	own.n_held = page.refs;
	own.n_pins = page.pins;
	own.in_memory = page.in_memory;
	own.on_disk = page.on_disk;
	return hc_public_fill("page info", info, &own, sizeof(own));
}

/* --- leases --- */

/* Pages of another size than the series' are not what its kvspec says: misses, as is what follows
 * them. */
static size_t hc_acquire_right(struct hicache_series *series, struct hc_ref *refs, size_t got)
{
	for (size_t i = 0; i < got; i++) {
		if (series->page_bytes && refs[i].size_bytes != series->page_bytes) {
			hc_debug(HC_PUBLIC,
				 "series '%s': a page of %llu bytes is not of its kvspec",
				 series->pattern, (unsigned long long)refs[i].size_bytes);
			hc_node_release(series->hc->node, refs + i, got - i);
			return i;
		}
	}
	return got;
}

int hicache_acquire(struct hicache_series *series, const struct hicache_hash *hashes, size_t n,
		    uint32_t timeout_ms, struct hicache_page *pages, size_t *n_p)
{
	struct hc_acquire how = {.series = series->id,
				 .deadline_ns = hc_public_deadline(timeout_ms)};
	struct hc_ref small[HC_BATCH_SMALL], *refs = small;
	size_t got = 0;
	int rc;

	if (hc_public_foreign(series->hc))
		return -ESTALE;
	if (!n) {
		*n_p = 0;
		return 0;
	}
	if (n > HC_BATCH_SMALL) {
		refs = malloc(n * sizeof(*refs));
		if (!refs)
			return -ENOMEM;
	}
	rc = hc_node_acquire(series->hc->node, &how, hc_public_hashes(hashes), n, refs, &got);
	if (!rc) {
		got = hc_acquire_right(series, refs, got);
		for (size_t i = 0; i < got; i++)
			hc_page_from_ref(&pages[i], &refs[i], HC_HELD_LEASE);
		rc = got ? 0 : -ENOENT;
	}
	if (!rc) {
		atomic_fetch_add(&series->hc->n_leased, got);
		*n_p = got;
	}
	if (refs != small)
		free(refs);
	return rc;
}

/* Gives back those of one kind; true when there are some of the other. */
static bool hc_page_give_back(struct hicache *hc, struct hicache_page *pages, size_t n,
			      enum hc_held held)
{
	struct hc_ref refs[HC_BATCH_SMALL];
	bool other = false;
	size_t n_refs = 0;

	for (size_t i = 0; i <= n; i++) {
		if (n_refs && (i == n || n_refs == HC_BATCH_SMALL)) {
			if (held == HC_HELD_LEASE)
				hc_node_release(hc->node, refs, n_refs);
			else
				hc_node_abort(hc->node, refs, n_refs);
			atomic_fetch_sub(held == HC_HELD_LEASE ? &hc->n_leased : &hc->n_reserved,
					 n_refs);
			n_refs = 0;
		}
		if (i == n || hc_page_held(&pages[i]) == HC_HELD_NOTHING)
			continue;
		if (hc_page_held(&pages[i]) != held) {
			other = true;
			continue;
		}
		hc_page_to_ref(&pages[i], &refs[n_refs++]);
		pages[i] = (struct hicache_page){0};
	}
	return other;
}

int hicache_release(struct hicache *hc, struct hicache_page *pages, size_t n)
{
	if (hc_public_foreign(hc))
		return -ESTALE;
	if (hc_page_give_back(hc, pages, n, HC_HELD_LEASE)) {
		hc_error(HC_PUBLIC, "release: a page is a reservation: publish or abort it");
		return -EINVAL;
	}
	return 0;
}

/* --- new pages --- */

int hicache_reserve(struct hicache_series *series, uint64_t page_bytes, int numa_node, size_t n,
		    uint32_t timeout_ms, struct hicache_page *pages, size_t *n_p)
{
	struct hc_reserve how = {
		.space = series->space,
		.size_bytes = page_bytes ? page_bytes : series->page_bytes,
		.numa_node = numa_node < 0 ? -1 : numa_node,
		.domain = {series->owner.uid, series->owner.gid, series->owner.mode},
		.deadline_ns = timeout_ms ? hc_public_deadline(timeout_ms) : 0,
	};
	struct hc_ref small[HC_BATCH_SMALL], *refs = small;
	size_t got = 0;
	int rc;

	if (hc_public_foreign(series->hc))
		return -ESTALE;
	if (!n || !how.size_bytes || (series->page_bytes && how.size_bytes != series->page_bytes)) {
		hc_error(HC_PUBLIC,
			 "reserve: %zu pages of %llu bytes in series '%s' (pages of %llu; 0: not "
			 "declared)",
			 n, (unsigned long long)how.size_bytes, series->pattern,
			 (unsigned long long)series->page_bytes);
		return -EINVAL;
	}
	if (n > HC_BATCH_SMALL) {
		refs = n > SIZE_MAX / sizeof(*refs) ? NULL : malloc(n * sizeof(*refs));
		if (!refs)
			return -ENOMEM;
	}
	rc = hc_node_reserve(series->hc->node, &how, n, refs, &got);
	if (!rc) {
		for (size_t i = 0; i < got; i++)
			hc_page_from_ref(&pages[i], &refs[i], HC_HELD_RESERVATION);
		atomic_fetch_add(&series->hc->n_reserved, got);
		*n_p = got;
	}
	if (refs != small)
		free(refs);
	return rc;
}

int hicache_abort(struct hicache *hc, struct hicache_page *pages, size_t n)
{
	if (hc_public_foreign(hc))
		return -ESTALE;
	if (hc_page_give_back(hc, pages, n, HC_HELD_RESERVATION)) {
		hc_error(HC_PUBLIC, "abort: a page is a lease: release it");
		return -EINVAL;
	}
	return 0;
}

int hc_public_nameable(const struct hicache_series *series, const struct hc_hash *hash)
{
	char name[HC_NAME_BYTES];
	struct hc_key key = {series->id, *hash};

	for (uint32_t i = series->n_digits; i < HC_HASH_DIGITS; i++) {
		if (hash->bytes[i / 2] >> (i % 2 ? 0 : 4) & 0xf)
			return -EINVAL;
	}
	return series->nested ? hc_name_of_page(series->hc->registry, &key, name) : 0;
}

/* Nothing is consumed when anything is wrong with the call as a whole. */
static int hc_publish_check(const struct hicache_series *series, const struct hicache_page *pages,
			    size_t n, const struct hicache_publish_params *params)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t size_bytes =
			params->sizes_bytes ? params->sizes_bytes[i] : pages[i].size_bytes;

		if (hc_page_held(&pages[i]) != HC_HELD_RESERVATION) {
			hc_error(HC_PUBLIC, "publish: page %zu is no reservation", i);
			return -EINVAL;
		}
		if (!size_bytes || size_bytes > pages[i].size_bytes ||
		    (series->page_bytes && size_bytes != series->page_bytes)) {
			hc_error(HC_PUBLIC,
				 "publish: page %zu has %llu bytes, %llu are reserved, series '%s' "
				 "has pages of %llu "
				 "(0: not declared)",
				 i, (unsigned long long)size_bytes,
				 (unsigned long long)pages[i].size_bytes, series->pattern,
				 (unsigned long long)series->page_bytes);
			return -EINVAL;
		}
	}
	return 0;
}

void hc_public_publish_item(const struct hicache_series *series, const struct hicache_hash *hashes,
			    size_t i, const struct hicache_publish_params *params,
			    uint64_t size_bytes, struct hc_publish *item)
{
	const struct hicache_hash *parent = i ? &hashes[i - 1] : params->parent;

	if (params->parents)
		parent = &params->parents[i];
	*item = (struct hc_publish){
		.key = hc_public_key(series, &hashes[i]),
		.depth = params->depths    ? params->depths[i]
			 : params->parents ? 0
					   : params->depth + (uint32_t)i,
		.size_bytes = size_bytes,
		.owner = series->owner,
	};
	item->owner.mode &= 0666;
	if (parent)
		item->parent = *hc_public_hashes(parent);
}

/* Pages whose hash no name of the series can hold are dropped with their result, the others stay,
 * closed up: place[k] tells where item k came from. */
static size_t hc_publish_gather(struct hicache_series *series, struct hicache_page *pages,
				const struct hicache_hash *hashes, size_t n,
				const struct hicache_publish_params *params, struct hc_ref *refs,
				struct hc_publish *items, size_t *place, int *results)
{
	size_t n_items = 0;

	for (size_t i = 0; i < n; i++) {
		struct hc_ref ref;

		hc_page_to_ref(&pages[i], &ref);
		results[i] = hc_public_nameable(series, hc_public_hashes(&hashes[i]));
		if (results[i]) {
			hc_error(HC_PUBLIC,
				 "publish: page %zu: no name of series '%s' can hold its hash", i,
				 series->pattern);
			hc_node_abort(series->hc->node, &ref, 1);
			continue;
		}
		hc_public_publish_item(series, hashes, i, params,
				       params->sizes_bytes ? params->sizes_bytes[i]
							   : pages[i].size_bytes,
				       &items[n_items]);
		refs[n_items] = ref;
		place[n_items++] = i;
	}
	return n_items;
}

int hicache_publish(struct hicache_series *series, struct hicache_page *pages,
		    const struct hicache_hash *hashes, size_t n,
		    const struct hicache_publish_params *given, int *results)
{
	struct hicache_publish_params params;
	hc_autofree struct hc_publish *items = NULL;
	hc_autofree struct hc_ref *refs = NULL;
	hc_autofree size_t *place = NULL;
	hc_autofree int *verdicts = NULL;
	size_t n_items;
	int rc;

	if (hc_public_foreign(series->hc))
		return -ESTALE;
	rc = hc_public_params("publish params", given, HC_PUBLISH_PARAMS_BYTES_MIN, &params,
			      sizeof(params));
	if (!rc)
		rc = hc_publish_check(series, pages, n, &params);
	if (rc || !n)
		return rc;
	items = calloc(n, sizeof(*items));
	refs = calloc(n, sizeof(*refs));
	place = calloc(n, sizeof(*place));
	verdicts = calloc(n, sizeof(*verdicts));
	if (!items || !refs || !place || !verdicts)
		return -ENOMEM;
	n_items = hc_publish_gather(series, pages, hashes, n, &params, refs, items, place, results);
	hc_node_publish(series->hc->node, refs, items, n_items, verdicts);
	for (size_t k = 0; k < n_items; k++)
		results[place[k]] = verdicts[k];
	memset(pages, 0, n * sizeof(*pages));
	atomic_fetch_sub(&series->hc->n_reserved, n);
	return 0;
}

/* --- runs --- */

static bool hc_page_follows(const struct hicache *hc, const struct hicache_page *before,
			    const struct hicache_page *page)
{
	hc_slot_id slot = (hc_slot_id)(page->lease[1] >> 32);

	return slot == (hc_slot_id)(before->lease[1] >> 32) + 1 && slot % hc->slots_per_segment;
}

static size_t hc_page_run_length(const struct hicache *hc, const struct hicache_page *pages,
				 size_t n)
{
	size_t k = 1;

	while (k < n && hc_page_follows(hc, &pages[k - 1], &pages[k]))
		k++;
	return k;
}

int hicache_page_runs(struct hicache *hc, const struct hicache_page *pages, size_t n,
		      struct hicache_run *runs, size_t room, size_t *n_runs_p)
{
	size_t n_runs = 0, k;

	for (size_t i = 0; i < n; i++) {
		if (hc_page_held(&pages[i]) == HC_HELD_NOTHING) {
			hc_error(HC_PUBLIC, "page runs: page %zu is not held", i);
			return -EINVAL;
		}
	}
	for (size_t i = 0; i < n; i += k) {
		k = hc_page_run_length(hc, pages + i, n - i);
		if (runs && n_runs == room)
			return -ENOSPC;
		if (runs) {
			/* Slots of a segment are of one size: that of the distance, if there are
			 * two. */
			uint64_t stride = k > 1 ? (uint64_t)((char *)pages[i + 1].data -
							     (char *)pages[i].data)
						: hc_pool_slot_bytes(pages[i].size_bytes);

			runs[n_runs] = (struct hicache_run){
				.data = pages[i].data,
				.stride_bytes = stride,
				.page_i = i,
				.n_pages = k,
				.segment =
					(uint32_t)(pages[i].lease[1] >> 32) / hc->slots_per_segment,
			};
		}
		n_runs++;
	}
	*n_runs_p = n_runs;
	return 0;
}

/* --- keeping and removing --- */

int hicache_remove(struct hicache_series *series, const struct hicache_hash *hashes, size_t n,
		   size_t *n_p)
{
	size_t n_removed;

	if (hc_public_foreign(series->hc))
		return -ESTALE;
	n_removed = hc_node_remove(series->hc->node, series->id, hc_public_hashes(hashes), n);
	if (n_p)
		*n_p = n_removed;
	return 0;
}

static int hc_public_pin(struct hicache_series *series, const struct hicache_hash *hashes, size_t n,
			 bool pin, size_t *n_p)
{
	size_t n_there = 0;

	if (hc_public_foreign(series->hc))
		return -ESTALE;
	for (size_t i = 0; i < n; i++) {
		struct hc_key key = hc_public_key(series, &hashes[i]);
		int rc = hc_node_pin(series->hc->node, &key, pin);

		if (rc && rc != -ENOENT) {
			hc_error(HC_PUBLIC, "%s: page %zu: %s", pin ? "pin" : "unpin", i,
				 pin ? "too many pins" : "it has no pin");
			return rc;
		}
		n_there += !rc;
	}
	if (n_p)
		*n_p = n_there;
	return 0;
}

int hicache_pin(struct hicache_series *series, const struct hicache_hash *hashes, size_t n,
		size_t *n_p)
{
	return hc_public_pin(series, hashes, n, true, n_p);
}

int hicache_unpin(struct hicache_series *series, const struct hicache_hash *hashes, size_t n,
		  size_t *n_p)
{
	return hc_public_pin(series, hashes, n, false, n_p);
}

int hicache_sync_pages(struct hicache_series *series, const struct hicache_hash *hashes, size_t n,
		       uint32_t timeout_ms)
{
	uint64_t deadline_ns = hc_public_deadline(timeout_ms);

	if (hc_public_foreign(series->hc))
		return -ESTALE;
	for (size_t i = 0; i < n; i++) {
		struct hc_key key = hc_public_key(series, &hashes[i]);
		struct hc_page_info page;
		int rc = hc_node_stat(series->hc->node, &key, false, &page);

		if (!rc)
			rc = hc_node_sync_page(series->hc->node, page.entry, page.sequence,
					       deadline_ns);
		if (rc)
			return rc;
	}
	return 0;
}
