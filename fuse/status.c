/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon tells of itself: the stats file, and the status as JSON. See control.h. */
#include "fuse/control.h"

#include <inttypes.h>
#include <jansson.h>

#include "config.h"
#include "util/clock.h"

/* --- stats --- */

static void hc_stat_line(FILE *out, const char *name, uint64_t value)
{
	fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void hc_stats_node(const struct hc_node_stats *s, FILE *out)
{
#define HC_STAT_LINE(name) hc_stat_line(out, #name, s->name);
	HC_NODE_COUNTERS(HC_STAT_LINE)
#undef HC_STAT_LINE
	hc_stat_line(out, "n_pages", s->n_pages);
	hc_stat_line(out, "n_pages_memory", s->n_pages_memory);
	hc_stat_line(out, "n_pages_disk", s->n_pages_disk);
	hc_stat_line(out, "n_dirty", s->n_dirty);
	hc_stat_line(out, "memory_bytes", s->memory_bytes);
	hc_stat_line(out, "disk_used_bytes", s->disk_used_bytes);
	hc_stat_line(out, "disk_limit_bytes", s->disk_limit_bytes);
	hc_stat_line(out, "dirty_bytes", s->dirty_bytes);
	hc_stat_line(out, "index_bytes", s->index_bytes);
	hc_stat_line(out, "n_refs", s->n_refs);
	hc_stat_line(out, "n_quarantined_slots", s->n_quarantined_slots);
	hc_stat_line(out, "rebuilding", s->rebuilding);
}

static void hc_stats_pool(const struct hc_pool_stats *p, FILE *out)
{
	fprintf(out, "pool_kind %s\n", hc_pool_kind_name(p->kind));
	hc_stat_line(out, "pool_size_bytes", p->size_bytes);
	hc_stat_line(out, "pool_segment_bytes", p->segment_bytes);
	hc_stat_line(out, "pool_populated_bytes", p->populated_bytes);
	hc_stat_line(out, "pool_huge_bytes", p->huge_bytes);
	hc_stat_line(out, "pool_used_bytes", p->used_bytes);
	hc_stat_line(out, "pool_adopted_bytes", p->adopted_bytes);
	hc_stat_line(out, "pool_slots_used", p->n_slots_used);
	hc_stat_line(out, "pool_recuts", p->n_recuts);
	hc_stat_line(out, "pool_reserve_runs", p->n_reserve_runs);
	hc_stat_line(out, "pool_reserve_slots", p->n_reserve_slots);
	hc_stat_line(out, "pool_populate_error", (uint64_t)-p->populate_error);
}

static void hc_stats_catalog(const struct hc_catalog_stats *c, FILE *out)
{
	hc_stat_line(out, "catalog_commits", c->n_commits);
	hc_stat_line(out, "catalog_changes", c->n_changes);
	hc_stat_line(out, "catalog_queued", c->n_queued);
	hc_stat_line(out, "catalog_journal_bytes", c->n_journal_bytes);
}

static void hc_stats_fs(const struct hc_fs_stats *f, FILE *out)
{
#define HC_STAT_LINE(name) hc_stat_line(out, "fs_" #name, f->name);
	HC_FS_COUNTERS(HC_STAT_LINE)
#undef HC_STAT_LINE
	hc_stat_line(out, "fs_n_nodes", f->n_nodes);
	hc_stat_line(out, "fs_n_bodies", f->n_bodies);
	hc_stat_line(out, "fs_n_temporaries", f->n_temporaries);
	hc_stat_line(out, "fs_n_handles", f->n_handles);
	hc_stat_line(out, "fs_n_backing_ids", f->n_backing_ids);
	hc_stat_line(out, "fs_has_epoch", f->has_epoch);
	hc_stat_line(out, "fs_has_parallel_dirops", f->has_parallel_dirops);
	hc_stat_line(out, "fs_has_direct_mmap", f->has_direct_mmap);
	hc_stat_line(out, "fs_has_passthrough", f->has_passthrough);
	hc_stat_line(out, "fs_proto_minor", f->proto_minor);
}

void hc_control_stats(struct hc_control *control, FILE *out)
{
	struct hc_node_stats node;
	struct hc_fs_stats fs;

	hc_node_stats(control->node, &node);
	hc_stats_node(&node, out);
	hc_stats_pool(&node.pool, out);
	hc_stats_catalog(&node.catalog, out);
	hc_stat_line(out, "draining", hc_node_draining(control->node));
	if (control->fs) {
		hc_fs_stats(control->fs, &fs);
		hc_stats_fs(&fs, out);
	}
	hc_stat_line(out, "uptime_s", (hc_clock_now_ns() - control->start_ns) / HC_NS_PER_S);
}

/* --- status --- */

static void hc_put(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void hc_put_text(json_t *object, const char *name, const char *text)
{
	json_t *string = json_string(text);

	/* Names are bytes; JSON wants UTF-8. */
	if (!string) {
		hc_autofree char *copy = strdup(text);

		for (char *p = copy; p && *p; p++)
			*p = (*p & 0x80) ? '?' : *p;
		string = json_string(copy ? copy : "?");
	}
	json_object_set_new(object, name, string);
}

static json_t *hc_status_memory(const struct hc_node_stats *s, bool keep_pool)
{
	json_t *o = json_object();

	hc_put_text(o, "kind", hc_pool_kind_name(s->pool.kind));
	hc_put(o, "size_bytes", s->pool.size_bytes);
	hc_put(o, "segment_bytes", s->pool.segment_bytes);
	hc_put(o, "populated_bytes", s->pool.populated_bytes);
	hc_put(o, "huge_bytes", s->pool.huge_bytes);
	hc_put(o, "used_bytes", s->pool.used_bytes);
	hc_put(o, "adopted_bytes", s->pool.adopted_bytes);
	hc_put(o, "pages", s->n_pages_memory);
	hc_put(o, "page_bytes", s->memory_bytes);
	hc_put(o, "dirty_pages", s->n_dirty);
	hc_put(o, "dirty_bytes", s->dirty_bytes);
	hc_put(o, "quarantined_slots", s->n_quarantined_slots);
	json_object_set_new(o, "keep_pool", json_boolean(keep_pool));
	return o;
}

static json_t *hc_status_disks(struct hc_node *node)
{
	struct hc_store_disk_info *info = malloc(sizeof(*info));
	json_t *array = json_array();
	char uuid[33];

	for (uint16_t i = 0; info && i < hc_node_n_disks(node); i++) {
		json_t *o;

		if (hc_node_disk_info(node, i, info))
			continue;
		o = json_object();
		hc_hex_encode(info->uuid, sizeof(info->uuid), uuid);
		hc_put_text(o, "dir", info->dir);
		hc_put_text(o, "uuid", uuid);
		hc_put(o, "total_bytes", info->total_bytes);
		hc_put(o, "free_bytes", info->free_bytes);
		hc_put(o, "errors", info->n_errors);
		json_object_set_new(o, "out", json_boolean(info->out));
		json_array_append_new(array, o);
	}
	free(info);
	return array;
}

static json_t *hc_status_disk(struct hc_node *node, const struct hc_node_stats *s, bool off)
{
	json_t *o = json_object();

	json_object_set_new(o, "off", json_boolean(off));
	hc_put(o, "pages", s->n_pages_disk);
	hc_put(o, "used_bytes", s->disk_used_bytes);
	hc_put(o, "limit_bytes", s->disk_limit_bytes);
	json_object_set_new(o, "disks", hc_status_disks(node));
	return o;
}

static json_t *hc_status_spaces(struct hc_registry *registry)
{
	json_t *array = json_array();
	struct hc_space_info *list;
	char mode[8];
	size_t n;

	if (hc_space_list(registry, &list, &n))
		return array;
	for (size_t i = 0; i < n; i++) {
		json_t *o = json_object();

		snprintf(mode, sizeof(mode), "%04o", list[i].owner.mode & 07777);
		hc_put_text(o, "name", list[i].name);
		hc_put(o, "used_bytes", hc_space_used(registry, list[i].id));
		hc_put(o, "quota_bytes", list[i].quota_bytes);
		hc_put(o, "max_age_s", list[i].max_age_s);
		hc_put(o, "priority", list[i].priority);
		hc_put(o, "series", list[i].n_series);
		hc_put(o, "uid", list[i].owner.uid);
		hc_put(o, "gid", list[i].owner.gid);
		hc_put_text(o, "mode", mode);
		json_array_append_new(array, o);
	}
	free(list);
	return array;
}

static json_t *hc_status_counters(struct hc_control *control, const struct hc_node_stats *s)
{
	json_t *o = json_object();
	struct hc_fs_stats f = {0};

	if (control->fs)
		hc_fs_stats(control->fs, &f);
#define HC_STAT_PUT(name) hc_put(o, #name, s->name);
	HC_NODE_COUNTERS(HC_STAT_PUT)
#undef HC_STAT_PUT
#define HC_STAT_PUT(name) hc_put(o, "fs_" #name, f.name);
	HC_FS_COUNTERS(HC_STAT_PUT)
#undef HC_STAT_PUT
	return o;
}

int hc_control_status(struct hc_control *control, FILE *out)
{
	json_t *root = json_object(), *index = json_object();
	struct hc_node_stats stats;
	bool keep_pool, disk_off;
	int rc;

	hc_node_stats(control->node, &stats);
	pthread_mutex_lock(&control->lock);
	keep_pool = hc_option(control->options, HC_OPT_keep_pool)->number != 0;
	disk_off = !hc_option(control->options, HC_OPT_disk_size)->is_percent &&
		   !hc_option(control->options, HC_OPT_disk_size)->number;
	hc_put_text(root, "version", PACKAGE_VERSION);
	hc_put_text(root, "cachedir", control->options->cachedir);
	hc_put_text(root, "mountpoint", control->options->mountpoint);
	pthread_mutex_unlock(&control->lock);
	hc_put(root, "pid", (uint64_t)getpid());
	hc_put(root, "uptime_s", (hc_clock_now_ns() - control->start_ns) / HC_NS_PER_S);
	json_object_set_new(root, "rebuilding", json_boolean(stats.rebuilding));
	json_object_set_new(root, "draining", json_boolean(hc_node_draining(control->node)));
	hc_put(index, "pages", stats.n_pages);
	hc_put(index, "bytes", stats.index_bytes);
	json_object_set_new(root, "index", index);
	json_object_set_new(root, "memory", hc_status_memory(&stats, keep_pool));
	json_object_set_new(root, "disk", hc_status_disk(control->node, &stats, disk_off));
	json_object_set_new(root, "spaces", hc_status_spaces(hc_node_registry(control->node)));
	json_object_set_new(root, "counters", hc_status_counters(control, &stats));
	rc = json_dumpf(root, out, JSON_COMPACT) ? -ENOMEM : 0;
	putc('\n', out);
	json_decref(root);
	return rc;
}
