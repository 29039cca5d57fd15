/* SPDX-License-Identifier: Apache-2.0 */
/* Starting transfers: what is queued becomes one transfer, is put in order with the caller's stream
 * and with transfers of the same pages, and is enqueued layer by layer. See transfer.h. Called with
 * the lock; nothing here waits. */
#include "controller/internal.h"
#include "util/log.h"

/* A free one: writes any, loads the next of the ring. */
static struct hc_op *op_find(struct hc_transfer *t, struct hc_line *line)
{
	struct hc_op *op = &line->ops[line->next_op];

	if (op->state == HC_OP_RUNNING && !HC_MUTANT(RING))
		return NULL;
	if (op->state == HC_OP_DRAINING && !HC_MUTANT(CONSUMER)) {
		int reached = op->consumed ? hc_device_event_query(op->consumer) : 0;

		if (op->consuming || reached == -EINPROGRESS)
			return NULL;
	}
	return op;
}

static void op_clear(struct hc_transfer *t, struct hc_op *op)
{
	op->status = 0;
	op->unstarted = op->unrecorded = op->consumed = op->consuming = op->unbounced = false;
	op->n_bounced = 0;
	op->generation = ++t->generation;
	op->n_layers_done = op->n_pages = op->n_nodes = 0;
	op->priority = INT32_MAX;
}

/* Where the device finds a host page. */
static hc_device_addr host_addr(struct hc_transfer *t, uint32_t host, uint32_t bounce)
{
	if (bounce != HC_BOUNCE_NONE)
		return hc_bounce_addr(t, bounce);
	if (t->shared)
		return t->shared->held[host].addr;
	return t->host_addr + (t->config.plan.pool_layout ? hc_plan_pool_offset(t->plan, host)
							  : host * t->slot_bytes);
}

static void op_add(struct hc_transfer *t, struct hc_op *op, const struct hc_queued *q)
{
	for (uint32_t i = 0; i < q->n_pages; i++) {
		uint32_t host = q->host_pages[i], k = op->n_pages++;
		uint32_t bounce = q->bounce ? q->bounce[i] : HC_BOUNCE_NONE;

		op->pages[k] =
			(struct hc_plan_page){host_addr(t, host, bounce), q->device_pages[i]};
		op->host_pages[k] = host;
		if (op->bounce)
			op->bounce[k] = bounce;
		op->n_bounced += bounce != HC_BOUNCE_NONE;
	}
	op->nodes[op->n_nodes++] = q->node;
	if (q->priority < op->priority)
		op->priority = q->priority;
}

/* All that is queued, in its order; the queue never holds more than one transfer does. */
static int op_fill(struct hc_transfer *t, struct hc_line *line, struct hc_op *op)
{
	int64_t *nodes = malloc(line->n_queued * sizeof(*nodes));

	if (!nodes)
		return -ENOMEM;
	op_clear(t, op);
	free(op->nodes); /* NULL, but in a ring that a planted mistake reuses */
	op->nodes = nodes;
	for (uint32_t i = 0; i < line->n_queued; i++) {
		op_add(t, op, line->queue[i]);
		hc_queued_free(line->queue[i]);
	}
	line->n_queued = line->n_queued_pages = 0;
	return 0;
}

static struct hc_op *op_touching(struct hc_transfer *t, enum hc_plan_direction other, uint32_t host,
				 uint32_t device, bool on_host)
{
	struct hc_side_page *page = on_host ? &t->host_pages[host] : &t->device_pages[device];
	bool writes = (other == HC_PLAN_WRITE) == on_host;

	return writes ? page->writer : page->reader;
}

/* The op's stream waits for every running transfer of the other direction that shares a page: the
 * last of each page, for those of one stream are in order. */
static int order_pages(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *stream)
{
	enum hc_plan_direction other = op->direction == HC_PLAN_LOAD ? HC_PLAN_WRITE : HC_PLAN_LOAD;
	uint32_t mark = ++t->mark;

	for (uint32_t i = 0; i < 2 * op->n_pages; i++) {
		struct hc_op *before = op_touching(t, other, op->host_pages[i / 2],
						   op->pages[i / 2].device, i % 2);
		int err;

		if (!before || before->mark == mark || HC_MUTANT(UNORDERED))
			continue;
		before->mark = mark;
		/* What failed half way has no event to wait for. */
		if (before->status)
			return -EIO;
		err = hc_device_stream_wait(stream, before->finish);
		if (err)
			return err;
		t->stats.n_ordered++;
	}
	return 0;
}

static void note_pages(struct hc_transfer *t, struct hc_op *op)
{
	bool load = op->direction == HC_PLAN_LOAD;

	for (uint32_t i = 0; i < op->n_pages; i++) {
		struct hc_side_page *host = &t->host_pages[op->host_pages[i]];
		struct hc_side_page *device = &t->device_pages[op->pages[i].device];

		*(load ? &host->reader : &host->writer) = op;
		*(load ? &device->writer : &device->reader) = op;
	}
}

/* After all that is on the caller's stream. */
static int order_start(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *caller,
		       struct hc_device_stream *stream)
{
	int err = hc_device_event_record(op->start, caller);

	if (!err && !HC_MUTANT(NO_START))
		err = hc_device_stream_wait(stream, op->start);
	return err ? err : order_pages(t, op, stream);
}

static int enqueue_batch(struct hc_transfer *t, struct hc_device_stream *stream, size_t n)
{
	t->stats.n_descriptors += n;
	return hc_device_copy(stream, t->copies, n);
}

static int copy_layer(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *stream,
		      uint32_t layer)
{
	uint64_t cursor = 0;
	int err = 0;

	while (!err) {
		size_t n = hc_plan_copies(t->plan, op->direction, layer, op->pages, op->n_pages,
					  &cursor, t->copies, HC_DEVICE_BATCH_MAX);

		if (!n)
			break;
		err = enqueue_batch(t, stream, n);
	}
	return err;
}

/* Each transfer has its own: the device reads them when it gets there. */
static struct hc_op *pairs_of(struct hc_transfer *t, struct hc_op *op)
{
	return HC_MUTANT(PAIRS) ? &t->lines[HC_PLAN_LOAD].ops[0] : op;
}

static int launch(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *stream,
		  enum hc_page_copy_kind kind, struct hc_page_copy *copy, uint32_t first,
		  uint32_t n)
{
	copy->pairs = pairs_of(t, op)->pairs_addr + first * sizeof(*op->pairs);
	copy->n_pages = n;
	t->stats.n_page_copies++;
	return hc_device_page_copy(stream, kind, copy);
}

static void set_pair(struct hc_transfer *t, struct hc_op *op, uint32_t i, hc_device_addr host)
{
	uint64_t device = hc_plan_device_offset(t->plan, op->pages[i].device);

	pairs_of(t, op)->pairs[i] = op->direction == HC_PLAN_LOAD
					    ? (struct hc_page_pair){host, device}
					    : (struct hc_page_pair){device, host};
}

static int kernel_layer(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *stream,
			uint32_t layer)
{
	bool load = op->direction == HC_PLAN_LOAD;
	struct hc_page_copy copy;

	hc_plan_page_copy(t->plan, op->direction, layer, false, &copy);
	return launch(t, op, stream, load ? HC_PAGE_GATHER : HC_PAGE_SCATTER, &copy, 0,
		      op->n_pages);
}

/* Pages [first, first + n) gathered in staging, then copied whole. The next ones reuse staging: the
 * stream is in order. */
static int write_staged(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *stream,
			uint32_t first, uint32_t n)
{
	hc_device_addr staging = t->lines[HC_PLAN_WRITE].staging;
	uint64_t page_bytes = hc_plan_page_bytes(t->plan);
	size_t n_copies = 0;
	int err = 0;

	for (uint32_t layer = 0; layer < t->n_layers && !err; layer++) {
		struct hc_page_copy copy;

		hc_plan_page_copy(t->plan, HC_PLAN_WRITE, layer, true, &copy);
		err = launch(t, op, stream, HC_PAGE_RELAYOUT, &copy, first, n);
	}
	for (uint32_t i = 0; i < n && !err; i++) {
		if (n_copies + 2 > HC_DEVICE_BATCH_MAX) {
			err = enqueue_batch(t, stream, n_copies);
			n_copies = 0;
		}
		hc_plan_stage_copies(t->plan, HC_PLAN_WRITE, op->pages[first + i].host,
				     staging + i * page_bytes, t->copies, &n_copies);
	}
	return err ? err : enqueue_batch(t, stream, n_copies);
}

/* Layers [layer, layer + n_layers) of pages [first, first + n), each page's as one copy. */
static int load_staged(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *stream,
		       uint32_t layer, uint32_t n_layers, uint32_t first, uint32_t n)
{
	uint64_t room = hc_plan_slice_bytes(t->plan, hc_plan_slice_layers(t->plan));
	uint64_t bytes = hc_plan_slice_bytes(t->plan, n_layers);
	uint64_t offset = hc_plan_slice_offset(t->plan, layer);
	int err = 0;

	for (uint32_t done = 0; done < n && !err;) {
		size_t k = 0;

		for (; k < HC_DEVICE_BATCH_MAX && done < n; k++, done++)
			t->copies[k] = (struct hc_device_copy){
				op->pages[first + done].host + offset,
				t->lines[HC_PLAN_LOAD].staging + done * room, bytes};
		err = enqueue_batch(t, stream, k);
	}
	for (uint32_t i = 0; i < n_layers && !err; i++) {
		struct hc_page_copy copy;

		hc_plan_page_copy(t->plan, HC_PLAN_LOAD, layer + i, true, &copy);
		copy.src -= offset;
		err = launch(t, op, stream, HC_PAGE_RELAYOUT, &copy, first, n);
	}
	return err;
}

static int record_layer(struct hc_op *op, struct hc_device_stream *stream, uint32_t layer)
{
	int err = 0;

	if (op->direction == HC_PLAN_LOAD && !HC_MUTANT(LAYER_EARLY))
		err = hc_device_event_record(op->layers[layer], stream);
	if (!err)
		op->n_layers_done = layer + 1;
	return err;
}

static int enqueue_staged(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *stream)
{
	bool load = op->direction == HC_PLAN_LOAD;
	uint32_t group = load ? hc_plan_slice_layers(t->plan) : t->n_layers;
	uint64_t piece_bytes =
		load ? hc_plan_slice_bytes(t->plan, group) : hc_plan_page_bytes(t->plan);
	uint32_t chunk = (uint32_t)hc_min_u64(t->staging_bytes / piece_bytes, op->n_pages);
	int err = 0;

	for (uint32_t i = 0; i < op->n_pages; i++)
		set_pair(t, op, i, t->lines[op->direction].staging + (i % chunk) * piece_bytes);
	for (uint32_t layer = 0; layer < t->n_layers && !err; layer += group) {
		uint32_t n_layers = (uint32_t)hc_min_u64(group, t->n_layers - layer);

		for (uint32_t at = 0; at < op->n_pages && !err; at += chunk) {
			uint32_t n = (uint32_t)hc_min_u64(chunk, op->n_pages - at);

			err = load ? load_staged(t, op, stream, layer, n_layers, at, n)
				   : write_staged(t, op, stream, at, n);
		}
		for (uint32_t i = 0; i < n_layers && !err; i++)
			err = record_layer(op, stream, layer + i);
	}
	return err;
}

static int enqueue(struct hc_transfer *t, struct hc_op *op, struct hc_device_stream *stream)
{
	enum hc_plan_way way;
	int err = 0;

	hc_plan_sort(t->plan, op->pages, op->n_pages);
	way = hc_plan_choose(t->plan, op->direction, op->pages, op->n_pages, t->staging_bytes);
	t->stats.n_ways[way]++;
	if (way == HC_PLAN_STAGED)
		return enqueue_staged(t, op, stream);
	for (uint32_t i = 0; way == HC_PLAN_KERNEL && i < op->n_pages; i++)
		set_pair(t, op, i, op->pages[i].host);
	for (uint32_t layer = 0; layer < t->n_layers && !err; layer++) {
		if (op->direction == HC_PLAN_LOAD && HC_MUTANT(LAYER_EARLY))
			err = hc_device_event_record(op->layers[layer], stream);
		if (!err)
			err = way == HC_PLAN_KERNEL ? kernel_layer(t, op, stream, layer)
						    : copy_layer(t, op, stream, layer);
		if (!err)
			err = record_layer(op, stream, layer);
	}
	return err;
}

/* The op is filled: from here on its pages come back by its ack, whatever happens. */
static int run(struct hc_transfer *t, struct hc_line *line, struct hc_op *op,
	       struct hc_device_stream *caller)
{
	int err;

	op->state = HC_OP_RUNNING;
	line->next_op = (line->next_op + 1) % line->n_ops;
	if (op->direction == HC_PLAN_LOAD)
		t->stats.n_loads++, t->stats.n_load_pages += op->n_pages;
	else
		t->stats.n_writes++, t->stats.n_write_pages += op->n_pages;
	err = order_start(t, op, caller, line->stream);
	if (err) {
		/* Nothing was copied; its ack still comes after those of earlier ones. */
		op->status = err;
		op->unstarted = true;
		line->running[line->n_running++] = op;
		hc_transfer_progress_locked(t, false);
		return err;
	}
	note_pages(t, op);
	op->status = enqueue(t, op, line->stream);
	err = hc_device_event_record(op->finish, line->stream);
	op->unrecorded = err != 0;
	if (!op->status)
		op->status = err;
	line->running[line->n_running++] = op;
	pthread_cond_signal(&t->work);
	return op->status;
}

int hc_transfer_start_locked(struct hc_transfer *t, enum hc_plan_direction direction,
			     struct hc_device_stream *caller, struct hc_op **op_p)
{
	struct hc_line *line = &t->lines[direction];
	struct hc_op *op;
	int err;

	*op_p = NULL;
	if (!line->n_queued)
		return 0;
	err = hc_device_stream_check(caller);
	if (err)
		return err;
	hc_transfer_progress_locked(t, false);
	op = op_find(t, line);
	/* An ack that had no room would be lost. */
	if (!op || line->n_acks + line->n_running >= HC_TRANSFER_QUEUE_MAX ||
	    line->n_running == HC_TRANSFER_WRITES_MAX) {
		t->stats.n_ring_full++;
		return -EAGAIN;
	}
	err = op_fill(t, line, op);
	if (err)
		return err;
	t->stats.n_bounced_pages += op->n_bounced;
	*op_p = op;
	return run(t, line, op, caller);
}

static int start(struct hc_transfer *t, enum hc_plan_direction direction, uint64_t handle,
		 struct hc_producer *producer_p)
{
	struct hc_device_stream *caller;
	struct hc_op *op = NULL;
	int err = hc_device_stream_import(t->device, handle, &caller);

	if (err)
		return err;
	pthread_mutex_lock(&t->lock);
	err = hc_transfer_start_locked(t, direction, caller, &op);
	if (!err && producer_p) {
		*producer_p = (struct hc_producer){.index = -1};
		if (op)
			*producer_p = (struct hc_producer){(int)(op - t->lines[direction].ops),
							   op->generation};
	}
	hc_transfer_unlock(t);
	hc_device_stream_destroy(caller);
	/* -ENOMEM says that the queue is as it was; why it failed is in the ack. */
	return op && err == -ENOMEM ? -EIO : err;
}

int hc_transfer_start_writing(struct hc_transfer *t, uint64_t stream)
{
	return start(t, HC_PLAN_WRITE, stream, NULL);
}

int hc_transfer_start_loading(struct hc_transfer *t, uint64_t stream,
			      struct hc_producer *producer_p)
{
	return start(t, HC_PLAN_LOAD, stream, producer_p);
}

static int wait_locked(struct hc_transfer *t, struct hc_op *op, struct hc_producer producer,
		       uint32_t layer, struct hc_device_stream *stream)
{
	int err;

	if (op->generation != producer.generation && !HC_MUTANT(STALE)) {
		t->stats.n_stale++;
		return -ESTALE;
	}
	if (layer >= op->n_layers_done) {
		/* Its consumer has nothing more to wait for. */
		op->consuming = false;
		return op->status ? op->status : -EIO;
	}
	err = hc_device_stream_check(stream);
	if (!err)
		err = hc_device_stream_wait(stream, op->layers[layer]);
	if (err)
		return err;
	op->consuming = layer + 1 < t->n_layers;
	if (op->consuming)
		return 0;
	err = hc_device_event_record(op->consumer, stream);
	op->consumed = !err;
	return err;
}

int hc_transfer_wait_layer(struct hc_transfer *t, struct hc_producer producer, uint32_t layer,
			   uint64_t handle)
{
	struct hc_device_stream *stream;
	int err;

	if (producer.index < 0)
		return 0;
	if (producer.index >= HC_TRANSFER_RING || layer >= t->n_layers)
		return -EINVAL;
	err = hc_device_stream_import(t->device, handle, &stream);
	if (err)
		return err;
	pthread_mutex_lock(&t->lock);
	err = wait_locked(t, &t->lines[HC_PLAN_LOAD].ops[producer.index], producer, layer, stream);
	pthread_mutex_unlock(&t->lock);
	hc_device_stream_destroy(stream);
	return err;
}
