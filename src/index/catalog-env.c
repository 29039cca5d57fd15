/* SPDX-License-Identifier: Apache-2.0 */
/* The LMDB environment of the catalog. See catalog-internal.h.
 *
 * Everything that reads the map runs under the guard. An environment left in the middle of a call
 * cannot be closed: LMDB may hold pointers into stack frames that are gone. It is unmapped, its
 * file closed, and its heap kept on a list for the life of the process; losing a catalog is rare.
 * No reader table is needed: one user at a time. */
#include "index/catalog-internal.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <lmdb.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "util/crash.h"
#include "util/io.h"
#include "util/log.h"
#include "util/rng.h"

#define HC_ENV_MAP_BYTES_MIN (16 * HC_MIB)
#define HC_ENV_MAP_BYTES_MAX ((uint64_t)1 << 42)
#define HC_ENV_FLAGS         (MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS)
/* A row with its key and LMDB's node head is not smaller. */
#define HC_ENV_ROW_BYTES_MIN 16
/* A file system with less than this left explains an EIO of a short write. */
#define HC_ENV_FULL_BYTES (256 * HC_KIB)
#define HC_MAPS_BYTES_MAX (64 * HC_MIB)

static const char *const hc_table_names[HC_TABLE_N] = {"pages",  "dirs", "files",
						       "spaces", "meta", "attrs"};

struct hc_env {
	MDB_env *mdb;
	MDB_dbi dbis[HC_TABLE_N];
	bool has_last[HC_TABLE_N];
	uint64_t last_keys[HC_TABLE_N]; /* at least the highest key there is: above it keys are
					   appended */
	uint64_t ticket;
	uint64_t epoch;
	uint64_t file_bytes; /* the file never shrinks by itself */
	uint8_t uuid[16];
	uint32_t mdb_flags;
	/* Of the reader at work: an abandoned one stays with its environment. */
	MDB_txn *read_txn;
	MDB_cursor *read_cursor;
	bool abandoned;
	bool lacks_attrs; /* a catalog from before there was that table */
	char path[PATH_MAX];
	struct hc_env *next;
};

static pthread_mutex_t hc_env_abandoned_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hc_env *hc_env_abandoned; /* under the lock */

static int hc_env_errno(int rc)
{
	switch (rc) {
	case MDB_SUCCESS:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_MAP_FULL:
		return -EOVERFLOW;
	case MDB_VERSION_MISMATCH:
		return -EPROTO;
	default:
		/* 0 and below: LMDB's own codes and ours. */
		return rc > 0 ? -rc : -EBADMSG;
	}
}

static void hc_env_assert_failed(MDB_env *mdb, const char *what)
{
	(void)mdb;
	hc_error("catalog", "damaged: %s", what);
	hc_guard_escape();
}

/* The environment must not be used after -EFAULT; every later call gives it too. */
static int hc_env_guarded(struct hc_env *env, int (*call)(void *arg), void *arg)
{
	int rc;

	if (env->abandoned)
		return -EFAULT;
	rc = hc_guard_call(call, arg);
	if (rc == -EFAULT)
		env->abandoned = true;
	return rc;
}

/* LMDB does not tell where its map is. */
static void hc_env_unmap(const struct stat *st)
{
	hc_autofree char *maps = NULL;
	char *save = NULL;
	size_t n;

	if (hc_file_read(AT_FDCWD, "/proc/self/maps", HC_MAPS_BYTES_MAX, &maps, &n))
		return;
	for (char *line = strtok_r(maps, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		unsigned major, minor;
		uintptr_t from, to;
		uint64_t inode;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %x:%x %" SCNu64, &from, &to,
			   &major, &minor, &inode) != 5)
			continue;
		if (inode == st->st_ino && makedev(major, minor) == st->st_dev)
			munmap((void *)from, to - from);
	}
}

static void hc_env_abandon(struct hc_env *env)
{
	struct stat st;
	int fd;

	if (!mdb_env_get_fd(env->mdb, &fd)) {
		if (!fstat(fd, &st))
			hc_env_unmap(&st);
		close(fd);
	}
	pthread_mutex_lock(&hc_env_abandoned_lock);
	env->next = hc_env_abandoned;
	hc_env_abandoned = env;
	pthread_mutex_unlock(&hc_env_abandoned_lock);
}

void hc_env_close(struct hc_env *env)
{
	if (!env)
		return;
	if (env->abandoned) {
		hc_env_abandon(env);
		return;
	}
	mdb_env_close(env->mdb);
	free(env);
}

uint64_t hc_env_ticket(const struct hc_env *env)
{
	return env->ticket;
}

uint64_t hc_env_epoch(const struct hc_env *env)
{
	return env->epoch;
}

/* Opening */

/* The head of a page in LMDB's data version 1, which later writes to the page believe: LMDB itself
 * checks only what a reader needs, and a damaged `upper` would end in a wild write. */
struct hc_mdb_page {
	uint64_t number;
	uint16_t pad;
	uint16_t flags;
	uint16_t lower, upper;
};
#define HC_MDB_PAGE_LEAF 0x02u

/* key lies in a leaf page. */
static bool hc_leaf_is_sound(const void *key, size_t page_bytes)
{
	const struct hc_mdb_page *page =
		(const struct hc_mdb_page *)((uintptr_t)key & ~(uintptr_t)(page_bytes - 1));

	return (page->flags & HC_MDB_PAGE_LEAF) && page->lower > sizeof(*page) &&
	       page->lower % 2 == 0 && page->lower <= page->upper && page->upper < page_bytes &&
	       page->upper % 2 == 0;
}

static int hc_meta_get(MDB_txn *txn, MDB_dbi dbi, uint64_t key, void *value, size_t n_bytes)
{
	uint64_t key_be = htobe64(key);
	MDB_val k = {sizeof(key_be), &key_be}, v;
	int rc = mdb_get(txn, dbi, &k, &v);

	if (rc)
		return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
	if (v.mv_size != n_bytes)
		return MDB_CORRUPTED;
	memcpy(value, v.mv_data, n_bytes);
	return 0;
}

static int hc_meta_put(MDB_txn *txn, MDB_dbi dbi, uint64_t key, const void *value, size_t n_bytes)
{
	uint64_t key_be = htobe64(key);
	MDB_val k = {sizeof(key_be), &key_be}, v = {n_bytes, (void *)value};

	return mdb_put(txn, dbi, &k, &v, 0);
}

static int hc_env_find_last(struct hc_env *env, MDB_txn *txn, enum hc_table table)
{
	MDB_val k, v;
	uint64_t key_be;
	int rc = mdb_cursor_open(txn, env->dbis[table], &env->read_cursor);

	if (rc)
		return rc;
	rc = mdb_cursor_get(env->read_cursor, &k, &v, MDB_LAST);
	mdb_cursor_close(env->read_cursor);
	env->has_last[table] = !rc;
	if (rc)
		return rc == MDB_NOTFOUND ? 0 : rc;
	if (k.mv_size != sizeof(key_be))
		return MDB_CORRUPTED;
	memcpy(&key_be, k.mv_data, sizeof(key_be));
	env->last_keys[table] = be64toh(key_be);
	return 0;
}

/* The names of the tables lie in one leaf page of the unnamed table; each commit writes there. */
static int hc_env_check_root(struct hc_env *env, MDB_txn *txn)
{
	MDB_val k, v;
	MDB_stat stat;
	MDB_dbi dbi;
	int rc = mdb_dbi_open(txn, NULL, 0, &dbi);

	if (!rc)
		rc = mdb_env_stat(env->mdb, &stat);
	if (!rc)
		rc = mdb_cursor_open(txn, dbi, &env->read_cursor);
	if (rc)
		return rc;
	rc = mdb_cursor_get(env->read_cursor, &k, &v, MDB_FIRST);
	mdb_cursor_close(env->read_cursor);
	if (!rc && !hc_leaf_is_sound(k.mv_data, stat.ms_psize))
		rc = MDB_CORRUPTED;
	return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
}

/* Handles of the tables and what the meta table says. The version is judged before anything else is
 * believed. */
static int hc_env_read_meta(struct hc_env *env, MDB_txn *txn)
{
	uint64_t format, ticket, epoch;
	uint8_t uuid[16];
	int rc = mdb_dbi_open(txn, hc_table_names[HC_TABLE_META], 0, &env->dbis[HC_TABLE_META]);

	if (rc)
		return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
	rc = hc_meta_get(txn, env->dbis[HC_TABLE_META], HC_META_FORMAT, &format, sizeof(format));
	if (!rc && le64toh(format) > HC_CATALOG_FORMAT)
		return MDB_VERSION_MISMATCH;
	if (!rc && le64toh(format) != HC_CATALOG_FORMAT)
		rc = MDB_CORRUPTED;
	if (!rc)
		rc = hc_meta_get(txn, env->dbis[HC_TABLE_META], HC_META_TICKET, &ticket,
				 sizeof(ticket));
	if (!rc)
		rc = hc_meta_get(txn, env->dbis[HC_TABLE_META], HC_META_EPOCH, &epoch,
				 sizeof(epoch));
	if (!rc)
		rc = hc_meta_get(txn, env->dbis[HC_TABLE_META], HC_META_UUID, uuid, sizeof(uuid));
	if (!rc && memcmp(uuid, env->uuid, sizeof(uuid))) {
		hc_error("catalog", "%s belongs to another cache", env->path);
		rc = MDB_CORRUPTED;
	}
	if (!rc)
		rc = hc_env_check_root(env, txn);
	for (int t = 0; !rc && t < HC_TABLE_N; t++) {
		rc = mdb_dbi_open(txn, hc_table_names[t], 0, &env->dbis[t]);
		if (rc == MDB_NOTFOUND && t == HC_TABLE_ATTRS) {
			env->lacks_attrs = true;
			rc = 0;
			continue;
		}
		if (rc == MDB_NOTFOUND)
			rc = MDB_CORRUPTED;
		if (!rc)
			rc = hc_env_find_last(env, txn, (enum hc_table)t);
	}
	if (rc)
		return rc;
	env->ticket = le64toh(ticket);
	env->epoch = epoch;
	return 0;
}

static int hc_env_write_meta(struct hc_env *env, MDB_txn *txn)
{
	uint64_t format = htole64(HC_CATALOG_FORMAT), ticket = 0;
	MDB_dbi meta;
	int rc = 0;

	for (int t = 0; !rc && t < HC_TABLE_N; t++)
		rc = mdb_dbi_open(txn, hc_table_names[t], MDB_CREATE, &env->dbis[t]);
	meta = env->dbis[HC_TABLE_META];
	hc_rng_system(&env->epoch, sizeof(env->epoch));
	if (!rc)
		rc = hc_meta_put(txn, meta, HC_META_FORMAT, &format, sizeof(format));
	if (!rc)
		rc = hc_meta_put(txn, meta, HC_META_TICKET, &ticket, sizeof(ticket));
	if (!rc)
		rc = hc_meta_put(txn, meta, HC_META_EPOCH, &env->epoch, sizeof(env->epoch));
	if (!rc)
		rc = hc_meta_put(txn, meta, HC_META_UUID, env->uuid, sizeof(env->uuid));
	env->has_last[HC_TABLE_META] = true;
	env->last_keys[HC_TABLE_META] = HC_META_EPOCH;
	return rc;
}

static int hc_env_read_meta_call(void *arg)
{
	struct hc_env *env = arg;
	int rc = mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, &env->read_txn);

	if (rc)
		return hc_env_errno(rc);
	rc = hc_env_read_meta(env, env->read_txn);
	/* Committed, so that the handles stay. */
	if (rc)
		mdb_txn_abort(env->read_txn);
	else
		rc = mdb_txn_commit(env->read_txn);
	return hc_env_errno(rc);
}

static int hc_env_write_meta_call(void *arg)
{
	struct hc_env *env = arg;
	MDB_txn *txn;
	int rc = mdb_txn_begin(env->mdb, NULL, 0, &txn);

	if (rc)
		return hc_env_errno(rc);
	rc = hc_env_write_meta(env, txn);
	if (rc)
		mdb_txn_abort(txn);
	else
		rc = mdb_txn_commit(txn);
	return hc_env_errno(rc);
}

static int hc_env_add_attrs_call(void *arg)
{
	struct hc_env *env = arg;
	MDB_txn *txn;
	int rc = mdb_txn_begin(env->mdb, NULL, 0, &txn);

	if (rc)
		return hc_env_errno(rc);
	rc = mdb_dbi_open(txn, hc_table_names[HC_TABLE_ATTRS], MDB_CREATE,
			  &env->dbis[HC_TABLE_ATTRS]);
	if (rc)
		mdb_txn_abort(txn);
	else
		rc = mdb_txn_commit(txn);
	return hc_env_errno(rc);
}

/* Opens the file itself, reads nothing of the map. */
static int hc_env_begin(const char *dir, const uint8_t uuid[16], uint64_t map_bytes,
			unsigned mdb_flags, struct hc_env **env_p)
{
	struct hc_env *env = hc_zalloc(sizeof(*env));
	int rc;

	if (!env)
		return -ENOMEM;
	memcpy(env->uuid, uuid, sizeof(env->uuid));
	if (snprintf(env->path, sizeof(env->path), "%s/" HC_CATALOG_FILE, dir) >=
	    (int)sizeof(env->path)) {
		free(env);
		return -ENAMETOOLONG;
	}
	rc = mdb_env_create(&env->mdb);
	if (rc) {
		free(env);
		return hc_env_errno(rc);
	}
	mdb_env_set_assert(env->mdb, hc_env_assert_failed);
	rc = mdb_env_set_maxdbs(env->mdb, HC_TABLE_N);
	if (!rc)
		rc = mdb_env_set_mapsize(env->mdb, hc_max_u64(map_bytes, HC_ENV_MAP_BYTES_MIN));
	if (!rc)
		rc = mdb_env_open(env->mdb, env->path, HC_ENV_FLAGS | mdb_flags, 0600);
	if (rc) {
		hc_env_close(env);
		return hc_env_errno(rc);
	}
	*env_p = env;
	return 0;
}

/* -EBADMSG when the file lost bytes, or its name. */
static int hc_env_check_file(struct hc_env *env)
{
	struct stat st;
	int fd;

	if (mdb_env_get_fd(env->mdb, &fd) || fstat(fd, &st))
		return -errno;
	if (!st.st_nlink) {
		hc_error("catalog", "%s was removed while in use", env->path);
		return -EBADMSG;
	}
	if ((uint64_t)st.st_size < env->file_bytes) {
		hc_error("catalog", "%s was truncated while in use", env->path);
		return -EBADMSG;
	}
	env->file_bytes = (uint64_t)st.st_size;
	return 0;
}

static int hc_env_open_as(const char *dir, const uint8_t uuid[16], uint64_t map_bytes,
			  unsigned mdb_flags, struct hc_env **env_p)
{
	struct hc_env *env;
	int rc = hc_env_begin(dir, uuid, map_bytes, mdb_flags, &env);

	if (rc)
		return rc;
	rc = hc_env_guarded(env, hc_env_read_meta_call, env);
	if (!rc && env->lacks_attrs && !(mdb_flags & MDB_RDONLY))
		rc = hc_env_guarded(env, hc_env_add_attrs_call, env);
	if (rc == -EFAULT)
		rc = -EBADMSG;
	if (!rc)
		rc = hc_env_check_file(env);
	if (rc) {
		hc_env_close(env);
		return rc;
	}
	*env_p = env;
	return 0;
}

int hc_env_open(const char *dir, const uint8_t uuid[16], uint64_t map_bytes, struct hc_env **env_p)
{
	char path[PATH_MAX];
	struct hc_env *env;
	struct stat st;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/" HC_CATALOG_FILE, dir);
	if (stat(path, &st))
		return -errno;
	/* LMDB would make a fresh one of an empty file, and read a short one as it comes. */
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)(2 * HC_BLOCK_BYTES))
		rc = -EBADMSG;
	/* First read-only: a file of a newer version is not touched. */
	if (!rc)
		rc = hc_env_open_as(dir, uuid, map_bytes, MDB_RDONLY, &env);
	if (!rc) {
		hc_env_close(env);
		rc = hc_env_open_as(dir, uuid, map_bytes, 0, env_p);
	}
	if (rc == -EPROTO)
		hc_error("catalog", "%s was written by a newer version; use that one", path);
	else if (rc == -EBADMSG)
		hc_error("catalog", "%s is damaged", path);
	else if (rc)
		hc_error("catalog", "cannot open %s: %s", path, strerror(-rc));
	return rc;
}

int hc_env_create(const char *dir, const uint8_t uuid[16], uint64_t map_bytes,
		  struct hc_env **env_p)
{
	struct hc_env *env;
	int rc = hc_env_begin(dir, uuid, map_bytes, 0, &env);

	if (rc) {
		hc_error("catalog", "cannot make %s/" HC_CATALOG_FILE ": %s", dir, strerror(-rc));
		return rc;
	}
	rc = hc_env_guarded(env, hc_env_write_meta_call, env);
	if (rc == -EFAULT)
		rc = -EBADMSG;
	if (!rc)
		rc = hc_env_check_file(env);
	if (rc) {
		hc_error("catalog", "cannot make %s: %s", env->path, strerror(-rc));
		hc_env_close(env);
		return rc;
	}
	*env_p = env;
	return 0;
}

/* Commit */

struct hc_env_batch {
	struct hc_env *env;
	struct hc_change **changes;
	size_t n;
	uint64_t ticket;
	MDB_txn *txn;
	MDB_cursor *cursors[HC_TABLE_N];
	bool has_last[HC_TABLE_N];
	uint64_t last_keys[HC_TABLE_N];
};

static int hc_change_compare(const void *a, const void *b)
{
	const struct hc_change *x = *(struct hc_change *const *)a;
	const struct hc_change *y = *(struct hc_change *const *)b;

	if (x->table != y->table)
		return x->table < y->table ? -1 : 1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->ticket < y->ticket ? -1 : x->ticket > y->ticket;
}

static int hc_batch_apply(struct hc_env_batch *b, const struct hc_change *change)
{
	uint8_t table = change->table;
	uint64_t key_be = htobe64(change->key);
	MDB_val k = {sizeof(key_be), &key_be}, v = {change->n_bytes, (void *)change->value};
	bool above = !b->has_last[table] || change->key > b->last_keys[table];
	int rc = 0;

	if (!b->cursors[table])
		rc = mdb_cursor_open(b->txn, b->env->dbis[table], &b->cursors[table]);
	if (rc)
		return rc;
	if (change->op == HC_CHANGE_PUT) {
		/* Appending fills pages; inserting at the end would leave them half empty. */
		rc = mdb_cursor_put(b->cursors[table], &k, &v, above ? MDB_APPEND : 0);
		if (above) {
			b->has_last[table] = true;
			b->last_keys[table] = change->key;
		}
		return rc;
	}
	if (above)
		return 0;
	rc = mdb_cursor_get(b->cursors[table], &k, &v, MDB_SET);
	if (!rc)
		rc = mdb_cursor_del(b->cursors[table], 0);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

static int hc_batch_apply_all(struct hc_env_batch *b)
{
	uint64_t ticket = htole64(b->ticket);
	int rc = 0;

	for (size_t i = 0; !rc && i < b->n; i++) {
		const struct hc_change *change = b->changes[i];

		/* The last change of a key is the only one that counts. */
		if (i + 1 < b->n && b->changes[i + 1]->table == change->table &&
		    b->changes[i + 1]->key == change->key)
			continue;
		rc = hc_batch_apply(b, change);
	}
	if (!rc)
		rc = hc_meta_put(b->txn, b->env->dbis[HC_TABLE_META], HC_META_TICKET, &ticket,
				 sizeof(ticket));
	return rc;
}

static int hc_batch_call(void *arg)
{
	struct hc_env_batch *b = arg;
	int rc = mdb_txn_begin(b->env->mdb, NULL, 0, &b->txn);

	if (rc)
		return hc_env_errno(rc);
	rc = hc_batch_apply_all(b);
	for (int t = 0; t < HC_TABLE_N; t++) {
		if (b->cursors[t])
			mdb_cursor_close(b->cursors[t]);
	}
	if (rc) {
		mdb_txn_abort(b->txn);
		return hc_env_errno(rc);
	}
	hc_crash_point("catalog-commit-before");
	rc = mdb_txn_commit(b->txn);
	if (!rc)
		hc_crash_point("catalog-commit-after");
	return hc_env_errno(rc);
}

static int hc_env_grow(struct hc_env *env)
{
	MDB_envinfo info;
	int rc = mdb_env_info(env->mdb, &info);

	if (!rc && info.me_mapsize >= HC_ENV_MAP_BYTES_MAX)
		rc = MDB_MAP_FULL;
	if (!rc)
		rc = mdb_env_set_mapsize(env->mdb, info.me_mapsize * 2);
	if (rc)
		hc_error("catalog", "cannot map more than %zu MiB of %s: %s", info.me_mapsize >> 20,
			 env->path, mdb_strerror(rc));
	return rc ? -EBADMSG : 0;
}

/* LMDB says EIO when a write was short, and that is what a full file system does to a large one. */
static int hc_env_judge_eio(struct hc_env *env)
{
	struct statvfs vfs;
	int fd;

	if (mdb_env_get_fd(env->mdb, &fd) || fstatvfs(fd, &vfs))
		return -EBADMSG;
	return (uint64_t)vfs.f_bavail * vfs.f_frsize < HC_ENV_FULL_BYTES ? -ENOSPC : -EBADMSG;
}

int hc_env_commit(struct hc_env *env, struct hc_change **changes, size_t n, uint64_t ticket)
{
	int rc;

	for (size_t i = 1; i < n; i++) {
		if (hc_change_compare(&changes[i - 1], &changes[i]) > 0) {
			qsort(changes, n, sizeof(changes[0]), hc_change_compare);
			break;
		}
	}
	for (;;) {
		struct hc_env_batch b = {.env = env, .changes = changes, .n = n, .ticket = ticket};

		memcpy(b.has_last, env->has_last, sizeof(b.has_last));
		memcpy(b.last_keys, env->last_keys, sizeof(b.last_keys));
		rc = env->abandoned ? -EFAULT : hc_env_check_file(env);
		if (!rc)
			rc = hc_env_guarded(env, hc_batch_call, &b);
		if (!rc) {
			memcpy(env->has_last, b.has_last, sizeof(b.has_last));
			memcpy(env->last_keys, b.last_keys, sizeof(b.last_keys));
			env->ticket = ticket;
			return hc_env_check_file(env);
		}
		if (rc != -EOVERFLOW)
			break;
		rc = hc_env_grow(env);
		if (rc)
			break;
	}
	if (rc == -EIO)
		rc = hc_env_judge_eio(env);
	/* -ENOENT: a table is gone. */
	return rc == -EFAULT || rc == -ENOENT || rc == -EPROTO ? -EBADMSG : rc;
}

/* Load */

struct hc_env_reader {
	struct hc_env *env;
	enum hc_table table;
	bool begun, at_end;
	uint64_t after; /* the last key handed on */
	size_t page_bytes;
	struct hc_piece *piece; /* of the call at work */
};

struct hc_piece *hc_piece_create(void)
{
	struct hc_piece *piece = malloc(sizeof(*piece));

	if (piece)
		piece->n = 0;
	return piece;
}

static int hc_reader_copy(struct hc_env_reader *r, MDB_cursor *cursor)
{
	uint64_t key_be = htobe64(r->after);
	MDB_val k = {sizeof(key_be), &key_be}, v;
	int rc = mdb_cursor_get(cursor, &k, &v, r->begun ? MDB_SET_RANGE : MDB_FIRST);
	struct hc_piece *piece = r->piece;
	uintptr_t page = 0;
	size_t at = 0;

	for (; !rc; rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) {
		uintptr_t page_now = (uintptr_t)k.mv_data & ~(uintptr_t)(r->page_bytes - 1);
		uint64_t key;

		if (k.mv_size != sizeof(key) || v.mv_size > HC_VALUE_BYTES_MAX ||
		    (page_now != page && !hc_leaf_is_sound(k.mv_data, r->page_bytes)))
			return MDB_CORRUPTED;
		page = page_now;
		memcpy(&key, k.mv_data, sizeof(key));
		key = be64toh(key);
		if (r->begun && key == r->after)
			continue;
		/* Keys that do not grow would turn in circles. */
		if (r->begun && key < r->after)
			return MDB_CORRUPTED;
		if (piece->n == HC_CATALOG_PIECE_ROWS || at + v.mv_size > HC_PIECE_BYTES)
			return 0;
		piece->rows[piece->n++] =
			(struct hc_catalog_row){key, piece->bytes + at, v.mv_size};
		memcpy(piece->bytes + at, v.mv_data, v.mv_size);
		at += v.mv_size;
		r->begun = true;
		r->after = key;
	}
	if (rc != MDB_NOTFOUND)
		return rc;
	r->at_end = true;
	return 0;
}

static int hc_reader_call(void *arg)
{
	struct hc_env_reader *r = arg;
	struct hc_env *env = r->env;
	int rc = mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, &env->read_txn);
	MDB_stat stat;

	if (rc)
		return hc_env_errno(rc);
	mdb_env_stat(env->mdb, &stat);
	r->page_bytes = stat.ms_psize;
	rc = mdb_cursor_open(env->read_txn, env->dbis[r->table], &env->read_cursor);
	if (!rc) {
		rc = hc_reader_copy(r, env->read_cursor);
		mdb_cursor_close(env->read_cursor);
	}
	mdb_txn_abort(env->read_txn);
	return rc == MDB_NOTFOUND ? -EBADMSG : hc_env_errno(rc);
}

struct hc_env_reader *hc_env_reader_create(struct hc_env *env, enum hc_table table)
{
	struct hc_env_reader *reader = hc_zalloc(sizeof(*reader));

	if (!reader)
		return NULL;
	reader->env = env;
	reader->table = table;
	return reader;
}

int hc_env_reader_next(struct hc_env_reader *reader, struct hc_piece *piece)
{
	int rc;

	piece->n = 0;
	if (reader->at_end)
		return 0;
	reader->piece = piece;
	rc = hc_env_guarded(reader->env, hc_reader_call, reader);
	return rc == -EFAULT || rc == -EIO ? -EBADMSG : rc;
}

struct hc_env_count {
	struct hc_env *env;
	enum hc_table table;
	uint64_t n;
};

static int hc_count_call(void *arg)
{
	struct hc_env_count *c = arg;
	int rc = mdb_txn_begin(c->env->mdb, NULL, MDB_RDONLY, &c->env->read_txn);
	MDB_stat stat;

	if (rc)
		return hc_env_errno(rc);
	rc = mdb_stat(c->env->read_txn, c->env->dbis[c->table], &stat);
	mdb_txn_abort(c->env->read_txn);
	if (!rc)
		c->n = stat.ms_entries;
	return hc_env_errno(rc);
}

uint64_t hc_env_n_rows(struct hc_env *env, enum hc_table table)
{
	struct hc_env_count c = {.env = env, .table = table};

	/* The reader finds out what is wrong. What the file says is not more than would fit it. */
	if (hc_env_guarded(env, hc_count_call, &c))
		return 0;
	return hc_min_u64(c.n, env->file_bytes / HC_ENV_ROW_BYTES_MIN);
}
