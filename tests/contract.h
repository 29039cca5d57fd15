/* SPDX-License-Identifier: Apache-2.0 */
/* The contract between engines and the mount, as a program: `contract` runs the cases of all points
 * on a directory. Engines are tables of their own sequences of system calls, as traced from them;
 * cases drive them. What every case shares is here: pages whose bytes tell who wrote them and where
 * they belong, processes in step, checks that go on, and a count of what must never happen. */
#ifndef HC_TESTS_CONTRACT_H
#define HC_TESTS_CONTRACT_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define PATH_BYTES 1024
#define UNIT       4096l
#define KIB        1024l
#define MIB        (1l << 20)

/* Where the cases run. */
enum phase {
	FRESH, /* a mount that is new */
	AGAIN, /* after a restart, over the names of the run before */
	FULL,  /* a pool that others keep full: what was stored may be gone, never wrong */
	PLAIN, /* a directory of another file system: shows that the sequences are what engines do
		*/
};

/* Never on a good day; over all processes of a run. */
struct counts {
	atomic_long eio, short_reads, torn, misses, loads, stores;
	atomic_uint step;
};

struct under_test {
	const char *dir;   /* a space, or a directory on another file system */
	const char *mount; /* NULL: none of ours */
	enum phase phase;
	struct counts *counts; /* of all processes */
	unsigned n_failed;     /* checks of this one */
};
extern struct under_test t;

/* One way of one engine to use a directory. Keys are numbers, contents are seeds. */
struct engine {
	const char *name;
	long size_bytes;
	int (*store)(const struct engine *e, unsigned key, unsigned seed); /* 0 or -errno */
	long (*load)(const struct engine *e, unsigned key);                /* the seed, or -errno */
	bool (*exists)(const struct engine *e, unsigned key);
	void (*start)(const struct engine *e); /* what the engine does once, may be NULL */
	int form;                              /* told to the functions above */
	bool needs_map;     /* writable shared maps, which the mount may refuse */
	bool shares_no_key; /* two processes must not store one key */
	bool races_on_ext4; /* two processes that store one key disturb each other there */
};
extern const struct engine sglang_engines[], vllm_engines[], lmcache_engines[], other_engines[];

/* A case. `point` is that of the contract; 0: all of it. */
struct contract_case {
	int point;
	const char *name;
	void (*run)(void); /* or, for each engine, */
	void (*run_engine)(const struct engine *e);
	unsigned phases; /* bits 1 << enum phase */
	bool one_key;    /* for several processes, not with engines that share no key */
};
#define IN(p)      (1u << (p))
#define EVERYWHERE (IN(FRESH) | IN(AGAIN) | IN(FULL) | IN(PLAIN))
#define MOUNTED    (IN(FRESH) | IN(AGAIN) | IN(FULL))
#define NOT_FULL   (IN(FRESH) | IN(AGAIN) | IN(PLAIN))
#define OURS       (IN(FRESH) | IN(AGAIN))
extern const struct contract_case engine_cases[], byte_cases[], name_cases[], scratch_cases[];

/* --- paths: up to 16 are kept --- */
const char *at(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *beside(const char *format, ...)
	__attribute__((format(printf, 1, 2))); /* in the mount */
/* 64 hex digits of key i, as a hash looks; the first digits differ. */
const char *hash_of(unsigned key);
int make_parents(const char *path, mode_t mode);

/* --- bytes --- */
unsigned char *page_new(long size_bytes, unsigned seed); /* aligned; free() */
void page_fill(void *buf, long size_bytes, unsigned seed);
/* The seed that all bytes are of, from the one at `offset` of the page on; -EILSEQ: not of one. */
long page_seed(const void *buf, long size_bytes, long offset);

/* --- calls --- */
long err_of(long rc); /* rc, or -errno */
/* write() until all is there; a count that is not all is -ENOSPC, as engines take it. */
int write_whole(int fd, const void *buf, long size_bytes);
/* One read() of it all into `buf`: a short one is counted. 0 or -errno. */
int read_whole(int fd, void *buf, long size_bytes);
/* open with `flags`, fstat, one read of it all, close: the seed, or -errno. */
long load_file(const char *path, int flags, long size_bytes);
/* open O_CREAT | O_TRUNC, one write, close: 0 or -errno */
int store_file(const char *path, int flags, mode_t mode, long size_bytes, unsigned seed);
int close_of(int fd); /* 0 or -errno */
/* Notes what must never be: EIO, a short read, bytes that are not of one page. Returns it. */
long note(long seed_or_err);

/* --- the mount --- */
long stat_line(const char *name); /* of .hicache/stats; -1: no such line */
bool command(const char *line, char *answer, size_t answer_bytes);
void evict_space(void); /* all pages of it, from memory and from disk */
void drop_memory(void); /* pages of the space stay on disk */

/* --- processes in step --- */
#define MAX_PROCESSES 8
/* Runs fn(i, arg) in n processes; the number that failed (a check, a signal). */
int in_processes(int n, void (*fn)(int i, void *arg), void *arg);
/* All n processes of in_processes() leave it together. */
void meet(int n);

/* --- checks --- */
void check_at(const char *file, int line, const char *what, long got, long want);
void fail_at(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define check(call, want) check_at(__FILE__, __LINE__, #call, (long)(call), (long)(want))
#define check_true(what)  check_at(__FILE__, __LINE__, #what, (what) ? 1 : 0, 1)
#define failed(...)       fail_at(__FILE__, __LINE__, __VA_ARGS__)
/* A descriptor; after a failed open the case ends. */
#define open_or_return(fd, call)                                                    \
	do {                                                                        \
		(fd) = (int)err_of(call);                                           \
		check_at(__FILE__, __LINE__, #call, (fd) < 0 ? (long)(fd) : 0, 0l); \
		if ((fd) < 0)                                                       \
			return;                                                     \
	} while (0)
/* What a load must give: the seed. In a full pool it may be a miss. */
void check_page_at(const char *file, int line, long got, unsigned seed);
#define check_page(call, seed) check_page_at(__FILE__, __LINE__, (call), (seed))
/* This machine cannot run the case. */
void skip_case(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- contract-rings.c: asynchronous I/O by raw system calls --- */
enum ring_kind {
	RING_AIO,    /* libaio: io_submit, io_getevents polled */
	RING_URING,  /* io_uring_enter */
	RING_THREADS /* posix aio: pwrite64 in a thread */
};
/* All of the buffer in pieces at once; 0 or -errno. -ENOSYS: not on this machine. -ENODATA: short
 */
int ring_io(enum ring_kind kind, int fd, bool is_write, void *buf, long size_bytes,
	    long piece_bytes);

#endif
