/* SPDX-License-Identifier: Apache-2.0 */
/* See hicache.h: opening and closing, the log, and what concerns the whole cache. */
#include "hicache.h"

#include "config.h"
#include "hicache-internal.h"

/* A params of the first release. */
#define HC_PARAMS_BYTES_MIN offsetof(struct hicache_params, segment_bytes)
#define HC_MIN_FREE_PPM     50000u

_Static_assert((int)HICACHE_LOG_TRACE == (int)HC_LOG_TRACE &&
		       (int)HICACHE_LOG_ERROR == (int)HC_LOG_ERROR,
	       "levels are the same numbers");
_Static_assert((int)HICACHE_BACKUP_PUBLISH == (int)HC_BACKUP_PUBLISH &&
		       (int)HICACHE_BACKUP_REUSE == (int)HC_BACKUP_REUSE &&
		       (int)HICACHE_BACKUP_EVICT == (int)HC_BACKUP_EVICT &&
		       (int)HICACHE_BACKUP_OFF == (int)HC_BACKUP_OFF,
	       "modes are the same numbers");

const char *hicache_version(void)
{
	return PACKAGE_VERSION;
}

/* The types of the sink differ in the level alone, an enumeration inside and an int outside. */
static hicache_log_sink_t hc_public_sink;

static void hc_public_log(void *arg, enum hc_log_level level, const char *component,
			  const char *text)
{
	hc_public_sink(arg, (int)level, component, text);
}

void hicache_log_sink_set(hicache_log_sink_t sink, void *arg)
{
	/* No line is on its way to the old sink once the log has none of ours. */
	hc_log_set_sink(NULL, NULL);
	hc_public_sink = sink;
	if (sink)
		hc_log_set_sink(hc_public_log, arg);
}

int hicache_log_level_set(int level)
{
	if (level < HICACHE_LOG_ERROR || level > HICACHE_LOG_TRACE) {
		hc_error(HC_PUBLIC, "log level %d: there are %d (error) to %d (trace)", level,
			 HICACHE_LOG_ERROR, HICACHE_LOG_TRACE);
		return -EINVAL;
	}
	hc_log_set_level((enum hc_log_level)level);
	return 0;
}

int hc_public_need(const char *call, const char *name, const void *p)
{
	if (p)
		return 0;
	hc_error(HC_PUBLIC, "%s: %s is NULL", call, name);
	return -EINVAL;
}

int hc_public_result(const char *call, int rc)
{
	if (rc == -ENOMEM)
		hc_error(HC_PUBLIC, "%s: out of memory", call);
	return rc;
}

int hc_public_params(const char *what, const void *given, size_t min_bytes, void *own, size_t bytes)
{
	size_t size;

	memset(own, 0, bytes);
	if (!given)
		return 0;
	memcpy(&size, given, sizeof(size));
	if (size < min_bytes) {
		hc_error(HC_PUBLIC, "%s: size is %zu: set it to sizeof", what, size);
		return -EINVAL;
	}
	for (size_t i = bytes; i < size; i++) {
		if (((const char *)given)[i]) {
			hc_error(HC_PUBLIC,
				 "%s asks for something that this library (%s) does not know", what,
				 PACKAGE_VERSION);
			return -E2BIG;
		}
	}
	memcpy(own, given, hc_min_u64(size, bytes));
	return 0;
}

int hc_public_fill(const char *what, void *given, const void *own, size_t bytes)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	if (size <= sizeof(size)) {
		hc_error(HC_PUBLIC, "%s: size is %zu: set it to sizeof", what, size);
		return -EINVAL;
	}
	if (size > bytes)
		memset((char *)given + bytes, 0, size - bytes);
	memcpy((char *)given + sizeof(size), (const char *)own + sizeof(size),
	       hc_min_u64(size, bytes) - sizeof(size));
	return 0;
}

/* *cachedir_p: NULL for memory only. */
static int hc_public_where(const char *where, const char **cachedir_p)
{
	if (where && !strcmp(where, "mem:")) {
		*cachedir_p = NULL;
		return 0;
	}
	if (where && !strncmp(where, "dir:", 4) && where[4]) {
		*cachedir_p = where + 4;
		return 0;
	}
	hc_error(
		HC_PUBLIC,
		"cannot open '%s': a cache is \"dir:PATH\" (a directory) or \"mem:\" (memory only)",
		where ? where : "");
	return -EINVAL;
}

static int hc_public_config(const struct hicache_params *params, struct hc_node_config *config)
{
	if (params->flags &
	    ~(HICACHE_OPEN_NOINIT | HICACHE_OPEN_DISK_OFF | HICACHE_OPEN_NO_VERIFY)) {
		hc_error(HC_PUBLIC, "params.flags %#x: unknown bits", params->flags);
		return -EINVAL;
	}
	if (params->backup > HICACHE_BACKUP_OFF) {
		hc_error(HC_PUBLIC, "params.backup is %u: there are 0 to %d", params->backup,
			 HICACHE_BACKUP_OFF);
		return -EINVAL;
	}
	*config = (struct hc_node_config){
		.noinit = params->flags & HICACHE_OPEN_NOINIT,
		.root = {.uid = geteuid(), .gid = getegid(), .mode = 0755},
		.embedded = true,
		.pool_bytes = params->pool_bytes,
		.segment_bytes = params->segment_bytes,
		.disk_off = params->flags & HICACHE_OPEN_DISK_OFF,
		.disk_bytes = params->disk_bytes,
		.min_free_bytes = params->min_free_bytes,
		.min_free_ppm = params->min_free_bytes ? 0 : HC_MIN_FREE_PPM,
		.backup = (enum hc_backup_mode)params->backup,
		.max_page_bytes = params->max_page_bytes,
		.index_bytes = params->index_bytes,
		.flush_ns = params->flush_ms * HC_NS_PER_MS,
		.no_verify = params->flags & HICACHE_OPEN_NO_VERIFY,
	};
	return 0;
}

int hicache_open(const char *where, const struct hicache_params *given, struct hicache **hc_p)
{
	struct hc_node_config config;
	struct hicache_params params;
	struct hc_node_stats stats;
	const char *cachedir;
	struct hicache *hc;
	int rc = hc_public_where(where, &cachedir);

	if (!rc)
		rc = hc_public_params("params", given, HC_PARAMS_BYTES_MIN, &params,
				      sizeof(params));
	if (!rc)
		rc = hc_public_config(&params, &config);
	if (rc)
		return rc;
	hc = hc_zalloc(sizeof(*hc));
	if (!hc)
		return -ENOMEM;
	config.cachedir = cachedir;
	rc = hc_node_open(&config, &hc->node);
	if (rc) {
		free(hc);
		return rc;
	}
	hc_node_stats(hc->node, &stats);
	hc->registry = hc_node_registry(hc->node);
	hc->slots_per_segment = (uint32_t)(stats.pool.segment_bytes / HC_BLOCK_BYTES);
	hc->pid = (int)getpid();
	*hc_p = hc;
	return 0;
}

int hicache_close(struct hicache *hc)
{
	unsigned long long n_leased, n_reserved, n_handles;

	if (!hc)
		return 0;
	if (hc_public_foreign(hc))
		return -ESTALE;
	n_leased = atomic_load(&hc->n_leased);
	n_reserved = atomic_load(&hc->n_reserved);
	n_handles = atomic_load(&hc->n_handles);
	if (n_leased || n_reserved || n_handles) {
		hc_error(HC_PUBLIC,
			 "close: %llu leased and %llu reserved pages are held and %llu spaces, "
			 "series or transfers are open: "
			 "release, publish or abort, and close them first",
			 n_leased, n_reserved, n_handles);
		return -EBUSY;
	}
	hc_node_close(hc->node, NULL);
	free(hc);
	return 0;
}

int hicache_sync(struct hicache *hc, uint32_t timeout_ms, uint64_t *n_left_p)
{
	uint64_t n_left = 0;
	int rc;

	if (hc_public_foreign(hc))
		return -ESTALE;
	rc = hc_node_sync(hc->node, hc_public_deadline(timeout_ms), &n_left);
	if (n_left_p)
		*n_left_p = n_left;
	return rc;
}

int hicache_drop_memory(struct hicache *hc, uint32_t timeout_ms, uint64_t *n_dropped_p,
			uint64_t *n_kept_p)
{
	struct hc_evict_result result;
	int rc;

	if (hc_public_foreign(hc))
		return -ESTALE;
	rc = hc_node_evict(hc->node, NULL, 0, true, hc_public_deadline(timeout_ms), &result);
	if (rc)
		return rc;
	if (n_dropped_p)
		*n_dropped_p = result.n_evicted;
	if (n_kept_p)
		*n_kept_p = result.n_kept;
	return 0;
}

/* --- numbers --- */

struct hc_public_stat {
	const char *name;
	size_t offset;
};

#define HC_STAT(name, field)                                \
	{                                                   \
		name, offsetof(struct hc_node_stats, field) \
	}
#define HC_STAT_COUNTER(name) HC_STAT(#name, name),

/* All of 64 bits. */
static const struct hc_public_stat hc_public_stats[] = {
	/* clang-format off */
	HC_NODE_COUNTERS(HC_STAT_COUNTER)
	/* clang-format on */
	HC_STAT("n_pages", n_pages),
	HC_STAT("n_pages_memory", n_pages_memory),
	HC_STAT("n_pages_disk", n_pages_disk),
	HC_STAT("n_dirty", n_dirty),
	HC_STAT("n_held", n_refs),
	HC_STAT("n_quarantined_slots", n_quarantined_slots),
	HC_STAT("memory_bytes", memory_bytes),
	HC_STAT("disk_used_bytes", disk_used_bytes),
	HC_STAT("disk_limit_bytes", disk_limit_bytes),
	HC_STAT("dirty_bytes", dirty_bytes),
	HC_STAT("index_bytes", index_bytes),
	HC_STAT("pool_bytes", pool.size_bytes),
	HC_STAT("pool_segment_bytes", pool.segment_bytes),
	HC_STAT("pool_populated_bytes", pool.populated_bytes),
	HC_STAT("pool_huge_bytes", pool.huge_bytes),
	HC_STAT("pool_used_bytes", pool.used_bytes),
	HC_STAT("pool_reserved_slots", pool.n_reserve_slots),
	HC_STAT("pool_reserved_runs", pool.n_reserve_runs),
};

int hicache_stats_each(struct hicache *hc, hicache_stat_each_t each, void *arg)
{
	struct hc_node_stats stats;
	int rc = 0;

	if (hc_public_foreign(hc))
		return -ESTALE;
	hc_node_stats(hc->node, &stats);
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_public_stats) && !rc; i++) {
		uint64_t value;

		memcpy(&value, (const char *)&stats + hc_public_stats[i].offset, sizeof(value));
		rc = each(arg, hc_public_stats[i].name, value);
	}
	return rc;
}

struct hc_stat_wanted {
	const char *name;
	uint64_t value;
};

static int hc_stat_is_wanted(void *arg, const char *name, uint64_t value)
{
	struct hc_stat_wanted *wanted = arg;

	if (strcmp(name, wanted->name))
		return 0;
	wanted->value = value;
	return 1;
}

int hicache_stats_get(struct hicache *hc, const char *name, uint64_t *value_p)
{
	struct hc_stat_wanted wanted = {name, 0};
	int rc = hicache_stats_each(hc, hc_stat_is_wanted, &wanted);

	if (rc < 0)
		return rc;
	if (!rc) {
		hc_error(HC_PUBLIC, "stats: there is no '%s': hicache_stats_each tells every name",
			 name);
		return -ENOENT;
	}
	*value_p = wanted.value;
	return 0;
}
