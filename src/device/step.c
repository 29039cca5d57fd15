/* SPDX-License-Identifier: Apache-2.0 */
/* The device for tests of order: no threads. Work waits in its stream until a step runs a piece of
 * it (one copy of a batch, one page of a page copy, a record, a wait that can end); a seeded
 * generator picks which ready stream, and which piece of its batch, goes next. Steps are taken by
 * hc_step_run, by drains, and, up to steps_max of them, at every call of the device: so the host's
 * own progress interleaves with the device's. Equal seeds and equal calls give equal schedules.
 *
 * Lock: one a device, a leaf, so that any thread may call; a schedule repeats only if one does. */
#include "device/soft.h"
#include "util/log.h"

struct step_stream {
	struct hc_soft_stream soft;
	uint32_t number;
};

struct hc_step {
	struct hc_device base;
	pthread_mutex_t lock;
	struct hc_soft_streams streams;
	struct hc_rng rng;
	uint64_t schedule;
	uint32_t n_created;
	uint32_t steps_max;
	bool lost;
};

static struct hc_step *step_of(struct hc_device *device)
{
	return (struct hc_step *)device;
}

static struct hc_soft_stream *target_of(struct hc_device_stream *stream)
{
	return ((struct hc_soft_stream *)stream)->target;
}

static bool ready(const struct hc_soft_stream *stream)
{
	const struct hc_soft_op *op = stream->queue.head;

	return op && (op->kind != HC_SOFT_WAIT || op->event->done >= op->ticket);
}

static struct step_stream *pick_locked(struct hc_step *step)
{
	struct step_stream *picked = NULL;
	uint64_t n_ready = 0;

	for (struct hc_soft_stream *s = step->streams.first; s; s = s->next) {
		if (ready(s) && hc_rng_below(&step->rng, ++n_ready) == 0)
			picked = (struct step_stream *)s;
	}
	return picked;
}

/* False when no stream is ready, which is when all are empty: a wait is for an earlier record. */
static bool step_locked(struct hc_step *step)
{
	struct step_stream *stream = pick_locked(step);
	struct hc_soft_op *op;

	if (!stream)
		return false;
	step->schedule = (step->schedule ^ stream->number) * 0x9e3779b97f4a7c15u;
	step->schedule ^= step->schedule >> 29;
	op = stream->soft.queue.head;
	if (op->kind == HC_SOFT_RECORD)
		op->event->done = hc_max_u64(op->event->done, op->ticket);
	if (op->n_left && hc_soft_op_step(&step->base, op, &step->rng) && !step->lost) {
		step->lost = true;
		hc_error("step", "device lost: work ran on memory that was given back");
	}
	if (!op->n_left || step->lost)
		hc_soft_op_free(hc_soft_queue_pop(&stream->soft.queue));
	return true;
}

static void some_steps_locked(struct hc_step *step)
{
	uint64_t n = step->steps_max ? hc_rng_below(&step->rng, step->steps_max + 1) : 0;

	while (n && step_locked(step))
		n--;
}

uint64_t hc_step_run(struct hc_device *device, uint64_t n)
{
	struct hc_step *step = step_of(device);
	uint64_t n_run = 0;

	pthread_mutex_lock(&step->lock);
	while (n_run < n && step_locked(step))
		n_run++;
	pthread_mutex_unlock(&step->lock);
	return n_run;
}

void hc_step_reseed(struct hc_device *device, uint64_t seed)
{
	struct hc_step *step = step_of(device);

	pthread_mutex_lock(&step->lock);
	hc_rng_seed(&step->rng, seed);
	step->schedule = 0;
	pthread_mutex_unlock(&step->lock);
}

uint64_t hc_step_schedule(struct hc_device *device)
{
	struct hc_step *step = step_of(device);
	uint64_t schedule;

	pthread_mutex_lock(&step->lock);
	schedule = step->schedule;
	pthread_mutex_unlock(&step->lock);
	return schedule;
}

static int step_stream_create(struct hc_device *device, enum hc_device_priority priority,
			      struct hc_device_stream **stream_p)
{
	struct hc_step *step = step_of(device);
	struct step_stream *stream = hc_zalloc(sizeof(*stream));

	if (!stream)
		return -ENOMEM;
	hc_soft_stream_init(&stream->soft, device);
	pthread_mutex_lock(&step->lock);
	stream->number = ++step->n_created;
	hc_soft_stream_add(&step->streams, &stream->soft);
	pthread_mutex_unlock(&step->lock);
	*stream_p = &stream->soft.base;
	return 0;
}

static int step_stream_import(struct hc_device *device, uint64_t handle,
			      struct hc_device_stream **stream_p)
{
	struct hc_step *step = step_of(device);

	return hc_soft_stream_import(device, &step->lock, &step->streams, handle, stream_p);
}

static void step_stream_destroy(struct hc_device_stream *base)
{
	struct hc_step *step = step_of(base->device);
	struct step_stream *stream = (struct step_stream *)base;

	if (base->imported) {
		free(stream);
		return;
	}
	pthread_mutex_lock(&step->lock);
	while (stream->soft.queue.head && step_locked(step))
		continue;
	hc_soft_stream_remove(&step->streams, &stream->soft);
	pthread_mutex_unlock(&step->lock);
	free(stream);
}

static int usable_locked(struct hc_step *step)
{
	return step->lost ? -EIO : 0;
}

static int step_stream_check(struct hc_device_stream *stream)
{
	struct hc_step *step = step_of(stream->device);
	int err;

	pthread_mutex_lock(&step->lock);
	err = usable_locked(step);
	pthread_mutex_unlock(&step->lock);
	return err;
}

/* Nothing here takes time: the deadline is never reached. */
static int step_stream_drain(struct hc_device_stream *stream, uint64_t deadline_ns)
{
	struct hc_step *step = step_of(stream->device);
	int err;

	pthread_mutex_lock(&step->lock);
	while (target_of(stream)->queue.head && step_locked(step))
		continue;
	err = step->lost ? -EIO : 0;
	pthread_mutex_unlock(&step->lock);
	return err;
}

/* Consumes the op. */
static int push_locked(struct hc_step *step, struct hc_soft_stream *target, struct hc_soft_op *op)
{
	int err = usable_locked(step);

	if (err) {
		hc_soft_op_free(op);
		return err;
	}
	return hc_soft_queue_push(&target->queue, op);
}

static int push_event(struct hc_device_stream *stream, struct hc_device_event *event,
		      enum hc_soft_kind kind)
{
	struct hc_step *step = step_of(stream->device);
	struct hc_soft_stream *target = target_of(stream);
	struct hc_soft_op *op;
	int err;

	pthread_mutex_lock(&step->lock);
	some_steps_locked(step);
	err = usable_locked(step);
	if (!err && target->queue.n_ops == HC_DEVICE_STREAM_OPS_MAX)
		err = -EAGAIN;
	if (!err)
		err = hc_soft_op_event(kind, (struct hc_soft_event *)event, &op);
	if (!err)
		err = push_locked(step, target, op);
	pthread_mutex_unlock(&step->lock);
	return err;
}

static int step_stream_wait(struct hc_device_stream *stream, struct hc_device_event *event)
{
	return push_event(stream, event, HC_SOFT_WAIT);
}

static int step_event_record(struct hc_device_event *event, struct hc_device_stream *stream)
{
	return push_event(stream, event, HC_SOFT_RECORD);
}

static int step_event_query(struct hc_device_event *base)
{
	struct hc_step *step = step_of(base->device);
	struct hc_soft_event *event = (struct hc_soft_event *)base;
	int err;

	pthread_mutex_lock(&step->lock);
	some_steps_locked(step);
	err = step->lost ? -EIO : event->done < event->recorded ? -EINPROGRESS : 0;
	pthread_mutex_unlock(&step->lock);
	return err;
}

static void step_event_destroy(struct hc_device_event *event)
{
	struct hc_step *step = step_of(event->device);

	pthread_mutex_lock(&step->lock);
	hc_soft_event_put((struct hc_soft_event *)event);
	pthread_mutex_unlock(&step->lock);
}

static int push(struct hc_device_stream *stream, struct hc_soft_op *op)
{
	struct hc_step *step = step_of(stream->device);
	int err;

	pthread_mutex_lock(&step->lock);
	some_steps_locked(step);
	err = push_locked(step, target_of(stream), op);
	pthread_mutex_unlock(&step->lock);
	return err;
}

static int step_copy(struct hc_device_stream *stream, const struct hc_device_copy *copies, size_t n)
{
	struct hc_soft_op *op;
	int err = hc_soft_op_copy(stream->device, copies, n, &op);

	return err ? err : push(stream, op);
}

static int step_page_copy(struct hc_device_stream *stream, enum hc_page_copy_kind kind,
			  const struct hc_page_copy *copy)
{
	struct hc_soft_op *op;
	int err = hc_soft_op_pages(copy, &op);

	return err ? err : push(stream, op);
}

static int step_health(struct hc_device *device)
{
	struct hc_step *step = step_of(device);
	bool lost;

	pthread_mutex_lock(&step->lock);
	lost = step->lost;
	pthread_mutex_unlock(&step->lock);
	return lost ? -EIO : 0;
}

static void step_info(struct hc_device *device, struct hc_device_info *info_p)
{
	snprintf(info_p->name, sizeof(info_p->name), "stepped");
	info_p->kernels = info_p->batch_native = true;
}

static void step_close(struct hc_device *device)
{
	struct hc_step *step = step_of(device);

	if (step->streams.legacy)
		step_stream_destroy(&step->streams.legacy->base);
	hc_assert(!step->streams.first);
	pthread_mutex_destroy(&step->lock);
	hc_device_fini(device);
	free(step);
}

static const struct hc_device_ops step_ops = {
	.name = "step",
	.close = step_close,
	.health = step_health,
	.info = step_info,
	.mem_alloc = hc_soft_mem_alloc,
	.mem_free = hc_soft_mem_free,
	.mem_import = hc_soft_mem_import,
	.host_alloc = hc_soft_host_alloc,
	.host_free = hc_soft_host_free,
	.host_register = hc_soft_host_register,
	.host_unregister = hc_soft_host_unregister,
	.stream_create = step_stream_create,
	.stream_import = step_stream_import,
	.stream_destroy = step_stream_destroy,
	.stream_handle = hc_soft_stream_handle,
	.stream_check = step_stream_check,
	.stream_drain = step_stream_drain,
	.stream_wait = step_stream_wait,
	.event_create = hc_soft_event_create,
	.event_destroy = step_event_destroy,
	.event_record = step_event_record,
	.event_query = step_event_query,
	.copy = step_copy,
	.page_copy = step_page_copy,
};

int hc_step_open(const struct hc_step_config *config, struct hc_device **device_p)
{
	struct hc_step *step = hc_zalloc(sizeof(*step));
	struct hc_device_stream *legacy;
	int err;

	if (!step)
		return -ENOMEM;
	hc_device_init(&step->base, &step_ops);
	pthread_mutex_init(&step->lock, NULL);
	hc_rng_seed(&step->rng, config->seed);
	step->steps_max = config->steps_max;
	err = step_stream_create(&step->base, HC_DEVICE_PRIORITY_LOW, &legacy);
	if (err) {
		step_close(&step->base);
		return err;
	}
	step->streams.legacy = (struct hc_soft_stream *)legacy;
	*device_p = &step->base;
	return 0;
}
