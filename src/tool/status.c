/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl status: the daemon's JSON, as it is or as a table; without a daemon the pools that are
 * left. */
#include "tool/page.h"
#include "tool/pools.h"
#include "tool/columns.h"

#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>

#include "util/base.h"
#include "util/io.h"
#include "util/size.h"

/* A cache with thousands of spaces. */
#define HC_STATUS_BYTES_MAX (64 * HC_MIB)

/* Anybody who sees the mount may read it; it works on a read-only mount, too. */
int hc_status_read(const char *mount, char **json_p)
{
	char path[PATH_MAX];
	size_t n;
	int rc;

	if ((size_t)snprintf(path, sizeof(path), "%s/.hicache/status", mount) >= sizeof(path))
		rc = -ENAMETOOLONG;
	else
		rc = hc_file_read(AT_FDCWD, path, HC_STATUS_BYTES_MAX, json_p, &n);
	if (!rc)
		return 0;
	if (rc == -ENOTCONN || rc == -ECONNABORTED) {
		hc_tool_error(
			"%s: the daemon of this mount has died; mount it again (the next start "
			"takes the dead mount away), or umount -l %s",
			mount, mount);
		return HC_TOOL_NO_MOUNT;
	}
	hc_tool_error("%s: %s", path, strerror(-rc));
	return HC_TOOL_FAILED;
}

/* --- the table --- */

static uint64_t hc_get(const json_t *object, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(object, name));

	return value > 0 ? (uint64_t)value : 0;
}

static const char *hc_get_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "?";
}

static double hc_ratio(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

void hc_duration_format(uint64_t seconds, char text[32])
{
	if (seconds >= 2 * 86400)
		snprintf(text, 32, "%llu days", (unsigned long long)(seconds / 86400));
	else if (seconds >= 2 * 3600)
		snprintf(text, 32, "%llu h", (unsigned long long)(seconds / 3600));
	else if (seconds >= 120)
		snprintf(text, 32, "%llu min", (unsigned long long)(seconds / 60));
	else
		snprintf(text, 32, "%llu s", (unsigned long long)seconds);
}

static void hc_status_memory(const json_t *memory)
{
	char used[16], size[16], dirty[16], populated[16];

	hc_size_format(hc_get(memory, "used_bytes"), used);
	hc_size_format(hc_get(memory, "size_bytes"), size);
	hc_size_format(hc_get(memory, "dirty_bytes"), dirty);
	hc_size_format(hc_get(memory, "populated_bytes"), populated);
	printf("memory   %s of %s used (%.0f %%), %llu pages, %llu of them (%s) not on disk yet\n",
	       used, size, hc_ratio(hc_get(memory, "used_bytes"), hc_get(memory, "size_bytes")),
	       (unsigned long long)hc_get(memory, "pages"),
	       (unsigned long long)hc_get(memory, "dirty_pages"), dirty);
	/* While the pool is populated the two are of different moments. */
	printf("         kind %s, %.0f %% on huge pages", hc_get_text(memory, "kind"),
	       fmin(100,
		    hc_ratio(hc_get(memory, "huge_bytes"), hc_get(memory, "populated_bytes"))));
	if (hc_get(memory, "populated_bytes") < hc_get(memory, "size_bytes"))
		printf(", %s ready so far", populated);
	if (hc_get(memory, "quarantined_slots"))
		printf(", %llu slots quarantined",
		       (unsigned long long)hc_get(memory, "quarantined_slots"));
	puts(json_is_true(json_object_get(memory, "keep_pool")) ? ", kept at a stop" : "");
}

static void hc_status_disk(const json_t *disk)
{
	char used[16], limit[16], free_text[16], total[16];
	const json_t *one;
	size_t i;

	if (json_is_true(json_object_get(disk, "off"))) {
		puts("disk     none: memory only");
		return;
	}
	hc_size_format(hc_get(disk, "used_bytes"), used);
	hc_size_format(hc_get(disk, "limit_bytes"), limit);
	printf("disk     %s of %s used (%.0f %%), %llu pages\n", used, limit,
	       hc_ratio(hc_get(disk, "used_bytes"), hc_get(disk, "limit_bytes")),
	       (unsigned long long)hc_get(disk, "pages"));
	json_array_foreach(json_object_get(disk, "disks"), i, one)
	{
		hc_size_format(hc_get(one, "free_bytes"), free_text);
		hc_size_format(hc_get(one, "total_bytes"), total);
		printf("         %s: %s of %s free", hc_get_text(one, "dir"), free_text, total);
		if (json_is_true(json_object_get(one, "out")))
			printf(", TAKEN OUT after %llu errors",
			       (unsigned long long)hc_get(one, "errors"));
		else if (hc_get(one, "errors"))
			printf(", %llu errors", (unsigned long long)hc_get(one, "errors"));
		putchar('\n');
	}
}

static void hc_status_counters(const json_t *c)
{
	uint64_t misses = hc_get(c, "misses"), lookups = hc_get(c, "fs_page_lookups"),
		 absent = hc_get(c, "fs_page_lookups_absent");
	uint64_t bad = hc_get(c, "bad_checksum") + hc_get(c, "bad_size") + hc_get(c, "bad_missing");

	printf("look-ups %llu of page names, %llu of them absent (%.1f %% found)\n",
	       (unsigned long long)lookups, (unsigned long long)absent,
	       hc_ratio(lookups - hc_min_u64(absent, lookups), lookups));
	printf("opens    %llu pages from memory, %llu from disk, %llu looked up but not "
	       "delivered\n",
	       (unsigned long long)hc_get(c, "hits_memory"),
	       (unsigned long long)hc_get(c, "hits_disk"), (unsigned long long)misses);
	printf("pages    %llu published, %llu written to disk\n",
	       (unsigned long long)hc_get(c, "published"),
	       (unsigned long long)hc_get(c, "backed_up"));
	printf("evicted  %llu from memory, %llu from disk, %llu by a quota\n",
	       (unsigned long long)hc_get(c, "evicted_memory"),
	       (unsigned long long)hc_get(c, "evicted_disk"),
	       (unsigned long long)hc_get(c, "evicted_quota"));
	printf("damage   %llu bad pages found\n", (unsigned long long)bad);
}

static int hc_status_spaces(const json_t *spaces)
{
	static const char *const headers[] = {"space",     ">used",   ">quota", ">max age",
					      ">priority", ">series", NULL};
	struct hc_columns *table = hc_columns_create(headers);
	const json_t *one;
	size_t i;

	json_array_foreach(spaces, i, one)
	{
		char used[16], quota[16] = "-", age[32] = "-", priority[24], series[24];

		hc_size_format(hc_get(one, "used_bytes"), used);
		if (hc_get(one, "quota_bytes"))
			hc_size_format(hc_get(one, "quota_bytes"), quota);
		if (hc_get(one, "max_age_s"))
			hc_duration_format(hc_get(one, "max_age_s"), age);
		snprintf(priority, sizeof(priority), "%llu",
			 (unsigned long long)hc_get(one, "priority"));
		snprintf(series, sizeof(series), "%llu", (unsigned long long)hc_get(one, "series"));
		hc_columns_row(table, (const char *const[]){hc_get_text(one, "name"), used, quota,
							    age, priority, series});
	}
	putchar('\n');
	return hc_columns_end(table, true, stdout);
}

static void hc_status_table(const char *mount, const json_t *root)
{
	const json_t *index = json_object_get(root, "index");
	char uptime[32], bytes[16];

	hc_duration_format(hc_get(root, "uptime_s"), uptime);
	hc_size_format(hc_get(index, "bytes"), bytes);
	printf("hicachefs %s on %s\n", hc_get_text(root, "version"), mount);
	printf("cache    %s, process %llu, up %s%s\n", hc_get_text(root, "cachedir"),
	       (unsigned long long)hc_get(root, "pid"), uptime,
	       json_is_true(json_object_get(root, "rebuilding")) ? ", REBUILDING its catalog" : "");
	if (json_is_true(json_object_get(root, "draining")))
		puts("draining: new pages are refused; hicachectl drain --end");
	hc_status_memory(json_object_get(root, "memory"));
	hc_status_disk(json_object_get(root, "disk"));
	printf("index    %llu pages in %s\n", (unsigned long long)hc_get(index, "pages"), bytes);
	hc_status_counters(json_object_get(root, "counters"));
	if (hc_status_spaces(json_object_get(root, "spaces")))
		hc_tool_error("out of memory");
}

/* --- without a daemon --- */

static json_t *hc_pool_json(const struct hc_pool_found *pool)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:b}", "dir", pool->dir, "cachedir", pool->cachedir,
			 "uuid", pool->uuid, "size_bytes", (json_int_t)pool->size_bytes, "live",
			 (int)pool->live);
}

static int hc_status_pools(bool as_json)
{
	json_t *array = json_array(), *root;
	struct hc_pool_found *found;
	size_t n;

	if (hc_pools_list(NULL, &found, &n)) {
		json_decref(array);
		return HC_TOOL_FAILED;
	}
	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, hc_pool_json(&found[i]));
	if (as_json) {
		root = json_pack("{s:n, s:O}", "mount", "pools", array);
		hc_json_print(root);
		json_decref(root);
	} else if (!n) {
		puts("no hicachefs is mounted, and no pool is left in memory");
	} else {
		printf("no hicachefs is mounted; %zu pool%s left in memory (hicachectl pool free "
		       "releases %s):\n",
		       n, n == 1 ? " is" : "s are", n == 1 ? "it" : "one");
		for (size_t i = 0; i < n; i++)
			hc_pool_describe(&found[i], stdout);
	}
	json_decref(array);
	free(found);
	return HC_TOOL_NO_MOUNT;
}

static int hc_status_print(const char *mount, const char *text, bool as_json)
{
	json_error_t error;
	json_t *root = json_loads(text, 0, &error);

	if (!root) {
		hc_tool_error("the daemon's answer is not JSON: %s", error.text);
		return HC_TOOL_FAILED;
	}
	if (as_json)
		hc_json_print(root);
	else
		hc_status_table(mount, root);
	json_decref(root);
	return 0;
}

int hc_tool_status(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	hc_autofree char *mount = NULL, *text = NULL;
	bool as_json = false;
	char **mounts;
	size_t n;
	int c, status;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c != 'j')
			return hc_tool_bad_option(c, argv);
		as_json = true;
	}
	if (optind < argc)
		return hc_tool_usage("status: %s: takes no argument", argv[optind]);
	if (hc_mounts_list(&mounts, &n))
		return HC_TOOL_FAILED;
	hc_mounts_free(mounts, n);
	if (!n && !tool->mount_arg)
		return hc_status_pools(as_json);
	status = hc_mount_find(tool, &mount);
	if (!status)
		status = hc_status_read(mount, &text);
	return status ? status : hc_status_print(mount, text, as_json);
}
