/* SPDX-License-Identifier: Apache-2.0 */
/* Request traces in Mooncake's format: one JSON object a line, of which input_length (tokens) and
 * hash_ids (one prefix id per 512-token block) are used. Only full blocks are kept. `.xz` files are
 * read through xz. */
#ifndef HC_TOOL_TRACE_H
#define HC_TOOL_TRACE_H

#include "util/base.h"

#define HC_TRACE_BLOCK_TOKENS 512u
/* Limits against absurd input: blocks of one request, and of all. */
#define HC_TRACE_BLOCKS_MAX (1u << 20)
#define HC_TRACE_IDS_MAX    (1u << 28)
/* Of one line, and of lines without a block, which no other limit counts. */
#define HC_TRACE_LINE_BYTES_MAX (32u << 20)
#define HC_TRACE_EMPTY_MAX      (1u << 24)

struct hc_trace_request {
	size_t first; /* in ids */
	uint32_t n;   /* full blocks */
};

struct hc_trace {
	uint64_t *ids;
	size_t n_ids, ids_room;
	struct hc_trace_request *requests;
	size_t n_requests, requests_room;
	uint64_t n_unique;
};

/* Errors are printed with file and line. */
int hc_trace_read(const char *path, struct hc_trace *trace_p) HC_MUST_CHECK;
/* One line into a zeroed or growing trace; -EINVAL with the reason in why; -ENOMEM. */
int hc_trace_line(struct hc_trace *trace, const char *line, char *why, size_t room) HC_MUST_CHECK;
void hc_trace_free(struct hc_trace *trace);

#endif
