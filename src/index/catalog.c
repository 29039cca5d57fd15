/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of changes, its thread and the life of the catalog. See catalog.h.
 *
 * Locks in order: journal_lock (append order is ticket order), env_lock (whoever touches the
 * environment), lock (queue and state). The first two are held over I/O and are taken by nobody who
 * must not wait: put without `now` takes only the last. */
#include "index/catalog-internal.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "util/clock.h"
#include "util/log.h"

#define HC_QUEUE_CHANGES_MAX ((uint64_t)1 << 20)
#define HC_QUEUE_BYTES_MAX   (512 * HC_MIB)
#define HC_QUEUE_WAIT_NS     (30 * HC_NS_PER_S)
#define HC_BATCH_CHANGES     4096
#define HC_CHUNK_ROOM        (64 * HC_KIB - 32)
/* A batch is whole chunks: the last one may go beyond. */
#define HC_BATCH_MAX         (HC_BATCH_CHANGES + HC_CHUNK_ROOM / sizeof(struct hc_change))
#define HC_COMMIT_DEFAULT_NS (100 * HC_NS_PER_MS)
#define HC_RETRY_NS          HC_NS_PER_S
#define HC_CLOSE_TRIES       3
#define HC_MAP_BYTES_DEFAULT HC_GIB

struct hc_chunk {
	struct hc_chunk *next;
	uint32_t n;
	uint32_t n_bytes;
	uint64_t unused[2];
	uint8_t bytes[HC_CHUNK_ROOM] __attribute__((aligned(8)));
};

struct hc_catalog {
	struct hc_catalog_config config;
	char *dir;
	int dirfd;
	int lock_fd;
	pthread_t thread;

	pthread_mutex_t journal_lock;
	struct hc_journal *journal; /* journal_lock */

	pthread_mutex_t env_lock;
	struct hc_env *env;               /* env_lock; NULL when lost */
	struct hc_chunk *batch;           /* env_lock: taken from the queue, not committed yet */
	struct hc_change **batch_changes; /* env_lock; HC_BATCH_MAX */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t work;  /* for the thread */
	pthread_cond_t done;  /* for sync and for a full queue */
	struct hc_chunk *head, *tail;
	struct hc_chunk *spare;
	uint64_t n_in_queue; /* not taken by the thread */
	uint64_t n_pending;  /* not committed */
	uint64_t n_pending_bytes;
	uint64_t first_ns; /* when the queue became not empty */
	uint64_t retry_ns; /* after a failure: not before this */
	uint64_t last_ticket;
	uint64_t committed;
	uint64_t dropped_from, dropped_to; /* tickets of the last loss */
	uint64_t n_failures;
	int failure; /* of the last try */
	bool urgent; /* somebody waits */
	bool lost;
	bool stop;
	struct hc_catalog_stats stats;
};

/* Queue, under lock */

static struct hc_change *hc_queue_room(struct hc_catalog *c, size_t n_bytes)
{
	size_t need = sizeof(struct hc_change) + hc_align_up(n_bytes, 8);
	struct hc_chunk *chunk = c->tail;
	struct hc_change *change;

	if (!chunk || HC_CHUNK_ROOM - chunk->n_bytes < need) {
		chunk = c->spare ? c->spare : malloc(sizeof(*chunk));
		if (!chunk)
			return NULL;
		c->spare = NULL;
		chunk->next = NULL;
		chunk->n = 0;
		chunk->n_bytes = 0;
		if (c->tail)
			c->tail->next = chunk;
		else
			c->head = chunk;
		c->tail = chunk;
	}
	change = (struct hc_change *)(chunk->bytes + chunk->n_bytes);
	chunk->n_bytes += (uint32_t)need;
	chunk->n++;
	return change;
}

static void hc_chunks_free(struct hc_chunk *chunk)
{
	while (chunk) {
		struct hc_chunk *next = chunk->next;

		free(chunk);
		chunk = next;
	}
}

static int hc_queue_wait(struct hc_catalog *c)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_QUEUE_WAIT_NS;

	while (!c->lost &&
	       (c->n_pending >= HC_QUEUE_CHANGES_MAX || c->n_pending_bytes >= HC_QUEUE_BYTES_MAX)) {
		/* Waiting for a full disk would stop everybody for long. */
		if (c->failure)
			return c->failure;
		if (hc_cond_wait_until(&c->done, &c->lock, deadline_ns)) {
			hc_error("catalog", "commits do not keep up: %llu changes wait",
				 (unsigned long long)c->n_pending);
			return -ETIMEDOUT;
		}
	}
	return 0;
}

static int hc_queue_change(struct hc_catalog *c, struct hc_change *head, const void *value)
{
	struct hc_change *change;
	int rc = hc_queue_wait(c);

	if (rc)
		return rc;
	/* Renew's caller puts everything again: until then there is nothing to keep. */
	if (!c->lost) {
		change = hc_queue_room(c, head->n_bytes);
		if (!change)
			return -ENOMEM;
		head->ticket = c->last_ticket + 1;
		*change = *head;
		if (head->n_bytes)
			memcpy(change->value, value, head->n_bytes);
		if (!c->n_in_queue++)
			c->first_ns = hc_clock_now_ns();
		c->n_pending++;
		c->n_pending_bytes += sizeof(*change) + head->n_bytes;
		if (c->n_in_queue == 1 || c->n_in_queue == HC_BATCH_CHANGES)
			pthread_cond_signal(&c->work);
	}
	head->ticket = ++c->last_ticket;
	c->stats.n_changes++;
	return 0;
}

static int hc_catalog_change(struct hc_catalog *c, struct hc_change *head, const void *value,
			     bool now, uint64_t *ticket_p)
{
	uint64_t committed;
	int rc;

	if (now)
		pthread_mutex_lock(&c->journal_lock);
	pthread_mutex_lock(&c->lock);
	rc = hc_queue_change(c, head, value);
	/* When lost, no record is needed: the file has lost its name, the next start rebuilds. */
	committed = c->lost ? c->last_ticket : c->committed;
	pthread_mutex_unlock(&c->lock);
	if (now) {
		if (!rc && hc_journal_append(c->journal, head, value, committed))
			rc = -EIO;
		pthread_mutex_unlock(&c->journal_lock);
	}
	if (!rc && ticket_p)
		*ticket_p = head->ticket;
	return rc;
}

int hc_catalog_put(struct hc_catalog *catalog, enum hc_table table, uint64_t key, const void *value,
		   size_t n_bytes, bool now, uint64_t *ticket_p)
{
	struct hc_change head = {.key = key,
				 .table = (uint8_t)table,
				 .op = HC_CHANGE_PUT,
				 .n_bytes = (uint16_t)n_bytes};

	hc_assert(table < HC_TABLE_N && n_bytes <= HC_VALUE_BYTES_MAX);
	hc_assert(table != HC_TABLE_META || key > HC_META_EPOCH);
	return hc_catalog_change(catalog, &head, value, now, ticket_p);
}

int hc_catalog_del(struct hc_catalog *catalog, enum hc_table table, uint64_t key, bool now,
		   uint64_t *ticket_p)
{
	struct hc_change head = {.key = key, .table = (uint8_t)table, .op = HC_CHANGE_DEL};

	hc_assert(table < HC_TABLE_N && (table != HC_TABLE_META || key > HC_META_EPOCH));
	return hc_catalog_change(catalog, &head, NULL, now, ticket_p);
}

int hc_catalog_sync(struct hc_catalog *catalog, uint64_t ticket, uint64_t deadline_ns)
{
	struct hc_catalog *c = catalog;
	bool everything = !ticket;
	uint64_t n_failures, n_lost;
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (everything)
		ticket = c->last_ticket;
	n_failures = c->n_failures;
	n_lost = c->stats.n_lost;
	for (;;) {
		if (c->lost || n_lost != c->stats.n_lost ||
		    (!everything && ticket >= c->dropped_from && ticket <= c->dropped_to))
			rc = -EIO;
		else if (ticket > c->committed && n_failures != c->n_failures)
			rc = c->failure;
		if (rc || ticket <= c->committed)
			break;
		if (!c->urgent) {
			c->urgent = true;
			pthread_cond_signal(&c->work);
		}
		rc = hc_cond_wait_until(&c->done, &c->lock, deadline_ns);
		if (rc) {
			rc = ticket <= c->committed ? 0 : rc;
			break;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

bool hc_catalog_is_lost(struct hc_catalog *catalog)
{
	bool lost;

	pthread_mutex_lock(&catalog->lock);
	lost = catalog->lost;
	pthread_mutex_unlock(&catalog->lock);
	return lost;
}

void hc_catalog_stats(struct hc_catalog *catalog, struct hc_catalog_stats *stats_p)
{
	pthread_mutex_lock(&catalog->lock);
	*stats_p = catalog->stats;
	stats_p->n_queued = catalog->n_pending;
	stats_p->n_journal_bytes = hc_journal_bytes(catalog->journal);
	pthread_mutex_unlock(&catalog->lock);
}

/* Loss */

/* Takes the file's name away, so that the next start does not believe it. Only the newest bad file
 * is kept. */
static int hc_catalog_set_aside(struct hc_catalog *c)
{
	char name[64], old[64];
	unsigned n = 0;

	if (faccessat(c->dirfd, HC_CATALOG_FILE, F_OK, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	for (unsigned i = 1; i < 1000000; i++) {
		snprintf(old, sizeof(old), HC_CATALOG_FILE ".bad-%u", i);
		if (!faccessat(c->dirfd, old, F_OK, AT_SYMLINK_NOFOLLOW))
			n = i;
		else if (i > n + 16)
			break;
	}
	snprintf(name, sizeof(name), HC_CATALOG_FILE ".bad-%u", n + 1);
	if (renameat(c->dirfd, HC_CATALOG_FILE, c->dirfd, name)) {
		int rc = -errno;

		hc_error("catalog", "cannot rename %s/" HC_CATALOG_FILE ": %m", c->dir);
		return rc;
	}
	snprintf(old, sizeof(old), HC_CATALOG_FILE ".bad-%u", n);
	if (n && unlinkat(c->dirfd, old, 0))
		hc_warn("catalog", "cannot remove %s/%s: %m", c->dir, old);
	hc_warn("catalog", "the unreadable catalog is kept as %s/%s", c->dir, name);
	return 0;
}

/* env_lock is held. */
static void hc_catalog_lose(struct hc_catalog *c)
{
	struct hc_chunk *queue;

	hc_env_close(c->env);
	c->env = NULL;
	hc_chunks_free(c->batch);
	c->batch = NULL;
	pthread_mutex_lock(&c->lock);
	queue = c->head;
	c->head = NULL;
	c->tail = NULL;
	c->n_in_queue = 0;
	c->n_pending = 0;
	c->n_pending_bytes = 0;
	c->dropped_from = c->committed + 1;
	c->dropped_to = UINT64_MAX;
	c->failure = 0;
	c->lost = true;
	c->stats.n_lost++;
	pthread_cond_broadcast(&c->done);
	pthread_mutex_unlock(&c->lock);
	hc_chunks_free(queue);
	if (hc_catalog_set_aside(c))
		hc_error("catalog", "remove %s/" HC_CATALOG_FILE " before the next start", c->dir);
}

/* The thread */

static size_t hc_batch_take_locked(struct hc_catalog *c)
{
	struct hc_chunk *last = c->head;
	size_t n = last->n;

	while (n < HC_BATCH_CHANGES && last->next) {
		last = last->next;
		n += last->n;
	}
	c->batch = c->head;
	c->head = last->next;
	if (!c->head)
		c->tail = NULL;
	last->next = NULL;
	c->n_in_queue -= n;
	c->first_ns = hc_clock_now_ns();
	return n;
}

/* env_lock is held. How much there is in the batch: changes, their bytes and the last ticket. */
static size_t hc_batch_list(struct hc_catalog *c, uint64_t *n_bytes_p, uint64_t *ticket_p)
{
	size_t n = 0;

	*n_bytes_p = 0;
	for (struct hc_chunk *chunk = c->batch; chunk; chunk = chunk->next) {
		size_t at = 0;

		for (uint32_t i = 0; i < chunk->n; i++) {
			struct hc_change *change = (struct hc_change *)(chunk->bytes + at);

			hc_assert(n < HC_BATCH_MAX);
			c->batch_changes[n++] = change;
			at += sizeof(*change) + hc_align_up(change->n_bytes, 8);
			*n_bytes_p += sizeof(*change) + change->n_bytes;
			*ticket_p = change->ticket;
		}
	}
	return n;
}

static void hc_batch_done(struct hc_catalog *c, size_t n, uint64_t n_bytes, uint64_t ticket)
{
	struct hc_chunk *chunk = c->batch;

	c->batch = chunk->next;
	hc_chunks_free(c->batch);
	c->batch = NULL;
	pthread_mutex_lock(&c->lock);
	if (c->failure)
		hc_info("catalog", "commits work again");
	c->failure = 0;
	c->committed = ticket;
	c->n_pending -= n;
	c->n_pending_bytes -= n_bytes;
	c->stats.n_commits++;
	if (!c->spare) {
		c->spare = chunk;
		chunk = NULL;
	}
	pthread_cond_broadcast(&c->done);
	pthread_mutex_unlock(&c->lock);
	free(chunk);
}

static void hc_batch_failed(struct hc_catalog *c, int rc)
{
	pthread_mutex_lock(&c->lock);
	if (c->failure != rc)
		hc_error("catalog", "cannot commit to %s: %s; will try again", c->dir,
			 strerror(-rc));
	c->failure = rc;
	c->n_failures++;
	c->retry_ns = hc_clock_now_ns() + HC_RETRY_NS;
	pthread_cond_broadcast(&c->done);
	pthread_mutex_unlock(&c->lock);
}

/* One transaction of what is queued, or of what failed before. */
static int hc_catalog_commit(struct hc_catalog *c)
{
	uint64_t n_bytes, ticket = 0;
	size_t n;
	int rc = 0;

	pthread_mutex_lock(&c->env_lock);
	if (c->env && !c->batch) {
		pthread_mutex_lock(&c->lock);
		if (c->head)
			hc_batch_take_locked(c);
		pthread_mutex_unlock(&c->lock);
	}
	if (c->env && c->batch) {
		n = hc_batch_list(c, &n_bytes, &ticket);
		rc = hc_env_commit(c->env, c->batch_changes, n, ticket);
		if (!rc)
			hc_batch_done(c, n, n_bytes, ticket);
		else if (rc == -EBADMSG)
			hc_catalog_lose(c);
		else
			hc_batch_failed(c, rc);
	}
	pthread_mutex_unlock(&c->env_lock);
	return rc;
}

/* When there will be something to do, if nothing happens before. */
static uint64_t hc_catalog_due_ns(const struct hc_catalog *c)
{
	uint64_t due_ns;

	if (!c->n_pending || c->lost)
		return UINT64_MAX;
	if (c->urgent || c->n_in_queue >= HC_BATCH_CHANGES || c->stop)
		due_ns = 0;
	else
		due_ns = c->first_ns + c->config.commit_ns;
	if (c->failure && !c->urgent)
		due_ns = hc_max_u64(due_ns, c->retry_ns);
	return due_ns;
}

static void *hc_catalog_main(void *arg)
{
	struct hc_catalog *c = arg;
	int n_tries = 0;

	pthread_setname_np(pthread_self(), "hc-catalog");
	for (;;) {
		uint64_t due_ns;
		bool stop;
		int rc;

		pthread_mutex_lock(&c->lock);
		while ((due_ns = hc_catalog_due_ns(c)) > hc_clock_now_ns() && !c->stop)
			hc_cond_wait_until(&c->work, &c->lock, due_ns);
		stop = c->stop && (!c->n_pending || c->lost || n_tries == HC_CLOSE_TRIES);
		if (c->stop && !stop && c->failure)
			n_tries++;
		c->urgent = false;
		pthread_mutex_unlock(&c->lock);
		if (stop)
			return NULL;
		rc = hc_catalog_commit(c);
		if (rc == -EBADMSG) {
			hc_error("catalog", "lost: the pages stay, their rows will be made again");
			if (c->config.lost)
				c->config.lost(c->config.arg, -EBADMSG);
		}
	}
}

int hc_catalog_recency_store(struct hc_catalog *catalog, const struct hc_recency *rows, size_t n)
{
	return hc_recency_store_at(catalog->dirfd, rows, n);
}

int hc_catalog_recency_load(struct hc_catalog *catalog, struct hc_recency **rows_p, size_t *n_p)
{
	return hc_recency_load_at(catalog->dirfd, rows_p, n_p);
}

/* Load and renew */

static int hc_catalog_loaded(struct hc_catalog *catalog, int rc)
{
	if (rc == -EBADMSG && catalog->env) {
		hc_error("catalog", "%s/" HC_CATALOG_FILE " is damaged", catalog->dir);
		hc_catalog_lose(catalog);
	}
	return rc;
}

int hc_catalog_load(struct hc_catalog *catalog, enum hc_table table,
		    int (*each)(void *arg, uint64_t key, const void *value, size_t n_bytes),
		    void *arg)
{
	int rc;

	hc_assert(table < HC_TABLE_N);
	pthread_mutex_lock(&catalog->env_lock);
	rc = catalog->env ? hc_env_load(catalog->env, table, each, arg) : -EBADMSG;
	rc = hc_catalog_loaded(catalog, rc);
	pthread_mutex_unlock(&catalog->env_lock);
	return rc;
}

int hc_catalog_load_pieces(struct hc_catalog *catalog, enum hc_table table, unsigned n_threads,
			   hc_catalog_piece_t *piece, void *arg)
{
	int rc = -EBADMSG;

	hc_assert(table < HC_TABLE_N && n_threads && n_threads <= HC_CATALOG_THREADS_MAX);
	pthread_mutex_lock(&catalog->env_lock);
	if (catalog->env)
		rc = hc_env_load_pieces(catalog->env, table, n_threads, piece, arg);
	rc = hc_catalog_loaded(catalog, rc);
	pthread_mutex_unlock(&catalog->env_lock);
	return rc;
}

uint64_t hc_catalog_n_rows(struct hc_catalog *catalog, enum hc_table table)
{
	uint64_t n;

	hc_assert(table < HC_TABLE_N);
	pthread_mutex_lock(&catalog->env_lock);
	n = catalog->env ? hc_env_n_rows(catalog->env, table) : 0;
	pthread_mutex_unlock(&catalog->env_lock);
	return n;
}

static int hc_catalog_renew_locked(struct hc_catalog *c)
{
	int rc;

	if (c->env)
		hc_catalog_lose(c);
	rc = hc_catalog_set_aside(c);
	if (!rc)
		rc = hc_env_create(c->dir, c->config.uuid, c->config.map_bytes, &c->env);
	if (!rc)
		rc = hc_journal_reset(c->journal, hc_env_epoch(c->env));
	if (rc) {
		hc_env_close(c->env);
		c->env = NULL;
		return rc;
	}
	pthread_mutex_lock(&c->lock);
	c->dropped_to = c->last_ticket;
	c->committed = c->last_ticket;
	c->retry_ns = 0;
	c->lost = false;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

int hc_catalog_renew(struct hc_catalog *catalog)
{
	int rc;

	pthread_mutex_lock(&catalog->journal_lock);
	pthread_mutex_lock(&catalog->env_lock);
	rc = hc_catalog_renew_locked(catalog);
	pthread_mutex_unlock(&catalog->env_lock);
	pthread_mutex_unlock(&catalog->journal_lock);
	return rc;
}

/* Life */

static void hc_catalog_free(struct hc_catalog *c)
{
	hc_env_close(c->env);
	hc_journal_close(c->journal);
	hc_chunks_free(c->batch);
	hc_chunks_free(c->head);
	free(c->spare);
	free(c->batch_changes);
	pthread_mutex_destroy(&c->journal_lock);
	pthread_mutex_destroy(&c->env_lock);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->work);
	pthread_cond_destroy(&c->done);
	if (c->lock_fd >= 0) {
		/* A forked child has the file open, too: closing alone would leave it locked. */
		hc_ignore(flock(c->lock_fd, LOCK_UN));
		close(c->lock_fd);
	}
	if (c->dirfd >= 0)
		close(c->dirfd);
	free(c->dir);
	free(c);
}

static int hc_catalog_lock_dir(struct hc_catalog *c)
{
	int rc;

	c->dirfd = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->dirfd >= 0)
		c->lock_fd = openat(c->dirfd, "catalog.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (c->lock_fd < 0) {
		rc = -errno;
		hc_error("catalog", "cannot open %s: %m", c->dir);
		return rc;
	}
	if (!flock(c->lock_fd, LOCK_EX | LOCK_NB))
		return 0;
	rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (rc == -EBUSY)
		hc_error("catalog", "%s is in use by another process", c->dir);
	else
		hc_error("catalog", "cannot lock %s/catalog.lock: %m", c->dir);
	return rc;
}

static int hc_catalog_prepare(const struct hc_catalog_config *config, struct hc_catalog **catalog_p)
{
	struct hc_catalog *c = hc_zalloc(sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->config = *config;
	c->config.commit_ns = config->commit_ns ? config->commit_ns : HC_COMMIT_DEFAULT_NS;
	c->config.map_bytes = config->map_bytes ? config->map_bytes : HC_MAP_BYTES_DEFAULT;
	c->dirfd = -1;
	c->lock_fd = -1;
	c->dropped_from = UINT64_MAX;
	pthread_mutex_init(&c->journal_lock, NULL);
	pthread_mutex_init(&c->env_lock, NULL);
	pthread_mutex_init(&c->lock, NULL);
	hc_cond_init(&c->work);
	hc_cond_init(&c->done);
	c->dir = strdup(config->dir);
	c->config.dir = c->dir;
	c->batch_changes = malloc(HC_BATCH_MAX * sizeof(struct hc_change *));
	rc = c->dir && c->batch_changes ? hc_catalog_lock_dir(c) : -ENOMEM;
	if (rc) {
		hc_catalog_free(c);
		return rc;
	}
	*catalog_p = c;
	return 0;
}

static int hc_catalog_start(struct hc_catalog *c, struct hc_catalog **catalog_p)
{
	int rc = -pthread_create(&c->thread, NULL, hc_catalog_main, c);

	if (rc) {
		hc_error("catalog", "cannot start its thread: %s", strerror(-rc));
		hc_catalog_free(c);
		return rc;
	}
	*catalog_p = c;
	return 0;
}

/* Changes that were promised before the last stop and not committed. */
static int hc_catalog_replay(struct hc_catalog *c)
{
	struct hc_change **changes;
	size_t n;
	int rc = hc_journal_read(c->journal, hc_env_epoch(c->env), hc_env_ticket(c->env), &changes,
				 &n);

	if (rc)
		return rc;
	if (n) {
		uint64_t ticket = changes[n - 1]->ticket;

		rc = hc_env_commit(c->env, changes, n, ticket);
		if (rc)
			hc_error("catalog", "cannot replay %zu changes into %s: %s", n, c->dir,
				 strerror(-rc));
		else
			hc_info("catalog", "replayed %zu changes of the journal", n);
	}
	hc_journal_changes_free(changes, n);
	if (rc)
		return rc;
	c->last_ticket = hc_env_ticket(c->env);
	c->committed = c->last_ticket;
	return hc_journal_reset(c->journal, hc_env_epoch(c->env));
}

int hc_catalog_open(const struct hc_catalog_config *config, struct hc_catalog **catalog_p)
{
	struct hc_catalog *c;
	int rc = hc_catalog_prepare(config, &c);

	if (rc)
		return rc;
	if (faccessat(c->dirfd, HC_CATALOG_FILE, F_OK, AT_SYMLINK_NOFOLLOW))
		rc = -errno;
	if (!rc)
		rc = hc_env_open(c->dir, config->uuid, c->config.map_bytes, &c->env);
	if (!rc)
		rc = hc_journal_open(c->dirfd, &c->journal);
	if (!rc)
		rc = hc_catalog_replay(c);
	if (rc) {
		hc_catalog_free(c);
		return rc;
	}
	return hc_catalog_start(c, catalog_p);
}

int hc_catalog_create(const struct hc_catalog_config *config, struct hc_catalog **catalog_p)
{
	struct hc_catalog *c;
	int rc = hc_catalog_prepare(config, &c);

	if (rc)
		return rc;
	/* A newer version's is never set aside. */
	if (!faccessat(c->dirfd, HC_CATALOG_FILE, F_OK, AT_SYMLINK_NOFOLLOW)) {
		rc = hc_env_open(c->dir, config->uuid, c->config.map_bytes, &c->env);
		hc_env_close(c->env);
		c->env = NULL;
		rc = rc == -EPROTO ? rc : 0;
	}
	if (!rc)
		rc = hc_journal_open(c->dirfd, &c->journal);
	if (!rc)
		rc = hc_catalog_renew_locked(c);
	if (rc) {
		hc_catalog_free(c);
		return rc;
	}
	return hc_catalog_start(c, catalog_p);
}

void hc_catalog_close(struct hc_catalog *catalog)
{
	struct hc_catalog *c = catalog;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	c->urgent = true;
	pthread_cond_signal(&c->work);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	if (c->n_pending && !c->lost)
		hc_error("catalog", "%llu changes could not be committed to %s",
			 (unsigned long long)c->n_pending, c->dir);
	hc_catalog_free(c);
}
