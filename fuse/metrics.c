/* SPDX-License-Identifier: Apache-2.0 */
/* .hicache/metrics: Prometheus text format 0.0.4. Names begin with hicache_, units are seconds and
 * bytes, counters end with _total; each family is there once, with HELP and TYPE. A counter of the
 * node or the front end that has no place in the tables below is shown under its own name, so that
 * none is left out. Names of spaces are labels, escaped, at most HC_METRICS_SPACES of them. */
#include <inttypes.h>

#include "config.h"
#include "fuse/control.h"
#include "util/clock.h"

/* Series of a scrape must have an end: the biggest spaces come first. */
#define HC_METRICS_SPACES 1000u
#define HC_NS_PER_S_TEXT  1e9

/* --- families --- */

static void family(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP hicache_%s %s\n# TYPE hicache_%s %s\n", name, help, name, type);
}

static void sample(FILE *out, const char *name, const char *labels, uint64_t value)
{
	fprintf(out, "hicache_%s%s %" PRIu64 "\n", name, labels, value);
}

static void gauge(FILE *out, const char *name, const char *help, uint64_t value)
{
	family(out, name, "gauge", help);
	sample(out, name, "", value);
}

/* Backslash, quote and newline, as the format wants; what is not UTF-8 becomes '?'. */
static void escape_label(const char *text, char *out)
{
	const uint8_t *p = (const uint8_t *)text;

	while (*p) {
		unsigned n = *p < 0x80                 ? 1
			     : *p >= 0xc2 && *p < 0xe0 ? 2
			     : *p >= 0xe0 && *p < 0xf0 ? 3
			     : *p >= 0xf0 && *p < 0xf5 ? 4
						       : 0;
		bool good = n;

		for (unsigned i = 1; i < n; i++)
			good = good && (p[i] & 0xc0) == 0x80;
		if (!good) {
			*out++ = '?';
			p++;
			continue;
		}
		if (*p == '\\' || *p == '"' || *p == '\n')
			*out++ = '\\';
		if (*p == '\n')
			*out++ = 'n';
		else
			for (unsigned i = 0; i < n; i++)
				*out++ = (char)p[i];
		p += n;
	}
	*out = 0;
}

/* --- counters of the node and the front end --- */

struct placed {
	const char *counter; /* as in stats */
	const char *family;
	const char *labels;
};

static const struct placed node_places[] = {
	{"evicted_memory", "evictions_total", "{tier=\"memory\"}"},
	{"evicted_disk", "evictions_total", "{tier=\"disk\"}"},
	{"evicted_memory_bytes", "evicted_bytes_total", "{tier=\"memory\"}"},
	{"evicted_disk_bytes", "evicted_bytes_total", "{tier=\"disk\"}"},
	{"evicted_quota", "removals_total", "{reason=\"quota\"}"},
	{"expired", "removals_total", "{reason=\"max_age\"}"},
	{"evicted_orphans", "removals_total", "{reason=\"orphan\"}"},
	{"removed", "removals_total", "{reason=\"unlink\"}"},
	{"replaced", "removals_total", "{reason=\"replaced\"}"},
	{"hits_memory", "hits_total", "{tier=\"memory\"}"},
	{"hits_disk", "hits_total", "{tier=\"disk\"}"},
	{"bad_checksum", "errors_total", "{kind=\"bad_checksum\"}"},
	{"bad_size", "errors_total", "{kind=\"bad_size\"}"},
	{"bad_missing", "errors_total", "{kind=\"bad_missing\"}"},
	{"bad_scrub", "errors_total", "{kind=\"bad_scrub\"}"},
	{"bad_adopted", "errors_total", "{kind=\"bad_adopted\"}"},
	{"disk_errors", "errors_total", "{kind=\"disk\"}"},
	{"disks_out", "errors_total", "{kind=\"disk_out\"}"},
	{"no_space_memory", "errors_total", "{kind=\"no_space_memory\"}"},
	{"no_space_disk", "errors_total", "{kind=\"no_space_disk\"}"},
	{"no_quota", "errors_total", "{kind=\"no_quota\"}"},
	{"catalog_lost", "errors_total", "{kind=\"catalog_lost\"}"},
	{"promote_failed", "errors_total", "{kind=\"promote\"}"},
	{"backup_failed", "errors_total", "{kind=\"backup\"}"},
	{"misses_deadline", "errors_total", "{kind=\"too_late\"}"},
};

static const struct {
	const char *name, *help;
} node_families[] = {
	{"hits_total", "Pages that were asked for and there, by the tier they came from."},
	{"evictions_total", "Pages evicted from a tier to make room."},
	{"evicted_bytes_total", "Bytes of pages evicted from a tier."},
	{"removals_total", "Pages that lost their name, by reason."},
	{"errors_total", "What went wrong, by kind; each was answered as a miss or a full disk."},
};

static const char *node_names[] = {
#define NAME(name) #name,
	HC_NODE_COUNTERS(NAME)
#undef NAME
};

static bool is_placed(const char *counter)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(node_places); i++)
		if (!strcmp(node_places[i].counter, counter))
			return true;
	return false;
}

static void node_counters(const struct hc_node_stats *stats, FILE *out)
{
	const uint64_t values[] = {
#define VALUE(name) stats->name,
		HC_NODE_COUNTERS(VALUE)
#undef VALUE
	};
	char name[96];

	for (size_t f = 0; f < HC_ARRAY_SIZE(node_families); f++) {
		family(out, node_families[f].name, "counter", node_families[f].help);
		for (size_t p = 0; p < HC_ARRAY_SIZE(node_places); p++)
			for (size_t i = 0; i < HC_ARRAY_SIZE(values); i++)
				if (!strcmp(node_places[p].family, node_families[f].name) &&
				    !strcmp(node_places[p].counter, node_names[i]))
					sample(out, node_places[p].family, node_places[p].labels,
					       values[i]);
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(values); i++) {
		if (is_placed(node_names[i]))
			continue;
		snprintf(name, sizeof(name), "%s_total", node_names[i]);
		family(out, name, "counter", "The counter of this name in .hicache/stats.");
		sample(out, name, "", values[i]);
	}
}

static void fs_counters(const struct hc_fs_stats *stats, FILE *out)
{
#define COUNTER(field)                                                                           \
	family(out, "fs_" #field "_total", "counter",                                            \
	       "The counter fs_" #field " in .hicache/stats: requests and files of the mount."); \
	sample(out, "fs_" #field "_total", "", stats->field);
	HC_FS_COUNTERS(COUNTER)
#undef COUNTER
	gauge(out, "fs_nodes", "Node ids that the kernel knows.", stats->n_nodes);
	gauge(out, "fs_bodies", "Files under construction.", stats->n_bodies);
	gauge(out, "fs_temporaries", "Temporary files.", stats->n_temporaries);
	gauge(out, "fs_handles", "Open files.", stats->n_handles);
	gauge(out, "fs_passthrough", "1: pages on disk are opened without a copy.",
	      stats->has_passthrough);
}

/* --- state --- */

static void tiers(const struct hc_node_stats *s, FILE *out)
{
	family(out, "pages", "gauge", "Pages by tier; a page may be in both.");
	sample(out, "pages", "{tier=\"memory\"}", s->n_pages_memory);
	sample(out, "pages", "{tier=\"disk\"}", s->n_pages_disk);
	family(out, "page_bytes", "gauge", "Bytes of pages by tier.");
	sample(out, "page_bytes", "{tier=\"memory\"}", s->memory_bytes);
	sample(out, "page_bytes", "{tier=\"disk\"}", s->disk_used_bytes);
	gauge(out, "disk_limit_bytes", "What the disk tier may take.", s->disk_limit_bytes);
	gauge(out, "dirty_pages", "Pages that are to be written to disk.", s->n_dirty);
	gauge(out, "dirty_bytes", "Bytes of those.", s->dirty_bytes);
	gauge(out, "index_pages", "Pages that are known.", s->n_pages);
	gauge(out, "index_bytes", "Memory of the index.", s->index_bytes);
	gauge(out, "held_pages", "Pages that are open or leased.", s->n_refs);
	gauge(out, "quarantined_slots", "Slots somebody may still write to.",
	      s->n_quarantined_slots);
	gauge(out, "rebuilding", "1: the catalog is being rebuilt from the page files.",
	      s->rebuilding);
}

static void pool(const struct hc_pool_stats *p, FILE *out)
{
	char labels[64];

	family(out, "pool_info", "gauge", "The kind of memory that the pool got.");
	snprintf(labels, sizeof(labels), "{kind=\"%s\"}", hc_pool_kind_name(p->kind));
	sample(out, "pool_info", labels, 1);
	gauge(out, "pool_size_bytes", "Size of the pool.", p->size_bytes);
	gauge(out, "pool_populated_bytes", "What of it is there by now.", p->populated_bytes);
	gauge(out, "pool_huge_bytes", "What of it lies on huge pages.", p->huge_bytes);
	gauge(out, "pool_used_bytes", "What of it slots with pages take.", p->used_bytes);
	gauge(out, "pool_adopted_bytes", "What an earlier daemon left.", p->adopted_bytes);
	gauge(out, "pool_used_slots", "Slots with pages.", p->n_slots_used);
	family(out, "pool_reserved_runs_total", "counter",
	       "Runs of neighbouring slots handed out; slots by runs is their mean length.");
	sample(out, "pool_reserved_runs_total", "", p->n_reserve_runs);
	family(out, "pool_reserved_slots_total", "counter", "Slots handed out.");
	sample(out, "pool_reserved_slots_total", "", p->n_reserve_slots);
}

static void queues(struct hc_control *control, const struct hc_node_stats *s, FILE *out)
{
	struct hc_prefetch_stats prefetch = {0};

	if (control->prefetcher)
		hc_prefetch_stats(control->prefetcher, NULL, &prefetch);
	family(out, "queue_length", "gauge", "What waits.");
	sample(out, "queue_length", "{queue=\"backup\"}", s->n_dirty);
	sample(out, "queue_length", "{queue=\"catalog\"}", s->catalog.n_queued);
	sample(out, "queue_length", "{queue=\"prefetch\"}", prefetch.n_queued);
	family(out, "catalog_commits_total", "counter", "Transactions of the catalog.");
	sample(out, "catalog_commits_total", "", s->catalog.n_commits);
	family(out, "catalog_changes_total", "counter", "Rows changed by them.");
	sample(out, "catalog_changes_total", "", s->catalog.n_changes);
	gauge(out, "catalog_journal_bytes", "Size of its journal.", s->catalog.n_journal_bytes);
}

static void disks(struct hc_node *node, FILE *out)
{
	static const struct {
		const char *name, *type, *help;
	} what[] = {
		{"disk_free_bytes", "gauge", "Free bytes of a data directory's file system."},
		{"disk_total_bytes", "gauge", "Its size."},
		{"disk_io_errors_total", "counter", "Errors that a disk gave."},
		{"disk_out", "gauge", "1: the disk was taken out after errors."},
	};
	struct hc_store_disk_info *info = malloc(sizeof(*info));
	char *dir = malloc(2 * sizeof(info->dir)), *labels = malloc(2 * sizeof(info->dir) + 32);

	for (size_t w = 0; info && dir && labels && w < HC_ARRAY_SIZE(what); w++) {
		if (hc_node_n_disks(node))
			family(out, what[w].name, what[w].type, what[w].help);
		for (uint16_t i = 0; i < hc_node_n_disks(node); i++) {
			if (hc_node_disk_info(node, i, info))
				continue;
			const uint64_t values[] = {info->free_bytes, info->total_bytes,
						   info->n_errors, info->out};

			escape_label(info->dir, dir);
			snprintf(labels, 2 * sizeof(info->dir) + 32, "{dir=\"%s\"}", dir);
			sample(out, what[w].name, labels, values[w]);
		}
	}
	free(info);
	free(dir);
	free(labels);
}

/* --- histograms --- */

static void histogram(FILE *out, const char *name, const char *labels, const char *help,
		      const struct hc_timing *timing)
{
	const char *comma = *labels ? "," : "";
	uint64_t n = 0;

	if (help)
		family(out, name, "histogram", help);
	for (unsigned i = 0; i <= HC_TIMING_BOUNDS; i++) {
		n += atomic_load_explicit(&timing->buckets[i], memory_order_relaxed);
		fprintf(out, "hicache_%s_bucket{%s%sle=\"", name, labels, comma);
		if (i < HC_TIMING_BOUNDS)
			fprintf(out, "%g", (double)hc_timing_bounds_ns[i] / HC_NS_PER_S_TEXT);
		else
			fputs("+Inf", out);
		fprintf(out, "\"} %" PRIu64 "\n", n);
	}
	fprintf(out, *labels ? "hicache_%s_sum{%s} %.9f\n" : "hicache_%s_sum%s %.9f\n", name,
		labels,
		(double)atomic_load_explicit(&timing->sum_ns, memory_order_relaxed) /
			HC_NS_PER_S_TEXT);
	fprintf(out,
		*labels ? "hicache_%s_count{%s} %" PRIu64 "\n" : "hicache_%s_count%s %" PRIu64 "\n",
		name, labels, n);
}

static void histograms(struct hc_control *control, FILE *out)
{
	static const char *const names[] = {
#define NAME(name) #name,
		HC_FS_TIMINGS(NAME)
#undef NAME
	};
	char name[64], help[128];

	for (size_t i = 0; control->fs && i < HC_ARRAY_SIZE(names); i++) {
		snprintf(name, sizeof(name), "%s_seconds", names[i]);
		snprintf(help, sizeof(help),
			 "Time that the daemon took for a request of the mount: %s.", names[i]);
		histogram(out, name, "", help, hc_fs_timing(control->fs, (enum hc_fs_timing)i));
	}
	histogram(out, "promotion_seconds", "",
		  "Reading a page from disk, with the wait for the disk.",
		  hc_node_timing(control->node, HC_TIMING_PROMOTION));
	histogram(out, "backup_seconds", "", "Writing a page to disk, with the wait for the disk.",
		  hc_node_timing(control->node, HC_TIMING_BACKUP));
}

/* --- spaces --- */

struct space_row {
	struct hc_space_info info;
	uint64_t used_bytes;
	uint64_t counters[HC_SPACE_N_COUNTERS];
	struct hc_space_pages pages;
	char label[2 * HC_NAME_BYTES];
};

static int by_size(const void *a, const void *b)
{
	const struct space_row *x = a, *y = b;

	return x->used_bytes > y->used_bytes ? -1 : x->used_bytes < y->used_bytes;
}

static void space_family(FILE *out, const struct space_row *rows, size_t n, const char *name,
			 const char *type, const char *help, const char *more,
			 const char *const *mores, const size_t *offsets, size_t n_offsets)
{
	family(out, name, type, help);
	for (size_t i = 0; i < n; i++) {
		for (size_t o = 0; o < n_offsets; o++) {
			uint64_t value;

			memcpy(&value, (const char *)&rows[i] + offsets[o], sizeof(value));
			fprintf(out, "hicache_%s{space=\"%s\"", name, rows[i].label);
			if (more)
				fprintf(out, ",%s=\"%s\"", more, mores[o]);
			fprintf(out, "} %" PRIu64 "\n", value);
		}
	}
}

#define COUNTER_AT(name) \
	(offsetof(struct space_row, counters) + HC_SPACE_COUNT_##name * sizeof(uint64_t))

static void space_rows(FILE *out, const struct space_row *rows, size_t n)
{
	static const char *const tier[] = {"memory", "disk"};
	static const char *const kind[] = {"bad_checksum", "bad_missing", "bad_adopted", "backup"};
	static const size_t pages[] = {offsetof(struct space_row, pages.n_memory),
				       offsetof(struct space_row, pages.n_disk)};
	static const size_t bytes[] = {offsetof(struct space_row, pages.memory_bytes),
				       offsetof(struct space_row, pages.disk_bytes)};
	static const size_t hits[] = {COUNTER_AT(hits_memory), COUNTER_AT(hits_disk)};
	static const size_t evicted[] = {COUNTER_AT(evicted_memory), COUNTER_AT(evicted_disk)};
	static const size_t errors[] = {COUNTER_AT(bad_checksum), COUNTER_AT(bad_missing),
					COUNTER_AT(bad_adopted), COUNTER_AT(backup_failed)};
	static const struct {
		const char *name, *type, *help;
		size_t offset;
	} single[] = {
		{"space_used_bytes", "gauge", "Bytes of pages that the quota counts.",
		 offsetof(struct space_row, used_bytes)},
		{"space_quota_bytes", "gauge", "The quota; 0: none.",
		 offsetof(struct space_row, info.quota_bytes)},
		{"space_lookups_total", "counter", "Names and hashes that were looked up.",
		 COUNTER_AT(lookups)},
		{"space_lookup_hits_total", "counter", "Of these, pages that were there.",
		 COUNTER_AT(lookup_hits)},
		{"space_misses_total", "counter", "Pages that were wanted and not there.",
		 COUNTER_AT(misses)},
		{"space_published_total", "counter", "New pages.", COUNTER_AT(published)},
		{"space_published_bytes_total", "counter", "Bytes of new pages.",
		 COUNTER_AT(published_bytes)},
	};

	space_family(out, rows, n, "space_pages", "gauge", "Pages of a space by tier.", "tier",
		     tier, pages, 2);
	space_family(out, rows, n, "space_page_bytes", "gauge", "Bytes of a space by tier.", "tier",
		     tier, bytes, 2);
	space_family(out, rows, n, "space_hits_total", "counter", "Hits of a space by tier.",
		     "tier", tier, hits, 2);
	space_family(out, rows, n, "space_evictions_total", "counter",
		     "Pages of a space evicted from a tier.", "tier", tier, evicted, 2);
	space_family(out, rows, n, "space_errors_total", "counter", "Errors of a space by kind.",
		     "kind", kind, errors, 4);
	for (size_t i = 0; i < HC_ARRAY_SIZE(single); i++)
		space_family(out, rows, n, single[i].name, single[i].type, single[i].help, NULL,
			     NULL, &single[i].offset, 1);
}

static int spaces(struct hc_control *control, FILE *out)
{
	struct hc_registry *registry = hc_node_registry(control->node);
	struct hc_space_pages *pages = NULL;
	struct hc_space_info *list = NULL;
	struct space_row *rows = NULL;
	size_t n = 0, n_pages = 0;
	int rc = hc_space_list(registry, &list, &n);

	if (!rc)
		rc = hc_node_space_pages(control->node, &pages, &n_pages);
	if (!rc) {
		rows = calloc(n ? n : 1, sizeof(*rows));
		rc = rows ? 0 : -ENOMEM;
	}
	for (size_t i = 0; !rc && i < n; i++) {
		rows[i].info = list[i];
		rows[i].used_bytes = hc_space_used(registry, list[i].id);
		hc_space_counters(registry, list[i].id, rows[i].counters);
		if (list[i].id < n_pages)
			rows[i].pages = pages[list[i].id];
		escape_label(list[i].name, rows[i].label);
	}
	if (!rc) {
		gauge(out, "spaces", "Spaces; the families of spaces have the 1000 biggest.", n);
		qsort(rows, n, sizeof(*rows), by_size);
		space_rows(out, rows, hc_min_u64(n, HC_METRICS_SPACES));
	}
	free(rows);
	free(pages);
	if (n || !rc)
		free(list);
	return rc;
}

int hc_control_metrics(struct hc_control *control, FILE *out)
{
	struct hc_node_stats node;
	struct hc_fs_stats fs;

	hc_node_stats(control->node, &node);
	family(out, "build_info", "gauge", "The version that runs.");
	fprintf(out, "hicache_build_info{version=\"%s\"} 1\n", PACKAGE_VERSION);
	gauge(out, "uptime_seconds", "Seconds since the daemon's start.",
	      (hc_clock_now_ns() - control->start_ns) / HC_NS_PER_S);
	tiers(&node, out);
	gauge(out, "draining", "1: new pages are refused, until hicachectl drain --end.",
	      hc_node_draining(control->node));
	pool(&node.pool, out);
	queues(control, &node, out);
	disks(control->node, out);
	node_counters(&node, out);
	if (control->fs) {
		hc_fs_stats(control->fs, &fs);
		fs_counters(&fs, out);
	}
	histograms(control, out);
	return spaces(control, out);
}
