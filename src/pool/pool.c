/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a pool, and the questions that it answers. See pool.h and internal.h. */
#include "pool/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "util/clock.h"
#include "util/hex.h"
#include "util/io.h"
#include "util/log.h"
#include "util/size.h"

/* A small pool is cut into this many segments, so that several classes find room. */
#define HC_SEGMENTS_SMALL     16
#define HC_SEGMENT_BYTES_MOST HC_GIB
#define HC_LOCK_TRIES         5
#define HC_LOCK_TRY_MS        20

const char *hc_pool_kind_name(enum hc_pool_kind kind)
{
	switch (kind) {
	case HC_POOL_MEMFD:
		return "memfd";
	case HC_POOL_HUGETLB:
		return "hugetlb";
	case HC_POOL_TMPFS_HUGE:
		return "tmpfs-huge";
	case HC_POOL_SHM:
		return "shm";
	case HC_POOL_DIR:
		return "directory";
	}
	return "unknown";
}

bool hc_pool_lock_held(int fd)
{
	/* Shared, and given back at once: lock_take outlasts such a look. */
	if (flock(fd, LOCK_SH | LOCK_NB))
		return errno == EWOULDBLOCK;
	flock(fd, LOCK_UN);
	return false;
}

/* Waits for those who only look whether the lock is held. */
static int hc_pool_flock(int fd)
{
	for (int try = 0; flock(fd, LOCK_EX | LOCK_NB); try++) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (try == HC_LOCK_TRIES)
			return -EBUSY;
		poll(NULL, 0, HC_LOCK_TRY_MS);
	}
	return 0;
}

int hc_pool_lock_take(int dirfd, int *fd_p)
{
	for (;;) {
		hc_autofd int fd =
			openat(dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		struct stat mine, there;
		int rc = fd < 0 ? -errno : hc_pool_flock(fd);

		if (rc)
			return rc;
		/* The last owner may have removed the file between our open and our lock. */
		if (!fstat(fd, &mine) && !fstatat(dirfd, "lock", &there, AT_SYMLINK_NOFOLLOW) &&
		    mine.st_ino == there.st_ino) {
			*fd_p = hc_steal_fd(&fd);
			return 0;
		}
	}
}

int hc_pool_segments_open(int dirfd, int *fd_p)
{
	int fd = openat(dirfd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*fd_p = fd;
	return 0;
}

/* All zero where the kernel does not say. */
static void hc_boot_id(uint8_t id[16])
{
	hc_autofree char *text = NULL;
	char digits[33];
	size_t n, n_digits = 0;

	memset(id, 0, 16);
	if (hc_file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 4096, &text, &n))
		return;
	for (size_t i = 0; i < n && n_digits < 32; i++)
		if (hc_hex_digit(text[i]) >= 0)
			digits[n_digits++] = text[i];
	if (n_digits != 32 || hc_hex_decode(digits, id, 16))
		memset(id, 0, 16);
}

static uint64_t hc_segment_bytes_choose(const struct hc_pool_config *config, int segments_fd)
{
	uint64_t align = HC_SEGMENT_ALIGN, n = config->segment_bytes;
	struct statfs fs;

	/* hugetlbfs: whole pages, which may be of 1 GiB. */
	if (config->kind == HC_POOL_HUGETLB && segments_fd >= 0 && !fstatfs(segments_fd, &fs) &&
	    (uint64_t)fs.f_bsize > align)
		align = (uint64_t)fs.f_bsize;
	if (!n) {
		n = hc_min_u64(config->size_bytes / HC_SEGMENTS_SMALL, HC_SEGMENT_BYTES_MOST);
		n -= n % align;
		n = hc_max_u64(n, config->slot_bytes_max);
	}
	return hc_align_up(hc_max_u64(n, 1), align);
}

static int hc_pool_shape(struct hc_pool *pool, const struct hc_pool_config *config,
			 uint64_t segment_bytes)
{
	uint64_t n = hc_max_u64(config->size_bytes / segment_bytes, 1);

	if (n > HC_TABLE_SEGMENTS_MAX || n * (segment_bytes / HC_BLOCK_BYTES) >= HC_SLOT_NONE) {
		char size[16], most[16];

		hc_size_format(config->size_bytes, size);
		hc_size_format(hc_min_u64(HC_TABLE_SEGMENTS_MAX * segment_bytes,
					  (uint64_t)HC_SLOT_NONE * HC_BLOCK_BYTES),
			       most);
		hc_error("pool", "pool_size %s is above the %s that segments of this size allow",
			 size, most);
		return -EINVAL;
	}
	pool->segment_bytes = segment_bytes;
	pool->n_segments = (uint32_t)n;
	pool->slots_per_segment = (uint32_t)(segment_bytes / HC_BLOCK_BYTES);
	pool->table_bytes = hc_table_bytes(pool->n_segments, segment_bytes);
	return 0;
}

/* Makes an empty table: under another name until it is whole. */
static int hc_table_create(struct hc_pool *pool, const struct hc_pool_config *config,
			   const uint8_t boot_id[16])
{
	struct hc_table_header header;
	int fd, rc = 0;

	if (pool->dirfd < 0)
		fd = memfd_create("slots", MFD_CLOEXEC);
	else
		fd = openat(pool->dirfd, "slots.new",
			    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	hc_table_header_fill(&header, config->uuid, boot_id, pool->n_segments, pool->segment_bytes);
	if (ftruncate(fd, (off_t)pool->table_bytes))
		rc = -errno;
	if (!rc)
		rc = hc_pwrite_full(fd, &header, sizeof(header), 0);
	if (!rc && pool->dirfd >= 0 && renameat(pool->dirfd, "slots.new", pool->dirfd, "slots"))
		rc = -errno;
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

static int hc_table_map(struct hc_pool *pool, int fd)
{
	void *addr = mmap(NULL, pool->table_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (addr == MAP_FAILED)
		return -errno;
	pool->table = addr;
	(void)madvise(addr, pool->table_bytes, MADV_DONTFORK);
	(void)madvise(addr, pool->table_bytes, MADV_DONTDUMP);
	/* It is sparse: huge pages would take 2 MiB for a few rows. */
	(void)madvise(addr, pool->table_bytes, MADV_NOHUGEPAGE);
	return hc_memory_populate(addr, HC_TABLE_ROWS_AT);
}

static int hc_pool_table_open(struct hc_pool *pool, const struct hc_pool_config *config,
			      const struct hc_found_table *found, const uint8_t boot_id[16])
{
	hc_autofd int fd = -1;
	int rc = 0;

	if (found->found) {
		fd = openat(pool->dirfd, "slots", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			rc = -errno;
		else if (found->n_segments != pool->n_segments)
			rc = hc_adopt_resize(fd, pool->segments_fd, config, boot_id, found,
					     pool->n_segments);
	} else {
		fd = hc_table_create(pool, config, boot_id);
		if (fd < 0)
			rc = fd;
	}
	if (!rc)
		rc = hc_table_map(pool, fd);
	if (rc)
		hc_error("pool", "cannot make the slot table in %s: %s",
			 pool->dir ? pool->dir : "memory", strerror(-rc));
	return rc;
}

static int hc_pool_dir_open(struct hc_pool *pool, const struct hc_pool_config *config)
{
	int rc;

	pool->dir = strdup(config->dir);
	if (!pool->dir)
		return -ENOMEM;
	pool->dirfd = open(config->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (pool->dirfd < 0) {
		rc = -errno;
		hc_error("pool", "cannot open the pool directory %s: %m", config->dir);
		return rc;
	}
	rc = hc_pool_lock_take(pool->dirfd, &pool->lock_fd);
	if (rc == -EBUSY)
		hc_error("pool", "the pool in %s is in use by a running daemon", config->dir);
	else if (rc)
		hc_error("pool", "cannot lock the pool in %s: %s", config->dir, strerror(-rc));
	if (rc)
		return rc;
	rc = hc_pool_segments_open(pool->dirfd, &pool->segments_fd);
	if (rc)
		hc_error("pool", "cannot open %s/segments: %s", config->dir, strerror(-rc));
	return rc;
}

/* Address space for all segments, side by side, and their descriptors in memory. */
static int hc_pool_memory_reserve(struct hc_pool *pool, const struct hc_numa *numa)
{
	uint64_t size_bytes = pool->n_segments * pool->segment_bytes;
	uint64_t align = hc_max_u64(HC_SEGMENT_ALIGN, pool->segment_bytes % HC_GIB ? 0 : HC_GIB);
	uint8_t *addr = mmap(NULL, size_bytes + align, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t head;

	if (addr == MAP_FAILED) {
		hc_error("pool", "no address space for %" PRIu64 " bytes: %m", size_bytes);
		return -ENOMEM;
	}
	/* Huge pages need addresses aligned as the file is. */
	head = hc_align_up((uintptr_t)addr, align) - (uintptr_t)addr;
	if (head)
		munmap(addr, head);
	munmap(addr + head + size_bytes, align - head);
	pool->data = addr + head;
	pool->segments = calloc(pool->n_segments, sizeof(*pool->segments));
	if (!pool->segments)
		return -ENOMEM;
	for (uint32_t i = 0; i < pool->n_segments; i++) {
		pool->segments[i].fd = -1;
		pool->segments[i].numa_node = numa->n > 0 ? numa->node[i % (uint32_t)numa->n] : -1;
	}
	return 0;
}

static int hc_pool_setup(struct hc_pool *pool, const struct hc_pool_config *config)
{
	struct hc_found_table found = {0};
	uint64_t segment_bytes;
	uint8_t boot_id[16];
	int rc = 0;

	hc_boot_id(boot_id);
	if (config->dir)
		rc = hc_pool_dir_open(pool, config);
	if (rc)
		return rc;
	segment_bytes = hc_segment_bytes_choose(config, pool->segments_fd);
	if (config->dir)
		rc = hc_adopt_look(config, segment_bytes, pool->dirfd, pool->segments_fd, boot_id,
				   &found);
	if (!rc)
		rc = hc_pool_shape(pool, config, found.found ? found.segment_bytes : segment_bytes);
	if (!rc)
		rc = hc_pool_memory_reserve(pool, &config->numa);
	if (!rc)
		rc = hc_pool_table_open(pool, config, &found, boot_id);
	if (rc)
		return rc;
	if (found.found)
		hc_adopt_segments(pool);
	return hc_populate_start(pool);
}

/* One usable segment is enough to begin with. */
static int hc_pool_first_segment(struct hc_pool *pool)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_OPEN_WAIT_NS;
	int rc = 0;

	pthread_mutex_lock(&pool->lock);
	while (!pool->populated_bytes && !pool->populate_ended && !rc)
		rc = hc_cond_wait_until(&pool->progress_cond, &pool->lock, deadline_ns);
	if (!pool->populated_bytes)
		rc = pool->populate_error ? pool->populate_error : -ETIMEDOUT;
	else
		rc = 0;
	pthread_mutex_unlock(&pool->lock);
	if (rc == -ETIMEDOUT)
		hc_error("pool", "no segment was populated within %" PRIu64 " s",
			 HC_OPEN_WAIT_NS / HC_NS_PER_S);
	return rc;
}

static void hc_pool_release(struct hc_pool *pool)
{
	hc_populate_stop(pool);
	for (uint32_t i = 0; pool->segments && i < pool->n_segments; i++) {
		hc_segment_bits_free(&pool->segments[i]);
		if (pool->segments[i].fd >= 0)
			close(pool->segments[i].fd);
	}
	if (pool->data)
		munmap(pool->data, pool->n_segments * pool->segment_bytes);
	if (pool->table)
		munmap(pool->table, pool->table_bytes);
	if (pool->segments_fd >= 0)
		close(pool->segments_fd);
	if (pool->lock_fd >= 0)
		close(pool->lock_fd);
	if (pool->dirfd >= 0)
		close(pool->dirfd);
	pthread_cond_destroy(&pool->progress_cond);
	pthread_mutex_destroy(&pool->lock);
	free(pool->segments);
	free(pool->dir);
	free(pool);
}

int hc_pool_open(const struct hc_pool_config *config, struct hc_pool **pool_p)
{
	struct hc_pool *pool;
	int rc;

	hc_assert(config->numa.n >= 0 && config->numa.n <= (int)HC_ARRAY_SIZE(config->numa.node));
	pool = hc_zalloc(sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pool->kind = config->dir ? config->kind : HC_POOL_MEMFD;
	pool->numa = config->numa;
	if (!pool->numa.bind)
		pool->numa.bind = hc_numa_bind;
	pool->dirfd = pool->segments_fd = pool->lock_fd = -1;
	pthread_mutex_init(&pool->lock, NULL);
	hc_cond_init(&pool->progress_cond);
	rc = hc_pool_setup(pool, config);
	if (!rc)
		rc = hc_pool_first_segment(pool);
	if (rc) {
		hc_pool_release(pool);
		return rc;
	}
	*pool_p = pool;
	return 0;
}

void hc_pool_close(struct hc_pool *pool, bool keep)
{
	if (!pool)
		return;
	hc_populate_stop(pool);
	if (!keep && pool->dirfd >= 0) {
		/* The table first: segments without one are swept, a table without segments is
		 * adopted in part. */
		unlinkat(pool->dirfd, "slots", 0);
		hc_segment_files_remove(pool->segments_fd, 0);
		unlinkat(pool->dirfd, "lock", 0);
	}
	hc_pool_release(pool);
}

void hc_pool_adopted_each(struct hc_pool *pool, hc_pool_each_t each, void *arg)
{
	for (uint32_t segment = 0; segment < pool->n_segments; segment++) {
		struct hc_segment *s = &pool->segments[segment];

		if (!s->adopted || s->state != HC_SEGMENT_CUT)
			continue;
		for (uint32_t i = 0; s->state == HC_SEGMENT_CUT && i < s->n_slots; i++) {
			hc_slot_id slot = hc_pool_slot(pool, segment, i);
			struct hc_slot_page page;

			if (hc_pool_state(pool, slot) != HC_SLOT_READY)
				continue;
			hc_table_row_page(hc_pool_row(pool, slot), &page);
			if (each(arg, slot, &page))
				hc_pool_free(pool, slot);
		}
	}
}

uint32_t hc_pool_n_segments(struct hc_pool *pool)
{
	return pool->n_segments;
}

void hc_pool_segment_info(struct hc_pool *pool, uint32_t segment,
			  struct hc_pool_segment_info *info_p)
{
	struct hc_segment *s = &pool->segments[segment];
	struct hc_pool_segment_info info = {.segment = segment};

	hc_assert(segment < pool->n_segments);
	pthread_mutex_lock(&pool->lock);
	info.usable = s->state >= HC_SEGMENT_UNCUT;
	info.cut = s->state == HC_SEGMENT_CUT;
	info.draining = s->draining;
	info.numa_node = s->numa_node;
	if (info.cut) {
		info.domain = s->domain;
		info.slot_bytes = s->slot_bytes;
		info.n_slots = s->n_slots;
		info.n_free = s->n_free;
	}
	pthread_mutex_unlock(&pool->lock);
	*info_p = info;
}

void hc_pool_stats(struct hc_pool *pool, struct hc_pool_stats *stats_p)
{
	struct hc_pool_stats stats = {.kind = pool->kind};
	bool huge_known;

	pthread_mutex_lock(&pool->lock);
	stats.size_bytes = pool->n_segments * pool->segment_bytes;
	stats.segment_bytes = pool->segment_bytes;
	stats.populated_bytes = pool->populated_bytes;
	stats.huge_bytes = pool->kind == HC_POOL_HUGETLB ? pool->populated_bytes : pool->huge_bytes;
	stats.used_bytes = pool->used_bytes;
	stats.adopted_bytes = pool->adopted_bytes;
	stats.n_slots_used = pool->n_slots_used;
	stats.n_recuts = pool->n_recuts;
	stats.n_reserve_runs = pool->n_reserve_runs;
	stats.n_reserve_slots = pool->n_reserve_slots;
	stats.populate_error = pool->populate_error;
	huge_known = pool->kind == HC_POOL_HUGETLB || pool->huge_at_bytes == stats.populated_bytes;
	pthread_mutex_unlock(&pool->lock);
	/* The kernel walks the page tables for it: once for each growth. */
	if (!huge_known) {
		stats.huge_bytes = hc_memory_huge_bytes(pool->data, stats.size_bytes);
		pthread_mutex_lock(&pool->lock);
		pool->huge_bytes = stats.huge_bytes;
		pool->huge_at_bytes = stats.populated_bytes;
		pthread_mutex_unlock(&pool->lock);
	}
	*stats_p = stats;
}
