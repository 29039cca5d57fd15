/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a test program: makes its n-th allocation fail, as HC_FAIL_ALLOC=n says (0 or
 * unset: none), and with HC_FAIL_STICKY=1 every one after it. Any thread; allocations are counted
 * over all threads. What the test harness itself allocates is neither counted nor failed. At exit
 * the count is written to the file HC_FAULT_COUNT, if set. glibc only. Not for sanitizer builds,
 * which have an allocator of their own. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HC_FAULT_API       __attribute__((visibility("default")))
#define HC_FAULT_RANGE_MAX 16

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

static _Atomic unsigned long n_allocations;
static unsigned long fail_at;
static int sticky;
/* Code of the harness and the loader. Written by the constructor, before any thread is there. */
static struct {
	uintptr_t start, end;
} exempt[HC_FAULT_RANGE_MAX];
static int n_exempt;

static int hc_fault_module(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = info->dlpi_name ? info->dlpi_name : "";

	if (!strstr(name, "libcmocka") && !strstr(name, "/ld-linux"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum && n_exempt < HC_FAULT_RANGE_MAX; i++) {
		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		exempt[n_exempt].start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		exempt[n_exempt].end = exempt[n_exempt].start + info->dlpi_phdr[i].p_memsz;
		n_exempt++;
	}
	return 0;
}

static unsigned long hc_fault_setting(const char *name)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void hc_fault_start(void)
{
	dl_iterate_phdr(hc_fault_module, NULL);
	fail_at = hc_fault_setting("HC_FAIL_ALLOC");
	sticky = hc_fault_setting("HC_FAIL_STICKY") != 0;
	atomic_store(&n_allocations, 0);
}

__attribute__((destructor)) static void hc_fault_end(void)
{
	const char *path = getenv("HC_FAULT_COUNT");
	char text[32];
	int fd, n;

	if (!path)
		return;
	n = snprintf(text, sizeof(text), "%lu\n", atomic_load(&n_allocations));
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, (size_t)n) != n)
		_exit(99);
	close(fd);
}

/* 1 when this allocation is to fail. */
static int hc_fault_now(const void *caller)
{
	static const char text[] = "fault-malloc: the allocation failed\n";
	unsigned long n;

	for (int i = 0; i < n_exempt; i++)
		if ((uintptr_t)caller >= exempt[i].start && (uintptr_t)caller < exempt[i].end)
			return 0;
	n = atomic_fetch_add(&n_allocations, 1) + 1;
	if (!fail_at || n < fail_at || (n > fail_at && !sticky))
		return 0;
	if (n == fail_at && write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		return 1;
	return 1;
}

static void *hc_fault_no_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

HC_FAULT_API void *malloc(size_t size)
{
	if (hc_fault_now(__builtin_return_address(0)))
		return hc_fault_no_memory();
	return __libc_malloc(size);
}

HC_FAULT_API void *calloc(size_t n, size_t size)
{
	if (hc_fault_now(__builtin_return_address(0)))
		return hc_fault_no_memory();
	return __libc_calloc(n, size);
}

HC_FAULT_API void *realloc(void *old, size_t size)
{
	if (hc_fault_now(__builtin_return_address(0)))
		return hc_fault_no_memory();
	return __libc_realloc(old, size);
}

HC_FAULT_API void *aligned_alloc(size_t align, size_t size)
{
	if (hc_fault_now(__builtin_return_address(0)))
		return hc_fault_no_memory();
	return __libc_memalign(align, size);
}

HC_FAULT_API int posix_memalign(void **p, size_t align, size_t size)
{
	void *q;

	if (hc_fault_now(__builtin_return_address(0)))
		return ENOMEM;
	q = __libc_memalign(align, size);
	if (!q)
		return ENOMEM;
	*p = q;
	return 0;
}
