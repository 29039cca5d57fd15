/* SPDX-License-Identifier: Apache-2.0 */
/* What the catalog is made of: the SIGBUS guard, the LMDB environment, the journal. Each part has
 * one user at a time (the catalog orders them with its locks) and is used by catalog*.c alone. */
#ifndef HC_INDEX_CATALOG_INTERNAL_H
#define HC_INDEX_CATALOG_INTERNAL_H

#include "index/catalog.h"

#define HC_CATALOG_FILE    "catalog.mdb"
#define HC_CATALOG_FORMAT  1
#define HC_META_FORMAT     1
#define HC_META_TICKET     2
#define HC_META_UUID       3
#define HC_META_EPOCH      4
#define HC_VALUE_BYTES_MAX 4096

enum hc_change_op { HC_CHANGE_PUT = 1, HC_CHANGE_DEL = 2 };

struct hc_change {
	uint64_t ticket;
	uint64_t key;
	uint16_t n_bytes;
	uint8_t table;
	uint8_t op;
	uint32_t unused;
	uint8_t value[]; /* n_bytes, then padding to 8 */
};

/* Calls call(arg). A SIGBUS of this thread or hc_guard_escape ends the call where it stands and
 * gives -EFAULT: what it was working on is in an unknown state. A handler for SIGBUS is installed
 * where it is not there; it passes every other one on to the handler it found. */
int hc_guard_call(int (*call)(void *arg), void *arg) HC_MUST_CHECK;
/* Ends the guarded call of this thread; returns only when there is none. */
void hc_guard_escape(void);

struct hc_env;

/* -ENOENT, -EPROTO, -EBADMSG (damaged, or of another cache), or what the file system says. */
int hc_env_open(const char *dir, const uint8_t uuid[16], uint64_t map_bytes,
		struct hc_env **env_p) HC_MUST_CHECK;
/* There is no file of that name yet. */
int hc_env_create(const char *dir, const uint8_t uuid[16], uint64_t map_bytes,
		  struct hc_env **env_p) HC_MUST_CHECK;
void hc_env_close(struct hc_env *env);
uint64_t hc_env_ticket(const struct hc_env *env);
/* A random number of this environment: journal records of another one do not count. */
uint64_t hc_env_epoch(const struct hc_env *env);
/* One transaction. changes are sorted in place. -EBADMSG: lost. -ENOSPC, -EDQUOT and others:
 * nothing was changed, it may be tried again. */
int hc_env_commit(struct hc_env *env, struct hc_change **changes, size_t n,
		  uint64_t ticket) HC_MUST_CHECK;
/* About how many rows a table has, without reading them. */
uint64_t hc_env_n_rows(struct hc_env *env, enum hc_table table);

/* Rows are copied out of the map in pieces, and handed on outside the guard. */
#define HC_PIECE_BYTES (256 * HC_KIB)
struct hc_piece {
	struct hc_catalog_row rows[HC_CATALOG_PIECE_ROWS];
	size_t n;
	uint8_t bytes[HC_PIECE_BYTES];
};
_Static_assert(HC_PIECE_BYTES >= HC_VALUE_BYTES_MAX, "a piece holds any row");
/* NULL when memory is out; free() ends it. */
struct hc_piece *hc_piece_create(void);

/* Reads a table from its first row to its last; free() ends it. From any thread, one at a time. */
struct hc_env_reader;
struct hc_env_reader *hc_env_reader_create(struct hc_env *env, enum hc_table table);
/* Fills the piece with the next rows; none at the end. -EBADMSG: lost. */
int hc_env_reader_next(struct hc_env_reader *reader, struct hc_piece *piece) HC_MUST_CHECK;

int hc_env_load(struct hc_env *env, enum hc_table table,
		int (*each)(void *arg, uint64_t key, const void *value, size_t n_bytes),
		void *arg) HC_MUST_CHECK;
int hc_env_load_pieces(struct hc_env *env, enum hc_table table, unsigned n_threads,
		       hc_catalog_piece_t *piece, void *arg) HC_MUST_CHECK;

struct hc_journal;

int hc_journal_open(int dirfd, struct hc_journal **journal_p) HC_MUST_CHECK;
void hc_journal_close(struct hc_journal *journal);
/* Heap array (each element too) of the records of that epoch above the ticket, in ticket order. */
int hc_journal_read(struct hc_journal *journal, uint64_t epoch, uint64_t ticket,
		    struct hc_change ***changes_p, size_t *n_p) HC_MUST_CHECK;
void hc_journal_changes_free(struct hc_change **changes, size_t n);
/* Forgets everything; records from here on belong to the epoch. */
int hc_journal_reset(struct hc_journal *journal, uint64_t epoch) HC_MUST_CHECK;
/* committed: tickets up to it need no record any more. */
int hc_journal_append(struct hc_journal *journal, const struct hc_change *change, const void *value,
		      uint64_t committed) HC_MUST_CHECK;
uint64_t hc_journal_bytes(const struct hc_journal *journal);

int hc_recency_store_at(int dirfd, const struct hc_recency *rows, size_t n) HC_MUST_CHECK;
int hc_recency_load_at(int dirfd, struct hc_recency **rows_p, size_t *n_p) HC_MUST_CHECK;

#endif
