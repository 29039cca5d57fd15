/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount tells of one name: stat(2) and the attributes user.hicache.*. One thread. */
#ifndef HC_TOOL_PAGE_H
#define HC_TOOL_PAGE_H

#include <jansson.h>
#include <sys/stat.h>

#include "tool/tool.h"

#define HC_PAGE_TEXT 128

struct hc_page_view {
	struct stat st;
	bool is_page;
	char tier[HC_PAGE_TEXT];
	char hash[HC_PAGE_TEXT];
	char series[HC_PAGE_TEXT]; /* its number */
	uint64_t hits, depth;
	bool pinned;
};

/* -errno of lstat(2). */
int hc_page_look(const char *path, struct hc_page_view *view_p) HC_MUST_CHECK;
/* A small attribute as text; false when it is not there. */
bool hc_page_attr(const char *path, const char *name, char text[HC_PAGE_TEXT]);
/* Since it was published. */
uint64_t hc_page_age_s(const struct hc_page_view *view);
/* Bytes that are no UTF-8 are shown as '?'. */
json_t *hc_json_text(const char *text);
void hc_json_print(const json_t *root);
/* Path of a page that is named SERIES-HASH: heap. -EINVAL: this is no key. -ENOENT: no such series
 * here. */
int hc_page_of_key(const char *mount, const char *key, char **path_p) HC_MUST_CHECK;
/* Where a path or key is, as the tool was given it: heap; or an exit status with a message. */
int hc_page_path(const char *mount, const char *arg, char **path_p) HC_MUST_CHECK;

/* --- series.c --- */
/* Calls `each` for each series of each space, or of one (NULL: all): "@root" is the root's.
 * kvspec "undeclared" where it is not known. Returns an exit status. */
typedef void (*hc_series_each_t)(void *arg, const char *space, uint64_t id, const char *pattern,
				 const char *kvspec);
int hc_series_walk(const char *mount, const char *space, hc_series_each_t each,
		   void *arg) HC_MUST_CHECK;

#endif
