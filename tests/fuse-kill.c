/* SPDX-License-Identifier: Apache-2.0 */
/* A mounted daemon is killed under writers and readers, and what the next one shows is judged.
 * Usage: fuse-kill make MOUNT STATE
 *        fuse-kill work MOUNT STATE SEED N_OPS DAEMON_PID
 *        fuse-kill check MOUNT STATE kept|lossy|dropped|moved|rebuilt
 * work: N_WRITERS and N_READERS processes; the writer that comes to operation N_OPS kills the
 * daemon at a seeded step of it, the others are wherever they are then. STATE is a file that both
 * map: what each page and directory is known to be, and what was being done to it when the daemon
 * died. check compares, and takes what it finds as known:
 * - kept: the pool was kept and holds all: what was answered is there;
 * - lossy: the pool was kept, but pages may have been evicted;
 * - dropped: the pool is gone: only what was synced has to be there;
 * - moved: the page files are gone: what is there has to be right;
 * - rebuilt: the catalog is gone, with empty directories: every page has a file and is there.
 * Bytes follow from page and version, versions only rise, so nothing old or foreign passes for
 * right. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_WRITERS  4u
#define N_READERS  4u
#define N_PAGES    160u
#define N_DIRS     40u
#define PATH_BYTES 512
#define MAX_BYTES  (256u << 10)

enum { IDLE, PUT, UNLINK, MKDIR, RMDIR };

/* Of one page or directory; only its writer changes it. Directories have versions 0 (absent) and 1.
 */
struct known {
	atomic_uint version; /* 0: absent */
	atomic_uint synced;  /* this version or a later one must outlive the pool */
	atomic_uint doing;
	atomic_uint next; /* what a PUT will make it */
	atomic_uint last; /* highest version ever given */
	unsigned spare[3];
};

struct state {
	atomic_uint n_ops, dead, n_failed, n_reads, n_syncs;
	struct known pages[N_PAGES], dirs[N_DIRS];
};

static struct state *state;
static const char *mnt;
static unsigned seed, kill_at;
static pid_t daemon_pid;
static unsigned char *buf;

static unsigned next_random(unsigned *s)
{
	*s = *s * 1664525u + 1013904223u;
	return *s >> 8;
}

__attribute__((format(printf, 1, 2))) static void failed(const char *format, ...)
{
	int err = errno;
	va_list args;

	/* After the kill every call may fail. */
	if (atomic_load(&state->dead))
		return;
	atomic_fetch_add(&state->n_failed, 1);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (errno %s)\n", strerror(err));
}

static void dir_path(char out[PATH_BYTES], unsigned dir)
{
	if (dir < 4)
		snprintf(out, PATH_BYTES, "%s/space%u", mnt, dir);
	else
		snprintf(out, PATH_BYTES, "%s/space%u/d%u", mnt, dir % 4, dir);
}

/* The directory of a page is never removed: one of the four spaces, or a directory that check
 * makes. */
static void page_path(char out[PATH_BYTES], unsigned page, const char *suffix)
{
	unsigned space = page / 4 % 4;
	const char *below = page / 16 % 2 ? "/fixed_r0/0ab/cd_g0" : "";

	snprintf(out, PATH_BYTES, "%s/space%u%s/%08x%056x_m.bin%s", mnt, space, below,
		 page * 2654435761u, page + 1, suffix);
}

/* Three sizes of slots, as engines have few sizes of pages; the bytes of each version are of a
 * length of their own. */
static size_t size_of(unsigned page, unsigned version)
{
	static const size_t slots[] = {16384, 49152, 262144};
	unsigned s = page * 77777u + version * 13u + 5u;

	next_random(&s);
	return slots[page % 16 ? page % 2 : 2] - next_random(&s) % 4096;
}

static size_t fill(unsigned char *out, unsigned page, unsigned version)
{
	uint64_t x = ((uint64_t)page << 32 | version) * 0x9e3779b97f4a7c15u + 1;
	size_t n = size_of(page, version);

	for (size_t at = 0; at + 8 <= n + 7; at += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(out + at, &x, 8);
	}
	memcpy(out, &version, 4);
	return n;
}

/* The version whose bytes these are; 0: of none. */
static unsigned version_of(const unsigned char *data, size_t n, unsigned page)
{
	static unsigned char want[MAX_BYTES + 8];
	unsigned version;

	if (n < 4)
		return 0;
	memcpy(&version, data, 4);
	if (size_of(page, version) != n || fill(want, page, version) != n || memcmp(want, data, n))
		return 0;
	return version;
}

/* Version of the page as read from the mount; 0: ENOENT at open; -1: reported. */
static long read_page(unsigned page)
{
	static unsigned char data[MAX_BYTES + 8];
	char path[PATH_BYTES];
	ssize_t got;
	unsigned version;
	struct stat st;
	int fd;

	page_path(path, page, "");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st)) {
		failed("open of %s", path);
		return -1;
	}
	got = read(fd, data, sizeof(data));
	if (got < 0 || got != st.st_size) {
		failed("%s: read %zd of %ld bytes", path, got, (long)st.st_size);
		close(fd);
		return -1;
	}
	close(fd);
	version = version_of(data, (size_t)got, page);
	if (!version) {
		/* Wrong bytes count whenever they come. */
		atomic_fetch_add(&state->n_failed, 1);
		fprintf(stderr, "WRONG BYTES in %s: %zd bytes\n", path, got);
		return -1;
	}
	atomic_fetch_add(&state->n_reads, 1);
	return version;
}

/* --- work --- */

/* One step of operation `op` is done; the daemon may be due. False: it is dead. */
static bool step(unsigned op, unsigned number)
{
	/* Not each operation has each step: the next that has it will do. */
	if (op >= kill_at && number == seed % 6 && !atomic_exchange(&state->dead, 1))
		kill(daemon_pid, SIGKILL);
	return !atomic_load(&state->dead);
}

static bool write_half(int fd, size_t from, size_t to)
{
	while (from < to) {
		ssize_t n = pwrite(fd, buf + from, to - from, (off_t)from);

		if (n <= 0)
			return false;
		from += (size_t)n;
	}
	return true;
}

/* Bytes into a file, in the steps 0 to 3. -1: failed. */
static bool write_file(const char *path, size_t n, bool sync, bool allocate, unsigned op)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	bool ok = fd >= 0 && step(op, 0);

	if (fd < 0)
		failed("open of %s to write", path);
	if (ok && allocate)
		ok = !fallocate(fd, 0, 0, (off_t)n);
	ok = ok && write_half(fd, 0, n / 2) && step(op, 1) && write_half(fd, n / 2, n) &&
	     step(op, 2);
	if (ok && sync)
		ok = !fsync(fd) && step(op, 3);
	if (fd >= 0 && close(fd))
		ok = false;
	return ok;
}

/* close() answers at FLUSH; a page made in place is there after RELEASE, which a look-up waits for
 * a while. */
static bool await_page(const char *path, size_t n)
{
	struct stat st;

	for (unsigned i = 0; i < 100000 && !atomic_load(&state->dead); i++)
		if (!stat(path, &st) && st.st_size == (off_t)n)
			return true;
	return false;
}

static bool sync_page(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool ok = fd >= 0 && !fsync(fd);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* kind 0: in place; 1: a temporary that tells its page; 2: one that does not, with its size told in
 * half of the cases. */
static void put_page(unsigned page, unsigned kind, bool sync, unsigned op)
{
	struct known *k = &state->pages[page];
	unsigned version = atomic_load(&k->last) + 1;
	char final[PATH_BYTES], temp[PATH_BYTES], suffix[64];
	size_t n = fill(buf, page, version);
	const char *what;
	bool ok;

	page_path(final, page, "");
	snprintf(suffix, sizeof(suffix), ".tmp.%d", getpid());
	page_path(temp, page, suffix);
	if (kind == 2)
		snprintf(temp, sizeof(temp), "%s/space%u/.%032x.tmp", mnt, page / 4 % 4, op);
	atomic_store(&k->last, version);
	atomic_store(&k->next, version);
	atomic_store(&k->doing, PUT);
	what = "write";
	ok = write_file(kind ? temp : final, n, sync && kind, kind == 2 && op % 2, op);
	if (ok && kind) {
		what = "rename";
		ok = !rename(temp, final);
	} else if (ok) {
		what = "publish at the last close";
		ok = await_page(final, n) && step(op, 3);
		if (ok && sync) {
			what = "fsync after it";
			ok = sync_page(final);
		}
	}
	if (!ok) {
		failed("put of %s version %u, kind %u, %zu bytes: %s", final, version, kind, n,
		       what);
		return;
	}
	step(op, 4);
	atomic_store(&k->version, version);
	if (sync) {
		atomic_store(&k->synced, version);
		atomic_fetch_add(&state->n_syncs, 1);
	}
	atomic_store(&k->doing, IDLE);
	step(op, 5);
}

static void unlink_page(unsigned page, unsigned op)
{
	struct known *k = &state->pages[page];
	char path[PATH_BYTES];

	page_path(path, page, "");
	atomic_store(&k->doing, UNLINK);
	step(op, 0);
	if (unlink(path) && errno != ENOENT) {
		failed("unlink of %s", path);
		return;
	}
	atomic_store(&k->synced, 0);
	atomic_store(&k->version, 0);
	atomic_store(&k->doing, IDLE);
	for (unsigned i = 1; i < 6; i++)
		step(op, i);
}

static void change_dir(unsigned dir, unsigned op)
{
	struct known *k = &state->dirs[dir];
	bool there = atomic_load(&k->version);
	char path[PATH_BYTES];

	dir_path(path, dir);
	atomic_store(&k->doing, there ? RMDIR : MKDIR);
	step(op, 0);
	if (there ? rmdir(path) : mkdir(path, 0755)) {
		failed("%s of %s", there ? "rmdir" : "mkdir", path);
		return;
	}
	/* Answered, so it holds. */
	atomic_store(&k->version, !there);
	atomic_store(&k->doing, IDLE);
	for (unsigned i = 1; i < 6; i++)
		step(op, i);
}

static void writer(unsigned who)
{
	unsigned s = seed * 31u + who * 7919u, op;

	while (!atomic_load(&state->dead)) {
		unsigned dice = next_random(&s) % 100,
			 page = next_random(&s) % (N_PAGES / N_WRITERS);

		op = atomic_fetch_add(&state->n_ops, 1);
		page = page * N_WRITERS + who;
		if (dice < 12)
			unlink_page(page, op);
		else if (dice < 20)
			change_dir(4 + page % (N_DIRS - 4) / N_WRITERS * N_WRITERS + who, op);
		else
			put_page(page, dice % 3, dice % 5 == 0, op);
	}
}

static void reader(unsigned who)
{
	unsigned s = seed * 17u + who * 104729u + 1;

	while (!atomic_load(&state->dead)) {
		unsigned page = next_random(&s) % N_PAGES;
		struct known *k = &state->pages[page];
		unsigned before = atomic_load(&k->version);
		long version = read_page(page);

		if (version > 0 && version < (long)before)
			failed("page %u: read version %ld after %u was there", page, version,
			       before);
		if (version > 0 && version > (long)atomic_load(&k->last))
			failed("page %u: read version %ld, the last is %u", page, version,
			       atomic_load(&k->last));
	}
}

static int work(void)
{
	pid_t pids[N_WRITERS + N_READERS];
	int status, rc = 0;

	atomic_store(&state->n_ops, 0);
	atomic_store(&state->dead, 0);
	for (unsigned i = 0; i < N_WRITERS + N_READERS; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			buf = malloc(MAX_BYTES + 8);
			alarm(60);
			if (i < N_WRITERS)
				writer(i);
			else
				reader(i - N_WRITERS);
			_exit(0);
		}
	}
	for (unsigned i = 0; i < N_WRITERS + N_READERS; i++) {
		if (waitpid(pids[i], &status, 0) != pids[i] || status) {
			fprintf(stderr, "%s %u ended with status 0x%x\n",
				i < N_WRITERS ? "writer" : "reader", i, status);
			rc = 1;
		}
	}
	return rc || atomic_load(&state->n_failed);
}

/* --- check --- */

static bool allowed(const struct known *k, long version, const char *mode)
{
	unsigned known = atomic_load(&k->version), synced = atomic_load(&k->synced),
		 doing = atomic_load(&k->doing);
	bool must =
		known && strcmp(mode, "moved") &&
		(!strcmp(mode, "kept") || !strcmp(mode, "rebuilt") || (synced && synced == known));

	if (version == known && (version || doing != PUT))
		return true;
	if (doing == PUT && version == (long)atomic_load(&k->next))
		return true;
	/* The row of an unlinked page went at once, with whose file nobody was done yet. */
	if (!known && !strcmp(mode, "rebuilt"))
		return true;
	if (!version)
		return doing == UNLINK || !must || (doing == PUT && !strcmp(mode, "dropped"));
	/* Replaced, and not synced since: with the pool the newer one is gone, and the older one
	 * may be gone or be what is left. */
	return !strcmp(mode, "dropped") && known && version < (long)known;
}

static void check_page(unsigned page, const char *mode)
{
	struct known *k = &state->pages[page];
	long version = read_page(page);
	struct stat st;
	char path[PATH_BYTES];

	if (version < 0)
		return;
	if (!allowed(k, version, mode))
		failed("page %u: version %ld is there; known %u, synced %u, being done %u to %u "
		       "(%s)",
		       page, version, atomic_load(&k->version), atomic_load(&k->synced),
		       atomic_load(&k->doing), atomic_load(&k->next), mode);
	page_path(path, page, "");
	if (!version != !!stat(path, &st))
		failed("%s: stat and open differ", path);
	if (version && st.st_size != (off_t)size_of(page, (unsigned)version))
		failed("%s: stat says %ld bytes", path, (long)st.st_size);
	if ((long)atomic_load(&k->synced) > version)
		atomic_store(&k->synced, 0);
	atomic_store(&k->version, (unsigned)version);
	atomic_store(&k->doing, IDLE);
}

static void check_dir(unsigned dir)
{
	struct known *k = &state->dirs[dir];
	unsigned doing = atomic_load(&k->doing);
	struct stat st;
	char path[PATH_BYTES];
	bool there;

	dir_path(path, dir);
	there = !stat(path, &st) && S_ISDIR(st.st_mode);
	if (doing == IDLE && there != !!atomic_load(&k->version))
		failed("%s is %s", path, there ? "back" : "gone");
	atomic_store(&k->version, there);
	atomic_store(&k->doing, IDLE);
}

/* Everything that is listed can be opened, and is no temporary. The number of pages. */
static unsigned walk(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;
	struct dirent *e;
	struct stat st;
	char path[PATH_BYTES];

	if (!d) {
		failed("opendir of %s", dir);
		return 0;
	}
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.' &&
		    (!e->d_name[1] || !strcmp(e->d_name, "..") || !strcmp(e->d_name, ".hicache")))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (strstr(e->d_name, ".tmp"))
			failed("a temporary is listed: %s", path);
		if (stat(path, &st))
			failed("%s is listed, stat fails", path);
		else if (S_ISDIR(st.st_mode))
			n += walk(path);
		else
			n++;
	}
	closedir(d);
	return n;
}

static int check(const char *mode)
{
	unsigned n = 0, n_listed;

	atomic_store(&state->dead, 0);
	n_listed = walk(mnt);
	for (unsigned i = 0; i < N_PAGES; i++) {
		check_page(i, mode);
		n += atomic_load(&state->pages[i].version) != 0;
	}
	if (n != n_listed && strcmp(mode, "moved"))
		failed("%u pages can be read, %u are listed", n, n_listed);
	for (unsigned i = 0; i < N_DIRS && strcmp(mode, "rebuilt"); i++)
		check_dir(i);
	printf("%u pages; %u reads and %u syncs so far\n", n, atomic_load(&state->n_reads),
	       atomic_load(&state->n_syncs));
	return atomic_load(&state->n_failed) != 0;
}

/* The spaces and the directories that stay. */
static int make(void)
{
	static const char *const below[] = {"", "/fixed_r0", "/fixed_r0/0ab",
					    "/fixed_r0/0ab/cd_g0"};
	char path[PATH_BYTES];

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 0; j < 4; j++) {
			snprintf(path, sizeof(path), "%s/space%u%s", mnt, i, below[j]);
			if (mkdir(path, 0755)) {
				perror(path);
				return 1;
			}
		}
		atomic_store(&state->dirs[i].version, 1);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int fd;

	if (argc < 4)
		return 2;
	mnt = argv[2];
	fd = open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*state)))
		return 2;
	state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (state == MAP_FAILED)
		return 2;
	atomic_store(&state->n_failed, 0);
	if (!strcmp(argv[1], "make"))
		return make();
	if (!strcmp(argv[1], "check") && argc == 5)
		return check(argv[4]);
	if (strcmp(argv[1], "work") || argc != 7)
		return 2;
	seed = (unsigned)strtoul(argv[4], NULL, 10);
	kill_at = (unsigned)strtoul(argv[5], NULL, 10);
	daemon_pid = (pid_t)strtol(argv[6], NULL, 10);
	return work();
}
