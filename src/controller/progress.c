/* SPDX-License-Identifier: Apache-2.0 */
/* What happens after a start: finish events are polled in order, leases end, acks are queued. See
 * transfer.h. */
#include "controller/internal.h"
#include "util/log.h"

/* Between two looks at what is in flight: a small part of the shortest transfer worth making. */
#define POLL_NS (50 * HC_NS_PER_US)

/* A page that nobody uses any more. One that a lost device may still write into is kept. */
void hc_transfer_free_host_locked(struct hc_transfer *t, uint32_t page)
{
	struct hc_side_page *p = &t->host_pages[page];

	p->complete = false;
	if (p->lost) {
		p->evicted = true;
	} else if (t->shared) {
		hc_shared_return_locked(t, page);
	} else {
		p->evicted = false;
		hc_ignore(hc_slots_free(t->host_slots, &page, 1));
	}
}

static bool unlease(struct hc_transfer *t, struct hc_side_page *p)
{
	t->stats.n_leased_pages--;
	return p->n_leases && !--p->n_leases && p->evicted;
}

void hc_transfer_unlease_locked(struct hc_transfer *t, uint32_t host, uint32_t device)
{
	struct hc_side_page *p = &t->device_pages[device];

	if (unlease(t, &t->host_pages[host]))
		hc_transfer_free_host_locked(t, host);
	if (!unlease(t, p))
		return;
	p->evicted = p->complete = false;
	hc_ignore(hc_slots_free(t->device_slots, &device, 1));
}

static void end_page(struct hc_transfer *t, struct hc_op *op, uint32_t host_page,
		     uint32_t device_page)
{
	struct hc_side_page *host = &t->host_pages[host_page];
	struct hc_side_page *device = &t->device_pages[device_page];

	if (host->writer == op)
		host->writer = NULL;
	if (host->reader == op)
		host->reader = NULL;
	if (device->writer == op)
		device->writer = NULL;
	if (device->reader == op)
		device->reader = NULL;
	if (op->direction == HC_PLAN_WRITE && !op->status)
		host->complete = true;
}

/* The device may still write into slots of the node: nobody else gets them before the end. */
static void keep_lost(struct hc_transfer *t, struct hc_op *op)
{
	if (!t->shared || op->direction != HC_PLAN_WRITE || op->unstarted ||
	    !hc_device_health(t->device))
		return;
	for (uint32_t i = 0; i < op->n_pages; i++) {
		struct hc_side_page *page = &t->host_pages[op->host_pages[i]];

		t->stats.n_lost_pages += !page->lost;
		page->lost = true;
	}
}

static void retire(struct hc_transfer *t, struct hc_op *op)
{
	struct hc_line *line = &t->lines[op->direction];
	uint32_t at = (line->first_ack + line->n_acks++) % HC_TRANSFER_QUEUE_MAX;

	if (op->status)
		keep_lost(t, op);
	if (op->n_bounced)
		hc_bounce_give_locked(t, op->bounce, op->n_pages);
	op->n_bounced = 0;
	for (uint32_t i = 0; i < op->n_pages; i++)
		end_page(t, op, op->host_pages[i], op->pages[i].device);
	for (uint32_t i = 0; i < op->n_pages; i++)
		hc_transfer_unlease_locked(t, op->host_pages[i], op->pages[i].device);
	line->acks[at] = (struct hc_ack){.status = op->status,
					 .priority = op->priority,
					 .n_nodes = op->n_nodes,
					 .n_pages = op->n_pages,
					 .nodes = op->nodes};
	op->nodes = NULL;
	op->state = op->direction == HC_PLAN_LOAD ? HC_OP_DRAINING : HC_OP_FREE;
	if (op->status) {
		t->stats.n_failed++;
		hc_error("controller", "a %s of %u pages failed: %s",
			 op->direction == HC_PLAN_LOAD ? "load" : "write", op->n_pages,
			 strerror(-op->status));
	}
}

/* Has it left its stream? An error of the question is no answer, unless the device is lost. */
static bool op_ended(struct hc_transfer *t, struct hc_op *op)
{
	struct hc_device_event *event = HC_MUTANT(ACK_AT_START) ? op->start : op->finish;
	int err = op->unstarted    ? 0
		  : op->unrecorded ? hc_device_stream_drain(t->lines[op->direction].stream, 0)
				   : hc_device_event_query(event);

	if (!err)
		return true;
	if (!hc_device_health(t->device))
		return false;
	op->status = -EIO;
	return true;
}

/* To where it belongs, of the first that runs; its pages are leased, so nobody touches them. */
static void copy_bounced(struct hc_transfer *t, struct hc_line *line, struct hc_op *op)
{
	line->copying = true;
	pthread_mutex_unlock(&t->lock);
	for (uint32_t i = 0; i < op->n_pages; i++) {
		if (op->bounce[i] != HC_BOUNCE_NONE)
			memcpy(hc_transfer_host_data(t, op->host_pages[i]),
			       hc_bounce_data(t, op->bounce[i]), t->slot_bytes);
	}
	pthread_mutex_lock(&t->lock);
	line->copying = false;
	op->unbounced = true;
}

static void progress_line(struct hc_transfer *t, struct hc_line *line, bool may_unlock)
{
	while (line->n_running && !line->copying && op_ended(t, line->running[0])) {
		struct hc_op *op = line->running[0];

		if (op->n_bounced && op->direction == HC_PLAN_WRITE && !op->status &&
		    !op->unbounced) {
			if (!may_unlock)
				return;
			copy_bounced(t, line, op);
		}
		retire(t, op);
		line->n_running--;
		memmove(line->running, line->running + 1, line->n_running * sizeof(struct hc_op *));
	}
}

void hc_transfer_progress_locked(struct hc_transfer *t, bool may_unlock)
{
	progress_line(t, &t->lines[HC_PLAN_WRITE], may_unlock);
	progress_line(t, &t->lines[HC_PLAN_LOAD], may_unlock);
}

void *hc_transfer_progress_main(void *arg)
{
	struct hc_transfer *t = arg;

	pthread_setname_np(pthread_self(), "hc-transfer");
	pthread_mutex_lock(&t->lock);
	while (!t->stop) {
		uint32_t n_running = t->lines[0].n_running + t->lines[1].n_running;
		uint64_t until_ns = n_running ? hc_clock_now_ns() + POLL_NS : UINT64_MAX;

		hc_ignore(hc_cond_wait_until(&t->work, &t->lock, until_ns));
		hc_transfer_progress_locked(t, true);
		hc_transfer_flush_locked(t);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

int hc_transfer_poll(struct hc_transfer *t, enum hc_plan_direction direction, struct hc_ack *ack_p)
{
	struct hc_line *line = &t->lines[direction];
	int err = -EAGAIN;

	pthread_mutex_lock(&t->lock);
	if (!t->has_thread)
		hc_transfer_progress_locked(t, true);
	if (line->n_acks) {
		*ack_p = line->acks[line->first_ack];
		line->first_ack = (line->first_ack + 1) % HC_TRANSFER_QUEUE_MAX;
		line->n_acks--;
		free(line->polled);
		line->polled = (int64_t *)(uintptr_t)ack_p->nodes;
		err = 0;
	}
	hc_transfer_unlock(t);
	return err;
}

/* Both streams, without the lock; streams stay as long as the transfer. */
static void drain(struct hc_transfer *t, uint64_t deadline_ns)
{
	pthread_mutex_unlock(&t->lock);
	for (int i = 0; i < 2; i++)
		hc_ignore(hc_device_stream_drain(t->lines[i].stream, deadline_ns));
	pthread_mutex_lock(&t->lock);
}

int hc_transfer_settle(struct hc_transfer *t, uint64_t deadline_ns)
{
	hc_transfer_progress_locked(t, true);
	while (t->lines[0].n_running || t->lines[1].n_running) {
		if (hc_clock_now_ns() >= deadline_ns) {
			hc_error("controller", "%u writes and %u loads have not ended in time",
				 t->lines[HC_PLAN_WRITE].n_running,
				 t->lines[HC_PLAN_LOAD].n_running);
			return -ETIMEDOUT;
		}
		drain(t, deadline_ns);
		hc_transfer_progress_locked(t, true);
	}
	return 0;
}

/* Pages that only the queue knew go back: those that write and load themselves took. */
static void drop_queue(struct hc_transfer *t, enum hc_plan_direction direction)
{
	struct hc_line *line = &t->lines[direction];

	for (uint32_t i = 0; i < line->n_queued; i++) {
		struct hc_queued *q = line->queue[i];

		for (uint32_t k = 0; k < q->n_pages; k++) {
			if (direction == HC_PLAN_WRITE)
				t->host_pages[q->host_pages[k]].evicted = true;
			else if (!q->given)
				t->device_pages[q->device_pages[k]].evicted = true;
			hc_transfer_unlease_locked(t, q->host_pages[k], q->device_pages[k]);
		}
		if (q->bounce)
			hc_bounce_give_locked(t, q->bounce, q->n_pages);
		hc_queued_free(q);
	}
	line->n_queued = line->n_queued_pages = 0;
}

static void drop_acks(struct hc_line *line)
{
	for (; line->n_acks; line->n_acks--) {
		free((int64_t *)(uintptr_t)line->acks[line->first_ack].nodes);
		line->first_ack = (line->first_ack + 1) % HC_TRANSFER_QUEUE_MAX;
	}
	free(line->polled);
	line->polled = NULL;
}

int hc_transfer_reset(struct hc_transfer *t, uint64_t deadline_ns)
{
	int err;

	pthread_mutex_lock(&t->lock);
	err = hc_transfer_settle(t, deadline_ns);
	for (int i = 0; i < 2 && !err; i++) {
		drop_queue(t, (enum hc_plan_direction)i);
		drop_acks(&t->lines[i]);
	}
	/* Consumers of before are stale, whatever they still mean to wait for. */
	for (uint32_t i = 0; i < HC_TRANSFER_RING && !err; i++) {
		struct hc_op *op = &t->lines[HC_PLAN_LOAD].ops[i];

		op->state = HC_OP_FREE;
		op->generation = ++t->generation;
	}
	if (!err)
		t->lines[HC_PLAN_LOAD].next_op = 0;
	/* Also what another thread is giving back: who asks the node then finds nothing held. */
	if (!err)
		err = hc_transfer_returned_locked(t, deadline_ns);
	hc_transfer_unlock(t);
	return err;
}
