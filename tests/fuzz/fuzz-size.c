/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, percentages, durations and hex as users type them: read exactly or refused; a refused text
 * leaves the output alone, and hex that is accepted is what encoding gives back. */
#include "fuzz.h"

#include "util/base.h"
#include "util/hex.h"
#include "util/size.h"

static void check_hex(const char *text, size_t n)
{
	uint8_t raw[32];
	char back[65];
	size_t n_bytes = n / 2 < sizeof(raw) ? n / 2 : sizeof(raw);

	if (hc_hex_decode(text, raw, n_bytes))
		return;
	hc_hex_encode(raw, n_bytes, back);
	hc_assert(!memcmp(back, text, n_bytes * 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	uint64_t bytes = 42, seconds = 42;
	uint32_t ppm = 42;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (hc_size_parse(text, &bytes))
		hc_assert(bytes == 42);
	else
		hc_assert(text[0] >= '0' && text[0] <= '9');
	if (hc_percent_parse(text, &ppm))
		hc_assert(ppm == 42);
	else
		hc_assert(ppm <= 1000000);
	if (hc_duration_parse(text, &seconds))
		hc_assert(seconds == 42);
	check_hex(text, strlen(text));
	free(text);
	return 0;
}
