/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a node that knows many pages: from hc_node_open to the first true answer, and the
 * anonymous memory that it has then. The catalog's rows are made without page files: a start does
 * not look at those. Each start is a process of its own: after a kill (no recency) and after a
 * clean stop, with the catalog's files dropped from the page cache first, and once with them in it.
 * Aims: 0.5 s at a million pages; printed, not judged. usage: bench-start [PAGES [DIRECTORY]]
 * 1,000,000 pages, below $TMPDIR or /var/tmp */
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/wait.h>

#include "bench.h"
#include "index/rows.h"
#include "node/node.h"
#include "util/io.h"
#include "util/rng.h"
#include "util/size.h"

#define PAGES_DEFAULT 1000000
#define CHAIN         256
#define AIM_S         0.5
#define PAGE_BYTES    (8 * HC_MIB)

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "bench-start: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static uint64_t rss_anon_bytes(void)
{
	hc_autofree char *text = NULL;
	uint64_t kib = 0;
	const char *at;
	size_t n;

	if (hc_file_read(AT_FDCWD, "/proc/self/status", 65536, &text, &n))
		return 0;
	at = strstr(text, "\nRssAnon:");
	if (at && sscanf(at, "\nRssAnon: %" SCNu64, &kib) != 1)
		return 0;
	return kib * HC_KIB;
}

/* Of this process, all threads: what a busy machine does not lengthen. */
static double cpu_s(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct hc_hash hash_of(uint64_t page)
{
	struct hc_hash hash;
	struct hc_rng rng;

	hc_rng_seed(&rng, page + 1);
	for (size_t i = 0; i < sizeof(hash.bytes); i += 8) {
		uint64_t v = hc_rng_next(&rng);

		memcpy(hash.bytes + i, &v, 8);
	}
	return hash;
}

static struct hc_node *node_up(const char *dir, uint32_t *series_p, uint32_t *dir_p)
{
	const struct hc_owner owner = {0, 0, 0755};
	const struct hc_node_config config = {
		.cachedir = dir,
		.embedded = true,
		.pool_bytes = 128 * HC_MIB,
		.segment_bytes = 64 * HC_MIB,
		.root = owner,
		.disk_bytes = (uint64_t)1 << 50,
		.index_bytes = 64 * HC_GIB,
		.no_evictor = true, /* no scrubber either: the page files are not there */
	};
	struct hc_space_info space;
	struct hc_dir_info info;
	struct hc_node *node;
	int rc;

	must(hc_node_open(&config, &node), "open");
	rc = hc_dir_make(hc_node_registry(node), HC_DIR_ROOT, "m", &owner, &info);
	must(rc == -EEXIST ? 0 : rc, "mkdir");
	must(hc_space_find(hc_node_registry(node), "m", &space), "space");
	must(hc_series_open(hc_node_registry(node), space.id, "{64}.kv", NULL, true, series_p),
	     "series");
	*dir_p = space.dir;
	return node;
}

static void fill(const char *dir, uint64_t n)
{
	static struct hc_row_page row;
	struct hc_catalog *catalog;
	uint8_t packed[HC_ROW_BYTES_MAX];
	struct hc_node *node;

	row = (struct hc_row_page){.size_bytes = PAGE_BYTES, .mode = 0644};
	node = node_up(dir, &row.series, &row.dir);
	catalog = hc_registry_catalog(hc_node_registry(node));
	for (uint64_t i = 0; i < n; i++) {
		uint64_t sequence = hc_registry_next_sequence(hc_node_registry(node));

		row.hash = hash_of(i);
		row.parent = i % CHAIN ? hash_of(i - 1) : (struct hc_hash){{0}};
		row.depth = (uint32_t)(i % CHAIN);
		row.checksum = i;
		row.mtime_ns = hc_clock_wall_ns();
		must(hc_catalog_put(catalog, HC_TABLE_PAGES, sequence, packed,
				    hc_row_page_pack(&row, packed), false, NULL),
		     "put");
	}
	hc_node_close(node, NULL);
}

/* Back from the disk, as after a reboot. */
static void drop_cache(const char *dir)
{
	static const char *const names[] = {"catalog.mdb", "recency", "names"};
	char path[PATH_MAX + 16];

	for (size_t i = 0; i < HC_ARRAY_SIZE(names); i++) {
		hc_autofd int fd = -1;

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && (fdatasync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)))
			fprintf(stderr, "bench-start: %s stays cached\n", path);
	}
}

static void start(const char *dir, uint64_t n, const char *what)
{
	struct hc_hash chain[CHAIN];
	uint64_t first = n / 2 / CHAIN * CHAIN, begin_ns, took_ns, before;
	uint32_t series, dir_id;
	struct hc_node *node;
	char memory[16];
	double cpu_before_s, cpu_took_s;
	size_t hits;

	for (uint64_t i = 0; i < CHAIN; i++)
		chain[i] = hash_of(first + i);
	if (!strstr(what, "cached"))
		drop_cache(dir);
	before = rss_anon_bytes();
	cpu_before_s = cpu_s();
	begin_ns = hc_clock_now_ns();
	node = node_up(dir, &series, &dir_id);
	hits = hc_node_exists_prefix(node, &series, 1, chain, CHAIN, false);
	took_ns = hc_clock_now_ns() - begin_ns;
	cpu_took_s = cpu_s() - cpu_before_s;
	hc_assert(hits == CHAIN);
	hc_size_format(rss_anon_bytes() - before, memory);
	printf("%-18s  first true answer %.2f s, CPU %.2f s (aim %.1f s at a million)  RssAnon %s, "
	       "%.0f bytes a page\n",
	       what, (double)took_ns / 1e9, cpu_took_s, AIM_S, memory,
	       (double)(rss_anon_bytes() - before) / (double)n);
	fflush(stdout);
	hc_node_close(node, NULL);
}

static int child(void (*run)(const char *dir, uint64_t n, const char *what), const char *dir,
		 uint64_t n, const char *what)
{
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		run(dir, n, what);
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

static void run_fill(const char *dir, uint64_t n, const char *what)
{
	char path[PATH_MAX + 16];

	(void)what;
	fill(dir, n);
	/* As a kill would leave it. */
	snprintf(path, sizeof(path), "%s/recency", dir);
	unlink(path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	uint64_t n = PAGES_DEFAULT;
	char dir[PATH_MAX];
	int rc;

	if (argc > 3 || (argc > 1 && (hc_u64_parse(argv[1], &n) || n < 2 * CHAIN))) {
		fprintf(stderr, "usage: bench-start [PAGES [DIRECTORY]]\n");
		return 2;
	}
	snprintf(dir, sizeof(dir), "%s/bench-start-XXXXXX",
		 argc > 2 ? argv[2]
		 : tmp    ? tmp
			  : "/var/tmp");
	if (!mkdtemp(dir)) {
		fprintf(stderr, "bench-start: %s: %m\n", dir);
		return 1;
	}
	hc_log_set_level(HC_LOG_WARN);
	printf("%" PRIu64 " pages on disk, chains of %d\n", n, CHAIN);
	fflush(stdout);
	rc = child(run_fill, dir, n, NULL) || child(start, dir, n, "after a kill") ||
	     child(start, dir, n, "after a clean stop") || child(start, dir, n, "the same, cached");
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return rc;
}
