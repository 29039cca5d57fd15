/* SPDX-License-Identifier: Apache-2.0 */
/* The INIT helper: what the kernel offers and libfuse does not pass on. The session's own read and
 *writev go through here; the request with opcode INIT is noted, its answer gets PARALLEL_DIROPS and
 *DIRECT_IO_ALLOW_MMAP and HANDLE_KILLPRIV_V2 where the kernel offered them, and PASSTHROUGH where
 *it did and is wanted (then the probe follows, passthrough.c). Nothing else is touched. Also the
 *choice of what libfuse does pass on.
 *
 *	fuse_in_header: u32 length, u32 opcode, u64 unique, ... 40 bytes; fuse_init_in: u32 major,
 *minor, max_readahead, flags, flags2. fuse_out_header: u32 length, i32 error, u64 unique;
 *fuse_init_out: u32 major, minor, max_readahead, flags (12), 16 bytes, u32 flags2 (32),
 *max_stack_depth (36). */
#include <sys/uio.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#include <sys/syscall.h>
#endif

#include "fuse/internal.h"
#include "util/log.h"

#define HC_FUSE_OP_INIT         26u
#define HC_INIT_IN_MINOR        44u
#define HC_INIT_IN_FLAGS        52u
#define HC_INIT_IN_FLAGS2       56u
#define HC_INIT_OUT_FLAGS       12u
#define HC_INIT_OUT_FLAGS2      32u
#define HC_INIT_PARALLEL_DIROPS (1u << 18)
#define HC_INIT_KILLPRIV_V2     (1u << 28)
#define HC_INIT_EXT             (1u << 30)
#define HC_INIT2_DIRECT_IO_MMAP (1u << 4)
#define HC_INIT2_PASSTHROUGH    (1u << 5)
#define HC_INIT_OUT_DEPTH       36u
/* Files behind ours are of a plain file system: then an overlay may still lie over the mount. */
#define HC_INIT_STACK_DEPTH 1u
#define HC_EPOCH_MINOR      44u

static uint32_t word(const void *buf, size_t offset)
{
	uint32_t value;

	memcpy(&value, (const char *)buf + offset, sizeof(value));
	return value;
}

static void set_bits(void *buf, size_t offset, uint32_t bits)
{
	uint32_t value = word(buf, offset) | bits;

	memcpy((char *)buf + offset, &value, sizeof(value));
}

/* Requests follow the answers that they build on: an order that goes through the kernel. The thread
 * sanitizer books the reads of a writev after the call, when the RELEASE of that page may have been
 * served already; so it is told itself. */
#ifdef __SANITIZE_THREAD__
static ssize_t send_answer(struct hc_fs *fs, int fd, struct iovec *iov, int count)
{
	__tsan_release(fs);
	return syscall(SYS_writev, fd, iov, count);
}

static ssize_t get_request(struct hc_fs *fs, int fd, void *buf, size_t n)
{
	ssize_t got = read(fd, buf, n);

	__tsan_acquire(fs);
	return got;
}
#else
static ssize_t send_answer(struct hc_fs *fs, int fd, struct iovec *iov, int count)
{
	return writev(fd, iov, count);
}

static ssize_t get_request(struct hc_fs *fs, int fd, void *buf, size_t n)
{
	return read(fd, buf, n);
}
#endif

static void see_init(struct hc_fs *fs, const void *buf, size_t n)
{
	uint32_t flags, flags2 = 0;

	if (n < HC_INIT_IN_FLAGS + 4)
		return;
	memcpy(&fs->kernel.init_unique, (const char *)buf + 8, sizeof(fs->kernel.init_unique));
	flags = word(buf, HC_INIT_IN_FLAGS);
	if (flags & HC_INIT_EXT && n >= HC_INIT_IN_FLAGS2 + 4)
		flags2 = word(buf, HC_INIT_IN_FLAGS2);
	fs->kernel.minor = word(buf, HC_INIT_IN_MINOR);
	fs->kernel.has_parallel_dirops = flags & HC_INIT_PARALLEL_DIROPS;
	fs->kernel.has_killpriv_v2 = flags & HC_INIT_KILLPRIV_V2;
	fs->kernel.has_direct_mmap = flags2 & HC_INIT2_DIRECT_IO_MMAP;
	fs->kernel.has_passthrough = flags2 & HC_INIT2_PASSTHROUGH && !fs->options.passthrough_off;
	fs->kernel.has_epoch = fs->kernel.minor >= HC_EPOCH_MINOR;
}

static ssize_t hook_read(int fd, void *buf, size_t n, void *userdata)
{
	struct hc_fs *fs = userdata;
	ssize_t got = get_request(fs, fd, buf, n);

	if (hc_unlikely(!fs->kernel.minor) && got >= 40 && word(buf, 4) == HC_FUSE_OP_INIT)
		see_init(fs, buf, (size_t)got);
	return got;
}

static void patch_answer(struct hc_fs *fs, struct iovec *answer)
{
	bool passthrough = answer->iov_len >= HC_INIT_OUT_DEPTH + 4 && fs->kernel.has_passthrough;
	uint32_t flags2 = (fs->kernel.has_direct_mmap ? HC_INIT2_DIRECT_IO_MMAP : 0) |
			  (passthrough ? HC_INIT2_PASSTHROUGH : 0);

	fs->kernel.has_passthrough = passthrough;
	if (answer->iov_len < HC_INIT_OUT_FLAGS2 + 4)
		return;
	if (fs->kernel.has_parallel_dirops)
		set_bits(answer->iov_base, HC_INIT_OUT_FLAGS, HC_INIT_PARALLEL_DIROPS);
	/* Set-id bits are never stored: without this the kernel asks for security.capability before
	 * each cached write. */
	if (fs->kernel.has_killpriv_v2)
		set_bits(answer->iov_base, HC_INIT_OUT_FLAGS, HC_INIT_KILLPRIV_V2);
	if (flags2) {
		set_bits(answer->iov_base, HC_INIT_OUT_FLAGS, HC_INIT_EXT);
		set_bits(answer->iov_base, HC_INIT_OUT_FLAGS2, flags2);
	}
	if (passthrough)
		set_bits(answer->iov_base, HC_INIT_OUT_DEPTH, HC_INIT_STACK_DEPTH);
}

static ssize_t hook_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct hc_fs *fs = userdata;
	uint64_t unique;
	ssize_t sent;

	if (hc_likely(!fs->kernel.init_unique) || iov[0].iov_len < 16)
		return send_answer(fs, fd, iov, count);
	memcpy(&unique, (char *)iov[0].iov_base + 8, sizeof(unique));
	if (unique != fs->kernel.init_unique)
		return send_answer(fs, fd, iov, count);
	fs->kernel.init_unique = 0;
	hc_pass_probe_begin(fs);
	if (count > 1)
		patch_answer(fs, &iov[1]);
	sent = send_answer(fs, fd, iov, count);
	hc_pass_probe(fs, count > 1 && fs->kernel.has_passthrough);
	if (sent > 0 && fs->options.serving)
		fs->options.serving(fs->options.serving_arg);
	return sent;
}

int hc_init_hook(struct hc_fs *fs)
{
	const struct fuse_custom_io io = {.writev = hook_writev, .read = hook_read};
	int err;

	fs->kernel.init_unique = 0;
	err = fuse_session_custom_io(fs->session, &io, fuse_session_fd(fs->session));
	if (err)
		hc_error("fuse", "libfuse refuses the INIT helper: %s",
			 strerror(err < 0 ? -err : EINVAL));
	return err ? -EINVAL : 0;
}

void hc_init_capabilities(struct hc_fs *fs, struct fuse_conn_info *conn)
{
	unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_ASYNC_DIO |
			FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_PARALLEL_DIROPS;
	unsigned refuse = FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
			  FUSE_CAP_SPLICE_MOVE | FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_POSIX_LOCKS |
			  FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_DONT_MASK;

#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
	/* Set-id bits are never stored, so there is nothing to take away at a write. */
	want |= FUSE_CAP_HANDLE_KILLPRIV_V2;
#endif
	conn->want = (conn->want & ~refuse) | (want & conn->capable);
	conn->max_write = HC_FS_IO_BYTES_MAX;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
	hc_debug("fuse", "kernel protocol 7.%u, parallel directories %d, shared maps %d, epochs %d",
		 fs->kernel.minor, fs->kernel.has_parallel_dirops, fs->kernel.has_direct_mmap,
		 fs->kernel.has_epoch);
}
