/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's tensors and the cache: fill device pages, write them to the cache's pool, publish
 * them, load them into other device pages layer by layer, compare. On device "cpu" tensors are
 * ordinary memory; nothing else differs with "cuda".
 *
 *	cc transfer.c $(pkg-config --cflags --libs hicache) -o transfer && ./transfer */
#include <errno.h>
#include <hicache.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, PAGES = 8, N = 4, PAGE_TOKENS = 4, ROW = PAGE_TOKENS * 2 * 64 * 2, MS = 10000 };

static const char spec[] = "model=example/tiny attention=mha layers=2 kv_heads=2 head_dim=64 "
			   "dtype=fp16 page_tokens=4 layout=page_unified";

static void must(const char *what, int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "transfer: %s: %s\n", what, strerror(-rc));
	exit(1);
}

/* An engine polls in its own loop and does something else meanwhile. */
static void wait_ack(struct hicache_transfer *t, uint32_t direction)
{
	struct hicache_ack ack = {.size = sizeof(ack)};
	int rc;

	while ((rc = hicache_transfer_poll(t, direction, &ack)) == -EAGAIN)
		continue;
	must("poll", rc ? rc : ack.status);
	printf("%lld has ended: %llu pages\n", (long long)ack.nodes[0],
	       (unsigned long long)ack.n_pages);
}

int main(void)
{
	struct hicache_hash_params how = {
		.size = sizeof(how), .page_tokens = PAGE_TOKENS, .token_bytes = 4};
	struct hicache_params small = {.size = sizeof(small), .pool_bytes = 64u << 20};
	static unsigned char k[LAYERS][PAGES][ROW], v[LAYERS][PAGES][ROW];
	uint64_t k_addr[LAYERS], v_addr[LAYERS], stream;
	struct hicache_transfer_params params = {
		.size = sizeof(params), .device_pages = PAGES, .k = k_addr, .v = v_addr};
	uint32_t tokens[N * PAGE_TOKENS] = {0}, from[N], to[N], host[N], layer, i;
	struct hicache_transfer *t;
	struct hicache_device *device;
	struct hicache_series *series;
	struct hicache_space *space;
	struct hicache_hash hashes[N];
	struct hicache *hc;
	int64_t producer;
	int results[N];
	size_t n;

	for (layer = 0; layer < LAYERS; layer++) {
		k_addr[layer] = (uintptr_t)k[layer];
		v_addr[layer] = (uintptr_t)v[layer];
	}
	must("hash", hicache_page_hash(&how, tokens, N * PAGE_TOKENS, hashes, N, &n));
	must("open", hicache_open("mem:", &small, &hc));
	must("space", hicache_space_open(hc, "example", HICACHE_CREATE, NULL, &space));
	must("series", hicache_series_open(space, spec, NULL, HICACHE_CREATE, &series));
	must("device", hicache_device_open("cpu", NULL, &device)); /* or "cuda", "cuda:1" */
	must("stream", hicache_stream_create(device, &stream));    /* or the engine's own */
	must("transfer", hicache_transfer_open(device, series, &params, &t));

	must("alloc", hicache_transfer_device_alloc(t, N, from));
	for (layer = 0; layer < LAYERS; layer++)
		for (i = 0; i < N; i++) { /* the forward pass */
			memset(k[layer][from[i]], (int)(1 + 10 * layer + i), ROW);
			memset(v[layer][from[i]], (int)(101 + 10 * layer + i), ROW);
		}
	must("write", hicache_transfer_write(t, from, N, 0, 7, 0, stream, host));
	wait_ack(t, HICACHE_WRITES);
	must("publish", hicache_transfer_publish(t, host, hashes, N, NULL, results));

	must("acquire", hicache_transfer_acquire(t, hashes, N, MS, host, &n));
	must("load", hicache_transfer_load(t, host, n, 0, 8, 0, to));
	must("start", hicache_transfer_start_loading(t, stream, &producer));
	for (layer = 0; layer < LAYERS; layer++) /* before the attention of each layer */
		must("layer", hicache_transfer_wait_layer(t, producer, layer, stream));
	must("sync", hicache_stream_sync(device, stream, MS));
	for (layer = 0; layer < LAYERS; layer++)
		for (i = 0; i < n; i++)
			if (memcmp(k[layer][from[i]], k[layer][to[i]], ROW) ||
			    memcmp(v[layer][from[i]], v[layer][to[i]], ROW))
				must("compare", -EIO);
	wait_ack(t, HICACHE_LOADS);
	printf("%zu pages are the same\n", n);
	must("close", hicache_transfer_close(t, MS)); /* gives back what is held */
	must("destroy", hicache_stream_destroy(device, stream));
	must("close", hicache_device_close(device));
	return hicache_series_close(series) || hicache_space_close(space) || hicache_close(hc);
}
