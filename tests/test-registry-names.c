/* SPDX-License-Identifier: Apache-2.0 */
/* node/registry.h: directories, spaces, series, names of pages, ordinary files. Goal: each rule of
 * the header, before and after a restart. */
#include "registry-test.h"

/* --- directories and spaces --- */

static void check_names(struct hc_registry *registry)
{
	struct hc_dir_info info;
	char longest[300];

	memset(longest, 'a', sizeof(longest));
	longest[256] = 0;
	assert_int_equal(hc_dir_make(registry, 1, longest, &user_owner, &info), -ENAMETOOLONG);
	longest[255] = 0;
	assert_int_equal(hc_dir_make(registry, 1, longest, &user_owner, &info), 0);
	assert_int_equal(hc_dir_remove(registry, 1, longest, 0), 0);
	assert_int_equal(hc_dir_make(registry, 1, ".hicache", &user_owner, &info), -EINVAL);
	assert_int_equal(hc_dir_make(registry, 1, ".", &user_owner, &info), -EINVAL);
	assert_int_equal(hc_dir_make(registry, 1, "..", &user_owner, &info), -EINVAL);
	assert_int_equal(hc_dir_make(registry, 1, "", &user_owner, &info), -EINVAL);
	assert_int_equal(hc_dir_make(registry, 1, "a/b", &user_owner, &info), -EINVAL);
	assert_int_equal(hc_dir_make(registry, 999, "a", &user_owner, &info), -ENOENT);
}

static void test_dirs(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_dir_info info, *list;
	char path[HC_PATH_BYTES];
	uint32_t a, b, c, space = 0;
	size_t n;

	check_names(registry);
	a = mkdir_at(registry, 1, "a");
	b = mkdir_at(registry, a, "b");
	c = mkdir_at(registry, b, "c {x}");
	assert_int_equal(hc_dir_make(registry, a, "b", &user_owner, &info), -EEXIST);
	assert_int_equal(hc_dir_path(registry, c, path, &space), 0);
	assert_string_equal(path, "b/c {x}");
	assert_int_equal(hc_dir_path(registry, a, path, &space), 0);
	assert_string_equal(path, "");
	assert_int_equal(hc_dir_path(registry, 1, path, &space), 0);
	assert_int_equal(space, HC_SPACE_ROOT);
	assert_int_equal(hc_dir_remove(registry, a, "b", 0), -ENOTEMPTY);
	assert_int_equal(hc_dir_remove(registry, b, "c {x}", 1), -ENOTEMPTY);
	assert_int_equal(hc_dir_remove(registry, b, "d", 0), -ENOENT);
	assert_int_equal(hc_dir_list(registry, a, &list, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(list[0].id, b);
	assert_int_equal(list[0].n_dirs, 1);
	free(list);
	info.owner = (struct hc_owner){5, 6, 01777};
	info.mtime_ns = 77;
	assert_int_equal(hc_dir_set(registry, b, &info, HC_DIR_SET_MODE | HC_DIR_SET_MTIME), 0);
	hc_registry_close(registry);

	registry = open_dir();
	assert_int_equal(hc_dir_get(registry, b, &info), 0);
	assert_int_equal(info.owner.mode, 01777);
	assert_int_equal(info.owner.uid, 1000);
	assert_int_equal(info.mtime_ns, 77);
	assert_int_equal(hc_dir_find(registry, b, "c {x}", &info), 0);
	assert_int_equal(info.id, c);
	assert_int_equal(hc_dir_remove(registry, b, "c {x}", 0), 0);
	assert_int_equal(hc_dir_find(registry, b, "c {x}", &info), -ENOENT);
	/* The highest id went, and is not given again. */
	hc_registry_close(registry);
	registry = open_dir();
	assert_true(mkdir_at(registry, b, "c {x}") > c);
	hc_registry_close(registry);
}

static void test_deep(void **state)
{
	struct hc_registry *registry = open_memory();
	struct hc_dir_info info;
	char name[HC_NAME_BYTES], path[HC_PATH_BYTES];
	uint32_t at = mkdir_at(registry, 1, "s"), space;

	memset(name, 'x', 255);
	name[255] = 0;
	/* 15 * 256 + 255 = 4095 bytes fit, one more component does not. */
	for (int i = 0; i < 16; i++)
		at = mkdir_at(registry, at, name);
	assert_int_equal(hc_dir_path(registry, at, path, &space), 0);
	assert_int_equal(strlen(path), 4095);
	assert_int_equal(hc_dir_make(registry, at, "y", &user_owner, &info), -ENAMETOOLONG);
	hc_registry_close(registry);
}

static void test_spaces(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_space_info info, *list;
	struct hc_dir_info dir;
	uint32_t id = mkdir_at(registry, 1, "m 1"), first;
	size_t n;

	assert_int_equal(hc_space_find(registry, "m 1", &info), 0);
	first = info.id;
	assert_int_equal(info.dir, id);
	assert_int_equal(info.owner.uid, 1000);
	assert_int_equal(hc_space_find(registry, "nobody", &info), -ENOENT);
	assert_int_equal(hc_space_find(registry, ".", &info), 0);
	assert_int_equal(info.id, HC_SPACE_ROOT);
	assert_int_equal(info.owner.uid, 10);
	/* Below the root it is a directory like any other. */
	assert_int_equal(hc_dir_get(registry, mkdir_at(registry, id, "m 2"), &dir), 0);
	assert_int_equal(dir.space, first);
	assert_int_equal(hc_space_find(registry, "m 2", &info), -ENOENT);
	info.quota_bytes = 1000;
	info.max_age_s = 60;
	info.priority = 9;
	assert_int_equal(
		hc_space_set(registry, first, &info, HC_SPACE_SET_QUOTA | HC_SPACE_SET_MAX_AGE), 0);
	assert_int_equal(hc_space_set(registry, 77, &info, HC_SPACE_SET_QUOTA), -ENOENT);
	assert_int_equal(hc_space_list(registry, &list, &n), 0);
	assert_int_equal(n, 2);
	free(list);
	hc_registry_close(registry);
	registry = open_dir();
	assert_int_equal(hc_space_get(registry, first, &info), 0);
	assert_string_equal(info.name, "m 1");
	assert_int_equal(info.quota_bytes, 1000);
	assert_int_equal(info.max_age_s, 60);
	assert_int_equal(info.priority, 0);
	hc_registry_close(registry);
}

/* What is preset holds for a space that is there and for one that comes later, and outlives a
 * restart. */
static void test_space_presets(void **state)
{
	static const struct hc_space_preset presets[] = {
		{.name = "early", .what = HC_SPACE_SET_QUOTA, .quota_bytes = 7, .max_age_s = 99},
		{.name = "late",
		 .what = HC_SPACE_SET_MAX_AGE | HC_SPACE_SET_PRIORITY,
		 .max_age_s = 60,
		 .priority = 3},
	};
	struct hc_registry *registry = open_dir();
	struct hc_space_info info;

	mkdir_at(registry, 1, "early");
	assert_int_equal(hc_space_presets(registry, presets, 2), 0);
	mkdir_at(registry, 1, "late");
	assert_int_equal(hc_space_find(registry, "early", &info), 0);
	assert_int_equal(info.quota_bytes, 7);
	assert_int_equal(info.max_age_s, 0);
	hc_registry_close(registry);
	registry = open_dir();
	assert_int_equal(hc_space_find(registry, "late", &info), 0);
	assert_int_equal(info.quota_bytes, 0);
	assert_int_equal(info.max_age_s, 60);
	assert_int_equal(info.priority, 3);
	/* Presets are of a run, not of the directory. */
	mkdir_at(registry, 1, "after");
	assert_int_equal(hc_space_presets(registry, NULL, 0), 0);
	assert_int_equal(hc_space_find(registry, "early", &info), 0);
	assert_int_equal(info.quota_bytes, 7);
	hc_registry_close(registry);
}

static void test_space_quota(void **state)
{
	struct hc_registry *registry = open_memory();
	struct hc_space_info info = {.quota_bytes = 100};
	uint32_t id;

	mkdir_at(registry, 1, "s");
	assert_int_equal(hc_space_find(registry, "s", &info), 0);
	id = info.id;
	info.quota_bytes = 100;
	assert_int_equal(hc_space_set(registry, id, &info, HC_SPACE_SET_QUOTA), 0);
	assert_int_equal(hc_space_use(registry, id, 100, false), 0);
	assert_int_equal(hc_space_use(registry, id, 1, false), -EDQUOT);
	assert_int_equal(hc_space_used(registry, id), 100);
	assert_int_equal(hc_space_use(registry, id, 1, true), 0);
	assert_int_equal(hc_space_use(registry, id, -101, false), 0);
	assert_int_equal(hc_space_used(registry, id), 0);
	assert_int_equal(hc_space_use(registry, 99, 1, false), -ENOENT);
	/* No quota: no limit. */
	assert_int_equal(hc_space_use(registry, HC_SPACE_ROOT, INT64_MAX, false), 0);
	hc_registry_close(registry);
}

static void test_space_gone(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_space_info info;
	uint32_t space, series, other;

	mkdir_at(registry, 1, "s");
	assert_int_equal(hc_space_find(registry, "s", &info), 0);
	space = info.id;
	assert_int_equal(hc_series_open(registry, space, "m_{64}.bin", NULL, true, &series), 0);
	assert_int_equal(hc_series_space(registry, series), space);
	assert_int_equal(hc_dir_remove(registry, 1, "s", 0), 0);
	assert_int_equal(hc_series_space(registry, series), 0);
	assert_int_equal(hc_space_get(registry, space, &info), -ENOENT);
	for (int i = 0; i < 2; i++) {
		mkdir_at(registry, 1, "s");
		assert_int_equal(hc_space_find(registry, "s", &info), 0);
		assert_true(info.id > space);
		assert_int_equal(
			hc_series_open(registry, info.id, "m_{64}.bin", NULL, true, &other), 0);
		assert_true(other > series);
		assert_int_equal(hc_series_space(registry, series), 0);
		assert_int_equal(hc_dir_remove(registry, 1, "s", 0), 0);
		hc_registry_close(registry);
		registry = open_dir();
		assert_int_equal(hc_space_find(registry, "s", &info), -ENOENT);
	}
	hc_registry_close(registry);
}

static void test_rename(void **state)
{
	struct hc_registry *registry = open_dir();
	uint32_t a = mkdir_at(registry, 1, "a"), b = mkdir_at(registry, 1, "b"), series;
	uint32_t x = mkdir_at(registry, a, "x"), y = mkdir_at(registry, x, "y");
	struct hc_dir_info info;
	struct hc_space_info space;
	struct hc_file_info file;
	uint64_t replaced;

	assert_int_equal(hc_dir_rename(registry, a, "x", b, "x", 0), -EXDEV);
	assert_int_equal(hc_dir_rename(registry, x, "y", a, "z", 1), -EXDEV);
	assert_int_equal(hc_dir_rename(registry, x, "y", y, "z", 0), -EINVAL);
	assert_int_equal(hc_dir_rename(registry, x, "none", a, "z", 0), -ENOENT);
	assert_int_equal(hc_dir_rename(registry, x, "y", 1, "z", 0), -EXDEV);
	assert_int_equal(hc_dir_rename(registry, 1, "b", a, "b", 0), -EXDEV);
	assert_int_equal(hc_dir_rename(registry, x, "y", x, "y", 0), 0);
	/* To another space, and the id stays. */
	assert_int_equal(hc_dir_rename(registry, x, "y", b, "longer name", 0), 0);
	assert_int_equal(hc_dir_get(registry, y, &info), 0);
	assert_string_equal(info.name, "longer name");
	assert_int_equal(info.parent, b);
	assert_int_equal(hc_space_find(registry, "b", &space), 0);
	assert_int_equal(info.space, space.id);
	/* An empty target is replaced, others are not. */
	mkdir_at(registry, b, "empty");
	assert_int_equal(hc_dir_rename(registry, b, "longer name", b, "empty", 0), 0);
	assert_int_equal(hc_dir_rename(registry, b, "empty", 1, "a", 0), -EXDEV);
	assert_int_equal(hc_dir_rename(registry, a, "x", a, "x2", 0), 0);
	mkdir_at(registry, x, "inside");
	mkdir_at(registry, a, "w");
	assert_int_equal(hc_dir_rename(registry, a, "w", a, "x2", 0), -ENOTEMPTY);
	assert_int_equal(hc_file_make(registry, a, "f", &user_owner, &file, &replaced), 0);
	assert_int_equal(hc_dir_rename(registry, a, "w", a, "f", 0), -ENOTDIR);
	/* Spaces: only before they have series. */
	mkdir_at(registry, 1, "new");
	assert_int_equal(hc_dir_rename(registry, 1, "new", 1, "newer", 0), 0);
	assert_int_equal(hc_space_find(registry, "new", &space), -ENOENT);
	assert_int_equal(hc_space_find(registry, "newer", &space), 0);
	assert_int_equal(hc_series_open(registry, space.id, "{64}", NULL, true, &series), 0);
	assert_int_equal(hc_dir_rename(registry, 1, "newer", 1, "newest", 0), -EXDEV);
	hc_registry_close(registry);
	registry = open_dir();
	assert_int_equal(hc_dir_find(registry, b, "empty", &info), 0);
	assert_int_equal(info.id, y);
	assert_int_equal(hc_space_find(registry, "newer", &space), 0);
	assert_int_equal(hc_series_space(registry, series), space.id);
	hc_registry_close(registry);
}

static void test_make_path(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_space_info space;
	struct hc_dir_info info;
	uint32_t top = mkdir_at(registry, 1, "s"), id, again;

	assert_int_equal(hc_space_find(registry, "s", &space), 0);
	assert_int_equal(hc_dir_make_path(registry, space.id, "", &id), 0);
	assert_int_equal(id, top);
	assert_int_equal(hc_dir_make_path(registry, space.id, "a/b/c", &id), 0);
	assert_int_equal(hc_dir_get(registry, id, &info), 0);
	assert_string_equal(info.name, "c");
	assert_int_equal(info.owner.uid, user_owner.uid);
	assert_int_equal(hc_dir_make_path(registry, space.id, "a/b/c", &again), 0);
	assert_int_equal(id, again);
	assert_int_equal(hc_dir_make_path(registry, HC_SPACE_ROOT, "", &id), 0);
	assert_int_equal(id, HC_DIR_ROOT);
	assert_int_equal(hc_dir_make_path(registry, HC_SPACE_ROOT, "a", &id), -EINVAL);
	assert_int_equal(hc_dir_make_path(registry, space.id, "../x", &id), -EINVAL);
	assert_int_equal(hc_dir_make_path(registry, 99, "a", &id), -ENOENT);
	hc_registry_close(registry);
}

/* --- series --- */

static void test_series(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_series_info *info = malloc(sizeof(*info));
	uint32_t a, b, c, opaque, *ids;
	size_t n;

	assert_int_equal(hc_series_open(registry, 1, "{64}_m.bin", NULL, false, &a), -ENOENT);
	assert_int_equal(hc_series_open(registry, 1, "{64}_m.bin", NULL, true, &a), 0);
	assert_int_equal(hc_series_open(registry, 1, "{64}_m.bin", NULL, false, &b), 0);
	assert_int_equal(a, b);
	assert_int_equal(hc_series_open(registry, 1, "no digits", NULL, true, &b), -EINVAL);
	assert_int_equal(hc_series_open(registry, 9, "{64}", NULL, true, &b), -ENOENT);
	/* Undeclared: not there for who needs the layout, until it is declared. */
	assert_int_equal(hc_series_open(registry, 1, "{64}_m.bin", KVSPEC, false, &b), -ENOENT);
	assert_int_equal(hc_series_open(registry, 1, "{64}_m.bin", KVSPEC, true, &b), 0);
	assert_int_equal(a, b);
	assert_int_equal(hc_series_open(registry, 1, "{64}_m.bin", KVSPEC, false, &b), 0);
	assert_int_equal(hc_series_open(registry, 1, "{64}_m.bin", KVSPEC " tp=1/2", true, &b),
			 -EEXIST);
	assert_int_equal(hc_series_open(registry, 1, "{64}_m.bin", "a\nb", true, &b), -EINVAL);
	assert_int_equal(hc_series_open(registry, 1, "d/{2}/{16}.x", KVSPEC, true, &c), 0);
	assert_int_equal(hc_series_open(registry, 1, HC_PATTERN_OPAQUE, NULL, true, &opaque), 0);
	hc_registry_close(registry);

	registry = open_dir();
	assert_int_equal(hc_series_get(registry, a, info), 0);
	assert_string_equal(info->pattern, "{64}_m.bin");
	assert_string_equal(info->kvspec, KVSPEC);
	assert_true(info->declared);
	assert_int_equal(info->n_digits, 64);
	assert_int_equal(hc_series_get(registry, c, info), 0);
	assert_int_equal(info->n_digits, 16);
	assert_int_equal(hc_series_get(registry, opaque, info), 0);
	assert_true(info->opaque);
	assert_false(info->declared);
	assert_int_equal(hc_series_get(registry, opaque + 1, info), -ENOENT);
	assert_int_equal(hc_series_get(registry, UINT32_MAX, info), -ENOENT);
	assert_int_equal(hc_series_space(registry, UINT32_MAX), 0);
	assert_int_equal(hc_series_list(registry, 1, &ids, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(ids[0], a);
	free(ids);
	free(info);
	hc_registry_close(registry);
}

static void test_series_limit(void **state)
{
	struct hc_registry *registry = open_memory();
	struct hc_hash by_path;
	struct hc_name name;
	struct hc_key key;
	char pattern[64];
	bool opaque;
	uint32_t id;

	for (uint32_t i = 0; i < HC_SERIES_MAX; i++) {
		snprintf(pattern, sizeof(pattern), "s%u_{64}", i);
		assert_int_equal(hc_series_open(registry, 1, pattern, NULL, true, &id), 0);
	}
	assert_int_equal(hc_series_open(registry, 1, "more_{64}", NULL, true, &id), -ENOSPC);
	assert_int_equal(hc_series_open(registry, 1, "s7_{64}", NULL, true, &id), 0);
	/* What is beyond the limit is a page of the opaque series, known by its whole path. */
	assert_int_equal(hc_name_resolve(registry, 1, "more_" DIGITS, false, &name), 0);
	assert_int_equal(name.kind, HC_NAME_OPAQUE);
	assert_false(name.known);
	assert_int_equal(hc_name_resolve(registry, 1, "more_" DIGITS, true, &name), 0);
	assert_true(name.known);
	hc_pagename_opaque_hash("", "more_" DIGITS, &by_path);
	assert_true(hc_hash_equal(&name.key.hash, &by_path));
	assert_int_equal(hc_name_resolve_page(registry, 1, "more_" DIGITS, false, &key, &opaque),
			 0);
	assert_true(opaque);
	assert_true(hc_key_equal(&key, &name.key));
	assert_int_equal(hc_name_resolve(registry, 1, "s7_" DIGITS, false, &name), 0);
	assert_int_equal(name.kind, HC_NAME_PAGE);
	/* Another space has its own. */
	mkdir_at(registry, 1, "t");
	assert_int_equal(hc_series_open(registry, 2, "more_{64}", NULL, true, &id), 0);
	hc_registry_close(registry);
}

/* --- names of pages --- */

static void resolve_and_back(struct hc_registry *registry, const char *path, const char *pattern)
{
	struct hc_series_info *info = malloc(sizeof(*info));
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char dir[HC_PATH_BYTES], back[HC_NAME_BYTES];
	struct hc_space_info space;
	struct hc_name got;
	struct hc_key key;
	uint32_t id, again;
	bool opaque;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	assert_int_equal(hc_space_find(registry, "s", &space), 0);
	assert_int_equal(hc_dir_make_path(registry, space.id, dir, &id), 0);
	assert_int_equal(hc_name_resolve(registry, id, name, false, &got), 0);
	assert_int_equal(got.kind, HC_NAME_PAGE);
	assert_false(got.known);
	assert_int_equal(hc_name_resolve_page(registry, id, name, false, &key, &opaque), -ENOENT);
	assert_int_equal(hc_name_resolve(registry, id, name, true, &got), 0);
	assert_true(got.known);
	assert_int_equal(hc_name_resolve_page(registry, id, name, false, &key, &opaque), 0);
	assert_false(opaque);
	assert_true(hc_key_equal(&key, &got.key));
	assert_int_equal(hc_series_get(registry, key.series, info), 0);
	assert_string_equal(info->pattern, pattern);
	assert_int_equal(info->space, space.id);
	assert_int_equal(hc_name_of_page(registry, &key, back), 0);
	assert_string_equal(back, name);
	assert_int_equal(hc_name_dir_of_page(registry, &key, &again), 0);
	assert_int_equal(again, id);
	free(info);
}

static void test_resolve_engines(void **state)
{
	struct hc_registry *registry = open_dir();

	mkdir_at(registry, 1, "s");
	resolve_and_back(registry, DIGITS "_org-m_0_2.bin", "{64}_org-m_0_2.bin");
	resolve_and_back(registry, DIGITS ".mamba_org-m_0_2.bin", "{64}.mamba_org-m_0_2.bin");
	resolve_and_back(registry, "m_0a1b2c3d4e5f_r0/001/12_g0/" DIGITS ".bin",
			 "m_0a1b2c3d4e5f_r0/{3}/{2}_g0/{64}.bin");
	resolve_and_back(registry, "m_0a1b2c3d4e5f_r0/001/12_g1/" DIGITS ".bin",
			 "m_0a1b2c3d4e5f_r0/{3}/{2}_g1/{64}.bin");
	resolve_and_back(registry, "org-SEP-m@0x00000001@0@" DIGITS ".data",
			 "org-SEP-m@0x00000001@0@{64}.data");
	resolve_and_back(registry, "00/" DIGITS "_m_k", "{2}/{64}_m_k");
	hc_registry_close(registry);
}

static void test_resolve_kinds(void **state)
{
	struct hc_registry *registry = open_dir();
	uint32_t s = mkdir_at(registry, 1, "s"), d = mkdir_at(registry, s, "d");
	struct hc_name name, page;
	struct hc_key key, again;
	char back[HC_NAME_BYTES];
	uint32_t dir;
	bool opaque;

	assert_int_equal(hc_name_resolve(registry, d, "config.json", true, &name), 0);
	assert_int_equal(name.kind, HC_NAME_ORDINARY);
	assert_false(name.known);
	assert_int_equal(hc_name_resolve(registry, d, ".abc.tmp", true, &name), 0);
	assert_int_equal(name.kind, HC_NAME_TEMPORARY);
	assert_false(name.has_target);
	assert_int_equal(hc_name_resolve(registry, d, "x.pt", false, &name), 0);
	assert_int_equal(name.kind, HC_NAME_OPAQUE);
	assert_false(name.known);
	assert_int_equal(hc_name_resolve(registry, d, "x.pt", true, &name), 0);
	assert_true(name.known);
	/* A large ordinary file is an opaque page. */
	assert_int_equal(hc_name_resolve_page(registry, d, "config.json", true, &key, &opaque), 0);
	assert_true(opaque);
	assert_int_equal(key.series, name.key.series);
	assert_int_equal(hc_name_resolve_page(registry, s, "config.json", true, &again, &opaque),
			 0);
	assert_false(hc_key_equal(&key, &again));
	assert_int_equal(hc_name_of_page(registry, &key, back), -EINVAL);
	assert_int_equal(hc_name_dir_of_page(registry, &key, &dir), -EINVAL);
	/* A temporary that tells its target has the target's key. */
	assert_int_equal(hc_name_resolve(registry, d, DIGITS ".bin", true, &page), 0);
	assert_int_equal(hc_name_resolve(registry, d, DIGITS ".bin_123456.tmp", false, &name), 0);
	assert_int_equal(name.kind, HC_NAME_TEMPORARY);
	assert_true(name.has_target && name.known);
	assert_true(hc_key_equal(&name.key, &page.key));
	assert_int_equal(hc_name_resolve(registry, 999, "x", false, &name), -ENOENT);
	assert_int_equal(hc_name_resolve(registry, d, "a/b", false, &name), -EINVAL);
	assert_int_equal(hc_name_resolve_page(registry, d, "a.tmp", false, &key, &opaque), -EINVAL);
	/* Equal paths in two spaces are two pages. */
	assert_int_equal(hc_name_resolve(registry, 1, DIGITS ".bin", true, &name), 0);
	assert_int_not_equal(name.key.series, page.key.series);
	hc_registry_close(registry);
}

/* --- ordinary files --- */

static void use_files(struct hc_registry *registry)
{
	uint32_t s = mkdir_at(registry, 1, "s"), d = mkdir_at(registry, s, "d");
	struct hc_file_info a, b, *list;
	uint64_t replaced = 7, id, used = hc_files_used(registry, 2);
	struct hc_dir_info dir;
	size_t n;

	assert_int_equal(hc_file_make(registry, d, "config.json", &user_owner, &a, &replaced), 0);
	assert_int_equal(replaced, 0);
	write_file(registry, &a, "first");
	assert_int_equal(hc_files_used(registry, 2), used + 5);
	assert_int_equal(hc_dir_make(registry, d, "config.json", &user_owner, &dir), -EEXIST);
	assert_int_equal(hc_file_make(registry, s, "d", &user_owner, &b, &replaced), -EEXIST);
	assert_int_equal(hc_dir_remove(registry, s, "d", 0), -ENOTEMPTY);
	/* A replaced one is there for who has it open, until it is forgotten. */
	assert_int_equal(hc_file_make(registry, d, "config.json", &user_owner, &b, &replaced), 0);
	assert_int_equal(replaced, a.id);
	assert_int_equal(hc_file_get(registry, a.id, &a), 0);
	assert_int_equal(a.dir, 0);
	write_file(registry, &b, "second!");
	assert_int_equal(hc_files_used(registry, 2), used + 12);
	hc_file_forget(registry, a.id);
	assert_int_equal(hc_files_used(registry, 2), used + 7);
	assert_int_equal(hc_file_get(registry, a.id, &a), -ENOENT);
	check_file(registry, d, "config.json", "second!");
	/* rename: to a new name, over a file, to another space */
	assert_int_equal(hc_file_make(registry, s, "other", &user_owner, &a, &replaced), 0);
	assert_int_equal(hc_file_rename(registry, b.id, s, "other", &replaced), 0);
	assert_int_equal(replaced, a.id);
	hc_file_forget(registry, a.id);
	assert_int_equal(hc_file_rename(registry, b.id, s, "d", &replaced), -EISDIR);
	assert_int_equal(hc_file_rename(registry, b.id, 1, "moved.json", &replaced), 0);
	assert_int_equal(hc_files_used(registry, 2), used);
	assert_int_equal(hc_files_used(registry, 1), 7);
	check_file(registry, 1, "moved.json", "second!");
	assert_int_equal(hc_file_find(registry, d, "config.json", &a), -ENOENT);
	assert_int_equal(hc_file_list(registry, 1, &list, &n), 0);
	assert_int_equal(n, 1);
	assert_string_equal(list[0].name, "moved.json");
	free(list);
	assert_int_equal(hc_file_remove(registry, 1, "s", &id), -EISDIR);
	assert_int_equal(hc_file_remove(registry, 1, "none", &id), -ENOENT);
	assert_int_equal(hc_file_make(registry, d, "gone", &user_owner, &a, &replaced), 0);
	assert_int_equal(hc_file_remove(registry, d, "gone", &id), 0);
	assert_int_equal(id, a.id);
	hc_file_forget(registry, id);
}

static void test_files(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_file_info info;
	uint64_t replaced, id;

	use_files(registry);
	hc_registry_close(registry);
	registry = open_dir();
	check_file(registry, 1, "moved.json", "second!");
	assert_int_equal(hc_file_find(registry, 1, "moved.json", &info), 0);
	assert_int_equal(info.mtime_ns, 5);
	assert_int_equal(info.owner.gid, 1001);
	assert_true(info.node_id > 0);
	id = info.id;
	assert_int_equal(hc_file_make(registry, 1, "next", &user_owner, &info, &replaced), 0);
	assert_true(info.id > id);
	hc_registry_close(registry);
	registry = open_memory();
	use_files(registry);
	hc_registry_close(registry);
}

static void test_file_quota(void **state)
{
	struct hc_registry *registry = open_memory();
	struct hc_file_info info;
	uint64_t replaced;
	char name[32];

	mkdir_at(registry, 1, "s");
	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(hc_file_make(registry, 2, name, &user_owner, &info, &replaced), 0);
		info.size_bytes = HC_FILE_BYTES_MAX + 1;
		assert_int_equal(hc_file_set(registry, &info, true, 0), -EFBIG);
		info.size_bytes = i ? HC_FILE_BYTES_MAX : HC_FILE_BYTES_MAX - 1;
		assert_int_equal(hc_file_set(registry, &info, true, 0), 0);
	}
	assert_int_equal(hc_file_make(registry, 2, "last", &user_owner, &info, &replaced), 0);
	info.size_bytes = 2;
	assert_int_equal(hc_file_set(registry, &info, true, 0), -EDQUOT);
	info.size_bytes = 1;
	assert_int_equal(hc_file_set(registry, &info, true, 0), 0);
	assert_int_equal(hc_files_used(registry, 2), HC_FILES_BYTES_MAX);
	assert_int_equal(hc_file_make(registry, 2, "over", &user_owner, &info, &replaced), -EDQUOT);
	/* Another space has its own 64 MiB. */
	assert_int_equal(hc_file_make(registry, 1, "over", &user_owner, &info, &replaced), 0);
	info.size_bytes = 1;
	assert_int_equal(hc_file_set(registry, &info, true, 0), 0);
	hc_registry_close(registry);
}

static const struct CMUnitTest tests[] = {
	TEST(test_dirs),
	TEST(test_deep),
	TEST(test_spaces),
	TEST(test_space_presets),
	TEST(test_space_quota),
	TEST(test_space_gone),
	TEST(test_rename),
	TEST(test_make_path),
	TEST(test_series),
	TEST(test_series_limit),
	TEST(test_resolve_engines),
	TEST(test_resolve_kinds),
	TEST(test_files),
	TEST(test_file_quota),
};

HC_TEST_MAIN(tests)
