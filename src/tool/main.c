/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl: what operators ask of a cache. This file: which command, and how errors are told. */
#include "tool/tool.h"

#include <getopt.h>
#include <stdarg.h>

#include "config.h"
#include "tool/watch.h"
#include "util/log.h"
#include "util/size.h"

static const struct {
	const char *name;
	int (*run)(const struct hc_tool *tool, int argc, char **argv);
	const char *usage;
	const char *help;
	bool alone; /* speaks to no daemon, or in children of its own */
} hc_commands[] = {
	{"status", hc_tool_status, "status [--json]",
	 "what the cache holds; without a daemon, the pool that is left"},
	{"ls", hc_tool_ls,
	 "ls [-l|--long] [-R|--recursive] [--tier memory|disk] [--series ID] [--sort "
	 "name|size|age|hits|depth] [-r|--reverse] [--json] [PATH...]",
	 "names, and what the cache knows of them"},
	{"stat", hc_tool_stat, "stat [--json] PATH|KEY...", "everything about one name or key"},
	{"top", hc_tool_top, "top [-n ITERATIONS] [-d SECONDS] [-b|--batch]",
	 "what happens now: hits, bytes, latencies"},
	{"doctor", hc_tool_doctor, "doctor [--json] [CACHEDIR]",
	 "look at this machine and the mounts, and say what to change", true},
	{"prefetch", hc_tool_prefetch, "prefetch [--stdin] PATH|KEY...",
	 "read pages into memory; --stdin: one a line"},
	{"pin", hc_tool_pin, "pin PATH|KEY...", "keep pages, or all pages of a directory"},
	{"unpin", hc_tool_unpin, "unpin PATH|KEY...", "let them go again"},
	{"series", hc_tool_series, "series [--json] [SPACE]", "series of pages, and what they are"},
	{"series set", NULL, "series set SPACE SERIES KVSPEC",
	 "declare what the pages of a series are"},
	{"drain", hc_tool_drain, "drain [--timeout SECONDS | --end]",
	 "write everything, take nothing new; --end: take new pages again"},
	{"hash", hc_tool_hash,
	 "hash --page-tokens N [--prior HEX] [--bigram] [--extra-key S] [--cache-salt S]",
	 "page hashes of the token ids on standard input", true},
	{"verify", hc_tool_verify, "verify",
	 "re-read everything; bad pages are reported and removed"},
	{"sync", hc_tool_sync, "sync [--timeout SECONDS]",
	 "write what is not on disk yet, and wait for it"},
	{"gc", hc_tool_gc, "gc", "remove files without a row, temporaries and quarantined files"},
	{"evict", hc_tool_evict, "evict [--memory] [PATH...]",
	 "take pages (default: all) out of the cache; --memory: out of memory only"},
	{"log-level", hc_tool_log_level, "log-level [error|warn|info|debug|trace]",
	 "show or set what the daemon logs, until SIGHUP or its next start"},
	{"pool free", NULL, "pool free [DIR]", "release the pool that a daemon left in memory"},
	{"pool", hc_tool_pool, NULL, NULL, true},
	{"replay", hc_tool_replay,
	 "replay [--capacity-pages N | --capacity-percent P] [--page-bytes B] [--json] FILE",
	 "replay a trace of requests through a cache in memory", true},
};

static void hc_tool_help(FILE *out)
{
	fputs("usage: hicachectl [-m MOUNTPOINT] COMMAND [ARGUMENT...]\n\n"
	      "  -m, --mount MOUNTPOINT  the cache; else HICACHE_MOUNT, else the only one that is "
	      "mounted\n"
	      "  -w, --wait SECONDS      how long the daemon may be silent (10)\n"
	      "  -h, --help              this text\n"
	      "  -V, --version           the version\n\n"
	      "Commands:\n",
	      out);
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_commands); i++) {
		if (hc_commands[i].usage)
			fprintf(out, "  %s\n        %s\n", hc_commands[i].usage,
				hc_commands[i].help);
	}
	fputs("\nhash, replay and pool free need no daemon.\n"
	      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no mount, or not clear which, 4 "
	      "verify found bad pages.\n",
	      out);
}

static void hc_tool_verror(const char *format, va_list args)
{
	fputs("hicachectl: ", stderr);
	vfprintf(stderr, format, args);
	putc('\n', stderr);
}

void hc_tool_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	hc_tool_verror(format, args);
	va_end(args);
}

int hc_tool_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	hc_tool_verror(format, args);
	va_end(args);
	fputs("hicachectl --help shows all commands\n", stderr);
	return HC_TOOL_USAGE;
}

int hc_tool_bad_option(int c, char *const *argv)
{
	if (c == ':')
		return hc_tool_usage("%s: %s: a value is missing", argv[0], argv[optind - 1]);
	return hc_tool_usage("%s: %s: there is no such option", argv[0], argv[optind - 1]);
}

int hc_tool_flush(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	hc_tool_error("standard output: %m");
	return HC_TOOL_FAILED;
}

static int hc_tool_command(const struct hc_tool *tool, int argc, char **argv)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_commands); i++) {
		if (!hc_commands[i].run || strcmp(argv[0], hc_commands[i].name))
			continue;
		optind = 0;
		if (!hc_commands[i].alone)
			return hc_watch_run(tool->wait_s, hc_commands[i].run, tool, argc, argv);
		return hc_tool_flush(hc_commands[i].run(tool, argc, argv));
	}
	return hc_tool_usage("%s: there is no such command", argv[0]);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},
		{"mount", required_argument, NULL, 'm'},
		{"version", no_argument, NULL, 'V'},
		{"wait", required_argument, NULL, 'w'},
		{0},
	};
	struct hc_tool tool = {.mount_arg = getenv("HICACHE_MOUNT"), .wait_s = HC_WATCH_WAIT_S};
	uint64_t seconds;
	int c;

	/* A command's own library calls speak up about errors only. */
	hc_log_set_level(HC_LOG_ERROR);
	if (tool.mount_arg && !*tool.mount_arg)
		tool.mount_arg = NULL;
	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:hm:Vw:", options, NULL)) != -1) {
		switch (c) {
		case 'h':
			hc_tool_help(stdout);
			return hc_tool_flush(0);
		case 'm':
			tool.mount_arg = optarg;
			break;
		case 'V':
			printf("hicachectl %s\n", PACKAGE_VERSION);
			return hc_tool_flush(0);
		case 'w':
			if (hc_duration_parse(optarg, &seconds) || !seconds || seconds > 3600)
				return hc_tool_usage("--wait %s: seconds from 1 to 3600", optarg);
			tool.wait_s = (unsigned)seconds;
			break;
		case ':':
			return hc_tool_usage("%s: a value is missing", argv[optind - 1]);
		default:
			return hc_tool_usage("%s: there is no such option", argv[optind - 1]);
		}
	}
	if (optind >= argc)
		return hc_tool_usage("a command is missing");
	return hc_tool_command(&tool, argc - optind, argv + optind);
}
