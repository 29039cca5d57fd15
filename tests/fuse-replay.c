/* SPDX-License-Identifier: Apache-2.0 */
/* A request trace through a mounted cache, in an engine's order of calls: SGLang's file backend
 * asks with stat how far a prompt is there, reads those pages one by one, and writes each of the
 * others in place after another stat. Each request is a process of its own, or N processes take
 * turns. What is read is compared.
 *
 * Prints the block hit ratio, the one that evicting least recently used leaves first gives with the
 * same number of pages, and their quotient; fails below 0.95.
 *
 * Usage: fuse-replay TRACE DIR CAPACITY-PAGES PAGE-BYTES REQUESTS|0 PROCESSES|0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/pagehash.h"
#include "tool/tool.h"
#include "tool/trace.h"

#define RATIO_MIN 0.95

/* Of the tool's sources. */
void hc_tool_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

struct counts {
	uint64_t n_blocks, n_hits, n_wrong, n_full;
};

struct replay {
	struct hc_trace trace;
	const char *dir;
	uint64_t capacity;
	size_t page_bytes;
	size_t n_requests;
	struct counts *counts; /* shared with the processes */
	char *page, *want;
};

/* ---- the reference: one list, from the page that goes next to the one that goes last ---- */

struct reference {
	uint32_t *newer, *older; /* by dense number; 0 is the head */
	bool *there;
	uint64_t n;
};

/* Ids are small numbers; the list's are 1 more. */
static void take_out(struct reference *r, uint32_t i)
{
	r->newer[r->older[i]] = r->newer[i];
	r->older[r->newer[i]] = r->older[i];
}

static void put_newest(struct reference *r, uint32_t i)
{
	r->older[i] = r->older[0];
	r->newer[i] = 0;
	r->newer[r->older[0]] = i;
	r->older[0] = i;
}

static uint64_t reference_hits(const struct replay *replay, size_t n_ids)
{
	struct reference r = {calloc(n_ids + 1, 4), calloc(n_ids + 1, 4), calloc(n_ids + 1, 1), 0};
	uint64_t hits = 0;

	if (!r.newer || !r.older || !r.there)
		return 0;
	for (size_t k = 0; k < replay->n_requests; k++) {
		const struct hc_trace_request *request = &replay->trace.requests[k];
		const uint64_t *ids = replay->trace.ids + request->first;
		uint32_t n = 0;

		while (n < request->n && r.there[ids[n] + 1])
			n++;
		hits += n;
		/* Leaf first, so that the root is the newest of all. */
		for (uint32_t i = request->n; i--;) {
			uint32_t page = (uint32_t)ids[i] + 1;

			if (r.there[page])
				take_out(&r, page);
			else
				r.n++;
			r.there[page] = true;
			put_newest(&r, page);
		}
		while (r.n > replay->capacity) {
			uint32_t page = r.newer[0];

			take_out(&r, page);
			r.there[page] = false;
			r.n--;
		}
	}
	free(r.newer);
	free(r.older);
	free(r.there);
	return hits;
}

/* ---- the engine ---- */

static void path_of(const struct replay *replay, uint64_t id, char path[512])
{
	struct hc_hash hash;
	char text[HC_HASH_TEXT];

	hc_sha256(&id, sizeof(id), &hash);
	hc_hash_format(&hash, text);
	snprintf(path, 512, "%s/%s_model_0_1.bin", replay->dir, text);
}

static void content(const struct replay *replay, uint64_t id, char *page)
{
	for (size_t at = 0; at < replay->page_bytes; at += 8) {
		uint64_t word = (id + 1) * 0x9e3779b97f4a7c15u ^ (at + 1) * 0xbf58476d1ce4e5b9u;

		memcpy(page + at, &word, 8);
	}
}

static bool exists(const char *path)
{
	struct stat st;

	return !stat(path, &st);
}

/* False: a miss. */
static bool get(const struct replay *replay, uint64_t id)
{
	size_t done = 0;
	char path[512];
	ssize_t n = 1;
	int fd;

	path_of(replay, id, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (done < replay->page_bytes && n > 0) {
		n = read(fd, replay->page + done, replay->page_bytes - done);
		done += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	content(replay, id, replay->want);
	if (done < replay->page_bytes || memcmp(replay->page, replay->want, replay->page_bytes))
		replay->counts->n_wrong++;
	return true;
}

static int set(const struct replay *replay, uint64_t id)
{
	char path[512];
	ssize_t n;
	int fd;

	path_of(replay, id, path);
	if (exists(path))
		return 0;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	content(replay, id, replay->page);
	n = write(fd, replay->page, replay->page_bytes);
	close(fd);
	return n == (ssize_t)replay->page_bytes ? 0 : -EIO;
}

static int run_request(const struct replay *replay, size_t k)
{
	const struct hc_trace_request *request = &replay->trace.requests[k];
	const uint64_t *ids = replay->trace.ids + request->first;
	uint32_t there = 0, got = 0;
	char path[512];
	int rc = 0;

	for (; there < request->n; there++) {
		path_of(replay, ids[there], path);
		if (!exists(path))
			break;
	}
	while (got < there && get(replay, ids[got]))
		got++;
	/* A chain that is longer than the cache keeps its first pages. */
	for (uint32_t i = got; i < request->n && i < replay->capacity / 2 && !rc; i++)
		rc = set(replay, ids[i]);
	replay->counts->n_blocks += request->n;
	replay->counts->n_hits += got;
	if (rc == -ENOSPC) {
		replay->counts->n_full++;
		rc = 0;
	}
	if (rc)
		fprintf(stderr, "fuse-replay: request %zu: %s\n", k, strerror(-rc));
	return rc;
}

static int wait_good(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

static int run_forked(const struct replay *replay)
{
	int rc = 0;

	for (size_t k = 0; k < replay->n_requests && !rc; k++) {
		pid_t pid = fork();

		if (!pid)
			_exit(run_request(replay, k) ? 1 : 0);
		rc = wait_good(pid);
	}
	return rc;
}

/* n processes, one request each in turn: the turn goes round a ring of pipes. */
static int run_in_turns(const struct replay *replay, unsigned n)
{
	int(*pipes)[2] = calloc(n, sizeof(*pipes)), rc = 0;
	pid_t *pids = calloc(n, sizeof(*pids));

	if (!pipes || !pids)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		if (pipe(pipes[i]))
			return -errno;
	}
	for (unsigned i = 0; i < n; i++) {
		pids[i] = fork();
		for (size_t k = i; !pids[i] && k < replay->n_requests; k += n) {
			char turn = 0;

			if (read(pipes[i][0], &turn, 1) != 1 || run_request(replay, k) ||
			    write(pipes[(i + 1) % n][1], &turn, 1) != 1)
				_exit(1);
		}
		if (!pids[i])
			_exit(0);
	}
	if (write(pipes[0][1], "", 1) != 1)
		rc = -errno;
	for (unsigned i = 0; i < n; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
	for (unsigned i = 0; i < n; i++) {
		int one = wait_good(pids[i]);

		rc = rc ? rc : one;
	}
	free(pipes);
	free(pids);
	return rc;
}

/* Ids made dense, so that the reference's arrays are small. */
static size_t dense(struct hc_trace *trace)
{
	uint64_t max = 0, next = 0, *numbers;

	for (size_t i = 0; i < trace->n_ids; i++)
		max = trace->ids[i] > max ? trace->ids[i] : max;
	numbers = calloc(max + 1, sizeof(*numbers));
	for (size_t i = 0; numbers && i < trace->n_ids; i++) {
		if (!numbers[trace->ids[i]])
			numbers[trace->ids[i]] = ++next;
		trace->ids[i] = numbers[trace->ids[i]] - 1;
	}
	free(numbers);
	return numbers ? next : 0;
}

int main(int argc, char **argv)
{
	static struct replay replay;
	double ours, reference;
	size_t n_ids;
	int rc;

	if (argc != 7) {
		fprintf(stderr, "usage: fuse-replay TRACE DIR CAPACITY-PAGES PAGE-BYTES REQUESTS "
				"PROCESSES\n");
		return 2;
	}
	if (hc_trace_read(argv[1], &replay.trace))
		return 1;
	n_ids = dense(&replay.trace);
	replay.dir = argv[2];
	replay.capacity = strtoull(argv[3], NULL, 10);
	replay.page_bytes = strtoull(argv[4], NULL, 10) / 8 * 8;
	replay.n_requests = strtoull(argv[5], NULL, 10);
	if (!replay.n_requests || replay.n_requests > replay.trace.n_requests)
		replay.n_requests = replay.trace.n_requests;
	replay.page = malloc(replay.page_bytes);
	replay.want = malloc(replay.page_bytes);
	replay.counts = mmap(NULL, sizeof(*replay.counts), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!n_ids || !replay.page || !replay.want || replay.counts == MAP_FAILED)
		return 1;
	rc = strtoul(argv[6], NULL, 10)
		     ? run_in_turns(&replay, (unsigned)strtoul(argv[6], NULL, 10))
		     : run_forked(&replay);
	if (rc) {
		fprintf(stderr, "fuse-replay: a process failed: %s\n", strerror(-rc));
		return 1;
	}
	ours = (double)replay.counts->n_hits / (double)replay.counts->n_blocks;
	reference = (double)reference_hits(&replay, n_ids) / (double)replay.counts->n_blocks;
	printf("%zu requests, %" PRIu64 " blocks, capacity %" PRIu64
	       ": hit ratio %.4f, least recently used leaf %.4f, quotient %.3f; wrong %" PRIu64
	       ", full %" PRIu64 "\n",
	       replay.n_requests, replay.counts->n_blocks, replay.capacity, ours, reference,
	       reference > 0 ? ours / reference : 0, replay.counts->n_wrong, replay.counts->n_full);
	return replay.counts->n_wrong || ours < RATIO_MIN * reference;
}
