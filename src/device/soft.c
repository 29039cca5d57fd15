/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and work of the devices without a GPU. See soft.h. */
#include "device/soft.h"

#include <sys/mman.h>

#include "util/log.h"

void hc_soft_queue_init(struct hc_soft_queue *queue)
{
	queue->head = NULL;
	queue->tail = &queue->head;
	queue->n_ops = 0;
}

int hc_soft_queue_push(struct hc_soft_queue *queue, struct hc_soft_op *op)
{
	if (queue->n_ops == HC_DEVICE_STREAM_OPS_MAX) {
		hc_soft_op_free(op);
		return -EAGAIN;
	}
	*queue->tail = op;
	queue->tail = &op->next;
	queue->n_ops++;
	return 0;
}

struct hc_soft_op *hc_soft_queue_pop(struct hc_soft_queue *queue)
{
	struct hc_soft_op *op = queue->head;

	queue->head = op->next;
	if (!queue->head)
		queue->tail = &queue->head;
	queue->n_ops--;
	return op;
}

void hc_soft_stream_init(struct hc_soft_stream *stream, struct hc_device *device)
{
	stream->base.device = device;
	stream->target = stream;
	hc_soft_queue_init(&stream->queue);
}

void hc_soft_stream_add(struct hc_soft_streams *streams, struct hc_soft_stream *stream)
{
	stream->next = streams->first;
	streams->first = stream;
}

void hc_soft_stream_remove(struct hc_soft_streams *streams, struct hc_soft_stream *stream)
{
	struct hc_soft_stream **link = &streams->first;

	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
}

static struct hc_soft_stream *stream_find(const struct hc_soft_streams *streams, uint64_t handle)
{
	struct hc_soft_stream *stream = streams->first;

	if (handle <= 2)
		return streams->legacy;
	while (stream && (uintptr_t)stream != handle)
		stream = stream->next;
	return stream;
}

int hc_soft_stream_import(struct hc_device *device, pthread_mutex_t *lock,
			  const struct hc_soft_streams *streams, uint64_t handle,
			  struct hc_device_stream **stream_p)
{
	struct hc_soft_stream *stream = hc_zalloc(sizeof(*stream));

	if (!stream)
		return -ENOMEM;
	stream->base = (struct hc_device_stream){device, true};
	pthread_mutex_lock(lock);
	stream->target = stream_find(streams, handle);
	pthread_mutex_unlock(lock);
	if (!stream->target) {
		hc_error(device->ops->name, "stream %#llx is not one of this device",
			 (unsigned long long)handle);
		free(stream);
		return -EXDEV;
	}
	*stream_p = &stream->base;
	return 0;
}

uint64_t hc_soft_stream_handle(struct hc_device_stream *stream)
{
	return (uintptr_t)((struct hc_soft_stream *)stream)->target;
}

int hc_soft_event_create(struct hc_device *device, struct hc_device_event **event_p)
{
	struct hc_soft_event *event = hc_zalloc(sizeof(*event));

	if (!event)
		return -ENOMEM;
	event->base.device = device;
	event->n_refs = 1;
	*event_p = &event->base;
	return 0;
}

void hc_soft_event_put(struct hc_soft_event *event)
{
	if (!--event->n_refs)
		free(event);
}

int hc_soft_op_copy(struct hc_device *device, const struct hc_device_copy *copies, size_t n,
		    struct hc_soft_op **op_p)
{
	struct hc_soft_op *op = hc_zalloc(sizeof(*op) + n * sizeof(op->copies[0]));

	if (!op)
		return -ENOMEM;
	op->kind = HC_SOFT_COPY;
	op->n_left = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		const struct hc_device_copy *c = &copies[i];

		op->copies[i].src = hc_device_real(device, c->src, c->size_bytes);
		op->copies[i].dst = hc_device_real(device, c->dst, c->size_bytes);
		op->copies[i].size_bytes = c->size_bytes;
		if (!op->copies[i].src || !op->copies[i].dst) {
			free(op);
			return -EFAULT;
		}
	}
	*op_p = op;
	return 0;
}

int hc_soft_op_pages(const struct hc_page_copy *copy, struct hc_soft_op **op_p)
{
	struct hc_soft_op *op = hc_zalloc(sizeof(*op));

	if (!op)
		return -ENOMEM;
	op->kind = HC_SOFT_PAGES;
	op->pages = *copy;
	op->n_left = copy->n_pages;
	*op_p = op;
	return 0;
}

int hc_soft_op_event(enum hc_soft_kind kind, struct hc_soft_event *event, struct hc_soft_op **op_p)
{
	struct hc_soft_op *op = hc_zalloc(sizeof(*op));

	if (!op)
		return -ENOMEM;
	op->kind = kind;
	op->event = event;
	event->n_refs++;
	op->ticket = kind == HC_SOFT_RECORD ? ++event->recorded : event->recorded;
	*op_p = op;
	return 0;
}

void hc_soft_op_free(struct hc_soft_op *op)
{
	if (op->event)
		hc_soft_event_put(op->event);
	free(op);
}

/* Run by run, for the runs of one page may lie in several ranges. */
static int run_page(struct hc_device *device, const struct hc_page_copy *c, uint32_t page_i)
{
	uint32_t units = c->run_bytes / HC_PAGE_COPY_UNIT;
	uint32_t per_page = hc_page_copy_units_per_page(c);
	const struct hc_page_pair *pair =
		hc_device_real(device, c->pairs + page_i * sizeof(*pair), sizeof(*pair));

	if (!pair)
		return -EIO;
	for (uint32_t unit = 0; unit < per_page; unit += units) {
		struct hc_page_copy_at at = hc_page_copy_find(c, unit);
		const void *src =
			hc_device_real(device, c->src + pair->src + (uint64_t)at.src, c->run_bytes);
		void *dst =
			hc_device_real(device, c->dst + pair->dst + (uint64_t)at.dst, c->run_bytes);

		if (!src || !dst)
			return -EIO;
		memcpy(dst, src, c->run_bytes);
	}
	return 0;
}

int hc_soft_op_step(struct hc_device *device, struct hc_soft_op *op, struct hc_rng *rng)
{
	uint32_t i = rng ? (uint32_t)hc_rng_below(rng, op->n_left) : op->n_left - 1;
	struct hc_soft_copy copy;

	if (op->kind == HC_SOFT_PAGES)
		return run_page(device, &op->pages, --op->n_left);
	copy = op->copies[i];
	op->copies[i] = op->copies[--op->n_left];
	memcpy(copy.dst, copy.src, copy.size_bytes);
	return 0;
}

/* Memory with rights followed by as much without. */
static void *map_twice(uint64_t size_bytes)
{
	uint64_t mapped_bytes = hc_align_up(size_bytes, HC_BLOCK_BYTES);
	char *real = mmap(NULL, 2 * mapped_bytes, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (real == MAP_FAILED)
		return NULL;
	if (mprotect(real, mapped_bytes, PROT_READ | PROT_WRITE)) {
		munmap(real, 2 * mapped_bytes);
		return NULL;
	}
	return real;
}

static void unmap_twice(hc_device_addr addr, uint64_t size_bytes)
{
	uint64_t mapped_bytes = hc_align_up(size_bytes, HC_BLOCK_BYTES);

	munmap((char *)(uintptr_t)addr - mapped_bytes, 2 * mapped_bytes);
}

int hc_soft_mem_alloc(struct hc_device *device, uint64_t size_bytes, hc_device_addr *addr_p,
		      void **real_p)
{
	void *real;

	if (size_bytes > INT64_MAX / 4)
		return -ENOMEM;
	real = map_twice(size_bytes);
	if (!real) {
		hc_error(device->ops->name, "no memory for %llu bytes: %m",
			 (unsigned long long)size_bytes);
		return -ENOMEM;
	}
	*real_p = real;
	*addr_p = (uintptr_t)real + hc_align_up(size_bytes, HC_BLOCK_BYTES);
	return 0;
}

void hc_soft_mem_free(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes)
{
	unmap_twice(addr, size_bytes);
}

/* An engine's tensors in ordinary memory: the address is where they are. */
int hc_soft_mem_import(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes,
		       void **real_p)
{
	*real_p = (void *)(uintptr_t)addr;
	return 0;
}

int hc_soft_host_alloc(struct hc_device *device, uint64_t size_bytes, void **host_p,
		       hc_device_addr *addr_p)
{
	return hc_soft_mem_alloc(device, size_bytes, addr_p, host_p);
}

void hc_soft_host_free(struct hc_device *device, void *host, hc_device_addr addr,
		       uint64_t size_bytes)
{
	unmap_twice(addr, size_bytes);
}

int hc_soft_host_register(struct hc_device *device, void *host, uint64_t size_bytes, bool read_only,
			  hc_device_addr *addr_p)
{
	void *alias = mmap(NULL, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			   -1, 0);

	if (alias == MAP_FAILED) {
		hc_error(device->ops->name, "cannot register %llu bytes: %m",
			 (unsigned long long)size_bytes);
		return -ENOMEM;
	}
	*addr_p = (uintptr_t)alias;
	return 0;
}

void hc_soft_host_unregister(struct hc_device *device, void *host, hc_device_addr addr,
			     uint64_t size_bytes)
{
	munmap((void *)(uintptr_t)addr, size_bytes);
}
