/* SPDX-License-Identifier: Apache-2.0 */
/* The house's small vocabulary: attributes, assertion, scope-bound clean-up, minima, alignment.
 * Any thread; no state. hc_assert stays on in release and is for programmer errors only: what comes
 * from a file, the mount, a socket or the environment is checked and refused instead. */
#ifndef HC_UTIL_BASE_H
#define HC_UTIL_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HC_MUST_CHECK    __attribute__((warn_unused_result))
#define HC_PRINTF(f, a)  __attribute__((format(printf, f, a)))
#define hc_likely(x)     __builtin_expect(!!(x), 1)
#define hc_unlikely(x)   __builtin_expect(!!(x), 0)
#define HC_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define HC_KIB ((uint64_t)1 << 10)
#define HC_MIB ((uint64_t)1 << 20)
#define HC_GIB ((uint64_t)1 << 30)

#define HC_NS_PER_US ((uint64_t)1000)
#define HC_NS_PER_MS ((uint64_t)1000000)
#define HC_NS_PER_S  ((uint64_t)1000000000)

/* A sector and a small page: the unit of O_DIRECT, of slots and of statvfs. */
#define HC_BLOCK_BYTES ((uint64_t)4096)

_Noreturn void hc_panic(const char *file, int line, const char *what);

#define hc_assert(x)                                      \
	do {                                              \
		if (hc_unlikely(!(x)))                    \
			hc_panic(__FILE__, __LINE__, #x); \
	} while (0)

static inline uint64_t hc_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t hc_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Rounds up to a power of two `align`. */
static inline uint64_t hc_align_up(uint64_t n, uint64_t align)
{
	return (n + align - 1) & ~(align - 1);
}

static inline void hc_free_cleanup(void *p)
{
	free(*(void **)p);
}

static inline void hc_close_cleanup(int *fd)
{
	if (*fd >= 0) {
		int err = errno;

		close(*fd);
		errno = err;
	}
}

static inline void hc_file_cleanup(FILE **f)
{
	if (*f)
		fclose(*f);
}

#define hc_autofree __attribute__((cleanup(hc_free_cleanup)))
#define hc_autofd   __attribute__((cleanup(hc_close_cleanup)))
#define hc_autofile __attribute__((cleanup(hc_file_cleanup)))

/* Takes the pointer out of a variable that a clean-up attribute watches. */
#define hc_steal(pp)                        \
	({                                  \
		__typeof__(pp) _pp = (pp);  \
		__typeof__(*_pp) _v = *_pp; \
		*_pp = NULL;                \
		_v;                         \
	})

static inline int hc_steal_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}

/* For a result that changes nothing for the caller; say why beside it. */
#define hc_ignore(x)     \
	do {             \
		if (x) { \
		}        \
	} while (0)

/* malloc family that never returns NULL for size > 0 unless memory is out; callers check. */
static inline void *hc_zalloc(size_t size_bytes)
{
	return calloc(1, size_bytes ? size_bytes : 1);
}

#endif
