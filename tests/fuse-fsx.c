/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on a mount against a model that holds every byte. One thread; names of pages
 * written in place, of temporaries and of ordinary files; sizes around the limit of ordinary files
 * and around max_page_bytes. The model knows the rules of bodies: what is written under a page's
 * name, or over a page, is seen when its last writer has closed it and something was written; all
 * else is seen at once, by every handle. With "ordinary" there are ordinary files alone, with any
 * number of writers: the model is then what every file system does, and holds on any directory.
 * Usage: fuse-fsx DIRECTORY SEED N_OPS MAX_PAGE_BYTES [ordinary] */
#include "tests/fuse-actors.h"

#define MIB        (1l << 20)
#define FILE_MAX   MIB /* an ordinary file */
#define N_EACH     5u
#define N_NAMES    (3 * N_EACH)
#define N_HANDLES  12u
#define NONE       N_NAMES
#define FULL_EVERY 2000u

enum kind { PAGE, TEMPORARY, ORDINARY };

/* The bytes behind a name. A sealed one is a page: a writer gets a copy. */
struct content {
	unsigned n_refs;
	bool sealed;
	long size;
	unsigned char *data; /* max_size long, zero after size */
};

struct name {
	char text[80];
	enum kind kind;
	struct content *content; /* NULL: the name is not there */
	unsigned n_writers;
};

struct handle {
	int fd;        /* -1: free */
	unsigned name; /* of a writer; NONE: it lost it */
	struct content *content;
	bool writer;
	bool copy; /* becomes the name's content when it is closed; fstat tells of that as long as
		      somebody reads it by the same node */
	bool created;
	bool wrote;
};

static struct name names[N_NAMES];
static struct handle handles[N_HANDLES];
static long max_page, max_size;
static bool ordinary_only;
static uint64_t rng;
static unsigned op_i;
static unsigned char *buf;
static unsigned long n_done[16];

static void __attribute__((format(printf, 1, 2), noreturn)) wrong(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "operation %u: ", op_i);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static void expect(const char *what, const char *name, long got, long want)
{
	if (got != want)
		wrong("%s %s: %ld (%s), expected %ld", what, name, got,
		      got < 0 ? strerror((int)-got) : "", want);
}

/* HC_FSX_TRACE: what is done, before it is done. */
static void __attribute__((format(printf, 1, 2))) trace(const char *format, ...)
{
	va_list args;

	if (!getenv("HC_FSX_TRACE"))
		return;
	fprintf(stderr, "%u ", op_i);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static uint64_t random_next(void)
{
	rng += 0x9e3779b97f4a7c15u;
	uint64_t z = rng;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static long below(long n)
{
	return (long)(random_next() % (uint64_t)n);
}

static const char *path(unsigned i)
{
	static char paths[2][PATH_BYTES];
	static unsigned next;
	char *p = paths[next++ % 2];

	full_path(p, names[i].text);
	return p;
}

/* --- the model --- */

static struct content *content_new(const struct content *from)
{
	struct content *c = calloc(1, sizeof(*c));

	c->n_refs = 1;
	c->data = calloc(1, (size_t)max_size);
	if (from) {
		c->size = from->size;
		memcpy(c->data, from->data, (size_t)from->size);
	}
	return c;
}

static void content_put(struct content *c)
{
	if (!c || --c->n_refs)
		return;
	free(c->data);
	free(c);
}

static void resize(struct content *c, long size)
{
	if (size < c->size)
		memset(c->data + size, 0, (size_t)(c->size - size));
	c->size = size;
}

/* What a name is when nobody writes it. */
static bool is_page(enum kind kind, long size)
{
	return kind != TEMPORARY && size && size <= max_page && (kind == PAGE || size > FILE_MAX);
}

static void give(unsigned i, struct content *c)
{
	content_put(names[i].content);
	names[i].content = c;
	c->n_refs++;
}

static void settle(unsigned i)
{
	names[i].content->sealed = is_page(names[i].kind, names[i].content->size);
}

/* A file of a page's name has no bytes, or too many for a page; the empty one is written like a
 * page. */
static bool wants_copy(unsigned i)
{
	const struct content *c = names[i].content;

	return !c ? names[i].kind == PAGE : c->sealed || (names[i].kind == PAGE && !c->size);
}

/* Writers of a name whose content was unlinked or replaced go on without it. */
static void detach(unsigned i)
{
	for (struct handle *h = handles; h < handles + N_HANDLES; h++) {
		if (h->fd < 0 || !h->writer || h->name != i || h->copy)
			continue;
		h->name = NONE;
		names[i].n_writers--;
	}
}

/* --- operations --- */

static void verify_range(const char *what, const struct handle *h, long offset, long n)
{
	long want = offset >= h->content->size      ? 0
		    : n < h->content->size - offset ? n
						    : h->content->size - offset;

	if (h >= handles && h < handles + N_HANDLES)
		trace("pread %ld: %ld at %ld of %ld", (long)(h - handles), n, offset,
		      h->content->size);

	long got = err_of(pread(h->fd, buf, (size_t)n, offset));

	expect(what, "pread", got, want);
	for (long i = 0; i < got; i++)
		if (buf[i] != h->content->data[offset + i])
			wrong("%s: byte %ld of %ld is %02x, expected %02x", what, offset + i,
			      h->content->size, buf[i], h->content->data[offset + i]);
}

static void verify_name(unsigned i)
{
	struct name *n = &names[i];
	struct handle h = {.content = n->content};
	struct stat st = {0};
	long rc = err_of(stat(path(i), &st));

	expect("stat", n->text, rc, n->content ? 0 : -ENOENT);
	h.fd = open(path(i), O_RDONLY);
	expect("open", n->text, h.fd < 0 ? -errno : 0, n->content ? 0 : -ENOENT);
	if (!n->content)
		return;
	expect("stat size", n->text, st.st_size, n->content->size);
	verify_range(n->text, &h, 0, max_size);
	close(h.fd);
}

static struct handle *pick_handle(bool writer)
{
	unsigned from = (unsigned)below(N_HANDLES);

	for (unsigned k = 0; k < N_HANDLES; k++) {
		struct handle *h = &handles[(from + k) % N_HANDLES];

		if (h->fd >= 0 && (h->writer || !writer))
			return h;
	}
	return NULL;
}

static struct handle *free_handle(void)
{
	for (unsigned k = 0; k < N_HANDLES; k++)
		if (handles[k].fd < 0)
			return &handles[k];
	return NULL;
}

static void op_open_read(void)
{
	struct handle *h = free_handle();
	unsigned i = (unsigned)below(N_NAMES);

	if (!h)
		return;
	trace("open %s as %ld", names[i].text, (long)(h - handles));
	h->fd = open(path(i), O_RDONLY);
	expect("open", names[i].text, h->fd < 0 ? -errno : 0, names[i].content ? 0 : -ENOENT);
	if (h->fd < 0)
		return;
	*h = (struct handle){.fd = h->fd, .name = NONE, .content = names[i].content};
	h->content->n_refs++;
}

static void op_open_write(void)
{
	struct handle *h = free_handle();
	unsigned i = (unsigned)below(N_NAMES);
	struct name *n = &names[i];
	bool trunc = below(2), create = !n->content || below(2);

	if (!h || (n->n_writers && !ordinary_only))
		return;
	*h = (struct handle){.fd = -1, .name = i, .writer = true, .created = !n->content};
	h->copy = wants_copy(i);
	if (create && n->content && !below(4)) {
		expect("O_EXCL", n->text, err_of(open(path(i), O_RDWR | O_CREAT | O_EXCL, 0644)),
		       -EEXIST);
		return;
	}
	trace("open %s as %ld: copy %d create %d trunc %d, size %ld", n->text, (long)(h - handles),
	      h->copy, create, trunc, n->content ? n->content->size : -1);
	h->fd = open(path(i), O_RDWR | (create ? O_CREAT : 0) | (trunc ? O_TRUNC : 0), 0644);
	expect("open for writing", n->text, h->fd < 0 ? -errno : 0, 0);
	n->n_writers++;
	if (h->copy || !n->content) {
		h->content = content_new(trunc ? NULL : n->content);
		if (!h->copy)
			give(i, h->content);
	} else {
		h->content = n->content;
		h->content->n_refs++;
		if (trunc)
			resize(h->content, 0);
	}
}

/* Of the daemon, which counts what it has not been told the end of. */
static long n_open_there(void)
{
	char stats[PATH_BYTES], line[200];
	long n = -1;
	FILE *file;

	snprintf(stats, sizeof(stats), "%s/../.hicache/stats", mount_dir);
	file = fopen(stats, "r");
	if (!file)
		wrong("%s: %s", stats, strerror(errno));
	while (n < 0 && fgets(line, sizeof(line), file))
		if (sscanf(line, "fs_n_handles %ld", &n) != 1)
			n = -1;
	fclose(file);
	return n;
}

/* A look-up waits 50 ms for the RELEASE after a close(): on a machine that is too busy that is not
 * enough, and not what is tested here. HC_FSX_HASTE: it is. */
static void wait_for_release(void)
{
	double end_s = now_s() + 60;
	long n = 0;

	if (getenv("HC_FSX_HASTE"))
		return;
	for (unsigned k = 0; k < N_HANDLES; k++)
		n += handles[k].fd >= 0;
	while (n_open_there() != n) {
		if (now_s() > end_s)
			wrong("the daemon has %ld handles, expected %ld", n_open_there(), n);
		poll(NULL, 0, 1);
	}
}

static void handle_close(struct handle *h)
{
	unsigned i = h->name;

	trace("close %ld: %s wrote %d, size %ld", (long)(h - handles),
	      i < NONE ? names[i].text : "-", h->wrote, h->content->size);
	expect("close", i < NONE ? names[i].text : "", err_of(close(h->fd)), 0);
	h->fd = -1;
	if (h->copy)
		wait_for_release();
	if (h->writer && i != NONE) {
		names[i].n_writers--;
		/* Created and never written: only if nothing else has the name by now. */
		if (h->copy && (h->wrote || (h->created && !names[i].content))) {
			detach(i);
			give(i, h->content);
		}
		if (names[i].content == h->content)
			settle(i);
	}
	content_put(h->content);
}

static void op_close(void)
{
	struct handle *h = pick_handle(false);

	if (h)
		handle_close(h);
}

/* Mostly near what matters: begin, end, the limits. */
static long random_offset(const struct content *c)
{
	const long near[] = {0, c->size, FILE_MAX, max_page};
	long offset;

	switch (below(4)) {
	case 0:
		offset = below(c->size + 1);
		break;
	case 1:
		offset = below(200000);
		break;
	default:
		offset = near[below(8) < 6 ? below(2) : below(4)] + below(10000) - 5000;
	}
	return offset < 0 ? 0 : offset < max_size ? offset : max_size - 1;
}

static long random_length(long offset)
{
	long n = below(8) ? 1 + below(20000) : 1 + below(300000);

	return offset + n > max_size ? max_size - offset : n;
}

static void op_write(void)
{
	struct handle *h = pick_handle(true);
	long offset, n;

	if (!h)
		return;
	offset = random_offset(h->content);
	n = random_length(offset);
	for (long k = 0; k < n; k += 8) {
		uint64_t v = random_next();

		memcpy(buf + k, &v, 8);
	}
	trace("write %ld: %ld at %ld of %ld", (long)(h - handles), n, offset, h->content->size);
	expect("pwrite", h->name < NONE ? names[h->name].text : "",
	       err_of(pwrite(h->fd, buf, (size_t)n, offset)), n);
	if (offset + n > h->content->size)
		resize(h->content, offset + n);
	memcpy(h->content->data + offset, buf, (size_t)n);
	h->wrote = true;
}

static void op_read(void)
{
	struct handle *h = pick_handle(false);
	long offset;

	if (!h)
		return;
	offset = random_offset(h->content);
	verify_range("read", h, offset, random_length(offset));
}

static void op_truncate(void)
{
	struct handle *h = pick_handle(true);
	long size;

	if (!h)
		return;
	size = random_offset(h->content);
	trace("ftruncate %ld: %ld of %ld", (long)(h - handles), size, h->content->size);
	expect("ftruncate", "", err_of(ftruncate(h->fd, size)), 0);
	resize(h->content, size);
}

static void op_allocate(void)
{
	struct handle *h = pick_handle(true);
	int mode = below(2) ? FALLOC_FL_KEEP_SIZE : 0;
	long offset, n;

	if (!h)
		return;
	offset = random_offset(h->content);
	n = random_length(offset);
	trace("fallocate %ld: mode %d, %ld at %ld of %ld", (long)(h - handles), mode, n, offset,
	      h->content->size);
	expect("fallocate", "", err_of(fallocate(h->fd, mode, offset, n)), 0);
	if (!mode && offset + n > h->content->size)
		resize(h->content, offset + n);
}

static void check_size(const struct handle *h, long size)
{
	const struct content *named = h->copy && h->name < NONE ? names[h->name].content : NULL;

	if (!named || size != named->size)
		expect("fstat size", "", size, h->content->size);
}

static void op_fstat(void)
{
	struct handle *h = pick_handle(false);
	struct stat st = {0};

	if (!h)
		return;
	trace("fstat %ld: size %ld", (long)(h - handles), h->content->size);
	expect("fstat", "", err_of(fstat(h->fd, &st)), 0);
	check_size(h, st.st_size);
	if (!below(4))
		expect("fsync", "", err_of(fsync(h->fd)), 0);
}

static void op_map(void)
{
	struct handle *h = pick_handle(false);
	struct stat st = {0};
	unsigned char *map;
	bool file;

	if (!h || !h->content->size || h->copy)
		return;
	trace("mmap %ld: size %ld, sealed %d, copy %d", (long)(h - handles), h->content->size,
	      h->content->sealed, h->copy);
	/* As who maps a file does; it also tells the kernel what others did to the size. */
	expect("fstat", "", err_of(fstat(h->fd, &st)), 0);
	check_size(h, st.st_size);
	file = h->name < NONE ? names[h->name].kind == ORDINARY : false;
	map = mmap(NULL, (size_t)h->content->size, PROT_READ, MAP_SHARED, h->fd, 0);
	if (map == MAP_FAILED) {
		if (file && h->content->size <= FILE_MAX && !h->copy && !h->content->sealed)
			wrong("mmap of an ordinary file: %s", strerror(errno));
		expect("mmap", "", -errno, -ENODEV);
		return;
	}
	if (memcmp(map, h->content->data, (size_t)h->content->size) != 0)
		wrong("mmap: other bytes than the model's, size %ld", h->content->size);
	munmap(map, (size_t)h->content->size);
}

static void op_unlink(void)
{
	unsigned i = (unsigned)below(N_NAMES);
	struct name *n = &names[i];

	/* A page and the copy that is to replace it: which one is meant is not told. */
	if (n->content && n->n_writers && wants_copy(i))
		return;
	trace("unlink %s", n->text);
	expect("unlink", n->text, err_of(unlink(path(i))), n->content ? 0 : -ENOENT);
	if (!n->content)
		return;
	detach(i);
	content_put(n->content);
	n->content = NULL;
}

static bool has_copy_writer(unsigned i)
{
	for (unsigned k = 0; k < N_HANDLES; k++)
		if (handles[k].fd >= 0 && handles[k].name == i && handles[k].copy)
			return true;
	return false;
}

/* A temporary may be renamed to a page while it is written; the rest when nobody writes it. What
 * becomes a file is not what its readers opened. */
static void op_rename(void)
{
	unsigned from = (unsigned)below(N_NAMES), to = (unsigned)below(N_NAMES);
	struct name *f = &names[from], *t = &names[to];
	struct content *c = f->content;

	if (from == to || (t->kind == TEMPORARY && f->kind != TEMPORARY))
		return;
	if (f->n_writers && !ordinary_only && (f->kind != TEMPORARY || t->kind == TEMPORARY))
		return;
	if (has_copy_writer(to) && f->n_writers)
		return;
	for (unsigned k = 0; c && f->kind != t->kind && k < N_HANDLES; k++)
		if (handles[k].fd >= 0 && handles[k].content == c && !handles[k].writer)
			handle_close(&handles[k]);
	trace("rename %s (%u writers) to %s (%u)", f->text, f->n_writers, t->text, t->n_writers);
	expect("rename", f->text, err_of(rename(path(from), path(to))), c ? 0 : -ENOENT);
	if (!c)
		return;
	detach(to);
	give(to, c);
	content_put(c);
	f->content = NULL;
	if (!f->n_writers) {
		settle(to);
		return;
	}
	for (unsigned k = 0; k < N_HANDLES; k++)
		if (handles[k].fd >= 0 && handles[k].writer && handles[k].name == from)
			handles[k].name = to;
	t->n_writers += f->n_writers;
	f->n_writers = 0;
}

static void op_stat(void)
{
	unsigned i = (unsigned)below(N_NAMES);
	struct stat st = {0};

	expect("stat", names[i].text, err_of(stat(path(i), &st)), names[i].content ? 0 : -ENOENT);
	if (names[i].content)
		expect("stat size", names[i].text, st.st_size, names[i].content->size);
	if (!below(4))
		verify_name(i);
}

static const struct {
	const char *name;
	void (*run)(void);
	unsigned weight;
} ops[] = {
	{"open", op_open_read, 10},    {"open for writing", op_open_write, 14},
	{"close", op_close, 14},       {"write", op_write, 22},
	{"read", op_read, 16},         {"ftruncate", op_truncate, 4},
	{"fallocate", op_allocate, 3}, {"fstat", op_fstat, 5},
	{"mmap", op_map, 3},           {"unlink", op_unlink, 3},
	{"rename", op_rename, 8},      {"stat", op_stat, 10},
};
#define N_OPS (sizeof(ops) / sizeof(ops[0]))

static void step(void)
{
	unsigned total = 0, at;

	for (unsigned k = 0; k < N_OPS; k++)
		total += ops[k].weight;
	at = (unsigned)below(total);
	for (unsigned k = 0; k < N_OPS; k++) {
		if (at < ops[k].weight) {
			ops[k].run();
			n_done[k]++;
			return;
		}
		at -= ops[k].weight;
	}
}

static void begin(void)
{
	static const char *const forms[] = {"%032x.bin", "0000%028x.bin.tmp.1.%x", "file-%u.json"};

	for (unsigned i = 0; i < N_NAMES; i++) {
		names[i].kind = ordinary_only ? ORDINARY : (enum kind)(i / N_EACH);
		switch (names[i].kind) {
		case PAGE:
			snprintf(names[i].text, sizeof(names[i].text), forms[0], i + 0xabc0);
			break;
		case TEMPORARY:
			snprintf(names[i].text, sizeof(names[i].text), forms[1], i + 0xdef0, i);
			break;
		case ORDINARY:
			snprintf(names[i].text, sizeof(names[i].text), forms[2], i);
		}
	}
	for (unsigned k = 0; k < N_HANDLES; k++)
		handles[k].fd = -1;
}

int main(int argc, char **argv)
{
	unsigned n_ops;

	if (argc < 5) {
		fprintf(stderr, "usage: fuse-fsx DIRECTORY SEED N_OPS MAX_PAGE_BYTES [ordinary]\n");
		return 2;
	}
	mount_dir = argv[1];
	rng = strtoull(argv[2], NULL, 10);
	n_ops = (unsigned)strtoul(argv[3], NULL, 10);
	max_page = strtol(argv[4], NULL, 10);
	ordinary_only = argc > 5 && strcmp(argv[5], "ordinary") == 0;
	max_size = ordinary_only ? FILE_MAX : max_page + MIB / 2;
	buf = malloc((size_t)max_size + 8);
	begin();
	for (op_i = 1; op_i <= n_ops; op_i++) {
		step();
		if (op_i % FULL_EVERY == 0)
			for (unsigned i = 0; i < N_NAMES; i++)
				verify_name(i);
	}
	for (unsigned k = 0; k < N_HANDLES; k++)
		if (handles[k].fd >= 0)
			handle_close(&handles[k]);
	for (unsigned i = 0; i < N_NAMES; i++)
		verify_name(i);
	printf("seed %s, %u operations:", argv[2], n_ops);
	for (unsigned k = 0; k < N_OPS; k++)
		printf(" %s %lu", ops[k].name, n_done[k]);
	printf("\n");
	return 0;
}
