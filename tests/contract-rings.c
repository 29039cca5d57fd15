/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous I/O as engines do it, by raw system calls: libaio (UCM, NIXL's default), io_uring
 * and POSIX aio (NIXL). All pieces of a page are in flight at once. */
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/contract.h"

#define MAX_PIECES 64
#define WAIT_S     60

struct transfer {
	int fd;
	bool is_write;
	char *buf;
	long size_bytes, piece_bytes;
	unsigned n_pieces;
};

static long piece_size(const struct transfer *x, unsigned i)
{
	long left = x->size_bytes - (long)i * x->piece_bytes;

	return left < x->piece_bytes ? left : x->piece_bytes;
}

/* What a completion says of piece i. */
static int piece_result(const struct transfer *x, unsigned i, long got)
{
	if (got < 0)
		return (int)got;
	return got == piece_size(x, i) ? 0 : -ENODATA;
}

static int aio_io(const struct transfer *x)
{
	struct iocb iocbs[MAX_PIECES], *list[MAX_PIECES];
	struct io_event events[MAX_PIECES];
	aio_context_t context = 0;
	unsigned n_done = 0;
	time_t end = time(NULL) + WAIT_S;
	int rc = 0, one;
	long n;

	if (syscall(SYS_io_setup, MAX_PIECES, &context))
		return errno == EAGAIN ? -ENOSYS : -errno;
	memset(iocbs, 0, sizeof(iocbs));
	for (unsigned i = 0; i < x->n_pieces; i++) {
		iocbs[i].aio_data = i;
		iocbs[i].aio_fildes = (unsigned)x->fd;
		iocbs[i].aio_lio_opcode = x->is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
		iocbs[i].aio_buf = (uint64_t)(uintptr_t)(x->buf + (long)i * x->piece_bytes);
		iocbs[i].aio_nbytes = (uint64_t)piece_size(x, i);
		iocbs[i].aio_offset = (long)i * x->piece_bytes;
		list[i] = &iocbs[i];
	}
	n = syscall(SYS_io_submit, context, x->n_pieces, list);
	if (n != (long)x->n_pieces)
		rc = n < 0 ? -errno : -EAGAIN;
	while (n > 0 && n_done < (unsigned)n && time(NULL) <= end) {
		struct timespec none = {0, 100000};
		long got = syscall(SYS_io_getevents, context, 0, MAX_PIECES, events, &none);

		for (long e = 0; e < got; e++, n_done++) {
			one = piece_result(x, (unsigned)events[e].data, (long)events[e].res);
			rc = rc ? rc : one;
		}
	}
	if (n > 0 && n_done < (unsigned)n)
		rc = -ETIMEDOUT;
	syscall(SYS_io_destroy, context);
	return rc;
}

struct uring {
	int fd;
	struct io_uring_params p;
	char *sq, *cq;
	struct io_uring_sqe *sqes;
	size_t sq_bytes, cq_bytes, sqe_bytes;
};

static int uring_open(struct uring *r, unsigned n)
{
	memset(r, 0, sizeof(*r));
	r->fd = (int)syscall(SYS_io_uring_setup, n, &r->p);
	if (r->fd < 0)
		return -ENOSYS; /* not built in, or forbidden */
	r->sq_bytes = r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned);
	r->cq_bytes = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
	r->sqe_bytes = r->p.sq_entries * sizeof(struct io_uring_sqe);
	r->sq = mmap(NULL, r->sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
		     IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, r->cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
		     IORING_OFF_CQ_RING);
	r->sqes = mmap(NULL, r->sqe_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
		       IORING_OFF_SQES);
	if (r->sq == MAP_FAILED || r->cq == MAP_FAILED || (void *)r->sqes == MAP_FAILED)
		exit(99);
	return 0;
}

static void uring_close(struct uring *r)
{
	munmap(r->sqes, r->sqe_bytes);
	munmap(r->cq, r->cq_bytes);
	munmap(r->sq, r->sq_bytes);
	close(r->fd);
}

static _Atomic unsigned *word_at(char *base, unsigned offset)
{
	return (_Atomic unsigned *)(void *)(base + offset);
}

static int uring_io(const struct transfer *x)
{
	unsigned tail, head, n_done = 0;
	struct io_uring_cqe *cqes;
	struct uring r;
	int rc, one;

	rc = uring_open(&r, MAX_PIECES);
	if (rc)
		return rc;
	tail = atomic_load(word_at(r.sq, r.p.sq_off.tail));
	for (unsigned i = 0; i < x->n_pieces; i++) {
		unsigned slot = (tail + i) & (r.p.sq_entries - 1);
		struct io_uring_sqe *sqe = &r.sqes[slot];

		memset(sqe, 0, sizeof(*sqe));
		sqe->opcode = x->is_write ? IORING_OP_WRITE : IORING_OP_READ;
		sqe->fd = x->fd;
		sqe->addr = (uint64_t)(uintptr_t)(x->buf + (long)i * x->piece_bytes);
		sqe->len = (unsigned)piece_size(x, i);
		sqe->off = (uint64_t)i * (uint64_t)x->piece_bytes;
		sqe->user_data = i;
		atomic_store(word_at(r.sq, r.p.sq_off.array) + slot, slot);
	}
	atomic_store(word_at(r.sq, r.p.sq_off.tail), tail + x->n_pieces);
	if (syscall(SYS_io_uring_enter, r.fd, x->n_pieces, x->n_pieces, IORING_ENTER_GETEVENTS,
		    NULL, 0) < 0)
		rc = -errno;
	cqes = (struct io_uring_cqe *)(void *)(r.cq + r.p.cq_off.cqes);
	head = atomic_load(word_at(r.cq, r.p.cq_off.head));
	for (; !rc && head != atomic_load(word_at(r.cq, r.p.cq_off.tail)); head++, n_done++) {
		const struct io_uring_cqe *cqe = &cqes[head & (r.p.cq_entries - 1)];

		one = piece_result(x, (unsigned)cqe->user_data, cqe->res);
		rc = rc ? rc : one;
	}
	atomic_store(word_at(r.cq, r.p.cq_off.head), head);
	if (!rc && n_done != x->n_pieces)
		rc = -ETIMEDOUT;
	uring_close(&r);
	return rc;
}

struct piece {
	const struct transfer *x;
	unsigned i;
	int rc;
};

static void *piece_thread(void *arg)
{
	struct piece *p = arg;
	const struct transfer *x = p->x;
	char *buf = x->buf + (long)p->i * x->piece_bytes;
	off_t offset = (long)p->i * x->piece_bytes;
	size_t n = (size_t)piece_size(x, p->i);

	p->rc = piece_result(
		x, p->i,
		err_of(x->is_write ? pwrite(x->fd, buf, n, offset) : pread(x->fd, buf, n, offset)));
	return NULL;
}

static int threads_io(const struct transfer *x)
{
	pthread_t threads[MAX_PIECES];
	struct piece pieces[MAX_PIECES];
	int rc = 0;

	for (unsigned i = 0; i < x->n_pieces; i++) {
		pieces[i] = (struct piece){x, i, 0};
		if (pthread_create(&threads[i], NULL, piece_thread, &pieces[i]))
			exit(99);
	}
	for (unsigned i = 0; i < x->n_pieces; i++) {
		pthread_join(threads[i], NULL);
		rc = rc ? rc : pieces[i].rc;
	}
	return rc;
}

int ring_io(enum ring_kind kind, int fd, bool is_write, void *buf, long size_bytes,
	    long piece_bytes)
{
	struct transfer x = {fd, is_write, buf, size_bytes, piece_bytes, 0};
	int rc;

	x.n_pieces = (unsigned)((size_bytes + piece_bytes - 1) / piece_bytes);
	if (x.n_pieces > MAX_PIECES)
		return -EINVAL;
	switch (kind) {
	case RING_AIO:
		rc = aio_io(&x);
		break;
	case RING_URING:
		rc = uring_io(&x);
		break;
	default:
		rc = threads_io(&x);
	}
	return rc == -ENOSYS ? rc : (int)note(rc);
}
