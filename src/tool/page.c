/* SPDX-License-Identifier: Apache-2.0 */
/* See page.h. */
#include "tool/page.h"

#include <limits.h>
#include <sys/xattr.h>

#include "model/pagename.h"
#include "tool/ops.h"
#include "util/clock.h"
#include "util/size.h"

#define HC_ATTR_PREFIX "user.hicache."

bool hc_page_attr(const char *path, const char *name, char text[HC_PAGE_TEXT])
{
	char full[64];
	ssize_t n;

	snprintf(full, sizeof(full), HC_ATTR_PREFIX "%s", name);
	n = lgetxattr(path, full, text, HC_PAGE_TEXT - 1);
	text[n > 0 ? n : 0] = 0;
	return n >= 0;
}

static uint64_t hc_attr_u64(const char *path, const char *name)
{
	char text[HC_PAGE_TEXT];

	return hc_page_attr(path, name, text) ? hc_control_u64(text) : 0;
}

/* SERIES-HASH */
static bool hc_page_key(const char *path, struct hc_page_view *view)
{
	char text[HC_PAGE_TEXT], *dash;

	if (!hc_page_attr(path, "key", text))
		return false;
	dash = strchr(text, '-');
	if (!dash)
		return false;
	*dash = 0;
	memcpy(view->series, text, sizeof(text));
	snprintf(view->hash, sizeof(view->hash), "%s", dash + 1);
	return true;
}

int hc_page_look(const char *path, struct hc_page_view *view_p)
{
	struct hc_page_view view = {0};

	if (lstat(path, &view.st))
		return -errno;
	if (S_ISREG(view.st.st_mode) && hc_page_key(path, &view)) {
		view.is_page = true;
		hc_page_attr(path, "tier", view.tier);
		view.hits = hc_attr_u64(path, "hits");
		view.depth = hc_attr_u64(path, "depth");
		view.pinned = hc_attr_u64(path, "pinned") != 0;
	}
	*view_p = view;
	return 0;
}

uint64_t hc_page_age_s(const struct hc_page_view *view)
{
	uint64_t now_s = hc_clock_wall_ns() / HC_NS_PER_S;
	uint64_t then_s = view->st.st_mtime > 0 ? (uint64_t)view->st.st_mtime : 0;

	return now_s > then_s ? now_s - then_s : 0;
}

json_t *hc_json_text(const char *text)
{
	json_t *string = json_string(text);
	hc_autofree char *copy = NULL;

	if (string)
		return string;
	copy = strdup(text);
	for (char *p = copy; p && *p; p++)
		*p = (*p & 0x80) ? '?' : *p;
	return json_string(copy ? copy : "?");
}

void hc_json_print(const json_t *root)
{
	json_dumpf(root, stdout, JSON_INDENT(2));
	putchar('\n');
}

/* --- keys --- */

struct hc_key_search {
	uint64_t series;
	struct hc_hash hash;
	const char *mount;
	char *path;
};

static void hc_key_series(void *arg, const char *space, uint64_t id, const char *pattern,
			  const char *kvspec)
{
	struct hc_key_search *search = arg;
	bool is_root = !strcmp(space, "@root");
	char inside[HC_PATH_BYTES];

	(void)kvspec;
	if (id != search->series || search->path ||
	    hc_pagename_format(pattern, &search->hash, inside))
		return;
	if (asprintf(&search->path, "%s/%s%s%s", search->mount, is_root ? "" : space,
		     is_root ? "" : "/", inside) < 0)
		search->path = NULL;
}

int hc_page_of_key(const char *mount, const char *key, char **path_p)
{
	size_t n = strspn(key, "0123456789");
	struct hc_key_search search = {.mount = mount};
	char number[16];

	if (!n || n >= sizeof(number) || key[n] != '-' || strlen(key + n + 1) != HC_HASH_TEXT - 1 ||
	    hc_hash_parse(key + n + 1, &search.hash))
		return -EINVAL;
	memcpy(number, key, n);
	number[n] = 0;
	search.series = hc_control_u64(number);
	if (hc_series_walk(mount, NULL, hc_key_series, &search) || !search.path)
		return -ENOENT;
	*path_p = search.path;
	return 0;
}

int hc_page_path(const char *mount, const char *arg, char **path_p)
{
	char inside[PATH_MAX];
	int rc = hc_page_of_key(mount, arg, path_p), status;

	if (!rc)
		return 0;
	if (rc == -ENOENT) {
		hc_tool_error("%s: there is no such series, or its pages' names are not made of "
			      "their hash",
			      arg);
		return HC_TOOL_FAILED;
	}
	status = hc_path_inside(mount, arg, inside);
	if (status)
		return status;
	while (inside[0] && inside[strlen(inside) - 1] == '/')
		inside[strlen(inside) - 1] = 0;
	if (asprintf(path_p, "%s%s%s", mount, inside[0] && inside[0] != '/' ? "/" : "", inside) <
	    0) {
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	return 0;
}
