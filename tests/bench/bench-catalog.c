/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog at full speed: rows of pages put one after the other, committed as they come, durable
 * at the end; then rows deleted oldest first while as many are put (what a full cache does); then
 * everything loaded.
 *
 * Bytes written are the process's own (write_bytes of /proc/self/io), so the directory must be on a
 * disk: tmpfs and page cache that is never written count nothing. The baseline of a row is its
 * packed size and its key. Aims: 50,000 rows/s sustained at 10 M rows; a million rows loaded in
 * about 0.1 s. usage: bench-catalog [ROWS [DIRECTORY]]      2,000,000 rows, below the current
 * directory */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>

#include "bench.h"
#include "index/catalog.h"
#include "index/rows.h"
#include "util/io.h"
#include "util/rng.h"
#include "util/size.h"

#define ROWS_DEFAULT 2000000
#define SYNC_NS      (600 * HC_NS_PER_S)
/* Rates of the slowest part tell what is sustained. */
#define N_PARTS 10

static uint64_t bytes_written(void)
{
	hc_autofree char *text = NULL;
	uint64_t bytes = 0;
	const char *at;
	size_t n;

	if (hc_file_read(AT_FDCWD, "/proc/self/io", 4096, &text, &n))
		return 0;
	at = strstr(text, "\nwrite_bytes: ");
	if (at && sscanf(at, "\nwrite_bytes: %" SCNu64, &bytes) != 1)
		return 0;
	return bytes;
}

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "bench-catalog: %s: %s\n", what, strerror(-rc));
	exit(1);
}

/* A page of a chain of 256: its parent is the page before it. */
static size_t make_row(struct hc_rng *rng, uint64_t sequence, struct hc_row_page *row,
		       uint8_t *packed)
{
	row->parent = row->hash;
	if (sequence % 256 == 0)
		memset(&row->parent, 0, sizeof(row->parent));
	for (size_t w = 0; w < 4; w++) {
		uint64_t v = hc_rng_next(rng);

		memcpy(row->hash.bytes + 8 * w, &v, 8);
	}
	row->checksum = hc_rng_next(rng);
	row->mtime_ns += 20000;
	row->depth = (uint32_t)(sequence % 256);
	return hc_row_page_pack(row, packed);
}

struct bench {
	struct hc_catalog *catalog;
	struct hc_row_page row;
	struct hc_rng rng;
	uint64_t next; /* sequence */
	uint64_t oldest;
	uint64_t packed_bytes;
};

static void put_rows(struct bench *b, uint64_t n, bool replace)
{
	uint8_t packed[HC_ROW_BYTES_MAX];

	for (uint64_t i = 0; i < n; i++) {
		size_t n_bytes = make_row(&b->rng, b->next, &b->row, packed);

		must(hc_catalog_put(b->catalog, HC_TABLE_PAGES, b->next++, packed, n_bytes, false,
				    NULL),
		     "put");
		b->packed_bytes += n_bytes + 8;
		if (replace)
			must(hc_catalog_del(b->catalog, HC_TABLE_PAGES, b->oldest++, false, NULL),
			     "del");
	}
}

static void phase(struct bench *b, const char *name, uint64_t n, bool replace, const char *file)
{
	uint64_t begin_ns = hc_clock_now_ns(), written = bytes_written(), packed = b->packed_bytes;
	struct hc_catalog_stats before, after;
	double rates[N_PARTS], seconds;
	struct stat st;

	hc_catalog_stats(b->catalog, &before);
	for (int part = 0; part < N_PARTS; part++) {
		uint64_t part_ns = hc_clock_now_ns();

		put_rows(b, n / N_PARTS, replace);
		must(hc_catalog_sync(b->catalog, 0, hc_clock_now_ns() + SYNC_NS), "sync");
		rates[part] = (double)(n / N_PARTS) * 1e9 / (double)(hc_clock_now_ns() - part_ns);
	}
	seconds = (double)(hc_clock_now_ns() - begin_ns) / 1e9;
	hc_catalog_stats(b->catalog, &after);
	must(stat(file, &st) ? -errno : 0, file);
	printf("%-8s %9.0f rows/s (slowest tenth %9.0f)  %5.0f bytes written a row, %.2f of its "
	       "%.0f  "
	       "%" PRIu64 " commits, file %.0f MiB\n",
	       name, (double)n / seconds, bench_percentile(rates, N_PARTS, 0),
	       (double)(bytes_written() - written) / (double)n,
	       (double)(bytes_written() - written) / (double)(b->packed_bytes - packed),
	       (double)(b->packed_bytes - packed) / (double)n, after.n_commits - before.n_commits,
	       (double)st.st_size / 1048576);
}

static int each(void *arg, uint64_t key, const void *value, size_t n_bytes)
{
	static struct hc_row_page row;

	(void)key;
	must(hc_row_page_unpack(value, n_bytes, &row), "unpack");
	++*(uint64_t *)arg;
	return 0;
}

static void load(const struct hc_catalog_config *config, uint64_t n)
{
	uint64_t n_loaded = 0, begin_ns = hc_clock_now_ns();
	struct hc_catalog *catalog;

	must(hc_catalog_open(config, &catalog), "open");
	must(hc_catalog_load(catalog, HC_TABLE_PAGES, each, &n_loaded), "load");
	hc_assert(n_loaded == n);
	printf("open and load %.3f s a million rows (page cache warm)\n",
	       (double)(hc_clock_now_ns() - begin_ns) / 1e3 / (double)n);
	hc_catalog_close(catalog);
}

static void clean(const char *dir)
{
	static const char *const names[] = {"catalog.mdb", "catalog.lock", "journal.0",
					    "journal.1"};
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; fd >= 0 && i < HC_ARRAY_SIZE(names); i++)
		unlinkat(fd, names[i], 0);
	if (fd >= 0)
		close(fd);
	rmdir(dir);
}

int main(int argc, char **argv)
{
	struct bench b = {.row = {.size_bytes = 8 * HC_MIB,
				  .mtime_ns = 1700000000000000000,
				  .series = 3,
				  .uid = 1000,
				  .gid = 1000,
				  .mode = 0644}};
	struct hc_catalog_config config = {.uuid = "bench of catalog"};
	char dir[PATH_MAX], file[PATH_MAX + 16];
	uint64_t n = ROWS_DEFAULT;

	if (argc > 3 || (argc > 1 && (hc_u64_parse(argv[1], &n) || n < 1000))) {
		fprintf(stderr, "usage: bench-catalog [ROWS [DIRECTORY]]\n");
		return 2;
	}
	snprintf(dir, sizeof(dir), "%s/bench-catalog-XXXXXX", argc > 2 ? argv[2] : ".");
	if (!mkdtemp(dir)) {
		fprintf(stderr, "bench-catalog: %s: %s\n", dir, strerror(errno));
		return 1;
	}
	snprintf(file, sizeof(file), "%s/catalog.mdb", dir);
	config.dir = dir;
	hc_rng_seed(&b.rng, 1);
	n -= n % N_PARTS;
	must(hc_catalog_create(&config, &b.catalog), "create");
	printf("%" PRIu64 " rows\n", n);
	phase(&b, "fill", n, false, file);
	/* Each row is a put and a delete of the oldest. */
	phase(&b, "replace", n / 4 / N_PARTS * N_PARTS, true, file);
	hc_catalog_close(b.catalog);
	load(&config, n);
	clean(dir);
	return 0;
}
