/* SPDX-License-Identifier: Apache-2.0 */
/* See hex.h. */
#include "util/hex.h"

int hc_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

void hc_hex_encode(const void *bytes, size_t n, char *text)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++) {
		text[2 * i] = digits[p[i] >> 4];
		text[2 * i + 1] = digits[p[i] & 15];
	}
	text[2 * n] = 0;
}

int hc_hex_decode(const char *text, void *bytes, size_t n)
{
	uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++) {
		int high = hc_hex_digit(text[2 * i]);
		int low = high < 0 ? -1 : hc_hex_digit(text[2 * i + 1]);

		if (low < 0)
			return -EINVAL;
		p[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}
