/* SPDX-License-Identifier: Apache-2.0 */
/* Open handles. All are in one table, so that nothing is held of the node when the mount ends
 * without RELEASEs, and so that fstat finds what a handle remembers. The table's lock is a leaf. */
#include "fuse/internal.h"

#define HC_HANDLE_BUCKETS 1024u

struct hc_handles {
	pthread_mutex_t lock;
	struct hc_handle *buckets[HC_HANDLE_BUCKETS];
	struct hc_handle *detached;
	atomic_uint n_detached;
};

int hc_handles_create(struct hc_handles **handles_p)
{
	struct hc_handles *handles = hc_zalloc(sizeof(*handles));

	if (!handles)
		return -ENOMEM;
	pthread_mutex_init(&handles->lock, NULL);
	*handles_p = handles;
	return 0;
}

void hc_handles_destroy(struct hc_handles *handles)
{
	if (!handles)
		return;
	pthread_mutex_destroy(&handles->lock);
	free(handles);
}

static struct hc_handle **bucket_of(struct hc_handles *handles, uint64_t ino)
{
	return &handles->buckets[(ino * 0x9e3779b97f4a7c15u) >> 54];
}

_Static_assert(HC_HANDLE_BUCKETS == 1u << 10, "the bucket is the upper 10 bits of the product");

struct hc_handle *hc_handle_new(struct hc_fs *fs, enum hc_hkind kind, struct hc_fnode *fnode,
				bool writer, const struct hc_handle_attr *attr)
{
	struct hc_handle *handle = hc_zalloc(sizeof(*handle)), **bucket;

	if (!handle)
		return NULL;
	handle->kind = kind;
	handle->writer = writer;
	handle->fnode = fnode;
	if (attr)
		handle->attr = *attr;
	bucket = bucket_of(fs->handles, hc_fnode_ino(fnode));
	pthread_mutex_lock(&fs->handles->lock);
	handle->next = *bucket;
	handle->place = bucket;
	if (*bucket)
		(*bucket)->place = &handle->next;
	*bucket = handle;
	pthread_mutex_unlock(&fs->handles->lock);
	atomic_fetch_add(&fs->n_handles, 1);
	return handle;
}

/* It tells of what its node tells again. */
static void reattach_locked(struct hc_handles *handles, struct hc_handle *handle)
{
	struct hc_handle **place = &handles->detached;

	if (!handle->detached_ino)
		return;
	while (*place != handle)
		place = &(*place)->next_detached;
	*place = handle->next_detached;
	handle->detached_ino = 0;
	atomic_fetch_sub(&handles->n_detached, 1);
}

void hc_handle_detach(struct hc_fs *fs, struct hc_handle *handle, uint64_t ino, int tgid)
{
	struct hc_handles *handles = fs->handles;

	pthread_mutex_lock(&handles->lock);
	handle->detached_ino = ino;
	handle->tgid = tgid;
	handle->next_detached = handles->detached;
	handles->detached = handle;
	atomic_fetch_add(&handles->n_detached, 1);
	pthread_mutex_unlock(&handles->lock);
}

struct hc_body *hc_handle_find_detached(struct hc_fs *fs, uint64_t ino, int tid)
{
	struct hc_handles *handles = fs->handles;
	struct hc_body *body = NULL;
	struct hc_handle *handle;
	struct hc_opener opener;

	if (!atomic_load(&handles->n_detached) || hc_handle_is_open(fs, ino))
		return NULL;
	hc_opener_of(fs, tid, &opener);
	pthread_mutex_lock(&handles->lock);
	handle = handles->detached;
	while (handle && (handle->detached_ino != ino || handle->tgid != opener.tgid))
		handle = handle->next_detached;
	if (handle && opener.tgid)
		body = hc_body_get(handle->body);
	pthread_mutex_unlock(&handles->lock);
	return body;
}

void hc_handle_end(struct hc_fs *fs, struct hc_handle *handle)
{
	pthread_mutex_lock(&fs->handles->lock);
	*handle->place = handle->next;
	if (handle->next)
		handle->next->place = handle->place;
	reattach_locked(fs->handles, handle);
	pthread_mutex_unlock(&fs->handles->lock);
	if (handle->kind == HC_H_PAGE && handle->ref.data)
		hc_node_release(fs->node, &handle->ref, 1);
	if (handle->body) {
		if (handle->outside) {
			hc_body_outside_end(handle->body);
			hc_body_sum(handle->body);
		}
		hc_body_release(fs, handle->body, handle->writer);
		hc_body_put(handle->body);
	}
	if (handle->of)
		hc_openfile_release(fs, handle->of, handle->writer);
	hc_pass_leave(fs, &handle->way);
	hc_tree_put(fs->tree, handle->fnode);
	free(handle);
	atomic_fetch_sub(&fs->n_handles, 1);
}

/* In place and never flushed: what is there is not what its writer meant. */
static void distrust(struct hc_fs *fs, struct hc_handle *handle)
{
	struct hc_openfile *of = NULL;
	struct hc_body *body = handle->writer ? hc_handle_target(handle, &of) : NULL;

	if (!body || of) {
		hc_body_put(body);
		return;
	}
	pthread_mutex_lock(&fs->bodies.lock);
	body->killed = body->killed || !body->flushed;
	pthread_mutex_unlock(&fs->bodies.lock);
	hc_body_put(body);
}

void hc_handles_end(struct hc_fs *fs)
{
	for (unsigned i = 0; i < HC_HANDLE_BUCKETS; i++) {
		while (fs->handles->buckets[i]) {
			distrust(fs, fs->handles->buckets[i]);
			hc_handle_end(fs, fs->handles->buckets[i]);
		}
	}
}

void hc_handle_flags(const struct hc_handle *handle, struct fuse_file_info *fi)
{
	fi->fh = (uintptr_t)handle;
	/* Small rewritable files may live in the page cache: maps of them work everywhere. */
	fi->direct_io = handle->kind != HC_H_FILE;
	fi->noflush = !handle->writer;
	fi->keep_cache = 0;
}

bool hc_handle_find(struct hc_fs *fs, uint64_t ino, struct hc_handle_attr *attr_p)
{
	struct hc_handle *handle;

	pthread_mutex_lock(&fs->handles->lock);
	handle = *bucket_of(fs->handles, ino);
	while (handle && (handle->kind != HC_H_PAGE || hc_fnode_ino(handle->fnode) != ino))
		handle = handle->next;
	if (handle)
		*attr_p = handle->attr;
	pthread_mutex_unlock(&fs->handles->lock);
	return handle != NULL;
}

bool hc_handle_is_open(struct hc_fs *fs, uint64_t ino)
{
	struct hc_handle *handle;

	pthread_mutex_lock(&fs->handles->lock);
	handle = *bucket_of(fs->handles, ino);
	while (handle && hc_fnode_ino(handle->fnode) != ino)
		handle = handle->next;
	pthread_mutex_unlock(&fs->handles->lock);
	return handle != NULL;
}

struct hc_body *hc_handle_find_body(struct hc_fs *fs, uint64_t ino)
{
	struct hc_body *body = NULL;
	struct hc_handle *handle;

	pthread_mutex_lock(&fs->handles->lock);
	handle = *bucket_of(fs->handles, ino);
	while (handle && (handle->kind != HC_H_BODY || hc_fnode_ino(handle->fnode) != ino))
		handle = handle->next;
	if (handle)
		body = hc_body_get(handle->body);
	pthread_mutex_unlock(&fs->handles->lock);
	return body;
}

/* A file may have become a body, and that a file again. What is behind the next step is kept by the
 * reference of this one. */
struct hc_body *hc_handle_target(struct hc_handle *handle, struct hc_openfile **of_p)
{
	struct hc_body *body = handle->body ? hc_body_get(handle->body) : NULL, *next;
	struct hc_openfile *of = body ? atomic_load(&body->of) : handle->of;

	while (of) {
		next = hc_openfile_body(of);
		if (!next)
			break;
		of = atomic_load(&next->of);
		hc_body_put(body);
		body = next;
	}
	*of_p = of;
	return body;
}
