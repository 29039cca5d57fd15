/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl top: rates of the counters of .hicache/status and quantiles of the histograms of
 * .hicache/metrics, over each interval. On a terminal a screen of its own, put back at the end,
 * whatever the end is; else, and with --batch, plain text. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>

#include "tool/metrics.h"
#include "tool/page.h"
#include "tool/watch.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/size.h"

#define HC_METRICS_BYTES_MAX (64 * HC_MIB)
#define HC_TOP_BAR           24u

struct hc_sample {
	json_t *status;
	struct hc_metrics metrics;
	uint64_t at_ns;
};

struct hc_top {
	const char *mount;
	bool live;
	uint64_t n_left; /* UINT64_MAX: for ever */
	double interval_s;
	struct termios before_mode;
	bool has_mode;
};

/* --- signals and the terminal --- */

static volatile sig_atomic_t hc_top_signal;
static volatile sig_atomic_t hc_top_resized;

static void hc_top_handler(int number)
{
	if (number == SIGWINCH)
		hc_top_resized = 1;
	else
		hc_top_signal = number;
}

static const int hc_top_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

/* Blocked but while we wait: none is lost between a look and a wait. */
static void hc_top_catch(sigset_t *open_p)
{
	struct sigaction action = {.sa_handler = hc_top_handler};
	sigset_t set;

	sigemptyset(&set);
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_top_signals); i++) {
		sigaddset(&set, hc_top_signals[i]);
		sigaction(hc_top_signals[i], &action, NULL);
	}
	sigprocmask(SIG_BLOCK, &set, open_p);
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_top_signals); i++)
		sigdelset(open_p, hc_top_signals[i]);
}

static void hc_top_enter(struct hc_top *top)
{
	struct termios mode;

	if (!top->live)
		return;
	top->has_mode = !tcgetattr(STDIN_FILENO, &top->before_mode);
	if (top->has_mode) {
		mode = top->before_mode;
		mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		mode.c_cc[VMIN] = 0;
		mode.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &mode);
	}
	hc_watch_screen(true);
	fputs("\033[?1049h\033[?25l", stdout);
}

static void hc_top_leave(struct hc_top *top)
{
	if (!top->live)
		return;
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	if (top->has_mode)
		tcsetattr(STDIN_FILENO, TCSANOW, &top->before_mode);
	hc_watch_screen(false);
}

/* ^Z: the shell gets its terminal back, and we ours when we are continued. */
static void hc_top_stop(struct hc_top *top)
{
	hc_top_leave(top);
	raise(SIGSTOP);
	hc_top_enter(top);
}

/* False: it is time to end. */
static bool hc_top_wait(struct hc_top *top, const sigset_t *open, uint64_t until_ns)
{
	struct pollfd key = {.fd = top->live && top->has_mode ? STDIN_FILENO : -1,
			     .events = POLLIN};

	while (!hc_top_resized) {
		uint64_t now_ns = hc_clock_now_ns();
		struct timespec left;
		char c;

		if (now_ns >= until_ns)
			return true;
		left.tv_sec = (time_t)((until_ns - now_ns) / HC_NS_PER_S);
		left.tv_nsec = (long)((until_ns - now_ns) % HC_NS_PER_S);
		if (ppoll(&key, 1, &left, open) > 0) {
			ssize_t n = read(STDIN_FILENO, &c, 1);

			if (n > 0 && (c == 'q' || c == 'Q'))
				return false;
			if (n <= 0 || key.revents & (POLLHUP | POLLERR))
				key.fd = -1;
		}
		if (hc_top_signal == SIGTSTP) {
			hc_top_signal = 0;
			hc_top_stop(top);
			return true;
		}
		if (hc_top_signal)
			return false;
	}
	hc_top_resized = 0;
	return true;
}

/* --- samples --- */

static int hc_sample_take(const char *mount, struct hc_sample *sample)
{
	hc_autofree char *text = NULL, *metrics = NULL;
	char path[PATH_MAX];
	size_t n;
	int status = hc_status_read(mount, &text);

	if (status)
		return status;
	json_decref(sample->status);
	sample->status = json_loads(text, 0, NULL);
	sample->at_ns = hc_clock_now_ns();
	if (!sample->status) {
		hc_tool_error("%s: the status is not JSON", mount);
		return HC_TOOL_FAILED;
	}
	sample->metrics.n = 0;
	snprintf(path, sizeof(path), "%s/.hicache/metrics", mount);
	if (!hc_file_read(AT_FDCWD, path, HC_METRICS_BYTES_MAX, &metrics, &n))
		hc_metrics_parse(metrics, &sample->metrics);
	return 0;
}

static double hc_value(const json_t *status, const char *group, const char *name)
{
	const json_t *object = group ? json_object_get(status, group) : status;

	return (double)json_integer_value(json_object_get(object, name));
}

/* A second, of a counter. One that fell is of a new daemon. */
static double hc_rate(const struct hc_sample *now, const struct hc_sample *before, const char *name)
{
	double is = hc_value(now->status, "counters", name),
	       was = hc_value(before->status, "counters", name),
	       seconds = (double)(now->at_ns - before->at_ns) / (double)HC_NS_PER_S;

	return seconds > 0 ? (is >= was ? is - was : is) / seconds : 0;
}

/* --- the frame --- */

struct hc_frame {
	FILE *out;
	const struct hc_sample *now, *before;
};

static void hc_frame_bytes(double bytes, char text[16])
{
	hc_size_format(bytes > 0 ? (uint64_t)bytes : 0, text);
}

static void hc_frame_bar(const struct hc_frame *frame, const char *what, const char *group,
			 const char *used_name, const char *size_name, const char *pages_name)
{
	double used = hc_value(frame->now->status, group, used_name),
	       size = hc_value(frame->now->status, group, size_name);
	unsigned n_full = size > 0 ? (unsigned)(fmin(used / size, 1.0) * HC_TOP_BAR) : 0;
	char bar[HC_TOP_BAR + 1], used_text[16], size_text[16];

	memset(bar, '.', HC_TOP_BAR);
	memset(bar, '#', n_full);
	bar[HC_TOP_BAR] = 0;
	hc_frame_bytes(used, used_text);
	hc_frame_bytes(size, size_text);
	fprintf(frame->out, "%-9s [%s] %s of %s, %.0f pages", what, bar, used_text, size_text,
		hc_value(frame->now->status, group, pages_name));
}

static void hc_frame_head(const struct hc_frame *frame, const char *mount)
{
	const json_t *status = frame->now->status;
	char uptime[32], dirty[16], clock[16] = "";
	time_t now = (time_t)(hc_clock_wall_ns() / HC_NS_PER_S);
	struct tm tm;

	if (localtime_r(&now, &tm))
		strftime(clock, sizeof(clock), "%T", &tm);
	hc_duration_format((uint64_t)hc_value(status, NULL, "uptime_s"), uptime);
	fprintf(frame->out, "hicachefs on %s, process %.0f, up %s, %s%s\n", mount,
		hc_value(status, NULL, "pid"), uptime, clock,
		json_is_true(json_object_get(status, "rebuilding")) ? ", REBUILDING its catalog"
								    : "");
	hc_frame_bar(frame, "memory", "memory", "used_bytes", "size_bytes", "pages");
	hc_frame_bytes(hc_value(status, "memory", "dirty_bytes"), dirty);
	fprintf(frame->out, ", %s not on disk\n", dirty);
	if (json_is_true(json_object_get(json_object_get(status, "disk"), "off"))) {
		fputs("disk      none: memory only\n", frame->out);
		return;
	}
	hc_frame_bar(frame, "disk", "disk", "used_bytes", "limit_bytes", "pages");
	fputc('\n', frame->out);
}

static double hc_percent(double part, double whole)
{
	return whole > 0 ? 100.0 * part / whole : 0;
}

static void hc_frame_rates(const struct hc_frame *frame)
{
	const struct hc_sample *now = frame->now, *before = frame->before;
	double lookups = hc_rate(now, before, "fs_page_lookups"),
	       absent = hc_rate(now, before, "fs_page_lookups_absent"),
	       memory = hc_rate(now, before, "hits_memory"),
	       disk = hc_rate(now, before, "hits_disk"), misses = hc_rate(now, before, "misses");
	char read[16], written[16], backed[16], promoted[16];

	hc_frame_bytes(hc_rate(now, before, "fs_read_bytes"), read);
	hc_frame_bytes(hc_rate(now, before, "fs_write_bytes"), written);
	hc_frame_bytes(hc_rate(now, before, "backed_up_bytes"), backed);
	hc_frame_bytes(hc_rate(now, before, "promoted_bytes"), promoted);
	fprintf(frame->out,
		"\nlook-ups  %10.1f/s  of page names, %.1f/s of them absent (%.1f %% found)\n",
		lookups, absent, hc_percent(fmax(lookups - absent, 0), lookups));
	fprintf(frame->out,
		"opens     %10.1f/s  pages from memory %.1f/s, from disk %.1f/s; %.1f/s looked up "
		"but "
		"not delivered\n",
		memory + disk, memory, disk, misses);
	fprintf(frame->out,
		"reads     %10.1f/s  %s/s by the daemon\nwrites    %10.1f/s  %s/s by the daemon\n",
		hc_rate(now, before, "fs_reads"), read, hc_rate(now, before, "fs_writes"), written);
	fprintf(frame->out,
		"published %10.1f/s  written to disk %.1f/s, %s/s; promoted %.1f/s, %s/s\n",
		hc_rate(now, before, "published"), hc_rate(now, before, "backed_up"), backed,
		hc_rate(now, before, "promoted"), promoted);
	fprintf(frame->out, "evicted   %10.1f/s  memory %.1f/s, disk %.1f/s, expired %.1f/s\n",
		hc_rate(now, before, "evicted_memory") + hc_rate(now, before, "evicted_disk"),
		hc_rate(now, before, "evicted_memory"), hc_rate(now, before, "evicted_disk"),
		hc_rate(now, before, "expired"));
	fprintf(frame->out, "errors    %10.0f    bad pages %.0f, disks %.0f, backups %.0f\n",
		hc_value(now->status, "counters", "disk_errors") +
			hc_value(now->status, "counters", "backup_failed"),
		hc_value(now->status, "counters", "bad_checksum") +
			hc_value(now->status, "counters", "bad_size") +
			hc_value(now->status, "counters", "bad_missing"),
		hc_value(now->status, "counters", "disk_errors"),
		hc_value(now->status, "counters", "backup_failed"));
}

static void hc_frame_seconds(double seconds, char text[16])
{
	if (seconds < 1e-3)
		snprintf(text, 16, "%.0f us", seconds * 1e6);
	else if (seconds < 1)
		snprintf(text, 16, "%.1f ms", seconds * 1e3);
	else
		snprintf(text, 16, "%.2f s", seconds);
}

/* Histograms that saw something in this interval. */
static void hc_frame_latencies(const struct hc_frame *frame)
{
	double seconds = (double)(frame->now->at_ns - frame->before->at_ns) / (double)HC_NS_PER_S;
	bool first = true;

	for (size_t i = 0; i < frame->now->metrics.n; i++) {
		const struct hc_histogram *now = &frame->now->metrics.list[i];
		const struct hc_histogram *before =
			hc_metrics_find(&frame->before->metrics, now->name);
		double n = hc_histogram_count(now, before);
		char p50[16], p90[16], p99[16];

		if (!(n > 0) || !strstr(now->name, "_seconds"))
			continue;
		if (first)
			fprintf(frame->out, "\n%-44s %10s %9s %9s %9s\n", "latency", "/s", "p50",
				"p90", "p99");
		first = false;
		hc_frame_seconds(hc_histogram_quantile(now, before, 0.5), p50);
		hc_frame_seconds(hc_histogram_quantile(now, before, 0.9), p90);
		hc_frame_seconds(hc_histogram_quantile(now, before, 0.99), p99);
		fprintf(frame->out, "%-44s %10.1f %9s %9s %9s\n",
			now->name + (strncmp(now->name, "hicache_", 8) ? 0 : 8),
			seconds > 0 ? n / seconds : 0, p50, p90, p99);
	}
}

/* Cuts lines at the width of the terminal, and what is below its height. */
static void hc_frame_show(char *text)
{
	struct winsize size = {.ws_row = 24, .ws_col = 80};
	unsigned row = 0;
	char *line;

	hc_ignore(ioctl(STDOUT_FILENO, TIOCGWINSZ, &size));
	fputs("\033[H", stdout);
	while ((line = strsep(&text, "\n")) && (!size.ws_row || row < size.ws_row)) {
		if (row++)
			putchar('\n');
		printf("%.*s\033[K", size.ws_col ? size.ws_col : 80, line);
	}
	fputs("\033[J", stdout);
}

static int hc_top_frame(const struct hc_top *top, const struct hc_sample *now,
			const struct hc_sample *before)
{
	hc_autofree char *text = NULL;
	size_t n;
	struct hc_frame frame = {.out = open_memstream(&text, &n), .now = now, .before = before};

	if (!frame.out) {
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	hc_frame_head(&frame, top->mount);
	hc_frame_rates(&frame);
	hc_frame_latencies(&frame);
	if (fclose(frame.out)) {
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	if (top->live)
		hc_frame_show(text);
	else
		printf("%s\n", text);
	return fflush(stdout) ? HC_TOOL_FAILED : 0;
}

/* --- run --- */

static int hc_top_loop(struct hc_top *top, struct hc_sample samples[2], const sigset_t *open)
{
	unsigned new = 1;
	int status = hc_sample_take(top->mount, &samples[0]);

	if (!status && top->live)
		status = hc_top_frame(top, &samples[0], &samples[0]);
	while (!status && top->n_left) {
		uint64_t until_ns =
			samples[!new].at_ns + (uint64_t)(top->interval_s * (double)HC_NS_PER_S);

		if (!hc_top_wait(top, open, until_ns))
			break;
		status = hc_sample_take(top->mount, &samples[new]);
		if (!status)
			status = hc_top_frame(top, &samples[new], &samples[!new]);
		if (top->n_left != UINT64_MAX)
			top->n_left--;
		new = !new;
	}
	return status;
}

static int hc_top_run(struct hc_top *top)
{
	struct hc_sample *samples = calloc(2, sizeof(*samples));
	sigset_t open;
	int status, number;

	if (!samples) {
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	hc_top_catch(&open);
	hc_top_enter(top);
	status = hc_top_loop(top, samples, &open);
	hc_top_leave(top);
	json_decref(samples[0].status);
	json_decref(samples[1].status);
	free(samples);
	number = hc_top_signal;
	/* ^C is how it ends; other signals end it as they would have. */
	if (number && number != SIGINT) {
		struct sigaction action = {.sa_handler = SIG_DFL};
		sigset_t set;

		sigaction(number, &action, NULL);
		raise(number);
		sigemptyset(&set);
		sigaddset(&set, number);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
	}
	return status;
}

static int hc_top_option(struct hc_top *top, int c, char **argv)
{
	char *end;

	switch (c) {
	case 'b':
		top->live = false;
		return 0;
	case 'd':
		top->interval_s = strtod(optarg, &end);
		if (*end || end == optarg || !(top->interval_s >= 0.1 && top->interval_s <= 3600))
			return hc_tool_usage("top: -d %s: seconds from 0.1 to 3600", optarg);
		return 0;
	case 'n':
		if (hc_u64_parse(optarg, &top->n_left) || !top->n_left)
			return hc_tool_usage("top: -n %s: a number from 1 on", optarg);
		return 0;
	default:
		return hc_tool_bad_option(c, argv);
	}
}

int hc_tool_top(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {{"batch", no_argument, NULL, 'b'}, {0}};
	hc_autofree char *mount = NULL;
	struct hc_top top = {
		.live = isatty(STDOUT_FILENO) == 1, .n_left = UINT64_MAX, .interval_s = 2};
	int c, status = 0;

	while (!status && (c = getopt_long(argc, argv, ":bd:n:", options, NULL)) != -1)
		status = hc_top_option(&top, c, argv);
	if (!status && optind < argc)
		status = hc_tool_usage("top: %s: takes no argument", argv[optind]);
	if (!status)
		status = hc_mount_find(tool, &mount);
	if (status)
		return status;
	top.mount = mount;
	return hc_top_run(&top);
}
