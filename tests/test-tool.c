/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of hicachectl that a machine cannot be made to show: the kernel's table of mounts, lines of
 * traces, words of commands. */
#include "hctest.h"

#include <stdarg.h>

#include "tool/tool.h"
#include "tool/trace.h"

void hc_tool_error(const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	print_message("# said: %s\n", text);
}

/* Whole hicachefs mounts only, once each, with their escapes undone. */
static void test_mounts(void **state)
{
	static const char text[] = "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n"
				   "90 1 0:50 / /mnt/kv rw,nosuid,nodev,relatime shared:7 - "
				   "fuse.hicachefs /var/cache rw,user_id=0\n"
				   "91 1 0:50 / /mnt/kv rw - fuse.hicachefs /var/cache rw\n"
				   "92 1 0:51 / /mnt/a\\040b\\011c\\134 rw master:1 "
				   "propagate_from:2 - fuse.hicachefs x rw\n"
				   "93 1 0:50 /qwen /srv/qwen rw - fuse.hicachefs /var/cache rw\n"
				   "94 1 0:52 / /mnt/other rw - fuse.sshfs host: rw\n"
				   "95 1 0:53 / /mnt/fuse.hicachefs rw - ext4 /dev/sda rw\n"
				   "96 1 0:54 / /mnt/like rw - fuse.hicachefsx x rw\n"
				   "97 short - fuse.hicachefs x rw\n"
				   "nonsense\n"
				   "98 1 0:55 / /mnt/last rw - fuse.hicachefs x rw";
	char **mounts;
	size_t n;

	assert_int_equal(hc_mounts_parse(text, &mounts, &n), 0);
	assert_int_equal(n, 3);
	assert_string_equal(mounts[0], "/mnt/kv");
	assert_string_equal(mounts[1], "/mnt/a b\tc\\");
	assert_string_equal(mounts[2], "/mnt/last");
	hc_mounts_free(mounts, n);
	assert_int_equal(hc_mounts_parse("", &mounts, &n), 0);
	assert_int_equal(n, 0);
	hc_mounts_free(mounts, n);
}

static void test_mounts_limit(void **state)
{
	char *text = malloc(200 * 80), **mounts;
	size_t used = 0, n;

	assert_non_null(text);
	for (int i = 0; i < 200; i++)
		used += (size_t)snprintf(text + used, 80,
					 "%d 1 0:50 / /mnt/%d rw - fuse.hicachefs c rw\n", i, i);
	assert_int_equal(hc_mounts_parse(text, &mounts, &n), 0);
	assert_int_equal(n, HC_MOUNTS_MAX);
	hc_mounts_free(mounts, n);
	free(text);
}

static void test_escape(void **state)
{
	char out[64];

	hc_control_escape("a b%c\n\x7f/\xc3\xa4", out);
	assert_string_equal(out, "a%20b%25c%0A%7F/\xc3\xa4");
	hc_control_escape("", out);
	assert_string_equal(out, "");
	assert_int_equal(hc_control_u64("18446744073709551615"), UINT64_MAX);
	assert_int_equal(hc_control_u64("-1"), 0);
}

static void test_trace_lines(void **state)
{
	struct hc_trace trace = {0};
	char why[128] = "";

	assert_int_equal(hc_trace_line(&trace, "{\"input_length\": 1100, \"hash_ids\": [7, 8, 9]}",
				       why, sizeof(why)),
			 0);
	assert_int_equal(hc_trace_line(&trace, "{\"input_length\": 511, \"hash_ids\": [7]}", why,
				       sizeof(why)),
			 0);
	assert_int_equal(
		hc_trace_line(&trace,
			      "{\"input_length\": 512, \"hash_ids\": [9223372036854775807]}", why,
			      sizeof(why)),
		0);
	assert_int_equal(trace.n_requests, 3);
	assert_int_equal(trace.requests[0].n, 2);
	assert_int_equal(trace.requests[1].n, 0);
	assert_int_equal(trace.requests[2].first, 2);
	assert_int_equal(trace.n_ids, 3);
	assert_int_equal(trace.ids[2], INT64_MAX);
	assert_int_equal(hc_trace_line(&trace, "{\"input_length\": 1024, \"hash_ids\": [7]}", why,
				       sizeof(why)),
			 -EINVAL);
	assert_string_equal(why, "2 full blocks of 512 tokens, but 1 hash_ids");
	assert_int_equal(
		hc_trace_line(&trace,
			      "{\"input_length\": 512, \"hash_ids\": [9223372036854775808]}", why,
			      sizeof(why)),
		-EINVAL);
	assert_int_equal(hc_trace_line(&trace, "[]", why, sizeof(why)), -EINVAL);
	assert_int_equal(hc_trace_line(&trace, "{\"input_length\": 9e18, \"hash_ids\": []}", why,
				       sizeof(why)),
			 -EINVAL);
	assert_int_equal(trace.n_requests, 3);
	hc_trace_free(&trace);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_mounts),
	cmocka_unit_test(test_mounts_limit),
	cmocka_unit_test(test_escape),
	cmocka_unit_test(test_trace_lines),
};

HC_TEST_MAIN(tests)
