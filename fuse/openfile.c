/* SPDX-License-Identifier: Apache-2.0 */
/* Open ordinary files: one object for all handles of a file, so that a file that outgrows 1 MiB, or
 * is unlinked while somebody writes it, can go on as a body under the feet of its handles. `lock`
 * of an object comes before the rw and lock of bodies; the table's lock is held for look-ups only,
 * and before an object's lock by nobody. */
#include "fuse/internal.h"
#include "util/clock.h"
#include "util/io.h"

#define HC_OPENFILE_BUCKETS 256u

struct hc_openfile {
	struct hc_openfile *next;
	struct hc_fnode *fnode; /* pinned */
	uint64_t file;
	struct hc_owner owner; /* as it was opened: for fstat and writers after the name went */
	uint32_t dir;          /* the same */
	uint32_t n_users;      /* under the table's lock: handles and running calls */
	pthread_mutex_t lock;  /* what follows */
	int fd;
	uint32_t n_handles;
	uint32_t n_writers;
	bool unlinked;
	struct hc_body *body; /* a reference, once it became one */
};

struct hc_openfiles {
	pthread_mutex_t lock;
	struct hc_openfile *buckets[HC_OPENFILE_BUCKETS];
};

int hc_openfiles_create(struct hc_openfiles **files_p)
{
	struct hc_openfiles *files = hc_zalloc(sizeof(*files));

	if (!files)
		return -ENOMEM;
	pthread_mutex_init(&files->lock, NULL);
	*files_p = files;
	return 0;
}

void hc_openfiles_destroy(struct hc_openfiles *files)
{
	if (!files)
		return;
	pthread_mutex_destroy(&files->lock);
	free(files);
}

/* A user more of the file's object; made when `fnode` is given. NULL: not open (or no memory). */
static struct hc_openfile *use(struct hc_fs *fs, uint64_t file, struct hc_fnode *fnode)
{
	struct hc_openfiles *files = fs->openfiles;
	struct hc_openfile **bucket = &files->buckets[file % HC_OPENFILE_BUCKETS], *of;

	pthread_mutex_lock(&files->lock);
	for (of = *bucket; of && of->file != file; of = of->next)
		;
	if (!of && fnode) {
		of = hc_zalloc(sizeof(*of));
		if (of) {
			of->file = file;
			of->fd = -1;
			of->fnode = hc_tree_pin(fs->tree, fnode);
			pthread_mutex_init(&of->lock, NULL);
			of->next = *bucket;
			*bucket = of;
		}
	}
	if (of)
		of->n_users++;
	pthread_mutex_unlock(&files->lock);
	return of;
}

static void unuse(struct hc_fs *fs, struct hc_openfile *of)
{
	struct hc_openfiles *files = fs->openfiles;
	struct hc_openfile **place = &files->buckets[of->file % HC_OPENFILE_BUCKETS];
	bool last;

	pthread_mutex_lock(&files->lock);
	last = --of->n_users == 0;
	if (last) {
		while (*place != of)
			place = &(*place)->next;
		*place = of->next;
	}
	pthread_mutex_unlock(&files->lock);
	if (!last)
		return;
	if (of->fd >= 0)
		close(of->fd);
	hc_body_put(of->body);
	hc_tree_put(fs->tree, of->fnode);
	pthread_mutex_destroy(&of->lock);
	free(of);
}

/* of->lock held. Sets size and time as they are after a change. */
static int note_size_locked(struct hc_fs *fs, struct hc_openfile *of, uint64_t size_bytes)
{
	struct hc_file_info info;
	int err;

	if (of->unlinked)
		return 0;
	err = hc_file_get(fs->registry, of->file, &info);
	if (!err) {
		info.mtime_ns = hc_clock_wall_ns();
		info.size_bytes = size_bytes;
		err = hc_file_set(fs->registry, &info, true, HC_DIR_SET_MTIME);
	}
	/* Something else was renamed over it: its writers go on with what they opened. */
	if (err == -ENOENT)
		of->unlinked = true;
	return err == -ENOENT ? 0 : err;
}

static uint64_t size_locked(const struct hc_openfile *of)
{
	struct stat st;

	return fstat(of->fd, &st) ? 0 : (uint64_t)st.st_size;
}

static int truncate_locked(struct hc_fs *fs, struct hc_openfile *of, uint64_t size_bytes)
{
	uint64_t before = size_locked(of);
	int err = 0;

	if (size_bytes > before)
		err = note_size_locked(fs, of, size_bytes);
	if (!err && ftruncate(of->fd, (off_t)size_bytes))
		err = -errno;
	if (!err && size_bytes <= before)
		err = note_size_locked(fs, of, size_bytes);
	return err;
}

static uint64_t time_of(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * HC_NS_PER_S + (uint64_t)st->st_mtim.tv_nsec;
}

bool hc_openfile_attr(struct hc_fs *fs, uint64_t file, struct hc_handle_attr *attr_p)
{
	struct hc_openfile *of = use(fs, file, NULL);
	struct stat st;
	bool open = false;

	if (!of)
		return false;
	pthread_mutex_lock(&of->lock);
	if (of->body) {
		hc_attr_body(fs, of->body, &st);
		attr_p->owner = of->owner;
		attr_p->size_bytes = (uint64_t)st.st_size;
		attr_p->mtime_ns = time_of(&st);
		open = true;
	} else if (of->fd >= 0 && fstat(of->fd, &st) == 0) {
		attr_p->owner = of->owner;
		attr_p->size_bytes = (uint64_t)st.st_size;
		attr_p->mtime_ns = time_of(&st);
		open = true;
	}
	pthread_mutex_unlock(&of->lock);
	unuse(fs, of);
	return open;
}

int hc_openfile_open(struct hc_fs *fs, struct hc_fnode *fnode, uint64_t file, bool writer,
		     bool trunc, struct hc_openfile **of_p)
{
	struct hc_openfile *of = use(fs, file, fnode);
	struct hc_body *body = NULL;
	struct hc_file_info info;
	int err = 0;

	if (!of)
		return -ENOMEM;
	pthread_mutex_lock(&of->lock);
	if (!of->body && of->fd < 0) {
		err = hc_file_open(fs->registry, file, &of->fd) ? -ESTALE : 0;
		if (!err && hc_file_get(fs->registry, file, &info) == 0) {
			of->owner = info.owner;
			of->dir = info.dir;
		}
	}
	if (!err && of->body)
		body = hc_body_get(of->body);
	if (!err && !body && trunc && writer)
		err = truncate_locked(fs, of, 0);
	if (!err && !body) {
		of->n_handles++;
		of->n_writers += writer;
	}
	pthread_mutex_unlock(&of->lock);
	if (body) {
		err = hc_body_open(fs, body, writer, trunc && writer);
		hc_body_put(body);
	}
	if (err) {
		unuse(fs, of);
		return err;
	}
	*of_p = of;
	return 0;
}

void hc_openfile_release(struct hc_fs *fs, struct hc_openfile *of, bool writer)
{
	struct hc_body *body = NULL;

	pthread_mutex_lock(&of->lock);
	if (of->body) {
		body = hc_body_get(of->body);
	} else {
		of->n_handles--;
		of->n_writers -= writer;
	}
	pthread_mutex_unlock(&of->lock);
	if (body) {
		hc_body_release(fs, body, writer);
		hc_body_put(body);
	}
	unuse(fs, of);
}

struct hc_body *hc_openfile_body(struct hc_openfile *of)
{
	struct hc_body *body;

	pthread_mutex_lock(&of->lock);
	body = of->body ? hc_body_get(of->body) : NULL;
	pthread_mutex_unlock(&of->lock);
	return body;
}

/* of->lock held. The file's bytes, opens and number go to a body; named: its name, too. */
static int become_body_locked(struct hc_fs *fs, struct hc_openfile *of,
			      const struct hc_file_info *info, bool named, uint64_t size_hint)
{
	struct hc_body_make make = {.dir = info->dir,
				    .name = named ? info->name : NULL,
				    .owner = info->owner,
				    .size_hint = size_hint};
	struct hc_body_share share;
	struct hc_dir_info dir;
	struct hc_name id;
	uint64_t removed;
	int err;

	err = hc_dir_get(fs->registry, info->dir, &dir);
	if (!err && named)
		err = hc_name_resolve(fs->registry, info->dir, info->name, false, &id);
	if (err)
		return err;
	make.space = dir.space;
	make.temporary = named && id.kind == HC_NAME_TEMPORARY;
	if (of->fd < 0) {
		err = hc_file_open(fs->registry, of->file, &of->fd);
		if (err)
			return err;
	}
	share = (struct hc_body_share){.fnode = of->fnode,
				       .file = of->file,
				       .fd = of->fd,
				       .n_opens = of->n_handles,
				       .n_writers = of->n_writers};
	err = hc_body_create_shared(fs, &make, &share, &of->body);
	if (!err && named && hc_file_remove(fs->registry, info->dir, info->name, &removed) == 0)
		hc_file_forget(fs->registry, removed);
	return err;
}

int hc_file_to_body(struct hc_fs *fs, const struct hc_file_info *info, bool named,
		    struct hc_body **body_p)
{
	struct hc_fnode *fnode = hc_tree_file(fs->tree, info->id);
	struct hc_openfile *of = fnode ? use(fs, info->id, fnode) : NULL;
	int err = of ? 0 : -ENOMEM;

	if (of) {
		pthread_mutex_lock(&of->lock);
		if (!of->body)
			err = become_body_locked(fs, of, info, named, 0);
		if (!err)
			*body_p = hc_body_get(of->body);
		pthread_mutex_unlock(&of->lock);
		unuse(fs, of);
	}
	hc_tree_put(fs->tree, fnode);
	return err;
}

void hc_file_unlinked(struct hc_fs *fs, const struct hc_file_info *info)
{
	struct hc_openfile *of = use(fs, info->id, NULL);

	if (!of)
		return;
	pthread_mutex_lock(&of->lock);
	of->unlinked = true;
	/* Readers go on with the open file; a writer may need more room than a file without a name
	 * can have. */
	if (!of->body && of->n_writers && become_body_locked(fs, of, info, false, 0))
		hc_fs_count(fs, publish_failed);
	pthread_mutex_unlock(&of->lock);
	unuse(fs, of);
}

/* of->lock held. Before a change up to `end`: true when a body has taken over. */
static int outgrow_locked(struct hc_fs *fs, struct hc_openfile *of, uint64_t end_bytes)
{
	struct hc_file_info info = {.id = of->file, .dir = of->dir, .owner = of->owner};
	int err;

	if (of->body || end_bytes <= HC_FILE_BYTES_MAX)
		return 0;
	err = of->unlinked ? -ENOENT : hc_file_get(fs->registry, of->file, &info);
	if (err && err != -ENOENT)
		return err;
	of->unlinked = err == -ENOENT;
	return become_body_locked(fs, of, &info, !err, end_bytes);
}

int hc_openfile_read(struct hc_openfile *of, void *buf, size_t n, uint64_t offset, size_t *got_p)
{
	int fd;

	pthread_mutex_lock(&of->lock);
	fd = of->fd;
	pthread_mutex_unlock(&of->lock);
	return hc_pread_full(fd, buf, n, (off_t)offset, got_p);
}

int hc_openfile_write(struct hc_fs *fs, struct hc_openfile *of, const void *data, size_t n,
		      uint64_t offset, bool append)
{
	struct hc_body *body = NULL;
	uint64_t size;
	int err;

	pthread_mutex_lock(&of->lock);
	size = of->body ? 0 : size_locked(of);
	if (append && !of->body)
		offset = size;
	err = outgrow_locked(fs, of, offset + n);
	if (!err && of->body)
		body = hc_body_get(of->body);
	if (!err && !body) {
		/* The charge comes first: nothing to take back when there is no room. */
		err = note_size_locked(fs, of, hc_max_u64(size, offset + n));
		if (!err)
			err = hc_pwrite_full(of->fd, data, n, (off_t)offset);
	}
	pthread_mutex_unlock(&of->lock);
	if (body) {
		err = hc_body_write(body, data, n, append ? hc_body_size(body) : offset);
		hc_body_put(body);
	}
	return err;
}

int hc_openfile_truncate(struct hc_fs *fs, struct hc_openfile *of, uint64_t size_bytes)
{
	struct hc_body *body = NULL;
	int err;

	pthread_mutex_lock(&of->lock);
	err = outgrow_locked(fs, of, size_bytes);
	if (!err && of->body)
		body = hc_body_get(of->body);
	else if (!err)
		err = truncate_locked(fs, of, size_bytes);
	pthread_mutex_unlock(&of->lock);
	if (body) {
		err = hc_body_truncate(body, size_bytes);
		hc_body_put(body);
	}
	return err;
}

int hc_openfile_allocate(struct hc_fs *fs, struct hc_openfile *of, uint64_t end_bytes,
			 bool keep_size)
{
	struct hc_body *body = NULL;
	int err;

	pthread_mutex_lock(&of->lock);
	err = outgrow_locked(fs, of, end_bytes);
	if (!err && of->body)
		body = hc_body_get(of->body);
	else if (!err && !keep_size && end_bytes > size_locked(of))
		err = truncate_locked(fs, of, end_bytes);
	pthread_mutex_unlock(&of->lock);
	if (body) {
		err = hc_body_allocate(body, end_bytes, keep_size);
		hc_body_put(body);
	}
	return err;
}

int hc_openfile_fsync(struct hc_openfile *of)
{
	int err;

	pthread_mutex_lock(&of->lock);
	err = of->fd >= 0 && fdatasync(of->fd) ? -errno : 0;
	pthread_mutex_unlock(&of->lock);
	return err;
}
