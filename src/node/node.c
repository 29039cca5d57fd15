/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a node, and the small tables all its parts use: classes, space orders,
 * limits. */
#include "node/internal.h"

#include <sys/mman.h>

#include "pool/place.h"
#include "store/fault.h"
#include "store/file.h"
#include "util/size.h"

#define HC_PPM 1000000u

static uint32_t hc_or_u32(uint32_t value, uint32_t fallback)
{
	return value ? value : fallback;
}

static uint64_t hc_or_u64(uint64_t value, uint64_t fallback)
{
	return value ? value : fallback;
}

static void hc_node_defaults(struct hc_node *node)
{
	struct hc_node_config *c = &node->config;

	c->max_page_bytes = hc_or_u64(c->max_page_bytes, 64 * HC_MIB);
	c->budget_ns = hc_or_u64(c->budget_ns, 2 * HC_NS_PER_S);
	c->flush_ns = hc_or_u64(c->flush_ns, 20 * HC_NS_PER_S);
	c->ahead_bytes = hc_or_u64(c->ahead_bytes, 64 * HC_MIB);
	if (!c->cachedir)
		c->disk_off = true;
	node->limits = (struct hc_node_limits){
		.disk_bytes = c->disk_bytes,
		.min_free_bytes = c->min_free_bytes,
		.min_free_ppm = c->min_free_ppm,
		.high_ppm = hc_or_u32(c->high_ppm, 950000),
		.low_ppm = hc_or_u32(c->low_ppm, 900000),
		.dirty_ppm = hc_or_u32(c->dirty_ppm, 250000),
		.backup = c->disk_off ? HC_BACKUP_OFF : c->backup,
	};
	if (!c->index_bytes) {
		uint64_t total, available;

		c->index_bytes = hc_sysinfo_memory(&total, &available) ? 256 * HC_MIB : total / 100;
	}
}

static int hc_node_sync_objects(struct hc_node *node)
{
	const struct hc_node_config *c = &node->config;
	int rc;

	pthread_mutex_init(&node->lock, NULL);
	pthread_mutex_init(&node->backup_lock, NULL);
	pthread_mutex_init(&node->recut_lock, NULL);
	pthread_mutex_init(&node->gc_lock, NULL);
	pthread_mutex_init(&node->remove_lock, NULL);
	pthread_mutex_init(&node->io_lock, NULL);
	pthread_rwlock_init(&node->adopt_lock, NULL);
	for (size_t i = 0; i < HC_VERDICT_LOCKS; i++)
		pthread_mutex_init(&node->verdict_lock[i], NULL);
	hc_cond_init(&node->backup_cond);
	hc_wait_init(&node->room);
	hc_wait_init(&node->evict_bell);
	hc_wait_init(&node->keeper_bell);
	for (size_t i = 0; i < HC_WAIT_BUCKETS; i++)
		hc_wait_init(&node->loads[i]);
	node->recut_failed = UINT32_MAX;
	for (size_t i = 0; i < HC_INDEX_SHARDS; i++) {
		node->ghosts[i] = hc_ghosts_create();
		if (!node->ghosts[i])
			return -ENOMEM;
	}
	rc = hc_marks_create(&node->marks);
	if (rc)
		return rc;
	rc = hc_opaques_create(&node->opaques);
	if (!rc)
		rc = hc_index_create(&node->index);
	if (!rc)
		rc = hc_links_create(&node->links);
	if (!rc)
		rc = hc_times_create(&node->times);
	if (!rc)
		rc = hc_walks_create(node->links, c->no_ahead ? 0 : c->ahead_bytes, &node->walks);
	return rc;
}

static void hc_node_catalog_lost(void *arg, int error)
{
	struct hc_node *node = arg;

	hc_error(HC_NODE, "the catalog is lost (%s): it is written anew from memory",
		 strerror(-error));
	hc_count(node, catalog_lost);
	atomic_store(&node->catalog_renewing, true);
	atomic_store(&node->catalog_gone, true);
	hc_wait_wake(&node->keeper_bell);
}

static int hc_node_open_registry(struct hc_node *node, bool *rebuild_p)
{
	struct hc_registry_config config = {
		.cachedir = node->config.cachedir,
		.catalog_dir = node->config.catalog_dir,
		.noinit = node->config.noinit,
		.root = node->config.root,
		.embedded = node->config.embedded,
		.catalog_lost = hc_node_catalog_lost,
		.arg = node,
	};
	int rc = hc_registry_open(&config, &node->registry, rebuild_p);

	if (rc)
		return rc;
	node->catalog = hc_registry_catalog(node->registry);
	node->owners = hc_registry_owners(node->registry);
	return 0;
}

static int hc_node_open_store(struct hc_node *node)
{
	const struct hc_node_config *c = &node->config;
	struct hc_store_file_config config = {
		.dirs = c->n_disks ? c->disks : &c->cachedir,
		.n_dirs = c->n_disks ? c->n_disks : 1,
		.init_empty = !c->noinit,
	};
	int rc;

	/* disk_off: nothing is written any more, but pages of an earlier run are still read. */
	if (!c->cachedir)
		return 0;
	/* The identity of a data directory is made beside that of CACHEDIR when they are one. */
	rc = hc_store_file_open(&config, &node->store);
	if (rc)
		return rc;
	if (c->wrap_store)
		node->store = c->wrap_store(c->wrap_arg, node->store);
	for (uint16_t disk = 0; disk < node->store->ops->n_disks(node->store); disk++) {
		uint64_t n, bytes;

		rc = node->store->ops->sweep(node->store, disk, NULL, NULL, false, &n, &bytes);
		if (rc)
			return rc;
	}
	return 0;
}

static int hc_node_pool_where(struct hc_node *node, struct hc_pool_config *config)
{
	struct hc_node_config *c = &node->config;
	struct hc_pool_place place;
	uint64_t held;
	int rc;

	if (c->embedded || !c->cachedir) {
		config->size_bytes = hc_or_u64(c->pool_bytes, HC_GIB);
		config->kind = HC_POOL_MEMFD;
		return hc_pool_size_check(config->size_bytes, 0, HC_POOL_MEMFD);
	}
	config->size_bytes = c->pool_bytes;
	if (!config->size_bytes) {
		rc = hc_pool_default_size_for(config->uuid, c->pool_path, &config->size_bytes);
		if (rc)
			return rc;
	}
	rc = hc_pool_place_make(config->uuid, c->cachedir, c->pool_path, config->size_bytes,
				&place);
	if (rc)
		return rc;
	snprintf(node->pool_dir, sizeof(node->pool_dir), "%s", place.dir);
	held = hc_pool_place_held_bytes(place.dir);
	rc = hc_pool_size_check(config->size_bytes, held, place.kind);
	if (rc) {
		if (!held)
			hc_ignore(hc_pool_place_free(place.dir));
		return rc;
	}
	config->dir = node->pool_dir;
	config->kind = place.kind;
	return 0;
}

/* A segment serves one page size at a time, and an open page keeps its segment. */
static void hc_node_few_segments(struct hc_node *node, const struct hc_pool_stats *stats)
{
	uint32_t n = hc_pool_n_segments(node->pool);
	char size[16], segment[16];

	if (n >= HC_SEGMENTS_FEW || node->config.no_evictor)
		return;
	hc_size_format(stats->size_bytes, size);
	hc_size_format(stats->segment_bytes, segment);
	hc_warn(HC_NODE,
		"the pool of %s has only %u segment%s of %s, for the largest page must fit one: "
		"pages of different sizes "
		"push each other out; choose a larger pool_size or a smaller max_page_bytes",
		size, n, n == 1 ? "" : "s", segment);
}

static int hc_node_open_pool(struct hc_node *node)
{
	const struct hc_node_config *c = &node->config;
	struct hc_pool_config config = {
		.segment_bytes = c->segment_bytes,
		.slot_bytes_max = hc_pool_slot_bytes(c->max_page_bytes),
		.adopt = true,
		.discard = c->discard_pool,
	};
	struct hc_pool_stats stats;
	int rc;

	memcpy(config.uuid, hc_registry_uuid(node->registry), sizeof(config.uuid));
	if (c->numa)
		config.numa = *c->numa;
	rc = hc_node_pool_where(node, &config);
	if (!rc)
		rc = hc_pool_open(&config, &node->pool);
	if (rc)
		return rc;
	hc_pool_stats(node->pool, &stats);
	node->slot_entry_bytes = (size_t)hc_pool_n_segments(node->pool) *
				 (stats.segment_bytes / HC_BLOCK_BYTES) * sizeof(uint32_t);
	node->slot_entry = mmap(NULL, node->slot_entry_bytes, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (node->slot_entry == MAP_FAILED) {
		node->slot_entry = NULL;
		return -ENOMEM;
	}
	hc_node_few_segments(node, &stats);
	return hc_pool_n_segments(node->pool) > HC_SEGMENTS_MAX ? -EFBIG : 0;
}

static int hc_node_disk_limit(struct hc_node *node)
{
	uint64_t room = 0;

	if (!node->store || node->limits.disk_bytes)
		return 0;
	for (uint16_t disk = 0; disk < node->store->ops->n_disks(node->store); disk++) {
		struct hc_store_disk_info info;
		int rc = node->store->ops->disk_info(node->store, disk, &info);

		if (rc)
			return rc;
		room += info.free_bytes;
	}
	/* What we hold already counts as room: else each restart would shrink the limit. */
	node->limits.disk_bytes = (room + atomic_load(&node->disk_bytes)) / 10 * 8;
	return 0;
}

static int hc_node_start(struct hc_node *node)
{
	int rc = 0;

	if (node->store)
		rc = hc_io_start(node);
	if (!rc && node->store)
		rc = hc_backup_start(node);
	if (!rc && !node->config.no_evictor)
		rc = hc_evict_start(node);
	if (!rc && !node->config.no_evictor)
		rc = hc_keeper_start(node);
	return rc;
}

int hc_node_open(const struct hc_node_config *config, struct hc_node **node_p)
{
	struct hc_node *node = hc_zalloc(sizeof(*node));
	bool rebuild = false;
	int rc;

	if (!node)
		return -ENOMEM;
	node->config = *config;
	node->progress_fd = -1;
	hc_node_defaults(node);
	rc = hc_node_sync_objects(node);
	if (!rc)
		rc = hc_node_open_registry(node, &rebuild);
	if (!rc)
		rc = hc_node_open_store(node);
	if (!rc)
		rc = hc_node_open_pool(node);
	if (!rc)
		rc = hc_adopt_all(node, rebuild);
	if (!rc)
		rc = hc_node_disk_limit(node);
	if (!rc)
		rc = hc_node_start(node);
	if (rc) {
		node->config.keep_pool = true; /* a failed start takes nothing away */
		node->config.flush_ns = 0;
		hc_node_close(node, NULL);
		return rc;
	}
	node->opened = true;
	*node_p = node;
	return 0;
}

static void hc_node_free_tables(struct hc_node *node)
{
	for (unsigned i = 0; i < atomic_load(&node->n_classes); i++) {
		hc_order_destroy(node->classes[i]->order);
		free(node->classes[i]);
	}
	for (size_t i = 0; i < HC_SPACE_CHUNKS; i++) {
		struct hc_order **chunk = atomic_load(&node->space_chunks[i]);

		for (size_t k = 0; chunk && k < HC_SPACE_CHUNK; k++)
			hc_order_destroy(chunk[k]);
		free(chunk);
	}
	for (size_t i = 0; i < HC_INDEX_SHARDS; i++)
		hc_ghosts_destroy(node->ghosts[i]);
	hc_opaques_destroy(node->opaques);
	hc_marks_destroy(node->marks);
	free(node->backup_queue.items);
	free(node->row_queue.items);
	free(node->removals);
	if (node->slot_entry)
		munmap(node->slot_entry, node->slot_entry_bytes);
	pthread_mutex_destroy(&node->lock);
	pthread_mutex_destroy(&node->backup_lock);
	pthread_mutex_destroy(&node->recut_lock);
	pthread_mutex_destroy(&node->gc_lock);
	pthread_mutex_destroy(&node->remove_lock);
	pthread_mutex_destroy(&node->io_lock);
	pthread_rwlock_destroy(&node->adopt_lock);
	for (size_t i = 0; i < HC_VERDICT_LOCKS; i++)
		pthread_mutex_destroy(&node->verdict_lock[i]);
	pthread_cond_destroy(&node->backup_cond);
	hc_wait_destroy(&node->room);
	hc_wait_destroy(&node->evict_bell);
	hc_wait_destroy(&node->keeper_bell);
	for (size_t i = 0; i < HC_WAIT_BUCKETS; i++)
		hc_wait_destroy(&node->loads[i]);
}

void hc_node_close(struct hc_node *node, uint64_t *n_lost_p)
{
	bool keep, whole;
	uint64_t n_left = 0;

	if (!node)
		return;
	whole = node->pool && node->registry;
	keep = node->config.keep_pool;
	if (whole && node->has_backup && !keep)
		hc_ignore(hc_node_sync(node, hc_clock_now_ns() + node->config.flush_ns, &n_left));
	atomic_store(&node->stop, true);
	hc_keeper_stop(node);
	hc_evict_stop(node);
	hc_backup_stop(node);
	if (node->store) {
		/* Requests in flight complete (close waits for them), then the progress thread sees
		 * the last ones. */
		hc_io_stop(node);
	}
	if (whole && node->catalog) {
		hc_rows_drain(node); /* of the last completions */
		/* Not after a failed start: it may have read half of what there is. */
		if (node->opened)
			hc_recency_store(node);
	}
	if (n_left)
		hc_warn(HC_NODE, "%llu pages could not be backed up before the deadline%s",
			(unsigned long long)n_left, keep ? "" : " and are lost");
	if (n_lost_p)
		*n_lost_p = n_left;
	if (node->pool)
		hc_pool_close(node->pool, keep);
	if (node->pool_dir[0] && !keep)
		hc_ignore(hc_pool_place_free(node->pool_dir));
	hc_walks_destroy(node->walks);
	hc_links_destroy(node->links);
	hc_times_destroy(node->times);
	hc_registry_close(node->registry);
	hc_index_destroy(node->index);
	hc_node_free_tables(node);
	free(node);
}

struct hc_registry *hc_node_registry(struct hc_node *node)
{
	return node->registry;
}

uint64_t hc_node_pool_bytes(struct hc_node *node)
{
	struct hc_pool_stats stats;

	hc_pool_stats(node->pool, &stats);
	return stats.size_bytes;
}

void *hc_node_segment(struct hc_node *node, const struct hc_ref *ref, uint64_t *size_bytes_p)
{
	return hc_pool_segment_data(node->pool, ref->slot, size_bytes_p);
}

uint64_t hc_node_segment_bytes(struct hc_node *node)
{
	struct hc_pool_stats stats;

	hc_pool_stats(node->pool, &stats);
	return stats.segment_bytes;
}

uint8_t hc_node_space_priority(struct hc_node *node, uint32_t space)
{
	struct hc_space_info info;

	return hc_space_get(node->registry, space, &info) ? 0 : info.priority;
}

struct hc_class *hc_node_class(struct hc_node *node, const struct hc_domain *domain,
			       uint64_t slot_bytes, bool make)
{
	struct hc_class *class = NULL;
	unsigned n;

	pthread_mutex_lock(&node->lock);
	n = atomic_load(&node->n_classes);
	for (unsigned i = 0; i < n && !class; i++) {
		if (node->classes[i]->slot_bytes == slot_bytes &&
		    !memcmp(&node->classes[i]->domain, domain, sizeof(*domain)))
			class = node->classes[i];
	}
	if (!class && make && n < HC_CLASSES_MAX) {
		class = hc_zalloc(sizeof(*class));
		if (class && hc_order_create(&class->order)) {
			free(class);
			class = NULL;
		}
		if (class) {
			class->domain = *domain;
			class->slot_bytes = slot_bytes;
			node->classes[n] = class;
			atomic_store(&node->n_classes, n + 1);
		}
	}
	pthread_mutex_unlock(&node->lock);
	return class;
}

void hc_node_note_runs(struct hc_node *node, struct hc_class *class, const struct hc_run *runs,
		       uint32_t n_runs)
{
	uint16_t number = 0;

	while (node->classes[number] != class)
		number++;
	for (uint32_t i = 0; i < n_runs; i++)
		atomic_store_explicit(&node->segment_class[runs[i].segment], (uint16_t)(number + 1),
				      memory_order_relaxed);
}

struct hc_class *hc_node_slot_class(struct hc_node *node, hc_slot_id slot)
{
	uint32_t segment, index;
	uint16_t number;

	hc_pool_locate(node->pool, slot, &segment, &index);
	number = atomic_load_explicit(&node->segment_class[segment], memory_order_relaxed);
	return number ? node->classes[number - 1] : NULL;
}

struct hc_order *hc_node_space_order(struct hc_node *node, uint32_t space, bool make)
{
	struct hc_order **chunk, *order;
	uint32_t i = space / HC_SPACE_CHUNK;

	if (i >= HC_SPACE_CHUNKS)
		return NULL;
	chunk = atomic_load(&node->space_chunks[i]);
	if (chunk) {
		order = __atomic_load_n(&chunk[space % HC_SPACE_CHUNK], __ATOMIC_ACQUIRE);
		if (order || !make)
			return order;
	}
	if (!make)
		return NULL;
	pthread_mutex_lock(&node->lock);
	chunk = atomic_load(&node->space_chunks[i]);
	if (!chunk) {
		chunk = calloc(HC_SPACE_CHUNK, sizeof(*chunk));
		if (chunk)
			atomic_store(&node->space_chunks[i], chunk);
	}
	order = chunk ? chunk[space % HC_SPACE_CHUNK] : NULL;
	if (chunk && !order && !hc_order_create(&order))
		__atomic_store_n(&chunk[space % HC_SPACE_CHUNK], order, __ATOMIC_RELEASE);
	if (atomic_load(&node->n_spaces) <= space)
		atomic_store(&node->n_spaces, space + 1);
	pthread_mutex_unlock(&node->lock);
	return order;
}

void hc_node_space_domain(struct hc_node *node, uint32_t space, struct hc_domain *domain_p)
{
	struct hc_space_info info;

	*domain_p = (struct hc_domain){0, 0, 0700};
	if (!hc_space_get(node->registry, space, &info))
		*domain_p = (struct hc_domain){info.owner.uid, info.owner.gid, info.owner.mode};
}

uint64_t hc_node_expire_before(struct hc_node *node, uint32_t series)
{
	uint64_t now_ns, max_age_s = hc_series_max_age(node->registry, series);

	if (!max_age_s)
		return 0;
	now_ns = hc_clock_wall_ns();
	return max_age_s >= now_ns / HC_NS_PER_S ? 0 : now_ns - max_age_s * HC_NS_PER_S;
}

void hc_node_limits_get(struct hc_node *node, struct hc_node_limits *limits_p)
{
	pthread_mutex_lock(&node->lock);
	*limits_p = node->limits;
	pthread_mutex_unlock(&node->lock);
}

void hc_node_limits_set(struct hc_node *node, const struct hc_node_limits *limits)
{
	pthread_mutex_lock(&node->lock);
	node->limits = *limits;
	if (node->config.disk_off)
		node->limits.backup = HC_BACKUP_OFF;
	pthread_mutex_unlock(&node->lock);
	hc_wait_wake(&node->evict_bell);
}

const struct hc_timing *hc_node_timing(struct hc_node *node, enum hc_node_timing which)
{
	return &node->timings[which];
}

void hc_node_space_changed(struct hc_node *node, uint32_t space)
{
	struct hc_space_info info;

	if (!hc_space_get(node->registry, space, &info) && hc_node_hints_below(node, info.dir))
		hc_warn(HC_NODE, "space %s: its priority holds for new pages only", info.name);
	hc_wait_wake(&node->evict_bell);
	hc_wait_wake(&node->keeper_bell);
}
