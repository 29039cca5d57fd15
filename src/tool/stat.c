/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl stat: everything about one name or key. */
#include <getopt.h>
#include <limits.h>
#include <sys/xattr.h>
#include <time.h>

#include "tool/ops.h"
#include "tool/page.h"
#include "util/size.h"

#define HC_XATTR_NAMES_MAX 65536

/* As text, or as hex where it is none. */
static json_t *hc_attr_json(const char *path, const char *name)
{
	hc_autofree char *value = malloc(HC_XATTR_NAMES_MAX + 1);
	ssize_t n = value ? lgetxattr(path, name, value, HC_XATTR_NAMES_MAX) : -1;
	json_t *text;

	if (n < 0)
		return json_null();
	value[n] = 0;
	text = strlen(value) == (size_t)n ? json_string(value) : NULL;
	if (!text) {
		hc_autofree char *hex = malloc(2 * (size_t)n + 3);

		if (!hex)
			return json_null();
		snprintf(hex, 3, "0x");
		for (ssize_t i = 0; i < n; i++)
			snprintf(hex + 2 + 2 * i, 3, "%02x", (uint8_t)value[i]);
		text = json_string(hex);
	}
	return text;
}

/* The cache's own without their prefix, and the user's. */
static void hc_stat_attrs(const char *path, json_t *root)
{
	static const char own[] = "user.hicache.";
	static const char *const unlisted[] = {"kvspec", "pinned", "priority", "session", "pages",
					       "bytes",  "used",   "quota",    "max_age"};
	hc_autofree char *names = malloc(HC_XATTR_NAMES_MAX);
	ssize_t n = names ? llistxattr(path, names, HC_XATTR_NAMES_MAX) : -1;
	json_t *cache = json_object(), *user = json_object();

	for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1) {
		const char *name = names + i;

		if (!strncmp(name, own, strlen(own)))
			json_object_set_new(cache, name + strlen(own), hc_attr_json(path, name));
		else
			json_object_set_new(user, name, hc_attr_json(path, name));
	}
	/* What is told to those who ask for it by name. */
	for (size_t i = 0; i < HC_ARRAY_SIZE(unlisted); i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s%s", own, unlisted[i]);
		if (lgetxattr(path, name, NULL, 0) >= 0)
			json_object_set_new(cache, unlisted[i], hc_attr_json(path, name));
	}
	json_object_set_new(root, "hicache", cache);
	json_object_set_new(root, "xattrs", user);
}

static json_t *hc_stat_json(const char *path, const struct hc_page_view *view)
{
	json_t *root = json_object();
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", (unsigned)view->st.st_mode & 07777);
	json_object_set_new(root, "path", hc_json_text(path));
	json_object_set_new(root, "kind",
			    json_string(S_ISDIR(view->st.st_mode) ? "dir"
					: view->is_page           ? "page"
								  : "file"));
	json_object_set_new(root, "size_bytes", json_integer(view->st.st_size));
	json_object_set_new(root, "uid", json_integer(view->st.st_uid));
	json_object_set_new(root, "gid", json_integer(view->st.st_gid));
	json_object_set_new(root, "mode", json_string(mode));
	json_object_set_new(root, "mtime", json_integer(view->st.st_mtime));
	json_object_set_new(root, "age_s", json_integer((json_int_t)hc_page_age_s(view)));
	hc_stat_attrs(path, root);
	return root;
}

static void hc_stat_line(const char *name, const char *value)
{
	char text[512];

	snprintf(text, sizeof(text), "%s", value);
	for (char *p = text; *p; p++)
		*p = (uint8_t)*p < ' ' || *p == 0x7f ? '?' : *p;
	printf("  %-14s %s\n", name, text);
}

static void hc_stat_text(const char *path, const struct hc_page_view *view, const json_t *root)
{
	const json_t *value;
	const char *name;
	char text[64], size[16];
	struct tm tm;
	time_t mtime = view->st.st_mtime;

	hc_stat_line("path", path);
	hc_size_format((uint64_t)view->st.st_size, size);
	hc_stat_line("kind", json_string_value(json_object_get(root, "kind")));
	snprintf(text, sizeof(text), "%lld (%s)", (long long)view->st.st_size, size);
	hc_stat_line("size", text);
	snprintf(text, sizeof(text), "%u:%u %s", view->st.st_uid, view->st.st_gid,
		 json_string_value(json_object_get(root, "mode")));
	hc_stat_line("owner", text);
	if (localtime_r(&mtime, &tm) && strftime(text, sizeof(text), "%F %T %z", &tm))
		hc_stat_line("modified", text);
	json_object_foreach(json_object_get(root, "hicache"), name, value)
	{
		hc_stat_line(name, json_is_string(value) ? json_string_value(value) : "-");
	}
	json_object_foreach(json_object_get(root, "xattrs"), name, value)
	{
		hc_stat_line(name, json_is_string(value) ? json_string_value(value) : "-");
	}
}

static int hc_stat_one(const char *mount, const char *arg, json_t *array)
{
	hc_autofree char *path = NULL;
	struct hc_page_view view;
	int status = hc_page_path(mount, arg, &path), rc;
	json_t *root;

	if (status)
		return status;
	rc = hc_page_look(path, &view);
	if (rc) {
		hc_tool_error("%s: %s", arg, strerror(-rc));
		return HC_TOOL_FAILED;
	}
	root = hc_stat_json(path, &view);
	if (array) {
		json_array_append_new(array, root);
		return 0;
	}
	hc_stat_text(path, &view, root);
	json_decref(root);
	return 0;
}

int hc_tool_stat(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	hc_autofree char *mount = NULL;
	json_t *array = NULL;
	int c, status, worst = 0;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c != 'j')
			return hc_tool_bad_option(c, argv);
		if (!array)
			array = json_array();
	}
	if (optind == argc) {
		json_decref(array);
		return hc_tool_usage("stat: a path or a key is wanted");
	}
	status = hc_mount_find(tool, &mount);
	for (int i = optind; !status && i < argc; i++) {
		int one = hc_stat_one(mount, argv[i], array);

		worst = one > worst ? one : worst;
	}
	if (!status && array)
		hc_json_print(array);
	json_decref(array);
	return status ? status : worst;
}
