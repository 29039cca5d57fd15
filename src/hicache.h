/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of libhicache. C11 and C++; every function can be called from other languages. */
#ifndef HICACHE_H
#define HICACHE_H

#ifdef __cplusplus
extern "C" {
#endif

#define HICACHE_API __attribute__((visibility("default")))

/* The release of the library, as "0.1.0". Valid for ever; any thread. */
HICACHE_API const char *hicache_version(void);

#ifdef __cplusplus
}
#endif

#endif
