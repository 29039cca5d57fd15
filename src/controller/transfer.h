/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer half of the controller: pages between an engine's tensors and a host pool, with
 * SGLang's calls. write copies device pages to host pages; load copies host pages to device pages,
 * layer by layer, so that the model's first layers run while later ones are still under way.
 *
 *	write -> [start_writing] -> poll -> ack
 *	load -> start_loading -> wait_layer, for each layer -> poll -> ack
 *
 * Order. What a transfer reads or writes is touched only after everything that was on the caller's
 * stream at start_writing or start_loading: pass the stream that wrote the pages (the one of the
 * forward pass), not whatever is current. Writes run in the order they were started, loads too;
 * between the two there is an order where they share a page, on either side: the later one waits,
 * on the device. wait_layer is a wait on the device as well; the caller never blocks.
 *
 * Leases. Host and device pages of a transfer belong to it until its finish event is reached; one
 * that is evicted before that is freed then. A host page counts as complete only when its write has
 * finished, never at submission.
 *
 * The ring. Three loads may be under way. A slot is free again when its load has finished and its
 * consumer, if one began to wait for layers, has waited for the last one and got there. A full ring
 * is -EAGAIN. A producer names a slot and its generation: a consumer that comes too late gets
 * -ESTALE, never the events of another load.
 *
 * Acks retire in the order of the starts and carry the whole operation. A transfer that failed has
 * an ack too, with its error; a layer that it did not copy is that error at wait_layer, so no
 * consumer reads bytes that never came. A lost device ends every transfer with -EIO.
 *
 * Errors. -EAGAIN: ring, queue or batch full, start or poll, and call again; -EBUSY: the stream is
 *being captured, or a page is not ready for this; -ENOSPC: no free pages, nothing was queued;
 *-EINVAL: a page that is not taken. Threads: any; one lock, a leaf but for the device's, never held
 *in a wait. The progress thread polls finish events; a device without threads has none, and poll
 *does it. */
#ifndef HC_CONTROLLER_TRANSFER_H
#define HC_CONTROLLER_TRANSFER_H

#include "device/plan.h"
#include "node/node.h"

/* As SGLang's. */
#define HC_TRANSFER_RING 3
/* Writes started and not finished; each has two events and its page pairs. */
#define HC_TRANSFER_WRITES_MAX 16
/* Transfers queued, and acks not yet polled, of each direction. */
#define HC_TRANSFER_QUEUE_MAX 1024
/* Pages of one transfer after merging: 64 thousand tokens of 16-token pages. */
#define HC_TRANSFER_PAGES_MAX 4096
/* Node ids that one ack carries. */
#define HC_TRANSFER_NODES_MAX HC_TRANSFER_QUEUE_MAX

/* Without a number of one's own: pinned memory through which pages go that are not registered. */
#define HC_TRANSFER_BOUNCE_BYTES (256 * HC_MIB)

struct hc_pins;
struct hc_transfer;

struct hc_transfer_config {
	struct hc_device *device;
	struct hc_plan_config plan; /* io, tensors, layout; kernels is asked of the device */
	/* The host pool, in the plan's layout: pool_pages whole ones, or host_pages slots of
	 * slot_bytes (0: the page's size) each. Registered here; it must outlive the transfer. */
	void *host;
	uint64_t host_bytes;
	uint32_t host_pages;
	uint64_t slot_bytes;
	/* Or slots of a node's pool: host_pages of them are held at once, at most. host, host_bytes
	 * and slot_bytes have no meaning then. Segments are registered when the first page of them
	 * is used; the pages of one that cannot be go through a bounce buffer. */
	struct hc_node *node;
	struct hc_reserve reserve; /* one page of the series */
	struct hc_pins *pins;
	uint64_t bounce_bytes;  /* at most, of pinned memory; 0: HC_TRANSFER_BOUNCE_BYTES */
	uint64_t staging_bytes; /* of device memory, for each direction; 0: none */
	bool engine_pages; /* the engine allocates device pages: all count as taken, load is given
			      its pages, and evict_device has no meaning */
	bool no_thread;    /* tests: poll makes all progress */
};

struct hc_producer {
	int index; /* -1: nothing was to be loaded */
	uint32_t generation;
};

struct hc_ack {
	int status; /* 0 or the error that ended it */
	int priority;
	uint32_t n_nodes;
	uint64_t n_pages;
	const int64_t *nodes; /* of each merged transfer, in order; valid until the next poll */
};

struct hc_transfer_stats {
	uint64_t n_writes, n_loads, n_write_pages, n_load_pages, n_failed;
	uint64_t n_ways[HC_PLAN_WAYS]; /* starts by mechanism */
	uint64_t n_descriptors, n_page_copies;
	uint64_t n_ring_full, n_stale, n_ordered; /* waits between the two streams */
	uint64_t n_registered_segments, n_unregistered_segments, n_bounced_pages;
	uint32_t n_in_flight, n_queued, n_leased_pages;
	uint32_t n_lost_pages; /* shared: kept to the end, for a lost device wrote into them */
	uint32_t host_free_pages, device_free_pages;
};

/* Errors of the plan and of the registration, -ENOMEM, the reason in error. Staging that cannot be
 * had is done without. */
int hc_transfer_create(const struct hc_transfer_config *config, struct hc_transfer **transfer_p,
		       char error[HC_PLAN_ERROR_BYTES]) HC_MUST_CHECK;
/* Waits for what is in flight, to the deadline; -ETIMEDOUT leaves everything as it is. */
int hc_transfer_destroy(struct hc_transfer *transfer, uint64_t deadline_ns) HC_MUST_CHECK;

/* Device pages of the pool: for the engine's own use, or by load. */
int hc_transfer_device_alloc(struct hc_transfer *transfer, uint64_t n_tokens,
			     uint32_t *pages) HC_MUST_CHECK;
/* Takes host pages and queues their writing; start: start_writing at once. On error nothing was
 * queued or taken; what goes wrong once it was started comes with its ack. priority: INT_MIN: the
 * order of creation. node -1: none. */
int hc_transfer_write(struct hc_transfer *transfer, const uint32_t *device_pages, size_t n,
		      int priority, int64_t node, bool start, uint64_t stream,
		      uint32_t *host_pages) HC_MUST_CHECK;
/* Nothing queued: 0. Merges all that is queued into one transfer. -EAGAIN, -EBUSY, -EXDEV, -ENOMEM:
 * the queue is as it was; any other error comes with the ack, too. */
int hc_transfer_start_writing(struct hc_transfer *transfer, uint64_t stream) HC_MUST_CHECK;
/* Takes device pages, or uses the caller's (given), and queues the load. -EBUSY: the write of one
 * of the host pages has not been started, or failed. */
int hc_transfer_load(struct hc_transfer *transfer, const uint32_t *host_pages, size_t n,
		     int priority, int64_t node, bool given, uint32_t *device_pages) HC_MUST_CHECK;
int hc_transfer_start_loading(struct hc_transfer *transfer, uint64_t stream,
			      struct hc_producer *producer_p) HC_MUST_CHECK;
/* The stream waits for this layer of the load; index -1: nothing to wait for. */
int hc_transfer_wait_layer(struct hc_transfer *transfer, struct hc_producer producer,
			   uint32_t layer, uint64_t stream) HC_MUST_CHECK;
/* 0 and the next ack in order, or -EAGAIN. */
int hc_transfer_poll(struct hc_transfer *transfer, enum hc_plan_direction direction,
		     struct hc_ack *ack_p) HC_MUST_CHECK;
/* Frees pages; those of a transfer in flight when it has finished. */
int hc_transfer_evict_device(struct hc_transfer *transfer, const uint32_t *pages,
			     size_t n) HC_MUST_CHECK;
int hc_transfer_evict_host(struct hc_transfer *transfer, const uint32_t *pages,
			   size_t n) HC_MUST_CHECK;
/* Shared. Leading pages of the node, held as host pages that can be loaded until they are evicted.
 * -ENOENT: the first one is a miss; -ENOSPC: no n host pages are free. */
int hc_transfer_acquire(struct hc_transfer *transfer, const struct hc_acquire *how,
			const struct hc_hash *hashes, size_t n, uint32_t *host_pages,
			size_t *n_p) HC_MUST_CHECK;
/* Shared. Host pages that were written get their names, without a copy, and are the node's: their
 * numbers are free again. -EBUSY: one is not complete, or still in use; -EINVAL: one was not
 * written here. Nothing happened then. */
int hc_transfer_publish(struct hc_transfer *transfer, const uint32_t *host_pages,
			const struct hc_publish *items, size_t n, int *results) HC_MUST_CHECK;
/* A host page whose bytes are all there. */
bool hc_transfer_host_complete(struct hc_transfer *transfer, uint32_t page);
/* Drops what is queued (its pages are freed) and all acks, after what is in flight has ended. What
 * was written stays taken. -ETIMEDOUT. */
int hc_transfer_reset(struct hc_transfer *transfer, uint64_t deadline_ns) HC_MUST_CHECK;
void hc_transfer_stats(struct hc_transfer *transfer, struct hc_transfer_stats *stats_p);

#endif
