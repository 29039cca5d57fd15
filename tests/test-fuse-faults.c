/* SPDX-License-Identifier: Apache-2.0 */
/* The front end and bodies under construction when memory is out. Goal: every request is answered
 * once, what was held is given back, and a page that is read is whole and right. Method: one life
 * of a mount's names, without a mount, in which every request may fail, made for
 * contrib/run-faults; without a failing allocation every one must succeed. With and without a disk.
 */
#include "tests/fuse-rig.h"

#define SIZE  ((size_t)192 * 1024)
#define WCT   (O_WRONLY | O_CREAT | O_TRUNC)
#define N_SET 8

enum { A, B, C };

static bool whole_run;
static int n_failed;

static bool ok(const char *what, int err)
{
	if (err) {
		n_failed++;
		print_message("# %s: %s\n", what, strerror(-err));
	}
	return !err;
}

static void put(struct frig *f, int who, const char *name, int byte, size_t n, int flags)
{
	struct fuse_file_info fi;

	if (!ok("open to write", rig_open(f, who, name, flags, &fi)))
		return;
	ok("write", rig_write(f, &fi, byte, n));
	rig_close(f, who, &fi);
}

/* Whole and of one of the bytes that were ever written there, or not at all. */
static void get(struct frig *f, int who, const char *name, int byte, int other, size_t n)
{
	struct fuse_file_info fi;
	size_t got = 0;
	int first = 0;

	if (!ok("open to read", rig_open(f, who, name, O_RDONLY, &fi)))
		return;
	if (ok("read", rig_read(f, &fi, n + 1, &first, &got)) && whole_run)
		assert_true(got == n && first == byte);
	if (got)
		assert_true(first == byte || first == other);
	rig_close(f, who, &fi);
}

static void pages(struct frig *f)
{
	char name[80], temp[96];

	for (int i = 0; i < N_SET; i++) {
		snprintf(name, sizeof(name), "%064x.r0", 0xabc000 + i);
		snprintf(temp, sizeof(temp), "%s.tmp.%d", name, i);
		if (i % 2) {
			put(f, A, temp, 'a', SIZE, WCT);
			ok("rename", rig_rename(f, A, temp, name));
		} else {
			put(f, A, name, 'a', SIZE, WCT);
		}
		get(f, B, name, 'a', 'a', SIZE);
		/* a second writer; one that keeps half of what was there */
		put(f, B, name, 'b', SIZE, WCT);
		get(f, C, name, 'b', 'a', SIZE);
		put(f, C, name, 'b', 4096, O_RDWR);
		get(f, A, name, 'b', 'a', SIZE);
		/* a page of a page, and of a name that says nothing */
		snprintf(temp, sizeof(temp), "p%d.data", i);
		ok("rename to an opaque name", rig_rename(f, A, name, temp));
		get(f, B, temp, 'b', 'a', SIZE);
	}
}

/* Renamed while its writer goes on, replaced, unlinked. */
static void unsealed(struct frig *f)
{
	static const char name[] = "0123456789abcdef0123456789abcdef";
	struct fuse_file_info fi;
	struct stat attr;
	uint64_t ino;

	for (int i = 0; i < 2; i++) {
		if (!ok("open", rig_open(f, A, "x.tmp", WCT, &fi)))
			continue;
		ok("write", rig_write(f, &fi, 'u', SIZE));
		ok("rename", rig_rename(f, A, "x.tmp", name));
		if (ok("look-up", rig_lookup(f, B, name, &ino)))
			ok("stat", rig_getattr(f, B, ino, &attr));
		if (i)
			ok("unlink", rig_unlink(f, C, name));
		rig_close(f, A, &fi);
	}
}

/* An ordinary file that outgrows its limit, one that becomes a page, one unlinked while it is
 * written. */
static void files(struct frig *f, bool disk_off)
{
	static const char name[] = "fedcba9876543210fedcba9876543210";
	struct fuse_file_info fi;

	put(f, A, "config", 'c', 100, WCT);
	get(f, B, "config", 'c', 'c', 100);
	put(f, B, "config", 'd', HC_MIB + 4096, WCT);
	get(f, C, "config", 'd', 'c', HC_MIB + 4096);
	put(f, A, "plain", 'p', 5000, WCT);
	ok("rename of a file to a page", rig_rename(f, A, "plain", name));
	get(f, C, name, 'p', 'p', 5000);
	if (ok("open", rig_open(f, A, "gone", WCT, &fi))) {
		ok("write", rig_write(f, &fi, 'g', 100));
		ok("unlink", rig_unlink(f, B, "gone"));
		ok("write", rig_write(f, &fi, 'g', HC_MIB + 4096));
		rig_close(f, A, &fi);
	}
	if (disk_off)
		return;
	/* above max_page_bytes: scratch */
	put(f, A, "s.data", 's', 3 * HC_MIB, WCT);
	get(f, B, "s.data", 's', 's', 3 * HC_MIB);
	ok("unlink of a scratch file", rig_unlink(f, B, "s.data"));
}

static int up(struct frig *f)
{
	struct rig *rig = f->rig;
	struct hc_owner owner = {0, 0, 0755};
	struct hc_dir_info dir;
	int err = hc_node_open(&rig->config, &rig->node);

	if (!err) {
		err = hc_dir_make(hc_node_registry(rig->node), HC_DIR_ROOT, "m", &owner, &dir);
		err = err == -EEXIST ? 0 : err;
	}
	return err ? err : frig_up(f);
}

static void life(struct frig *f, bool disk_off)
{
	n_failed = 0;
	f->rig->config.disk_off = disk_off;
	f->rig->config.max_page_bytes = 2 * HC_MIB;
	frig_options(f);
	f->fs.options.max_page_bytes = 2 * HC_MIB;
	if (ok("start", up(f))) {
		pages(f);
		unsealed(f);
		files(f, disk_off);
		hc_bodies_reap(&f->fs, 0);
		hc_marks_expire(&f->fs);
	}
	frig_end(f);
	if (f->rig->node)
		rig_down(f->rig);
	if (whole_run)
		assert_int_equal(n_failed, 0);
}

static void with_a_disk(void **state)
{
	life(*state, false);
}

static void in_memory_only(void **state)
{
	life(*state, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		frig_test(with_a_disk),
		frig_test(in_memory_only),
	};
	const char *fail_at = getenv("HC_FAIL_ALLOC");

	whole_run = !fail_at || !strcmp(fail_at, "0");
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
