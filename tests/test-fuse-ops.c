/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of several processes in orders that a mount shows once in 100,000: what an open() finds
 * when names move between its look-up and its OPEN, or while the OPEN is answered. */
#include "tests/fuse-rig.h"

#define SIZE  FRIG_BYTES
#define WCT   (O_WRONLY | O_CREAT | O_TRUNC)
#define TEMP  "0123456789abcdef0123456789abcdef.tmp"
#define FINAL "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"

enum { A, B, C };

/* Happens while an OPEN is answered ESTALE. */
static void (*before_mark)(void);
static struct frig *the_rig;

bool __real_hc_mark_set(struct hc_fs *fs, int tid, enum hc_mark_kind kind);
bool __wrap_hc_mark_set(struct hc_fs *fs, int tid, enum hc_mark_kind kind);

bool __wrap_hc_mark_set(struct hc_fs *fs, int tid, enum hc_mark_kind kind)
{
	void (*hook)(void) = before_mark;

	before_mark = NULL;
	if (hook)
		hook();
	return __real_hc_mark_set(fs, tid, kind);
}

/* Happens when a rename clears what its target showed: before it looks, and before a page goes. */
static void (*before_clear)(void);
static void (*before_remove)(void);

void __real_hc_name_clear(struct hc_fs *fs, uint32_t dir, const char *name, uint64_t but_ino,
			  uint64_t but_file);
void __wrap_hc_name_clear(struct hc_fs *fs, uint32_t dir, const char *name, uint64_t but_ino,
			  uint64_t but_file);

void __wrap_hc_name_clear(struct hc_fs *fs, uint32_t dir, const char *name, uint64_t but_ino,
			  uint64_t but_file)
{
	void (*hook)(void) = before_clear;

	before_clear = NULL;
	if (hook)
		hook();
	__real_hc_name_clear(fs, dir, name, but_ino, but_file);
}

size_t __real_hc_node_remove(struct hc_node *node, uint32_t series, const struct hc_hash *hashes,
			     size_t n);
size_t __wrap_hc_node_remove(struct hc_node *node, uint32_t series, const struct hc_hash *hashes,
			     size_t n);

size_t __wrap_hc_node_remove(struct hc_node *node, uint32_t series, const struct hc_hash *hashes,
			     size_t n)
{
	void (*hook)(void) = before_remove;

	before_remove = NULL;
	if (hook)
		hook();
	return __real_hc_node_remove(node, series, hashes, n);
}

/* Happens instead of a wait, without the lock. */
static void (*during_wait)(void);

int __real_hc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);
int __wrap_hc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

int __wrap_hc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	void (*hook)(void) = lock == &the_rig->fs.bodies.lock ? during_wait : NULL;

	if (!hook)
		return __real_hc_cond_wait_until(cond, lock, deadline_ns);
	during_wait = NULL;
	pthread_mutex_unlock(lock);
	hook();
	pthread_mutex_lock(lock);
	return -ETIMEDOUT;
}

/* Happens when a page that was synced before it had its name goes to disk. */
static void (*before_sync)(void);

int __real_hc_node_sync_page(struct hc_node *node, uint32_t entry, uint64_t sequence,
			     uint64_t deadline_ns);
int __wrap_hc_node_sync_page(struct hc_node *node, uint32_t entry, uint64_t sequence,
			     uint64_t deadline_ns);

int __wrap_hc_node_sync_page(struct hc_node *node, uint32_t entry, uint64_t sequence,
			     uint64_t deadline_ns)
{
	void (*hook)(void) = before_sync;

	before_sync = NULL;
	if (hook)
		hook();
	return __real_hc_node_sync_page(node, entry, sequence, deadline_ns);
}

/* Happens when a new body gets its number. */
static void (*before_number)(void);

uint64_t __real_hc_registry_next_node_id(struct hc_registry *registry);
uint64_t __wrap_hc_registry_next_node_id(struct hc_registry *registry);

uint64_t __wrap_hc_registry_next_node_id(struct hc_registry *registry)
{
	void (*hook)(void) = before_number;

	before_number = NULL;
	if (hook)
		hook();
	return __real_hc_registry_next_node_id(registry);
}

static int begin(void **state)
{
	frig_setup(state);
	the_rig = *state;
	rig_up(the_rig->rig);
	return frig_up(the_rig);
}

static int end(void **state)
{
	before_mark = NULL;
	before_clear = NULL;
	before_remove = NULL;
	during_wait = NULL;
	before_sync = NULL;
	before_number = NULL;
	frig_end(*state);
	return frig_teardown(state);
}

/* Happens when a look-up has found no body and goes on to the pages. */
static void (*before_stat)(void);

int __real_hc_node_stat(struct hc_node *node, const struct hc_key *key, bool want_node_id,
			struct hc_page_info *info_p);
int __wrap_hc_node_stat(struct hc_node *node, const struct hc_key *key, bool want_node_id,
			struct hc_page_info *info_p);

int __wrap_hc_node_stat(struct hc_node *node, const struct hc_key *key, bool want_node_id,
			struct hc_page_info *info_p)
{
	void (*hook)(void) = before_stat;

	before_stat = NULL;
	if (hook)
		hook();
	return __real_hc_node_stat(node, key, want_node_id, info_p);
}

/* Happens when what is behind a node id has just been looked at. */
static void (*after_see)(void);

void __real_hc_tree_see(struct hc_tree *tree, uint64_t ino, struct hc_fview *view_p);
void __wrap_hc_tree_see(struct hc_tree *tree, uint64_t ino, struct hc_fview *view_p);

void __wrap_hc_tree_see(struct hc_tree *tree, uint64_t ino, struct hc_fview *view_p)
{
	void (*hook)(void) = after_see;

	after_see = NULL;
	__real_hc_tree_see(tree, ino, view_p);
	if (hook)
		hook();
}

static void rename_by_a(void)
{
	assert_int_equal(rig_rename(the_rig, A, TEMP, FINAL), 0);
}

/* B's OPEN of A's temporary is sent round; A renames it while that is answered. Nothing of B's may
 * come under the final name. */
static void name_moves_under_an_open(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi;
	uint64_t ino;

	frig_put(f, A, TEMP, 'a');
	assert_int_equal(rig_lookup(f, B, TEMP, &ino), 0);
	before_mark = rename_by_a;
	assert_int_equal(rig_open_ino(f, B, ino, WCT, &fi), -ESTALE);
	assert_null(before_mark);
	assert_int_equal(hc_bodies_count_dir(&f->fs, f->dir), 0);
	frig_put(f, B, TEMP, 'b');
	frig_check(f, C, FINAL, 'a');
	assert_int_equal(rig_rename(f, B, TEMP, FINAL), 0);
	frig_check(f, C, FINAL, 'b');
}

/* B is told a body of its own, and never opens it. What it opens next, by whatever number, is not
 * written under the name it gave up. */
static void mark_left_behind(void **state)
{
	struct frig *f = *state;
	uint64_t page, temp, own;
	struct fuse_file_info fi;

	frig_put(f, A, FINAL, 'p');
	assert_int_equal(rig_lookup(f, B, FINAL, &page), 0);
	frig_put(f, A, TEMP, 'a');
	assert_int_equal(rig_lookup(f, B, TEMP, &temp), 0);
	assert_int_equal(rig_open_ino(f, B, temp, WCT, &fi), -ESTALE);
	assert_int_equal(rig_lookup(f, B, TEMP, &own), 0);
	assert_int_not_equal(own, temp);
	assert_int_equal(rig_open_ino(f, B, page, O_WRONLY, &fi), -ESTALE);
	assert_int_equal(rig_open(f, B, FINAL, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'b', SIZE), 0);
	rig_close(f, B, &fi);
	frig_check(f, C, FINAL, 'b');
	frig_check(f, C, TEMP, 'a');
}

/* The body that a look-up made for B is nobody else's until B has opened it. */
static void pending_body_is_its_askers(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi;
	uint64_t temp, own, seen;

	frig_put(f, A, TEMP, 'a');
	assert_int_equal(rig_lookup(f, B, TEMP, &temp), 0);
	assert_int_equal(rig_open_ino(f, B, temp, WCT, &fi), -ESTALE);
	assert_int_equal(rig_lookup(f, B, TEMP, &own), 0);
	assert_int_equal(rig_lookup(f, C, TEMP, &seen), 0);
	assert_int_equal(seen, temp);
	assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
	frig_check(f, C, FINAL, 'a');
	assert_int_equal(rig_lookup(f, C, TEMP, &seen), -ENOENT);
	assert_int_equal(rig_rename(f, C, TEMP, FINAL), -ENOENT);
	assert_int_equal(rig_unlink(f, C, TEMP), -ENOENT);
	assert_int_equal(rig_open_ino(f, B, own, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'b', SIZE), 0);
	rig_close(f, B, &fi);
	assert_int_equal(rig_rename(f, B, TEMP, OTHER), 0);
	frig_check(f, C, OTHER, 'b');
	frig_check(f, C, FINAL, 'a');
}

/* A body that was looked up, replaced and ended has attributes still, as a file without a name has:
 * the one ESTALE that open() has is for its OPEN. */
static void attributes_of_a_body_that_ended(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi, other;
	uint64_t ino, next;
	struct stat attr;

	assert_int_equal(rig_open(f, A, TEMP, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'a', SIZE), 0);
	assert_int_equal(rig_rename(f, A, TEMP, FINAL), 0);
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	frig_put(f, C, TEMP, 'c');
	assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
	rig_close(f, A, &fi);
	assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
	assert_int_equal(attr.st_size, SIZE);
	assert_int_equal(attr.st_nlink, 0);
	assert_int_equal(rig_open_ino(f, B, ino, WCT, &other), -ESTALE);
	assert_int_equal(rig_lookup(f, B, FINAL, &next), 0);
	assert_int_not_equal(next, ino);
	assert_int_equal(rig_open_ino(f, B, next, WCT, &other), 0);
	assert_int_equal(rig_write(f, &other, 'b', SIZE), 0);
	frig_check(f, C, FINAL, 'c');
	rig_close(f, B, &other);
	frig_check(f, C, FINAL, 'b');
}

/* One open() meets a page that went, and then one that another process wrote: it writes its own. */
static void second_round_writes_its_own(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi;
	uint64_t ino, next;
	struct stat attr;

	frig_put(f, A, FINAL, 'a');
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_unlink(f, A, FINAL), 0);
	assert_int_equal(rig_getattr(f, B, ino, &attr), -ESTALE);
	frig_put(f, A, FINAL, 'c');
	assert_int_equal(rig_lookup(f, B, FINAL, &next), 0);
	assert_int_equal(rig_getattr(f, B, next, &attr), 0);
	assert_int_equal(rig_open_ino(f, B, next, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'b', SIZE), 0);
	frig_check(f, C, FINAL, 'c');
	rig_close(f, B, &fi);
	frig_check(f, C, FINAL, 'b');
}

/* The same, and the second one's name moves on: open() may have been O_CREAT, and writes a new one.
 */
static void second_round_creates(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi;
	uint64_t ino, next;
	struct stat attr;

	frig_put(f, A, TEMP, 'a');
	assert_int_equal(rig_lookup(f, B, TEMP, &ino), 0);
	assert_int_equal(rig_rename(f, A, TEMP, FINAL), 0);
	assert_int_equal(rig_unlink(f, A, FINAL), 0);
	assert_int_equal(rig_getattr(f, B, ino, &attr), -ESTALE);
	frig_put(f, A, TEMP, 'c');
	assert_int_equal(rig_lookup(f, B, TEMP, &next), 0);
	assert_int_equal(rig_rename(f, A, TEMP, FINAL), 0);
	assert_int_equal(rig_getattr(f, B, next, &attr), 0);
	assert_int_equal(rig_open_ino(f, B, next, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'b', SIZE), 0);
	rig_close(f, B, &fi);
	frig_check(f, C, FINAL, 'c');
	assert_int_equal(rig_rename(f, B, TEMP, FINAL), 0);
	frig_check(f, C, FINAL, 'b');
}

/* A reader whose open() meets two bodies that were replaced and ended: the name was never without
 * one. */
static void second_round_reads_what_is_there(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi, other;
	struct stat attr;
	uint64_t ino;
	size_t got;
	int first;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_open(f, A, TEMP, WCT, &fi), 0);
		assert_int_equal(rig_write(f, &fi, 'a' + i, SIZE), 0);
		assert_int_equal(rig_rename(f, A, TEMP, FINAL), 0);
		assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
		frig_put(f, C, TEMP, 'c' + i);
		assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
		rig_close(f, A, &fi);
		assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
		assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &other), i ? 0 : -ESTALE);
	}
	assert_int_equal(rig_read(f, &other, SIZE, &first, &got), 0);
	assert_int_equal(got, SIZE);
	assert_int_equal(first, 'd');
	rig_close(f, B, &other);
}

static void rename_of_open(void)
{
	assert_int_equal(rig_rename(the_rig, C, TEMP, FINAL), 0);
}

/* A page is replaced by a body that is still open, while somebody looks: the name always shows one.
 */
static void page_becomes_a_body_under_a_look_up(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi;
	uint64_t ino;

	frig_put(f, A, FINAL, 'a');
	assert_int_equal(rig_open(f, C, TEMP, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'c', SIZE), 0);
	before_stat = rename_of_open;
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_null(before_stat);
	rig_close(f, C, &fi);
	frig_check(f, B, FINAL, 'c');
}

/* Its attributes are asked for while a body that is still open takes the name, twice within one
 * call. */
static void attributes_of_a_page_that_is_replaced(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi, other;
	struct stat attr;
	uint64_t ino;

	frig_put(f, A, FINAL, 'a');
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
		assert_int_equal(rig_open(f, C, TEMP, WCT, &fi), 0);
		assert_int_equal(rig_write(f, &fi, 'c', SIZE), 0);
		assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
		assert_int_equal(rig_getattr(f, B, ino, &attr), i ? 0 : -ESTALE);
		rig_close(f, C, &fi);
	}
	assert_int_equal(attr.st_size, SIZE);
	assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &other), 0);
	assert_int_equal(rig_unlink(f, A, FINAL), 0);
	rig_close(f, B, &other);
}

/* A page that another reader holds is replaced by a body that is still open, between look-up and
 * OPEN. */
static void held_page_is_replaced(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info holder, fi, reader;
	uint64_t ino;

	frig_put(f, A, FINAL, 'a');
	assert_int_equal(rig_open(f, A, FINAL, O_RDONLY, &holder), 0);
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_open(f, C, TEMP, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'c', SIZE), 0);
	assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
	assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &reader), -ESTALE);
	assert_int_equal(rig_open(f, B, FINAL, O_RDONLY, &reader), 0);
	rig_close(f, B, &reader);
	rig_close(f, C, &fi);
	rig_close(f, A, &holder);
}

/* fstat of what was opened as a body, became a page and was replaced. */
static void attributes_of_an_open_body(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi, reader;
	struct stat attr;
	uint64_t ino;

	assert_int_equal(rig_open(f, C, TEMP, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'c', SIZE), 0);
	assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &reader), 0);
	rig_close(f, C, &fi);
	assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
	assert_int_equal(rig_unlink(f, A, FINAL), 0);
	assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
	assert_int_equal(attr.st_size, SIZE);
	rig_close(f, B, &reader);
	assert_int_equal(rig_getattr(f, B, ino, &attr), -ESTALE);
}

/* Sets the time of last change; fi: through that handle, or NULL. */
static int rig_set_mtime(struct frig *f, int who, uint64_t ino, time_t mtime_s,
			 struct fuse_file_info *fi)
{
	struct fuse_req req = rig_req(f, who);
	struct stat attr = {.st_mtim = {.tv_sec = mtime_s}};

	hc_op_setattr(&req, ino, &attr, FUSE_SET_ATTR_MTIME, fi);
	assert_true(req.replied);
	return req.err;
}

static struct frig *rig_of_hook;
static struct fuse_file_info writer_of_hook;

static void writer_ends(void)
{
	rig_close(rig_of_hook, C, &writer_of_hook);
}

/* A body that becomes a page while its times are set, or whose reader has it open still: the times
 * are the page's. */
static void times_of_a_body_that_ended(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info reader;
	struct stat attr;
	uint64_t ino;

	for (int through = 0; through < 2; through++) {
		rig_of_hook = f;
		assert_int_equal(rig_open(f, C, TEMP, WCT, &writer_of_hook), 0);
		assert_int_equal(rig_write(f, &writer_of_hook, 'c', SIZE), 0);
		assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
		assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
		if (through) {
			assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &reader), 0);
			writer_ends();
		} else {
			after_see = writer_ends;
		}
		assert_int_equal(rig_set_mtime(f, B, ino, 1000, through ? &reader : NULL), 0);
		assert_null(after_see);
		if (through)
			rig_close(f, B, &reader);
		assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
		assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
		assert_int_equal(attr.st_mtim.tv_sec, 1000);
		assert_int_equal(rig_unlink(f, A, FINAL), 0);
	}
}

/* stat() and a reader's open() of a name whose page goes twice: a miss, no ESTALE. */
static void second_round_misses(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info fi;
	struct stat attr;
	uint64_t ino;

	for (int i = 0; i < 2; i++) {
		frig_put(f, A, FINAL, 'a');
		assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
		assert_int_equal(rig_unlink(f, A, FINAL), 0);
		assert_int_equal(rig_getattr(f, B, ino, &attr), i ? -ENOENT : -ESTALE);
	}
	for (int i = 0; i < 2; i++) {
		frig_put(f, A, FINAL, 'a');
		assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
		assert_int_equal(rig_unlink(f, A, FINAL), 0);
		assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &fi), i ? -ENOENT : -ESTALE);
	}
}

/* A reader finds one page after the other gone: each is looked up again, so that the kernel forgets
 * it before open() answers. */
static void each_miss_is_looked_up_again(void **state)
{
	static const char *const names[] = {FINAL, OTHER};
	struct frig *f = *state;
	struct fuse_file_info fi;
	uint64_t inos[2], seen;

	for (int i = 0; i < 2; i++) {
		frig_put(f, A, names[i], 'a');
		assert_int_equal(rig_lookup(f, B, names[i], &inos[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(rig_unlink(f, A, names[i]), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_open_ino(f, B, inos[i], O_RDONLY, &fi), -ESTALE);
		assert_int_equal(rig_lookup(f, B, names[i], &seen), -ENOENT);
	}
}

static struct fuse_file_info late;

static void release_late(void)
{
	rig_close(the_rig, A, &late);
}

/* close() is answered before RELEASE comes: that may be while the rename goes on, wherever it is.
 */
static void rename_meets_release(struct frig *f, const char *name, void (**place)(void))
{
	assert_int_equal(rig_open(f, A, TEMP, WCT, &late), 0);
	assert_int_equal(rig_write(f, &late, 'a', SIZE), 0);
	*place = release_late;
	assert_int_equal(rig_rename(f, A, TEMP, name), 0);
	assert_null(*place);
	frig_check(f, B, name, 'a');
	assert_int_equal(hc_bodies_count_dir(&f->fs, f->dir), 0);
	assert_int_equal(f->fs.bodies.n_bodies, 0);
	frig_put(f, C, TEMP, 'c');
	assert_int_equal(rig_rename(f, C, TEMP, name), 0);
	frig_check(f, B, name, 'c');
}

static void release_before_the_target_is_cleared(void **state)
{
	rename_meets_release(*state, FINAL, &before_clear);
	rename_meets_release(*state, "notes.json", &before_clear);
}

static void release_while_the_target_is_cleared(void **state)
{
	frig_put(*state, C, FINAL, 'c');
	rename_meets_release(*state, FINAL, &before_remove);
}

static int n_waits;

static void release_later(void)
{
	if (++n_waits < 20)
		during_wait = release_later;
	else
		release_late();
}

/* Twice within one open() the node is another reader's, and stands for a page that was replaced:
 * the name is never without one. */
static void second_round_waits_for_a_reader(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info holder, fi;
	uint64_t ino;
	size_t got;
	int first;

	n_waits = 0;
	frig_put(f, A, FINAL, 'a');
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_open(f, C, FINAL, O_RDONLY, &holder), 0);
	frig_put(f, A, TEMP, 'b');
	assert_int_equal(rig_rename(f, A, TEMP, FINAL), 0);
	assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &fi), -ESTALE);
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_open(f, A, FINAL, O_RDONLY, &late), 0);
	frig_put(f, C, TEMP, 'c');
	assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
	during_wait = release_later;
	assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &fi), 0);
	assert_int_equal(n_waits, 20);
	assert_null(during_wait);
	assert_int_equal(rig_read(f, &fi, SIZE + 1, &first, &got), 0);
	assert_int_equal(got, SIZE);
	assert_int_equal(first, 'c');
	rig_close(f, B, &fi);
	rig_close(f, C, &holder);
}

/* An ordinary file is above its limit, small again and above it once more while somebody reads it:
 * one file, whose bytes every handle shows. */
static void file_and_body_in_turns(void **state)
{
	const char *name = "notes.json";
	struct fuse_file_info reader, fi;
	struct frig *f = *state;
	uint64_t ino, seen;
	struct stat attr;
	size_t got;
	int first;

	assert_int_equal(rig_open(f, A, name, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'a', HC_FILE_BYTES_MAX + 1), 0);
	rig_close(f, A, &fi);
	assert_int_equal(rig_open(f, B, name, O_RDONLY, &reader), 0);
	assert_int_equal(rig_lookup(f, B, name, &ino), 0);
	for (int i = 0; i < 4; i++) {
		size_t size = i & 1 ? HC_FILE_BYTES_MAX + 1 : SIZE;

		assert_int_equal(rig_open(f, C, name, O_WRONLY | O_TRUNC, &fi), 0);
		assert_int_equal(rig_getattr(f, C, ino, &attr), 0);
		assert_int_equal(attr.st_size, 0);
		assert_int_equal(rig_write(f, &fi, 'c' + i, size), 0);
		for (int closed = 0; closed < 2; closed++) {
			assert_int_equal(rig_read(f, &reader, SIZE, &first, &got), 0);
			assert_int_equal(got, SIZE);
			assert_int_equal(first, 'c' + i);
			assert_int_equal(rig_lookup(f, B, name, &seen), 0);
			assert_int_equal(seen, ino);
			assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
			assert_int_equal(attr.st_size, size);
			if (!closed)
				rig_close(f, C, &fi);
		}
	}
	assert_int_equal(rig_unlink(f, A, name), 0);
	assert_int_equal(rig_read(f, &reader, SIZE, &first, &got), 0);
	assert_int_equal(first, 'c' + 3);
	assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
	assert_int_equal(attr.st_nlink, 0);
	rig_close(f, B, &reader);
	assert_int_equal(f->fs.bodies.n_bodies, 0);
}

/* An empty file under a page's name, which is renamed and then replaced by a page, for its reader.
 */
static void empty_file_under_a_page_name(void **state)
{
	struct fuse_file_info reader, fi;
	struct frig *f = *state;
	struct stat attr;
	uint64_t ino;
	size_t got;
	int first;

	assert_int_equal(rig_open(f, A, FINAL, WCT, &fi), 0);
	rig_close(f, A, &fi);
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &reader), 0);
	assert_int_equal(rig_rename(f, A, FINAL, OTHER), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
		assert_int_equal(attr.st_size, 0);
		assert_int_equal(rig_read(f, &reader, SIZE, &first, &got), 0);
		assert_int_equal(got, 0);
		if (!i)
			frig_put(f, A, OTHER, 'a');
	}
	frig_check(f, C, OTHER, 'a');
	rig_close(f, B, &reader);
	frig_check(f, C, OTHER, 'a');
	assert_int_equal(f->fs.bodies.n_bodies, 0);
}

static struct fuse_file_info second_of_hook;

static void open_for_writing(void)
{
	size_t got;
	int first;

	assert_int_equal(rig_open(the_rig, C, FINAL, O_RDWR, &second_of_hook), 0);
	assert_int_equal(rig_read(the_rig, &second_of_hook, SIZE, &first, &got), 0);
	assert_int_equal(got, SIZE);
	assert_int_equal(first, 'a');
}

/* A body is a page already, and is waited for to be on disk: who writes its name begins with a copy
 * of the page. */
static void body_that_is_a_page_is_copied(void **state)
{
	struct fuse_req req = rig_req(*state, A);
	struct frig *f = *state;
	struct fuse_file_info fi;

	assert_int_equal(rig_open(f, A, TEMP, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'a', SIZE), 0);
	hc_op_fsync(&req, HC_INO_BODIES, 0, &fi);
	assert_int_equal(req.err, 0);
	assert_int_equal(rig_rename(f, A, TEMP, FINAL), 0);
	before_sync = open_for_writing;
	rig_close(f, A, &fi);
	assert_null(before_sync);
	assert_int_equal(rig_write(f, &second_of_hook, 'c', SIZE), 0);
	frig_check(f, A, FINAL, 'a');
	rig_close(f, C, &second_of_hook);
	frig_check(f, A, FINAL, 'c');
}

/* The same, and the body becomes the page when its copy is about to be made. */
static void body_becomes_a_page_when_it_is_copied(void **state)
{
	struct frig *f = *state;

	assert_int_equal(rig_open(f, A, TEMP, WCT, &late), 0);
	assert_int_equal(rig_write(f, &late, 'a', SIZE), 0);
	assert_int_equal(rig_rename(f, A, TEMP, FINAL), 0);
	before_number = release_late;
	open_for_writing();
	assert_null(before_number);
	rig_close(f, C, &second_of_hook);
	frig_check(f, A, FINAL, 'a');
}

/* A page's name is opened for writing, and before it is closed, with nothing written, a scratch
 * file and a body that is still written take the name: they keep it. */
static void closed_without_a_write(void **state)
{
	struct frig *f = *state;
	struct fuse_file_info idle, fi;
	struct stat attr;
	uint64_t ino;

	for (int open = 0; open < 2; open++) {
		const char *name = open ? OTHER : FINAL;
		size_t size = open ? SIZE : HC_MIB + SIZE;

		assert_int_equal(rig_open(f, B, name, WCT, &idle), 0);
		assert_int_equal(rig_open(f, A, TEMP, WCT, &fi), 0);
		assert_int_equal(rig_write(f, &fi, 'a', size), 0);
		if (!open)
			rig_close(f, A, &fi);
		assert_int_equal(rig_rename(f, A, TEMP, name), 0);
		rig_close(f, B, &idle);
		assert_int_equal(rig_lookup(f, C, name, &ino), 0);
		assert_int_equal(rig_getattr(f, C, ino, &attr), 0);
		assert_int_equal(attr.st_size, size);
		if (open)
			rig_close(f, A, &fi);
	}
	frig_check(f, C, OTHER, 'a');
}

static void size_of_final(void)
{
	struct stat attr;
	uint64_t ino;

	assert_int_equal(rig_lookup(the_rig, B, FINAL, &ino), 0);
	assert_int_equal(rig_getattr(the_rig, B, ino, &attr), 0);
	assert_int_equal(attr.st_size, SIZE);
}

/* A scratch file has the name while a page is written in place: the name shows the page from the
 * moment on when it is one, also while that is waited for to be on disk. */
static void page_replaces_a_scratch_file(void **state)
{
	struct fuse_req req = rig_req(*state, A);
	struct fuse_file_info fi, scratch;
	struct frig *f = *state;

	assert_int_equal(rig_open(f, A, FINAL, WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'a', SIZE), 0);
	hc_op_fsync(&req, HC_INO_BODIES, 0, &fi);
	assert_int_equal(req.err, 0);
	assert_int_equal(rig_open(f, C, TEMP, WCT, &scratch), 0);
	assert_int_equal(rig_write(f, &scratch, 'c', HC_MIB + SIZE), 0);
	rig_close(f, C, &scratch);
	assert_int_equal(rig_rename(f, C, TEMP, FINAL), 0);
	before_sync = size_of_final;
	rig_close(f, A, &fi);
	assert_null(before_sync);
	frig_check(f, C, FINAL, 'a');
}

static void release_only(void)
{
	struct fuse_req req = rig_req(the_rig, A);

	hc_op_release(&req, HC_INO_BODIES, &late);
}

/* A new name closed without a write is there when close() has returned, as any other. */
static void look_up_waits_for_an_empty_file(void **state)
{
	struct fuse_req req = rig_req(*state, A);
	struct frig *f = *state;
	uint64_t ino;

	assert_int_equal(rig_open(f, A, FINAL, WCT, &late), 0);
	hc_op_flush(&req, HC_INO_BODIES, &late);
	during_wait = release_only;
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_null(during_wait);
}

/* The kernel moves what it knows of a page to the new name, and asks nobody. */
static void page_keeps_its_number(void **state)
{
	struct fuse_file_info fi, reader;
	struct frig *f = *state;
	uint64_t ino, seen;
	struct stat attr;
	size_t got;
	int first;

	frig_put(f, A, FINAL, 'a');
	frig_put(f, A, OTHER, 'b');
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &reader), 0);
	assert_int_equal(rig_rename(f, A, FINAL, OTHER), 0);
	assert_int_equal(rig_getattr(f, C, ino, &attr), 0);
	assert_int_equal(rig_lookup(f, C, OTHER, &seen), 0);
	assert_int_equal(seen, ino);
	assert_int_equal(rig_open_ino(f, C, ino, O_RDONLY, &fi), 0);
	assert_int_equal(rig_read(f, &fi, SIZE, &first, &got), 0);
	assert_int_equal(first, 'a');
	rig_close(f, C, &fi);
	assert_int_equal(rig_read(f, &reader, SIZE, &first, &got), 0);
	assert_int_equal(first, 'a');
	rig_close(f, B, &reader);
	assert_int_equal(rig_lookup(f, C, FINAL, &seen), -ENOENT);
	frig_put(f, A, FINAL, 'c');
	frig_check(f, B, FINAL, 'c');
	frig_check(f, B, OTHER, 'a');
}

/* A writer's open() that was sent round by its getattr already writes a body that the node does not
 * tell of: the kernel keeps the name for no time, and fstat() by the writer is of what it writes.
 */
static void detached_writer(void **state)
{
	struct fuse_req req = rig_req(*state, B);
	struct frig *f = *state;
	struct fuse_file_info fi, reader;
	struct stat attr;
	uint64_t ino;

	frig_put(f, A, FINAL, 'a');
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_unlink(f, A, FINAL), 0);
	assert_int_equal(rig_getattr(f, B, ino, &attr), -ESTALE);
	frig_put(f, A, FINAL, 'c');
	hc_op_lookup(&req, f->dir, FINAL);
	assert_int_equal(req.err, 0);
	assert_true(req.entry.entry_timeout == 0);
	ino = req.entry.ino;
	assert_int_equal(rig_open_ino(f, B, ino, WCT, &fi), 0);
	assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
	assert_int_equal(attr.st_size, 0);
	assert_int_equal(rig_write(f, &fi, 'b', 2 * SIZE), 0);
	assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
	assert_int_equal(attr.st_size, 2 * SIZE);
	assert_int_equal(rig_getattr(f, C, ino, &attr), 0);
	assert_int_equal(attr.st_size, SIZE);
	/* A reader's is of what it reads. */
	assert_int_equal(rig_open_ino(f, B, ino, O_RDONLY, &reader), 0);
	assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
	assert_int_equal(attr.st_size, SIZE);
	rig_close(f, B, &reader);
	rig_close(f, B, &fi);
	assert_int_equal(rig_lookup(f, B, FINAL, &ino), 0);
	assert_int_equal(rig_getattr(f, B, ino, &attr), 0);
	assert_int_equal(attr.st_size, 2 * SIZE);
}

/* A directory that is open when the mount ends holds no memory of the bodies that it listed. */
static void directory_open_at_the_end(void **state)
{
	struct hc_node_stats before, after;
	struct frig *f = *state;
	struct fuse_file_info fi, dir;

	/* The next one of this series has a slot at once. */
	frig_put(f, A, FINAL, 'a');
	hc_node_stats(f->rig->node, &before);
	assert_int_equal(rig_open(f, A, OTHER ".tmp", WCT, &fi), 0);
	assert_int_equal(rig_write(f, &fi, 'a', SIZE), 0);
	rig_close(f, A, &fi);
	hc_node_stats(f->rig->node, &after);
	assert_int_equal(after.pool.n_slots_used, before.pool.n_slots_used + 1);
	assert_int_equal(rig_opendir(f, B, &dir), 0);
	assert_int_equal(rig_opendir(f, C, &dir), 0);
	hc_listings_end(&f->fs);
	hc_handles_end(&f->fs);
	hc_bodies_end(&f->fs);
	hc_node_stats(f->rig->node, &after);
	assert_int_equal(after.pool.n_slots_used, before.pool.n_slots_used);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(name_moves_under_an_open, begin, end),
		cmocka_unit_test_setup_teardown(mark_left_behind, begin, end),
		cmocka_unit_test_setup_teardown(pending_body_is_its_askers, begin, end),
		cmocka_unit_test_setup_teardown(attributes_of_a_body_that_ended, begin, end),
		cmocka_unit_test_setup_teardown(second_round_writes_its_own, begin, end),
		cmocka_unit_test_setup_teardown(second_round_creates, begin, end),
		cmocka_unit_test_setup_teardown(second_round_reads_what_is_there, begin, end),
		cmocka_unit_test_setup_teardown(page_becomes_a_body_under_a_look_up, begin, end),
		cmocka_unit_test_setup_teardown(attributes_of_a_page_that_is_replaced, begin, end),
		cmocka_unit_test_setup_teardown(attributes_of_an_open_body, begin, end),
		cmocka_unit_test_setup_teardown(times_of_a_body_that_ended, begin, end),
		cmocka_unit_test_setup_teardown(held_page_is_replaced, begin, end),
		cmocka_unit_test_setup_teardown(second_round_misses, begin, end),
		cmocka_unit_test_setup_teardown(each_miss_is_looked_up_again, begin, end),
		cmocka_unit_test_setup_teardown(second_round_waits_for_a_reader, begin, end),
		cmocka_unit_test_setup_teardown(release_before_the_target_is_cleared, begin, end),
		cmocka_unit_test_setup_teardown(release_while_the_target_is_cleared, begin, end),
		cmocka_unit_test_setup_teardown(body_that_is_a_page_is_copied, begin, end),
		cmocka_unit_test_setup_teardown(body_becomes_a_page_when_it_is_copied, begin, end),
		cmocka_unit_test_setup_teardown(page_replaces_a_scratch_file, begin, end),
		cmocka_unit_test_setup_teardown(look_up_waits_for_an_empty_file, begin, end),
		cmocka_unit_test_setup_teardown(page_keeps_its_number, begin, end),
		cmocka_unit_test_setup_teardown(detached_writer, begin, end),
		cmocka_unit_test_setup_teardown(directory_open_at_the_end, begin, end),
		cmocka_unit_test_setup_teardown(closed_without_a_write, begin, end),
		cmocka_unit_test_setup_teardown(file_and_body_in_turns, begin, end),
		cmocka_unit_test_setup_teardown(empty_file_under_a_page_name, begin, end),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
