/* SPDX-License-Identifier: Apache-2.0 */
/* pin, unpin, prefetch and drain. */
#include <getopt.h>

#include "tool/ops.h"
#include "util/size.h"

/* --- pin --- */

static int hc_pin_run(const struct hc_tool *tool, int argc, char **argv, const char *done)
{
	static const struct option none[] = {{0}};
	hc_autofree char *mount = NULL;
	struct hc_op op = {0};
	struct hc_words words;
	int c = getopt_long(argc, argv, ":", none, NULL), status;

	if (c != -1)
		return hc_tool_bad_option(c, argv);
	if (optind == argc)
		return hc_tool_usage("%s: a path or a key is wanted", argv[0]);
	status = hc_mount_find(tool, &mount);
	if (status)
		return status;
	status = hc_words_begin(&words, mount, argv[0], argv[0], &op);
	if (status)
		return status;
	for (int i = optind; i < argc && !status; i++)
		status = hc_words_add(&words, argv[i]);
	status = hc_words_end(&words, status);
	if (!status || op.n_done)
		printf("%s %llu page%s\n", done, (unsigned long long)op.n_done,
		       hc_plural(op.n_done));
	return status ? status : op.n_missing ? HC_TOOL_FAILED : 0;
}

int hc_tool_pin(const struct hc_tool *tool, int argc, char **argv)
{
	return hc_pin_run(tool, argc, argv, "pinned");
}

int hc_tool_unpin(const struct hc_tool *tool, int argc, char **argv)
{
	return hc_pin_run(tool, argc, argv, "unpinned");
}

/* --- prefetch --- */

static int hc_prefetch_stdin(struct hc_words *words)
{
	hc_autofree char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int status = 0;

	while (!status && (n = getline(&line, &room, stdin)) >= 0) {
		if (n && line[n - 1] == '\n')
			line[--n] = 0;
		if (strlen(line) != (size_t)n) {
			hc_tool_error("prefetch: a line of standard input has a NUL byte");
			return HC_TOOL_FAILED;
		}
		if (n)
			status = hc_words_add(words, line);
	}
	if (!status && ferror(stdin)) {
		hc_tool_error("standard input: %m");
		status = HC_TOOL_FAILED;
	}
	return status;
}

static int hc_prefetch_all(const char *mount, bool from_stdin, int n, char **paths,
			   struct hc_op *op)
{
	struct hc_words words;
	int status = hc_words_begin(&words, mount, "prefetch", "prefetch", op);

	if (status)
		return status;
	for (int i = 0; i < n && !status; i++)
		status = hc_words_add(&words, paths[i]);
	if (!status && from_stdin)
		status = hc_prefetch_stdin(&words);
	return hc_words_end(&words, status);
}

int hc_tool_prefetch(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {{"stdin", no_argument, NULL, 's'}, {0}};
	hc_autofree char *mount = NULL;
	bool from_stdin = false;
	struct hc_op op = {0};
	int c, status;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c != 's')
			return hc_tool_bad_option(c, argv);
		from_stdin = true;
	}
	if (optind == argc && !from_stdin)
		return hc_tool_usage("prefetch: a path or a key is wanted, or --stdin");
	status = hc_mount_find(tool, &mount);
	if (!status)
		status = hc_prefetch_all(mount, from_stdin, argc - optind, argv + optind, &op);
	if (!status || op.n_done || op.n_resident)
		printf("loaded %llu page%s, %llu in memory already\n",
		       (unsigned long long)op.n_done, hc_plural(op.n_done),
		       (unsigned long long)op.n_resident);
	if (op.n_failed)
		hc_tool_error("%llu page%s could not be loaded: no room in memory, or damaged",
			      (unsigned long long)op.n_failed, hc_plural(op.n_failed));
	return status ? status : op.n_failed || op.n_missing ? HC_TOOL_FAILED : 0;
}

/* --- drain --- */

int hc_tool_drain(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {
		{"end", no_argument, NULL, 'e'},
		{"timeout", required_argument, NULL, 't'},
		{0},
	};
	hc_autofree char *mount = NULL;
	char command[64] = "drain";
	struct hc_op op = {0};
	uint64_t seconds;
	int c, status;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c == 'e') {
			snprintf(command, sizeof(command), "drain end");
			continue;
		}
		if (c != 't')
			return hc_tool_bad_option(c, argv);
		if (hc_duration_parse(optarg, &seconds) || !seconds || seconds > 86400)
			return hc_tool_usage("drain: --timeout %s: seconds, or a time such as 90s, "
					     "15m or 2h, up to a day",
					     optarg);
		snprintf(command, sizeof(command), "drain %llu", (unsigned long long)seconds);
	}
	if (optind < argc)
		return hc_tool_usage("drain: %s: takes no argument", argv[optind]);
	status = hc_mount_find(tool, &mount);
	if (!status)
		status = hc_op_run(mount, command, "drain", &op);
	if (!strcmp(command, "drain end"))
		return status;
	if (!status)
		puts("drained: everything is on disk, and no new pages are taken; drain --end ends "
		     "that");
	if (op.n_left || op.n_bodies || op.n_held)
		hc_tool_error("%llu pages are not on disk, %llu files are being written, %llu "
			      "pages are held",
			      (unsigned long long)op.n_left, (unsigned long long)op.n_bodies,
			      (unsigned long long)op.n_held);
	return status;
}
