/* SPDX-License-Identifier: Apache-2.0 */
/* What every C test needs: cmocka with TAP output. */
#ifndef HC_TEST_H
#define HC_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#ifdef __SANITIZE_THREAD__
#define IS_TSAN true
#else
#define IS_TSAN false
#endif

/* Leaves the test: this machine cannot run it. The reason (a literal) is shown with the result. */
#define hc_test_skip(reason)                           \
	do {                                           \
		print_message("# skip: " reason "\n"); \
		skip();                                \
	} while (0)

#define HC_TEST_MAIN(tests)                                       \
	int main(void)                                            \
	{                                                         \
		cmocka_set_message_output(CM_OUTPUT_TAP);         \
		return cmocka_run_group_tests(tests, NULL, NULL); \
	}

#endif
