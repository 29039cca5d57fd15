/* SPDX-License-Identifier: Apache-2.0 */
/* Adoption: what a pool that was left behind still holds. All of it is input: a table that this
 * version cannot read is refused as a whole, a segment or a row that cannot be believed is dropped
 * alone, with one message. */
#include "pool/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "util/io.h"
#include "util/log.h"
#include "util/size.h"

static int hc_pool_remove(const char *dir, int dirfd, int segments_fd)
{
	hc_segment_files_remove(segments_fd, 0);
	if (unlinkat(dirfd, "slots", 0) && errno != ENOENT) {
		int rc = -errno;

		hc_error("pool", "cannot remove %s/slots: %m", dir);
		return rc;
	}
	return 0;
}

static int hc_adopt_refuse(const struct hc_pool_config *config, int rc)
{
	if (rc == -EPROTO)
		hc_error("pool",
			 "the slot table in %s is of a newer version of hicachefs; start that "
			 "version, or drop "
			 "the pages in memory with --discard-pool",
			 config->dir);
	else
		hc_error("pool",
			 "the slot table in %s is damaged; drop the pages in memory with "
			 "--discard-pool (pages on "
			 "disk stay)",
			 config->dir);
	return rc;
}

/* Why the pool behind a good header is not to be taken over; NULL: it is. */
static const char *hc_adopt_objection(const struct hc_pool_config *config, uint64_t segment_bytes,
				      const struct hc_table_header *h, const uint8_t boot_id[16])
{
	if (!config->adopt)
		return "it is not to be adopted";
	if (memcmp(h->boot_id, boot_id, sizeof(h->boot_id)))
		return "it is of an earlier boot";
	if (config->segment_bytes && segment_bytes != h->segment_bytes)
		return "its segments are of another size";
	if (h->segment_bytes < config->slot_bytes_max)
		return "its segments are too small for max_page_bytes";
	return NULL;
}

int hc_adopt_look(const struct hc_pool_config *config, uint64_t segment_bytes, int dirfd,
		  int segments_fd, const uint8_t boot_id[16], struct hc_found_table *found_p)
{
	struct hc_table_header h = {0};
	const char *objection;
	struct stat st;
	size_t got;
	int rc;

	*found_p = (struct hc_found_table){0};
	unlinkat(dirfd, "slots.new", 0);
	hc_autofd int fd = openat(dirfd, "slots", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 && errno == ENOENT)
		return hc_pool_remove(config->dir, dirfd, segments_fd);
	rc = fd < 0 || fstat(fd, &st) ? -errno : hc_pread_full(fd, &h, sizeof(h), 0, &got);
	if (rc) {
		hc_error("pool", "cannot read %s/slots: %s", config->dir, strerror(-rc));
		return rc;
	}
	rc = hc_table_check(&h, got < sizeof(h) ? got : (size_t)st.st_size);
	if (rc && !config->discard)
		return hc_adopt_refuse(config, rc);
	if (rc) {
		hc_warn("pool", "the unreadable pool in %s is dropped as asked", config->dir);
		return hc_pool_remove(config->dir, dirfd, segments_fd);
	}
	if (memcmp(h.uuid, config->uuid, sizeof(h.uuid))) {
		hc_error("pool",
			 "the pool in %s belongs to another cache; set another pool_path, or "
			 "release it with "
			 "`hicachectl pool free`",
			 config->dir);
		return -EBUSY;
	}
	objection = hc_adopt_objection(config, segment_bytes, &h, boot_id);
	if (objection) {
		hc_info("pool", "the pool in %s is dropped: %s", config->dir, objection);
		return hc_pool_remove(config->dir, dirfd, segments_fd);
	}
	*found_p = (struct hc_found_table){true, h.n_segments, h.segment_bytes};
	return 0;
}

int hc_adopt_resize(int table_fd, int segments_fd, const struct hc_pool_config *config,
		    const uint8_t boot_id[16], const struct hc_found_table *found,
		    uint32_t n_segments)
{
	static const struct hc_table_segment absent;
	uint64_t size_bytes = hc_table_bytes(n_segments, found->segment_bytes);
	struct hc_table_header h;
	int rc = 0;

	/* Longer than the header says is a legal table, shorter is not: a kill at any point leaves
	 * one. */
	if (n_segments > found->n_segments && ftruncate(table_fd, (off_t)size_bytes))
		return -errno;
	for (uint32_t i = n_segments; !rc && i < found->n_segments; i++)
		rc = hc_pwrite_full(table_fd, &absent, sizeof(absent),
				    (off_t)(HC_TABLE_HEADER_BYTES + i * sizeof(absent)));
	if (rc)
		return rc;
	if (n_segments < found->n_segments) {
		hc_info("pool",
			"the pool shrinks from %" PRIu32 " to %" PRIu32
			" segments; pages in the others are dropped",
			found->n_segments, n_segments);
		hc_segment_files_remove(segments_fd, n_segments);
	}
	hc_table_header_fill(&h, config->uuid, boot_id, n_segments, found->segment_bytes);
	rc = hc_pwrite_full(table_fd, &h, sizeof(h), 0);
	if (!rc && ftruncate(table_fd, (off_t)size_bytes))
		rc = -errno;
	return rc;
}

/* Opens the file of a segment, if it is what the table says. */
static int hc_adopt_file(struct hc_pool *pool, uint32_t segment)
{
	const char *what = NULL;
	struct stat st;
	char name[16];
	int fd;

	hc_segment_file_name(segment, name);
	fd = openat(pool->segments_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		what = strerror(errno);
	else if (fstat(fd, &st))
		what = "cannot be examined";
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != pool->segment_bytes)
		what = "is not a file of the segment size";
	else if (pool->kind != HC_POOL_HUGETLB &&
		 (uint64_t)st.st_blocks * 512 < pool->segment_bytes &&
		 fallocate(fd, 0, 0, (off_t)pool->segment_bytes) && errno != EOPNOTSUPP)
		what = "has holes that cannot be filled";
	if (!what)
		return fd;
	hc_warn("pool", "segment file %s/%s: %s; its pages are dropped", pool->dir, name, what);
	if (fd >= 0)
		close(fd);
	return -ENOENT;
}

struct hc_adopt_count {
	uint64_t n_pages;
	uint64_t n_damaged;
	uint64_t n_unfinished;
	uint32_t n_segments;
};

/* The rows of a cut segment. Held ones stay out of the bitmap. */
static void hc_adopt_rows(struct hc_pool *pool, uint32_t segment, struct hc_adopt_count *count)
{
	const struct hc_table_segment *d = hc_table_segment(pool->table, segment);
	struct hc_segment *s = &pool->segments[segment];

	for (uint32_t i = 0; i < s->n_slots; i++) {
		struct hc_table_row *row = hc_table_row(pool->table, segment, i);

		if (hc_table_row_valid(d, row, hc_pool_slot(pool, segment, i))) {
			row->pins = 0;
			count->n_pages++;
			pool->n_slots_used++;
			pool->used_bytes += s->slot_bytes;
			continue;
		}
		if (row->state == HC_SLOT_READY || row->state > HC_SLOT_QUARANTINED)
			count->n_damaged++;
		else if (row->state != HC_SLOT_FREE)
			count->n_unfinished++;
		if (row->state != HC_SLOT_FREE)
			hc_table_row_clear(row);
		hc_segment_bit_set(s, i);
		s->n_free++;
	}
	s->run_bound = s->n_free;
}

/* 0, or the segment is to be made anew. */
static int hc_adopt_segment(struct hc_pool *pool, uint32_t segment, struct hc_adopt_count *count)
{
	struct hc_table_segment *d = hc_table_segment(pool->table, segment);
	struct hc_segment *s = &pool->segments[segment];
	bool cut = d->state == HC_TABLE_SEGMENT_CUT;
	int fd, rc;

	if (d->state > HC_TABLE_SEGMENT_CUT || (cut && !hc_table_segment_valid(pool->table, d))) {
		hc_warn("pool",
			"the entry of segment %" PRIu32
			" in %s/slots is damaged; its pages are dropped",
			segment, pool->dir);
		return -EBADMSG;
	}
	fd = hc_adopt_file(pool, segment);
	if (fd < 0)
		return fd;
	rc = hc_segment_map(pool, segment, fd);
	if (!rc && cut)
		rc = hc_segment_rows_populate(pool, segment, d->n_slots);
	if (!rc && cut)
		rc = hc_segment_bits_alloc(s, pool->segment_bytes, d->slot_bytes);
	if (rc) {
		hc_warn("pool", "segment %" PRIu32 " cannot be adopted: %s; its pages are dropped",
			segment, strerror(-rc));
		close(fd);
		return rc;
	}
	s->fd = fd;
	s->adopted = true;
	s->known = hc_table_segment_known(d);
	/* One never cut has no slots; only zeros were ever in it. */
	s->used = !s->known || d->n_slots;
	s->domain = (struct hc_domain){d->uid, d->gid, d->mode};
	s->numa_node = d->numa_node;
	s->state = cut ? HC_SEGMENT_CUT : HC_SEGMENT_UNCUT;
	if (cut)
		hc_adopt_rows(pool, segment, count);
	if (cut && s->n_free == s->n_slots)
		hc_segment_uncut_locked(pool, segment);
	return 0;
}

void hc_adopt_segments(struct hc_pool *pool)
{
	struct hc_adopt_count count = {0};
	char text[16];

	for (uint32_t i = 0; i < pool->n_segments; i++) {
		struct hc_table_segment *d = hc_table_segment(pool->table, i);

		if (d->state == HC_TABLE_SEGMENT_ABSENT)
			continue;
		if (hc_adopt_segment(pool, i, &count)) {
			__atomic_store_n(&d->state, HC_TABLE_SEGMENT_ABSENT, __ATOMIC_RELEASE);
			continue;
		}
		count.n_segments++;
	}
	pool->populated_bytes = pool->adopted_bytes = count.n_segments * pool->segment_bytes;
	hc_size_format(pool->used_bytes, text);
	hc_info("pool",
		"adopted %" PRIu64 " pages (%s) in %" PRIu32 " segments of %s; freed %" PRIu64
		" unfinished and %" PRIu64 " damaged slots",
		count.n_pages, text, count.n_segments, pool->dir, count.n_unfinished,
		count.n_damaged);
}
