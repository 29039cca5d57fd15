/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a table of the catalog whole, by one thread or by several: under a lock one of them
 * copies the next piece out of the map, and works on it while the next one copies. Nothing here is
 * left when a call returns. */
#include "index/catalog-internal.h"

#include <pthread.h>
#include <stdatomic.h>

#include "util/log.h"

int hc_env_load(struct hc_env *env, enum hc_table table,
		int (*each)(void *arg, uint64_t key, const void *value, size_t n_bytes), void *arg)
{
	hc_autofree struct hc_env_reader *reader = hc_env_reader_create(env, table);
	hc_autofree struct hc_piece *piece = hc_piece_create();
	int rc;

	if (!reader || !piece)
		return -ENOMEM;
	for (;;) {
		rc = hc_env_reader_next(reader, piece);
		if (rc || !piece->n)
			return rc;
		for (size_t i = 0; i < piece->n; i++) {
			const struct hc_catalog_row *row = &piece->rows[i];

			if (each(arg, row->key, row->value, row->n_bytes))
				return 0;
		}
	}
}

struct hc_load {
	pthread_mutex_t lock; /* reader and rc */
	struct hc_env_reader *reader;
	int rc; /* the first error */
	hc_catalog_piece_t *call;
	void *arg;
};

struct hc_load_thread {
	pthread_t thread;
	struct hc_load *load;
	struct hc_piece *piece;
	unsigned thread_i;
};

static void hc_load_fail(struct hc_load *load, int rc)
{
	pthread_mutex_lock(&load->lock);
	load->rc = load->rc ? load->rc : rc;
	pthread_mutex_unlock(&load->lock);
}

static void *hc_load_main(void *arg)
{
	struct hc_load_thread *t = arg;
	struct hc_load *load = t->load;

	for (;;) {
		size_t n = 0;
		int rc;

		pthread_mutex_lock(&load->lock);
		rc = load->rc;
		if (!rc)
			rc = hc_env_reader_next(load->reader, t->piece);
		if (!rc)
			n = t->piece->n;
		load->rc = rc;
		pthread_mutex_unlock(&load->lock);
		if (!n)
			return NULL;
		rc = load->call(load->arg, t->thread_i, t->piece->rows, n);
		if (rc)
			hc_load_fail(load, rc);
	}
}

int hc_env_load_pieces(struct hc_env *env, enum hc_table table, unsigned n_threads,
		       hc_catalog_piece_t *piece, void *arg)
{
	struct hc_load_thread threads[HC_CATALOG_THREADS_MAX] = {0};
	struct hc_load load = {.call = piece, .arg = arg};
	bool ready;
	unsigned n;

	pthread_mutex_init(&load.lock, NULL);
	load.reader = hc_env_reader_create(env, table);
	for (unsigned i = 0; i < n_threads; i++)
		threads[i] = (struct hc_load_thread){
			.load = &load, .piece = hc_piece_create(), .thread_i = i};
	ready = load.reader && threads[0].piece;
	if (!ready)
		load.rc = -ENOMEM;
	/* Fewer threads are only slower. */
	for (n = 1; ready && n < n_threads && threads[n].piece; n++) {
		if (pthread_create(&threads[n].thread, NULL, hc_load_main, &threads[n])) {
			hc_debug("catalog", "a thread of the load could not be made");
			break;
		}
	}
	if (ready)
		hc_load_main(&threads[0]);
	for (unsigned i = 1; i < n; i++)
		pthread_join(threads[i].thread, NULL);
	for (unsigned i = 0; i < n_threads; i++)
		free(threads[i].piece);
	free(load.reader);
	pthread_mutex_destroy(&load.lock);
	return load.rc;
}
