/* SPDX-License-Identifier: Apache-2.0 */
/* The recency file: when each page was last used, which is worth a guess after a restart and no
 * more. A damaged or absent file is no error.
 *
 *   magic 8 | number of rows 8 | checksum of the rows 8 | rows of (sequence 8, stamp 4, hits 4)
 * little-endian */
#include "index/catalog-internal.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/stat.h>

/* For XXH3_state_t on the stack; its size is that of the installed library's header. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "util/io.h"
#include "util/log.h"

#define HC_RECENCY_FILE  "recency"
#define HC_RECENCY_NEW   "recency.new"
#define HC_RECENCY_MAGIC "HCRECN01"
#define HC_RECENCY_PIECE 4096

struct hc_recency_head {
	uint8_t magic[8];
	uint64_t n;
	uint64_t checksum;
};
_Static_assert(sizeof(struct hc_recency_head) == 24, "lies in a file");
_Static_assert(sizeof(struct hc_recency) == 16, "lies in a file");

static void hc_recency_swap(struct hc_recency *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		rows[i].sequence = le64toh(rows[i].sequence);
		rows[i].stamp = le32toh(rows[i].stamp);
		rows[i].hits = le32toh(rows[i].hits);
	}
}

static int hc_recency_write(int fd, const struct hc_recency *rows, size_t n)
{
	struct hc_recency_head head = {.magic = HC_RECENCY_MAGIC, .n = htole64(n)};
	hc_autofree struct hc_recency *piece = malloc(HC_RECENCY_PIECE * sizeof(*piece));
	uint64_t at = sizeof(head);
	XXH3_state_t state;

	if (!piece)
		return -ENOMEM;
	XXH3_64bits_reset(&state);
	for (size_t done = 0; done < n;) {
		size_t n_now = (size_t)hc_min_u64(n - done, HC_RECENCY_PIECE);
		size_t n_bytes = n_now * sizeof(*rows);
		int rc;

		memcpy(piece, rows + done, n_bytes);
		hc_recency_swap(piece, n_now);
		XXH3_64bits_update(&state, piece, n_bytes);
		rc = hc_pwrite_full(fd, piece, n_bytes, (off_t)at);
		if (rc)
			return rc;
		at += n_bytes;
		done += n_now;
	}
	head.checksum = htole64(XXH3_64bits_digest(&state));
	return hc_pwrite_full(fd, &head, sizeof(head), 0);
}

int hc_recency_store_at(int dirfd, const struct hc_recency *rows, size_t n)
{
	hc_autofd int fd =
		openat(dirfd, HC_RECENCY_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int rc = fd < 0 ? -errno : 0;

	if (!rc)
		rc = hc_recency_write(fd, rows, n);
	if (!rc && fsync(fd))
		rc = -errno;
	if (!rc && renameat(dirfd, HC_RECENCY_NEW, dirfd, HC_RECENCY_FILE))
		rc = -errno;
	if (!rc && fsync(dirfd))
		rc = -errno;
	if (rc) {
		hc_warn("catalog", "cannot write the recency file: %s", strerror(-rc));
		unlinkat(dirfd, HC_RECENCY_NEW, 0);
	}
	return rc;
}

/* -EBADMSG when it is not whole. */
static int hc_recency_read(int fd, struct hc_recency **rows_p, size_t *n_p)
{
	hc_autofree struct hc_recency *rows = NULL;
	struct hc_recency_head head;
	size_t got, n_bytes;
	struct stat st;
	int rc = hc_pread_full(fd, &head, sizeof(head), 0, &got);

	if (rc || fstat(fd, &st))
		return rc ? rc : -errno;
	if (got < sizeof(head) || memcmp(head.magic, HC_RECENCY_MAGIC, sizeof(head.magic)) ||
	    le64toh(head.n) > SIZE_MAX / sizeof(*rows) / 2 ||
	    (uint64_t)st.st_size != sizeof(head) + le64toh(head.n) * sizeof(*rows))
		return -EBADMSG;
	n_bytes = (size_t)le64toh(head.n) * sizeof(*rows);
	rows = malloc(n_bytes ? n_bytes : 1);
	if (!rows)
		return -ENOMEM;
	rc = hc_pread_full(fd, rows, n_bytes, sizeof(head), &got);
	if (rc)
		return rc;
	if (got < n_bytes || XXH3_64bits(rows, n_bytes) != le64toh(head.checksum))
		return -EBADMSG;
	hc_recency_swap(rows, (size_t)le64toh(head.n));
	*n_p = (size_t)le64toh(head.n);
	*rows_p = hc_steal(&rows);
	return 0;
}

int hc_recency_load_at(int dirfd, struct hc_recency **rows_p, size_t *n_p)
{
	hc_autofd int fd = openat(dirfd, HC_RECENCY_FILE, O_RDONLY | O_CLOEXEC);
	struct hc_recency *rows = NULL;
	size_t n = 0;
	int rc;

	if (fd >= 0) {
		rc = hc_recency_read(fd, &rows, &n);
		if (rc == -ENOMEM)
			return rc;
		if (rc)
			hc_warn("catalog",
				"the recency file is damaged: pages start as equally old");
	} else if (errno != ENOENT) {
		hc_warn("catalog", "cannot read the recency file: %m");
	}
	*rows_p = rows;
	*n_p = n;
	return 0;
}
