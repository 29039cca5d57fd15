/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of specifications. What is read is written as one canonical text that reads back the same;
 * what is refused says why and leaves the output alone. Small pages are converted to every layout
 * and back inside buffers of exact size. */
#include "fuzz.h"

#include "model/kvspec.h"

#define CONVERT_BYTES_MAX (64 * 1024)

static void convert_there_and_back(const struct hc_kvspec *spec)
{
	size_t n_bytes = hc_kvspec_page_bytes(spec);
	struct hc_copy_plan there, back;
	struct hc_kvspec other = *spec;
	uint8_t *a, *b, *c;

	other.head_groups = 1;
	if (n_bytes > CONVERT_BYTES_MAX)
		return;
	a = malloc(n_bytes);
	b = malloc(n_bytes);
	c = malloc(n_bytes);
	for (size_t i = 0; a && b && c && i < n_bytes; i++)
		a[i] = (uint8_t)(i * 131 >> 3 ^ i);
	for (int layout = HC_LAYOUT_LAYER_FIRST; layout <= HC_LAYOUT_PAGE_UNIFIED; layout++) {
		other.layout = layout;
		if (!a || !b || !c || hc_kvspec_convert_plan(spec, &other, &there))
			continue;
		hc_assert(!hc_kvspec_convert_plan(&other, spec, &back));
		hc_assert(there.n_runs * there.run_bytes == n_bytes);
		hc_copy_plan_run(&there, a, b);
		hc_copy_plan_run(&back, b, c);
		hc_assert(!memcmp(a, c, n_bytes));
	}
	free(a);
	free(b);
	free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char canonical[HC_KVSPEC_TEXT_BYTES], again[HC_KVSPEC_TEXT_BYTES];
	char error[HC_KVSPEC_ERROR_BYTES] = "";
	struct hc_kvspec spec = {.n_layers = 4242424}, second;
	char *text = malloc(size + 1);
	int err;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	err = hc_kvspec_parse(text, &spec, error);
	free(text);
	if (err) {
		hc_assert(error[0] && spec.n_layers == 4242424);
		return 0;
	}
	hc_assert(!hc_kvspec_check(&spec, error));
	hc_kvspec_format(&spec, canonical);
	hc_assert(!hc_kvspec_parse(canonical, &second, error));
	hc_kvspec_format(&second, again);
	hc_assert(!strcmp(canonical, again) && hc_kvspec_equal(&spec, &second));
	hc_assert(hc_kvspec_page_bytes(&spec) > 0);
	convert_there_and_back(&spec);
	return 0;
}
