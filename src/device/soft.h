/* SPDX-License-Identifier: Apache-2.0 */
/* What the devices without a GPU (cpu, step) share: memory, and the work that streams hold. Device
 * memory is mapped twice: where the bytes are, and, without any right, at the address that is
 * handed out; so are aliases of host memory. A host that uses an address of the device dies at
 * once.
 *
 * Nothing here locks but the import; the device that owns a stream does. */
#ifndef HC_DEVICE_SOFT_H
#define HC_DEVICE_SOFT_H

#include "device/device.h"
#include "util/rng.h"

enum hc_soft_kind { HC_SOFT_COPY, HC_SOFT_PAGES, HC_SOFT_RECORD, HC_SOFT_WAIT };

struct hc_soft_event {
	struct hc_device_event base;
	uint64_t recorded; /* the latest record */
	uint64_t done;     /* the latest record that was reached */
	uint32_t n_refs;   /* work that names it, and its owner */
};

struct hc_soft_copy {
	const void *src;
	void *dst;
	uint64_t size_bytes;
};

struct hc_soft_op {
	struct hc_soft_op *next;
	enum hc_soft_kind kind;
	struct hc_soft_event *event;
	uint64_t ticket;
	struct hc_page_copy pages;
	uint32_t n_left; /* copies, or pages, that have not run */
	struct hc_soft_copy copies[];
};

/* The queue of one stream. */
struct hc_soft_queue {
	struct hc_soft_op *head, **tail;
	uint32_t n_ops;
};

void hc_soft_queue_init(struct hc_soft_queue *queue);
/* Takes the op over; -EAGAIN (and frees it) when the queue is full. */
int hc_soft_queue_push(struct hc_soft_queue *queue, struct hc_soft_op *op) HC_MUST_CHECK;
struct hc_soft_op *hc_soft_queue_pop(struct hc_soft_queue *queue);

/* What a stream begins with. An imported one is nothing more: it stands for its target. */
struct hc_soft_stream {
	struct hc_device_stream base;
	struct hc_soft_stream *target; /* itself, but for an imported one */
	struct hc_soft_stream *next;   /* own streams of the device */
	struct hc_soft_queue queue;
};

struct hc_soft_streams {
	struct hc_soft_stream *first;
	struct hc_soft_stream *legacy; /* handles 0, 1 and 2 */
};

void hc_soft_stream_init(struct hc_soft_stream *stream, struct hc_device *device);
void hc_soft_stream_add(struct hc_soft_streams *streams, struct hc_soft_stream *stream);
void hc_soft_stream_remove(struct hc_soft_streams *streams, struct hc_soft_stream *stream);
/* Takes the lock, the device's, while it looks. -EXDEV; free() undoes it. */
int hc_soft_stream_import(struct hc_device *device, pthread_mutex_t *lock,
			  const struct hc_soft_streams *streams, uint64_t handle,
			  struct hc_device_stream **stream_p) HC_MUST_CHECK;
uint64_t hc_soft_stream_handle(struct hc_device_stream *stream);

int hc_soft_event_create(struct hc_device *device, struct hc_device_event **event_p);
void hc_soft_event_put(struct hc_soft_event *event);

/* Addresses are translated here, those of page copies when they run. */
int hc_soft_op_copy(struct hc_device *device, const struct hc_device_copy *copies, size_t n,
		    struct hc_soft_op **op_p) HC_MUST_CHECK;
int hc_soft_op_pages(const struct hc_page_copy *copy, struct hc_soft_op **op_p) HC_MUST_CHECK;
/* record: counts the event's records up; wait: binds to the latest one. */
int hc_soft_op_event(enum hc_soft_kind kind, struct hc_soft_event *event,
		     struct hc_soft_op **op_p) HC_MUST_CHECK;
void hc_soft_op_free(struct hc_soft_op *op);
/* Runs one copy or one page of a copying op, a random one (rng NULL: the last). -EIO: the memory it
 * names is not known any more. */
int hc_soft_op_step(struct hc_device *device, struct hc_soft_op *op, struct hc_rng *rng);

int hc_soft_mem_alloc(struct hc_device *device, uint64_t size_bytes, hc_device_addr *addr_p,
		      void **real_p);
void hc_soft_mem_free(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes);
int hc_soft_mem_import(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes,
		       void **real_p);
int hc_soft_host_alloc(struct hc_device *device, uint64_t size_bytes, void **host_p,
		       hc_device_addr *addr_p);
void hc_soft_host_free(struct hc_device *device, void *host, hc_device_addr addr,
		       uint64_t size_bytes);
int hc_soft_host_register(struct hc_device *device, void *host, uint64_t size_bytes, bool read_only,
			  hc_device_addr *addr_p);
void hc_soft_host_unregister(struct hc_device *device, void *host, hc_device_addr addr,
			     uint64_t size_bytes);

#endif
