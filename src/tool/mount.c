/* SPDX-License-Identifier: Apache-2.0 */
/* Which mount is meant. The kernel's table is asked, never the file system: a dead mount may hang.
 */
#include "tool/tool.h"

#include <fcntl.h>
#include <limits.h>

#include "tool/watch.h"
#include "util/io.h"

#define HC_MOUNTINFO_BYTES_MAX (16 * HC_MIB)

void hc_unescape_octal(char *text)
{
	char *to = text;

	while (*text) {
		if (text[0] == '\\' && strspn(text + 1, "01234567") >= 3) {
			*to++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 +
				       (text[3] - '0'));
			text += 4;
		} else {
			*to++ = *text++;
		}
	}
	*to = 0;
}

void hc_mounts_free(char **mounts, size_t n)
{
	while (n)
		free(mounts[--n]);
	free(mounts);
}

/* The mount point of a line when it is a whole hicachefs, else NULL. Fields: id parent device root
 * mountpoint options tags... - fstype source options. The line is cut up. */
static char *hc_mount_of_line(char *line)
{
	char *fields[5], *rest, *dash = strstr(line, " - ");

	if (!dash)
		return NULL;
	*dash = 0;
	if (strncmp(dash + 3, "fuse.hicachefs ", 15))
		return NULL;
	rest = line;
	for (size_t i = 0; i < HC_ARRAY_SIZE(fields); i++) {
		fields[i] = strsep(&rest, " ");
		if (!fields[i])
			return NULL;
	}
	/* A bind mount of one space has no control files. */
	if (strcmp(fields[3], "/"))
		return NULL;
	hc_unescape_octal(fields[4]);
	return fields[4];
}

int hc_mounts_parse(const char *text, char ***mounts_p, size_t *n_p)
{
	hc_autofree char *copy = strdup(text);
	char **mounts = calloc(HC_MOUNTS_MAX, sizeof(*mounts));
	char *rest = copy, *line;
	size_t n = 0;

	if (!copy || !mounts) {
		free(mounts);
		return -ENOMEM;
	}
	while ((line = strsep(&rest, "\n")) && n < HC_MOUNTS_MAX) {
		char *mount = hc_mount_of_line(line);
		bool seen = false;

		for (size_t i = 0; mount && i < n; i++)
			seen |= !strcmp(mounts[i], mount);
		if (!mount || seen)
			continue;
		mounts[n] = strdup(mount);
		if (!mounts[n]) {
			hc_mounts_free(mounts, n);
			return -ENOMEM;
		}
		n++;
	}
	*mounts_p = mounts;
	*n_p = n;
	return 0;
}

int hc_mounts_list(char ***mounts_p, size_t *n_p)
{
	hc_autofree char *text = NULL;
	size_t n;
	int rc = hc_file_read(AT_FDCWD, "/proc/self/mountinfo", HC_MOUNTINFO_BYTES_MAX, &text, &n);

	if (!rc)
		rc = hc_mounts_parse(text, mounts_p, n_p);
	if (rc)
		hc_tool_error("/proc/self/mountinfo: %s", strerror(-rc));
	return rc;
}

static void hc_mounts_print(char *const *mounts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fprintf(stderr, "  %s\n", mounts[i]);
}

static const char *hc_mount_match(const char *arg, char *const *mounts, size_t n)
{
	char path[PATH_MAX];
	size_t end;

	snprintf(path, sizeof(path), "%s", arg);
	end = strlen(path);
	while (end > 1 && path[end - 1] == '/')
		path[--end] = 0;
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(mounts[i], path))
			return mounts[i];
	}
	if (!realpath(arg, path))
		return NULL;
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(mounts[i], path))
			return mounts[i];
	}
	return NULL;
}

static int hc_mount_choose(const struct hc_tool *tool, char *const *mounts, size_t n,
			   const char **mount_p)
{
	if (tool->mount_arg) {
		*mount_p = hc_mount_match(tool->mount_arg, mounts, n);
		if (*mount_p)
			return 0;
		hc_tool_error(
			"%s: no hicachefs is mounted there; %s", tool->mount_arg,
			n ? "these are mounted:"
			  : "none is mounted anywhere (hicachefs CACHEDIR MOUNTPOINT mounts one)");
		hc_mounts_print(mounts, n);
		return HC_TOOL_NO_MOUNT;
	}
	if (n == 1) {
		*mount_p = mounts[0];
		return 0;
	}
	if (!n) {
		hc_tool_error("no hicachefs is mounted; hicachefs CACHEDIR MOUNTPOINT mounts one");
		return HC_TOOL_NO_MOUNT;
	}
	hc_tool_error("there are several mounts; choose one with -m MOUNTPOINT or HICACHE_MOUNT:");
	hc_mounts_print(mounts, n);
	return HC_TOOL_NO_MOUNT;
}

int hc_mount_find(const struct hc_tool *tool, char **mount_p)
{
	const char *mount;
	char **mounts;
	size_t n;
	int status;

	if (hc_mounts_list(&mounts, &n))
		return HC_TOOL_FAILED;
	status = hc_mount_choose(tool, mounts, n, &mount);
	if (!status) {
		*mount_p = strdup(mount);
		if (!*mount_p) {
			hc_tool_error("out of memory");
			status = HC_TOOL_FAILED;
		}
	}
	hc_mounts_free(mounts, n);
	if (!status)
		hc_watch_mount(*mount_p);
	return status;
}
