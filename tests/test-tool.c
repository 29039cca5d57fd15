/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of hicachectl that a machine cannot be made to show: the kernel's table of mounts, lines of
 * traces, words of commands. */
#include "hctest.h"

#include <stdarg.h>

#include "tool/columns.h"
#include "tool/metrics.h"
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

int hc_tool_flush(int status)
{
	return status;
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

/* Buckets of one histogram are found whatever the place of `le`; quantiles lie between its bounds.
 */
static void test_metrics(void **state)
{
	static const char first[] = "# TYPE x_seconds histogram\n"
				    "x_seconds_bucket{le=\"0.001\"} 10\n"
				    "x_seconds_bucket{le=\"0.01\"} 10\n"
				    "x_seconds_bucket{le=\"+Inf\"} 10\n"
				    "x_seconds_sum 0.01\nx_seconds_count 10\n"
				    "y_seconds_bucket{tier=\"disk\",le=\"1\"} 0\n"
				    "y_seconds_bucket{le=\"+Inf\",tier=\"disk\"} 0\n"
				    "z_bucket{handle=\"1\"} 3\nbroken_bucket{le=\"1\n\n";
	static const char second[] = "x_seconds_bucket{le=\"0.001\"} 60\n"
				     "x_seconds_bucket{le=\"0.01\"} 100\n"
				     "x_seconds_bucket{le=\"0.01\"} 7\n"
				     "x_seconds_bucket{le=\"+Inf\"} 110\n";
	struct hc_metrics *m = calloc(2, sizeof(*m));
	const struct hc_histogram *before, *now;

	assert_non_null(m);
	hc_metrics_parse(first, &m[0]);
	assert_int_equal(m[0].n, 2);
	assert_string_equal(m[0].list[1].name, "y_seconds{tier=\"disk\"}");
	assert_int_equal(m[0].list[1].n_buckets, 2);
	hc_metrics_parse(second, &m[1]);
	before = hc_metrics_find(&m[0], "x_seconds");
	now = hc_metrics_find(&m[1], "x_seconds");
	assert_non_null(before);
	assert_non_null(now);
	assert_int_equal(now->n_buckets, 3);
	/* 50 below 1 ms, 40 up to 10 ms, 10 above. */
	assert_true(hc_histogram_count(now, before) == 100);
	assert_float_equal(hc_histogram_quantile(now, before, 0.25), 0.0005, 1e-9);
	assert_float_equal(hc_histogram_quantile(now, before, 0.5), 0.001, 1e-9);
	assert_float_equal(hc_histogram_quantile(now, before, 0.7), 0.0055, 1e-9);
	assert_float_equal(hc_histogram_quantile(now, before, 0.99), 0.01, 1e-9);
	/* A daemon that was started anew counts from 0. */
	assert_true(hc_histogram_count(before, now) == 10);
	assert_true(hc_histogram_quantile(&m[0].list[1], NULL, 0.5) == 0);
	free(m);
}

static void test_columns(void **state)
{
	static const char *const headers[] = {"name", ">n", "rest", NULL};
	hc_autofree char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);
	struct hc_columns *columns = hc_columns_create(headers);

	assert_non_null(out);
	hc_columns_row(columns, (const char *const[]){"\xc3\xa4\xc3\xb6", "5", "x"});
	hc_columns_row(columns, (const char *const[]){"a long one\x1b[J", "12345", ""});
	if (hc_columns_end(columns, true, out)) {
		/* Memory was out, which the caller is told. */
		fclose(out);
		return;
	}
	assert_int_equal(fclose(out), 0);
	assert_string_equal(text, "name               n  rest\n"
				  "\xc3\xa4\xc3\xb6                 5  x\n"
				  "a long one?[J  12345  \n");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_mounts),  cmocka_unit_test(test_mounts_limit),
	cmocka_unit_test(test_escape),  cmocka_unit_test(test_trace_lines),
	cmocka_unit_test(test_metrics), cmocka_unit_test(test_columns),
};

HC_TEST_MAIN(tests)
