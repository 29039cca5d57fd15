/* SPDX-License-Identifier: Apache-2.0 */
/* The front end without a mount: requests are made up here, the replies that it gives to libfuse
 * end here, too. What a test does between two requests happens between them, always: races are
 * told, not hoped for. One thread. */
#ifndef HC_TEST_FUSE_RIG_H
#define HC_TEST_FUSE_RIG_H

#include "fuse/internal.h"
#include "tests/node-rig.h"

#include <signal.h>
#include <sys/wait.h>

#define RIG_ACTORS 3

struct fuse_req {
	struct fuse_ctx ctx;
	struct hc_fs *fs;
	bool replied;
	int err;
	size_t n;
	struct fuse_entry_param entry;
	struct fuse_file_info fi;
	struct stat attr;
	char data[16];
};

struct frig {
	struct rig *rig;
	struct hc_fs fs;
	pid_t actors[RIG_ACTORS]; /* processes that do nothing: ids of requests */
	uint32_t dir;
};

/* --- what the operations call of libfuse --- */

static void rig_replied(fuse_req_t req, int err)
{
	assert_false(req->replied);
	req->replied = true;
	req->err = -err;
}

int fuse_reply_err(fuse_req_t req, int err)
{
	assert_true(err >= 0);
	rig_replied(req, err);
	return 0;
}

void fuse_reply_none(fuse_req_t req)
{
	rig_replied(req, 0);
}

int fuse_reply_entry(fuse_req_t req, const struct fuse_entry_param *entry)
{
	rig_replied(req, entry->ino ? 0 : ENOENT);
	req->entry = *entry;
	return 0;
}

int fuse_reply_create(fuse_req_t req, const struct fuse_entry_param *entry,
		      const struct fuse_file_info *fi)
{
	rig_replied(req, 0);
	req->entry = *entry;
	req->fi = *fi;
	return 0;
}

int fuse_reply_attr(fuse_req_t req, const struct stat *attr, double timeout)
{
	rig_replied(req, 0);
	req->attr = *attr;
	return 0;
}

int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	rig_replied(req, 0);
	req->fi = *fi;
	return 0;
}

int fuse_reply_write(fuse_req_t req, size_t n)
{
	rig_replied(req, 0);
	req->n = n;
	return 0;
}

int fuse_reply_buf(fuse_req_t req, const char *data, size_t n)
{
	rig_replied(req, 0);
	req->n = n;
	if (n)
		memcpy(req->data, data, n < sizeof(req->data) ? n : sizeof(req->data));
	return 0;
}

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
	return &req->ctx;
}

void *fuse_req_userdata(fuse_req_t req)
{
	return req->fs;
}

/* --- requests, by an actor --- */

static struct fuse_req rig_req(struct frig *f, int who)
{
	return (struct fuse_req){.ctx = {.pid = f->actors[who]}, .fs = &f->fs};
}

static int rig_lookup(struct frig *f, int who, const char *name, uint64_t *ino_p)
{
	struct fuse_req req = rig_req(f, who);

	hc_op_lookup(&req, f->dir, name);
	assert_true(req.replied);
	*ino_p = req.err ? 0 : req.entry.ino;
	return req.err;
}

static int rig_getattr(struct frig *f, int who, uint64_t ino, struct stat *attr_p)
{
	struct fuse_req req = rig_req(f, who);

	hc_op_getattr(&req, ino, NULL);
	assert_true(req.replied);
	*attr_p = req.attr;
	return req.err;
}

/* One OPEN; the handle in *fi_p. */
static int rig_open_ino(struct frig *f, int who, uint64_t ino, int flags,
			struct fuse_file_info *fi_p)
{
	struct fuse_req req = rig_req(f, who);
	struct fuse_file_info fi = {.flags = flags & ~(O_CREAT | O_EXCL)};

	hc_op_open(&req, ino, &fi);
	assert_true(req.replied);
	*fi_p = req.fi;
	fi_p->flags = flags;
	return req.err;
}

static int rig_create(struct frig *f, int who, const char *name, int flags,
		      struct fuse_file_info *fi_p)
{
	struct fuse_req req = rig_req(f, who);
	struct fuse_file_info fi = {.flags = flags};

	hc_op_create(&req, f->dir, name, S_IFREG | 0644, &fi);
	assert_true(req.replied);
	*fi_p = req.fi;
	fi_p->flags = flags;
	return req.err;
}

/* open(2) as the kernel asks for it: with default_permissions, names and attributes never cached,
 * and once more when the answer was ESTALE. */
static int rig_open(struct frig *f, int who, const char *name, int flags,
		    struct fuse_file_info *fi_p)
{
	struct stat attr;
	uint64_t ino;
	int err = -ESTALE;

	for (int i = 0; i < 2 && err == -ESTALE; i++) {
		err = rig_lookup(f, who, name, &ino);
		if (err == -ENOENT && flags & O_CREAT) {
			err = rig_create(f, who, name, flags, fi_p);
			continue;
		}
		if (!err)
			err = rig_getattr(f, who, ino, &attr);
		if (!err)
			err = rig_open_ino(f, who, ino, flags, fi_p);
	}
	return err;
}

static int rig_write(struct frig *f, struct fuse_file_info *fi, int byte, size_t n)
{
	struct fuse_req req = rig_req(f, 0);
	char *data = malloc(n);

	if (!data)
		return -ENOMEM;
	memset(data, byte, n);
	hc_op_write(&req, HC_INO_BODIES, data, n, 0, fi);
	assert_true(req.replied);
	free(data);
	return req.err;
}

/* The first byte and how many there were. */
static int rig_read(struct frig *f, struct fuse_file_info *fi, size_t n, int *byte_p, size_t *got_p)
{
	struct fuse_req req = rig_req(f, 0);

	hc_op_read(&req, HC_INO_BODIES, n, 0, fi);
	assert_true(req.replied);
	*byte_p = (unsigned char)req.data[0];
	*got_p = req.n;
	return req.err;
}

/* close(2): FLUSH, then RELEASE. */
static void rig_close(struct frig *f, int who, struct fuse_file_info *fi)
{
	struct fuse_req flush = rig_req(f, who), release = rig_req(f, who);

	hc_op_flush(&flush, HC_INO_BODIES, fi);
	hc_op_release(&release, HC_INO_BODIES, fi);
	assert_true(flush.replied && release.replied);
}

static int rig_rename(struct frig *f, int who, const char *name, const char *new_name)
{
	struct fuse_req req = rig_req(f, who);

	hc_op_rename(&req, f->dir, name, f->dir, new_name, 0);
	assert_true(req.replied);
	return req.err;
}

static int rig_unlink(struct frig *f, int who, const char *name)
{
	struct fuse_req req = rig_req(f, who);

	hc_op_unlink(&req, f->dir, name);
	assert_true(req.replied);
	return req.err;
}

/* The handle in *fi_p; its names are read. */
static inline int rig_opendir(struct frig *f, int who, struct fuse_file_info *fi_p)
{
	struct fuse_req req = rig_req(f, who), read = rig_req(f, who);
	struct fuse_file_info fi = {0};

	hc_op_opendir(&req, f->dir, &fi);
	assert_true(req.replied);
	*fi_p = req.fi;
	if (!req.err) {
		hc_op_readdir(&read, f->dir, 4096, 0, fi_p);
		assert_true(read.replied && !read.err);
	}
	return req.err;
}

/* --- begin and end --- */

static int frig_begin(struct hc_fs *fs)
{
	int err = hc_bodies_init(&fs->bodies);

	if (!err)
		err = hc_tree_create(&fs->tree);
	if (!err)
		err = hc_openers_create(&fs->openers);
	if (!err)
		err = hc_openfiles_create(&fs->openfiles);
	if (!err)
		err = hc_handles_create(&fs->handles);
	if (!err)
		err = hc_listings_create(&fs->listings);
	if (!err)
		err = hc_pass_create(fs, &fs->pass);
	return err;
}

static void frig_end(struct frig *f)
{
	if (f->fs.handles && f->fs.listings) {
		hc_listings_end(&f->fs);
		hc_handles_end(&f->fs);
		hc_bodies_end(&f->fs);
	}
	hc_handles_destroy(f->fs.handles);
	hc_listings_destroy(f->fs.listings);
	hc_pass_destroy(f->fs.pass);
	hc_openfiles_destroy(f->fs.openfiles);
	hc_openers_destroy(f->fs.openers);
	hc_tree_destroy(f->fs.tree);
	hc_bodies_fini(&f->fs.bodies);
	memset(&f->fs, 0, sizeof(f->fs));
}

static void frig_options(struct frig *f)
{
	f->fs.options.n_threads = 4;
	f->fs.options.max_page_bytes = HC_MIB;
	f->fs.timeout_s = 3600;
	f->fs.budget_ns = 2 * HC_NS_PER_S;
}

static pid_t actor_start(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	assert_true(pid > 0);
	return pid;
}

static int frig_setup(void **state)
{
	struct frig *f = calloc(1, sizeof(*f));
	void *rig = NULL;

	assert_non_null(f);
	for (int i = 0; i < RIG_ACTORS; i++)
		f->actors[i] = actor_start();
	rig_setup(&rig);
	f->rig = rig;
	frig_options(f);
	*state = f;
	return 0;
}

static int frig_teardown(void **state)
{
	struct frig *f = *state;
	void *rig = f->rig;

	for (int i = 0; i < RIG_ACTORS; i++) {
		kill(f->actors[i], SIGKILL);
		waitpid(f->actors[i], NULL, 0);
	}
	rig_teardown(&rig);
	free(f);
	return 0;
}

#define FRIG_BYTES 4096

/* A file of that size, all of one byte, written by an actor. */
static inline void frig_put(struct frig *f, int who, const char *name, int byte)
{
	struct fuse_file_info fi;

	assert_int_equal(rig_open(f, who, name, O_WRONLY | O_CREAT | O_TRUNC, &fi), 0);
	assert_int_equal(rig_write(f, &fi, byte, FRIG_BYTES), 0);
	rig_close(f, who, &fi);
}

static inline void frig_check(struct frig *f, int who, const char *name, int byte)
{
	struct fuse_file_info fi;
	size_t got;
	int first;

	assert_int_equal(rig_open(f, who, name, O_RDONLY, &fi), 0);
	assert_int_equal(rig_read(f, &fi, FRIG_BYTES + 1, &first, &got), 0);
	assert_int_equal(got, FRIG_BYTES);
	assert_int_equal(first, byte);
	rig_close(f, who, &fi);
}

/* The node is up: rig->node. */
static int frig_up(struct frig *f)
{
	struct hc_space_info space = {0};
	int err = frig_begin(&f->fs);

	f->fs.node = f->rig->node;
	f->fs.registry = hc_node_registry(f->rig->node);
	if (!err)
		err = hc_space_find(f->fs.registry, "m", &space);
	if (!err)
		f->dir = space.dir;
	return err;
}

#define frig_test(f) cmocka_unit_test_setup_teardown(f, frig_setup, frig_teardown)

#endif
