/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a body: reads from what it has, copy-up at the first change. See bodies.h for `rw`.
 */
#include "fuse/internal.h"
#include "util/clock.h"
#include "util/io.h"

/* rw held. */
static uint64_t size_locked(struct hc_body *body)
{
	struct stat st;

	if (body->has_page)
		return body->page.size_bytes;
	if (body->source_key.series)
		return body->source_bytes;
	if (body->fill)
		return hc_fill_size(body->fill);
	if (body->fd >= 0)
		return fstat(body->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	return body->source_bytes; /* a page that is not held */
}

uint64_t hc_body_size(struct hc_body *body)
{
	uint64_t size;

	pthread_rwlock_rdlock(&body->rw);
	size = size_locked(body);
	pthread_rwlock_unlock(&body->rw);
	return size;
}

/* It became a page whose bytes were not in memory then: they are held from the first read on. */
static void regain_locked(struct hc_body *body)
{
	struct hc_fs *fs = body->fs;
	struct hc_acquire how = {.deadline_ns = hc_clock_now_ns() + fs->budget_ns,
				 .uncounted = true};
	struct hc_fview view;
	size_t n = 0;

	hc_tree_view(fs->tree, body->fnode, &view);
	if (view.kind == HC_F_PAGE && view.entry != HC_ENTRY_NONE) {
		how.series = view.key.series;
		if (hc_node_acquire(fs->node, &how, &view.key.hash, 1, &body->page, &n))
			n = 0;
		body->has_page = n == 1 && body->page.sequence == view.sequence;
		if (n == 1 && !body->has_page)
			hc_node_release(fs->node, &body->page, 1);
	}
	hc_body_put(view.body);
}

void hc_body_read_lock(struct hc_body *body)
{
	pthread_rwlock_rdlock(&body->rw);
	if (body->fill || body->has_page || body->fd >= 0)
		return;
	pthread_rwlock_unlock(&body->rw);
	pthread_rwlock_wrlock(&body->rw);
	if (!body->fill && !body->has_page && body->fd < 0)
		regain_locked(body);
}

/* rw held for writing. The copy is let go; what it had is not wanted. */
static void drop_source_locked(struct hc_body *body)
{
	body->source_key.series = 0;
	if (!body->fill || !body->has_page)
		return;
	hc_node_release(body->fs->node, &body->page, 1);
	body->has_page = false;
}

int hc_body_hold_source(struct hc_body *body, const struct hc_opener *opener)
{
	struct hc_fs *fs = body->fs;
	struct hc_acquire how = {.opener = (uint32_t)opener->tgid,
				 .thread = (uint32_t)opener->tid,
				 .deadline_ns = hc_clock_now_ns() + fs->budget_ns};
	int err = 0;
	size_t n;

	pthread_rwlock_wrlock(&body->rw);
	if (body->source_key.series && !body->has_page) {
		how.series = how.tree = body->source_key.series;
		err = hc_node_acquire(fs->node, &how, &body->source_key.hash, 1, &body->page, &n);
		body->has_page = !err && n == 1;
		if (!err && n != 1)
			err = -ENOENT;
	}
	pthread_rwlock_unlock(&body->rw);
	return err;
}

int hc_body_copy_up_locked(struct hc_body *body)
{
	int err = 0;

	if (!body->fill)
		return -EBADF;
	if (body->has_page)
		err = hc_fill_copy_page(body->fill, &body->page);
	if (!err)
		drop_source_locked(body);
	return err;
}

int hc_body_write(struct hc_body *body, const void *data, size_t n, uint64_t offset)
{
	int err = 0;

	pthread_rwlock_wrlock(&body->rw);
	if (!body->fill)
		err = -EBADF;
	else if (body->has_page && offset == 0 && n >= body->page.size_bytes)
		drop_source_locked(body);
	else
		err = hc_body_copy_up_locked(body);
	if (!err)
		err = hc_fill_write(body->fill, data, n, offset);
	if (!err) {
		body->mtime_ns = hc_clock_wall_ns();
		atomic_store(&body->wrote, true);
	}
	pthread_rwlock_unlock(&body->rw);
	return err;
}

int hc_body_truncate(struct hc_body *body, uint64_t size_bytes)
{
	int err = 0;

	pthread_rwlock_wrlock(&body->rw);
	if (!body->fill)
		err = -EBADF;
	else if (!size_bytes)
		drop_source_locked(body);
	else
		err = hc_body_copy_up_locked(body);
	if (!err && hc_fill_size(body->fill) != size_bytes) {
		err = hc_fill_truncate(body->fill, size_bytes);
		body->mtime_ns = hc_clock_wall_ns();
	}
	pthread_rwlock_unlock(&body->rw);
	return err;
}

int hc_body_allocate(struct hc_body *body, uint64_t end_bytes, bool keep_size)
{
	int err;

	pthread_rwlock_wrlock(&body->rw);
	err = hc_body_copy_up_locked(body);
	if (!err)
		err = hc_fill_allocate(body->fill, end_bytes, keep_size);
	pthread_rwlock_unlock(&body->rw);
	return err;
}

int hc_body_fsync(struct hc_body *body)
{
	int err = 0;

	pthread_rwlock_rdlock(&body->rw);
	if (body->fill && !body->has_page)
		err = hc_fill_fsync(body->fill);
	else if (!body->fill && body->fd >= 0)
		err = fdatasync(body->fd) ? -errno : 0;
	pthread_rwlock_unlock(&body->rw);
	atomic_store(&body->synced, true);
	return err;
}

int hc_body_begin(struct hc_body *body, bool as_file)
{
	int err = 0;

	pthread_rwlock_rdlock(&body->rw);
	if (body->fill)
		err = hc_fill_begin(body->fill, as_file && !body->source_key.series);
	pthread_rwlock_unlock(&body->rw);
	return err;
}

int hc_body_backing(struct hc_body *body, bool fresh, uint16_t *disk_p)
{
	int fd = -1;

	pthread_rwlock_rdlock(&body->rw);
	if (!body->fill || body->has_page || body->source_key.series ||
	    (fresh && hc_fill_size(body->fill)) || hc_fill_backing(body->fill, disk_p, &fd))
		fd = -1;
	pthread_rwlock_unlock(&body->rw);
	return fd;
}

void hc_body_outside_begin(struct hc_body *body)
{
	pthread_rwlock_rdlock(&body->rw);
	hc_assert(body->fill);
	hc_fill_outside(body->fill, 1);
	pthread_rwlock_unlock(&body->rw);
}

/* Too often rather than too seldom: a body that is published without need is the same body. */
void hc_body_outside_seen(struct hc_body *body)
{
	if (hc_body_size(body))
		atomic_store(&body->wrote, true);
}

void hc_body_outside_end(struct hc_body *body)
{
	hc_body_outside_seen(body);
	pthread_rwlock_wrlock(&body->rw);
	hc_assert(body->fill);
	hc_ignore(hc_fill_mtime(body->fill, &body->mtime_ns));
	hc_fill_outside(body->fill, -1);
	pthread_rwlock_unlock(&body->rw);
}

void hc_body_sum(struct hc_body *body)
{
	struct hc_bodies *bodies = &body->fs->bodies;
	bool wanted;

	pthread_mutex_lock(&bodies->lock);
	wanted = body->n_writers == 1 && body->name &&
		 (body->state == HC_B_TEMPORARY || body->state == HC_B_SHOWN) && !body->killed &&
		 !body->settling;
	pthread_mutex_unlock(&bodies->lock);
	if (!wanted)
		return;
	pthread_rwlock_rdlock(&body->rw);
	if (body->fill)
		hc_fill_sum(body->fill);
	pthread_rwlock_unlock(&body->rw);
}

int hc_body_copy_from(struct hc_body *body, struct hc_body *from)
{
	int err = -ESTALE;

	pthread_rwlock_rdlock(&from->rw);
	if (from->fill && from->has_page)
		err = hc_fill_copy_page(body->fill, &from->page);
	else if (from->fill)
		err = hc_fill_copy(body->fill, from->fill);
	pthread_rwlock_unlock(&from->rw);
	return err;
}

int hc_body_copy_file(struct hc_body *body, int fd)
{
	hc_autofree char *buf = malloc(HC_FILE_BYTES_MAX);
	size_t got = 0;
	int err = buf ? hc_pread_full(fd, buf, HC_FILE_BYTES_MAX, 0, &got) : -ENOMEM;

	if (!err && got)
		err = hc_fill_write(body->fill, buf, got, 0);
	return err;
}
