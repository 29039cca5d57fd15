/* SPDX-License-Identifier: Apache-2.0 */
/* verify, sync, gc and evict: commands that the daemon carries out. */
#include "tool/tool.h"

#include <getopt.h>
#include <limits.h>

#include "util/size.h"

/* Of one command; the daemon takes lines up to 64 KiB. */
#define HC_COMMAND_BYTES 60000u

struct hc_op {
	struct hc_progress progress;
	uint64_t n_done; /* checked, removed, evicted */
	uint64_t bytes;
	uint64_t n_bad;
	uint64_t n_left;
	uint64_t n_kept;
	uint64_t n_missing;
};

static void hc_op_line(void *arg, const char *word, char *rest)
{
	struct hc_op *op = arg;
	char *total;

	if (!strcmp(word, "progress")) {
		total = strchr(rest, ' ');
		if (total) {
			*total++ = 0;
			hc_progress_show(&op->progress, hc_control_u64(rest),
					 hc_control_u64(total));
		}
		return;
	}
	if (!strcmp(word, "checked") || !strcmp(word, "removed") || !strcmp(word, "evicted"))
		op->n_done += hc_control_u64(rest);
	else if (!strcmp(word, "bytes"))
		op->bytes += hc_control_u64(rest);
	else if (!strcmp(word, "bad"))
		op->n_bad += hc_control_u64(rest);
	else if (!strcmp(word, "left"))
		op->n_left += hc_control_u64(rest);
	else if (!strcmp(word, "kept"))
		op->n_kept += hc_control_u64(rest);
	else if (!strcmp(word, "missing")) {
		hc_progress_end(&op->progress);
		hc_tool_error("%s", rest);
		op->n_missing++;
	}
}

static int hc_op_run(const char *mount, const char *command, const char *what, struct hc_op *op)
{
	int status;

	hc_progress_begin(&op->progress, what);
	status = hc_control_run(mount, command, hc_op_line, op);
	hc_progress_end(&op->progress);
	return status;
}

static int hc_op_no_arguments(int argc, char **argv)
{
	static const struct option none[] = {{0}};
	int c = getopt_long(argc, argv, ":", none, NULL);

	if (c != -1)
		return hc_tool_bad_option(c, argv);
	if (optind < argc)
		return hc_tool_usage("%s: %s: takes no argument", argv[0], argv[optind]);
	return 0;
}

static const char *hc_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

int hc_tool_verify(const struct hc_tool *tool, int argc, char **argv)
{
	hc_autofree char *mount = NULL;
	struct hc_op op = {0};
	char size[16];
	int status = hc_op_no_arguments(argc, argv);

	if (!status)
		status = hc_mount_find(tool, &mount);
	if (!status)
		status = hc_op_run(mount, "verify", "verify", &op);
	if (status)
		return status;
	hc_size_format(op.bytes, size);
	printf("checked %llu page%s (%s)\n", (unsigned long long)op.n_done, hc_plural(op.n_done),
	       size);
	if (!op.n_bad) {
		puts("all are good");
		return 0;
	}
	printf("%llu page%s bad and removed; the files are quarantined until gc\n",
	       (unsigned long long)op.n_bad, op.n_bad == 1 ? " was" : "s were");
	return HC_TOOL_BAD_PAGES;
}

int hc_tool_sync(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {{"timeout", required_argument, NULL, 't'}, {0}};
	hc_autofree char *mount = NULL;
	char command[64] = "sync";
	struct hc_op op = {0};
	uint64_t seconds;
	int c, status;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c != 't')
			return hc_tool_bad_option(c, argv);
		if (hc_duration_parse(optarg, &seconds) || !seconds || seconds > 86400)
			return hc_tool_usage("sync: --timeout %s: seconds, or a time such as 90s, "
					     "15m or 2h, up to a day",
					     optarg);
		snprintf(command, sizeof(command), "sync %llu", (unsigned long long)seconds);
	}
	if (optind < argc)
		return hc_tool_usage("sync: %s: takes no argument", argv[optind]);
	status = hc_mount_find(tool, &mount);
	if (!status)
		status = hc_op_run(mount, command, "sync", &op);
	if (op.n_left)
		hc_tool_error("%llu page%s not on disk", (unsigned long long)op.n_left,
			      op.n_left == 1 ? " is" : "s are");
	return status;
}

int hc_tool_gc(const struct hc_tool *tool, int argc, char **argv)
{
	hc_autofree char *mount = NULL;
	struct hc_op op = {0};
	char size[16];
	int status = hc_op_no_arguments(argc, argv);

	if (!status)
		status = hc_mount_find(tool, &mount);
	if (!status)
		status = hc_op_run(mount, "gc", "gc", &op);
	if (status)
		return status;
	hc_size_format(op.bytes, size);
	printf("removed %llu file%s (%s)\n", (unsigned long long)op.n_done, hc_plural(op.n_done),
	       size);
	return 0;
}

static void hc_log_level_line(void *arg, const char *word, char *rest)
{
	(void)arg;
	if (!strcmp(word, "level"))
		puts(rest);
}

int hc_tool_log_level(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option none[] = {{0}};
	hc_autofree char *mount = NULL;
	char command[64] = "log_level";
	int c = getopt_long(argc, argv, ":", none, NULL), status;

	if (c != -1)
		return hc_tool_bad_option(c, argv);
	if (argc - optind > 1)
		return hc_tool_usage("log-level: %s: one word is wanted", argv[optind + 1]);
	if (optind < argc) {
		if (!*argv[optind] || strlen(argv[optind]) > 16 || strpbrk(argv[optind], " \t\n"))
			return hc_tool_usage("log-level: %s: error, warn, info, debug or trace",
					     argv[optind]);
		snprintf(command, sizeof(command), "log_level %s", argv[optind]);
	}
	status = hc_mount_find(tool, &mount);
	return status ? status : hc_control_run(mount, command, hc_log_level_line, NULL);
}

/* --- evict --- */

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

/* Path inside the mount, "" for the mount itself. */
static int hc_path_inside(const char *mount, const char *path, char inside[PATH_MAX])
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

static int hc_evict_paths(const char *mount, bool memory, int n, char **paths, struct hc_op *op)
{
	static char command[HC_COMMAND_BYTES + 3 * PATH_MAX + 2];
	const char *verb = memory ? "evict memory" : "evict";
	size_t used = strlen(verb);
	char inside[PATH_MAX];
	int status = 0;

	snprintf(command, sizeof(command), "%s", verb);
	for (int i = 0; i < n && !status; i++) {
		status = hc_path_inside(mount, paths[i], inside);
		if (status)
			break;
		if (!inside[0])
			return hc_op_run(mount, verb, "evict", op);
		command[used++] = ' ';
		hc_control_escape(inside, command + used);
		used += strlen(command + used);
		if (used >= HC_COMMAND_BYTES && i + 1 < n) {
			status = hc_op_run(mount, command, "evict", op);
			used = strlen(verb);
			command[used] = 0;
		}
	}
	return status ? status : hc_op_run(mount, command, "evict", op);
}

int hc_tool_evict(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {{"memory", no_argument, NULL, 'm'}, {0}};
	hc_autofree char *mount = NULL;
	struct hc_op op = {0};
	bool memory = false;
	char size[16];
	int c, status;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c != 'm')
			return hc_tool_bad_option(c, argv);
		memory = true;
	}
	status = hc_mount_find(tool, &mount);
	if (!status)
		status = hc_evict_paths(mount, memory, argc - optind, argv + optind, &op);
	hc_size_format(op.bytes, size);
	if (!status || op.n_done)
		printf("evicted %llu page%s (%s)%s\n", (unsigned long long)op.n_done,
		       hc_plural(op.n_done), size, memory ? " from memory" : "");
	if (op.n_kept)
		printf("kept %llu page%s: leased, pinned, open or not on disk\n",
		       (unsigned long long)op.n_kept, hc_plural(op.n_kept));
	return status ? status : op.n_missing ? HC_TOOL_FAILED : 0;
}
