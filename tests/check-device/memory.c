/* SPDX-License-Identifier: Apache-2.0 */
/* The host's memory: the pool that transfers use, the speed of one contiguous copy from and to it,
 * and what registering each kind of memory costs. */
#include "tests/check-device/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define ROUNDS 5

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x0004u
#endif

int check_wait(struct hc_device_event *event)
{
	uint64_t deadline_ns = hc_clock_now_ns() + CHECK_WAIT_NS;
	int err;

	while ((err = hc_device_event_query(event)) == -EINPROGRESS) {
		if (hc_clock_now_ns() > deadline_ns)
			return -ETIMEDOUT;
	}
	return err;
}

double check_since_us(uint64_t began_ns)
{
	return (double)(hc_clock_now_ns() - began_ns + 1) / 1000;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double check_median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), by_value);
	return values[n / 2];
}

/* How much of the mapping at addr lies on huge pages, in percent. */
static int huge_percent(const void *addr)
{
	hc_autofile FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long long rss_kib = 0, huge_kib = 0, v;
	unsigned long from, to;
	char line[512];
	bool here = false;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (unsigned long)addr >= from && (unsigned long)addr < to;
		if (here && sscanf(line, "Rss: %llu", &v) == 1)
			rss_kib = v;
		if (here && (sscanf(line, "AnonHugePages: %llu", &v) == 1 ||
			     sscanf(line, "ShmemPmdMapped: %llu", &v) == 1 ||
			     sscanf(line, "Shared_Hugetlb: %llu", &v) == 1))
			huge_kib += v;
	}
	return huge_kib ? (int)(huge_kib * 100 / (rss_kib > huge_kib ? rss_kib : huge_kib)) : 0;
}

/* Pages go to this node; no library is needed for one call. */
static bool bind_to_node(void *at, uint64_t size_bytes, int node)
{
	unsigned long mask[16] = {0};

	if (node < 0 || node >= (int)sizeof(mask) * 8)
		return false;
	mask[node / 64] = 1ul << node % 64;
	/* 1: MPOL_PREFERRED, for a node may be too small */
	return syscall(SYS_mbind, at, size_bytes, 1, mask, sizeof(mask) * 8 + 1, 0) == 0;
}

int check_pool_open(struct check *check)
{
	uint64_t room = check->pool_bytes + 2 * HC_MIB;
	struct hc_rng rng;
	char *raw = mmap(NULL, room, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (raw == MAP_FAILED) {
		fprintf(stderr, "check-device: no memory for a pool of %llu MiB: %m\n",
			(unsigned long long)(check->pool_bytes / HC_MIB));
		return -ENOMEM;
	}
	check->pool = (char *)hc_align_up((uintptr_t)raw, 2 * HC_MIB);
	/* Only a wish: the table says what came of it. */
	madvise(check->pool, check->pool_bytes, MADV_HUGEPAGE);
	check->pool_bound = bind_to_node(check->pool, check->pool_bytes, check->info.numa_node);
	hc_rng_seed(&rng, 1);
	for (uint64_t i = 0; i < check->pool_bytes; i += 8) {
		uint64_t v = hc_rng_next(&rng);

		memcpy(check->pool + i, &v, 8);
	}
	check->pool_huge_percent = huge_percent(check->pool);
	return 0;
}

void check_pool_close(struct check *check)
{
	/* The rest of what was reserved goes with the process. */
	if (check->pool)
		munmap(check->pool, check->pool_bytes);
}

/* Two directions, each with a stream, an event and half of the bytes. */
struct lane {
	struct hc_device_stream *stream;
	struct hc_device_event *event;
	struct hc_device_copy copy;
};

static int run_lanes(struct lane *lanes, int n, double *rate_p)
{
	double rates[ROUNDS];
	uint64_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += lanes[i].copy.size_bytes;
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t began_ns = hc_clock_now_ns();
		int err = 0;

		for (int i = 0; i < n && !err; i++) {
			err = hc_device_copy(lanes[i].stream, &lanes[i].copy, 1);
			if (!err)
				err = hc_device_event_record(lanes[i].event, lanes[i].stream);
		}
		for (int i = 0; i < n && !err; i++)
			err = check_wait(lanes[i].event);
		if (err)
			return err;
		rates[round] = (double)bytes / 1000 / check_since_us(began_ns);
	}
	*rate_p = check_median(rates, ROUNDS);
	return 0;
}

static int open_lane(struct check *check, struct lane *lane)
{
	int err = hc_device_stream_create(check->device, HC_DEVICE_PRIORITY_HIGH, &lane->stream);

	return err ? err : hc_device_event_create(check->device, &lane->event);
}

static int peaks_of(struct check *check, hc_device_addr host, hc_device_addr mem, uint64_t bytes,
		    bool pinned)
{
	struct lane lanes[2] = {{.stream = NULL}, {.stream = NULL}};
	int err = open_lane(check, &lanes[0]);

	if (!err)
		err = open_lane(check, &lanes[1]);
	lanes[0].copy = (struct hc_device_copy){host, mem, bytes};
	lanes[1].copy = (struct hc_device_copy){mem + bytes, host + bytes, bytes};
	if (!err)
		err = run_lanes(&lanes[0], 1, pinned ? &check->pinned_load : &check->peak_load);
	if (!err)
		err = run_lanes(&lanes[1], 1, pinned ? &check->pinned_write : &check->peak_write);
	if (!err && !pinned)
		err = run_lanes(lanes, 2, &check->peak_both);
	for (int i = 0; i < 2; i++) {
		if (lanes[i].event)
			hc_device_event_destroy(lanes[i].event);
		if (lanes[i].stream)
			hc_device_stream_destroy(lanes[i].stream);
	}
	return err;
}

/* The denominators of the table: from and to the pool, registered as a whole. */
int check_peaks(struct check *check)
{
	uint64_t bytes = hc_min_u64(check->pool_bytes / 2, HC_GIB);
	uint64_t pinned_bytes = hc_min_u64(bytes, 256 * HC_MIB);
	hc_device_addr alias, pinned, mem;
	void *host;
	int err = hc_device_mem_alloc(check->device, 2 * bytes, &mem);

	if (err)
		return err;
	err = hc_device_host_register(check->device, check->pool, 2 * bytes, false, &alias);
	if (!err) {
		err = peaks_of(check, alias, mem, bytes, false);
		hc_device_host_unregister(check->device, alias);
	}
	if (!err)
		err = hc_device_host_alloc(check->device, 2 * pinned_bytes, &host, &pinned);
	if (!err) {
		memcpy(host, check->pool, 2 * pinned_bytes);
		err = peaks_of(check, pinned, mem, pinned_bytes, true);
		hc_device_host_free(check->device, pinned);
	}
	hc_device_mem_free(check->device, mem);
	return err;
}

/* --- registration --- */

static const struct kind {
	const char *name;
	bool shared;
	unsigned int memfd_flags;
	int advice;
} kinds[CHECK_MEMORIES] = {
	{"anonymous, 4 KiB pages", false, 0, MADV_NOHUGEPAGE},
	{"anonymous, huge pages asked for", false, 0, MADV_HUGEPAGE},
	{"memfd, 4 KiB pages", true, 0, MADV_NOHUGEPAGE},
	{"memfd, huge pages asked for", true, 0, MADV_HUGEPAGE},
	{"memfd, hugetlb of 2 MiB", true, MFD_HUGETLB, MADV_NORMAL},
	{"/dev/shm, 4 KiB pages", true, 0, MADV_NOHUGEPAGE},
};

static int open_shm(void)
{
	char path[] = "/dev/shm/hc-check-device-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	if (fd >= 0)
		unlink(path);
	return fd;
}

/* MAP_FAILED: not on this machine; errno says why. */
static char *map_kind(const struct kind *kind, uint64_t bytes)
{
	hc_autofd int fd = -1;

	if (!kind->shared)
		return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	if (kind->name[0] == '/')
		fd = open_shm();
	else
		fd = memfd_create("hc-check-device", MFD_CLOEXEC | kind->memfd_flags);
	/* All of it now, or a fault would kill us later. */
	if (fd < 0 || ftruncate(fd, (off_t)bytes) || fallocate(fd, 0, 0, (off_t)bytes))
		return MAP_FAILED;
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static int one_memory(struct check *check, const struct kind *kind, uint64_t bytes)
{
	struct check_memory *m = &check->memories[check->n_memories++];
	double gib = (double)bytes / (double)HC_GIB;
	uint64_t began_ns = hc_clock_now_ns();
	char *at = map_kind(kind, bytes);
	hc_device_addr alias;
	int err;

	m->name = kind->name;
	if (at == MAP_FAILED) {
		m->why_not = strerror(errno);
		return 0;
	}
	if (kind->advice != MADV_NORMAL)
		madvise(at, bytes, kind->advice);
	for (uint64_t i = 0; i < bytes; i += HC_BLOCK_BYTES)
		at[i] = 1;
	m->populate_s = check_since_us(began_ns) / 1e6 / gib;
	m->huge_percent = huge_percent(at);
	began_ns = hc_clock_now_ns();
	err = hc_device_host_register(check->device, at, bytes, false, &alias);
	m->register_s = check_since_us(began_ns) / 1e6 / gib;
	if (!err) {
		began_ns = hc_clock_now_ns();
		hc_device_host_unregister(check->device, alias);
		m->unregister_s = check_since_us(began_ns) / 1e6 / gib;
		m->there = true;
	} else {
		m->why_not = strerror(-err);
	}
	munmap(at, bytes);
	return hc_device_health(check->device);
}

/* A kind that this machine does not have is told, not an error. */
int check_memories(struct check *check)
{
	uint64_t bytes = check->small ? 4 * HC_MIB : HC_GIB;
	int err = 0;

	for (int i = 0; i < CHECK_MEMORIES && !err; i++)
		err = one_memory(check, &kinds[i], bytes);
	return err;
}
