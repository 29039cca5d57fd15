/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of extended attributes, their limits, and how they are kept with directories and files. */
#include "hctest.h"

#include "node/node.h"
#include "util/rng.h"

#define N_NAMES 12

static void name_of(int i, char name[HC_ATTR_NAME_BYTES])
{
	snprintf(name, HC_ATTR_NAME_BYTES, "%.*s.%d", i * 10,
		 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		 "aaaaaaaa"
		 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		 i);
}

/* Goal: a set holds what was set, whatever came before. Method: random changes against an array. */
static void test_model(void **state)
{
	struct hc_attrset set = {0};
	struct {
		uint8_t value[400];
		size_t n;
		bool there;
	} *model = hc_zalloc(N_NAMES * sizeof(*model));
	struct hc_rng rng;

	hc_rng_seed(&rng, 7);
	for (int round = 0; round < 20000; round++) {
		int i = (int)hc_rng_below(&rng, N_NAMES);
		size_t n = hc_rng_below(&rng, sizeof(model->value)), at = 0, n_listed = 0,
		       n_there = 0;
		char name[HC_ATTR_NAME_BYTES];
		uint8_t value[sizeof(model->value)];
		const void *found;
		int op = (int)hc_rng_below(&rng, 4), rc;

		name_of(i, name);
		memset(value, (int)hc_rng_below(&rng, 256), sizeof(value));
		if (op == 3) {
			rc = hc_attrset_remove(&set, name);
			assert_int_equal(rc, model[i].there ? 0 : -ENODATA);
			model[i].there = false;
		} else {
			rc = hc_attrset_set(&set, name, value, n, op == 1, op == 2);
			if (op == 1 && model[i].there)
				assert_int_equal(rc, -EEXIST);
			else if (op == 2 && !model[i].there)
				assert_int_equal(rc, -ENODATA);
			else
				assert_true(!rc || rc == -ENOSPC);
			if (!rc) {
				memcpy(model[i].value, value, sizeof(value));
				model[i].n = n;
				model[i].there = true;
			}
		}
		assert_true(set.n_bytes <= HC_ATTRSET_BYTES_MAX);
		assert_int_equal(hc_attrset_check(set.bytes, set.n_bytes), 0);
		for (i = 0; i < N_NAMES; i++) {
			name_of(i, name);
			found = hc_attrset_find(&set, name, &n);
			assert_int_equal(found != NULL, model[i].there);
			n_there += model[i].there;
			if (found) {
				assert_int_equal(n, model[i].n);
				assert_memory_equal(found, model[i].value, n);
			}
		}
		while (hc_attrset_next(&set, &at, name, &found, &n))
			n_listed++;
		assert_int_equal(n_listed, n_there);
	}
	hc_attrset_fini(&set);
	free(model);
}

/* Goal: limits have their errno, and what fails changes nothing. */
static void test_limits(void **state)
{
	static const uint8_t bytes[HC_ATTRSET_BYTES_MAX + 1];
	char name[300];
	struct hc_attrset set = {0};
	size_t n;

	memset(name, 'n', sizeof(name));
	name[HC_ATTR_NAME_BYTES] = 0;
	assert_int_equal(hc_attrset_set(&set, name, "", 0, false, false), -ERANGE);
	assert_int_equal(hc_attrset_set(&set, "", "", 0, false, false), -ERANGE);
	assert_int_equal(hc_attrset_set(&set, "a", bytes, sizeof(bytes), false, false), -E2BIG);
	assert_null(set.bytes);
	assert_int_equal(hc_attrset_set(&set, "a", bytes, HC_ATTRSET_BYTES_MAX - 4, false, false),
			 0);
	assert_int_equal(hc_attrset_set(&set, "b", "", 0, false, false), -ENOSPC);
	assert_non_null(hc_attrset_find(&set, "a", &n));
	assert_int_equal(n, HC_ATTRSET_BYTES_MAX - 4);
	assert_int_equal(hc_attrset_set(&set, "a", "x", 1, false, true), 0);
	assert_int_equal(hc_attrset_set(&set, "b", "", 0, true, false), 0);
	assert_int_equal(hc_attrset_remove(&set, "a"), 0);
	assert_int_equal(hc_attrset_remove(&set, "b"), 0);
	assert_null(set.bytes);
	/* Not one of ours. */
	assert_int_equal(hc_attrset_check("\1a\0", 3), -EBADMSG);
	assert_int_equal(hc_attrset_check("\1a\2\0x", 5), -EBADMSG);
	assert_int_equal(hc_attrset_check("\0\1\0x", 4), -EBADMSG);
	assert_int_equal(hc_attrset_check("\1a\0\0\1a\0\0", 8), -EBADMSG);
	assert_int_equal(hc_attrset_check("\1a\0\0\1b\0\0", 8), 0);
}

/* Goal: hints are read as they are written, and nothing else is. */
static void test_hints(void **state)
{
	static const struct {
		enum hc_hint hint;
		const char *text;
		int value;
	} good[] = {
		{HC_HINT_PINNED, "1", 1},
		{HC_HINT_PINNED, "0", 0},
		{HC_HINT_PRIORITY, "low", 0},
		{HC_HINT_PRIORITY, "high", 255},
		{HC_HINT_PRIORITY, "255", 255},
		{HC_HINT_PRIORITY, "007", 7},
		{HC_HINT_PRIORITY, "normal", HC_PRIORITY_SPACE},
		{HC_HINT_SESSION, "alive", HC_SESSION_ALIVE},
		{HC_HINT_SESSION, "ended", HC_SESSION_ENDED},
		{HC_HINT_SESSION, "none", HC_SESSION_NONE},
	};
	static const struct {
		enum hc_hint hint;
		const char *text;
	} bad[] = {
		{HC_HINT_PINNED, "2"},      {HC_HINT_PINNED, ""},       {HC_HINT_PINNED, "yes"},
		{HC_HINT_PRIORITY, "256"},  {HC_HINT_PRIORITY, "-1"},   {HC_HINT_PRIORITY, "1 "},
		{HC_HINT_PRIORITY, ""},     {HC_HINT_PRIORITY, "0001"}, {HC_HINT_SESSION, "dead"},
		{HC_HINT_SESSION, "Alive"},
	};
	int value;

	for (size_t i = 0; i < HC_ARRAY_SIZE(good); i++) {
		assert_int_equal(
			hc_hint_parse(good[i].hint, good[i].text, strlen(good[i].text), &value), 0);
		assert_int_equal(value, good[i].value);
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(bad); i++)
		assert_int_equal(
			hc_hint_parse(bad[i].hint, bad[i].text, strlen(bad[i].text), &value),
			-EINVAL);
	for (enum hc_hint hint = 0; hint < HC_HINT_N; hint++)
		assert_int_equal(hc_hint_of(hc_hint_name(hint)), hint);
	assert_int_equal(hc_hint_of("hicache.tier"), HC_HINT_N);
}

static int put_one(void *arg, struct hc_attrset *set)
{
	return hc_attrset_set(set, "a", arg, strlen(arg), false, false);
}

static int refuse(void *arg, struct hc_attrset *set)
{
	hc_attrset_fini(set);
	return -ENODATA;
}

static bool has(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id, const char *value)
{
	struct hc_attrset set;
	const void *found;
	size_t n = 0;
	bool same;

	assert_int_equal(hc_attrs_get(attrs, kind, id, &set), 0);
	found = hc_attrset_find(&set, "a", &n);
	same = found && n == strlen(value) && !memcmp(found, value, n);
	hc_attrset_fini(&set);
	return same;
}

/* Goal: kinds do not meet, many are found, a change that fails changes nothing, and the counts are
 * right. */
static void test_table(void **state)
{
	struct hc_attrs *attrs;
	char text[24];

	assert_int_equal(hc_attrs_create(&attrs), 0);
	assert_int_equal(hc_attrs_load(attrs, NULL), 0);
	for (uint64_t id = 1; id <= 5000; id++) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
		assert_int_equal(hc_attrs_change(attrs, HC_ATTRS_PAGE, id, put_one, text), 0);
	}
	assert_int_equal(hc_attrs_change(attrs, HC_ATTRS_DIR, 7, put_one, "dir"), 0);
	assert_int_equal(hc_attrs_change(attrs, HC_ATTRS_PAGE, 7, refuse, NULL), -ENODATA);
	for (uint64_t id = 1; id <= 5000; id++) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
		assert_true(has(attrs, HC_ATTRS_PAGE, id, text));
	}
	assert_true(has(attrs, HC_ATTRS_DIR, 7, "dir"));
	assert_false(has(attrs, HC_ATTRS_FILE, 7, "dir"));
	assert_int_equal(hc_attrs_count(attrs, HC_ATTRS_PAGE), 5000);
	for (uint64_t id = 1; id <= 5000; id++)
		hc_attrs_drop(attrs, HC_ATTRS_PAGE, id);
	assert_int_equal(hc_attrs_count(attrs, HC_ATTRS_PAGE), 0);
	assert_true(has(attrs, HC_ATTRS_DIR, 7, "dir"));
	hc_attrs_drop(attrs, HC_ATTRS_DIR, 7);
	assert_int_equal(hc_attrs_bytes(attrs), 0);
	hc_attrs_destroy(attrs);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_model),
	cmocka_unit_test(test_limits),
	cmocka_unit_test(test_hints),
	cmocka_unit_test(test_table),
};

HC_TEST_MAIN(tests)
