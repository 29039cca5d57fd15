/* SPDX-License-Identifier: Apache-2.0 */
/* hicache.h: opening, spaces, series, hashes, numbers. Goal: what is not the same is never taken
 * for the same; what cannot be done is refused with the reason and the remedy, and changes nothing.
 * Method: real directories under TMPDIR, the log caught. */
#include "hicache-rig.h"

#include "node/registry.h"

/* --- opening --- */

static void test_version_and_log(void **state)
{
	assert_non_null(strchr(hicache_version(), '.'));
	assert_int_equal(hicache_log_level_set(HICACHE_LOG_TRACE + 1), -EINVAL);
	assert_error("log level 5");
	assert_int_equal(hicache_log_level_set(-1), -EINVAL);
	assert_int_equal(hicache_log_level_set(HICACHE_LOG_INFO), 0);
}

static void test_open_refusals(void **state)
{
	struct hicache_params params = {.size = sizeof(params), .pool_bytes = RIG_POOL};
	struct {
		struct hicache_params params;
		uint64_t more;
	} newer = {{.size = sizeof(newer), .pool_bytes = RIG_POOL}, 0};

	assert_int_equal(hicache_open(NULL, NULL, &rig_hc), -EINVAL);
	assert_int_equal(hicache_open("dir:", NULL, &rig_hc), -EINVAL);
	assert_int_equal(hicache_open("mem:x", NULL, &rig_hc), -EINVAL);
	assert_int_equal(hicache_open(rig_dir, NULL, &rig_hc), -EINVAL);
	assert_error("dir:PATH");
	assert_int_equal(hicache_open("dir:/nonexistent/cache", &params, &rig_hc), -ENOENT);
	assert_error("/nonexistent/cache does not exist: make it");
	params.size = 0;
	assert_int_equal(hicache_open("mem:", &params, &rig_hc), -EINVAL);
	assert_error("set it to sizeof");
	params.size = sizeof(params);
	params.flags = 0x80;
	assert_int_equal(hicache_open("mem:", &params, &rig_hc), -EINVAL);
	assert_error("unknown bits");
	params.flags = 0;
	params.backup = 4;
	assert_int_equal(hicache_open("mem:", &params, &rig_hc), -EINVAL);
	assert_error("backup is 4");
	params.backup = 0;
	params.flags = HICACHE_OPEN_NOINIT;
	assert_int_equal(hicache_open(rig_where, &params, &rig_hc), -ENOENT);
	assert_error("noinit");
	assert_null(rig_hc);
	/* A larger structure is good as long as it asks for nothing unknown. */
	newer.more = 1;
	assert_int_equal(hicache_open("mem:", &newer.params, &rig_hc), -E2BIG);
	assert_error("does not know");
	newer.more = 0;
	assert_int_equal(hicache_open("mem:", &newer.params, &rig_hc), 0);
	assert_int_equal(hicache_close(rig_hc), 0);
	/* A smaller one too. */
	params = (struct hicache_params){.size = offsetof(struct hicache_params, segment_bytes),
					 .pool_bytes = RIG_POOL};
	params.flags = 0x80;
	assert_int_equal(hicache_open("mem:", &params, &rig_hc), 0);
	assert_int_equal(hicache_close(rig_hc), 0);
	assert_int_equal(hicache_close(NULL), 0);
}

static void test_busy(void **state)
{
	struct hc_registry_config config = {.cachedir = rig_dir, .root = {.mode = 0755}};
	struct hicache_params params = {.size = sizeof(params), .pool_bytes = RIG_POOL};
	struct hc_registry *registry;
	struct hicache *other = NULL;
	char pid[32];
	bool rebuild;

	snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
	rig_open(rig_where);
	assert_int_equal(hicache_open(rig_where, &params, &other), -EBUSY);
	assert_non_null(strstr(rig_error, pid));
	assert_non_null(strstr(rig_error, rig_dir));
	assert_error("embeds the cache");
	rig_close();
	/* A daemon holds it. */
	assert_int_equal(hc_registry_open(&config, &registry, &rebuild), 0);
	assert_int_equal(hicache_open(rig_where, &params, &other), -EBUSY);
	assert_non_null(strstr(rig_error, pid));
	assert_error("a hicachefs daemon");
	assert_null(other);
	hc_registry_close(registry);
	rig_open(rig_where);
	rig_close();
}

static void test_close_waits_for_its_users(void **state)
{
	struct hicache_page pages[2];
	struct hicache_hash h[1];
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 1);
	rig_publish(h, 1);
	assert_int_equal(hicache_acquire(rig_series, h, 1, 0, pages, &n), 0);
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 1, RIG_TIMEOUT, pages + 1, &n), 0);
	assert_int_equal(hicache_close(rig_hc), -EBUSY);
	assert_error("1 leased and 1 reserved pages are held and 2 spaces, series");
	/* Each is given back its own way; a mistake does not lose the others. */
	assert_int_equal(hicache_release(rig_hc, pages, 2), -EINVAL);
	assert_error("publish or abort");
	assert_null(pages[0].data);
	assert_non_null(pages[1].data);
	assert_int_equal(hicache_close(rig_hc), -EBUSY);
	assert_error("0 leased and 1 reserved");
	assert_int_equal(hicache_acquire(rig_series, h, 1, 0, pages, &n), 0);
	assert_int_equal(hicache_abort(rig_hc, pages, 2), -EINVAL);
	assert_error("release it");
	assert_non_null(pages[0].data);
	assert_int_equal(hicache_release(rig_hc, pages, 2), 0);
	assert_int_equal(hicache_close(rig_hc), -EBUSY);
	assert_error("2 spaces, series");
	rig_close();
}

static int refused_in_child(const struct hicache_hash *h)
{
	struct hicache_series_info info = {.size = sizeof(info)};
	struct hicache_space *space;
	struct hicache_series *series;
	struct hicache_page page = {0};
	int result = 0;
	uint64_t v;
	size_t n;

	if (hicache_exists_prefix(&rig_series, 1, h, 1, 0, &n) != -ESTALE ||
	    hicache_acquire(rig_series, h, 1, 0, &page, &n) != -ESTALE ||
	    hicache_reserve(rig_series, 0, -1, 1, 0, &page, &n) != -ESTALE ||
	    hicache_publish(rig_series, &page, h, 1, NULL, &result) != -ESTALE ||
	    hicache_release(rig_hc, &page, 1) != -ESTALE ||
	    hicache_abort(rig_hc, &page, 1) != -ESTALE ||
	    hicache_remove(rig_series, h, 1, &n) != -ESTALE ||
	    hicache_pin(rig_series, h, 1, &n) != -ESTALE)
		return 1;
	if (hicache_space_open(rig_hc, "m", 0, NULL, &space) != -ESTALE ||
	    hicache_series_open(rig_space, RIG_SPEC, NULL, 0, &series) != -ESTALE ||
	    hicache_sync(rig_hc, 0, NULL) != -ESTALE ||
	    hicache_sync_pages(rig_series, h, 1, 0) != -ESTALE ||
	    hicache_drop_memory(rig_hc, 0, NULL, NULL) != -ESTALE ||
	    hicache_space_clear(rig_space, 0, NULL, NULL) != -ESTALE ||
	    hicache_stats_get(rig_hc, "published", &v) != -ESTALE)
		return 2;
	if (hicache_series_close(rig_series) != -ESTALE ||
	    hicache_space_close(rig_space) != -ESTALE || hicache_close(rig_hc) != -ESTALE)
		return 3;
	return hicache_series_get(rig_series, &info) ? 4 : 0;
}

static void test_fork(void **state)
{
	struct hicache_hash h[2];
	int status = -1;
	pid_t pid;

	rig_open(rig_where);
	rig_chain(1, h, 2);
	rig_publish(h, 2);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(refused_in_child(h));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	rig_expect(rig_series, h, 2, 0);
	rig_close();
	rig_open(rig_where);
	rig_expect(rig_series, h, 2, 0);
	rig_close();
}

/* A child that lives on does not keep the directory locked. */
static void test_fork_and_reopen(void **state)
{
	int ends[2], status = -1;
	pid_t pid;
	char c;

	assert_int_equal(pipe(ends), 0);
	rig_open(rig_where);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(ends[1]);
		_exit(read(ends[0], &c, 1) ? 1 : 0);
	}
	close(ends[0]);
	rig_close();
	rig_open(rig_where);
	rig_close();
	close(ends[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* --- spaces --- */

static void test_space_refusals(void **state)
{
	struct hicache_space_params params = {.size = sizeof(params)};
	struct hicache_space *space = NULL;

	rig_open("mem:");
	assert_int_equal(hicache_space_open(rig_hc, "absent", 0, NULL, &space), -ENOENT);
	assert_int_equal(hicache_space_open(rig_hc, "", HICACHE_CREATE, NULL, &space), -EINVAL);
	assert_int_equal(hicache_space_open(rig_hc, "a/b", HICACHE_CREATE, NULL, &space), -EINVAL);
	assert_error("one directory name");
	assert_int_equal(hicache_space_open(rig_hc, "..", HICACHE_CREATE, NULL, &space), -EINVAL);
	assert_int_equal(hicache_space_open(rig_hc, ".hicache", HICACHE_CREATE, NULL, &space),
			 -EINVAL);
	assert_error(".hicache");
	assert_int_equal(hicache_space_open(rig_hc, "m", 0x10, NULL, &space), -EINVAL);
	params.set = HICACHE_SET_PRIORITY;
	params.priority = 256;
	assert_int_equal(hicache_space_open(rig_hc, "m", 0, &params, &space), -EINVAL);
	assert_error("priority 256");
	assert_null(space);
	rig_close();
}

static void test_space_settings_stay(void **state)
{
	struct hicache_space_params params = {.size = sizeof(params),
					      .quota_bytes = 123 * RIG_PAGE,
					      .max_age_s = 77,
					      .priority = 9,
					      .set = HICACHE_SET_QUOTA | HICACHE_SET_MAX_AGE |
						     HICACHE_SET_PRIORITY,
					      .mode = 0700};
	struct hicache_space_info info = {.size = sizeof(info)};
	struct hicache_space *space;

	rig_open(rig_where);
	assert_int_equal(hicache_space_open(rig_hc, "n", HICACHE_CREATE, &params, &space), 0);
	/* What is not named stays. */
	params.set = HICACHE_SET_PRIORITY;
	params.quota_bytes = 1;
	params.priority = 10;
	assert_int_equal(hicache_space_set(space, &params), 0);
	assert_int_equal(hicache_space_close(space), 0);
	rig_close();
	rig_open(rig_where);
	assert_int_equal(hicache_space_open(rig_hc, "n", 0, NULL, &space), 0);
	assert_int_equal(hicache_space_get(space, &info), 0);
	assert_int_equal(info.quota_bytes, 123 * RIG_PAGE);
	assert_int_equal(info.max_age_s, 77);
	assert_int_equal(info.priority, 10);
	assert_int_equal(info.mode, 0700);
	assert_int_equal(info.uid, geteuid());
	assert_int_equal(info.n_series, 0);
	assert_int_equal(hicache_space_close(space), 0);
	rig_close();
}

/* Clear of one space leaves the others alone, also that of the root and one with the same hashes.
 */
static void test_clear_one_space(void **state)
{
	struct hicache_series *series[2];
	struct hicache_space *spaces[2];
	struct hicache_hash h[6];
	uint64_t removed, kept;

	rig_open(rig_where);
	rig_chain(1, h, 6);
	rig_publish(h, 6);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			hicache_space_open(rig_hc, i ? "." : "n", HICACHE_CREATE, NULL, &spaces[i]),
			0);
		assert_int_equal(
			hicache_series_open(spaces[i], RIG_SPEC, NULL, HICACHE_CREATE, &series[i]),
			0);
		rig_publish_into(series[i], h, 6, (uint8_t)(i + 1), 0);
	}
	assert_int_equal(hicache_space_clear(spaces[1], RIG_TIMEOUT, &removed, &kept), 0);
	assert_int_equal(removed, 6);
	assert_int_equal(kept, 0);
	assert_int_equal(rig_prefix(series[1], h, 6), 0);
	rig_expect(rig_series, h, 6, 0);
	rig_expect(series[0], h, 6, 1);
	assert_int_equal(hicache_space_clear(rig_space, RIG_TIMEOUT, &removed, &kept), 0);
	assert_int_equal(removed, 6);
	assert_int_equal(rig_prefix(rig_series, h, 6), 0);
	rig_expect(series[0], h, 6, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(hicache_series_close(series[i]), 0);
		assert_int_equal(hicache_space_close(spaces[i]), 0);
	}
	rig_close();
	/* On disk as well. */
	rig_open(rig_where);
	assert_int_equal(rig_prefix(rig_series, h, 6), 0);
	assert_int_equal(hicache_space_open(rig_hc, "n", 0, NULL, &spaces[0]), 0);
	assert_int_equal(hicache_series_open(spaces[0], RIG_SPEC, NULL, 0, &series[0]), 0);
	rig_expect(series[0], h, 6, 1);
	assert_int_equal(hicache_series_close(series[0]), 0);
	assert_int_equal(hicache_space_close(spaces[0]), 0);
	rig_close();
}

/* --- series --- */

/* Another model, revision, dtype, layout, page length, rank or component never hits. */
static void test_other_specs_never_hit(void **state)
{
	static const char *const specs[] = {
		"model=org/n attention=mha layers=2 kv_heads=2 head_dim=16 dtype=fp16 "
		"page_tokens=16 layout=page_unified",
		"model=org/m revision=b attention=mha layers=2 kv_heads=2 head_dim=16 dtype=fp16 "
		"page_tokens=16 layout=page_unified",
		"model=org/m attention=mha layers=2 kv_heads=2 head_dim=16 dtype=bf16 "
		"page_tokens=16 layout=page_unified",
		"model=org/m attention=mha layers=2 kv_heads=2 head_dim=16 dtype=fp16 "
		"page_tokens=16 layout=page_first",
		"model=org/m attention=mha layers=2 kv_heads=2 head_dim=16 dtype=fp16 "
		"page_tokens=32 layout=page_unified",
		"model=org/m attention=mha layers=2 kv_heads=2 head_dim=16 dtype=fp16 "
		"page_tokens=16 layout=page_unified tp=1/2",
		"model=org/m attention=mha layers=2 kv_heads=2 head_dim=16 dtype=fp16 "
		"page_tokens=16 layout=page_unified pp=0/2",
		"model=org/m component=draft attention=mha layers=2 kv_heads=2 head_dim=16 "
		"dtype=fp16 page_tokens=16 layout=page_unified",
	};
	struct hicache_series *series;
	struct hicache_hash h[4];

	rig_open("mem:");
	rig_chain(1, h, 4);
	rig_publish(h, 4);
	for (size_t i = 0; i < HC_ARRAY_SIZE(specs); i++) {
		assert_int_equal(hicache_series_open(rig_space, specs[i], NULL, 0, &series),
				 -ENOENT);
		assert_int_equal(
			hicache_series_open(rig_space, specs[i], NULL, HICACHE_CREATE, &series), 0);
		assert_int_equal(rig_prefix(series, h, 4), 0);
		rig_expect_miss(series, h);
		assert_int_equal(hicache_series_close(series), 0);
	}
	/* The same in other words is the same. */
	assert_int_equal(hicache_series_open(rig_space,
					     "layout=page_unified page_tokens=16 dtype=fp16 "
					     "head_dim=16 kv_heads=2 layers=2 attention=mha "
					     "dp=0/1 model=org/m",
					     NULL, 0, &series),
			 0);
	rig_expect(series, h, 4, 0);
	assert_int_equal(hicache_series_close(series), 0);
	rig_close();
}

static void test_series_info(void **state)
{
	struct hicache_series_info info = {.size = sizeof(info)};
	struct hicache_series *series;
	char pattern[64];

	rig_open("mem:");
	assert_int_equal(hicache_series_get(rig_series, &info), 0);
	assert_int_equal(info.page_bytes, RIG_PAGE);
	assert_int_equal(hicache_series_page_bytes(rig_series), RIG_PAGE);
	assert_int_equal(info.page_tokens, 16);
	assert_int_equal(info.hash_digits, 64);
	assert_int_equal(strlen(info.fingerprint), 16);
	snprintf(pattern, sizeof(pattern), "s-%s/{64}.kv", info.fingerprint);
	assert_string_equal(info.pattern, pattern);
	assert_non_null(strstr(info.kvspec, "model=org/m"));
	/* By the pattern alone it is the same series, with what is known of it. */
	assert_int_equal(hicache_series_open(rig_space, NULL, pattern, 0, &series), 0);
	assert_int_equal(hicache_series_page_bytes(series), RIG_PAGE);
	assert_int_equal(hicache_series_close(series), 0);
	assert_int_equal(
		hicache_series_open(rig_space, NULL, "x_{32}.bin", HICACHE_CREATE, &series), 0);
	assert_int_equal(hicache_series_get(series, &info), 0);
	assert_int_equal(info.page_bytes, 0);
	assert_int_equal(info.hash_digits, 32);
	assert_string_equal(info.kvspec, "");
	assert_string_equal(info.fingerprint, "");
	assert_int_equal(hicache_series_close(series), 0);
	rig_close();
}

static void test_series_refusals(void **state)
{
	struct hicache_series *series = NULL;
	struct hicache_space *root;

	rig_open("mem:");
	assert_int_equal(hicache_series_open(rig_space, NULL, NULL, HICACHE_CREATE, &series),
			 -EINVAL);
	assert_int_equal(hicache_series_open(rig_space, "model=x", NULL, HICACHE_CREATE, &series),
			 -EINVAL);
	assert_error("kvspec 'model=x': ");
	assert_int_equal(hicache_series_open(rig_space, NULL, "nohash", HICACHE_CREATE, &series),
			 -EINVAL);
	assert_error("'nohash'");
	assert_int_equal(hicache_series_open(rig_space, NULL, "{opaque}", HICACHE_CREATE, &series),
			 -EINVAL);
	assert_int_equal(hicache_series_open(rig_space, NULL, "../{64}", HICACHE_CREATE, &series),
			 -EINVAL);
	assert_int_equal(hicache_series_open(rig_space, RIG_SPEC, NULL, 0x80, &series), -EINVAL);
	assert_int_equal(hicache_space_open(rig_hc, ".", 0, NULL, &root), 0);
	assert_int_equal(hicache_series_open(root, NULL, "d/{64}", HICACHE_CREATE, &series),
			 -EINVAL);
	assert_error("spaces of their own");
	assert_null(series);
	assert_int_equal(hicache_space_close(root), 0);
	rig_close();
}

/* Wrong layout is silent garbage: nobody guesses what the bytes of a pattern mean. */
static void test_declaring_a_series(void **state)
{
	static const char pattern[] = "{2}/{64}.bin";
	static const char other[] = "model=org/z attention=mha layers=2 kv_heads=2 head_dim=16 "
				    "dtype=fp16 page_tokens=16 layout=page_unified";
	struct hicache_series *series, *declared = NULL;
	struct hicache_page page;
	struct hicache_hash h[2];
	int result;
	size_t n;

	rig_open(rig_where);
	rig_chain(1, h, 2);
	assert_int_equal(
		hicache_series_open(rig_space, RIG_SPEC, pattern, HICACHE_DECLARE, &series),
		-ENOENT);
	assert_int_equal(hicache_series_open(rig_space, NULL, pattern, HICACHE_CREATE, &series), 0);
	/* Pages of two sizes, one of them not that of the kvspec to come. */
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(
			hicache_reserve(series, RIG_PAGE << i, -1, 1, RIG_TIMEOUT, &page, &n), 0);
		page_fill(&page, &h[i], 0);
		assert_int_equal(hicache_publish(series, &page, &h[i], 1, NULL, &result), 0);
		assert_int_equal(result, 0);
	}
	rig_expect(series, h, 2, 0);
	assert_int_equal(
		hicache_series_open(rig_space, RIG_SPEC, pattern, HICACHE_CREATE, &declared),
		-ENODATA);
	assert_error("HICACHE_DECLARE");
	assert_null(declared);
	assert_int_equal(
		hicache_series_open(rig_space, RIG_SPEC, pattern, HICACHE_DECLARE, &declared), 0);
	rig_expect(declared, h, 1, 0);
	rig_expect_miss(declared, h + 1);
	assert_int_equal(rig_stat("n_held"), 0);
	assert_int_equal(hicache_series_close(series), 0);
	assert_int_equal(hicache_series_close(declared), 0);
	assert_int_equal(hicache_series_open(rig_space, other, pattern, HICACHE_DECLARE, &declared),
			 -EEXIST);
	assert_error("another kvspec");
	rig_close();
	rig_open(rig_where);
	assert_int_equal(hicache_series_open(rig_space, RIG_SPEC, pattern, 0, &declared), 0);
	rig_expect(declared, h, 1, 0);
	assert_int_equal(hicache_series_close(declared), 0);
	rig_close();
}

/* A hash that the names of the series cannot hold is dropped, its neighbours are published. */
static void test_short_hashes(void **state)
{
	struct hicache_page pages[3];
	struct hicache_series *series;
	struct hicache_hash h[3];
	int results[3];
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 3);
	for (size_t i = 0; i < 3; i += 2)
		memset(h[i].bytes + 8, 0, 24);
	assert_int_equal(hicache_series_open(rig_space, NULL, "b_{16}", HICACHE_CREATE, &series),
			 0);
	assert_int_equal(hicache_reserve(series, 100, -1, 3, RIG_TIMEOUT, pages, &n), 0);
	assert_int_equal(n, 3);
	for (size_t i = 0; i < 3; i++)
		page_fill(&pages[i], &h[i], 0);
	assert_int_equal(hicache_publish(series, pages, h, 3, NULL, results), 0);
	assert_int_equal(results[0], 0);
	assert_int_equal(results[1], -EINVAL);
	assert_int_equal(results[2], 0);
	assert_error("can hold its hash");
	rig_expect(series, h, 1, 0);
	rig_expect_miss(series, h + 1);
	rig_expect(series, h + 2, 1, 0);
	assert_int_equal(hicache_series_close(series), 0);
	rig_close();
}

/* A call that is wrong as a whole consumes nothing. */
static void test_publish_refusals(void **state)
{
	struct hicache_publish_params params = {.size = sizeof(params)};
	uint64_t sizes[2] = {RIG_PAGE, RIG_PAGE / 2};
	struct hicache_page pages[2], none = {0};
	struct hicache_hash h[2];
	int results[2];
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 2);
	assert_int_equal(hicache_reserve(rig_series, RIG_PAGE / 2, -1, 1, 0, pages, &n), -EINVAL);
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 0, 0, pages, &n), -EINVAL);
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 2, RIG_TIMEOUT, pages, &n), 0);
	params.sizes_bytes = sizes;
	assert_int_equal(hicache_publish(rig_series, pages, h, 2, &params, results), -EINVAL);
	assert_error("page 1 has 2048 bytes");
	params.sizes_bytes = NULL;
	params.size = 1;
	assert_int_equal(hicache_publish(rig_series, pages, h, 2, &params, results), -EINVAL);
	assert_int_equal(hicache_publish(rig_series, &none, h, 1, NULL, results), -EINVAL);
	assert_error("no reservation");
	page_fill(&pages[0], &h[0], 0);
	page_fill(&pages[1], &h[1], 0);
	assert_int_equal(hicache_publish(rig_series, pages, h, 2, NULL, results), 0);
	assert_int_equal(results[0] | results[1], 0);
	rig_expect(rig_series, h, 2, 0);
	assert_int_equal(hicache_publish(rig_series, pages, h, 0, NULL, results), 0);
	rig_close();
}

static void expect_place(const struct hicache_hash *hash, const struct hicache_hash *parent,
			 uint32_t depth)
{
	struct hicache_page_info info = rig_info(hash);

	assert_memory_equal(&info.parent, parent, sizeof(*parent));
	assert_int_equal(info.depth, depth);
}

/* A tail of a chain, and pages of several chains in one batch. */
static void test_publish_parents(void **state)
{
	struct hicache_publish_params params = {.size = sizeof(params)};
	struct hicache_hash h[4], g[2], parents[2];
	uint32_t depths[2] = {3, 0};
	struct hicache_page pages[2];
	int results[2];
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 4);
	rig_chain(99, g, 1);
	rig_publish(h, 1);
	params.parent = &h[0];
	params.depth = 1;
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 2, RIG_TIMEOUT, pages, &n), 0);
	assert_int_equal(hicache_publish(rig_series, pages, h + 1, 2, &params, results), 0);
	assert_int_equal(results[0] | results[1], 0);
	expect_place(&h[1], &h[0], 1);
	expect_place(&h[2], &h[1], 2);
	parents[0] = h[2];
	memset(&parents[1], 0, sizeof(parents[1]));
	params = (struct hicache_publish_params){
		.size = sizeof(params), .parents = parents, .depths = depths};
	g[1] = g[0];
	g[0] = h[3];
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 2, RIG_TIMEOUT, pages, &n), 0);
	assert_int_equal(hicache_publish(rig_series, pages, g, 2, &params, results), 0);
	expect_place(&h[3], &h[2], 3);
	expect_place(&g[1], &parents[1], 0);
	rig_close();
}

/* --- hashes and numbers --- */

static void test_page_hash(void **state)
{
	struct hicache_hash_params params = {
		.size = sizeof(params), .page_tokens = 64, .token_bytes = 4};
	struct hicache_hash h[8], g[8];
	struct hc_hash expect[8];
	uint32_t tokens[300];
	uint64_t wide[300];
	char text[65];
	size_t n;

	for (uint32_t i = 0; i < 300; i++)
		wide[i] = tokens[i] = i * 7919u % 50000u;
	assert_int_equal(hc_pagehash_chain(hc_tokens_u32(tokens, 300), 64, false, NULL, expect, &n),
			 0);
	assert_int_equal(hicache_page_count(300, 64, 0), 4);
	assert_int_equal(hicache_page_hash(&params, tokens, 300, h, 8, &n), 0);
	assert_int_equal(n, 4);
	assert_memory_equal(h, expect, 4 * 32);
	params.token_bytes = 8;
	assert_int_equal(hicache_page_hash(&params, wide, 300, g, 4, &n), 0);
	assert_memory_equal(h, g, 4 * 32);
	/* The rest of a prompt is chained to what is known of it. */
	params.prior = &h[1];
	assert_int_equal(hicache_page_hash(&params, wide + 128, 172, g, 4, &n), 0);
	assert_int_equal(n, 2);
	assert_memory_equal(h + 2, g, 2 * 32);
	params.prior = NULL;
	params.flags = HICACHE_HASH_BIGRAM;
	assert_int_equal(hicache_page_count(257, 64, HICACHE_HASH_BIGRAM), 4);
	assert_int_equal(hicache_page_count(256, 64, HICACHE_HASH_BIGRAM), 3);
	assert_int_equal(hc_pagehash_chain(hc_tokens_u32(tokens, 300), 64, true, NULL, expect, &n),
			 0);
	assert_int_equal(hicache_page_hash(&params, wide, 300, g, 4, &n), 0);
	assert_memory_equal(expect, g, 4 * 32);
	hicache_hash_format(&g[0], text);
	assert_int_equal(strlen(text), 64);
	assert_int_equal(hicache_hash_parse(text, &h[0]), 0);
	assert_memory_equal(&h[0], &g[0], 32);
	text[5] = 'A';
	assert_int_equal(hicache_hash_parse(text, &h[0]), -EINVAL);
	assert_int_equal(hicache_hash_parse("ab", &h[0]), -EINVAL);
}

/* Tenants and adapters: equal tokens, other names; an empty key is a key. */
static void test_hash_namespaces(void **state)
{
	struct hicache_hash_params params[6];
	struct hicache_hash h[6], prior;
	uint32_t tokens[16] = {1, 2, 3};
	size_t n;

	for (int i = 0; i < 6; i++)
		params[i] = (struct hicache_hash_params){
			.size = sizeof(params[i]), .page_tokens = 16, .token_bytes = 4};
	params[1].extra_key = "";
	params[2].extra_key = "lora-1";
	params[2].extra_key_bytes = 6;
	params[3].salt = "lora-1";
	params[3].salt_bytes = 6;
	params[4].extra_key = "lora-1";
	params[4].extra_key_bytes = 6;
	params[4].salt = "s";
	params[4].salt_bytes = 1;
	params[5].extra_key = "lora-2";
	params[5].extra_key_bytes = 6;
	for (int i = 0; i < 6; i++)
		assert_int_equal(hicache_page_hash(&params[i], tokens, 16, &h[i], 1, &n), 0);
	for (int i = 0; i < 6; i++) {
		for (int k = 0; k < i; k++)
			assert_memory_not_equal(&h[i], &h[k], 32);
	}
	/* A prior hash has its namespace in it already. */
	prior = h[2];
	for (int i = 0; i < 6; i++) {
		params[i].prior = &prior;
		assert_int_equal(hicache_page_hash(&params[i], tokens, 16, &h[i], 1, &n), 0);
		assert_memory_equal(&h[i], &h[0], 32);
	}
}

static void test_hash_refusals(void **state)
{
	struct hicache_hash_params params = {
		.size = sizeof(params), .page_tokens = 2, .token_bytes = 8};
	uint64_t tokens[4] = {1, 2, (uint64_t)-1, 4};
	struct hicache_hash h[2];
	size_t n = 99;

	assert_int_equal(hicache_page_hash(NULL, tokens, 4, h, 2, &n), -EINVAL);
	assert_int_equal(hicache_page_hash(&params, tokens, 4, h, 2, &n), -ERANGE);
	assert_error("negative");
	assert_int_equal(hicache_page_hash(&params, tokens, 4, h, 1, &n), -ENOSPC);
	assert_error("4 tokens make 2 pages");
	assert_int_equal(hicache_page_hash(&params, NULL, 4, h, 2, &n), -EINVAL);
	params.token_bytes = 2;
	assert_int_equal(hicache_page_hash(&params, tokens, 2, h, 2, &n), -EINVAL);
	assert_error("4 or 8");
	params.token_bytes = 8;
	params.page_tokens = 0;
	assert_int_equal(hicache_page_hash(&params, tokens, 2, h, 2, &n), -EINVAL);
	params.page_tokens = 2;
	params.flags = 2;
	assert_int_equal(hicache_page_hash(&params, tokens, 2, h, 2, &n), -EINVAL);
	assert_int_equal(n, 99);
	params.flags = 0;
	assert_int_equal(hicache_page_hash(&params, tokens, 1, NULL, 0, &n), 0);
	assert_int_equal(n, 0);
}

struct seen {
	size_t n;
	char names[128][40];
	uint64_t values[128];
};

static int see(void *arg, const char *name, uint64_t value)
{
	struct seen *seen = arg;

	if (seen->n == 128)
		return -ENOSPC;
	snprintf(seen->names[seen->n], sizeof(seen->names[0]), "%s", name);
	seen->values[seen->n++] = value;
	return 0;
}

static int stop_at_once(void *arg, const char *name, uint64_t value)
{
	(void)name;
	(void)value;
	++*(int *)arg;
	return 7;
}

/* Names are told once each, in the same order; get and each agree; counters rise. */
static void test_stats(void **state)
{
	struct seen *before = calloc(1, sizeof(*before)), *after = calloc(1, sizeof(*after));
	struct hicache_hash h[8];
	uint64_t value;
	int calls = 0;

	assert_true(before && after);
	rig_open("mem:");
	assert_int_equal(hicache_stats_each(rig_hc, see, before), 0);
	rig_chain(1, h, 8);
	rig_publish(h, 8);
	rig_expect(rig_series, h, 8, 0);
	rig_expect_miss(rig_series, &(struct hicache_hash){{1}});
	assert_int_equal(hicache_stats_each(rig_hc, see, after), 0);
	assert_int_equal(before->n, after->n);
	for (size_t i = 0; i < after->n; i++) {
		assert_string_equal(before->names[i], after->names[i]);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(after->names[i], after->names[k]);
		assert_true(after->values[i] >= before->values[i]);
	}
	assert_int_equal(rig_stat("published"), 8);
	assert_int_equal(rig_stat("published_bytes"), 8 * RIG_PAGE);
	assert_int_equal(rig_stat("hits_memory"), 8);
	assert_int_equal(rig_stat("misses"), 1);
	assert_int_equal(rig_stat("n_pages"), 8);
	assert_int_equal(rig_stat("memory_bytes"), 8 * RIG_PAGE);
	assert_int_equal(rig_stat("pool_bytes"), RIG_POOL);
	assert_int_equal(hicache_stats_get(rig_hc, "no such", &value), -ENOENT);
	assert_error("'no such'");
	assert_int_equal(hicache_stats_each(rig_hc, stop_at_once, &calls), 7);
	assert_int_equal(calls, 1);
	rig_close();
	free(before);
	free(after);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_begin, rig_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ONE(test_version_and_log),
		ONE(test_open_refusals),
		ONE(test_busy),
		ONE(test_close_waits_for_its_users),
		ONE(test_fork),
		ONE(test_fork_and_reopen),
		ONE(test_space_refusals),
		ONE(test_space_settings_stay),
		ONE(test_clear_one_space),
		ONE(test_other_specs_never_hit),
		ONE(test_series_info),
		ONE(test_series_refusals),
		ONE(test_declaring_a_series),
		ONE(test_short_hashes),
		ONE(test_publish_refusals),
		ONE(test_publish_parents),
		ONE(test_page_hash),
		ONE(test_hash_namespaces),
		ONE(test_hash_refusals),
		ONE(test_stats),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
