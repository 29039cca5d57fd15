/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl series: what is in .hicache/spaces/NAME/series, and declarations. */
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>

#include "tool/ops.h"
#include "tool/page.h"
#include "tool/columns.h"
#include "util/io.h"

/* A space with 65,536 series, each with a long pattern. */
#define HC_SERIES_BYTES_MAX (256 * HC_MIB)

/* Lines "ID PATTERN KVSPEC". */
static void hc_series_lines(char *text, const char *space, hc_series_each_t each, void *arg)
{
	char *line;

	while ((line = strsep(&text, "\n"))) {
		char *id = strsep(&line, " "), *pattern = strsep(&line, " ");

		if (id && *id && pattern)
			each(arg, space, hc_control_u64(id), pattern, line ? line : "undeclared");
	}
}

static int hc_series_of_space(const char *mount, const char *space, hc_series_each_t each,
			      void *arg)
{
	hc_autofree char *text = NULL;
	char path[PATH_MAX];
	size_t n;
	int rc;

	snprintf(path, sizeof(path), "%s/.hicache/spaces/%s/series", mount, space);
	rc = hc_file_read(AT_FDCWD, path, HC_SERIES_BYTES_MAX, &text, &n);
	if (rc) {
		if (rc == -ENOENT)
			hc_tool_error("%s: there is no such space", space);
		else
			hc_tool_error("%s: %s", path, strerror(-rc));
		return HC_TOOL_FAILED;
	}
	hc_series_lines(text, space, each, arg);
	return 0;
}

static int hc_not_hidden(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

int hc_series_walk(const char *mount, const char *space, hc_series_each_t each, void *arg)
{
	struct dirent **names;
	char path[PATH_MAX];
	int n, status = 0;

	if (space)
		return hc_series_of_space(mount, strcmp(space, ".") ? space : "@root", each, arg);
	snprintf(path, sizeof(path), "%s/.hicache/spaces", mount);
	n = scandir(path, &names, hc_not_hidden, alphasort);
	if (n < 0) {
		hc_tool_error("%s: %m", path);
		return HC_TOOL_FAILED;
	}
	for (int i = 0; i < n; i++) {
		if (!status)
			status = hc_series_of_space(mount, names[i]->d_name, each, arg);
		free(names[i]);
	}
	free(names);
	return status;
}

/* --- list --- */

struct hc_series_list {
	struct hc_columns *table;
	json_t *array;
};

static void hc_series_row(void *arg, const char *space, uint64_t id, const char *pattern,
			  const char *kvspec)
{
	struct hc_series_list *list = arg;
	char number[24];
	json_t *one;

	snprintf(number, sizeof(number), "%llu", (unsigned long long)id);
	if (!list->array) {
		hc_columns_row(list->table, (const char *const[]){space, number, pattern, kvspec});
		return;
	}
	one = json_object();
	json_object_set_new(one, "space", hc_json_text(space));
	json_object_set_new(one, "id", json_integer((json_int_t)id));
	json_object_set_new(one, "pattern", hc_json_text(pattern));
	json_object_set_new(one, "kvspec",
			    strcmp(kvspec, "undeclared") ? hc_json_text(kvspec) : json_null());
	json_array_append_new(list->array, one);
}

static int hc_series_show(const char *mount, const char *space, bool as_json)
{
	static const char *const headers[] = {"space", ">id", "pattern", "kvspec", NULL};
	struct hc_series_list list = {0};
	int status;

	if (as_json)
		list.array = json_array();
	else
		list.table = hc_columns_create(headers);
	status = hc_series_walk(mount, space, hc_series_row, &list);
	if (as_json && !status)
		hc_json_print(list.array);
	json_decref(list.array);
	if (!as_json && hc_columns_end(list.table, true, stdout) && !status) {
		hc_tool_error("out of memory");
		status = HC_TOOL_FAILED;
	}
	return status;
}

/* --- set --- */

static int hc_series_set(const char *mount, int argc, char **argv)
{
	hc_autofree char *command = NULL, *space = NULL, *series = NULL;
	size_t n = 0, used;

	if (argc < 3)
		return hc_tool_usage("series set: SPACE SERIES KVSPEC are wanted");
	for (int i = 2; i < argc; i++)
		n += strlen(argv[i]) + 1;
	space = malloc(3 * strlen(argv[0]) + 1);
	series = malloc(3 * strlen(argv[1]) + 1);
	n += 3 * (strlen(argv[0]) + strlen(argv[1])) + 16;
	command = malloc(n);
	if (!command || !space || !series) {
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	hc_control_escape(strcmp(argv[0], ".") ? argv[0] : "@root", space);
	hc_control_escape(argv[1], series);
	used = (size_t)snprintf(command, n, "series set %s %s", space, series);
	for (int i = 2; i < argc; i++)
		used += (size_t)snprintf(command + used, n - used, " %s", argv[i]);
	if (strchr(command, '\n'))
		return hc_tool_usage("series set: a KVSPEC is one line");
	return hc_control_run(mount, command, NULL, NULL);
}

int hc_tool_series(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	hc_autofree char *mount = NULL;
	bool as_json = false, set;
	int c, status;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c != 'j')
			return hc_tool_bad_option(c, argv);
		as_json = true;
	}
	set = optind < argc && !strcmp(argv[optind], "set");
	if (!set && argc - optind > 1)
		return hc_tool_usage("series: %s: one space, or set SPACE SERIES KVSPEC",
				     argv[optind + 1]);
	status = hc_mount_find(tool, &mount);
	if (status)
		return status;
	if (set)
		return hc_series_set(mount, argc - optind - 1, argv + optind + 1);
	return hc_series_show(mount, optind < argc ? argv[optind] : NULL, as_json);
}
