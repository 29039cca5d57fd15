/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that make one system call at a time, each in the order the test says, and checks that
 * name what was done. A failed check prints the line and makes the program's status 1; the test
 * goes on, so one run shows all. */
#ifndef HC_TESTS_FUSE_ACTORS_H
#define HC_TESTS_FUSE_ACTORS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_ACTORS   3
#define PATH_BYTES 512

enum { A, B, C };

enum op {
	OP_OPEN,
	OP_CLOSE,
	OP_DUP,
	OP_WRITE, /* n bytes of value `byte` at `offset` */
	OP_READ,  /* the same, checked to be of one value, which comes back */
	OP_STAT,
	OP_FSTAT,
	OP_ACCESS,
	OP_RENAME,
	OP_RENAME_NEW,
	OP_UNLINK,
	OP_GET, /* open, read all, close */
	OP_TRUNCATE,
	OP_ALLOCATE,
	OP_FSYNC,
};

struct command {
	enum op op;
	char path[PATH_BYTES], other[PATH_BYTES];
	int fd, flags;
	long n, offset;
	int byte;
};

struct result {
	long rc;    /* or -errno */
	long value; /* size, or the byte that everything is made of; -1: not of one */
};

static int actor_fds[N_ACTORS];
static pid_t actor_pids[N_ACTORS];
static const char *mount_dir;
static int n_failed;
static long last_value;

static inline double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline long err_of(long rc)
{
	return rc < 0 ? -errno : rc;
}

static inline long uniform(const unsigned char *buf, long n)
{
	for (long i = 1; i < n; i++)
		if (buf[i] != buf[0])
			return -1;
	return n > 0 ? buf[0] : 0;
}

/* Whole file in one read; the size, or -errno; *value_p as in struct result. */
static inline long get_file(const char *path, long *value_p)
{
	struct stat st;
	unsigned char *buf;
	long got;
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		got = -errno;
		close(fd);
		return got;
	}
	buf = malloc((size_t)st.st_size + 1);
	got = err_of(read(fd, buf, (size_t)st.st_size + 1));
	close(fd);
	*value_p = uniform(buf, got);
	free(buf);
	/* What was told must be readable in one call. */
	return got >= 0 && got != st.st_size ? -ENODATA : got;
}

static inline struct result perform(const struct command *c)
{
	struct result r = {0, 0};
	unsigned char *buf;
	struct stat st;

	switch (c->op) {
	case OP_OPEN:
		r.rc = err_of(open(c->path, c->flags, 0644));
		break;
	case OP_CLOSE:
		r.rc = err_of(close(c->fd));
		break;
	case OP_DUP:
		r.rc = err_of(dup(c->fd));
		break;
	case OP_WRITE:
		buf = malloc((size_t)c->n);
		memset(buf, c->byte, (size_t)c->n);
		r.rc = err_of(pwrite(c->fd, buf, (size_t)c->n, c->offset));
		free(buf);
		break;
	case OP_READ:
		buf = malloc((size_t)c->n);
		r.rc = err_of(pread(c->fd, buf, (size_t)c->n, c->offset));
		r.value = uniform(buf, r.rc);
		free(buf);
		break;
	case OP_STAT:
		r.rc = err_of(stat(c->path, &st));
		r.value = r.rc ? 0 : st.st_size;
		break;
	case OP_FSTAT:
		r.rc = err_of(fstat(c->fd, &st));
		r.value = r.rc ? 0 : st.st_size;
		break;
	case OP_ACCESS:
		r.rc = err_of(access(c->path, F_OK));
		break;
	case OP_RENAME:
		r.rc = err_of(rename(c->path, c->other));
		break;
	case OP_RENAME_NEW:
		r.rc = err_of(renameat2(AT_FDCWD, c->path, AT_FDCWD, c->other, (unsigned)c->flags));
		break;
	case OP_UNLINK:
		r.rc = err_of(unlink(c->path));
		break;
	case OP_GET:
		r.rc = get_file(c->path, &r.value);
		break;
	case OP_TRUNCATE:
		r.rc = err_of(ftruncate(c->fd, c->n));
		break;
	case OP_ALLOCATE:
		r.rc = err_of(fallocate(c->fd, c->flags, c->offset, c->n));
		break;
	case OP_FSYNC:
		r.rc = err_of(fsync(c->fd));
		break;
	}
	return r;
}

static inline void actor_main(int fd)
{
	struct command c;
	struct result r;

	while (read(fd, &c, sizeof(c)) == sizeof(c)) {
		r = perform(&c);
		if (send(fd, &r, sizeof(r), MSG_NOSIGNAL) != sizeof(r))
			break;
	}
	_exit(0);
}

static inline void start_actor(int i)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		exit(99);
	actor_pids[i] = fork();
	if (!actor_pids[i]) {
		for (int k = 0; k < N_ACTORS; k++)
			if (actor_fds[k] > 0)
				close(actor_fds[k]);
		close(pair[0]);
		actor_main(pair[1]);
	}
	close(pair[1]);
	actor_fds[i] = pair[0];
}

static inline void end_actor(int i, int number)
{
	kill(actor_pids[i], number);
	waitpid(actor_pids[i], NULL, 0);
	close(actor_fds[i]);
	actor_fds[i] = 0;
}

static inline void full_path(char out[PATH_BYTES], const char *name)
{
	out[0] = '\0';
	if (name)
		snprintf(out, PATH_BYTES, "%s/%s", mount_dir, name);
}

static inline long act(int who, struct command c, const char *name, const char *other)
{
	struct result r;

	full_path(c.path, name);
	full_path(c.other, other);
	if (send(actor_fds[who], &c, sizeof(c), MSG_NOSIGNAL) != sizeof(c) ||
	    read(actor_fds[who], &r, sizeof(r)) != sizeof(r)) {
		fprintf(stderr, "actor %c is lost\n", 'A' + who);
		exit(99);
	}
	last_value = r.value;
	return r.rc;
}

#define do_open(who, name, flag) \
	act(who, (struct command){.op = OP_OPEN, .flags = (flag)}, name, NULL)
#define do_close(who, f) act(who, (struct command){.op = OP_CLOSE, .fd = (int)(f)}, NULL, NULL)
#define do_dup(who, f)   act(who, (struct command){.op = OP_DUP, .fd = (int)(f)}, NULL, NULL)
#define do_write(who, f, v, count, at)                                                          \
	act(who,                                                                                \
	    (struct command){                                                                   \
		    .op = OP_WRITE, .fd = (int)(f), .byte = (v), .n = (count), .offset = (at)}, \
	    NULL, NULL)
#define do_read(who, f, count, at)                                                              \
	act(who, (struct command){.op = OP_READ, .fd = (int)(f), .n = (count), .offset = (at)}, \
	    NULL, NULL)
#define do_stat(who, name)       act(who, (struct command){.op = OP_STAT}, name, NULL)
#define do_fstat(who, f)         act(who, (struct command){.op = OP_FSTAT, .fd = (int)(f)}, NULL, NULL)
#define do_access(who, name)     act(who, (struct command){.op = OP_ACCESS}, name, NULL)
#define do_rename(who, from, to) act(who, (struct command){.op = OP_RENAME}, from, to)
#define do_unlink(who, name)     act(who, (struct command){.op = OP_UNLINK}, name, NULL)
#define do_get(who, name)        act(who, (struct command){.op = OP_GET}, name, NULL)
#define do_truncate(who, f, size) \
	act(who, (struct command){.op = OP_TRUNCATE, .fd = (int)(f), .n = (size)}, NULL, NULL)
#define do_rename_flags(who, from, to, flag) \
	act(who, (struct command){.op = OP_RENAME_NEW, .flags = (flag)}, from, to)
#define do_allocate(who, f, mode, size)                                                        \
	act(who,                                                                               \
	    (struct command){.op = OP_ALLOCATE, .fd = (int)(f), .flags = (mode), .n = (size)}, \
	    NULL, NULL)
#define do_fsync(who, f) act(who, (struct command){.op = OP_FSYNC, .fd = (int)(f)}, NULL, NULL)

static inline void check_at(int line, const char *what, long got, long want)
{
	if (got == want)
		return;
	n_failed++;
	fprintf(stderr, "line %d: %s: got %ld (%s), expected %ld (%s)\n", line, what, got,
		got < 0 ? strerror((int)-got) : "", want, want < 0 ? strerror((int)-want) : "");
}

#define check(call, want) check_at(__LINE__, #call, (call), (want))
/* A size in the last stat, or the byte of the last read or get. */
#define check_value(want) check_at(__LINE__, "value", last_value, (want))
/* open(2) and dup(2): a descriptor, kept in `fd`. */
#define check_open(fd, call)                                       \
	do {                                                       \
		(fd) = (call);                                     \
		check_at(__LINE__, #call, (fd) < 0 ? (fd) : 0, 0); \
	} while (0)

/* The name of page i in a directory, as SGLang makes it. */
static inline const char *page_name(unsigned i)
{
	static _Thread_local char names[16][PATH_BYTES];
	static _Thread_local unsigned next;
	char *name = names[next++ % 16];

	snprintf(name, PATH_BYTES, "%08x%056x_model.bin", i * 2654435761u, i + 1);
	return name;
}

static inline void actors_start(const char *dir)
{
	mount_dir = dir;
	for (int i = 0; i < N_ACTORS; i++)
		start_actor(i);
}

static inline int actors_end(void)
{
	for (int i = 0; i < N_ACTORS; i++)
		end_actor(i, SIGTERM);
	return n_failed != 0;
}

#endif
