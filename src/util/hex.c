/* SPDX-License-Identifier: Apache-2.0 */
/* See hex.h. */
#include "util/hex.h"

#include <endian.h>

/* A table: with branches every other digit of a hash is predicted wrongly. */
#define HC_D(c, v) [c] = (v) + 1
static const uint8_t hc_hex_table[256] = {
	HC_D('0', 0),  HC_D('1', 1),  HC_D('2', 2),  HC_D('3', 3),  HC_D('4', 4),  HC_D('5', 5),
	HC_D('6', 6),  HC_D('7', 7),  HC_D('8', 8),  HC_D('9', 9),  HC_D('a', 10), HC_D('b', 11),
	HC_D('c', 12), HC_D('d', 13), HC_D('e', 14), HC_D('f', 15),
};
#undef HC_D

int hc_hex_digit(char c)
{
	return hc_hex_table[(uint8_t)c] - 1;
}

size_t hc_hex_run(const char *text)
{
	size_t n = 0;

	while (hc_hex_table[(uint8_t)text[n]])
		n++;
	return n;
}

/* Eight digits at a time: every name that is listed comes through here. Each nibble moves into a
 * byte of its own, high one first; then all eight become digits at once. */
static inline uint64_t hc_hex_spread(uint32_t word)
{
	uint64_t v = word;

	v = (v | v << 16) & 0x0000ffff0000ffffu;
	v = (v | v << 8) & 0x00ff00ff00ff00ffu;
	return ((v >> 4) & 0x000f000f000f000fu) | (v & 0x000f000f000f000fu) << 8;
}

static inline uint64_t hc_hex_digits(uint64_t nibbles)
{
	/* 0x10 in each byte that is above 9 */
	uint64_t letters = (nibbles + 0x0606060606060606u) & 0x1010101010101010u;

	return nibbles + 0x3030303030303030u + (letters >> 4) * ('a' - '0' - 10);
}

void hc_hex_encode(const void *bytes, size_t n, char *text)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = bytes;
	size_t i = 0;

	for (; i + 4 <= n; i += 4) {
		uint32_t word;
		uint64_t out;

		memcpy(&word, p + i, sizeof(word));
		out = htole64(hc_hex_digits(hc_hex_spread(le32toh(word))));
		memcpy(text + 2 * i, &out, sizeof(out));
	}
	for (; i < n; i++) {
		text[2 * i] = digits[p[i] >> 4];
		text[2 * i + 1] = digits[p[i] & 15];
	}
	text[2 * n] = 0;
}

int hc_hex_decode(const char *text, void *bytes, size_t n)
{
	uint8_t *p = bytes;

	/* Not looked at one by one for the same reason; but never beyond a NUL. */
	for (size_t i = 0; i < n; i++) {
		unsigned high = hc_hex_table[(uint8_t)text[2 * i]];
		unsigned low = high ? hc_hex_table[(uint8_t)text[2 * i + 1]] : 0;

		if (!low)
			return -EINVAL;
		p[i] = (uint8_t)((high - 1) << 4 | (low - 1));
	}
	return 0;
}
