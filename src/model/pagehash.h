/* SPDX-License-Identifier: Apache-2.0 */
/* The page hash, byte for byte SGLang's (0.5.2 to 0.5.23), and its namespace seeds and event ids.
 *
 *	hash(page) = SHA-256([32 bytes of the page before] [tokens, 4 bytes little-endian each])
 *
 * A page with any token above 2^32 - 1 is wide: the byte FF, then 8 bytes a token. Bigram: a page
 * of P units covers P + 1 tokens and hashes each neighbouring pair; neighbouring pages share a
 * token. A token above 2^63 - 1 is -ERANGE (a negative one, seen from Python).
 *
 * Pure functions; a struct hc_pagehash belongs to one thread at a time. Nothing here pads or stores
 * a partial page: chains and streams yield whole pages only; hc_pagehash_page hashes exactly what
 * it is given. */
#ifndef HC_MODEL_PAGEHASH_H
#define HC_MODEL_PAGEHASH_H

#include "model/hash.h"

#define HC_TOKEN_MAX ((uint64_t)INT64_MAX)
/* A limit against absurd input: far above any engine's page. */
#define HC_PAGE_TOKENS_MAX ((uint32_t)1 << 20)

/* An array of token ids of 4 or 8 bytes each, host byte order. */
struct hc_tokens {
	const void *ids;
	size_t n_tokens;
	uint32_t id_bytes;
};

static inline struct hc_tokens hc_tokens_u32(const uint32_t *ids, size_t n_tokens)
{
	return (struct hc_tokens){ids, n_tokens, 4};
}

static inline struct hc_tokens hc_tokens_u64(const uint64_t *ids, size_t n_tokens)
{
	return (struct hc_tokens){ids, n_tokens, 8};
}

/* One page, whole or partial, of all given tokens. prior NULL: no page before it.
 * -EINVAL: no token (bigram: fewer than 2) or id_bytes neither 4 nor 8. -ERANGE: a token above
 * HC_TOKEN_MAX. */
int hc_pagehash_page(struct hc_tokens tokens, bool bigram, const struct hc_hash *prior,
		     struct hc_hash *hash_p) HC_MUST_CHECK;

/* How many whole pages n_tokens tokens make. */
size_t hc_pagehash_n_pages(size_t n_tokens, uint32_t page_tokens, bool bigram);

/* Hashes of all whole pages, in order; the tail that fills no page is left out. Writes
 * hc_pagehash_n_pages(...) hashes. -EINVAL, -ERANGE as above (page_tokens 1 to HC_PAGE_TOKENS_MAX);
 * on an error the hashes before the bad page have been written, *n_hashes_p has not. */
int hc_pagehash_chain(struct hc_tokens tokens, uint32_t page_tokens, bool bigram,
		      const struct hc_hash *prior, struct hc_hash *hashes,
		      size_t *n_hashes_p) HC_MUST_CHECK;

/* The same for tokens that arrive in pieces. */
struct hc_pagehash;
int hc_pagehash_create(uint32_t page_tokens, bool bigram, const struct hc_hash *prior,
		       struct hc_pagehash **hasher_p) HC_MUST_CHECK;
void hc_pagehash_destroy(struct hc_pagehash *hasher);
/* How many hashes a feed of n_tokens more will write. */
size_t hc_pagehash_feed_n_pages(const struct hc_pagehash *hasher, size_t n_tokens);
/* Takes all tokens, writes the hash of each page that they complete. A token out of range: -ERANGE,
 * nothing of this call is taken. */
int hc_pagehash_feed(struct hc_pagehash *hasher, struct hc_tokens tokens, struct hc_hash *hashes,
		     size_t *n_hashes_p) HC_MUST_CHECK;
/* Tokens that wait for their page to become whole. */
size_t hc_pagehash_tail(const struct hc_pagehash *hasher);

/* The prior hash as users write it. NULL or "": *present_p false. Else 64 lower-case hex digits, or
 * -EINVAL. */
int hc_pagehash_prior_parse(const char *text, struct hc_hash *prior_p,
			    bool *present_p) HC_MUST_CHECK;

/* What separates tenants and adapters whose tokens are equal. data NULL: absent, which differs from
 * empty. */
struct hc_namespace {
	const void *extra_key;
	size_t extra_key_bytes;
	const void *salt;
	size_t salt_bytes;
};

/* What the first page of a request is chained from: the prior if there is one (the namespace is in
 * it already), else the namespace's seed, written to *room, else NULL. */
const struct hc_hash *hc_pagehash_root(const struct hc_hash *prior, const struct hc_namespace *ns,
				       struct hc_hash *room);

/* SGLang's id of a page in KV events: the first 8 bytes as a big-endian signed integer. */
int64_t hc_pagehash_event_id(const struct hc_hash *hash);
/* The same under a namespace; the plain id where both parts are absent. Never part of a storage
 * key. */
int64_t hc_pagehash_event_id_namespaced(const struct hc_hash *hash, const struct hc_namespace *ns);

/* SHA-256 of any bytes, for the other names of this layer (fingerprints, opaque pages). */
void hc_sha256(const void *data, size_t size_bytes, struct hc_hash *hash_p);

#endif
