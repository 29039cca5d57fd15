/* SPDX-License-Identifier: Apache-2.0 */
/* See fault.h.
 *
 *   submit -> rule of the op -> error: done at once
 *                            -> hung[op], delayed: held, then ready
 *                            -> inner store            <- ready, by the pump
 *   the pump thread reaps the inner store, does the damage, and hands on to the done list +
 * eventfd.
 *
 * One lock for all of it; it is held over the inner store's submit (which does not block), never
 * over damage. */
#include "store/fault.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/rng.h"
#include "util/size.h"

#define HC_LOG         "store-fault"
#define HC_FAULT_N_OPS (HC_STORE_OPEN + 1)
/* Held requests are the store's memory: more is back-pressure. */
#define HC_FAULT_HELD_MAX 1024
#define HC_FAULT_REAP_MAX 64
#define HC_FAULT_ALL_PPM  1000000u

struct hc_fault_item {
	struct hc_store_request inner;
	struct hc_store_request *outer;
	enum hc_fault_kind kind;
	uint64_t due_ns;
	uint64_t bit_i; /* FLIP */
	void *copy;     /* PUT FLIP: the damaged bytes */
	struct hc_fault_item *queue_next;
	struct hc_fault_item *all_next;
	struct hc_fault_item **all_prev_p;
};

struct hc_fault_queue {
	struct hc_fault_item *first;
	struct hc_fault_item **last_p;
};

struct hc_store_fault {
	struct hc_store store; /* first */
	struct hc_store *inner;
	int event_fd;
	int wake_fd;
	pthread_t pump;
	pthread_mutex_t lock;
	/* under lock */
	struct hc_rng rng;
	struct hc_fault_rule rules[HC_FAULT_N_OPS];
	uint64_t n_seen[HC_FAULT_N_OPS]; /* since the rule was set */
	struct hc_fault_queue hung[HC_FAULT_N_OPS];
	struct hc_fault_queue delayed;
	struct hc_fault_queue ready;
	struct hc_fault_item *all;
	struct hc_store_request *done_first;
	struct hc_store_request **done_last_p;
	uint64_t n_held;
	bool closing;
	_Atomic uint64_t n_hung;
};

static struct hc_store_fault *hc_fault_of(struct hc_store *store)
{
	return (struct hc_store_fault *)store;
}

static void hc_fault_queue_init(struct hc_fault_queue *queue)
{
	queue->first = NULL;
	queue->last_p = &queue->first;
}

static void hc_fault_queue_add(struct hc_fault_queue *queue, struct hc_fault_item *item)
{
	item->queue_next = NULL;
	*queue->last_p = item;
	queue->last_p = &item->queue_next;
}

static struct hc_fault_item *hc_fault_queue_take(struct hc_fault_queue *queue)
{
	struct hc_fault_item *item = queue->first;

	if (item) {
		queue->first = item->queue_next;
		if (!queue->first)
			queue->last_p = &queue->first;
	}
	return item;
}

static void hc_fault_signal(int fd)
{
	const uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		hc_error(HC_LOG, "cannot signal: %m");
}

static void hc_fault_clear(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		hc_error(HC_LOG, "cannot clear an event: %m");
}

static void hc_fault_done_locked(struct hc_store_fault *store, struct hc_store_request *request)
{
	bool first = !store->done_first;

	request->next = NULL;
	*store->done_last_p = request;
	store->done_last_p = &request->next;
	if (first)
		hc_fault_signal(store->event_fd);
}

static void hc_fault_forget_locked(struct hc_fault_item *item)
{
	*item->all_prev_p = item->all_next;
	if (item->all_next)
		item->all_next->all_prev_p = item->all_prev_p;
}

static void hc_fault_item_free(struct hc_fault_item *item)
{
	free(item->copy);
	free(item);
}

/* ---- damage ---- */

/* The inner store is through with it: what the caller sees. */
static void hc_fault_finish(struct hc_fault_item *item)
{
	struct hc_store_request *outer = item->outer;
	uint64_t size_bytes = outer->page.size_bytes;
	bool hurt = !item->inner.result &&
		    (item->kind == HC_FAULT_FLIP || item->kind == HC_FAULT_SHORT);

	outer->result = item->inner.result;
	outer->mark = item->inner.mark;
	outer->fd = item->inner.fd;
	if (!hurt)
		return;
	if (outer->op == HC_STORE_OPEN) {
		close(outer->fd);
		outer->result = -EBADMSG;
	}
	if (outer->op == HC_STORE_VERIFY)
		outer->result = -EBADMSG;
	if (outer->op != HC_STORE_GET)
		return;
	if (item->kind == HC_FAULT_SHORT) {
		memset((char *)outer->data + size_bytes / 2, 0x5a,
		       (size_t)(size_bytes - size_bytes / 2));
		outer->result = -EBADMSG;
		return;
	}
	((uint8_t *)outer->data)[item->bit_i / 8] ^= (uint8_t)(1u << item->bit_i % 8);
	if (!(outer->flags & HC_STORE_NO_VERIFY))
		outer->result = -EBADMSG;
}

/* A put whose bytes are damaged on the way. False: no memory. */
static bool hc_fault_damage_put(struct hc_fault_item *item)
{
	uint64_t size_bytes = item->outer->page.size_bytes;
	uint64_t room = hc_align_up(size_bytes, HC_BLOCK_BYTES);

	if (item->kind == HC_FAULT_SHORT) {
		item->inner.page.size_bytes = size_bytes / 2;
		return true;
	}
	item->copy = aligned_alloc(HC_BLOCK_BYTES, (size_t)room);
	if (!item->copy)
		return false;
	memset((char *)item->copy + size_bytes, 0, (size_t)(room - size_bytes));
	memcpy(item->copy, item->outer->data, (size_t)size_bytes);
	((uint8_t *)item->copy)[item->bit_i / 8] ^= (uint8_t)(1u << item->bit_i % 8);
	item->inner.data = item->copy;
	return true;
}

/* ---- submit and reap ---- */

static enum hc_fault_kind hc_fault_judge_locked(struct hc_store_fault *store,
						const struct hc_store_request *request)
{
	const struct hc_fault_rule *rule = &store->rules[request->op];
	enum hc_fault_kind kind = rule->kind;

	if (kind == HC_FAULT_NONE)
		return kind;
	if (rule->nth ? store->n_seen[request->op] + 1 != rule->nth
		      : hc_rng_below(&store->rng, HC_FAULT_ALL_PPM) >= rule->rate_ppm)
		return HC_FAULT_NONE;
	/* Bad requests are for the inner store to refuse. */
	if ((kind == HC_FAULT_FLIP || kind == HC_FAULT_SHORT) &&
	    (!request->page.size_bytes ||
	     (request->op != HC_STORE_VERIFY && request->op != HC_STORE_OPEN && !request->data)))
		return HC_FAULT_NONE;
	if (kind == HC_FAULT_SHORT && request->op == HC_STORE_PUT && request->page.size_bytes < 2)
		return HC_FAULT_FLIP;
	return kind;
}

static struct hc_fault_item *hc_fault_item_new(struct hc_store_fault *store,
					       struct hc_store_request *request,
					       enum hc_fault_kind kind, uint64_t now_ns)
{
	struct hc_fault_item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	item->inner = *request;
	item->inner.arg = item;
	item->outer = request;
	item->kind = kind;
	item->due_ns = now_ns + store->rules[request->op].delay_ns;
	if (kind == HC_FAULT_FLIP)
		item->bit_i = hc_rng_below(&store->rng, request->page.size_bytes * 8);
	if (request->op == HC_STORE_PUT && (kind == HC_FAULT_FLIP || kind == HC_FAULT_SHORT) &&
	    !hc_fault_damage_put(item)) {
		free(item);
		return NULL;
	}
	return item;
}

/* False: back-pressure. */
static bool hc_fault_submit_one_locked(struct hc_store_fault *store,
				       struct hc_store_request *request, uint64_t now_ns)
{
	enum hc_fault_kind kind = hc_fault_judge_locked(store, request);
	bool held = kind == HC_FAULT_HANG || kind == HC_FAULT_DELAY;
	struct hc_fault_item *item;
	struct hc_store_request *inner;

	if (kind == HC_FAULT_ERROR) {
		request->result = store->rules[request->op].error;
		hc_fault_done_locked(store, request);
		return true;
	}
	if (held && store->n_held >= HC_FAULT_HELD_MAX)
		return false;
	item = hc_fault_item_new(store, request, kind, now_ns);
	if (!item)
		return false;
	inner = &item->inner;
	if (!held && store->inner->ops->submit(store->inner, &inner, 1) != 1) {
		hc_fault_item_free(item);
		return false;
	}
	item->all_next = store->all;
	item->all_prev_p = &store->all;
	if (store->all)
		store->all->all_prev_p = &item->all_next;
	store->all = item;
	if (held) {
		store->n_held++;
		hc_fault_queue_add(
			kind == HC_FAULT_HANG ? &store->hung[request->op] : &store->delayed, item);
	}
	if (kind == HC_FAULT_HANG)
		atomic_fetch_add(&store->n_hung, 1);
	if (kind == HC_FAULT_DELAY)
		hc_fault_signal(store->wake_fd);
	return true;
}

static size_t hc_fault_submit(struct hc_store *base, struct hc_store_request **requests, size_t n)
{
	struct hc_store_fault *store = hc_fault_of(base);
	uint64_t now_ns = hc_clock_now_ns();
	size_t i;

	pthread_mutex_lock(&store->lock);
	for (i = 0; i < n; i++) {
		struct hc_store_request *request = requests[i];

		request->submitted_ns = now_ns;
		if ((size_t)request->op >= HC_FAULT_N_OPS) {
			request->result = -EINVAL;
			hc_fault_done_locked(store, request);
			continue;
		}
		if (!hc_fault_submit_one_locked(store, request, now_ns))
			break;
		store->n_seen[request->op]++;
	}
	pthread_mutex_unlock(&store->lock);
	return i;
}

static size_t hc_fault_reap(struct hc_store *base, struct hc_store_request **done, size_t max)
{
	struct hc_store_fault *store = hc_fault_of(base);
	size_t n = 0;

	pthread_mutex_lock(&store->lock);
	while (n < max && store->done_first) {
		done[n] = store->done_first;
		store->done_first = done[n]->next;
		done[n++]->next = NULL;
	}
	if (n && !store->done_first) {
		store->done_last_p = &store->done_first;
		hc_fault_clear(store->event_fd);
	}
	pthread_mutex_unlock(&store->lock);
	return n;
}

/* ---- the pump ---- */

/* Hands on what may go to the inner store; how long to wait for the next thing, in ms. */
static int hc_fault_hand_on_locked(struct hc_store_fault *store)
{
	uint64_t now_ns = hc_clock_now_ns(), next_ns = UINT64_MAX;
	struct hc_fault_queue later;
	struct hc_fault_item *item;

	hc_fault_queue_init(&later);
	while ((item = hc_fault_queue_take(&store->delayed))) {
		if (item->due_ns > now_ns)
			next_ns = hc_min_u64(next_ns, item->due_ns);
		hc_fault_queue_add(item->due_ns > now_ns ? &later : &store->ready, item);
	}
	while ((item = hc_fault_queue_take(&later)))
		hc_fault_queue_add(&store->delayed, item);
	while ((item = store->ready.first)) {
		struct hc_store_request *inner = &item->inner;

		hc_fault_queue_take(&store->ready);
		if (store->inner->ops->submit(store->inner, &inner, 1) == 1) {
			store->n_held--;
			continue;
		}
		hc_fault_queue_add(&store->ready, item);
		return 1;
	}
	if (next_ns == UINT64_MAX)
		return -1;
	return (int)hc_min_u64((next_ns - now_ns) / HC_NS_PER_MS + 1, 1000);
}

static void hc_fault_collect(struct hc_store_fault *store)
{
	struct hc_store_request *done[HC_FAULT_REAP_MAX];
	size_t n;

	while ((n = store->inner->ops->reap(store->inner, done, HC_FAULT_REAP_MAX))) {
		for (size_t i = 0; i < n; i++)
			hc_fault_finish(done[i]->arg);
		pthread_mutex_lock(&store->lock);
		for (size_t i = 0; i < n; i++) {
			struct hc_fault_item *item = done[i]->arg;

			hc_fault_forget_locked(item);
			hc_fault_done_locked(store, item->outer);
			hc_fault_item_free(item);
		}
		pthread_mutex_unlock(&store->lock);
	}
}

static void *hc_fault_pump(void *arg)
{
	struct hc_store_fault *store = arg;
	struct pollfd fds[2] = {
		{.fd = store->inner->ops->event_fd(store->inner), .events = POLLIN},
		{.fd = store->wake_fd, .events = POLLIN},
	};

	for (;;) {
		int wait_ms;
		bool closing;

		pthread_mutex_lock(&store->lock);
		closing = store->closing;
		wait_ms = closing ? 0 : hc_fault_hand_on_locked(store);
		pthread_mutex_unlock(&store->lock);
		if (closing)
			return NULL;
		if (poll(fds, HC_ARRAY_SIZE(fds), wait_ms) < 0 && errno != EINTR)
			hc_error(HC_LOG, "cannot poll: %m");
		if (fds[1].revents)
			hc_fault_clear(store->wake_fd);
		hc_fault_collect(store);
	}
}

/* ---- the rest ---- */

void hc_store_fault_set(struct hc_store *base, const struct hc_fault_rule *rule)
{
	struct hc_store_fault *store = hc_fault_of(base);
	struct hc_fault_item *item;

	hc_assert((size_t)rule->op < HC_FAULT_N_OPS);
	pthread_mutex_lock(&store->lock);
	store->rules[rule->op] = *rule;
	store->n_seen[rule->op] = 0;
	while (rule->kind == HC_FAULT_NONE &&
	       (item = hc_fault_queue_take(&store->hung[rule->op]))) {
		atomic_fetch_sub(&store->n_hung, 1);
		hc_fault_queue_add(&store->ready, item);
	}
	pthread_mutex_unlock(&store->lock);
	hc_fault_signal(store->wake_fd);
}

/* The operations that a text names: those that read pages, or that write them. */
static size_t hc_fault_named_ops(const char *text, enum hc_store_op ops[2])
{
	if (!strcmp(text, "read")) {
		ops[0] = HC_STORE_GET;
		ops[1] = HC_STORE_OPEN;
		return 2;
	}
	if (!strcmp(text, "write")) {
		ops[0] = HC_STORE_PUT;
		return 1;
	}
	return 0;
}

struct hc_store *hc_store_fault_env(void *arg, struct hc_store *inner)
{
	const char *delay = secure_getenv("HICACHE_STORE_DELAY_MS");
	const char *hang = secure_getenv("HICACHE_STORE_HANG");
	struct hc_fault_rule rule = {.kind = HC_FAULT_DELAY, .rate_ppm = HC_FAULT_ALL_PPM};
	enum hc_store_op ops[2] = {HC_STORE_GET, HC_STORE_OPEN};
	struct hc_store *store;
	uint64_t delay_ms = 0;
	size_t n = 2;

	(void)arg;
	if ((!delay || !*delay) && (!hang || !*hang))
		return inner;
	if (hang && *hang) {
		rule.kind = HC_FAULT_HANG;
		n = hc_fault_named_ops(hang, ops);
		if (!n)
			hc_error(HC_LOG, "HICACHE_STORE_HANG %s: read or write is wanted", hang);
	} else if (hc_u64_parse(delay, &delay_ms) || !delay_ms || delay_ms > 60000) {
		hc_error(HC_LOG, "HICACHE_STORE_DELAY_MS %s: a number from 1 to 60000 is wanted",
			 delay);
		n = 0;
	}
	if (!n || hc_store_fault_open(inner, 1, &store))
		return inner;
	if (delay_ms)
		hc_warn(HC_LOG, "HICACHE_STORE_DELAY_MS: every read of a page takes %llu ms longer",
			(unsigned long long)delay_ms);
	else
		hc_warn(HC_LOG, "HICACHE_STORE_HANG: no %s of a page ends", hang);
	rule.delay_ns = delay_ms * HC_NS_PER_MS;
	for (size_t i = 0; i < n; i++) {
		rule.op = ops[i];
		hc_store_fault_set(store, &rule);
	}
	return store;
}

uint64_t hc_store_fault_hung(struct hc_store *base)
{
	return atomic_load(&hc_fault_of(base)->n_hung);
}

static void hc_fault_cancel(struct hc_fault_queue *queue)
{
	struct hc_fault_item *item;

	while ((item = hc_fault_queue_take(queue)))
		item->inner.result = -ECANCELED;
}

static void hc_fault_close(struct hc_store *base)
{
	struct hc_store_fault *store = hc_fault_of(base);
	struct hc_fault_item *item;

	pthread_mutex_lock(&store->lock);
	store->closing = true;
	pthread_mutex_unlock(&store->lock);
	hc_fault_signal(store->wake_fd);
	pthread_join(store->pump, NULL);
	for (int op = 0; op < HC_FAULT_N_OPS; op++)
		hc_fault_cancel(&store->hung[op]);
	hc_fault_cancel(&store->delayed);
	hc_fault_cancel(&store->ready);
	store->inner->ops->close(store->inner);
	while ((item = store->all)) {
		hc_fault_finish(item);
		hc_fault_forget_locked(item);
		hc_fault_item_free(item);
	}
	close(store->event_fd);
	close(store->wake_fd);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

/* What is held is urgent when it goes on. */
static void hc_fault_hurry_queue(struct hc_fault_queue *queue, uint16_t disk, uint64_t sequence)
{
	for (struct hc_fault_item *item = queue->first; item; item = item->queue_next) {
		if ((item->inner.op == HC_STORE_GET || item->inner.op == HC_STORE_OPEN) &&
		    item->inner.disk == disk && item->inner.page.sequence == sequence)
			item->inner.flags |= HC_STORE_URGENT;
	}
}

static void hc_fault_hurry(struct hc_store *base, uint16_t disk, uint64_t sequence)
{
	struct hc_store_fault *store = hc_fault_of(base);

	pthread_mutex_lock(&store->lock);
	hc_fault_hurry_queue(&store->hung[HC_STORE_GET], disk, sequence);
	hc_fault_hurry_queue(&store->hung[HC_STORE_OPEN], disk, sequence);
	hc_fault_hurry_queue(&store->delayed, disk, sequence);
	hc_fault_hurry_queue(&store->ready, disk, sequence);
	store->inner->ops->hurry(store->inner, disk, sequence);
	pthread_mutex_unlock(&store->lock);
}

static int hc_fault_event_fd(struct hc_store *base)
{
	return hc_fault_of(base)->event_fd;
}

static int hc_fault_register_memory(struct hc_store *base, void *addr, size_t size_bytes)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->register_memory(inner, addr, size_bytes);
}

static uint16_t hc_fault_n_disks(struct hc_store *base)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->n_disks(inner);
}

static int hc_fault_disk_info(struct hc_store *base, uint16_t disk,
			      struct hc_store_disk_info *info_p)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->disk_info(inner, disk, info_p);
}

static int hc_fault_list(struct hc_store *base, uint16_t disk, hc_store_each_t each, void *arg)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->list(inner, disk, each, arg);
}

static int hc_fault_staging_create(struct hc_store *base, uint16_t disk, int *fd_p, char *name,
				   size_t room)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->staging_create(inner, disk, fd_p, name, room);
}

static int hc_fault_staging_remove(struct hc_store *base, uint16_t disk, const char *name)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->staging_remove(inner, disk, name);
}

static int hc_fault_open_file(struct hc_store *base, uint16_t disk,
			      const struct hc_store_page *page, int *fd_p, uint64_t *mark_p)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->open_file(inner, disk, page, fd_p, mark_p);
}

static void hc_fault_drop_cache(struct hc_store *base, uint16_t disk,
				const struct hc_store_page *page)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	inner->ops->drop_cache(inner, disk, page);
}

static int hc_fault_sweep(struct hc_store *base, uint16_t disk,
			  bool (*keep)(void *arg, uint32_t series, const struct hc_hash *hash,
				       uint64_t sequence),
			  void *arg, bool quarantine, uint64_t *n_removed_p,
			  uint64_t *bytes_removed_p)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->sweep(inner, disk, keep, arg, quarantine, n_removed_p, bytes_removed_p);
}

static int hc_fault_sync(struct hc_store *base, uint16_t disk, uint64_t deadline_ns)
{
	struct hc_store *inner = hc_fault_of(base)->inner;

	return inner->ops->sync(inner, disk, deadline_ns);
}

static const struct hc_store_ops hc_fault_ops = {
	.name = "fault",
	.close = hc_fault_close,
	.submit = hc_fault_submit,
	.reap = hc_fault_reap,
	.hurry = hc_fault_hurry,
	.event_fd = hc_fault_event_fd,
	.register_memory = hc_fault_register_memory,
	.n_disks = hc_fault_n_disks,
	.disk_info = hc_fault_disk_info,
	.list = hc_fault_list,
	.staging_create = hc_fault_staging_create,
	.staging_remove = hc_fault_staging_remove,
	.open_file = hc_fault_open_file,
	.drop_cache = hc_fault_drop_cache,
	.sync = hc_fault_sync,
	.sweep = hc_fault_sweep,
};

int hc_store_fault_open(struct hc_store *inner, uint64_t seed, struct hc_store **store_p)
{
	struct hc_store_fault *store = calloc(1, sizeof(*store));
	int rc;

	if (!store)
		return -ENOMEM;
	store->store.ops = &hc_fault_ops;
	store->inner = inner;
	hc_rng_seed(&store->rng, seed);
	pthread_mutex_init(&store->lock, NULL);
	for (int op = 0; op < HC_FAULT_N_OPS; op++)
		hc_fault_queue_init(&store->hung[op]);
	hc_fault_queue_init(&store->delayed);
	hc_fault_queue_init(&store->ready);
	store->done_last_p = &store->done_first;
	store->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	store->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = store->event_fd < 0 || store->wake_fd < 0
		     ? -errno
		     : -pthread_create(&store->pump, NULL, hc_fault_pump, store);
	if (!rc) {
		*store_p = &store->store;
		return 0;
	}
	hc_error(HC_LOG, "cannot open: %s", strerror(-rc));
	if (store->event_fd >= 0)
		close(store->event_fd);
	if (store->wake_fd >= 0)
		close(store->wake_fd);
	pthread_mutex_destroy(&store->lock);
	free(store);
	return rc;
}
