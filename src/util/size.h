/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, percentages and durations as users write them. Pure functions. */
#ifndef HC_UTIL_SIZE_H
#define HC_UTIL_SIZE_H

#include "util/base.h"

/* "4096", "64K", "1.5G": K, M, G, T are powers of 1024, an optional trailing "iB" or "B" is
 * accepted. -EINVAL for anything else, -ERANGE above 2^63 - 1. */
int hc_size_parse(const char *text, uint64_t *bytes_p) HC_MUST_CHECK;
/* "10%" or "2.5%": 0 to 100; result in millionths (10 % = 100000). -EINVAL otherwise. */
int hc_percent_parse(const char *text, uint32_t *ppm_p) HC_MUST_CHECK;
/* "90", "90s", "15m", "2h", "7d": seconds; "500ms" is -EINVAL. */
int hc_duration_parse(const char *text, uint64_t *seconds_p) HC_MUST_CHECK;
/* Decimal digits only, whole string. -EINVAL, -ERANGE. */
int hc_u64_parse(const char *text, uint64_t *value_p) HC_MUST_CHECK;
/* "1.5G" style, at most 16 bytes with the NUL. */
void hc_size_format(uint64_t bytes, char text[16]);

#endif
