/* SPDX-License-Identifier: Apache-2.0 */
/* Engines of bench-disk: each moves a batch of pages between the same memory and files of the same
 * layout, with the same number of requests at the disk, and returns 0 or -errno when all of them
 * are done. */
#ifndef HC_BENCH_DISK_H
#define HC_BENCH_DISK_H

#include "store/file.h"

#define BENCH_READERS 8
#define BENCH_WRITERS 4

struct bench_job {
	struct hc_store_page page;
	void *data;
};

struct bench_disk {
	struct hc_store *store;
	int dir_fd;
	void *plain; /* threads of the plain engine */
};

typedef int (*bench_run_t)(struct bench_disk *disk, const struct bench_job *jobs, size_t n);

/* One file, as the store does it. */
int bench_open_get(struct bench_disk *disk, const struct hc_store_page *page);
int bench_open_put(struct bench_disk *disk, const struct hc_store_page *page);
int bench_end_get(int fd, const struct bench_job *job);
int bench_end_put(int fd, const struct bench_job *job);

/* NULL where io_uring is not built in or not allowed here. */
extern const bench_run_t bench_uring_get;
extern const bench_run_t bench_uring_put;
bool bench_uring_works(void);

#endif
