/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to lower-case hex and back. Pure functions. */
#ifndef HC_UTIL_HEX_H
#define HC_UTIL_HEX_H

#include "util/base.h"

/* Writes 2 * n digits and a NUL. */
void hc_hex_encode(const void *bytes, size_t n, char *text);
/* Exactly 2 * n lower-case digits must be at text (nothing is demanded of what follows). -EINVAL
 * otherwise. */
int hc_hex_decode(const char *text, void *bytes, size_t n) HC_MUST_CHECK;
/* 0..15, or -1 for what is not a lower-case hex digit. */
int hc_hex_digit(char c);
/* How many lower-case hex digits the text begins with. */
size_t hc_hex_run(const char *text);

#endif
