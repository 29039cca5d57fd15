/* SPDX-License-Identifier: Apache-2.0 */
/* As much of cmocka as the tests of devices use, for machines with a GPU, a compiler and nothing
 * else: contrib/check-device puts it in the place of the library. TAP, one test after the other. */
#ifndef HC_STANDIN_CMOCKA_H
#define HC_STANDIN_CMOCKA_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*test_func)(void **state);
	int (*setup_func)(void **state);
	int (*teardown_func)(void **state);
	void *initial_state;
};

enum cm_message_output { CM_OUTPUT_TAP = 2 };

static struct {
	jmp_buf out;
	pthread_t runner;
	int skipped;
} standin __attribute__((unused));

__attribute__((format(printf, 3, 4), noreturn, unused)) static void
standin_fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	printf("# %s:%d: ", file, line);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	/* Another thread has no way back. */
	if (!pthread_equal(standin.runner, pthread_self()))
		abort();
	longjmp(standin.out, 1);
}

__attribute__((unused)) static void standin_memory(const void *a, const void *b, size_t n,
						   const char *file, int line)
{
	const unsigned char *x = a, *y = b;

	for (size_t i = 0; i < n; i++) {
		if (x[i] != y[i])
			standin_fail(file, line, "byte %zu of %zu differs: %#x, %#x", i, n, x[i],
				     y[i]);
	}
}

__attribute__((unused)) static void standin_equal(intmax_t a, intmax_t b, const char *text,
						  const char *file, int line)
{
	if (a != b)
		standin_fail(file, line, "%s: %jd, not %jd", text, a, b);
}

#define assert_true(x)                                               \
	do {                                                         \
		if (!(x))                                            \
			standin_fail(__FILE__, __LINE__, "not " #x); \
	} while (0)
#define assert_false(x)              assert_true(!(x))
#define assert_non_null(p)           assert_true((p) != NULL)
#define assert_null(p)               assert_true((p) == NULL)
#define assert_int_equal(a, b)       standin_equal((intmax_t)(a), (intmax_t)(b), #a, __FILE__, __LINE__)
#define assert_ptr_not_equal(a, b)   assert_true((const void *)(a) != (const void *)(b))
#define assert_string_equal(a, b)    assert_true(!strcmp(a, b))
#define assert_memory_equal(a, b, n) standin_memory(a, b, n, __FILE__, __LINE__)
#define assert_in_range(x, low, high) \
	assert_true((uintmax_t)(x) >= (uintmax_t)(low) && (uintmax_t)(x) <= (uintmax_t)(high))
#define fail_msg(...)      standin_fail(__FILE__, __LINE__, __VA_ARGS__)
#define print_message(...) printf(__VA_ARGS__)
#define skip()                           \
	do {                             \
		standin.skipped = 1;     \
		longjmp(standin.out, 1); \
	} while (0)

#define cmocka_unit_test(f)             \
	{                               \
#f, f, NULL, NULL, NULL \
	}
#define cmocka_set_message_output(output) ((void)(output))
#define cmocka_run_group_tests(t, up, down) \
	_cmocka_run_group_tests(#t, t, sizeof(t) / sizeof((t)[0]), up, down)

/* True: passed. */
__attribute__((unused)) static int standin_one(const struct CMUnitTest *test, void **state)
{
	if (setjmp(standin.out))
		return 0;
	if (test->setup_func)
		assert_int_equal(test->setup_func(state), 0);
	test->test_func(state);
	if (test->teardown_func)
		assert_int_equal(test->teardown_func(state), 0);
	return 1;
}

__attribute__((unused)) static int _cmocka_run_group_tests(const char *name,
							   const struct CMUnitTest *tests, size_t n,
							   int (*up)(void **), int (*down)(void **))
{
	int n_failed = 0;

	(void)up;
	(void)down;
	standin.runner = pthread_self();
	printf("1..%zu\n", n);
	for (size_t i = 0; i < n; i++) {
		void *state = tests[i].initial_state;
		int good;

		standin.skipped = 0;
		good = standin_one(&tests[i], &state) || standin.skipped;
		printf("%sok %zu - %s%s\n", good ? "" : "not ", i + 1, tests[i].name,
		       standin.skipped ? " # SKIP" : "");
		fflush(stdout);
		n_failed += !good;
	}
	printf("# %s - %s\n", n_failed ? "not ok" : "ok", name);
	return n_failed;
}

#endif
