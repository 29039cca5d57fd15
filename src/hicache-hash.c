/* SPDX-License-Identifier: Apache-2.0 */
/* See hicache.h: page hashes. Pure functions over model/pagehash.h. */
#include "hicache-internal.h"

#define HC_HASH_PARAMS_BYTES_MIN offsetof(struct hicache_hash_params, flags)

size_t hicache_page_count(size_t n_tokens, uint32_t page_tokens, uint32_t flags)
{
	return hc_pagehash_n_pages(n_tokens, page_tokens, flags & HICACHE_HASH_BIGRAM);
}

static int hc_public_hash_check(const struct hicache_hash_params *params, const void *tokens,
				size_t n_tokens)
{
	if (params->token_bytes != 4 && params->token_bytes != 8) {
		hc_error(HC_PUBLIC, "page hash: token_bytes is %u: token ids are of 4 or 8 bytes",
			 params->token_bytes);
		return -EINVAL;
	}
	if (!params->page_tokens || params->page_tokens > HC_PAGE_TOKENS_MAX) {
		hc_error(HC_PUBLIC, "page hash: page_tokens is %u: it is 1 to %u",
			 params->page_tokens, HC_PAGE_TOKENS_MAX);
		return -EINVAL;
	}
	if (params->flags & ~HICACHE_HASH_BIGRAM) {
		hc_error(HC_PUBLIC, "page hash: flags %#x: unknown bits", params->flags);
		return -EINVAL;
	}
	if ((n_tokens && !tokens) || (params->extra_key_bytes && !params->extra_key) ||
	    (params->salt_bytes && !params->salt)) {
		hc_error(HC_PUBLIC, "page hash: a pointer is NULL and its length is not 0");
		return -EINVAL;
	}
	return 0;
}

int hicache_page_hash(const struct hicache_hash_params *given, const void *tokens, size_t n_tokens,
		      struct hicache_hash *hashes, size_t room, size_t *n_hashes_p)
{
	struct hicache_hash_params params;
	const struct hc_hash *root;
	struct hc_hash seed;
	size_t n;
	int rc = given ? hc_public_params("hash params", given, HC_HASH_PARAMS_BYTES_MIN, &params,
					  sizeof(params))
		       : -EINVAL;

	if (!rc)
		rc = hc_public_hash_check(&params, tokens, n_tokens);
	if (rc)
		return rc;
	n = hc_pagehash_n_pages(n_tokens, params.page_tokens, params.flags & HICACHE_HASH_BIGRAM);
	if (n > room || (n && !hashes)) {
		hc_error(HC_PUBLIC,
			 "page hash: %zu tokens make %zu pages, there is room for %zu: ask "
			 "hicache_page_count",
			 n_tokens, n, hashes ? room : 0);
		return -ENOSPC;
	}
	root = hc_pagehash_root(params.prior ? hc_public_hashes(params.prior) : NULL,
				&(struct hc_namespace){params.extra_key, params.extra_key_bytes,
						       params.salt, params.salt_bytes},
				&seed);
	rc = hc_pagehash_chain((struct hc_tokens){tokens, n_tokens, params.token_bytes},
			       params.page_tokens, params.flags & HICACHE_HASH_BIGRAM, root,
			       (struct hc_hash *)hashes, &n);
	if (rc == -ERANGE)
		hc_error(HC_PUBLIC, "page hash: a token id is negative or above 2^63 - 1");
	if (!rc)
		*n_hashes_p = n;
	return rc;
}

void hicache_hash_format(const struct hicache_hash *hash, char text[65])
{
	hc_hash_format(hc_public_hashes(hash), text);
}

int hicache_hash_parse(const char *text, struct hicache_hash *hash_p)
{
	return hc_hash_parse(text, (struct hc_hash *)hash_p);
}
