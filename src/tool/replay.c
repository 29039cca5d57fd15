/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl replay: a trace through a real node in memory, with real pages. For each request:
 * acquire the longest cached prefix (its pages are read and compared), publish the blocks behind
 * it, touch the whole chain as one batch. The pool has exactly `capacity` slots to give: what it
 * has beyond them stays reserved. Eviction is the node's own. */
#include "tool/tool.h"

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "model/pagehash.h"
#include "node/node.h"
#include "tool/trace.h"
#include "util/clock.h"
#include "util/size.h"

#define HC_REPLAY_POPULATE_NS (600 * HC_NS_PER_S)
#define HC_REPLAY_WAIT_NS     (60 * HC_NS_PER_S)
#define HC_REPLAY_PAGE_MAX    (64 * HC_MIB)

struct hc_replay_args {
	const char *path;
	uint64_t capacity_pages; /* 0: by percent */
	double capacity_percent;
	uint64_t page_bytes;
	bool json;
};

struct hc_replay {
	struct hc_node *node;
	struct hc_domain domain;
	uint32_t series;
	uint64_t page_bytes;
	uint64_t capacity;
	/* What the pool has too much, reserved to the end. */
	struct hc_ref *filler;
	size_t n_filler;
	/* Of one request, room for the longest. */
	struct hc_hash *hashes;
	struct hc_ref *refs;
	struct hc_publish *items;
	int *results;
	uint8_t *page;
	size_t n_held;
	/* results */
	uint64_t n_blocks, n_hits, n_published, n_full, n_different;
};

/* --- arguments --- */

static int hc_percent_arg(const char *text, double *percent_p)
{
	char *end;

	if (!*text || strspn(text, "0123456789.") != strlen(text))
		return -EINVAL;
	*percent_p = strtod(text, &end);
	return *end || *percent_p <= 0 || *percent_p > 100 ? -EINVAL : 0;
}

static int hc_replay_arg(struct hc_replay_args *args, int c)
{
	switch (c) {
	case 'n':
		if (hc_u64_parse(optarg, &args->capacity_pages) || !args->capacity_pages)
			return hc_tool_usage(
				"replay: --capacity-pages %s: a number of pages above 0 is wanted",
				optarg);
		return 0;
	case 'p':
		if (hc_percent_arg(optarg, &args->capacity_percent))
			return hc_tool_usage("replay: --capacity-percent %s: a percentage of the "
					     "unique blocks is wanted, "
					     "above 0 and up to 100",
					     optarg);
		return 0;
	case 'b':
		if (hc_size_parse(optarg, &args->page_bytes) || args->page_bytes < 8 ||
		    args->page_bytes > HC_REPLAY_PAGE_MAX)
			return hc_tool_usage(
				"replay: --page-bytes %s: a size from 8 to 64M is wanted", optarg);
		return 0;
	default:
		args->json = true;
		return 0;
	}
}

static int hc_replay_args_parse(int argc, char **argv, struct hc_replay_args *args)
{
	static const struct option options[] = {
		{"capacity-pages", required_argument, NULL, 'n'},
		{"capacity-percent", required_argument, NULL, 'p'},
		{"page-bytes", required_argument, NULL, 'b'},
		{"json", no_argument, NULL, 'j'},
		{0},
	};
	int c, status = 0;

	while (!status && (c = getopt_long(argc, argv, ":", options, NULL)) != -1)
		status =
			c == ':' || c == '?' ? hc_tool_bad_option(c, argv) : hc_replay_arg(args, c);
	if (status)
		return status;
	if (args->capacity_pages && args->capacity_percent > 0)
		return hc_tool_usage(
			"replay: --capacity-pages and --capacity-percent exclude each other");
	if (argc - optind != 1)
		return hc_tool_usage("replay: %s", optind == argc ? "a trace FILE is missing"
								  : "more than one FILE");
	args->path = argv[optind];
	return 0;
}

/* --- the cache --- */

/* Holds back what the pool has beyond the capacity. */
static int hc_replay_fill(struct hc_replay *replay)
{
	uint64_t slot_bytes = hc_pool_slot_bytes(replay->page_bytes), total, n;
	struct hc_reserve how = {
		.space = HC_SPACE_ROOT,
		.size_bytes = replay->page_bytes,
		.numa_node = -1,
		.domain = replay->domain,
	};
	struct hc_node_stats stats;

	hc_node_stats(replay->node, &stats);
	total = stats.pool.size_bytes / stats.pool.segment_bytes *
		(stats.pool.segment_bytes / slot_bytes);
	if (total < replay->capacity) {
		hc_tool_error("the pool has %llu slots, %llu are wanted", (unsigned long long)total,
			      (unsigned long long)replay->capacity);
		return -ENOSPC;
	}
	n = total - replay->capacity;
	replay->filler = calloc(n + 1, sizeof(*replay->filler));
	if (!replay->filler)
		return -ENOMEM;
	while (replay->n_filler < n) {
		size_t got = 0;
		int rc;

		how.deadline_ns = hc_clock_now_ns() + HC_REPLAY_POPULATE_NS;
		rc = hc_node_reserve(replay->node, &how, n - replay->n_filler,
				     replay->filler + replay->n_filler, &got);
		if (rc) {
			hc_tool_error("memory for the pages: %s", strerror(-rc));
			return rc;
		}
		replay->n_filler += got;
	}
	return 0;
}

static int hc_replay_open(struct hc_replay *replay)
{
	uint64_t slot_bytes = hc_pool_slot_bytes(replay->page_bytes);
	uint64_t segment_bytes = hc_max_u64(hc_align_up(slot_bytes, 2 * HC_MIB), 2 * HC_MIB);
	uint64_t slots = segment_bytes / slot_bytes;
	uint64_t n_segments = (replay->capacity + slots - 1) / slots;
	struct hc_node_config config = {
		.embedded = true,
		.disk_off = true,
		.no_evictor = true,
		.high_ppm = 1000000,
		.low_ppm = 1000000,
		.max_page_bytes = hc_max_u64(slot_bytes, 4096),
		.index_bytes = 1024 * replay->capacity + 256 * HC_MIB,
		.root = {(uint32_t)getuid(), (uint32_t)getgid(), 0700},
	};
	struct hc_space_info space;
	int rc;

	/* Few and large segments are quicker to make than many. */
	while (n_segments > 16 && segment_bytes < HC_GIB) {
		segment_bytes *= 2;
		slots = segment_bytes / slot_bytes;
		n_segments = (replay->capacity + slots - 1) / slots;
	}
	config.segment_bytes = segment_bytes;
	config.pool_bytes = n_segments * segment_bytes;
	rc = hc_node_open(&config, &replay->node);
	if (rc)
		return rc;
	rc = hc_space_get(hc_node_registry(replay->node), HC_SPACE_ROOT, &space);
	if (rc)
		return rc;
	replay->domain = (struct hc_domain){space.owner.uid, space.owner.gid, space.owner.mode};
	rc = hc_series_open(hc_node_registry(replay->node), HC_SPACE_ROOT, "{64}", NULL, true,
			    &replay->series);
	return rc ? rc : hc_replay_fill(replay);
}

static int hc_replay_create(struct hc_replay *replay, const struct hc_trace *trace)
{
	uint32_t longest = 1;

	for (size_t i = 0; i < trace->n_requests; i++)
		longest = trace->requests[i].n > longest ? trace->requests[i].n : longest;
	replay->hashes = calloc(longest, sizeof(*replay->hashes));
	replay->refs = calloc(longest, sizeof(*replay->refs));
	replay->items = calloc(longest, sizeof(*replay->items));
	replay->results = calloc(longest, sizeof(*replay->results));
	replay->page = malloc(replay->page_bytes);
	if (!replay->hashes || !replay->refs || !replay->items || !replay->results || !replay->page)
		return -ENOMEM;
	return hc_replay_open(replay);
}

static void hc_replay_destroy(struct hc_replay *replay)
{
	if (replay->node && replay->n_filler)
		hc_node_abort(replay->node, replay->filler, replay->n_filler);
	if (replay->node)
		hc_node_close(replay->node, NULL);
	free(replay->filler);
	free(replay->hashes);
	free(replay->refs);
	free(replay->items);
	free(replay->results);
	free(replay->page);
}

/* --- pages --- */

/* Every word of a page tells its block and its place. */
static void hc_replay_content(uint64_t id, uint8_t *page, uint64_t size_bytes)
{
	for (uint64_t at = 0; at < size_bytes; at += 8) {
		uint64_t word = (id + 1) * 0x9e3779b97f4a7c15ull ^ (at + 1) * 0xbf58476d1ce4e5b9ull;

		memcpy(page + at, &word, hc_min_u64(8, size_bytes - at));
	}
}

/* How many pages of the prefix are cached; each is compared. They stay held. */
static int hc_replay_hits(struct hc_replay *replay, const uint64_t *ids, uint32_t n,
			  size_t *n_hits_p)
{
	struct hc_acquire how = {.series = replay->series,
				 .deadline_ns = hc_clock_now_ns() + HC_REPLAY_WAIT_NS};
	size_t n_hits = 0;
	int rc = hc_node_acquire(replay->node, &how, replay->hashes, n, replay->refs, &n_hits);

	if (rc && rc != -ENOENT)
		return rc;
	if (rc)
		n_hits = 0;
	for (size_t i = 0; i < n_hits; i++) {
		hc_replay_content(ids[i], replay->page, replay->page_bytes);
		if (replay->refs[i].size_bytes != replay->page_bytes ||
		    memcmp(replay->refs[i].data, replay->page, replay->page_bytes))
			replay->n_different++;
	}
	*n_hits_p = n_hits;
	return 0;
}

/* Publishes blocks first..n-1, which are all of the chain that is not held yet. They are held, too,
 * so that what makes room for them is never a part of their own chain. */
static int hc_replay_insert(struct hc_replay *replay, const uint64_t *ids, size_t first, uint32_t n)
{
	struct hc_acquire hold = {.series = replay->series};
	struct hc_reserve how = {
		.space = HC_SPACE_ROOT,
		.size_bytes = replay->page_bytes,
		.numa_node = -1,
		.domain = replay->domain,
	};
	size_t got = 0, n_held = 0;
	int rc;

	how.deadline_ns = hc_clock_now_ns() + HC_REPLAY_WAIT_NS;
	rc = hc_node_reserve(replay->node, &how, n - first, replay->refs + first, &got);
	if (rc)
		return rc;
	for (size_t i = first; i < first + got; i++) {
		hc_replay_content(ids[i], replay->refs[i].data, replay->page_bytes);
		replay->items[i] = (struct hc_publish){
			.key = {replay->series, replay->hashes[i]},
			.depth = (uint32_t)i,
			.size_bytes = replay->page_bytes,
			.owner = {replay->domain.uid, replay->domain.gid, 0600},
			.quiet = true,
		};
		if (i)
			replay->items[i].parent = replay->hashes[i - 1];
	}
	hc_node_publish(replay->node, replay->refs + first, replay->items + first, got,
			replay->results);
	for (size_t i = 0; i < got; i++) {
		if (replay->results[i])
			return replay->results[i];
	}
	replay->n_published += got;
	hold.deadline_ns = hc_clock_now_ns() + HC_REPLAY_WAIT_NS;
	rc = hc_node_acquire(replay->node, &hold, replay->hashes + first, got, replay->refs + first,
			     &n_held);
	replay->n_held = first + n_held;
	return rc ? rc : n_held == got ? 0 : -EIO;
}

static int hc_replay_request(struct hc_replay *replay, const uint64_t *ids, uint32_t n)
{
	size_t n_hits = 0;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		hc_sha256(&ids[i], sizeof(ids[i]), &replay->hashes[i]);
	rc = hc_replay_hits(replay, ids, n, &n_hits);
	if (rc)
		return rc;
	replay->n_blocks += n;
	replay->n_hits += n_hits;
	replay->n_full += n_hits == n;
	replay->n_held = n_hits;
	/* A chain that is longer than the cache keeps its first pages. */
	while (!rc && replay->n_held < hc_min_u64(n, replay->capacity))
		rc = hc_replay_insert(replay, ids, replay->n_held,
				      (uint32_t)hc_min_u64(n, replay->capacity));
	hc_node_release(replay->node, replay->refs, replay->n_held);
	/* One stamp for the whole chain. */
	hc_node_exists_prefix(replay->node, &replay->series, 1, replay->hashes, n, true);
	return rc;
}

/* --- the command --- */

static int hc_replay_print(const struct hc_replay_args *args, const struct hc_trace *trace,
			   const struct hc_replay *replay, uint64_t wall_ns)
{
	double ratio = replay->n_blocks ? (double)replay->n_hits / (double)replay->n_blocks : 0;
	double seconds = (double)wall_ns / 1e9;
	struct hc_node_stats stats;
	json_t *root;

	hc_node_stats(replay->node, &stats);
	if (args->json) {
		root = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}",
				 "file", args->path, "requests", (json_int_t)trace->n_requests,
				 "blocks", (json_int_t)replay->n_blocks, "unique_blocks",
				 (json_int_t)trace->n_unique, "capacity_pages",
				 (json_int_t)replay->capacity, "page_bytes",
				 (json_int_t)replay->page_bytes, "hits", (json_int_t)replay->n_hits,
				 "published", (json_int_t)replay->n_published, "evicted",
				 (json_int_t)stats.evicted_memory, "different",
				 (json_int_t)replay->n_different, "block_hit_ratio", ratio,
				 "seconds", seconds);
		if (!root) {
			hc_tool_error("out of memory");
			return HC_TOOL_FAILED;
		}
		json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
		putchar('\n');
		json_decref(root);
	} else {
		printf("requests         %zu, %llu of them cached wholly\n", trace->n_requests,
		       (unsigned long long)replay->n_full);
		printf("blocks           %llu, %llu of them unique\n",
		       (unsigned long long)replay->n_blocks, (unsigned long long)trace->n_unique);
		printf("capacity         %llu pages of %llu bytes (%.1f %% of the unique blocks)\n",
		       (unsigned long long)replay->capacity, (unsigned long long)replay->page_bytes,
		       100.0 * (double)replay->capacity / (double)trace->n_unique);
		printf("pages published  %llu\n", (unsigned long long)replay->n_published);
		printf("pages evicted    %llu\n", (unsigned long long)stats.evicted_memory);
		printf("pages compared   %llu, %llu of them wrong\n",
		       (unsigned long long)replay->n_hits, (unsigned long long)replay->n_different);
		printf("time             %.1f s\n", seconds);
		printf("block_hit_ratio  %.4f\n", ratio);
	}
	if (!replay->n_different)
		return 0;
	hc_tool_error("%llu pages came back with other bytes",
		      (unsigned long long)replay->n_different);
	return HC_TOOL_FAILED;
}

static int hc_replay_run(const struct hc_replay_args *args, const struct hc_trace *trace,
			 struct hc_replay *replay)
{
	struct hc_progress progress;
	uint64_t begin_ns;
	int rc = hc_replay_create(replay, trace);

	begin_ns = hc_clock_now_ns();
	hc_progress_begin(&progress, "replay");
	for (size_t i = 0; !rc && i < trace->n_requests; i++) {
		const struct hc_trace_request *request = &trace->requests[i];

		if (request->n)
			rc = hc_replay_request(replay, trace->ids + request->first, request->n);
		hc_progress_show(&progress, i + 1, trace->n_requests);
	}
	hc_progress_end(&progress);
	if (!rc)
		return hc_replay_print(args, trace, replay, hc_clock_now_ns() - begin_ns);
	hc_tool_error("the replay failed: %s", strerror(-rc));
	return HC_TOOL_FAILED;
}

int hc_tool_replay(const struct hc_tool *tool, int argc, char **argv)
{
	struct hc_replay_args args = {.page_bytes = 4096};
	struct hc_replay replay = {0};
	struct hc_trace trace;
	int status = hc_replay_args_parse(argc, argv, &args);

	(void)tool;
	if (status)
		return status;
	if (hc_trace_read(args.path, &trace))
		return HC_TOOL_FAILED;
	replay.page_bytes = args.page_bytes;
	replay.capacity = args.capacity_pages;
	if (args.capacity_percent > 0)
		replay.capacity = (uint64_t)floor(
			(double)trace.n_unique * args.capacity_percent / 100.0 + 1e-9);
	if (!args.capacity_pages && args.capacity_percent <= 0)
		replay.capacity = trace.n_unique;
	if (!replay.capacity) {
		hc_tool_error("%s: this percentage of %llu unique blocks is no page at all",
			      args.path, (unsigned long long)trace.n_unique);
		status = HC_TOOL_FAILED;
	} else {
		status = hc_replay_run(&args, &trace, &replay);
	}
	hc_replay_destroy(&replay);
	hc_trace_free(&trace);
	return status;
}
