/* SPDX-License-Identifier: Apache-2.0 */
/* See fill.h. Where the bytes of a body are:
 *
 *	nowhere -> slot (size told) -> staging file (it grew beyond) -> page
 *	        -> staging file (size not told, no slot, or larger than a page may be: scratch)
 *	        -> memory of its own (as the last, where nothing goes to disk) -> slot -> page
 *
 * The first write, allocate or truncate beyond 0 decides; a told size decides at create. The body's
 *lock is held over its own I/O and over calls of the node (order: fill, node): it only keeps users
 *of the same body waiting.
 *
 * Charges: a slot is charged by its reservation; a file by the blocks it has, taken ahead of each
 *write that may need more and corrected by fstat after it. */
#include "node/fill.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "model/checksum.h"
#include "node/fill_sums.h"
#include "node/internal.h"
#include "util/io.h"

#define HC_FILL_STAGING_BYTES 64
#define HC_FILL_COPY_BYTES    ((size_t)HC_MIB)
/* A growing file is held against the disk's limits each time it passes so many bytes. */
#define HC_FILL_LOOK_BYTES (16 * HC_MIB)
/* How long a body in memory of its own may wait for a slot at publish. */
#define HC_FILL_PUBLISH_NS HC_NS_PER_S
/* How long a slot is waited for where a file would have no room either: backups that fail on a full
 * disk give theirs back. */
#define HC_FILL_ROOM_NS (2 * HC_NS_PER_S)

enum hc_fill_where {
	HC_FILL_NOWHERE,
	HC_FILL_SLOT,
	HC_FILL_STAGED,
	HC_FILL_MEMORY,
	HC_FILL_LOST, /* a publish failed that had taken the bytes */
};

struct hc_fill {
	struct hc_node *node;
	uint32_t space;
	struct hc_domain domain;
	pthread_mutex_t lock;        /* all below */
	_Atomic uint64_t size_bytes; /* also read without */
	_Atomic int where;           /* also read without */
	struct hc_ref ref;
	uint64_t init_bytes; /* of the slot: written or zeroed */
	int fd;
	uint16_t disk;
	char staging[HC_FILL_STAGING_BYTES];
	uint64_t charged_bytes;
	uint64_t looked_bytes;
	uint64_t expect_bytes;
	atomic_int n_outside; /* changed under lock */
	bool was_outside;     /* charged by look alone since */
	struct hc_fill_sums sums;
};

static uint64_t max_page_bytes(const struct hc_fill *fill)
{
	return fill->node->config.max_page_bytes;
}

static bool in_file(const struct hc_fill *fill)
{
	return fill->where == HC_FILL_STAGED || fill->where == HC_FILL_MEMORY;
}

static int charge(struct hc_fill *fill, uint64_t bytes)
{
	int err = bytes ? hc_node_charge(fill->node, fill->space, (int64_t)bytes) : 0;

	if (!err)
		fill->charged_bytes += bytes;
	return err;
}

static void uncharge(struct hc_fill *fill, uint64_t bytes)
{
	hc_assert(bytes <= fill->charged_bytes);
	if (bytes && hc_node_charge(fill->node, fill->space, -(int64_t)bytes))
		hc_debug(HC_NODE, "space %u has no account", fill->space);
	fill->charged_bytes -= bytes;
}

/* What was written past us. */
static void refresh(struct hc_fill *fill)
{
	struct stat st;

	if (!atomic_load(&fill->n_outside) || fstat(fill->fd, &st))
		return;
	fill->size_bytes = (uint64_t)st.st_size;
	hc_fill_sums_reset(&fill->sums);
}

/* The charge becomes what the file has: never more than was taken ahead, but for the file system's
 * own blocks. */
static void correct_charge(struct hc_fill *fill)
{
	struct stat st;
	uint64_t bytes;

	if (fstat(fill->fd, &st))
		return;
	bytes = (uint64_t)st.st_blocks * 512;
	if (bytes < fill->charged_bytes)
		uncharge(fill, fill->charged_bytes - bytes);
}

static void close_file(struct hc_fill *fill)
{
	uncharge(fill, fill->charged_bytes);
	if (fill->fd >= 0)
		close(fill->fd);
	fill->fd = -1;
}

/* The bytes go, the body is empty. */
static void drop(struct hc_fill *fill)
{
	if (fill->where == HC_FILL_SLOT)
		hc_node_abort(fill->node, &fill->ref, 1);
	if (in_file(fill))
		close_file(fill);
	if (fill->where == HC_FILL_STAGED)
		hc_node_unstage(fill->node, fill->disk, fill->staging);
	fill->where = HC_FILL_NOWHERE;
	fill->size_bytes = 0;
	fill->init_bytes = 0;
	fill->looked_bytes = 0;
	hc_fill_sums_reset(&fill->sums);
}

/* For a body that reaches to end, of which so many bytes are going to come: the rest may be a hole.
 */
static int place_file(struct hc_fill *fill, uint64_t end, uint64_t expect_bytes)
{
	int err = hc_node_stage(fill->node, expect_bytes, &fill->disk, &fill->fd, fill->staging,
				sizeof(fill->staging));

	if (!err) {
		fill->where = HC_FILL_STAGED;
		return 0;
	}
	if (err != -ENODEV)
		return err;
	if (end > max_page_bytes(fill))
		return -EFBIG;
	fill->fd = memfd_create("hicachefs-body", MFD_CLOEXEC);
	if (fill->fd < 0)
		return -errno;
	fill->where = HC_FILL_MEMORY;
	return 0;
}

static int take_slot(struct hc_fill *fill, uint64_t size_bytes, uint64_t deadline_ns,
		     struct hc_ref *ref_p)
{
	const struct hc_reserve how = {
		.space = fill->space,
		.size_bytes = size_bytes,
		.numa_node = -1,
		.domain = fill->domain,
		.deadline_ns = deadline_ns,
	};
	size_t n;

	return hc_node_reserve(fill->node, &how, 1, ref_p, &n);
}

static bool disks_are_full(struct hc_node *node, uint64_t size_bytes)
{
	uint32_t n = hc_node_n_disks(node);
	bool full = n;

	for (uint32_t disk = 0; disk < n && full; disk++)
		full = !hc_disk_has_room(node, (uint16_t)disk, size_bytes, false);
	return full;
}

/* From nowhere to where a body of that size (0: not told) belongs. */
static int place(struct hc_fill *fill, uint64_t size_bytes)
{
	int err;

	if (size_bytes && size_bytes <= max_page_bytes(fill)) {
		err = take_slot(fill, size_bytes, 0, &fill->ref);
		if (err == -ENOSPC && disks_are_full(fill->node, size_bytes))
			err = take_slot(fill, size_bytes, hc_clock_now_ns() + HC_FILL_ROOM_NS,
					&fill->ref);
		if (!err) {
			fill->where = HC_FILL_SLOT;
			return 0;
		}
		if (err == -EDQUOT)
			return err;
	}
	return place_file(fill, size_bytes, size_bytes <= max_page_bytes(fill) ? size_bytes : 0);
}

/* Bytes of the slot below end are valid from here on. */
static void init_slot(struct hc_fill *fill, uint64_t end)
{
	if (end <= fill->init_bytes)
		return;
	memset((char *)fill->ref.data + fill->init_bytes, 0, end - fill->init_bytes);
	fill->init_bytes = end;
}

/* The slot is too small for end: to a file, once. */
static int move_to_file(struct hc_fill *fill, uint64_t end)
{
	uint64_t n = hc_min_u64(fill->init_bytes, fill->size_bytes);
	int err;

	fill->where = HC_FILL_NOWHERE;
	err = place_file(fill, end, n);
	if (err) {
		fill->where = HC_FILL_SLOT;
		return err;
	}
	err = charge(fill, hc_align_up(n, HC_BLOCK_BYTES));
	if (!err)
		err = hc_pwrite_full(fill->fd, fill->ref.data, n, 0);
	if (!err && ftruncate(fill->fd, (off_t)fill->size_bytes))
		err = -errno;
	if (err) {
		close_file(fill);
		if (fill->where == HC_FILL_STAGED)
			hc_node_unstage(fill->node, fill->disk, fill->staging);
		fill->where = HC_FILL_SLOT;
		return err;
	}
	hc_node_abort(fill->node, &fill->ref, 1);
	fill->init_bytes = 0;
	correct_charge(fill);
	return 0;
}

/* Makes sure that the body is somewhere where [0, end) can be. */
static int make_room(struct hc_fill *fill, uint64_t end, uint64_t hint)
{
	int err = 0;

	if (fill->where == HC_FILL_LOST)
		return -EIO;
	refresh(fill);
	if (fill->where == HC_FILL_NOWHERE)
		err = place(fill, hint ? hint : fill->expect_bytes);
	/* Nothing is in it yet, but the size was told wrong: another slot does. */
	if (!err && fill->where == HC_FILL_SLOT && end > fill->ref.size_bytes &&
	    !fill->size_bytes) {
		drop(fill);
		err = place(fill, end);
	}
	if (!err && fill->where == HC_FILL_SLOT && end > fill->ref.size_bytes)
		err = move_to_file(fill, end);
	if (!err && fill->where == HC_FILL_MEMORY && end > max_page_bytes(fill))
		err = -EFBIG;
	return err;
}

/* No hole in [offset, offset + n): writing there needs no block. */
static bool is_allocated(const struct hc_fill *fill, uint64_t offset, size_t n)
{
	off_t hole;

	if (offset + n > fill->size_bytes)
		return false;
	hole = lseek(fill->fd, (off_t)offset, SEEK_HOLE);
	return hole >= 0 && (uint64_t)hole >= offset + n;
}

static bool has_room(struct hc_fill *fill, uint64_t bytes)
{
	return !hc_disk_over(fill->node, bytes) &&
	       hc_disk_has_room(fill->node, fill->disk, bytes, true);
}

/* Quota and disk for up to so many bytes more in the file. */
static int take_blocks(struct hc_fill *fill, uint64_t bytes)
{
	int err = charge(fill, bytes);

	if (err || fill->where != HC_FILL_STAGED)
		return err;
	if (fill->charged_bytes < fill->looked_bytes + HC_FILL_LOOK_BYTES)
		return 0;
	if (!has_room(fill, bytes)) {
		hc_evict_disk(fill->node, bytes);
		if (!has_room(fill, bytes)) {
			correct_charge(fill);
			return -ENOSPC;
		}
	}
	fill->looked_bytes = fill->charged_bytes;
	return 0;
}

static int write_file(struct hc_fill *fill, const void *data, size_t n, uint64_t offset)
{
	uint64_t first = offset & ~(HC_BLOCK_BYTES - 1);
	int err = 0;

	if (!is_allocated(fill, offset, n))
		err = take_blocks(fill, hc_align_up(offset + n, HC_BLOCK_BYTES) - first);
	if (err)
		return err;
	err = hc_pwrite_full(fill->fd, data, n, (off_t)offset);
	/* Whole or nothing, as far as it grew. */
	if (err && !atomic_load(&fill->n_outside) && ftruncate(fill->fd, (off_t)fill->size_bytes))
		hc_debug(HC_NODE, "a body keeps the end of a failed write");
	correct_charge(fill);
	return err;
}

static int write_locked(struct hc_fill *fill, const void *data, size_t n, uint64_t offset)
{
	uint64_t end = offset + n;
	int err = make_room(fill, end, 0);

	if (err)
		return err;
	if (fill->where == HC_FILL_SLOT) {
		init_slot(fill, offset);
		memcpy((char *)fill->ref.data + offset, data, n);
		fill->init_bytes = hc_max_u64(fill->init_bytes, end);
	} else {
		err = write_file(fill, data, n, offset);
	}
	hc_fill_sums_write(&fill->sums, data, n, offset,
			   fill->where == HC_FILL_SLOT ? fill->ref.data : NULL, err != 0);
	if (err)
		return err;
	if (end > fill->size_bytes)
		fill->size_bytes = end;
	return 0;
}

int hc_fill_write(struct hc_fill *fill, const void *data, size_t n, uint64_t offset)
{
	int err;

	if (offset > INT64_MAX || n > INT64_MAX - offset)
		return -EFBIG;
	if (!n)
		return 0;
	pthread_mutex_lock(&fill->lock);
	err = write_locked(fill, data, n, offset);
	pthread_mutex_unlock(&fill->lock);
	return err;
}

static int read_locked(struct hc_fill *fill, void *buf, size_t n, uint64_t offset, size_t *got_p)
{
	size_t got = 0;
	int err = 0;

	if (fill->where == HC_FILL_LOST)
		return -EIO;
	refresh(fill);
	n = offset >= fill->size_bytes ? 0 : (size_t)hc_min_u64(n, fill->size_bytes - offset);
	if (fill->where == HC_FILL_SLOT) {
		init_slot(fill, offset + n);
		memcpy(buf, (const char *)fill->ref.data + offset, n);
	} else if (n) {
		err = hc_pread_full(fill->fd, buf, n, (off_t)offset, &got);
		/* The file is as long as the body: else it was changed behind our back. */
		if (!err && got < n)
			err = -EIO;
	}
	if (!err)
		*got_p = n;
	return err;
}

int hc_fill_read(struct hc_fill *fill, void *buf, size_t n, uint64_t offset, size_t *got_p)
{
	int err;

	pthread_mutex_lock(&fill->lock);
	err = read_locked(fill, buf, n, offset, got_p);
	pthread_mutex_unlock(&fill->lock);
	return err;
}

const void *hc_fill_peek(struct hc_fill *fill, uint64_t offset, size_t n)
{
	const void *data = NULL;

	pthread_mutex_lock(&fill->lock);
	if (fill->where == HC_FILL_SLOT && n <= fill->size_bytes &&
	    offset <= fill->size_bytes - n) {
		init_slot(fill, offset + n);
		data = (const char *)fill->ref.data + offset;
	}
	pthread_mutex_unlock(&fill->lock);
	return data;
}

/* Takes what the file has beyond its charge, late as it is. */
static int look(struct hc_fill *fill)
{
	uint64_t bytes;
	struct stat st;
	int err = 0;

	if (fill->where != HC_FILL_STAGED || fstat(fill->fd, &st))
		return 0;
	bytes = (uint64_t)st.st_blocks * 512;
	if (bytes > fill->charged_bytes)
		err = charge(fill, bytes - fill->charged_bytes);
	if (!err && !has_room(fill, 0)) {
		hc_evict_disk(fill->node, 0);
		err = has_room(fill, 0) ? 0 : -ENOSPC;
	}
	return err;
}

static int truncate_locked(struct hc_fill *fill, uint64_t size_bytes)
{
	int err;

	refresh(fill);
	if (size_bytes == fill->size_bytes && fill->where != HC_FILL_LOST)
		return 0;
	err = make_room(fill, size_bytes, size_bytes);
	if (err)
		return err;
	if (in_file(fill) && ftruncate(fill->fd, (off_t)size_bytes))
		return -errno;
	if (in_file(fill))
		correct_charge(fill);
	/* What is cut off must not come back when it grows again. */
	fill->init_bytes = hc_min_u64(fill->init_bytes, size_bytes);
	hc_fill_sums_truncate(&fill->sums, size_bytes);
	fill->size_bytes = size_bytes;
	return 0;
}

int hc_fill_truncate(struct hc_fill *fill, uint64_t size_bytes)
{
	int err;

	if (size_bytes > INT64_MAX)
		return -EFBIG;
	pthread_mutex_lock(&fill->lock);
	err = truncate_locked(fill, size_bytes);
	pthread_mutex_unlock(&fill->lock);
	return err;
}

static int allocate_file(struct hc_fill *fill, uint64_t end)
{
	uint64_t more = hc_align_up(end, HC_BLOCK_BYTES);
	int err;

	more -= hc_min_u64(more, fill->charged_bytes);
	err = take_blocks(fill, more);
	if (err)
		return err;
	/* Where the file system cannot, it stays a hint. */
	if (fill->where == HC_FILL_STAGED &&
	    fallocate(fill->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)end) && errno != EOPNOTSUPP)
		err = -errno;
	correct_charge(fill);
	return err;
}

static int allocate_locked(struct hc_fill *fill, uint64_t end, bool keep_size)
{
	int err = make_room(fill, end, end);

	if (!err && in_file(fill))
		err = allocate_file(fill, end);
	if (!err && !keep_size && end > fill->size_bytes)
		err = truncate_locked(fill, end);
	return err;
}

int hc_fill_allocate(struct hc_fill *fill, uint64_t end_bytes, bool keep_size)
{
	int err;

	if (end_bytes > INT64_MAX)
		return -EFBIG;
	if (!end_bytes)
		return -EINVAL;
	pthread_mutex_lock(&fill->lock);
	err = allocate_locked(fill, end_bytes, keep_size);
	pthread_mutex_unlock(&fill->lock);
	return err;
}

uint64_t hc_fill_size(struct hc_fill *fill)
{
	if (hc_unlikely(atomic_load(&fill->n_outside))) {
		pthread_mutex_lock(&fill->lock);
		refresh(fill);
		pthread_mutex_unlock(&fill->lock);
	}
	return atomic_load(&fill->size_bytes);
}

bool hc_fill_on_disk(struct hc_fill *fill)
{
	return atomic_load(&fill->where) == HC_FILL_STAGED;
}

uint64_t hc_fill_blocks(struct hc_fill *fill)
{
	uint64_t blocks;
	struct stat st;

	pthread_mutex_lock(&fill->lock);
	blocks = hc_align_up(fill->size_bytes, HC_BLOCK_BYTES) / 512;
	if (in_file(fill) && !fstat(fill->fd, &st))
		blocks = (uint64_t)st.st_blocks;
	pthread_mutex_unlock(&fill->lock);
	return blocks;
}

int hc_fill_fsync(struct hc_fill *fill)
{
	int err = 0;

	pthread_mutex_lock(&fill->lock);
	if (fill->where == HC_FILL_LOST || (fill->where == HC_FILL_STAGED && fdatasync(fill->fd)))
		err = fill->where == HC_FILL_LOST ? -EIO : -errno;
	pthread_mutex_unlock(&fill->lock);
	return err;
}

int hc_fill_copy_page(struct hc_fill *fill, const struct hc_ref *page)
{
	int err;

	pthread_mutex_lock(&fill->lock);
	err = make_room(fill, page->size_bytes, page->size_bytes);
	if (!err)
		err = write_locked(fill, page->data, page->size_bytes, 0);
	pthread_mutex_unlock(&fill->lock);
	return err;
}

static bool all_zero(const char *data, size_t n)
{
	return !n || (!data[0] && !memcmp(data, data + 1, n - 1));
}

int hc_fill_copy(struct hc_fill *fill, struct hc_fill *from)
{
	uint64_t size_bytes = hc_fill_size(from), got_bytes = 0;
	hc_autofree char *buf = malloc(HC_FILL_COPY_BYTES);
	int err = buf ? 0 : -ENOMEM;

	/* Never two locks of one class: piece by piece. */
	if (!err && size_bytes)
		err = hc_fill_truncate(fill, size_bytes);
	while (!err && got_bytes < size_bytes) {
		size_t n = (size_t)hc_min_u64(HC_FILL_COPY_BYTES, size_bytes - got_bytes), got = 0;

		err = hc_fill_read(from, buf, n, got_bytes, &got);
		/* Holes stay holes. */
		if (!err && !all_zero(buf, got))
			err = hc_fill_write(fill, buf, got, got_bytes);
		got_bytes += n;
	}
	return err;
}

int hc_fill_create(struct hc_node *node, uint32_t space, const struct hc_domain *domain,
		   uint64_t size_hint, struct hc_fill **fill_p)
{
	struct hc_fill *fill = hc_zalloc(sizeof(*fill));
	int err = 0;

	if (!fill)
		return -ENOMEM;
	fill->node = node;
	fill->space = space;
	fill->domain = *domain;
	fill->fd = -1;
	pthread_mutex_init(&fill->lock, NULL);
	hc_fill_sums_init(&fill->sums, node->config.max_page_bytes);
	if (size_hint)
		err = place(fill, size_hint);
	if (err) {
		hc_fill_discard(fill);
		return err;
	}
	*fill_p = fill;
	return 0;
}

void hc_fill_discard(struct hc_fill *fill)
{
	if (!fill)
		return;
	drop(fill);
	hc_fill_sums_fini(&fill->sums);
	pthread_mutex_destroy(&fill->lock);
	free(fill);
}

/* --- written by others --- */

void hc_fill_expect(struct hc_fill *fill, uint64_t size_bytes)
{
	fill->expect_bytes = size_bytes <= max_page_bytes(fill) ? size_bytes : 0;
}

/* Nobody is asked at each write: there must be room for all such bodies at their largest. */
static int may_outside(struct hc_fill *fill)
{
	uint64_t n = atomic_load(&fill->node->n_outside) + 1;
	struct hc_node_limits limits;
	struct hc_space_info space;

	hc_node_limits_get(fill->node, &limits);
	if (limits.backup != HC_BACKUP_PUBLISH || fill->node->config.write_budget_bytes)
		return -EAGAIN;
	if (hc_space_get(fill->node->registry, fill->space, &space))
		return -EAGAIN;
	if (space.quota_bytes && !fill->expect_bytes)
		return -EAGAIN;
	return hc_disk_over(fill->node, n * max_page_bytes(fill)) ? -EAGAIN : 0;
}

static int begin_file(struct hc_fill *fill)
{
	int err = may_outside(fill);

	if (!err)
		err = place_file(fill, 0, fill->expect_bytes);
	if (!err)
		err = charge(fill, hc_align_up(fill->expect_bytes, HC_BLOCK_BYTES));
	if (err && fill->where != HC_FILL_NOWHERE)
		drop(fill);
	return err;
}

int hc_fill_begin(struct hc_fill *fill, bool as_file)
{
	int err = 0;

	pthread_mutex_lock(&fill->lock);
	if (fill->where == HC_FILL_NOWHERE && !(as_file && !begin_file(fill)) && fill->expect_bytes)
		err = place(fill, fill->expect_bytes);
	pthread_mutex_unlock(&fill->lock);
	return err;
}

int hc_fill_backing(struct hc_fill *fill, uint16_t *disk_p, int *fd_p)
{
	int fd = -1, err = -ENODEV;

	pthread_mutex_lock(&fill->lock);
	if (fill->where == HC_FILL_STAGED) {
		fd = fcntl(fill->fd, F_DUPFD_CLOEXEC, 0);
		err = fd < 0 ? -errno : 0;
		*disk_p = fill->disk;
	}
	pthread_mutex_unlock(&fill->lock);
	if (!err)
		*fd_p = fd;
	return err;
}

void hc_fill_outside(struct hc_fill *fill, int n)
{
	pthread_mutex_lock(&fill->lock);
	refresh(fill);
	atomic_fetch_add(&fill->n_outside, n);
	fill->was_outside = true;
	hc_fill_sums_reset(&fill->sums);
	pthread_mutex_unlock(&fill->lock);
	atomic_fetch_add(&fill->node->n_outside, (uint64_t)(int64_t)n);
}

int hc_fill_look(struct hc_fill *fill)
{
	int err;

	pthread_mutex_lock(&fill->lock);
	err = look(fill);
	pthread_mutex_unlock(&fill->lock);
	return err;
}

bool hc_fill_mtime(struct hc_fill *fill, uint64_t *mtime_ns_p)
{
	bool outside = false;
	struct stat st;

	if (!atomic_load(&fill->n_outside))
		return false;
	pthread_mutex_lock(&fill->lock);
	if (fill->where == HC_FILL_STAGED && !fstat(fill->fd, &st)) {
		*mtime_ns_p =
			(uint64_t)st.st_mtim.tv_sec * HC_NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
		outside = true;
	}
	pthread_mutex_unlock(&fill->lock);
	return outside;
}

void hc_fill_set_mtime(struct hc_fill *fill, uint64_t mtime_ns)
{
	const struct timespec times[2] = {
		{.tv_nsec = UTIME_OMIT},
		{(time_t)(mtime_ns / HC_NS_PER_S), (long)(mtime_ns % HC_NS_PER_S)},
	};

	pthread_mutex_lock(&fill->lock);
	if (fill->where == HC_FILL_STAGED && futimens(fill->fd, times))
		hc_debug(HC_NODE, "the time of a body's file stays: %m");
	pthread_mutex_unlock(&fill->lock);
}

/* A file of the fill that can be read without its lock; -1: nothing to be summed. */
static int sum_begin(struct hc_fill *fill, uint64_t *size_bytes_p, uint64_t *n_changes_p)
{
	int fd = -1;

	pthread_mutex_lock(&fill->lock);
	if (fill->where == HC_FILL_STAGED && !atomic_load(&fill->n_outside) &&
	    fill->size_bytes <= max_page_bytes(fill)) {
		fd = fcntl(fill->fd, F_DUPFD_CLOEXEC, 0);
		*size_bytes_p = fill->size_bytes;
		*n_changes_p = fill->sums.n_changes;
	}
	pthread_mutex_unlock(&fill->lock);
	return fd;
}

void hc_fill_sum(struct hc_fill *fill)
{
	uint64_t size_bytes = 0, n_changes = 0;
	hc_autofd int fd = sum_begin(fill, &size_bytes, &n_changes);
	hc_autofree char *leaf = fd < 0 ? NULL : malloc(HC_LEAF_BYTES);
	bool same = leaf;
	size_t got;

	for (uint64_t at = 0; same && at + HC_LEAF_BYTES <= size_bytes; at += HC_LEAF_BYTES) {
		if (hc_pread_full(fd, leaf, HC_LEAF_BYTES, (off_t)at, &got) || got < HC_LEAF_BYTES)
			return;
		pthread_mutex_lock(&fill->lock);
		same = hc_fill_sums_leaf(&fill->sums, n_changes, at, leaf);
		pthread_mutex_unlock(&fill->lock);
	}
}

/* --- publish --- */

static int read_leaf(void *arg, void *buf, size_t n, uint64_t offset)
{
	struct hc_fill *fill = arg;
	size_t got = 0;
	int err = read_locked(fill, buf, n, offset, &got);

	return err ? err : got == n ? 0 : -EIO;
}

static int publish_slot(struct hc_fill *fill, struct hc_ref *ref, const struct hc_publish *item)
{
	int result = -EIO;

	hc_node_publish(fill->node, ref, item, 1, &result);
	/* A page of that key was there and is kept: that is what was wanted. */
	return result == -EEXIST ? 0 : result;
}

/* The bytes lie in the slot, up to the end of the last block: nobody else's bytes go to disk with
 * them. */
static int publish_in_slot(struct hc_fill *fill, struct hc_publish *item)
{
	int err;

	init_slot(fill, hc_min_u64(hc_align_up(item->size_bytes, HC_BLOCK_BYTES),
				   hc_pool_slot_bytes(fill->ref.size_bytes)));
	err = hc_fill_sums_fold(&fill->sums, item->size_bytes, fill->ref.data, NULL, NULL,
				&item->checksum);
	/* Without it the node sums. */
	item->summed = !err;
	err = publish_slot(fill, &fill->ref, item);
	fill->where = err ? HC_FILL_LOST : HC_FILL_NOWHERE;
	return err;
}

static int publish_from_file(struct hc_fill *fill, struct hc_publish *item)
{
	int err;

	if (ftruncate(fill->fd, (off_t)item->size_bytes))
		return -errno;
	err = hc_fill_sums_fold(&fill->sums, item->size_bytes, NULL, read_leaf, fill,
				&item->checksum);
	if (err)
		return err;
	item->summed = true;
	/* The page pays for itself. */
	close_file(fill);
	err = hc_node_publish_staged(fill->node, fill->disk, fill->staging, item);
	if (err)
		/* Whatever step failed: a staging file that is still there is nobody's. */
		(void)fill->node->store->ops->staging_remove(fill->node->store, fill->disk,
							     fill->staging);
	if (err == -EEXIST)
		err = 0;
	fill->where = err ? HC_FILL_LOST : HC_FILL_NOWHERE;
	return err;
}

static int publish_from_memory(struct hc_fill *fill, struct hc_publish *item)
{
	uint64_t charged = fill->charged_bytes;
	struct hc_ref ref;
	size_t got = 0;
	int err;

	uncharge(fill, charged);
	err = take_slot(fill, item->size_bytes, hc_clock_now_ns() + HC_FILL_PUBLISH_NS, &ref);
	if (!err) {
		err = read_locked(fill, ref.data, item->size_bytes, 0, &got);
		if (err)
			hc_node_abort(fill->node, &ref, 1);
	}
	if (err) {
		/* As it was; what others took meanwhile is not ours to judge. */
		if (charge(fill, charged))
			hc_debug(HC_NODE, "a body in memory is not charged any more");
		return err;
	}
	memset((char *)ref.data + item->size_bytes, 0,
	       hc_pool_slot_bytes(item->size_bytes) - item->size_bytes);
	close_file(fill);
	fill->where = HC_FILL_SLOT;
	fill->ref = ref;
	fill->init_bytes = item->size_bytes;
	return publish_in_slot(fill, item);
}

static int publish_locked(struct hc_fill *fill, struct hc_publish *item)
{
	int err = fill->was_outside ? look(fill) : 0;

	refresh(fill);
	item->size_bytes = fill->size_bytes;
	if (fill->where == HC_FILL_LOST)
		return -EIO;
	if (err)
		return err;
	if (!item->size_bytes)
		return -EINVAL;
	if (item->size_bytes > max_page_bytes(fill))
		return -EFBIG;
	if (fill->where == HC_FILL_STAGED)
		return publish_from_file(fill, item);
	if (fill->where == HC_FILL_MEMORY)
		return publish_from_memory(fill, item);
	return publish_in_slot(fill, item);
}

int hc_fill_publish(struct hc_fill *fill, const struct hc_publish *item)
{
	struct hc_publish copy = *item;
	int err;

	pthread_mutex_lock(&fill->lock);
	err = publish_locked(fill, &copy);
	pthread_mutex_unlock(&fill->lock);
	if (!err)
		hc_fill_discard(fill);
	return err;
}
