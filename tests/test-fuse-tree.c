/* SPDX-License-Identifier: Apache-2.0 */
/* Node ids of the mount: random look-ups, forgets and changes of what a number stands for, against
 * plain counters; and from several threads at once. */
#include <pthread.h>

#include "fuse/bodies.h"
#include "fuse/tree.h"
#include "tests/hctest.h"
#include "util/rng.h"

#define N_NODES   500u
#define N_STEPS   200000u
#define N_THREADS 4

/* The tree takes references of bodies; here they are counted and nothing else. */
struct hc_body *hc_body_get(struct hc_body *body)
{
	atomic_fetch_add(&body->n_refs, 1);
	return body;
}

void hc_body_put(struct hc_body *body)
{
	if (body)
		atomic_fetch_sub(&body->n_refs, 1);
}

static struct hc_page_info page(uint64_t i)
{
	struct hc_page_info info = {.node_id = HC_INO_BODIES + i,
				    .sequence = i * 3,
				    .size_bytes = i + 1,
				    .entry = (uint32_t)i,
				    .key = {.series = 7}};

	memcpy(info.key.hash.bytes, &i, sizeof(i));
	return info;
}

static void directories_need_no_table(void **state)
{
	struct hc_tree *tree;
	struct hc_fview view;

	assert_int_equal(hc_tree_create(&tree), 0);
	hc_tree_see(tree, 1, &view);
	assert_int_equal(view.kind, HC_F_DIR);
	assert_int_equal(view.dir, 1);
	hc_tree_see(tree, (uint64_t)UINT32_MAX + 1, &view);
	assert_int_equal(view.kind, HC_F_NONE);
	hc_tree_see(tree, HC_INO_VIRTUAL + 3, &view);
	assert_int_equal(view.kind, HC_F_VIRTUAL);
	hc_tree_see(tree, HC_INO_BODIES + 3, &view);
	assert_int_equal(view.kind, HC_F_NONE);
	hc_tree_forget(tree, 1, 1);
	hc_tree_forget(tree, HC_INO_BODIES + 3, 1);
	assert_int_equal(hc_tree_count(tree), 0);
	hc_tree_destroy(tree);
}

static void forgets_against_a_model(void **state)
{
	static uint64_t known[N_NODES];
	struct hc_tree *tree;
	struct hc_rng rng;
	uint64_t n_known = 0;

	memset(known, 0, sizeof(known));
	hc_rng_seed(&rng, 5);
	assert_int_equal(hc_tree_create(&tree), 0);
	for (unsigned step = 0; step < N_STEPS; step++) {
		uint64_t i = hc_rng_below(&rng, N_NODES), n;
		struct hc_page_info info = page(i);
		struct hc_fnode *fnode;
		struct hc_fview view;

		if (hc_rng_below(&rng, 2)) {
			fnode = hc_tree_page(tree, &info);
			assert_non_null(fnode);
			hc_tree_remember(tree, fnode);
			hc_tree_put(tree, fnode);
			n_known += !known[i]++;
		} else {
			n = hc_rng_below(&rng, 4);
			hc_tree_forget(tree, info.node_id, n);
			n_known -= known[i] && known[i] <= n;
			known[i] -= hc_min_u64(n, known[i]);
		}
		hc_tree_see(tree, info.node_id, &view);
		assert_int_equal(view.kind, known[i] ? HC_F_PAGE : HC_F_NONE);
		if (known[i])
			assert_int_equal(view.sequence, i * 3);
		assert_int_equal(hc_tree_count(tree), n_known);
	}
	hc_tree_destroy(tree);
}

/* A body under construction becomes a page: the number stays, what it stands for changes. */
static void a_body_becomes_a_page(void **state)
{
	struct hc_page_info info = page(9);
	struct hc_body body = {.n_refs = 1};
	struct hc_fnode *fnode, *again;
	struct hc_tree *tree;
	struct hc_fview view;

	assert_int_equal(hc_tree_create(&tree), 0);
	fnode = hc_tree_body(tree, info.node_id, &body);
	assert_non_null(fnode);
	hc_tree_remember(tree, fnode);
	hc_tree_view(tree, fnode, &view);
	assert_int_equal(view.kind, HC_F_BODY);
	assert_ptr_equal(view.body, &body);
	assert_int_equal(body.n_refs, 2);
	hc_body_put(view.body);
	/* a look-up that found the page a moment early does not change the body's number */
	again = hc_tree_page(tree, &info);
	assert_ptr_equal(again, fnode);
	hc_tree_view(tree, fnode, &view);
	assert_int_equal(view.kind, HC_F_BODY);
	hc_body_put(view.body);
	hc_tree_become_page(tree, fnode, &info);
	hc_tree_put(tree, again);
	hc_tree_put(tree, fnode);
	hc_tree_see(tree, info.node_id, &view);
	assert_int_equal(view.kind, HC_F_PAGE);
	assert_int_equal(view.size_bytes, 10);
	hc_tree_forget(tree, info.node_id, 1);
	hc_tree_see(tree, info.node_id, &view);
	assert_int_equal(view.kind, HC_F_NONE);
	assert_int_equal(body.n_refs, 1);
	hc_tree_destroy(tree);
}

static void all_pages_are_visited(void **state)
{
	struct hc_fview views[7];
	struct hc_tree *tree;
	uint64_t cursor = 0, sum = 0;
	size_t n;

	assert_int_equal(hc_tree_create(&tree), 0);
	for (uint64_t i = 1; i <= N_NODES; i++) {
		struct hc_page_info info = page(i);
		struct hc_fnode *fnode = hc_tree_page(tree, &info);

		if (i % 2)
			hc_tree_remember(tree, fnode);
		else
			assert_non_null(hc_tree_pin(tree, fnode));
		hc_tree_put(tree, fnode);
	}
	while ((n = hc_tree_pages(tree, &cursor, views, HC_ARRAY_SIZE(views))))
		for (size_t k = 0; k < n; k++)
			sum += views[k].entry;
	/* those that the kernel knows: the odd ones */
	assert_int_equal(sum, N_NODES / 2 * (N_NODES / 2));
	hc_tree_destroy(tree);
}

static void *hammer(void *arg)
{
	struct hc_tree *tree = arg;
	struct hc_rng rng;

	hc_rng_seed(&rng, (uintptr_t)&rng);
	for (unsigned step = 0; step < N_STEPS / 4; step++) {
		struct hc_page_info info = page(hc_rng_below(&rng, 50));
		struct hc_fnode *fnode = hc_tree_page(tree, &info);
		struct hc_fview view;

		hc_tree_remember(tree, fnode);
		hc_tree_opened(tree, fnode, step);
		hc_tree_put(tree, fnode);
		hc_tree_see(tree, info.node_id, &view);
		hc_tree_forget(tree, info.node_id, 1);
	}
	return NULL;
}

static void threads(void **state)
{
	pthread_t threads[N_THREADS];
	struct hc_tree *tree;

	assert_int_equal(hc_tree_create(&tree), 0);
	for (unsigned i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hammer, tree), 0);
	for (unsigned i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(hc_tree_count(tree), 0);
	hc_tree_destroy(tree);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(directories_need_no_table),
	cmocka_unit_test(forgets_against_a_model),
	cmocka_unit_test(a_body_becomes_a_page),
	cmocka_unit_test(all_pages_are_visited),
	cmocka_unit_test(threads),
};

HC_TEST_MAIN(tests)
