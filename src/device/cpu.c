/* SPDX-License-Identifier: Apache-2.0 */
/* The reference device: each stream is a thread that runs its queue in order. Also what a build or
 * a machine without a GPU has. See device.h for the contract.
 *
 * Lock: one a device, a leaf; guards queues, events and the list of streams; copies run outside. */
#include "device/soft.h"
#include "util/clock.h"
#include "util/log.h"

struct cpu_stream {
	struct hc_soft_stream soft;
	bool busy; /* an op was popped and has not ended */
	bool stop;
	bool capturing;
	pthread_t thread;
	pthread_cond_t bell;
	struct hc_rng rng;
};

struct hc_cpu {
	struct hc_device base;
	pthread_mutex_t lock;
	pthread_cond_t moved; /* an event was reached, a stream ran dry */
	struct hc_soft_streams streams;
	struct hc_rng rng;
	uint64_t delay_max_ns;
	bool lost;
};

static struct hc_cpu *cpu_of(struct hc_device *device)
{
	return (struct hc_cpu *)device;
}

/* An own stream, whatever was given. */
static struct cpu_stream *target_of(struct hc_device_stream *stream)
{
	return (struct cpu_stream *)((struct hc_soft_stream *)stream)->target;
}

/* Random time before a piece of work, spent as a wait that nobody ends. */
static void delay_locked(struct hc_cpu *cpu, struct cpu_stream *stream)
{
	uint64_t until_ns;

	if (!cpu->delay_max_ns)
		return;
	until_ns = hc_clock_now_ns() + hc_rng_below(&stream->rng, cpu->delay_max_ns);
	while (hc_cond_wait_until(&stream->bell, &cpu->lock, until_ns) == 0)
		continue;
}

static void run_copies(struct hc_cpu *cpu, struct cpu_stream *stream, struct hc_soft_op *op)
{
	int err = 0;

	pthread_mutex_unlock(&cpu->lock);
	while (op->n_left && !err)
		err = hc_soft_op_step(&cpu->base, op, cpu->delay_max_ns ? &stream->rng : NULL);
	pthread_mutex_lock(&cpu->lock);
	if (err && !cpu->lost) {
		cpu->lost = true;
		hc_error("cpu", "device lost: work ran on memory that was given back");
	}
}

static void run_op(struct hc_cpu *cpu, struct cpu_stream *stream, struct hc_soft_op *op)
{
	switch (op->kind) {
	case HC_SOFT_COPY:
	case HC_SOFT_PAGES:
		run_copies(cpu, stream, op);
		break;
	case HC_SOFT_RECORD:
		op->event->done = hc_max_u64(op->event->done, op->ticket);
		pthread_cond_broadcast(&cpu->moved);
		break;
	case HC_SOFT_WAIT:
		/* The record it is bound to was enqueued before: it will be reached. */
		while (op->event->done < op->ticket)
			pthread_cond_wait(&cpu->moved, &cpu->lock);
		break;
	}
	hc_soft_op_free(op);
}

static void *stream_main(void *arg)
{
	struct cpu_stream *stream = arg;
	struct hc_cpu *cpu = cpu_of(stream->soft.base.device);

	pthread_setname_np(pthread_self(), "hc-stream");
	pthread_mutex_lock(&cpu->lock);
	for (;;) {
		struct hc_soft_op *op;

		while (!stream->soft.queue.head && !stream->stop)
			pthread_cond_wait(&stream->bell, &cpu->lock);
		if (!stream->soft.queue.head)
			break;
		op = hc_soft_queue_pop(&stream->soft.queue);
		stream->busy = true;
		delay_locked(cpu, stream);
		run_op(cpu, stream, op);
		stream->busy = false;
		if (!stream->soft.queue.head)
			pthread_cond_broadcast(&cpu->moved);
	}
	pthread_mutex_unlock(&cpu->lock);
	return NULL;
}

static int cpu_stream_create(struct hc_device *device, enum hc_device_priority priority,
			     struct hc_device_stream **stream_p)
{
	struct hc_cpu *cpu = cpu_of(device);
	struct cpu_stream *stream = hc_zalloc(sizeof(*stream));

	if (!stream)
		return -ENOMEM;
	hc_soft_stream_init(&stream->soft, device);
	hc_cond_init(&stream->bell);
	pthread_mutex_lock(&cpu->lock);
	hc_rng_seed(&stream->rng, hc_rng_next(&cpu->rng));
	if (pthread_create(&stream->thread, NULL, stream_main, stream)) {
		pthread_mutex_unlock(&cpu->lock);
		pthread_cond_destroy(&stream->bell);
		free(stream);
		hc_error("cpu", "cannot start the thread of a stream: %m");
		return -ENOMEM;
	}
	hc_soft_stream_add(&cpu->streams, &stream->soft);
	pthread_mutex_unlock(&cpu->lock);
	*stream_p = &stream->soft.base;
	return 0;
}

static int cpu_stream_import(struct hc_device *device, uint64_t handle,
			     struct hc_device_stream **stream_p)
{
	struct hc_cpu *cpu = cpu_of(device);

	return hc_soft_stream_import(device, &cpu->lock, &cpu->streams, handle, stream_p);
}

static void cpu_stream_destroy(struct hc_device_stream *base)
{
	struct hc_cpu *cpu = cpu_of(base->device);
	struct cpu_stream *stream = (struct cpu_stream *)base;

	if (base->imported) {
		free(stream);
		return;
	}
	pthread_mutex_lock(&cpu->lock);
	stream->stop = true;
	pthread_cond_signal(&stream->bell);
	pthread_mutex_unlock(&cpu->lock);
	pthread_join(stream->thread, NULL);
	pthread_mutex_lock(&cpu->lock);
	hc_soft_stream_remove(&cpu->streams, &stream->soft);
	pthread_mutex_unlock(&cpu->lock);
	pthread_cond_destroy(&stream->bell);
	free(stream);
}

void hc_cpu_capture(struct hc_device_stream *stream, bool on)
{
	struct hc_cpu *cpu = cpu_of(stream->device);

	pthread_mutex_lock(&cpu->lock);
	target_of(stream)->capturing = on;
	pthread_mutex_unlock(&cpu->lock);
}

static int usable_locked(struct hc_cpu *cpu, struct cpu_stream *target)
{
	if (cpu->lost)
		return -EIO;
	return target->capturing ? -EBUSY : 0;
}

static int cpu_stream_check(struct hc_device_stream *stream)
{
	struct hc_cpu *cpu = cpu_of(stream->device);
	int err;

	pthread_mutex_lock(&cpu->lock);
	err = usable_locked(cpu, target_of(stream));
	pthread_mutex_unlock(&cpu->lock);
	return err;
}

static int cpu_stream_drain(struct hc_device_stream *stream, uint64_t deadline_ns)
{
	struct hc_cpu *cpu = cpu_of(stream->device);
	struct cpu_stream *target = target_of(stream);
	int err = 0;

	pthread_mutex_lock(&cpu->lock);
	while ((target->soft.queue.head || target->busy) && !err)
		err = hc_cond_wait_until(&cpu->moved, &cpu->lock, deadline_ns);
	if (!err && cpu->lost)
		err = -EIO;
	pthread_mutex_unlock(&cpu->lock);
	return err;
}

/* Consumes the op. */
static int push_locked(struct hc_cpu *cpu, struct cpu_stream *target, struct hc_soft_op *op)
{
	int err = usable_locked(cpu, target);

	if (err) {
		hc_soft_op_free(op);
		return err;
	}
	err = hc_soft_queue_push(&target->soft.queue, op);
	if (!err)
		pthread_cond_signal(&target->bell);
	return err;
}

static int push_event(struct hc_device_stream *stream, struct hc_device_event *event,
		      enum hc_soft_kind kind)
{
	struct hc_cpu *cpu = cpu_of(stream->device);
	struct cpu_stream *target = target_of(stream);
	struct hc_soft_op *op;
	int err;

	pthread_mutex_lock(&cpu->lock);
	err = usable_locked(cpu, target);
	if (!err && target->soft.queue.n_ops == HC_DEVICE_STREAM_OPS_MAX)
		err = -EAGAIN;
	if (!err)
		err = hc_soft_op_event(kind, (struct hc_soft_event *)event, &op);
	if (!err)
		err = push_locked(cpu, target, op);
	pthread_mutex_unlock(&cpu->lock);
	return err;
}

static int cpu_stream_wait(struct hc_device_stream *stream, struct hc_device_event *event)
{
	return push_event(stream, event, HC_SOFT_WAIT);
}

static int cpu_event_record(struct hc_device_event *event, struct hc_device_stream *stream)
{
	return push_event(stream, event, HC_SOFT_RECORD);
}

static int cpu_event_query(struct hc_device_event *base)
{
	struct hc_cpu *cpu = cpu_of(base->device);
	struct hc_soft_event *event = (struct hc_soft_event *)base;
	int err;

	pthread_mutex_lock(&cpu->lock);
	err = cpu->lost ? -EIO : event->done < event->recorded ? -EINPROGRESS : 0;
	pthread_mutex_unlock(&cpu->lock);
	return err;
}

static void cpu_event_destroy(struct hc_device_event *event)
{
	struct hc_cpu *cpu = cpu_of(event->device);

	pthread_mutex_lock(&cpu->lock);
	hc_soft_event_put((struct hc_soft_event *)event);
	pthread_mutex_unlock(&cpu->lock);
}

static int push(struct hc_device_stream *stream, struct hc_soft_op *op)
{
	struct hc_cpu *cpu = cpu_of(stream->device);
	int err;

	pthread_mutex_lock(&cpu->lock);
	err = push_locked(cpu, target_of(stream), op);
	pthread_mutex_unlock(&cpu->lock);
	return err;
}

static int cpu_copy(struct hc_device_stream *stream, const struct hc_device_copy *copies, size_t n)
{
	struct hc_soft_op *op;
	int err = hc_soft_op_copy(stream->device, copies, n, &op);

	return err ? err : push(stream, op);
}

static int cpu_page_copy(struct hc_device_stream *stream, enum hc_page_copy_kind kind,
			 const struct hc_page_copy *copy)
{
	struct hc_soft_op *op;
	int err = hc_soft_op_pages(copy, &op);

	return err ? err : push(stream, op);
}

static int cpu_health(struct hc_device *device)
{
	struct hc_cpu *cpu = cpu_of(device);
	bool lost;

	pthread_mutex_lock(&cpu->lock);
	lost = cpu->lost;
	pthread_mutex_unlock(&cpu->lock);
	return lost ? -EIO : 0;
}

static void cpu_info(struct hc_device *device, struct hc_device_info *info_p)
{
	snprintf(info_p->name, sizeof(info_p->name), "host processor");
	info_p->threads = info_p->kernels = info_p->batch_native = true;
}

static void cpu_close(struct hc_device *device)
{
	struct hc_cpu *cpu = cpu_of(device);

	if (cpu->streams.legacy)
		cpu_stream_destroy(&cpu->streams.legacy->base);
	hc_assert(!cpu->streams.first);
	pthread_cond_destroy(&cpu->moved);
	pthread_mutex_destroy(&cpu->lock);
	hc_device_fini(device);
	free(cpu);
}

static const struct hc_device_ops cpu_ops = {
	.name = "cpu",
	.close = cpu_close,
	.health = cpu_health,
	.info = cpu_info,
	.mem_alloc = hc_soft_mem_alloc,
	.mem_free = hc_soft_mem_free,
	.mem_import = hc_soft_mem_import,
	.host_alloc = hc_soft_host_alloc,
	.host_free = hc_soft_host_free,
	.host_register = hc_soft_host_register,
	.host_unregister = hc_soft_host_unregister,
	.stream_create = cpu_stream_create,
	.stream_import = cpu_stream_import,
	.stream_destroy = cpu_stream_destroy,
	.stream_handle = hc_soft_stream_handle,
	.stream_check = cpu_stream_check,
	.stream_drain = cpu_stream_drain,
	.stream_wait = cpu_stream_wait,
	.event_create = hc_soft_event_create,
	.event_destroy = cpu_event_destroy,
	.event_record = cpu_event_record,
	.event_query = cpu_event_query,
	.copy = cpu_copy,
	.page_copy = cpu_page_copy,
};

int hc_cpu_open(const struct hc_cpu_config *config, struct hc_device **device_p)
{
	struct hc_cpu *cpu = hc_zalloc(sizeof(*cpu));
	struct hc_device_stream *legacy;
	int err;

	if (!cpu)
		return -ENOMEM;
	hc_device_init(&cpu->base, &cpu_ops);
	pthread_mutex_init(&cpu->lock, NULL);
	hc_cond_init(&cpu->moved);
	hc_rng_seed(&cpu->rng, config->seed);
	cpu->delay_max_ns = config->delay_max_ns;
	err = cpu_stream_create(&cpu->base, HC_DEVICE_PRIORITY_LOW, &legacy);
	if (err) {
		cpu_close(&cpu->base);
		return err;
	}
	cpu->streams.legacy = (struct hc_soft_stream *)legacy;
	*device_p = &cpu->base;
	return 0;
}
