/* SPDX-License-Identifier: Apache-2.0 */
/* store/fault: each kind of fault does what fault.h says, hangs can be released, close never hangs.
 */
#include "store-rig.h"

static int setup(void **state)
{
	struct rig *rig = rig_zalloc(sizeof(*rig));

	rig->n_disks = 1;
	rig->faulty = true;
	rig_start(rig, NULL);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	rig_stop(*state);
	free(*state);
	return 0;
}

static void rule(struct rig *rig, enum hc_store_op op, enum hc_fault_kind kind, int error,
		 uint64_t nth)
{
	const struct hc_fault_rule set = {
		.op = op, .kind = kind, .error = error, .rate_ppm = 1000000, .nth = nth};

	hc_store_fault_set(rig->store, &set);
}

static void test_error(void **state)
{
	static const int errors[] = {-EIO, -ENOSPC, -ENODEV, -ESTALE};
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);

	for (size_t i = 0; i < HC_ARRAY_SIZE(errors); i++) {
		rule(rig, HC_STORE_GET, HC_FAULT_ERROR, errors[i], 0);
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), errors[i]);
		/* Other ops are not touched. */
		assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &page, 0, 0), 0);
	}
	rule(rig, HC_STORE_GET, HC_FAULT_NONE, 0, 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
	rule(rig, HC_STORE_PUT, HC_FAULT_ERROR, -ENOSPC, 0);
	page = rig_page(rig->data, 2, 4096);
	assert_int_equal(rig_op(rig, HC_STORE_PUT, &page, 0, 0), -ENOSPC);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -ENOENT);
}

static void test_nth(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);

	rule(rig, HC_STORE_GET, HC_FAULT_ERROR, -EIO, 3);
	for (int i = 1; i <= 6; i++)
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), i == 3 ? -EIO : 0);
}

/* Goal: a rate is met, and the same seed fails the same requests. */
static void test_rate(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	const struct hc_fault_rule third = {
		.op = HC_STORE_GET, .kind = HC_FAULT_ERROR, .error = -EIO, .rate_ppm = 333333};
	bool first[600];
	int n = 0;

	rig_reopen(rig);
	hc_store_fault_set(rig->store, &third);
	for (int i = 0; i < 600; i++) {
		first[i] = rig_op(rig, HC_STORE_GET, &page, 0, 0);
		n += first[i];
	}
	assert_in_range(n, 150, 250);
	rig_reopen(rig);
	hc_store_fault_set(rig->store, &third);
	for (int i = 0; i < 600; i++)
		assert_int_equal(!!rig_op(rig, HC_STORE_GET, &page, 0, 0), first[i]);
}

/* Goal: a flip on the way in is never called good, and without verification it is exactly one bit.
 */
static void test_flip_get(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 5000, 0);
	uint8_t *bytes = rig->data, want[5000];
	int n_bits = 0;

	memcpy(want, bytes, sizeof(want));
	rule(rig, HC_STORE_GET, HC_FAULT_FLIP, 0, 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -EBADMSG);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, HC_STORE_NO_VERIFY), 0);
	for (size_t i = 0; i < sizeof(want); i++)
		n_bits += __builtin_popcount(bytes[i] ^ want[i]);
	assert_int_equal(n_bits, 1);
	rule(rig, HC_STORE_VERIFY, HC_FAULT_FLIP, 0, 0);
	assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &page, 0, 0), -EBADMSG);
	rule(rig, HC_STORE_GET, HC_FAULT_NONE, 0, 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
}

/* Goal: a put whose bytes are damaged says success; what was stored is found bad; the caller's
 * bytes are whole. */
static void test_damaged_put(void **state)
{
	static const enum hc_fault_kind kinds[] = {HC_FAULT_FLIP, HC_FAULT_SHORT};
	struct rig *rig = *state;

	for (size_t i = 0; i < HC_ARRAY_SIZE(kinds); i++) {
		struct hc_store_page page = rig_page(rig->data, i, 70001);

		rule(rig, HC_STORE_PUT, kinds[i], 0, 0);
		assert_int_equal(rig_op(rig, HC_STORE_PUT, &page, 0, 0), 0);
		assert_true(rig_same(rig->data, i, 70001));
		assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), -EBADMSG);
		assert_int_equal(rig_op(rig, HC_STORE_VERIFY, &page, 0, 0), -EBADMSG);
	}
}

static void test_short_get(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 70001, 0);

	rule(rig, HC_STORE_GET, HC_FAULT_SHORT, 0, 0);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, HC_STORE_NO_VERIFY), -EBADMSG);
	assert_false(rig_same(rig->data, 1, 70001));
}

static void test_delay(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	const struct hc_fault_rule late = {.op = HC_STORE_GET,
					   .kind = HC_FAULT_DELAY,
					   .delay_ns = 50 * HC_NS_PER_MS,
					   .rate_ppm = 1000000};
	uint64_t begin_ns = hc_clock_now_ns();

	hc_store_fault_set(rig->store, &late);
	assert_int_equal(rig_op(rig, HC_STORE_GET, &page, 0, 0), 0);
	assert_true(hc_clock_now_ns() - begin_ns >= 50 * HC_NS_PER_MS);
}

/* Goal: hung requests stay hung while others pass, complete after the release, and are counted. */
static void test_hang(void **state)
{
	struct rig *rig = *state;
	struct hc_store_page page = rig_put(rig, 1, 4096, 0);
	/* Static: a failed test leaves them to the store until close. */
	static struct hc_store_request hung[40];
	struct hc_store_request get, *one;

	rule(rig, HC_STORE_PUT, HC_FAULT_HANG, 0, 0);
	rule(rig, HC_STORE_REMOVE, HC_FAULT_HANG, 0, 0);
	for (size_t i = 0; i < 40; i++) {
		hung[i] = (struct hc_store_request){.op = i & 1 ? HC_STORE_PUT : HC_STORE_REMOVE,
						    .page = page,
						    .data = rig->data,
						    .result = 1};
		hung[i].page.sequence = 100 + i;
		one = &hung[i];
		assert_int_equal(rig->store->ops->submit(rig->store, &one, 1), 1);
	}
	assert_int_equal(hc_store_fault_hung(rig->store), 40);
	for (int i = 0; i < 20; i++) {
		get = (struct hc_store_request){
			.op = HC_STORE_GET, .page = page, .data = rig->data};
		assert_int_equal(rig_run(rig->store, &get), 0);
	}
	for (size_t i = 0; i < 40; i++)
		assert_int_equal(hung[i].result, 1);
	rule(rig, HC_STORE_REMOVE, HC_FAULT_NONE, 0, 0);
	for (size_t i = 0; i < 20; i++) {
		one = rig_wait(rig->store, RIG_WAIT_MS);
		assert_non_null(one);
		assert_int_equal(one->op, HC_STORE_REMOVE);
		assert_int_equal(one->result, 0);
	}
	assert_int_equal(hc_store_fault_hung(rig->store), 20);
	rule(rig, HC_STORE_PUT, HC_FAULT_NONE, 0, 0);
	for (size_t i = 0; i < 20; i++) {
		one = rig_wait(rig->store, RIG_WAIT_MS);
		assert_non_null(one);
		assert_int_equal(one->result, 0);
	}
	assert_int_equal(hc_store_fault_hung(rig->store), 0);
}

/* Goal: held requests are bounded; close ends with -ECANCELED for every one of them, hung or
 * delayed. */
static void test_close_hung(void **state)
{
	enum { N = 1100 };
	struct rig *rig = *state;
	struct hc_store_request *hung = rig_zalloc(N * sizeof(*hung)),
				**refs = rig_zalloc(N * sizeof(*refs));
	const struct hc_fault_rule late = {.op = HC_STORE_VERIFY,
					   .kind = HC_FAULT_DELAY,
					   .delay_ns = 3600 * HC_NS_PER_S,
					   .rate_ppm = 1000000};
	size_t n;

	rule(rig, HC_STORE_GET, HC_FAULT_HANG, 0, 0);
	hc_store_fault_set(rig->store, &late);
	for (size_t i = 0; i < N; i++) {
		hung[i] = (struct hc_store_request){.op = i & 1 ? HC_STORE_GET : HC_STORE_VERIFY,
						    .page = {.size_bytes = 4096},
						    .data = rig->data,
						    .result = 1};
		refs[i] = &hung[i];
	}
	n = rig->store->ops->submit(rig->store, refs, N);
	assert_int_equal(n, 1024);
	rig_close(rig);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(hung[i].result, -ECANCELED);
	assert_int_equal(hung[n].result, 1);
	free(hung);
	free(refs);
}

#define FAULT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(test_error),       FAULT_TEST(test_nth),
		FAULT_TEST(test_rate),        FAULT_TEST(test_flip_get),
		FAULT_TEST(test_damaged_put), FAULT_TEST(test_short_get),
		FAULT_TEST(test_delay),       FAULT_TEST(test_hang),
		FAULT_TEST(test_close_hung),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
