/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of a series: everything that decides what the bytes of its pages mean. Two
 * series whose specifications differ in anything never share a page: the fingerprint tells them
 * apart. Pure functions.
 *
 * Text form: one line of NAME=VALUE words, in this order when written, in any order when read:
 *
 *	model=org/m revision=abc component=draft attention=mha layers=32 kv_heads=8
 *	head_dim=128 dtype=fp16 page_tokens=64 layout=page_unified head_groups=1
 *	tp=0/1 pp=0/1 cp=0/1 dcp=0/1 dp=0/1
 *
 * (attention=mla has latent_dim and rope_dim instead of kv_heads and head_dim.) revision,
 * component, head_groups and the ranks may be left out when read; revision, component, head_groups,
 * cp, dcp and dp are not written while they have their default. The layout must be told: there is
 * no guess. Blanks, control bytes, DEL and % in values are written %xx. */
#ifndef HC_MODEL_KVSPEC_H
#define HC_MODEL_KVSPEC_H

#include "model/layout.h"
#include "model/pagehash.h"

/* Dimensions above these are refused as nonsense. */
#define HC_KVSPEC_COUNT_MAX       65536
#define HC_KVSPEC_DIM_MAX         (1 << 20)
#define HC_KVSPEC_MODEL_BYTES     256
#define HC_KVSPEC_REVISION_BYTES  128
#define HC_KVSPEC_COMPONENT_BYTES 64
/* The longest text form, with every byte of the three names escaped, and the NUL. */
#define HC_KVSPEC_TEXT_BYTES  2048
#define HC_KVSPEC_ERROR_BYTES 256
/* 16 digits and the NUL. */
#define HC_KVSPEC_FINGERPRINT 17

enum hc_dtype {
	HC_DTYPE_FP16 = 1,
	HC_DTYPE_BF16,
	HC_DTYPE_FP32,
	HC_DTYPE_FP8_E4M3,
	HC_DTYPE_FP8_E5M2,
	HC_DTYPE_INT8,
	HC_DTYPE_UINT8, /* packed rows that the engine alone understands; head_dim counts bytes */
};

enum hc_attention {
	HC_ATTENTION_MHA = 1,
	HC_ATTENTION_MLA,
};

struct hc_rank {
	uint32_t rank, size;
};

/* Names are NUL-terminated. kv_heads are those of this rank: pages are per rank. */
struct hc_kvspec {
	char model[HC_KVSPEC_MODEL_BYTES];
	char revision[HC_KVSPEC_REVISION_BYTES];   /* "" = not told */
	char component[HC_KVSPEC_COMPONENT_BYTES]; /* "" = the main cache; else "draft", "mamba",
						      "indexer", ... */
	enum hc_attention attention;
	enum hc_dtype dtype;
	enum hc_layout layout;
	uint32_t n_layers;
	uint32_t n_kv_heads, head_dim; /* MHA */
	uint32_t latent_dim, rope_dim; /* MLA */
	uint32_t page_tokens;
	uint32_t head_groups;
	struct hc_rank tp, pp, cp, dcp, dp;
};

/* Defaults: layout page_unified, one head group, every rank 0/1; all else empty, to be filled. */
void hc_kvspec_init(struct hc_kvspec *spec);
/* -EINVAL or -ERANGE with the reason (which word, why) in error. */
int hc_kvspec_check(const struct hc_kvspec *spec, char error[HC_KVSPEC_ERROR_BYTES]) HC_MUST_CHECK;
/* Reads the text form; blanks, tabs and one trailing newline separate words. Errors as
 * hc_kvspec_check; also for an unknown, doubled or missing word. */
int hc_kvspec_parse(const char *text, struct hc_kvspec *spec_p,
		    char error[HC_KVSPEC_ERROR_BYTES]) HC_MUST_CHECK;
/* The canonical text of a checked specification: parse and format are each other's inverse. */
void hc_kvspec_format(const struct hc_kvspec *spec, char text[HC_KVSPEC_TEXT_BYTES]);
/* The first 16 hex digits of the SHA-256 of the canonical text. */
void hc_kvspec_fingerprint(const struct hc_kvspec *spec, char fingerprint[HC_KVSPEC_FINGERPRINT]);
bool hc_kvspec_equal(const struct hc_kvspec *a, const struct hc_kvspec *b);

uint32_t hc_dtype_bytes(enum hc_dtype dtype);
const char *hc_dtype_name(enum hc_dtype dtype);
/* Of checked specifications, as is the rest. The plan copies a page of one to a page of the other;
 * -EINVAL where they are not convertible: undeclared, different in more than order, or with head
 * groups that do not nest. */
int hc_kvspec_convert_plan(const struct hc_kvspec *from, const struct hc_kvspec *to,
			   struct hc_copy_plan *plan_p) HC_MUST_CHECK;
void hc_kvspec_geometry(const struct hc_kvspec *spec, struct hc_geometry *geometry_p);
uint64_t hc_kvspec_page_bytes(const struct hc_kvspec *spec);

#endif
