/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of transfer.h. Everything is guarded by the transfer's lock. */
#ifndef HC_CONTROLLER_INTERNAL_H
#define HC_CONTROLLER_INTERNAL_H

#include "controller/pins.h"
#include "controller/slots.h"
#include "controller/transfer.h"
#include "util/clock.h"

/* Mistakes of order that tests plant, in a build of these files of their own. */
enum hc_mutant {
	HC_MUTANT_NONE,
	HC_MUTANT_NO_START,       /* the copies do not wait for the caller's stream */
	HC_MUTANT_ACK_AT_START,   /* finished when the start event is reached */
	HC_MUTANT_LAYER_EARLY,    /* the event of a layer before its copies */
	HC_MUTANT_CONSUMER,       /* a slot is free while its consumer is not */
	HC_MUTANT_LEASE,          /* evicting frees at once */
	HC_MUTANT_RING,           /* a slot is free while its load is not */
	HC_MUTANT_PAIRS,          /* all transfers share one array of page pairs */
	HC_MUTANT_UNORDERED,      /* no order between loads and writes of one page */
	HC_MUTANT_STALE,          /* generations are not compared */
	HC_MUTANT_COMPLETE_EARLY, /* a host page is complete at submission */
	HC_MUTANTS,
};

#ifdef HC_CONTROLLER_MUTANTS
extern enum hc_mutant hc_mutant;
#define HC_MUTANT(m) (hc_mutant == HC_MUTANT_##m)
#else
#define HC_MUTANT(m) false
#endif

/* One transfer: a slot of the ring, or one of the writes. FREE -> RUNNING -> DRAINING (finished;
 * its consumer may not be) -> FREE. */
enum hc_op_state { HC_OP_FREE, HC_OP_RUNNING, HC_OP_DRAINING };

struct hc_op {
	enum hc_plan_direction direction;
	enum hc_op_state state;
	int status;
	bool unstarted;  /* it never got to its stream */
	bool unrecorded; /* the finish event could not be recorded: drain the stream instead */
	bool consumed;   /* a consumer's event was recorded */
	bool consuming;  /* a consumer waited for a layer, and not yet for the last */
	uint32_t generation;
	uint32_t n_layers_done; /* of a load: whose event was recorded */
	uint32_t mark;
	uint32_t n_pages;
	struct hc_plan_page *pages;
	uint32_t *host_pages;
	uint32_t *bounce; /* shared: of each page its slot of the bounce buffer, or none */
	uint32_t n_bounced;
	bool unbounced; /* a write: what bounced is where it belongs */
	struct hc_page_pair *pairs;
	hc_device_addr pairs_addr;
	struct hc_device_event *start, *finish, *consumer;
	struct hc_device_event **layers; /* of a load */
	int priority;
	uint32_t n_nodes;
	int64_t *nodes; /* goes on to the ack */
};

struct hc_queued {
	uint32_t n_pages;
	int priority;
	int64_t node;
	bool given;
	uint32_t *host_pages, *device_pages;
	uint32_t *bounce; /* as in hc_op; NULL: no page bounces */
};

/* A page of either side. */
struct hc_side_page {
	struct hc_op *writer, *reader; /* the last transfers of it, while they run */
	uint16_t n_leases;             /* queued and running transfers */
	bool evicted;                  /* free it with the last lease */
	bool named;                    /* seen in the call that is being checked */
	bool complete;                 /* host: its write has finished */
	bool lost; /* host, shared: the device was lost while it wrote here; kept to the end */
};

/* Shared: what the number of a host page stands for. */
enum hc_held_kind { HC_HELD_NOTHING, HC_HELD_RESERVATION, HC_HELD_LEASE };

struct hc_held {
	struct hc_ref ref;
	hc_device_addr addr; /* 0: its segment is not registered, it bounces */
	enum hc_held_kind kind;
};

struct hc_shared_segment {
	void *host;
	hc_device_addr addr;
};

/* Host pages are slots of a node's pool. */
struct hc_shared {
	struct hc_node *node;
	struct hc_pins *pins;
	struct hc_held *held; /* by host page: whoever took the number, then the lock */
	uint32_t *returning;  /* numbers whose refs go back with the next unlock */
	uint32_t n_returning;
	uint32_t n_giving;        /* on their way back, outside the lock */
	pthread_cond_t given;     /* none is */
	pthread_mutex_t pin_lock; /* long, before the lock: segments */
	struct hc_shared_segment *segments;
	uint32_t n_segments;
};

#define HC_BOUNCE_NONE       UINT32_MAX
#define HC_BOUNCE_CHUNKS_MAX 64

struct hc_bounce_chunk {
	void *host;
	hc_device_addr addr;
};

struct hc_bounce {
	struct hc_bounce_chunk chunks[HC_BOUNCE_CHUNKS_MAX];
	uint32_t n_chunks, n_free;
	uint32_t *free; /* slots */
};

struct hc_line {
	struct hc_device_stream *stream;
	hc_device_addr staging;
	struct hc_queued *queue[HC_TRANSFER_QUEUE_MAX];
	uint32_t n_queued, n_queued_pages;
	struct hc_op *ops;
	uint32_t n_ops, next_op;
	struct hc_op *running[HC_TRANSFER_WRITES_MAX]; /* in order of their start */
	uint32_t n_running;
	bool copying; /* a thread copies what bounced of running[0], without the lock */
	struct hc_ack acks[HC_TRANSFER_QUEUE_MAX]; /* a ring */
	uint32_t first_ack, n_acks;
	int64_t *polled; /* nodes of the ack that was polled last */
};

struct hc_transfer {
	struct hc_transfer_config config;
	struct hc_device *device;
	struct hc_plan *plan;
	uint32_t n_layers, n_device_pages;
	hc_device_addr host_addr;
	uint64_t slot_bytes;
	struct hc_shared *shared; /* NULL: a host pool of its own */
	pthread_mutex_t lock;     /* all below */
	pthread_cond_t work;      /* something was started, or stop */
	pthread_t thread;
	bool has_thread, stop;
	struct hc_slots *host_slots, *device_slots;
	struct hc_side_page *host_pages, *device_pages;
	struct hc_line lines[2]; /* by hc_plan_direction */
	uint64_t staging_bytes;
	uint32_t generation, mark;
	int n_created; /* default priority */
	struct hc_device_copy *copies;
	struct hc_bounce bounce;
	struct hc_transfer_stats stats;
};

/* start.c. op_p: NULL when nothing was started, and the queue is as it was. */
int hc_transfer_start_locked(struct hc_transfer *transfer, enum hc_plan_direction direction,
			     struct hc_device_stream *caller, struct hc_op **op_p);
/* progress.c. may_unlock: what bounced is copied, without the lock; else it waits for a call that
 * may. */
void hc_transfer_progress_locked(struct hc_transfer *transfer, bool may_unlock);
void *hc_transfer_progress_main(void *transfer);
/* Ends what is in flight; unlocks while it waits. */
int hc_transfer_settle(struct hc_transfer *transfer, uint64_t deadline_ns);
void hc_transfer_unlease_locked(struct hc_transfer *transfer, uint32_t host, uint32_t device);
void hc_transfer_free_host_locked(struct hc_transfer *transfer, uint32_t page);
/* transfer.c */
void hc_queued_free(struct hc_queued *queued);
/* Where the host finds a page. */
void *hc_transfer_host_data(struct hc_transfer *transfer, uint32_t page);

/* shared.c */
int hc_shared_create(struct hc_transfer *transfer) HC_MUST_CHECK;
/* Gives back all that is held. */
void hc_shared_destroy(struct hc_transfer *transfer);
/* n reservations under new numbers, which nobody may name yet (evicted). Without the lock. */
int hc_shared_reserve(struct hc_transfer *transfer, size_t n, uint32_t *pages) HC_MUST_CHECK;
void hc_shared_drop(struct hc_transfer *transfer, const uint32_t *pages, size_t n);
/* The page goes back to the node with the next unlock. */
void hc_shared_return_locked(struct hc_transfer *transfer, uint32_t page);
/* Both give back, without the lock, what was noted for that. */
void hc_transfer_flush_locked(struct hc_transfer *transfer);
void hc_transfer_unlock(struct hc_transfer *transfer);
/* The same, and waits for what other threads are giving back. -ETIMEDOUT. */
int hc_transfer_returned_locked(struct hc_transfer *transfer, uint64_t deadline_ns) HC_MUST_CHECK;

/* bounce.c. -EAGAIN: all are in use; -ENOMEM. Without the lock. */
int hc_bounce_take(struct hc_transfer *transfer, uint32_t n, uint32_t *slots) HC_MUST_CHECK;
void hc_bounce_give_locked(struct hc_transfer *transfer, const uint32_t *slots, uint32_t n);
hc_device_addr hc_bounce_addr(struct hc_transfer *transfer, uint32_t slot);
void *hc_bounce_data(struct hc_transfer *transfer, uint32_t slot);
void hc_bounce_destroy(struct hc_transfer *transfer);

#endif
