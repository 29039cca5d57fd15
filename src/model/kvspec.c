/* SPDX-License-Identifier: Apache-2.0 */
/* See kvspec.h. One table describes the words; reader, writer and check walk it in its order, which
 * is the canonical one. Names and numbers of the table are part of fingerprints: never changed,
 * only added with a default. */
#include "model/kvspec.h"

#include <stdarg.h>

#include "util/size.h"

enum kind { TEXT, COUNT, RANK, ATTENTION, DTYPE, LAYOUT };

enum {
	REQUIRED = 1,
	MHA_ONLY = 2,
	MLA_ONLY = 4,
	ALWAYS_WRITTEN = 8, /* else only if not the default */
	MAY_BE_ZERO = 16,
};

struct word {
	const char *name;
	enum kind kind;
	uint32_t offset;
	uint32_t limit; /* TEXT: bytes with the NUL; COUNT: largest */
	uint32_t flags;
};

#define FIELD(f) offsetof(struct hc_kvspec, f)

static const struct word words[] = {
	{"model", TEXT, FIELD(model), HC_KVSPEC_MODEL_BYTES, REQUIRED | ALWAYS_WRITTEN},
	{"revision", TEXT, FIELD(revision), HC_KVSPEC_REVISION_BYTES, 0},
	{"component", TEXT, FIELD(component), HC_KVSPEC_COMPONENT_BYTES, 0},
	{"attention", ATTENTION, FIELD(attention), 0, REQUIRED | ALWAYS_WRITTEN},
	{"layers", COUNT, FIELD(n_layers), HC_KVSPEC_COUNT_MAX, REQUIRED | ALWAYS_WRITTEN},
	{"kv_heads", COUNT, FIELD(n_kv_heads), HC_KVSPEC_COUNT_MAX,
	 REQUIRED | ALWAYS_WRITTEN | MHA_ONLY},
	{"head_dim", COUNT, FIELD(head_dim), HC_KVSPEC_DIM_MAX,
	 REQUIRED | ALWAYS_WRITTEN | MHA_ONLY},
	{"latent_dim", COUNT, FIELD(latent_dim), HC_KVSPEC_DIM_MAX,
	 REQUIRED | ALWAYS_WRITTEN | MLA_ONLY},
	{"rope_dim", COUNT, FIELD(rope_dim), HC_KVSPEC_DIM_MAX,
	 REQUIRED | ALWAYS_WRITTEN | MLA_ONLY | MAY_BE_ZERO},
	{"dtype", DTYPE, FIELD(dtype), 0, REQUIRED | ALWAYS_WRITTEN},
	{"page_tokens", COUNT, FIELD(page_tokens), HC_PAGE_TOKENS_MAX, REQUIRED | ALWAYS_WRITTEN},
	{"layout", LAYOUT, FIELD(layout), 0, REQUIRED | ALWAYS_WRITTEN},
	{"head_groups", COUNT, FIELD(head_groups), HC_KVSPEC_COUNT_MAX, 0},
	{"tp", RANK, FIELD(tp), HC_KVSPEC_COUNT_MAX, ALWAYS_WRITTEN},
	{"pp", RANK, FIELD(pp), HC_KVSPEC_COUNT_MAX, ALWAYS_WRITTEN},
	{"cp", RANK, FIELD(cp), HC_KVSPEC_COUNT_MAX, 0},
	{"dcp", RANK, FIELD(dcp), HC_KVSPEC_COUNT_MAX, 0},
	{"dp", RANK, FIELD(dp), HC_KVSPEC_COUNT_MAX, 0},
};

static const struct {
	const char *name;
	uint32_t size_bytes;
} dtypes[] = {
	[HC_DTYPE_FP16] = {"fp16", 2},         [HC_DTYPE_BF16] = {"bf16", 2},
	[HC_DTYPE_FP32] = {"fp32", 4},         [HC_DTYPE_FP8_E4M3] = {"fp8_e4m3", 1},
	[HC_DTYPE_FP8_E5M2] = {"fp8_e5m2", 1}, [HC_DTYPE_INT8] = {"int8", 1},
	[HC_DTYPE_UINT8] = {"uint8", 1},
};

static const char *const attentions[] = {[HC_ATTENTION_MHA] = "mha", [HC_ATTENTION_MLA] = "mla"};

static const struct hc_kvspec defaults = {
	.layout = HC_LAYOUT_PAGE_UNIFIED,
	.head_groups = 1,
	.tp = {0, 1},
	.pp = {0, 1},
	.cp = {0, 1},
	.dcp = {0, 1},
	.dp = {0, 1},
};

void hc_kvspec_init(struct hc_kvspec *spec)
{
	*spec = defaults;
}

static bool dtype_known(enum hc_dtype dtype)
{
	return (unsigned int)dtype < HC_ARRAY_SIZE(dtypes) && dtypes[dtype].name;
}

uint32_t hc_dtype_bytes(enum hc_dtype dtype)
{
	return dtype_known(dtype) ? dtypes[dtype].size_bytes : 0;
}

const char *hc_dtype_name(enum hc_dtype dtype)
{
	return dtype_known(dtype) ? dtypes[dtype].name : "unknown";
}

HC_PRINTF(3, 4) static int refuse(char *error, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, HC_KVSPEC_ERROR_BYTES, format, args);
	va_end(args);
	return err;
}

static const void *field(const struct hc_kvspec *spec, const struct word *word)
{
	return (const char *)spec + word->offset;
}

static uint32_t number(const struct hc_kvspec *spec, const struct word *word)
{
	uint32_t v;

	memcpy(&v, field(spec, word), sizeof(v));
	return v;
}

/* Whether the word belongs to this kind of attention. */
static bool applies(const struct hc_kvspec *spec, const struct word *word)
{
	if (word->flags & MHA_ONLY)
		return spec->attention == HC_ATTENTION_MHA;
	if (word->flags & MLA_ONLY)
		return spec->attention == HC_ATTENTION_MLA;
	return true;
}

static int check_text(const struct word *word, const char *text, char *error)
{
	if (!memchr(text, 0, word->limit))
		return refuse(error, -EINVAL, "kvspec: %s is longer than %u bytes", word->name,
			      word->limit - 1);
	if (!text[0] && word->flags & REQUIRED)
		return refuse(error, -EINVAL, "kvspec: %s is empty", word->name);
	return 0;
}

static int check_word(const struct hc_kvspec *spec, const struct word *word, char *error)
{
	const struct hc_rank *rank = field(spec, word);
	uint32_t n = number(spec, word);

	switch (word->kind) {
	case TEXT:
		return check_text(word, field(spec, word), error);
	case COUNT:
		if (!applies(spec, word))
			return n ? refuse(error, -EINVAL,
					  "kvspec: %s does not go with attention=%s", word->name,
					  attentions[spec->attention])
				 : 0;
		if ((!n && !(word->flags & MAY_BE_ZERO)) || n > word->limit)
			return refuse(error, -ERANGE, "kvspec: %s=%u is not from %u to %u",
				      word->name, n, !(word->flags & MAY_BE_ZERO), word->limit);
		return 0;
	case RANK:
		if (!rank->size || rank->size > word->limit || rank->rank >= rank->size)
			return refuse(error, -ERANGE,
				      "kvspec: %s=%u/%u is not RANK/SIZE with RANK below SIZE and "
				      "SIZE from 1 to %u",
				      word->name, rank->rank, rank->size, word->limit);
		return 0;
	case ATTENTION:
		if (n != HC_ATTENTION_MHA && n != HC_ATTENTION_MLA)
			return refuse(error, -EINVAL, "kvspec: attention is neither mha nor mla");
		return 0;
	case DTYPE:
		if (!dtype_known((enum hc_dtype)n))
			return refuse(error, -EINVAL, "kvspec: unknown dtype number %u", n);
		return 0;
	case LAYOUT:
		if (n > HC_LAYOUT_PAGE_UNIFIED)
			return refuse(error, -EINVAL, "kvspec: unknown layout number %u", n);
		return 0;
	}
	return -EINVAL;
}

int hc_kvspec_check(const struct hc_kvspec *spec, char error[HC_KVSPEC_ERROR_BYTES])
{
	struct hc_geometry geometry;
	int err;

	/* First what the other words' validity depends on. */
	if (spec->attention != HC_ATTENTION_MHA && spec->attention != HC_ATTENTION_MLA)
		return refuse(error, -EINVAL, "kvspec: attention is neither mha nor mla");
	for (size_t i = 0; i < HC_ARRAY_SIZE(words); i++) {
		err = check_word(spec, &words[i], error);
		if (err)
			return err;
	}
	if (spec->attention == HC_ATTENTION_MLA && spec->layout == HC_LAYOUT_PAGE_HEAD)
		return refuse(error, -EINVAL,
			      "kvspec: layout=page_head does not go with attention=mla (no heads)");
	if (spec->head_groups != 1 && spec->layout != HC_LAYOUT_PAGE_UNIFIED)
		return refuse(error, -EINVAL,
			      "kvspec: head_groups=%u goes with layout=page_unified only",
			      spec->head_groups);
	if (spec->head_groups != 1 &&
	    (spec->attention == HC_ATTENTION_MLA || spec->n_kv_heads % spec->head_groups))
		return refuse(error, -EINVAL, "kvspec: head_groups=%u does not divide the heads",
			      spec->head_groups);
	hc_kvspec_geometry(spec, &geometry);
	err = hc_geometry_check(&geometry);
	if (err)
		return refuse(error, err, "kvspec: a page would have more than 2^40 bytes");
	return 0;
}

void hc_kvspec_geometry(const struct hc_kvspec *spec, struct hc_geometry *geometry_p)
{
	bool mla = spec->attention == HC_ATTENTION_MLA;

	*geometry_p = (struct hc_geometry){
		.n_kv = mla ? 1 : 2,
		.n_layers = spec->n_layers,
		.n_heads = mla ? 1 : spec->n_kv_heads,
		.n_tokens = spec->page_tokens,
		.head_dim = mla ? spec->latent_dim + spec->rope_dim : spec->head_dim,
		.element_bytes = hc_dtype_bytes(spec->dtype),
		.n_groups = spec->head_groups,
		.mla = mla,
	};
}

uint64_t hc_kvspec_page_bytes(const struct hc_kvspec *spec)
{
	struct hc_geometry geometry;

	hc_kvspec_geometry(spec, &geometry);
	return hc_geometry_page_bytes(&geometry);
}

static bool must_escape(unsigned char c)
{
	return c <= ' ' || c == 0x7f || c == '%';
}

static char *put_text(char *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (must_escape(c)) {
			*out++ = '%';
			hc_hex_encode(&c, 1, out);
			out += 2;
		} else {
			*out++ = (char)c;
		}
	}
	*out = 0;
	return out;
}

static char *put_value(char *out, const struct hc_kvspec *spec, const struct word *word)
{
	const struct hc_rank *rank = field(spec, word);
	uint32_t n = number(spec, word);

	switch (word->kind) {
	case TEXT:
		return put_text(out, field(spec, word));
	case COUNT:
		return out + snprintf(out, 16, "%u", n);
	case RANK:
		return out + snprintf(out, 32, "%u/%u", rank->rank, rank->size);
	case ATTENTION:
		return put_text(out, attentions[n]);
	case DTYPE:
		return put_text(out, dtypes[n].name);
	case LAYOUT:
		return put_text(out, hc_layout_name((enum hc_layout)n));
	}
	return out;
}

static bool is_default(const struct hc_kvspec *spec, const struct word *word)
{
	const void *value = field(spec, word), *standard = field(&defaults, word);

	if (word->kind == TEXT)
		return !*(const char *)value;
	return !memcmp(value, standard,
		       word->kind == RANK ? sizeof(struct hc_rank) : sizeof(uint32_t));
}

void hc_kvspec_format(const struct hc_kvspec *spec, char text[HC_KVSPEC_TEXT_BYTES])
{
	/* The three names escaped, the other words of at most 30 bytes. */
	_Static_assert(
		3 * (HC_KVSPEC_MODEL_BYTES + HC_KVSPEC_REVISION_BYTES + HC_KVSPEC_COMPONENT_BYTES) +
				18 * 30 <
			HC_KVSPEC_TEXT_BYTES,
		"the longest text must fit");
	char *out = text;

	for (size_t i = 0; i < HC_ARRAY_SIZE(words); i++) {
		const struct word *word = &words[i];

		if (!applies(spec, word) ||
		    (!(word->flags & ALWAYS_WRITTEN) && is_default(spec, word)))
			continue;
		if (out != text)
			*out++ = ' ';
		out = put_text(out, word->name);
		*out++ = '=';
		out = put_value(out, spec, word);
	}
	*out = 0;
}

void hc_kvspec_fingerprint(const struct hc_kvspec *spec, char fingerprint[HC_KVSPEC_FINGERPRINT])
{
	char text[HC_KVSPEC_TEXT_BYTES];
	struct hc_hash hash;

	hc_kvspec_format(spec, text);
	hc_sha256(text, strlen(text), &hash);
	hc_hex_encode(hash.bytes, 8, fingerprint);
}

bool hc_kvspec_equal(const struct hc_kvspec *a, const struct hc_kvspec *b)
{
	char a_text[HC_KVSPEC_TEXT_BYTES], b_text[HC_KVSPEC_TEXT_BYTES];

	hc_kvspec_format(a, a_text);
	hc_kvspec_format(b, b_text);
	return !strcmp(a_text, b_text);
}

int hc_kvspec_convert_plan(const struct hc_kvspec *from, const struct hc_kvspec *to,
			   struct hc_copy_plan *plan_p)
{
	struct hc_geometry from_geometry, to_geometry;
	struct hc_strides src, dst;
	struct hc_kvspec same = *to;
	int err;

	same.layout = from->layout;
	same.head_groups = from->head_groups;
	if (!hc_kvspec_equal(from, &same))
		return -EINVAL;
	hc_kvspec_geometry(from, &from_geometry);
	hc_kvspec_geometry(to, &to_geometry);
	err = hc_layout_strides(from->layout, &from_geometry, &src);
	if (!err)
		err = hc_layout_strides(to->layout, &to_geometry, &dst);
	return err ? err : hc_copy_plan_make(&from_geometry, &src, &dst, plan_p);
}

static int hex_digit_any(char c)
{
	return hc_hex_digit(c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c);
}

static int read_text(const struct word *word, const char *value, size_t n, char *to, char *error)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		char c = value[i];

		if (c == '%') {
			int high = n - i > 2 ? hex_digit_any(value[i + 1]) : -1;
			int low = n - i > 2 ? hex_digit_any(value[i + 2]) : -1;

			if (high < 0 || low < 0 || !(high | low))
				return refuse(error, -EINVAL,
					      "kvspec: %s has a %% without the two hex digits of a "
					      "byte above 00 after it",
					      word->name);
			c = (char)(high << 4 | low);
			i += 2;
		}
		if (used + 1 >= word->limit)
			return refuse(error, -ERANGE, "kvspec: %s is longer than %u bytes",
				      word->name, word->limit - 1);
		to[used++] = c;
	}
	to[used] = 0;
	return 0;
}

static int read_number(const char *text, uint32_t *number_p)
{
	uint64_t v;

	if (hc_u64_parse(text, &v) || v > UINT32_MAX)
		return -EINVAL;
	*number_p = (uint32_t)v;
	return 0;
}

/* value is a short NUL-terminated copy; what is wrong with it goes into the message. */
static int read_short(struct hc_kvspec *spec, const struct word *word, char *value, char *error)
{
	void *to = (char *)spec + word->offset;
	char *slash = strchr(value, '/');

	switch (word->kind) {
	case COUNT:
		if (!read_number(value, to))
			return 0;
		return refuse(error, -EINVAL, "kvspec: %s=%s is not a number from %u to %u",
			      word->name, value, !(word->flags & MAY_BE_ZERO), word->limit);
	case RANK:
		if (slash) {
			struct hc_rank rank;

			*slash = 0;
			if (!read_number(value, &rank.rank) &&
			    !read_number(slash + 1, &rank.size)) {
				memcpy(to, &rank, sizeof(rank));
				return 0;
			}
			*slash = '/';
		}
		return refuse(error, -EINVAL, "kvspec: %s=%s is not RANK/SIZE, like 0/1",
			      word->name, value);
	case ATTENTION:
		for (uint32_t i = HC_ATTENTION_MHA; i < HC_ARRAY_SIZE(attentions); i++) {
			if (!strcmp(value, attentions[i])) {
				spec->attention = (enum hc_attention)i;
				return 0;
			}
		}
		return refuse(error, -EINVAL, "kvspec: attention=%s is neither mha nor mla", value);
	case DTYPE:
		for (uint32_t i = 1; i < HC_ARRAY_SIZE(dtypes); i++) {
			if (!strcmp(value, dtypes[i].name)) {
				spec->dtype = (enum hc_dtype)i;
				return 0;
			}
		}
		return refuse(error, -EINVAL,
			      "kvspec: dtype=%s is none of fp16, bf16, fp32, fp8_e4m3, fp8_e5m2, "
			      "int8, uint8",
			      value);
	case LAYOUT:
		if (!hc_layout_parse(value, &spec->layout))
			return 0;
		return refuse(error, -EINVAL,
			      "kvspec: layout=%s is none of layer_first, page_first, page_head, "
			      "page_unified, "
			      "undeclared",
			      value);
	default:
		return -EINVAL;
	}
}

static int read_word(struct hc_kvspec *spec, const char *text, size_t n, uint32_t *seen,
		     char *error)
{
	const char *equals = memchr(text, '=', n);
	size_t name_n = equals ? (size_t)(equals - text) : n;
	char value[64];

	for (size_t i = 0; i < HC_ARRAY_SIZE(words); i++) {
		const struct word *word = &words[i];
		size_t value_n;

		if (!equals || strlen(word->name) != name_n || memcmp(word->name, text, name_n))
			continue;
		if (*seen & 1u << i)
			return refuse(error, -EINVAL, "kvspec: %s is given twice", word->name);
		*seen |= 1u << i;
		value_n = n - name_n - 1;
		if (word->kind == TEXT)
			return read_text(word, equals + 1, value_n, (char *)spec + word->offset,
					 error);
		if (value_n >= sizeof(value))
			return refuse(error, -EINVAL, "kvspec: %s has a value of %zu bytes",
				      word->name, value_n);
		memcpy(value, equals + 1, value_n);
		value[value_n] = 0;
		return read_short(spec, word, value, error);
	}
	return refuse(error, -EINVAL, "kvspec: unknown word \"%.*s\"%s", (int)hc_min_u64(n, 64),
		      text, equals ? "" : " (words are NAME=VALUE)");
}

int hc_kvspec_parse(const char *text, struct hc_kvspec *spec_p, char error[HC_KVSPEC_ERROR_BYTES])
{
	static const char blanks[] = " \t\n";
	struct hc_kvspec spec;
	uint32_t seen = 0;
	int err;

	_Static_assert(HC_ARRAY_SIZE(words) <= 32, "one bit a word");
	hc_kvspec_init(&spec);
	for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
		size_t n = strcspn(text, blanks);

		err = read_word(&spec, text, n, &seen, error);
		if (err)
			return err;
		text += n;
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(words); i++) {
		if (words[i].kind == ATTENTION && !(seen & 1u << i))
			return refuse(error, -EINVAL, "kvspec: attention is missing");
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(words); i++) {
		if (words[i].flags & REQUIRED && !(seen & 1u << i) && applies(&spec, &words[i]))
			return refuse(error, -EINVAL, "kvspec: %s is missing", words[i].name);
	}
	err = hc_kvspec_check(&spec, error);
	if (!err)
		*spec_p = spec;
	return err;
}
