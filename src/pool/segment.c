/* SPDX-License-Identifier: Apache-2.0 */
/* Segment files, their mappings, and the populate thread, which makes one segment after the other
 * usable: file, mapping, NUMA policy, storage, pages. It takes the pool's lock only to say so. */
#include "pool/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/size.h"

void hc_segment_file_name(uint32_t segment, char name[16])
{
	snprintf(name, 16, "seg-%04" PRIu32, segment);
}

int hc_memory_populate(void *addr, size_t size_bytes)
{
	while (madvise(addr, size_bytes, MADV_POPULATE_WRITE)) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		/* A write there would have raised SIGBUS: the file system has no room. */
		return errno == EFAULT ? -ENOSPC : -errno;
	}
	return 0;
}

int hc_segment_map(struct hc_pool *pool, uint32_t segment, int fd)
{
	void *want = hc_segment_data(pool, segment);
	void *addr = mmap(want, pool->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			  fd, 0);

	if (addr == MAP_FAILED) {
		int rc = -errno;

		hc_error("pool", "cannot map segment %" PRIu32 ": %m", segment);
		return rc;
	}
	if (madvise(addr, pool->segment_bytes, MADV_DONTFORK) ||
	    madvise(addr, pool->segment_bytes, MADV_DONTDUMP))
		hc_warn("pool",
			"segment %" PRIu32 " cannot be kept out of forks and core files: %m",
			segment);
	/* Advice only: refused where the kernel has no transparent huge pages, or on hugetlbfs. */
	(void)madvise(addr, pool->segment_bytes, MADV_HUGEPAGE);
	return 0;
}

static bool hc_populate_stopped(struct hc_pool *pool)
{
	bool stop;

	pthread_mutex_lock(&pool->lock);
	stop = pool->stop;
	pthread_mutex_unlock(&pool->lock);
	return stop;
}

/* fallocate knows no mapping: where huge pages come by advice on the mapping (memfd, /dev/shm) it
 * would take small ones, so there the pages are made through the mapping alone. */
static bool hc_populate_by_mapping(const struct hc_pool *pool)
{
	return pool->kind == HC_POOL_MEMFD || pool->kind == HC_POOL_SHM;
}

static int hc_segment_fill(struct hc_pool *pool, uint32_t segment, int fd)
{
	char *data = hc_segment_data(pool, segment);

	for (uint64_t at = 0; at < pool->segment_bytes; at += HC_POPULATE_STEP_BYTES) {
		uint64_t n = hc_min_u64(HC_POPULATE_STEP_BYTES, pool->segment_bytes - at);
		int rc;

		if (hc_populate_stopped(pool))
			return -ECANCELED;
		while (fd >= 0 && !hc_populate_by_mapping(pool) &&
		       fallocate(fd, 0, (off_t)at, (off_t)n)) {
			if (errno == EOPNOTSUPP)
				break;
			if (errno != EINTR)
				return -errno;
		}
		rc = hc_memory_populate(data + at, n);
		if (rc)
			return rc;
	}
	return 0;
}

static int hc_segment_file_make(struct hc_pool *pool, uint32_t segment)
{
	char name[16];
	int fd, rc;

	hc_segment_file_name(segment, name);
	if (pool->kind == HC_POOL_MEMFD) {
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	} else {
		unlinkat(pool->segments_fd, name, 0);
		fd = openat(pool->segments_fd, name,
			    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	}
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)pool->segment_bytes)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	/* A segment never shrinks or grows: a GPU registration would keep the old pages. */
	if (pool->kind == HC_POOL_MEMFD)
		(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	return fd;
}

/* Gives back what a segment that could not be populated took. */
static void hc_segment_drop(struct hc_pool *pool, uint32_t segment, int fd)
{
	void *addr = hc_segment_data(pool, segment);
	char name[16];

	if (mmap(addr, pool->segment_bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		hc_warn("pool", "cannot unmap segment %" PRIu32 ": %m", segment);
	close(fd);
	hc_segment_file_name(segment, name);
	if (pool->kind != HC_POOL_MEMFD)
		unlinkat(pool->segments_fd, name, 0);
}

static int hc_segment_make(struct hc_pool *pool, uint32_t segment, int *fd_p)
{
	struct hc_table_segment *d = hc_table_segment(pool->table, segment);
	int node = pool->segments[segment].numa_node;
	int fd = hc_segment_file_make(pool, segment);
	int rc = fd < 0 ? fd : 0;

	if (rc)
		return rc;
	rc = hc_segment_map(pool, segment, fd);
	if (!rc && node >= 0) {
		rc = pool->numa.bind(pool->numa.arg, hc_segment_data(pool, segment),
				     pool->segment_bytes, node);
		if (rc)
			hc_warn("pool", "segment %" PRIu32 " cannot be bound to NUMA node %d: %s",
				segment, node, strerror(-rc));
		/* Memory of another node is slower, not wrong. */
		rc = 0;
	}
	if (!rc)
		rc = hc_segment_fill(pool, segment, fd);
	if (rc) {
		hc_segment_drop(pool, segment, fd);
		return rc;
	}
	memset(d, 0, sizeof(*d));
	d->numa_node = node;
	d->check = hc_table_segment_sum(d);
	__atomic_store_n(&d->state, HC_TABLE_SEGMENT_UNCUT, __ATOMIC_RELEASE);
	*fd_p = fd;
	return 0;
}

static void hc_populate_report(struct hc_pool *pool, uint32_t segment, int rc)
{
	char want[16], have[16];

	hc_size_format((uint64_t)pool->n_segments * pool->segment_bytes, want);
	hc_size_format((uint64_t)segment * pool->segment_bytes, have);
	hc_error("pool",
		 "segment %" PRIu32 " of %" PRIu32
		 " cannot be populated: %s; %s were wanted, the memory ends "
		 "after %s; lower pool_size, or free memory or room in %s",
		 segment + 1, pool->n_segments, strerror(-rc), want, have,
		 pool->dir ? pool->dir : "the memory cgroup");
}

static void hc_populate_note(struct hc_pool *pool, uint32_t segment, int fd, int rc)
{
	struct hc_segment *s = &pool->segments[segment];

	pthread_mutex_lock(&pool->lock);
	if (rc) {
		if (!pool->populate_error && rc != -ECANCELED)
			pool->populate_error = rc;
		s->state = HC_SEGMENT_FAILED;
	} else {
		s->fd = fd;
		s->known = true;
		s->state = HC_SEGMENT_UNCUT;
		pool->populated_bytes += pool->segment_bytes;
	}
	pool->progress++;
	pthread_cond_broadcast(&pool->progress_cond);
	pthread_mutex_unlock(&pool->lock);
}

static void *hc_populate_main(void *arg)
{
	struct hc_pool *pool = arg;
	int rc = 0;

	pthread_setname_np(pthread_self(), "hc-populate");
	for (uint32_t i = 0; i < pool->n_segments; i++) {
		int fd = -1;

		/* Only this thread takes a segment out of ABSENT. */
		if (pool->segments[i].adopted)
			continue;
		if (!rc) {
			rc = hc_segment_make(pool, i, &fd);
			if (rc && rc != -ECANCELED)
				hc_populate_report(pool, i, rc);
		}
		/* Where one failed for want of memory the next would take what others need. */
		hc_populate_note(pool, i, fd, rc);
	}
	pthread_mutex_lock(&pool->lock);
	pool->populate_ended = true;
	pool->progress++;
	pthread_cond_broadcast(&pool->progress_cond);
	pthread_mutex_unlock(&pool->lock);
	/* Adopted segments have their pages; this fills in the page tables, so that first use is no
	 * fault. */
	for (uint32_t i = 0; i < pool->n_segments; i++)
		if (pool->segments[i].adopted && hc_segment_fill(pool, i, -1) == -ECANCELED)
			break;
	return NULL;
}

int hc_populate_start(struct hc_pool *pool)
{
	int rc = pthread_create(&pool->populate_thread, NULL, hc_populate_main, pool);

	if (rc) {
		hc_error("pool", "cannot start the populate thread: %s", strerror(rc));
		return -rc;
	}
	pool->populate_started = true;
	return 0;
}

void hc_populate_stop(struct hc_pool *pool)
{
	if (!pool->populate_started)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_mutex_unlock(&pool->lock);
	pthread_join(pool->populate_thread, NULL);
	pool->populate_started = false;
}

uint64_t hc_pool_populate_wait(struct hc_pool *pool, uint64_t seen, uint64_t deadline_ns)
{
	uint64_t progress;

	pthread_mutex_lock(&pool->lock);
	while (pool->progress == seen && !(pool->populate_ended && !pool->n_busy))
		if (hc_cond_wait_until(&pool->progress_cond, &pool->lock, deadline_ns) ==
		    -ETIMEDOUT)
			break;
	progress = pool->progress;
	pthread_mutex_unlock(&pool->lock);
	return progress;
}

uint64_t hc_memory_huge_bytes(const void *addr, uint64_t size_bytes)
{
	uintptr_t from = (uintptr_t)addr, to = from + size_bytes, start, end;
	hc_autofile FILE *f = fopen("/proc/self/smaps", "re");
	uint64_t kib, huge_bytes = 0;
	bool inside = false;
	char line[512];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
			inside = start >= from && end <= to;
		else if (inside && (sscanf(line, "ShmemPmdMapped: %" SCNu64 " kB", &kib) == 1 ||
				    sscanf(line, "FilePmdMapped: %" SCNu64 " kB", &kib) == 1))
			huge_bytes += kib * HC_KIB;
	}
	return huge_bytes;
}

void hc_segment_files_remove(int segments_fd, uint32_t from)
{
	char name[16];

	for (uint32_t i = from; i < HC_TABLE_SEGMENTS_MAX; i++) {
		hc_segment_file_name(i, name);
		/* Numbers may have gaps where populate failed, so it goes on to the end. */
		if (unlinkat(segments_fd, name, 0) && errno != ENOENT)
			hc_warn("pool", "cannot remove segment file %s: %m", name);
	}
}
