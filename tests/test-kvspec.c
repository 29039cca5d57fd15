/* SPDX-License-Identifier: Apache-2.0 */
/* model/kvspec: the text form, its errors, sizes and fingerprints. Goal: one specification has one
 * text; any difference in meaning is a difference of fingerprint; what is wrong is named. */
#include "hctest.h"

#include "model/kvspec.h"
#include "util/rng.h"

static const char base_text[] =
	"model=org/m revision=abc attention=mha layers=32 kv_heads=8 head_dim=128 dtype=fp16 "
	"page_tokens=64 layout=page_unified tp=0/1 pp=0/1";
static const char mla_text[] =
	"model=org/d attention=mla layers=61 latent_dim=512 rope_dim=64 dtype=bf16 "
	"page_tokens=64 layout=layer_first tp=3/8 pp=0/1";

static void parse(const char *text, struct hc_kvspec *spec)
{
	char error[HC_KVSPEC_ERROR_BYTES] = "";

	assert_int_equal(hc_kvspec_parse(text, spec, error), 0);
	assert_string_equal(error, "");
}

static void assert_canonical(const char *text, const char *canonical)
{
	char got[HC_KVSPEC_TEXT_BYTES];
	struct hc_kvspec spec, again;

	parse(text, &spec);
	hc_kvspec_format(&spec, got);
	assert_string_equal(got, canonical);
	parse(canonical, &again);
	assert_true(hc_kvspec_equal(&spec, &again));
}

static void test_text(void **state)
{
	assert_canonical(base_text, base_text);
	assert_canonical(mla_text, mla_text);
	/* Any order, more blanks, defaults spelt out, numbers with zeros in front, another name of
	 * the layout. */
	assert_canonical("\t tp=00/1  layout=page_unified page_tokens=064 dtype=fp16 head_dim=128 "
			 "kv_heads=8 layers=32 "
			 "attention=mha cp=0/1 dcp=0/1 dp=0/1 head_groups=1 component= "
			 "revision=abc model=org/m\n",
			 base_text);
	assert_canonical(
		"model=m attention=mha layers=1 kv_heads=1 head_dim=1 dtype=int8 page_tokens=1 "
		"layout=page_first_direct",
		"model=m attention=mha layers=1 kv_heads=1 head_dim=1 dtype=int8 page_tokens=1 "
		"layout=layer_first tp=0/1 pp=0/1");
	assert_canonical("model=m component=draft attention=mha layers=1 kv_heads=4 head_dim=1 "
			 "dtype=fp8_e5m2 "
			 "page_tokens=1 layout=page_unified head_groups=2 tp=1/2 pp=2/3 cp=3/4 "
			 "dcp=4/5 dp=5/6",
			 "model=m component=draft attention=mha layers=1 kv_heads=4 head_dim=1 "
			 "dtype=fp8_e5m2 "
			 "page_tokens=1 layout=page_unified head_groups=2 tp=1/2 pp=2/3 cp=3/4 "
			 "dcp=4/5 dp=5/6");
}

static void test_escapes(void **state)
{
	char text[HC_KVSPEC_TEXT_BYTES];
	struct hc_kvspec spec, again;

	parse(base_text, &spec);
	snprintf(spec.model, sizeof(spec.model), " a b\n%%=\x7f\x01\xc3\xa9");
	hc_kvspec_format(&spec, text);
	assert_ptr_equal(strstr(text, "model=%20a%20b%0a%25=%7f%01\xc3\xa9 revision=abc "), text);
	parse(text, &again);
	assert_string_equal(again.model, spec.model);
	assert_true(hc_kvspec_equal(&spec, &again));
	/* An escape that was not needed, in either case. */
	assert_canonical(
		"model=%6f%72%67%2Fm attention=mha layers=1 kv_heads=1 head_dim=1 dtype=fp32 "
		"page_tokens=1 "
		"layout=undeclared",
		"model=org/m attention=mha layers=1 kv_heads=1 head_dim=1 dtype=fp32 page_tokens=1 "
		"layout=undeclared tp=0/1 pp=0/1");
}

/* The longest names, every byte of them escaped, fit and come back. */
static void test_longest(void **state)
{
	char text[HC_KVSPEC_TEXT_BYTES];
	struct hc_kvspec spec, again;

	parse(base_text, &spec);
	memset(spec.model, ' ', sizeof(spec.model) - 1);
	memset(spec.revision, '%', sizeof(spec.revision) - 1);
	memset(spec.component, '\n', sizeof(spec.component) - 1);
	spec.model[sizeof(spec.model) - 1] = spec.revision[sizeof(spec.revision) - 1] = 0;
	spec.component[sizeof(spec.component) - 1] = 0;
	spec.dp = spec.dcp = spec.cp = spec.pp = spec.tp = (struct hc_rank){65535, 65536};
	hc_kvspec_format(&spec, text);
	parse(text, &again);
	assert_true(hc_kvspec_equal(&spec, &again));
}

/* Words that are refused; the message names the word. */
static void test_errors(void **state)
{
#define HEAD "model=m attention=mha layers=2 kv_heads=4 head_dim=8 dtype=fp16 page_tokens=16 "
#define ALL  HEAD "layout=page_unified "
	static const struct {
		const char *text, *word;
	} bad[] = {
		{"", "attention is missing"},
		{HEAD, "layout is missing"},
		{"attention=mha", "model is missing"},
		{ALL "model=n", "model is given twice"},
		{ALL "colour=red", "unknown word \"colour=red\""},
		{ALL "tp", "unknown word \"tp\" (words are NAME=VALUE)"},
		{ALL "=", "unknown word \"=\""},
		{ALL "tp=1", "tp=1 is not RANK/SIZE"},
		{ALL "tp=1/", "tp=1/ is not RANK/SIZE"},
		{ALL "tp=/2", "tp=/2 is not RANK/SIZE"},
		{ALL "tp=-1/2", "tp=-1/2 is not RANK/SIZE"},
		{ALL "tp=2/2", "tp=2/2 is not RANK/SIZE with RANK below SIZE"},
		{ALL "tp=0/0", "tp=0/0"},
		{ALL "tp=0/65537", "SIZE from 1 to 65536"},
		{ALL "tp=0/99999999999999999999", "tp=0/99999999999999999999"},
		{ALL "head_groups=3", "head_groups=3 does not divide the heads"},
		{HEAD "layout=page_first head_groups=2",
		 "head_groups=2 goes with layout=page_unified only"},
		{HEAD "layout=page_last", "layout=page_last is none of layer_first"},
		{ALL "latent_dim=512", "latent_dim does not go with attention=mha"},
		{"model= attention=mha layers=2 kv_heads=4 head_dim=8 dtype=fp16 page_tokens=16 "
		 "layout=page_first",
		 "model is empty"},
		{"model=m attention=gqa", "attention=gqa is neither mha nor mla"},
		{"model=m attention=mha layers=x", "layers=x is not a number from 1 to 65536"},
		{"model=m attention=mha layers=0 kv_heads=4 head_dim=8 dtype=fp16 page_tokens=16 "
		 "layout=page_first",
		 "layers=0 is not from 1 to 65536"},
		{"model=m dtype=fp17", "dtype=fp17 is none of fp16"},
		{"model=%2 attention=mha", "model has a %"},
		{"model=%00 attention=mha", "model has a %"},
		{"model=%zz attention=mha", "model has a %"},
		{"model=m "
		 "layers="
		 "000000000000000000000000000000000000000000000000000000000000000000000000000000000"
		 "1",
		 "layers has a value of 82 bytes"},
		{"model=m attention=mla layers=2 latent_dim=512 rope_dim=64 dtype=fp16 "
		 "page_tokens=16 layout=page_head",
		 "layout=page_head does not go with attention=mla"},
		{"model=m attention=mla layers=2 latent_dim=512 dtype=fp16 page_tokens=16 "
		 "layout=page_first",
		 "rope_dim is missing"},
		{"model=m attention=mha layers=65536 kv_heads=65536 head_dim=1048576 dtype=fp16 "
		 "page_tokens=16 "
		 "layout=page_first",
		 "more than 2^40 bytes"},
	};
	struct hc_kvspec spec = {.n_layers = 77};
	char error[HC_KVSPEC_ERROR_BYTES];

	for (size_t i = 0; i < HC_ARRAY_SIZE(bad); i++) {
		int err;

		error[0] = 0;
		err = hc_kvspec_parse(bad[i].text, &spec, error);
		assert_true(err == -EINVAL || err == -ERANGE);
		if (!strstr(error, bad[i].word) || memcmp(error, "kvspec: ", 8))
			fail_msg("%s: %s", bad[i].text, error);
	}
	assert_int_equal(spec.n_layers, 77);
}

/* A specification made by hand is checked like one that was read. */
static void test_check(void **state)
{
	char error[HC_KVSPEC_ERROR_BYTES];
	struct hc_kvspec spec, bad;

	parse(base_text, &spec);
	assert_int_equal(hc_kvspec_check(&spec, error), 0);
	bad = spec;
	memset(bad.revision, 'r', sizeof(bad.revision));
	assert_int_equal(hc_kvspec_check(&bad, error), -EINVAL);
	assert_string_equal(error, "kvspec: revision is longer than 127 bytes");
	bad = spec;
	bad.dtype = (enum hc_dtype)99;
	assert_int_equal(hc_kvspec_check(&bad, error), -EINVAL);
	assert_string_equal(error, "kvspec: unknown dtype number 99");
	bad = spec;
	bad.layout = (enum hc_layout)5;
	assert_int_equal(hc_kvspec_check(&bad, error), -EINVAL);
	bad = spec;
	bad.attention = (enum hc_attention)0;
	assert_int_equal(hc_kvspec_check(&bad, error), -EINVAL);
	hc_kvspec_init(&bad);
	assert_int_equal(hc_kvspec_check(&bad, error), -EINVAL);
}

/* The table of page sizes (16-bit KV, one rank; shards). */
static void test_page_bytes(void **state)
{
	static const struct {
		uint32_t n_layers, n_heads, head_dim, page_tokens;
		uint64_t page_bytes;
	} sizes[] = {
		{32, 8, 128, 1, 131072},    {32, 8, 128, 64, 8388608}, {80, 8, 128, 16, 5242880},
		{80, 1, 128, 64, 2621440},  {28, 4, 128, 64, 3670016}, {28, 1, 128, 16, 229376},
		{64, 8, 128, 64, 16777216},
	};
	struct hc_kvspec spec;

	parse(base_text, &spec);
	for (size_t i = 0; i < HC_ARRAY_SIZE(sizes); i++) {
		spec.n_layers = sizes[i].n_layers;
		spec.n_kv_heads = sizes[i].n_heads;
		spec.head_dim = sizes[i].head_dim;
		spec.page_tokens = sizes[i].page_tokens;
		assert_int_equal(hc_kvspec_page_bytes(&spec), sizes[i].page_bytes);
		spec.dtype = HC_DTYPE_FP8_E4M3;
		assert_int_equal(hc_kvspec_page_bytes(&spec), sizes[i].page_bytes / 2);
		spec.dtype = HC_DTYPE_FP16;
	}
	parse(mla_text, &spec);
	assert_int_equal(hc_kvspec_page_bytes(&spec), 4497408);
}

/* Behaviour 54: whatever differs in meaning differs in fingerprint. */
static void test_fingerprints(void **state)
{
	static const char *const others[] = {
		"model=org/n",
		"revision=abd",
		"revision=",
		"component=draft",
		"layers=31",
		"kv_heads=4",
		"head_dim=64",
		"dtype=bf16",
		"dtype=fp8_e4m3",
		"page_tokens=32",
		"layout=page_first",
		"layout=layer_first",
		"layout=page_head",
		"layout=undeclared",
		"head_groups=2",
		"tp=0/2",
		"tp=1/2",
		"pp=0/2",
		"pp=1/2",
		"cp=0/2",
		"dcp=0/2",
		"dp=0/2",
	};
	char prints[HC_ARRAY_SIZE(others) + 2][HC_KVSPEC_FINGERPRINT];
	struct hc_kvspec spec, same;
	size_t n = 0;

	parse(base_text, &spec);
	hc_kvspec_fingerprint(&spec, prints[n++]);
	for (size_t i = 0; i < HC_ARRAY_SIZE(others); i++) {
		char text[HC_KVSPEC_TEXT_BYTES] = "";
		size_t name_n = strcspn(others[i], "=") + 1, used = 0;
		struct hc_kvspec other;

		/* The base with this word in the place of its own. */
		for (const char *p = base_text; *p; p += strspn(p, " ")) {
			size_t word_n = strcspn(p, " ");

			if (strncmp(p, others[i], name_n))
				used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s ",
							 (int)word_n, p);
			p += word_n;
		}
		snprintf(text + used, sizeof(text) - used, "%s", others[i]);
		parse(text, &other);
		assert_false(hc_kvspec_equal(&spec, &other));
		hc_kvspec_fingerprint(&other, prints[n++]);
	}
	parse(mla_text, &same);
	hc_kvspec_fingerprint(&same, prints[n++]);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(strspn(prints[i], "0123456789abcdef"), 16);
		assert_int_equal(strlen(prints[i]), 16);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(prints[i], prints[k]);
	}
	/* It goes into names and catalogs: the same for ever. */
	assert_string_equal(prints[0], "aa13c8ec61b374b2");
	assert_string_equal(prints[n - 1], "7041c8b7e9f55e59");
}

static void test_convert_plan(void **state)
{
	struct hc_kvspec a, b;
	struct hc_copy_plan plan;

	parse(base_text, &a);
	b = a;
	assert_int_equal(hc_kvspec_convert_plan(&a, &b, &plan), 0);
	assert_int_equal(plan.run_bytes, 8388608);
	b.layout = HC_LAYOUT_LAYER_FIRST;
	assert_int_equal(hc_kvspec_convert_plan(&a, &b, &plan), 0);
	assert_int_equal(plan.run_bytes, 64 * 8 * 128 * 2);
	assert_int_equal(plan.n_runs, 2 * 32);
	a.head_groups = 4;
	assert_int_equal(hc_kvspec_convert_plan(&a, &b, &plan), 0);
	assert_int_equal(plan.run_bytes, 2 * 128 * 2);
	b.layout = HC_LAYOUT_UNDECLARED;
	assert_int_equal(hc_kvspec_convert_plan(&a, &b, &plan), -EINVAL);
	b.layout = HC_LAYOUT_LAYER_FIRST;
	b.dtype = HC_DTYPE_BF16;
	assert_int_equal(hc_kvspec_convert_plan(&a, &b, &plan), -EINVAL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_text),         cmocka_unit_test(test_escapes),
	cmocka_unit_test(test_longest),      cmocka_unit_test(test_errors),
	cmocka_unit_test(test_check),        cmocka_unit_test(test_page_bytes),
	cmocka_unit_test(test_fingerprints), cmocka_unit_test(test_convert_plan),
};

HC_TEST_MAIN(tests)
