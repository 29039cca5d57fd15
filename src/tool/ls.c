/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl ls: names below the mount with what the cache knows of them. Directories are read one
 * after the other; rows are kept until the end, to be sorted. */
#include <dirent.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>

#include "tool/ops.h"
#include "tool/page.h"
#include "tool/columns.h"
#include "util/size.h"

enum hc_ls_sort { HC_LS_NAME, HC_LS_SIZE, HC_LS_AGE, HC_LS_HITS, HC_LS_DEPTH };
static const char *const hc_ls_sorts[] = {"name", "size", "age", "hits", "depth"};

struct hc_ls_row {
	char *name;
	struct hc_page_view view;
};

struct hc_ls {
	bool details, recursive, reverse, as_json;
	const char *mount, *tier, *series;
	enum hc_ls_sort sort;
	struct hc_ls_row *rows;
	size_t n, room;
	bool failed; /* a name could not be read; it was told */
};

/* --- collect --- */

static bool hc_ls_is_wanted(const struct hc_ls *ls, const struct hc_page_view *view)
{
	if (!ls->tier && !ls->series)
		return true;
	if (!view->is_page)
		return false;
	if (ls->tier && !strstr(view->tier, ls->tier))
		return false;
	return !ls->series || !strcmp(view->series, ls->series);
}

static int hc_ls_add(struct hc_ls *ls, const char *name, const struct hc_page_view *view)
{
	size_t room = ls->room ? 2 * ls->room : 256;
	struct hc_ls_row *rows = ls->rows;

	if (ls->n == ls->room) {
		rows = realloc(ls->rows, room * sizeof(*rows));
		if (!rows)
			return -ENOMEM;
		ls->rows = rows;
		ls->room = room;
	}
	rows[ls->n].name = strdup(name);
	rows[ls->n].view = *view;
	return rows[ls->n].name ? (ls->n++, 0) : -ENOMEM;
}

/* Names cost no more than readdir where nothing but them is shown. */
static int hc_ls_entry(struct hc_ls *ls, const char *path, const char *name, bool is_dir)
{
	bool look = ls->details || ls->as_json || ls->tier || ls->series || ls->sort != HC_LS_NAME;
	struct hc_page_view view = {.st.st_mode = is_dir ? S_IFDIR : S_IFREG};
	int rc = look ? hc_page_look(path, &view) : 0;

	/* What was evicted meanwhile is not listed. */
	if (rc == -ENOENT || rc == -ESTALE)
		return 0;
	if (rc) {
		hc_tool_error("%s: %s", path, strerror(-rc));
		ls->failed = true;
		return 0;
	}
	if (!hc_ls_is_wanted(ls, &view))
		return 0;
	return hc_ls_add(ls, name, &view);
}

/* shown: what names of this directory begin with, "" or ending in '/'. Depth is that of the tree:
 * names have 255 bytes, paths 4,096. */
static int hc_ls_dir(struct hc_ls *ls, const char *path, const char *shown)
{
	/* Control files are no part of what is cached, unless they are asked for. */
	bool is_mount = !strcmp(path, ls->mount);
	DIR *dir = opendir(path);
	struct dirent *entry;
	int rc = 0;

	if (!dir) {
		hc_tool_error("%s: %m", path);
		ls->failed = true;
		return 0;
	}
	while (!rc && (entry = readdir(dir))) {
		char child[PATH_MAX], name[PATH_MAX];
		bool is_dir = entry->d_type == DT_DIR;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    (is_mount && !strcmp(entry->d_name, ".hicache")))
			continue;
		if ((size_t)snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) >=
			    sizeof(child) ||
		    (size_t)snprintf(name, sizeof(name), "%s%s%s", shown, entry->d_name,
				     is_dir ? "/" : "") >= sizeof(name))
			continue;
		rc = hc_ls_entry(ls, child, name, is_dir);
		if (!rc && is_dir && ls->recursive)
			rc = hc_ls_dir(ls, child, name);
	}
	closedir(dir);
	return rc;
}

static int hc_ls_path(struct hc_ls *ls, const char *mount, const char *arg, bool several)
{
	hc_autofree char *path = NULL, *shown = NULL;
	int status = hc_page_path(mount, arg, &path);
	struct stat st;

	if (status)
		return status;
	if (lstat(path, &st)) {
		hc_tool_error("%s: %m", arg);
		ls->failed = true;
		return 0;
	}
	if (!S_ISDIR(st.st_mode)) {
		status = hc_ls_entry(ls, path, arg, false);
	} else {
		size_t n = strlen(arg);

		if (several && asprintf(&shown, "%s%s", arg, n && arg[n - 1] == '/' ? "" : "/") < 0)
			shown = NULL;
		status = hc_ls_dir(ls, path, several && shown ? shown : "");
	}
	if (!status)
		return 0;
	hc_tool_error("out of memory");
	return HC_TOOL_FAILED;
}

/* --- show --- */

static uint64_t hc_ls_key(const struct hc_ls_row *row, enum hc_ls_sort sort)
{
	switch (sort) {
	case HC_LS_SIZE:
		return (uint64_t)row->view.st.st_size;
	case HC_LS_AGE:
		return hc_page_age_s(&row->view);
	case HC_LS_HITS:
		return row->view.hits;
	case HC_LS_DEPTH:
		return row->view.depth;
	default:
		return 0;
	}
}

static int hc_ls_compare(const void *a, const void *b, void *arg)
{
	const struct hc_ls *ls = arg;
	uint64_t x = hc_ls_key(a, ls->sort), y = hc_ls_key(b, ls->sort);
	/* The largest, oldest, ... first; names from a to z. */
	int order = x > y ? -1 : x < y;

	if (!order)
		order = strcmp(((const struct hc_ls_row *)a)->name,
			       ((const struct hc_ls_row *)b)->name);
	return ls->reverse ? -order : order;
}

static const char *hc_ls_kind(const struct hc_page_view *view)
{
	return S_ISDIR(view->st.st_mode) ? "dir" : view->is_page ? "page" : "file";
}

static int hc_ls_table(const struct hc_ls *ls)
{
	static const char *const headers[] = {"kind", ">size",  "tier",    ">hits", ">depth",
					      ">age", "pinned", ">series", "name",  NULL};
	struct hc_columns *table = hc_columns_create(headers);

	for (size_t i = 0; i < ls->n; i++) {
		const struct hc_page_view *view = &ls->rows[i].view;
		char size[16] = "-", hits[24] = "-", depth[24] = "-", age[32];

		if (!S_ISDIR(view->st.st_mode))
			hc_size_format((uint64_t)view->st.st_size, size);
		if (view->is_page) {
			snprintf(hits, sizeof(hits), "%" PRIu64, view->hits);
			snprintf(depth, sizeof(depth), "%" PRIu64, view->depth);
		}
		hc_duration_format(hc_page_age_s(view), age);
		hc_columns_row(table, (const char *const[]){hc_ls_kind(view), size,
							    view->tier[0] ? view->tier : "-", hits,
							    depth, age, view->pinned ? "yes" : "-",
							    view->series[0] ? view->series : "-",
							    ls->rows[i].name});
	}
	return hc_columns_end(table, true, stdout);
}

static void hc_ls_json(const struct hc_ls *ls)
{
	json_t *array = json_array();

	for (size_t i = 0; i < ls->n; i++) {
		const struct hc_page_view *view = &ls->rows[i].view;
		json_t *one = json_object();

		json_object_set_new(one, "name", hc_json_text(ls->rows[i].name));
		json_object_set_new(one, "kind", json_string(hc_ls_kind(view)));
		json_object_set_new(one, "size_bytes", json_integer(view->st.st_size));
		json_object_set_new(one, "age_s", json_integer((json_int_t)hc_page_age_s(view)));
		if (view->is_page) {
			json_object_set_new(one, "hash", hc_json_text(view->hash));
			json_object_set_new(one, "series", hc_json_text(view->series));
			json_object_set_new(one, "tier", hc_json_text(view->tier));
			json_object_set_new(one, "hits", json_integer((json_int_t)view->hits));
			json_object_set_new(one, "depth", json_integer((json_int_t)view->depth));
			json_object_set_new(one, "pinned", json_boolean(view->pinned));
		}
		json_array_append_new(array, one);
	}
	hc_json_print(array);
	json_decref(array);
}

static void hc_ls_names(const struct hc_ls *ls)
{
	static const char *const headers[] = {"", NULL};
	struct hc_columns *table = hc_columns_create(headers);

	for (size_t i = 0; i < ls->n; i++)
		hc_columns_row(table, (const char *const[]){ls->rows[i].name});
	hc_ignore(hc_columns_end(table, false, stdout));
}

static int hc_ls_show(struct hc_ls *ls)
{
	int rc = 0;

	qsort_r(ls->rows, ls->n, sizeof(*ls->rows), hc_ls_compare, ls);
	if (ls->as_json)
		hc_ls_json(ls);
	else if (ls->details)
		rc = hc_ls_table(ls);
	else
		hc_ls_names(ls);
	if (rc)
		hc_tool_error("out of memory");
	return rc || ls->failed ? HC_TOOL_FAILED : 0;
}

/* --- arguments --- */

static int hc_ls_option(struct hc_ls *ls, int c, char **argv)
{
	switch (c) {
	case 'l':
		ls->details = true;
		return 0;
	case 'R':
		ls->recursive = true;
		return 0;
	case 'r':
		ls->reverse = true;
		return 0;
	case 'j':
		ls->as_json = true;
		return 0;
	case 'S':
		ls->series = optarg;
		return 0;
	case 't':
		if (strcmp(optarg, "memory") && strcmp(optarg, "disk"))
			return hc_tool_usage("ls: --tier %s: memory or disk", optarg);
		ls->tier = optarg;
		return 0;
	case 's':
		for (size_t i = 0; i < HC_ARRAY_SIZE(hc_ls_sorts); i++) {
			if (strcmp(optarg, hc_ls_sorts[i]))
				continue;
			ls->sort = (enum hc_ls_sort)i;
			return 0;
		}
		return hc_tool_usage("ls: --sort %s: name, size, age, hits or depth", optarg);
	default:
		return hc_tool_bad_option(c, argv);
	}
}

int hc_tool_ls(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},         {"long", no_argument, NULL, 'l'},
		{"recursive", no_argument, NULL, 'R'},    {"reverse", no_argument, NULL, 'r'},
		{"series", required_argument, NULL, 'S'}, {"sort", required_argument, NULL, 's'},
		{"tier", required_argument, NULL, 't'},   {0},
	};
	hc_autofree char *mount = NULL;
	struct hc_ls ls = {0};
	int c, status = 0;

	while (!status && (c = getopt_long(argc, argv, ":lRr", options, NULL)) != -1)
		status = hc_ls_option(&ls, c, argv);
	if (!status)
		status = hc_mount_find(tool, &mount);
	ls.mount = mount;
	if (!status && optind == argc)
		status = hc_ls_path(&ls, mount, mount, false);
	for (int i = optind; !status && i < argc; i++)
		status = hc_ls_path(&ls, mount, argv[i], argc - optind > 1);
	if (!status)
		status = hc_ls_show(&ls);
	while (ls.n)
		free(ls.rows[--ls.n].name);
	free(ls.rows);
	return status;
}
