/* SPDX-License-Identifier: Apache-2.0 */
/* verify, sync, gc and evict: commands that the daemon carries out. */

#include <getopt.h>

#include "tool/ops.h"
#include "util/size.h"

static const struct {
	const char *word;
	size_t offset;
} hc_op_words[] = {
	{"checked", offsetof(struct hc_op, n_done)},
	{"removed", offsetof(struct hc_op, n_done)},
	{"evicted", offsetof(struct hc_op, n_done)},
	{"pinned", offsetof(struct hc_op, n_done)},
	{"unpinned", offsetof(struct hc_op, n_done)},
	{"loaded", offsetof(struct hc_op, n_done)},
	{"bytes", offsetof(struct hc_op, bytes)},
	{"bad", offsetof(struct hc_op, n_bad)},
	{"left", offsetof(struct hc_op, n_left)},
	{"kept", offsetof(struct hc_op, n_kept)},
	{"resident", offsetof(struct hc_op, n_resident)},
	{"gone", offsetof(struct hc_op, n_missing)},
	{"failed", offsetof(struct hc_op, n_failed)},
	{"bodies", offsetof(struct hc_op, n_bodies)},
	{"held", offsetof(struct hc_op, n_held)},
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
	if (!strcmp(word, "missing")) {
		hc_progress_end(&op->progress);
		hc_tool_error("%s", rest);
		op->n_missing++;
		return;
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_op_words); i++) {
		if (!strcmp(word, hc_op_words[i].word))
			*(uint64_t *)((char *)op + hc_op_words[i].offset) += hc_control_u64(rest);
	}
}

int hc_op_run(const char *mount, const char *command, const char *what, struct hc_op *op)
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

const char *hc_plural(uint64_t n)
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

static int hc_evict_paths(const char *mount, bool memory, int n, char **paths, struct hc_op *op)
{
	const char *verb = memory ? "evict memory" : "evict";
	struct hc_words words;
	int status;

	if (!n)
		return hc_op_run(mount, verb, "evict", op);
	status = hc_words_begin(&words, mount, verb, "evict", op);
	for (int i = 0; i < n && !status; i++)
		status = hc_words_add(&words, paths[i]);
	return hc_words_end(&words, status);
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
