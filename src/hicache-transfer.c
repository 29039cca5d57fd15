/* SPDX-License-Identifier: Apache-2.0 */
/* See hicache.h: transfers. Everything is in controller/transfer.h; here are the checks of what a
 * program passes, and the words. A producer is its generation << 8 | its place in the ring. */
#include "controller/tensors.h"
#include "controller/transfer.h"
#include "hicache-internal.h"

#define HC_TRANSFER_PARAMS_BYTES_MIN offsetof(struct hicache_transfer_params, k)
#define HC_TRANSFER_FLAGS            (HICACHE_TRANSFER_ENGINE_PAGES | HICACHE_TRANSFER_NO_STAGING)
#define HC_STAGING_BYTES             (32 * HC_MIB)
/* Host pages of a pool that are held at once, unless told. */
#define HC_HOST_PAGES_MAX (1u << 20)

_Static_assert((int)HICACHE_LOADS == (int)HC_PLAN_LOAD && (int)HICACHE_WRITES == (int)HC_PLAN_WRITE,
	       "directions are the same numbers");
_Static_assert((int)HICACHE_IO_AUTO == (int)HC_IO_AUTO &&
		       (int)HICACHE_IO_DIRECT == (int)HC_IO_DIRECT &&
		       (int)HICACHE_IO_KERNEL == (int)HC_IO_KERNEL,
	       "backends are the same numbers");

struct hicache_transfer {
	struct hicache_device *device;
	struct hicache_series *series; /* a copy without strings; NULL: the host memory is the
					  caller's */
	struct hc_transfer *transfer;
	struct hc_tensors *tensors;
	struct hc_geometry geometry;
	uint32_t device_pages, host_pages;
};

static int hc_public_pool_layout(const char *name, enum hc_pool_layout *layout_p)
{
	static const char *const names[] = {"layer_first", "page_first", "page_first_direct",
					    "page_head", "page_unified"};

	for (size_t i = 0; name && i < HC_ARRAY_SIZE(names); i++) {
		if (!strcmp(name, names[i])) {
			*layout_p = (enum hc_pool_layout)(i + 1);
			return 0;
		}
	}
	hc_error(HC_PUBLIC,
		 "transfer: host_layout '%s': there are layer_first, page_first, "
		 "page_first_direct, page_head and page_unified",
		 name ? name : "");
	return -EINVAL;
}

static int hc_transfer_check(const struct hicache_device *device,
			     const struct hicache_series *series,
			     const struct hicache_transfer_params *params)
{
	if (hc_public_device_foreign(device) || (series && hc_public_foreign(series->hc)))
		return -ESTALE;
	if (params->flags & ~HC_TRANSFER_FLAGS || params->io > HICACHE_IO_KERNEL) {
		hc_error(HC_PUBLIC, "transfer params: flags %#x, io %u: unknown", params->flags,
			 params->io);
		return -EINVAL;
	}
	if (!series != (params->host != NULL) || !series != (params->kvspec != NULL)) {
		hc_error(HC_PUBLIC, "transfer params: either a series, or host memory and a kvspec "
				    "that says what a page of it is");
		return -EINVAL;
	}
	if (series && !series->page_bytes) {
		hc_error(HC_PUBLIC,
			 "transfer: the layout of series '%s' is not declared: open it with a "
			 "kvspec and HICACHE_DECLARE",
			 series->pattern);
		return -ENODATA;
	}
	if (!params->device_pages || params->device_pages > UINT32_MAX) {
		hc_error(HC_PUBLIC, "transfer params: %llu device pages: there are 1 to %u",
			 (unsigned long long)params->device_pages, UINT32_MAX);
		return -EINVAL;
	}
	if (!params->k && (params->page_stride || params->token_stride || params->head_stride)) {
		hc_error(HC_PUBLIC, "transfer params: strides of tensors that are not given");
		return -EINVAL;
	}
	return 0;
}

/* Host memory of the caller's own. */
static int hc_transfer_own(const struct hicache_transfer_params *params,
			   struct hc_transfer_config *config)
{
	int rc = hc_public_pool_layout(params->host_layout, &config->plan.pool_layout);

	if (rc)
		return rc;
	if ((uintptr_t)params->host % HC_BLOCK_BYTES || !params->host_pages) {
		hc_error(HC_PUBLIC,
			 "transfer params: host memory at %p, %u pages: it begins at a multiple of "
			 "%d, and has pages",
			 params->host, params->host_pages, (int)HC_BLOCK_BYTES);
		return -EINVAL;
	}
	config->plan.pool_pages = params->host_pages;
	config->host = params->host;
	config->host_bytes = params->host_bytes;
	config->host_pages = params->host_pages;
	return 0;
}

/* Slots of the cache's pool. */
static int hc_transfer_pool(const struct hicache_series *series, uint32_t host_pages,
			    struct hc_transfer_config *config)
{
	struct hc_node_stats stats;
	uint64_t n;

	config->node = series->hc->node;
	config->reserve = (struct hc_reserve){
		.space = series->space,
		.size_bytes = series->page_bytes,
		.numa_node = -1,
		.domain = {series->owner.uid, series->owner.gid, series->owner.mode},
	};
	hc_node_stats(config->node, &stats);
	n = stats.pool.size_bytes / hc_pool_slot_bytes(series->page_bytes);
	if (host_pages > n) {
		hc_error(HC_PUBLIC,
			 "transfer params: %u host pages: the pool of %llu bytes has %llu of %llu "
			 "bytes: ask for fewer, for 0 (all), or open the cache with a larger pool",
			 host_pages, (unsigned long long)stats.pool.size_bytes,
			 (unsigned long long)n, (unsigned long long)series->page_bytes);
		return -EINVAL;
	}
	config->host_pages = host_pages ? host_pages : (uint32_t)hc_min_u64(n, HC_HOST_PAGES_MAX);
	return 0;
}

static int hc_transfer_configure(struct hicache_device *device, struct hicache_series *series,
				 const struct hicache_transfer_params *params,
				 struct hc_transfer_config *config)
{
	char error[HC_KVSPEC_ERROR_BYTES];
	struct hc_kvspec spec;
	int rc = hc_kvspec_parse(series ? series->kvspec : params->kvspec, &spec, error);

	if (rc) {
		hc_error(HC_PUBLIC, "transfer: %s", error);
		return rc;
	}
	*config = (struct hc_transfer_config){
		.device = device->device,
		.pins = device->pins,
		.plan = {.layout = series ? spec.layout : HC_LAYOUT_UNDECLARED,
			 .k = params->k,
			 .v = params->v,
			 .device_pages = params->device_pages,
			 .page_stride = params->page_stride,
			 .token_stride = params->token_stride,
			 .head_stride = params->head_stride,
			 .io = (enum hc_io)params->io},
		.bounce_bytes = params->bounce_bytes,
		.staging_bytes = params->flags & HICACHE_TRANSFER_NO_STAGING ? 0
				 : params->staging_bytes                     ? params->staging_bytes
									     : HC_STAGING_BYTES,
		.engine_pages = params->flags & HICACHE_TRANSFER_ENGINE_PAGES,
	};
	hc_kvspec_geometry(&spec, &config->plan.geometry);
	if (!series)
		return hc_transfer_own(params, config);
	return hc_transfer_pool(series, params->host_pages, config);
}

static struct hicache_series *hc_series_copy(const struct hicache_series *series)
{
	size_t bytes = sizeof(*series) + strlen(series->pattern) + 1;
	struct hicache_series *copy = malloc(bytes);

	if (copy) {
		memcpy(copy, series, bytes);
		copy->kvspec = NULL;
	}
	return copy;
}

static void hc_transfer_free(struct hicache_transfer *t)
{
	hc_tensors_destroy(t->tensors);
	free(t->series);
	free(t);
}

/* config is the whole configuration but for the tensors. */
static int hc_transfer_make(struct hicache_transfer *t, struct hc_transfer_config *config)
{
	char error[HC_PLAN_ERROR_BYTES] = "";
	int rc = hc_tensors_create(config->device, &config->plan, &t->tensors, error);

	if (!rc) {
		config->plan.k = hc_tensors_k(t->tensors);
		config->plan.v = hc_tensors_v(t->tensors);
		t->geometry = config->plan.geometry;
		t->device_pages = (uint32_t)config->plan.device_pages;
		t->host_pages = config->host_pages;
		rc = hc_transfer_create(config, &t->transfer, error);
	}
	if (rc)
		hc_error(HC_PUBLIC, "transfer: %s", error[0] ? error : strerror(-rc));
	return rc;
}

int hicache_transfer_open(struct hicache_device *device, struct hicache_series *series,
			  const struct hicache_transfer_params *given,
			  struct hicache_transfer **transfer_p)
{
	struct hicache_transfer_params params;
	struct hc_transfer_config config;
	struct hicache_transfer *t;
	int rc = hc_public_need(__func__, "the device", device);

	if (!rc)
		rc = hc_public_need(__func__, "transfer_p", transfer_p);
	if (!rc)
		rc = hc_public_params("transfer params", given, HC_TRANSFER_PARAMS_BYTES_MIN,
				      &params, sizeof(params));
	if (!rc)
		rc = hc_transfer_check(device, series, &params);
	if (!rc)
		rc = hc_transfer_configure(device, series, &params, &config);
	if (rc)
		return rc;
	t = hc_zalloc(sizeof(*t));
	if (!t)
		return hc_public_result(__func__, -ENOMEM);
	t->device = device;
	t->series = series ? hc_series_copy(series) : NULL;
	rc = series && !t->series ? hc_public_result(__func__, -ENOMEM)
				  : hc_transfer_make(t, &config);
	if (rc) {
		hc_transfer_free(t);
		return rc;
	}
	atomic_fetch_add(&device->n_transfers, 1);
	if (series)
		atomic_fetch_add(&series->hc->n_handles, 1);
	*transfer_p = t;
	return 0;
}

int hicache_transfer_close(struct hicache_transfer *t, uint32_t timeout_ms)
{
	int rc;

	if (!t)
		return 0;
	if (hc_public_device_foreign(t->device))
		return -ESTALE;
	rc = hc_transfer_destroy(t->transfer, hc_public_deadline(timeout_ms));
	if (rc)
		return rc;
	if (t->series)
		atomic_fetch_sub(&t->series->hc->n_handles, 1);
	atomic_fetch_sub(&t->device->n_transfers, 1);
	hc_transfer_free(t);
	return 0;
}

/* What every call asks first. `name`: what else it must have, or NULL. */
static int hc_transfer_enter(const struct hicache_transfer *t, const char *call, const char *name,
			     const void *p)
{
	int rc = hc_public_need(call, "the transfer", t);

	if (!rc && hc_public_device_foreign(t->device))
		return -ESTALE;
	return rc || !name ? rc : hc_public_need(call, name, p);
}

int hicache_transfer_get(struct hicache_transfer *t, struct hicache_transfer_info *info)
{
	struct hicache_transfer_info own = {0};
	struct hc_transfer_stats stats;
	int rc = hc_transfer_enter(t, __func__, "the info", info);

	if (rc)
		return rc;
	hc_transfer_stats(t->transfer, &stats);
	own.page_bytes = hc_geometry_page_bytes(&t->geometry);
	own.page_tokens = t->geometry.n_tokens;
	own.n_layers = t->geometry.n_layers;
	own.device_pages = t->device_pages;
	own.host_pages = t->host_pages;
	own.device_free_pages = stats.device_free_pages;
	own.host_free_pages = stats.host_free_pages;
	return hc_public_fill("transfer info", info, &own, sizeof(own));
}

int hicache_transfer_tensor(struct hicache_transfer *t, uint32_t layer, uint32_t kv,
			    uint64_t *addr_p)
{
	int rc = hc_transfer_enter(t, __func__, "addr_p", addr_p);

	if (rc)
		return rc;
	if (layer >= t->geometry.n_layers || kv >= t->geometry.n_kv) {
		hc_error(HC_PUBLIC, "tensor %u of layer %u: there are %u in each of %u layers", kv,
			 layer, t->geometry.n_kv, t->geometry.n_layers);
		return -EINVAL;
	}
	*addr_p = (kv ? hc_tensors_v(t->tensors) : hc_tensors_k(t->tensors))[layer];
	return 0;
}

/* What every call with pages asks first. */
static int hc_transfer_pages(const struct hicache_transfer *t, const char *what,
			     const uint32_t *pages, size_t n, uint32_t flags, uint32_t known)
{
	int rc = hc_transfer_enter(t, what, "an array", pages);

	if (rc)
		return rc;
	if (n && n <= HC_TRANSFER_PAGES_MAX && !(flags & ~known))
		return 0;
	hc_error(HC_PUBLIC, "%s: %zu pages (1 to %d at once), flags %#x", what, n,
		 HC_TRANSFER_PAGES_MAX, flags);
	return -EINVAL;
}

int hicache_transfer_device_alloc(struct hicache_transfer *t, size_t n, uint32_t *device_pages)
{
	int rc = hc_transfer_pages(t, "hicache_transfer_device_alloc", device_pages, n, 0, 0);

	return rc ? rc
		  : hc_public_result(__func__,
				     hc_transfer_device_alloc(t->transfer,
							      (uint64_t)n * t->geometry.n_tokens,
							      device_pages));
}

int hicache_transfer_write(struct hicache_transfer *t, const uint32_t *device_pages, size_t n,
			   int32_t priority, int64_t node, uint32_t flags, uint64_t stream,
			   uint32_t *host_pages)
{
	int rc = hc_transfer_pages(t, "hicache_transfer_write",
				   device_pages && host_pages ? host_pages : NULL, n, flags,
				   HICACHE_QUEUE_ONLY);

	return rc ? rc
		  : hc_public_result(__func__,
				     hc_transfer_write(t->transfer, device_pages, n, priority, node,
						       !(flags & HICACHE_QUEUE_ONLY), stream,
						       host_pages));
}

int hicache_transfer_start_writing(struct hicache_transfer *t, uint64_t stream)
{
	int rc = hc_transfer_enter(t, __func__, NULL, NULL);

	if (rc)
		return rc;
	return hc_public_result(__func__, hc_transfer_start_writing(t->transfer, stream));
}

int hicache_transfer_load(struct hicache_transfer *t, const uint32_t *host_pages, size_t n,
			  int32_t priority, int64_t node, uint32_t flags, uint32_t *device_pages)
{
	int rc = hc_transfer_pages(t, "hicache_transfer_load",
				   host_pages && device_pages ? host_pages : NULL, n, flags,
				   HICACHE_GIVEN_PAGES);

	return rc ? rc
		  : hc_public_result(__func__,
				     hc_transfer_load(t->transfer, host_pages, n, priority, node,
						      flags & HICACHE_GIVEN_PAGES, device_pages));
}

int hicache_transfer_start_loading(struct hicache_transfer *t, uint64_t stream, int64_t *producer_p)
{
	struct hc_producer producer;
	int rc = hc_transfer_enter(t, __func__, "producer_p", producer_p);

	if (rc)
		return rc;
	rc = hc_public_result(__func__, hc_transfer_start_loading(t->transfer, stream, &producer));
	if (rc)
		return rc;
	*producer_p = producer.index < 0 ? -1 : (int64_t)producer.generation << 8 | producer.index;
	return 0;
}

int hicache_transfer_wait_layer(struct hicache_transfer *t, int64_t producer, uint32_t layer,
				uint64_t stream)
{
	struct hc_producer p = {(int)(producer & 0xff), (uint32_t)((uint64_t)producer >> 8)};
	int rc = hc_transfer_enter(t, __func__, NULL, NULL);

	if (rc)
		return rc;
	if (producer == -1)
		return 0;
	if (producer < 0 || producer >> 40 || layer >= t->geometry.n_layers ||
	    p.index >= HC_TRANSFER_RING) {
		hc_error(HC_PUBLIC, "wait_layer: layer %u of %u, producer %lld: not one of a load",
			 layer, t->geometry.n_layers, (long long)producer);
		return -EINVAL;
	}
	return hc_public_result(__func__, hc_transfer_wait_layer(t->transfer, p, layer, stream));
}

int hicache_transfer_poll(struct hicache_transfer *t, uint32_t direction, struct hicache_ack *given)
{
	struct hicache_ack own = {0};
	struct hc_ack ack;
	int rc = hc_transfer_enter(t, __func__, "the ack", given);

	if (rc)
		return rc;
	if (direction > HICACHE_WRITES || given->size <= sizeof(given->size)) {
		hc_error(HC_PUBLIC, "poll: direction %u, or the ack's size %zu: set it to sizeof",
			 direction, given->size);
		return -EINVAL;
	}
	rc = hc_transfer_poll(t->transfer, (enum hc_plan_direction)direction, &ack);
	if (rc)
		return rc;
	own.n_pages = ack.n_pages;
	own.size_bytes = ack.n_pages * hc_geometry_page_bytes(&t->geometry);
	own.nodes = ack.nodes;
	own.n_nodes = ack.n_nodes;
	own.status = ack.status;
	own.priority = ack.priority;
	return hc_public_fill("ack", given, &own, sizeof(own));
}

int hicache_transfer_host_complete(struct hicache_transfer *t, uint32_t host_page)
{
	int rc = hc_transfer_enter(t, __func__, NULL, NULL);

	if (rc)
		return rc;
	if (host_page >= t->host_pages) {
		hc_error(HC_PUBLIC, "host page %u: there are %u", host_page, t->host_pages);
		return -EINVAL;
	}
	return hc_transfer_host_complete(t->transfer, host_page);
}

int hicache_transfer_evict_device(struct hicache_transfer *t, const uint32_t *device_pages,
				  size_t n)
{
	int rc = hc_transfer_enter(t, __func__, n ? "device_pages" : NULL, device_pages);

	if (rc)
		return rc;
	return hc_transfer_evict_device(t->transfer, device_pages, n);
}

int hicache_transfer_evict_host(struct hicache_transfer *t, const uint32_t *host_pages, size_t n)
{
	int rc = hc_transfer_enter(t, __func__, n ? "host_pages" : NULL, host_pages);

	if (rc)
		return rc;
	return hc_transfer_evict_host(t->transfer, host_pages, n);
}

int hicache_transfer_reset(struct hicache_transfer *t, uint32_t timeout_ms)
{
	int rc = hc_transfer_enter(t, __func__, NULL, NULL);

	if (rc)
		return rc;
	return hc_transfer_reset(t->transfer, hc_public_deadline(timeout_ms));
}

/* --- pages of the cache --- */

static int hc_transfer_cache(const struct hicache_transfer *t, const char *what,
			     const uint32_t *host_pages, const struct hicache_hash *hashes,
			     const void *p, size_t n)
{
	int rc = hc_transfer_pages(t, what, p && hashes ? host_pages : NULL, n, 0, 0);

	if (!rc && !t->series) {
		hc_error(HC_PUBLIC, "%s: its host memory is the caller's, not a cache's", what);
		rc = -EINVAL;
	}
	return rc;
}

int hicache_transfer_acquire(struct hicache_transfer *t, const struct hicache_hash *hashes,
			     size_t n, uint32_t timeout_ms, uint32_t *host_pages, size_t *n_p)
{
	struct hc_acquire how = {.deadline_ns = hc_public_deadline(timeout_ms)};
	int rc = hc_transfer_cache(t, "hicache_transfer_acquire", host_pages, hashes, n_p, n);

	if (rc)
		return rc;
	how.series = t->series->id;
	return hc_public_result(__func__,
				hc_transfer_acquire(t->transfer, &how, hc_public_hashes(hashes), n,
						    host_pages, n_p));
}

/* Pages whose hash no name can hold are dropped with their result. */
static int hc_transfer_publish_named(struct hicache_transfer *t, const uint32_t *host_pages,
				     const struct hicache_hash *hashes, size_t n,
				     const struct hicache_publish_params *params, int *results)
{
	hc_autofree struct hc_publish *items = calloc(n, sizeof(*items));
	hc_autofree uint32_t *pages = calloc(n, sizeof(*pages));
	hc_autofree int *verdicts = calloc(n, sizeof(*verdicts));
	size_t n_items = 0, k = 0;
	int rc = 0;

	if (!items || !pages || !verdicts)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (hc_public_nameable(t->series, hc_public_hashes(&hashes[i])))
			continue;
		hc_public_publish_item(t->series, hashes, i, params, t->series->page_bytes,
				       &items[n_items]);
		pages[n_items++] = host_pages[i];
	}
	if (n_items)
		rc = hc_transfer_publish(t->transfer, pages, items, n_items, verdicts);
	for (size_t i = 0; i < n && !rc; i++) {
		results[i] = hc_public_nameable(t->series, hc_public_hashes(&hashes[i]));
		if (!results[i])
			results[i] = verdicts[k++];
		else
			rc = hc_transfer_evict_host(t->transfer, &host_pages[i], 1);
	}
	return rc;
}

int hicache_transfer_publish(struct hicache_transfer *t, const uint32_t *host_pages,
			     const struct hicache_hash *hashes, size_t n,
			     const struct hicache_publish_params *given, int *results)
{
	struct hicache_publish_params params;
	int rc = hc_transfer_cache(t, "hicache_transfer_publish", host_pages, hashes, results, n);

	if (!rc)
		rc = hc_public_params("publish params", given, HC_PUBLISH_PARAMS_BYTES_MIN, &params,
				      sizeof(params));
	for (size_t i = 0; !rc && params.sizes_bytes && i < n; i++) {
		if (params.sizes_bytes[i] != t->series->page_bytes) {
			hc_error(HC_PUBLIC, "publish: page %zu has %llu bytes", i,
				 (unsigned long long)params.sizes_bytes[i]);
			rc = -EINVAL;
		}
	}
	return rc ? rc
		  : hc_public_result(__func__, hc_transfer_publish_named(t, host_pages, hashes, n,
									 &params, results));
}

/* --- numbers --- */

#define HC_TRANSFER_STAT(name, field)                           \
	{                                                       \
		name, offsetof(struct hc_transfer_stats, field) \
	}

struct hc_transfer_stat {
	const char *name;
	size_t offset;
};

static const struct hc_transfer_stat hc_transfer_counters[] = {
	HC_TRANSFER_STAT("writes", n_writes),
	HC_TRANSFER_STAT("write_pages", n_write_pages),
	HC_TRANSFER_STAT("loads", n_loads),
	HC_TRANSFER_STAT("load_pages", n_load_pages),
	HC_TRANSFER_STAT("failed", n_failed),
	HC_TRANSFER_STAT("way_copy", n_ways[HC_PLAN_COPY]),
	HC_TRANSFER_STAT("way_staged", n_ways[HC_PLAN_STAGED]),
	HC_TRANSFER_STAT("way_kernel", n_ways[HC_PLAN_KERNEL]),
	HC_TRANSFER_STAT("descriptors", n_descriptors),
	HC_TRANSFER_STAT("page_copies", n_page_copies),
	HC_TRANSFER_STAT("ring_full", n_ring_full),
	HC_TRANSFER_STAT("stale_consumers", n_stale),
	HC_TRANSFER_STAT("ordered", n_ordered),
	HC_TRANSFER_STAT("registered_segments", n_registered_segments),
	HC_TRANSFER_STAT("unregistered_segments", n_unregistered_segments),
	HC_TRANSFER_STAT("bounced_pages", n_bounced_pages),
};

static const struct hc_transfer_stat hc_transfer_gauges[] = {
	HC_TRANSFER_STAT("n_in_flight", n_in_flight),
	HC_TRANSFER_STAT("n_queued", n_queued),
	HC_TRANSFER_STAT("n_leased_pages", n_leased_pages),
	HC_TRANSFER_STAT("n_lost_pages", n_lost_pages),
	HC_TRANSFER_STAT("host_free_pages", host_free_pages),
	HC_TRANSFER_STAT("device_free_pages", device_free_pages),
};

int hicache_transfer_stats_each(struct hicache_transfer *t, hicache_stat_each_t each, void *arg)
{
	struct hc_transfer_stats stats;
	int rc = hc_transfer_enter(t, __func__, "the callback", (const void *)(uintptr_t)each);

	if (rc)
		return rc;
	hc_transfer_stats(t->transfer, &stats);
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_transfer_counters) && !rc; i++) {
		uint64_t value;

		memcpy(&value, (const char *)&stats + hc_transfer_counters[i].offset,
		       sizeof(value));
		rc = each(arg, hc_transfer_counters[i].name, value);
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_transfer_gauges) && !rc; i++) {
		uint32_t value;

		memcpy(&value, (const char *)&stats + hc_transfer_gauges[i].offset, sizeof(value));
		rc = each(arg, hc_transfer_gauges[i].name, value);
	}
	return rc;
}
