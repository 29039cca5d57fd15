/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about pages: evict, pin, prefetch, series, drain. A command answers with lines `name
 * value`; a name that shows nothing is answered `missing NAME: WHY` and is no error. */
#include "fuse/commands.h"

#include <inttypes.h>

#include "model/kvspec.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/size.h"

#define HC_COMMANDS_WAIT_S  600u
#define HC_COMMANDS_TICK_NS (100 * HC_NS_PER_MS)
/* How long one step of evict waits for pages that are being written; a stop waits for it. */
#define HC_CONTROL_EVICT_NS (10 * HC_NS_PER_S)

/* --- words --- */

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

/* The next word as it was meant. *word_p NULL: no more. */
static int hc_call_name(struct hc_command_call *call, char **word_p)
{
	char *word = hc_call_word(call);

	if (word) {
		char shown[65];

		snprintf(shown, sizeof(shown), "%s", word);
		if (!hc_unescape(word)) {
			snprintf(call->why, sizeof(call->why),
				 "%s: a path is written with %%XX for blanks and %%", shown);
			return -EINVAL;
		}
	}
	*word_p = word;
	return 0;
}

/* What is printed of a name: one line. */
static const char *hc_shown(const char *text, char shown[512])
{
	snprintf(shown, 512, "%s", text);
	for (char *p = shown; *p; p++)
		*p = (uint8_t)*p < ' ' ? '?' : *p;
	return shown;
}

/* --- targets --- */

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

/* SERIES-HASH of a page that is there. */
static bool hc_key_find(struct hc_control *control, const char *text, struct hc_key *key_p)
{
	size_t n = strspn(text, "0123456789");
	struct hc_page_info info;
	char number[16];
	uint64_t series;

	if (!n || n >= sizeof(number) || text[n] != '-' || strlen(text + n + 1) != HC_HASH_TEXT - 1)
		return false;
	memcpy(number, text, n);
	number[n] = 0;
	if (hc_u64_parse(number, &series) || !series || series > UINT32_MAX ||
	    hc_hash_parse(text + n + 1, &key_p->hash))
		return false;
	key_p->series = (uint32_t)series;
	return !hc_node_stat(control->node, key_p, false, &info);
}

/* What a path begins with when it is told from the outside. */
static char *hc_below_mount(struct hc_control *control, char *path)
{
	const char *mount = control->options->mountpoint;
	size_t n = mount ? strlen(mount) : 0;

	while (n > 1 && mount[n - 1] == '/')
		n--;
	if (n && !strncmp(path, mount, n) && (path[n] == '/' || !path[n]))
		return path + n;
	return path;
}

int hc_target_find(struct hc_control *control, char *text, struct hc_target *target_p,
		   const char **why_p)
{
	struct hc_registry *registry = hc_node_registry(control->node);
	struct hc_target target = {.kind = HC_TARGET_PAGE};
	struct hc_file_info file;
	const char *name = "";
	int rc = 0;

	*why_p = "there is no such page or directory";
	if (!hc_key_find(control, text, &target.key)) {
		pthread_mutex_lock(&control->lock);
		text = hc_below_mount(control, text);
		pthread_mutex_unlock(&control->lock);
		rc = hc_path_walk(registry, text, &target.dir, &name);
		if (!rc && !*name)
			target.kind = HC_TARGET_DIR;
		else if (!rc)
			rc = hc_page_of_name(control, target.dir, name, &target.key);
		if (rc && *name && !hc_file_find(registry, target.dir, name, &file))
			*why_p = "this is an ordinary file, not a page";
	}
	if (rc == -ESTALE || rc == -EINVAL || rc == -ENAMETOOLONG)
		rc = -ENOENT;
	if (!rc)
		*target_p = target;
	return rc;
}

/* Calls `each` for the target of every word. */
typedef int (*hc_each_target_t)(struct hc_command_call *call, const struct hc_target *target,
				void *arg);

static int hc_call_targets(struct hc_command_call *call, hc_each_target_t each, void *arg)
{
	char *word, shown[512];
	int rc = 0;

	for (size_t n = 0; !rc && !*call->cancel_p; n++) {
		struct hc_target target;
		const char *why;

		rc = hc_call_name(call, &word);
		if (rc || (!word && n))
			break;
		if (!word) {
			snprintf(call->why, sizeof(call->why), "a path or a key is wanted");
			return -EINVAL;
		}
		hc_shown(word, shown);
		rc = hc_target_find(call->control, word, &target, &why);
		if (rc == -ENOENT) {
			fprintf(call->answer, "missing %s: %s\n", shown, why);
			rc = 0;
		} else if (!rc) {
			rc = each(call, &target, arg);
		}
	}
	return rc;
}

/* --- evict --- */

struct hc_evict_call {
	bool memory;
	struct hc_evict_result sum;
};

static int hc_evict_target(struct hc_command_call *call, const struct hc_target *target, void *arg)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_CONTROL_EVICT_NS;
	struct hc_node *node = call->control->node;
	struct hc_evict_call *evict = arg;
	struct hc_evict_result result;
	int rc;

	if (!target)
		rc = hc_node_evict(node, NULL, 0, evict->memory, deadline_ns, &result);
	else if (target->kind == HC_TARGET_DIR)
		rc = hc_node_evict_dir(node, target->dir, evict->memory, deadline_ns, &result);
	else
		rc = hc_node_evict(node, &target->key, 1, evict->memory, deadline_ns, &result);
	if (rc)
		return rc;
	evict->sum.n_evicted += result.n_evicted;
	evict->sum.bytes_evicted += result.bytes_evicted;
	evict->sum.n_kept += result.n_kept;
	return 0;
}

int hc_command_evict(struct hc_command_call *call)
{
	static const char memory[] = "memory";
	struct hc_evict_call evict = {0};
	size_t n = strspn(call->args, " \t");
	uint64_t n_left;
	int rc;

	if (!strncmp(call->args + n, memory, strlen(memory)) &&
	    strchr(" \t", call->args[n + strlen(memory)])) {
		hc_call_word(call);
		evict.memory = true;
		/* The long part, with progress. What cannot be written is kept, and counted. */
		if (hc_call_sync(call, hc_clock_now_ns() + HC_COMMANDS_WAIT_S * HC_NS_PER_S,
				 &n_left) &&
		    n_left)
			hc_info(HC_OPTIONS_LOG,
				"evict memory: %" PRIu64 " pages could not be written", n_left);
	}
	if (call->args[strspn(call->args, " \t")])
		rc = hc_call_targets(call, hc_evict_target, &evict);
	else
		rc = hc_evict_target(call, NULL, &evict);
	fprintf(call->answer, "evicted %" PRIu64 "\nbytes %" PRIu64 "\nkept %" PRIu64 "\n",
		evict.sum.n_evicted, evict.sum.bytes_evicted, evict.sum.n_kept);
	return rc;
}

/* --- pin --- */

struct hc_pin_call {
	int value;
	uint64_t n;
};

static int hc_pin_target(struct hc_command_call *call, const struct hc_target *target, void *arg)
{
	struct hc_pin_call *pin = arg;
	struct hc_page_info *pages = NULL;
	size_t n = 0;
	int rc;

	if (target->kind == HC_TARGET_PAGE) {
		rc = hc_node_hint_page(call->control->node, &target->key, HC_HINT_PINNED,
				       pin->value);
		pin->n += !rc;
		return rc == -ENOENT ? 0 : rc;
	}
	rc = hc_node_pages_below(call->control->node, target->dir, &pages, &n);
	for (size_t i = 0; !rc && i < n; i++) {
		rc = hc_node_hint_page(call->control->node, &pages[i].key, HC_HINT_PINNED,
				       pin->value);
		pin->n += !rc;
		rc = rc == -ENOENT ? 0 : rc;
	}
	free(pages);
	return rc;
}

int hc_command_pin(struct hc_command_call *call)
{
	struct hc_pin_call pin = {.value = 1};
	int rc = hc_call_targets(call, hc_pin_target, &pin);

	fprintf(call->answer, "pinned %" PRIu64 "\n", pin.n);
	return rc;
}

int hc_command_unpin(struct hc_command_call *call)
{
	struct hc_pin_call pin = {.value = HC_HINT_NONE};
	int rc = hc_call_targets(call, hc_pin_target, &pin);

	fprintf(call->answer, "unpinned %" PRIu64 "\n", pin.n);
	return rc;
}

/* --- prefetch --- */

struct hc_prefetch_call {
	struct hc_prefetch_job *job;
	uint64_t deadline_ns;
};

static int hc_prefetch_target(struct hc_command_call *call, const struct hc_target *target,
			      void *arg);

/* deadline_ns: of room in the queue, for each page. */
static int hc_prefetch_queue(struct hc_control *control, struct hc_prefetch_job *job,
			     const struct hc_target *target, uint64_t deadline_ns)
{
	struct hc_page_info *pages = NULL;
	size_t n = 0;
	int rc;

	if (target->kind == HC_TARGET_PAGE)
		return hc_prefetch_add(control->prefetcher, job, &target->key, deadline_ns);
	rc = hc_node_pages_below(control->node, target->dir, &pages, &n);
	for (size_t i = 0; !rc && i < n; i++)
		if (!pages[i].in_memory)
			rc = hc_prefetch_add(control->prefetcher, job, &pages[i].key, deadline_ns);
	free(pages);
	return rc;
}

static int hc_prefetch_target(struct hc_command_call *call, const struct hc_target *target,
			      void *arg)
{
	const struct hc_prefetch_call *prefetch = arg;

	return hc_prefetch_queue(call->control, prefetch->job, target, prefetch->deadline_ns);
}

int hc_prefetch_line(struct hc_control *control, char *text, uint64_t deadline_ns,
		     const char **why_p)
{
	struct hc_target target;
	int rc = hc_target_find(control, text, &target, why_p);

	return rc ? rc : hc_prefetch_queue(control, NULL, &target, deadline_ns);
}

int hc_command_prefetch(struct hc_command_call *call)
{
	struct hc_prefetcher *prefetcher = call->control->prefetcher;
	struct hc_prefetch_call prefetch = {
		.job = hc_prefetch_job_begin(prefetcher),
		.deadline_ns = hc_clock_now_ns() + HC_COMMANDS_WAIT_S * HC_NS_PER_S,
	};
	struct hc_prefetch_stats stats;
	bool done = false;
	int rc;

	if (!prefetch.job)
		return -ENOMEM;
	rc = hc_call_targets(call, hc_prefetch_target, &prefetch);
	while (!done && !*call->cancel_p && hc_clock_now_ns() < prefetch.deadline_ns) {
		done = hc_prefetch_job_wait(prefetcher, prefetch.job,
					    hc_clock_now_ns() + HC_COMMANDS_TICK_NS);
		hc_prefetch_stats(prefetcher, prefetch.job, &stats);
		if (stats.n_asked)
			hc_call_progress(call, stats.n_asked - stats.n_queued, stats.n_asked);
	}
	hc_prefetch_stats(prefetcher, prefetch.job, &stats);
	hc_prefetch_job_end(prefetcher, prefetch.job);
	fprintf(call->answer,
		"loaded %" PRIu64 "\nresident %" PRIu64 "\ngone %" PRIu64 "\nfailed %" PRIu64
		"\nleft %" PRIu64 "\n",
		stats.sum.n_loaded, stats.sum.n_resident, stats.sum.n_missing, stats.sum.n_failed,
		stats.n_queued);
	if (!rc && !done) {
		snprintf(call->why, sizeof(call->why),
			 "%" PRIu64 " pages are still to be read; that goes on", stats.n_queued);
		rc = -ETIMEDOUT;
	}
	return rc;
}

/* --- series --- */

/* The pattern of a series that is named by its number or its pattern. */
static int hc_series_pattern(struct hc_registry *registry, uint32_t space, const char *text,
			     struct hc_series_info *info)
{
	uint64_t id;
	int rc = -ENOENT;

	if (!hc_u64_parse(text, &id) && id <= UINT32_MAX)
		rc = hc_series_get(registry, (uint32_t)id, info);
	if (!rc && info->space != space)
		rc = -ENOENT;
	if (rc && strlen(text) < sizeof(info->pattern) && strchr(text, '{')) {
		snprintf(info->pattern, sizeof(info->pattern), "%s", text);
		rc = 0;
	}
	return rc;
}

int hc_series_declare(struct hc_control *control, const struct hc_space_info *space,
		      const char *series, const char *kvspec, char *why, size_t why_bytes)
{
	struct hc_registry *registry = hc_node_registry(control->node);
	struct hc_series_info *info = malloc(sizeof(*info));
	struct hc_kvspec *spec = malloc(sizeof(*spec));
	char error[HC_KVSPEC_ERROR_BYTES], text[HC_KVSPEC_TEXT_BYTES];
	int rc = info && spec ? hc_series_pattern(registry, space->id, series, info) : -ENOMEM;
	uint32_t id;

	if (rc == -ENOENT)
		snprintf(why, why_bytes,
			 "%.128s: space %.64s has no such series; .hicache/spaces/%.64s/series "
			 "lists "
			 "them",
			 series, space->name, space->name);
	if (!rc) {
		rc = hc_kvspec_parse(kvspec, spec, error);
		if (rc)
			snprintf(why, why_bytes, "%s", error);
	}
	if (!rc) {
		hc_kvspec_format(spec, text);
		rc = hc_series_open(registry, space->id, info->pattern, text, true, &id);
		if (rc == -EEXIST)
			snprintf(why, why_bytes,
				 "series %.128s is declared already, as something else; pages of "
				 "another kind need a series of their own",
				 series);
	}
	if (!rc)
		hc_info(HC_OPTIONS_LOG, "space %s: series %u is %s", space->name, id, text);
	free(info);
	free(spec);
	return rc;
}

int hc_command_series(struct hc_command_call *call)
{
	const char *verb = hc_call_word(call);
	char *space_name = NULL, *series = NULL;
	struct hc_space_info space;
	int rc = 0;

	if (verb && !strcmp(verb, "set"))
		rc = hc_call_name(call, &space_name);
	if (!rc && space_name)
		rc = hc_call_name(call, &series);
	if (rc)
		return rc;
	if (!series || !call->args[strspn(call->args, " \t")]) {
		snprintf(call->why, sizeof(call->why), "series set SPACE SERIES KVSPEC is wanted");
		return -EINVAL;
	}
	if (!strcmp(space_name, HC_CONTROL_ROOT_SPACE))
		snprintf(space_name, 2, ".");
	rc = hc_space_find(hc_node_registry(call->control->node), space_name, &space);
	if (rc) {
		snprintf(call->why, sizeof(call->why), "%.128s: there is no such space",
			 space_name);
		return rc;
	}
	return hc_series_declare(call->control, &space, series, call->args, call->why,
				 sizeof(call->why));
}

/* --- drain --- */

static uint64_t hc_n_bodies(struct hc_control *control)
{
	struct hc_fs_stats stats = {0};

	if (control->fs)
		hc_fs_stats(control->fs, &stats);
	return stats.n_bodies;
}

/* A moment, so that others can work. */
static void hc_drain_pause(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t never;

	hc_cond_init(&never);
	pthread_mutex_lock(&lock);
	hc_ignore(hc_cond_wait_until(&never, &lock, hc_clock_now_ns() + HC_COMMANDS_TICK_NS));
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&never);
	pthread_mutex_destroy(&lock);
}

int hc_command_drain(struct hc_command_call *call)
{
	struct hc_node *node = call->control->node;
	uint64_t seconds = HC_COMMANDS_WAIT_S, n_left = 0, n_bodies, deadline_ns;
	size_t n = strspn(call->args, " \t");
	struct hc_node_stats stats;
	int rc;

	if (!strcmp(call->args + n, "end")) {
		hc_node_drain(node, false);
		return 0;
	}
	rc = hc_call_seconds(call, "drain", &seconds);
	if (rc)
		return rc;
	deadline_ns = hc_clock_now_ns() + seconds * HC_NS_PER_S;
	hc_node_drain(node, true);
	/* Bodies become pages, which are written then. */
	do {
		n_bodies = hc_n_bodies(call->control);
		rc = hc_call_sync(call, hc_min_u64(deadline_ns, hc_clock_now_ns() + HC_NS_PER_S),
				  &n_left);
		if (n_bodies)
			hc_drain_pause();
	} while ((n_bodies || rc == -ETIMEDOUT) && hc_clock_now_ns() < deadline_ns &&
		 !*call->cancel_p);
	n_bodies = hc_n_bodies(call->control);
	hc_node_stats(node, &stats);
	fprintf(call->answer, "left %" PRIu64 "\nbodies %" PRIu64 "\nheld %" PRIu64 "\n", n_left,
		n_bodies, stats.n_refs);
	if (!rc && !n_bodies)
		return 0;
	snprintf(call->why, sizeof(call->why),
		 "%" PRIu64 " pages are not on disk and %" PRIu64
		 " files are still being written; drain end takes new pages again",
		 n_left, n_bodies);
	return rc ? rc : -ETIMEDOUT;
}
