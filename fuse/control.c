/* SPDX-License-Identifier: Apache-2.0 */
/* Control files, and the commands of `control`. See control.h; the status is in status.c. */
#include "fuse/control.h"

#include <inttypes.h>

#include "config.h"
#include "fuse/bodies.h"
#include "fuse/commands.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/size.h"

#define HC_CONTROL_SLICE_NS    (HC_NS_PER_S / 2)
#define HC_CONTROL_PROGRESS_NS (100 * HC_NS_PER_MS)
#define HC_CONTROL_WAIT_S      600u
/* A write to `prefetch` waits so long for room in the queue: a worker waits with it. */
#define HC_PREFETCH_WAIT_NS HC_NS_PER_S

/* --- commands --- */

char *hc_call_word(struct hc_command_call *call)
{
	char *word;

	call->args += strspn(call->args, " \t");
	if (!*call->args)
		return NULL;
	word = strsep(&call->args, " \t");
	if (!call->args)
		call->args = word + strlen(word);
	return word;
}

void hc_call_progress(struct hc_command_call *call, uint64_t done, uint64_t total)
{
	uint64_t now_ns = hc_clock_now_ns();

	if (now_ns < call->next_ns && done != total)
		return;
	call->next_ns = now_ns + HC_CONTROL_PROGRESS_NS;
	fprintf(call->answer, "progress %" PRIu64 " %" PRIu64 "\n", done, total);
	fflush(call->answer);
}

int hc_call_no_words(struct hc_command_call *call)
{
	const char *word = hc_call_word(call);

	if (!word)
		return 0;
	snprintf(call->why, sizeof(call->why), "%.64s: the command takes no argument", word);
	return -EINVAL;
}

static int hc_command_status(struct hc_command_call *call)
{
	int rc = hc_call_no_words(call);

	if (rc)
		return rc;
	fputs("status ", call->answer);
	return hc_control_status(call->control, call->answer);
}

static bool hc_verify_progress(void *arg, uint64_t done, uint64_t total)
{
	struct hc_command_call *call = arg;

	hc_call_progress(call, done, total);
	return !*call->cancel_p;
}

static int hc_command_verify(struct hc_command_call *call)
{
	struct hc_verify_result result;
	int rc = hc_call_no_words(call);

	if (!rc)
		rc = hc_node_verify(call->control->node, hc_verify_progress, call, &result);
	if (rc)
		return rc;
	fprintf(call->answer, "checked %" PRIu64 "\nbytes %" PRIu64 "\nbad %" PRIu64 "\n",
		result.n_checked, result.bytes_checked, result.n_bad);
	return 0;
}

/* Slices, so that progress is told and a caller that went away is seen. */
int hc_call_sync(struct hc_command_call *call, uint64_t deadline_ns, uint64_t *n_left_p)
{
	struct hc_node *node = call->control->node;
	struct hc_node_stats stats;
	uint64_t n_total;
	int rc;

	hc_node_stats(node, &stats);
	n_total = stats.n_dirty;
	do {
		uint64_t now_ns = hc_clock_now_ns();

		rc = hc_node_sync(node, hc_min_u64(deadline_ns, now_ns + HC_CONTROL_SLICE_NS),
				  n_left_p);
		hc_node_stats(node, &stats);
		n_total = hc_max_u64(n_total, stats.n_dirty);
		if (n_total)
			hc_call_progress(call, n_total - stats.n_dirty, n_total);
	} while (rc == -ETIMEDOUT && hc_clock_now_ns() < deadline_ns && !*call->cancel_p);
	return rc;
}

int hc_call_seconds(struct hc_command_call *call, const char *command, uint64_t *seconds_p)
{
	const char *word = hc_call_word(call);
	uint64_t seconds;

	if (!word)
		return 0;
	if (hc_u64_parse(word, &seconds) || !seconds || seconds > 86400) {
		snprintf(call->why, sizeof(call->why),
			 "%s %.64s: seconds from 1 to 86400 are wanted", command, word);
		return -EINVAL;
	}
	*seconds_p = seconds;
	return 0;
}

static int hc_command_sync(struct hc_command_call *call)
{
	uint64_t seconds = HC_CONTROL_WAIT_S, n_left = 0;
	int rc = hc_call_seconds(call, "sync", &seconds);

	if (rc)
		return rc;
	rc = hc_call_sync(call, hc_clock_now_ns() + seconds * HC_NS_PER_S, &n_left);
	fprintf(call->answer, "left %" PRIu64 "\n", n_left);
	if (rc == -ETIMEDOUT)
		snprintf(call->why, sizeof(call->why),
			 "not all pages could be written within %" PRIu64 " s", seconds);
	else if (rc == -ENOSPC)
		snprintf(call->why, sizeof(call->why),
			 "the disk is full: %" PRIu64 " pages are in memory only", n_left);
	return rc;
}

static int hc_command_gc(struct hc_command_call *call)
{
	uint64_t n_removed = 0, bytes = 0, n_orphans = 0;
	int rc = hc_call_no_words(call);

	if (!rc) {
		n_orphans = hc_bodies_reap(call->control->fs, 0);
		rc = hc_node_gc(call->control->node, &n_removed, &bytes);
	}
	n_removed += n_orphans;
	if (!rc)
		fprintf(call->answer, "removed %" PRIu64 "\nbytes %" PRIu64 "\n", n_removed, bytes);
	return rc;
}

/* Holds until SIGHUP or the next start. */
static int hc_command_log_level(struct hc_command_call *call)
{
	struct hc_control *control = call->control;
	const char *word = hc_call_word(call);
	struct hc_option_value *value;
	enum hc_log_level level;
	char *text = NULL;

	if (word && hc_log_level_parse(word, &level)) {
		snprintf(call->why, sizeof(call->why), "log_level %.64s: one of %s is wanted", word,
			 hc_option_descs[HC_OPT_log_level].allowed);
		return -EINVAL;
	}
	if (word) {
		text = strdup(word);
		if (!text)
			return -ENOMEM;
	}
	pthread_mutex_lock(&control->lock);
	value = &control->options->values[HC_OPT_log_level];
	if (text) {
		free(value->text);
		value->text = text;
		value->number = level;
	}
	fprintf(call->answer, "level %s\n", value->text);
	pthread_mutex_unlock(&control->lock);
	if (text)
		hc_log_set_level(level);
	return 0;
}

static int hc_command_help(struct hc_command_call *call);

static const struct {
	const char *name;
	int (*run)(struct hc_command_call *call);
	const char *usage;
} hc_commands[] = {
	{"status", hc_command_status, "status: everything, as one line of JSON"},
	{"verify", hc_command_verify, "verify: re-read all pages, remove bad ones"},
	{"sync", hc_command_sync, "sync [SECONDS]: write what is not on disk"},
	{"gc", hc_command_gc, "gc: remove files without a row, temporaries and quarantined files"},
	{"evict", hc_command_evict,
	 "evict [memory] [PATH...]: paths below the mount, %XX for blanks and %"},
	{"log_level", hc_command_log_level,
	 "log_level [error|warn|info|debug|trace]: what is logged"},
	{"pin", hc_command_pin, "pin PATH|KEY...: keep pages, or all pages of a directory"},
	{"unpin", hc_command_unpin, "unpin PATH|KEY...: end that"},
	{"prefetch", hc_command_prefetch,
	 "prefetch PATH|KEY...: read pages, or all pages of a directory, into memory"},
	{"series", hc_command_series,
	 "series set SPACE SERIES KVSPEC: say what the pages of a series hold"},
	{"drain", hc_command_drain,
	 "drain [SECONDS]: take no new pages and write all there are; drain end: go on"},
	{"help", hc_command_help, "help: this text"},
};

static int hc_command_help(struct hc_command_call *call)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_commands); i++)
		fprintf(call->answer, "%s\n", hc_commands[i].usage);
	return 0;
}

int hc_control_command(struct hc_control *control, const char *line, FILE *answer,
		       const atomic_bool *cancel_p)
{
	struct hc_command_call call = {.control = control, .answer = answer, .cancel_p = cancel_p};
	hc_autofree char *copy = strdup(line);
	const char *name;
	int rc = -EINVAL;

	if (!copy) {
		fputs("error out of memory\n", answer);
		return -ENOMEM;
	}
	hc_debug("control", "command \"%.200s\"", line);
	call.args = copy;
	name = hc_call_word(&call);
	snprintf(call.why, sizeof(call.why), "%.64s: there is no such command; help lists them",
		 name ? name : "");
	for (size_t i = 0; name && i < HC_ARRAY_SIZE(hc_commands); i++) {
		if (strcmp(name, hc_commands[i].name))
			continue;
		call.why[0] = 0;
		rc = hc_commands[i].run(&call);
		break;
	}
	if (rc)
		fprintf(answer, "error %s\n", call.why[0] ? call.why : strerror(-rc));
	else
		fputs("ok\n", answer);
	fflush(answer);
	return rc;
}

/* --- files --- */

static int hc_file_control(void *arg, const char *instance, const struct hc_vcaller *caller,
			   const char *line, FILE *answer, const atomic_bool *cancel_p)
{
	(void)instance;
	(void)caller;
	return hc_control_command(arg, line, answer, cancel_p);
}

static int hc_file_version(void *arg, const char *instance, FILE *out)
{
	(void)arg;
	(void)instance;
	fprintf(out, "hicachefs %s\n", PACKAGE_VERSION);
	return 0;
}

static int hc_file_config(void *arg, const char *instance, FILE *out)
{
	struct hc_control *control = arg;
	uint64_t actual[HC_OPTION_N] = {0};
	struct hc_node_stats stats;
	char text[256];

	(void)instance;
	hc_node_stats(control->node, &stats);
	actual[HC_OPT_pool_size] = stats.pool.size_bytes;
	actual[HC_OPT_index_memory] = control->index_bytes;
	actual[HC_OPT_disk_size] = stats.disk_limit_bytes;
	pthread_mutex_lock(&control->lock);
	if (!hc_option(control->options, HC_OPT_disk_size)->is_percent)
		actual[HC_OPT_disk_size] = 0;
	hc_options_print(control->options, actual, out);
	pthread_mutex_unlock(&control->lock);
	if (control->fs) {
		hc_fs_passthrough_text(control->fs, text, sizeof(text));
		fprintf(out, "# passthrough in force: %s\n", text);
	}
	return 0;
}

static int hc_file_stats(void *arg, const char *instance, FILE *out)
{
	(void)instance;
	hc_control_stats(arg, out);
	return 0;
}

static int hc_file_status(void *arg, const char *instance, FILE *out)
{
	(void)instance;
	return hc_control_status(arg, out);
}

static int hc_file_metrics(void *arg, const char *instance, FILE *out)
{
	(void)instance;
	return hc_control_metrics(arg, out);
}

/* --- prefetch --- */

static int hc_file_prefetch_read(void *arg, const char *instance, FILE *out)
{
	struct hc_control *control = arg;
	struct hc_prefetch_stats stats;

	(void)instance;
	hc_prefetch_stats(control->prefetcher, NULL, &stats);
	fprintf(out,
		"queued %" PRIu64 "\nasked %" PRIu64 "\nloaded %" PRIu64 "\nresident %" PRIu64
		"\nmissing %" PRIu64 "\nfailed %" PRIu64 "\nbad_lines %" PRIu64 "\n",
		stats.n_queued, stats.n_asked, stats.sum.n_loaded, stats.sum.n_resident,
		stats.sum.n_missing, stats.sum.n_failed,
		(uint64_t)atomic_load_explicit(&control->n_bad_lines, memory_order_relaxed));
	return 0;
}

/* One path or key, without escapes: a line is a name whatever blanks are in it. Only what is wrong
 * is answered. */
static int hc_file_prefetch_write(void *arg, const char *instance, const struct hc_vcaller *caller,
				  const char *line, FILE *answer, const atomic_bool *cancel_p)
{
	struct hc_control *control = arg;
	hc_autofree char *text = strdup(line);
	const char *why = "";
	int rc;

	(void)instance;
	(void)caller;
	(void)cancel_p;
	if (!text)
		return -ENOMEM;
	rc = hc_prefetch_line(control, text, hc_clock_now_ns() + HC_PREFETCH_WAIT_NS, &why);
	if (rc != -ENOENT)
		return rc;
	atomic_fetch_add_explicit(&control->n_bad_lines, 1, memory_order_relaxed);
	fprintf(answer, "missing %s: %s\n", line, why);
	return 0;
}

/* --- spaces --- */

static int hc_spaces_list(void *arg, char ***names_p, size_t *n_p)
{
	struct hc_control *control = arg;
	struct hc_space_info *list;
	char **names;
	size_t n, i;
	int rc = hc_space_list(hc_node_registry(control->node), &list, &n);

	if (rc)
		return rc;
	names = calloc(n + 1, sizeof(*names));
	for (i = 0; names && i < n; i++) {
		names[i] = strdup(strcmp(list[i].name, ".") ? list[i].name : HC_CONTROL_ROOT_SPACE);
		if (!names[i])
			break;
	}
	free(list);
	if (!names || i < n) {
		while (names && i)
			free(names[--i]);
		free(names);
		return -ENOMEM;
	}
	*names_p = names;
	*n_p = n;
	return 0;
}

static int hc_space_of(struct hc_control *control, const char *instance,
		       struct hc_space_info *info_p)
{
	return hc_space_find(hc_node_registry(control->node),
			     strcmp(instance, HC_CONTROL_ROOT_SPACE) ? instance : ".", info_p);
}

static int hc_space_quota_read(void *arg, const char *instance, FILE *out)
{
	struct hc_space_info info;
	char size[24];
	int rc = hc_space_of(arg, instance, &info);

	if (rc)
		return rc;
	hc_size_exact(info.quota_bytes, size);
	fprintf(out, "%s\n", size);
	return 0;
}

static int hc_space_age_read(void *arg, const char *instance, FILE *out)
{
	struct hc_space_info info;
	int rc = hc_space_of(arg, instance, &info);

	if (!rc)
		fprintf(out, "%" PRIu64 "s\n", info.max_age_s);
	return rc;
}

static int hc_space_priority_read(void *arg, const char *instance, FILE *out)
{
	struct hc_space_info info;
	int rc = hc_space_of(arg, instance, &info);

	if (!rc)
		fprintf(out, "%u\n", info.priority);
	return rc;
}

/* A line that sets a value; until the next start where the config file has a section for the space.
 */
static int hc_space_write(struct hc_control *control, const char *instance, const char *name,
			  const char *line, FILE *answer)
{
	struct hc_space_section section = {0};
	struct hc_space_info info;
	char why[160] = "";
	int rc = hc_space_of(control, instance, &info);

	if (!rc)
		rc = hc_section_set(&section, name, line, why, sizeof(why));
	if (!rc) {
		info.quota_bytes = section.quota_bytes;
		info.max_age_s = section.max_age_s;
		info.priority = section.priority;
		rc = hc_space_set(hc_node_registry(control->node), info.id, &info, section.what);
	}
	if (!rc) {
		hc_node_space_changed(control->node, info.id);
		hc_info(HC_OPTIONS_LOG, "space %s: %s is %s", info.name, name, line);
		fputs("ok\n", answer);
	} else {
		fprintf(answer, "error %s\n", why[0] ? why : strerror(-rc));
	}
	return rc;
}

#define HC_SPACE_WRITER(what)                                                                 \
	static int hc_space_##what##_write(void *arg, const char *instance,                   \
					   const struct hc_vcaller *caller, const char *line, \
					   FILE *answer, const atomic_bool *cancel_p)         \
	{                                                                                     \
		(void)caller;                                                                 \
		(void)cancel_p;                                                               \
		return hc_space_write(arg, instance, #what, line, answer);                    \
	}
HC_SPACE_WRITER(quota)
HC_SPACE_WRITER(max_age)
HC_SPACE_WRITER(priority)

static int hc_space_stats_read(void *arg, const char *instance, FILE *out)
{
	struct hc_control *control = arg;
	struct hc_registry *registry = hc_node_registry(control->node);
	uint64_t counters[HC_SPACE_N_COUNTERS];
	struct hc_space_info info;
	int rc = hc_space_of(control, instance, &info);

	if (rc)
		return rc;
	fprintf(out,
		"used_bytes %" PRIu64 "\nquota_bytes %" PRIu64 "\nfiles_bytes %" PRIu64
		"\nn_series %u\n",
		hc_space_used(registry, info.id), info.quota_bytes,
		hc_files_used(registry, info.id), info.n_series);
	hc_space_counters(registry, info.id, counters);
#define HC_STAT_LINE(name) fprintf(out, #name " %" PRIu64 "\n", counters[HC_SPACE_COUNT_##name]);
	HC_SPACE_COUNTERS(HC_STAT_LINE)
#undef HC_STAT_LINE
	return 0;
}

static int hc_space_series_read(void *arg, const char *instance, FILE *out)
{
	struct hc_control *control = arg;
	struct hc_registry *registry = hc_node_registry(control->node);
	struct hc_series_info *series = malloc(sizeof(*series));
	hc_autofree uint32_t *ids = NULL;
	struct hc_space_info info;
	size_t n = 0;
	int rc = series ? hc_space_of(control, instance, &info) : -ENOMEM;

	if (!rc)
		rc = hc_series_list(registry, info.id, &ids, &n);
	for (size_t i = 0; !rc && i < n; i++) {
		if (!hc_series_get(registry, ids[i], series))
			fprintf(out, "%u %s %s\n", ids[i], series->pattern,
				series->declared ? series->kvspec : "undeclared");
	}
	free(series);
	return rc;
}

/* "SERIES KVSPEC" */
static int hc_space_series_write(void *arg, const char *instance, const struct hc_vcaller *caller,
				 const char *line, FILE *answer, const atomic_bool *cancel_p)
{
	size_t n = strcspn(line, " \t");
	hc_autofree char *series = strndup(line, n);
	char why[512] = "";
	struct hc_space_info info;
	int rc = series ? hc_space_of(arg, instance, &info) : -ENOMEM;

	(void)caller;
	(void)cancel_p;
	if (!rc)
		rc = hc_series_declare(arg, &info, series, line + n + strspn(line + n, " \t"), why,
				       sizeof(why));
	if (rc)
		fprintf(answer, "error %s\n", why[0] ? why : strerror(-rc));
	else
		fputs("ok\n", answer);
	return rc;
}

static const struct hc_vfile hc_space_files[] = {
	{.name = "quota",
	 .mode = 0644,
	 .read = hc_space_quota_read,
	 .write = hc_space_quota_write,
	 .single = true},
	{.name = "max_age",
	 .mode = 0644,
	 .read = hc_space_age_read,
	 .write = hc_space_max_age_write,
	 .single = true},
	{.name = "priority",
	 .mode = 0644,
	 .read = hc_space_priority_read,
	 .write = hc_space_priority_write,
	 .single = true},
	{.name = "stats", .mode = 0444, .read = hc_space_stats_read},
	{.name = "series",
	 .mode = 0644,
	 .read = hc_space_series_read,
	 .write = hc_space_series_write},
	{.name = NULL},
};

const struct hc_vfile hc_control_files[] = {
	{.name = "version", .mode = 0444, .read = hc_file_version},
	{.name = "config", .mode = 0444, .read = hc_file_config},
	{.name = "stats", .mode = 0444, .read = hc_file_stats},
	{.name = "status", .mode = 0444, .read = hc_file_status},
	{.name = "metrics", .mode = 0444, .read = hc_file_metrics},
	{.name = "control", .mode = 0600, .write = hc_file_control, .background = true},
	{.name = "prefetch",
	 .mode = 0600,
	 .read = hc_file_prefetch_read,
	 .write = hc_file_prefetch_write},
	{.name = "spaces", .mode = 0755, .children = hc_space_files, .list = hc_spaces_list},
	{.name = NULL},
};
