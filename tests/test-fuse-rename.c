/* SPDX-License-Identifier: Apache-2.0 */
/* A rename and the end of a writer of what it replaces, at once, by two workers: the rename wins
 * whole. And what writers of an ordinary file see of each other when it was renamed while it was
 * written. */
#include <semaphore.h>

#include "tests/fuse-rig.h"

#define SIZE  FRIG_BYTES
#define WCT   (O_WRONLY | O_CREAT | O_TRUNC)
#define TEMP  "0123456789abcdef0123456789abcdef.tmp"
#define FINAL "0123456789abcdef0123456789abcdef"

enum { A, B, C };

static struct frig *the_rig;
static struct fuse_file_info late;
static pthread_t releaser;
static __thread bool is_releaser;
static bool meets;
static sem_t there, over;

static void *release_late(void *arg)
{
	is_releaser = true;
	rig_close(the_rig, A, &late);
	sem_post(&there);
	return NULL;
}

int __real_hc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);
int __wrap_hc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

/* The releaser waits for the rename. */
int __wrap_hc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	if (is_releaser && lock == &the_rig->fs.bodies.lock)
		sem_post(&there);
	return __real_hc_cond_wait_until(cond, lock, deadline_ns);
}

int __real_hc_fill_publish(struct hc_fill *fill, const struct hc_publish *item);
int __wrap_hc_fill_publish(struct hc_fill *fill, const struct hc_publish *item);

/* The rename is about to publish: the RELEASE begins, and comes as far as it can. If that is here,
 * it goes on when the rename is over. */
int __wrap_hc_fill_publish(struct hc_fill *fill, const struct hc_publish *item)
{
	if (is_releaser) {
		sem_post(&there);
		sem_wait(&over);
	} else if (meets) {
		meets = false;
		assert_int_equal(pthread_create(&releaser, NULL, release_late, NULL), 0);
		sem_wait(&there);
	}
	return __real_hc_fill_publish(fill, item);
}

static int begin(void **state)
{
	frig_setup(state);
	the_rig = *state;
	sem_init(&there, 0, 0);
	sem_init(&over, 0, 0);
	rig_up(the_rig->rig);
	return frig_up(the_rig);
}

static int end(void **state)
{
	meets = false;
	frig_end(*state);
	return frig_teardown(state);
}

static void rename_wins(void **state)
{
	struct frig *f = *state;

	assert_int_equal(rig_open(f, A, TEMP, WCT, &late), 0);
	assert_int_equal(rig_write(f, &late, 'a', SIZE), 0);
	assert_int_equal(rig_rename(f, A, TEMP, FINAL), 0);
	frig_put(f, C, TEMP, 'c');
	meets = true;
	assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
	assert_false(meets);
	sem_post(&over);
	pthread_join(releaser, NULL);
	frig_check(f, B, FINAL, 'c');
	assert_int_equal(f->fs.bodies.n_bodies, 0);
}

/* One file for all who write it, as an ordinary file is. */
static void ordinary_file_that_is_still_written(void **state)
{
	struct fuse_file_info fi, second;
	struct frig *f = *state;

	assert_int_equal(rig_open(f, A, TEMP, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'a', SIZE), 0);
	assert_int_equal(rig_rename(f, A, TEMP, "notes.json"), 0);
	assert_int_equal(rig_open(f, B, "notes.json", O_RDWR | O_CREAT, &second), 0);
	assert_int_equal(rig_write(f, &second, 'b', 1), 0);
	frig_check(f, C, "notes.json", 'b');
	rig_close(f, A, &fi);
	assert_int_equal(rig_write(f, &second, 'd', 1), 0);
	frig_check(f, C, "notes.json", 'd');
	rig_close(f, B, &second);
	frig_check(f, C, "notes.json", 'd');
	assert_int_equal(rig_unlink(f, C, "notes.json"), 0);
	assert_int_equal(f->fs.bodies.n_bodies, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rename_wins, begin, end),
		cmocka_unit_test_setup_teardown(ordinary_file_that_is_still_written, begin, end),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
