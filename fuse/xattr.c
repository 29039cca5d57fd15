/* SPDX-License-Identifier: Apache-2.0 */
/* See xattr.h. */
#include "fuse/xattr.h"

#include <inttypes.h>

#include "util/clock.h"

struct what {
	struct hc_fs *fs;
	const struct hc_page_info *page;
	char *out; /* HC_XATTR_VALUE_BYTES */
};

static int put_number(const struct what *what, uint64_t value)
{
	snprintf(what->out, HC_XATTR_VALUE_BYTES, "%" PRIu64, value);
	return 0;
}

static int put_text(const struct what *what, const char *text)
{
	snprintf(what->out, HC_XATTR_VALUE_BYTES, "%s", text);
	return 0;
}

static const char *session_name(uint8_t session)
{
	return session == HC_SESSION_ALIVE   ? "alive"
	       : session == HC_SESSION_ENDED ? "ended"
					     : "none";
}

/* --- pages --- */

static int page_hash(const struct what *what)
{
	hc_hash_format(&what->page->key.hash, what->out);
	return 0;
}

static int page_key(const struct what *what)
{
	char hash[HC_HASH_TEXT];

	hc_hash_format(&what->page->key.hash, hash);
	snprintf(what->out, HC_XATTR_VALUE_BYTES, "%u-%s", what->page->key.series, hash);
	return 0;
}

static int page_parent(const struct what *what)
{
	if (hc_hash_is_zero(&what->page->parent))
		return -ENODATA;
	hc_hash_format(&what->page->parent, what->out);
	return 0;
}

static int page_depth(const struct what *what)
{
	return put_number(what, what->page->depth);
}

static int page_size(const struct what *what)
{
	return put_number(what, what->page->size_bytes);
}

static int page_checksum(const struct what *what)
{
	if (!(what->page->flags & HC_ENTRY_SUMMED))
		return -ENODATA;
	snprintf(what->out, HC_XATTR_VALUE_BYTES, "%016" PRIx64, what->page->checksum);
	return 0;
}

static int page_tier(const struct what *what)
{
	return put_text(what, what->page->in_memory ? what->page->on_disk ? "memory+disk" : "memory"
			      : what->page->on_disk ? "disk"
						    : "none");
}

static int page_hits(const struct what *what)
{
	return put_number(what, what->page->hits);
}

static int page_stamp(const struct what *what)
{
	return put_number(what, what->page->stamp);
}

static int page_age(const struct what *what)
{
	uint64_t now_ns = hc_clock_wall_ns();

	return put_number(what, now_ns > what->page->mtime_ns
					? (now_ns - what->page->mtime_ns) / HC_NS_PER_S
					: 0);
}

static int page_pinned(const struct what *what)
{
	return put_number(what, what->page->pins != 0);
}

static int page_priority(const struct what *what)
{
	return put_number(what, what->page->priority);
}

static int page_session(const struct what *what)
{
	return put_text(what, session_name(what->page->session));
}

/* One of its series: 0 pattern, 1 layout, 2 specification. */
static int page_series_text(const struct what *what, int which)
{
	struct hc_series_info *info = malloc(sizeof(*info));
	const char *layout = NULL;
	int err = info ? hc_series_get(what->fs->registry, what->page->key.series, info) : -ENOMEM;

	if (!err && which == 1)
		layout = strstr(info->kvspec, "layout=");
	if (!err && which == 0)
		put_text(what, info->pattern);
	else if (!err && which == 2 && info->declared)
		put_text(what, info->kvspec);
	else if (!err && which == 1)
		snprintf(what->out, HC_XATTR_VALUE_BYTES, "%.*s",
			 layout ? (int)strcspn(layout + 7, " ") : HC_XATTR_VALUE_BYTES,
			 layout ? layout + 7 : "undeclared");
	else if (!err)
		err = -ENODATA;
	free(info);
	return err == -ENOENT ? -ENODATA : err;
}

static int page_series(const struct what *what)
{
	return page_series_text(what, 0);
}

static int page_layout(const struct what *what)
{
	return page_series_text(what, 1);
}

static int page_kvspec(const struct what *what)
{
	return page_series_text(what, 2);
}

static const struct {
	const char *name;
	int (*compute)(const struct what *what);
	bool listed;
} pages[] = {
	{"hash", page_hash, true},          {"key", page_key, true},
	{"parent", page_parent, true},      {"depth", page_depth, true},
	{"size", page_size, true},          {"checksum", page_checksum, true},
	{"series", page_series, true},      {"layout", page_layout, true},
	{"tier", page_tier, true},          {"hits", page_hits, true},
	{"stamp", page_stamp, true},        {"age", page_age, true},
	{"kvspec", page_kvspec, false},     {"pinned", page_pinned, false},
	{"priority", page_priority, false}, {"session", page_session, false},
};

const char *hc_xattr_listed(size_t i)
{
	return i < HC_ARRAY_SIZE(pages) && pages[i].listed ? pages[i].name : NULL;
}

static int compute_page(struct hc_fs *fs, const struct hc_fview *view, const char *name,
			char value[HC_XATTR_VALUE_BYTES])
{
	struct hc_page_info page;
	struct what what = {fs, &page, value};

	for (size_t i = 0; i < HC_ARRAY_SIZE(pages); i++) {
		if (strcmp(pages[i].name, name))
			continue;
		return hc_view_stat(fs, view, &page) ? -ENODATA : pages[i].compute(&what);
	}
	return -ENODATA;
}

/* --- directories --- */

/* What lies below: a walk. */
static int dir_below(struct hc_fs *fs, uint32_t dir, bool bytes, const struct what *what)
{
	struct hc_page_info *list;
	uint64_t sum = 0;
	size_t n;

	if (hc_node_pages_below(fs->node, dir, &list, &n))
		return -ENODATA;
	for (size_t i = 0; i < n; i++)
		sum += bytes ? list[i].size_bytes : 1;
	free(list);
	return put_number(what, sum);
}

static int compute_dir(struct hc_fs *fs, uint32_t dir, const char *name,
		       char value[HC_XATTR_VALUE_BYTES])
{
	const struct what what = {.fs = fs, .out = value};
	struct hc_space_info space;
	struct hc_dir_info info;

	if (!strcmp(name, "pages") || !strcmp(name, "bytes"))
		return dir_below(fs, dir, name[0] == 'b', &what);
	if (hc_dir_get(fs->registry, dir, &info) ||
	    hc_space_get(fs->registry, info.space, &space) || space.dir != dir)
		return -ENODATA;
	if (!strcmp(name, "quota"))
		return put_number(&what, space.quota_bytes);
	if (!strcmp(name, "max_age"))
		return put_number(&what, space.max_age_s);
	if (!strcmp(name, "used"))
		return put_number(&what, hc_space_used(fs->registry, space.id));
	return -ENODATA;
}

int hc_xattr_compute(struct hc_fs *fs, const struct hc_fview *view, const char *name,
		     char value[HC_XATTR_VALUE_BYTES])
{
	if (view->kind == HC_F_PAGE)
		return compute_page(fs, view, name, value);
	return view->kind == HC_F_DIR ? compute_dir(fs, view->dir, name, value) : -ENODATA;
}
