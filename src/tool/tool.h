/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of hicachectl share. One thread. Each command parses its own arguments, prints its
 * results on standard output, its errors (one line, "hicachectl: ...") on standard error, and
 * returns an exit status. */
#ifndef HC_TOOL_TOOL_H
#define HC_TOOL_TOOL_H

#include "util/base.h"

#define HC_TOOL_FAILED    1
#define HC_TOOL_USAGE     2
#define HC_TOOL_NO_MOUNT  3 /* nothing is mounted, or it is not clear which mount is meant */
#define HC_TOOL_BAD_PAGES 4 /* verify found pages that were bad */

struct hc_tool {
	const char *mount_arg; /* -m, else HICACHE_MOUNT; NULL: the only mount */
	unsigned wait_s;       /* how long the daemon may be silent */
};

/* Commands: argv[0] is the command's name. */
int hc_tool_doctor(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_drain(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_ls(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_pin(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_prefetch(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_series(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_stat(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_top(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_unpin(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_evict(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_gc(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_log_level(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_hash(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_pool(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_replay(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_status(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_sync(const struct hc_tool *tool, int argc, char **argv);
int hc_tool_verify(const struct hc_tool *tool, int argc, char **argv);

void hc_tool_error(const char *format, ...) HC_PRINTF(1, 2);
/* The error and a pointer to the help; returns HC_TOOL_USAGE. */
int hc_tool_usage(const char *format, ...) HC_PRINTF(1, 2);
/* What getopt_long with a leading ':' and opterr 0 could not take. */
int hc_tool_bad_option(int c, char *const *argv);
/* Whether all that was printed has arrived; else the status with a message. */
int hc_tool_flush(int status);

/* "3m 20s" style, two units. */
void hc_duration_format(uint64_t seconds, char text[32]);
/* status.c: the status of a mount as JSON, heap; or an exit status with a message. */
int hc_status_read(const char *mount, char **json_p) HC_MUST_CHECK;

/* --- mount.c --- */
#define HC_MOUNTS_MAX 64u

/* Mount points of hicachefs, from /proc/self/mountinfo: heap array of heap strings. */
int hc_mounts_list(char ***mounts_p, size_t *n_p) HC_MUST_CHECK;
/* The same from the text of mountinfo. */
int hc_mounts_parse(const char *text, char ***mounts_p, size_t *n_p) HC_MUST_CHECK;
/* Undoes \040 and the like of the kernel's tables, in place. */
void hc_unescape_octal(char *text);
void hc_mounts_free(char **mounts, size_t n);
/* The mount point that is meant (heap), or an exit status with a message. */
int hc_mount_find(const struct hc_tool *tool, char **mount_p) HC_MUST_CHECK;

/* --- control.c --- */
/* Called with each line of the answer but the last: first word and the rest ("" when there is
 * none). */
typedef void (*hc_control_line_t)(void *arg, const char *word, char *rest);
/* Sends one command to the daemon and waits for its end. Returns an exit status; errors are
 * printed. */
int hc_control_run(const char *mount, const char *command, hc_control_line_t line,
		   void *arg) HC_MUST_CHECK;
/* Words of a command: blanks, control bytes and '%' become %XX. 3 * strlen + 1 bytes of room. */
void hc_control_escape(const char *text, char *escaped);
uint64_t hc_control_u64(const char *text);

/* --- progress.c --- */
/* A bar on standard error, on a terminal only. */
struct hc_progress {
	const char *what;
	bool on;
	bool drawn;
	uint64_t next_ns;
};
void hc_progress_begin(struct hc_progress *progress, const char *what);
void hc_progress_show(struct hc_progress *progress, uint64_t done, uint64_t total);
/* Takes the bar away. */
void hc_progress_end(struct hc_progress *progress);

#endif
