/* SPDX-License-Identifier: Apache-2.0 */
/* Making a transfer and its queues; pages in and out. See transfer.h; starts are in start.c, what
 * happens afterwards in progress.c. */
#include <limits.h>

#include "controller/internal.h"
#include "util/log.h"

void hc_queued_free(struct hc_queued *queued)
{
	if (!queued)
		return;
	free(queued->host_pages);
	free(queued->device_pages);
	free(queued->bounce);
	free(queued);
}

static struct hc_queued *queued_new(const uint32_t *host, const uint32_t *device, size_t n)
{
	struct hc_queued *q = hc_zalloc(sizeof(*q));

	if (!q)
		return NULL;
	q->n_pages = (uint32_t)n;
	q->host_pages = malloc(n * sizeof(*q->host_pages));
	q->device_pages = malloc(n * sizeof(*q->device_pages));
	if (!q->host_pages || !q->device_pages) {
		hc_queued_free(q);
		return NULL;
	}
	if (host)
		memcpy(q->host_pages, host, n * sizeof(*host));
	if (device)
		memcpy(q->device_pages, device, n * sizeof(*device));
	return q;
}

static void op_fini(struct hc_transfer *t, struct hc_op *op)
{
	for (uint32_t i = 0; op->layers && i < t->n_layers; i++)
		hc_device_event_destroy(op->layers[i]);
	hc_device_event_destroy(op->start);
	hc_device_event_destroy(op->finish);
	hc_device_event_destroy(op->consumer);
	hc_device_host_free(t->device, op->pairs_addr);
	free(op->layers);
	free(op->pages);
	free(op->host_pages);
	free(op->bounce);
	free(op->nodes);
}

static int op_init(struct hc_transfer *t, struct hc_op *op, enum hc_plan_direction direction)
{
	void *pairs;
	int err;

	op->direction = direction;
	op->pages = hc_zalloc(HC_TRANSFER_PAGES_MAX * sizeof(*op->pages));
	op->host_pages = hc_zalloc(HC_TRANSFER_PAGES_MAX * sizeof(*op->host_pages));
	if (direction == HC_PLAN_LOAD)
		op->layers = hc_zalloc(t->n_layers * sizeof(struct hc_device_event *));
	if (t->shared)
		op->bounce = hc_zalloc(HC_TRANSFER_PAGES_MAX * sizeof(*op->bounce));
	if (!op->pages || !op->host_pages || (t->shared && !op->bounce) ||
	    (direction == HC_PLAN_LOAD && !op->layers))
		return -ENOMEM;
	err = hc_device_host_alloc(t->device, HC_TRANSFER_PAGES_MAX * sizeof(*op->pairs), &pairs,
				   &op->pairs_addr);
	if (err)
		return err;
	op->pairs = pairs;
	err = hc_device_event_create(t->device, &op->start);
	if (!err)
		err = hc_device_event_create(t->device, &op->finish);
	if (!err)
		err = hc_device_event_create(t->device, &op->consumer);
	for (uint32_t i = 0; op->layers && i < t->n_layers && !err; i++)
		err = hc_device_event_create(t->device, &op->layers[i]);
	return err;
}

static void line_fini(struct hc_transfer *t, struct hc_line *line)
{
	for (uint32_t i = 0; i < line->n_queued; i++)
		hc_queued_free(line->queue[i]);
	for (uint32_t i = 0; i < line->n_acks; i++)
		free((void *)(uintptr_t)line->acks[(line->first_ack + i) % HC_TRANSFER_QUEUE_MAX]
			     .nodes);
	free(line->polled);
	for (uint32_t i = 0; i < line->n_ops; i++)
		op_fini(t, &line->ops[i]);
	free(line->ops);
	hc_device_stream_destroy(line->stream);
	hc_device_mem_free(t->device, line->staging);
}

/* Loads go first: the model waits for them. */
static int line_init(struct hc_transfer *t, enum hc_plan_direction direction)
{
	struct hc_line *line = &t->lines[direction];
	bool load = direction == HC_PLAN_LOAD;
	int err = hc_device_stream_create(
		t->device, load ? HC_DEVICE_PRIORITY_HIGH : HC_DEVICE_PRIORITY_LOW, &line->stream);

	if (err)
		return err;
	line->n_ops = load ? HC_TRANSFER_RING : HC_TRANSFER_WRITES_MAX;
	line->ops = hc_zalloc(line->n_ops * sizeof(*line->ops));
	if (!line->ops) {
		line->n_ops = 0;
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < line->n_ops && !err; i++)
		err = op_init(t, &line->ops[i], direction);
	if (!err && t->staging_bytes &&
	    hc_device_mem_alloc(t->device, t->staging_bytes, &line->staging)) {
		hc_info("controller", "no device memory for staging: transfers go without");
		t->staging_bytes = 0;
		err = hc_device_health(t->device);
	}
	return err;
}

static int init_pages(struct hc_transfer *t)
{
	uint32_t page_tokens = t->config.plan.geometry.n_tokens;
	int err = hc_slots_create(t->config.host_pages, page_tokens, &t->host_slots);

	if (!err)
		err = hc_slots_create(t->n_device_pages, page_tokens, &t->device_slots);
	if (err)
		return err;
	t->host_pages = hc_zalloc(t->config.host_pages * sizeof(*t->host_pages));
	t->device_pages = hc_zalloc(t->n_device_pages * sizeof(*t->device_pages));
	t->copies = hc_zalloc(HC_DEVICE_BATCH_MAX * sizeof(*t->copies));
	if (!t->host_pages || !t->device_pages || !t->copies)
		return -ENOMEM;
	if (t->config.engine_pages) {
		uint32_t *all = hc_zalloc(t->n_device_pages * sizeof(*all));

		if (!all)
			return -ENOMEM;
		err = hc_slots_alloc(t->device_slots, (uint64_t)t->n_device_pages * page_tokens,
				     all);
		free(all);
	}
	return err;
}

/* The pool of one's own; a node's is registered segment by segment, when it is used. */
static int register_host(struct hc_transfer *t)
{
	struct hc_transfer_config *c = &t->config;
	uint64_t host_bytes = hc_align_up(c->host_bytes, HC_BLOCK_BYTES);
	int err;

	if (t->shared)
		return 0;
	if (!c->pins)
		return hc_device_host_register(t->device, c->host, host_bytes, false,
					       &t->host_addr);
	err = hc_pins_get(c->pins, c->host, host_bytes, &t->host_addr);
	if (err && err != -ENOSPC)
		hc_pins_put(c->pins, c->host);
	return err;
}

static void unregister_host(struct hc_transfer *t)
{
	if (t->host_addr && t->config.pins)
		hc_pins_put(t->config.pins, t->config.host);
	else
		hc_device_host_unregister(t->device, t->host_addr);
}

static int init_all(struct hc_transfer *t, char *error)
{
	int err = register_host(t);

	if (err) {
		snprintf(error, HC_PLAN_ERROR_BYTES,
			 "the host pool of %llu bytes cannot be registered with the device: %s",
			 (unsigned long long)t->config.host_bytes, strerror(-err));
		return err;
	}
	err = init_pages(t);
	if (!err)
		err = line_init(t, HC_PLAN_WRITE);
	if (!err)
		err = line_init(t, HC_PLAN_LOAD);
	if (!err && !t->config.no_thread) {
		err = -pthread_create(&t->thread, NULL, hc_transfer_progress_main, t);
		t->has_thread = !err;
	}
	if (err)
		snprintf(error, HC_PLAN_ERROR_BYTES,
			 "no memory, streams or events for transfers: %s", strerror(-err));
	return err;
}

static void free_all(struct hc_transfer *t)
{
	if (t->has_thread) {
		pthread_mutex_lock(&t->lock);
		t->stop = true;
		pthread_cond_signal(&t->work);
		pthread_mutex_unlock(&t->lock);
		pthread_join(t->thread, NULL);
	}
	line_fini(t, &t->lines[HC_PLAN_LOAD]);
	line_fini(t, &t->lines[HC_PLAN_WRITE]);
	hc_bounce_destroy(t);
	hc_shared_destroy(t);
	unregister_host(t);
	hc_slots_destroy(t->host_slots);
	hc_slots_destroy(t->device_slots);
	free(t->host_pages);
	free(t->device_pages);
	free(t->copies);
	hc_plan_destroy(t->plan);
	pthread_cond_destroy(&t->work);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static int check_host(struct hc_transfer *t, char *error)
{
	const struct hc_transfer_config *c = &t->config;
	uint64_t page_bytes = hc_plan_page_bytes(t->plan);
	uint64_t needed_bytes;

	t->slot_bytes = c->slot_bytes && !c->node ? c->slot_bytes : page_bytes;
	if (c->node && c->pins && c->host_pages && !c->plan.pool_layout)
		return hc_shared_create(t);
	needed_bytes =
		c->plan.pool_layout ? page_bytes * c->host_pages : t->slot_bytes * c->host_pages;
	if (c->host && c->host_pages && t->slot_bytes >= page_bytes &&
	    needed_bytes <= c->host_bytes &&
	    (!c->plan.pool_layout || c->plan.pool_pages == c->host_pages))
		return 0;
	snprintf(error, HC_PLAN_ERROR_BYTES,
		 "a host pool of %llu bytes does not hold %u pages of %llu",
		 (unsigned long long)c->host_bytes, c->host_pages, (unsigned long long)page_bytes);
	return -EINVAL;
}

int hc_transfer_create(const struct hc_transfer_config *config, struct hc_transfer **transfer_p,
		       char error[HC_PLAN_ERROR_BYTES])
{
	struct hc_transfer *t;
	struct hc_device_info info;
	int err;

	if (config->plan.device_pages > UINT32_MAX) {
		snprintf(error, HC_PLAN_ERROR_BYTES, "more device pages than can be numbered");
		return -EINVAL;
	}
	t = hc_zalloc(sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->config = *config;
	t->device = config->device;
	t->n_layers = config->plan.geometry.n_layers;
	t->n_device_pages = (uint32_t)config->plan.device_pages;
	t->staging_bytes = config->staging_bytes;
	if (!t->config.bounce_bytes)
		t->config.bounce_bytes = HC_TRANSFER_BOUNCE_BYTES;
	pthread_mutex_init(&t->lock, NULL);
	hc_cond_init(&t->work);
	hc_device_info(t->device, &info);
	t->config.plan.kernels = info.kernels;
	err = hc_plan_create(&t->config.plan, &t->plan, error);
	if (!err)
		err = check_host(t, error);
	if (!err)
		err = init_all(t, error);
	if (err) {
		free_all(t);
		return err;
	}
	*transfer_p = t;
	return 0;
}

int hc_transfer_destroy(struct hc_transfer *t, uint64_t deadline_ns)
{
	int err;

	if (!t)
		return 0;
	pthread_mutex_lock(&t->lock);
	err = hc_transfer_settle(t, deadline_ns);
	pthread_mutex_unlock(&t->lock);
	if (!err)
		free_all(t);
	return err;
}

int hc_transfer_device_alloc(struct hc_transfer *t, uint64_t n_tokens, uint32_t *pages)
{
	int err;

	pthread_mutex_lock(&t->lock);
	err = hc_slots_alloc(t->device_slots, n_tokens, pages);
	pthread_mutex_unlock(&t->lock);
	return err;
}

/* Each of them taken, and named once. */
static bool all_taken(const struct hc_slots *slots, struct hc_side_page *side,
		      const uint32_t *pages, size_t n)
{
	size_t n_seen = 0;

	for (; n_seen < n; n_seen++) {
		uint32_t page = pages[n_seen];

		if (!hc_slots_taken(slots, page) || side[page].evicted || side[page].named) {
			hc_error("controller", "page %u is %s", page,
				 hc_slots_taken(slots, page) && side[page].named ? "named twice"
										 : "not taken");
			break;
		}
		side[page].named = true;
	}
	for (size_t i = 0; i < n_seen; i++)
		side[pages[i]].named = false;
	return n_seen == n;
}

static void lease_locked(struct hc_transfer *t, const struct hc_queued *q)
{
	for (uint32_t i = 0; i < q->n_pages; i++) {
		t->host_pages[q->host_pages[i]].n_leases++;
		t->device_pages[q->device_pages[i]].n_leases++;
	}
	t->stats.n_leased_pages += 2 * q->n_pages;
}

/* Takes the pages over into the queue; checks are done. */
static void queue_locked(struct hc_transfer *t, enum hc_plan_direction direction,
			 struct hc_queued *q, int priority, int64_t node)
{
	struct hc_line *line = &t->lines[direction];

	q->priority = priority == INT_MIN ? t->n_created : priority;
	q->node = node;
	t->n_created++;
	lease_locked(t, q);
	line->n_queued_pages += q->n_pages;
	line->queue[line->n_queued++] = q;
}

/* All that is queued is started as one. */
static bool has_room(const struct hc_line *line, uint32_t n_pages)
{
	return line->n_queued < HC_TRANSFER_QUEUE_MAX &&
	       line->n_queued_pages + n_pages <= HC_TRANSFER_PAGES_MAX;
}

static int write_locked(struct hc_transfer *t, struct hc_queued *q, int priority, int64_t node,
			uint32_t *host_pages)
{
	uint64_t n_tokens = (uint64_t)q->n_pages * t->config.plan.geometry.n_tokens;
	int err;

	if (!has_room(&t->lines[HC_PLAN_WRITE], q->n_pages))
		return -EAGAIN;
	if (!all_taken(t->device_slots, t->device_pages, q->device_pages, q->n_pages))
		return -EINVAL;
	if (!t->shared) {
		err = hc_slots_alloc(t->host_slots, n_tokens, q->host_pages);
		if (err)
			return err;
	}
	for (uint32_t i = 0; i < q->n_pages; i++)
		t->host_pages[q->host_pages[i]] =
			(struct hc_side_page){.complete = HC_MUTANT(COMPLETE_EARLY)};
	memcpy(host_pages, q->host_pages, q->n_pages * sizeof(*host_pages));
	queue_locked(t, HC_PLAN_WRITE, q, priority, node);
	return 0;
}

/* The newest of the queue was never there. */
static void unqueue_write_locked(struct hc_transfer *t)
{
	struct hc_line *line = &t->lines[HC_PLAN_WRITE];
	struct hc_queued *q = line->queue[--line->n_queued];

	line->n_queued_pages -= q->n_pages;
	for (uint32_t i = 0; i < q->n_pages; i++) {
		t->host_pages[q->host_pages[i]].evicted = true;
		hc_transfer_unlease_locked(t, q->host_pages[i], q->device_pages[i]);
	}
	if (q->bounce)
		hc_bounce_give_locked(t, q->bounce, q->n_pages);
	hc_queued_free(q);
}

/* What was made for it and did not get into the queue. */
static void unqueued_free_locked(struct hc_transfer *t, struct hc_queued *q)
{
	if (q->bounce)
		hc_bounce_give_locked(t, q->bounce, q->n_pages);
	for (uint32_t i = 0; t->shared && i < q->n_pages; i++)
		hc_shared_return_locked(t, q->host_pages[i]);
	hc_queued_free(q);
}

/* Slots of the bounce buffer for the pages that need one. */
static int bounce_prepare(struct hc_transfer *t, struct hc_queued *q)
{
	hc_autofree uint32_t *slots = NULL;
	uint32_t n = 0, k = 0;
	int err;

	for (uint32_t i = 0; i < q->n_pages; i++)
		n += !t->shared->held[q->host_pages[i]].addr;
	if (!n)
		return 0;
	slots = malloc(n * sizeof(*slots));
	q->bounce = malloc(q->n_pages * sizeof(*q->bounce));
	err = slots && q->bounce ? hc_bounce_take(t, n, slots) : -ENOMEM;
	if (err) {
		free(q->bounce);
		q->bounce = NULL;
		return err;
	}
	for (uint32_t i = 0; i < q->n_pages; i++)
		q->bounce[i] = t->shared->held[q->host_pages[i]].addr ? HC_BOUNCE_NONE : slots[k++];
	return 0;
}

/* The pages of the host, where they are not merely numbers. */
static int write_prepare(struct hc_transfer *t, struct hc_queued *q)
{
	int err = hc_shared_reserve(t, q->n_pages, q->host_pages);

	if (err)
		return err;
	err = bounce_prepare(t, q);
	if (err)
		hc_shared_drop(t, q->host_pages, q->n_pages);
	return err;
}

/* Takes the queued write over, also on error. */
static int write_and_start(struct hc_transfer *t, struct hc_queued *q, int priority, int64_t node,
			   struct hc_device_stream *caller, uint32_t *host_pages)
{
	struct hc_op *op = NULL;
	int err;

	pthread_mutex_lock(&t->lock);
	err = write_locked(t, q, priority, node, host_pages);
	if (err) {
		unqueued_free_locked(t, q);
	} else if (caller) {
		err = hc_transfer_start_locked(t, HC_PLAN_WRITE, caller, &op);
		if (err && !op)
			unqueue_write_locked(t);
	}
	hc_transfer_unlock(t);
	/* What was started and failed has an ack. */
	return op ? 0 : err;
}

int hc_transfer_write(struct hc_transfer *t, const uint32_t *device_pages, size_t n, int priority,
		      int64_t node, bool start, uint64_t stream, uint32_t *host_pages)
{
	struct hc_device_stream *caller = NULL;
	struct hc_queued *q;
	int err;

	if (!n || n > HC_TRANSFER_PAGES_MAX)
		return -EINVAL;
	err = start ? hc_device_stream_import(t->device, stream, &caller) : 0;
	if (err)
		return err;
	q = queued_new(NULL, device_pages, n);
	err = !q ? -ENOMEM : t->shared ? write_prepare(t, q) : 0;
	if (err)
		hc_queued_free(q);
	else
		err = write_and_start(t, q, priority, node, caller, host_pages);
	hc_device_stream_destroy(caller);
	return err;
}

/* A write that has been started will have ended before the load: the device puts them in order, but
 * not the CPU that copies what bounces. */
static bool readable(struct hc_transfer *t, const uint32_t *pages, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct hc_side_page *page = &t->host_pages[pages[i]];
		bool bounces = t->shared && !t->shared->held[pages[i]].addr;

		if (!page->complete && !(page->writer && !page->writer->status && !bounces))
			return false;
	}
	return true;
}

static int load_locked(struct hc_transfer *t, struct hc_queued *q, int priority, int64_t node,
		       uint32_t *device_pages)
{
	uint64_t n_tokens = (uint64_t)q->n_pages * t->config.plan.geometry.n_tokens;

	if (!has_room(&t->lines[HC_PLAN_LOAD], q->n_pages))
		return -EAGAIN;
	if (!all_taken(t->host_slots, t->host_pages, q->host_pages, q->n_pages) ||
	    (q->given && !all_taken(t->device_slots, t->device_pages, q->device_pages, q->n_pages)))
		return -EINVAL;
	if (!readable(t, q->host_pages, q->n_pages))
		return -EBUSY;
	if (!q->given) {
		int err = hc_slots_alloc(t->device_slots, n_tokens, q->device_pages);

		if (err)
			return err;
		memcpy(device_pages, q->device_pages, q->n_pages * sizeof(*device_pages));
	}
	queue_locked(t, HC_PLAN_LOAD, q, priority, node);
	return 0;
}

static bool may_bounce_locked(struct hc_transfer *t, const uint32_t *pages, size_t n)
{
	for (size_t i = 0; t->shared && i < n; i++) {
		if (pages[i] < t->config.host_pages && !t->shared->held[pages[i]].addr)
			return true;
	}
	return false;
}

/* The host pages of a load whose bytes are copied before it is queued. */
static int hold_locked(struct hc_transfer *t, const struct hc_queued *q)
{
	if (!all_taken(t->host_slots, t->host_pages, q->host_pages, q->n_pages))
		return -EINVAL;
	if (!readable(t, q->host_pages, q->n_pages))
		return -EBUSY;
	for (uint32_t i = 0; i < q->n_pages; i++)
		t->host_pages[q->host_pages[i]].n_leases++;
	return 0;
}

static int bounce_fill(struct hc_transfer *t, struct hc_queued *q)
{
	int err = bounce_prepare(t, q);

	for (uint32_t i = 0; i < q->n_pages && !err && q->bounce; i++) {
		if (q->bounce[i] != HC_BOUNCE_NONE)
			memcpy(hc_bounce_data(t, q->bounce[i]),
			       t->shared->held[q->host_pages[i]].ref.data, t->slot_bytes);
	}
	return err;
}

/* The load has leases of its own, or it failed. */
static void unhold_locked(struct hc_transfer *t, const uint32_t *pages, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct hc_side_page *page = &t->host_pages[pages[i]];

		if (!--page->n_leases && page->evicted)
			hc_transfer_free_host_locked(t, pages[i]);
	}
}

int hc_transfer_load(struct hc_transfer *t, const uint32_t *host_pages, size_t n, int priority,
		     int64_t node, bool given, uint32_t *device_pages)
{
	struct hc_queued *q;
	bool held;
	int err;

	if (!n || n > HC_TRANSFER_PAGES_MAX)
		return -EINVAL;
	q = queued_new(host_pages, given ? device_pages : NULL, n);
	if (!q)
		return -ENOMEM;
	q->given = given;
	pthread_mutex_lock(&t->lock);
	held = may_bounce_locked(t, host_pages, n);
	err = held ? hold_locked(t, q) : 0;
	held = held && !err;
	pthread_mutex_unlock(&t->lock);
	if (held)
		err = bounce_fill(t, q);
	pthread_mutex_lock(&t->lock);
	if (!err)
		err = load_locked(t, q, priority, node, device_pages);
	if (held)
		unhold_locked(t, host_pages, n);
	if (err && q->bounce)
		hc_bounce_give_locked(t, q->bounce, q->n_pages);
	hc_transfer_unlock(t);
	if (err)
		hc_queued_free(q);
	return err;
}

/* Those without a lease at once, others with their last. All or none. */
static int evict(struct hc_transfer *t, bool host, const uint32_t *pages, size_t n)
{
	struct hc_slots *slots = host ? t->host_slots : t->device_slots;
	struct hc_side_page *side = host ? t->host_pages : t->device_pages;
	int err = 0;

	pthread_mutex_lock(&t->lock);
	if (!all_taken(slots, side, pages, n))
		err = -EINVAL;
	for (size_t i = 0; i < n && !err; i++)
		side[pages[i]].evicted = true;
	for (size_t i = 0; i < n && !err; i++) {
		struct hc_side_page *page = &side[pages[i]];

		if (page->n_leases && !HC_MUTANT(LEASE))
			continue;
		if (host) {
			hc_transfer_free_host_locked(t, pages[i]);
			continue;
		}
		page->evicted = page->complete = false;
		err = hc_slots_free(slots, &pages[i], 1);
	}
	hc_transfer_unlock(t);
	return err;
}

int hc_transfer_evict_device(struct hc_transfer *t, const uint32_t *pages, size_t n)
{
	if (t->config.engine_pages)
		return -EINVAL;
	return evict(t, false, pages, n);
}

int hc_transfer_evict_host(struct hc_transfer *t, const uint32_t *pages, size_t n)
{
	return evict(t, true, pages, n);
}

void *hc_transfer_host_data(struct hc_transfer *t, uint32_t page)
{
	return t->shared ? t->shared->held[page].ref.data
			 : (char *)t->config.host + page * t->slot_bytes;
}

bool hc_transfer_host_complete(struct hc_transfer *t, uint32_t page)
{
	bool complete;

	pthread_mutex_lock(&t->lock);
	complete = page < t->config.host_pages && t->host_pages[page].complete;
	pthread_mutex_unlock(&t->lock);
	return complete;
}

void hc_transfer_stats(struct hc_transfer *t, struct hc_transfer_stats *stats_p)
{
	pthread_mutex_lock(&t->lock);
	*stats_p = t->stats;
	for (int i = 0; i < 2; i++) {
		stats_p->n_in_flight += t->lines[i].n_running;
		stats_p->n_queued += t->lines[i].n_queued;
	}
	stats_p->host_free_pages = hc_slots_n_free(t->host_slots);
	stats_p->device_free_pages = hc_slots_n_free(t->device_slots);
	pthread_mutex_unlock(&t->lock);
}
