/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as users write them, and commands made of them. See ops.h. */
#include <limits.h>

#include "tool/ops.h"

/* Of one command; the daemon takes lines up to 64 KiB. */
#define HC_COMMAND_BYTES 60000u

static bool hc_below(const char *path, const char *mount)
{
	size_t n = strlen(mount);

	return !strncmp(path, mount, n) && (!path[n] || path[n] == '/');
}

/* The absolute path; what is not there has its directory resolved. */
static int hc_path_absolute(const char *path, char absolute[PATH_MAX])
{
	char copy[PATH_MAX], dir[PATH_MAX], *slash;
	size_t n;

	if (realpath(path, absolute))
		return 0;
	if (errno != ENOENT) {
		hc_tool_error("%s: %m", path);
		return HC_TOOL_FAILED;
	}
	if ((size_t)snprintf(copy, sizeof(copy), "%s%s", *path == '/' ? "" : "./", path) >=
	    sizeof(copy)) {
		hc_tool_error("%s: the path is too long", path);
		return HC_TOOL_FAILED;
	}
	n = strlen(copy);
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = 0;
	slash = strrchr(copy, '/');
	*slash = 0;
	if (!realpath(slash == copy ? "/" : copy, dir) ||
	    (size_t)snprintf(absolute, PATH_MAX, "%s/%s", strcmp(dir, "/") ? dir : "", slash + 1) >=
		    PATH_MAX) {
		hc_tool_error("%s: there is no such file or directory", path);
		return HC_TOOL_FAILED;
	}
	return 0;
}

/* A relative path is of the current directory where it leads into the mount from there, or can do
 * nothing else; else it is of the mount: "evict qwen3" works anywhere. */
static bool hc_is_of_cwd(const char *path, const char *mount)
{
	char cwd[PATH_MAX], real[PATH_MAX];

	if (!strcmp(path, ".") || !strcmp(path, "..") || !strncmp(path, "./", 2) ||
	    !strncmp(path, "../", 3))
		return true;
	if (getcwd(cwd, sizeof(cwd)) && hc_below(cwd, mount))
		return true;
	return realpath(path, real) && hc_below(real, mount);
}

int hc_path_inside(const char *mount, const char *path, char inside[PATH_MAX])
{
	char absolute[PATH_MAX];
	int status;

	if (*path != '/' && !hc_is_of_cwd(path, mount)) {
		snprintf(inside, PATH_MAX, "%s", path);
		return 0;
	}
	status = hc_path_absolute(path, absolute);
	if (status)
		return status;
	if (!hc_below(absolute, mount)) {
		hc_tool_error("%s: this is not inside %s", path, mount);
		return HC_TOOL_FAILED;
	}
	snprintf(inside, PATH_MAX, "%s",
		 absolute + strlen(mount) + (absolute[strlen(mount)] == '/'));
	return 0;
}

int hc_words_begin(struct hc_words *words, const char *mount, const char *verb, const char *what,
		   struct hc_op *op)
{
	*words = (struct hc_words){.mount = mount, .verb = verb, .what = what, .op = op};
	words->command = malloc(HC_COMMAND_BYTES + 3 * PATH_MAX + 2);
	if (!words->command) {
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	words->used = (size_t)snprintf(words->command, HC_COMMAND_BYTES, "%s", verb);
	return 0;
}

int hc_words_add(struct hc_words *words, const char *path)
{
	char inside[PATH_MAX];
	int status = hc_path_inside(words->mount, path, inside);

	if (status)
		return status;
	if (words->used >= HC_COMMAND_BYTES) {
		status = hc_op_run(words->mount, words->command, words->what, words->op);
		words->used = strlen(words->verb);
	}
	words->command[words->used++] = ' ';
	hc_control_escape(inside[0] ? inside : "/", words->command + words->used);
	words->used += strlen(words->command + words->used);
	return status;
}

int hc_words_end(struct hc_words *words, int status)
{
	if (!status && words->used > strlen(words->verb))
		status = hc_op_run(words->mount, words->command, words->what, words->op);
	free(words->command);
	words->command = NULL;
	return status;
}
