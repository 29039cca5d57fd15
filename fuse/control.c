/* SPDX-License-Identifier: Apache-2.0 */
/* Control files, and the commands of `control`. See control.h; the status is in status.c. */
#include "fuse/control.h"

#include <inttypes.h>

#include "config.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/size.h"

#define HC_CONTROL_SLICE_NS    (HC_NS_PER_S / 2)
#define HC_CONTROL_PROGRESS_NS (100 * HC_NS_PER_MS)
#define HC_CONTROL_WAIT_S      600u
/* How long one step of evict waits for pages that are being written; a stop waits for it. */
#define HC_CONTROL_EVICT_NS (10 * HC_NS_PER_S)

/* --- commands --- */

struct hc_command_call {
	struct hc_control *control;
	char *args; /* rest of the line, words to be cut off */
	FILE *answer;
	const volatile bool *cancel_p;
	uint64_t next_ns; /* of progress */
	char why[256];    /* of an error, when it is not the errno's text */
};

static char *hc_call_word(struct hc_command_call *call)
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

static void hc_call_progress(struct hc_command_call *call, uint64_t done, uint64_t total)
{
	uint64_t now_ns = hc_clock_now_ns();

	if (now_ns < call->next_ns && done != total)
		return;
	call->next_ns = now_ns + HC_CONTROL_PROGRESS_NS;
	fprintf(call->answer, "progress %" PRIu64 " %" PRIu64 "\n", done, total);
	fflush(call->answer);
}

static int hc_call_no_words(struct hc_command_call *call)
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
static int hc_sync_slices(struct hc_command_call *call, uint64_t deadline_ns, uint64_t *n_left_p)
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

static int hc_command_sync(struct hc_command_call *call)
{
	const char *word = hc_call_word(call);
	uint64_t seconds = HC_CONTROL_WAIT_S, n_left = 0;
	int rc;

	if (word && (hc_u64_parse(word, &seconds) || !seconds || seconds > 86400)) {
		snprintf(call->why, sizeof(call->why),
			 "sync %.64s: seconds from 1 to 86400 are wanted", word);
		return -EINVAL;
	}
	rc = hc_sync_slices(call, hc_clock_now_ns() + seconds * HC_NS_PER_S, &n_left);
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
	uint64_t n_removed = 0, bytes = 0;
	int rc = hc_call_no_words(call);

	if (!rc)
		rc = hc_node_gc(call->control->node, &n_removed, &bytes);
	if (!rc)
		fprintf(call->answer, "removed %" PRIu64 "\nbytes %" PRIu64 "\n", n_removed, bytes);
	return rc;
}

/* --- evict --- */

/* Undoes %XX in place; false for a bad escape or a NUL. */
static bool hc_unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned high, low;

		if (*text != '%') {
			*to++ = *text;
			continue;
		}
		if (sscanf(text + 1, "%1x%1x", &high, &low) != 2 || !(high | low))
			return false;
		*to++ = (char)(high << 4 | low);
		text += 2;
	}
	*to = 0;
	return true;
}

struct hc_evict_call {
	struct hc_command_call *call;
	bool memory;
	struct hc_evict_result sum;
};

static void hc_evict_add(struct hc_evict_call *evict, const struct hc_evict_result *result)
{
	evict->sum.n_evicted += result->n_evicted;
	evict->sum.bytes_evicted += result->bytes_evicted;
	evict->sum.n_kept += result->n_kept;
}

/* The page of a name, whatever it looked like when it was published. */
static int hc_page_of_name(struct hc_control *control, uint32_t dir, const char *name,
			   struct hc_key *key_p)
{
	struct hc_registry *registry = hc_node_registry(control->node);
	struct hc_page_info info;
	struct hc_name resolved;
	bool opaque;
	int rc = hc_name_resolve(registry, dir, name, false, &resolved);

	if (!rc && resolved.known && resolved.kind != HC_NAME_TEMPORARY) {
		*key_p = resolved.key;
		rc = hc_node_stat(control->node, key_p, false, &info);
		if (!rc)
			return 0;
	}
	rc = hc_name_resolve_page(registry, dir, name, false, key_p, &opaque);
	return rc ? rc : hc_node_stat(control->node, key_p, false, &info);
}

/* Walks the directories of a path. *name_p: the last component, "" when the path is a directory. */
static int hc_path_walk(struct hc_registry *registry, char *path, uint32_t *dir_p,
			const char **name_p)
{
	struct hc_dir_info info;
	uint32_t dir = HC_DIR_ROOT;
	char *name;

	*name_p = "";
	while ((name = strsep(&path, "/"))) {
		if (!*name || !strcmp(name, "."))
			continue;
		if (**name_p)
			return -ENOENT;
		if (hc_dir_find(registry, dir, name, &info))
			*name_p = name;
		else
			dir = info.id;
	}
	*dir_p = dir;
	return 0;
}

static int hc_evict_path(struct hc_evict_call *evict, char *path)
{
	struct hc_control *control = evict->call->control;
	struct hc_registry *registry = hc_node_registry(control->node);
	struct hc_evict_result result = {0};
	struct hc_file_info file;
	const char *name, *why = "there is no such page or directory";
	char shown[512];
	struct hc_key key;
	uint32_t dir;
	int rc;

	snprintf(shown, sizeof(shown), "%s", path);
	for (char *p = shown; *p; p++)
		*p = (uint8_t)*p < ' ' ? '?' : *p;
	rc = hc_path_walk(registry, path, &dir, &name);
	if (!rc && !*name) {
		rc = hc_node_evict_dir(control->node, dir, evict->memory,
				       hc_clock_now_ns() + HC_CONTROL_EVICT_NS, &result);
	} else if (!rc) {
		rc = hc_page_of_name(control, dir, name, &key);
		if (rc && !hc_file_find(registry, dir, name, &file))
			why = "this is an ordinary file, not a page; rm removes it";
		if (!rc)
			rc = hc_node_evict(control->node, &key, 1, evict->memory,
					   hc_clock_now_ns() + HC_CONTROL_EVICT_NS, &result);
	}
	if (!rc)
		hc_evict_add(evict, &result);
	else if (rc == -ENOENT || rc == -ESTALE || rc == -EINVAL || rc == -ENAMETOOLONG)
		fprintf(evict->call->answer, "missing %s: %s\n", shown, why);
	else
		return rc;
	return 0;
}

static int hc_command_evict(struct hc_command_call *call)
{
	struct hc_evict_call evict = {.call = call};
	struct hc_evict_result result;
	char *word = hc_call_word(call);
	uint64_t n_left;
	int rc = 0;

	evict.memory = word && !strcmp(word, "memory");
	if (evict.memory) {
		word = hc_call_word(call);
		/* The long part, with progress. What cannot be written is kept, and counted. */
		if (hc_sync_slices(call, hc_clock_now_ns() + HC_CONTROL_WAIT_S * HC_NS_PER_S,
				   &n_left) &&
		    n_left)
			hc_info(HC_OPTIONS_LOG,
				"evict memory: %" PRIu64 " pages could not be written", n_left);
	}
	if (!word) {
		rc = hc_node_evict(call->control->node, NULL, 0, evict.memory,
				   hc_clock_now_ns() + HC_CONTROL_EVICT_NS, &result);
		if (!rc)
			hc_evict_add(&evict, &result);
	}
	for (; word && !rc && !*call->cancel_p; word = hc_call_word(call)) {
		if (hc_unescape(word)) {
			rc = hc_evict_path(&evict, word);
			continue;
		}
		snprintf(call->why, sizeof(call->why),
			 "%.64s: a path is written with %%XX for blanks and %%", word);
		rc = -EINVAL;
	}
	fprintf(call->answer, "evicted %" PRIu64 "\nbytes %" PRIu64 "\nkept %" PRIu64 "\n",
		evict.sum.n_evicted, evict.sum.bytes_evicted, evict.sum.n_kept);
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
	{"help", hc_command_help, "help: this text"},
};

static int hc_command_help(struct hc_command_call *call)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_commands); i++)
		fprintf(call->answer, "%s\n", hc_commands[i].usage);
	return 0;
}

int hc_control_command(struct hc_control *control, const char *line, FILE *answer,
		       const volatile bool *cancel_p)
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
			   const char *line, FILE *answer, const volatile bool *cancel_p)
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
					   FILE *answer, const volatile bool *cancel_p)       \
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

static const struct hc_vfile hc_space_files[] = {
	{.name = "quota", .mode = 0644, .read = hc_space_quota_read, .write = hc_space_quota_write},
	{.name = "max_age",
	 .mode = 0644,
	 .read = hc_space_age_read,
	 .write = hc_space_max_age_write},
	{.name = "priority",
	 .mode = 0644,
	 .read = hc_space_priority_read,
	 .write = hc_space_priority_write},
	{.name = "stats", .mode = 0444, .read = hc_space_stats_read},
	{.name = "series", .mode = 0444, .read = hc_space_series_read},
	{.name = NULL},
};

const struct hc_vfile hc_control_files[] = {
	{.name = "version", .mode = 0444, .read = hc_file_version},
	{.name = "config", .mode = 0444, .read = hc_file_config},
	{.name = "stats", .mode = 0444, .read = hc_file_stats},
	{.name = "status", .mode = 0444, .read = hc_file_status},
	{.name = "control", .mode = 0600, .write = hc_file_control, .background = true},
	{.name = "spaces", .mode = 0755, .children = hc_space_files, .list = hc_spaces_list},
	{.name = NULL},
};
