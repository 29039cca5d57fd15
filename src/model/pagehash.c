/* SPDX-License-Identifier: Apache-2.0 */
/* See pagehash.h. libcrypto's SHA256_* calls are used rather than EVP: a page is a few hundred
 * bytes, and EVP's set-up would cost a third of it. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "model/pagehash.h"

#include <endian.h>
#include <openssl/sha.h>

#define WIDE_MARK 0xff
/* Units converted at once; the room for them stays in the first-level cache. */
#define CHUNK 128
/* Ids of 8 bytes that are looked at together: compilers make vectors of loops of this length. */
#define LANES 8

static const bool little_endian = __BYTE_ORDER == __LITTLE_ENDIAN;

struct hc_pagehash {
	uint32_t page_tokens;
	bool bigram;
	bool has_prior;
	struct hc_hash prior;
	size_t n_held;
	uint64_t held[];
};

void hc_sha256(const void *data, size_t size_bytes, struct hc_hash *hash_p)
{
	SHA256_CTX sha;

	/* Not SHA256(): it allocates, can fail, and says so only by not writing. */
	SHA256_Init(&sha);
	SHA256_Update(&sha, data, size_bytes);
	SHA256_Final(hash_p->bytes, &sha);
}

static uint64_t load_u64(const void *ids, size_t i)
{
	uint64_t v;

	memcpy(&v, (const char *)ids + 8 * i, 8);
	return v;
}

static uint64_t token_at(const struct hc_tokens *tokens, size_t i)
{
	uint32_t v;

	if (tokens->id_bytes == 8)
		return load_u64(tokens->ids, i);
	memcpy(&v, (const char *)tokens->ids + 4 * i, 4);
	return v;
}

static struct hc_tokens slice(const struct hc_tokens *tokens, size_t first, size_t n)
{
	return (struct hc_tokens){(const char *)tokens->ids + first * tokens->id_bytes, n,
				  tokens->id_bytes};
}

/* The bits that any token has; all of them narrow for 4-byte ids. */
static uint64_t bits_of(const struct hc_tokens *tokens)
{
	uint64_t lanes[LANES] = {0}, bits = 0;
	size_t i = 0;

	if (tokens->id_bytes == 4)
		return 0;
	for (; i + LANES <= tokens->n_tokens; i += LANES) {
		uint64_t v[LANES];

		memcpy(v, (const char *)tokens->ids + 8 * i, sizeof(v));
		for (size_t k = 0; k < LANES; k++)
			lanes[k] |= v[k];
	}
	for (; i < tokens->n_tokens; i++)
		bits |= load_u64(tokens->ids, i);
	for (size_t k = 0; k < LANES; k++)
		bits |= lanes[k];
	return bits;
}

static bool tokens_valid(const struct hc_tokens *tokens)
{
	return (tokens->id_bytes == 4 || tokens->id_bytes == 8) &&
	       (tokens->ids || !tokens->n_tokens) && tokens->n_tokens <= SIZE_MAX / 16;
}

/* n <= CHUNK ids of 8 bytes, all below 2^32. */
static void narrow(const void *ids, size_t n, uint32_t *out)
{
	size_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		uint64_t v[LANES];

		memcpy(v, (const char *)ids + 8 * i, sizeof(v));
		for (size_t k = 0; k < LANES; k++)
			out[i + k] = htole32((uint32_t)v[k]);
	}
	for (; i < n; i++)
		out[i] = htole32((uint32_t)load_u64(ids, i));
}

/* 4-byte ids, or 8-byte ids that all fit in 4. */
static void feed_narrow(SHA256_CTX *sha, const struct hc_tokens *tokens)
{
	uint32_t room[CHUNK];

	if (little_endian && tokens->id_bytes == 4) {
		SHA256_Update(sha, tokens->ids, tokens->n_tokens * 4);
		return;
	}
	for (size_t i = 0; i < tokens->n_tokens; i += CHUNK) {
		size_t n = hc_min_u64(CHUNK, tokens->n_tokens - i);

		if (tokens->id_bytes == 4) {
			for (size_t k = 0; k < n; k++)
				room[k] = htole32((uint32_t)token_at(tokens, i + k));
		} else {
			narrow((const char *)tokens->ids + 8 * i, n, room);
		}
		SHA256_Update(sha, room, n * 4);
	}
}

/* 8-byte ids. */
static void feed_wide(SHA256_CTX *sha, const struct hc_tokens *tokens)
{
	uint64_t room[CHUNK];

	if (little_endian) {
		SHA256_Update(sha, tokens->ids, tokens->n_tokens * 8);
		return;
	}
	for (size_t i = 0; i < tokens->n_tokens; i += CHUNK) {
		size_t n = hc_min_u64(CHUNK, tokens->n_tokens - i);

		for (size_t k = 0; k < n; k++)
			room[k] = htole64(load_u64(tokens->ids, i + k));
		SHA256_Update(sha, room, n * 8);
	}
}

static void feed_pairs(SHA256_CTX *sha, const struct hc_tokens *tokens, bool wide)
{
	uint64_t room[2 * CHUNK];
	size_t n_units = tokens->n_tokens - 1;

	for (size_t i = 0; i < n_units; i += CHUNK) {
		size_t n = hc_min_u64(CHUNK, n_units - i);

		for (size_t k = 0; k < n; k++) {
			uint64_t a = token_at(tokens, i + k), b = token_at(tokens, i + k + 1);

			if (wide) {
				room[2 * k] = htole64(a);
				room[2 * k + 1] = htole64(b);
			} else {
				room[k] = htole64(a | b << 32);
			}
		}
		SHA256_Update(sha, room, n * (wide ? 16 : 8));
	}
}

/* tokens is one page, valid and not empty. */
static int hash_page(const struct hc_tokens *tokens, bool bigram, const struct hc_hash *prior,
		     struct hc_hash *hash_p)
{
	uint64_t bits = bits_of(tokens);
	bool wide = bits >> 32;
	SHA256_CTX sha;

	if (bits > HC_TOKEN_MAX)
		return -ERANGE;
	SHA256_Init(&sha);
	if (prior)
		SHA256_Update(&sha, prior->bytes, HC_HASH_BYTES);
	if (wide)
		SHA256_Update(&sha, &(uint8_t){WIDE_MARK}, 1);
	if (bigram)
		feed_pairs(&sha, tokens, wide);
	else if (wide)
		feed_wide(&sha, tokens);
	else
		feed_narrow(&sha, tokens);
	SHA256_Final(hash_p->bytes, &sha);
	return 0;
}

int hc_pagehash_page(struct hc_tokens tokens, bool bigram, const struct hc_hash *prior,
		     struct hc_hash *hash_p)
{
	struct hc_hash hash;
	int err;

	if (!tokens_valid(&tokens) || tokens.n_tokens < (bigram ? 2 : 1))
		return -EINVAL;
	err = hash_page(&tokens, bigram, prior, &hash);
	if (!err)
		*hash_p = hash;
	return err;
}

size_t hc_pagehash_n_pages(size_t n_tokens, uint32_t page_tokens, bool bigram)
{
	if (bigram && n_tokens)
		n_tokens--;
	return page_tokens ? n_tokens / page_tokens : 0;
}

int hc_pagehash_chain(struct hc_tokens tokens, uint32_t page_tokens, bool bigram,
		      const struct hc_hash *prior, struct hc_hash *hashes, size_t *n_hashes_p)
{
	size_t n_pages = hc_pagehash_n_pages(tokens.n_tokens, page_tokens, bigram);

	if (!tokens_valid(&tokens) || !page_tokens || page_tokens > HC_PAGE_TOKENS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n_pages; i++) {
		struct hc_tokens page =
			slice(&tokens, i * page_tokens, (size_t)page_tokens + bigram);
		int err = hash_page(&page, bigram, prior, &hashes[i]);

		if (err)
			return err;
		prior = &hashes[i];
	}
	*n_hashes_p = n_pages;
	return 0;
}

int hc_pagehash_create(uint32_t page_tokens, bool bigram, const struct hc_hash *prior,
		       struct hc_pagehash **hasher_p)
{
	struct hc_pagehash *hasher;

	if (!page_tokens || page_tokens > HC_PAGE_TOKENS_MAX)
		return -EINVAL;
	hasher = hc_zalloc(sizeof(*hasher) + ((size_t)page_tokens + 1) * sizeof(hasher->held[0]));
	if (!hasher)
		return -ENOMEM;
	hasher->page_tokens = page_tokens;
	hasher->bigram = bigram;
	if (prior) {
		hasher->has_prior = true;
		hasher->prior = *prior;
	}
	*hasher_p = hasher;
	return 0;
}

void hc_pagehash_destroy(struct hc_pagehash *hasher)
{
	free(hasher);
}

size_t hc_pagehash_feed_n_pages(const struct hc_pagehash *hasher, size_t n_tokens)
{
	return hc_pagehash_n_pages(hasher->n_held + n_tokens, hasher->page_tokens, hasher->bigram);
}

static void hash_next(struct hc_pagehash *hasher, struct hc_tokens page, struct hc_hash *hash_p)
{
	int err =
		hash_page(&page, hasher->bigram, hasher->has_prior ? &hasher->prior : NULL, hash_p);

	/* The feed has checked every token. */
	hc_assert(!err);
	hasher->prior = *hash_p;
	hasher->has_prior = true;
}

int hc_pagehash_feed(struct hc_pagehash *hasher, struct hc_tokens tokens, struct hc_hash *hashes,
		     size_t *n_hashes_p)
{
	size_t page_n = (size_t)hasher->page_tokens + hasher->bigram;
	size_t n_hashes = 0;
	size_t i = 0;

	if (!tokens_valid(&tokens))
		return -EINVAL;
	if (bits_of(&tokens) > HC_TOKEN_MAX)
		return -ERANGE;
	while (i < tokens.n_tokens) {
		if (!hasher->n_held && tokens.n_tokens - i >= page_n) {
			hash_next(hasher, slice(&tokens, i, page_n), &hashes[n_hashes++]);
			i += hasher->page_tokens;
			continue;
		}
		hasher->held[hasher->n_held++] = token_at(&tokens, i++);
		if (hasher->n_held == page_n) {
			hash_next(hasher, hc_tokens_u64(hasher->held, page_n), &hashes[n_hashes++]);
			hasher->n_held = 0;
			/* The next page begins with the token that this one ended with. */
			if (hasher->bigram)
				i--;
		}
	}
	*n_hashes_p = n_hashes;
	return 0;
}

size_t hc_pagehash_tail(const struct hc_pagehash *hasher)
{
	return hasher->n_held;
}

int hc_pagehash_prior_parse(const char *text, struct hc_hash *prior_p, bool *present_p)
{
	if (!text || !text[0]) {
		*present_p = false;
		return 0;
	}
	if (hc_hash_parse(text, prior_p))
		return -EINVAL;
	*present_p = true;
	return 0;
}

static void feed_part(SHA256_CTX *sha, const void *data, size_t size_bytes)
{
	uint64_t length = htole64(size_bytes);

	SHA256_Update(sha, &(uint8_t){data != NULL}, 1);
	if (!data)
		return;
	SHA256_Update(sha, &length, sizeof(length));
	SHA256_Update(sha, data, size_bytes);
}

static bool namespace_seed(const char *tag, const struct hc_namespace *ns, struct hc_hash *seed_p)
{
	SHA256_CTX sha;

	if (!ns || (!ns->extra_key && !ns->salt))
		return false;
	SHA256_Init(&sha);
	SHA256_Update(&sha, tag, strlen(tag));
	feed_part(&sha, ns->extra_key, ns->extra_key_bytes);
	feed_part(&sha, ns->salt, ns->salt_bytes);
	SHA256_Final(seed_p->bytes, &sha);
	return true;
}

const struct hc_hash *hc_pagehash_root(const struct hc_hash *prior, const struct hc_namespace *ns,
				       struct hc_hash *room)
{
	if (prior)
		return prior;
	return namespace_seed("sglang-cache-namespace-v1", ns, room) ? room : NULL;
}

int64_t hc_pagehash_event_id(const struct hc_hash *hash)
{
	uint64_t id;

	memcpy(&id, hash->bytes, sizeof(id));
	return (int64_t)be64toh(id);
}

int64_t hc_pagehash_event_id_namespaced(const struct hc_hash *hash, const struct hc_namespace *ns)
{
	uint8_t text[HC_HASH_BYTES + 8];
	struct hc_hash seed, id;

	if (!namespace_seed("sglang-kv-event-namespace-v1", ns, &seed))
		return hc_pagehash_event_id(hash);
	memcpy(text, seed.bytes, HC_HASH_BYTES);
	memcpy(text + HC_HASH_BYTES, hash->bytes, 8);
	hc_sha256(text, sizeof(text), &id);
	return hc_pagehash_event_id(&id);
}
