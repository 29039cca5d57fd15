/* SPDX-License-Identifier: Apache-2.0 */
/* See bare-fuse.h. What it has in common with hicachefs, so that the difference is hicachefs's own
 * work: libfuse's low level, fixed threads with a buffer each, requests of 1 MiB, long timeouts, no
 * FLUSH of readers, and the sum of each 64 KiB leaf while it arrives. */
#include "bare-fuse.h"

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "model/checksum.h"

#define BARE_NAME_BYTES 96
#define BARE_TIMEOUT_S  3600.0
#define BARE_IO_BYTES   ((uint32_t)1 << 20)
#define BARE_FIRST_INO  2u

struct bare_file {
	char name[BARE_NAME_BYTES]; /* "": free */
	uint64_t size_bytes;
	uint64_t *leaves;
	uint64_t checksum; /* of the last close */
};

struct bare {
	struct bare_config config;
	struct fuse_session *session;
	pthread_mutex_t lock; /* names */
	struct bare_file files[BARE_FILES_MAX];
};

static struct bare *bare_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct bare_file *file_of(struct bare *bare, fuse_ino_t ino)
{
	return &bare->files[ino - BARE_FIRST_INO];
}

static char *data_of(struct bare *bare, fuse_ino_t ino)
{
	return bare->config.arena + (ino - BARE_FIRST_INO) * bare->config.slot_bytes;
}

/* Locked; 0: not there. "" finds a free one. */
static fuse_ino_t find_locked(struct bare *bare, const char *name)
{
	for (uint32_t i = 0; i < bare->config.n_files; i++)
		if (!strcmp(bare->files[i].name, name))
			return i + BARE_FIRST_INO;
	return 0;
}

static void fill_attr(struct bare *bare, fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){.st_ino = ino, .st_nlink = 1, .st_uid = geteuid(), .st_gid = getegid()};
	st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
	if (ino != FUSE_ROOT_ID)
		st->st_size = (off_t)file_of(bare, ino)->size_bytes;
}

static void fill_entry(struct bare *bare, fuse_ino_t ino, struct fuse_entry_param *entry)
{
	*entry = (struct fuse_entry_param){
		.ino = ino, .attr_timeout = BARE_TIMEOUT_S, .entry_timeout = BARE_TIMEOUT_S};
	if (ino)
		fill_attr(bare, ino, &entry->attr);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_ASYNC_DIO;
	unsigned refuse = FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
			  FUSE_CAP_SPLICE_MOVE;

	(void)userdata;
	conn->want = (conn->want & ~refuse) | (want & conn->capable);
	conn->max_write = BARE_IO_BYTES;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct bare *bare = bare_of(req);
	struct fuse_entry_param entry;
	fuse_ino_t ino;

	(void)parent;
	pthread_mutex_lock(&bare->lock);
	ino = *name ? find_locked(bare, name) : 0;
	pthread_mutex_unlock(&bare->lock);
	fill_entry(bare, ino, &entry);
	fuse_reply_entry(req, &entry);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	fill_attr(bare_of(req), ino, &st);
	fuse_reply_attr(req, &st, BARE_TIMEOUT_S);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct bare *bare = bare_of(req);
	struct fuse_entry_param entry;
	fuse_ino_t ino;

	(void)parent;
	(void)mode;
	pthread_mutex_lock(&bare->lock);
	ino = find_locked(bare, name);
	if (!ino)
		ino = find_locked(bare, "");
	if (ino) {
		snprintf(file_of(bare, ino)->name, BARE_NAME_BYTES, "%s", name);
		file_of(bare, ino)->size_bytes = 0;
	}
	pthread_mutex_unlock(&bare->lock);
	if (!ino) {
		fuse_reply_err(req, ENOSPC);
		return;
	}
	fill_entry(bare, ino, &entry);
	fi->direct_io = 1;
	fuse_reply_create(req, &entry, fi);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->direct_io = 1;
	fi->noflush = 1;
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t n, off_t offset,
		    struct fuse_file_info *fi)
{
	struct bare *bare = bare_of(req);
	uint64_t size = file_of(bare, ino)->size_bytes, at = (uint64_t)offset;

	(void)fi;
	n = at >= size ? 0 : hc_min_u64(n, size - at);
	fuse_reply_buf(req, data_of(bare, ino) + at, n);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t n, off_t offset,
		     struct fuse_file_info *fi)
{
	struct bare *bare = bare_of(req);
	struct bare_file *file = file_of(bare, ino);
	uint64_t at = (uint64_t)offset;

	(void)fi;
	if (at % HC_LEAF_BYTES || at + n > bare->config.slot_bytes) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	memcpy(data_of(bare, ino) + at, data, n);
	for (size_t i = 0; i < n; i += HC_LEAF_BYTES)
		file->leaves[(at + i) / HC_LEAF_BYTES] =
			hc_checksum_leaf(data + i, (size_t)hc_min_u64(HC_LEAF_BYTES, n - i));
	file->size_bytes = hc_max_u64(file->size_bytes, at + n);
	fuse_reply_write(req, n);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fuse_reply_err(req, 0);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct bare_file *file = file_of(bare_of(req), ino);

	if ((fi->flags & 3) && file->size_bytes)
		file->checksum = hc_checksum_fold(file->leaves, file->size_bytes);
	fuse_reply_err(req, 0);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct bare *bare = bare_of(req);
	fuse_ino_t ino;

	(void)parent;
	pthread_mutex_lock(&bare->lock);
	ino = find_locked(bare, name);
	if (ino)
		file_of(bare, ino)->name[0] = 0;
	pthread_mutex_unlock(&bare->lock);
	fuse_reply_err(req, ino ? 0 : ENOENT);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned int flags)
{
	struct bare *bare = bare_of(req);
	fuse_ino_t ino, old;

	(void)parent;
	(void)new_parent;
	(void)flags;
	pthread_mutex_lock(&bare->lock);
	ino = find_locked(bare, name);
	old = find_locked(bare, new_name);
	if (ino && old)
		file_of(bare, old)->name[0] = 0;
	if (ino)
		snprintf(file_of(bare, ino)->name, BARE_NAME_BYTES, "%s", new_name);
	pthread_mutex_unlock(&bare->lock);
	fuse_reply_err(req, ino ? 0 : ENOENT);
}

static const struct fuse_lowlevel_ops operations = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.create = op_create,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.unlink = op_unlink,
	.rename = op_rename,
};

static void *worker_main(void *arg)
{
	struct bare *bare = arg;
	struct fuse_buf buf = {.mem = NULL};

	while (!fuse_session_exited(bare->session)) {
		int got = fuse_session_receive_buf(bare->session, &buf);

		if (got == -EINTR || got == -EAGAIN)
			continue;
		if (got <= 0)
			break;
		fuse_session_process_buf(bare->session, &buf);
	}
	free(buf.mem);
	return NULL;
}

static int mount_session(struct bare *bare)
{
	char *argv[] = {"bare-fuse", "-o", "default_permissions,fsname=bare-fuse"};
	struct fuse_args args = FUSE_ARGS_INIT(HC_ARRAY_SIZE(argv), argv);

	bare->session = fuse_session_new(&args, &operations, sizeof(operations), bare);
	fuse_opt_free_args(&args);
	if (!bare->session)
		return -EINVAL;
	return fuse_session_mount(bare->session, bare->config.mountpoint) ? -EIO : 0;
}

int bare_fuse_run(const struct bare_config *config)
{
	static struct bare bare = {.lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t threads[64];
	uint32_t n = 0;
	int rc = 0;

	hc_assert(config->n_files <= BARE_FILES_MAX && config->slot_bytes % HC_LEAF_BYTES == 0);
	bare.config = *config;
	for (uint32_t i = 0; i < config->n_files && !rc; i++) {
		bare.files[i].leaves = calloc(config->slot_bytes / HC_LEAF_BYTES, sizeof(uint64_t));
		rc = bare.files[i].leaves ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = mount_session(&bare);
	while (!rc && n < hc_min_u64(config->n_threads, HC_ARRAY_SIZE(threads))) {
		rc = -pthread_create(&threads[n], NULL, worker_main, &bare);
		n += !rc;
	}
	if (rc)
		fprintf(stderr, "bare-fuse: %s\n", strerror(-rc));
	if (rc && bare.session)
		fuse_session_unmount(bare.session);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	if (bare.session)
		fuse_session_destroy(bare.session);
	for (uint32_t i = 0; i < config->n_files; i++)
		free(bare.files[i].leaves);
	return rc;
}
