/* SPDX-License-Identifier: Apache-2.0 */
/* What the benches share: memory on huge pages, whether the machine is quiet, medians. One thread.
 */
#ifndef HC_BENCH_H
#define HC_BENCH_H

#include <sys/mman.h>

#include "util/base.h"
#include "util/clock.h"
#include "util/log.h"

/* Below this a machine is too busy, or too slow, for a verdict. */
#define BENCH_MEMCPY_MIN 2.0
#define BENCH_HUGE_BYTES ((size_t)2 << 20)

/* Populated anonymous memory, on huge pages where the kernel gives them; munmap frees it. */
static inline void *bench_memory(size_t size_bytes)
{
	size_t room = (size_t)hc_align_up(size_bytes, BENCH_HUGE_BYTES) + BENCH_HUGE_BYTES;
	char *raw = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at;

	if (raw == MAP_FAILED)
		return NULL;
	at = (char *)hc_align_up((uintptr_t)raw, BENCH_HUGE_BYTES);
	/* Only a wish: bench_huge_percent tells what came of it. */
	madvise(at, room - (size_t)(at - raw), MADV_HUGEPAGE);
	memset(at, 0, size_bytes);
	return at;
}

/* How much of the mapping that holds addr lies on huge pages, in percent. */
static inline int bench_huge_percent(const void *addr)
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
			     sscanf(line, "ShmemPmdMapped: %llu", &v) == 1))
			huge_kib += v;
	}
	return rss_kib ? (int)(huge_kib * 100 / rss_kib) : 0;
}

/* GB/s of the best of five copies between the halves of a buffer. */
static inline double bench_memcpy_rate(void *buf, size_t size_bytes)
{
	size_t half = size_bytes / 2;
	double best = 0;

	for (int i = 0; i < 5; i++) {
		uint64_t begin_ns = hc_clock_now_ns();
		double rate;

		memcpy((char *)buf + half, buf, half);
		rate = (double)half / (double)(hc_clock_now_ns() - begin_ns + 1);
		if (rate > best)
			best = rate;
	}
	return best;
}

static inline int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts; p in 0..100. */
static inline double bench_percentile(double *values, size_t n, int p)
{
	qsort(values, n, sizeof(*values), bench_compare);
	return n ? values[(n - 1) * (size_t)p / 100] : 0;
}

#endif
