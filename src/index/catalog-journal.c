/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of the catalog: two files of records, written in turn. See catalog-internal.h.
 *
 *   record   magic 4 | value length 2 | table 1 | op 1 | ticket 8 | key 8 | checksum 8 | value,
 * padded to 8
 *
 * The checksum is XXH3 over the record without it, its seed the epoch. The other file is begun anew
 * from its start, over the old records, once all of those are committed: what is left behind the
 * newest record there is either broken or has a ticket that does not count. Both files get their
 * blocks at open, so that a full disk does not stop small changes. */
#include "index/catalog-internal.h"

#include <endian.h>
#include <fcntl.h>

/* For XXH3_state_t on the stack; its size is that of the installed library's header. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "util/crash.h"
#include "util/io.h"
#include "util/log.h"

#define HC_JOURNAL_MAGIC      0x314a4348u /* "HCJ1" */
#define HC_JOURNAL_TURN_BYTES (256 * HC_KIB)
#define HC_JOURNAL_ROOM_BYTES (2 * HC_JOURNAL_TURN_BYTES)
/* A file holds at most what the queue of changes holds; more than this is not ours. */
#define HC_JOURNAL_READ_MAX ((uint64_t)8 * HC_GIB)

static const char *const hc_journal_names[2] = {"journal.0", "journal.1"};

struct hc_journal_head {
	uint32_t magic;
	uint16_t n_bytes;
	uint8_t table;
	uint8_t op;
	uint64_t ticket;
	uint64_t key;
	uint64_t checksum;
};
_Static_assert(sizeof(struct hc_journal_head) == 32, "lies in a file");

struct hc_journal {
	int fds[2];
	uint64_t last_tickets[2]; /* highest in each file */
	int now;
	uint64_t at;
	uint64_t epoch;
	_Atomic uint64_t n_bytes; /* for statistics, at any time */
};

/* value with its padding, so that each byte of a record counts. */
static uint64_t hc_journal_checksum(const struct hc_journal_head *head, const void *value,
				    size_t n_padded, uint64_t epoch)
{
	struct hc_journal_head bare = *head;
	XXH3_state_t state;

	bare.checksum = 0;
	XXH3_INITSTATE(&state); /* or reset_withSeed believes what the stack holds */
	XXH3_64bits_reset_withSeed(&state, epoch);
	XXH3_64bits_update(&state, &bare, sizeof(bare));
	XXH3_64bits_update(&state, value, n_padded);
	return htole64(XXH3_64bits_digest(&state));
}

int hc_journal_open(int dirfd, struct hc_journal **journal_p)
{
	struct hc_journal *journal = hc_zalloc(sizeof(*journal));

	if (!journal)
		return -ENOMEM;
	journal->fds[1] = -1;
	for (int i = 0; i < 2; i++) {
		journal->fds[i] =
			openat(dirfd, hc_journal_names[i], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (journal->fds[i] < 0) {
			int rc = -errno;

			hc_error("catalog", "cannot open %s: %m", hc_journal_names[i]);
			hc_journal_close(journal);
			return rc;
		}
	}
	*journal_p = journal;
	return 0;
}

void hc_journal_close(struct hc_journal *journal)
{
	if (!journal)
		return;
	for (int i = 0; i < 2; i++) {
		if (journal->fds[i] >= 0)
			close(journal->fds[i]);
	}
	free(journal);
}

int hc_journal_reset(struct hc_journal *journal, uint64_t epoch)
{
	for (int i = 0; i < 2; i++) {
		if (ftruncate(journal->fds[i], 0)) {
			int rc = -errno;

			hc_error("catalog", "cannot empty %s: %m", hc_journal_names[i]);
			return rc;
		}
		if (fallocate(journal->fds[i], FALLOC_FL_KEEP_SIZE, 0, HC_JOURNAL_ROOM_BYTES))
			hc_debug("catalog", "%s gets its blocks as it grows: %m",
				 hc_journal_names[i]);
		journal->last_tickets[i] = 0;
	}
	journal->now = 0;
	journal->at = 0;
	journal->epoch = epoch;
	return 0;
}

int hc_journal_append(struct hc_journal *journal, const struct hc_change *change, const void *value,
		      uint64_t committed)
{
	uint8_t buf[sizeof(struct hc_journal_head) + HC_VALUE_BYTES_MAX];
	struct hc_journal_head head = {
		.magic = htole32(HC_JOURNAL_MAGIC),
		.n_bytes = htole16(change->n_bytes),
		.table = change->table,
		.op = change->op,
		.ticket = htole64(change->ticket),
		.key = htole64(change->key),
	};
	size_t n = sizeof(head) + hc_align_up(change->n_bytes, 8);
	int other = !journal->now;
	int rc;

	if (journal->at >= HC_JOURNAL_TURN_BYTES && journal->last_tickets[other] <= committed) {
		journal->now = other;
		journal->at = 0;
	}
	memset(buf, 0, n);
	if (change->n_bytes)
		memcpy(buf + sizeof(head), value, change->n_bytes);
	head.checksum =
		hc_journal_checksum(&head, buf + sizeof(head), n - sizeof(head), journal->epoch);
	memcpy(buf, &head, sizeof(head));
	rc = hc_pwrite_full(journal->fds[journal->now], buf, n, (off_t)journal->at);
	if (rc) {
		hc_error("catalog", "cannot write %s: %s", hc_journal_names[journal->now],
			 strerror(-rc));
		return rc;
	}
	journal->at += n;
	journal->n_bytes += n;
	journal->last_tickets[journal->now] = change->ticket;
	hc_crash_point("catalog-journal");
	return 0;
}

uint64_t hc_journal_bytes(const struct hc_journal *journal)
{
	return journal->n_bytes;
}

/* Reading */

struct hc_journal_list {
	struct hc_change **changes;
	size_t n;
	size_t room;
};

void hc_journal_changes_free(struct hc_change **changes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(changes[i]);
	free(changes);
}

static int hc_journal_list_add(struct hc_journal_list *list, const struct hc_journal_head *head,
			       const uint8_t *value)
{
	uint16_t n_bytes = le16toh(head->n_bytes);
	struct hc_change *change;

	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct hc_change **more = realloc(list->changes, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		list->changes = more;
		list->room = room;
	}
	change = hc_zalloc(sizeof(*change) + n_bytes);
	if (!change)
		return -ENOMEM;
	change->ticket = le64toh(head->ticket);
	change->key = le64toh(head->key);
	change->n_bytes = n_bytes;
	change->table = head->table;
	change->op = head->op;
	memcpy(change->value, value, n_bytes);
	list->changes[list->n++] = change;
	return 0;
}

/* Up to the first record that is not whole. */
static int hc_journal_read_file(int fd, uint64_t epoch, uint64_t ticket,
				struct hc_journal_list *list)
{
	uint8_t value[HC_VALUE_BYTES_MAX + 8];
	struct hc_journal_head head;
	uint64_t last = 0;

	for (uint64_t at = 0; at < HC_JOURNAL_READ_MAX;) {
		size_t got, n_bytes, n_padded;
		int rc = hc_pread_full(fd, &head, sizeof(head), (off_t)at, &got);

		if (rc)
			return rc;
		n_bytes = le16toh(head.n_bytes);
		n_padded = (size_t)hc_align_up(n_bytes, 8);
		if (got < sizeof(head) || le32toh(head.magic) != HC_JOURNAL_MAGIC ||
		    n_bytes > HC_VALUE_BYTES_MAX || head.table >= HC_TABLE_N ||
		    (head.op != HC_CHANGE_PUT && head.op != HC_CHANGE_DEL))
			return 0;
		rc = hc_pread_full(fd, value, n_padded, (off_t)(at + sizeof(head)), &got);
		if (rc)
			return rc;
		if (got < n_padded ||
		    hc_journal_checksum(&head, value, n_padded, epoch) != head.checksum)
			return 0;
		/* Behind the newest record lies what an earlier turn left. */
		if (le64toh(head.ticket) <= last)
			return 0;
		last = le64toh(head.ticket);
		if (last > ticket) {
			rc = hc_journal_list_add(list, &head, value);
			if (rc)
				return rc;
		}
		at += sizeof(head) + n_padded;
	}
	return 0;
}

static int hc_journal_compare(const void *a, const void *b)
{
	uint64_t x = (*(struct hc_change *const *)a)->ticket;
	uint64_t y = (*(struct hc_change *const *)b)->ticket;

	return x < y ? -1 : x > y;
}

int hc_journal_read(struct hc_journal *journal, uint64_t epoch, uint64_t ticket,
		    struct hc_change ***changes_p, size_t *n_p)
{
	struct hc_journal_list list = {0};
	int rc = 0;

	for (int i = 0; !rc && i < 2; i++)
		rc = hc_journal_read_file(journal->fds[i], epoch, ticket, &list);
	if (rc) {
		hc_error("catalog", "cannot read the journal: %s", strerror(-rc));
		hc_journal_changes_free(list.changes, list.n);
		return rc;
	}
	if (list.n)
		qsort(list.changes, list.n, sizeof(list.changes[0]), hc_journal_compare);
	*changes_p = list.changes;
	*n_p = list.n;
	return 0;
}
