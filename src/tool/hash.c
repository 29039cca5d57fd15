/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl hash: token ids in, one page hash a line out. Needs no daemon. */
#include "tool/tool.h"

#include <getopt.h>

#include "model/pagehash.h"
#include "util/size.h"

/* Tokens that are hashed at once. */
#define HC_HASH_BATCH 4096u

struct hc_hash_args {
	uint64_t page_tokens;
	bool bigram;
	bool has_prior;
	struct hc_hash prior;
	struct hc_namespace ns;
};

static int hc_hash_args_parse(int argc, char **argv, struct hc_hash_args *args)
{
	static const struct option options[] = {
		{"page-tokens", required_argument, NULL, 'n'},
		{"prior", required_argument, NULL, 'p'},
		{"bigram", no_argument, NULL, 'b'},
		{"extra-key", required_argument, NULL, 'e'},
		{"cache-salt", required_argument, NULL, 's'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			if (hc_u64_parse(optarg, &args->page_tokens) || !args->page_tokens ||
			    args->page_tokens > HC_PAGE_TOKENS_MAX)
				return hc_tool_usage(
					"hash: --page-tokens %s: a number from 1 to %u is wanted",
					optarg, HC_PAGE_TOKENS_MAX);
			break;
		case 'p':
			if (hc_pagehash_prior_parse(optarg, &args->prior, &args->has_prior) ||
			    !args->has_prior)
				return hc_tool_usage("hash: --prior %s: the hash of the page "
						     "before is wanted, 64 lower-case "
						     "hex digits",
						     optarg);
			break;
		case 'b':
			args->bigram = true;
			break;
		case 'e':
			args->ns.extra_key = optarg;
			args->ns.extra_key_bytes = strlen(optarg);
			break;
		case 's':
			args->ns.salt = optarg;
			args->ns.salt_bytes = strlen(optarg);
			break;
		default:
			return hc_tool_bad_option(c, argv);
		}
	}
	if (optind < argc)
		return hc_tool_usage("hash: %s: tokens are read from standard input", argv[optind]);
	if (!args->page_tokens)
		return hc_tool_usage("hash: --page-tokens is missing");
	return 0;
}

/* --- tokens from standard input --- */

static bool hc_is_separator(int c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v' ||
	       c == ',';
}

/* The next word, cut to the room; false at the end. */
static bool hc_word_next(char *word, size_t room)
{
	size_t n = 0;
	int c;

	do {
		c = getchar_unlocked();
	} while (c != EOF && hc_is_separator(c));
	for (; c != EOF && !hc_is_separator(c); c = getchar_unlocked()) {
		if (n + 1 < room)
			word[n++] = (c >= ' ' && c < 0x7f) ? (char)c : '?';
	}
	word[n] = 0;
	return n > 0;
}

/* Reads up to max tokens. position: of the token before, from 1. */
static int hc_tokens_read(uint64_t *tokens, size_t max, uint64_t *position_p, size_t *n_p)
{
	char word[48];
	size_t n = 0;

	while (n < max && hc_word_next(word, sizeof(word))) {
		int rc = hc_u64_parse(word, &tokens[n]);

		++*position_p;
		if (rc == -EINVAL && word[0] == '-') {
			hc_tool_error("token %llu, %s: a token id is not negative",
				      (unsigned long long)*position_p, word);
			return HC_TOOL_FAILED;
		}
		if (rc == -EINVAL) {
			hc_tool_error("token %llu, %s: this is not a token id (decimal digits)",
				      (unsigned long long)*position_p, word);
			return HC_TOOL_FAILED;
		}
		if (rc || tokens[n] > HC_TOKEN_MAX) {
			hc_tool_error("token %llu, %s: a token id has at most 63 bits",
				      (unsigned long long)*position_p, word);
			return HC_TOOL_FAILED;
		}
		n++;
	}
	if (ferror(stdin)) {
		hc_tool_error("standard input: %m");
		return HC_TOOL_FAILED;
	}
	*n_p = n;
	return 0;
}

static int hc_hash_stream(struct hc_pagehash *hasher)
{
	static uint64_t tokens[HC_HASH_BATCH];
	static struct hc_hash hashes[HC_HASH_BATCH];
	char text[HC_HASH_TEXT];
	uint64_t position = 0;
	size_t n, n_hashes;
	int status;

	do {
		status = hc_tokens_read(tokens, HC_HASH_BATCH, &position, &n);
		if (status || !n)
			break;
		if (hc_pagehash_feed(hasher, hc_tokens_u64(tokens, n), hashes, &n_hashes)) {
			hc_tool_error("the tokens could not be hashed");
			return HC_TOOL_FAILED;
		}
		for (size_t i = 0; i < n_hashes; i++) {
			hc_hash_format(&hashes[i], text);
			puts(text);
		}
	} while (n == HC_HASH_BATCH);
	return status;
}

int hc_tool_hash(const struct hc_tool *tool, int argc, char **argv)
{
	struct hc_hash_args args = {0};
	struct hc_pagehash *hasher;
	struct hc_hash room;
	int status = hc_hash_args_parse(argc, argv, &args);

	(void)tool;
	if (status)
		return status;
	if (hc_pagehash_create(
		    (uint32_t)args.page_tokens, args.bigram,
		    hc_pagehash_root(args.has_prior ? &args.prior : NULL, &args.ns, &room),
		    &hasher)) {
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	status = hc_hash_stream(hasher);
	hc_pagehash_destroy(hasher);
	return status;
}
