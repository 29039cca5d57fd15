/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a page: its 32-byte hash, and the key that the node uses (series and hash). Pure
 * values, no state. A hash of fewer than 64 digits is left-aligned, zeros after it; how many digits
 * count is part of the series. */
#ifndef HC_MODEL_HASH_H
#define HC_MODEL_HASH_H

#include "util/base.h"
#include "util/hex.h"

#define HC_HASH_BYTES  32
#define HC_HASH_DIGITS 64
/* Room for the text form and its NUL. */
#define HC_HASH_TEXT 65

struct hc_hash {
	uint8_t bytes[HC_HASH_BYTES];
};

/* Series ids are unique in a node, over all spaces: so (series, hash) is (space, series, hash). */
struct hc_key {
	uint32_t series;
	struct hc_hash hash;
};

_Static_assert(sizeof(struct hc_hash) == 32, "hashes lie in files and shared memory");
_Static_assert(sizeof(struct hc_key) == 36, "keys lie in requests");

static inline int hc_hash_compare(const struct hc_hash *a, const struct hc_hash *b)
{
	return memcmp(a->bytes, b->bytes, HC_HASH_BYTES);
}

static inline bool hc_hash_equal(const struct hc_hash *a, const struct hc_hash *b)
{
	return hc_hash_compare(a, b) == 0;
}

/* All zero: "no hash" wherever a hash is optional (the parent of a first page). */
static inline bool hc_hash_is_zero(const struct hc_hash *hash)
{
	static const struct hc_hash zero;

	return hc_hash_equal(hash, &zero);
}

static inline void hc_hash_format(const struct hc_hash *hash, char text[HC_HASH_TEXT])
{
	hc_hex_encode(hash->bytes, HC_HASH_BYTES, text);
}

/* Exactly 64 lower-case hex digits and nothing after them, else -EINVAL. */
static inline HC_MUST_CHECK int hc_hash_parse(const char *text, struct hc_hash *hash_p)
{
	struct hc_hash hash;

	if (strlen(text) != HC_HASH_DIGITS || hc_hex_decode(text, hash.bytes, HC_HASH_BYTES))
		return -EINVAL;
	*hash_p = hash;
	return 0;
}

static inline bool hc_key_equal(const struct hc_key *a, const struct hc_key *b)
{
	return a->series == b->series && hc_hash_equal(&a->hash, &b->hash);
}

#endif
