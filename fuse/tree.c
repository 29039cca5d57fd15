/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of chained hash tables that grow; see tree.h. */
#include "fuse/tree.h"

#include <pthread.h>
#include <stdatomic.h>

#include "fuse/bodies.h"

#define HC_TREE_FIRST_BUCKETS 64u
#define HC_TREE_FILE_BUCKETS  4096u

struct hc_fnode {
	struct hc_fnode *next;
	uint64_t ino;
	uint64_t n_lookups;    /* what the kernel holds */
	uint64_t sequence;     /* page */
	uint64_t size_bytes;   /* page, gone */
	uint64_t mtime_ns;     /* page, gone */
	struct hc_owner owner; /* page, gone */
	uint64_t atime_ns;
	union {
		uint64_t file;
		struct hc_body *body;
		struct hc_key key;
	};
	uint32_t entry; /* page */
	uint32_t n_pins;
	uint32_t kind;
};

struct hc_tree_shard {
	pthread_mutex_t lock; /* everything in this shard and in its fnodes */
	struct hc_fnode **buckets;
	uint32_t n_buckets;
	uint32_t n_fnodes;
};

/* An ordinary file that was a body. */
struct hc_tree_file {
	struct hc_tree_file *next;
	uint64_t file;
	uint64_t ino;
};

struct hc_tree {
	struct hc_tree_shard shards[HC_TREE_SHARDS];
	pthread_mutex_t files_lock;
	struct hc_tree_file *files[HC_TREE_FILE_BUCKETS];
};

static uint64_t mix(uint64_t ino)
{
	ino ^= ino >> 32;
	ino *= 0x9e3779b97f4a7c15u;
	return ino ^ ino >> 29;
}

static struct hc_tree_shard *shard_of(struct hc_tree *tree, uint64_t ino)
{
	return &tree->shards[mix(ino) % HC_TREE_SHARDS];
}

static struct hc_fnode **bucket_of(struct hc_tree_shard *shard, uint64_t ino)
{
	return &shard->buckets[(mix(ino) / HC_TREE_SHARDS) & (shard->n_buckets - 1)];
}

int hc_tree_create(struct hc_tree **tree_p)
{
	struct hc_tree *tree = hc_zalloc(sizeof(*tree));

	if (!tree)
		return -ENOMEM;
	pthread_mutex_init(&tree->files_lock, NULL);
	for (unsigned i = 0; i < HC_TREE_SHARDS; i++) {
		struct hc_tree_shard *shard = &tree->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		shard->n_buckets = HC_TREE_FIRST_BUCKETS;
		shard->buckets = calloc(shard->n_buckets, sizeof(*shard->buckets));
		if (!shard->buckets) {
			hc_tree_destroy(tree);
			return -ENOMEM;
		}
	}
	*tree_p = tree;
	return 0;
}

void hc_tree_destroy(struct hc_tree *tree)
{
	if (!tree)
		return;
	for (unsigned i = 0; i < HC_TREE_SHARDS; i++) {
		struct hc_tree_shard *shard = &tree->shards[i];

		for (uint32_t b = 0; shard->buckets && b < shard->n_buckets; b++) {
			for (struct hc_fnode *f = shard->buckets[b], *next; f; f = next) {
				next = f->next;
				free(f);
			}
		}
		free(shard->buckets);
	}
	for (unsigned i = 0; i < HC_TREE_FILE_BUCKETS; i++) {
		for (struct hc_tree_file *f = tree->files[i], *next; f; f = next) {
			next = f->next;
			free(f);
		}
	}
	free(tree);
}

/* Locked. */
static struct hc_fnode *find(struct hc_tree_shard *shard, uint64_t ino)
{
	struct hc_fnode *f = *bucket_of(shard, ino);

	while (f && f->ino != ino)
		f = f->next;
	return f;
}

/* Locked. Twice the buckets when chains average above one; keeps the old table when memory is out.
 */
static void grow(struct hc_tree_shard *shard)
{
	struct hc_fnode **old = shard->buckets, **buckets;
	uint32_t n_old = shard->n_buckets;

	if (shard->n_fnodes <= n_old || n_old >= 1u << 26)
		return;
	buckets = calloc((size_t)n_old * 2, sizeof(*buckets));
	if (!buckets)
		return;
	shard->buckets = buckets;
	shard->n_buckets = n_old * 2;
	for (uint32_t b = 0; b < n_old; b++) {
		for (struct hc_fnode *f = old[b], *next; f; f = next) {
			struct hc_fnode **place = bucket_of(shard, f->ino);

			next = f->next;
			f->next = *place;
			*place = f;
		}
	}
	free(old);
}

/* Locked. New, pinned once; NULL when memory is out. */
static struct hc_fnode *insert(struct hc_tree_shard *shard, uint64_t ino)
{
	struct hc_fnode *f = hc_zalloc(sizeof(*f)), **place;

	if (!f)
		return NULL;
	f->ino = ino;
	f->n_pins = 1;
	place = bucket_of(shard, ino);
	f->next = *place;
	*place = f;
	shard->n_fnodes++;
	grow(shard);
	return f;
}

/* The place of a file's number, or of the end; files_lock held. */
static struct hc_tree_file **file_locked(struct hc_tree *tree, uint64_t file)
{
	struct hc_tree_file **place = &tree->files[file % HC_TREE_FILE_BUCKETS];

	while (*place && (*place)->file != file)
		place = &(*place)->next;
	return place;
}

/* Locked. Without memory the file gets a second number. */
static void file_add(struct hc_tree *tree, const struct hc_fnode *f)
{
	struct hc_tree_file *fresh = hc_zalloc(sizeof(*fresh)), **place;

	if (!fresh)
		return;
	*fresh = (struct hc_tree_file){.file = f->file, .ino = f->ino};
	pthread_mutex_lock(&tree->files_lock);
	place = file_locked(tree, f->file);
	if (!*place) {
		*place = fresh;
		fresh = NULL;
	}
	pthread_mutex_unlock(&tree->files_lock);
	free(fresh);
}

/* Locked. Before it is something else, or freed. */
static void file_drop(struct hc_tree *tree, const struct hc_fnode *f)
{
	struct hc_tree_file **place, *old = NULL;

	if (f->kind != HC_F_FILE || f->ino == HC_INO_FILES + f->file)
		return;
	pthread_mutex_lock(&tree->files_lock);
	place = file_locked(tree, f->file);
	if (*place && (*place)->ino == f->ino) {
		old = *place;
		*place = old->next;
	}
	pthread_mutex_unlock(&tree->files_lock);
	free(old);
}

uint64_t hc_tree_file_ino(struct hc_tree *tree, uint64_t file)
{
	uint64_t ino = HC_INO_FILES + file;
	struct hc_tree_file *f;

	pthread_mutex_lock(&tree->files_lock);
	f = *file_locked(tree, file);
	if (f)
		ino = f->ino;
	pthread_mutex_unlock(&tree->files_lock);
	return ino;
}

/* Locked. Frees what nobody knows any more. */
static void reap(struct hc_tree *tree, struct hc_tree_shard *shard, struct hc_fnode *f)
{
	struct hc_fnode **place;

	if (f->n_pins || f->n_lookups)
		return;
	file_drop(tree, f);
	place = bucket_of(shard, f->ino);
	while (*place != f)
		place = &(*place)->next;
	*place = f->next;
	shard->n_fnodes--;
	free(f);
}

struct hc_fnode *hc_tree_get(struct hc_tree *tree, uint64_t ino)
{
	struct hc_tree_shard *shard = shard_of(tree, ino);
	struct hc_fnode *f;

	pthread_mutex_lock(&shard->lock);
	f = find(shard, ino);
	if (f)
		f->n_pins++;
	pthread_mutex_unlock(&shard->lock);
	return f;
}

struct hc_fnode *hc_tree_pin(struct hc_tree *tree, struct hc_fnode *f)
{
	struct hc_tree_shard *shard = shard_of(tree, f->ino);

	pthread_mutex_lock(&shard->lock);
	f->n_pins++;
	pthread_mutex_unlock(&shard->lock);
	return f;
}

void hc_tree_put(struct hc_tree *tree, struct hc_fnode *f)
{
	struct hc_tree_shard *shard;

	if (!f)
		return;
	shard = shard_of(tree, f->ino);
	pthread_mutex_lock(&shard->lock);
	hc_assert(f->n_pins > 0);
	f->n_pins--;
	reap(tree, shard, f);
	pthread_mutex_unlock(&shard->lock);
}

uint64_t hc_fnode_ino(const struct hc_fnode *f)
{
	return f->ino;
}

static void set_page(struct hc_tree *tree, struct hc_fnode *f, const struct hc_page_info *info)
{
	file_drop(tree, f);
	f->kind = HC_F_PAGE;
	f->key = info->key;
	f->entry = info->entry;
	f->sequence = info->sequence;
	f->size_bytes = info->size_bytes;
	f->mtime_ns = info->mtime_ns;
	f->owner = info->owner;
}

struct hc_fnode *hc_tree_page(struct hc_tree *tree, const struct hc_page_info *info)
{
	struct hc_tree_shard *shard = shard_of(tree, info->node_id);
	struct hc_fnode *f;

	pthread_mutex_lock(&shard->lock);
	f = find(shard, info->node_id);
	if (f)
		f->n_pins++;
	else
		f = insert(shard, info->node_id);
	/* A body that was published a moment ago turns into the page by itself; never the other
	 * way. */
	if (f && f->kind != HC_F_BODY)
		set_page(tree, f, info);
	pthread_mutex_unlock(&shard->lock);
	return f;
}

struct hc_fnode *hc_tree_file(struct hc_tree *tree, uint64_t file)
{
	uint64_t ino = hc_tree_file_ino(tree, file);
	struct hc_tree_shard *shard;
	struct hc_fnode *f = NULL;

	if (ino != HC_INO_FILES + file)
		f = hc_tree_get(tree, ino);
	if (f)
		return f;
	ino = HC_INO_FILES + file;
	shard = shard_of(tree, ino);
	pthread_mutex_lock(&shard->lock);
	f = find(shard, ino);
	if (f) {
		f->n_pins++;
	} else {
		f = insert(shard, ino);
		if (f) {
			f->kind = HC_F_FILE;
			f->file = file;
		}
	}
	pthread_mutex_unlock(&shard->lock);
	return f;
}

struct hc_fnode *hc_tree_body(struct hc_tree *tree, uint64_t ino, struct hc_body *body)
{
	struct hc_tree_shard *shard = shard_of(tree, ino);
	struct hc_fnode *f;

	pthread_mutex_lock(&shard->lock);
	hc_assert(!find(shard, ino));
	f = insert(shard, ino);
	if (f) {
		f->kind = HC_F_BODY;
		f->body = body;
	}
	pthread_mutex_unlock(&shard->lock);
	return f;
}

void hc_tree_become_page(struct hc_tree *tree, struct hc_fnode *f, const struct hc_page_info *info)
{
	struct hc_tree_shard *shard = shard_of(tree, f->ino);

	pthread_mutex_lock(&shard->lock);
	set_page(tree, f, info);
	pthread_mutex_unlock(&shard->lock);
}

void hc_tree_become_file(struct hc_tree *tree, struct hc_fnode *f, uint64_t file)
{
	struct hc_tree_shard *shard = shard_of(tree, f->ino);

	pthread_mutex_lock(&shard->lock);
	file_drop(tree, f);
	f->kind = HC_F_FILE;
	f->file = file;
	if (f->ino != HC_INO_FILES + file)
		file_add(tree, f);
	pthread_mutex_unlock(&shard->lock);
}

void hc_tree_become_body(struct hc_tree *tree, struct hc_fnode *f, struct hc_body *body)
{
	struct hc_tree_shard *shard = shard_of(tree, f->ino);

	pthread_mutex_lock(&shard->lock);
	file_drop(tree, f);
	f->kind = HC_F_BODY;
	f->body = body;
	pthread_mutex_unlock(&shard->lock);
}

void hc_tree_gone(struct hc_tree *tree, struct hc_fnode *f, const struct hc_page_info *was)
{
	struct hc_tree_shard *shard = shard_of(tree, f->ino);

	pthread_mutex_lock(&shard->lock);
	file_drop(tree, f);
	f->kind = HC_F_GONE;
	f->mtime_ns = was ? was->mtime_ns : 0;
	if (was) {
		f->size_bytes = was->size_bytes;
		f->owner = was->owner;
	}
	pthread_mutex_unlock(&shard->lock);
}

/* Locked. */
static void fill_view(const struct hc_fnode *f, struct hc_fview *view)
{
	memset(view, 0, sizeof(*view));
	view->kind = f->kind;
	view->ino = f->ino;
	view->atime_ns = f->atime_ns;
	if (f->kind == HC_F_FILE) {
		view->file = f->file;
	} else if (f->kind == HC_F_BODY) {
		/* The body cannot end while it is named here: ending begins with hc_tree_gone. */
		view->body = hc_body_get(f->body);
	} else if (f->kind == HC_F_PAGE) {
		view->key = f->key;
		view->entry = f->entry;
		view->sequence = f->sequence;
	}
	if (f->kind == HC_F_PAGE || f->kind == HC_F_GONE) {
		view->size_bytes = f->size_bytes;
		view->mtime_ns = f->mtime_ns;
		view->owner = f->owner;
	}
}

void hc_tree_view(struct hc_tree *tree, struct hc_fnode *f, struct hc_fview *view_p)
{
	struct hc_tree_shard *shard = shard_of(tree, f->ino);

	pthread_mutex_lock(&shard->lock);
	fill_view(f, view_p);
	pthread_mutex_unlock(&shard->lock);
}

void hc_tree_see(struct hc_tree *tree, uint64_t ino, struct hc_fview *view_p)
{
	struct hc_tree_shard *shard = shard_of(tree, ino);
	struct hc_fnode *f;

	if (ino < HC_INO_FILES) {
		memset(view_p, 0, sizeof(*view_p));
		view_p->ino = ino;
		view_p->kind = ino >= HC_INO_VIRTUAL ? HC_F_VIRTUAL : HC_F_DIR;
		if (view_p->kind == HC_F_DIR)
			view_p->dir = (uint32_t)ino;
		if (ino > UINT32_MAX && view_p->kind == HC_F_DIR)
			view_p->kind = HC_F_NONE;
		return;
	}
	pthread_mutex_lock(&shard->lock);
	f = find(shard, ino);
	if (f)
		fill_view(f, view_p);
	pthread_mutex_unlock(&shard->lock);
	if (!f) {
		memset(view_p, 0, sizeof(*view_p));
		view_p->ino = ino;
	}
}

void hc_tree_opened(struct hc_tree *tree, struct hc_fnode *f, uint64_t atime_ns)
{
	struct hc_tree_shard *shard = shard_of(tree, f->ino);

	pthread_mutex_lock(&shard->lock);
	f->atime_ns = atime_ns;
	pthread_mutex_unlock(&shard->lock);
}

void hc_tree_remember(struct hc_tree *tree, struct hc_fnode *f)
{
	struct hc_tree_shard *shard = shard_of(tree, f->ino);

	pthread_mutex_lock(&shard->lock);
	f->n_lookups++;
	pthread_mutex_unlock(&shard->lock);
}

void hc_tree_forget(struct hc_tree *tree, uint64_t ino, uint64_t n)
{
	struct hc_tree_shard *shard = shard_of(tree, ino);
	struct hc_fnode *f;

	if (ino < HC_INO_FILES)
		return;
	pthread_mutex_lock(&shard->lock);
	f = find(shard, ino);
	if (f) {
		f->n_lookups -= hc_min_u64(n, f->n_lookups);
		reap(tree, shard, f);
	}
	pthread_mutex_unlock(&shard->lock);
}

uint64_t hc_tree_count(struct hc_tree *tree)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < HC_TREE_SHARDS; i++) {
		pthread_mutex_lock(&tree->shards[i].lock);
		n += tree->shards[i].n_fnodes;
		pthread_mutex_unlock(&tree->shards[i].lock);
	}
	return n;
}

/* Locked. Whether all pages of the bucket were taken. */
static bool take_bucket(struct hc_tree_shard *shard, uint32_t bucket, struct hc_fview *views,
			size_t n, size_t *got_p)
{
	size_t got = *got_p;

	for (struct hc_fnode *f = shard->buckets[bucket]; f; f = f->next) {
		if (f->kind != HC_F_PAGE || !f->n_lookups)
			continue;
		if (got == n)
			return false;
		fill_view(f, &views[got++]);
	}
	*got_p = got;
	return true;
}

/* The cursor is shard and bucket; a table that grows meanwhile may show some twice or not at all. A
 * bucket is shown whole or next time; one that never fits is passed over. */
size_t hc_tree_pages(struct hc_tree *tree, uint64_t *cursor_p, struct hc_fview *views, size_t n)
{
	uint32_t shard_i = (uint32_t)(*cursor_p >> 32), bucket = (uint32_t)*cursor_p;
	bool fits = true;
	size_t got = 0;

	for (; shard_i < HC_TREE_SHARDS; shard_i++, bucket = 0) {
		struct hc_tree_shard *shard = &tree->shards[shard_i];

		pthread_mutex_lock(&shard->lock);
		for (; bucket < shard->n_buckets; bucket++) {
			fits = take_bucket(shard, bucket, views, n, &got);
			if (!fits && got)
				break;
		}
		pthread_mutex_unlock(&shard->lock);
		if (!fits && got)
			break;
	}
	*cursor_p = (uint64_t)shard_i << 32 | bucket;
	return got;
}
