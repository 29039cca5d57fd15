/* SPDX-License-Identifier: Apache-2.0 */
/* Passthrough: the kernel reads and writes the file behind a handle by itself (FUSE_PASSTHROUGH,
 * kernel 6.9). Three things are done by hand, so that any libfuse will do: files are registered by
 * ioctl on the session's descriptor, OPEN and CREATE are answered with the kernel's own structs,
 * and init.c asks for it.
 *
 * The kernel refuses to mix ways of opening one inode with EIO at the caller's open. So the first
 * open of an inode decides, and as long as the inode is open every OPEN is answered the same way,
 * with the same backing id; who must see each request gets DIRECT_IO added to it. Opens are counted
 * before they are answered; the RELEASE that makes the count 0 closes the id.
 *
 * Locks: the table's are leaves, held over the two ioctls, which do no I/O; the probe's is held
 * while INIT is being answered. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/ioctl.h>

#include "fuse/internal.h"
#include "util/log.h"

#define HC_PASS_BUCKETS 1024u
#define HC_PASS_LOCKS   64u

/* What linux/fuse.h of kernels before 6.9 lacks. */
#define HC_FOPEN_PASSTHROUGH (1u << 7)
struct hc_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define HC_BACKING_OPEN  _IOW(229, 1, struct hc_backing_map)
#define HC_BACKING_CLOSE _IOW(229, 2, uint32_t)
struct hc_open_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};
_Static_assert(sizeof(struct hc_open_out) == sizeof(struct fuse_open_out), "the kernel's struct");

enum hc_pass_state { HC_PASS_ASKED, HC_PASS_ON, HC_PASS_OFF };

/* An inode that is open. */
struct hc_pass_inode {
	struct hc_pass_inode *next;
	uint64_t ino;
	uint32_t n_opens;
	int32_t id;     /* 0: by the daemon */
	uint64_t other; /* what it is read as; 0: what it stands for */
	bool has_ref;
	struct hc_ref ref; /* keeps the page from eviction */
};

struct hc_pass {
	atomic_int state;
	pthread_mutex_t probe_lock;
	uint64_t disks; /* a bit for each data directory where it works */
	char why[160];  /* off: the reason */
	atomic_uint n_ids;
	pthread_mutex_t locks[HC_PASS_LOCKS];
	struct hc_pass_inode *buckets[HC_PASS_BUCKETS];
};

int hc_pass_create(struct hc_fs *fs, struct hc_pass **pass_p)
{
	struct hc_pass *pass = hc_zalloc(sizeof(*pass));

	(void)fs;
	if (!pass)
		return -ENOMEM;
	pthread_mutex_init(&pass->probe_lock, NULL);
	for (size_t i = 0; i < HC_PASS_LOCKS; i++)
		pthread_mutex_init(&pass->locks[i], NULL);
	*pass_p = pass;
	return 0;
}

void hc_pass_destroy(struct hc_pass *pass)
{
	if (!pass)
		return;
	for (size_t i = 0; i < HC_PASS_LOCKS; i++)
		pthread_mutex_destroy(&pass->locks[i]);
	pthread_mutex_destroy(&pass->probe_lock);
	free(pass);
}

/* --- backing files --- */

static int backing_open(struct hc_fs *fs, int fd, int32_t *id_p)
{
	struct hc_backing_map map = {.fd = fd};
	int id = ioctl(fuse_session_fd(fs->session), HC_BACKING_OPEN, &map);

	if (id <= 0)
		return id ? -errno : -EINVAL;
	*id_p = id;
	atomic_fetch_add(&fs->pass->n_ids, 1);
	return 0;
}

static void backing_close(struct hc_fs *fs, int32_t id)
{
	uint32_t number = (uint32_t)id;

	atomic_fetch_sub(&fs->pass->n_ids, 1);
	/* After the unmount the kernel has closed it already. */
	if (fs->session && ioctl(fuse_session_fd(fs->session), HC_BACKING_CLOSE, &number))
		hc_debug("fuse", "backing id %u: %m", number);
}

/* --- probe --- */

/* Offered is not allowed: a user namespace, an overlay below a data directory. */
static int probe_disk(struct hc_fs *fs, uint16_t disk)
{
	char name[64];
	int32_t id = 0;
	int fd, err;

	err = hc_node_probe_file(fs->node, disk, &fd, name, sizeof(name));
	if (err)
		return err;
	err = backing_open(fs, fd, &id);
	if (!err)
		backing_close(fs, id);
	close(fd);
	hc_node_unstage(fs->node, disk, name);
	return err;
}

static const char *why_not(int err)
{
	switch (err) {
	case -EPERM:
		return "the kernel allows it to CAP_SYS_ADMIN of the initial user namespace alone";
	case -ELOOP:
		return "the data directory lies on a stacked file system (an overlay); name one on "
		       "ext4 or xfs";
	case -ENODEV:
		return "disk_size=0";
	default:
		return strerror(-err);
	}
}

static void probe_disks(struct hc_fs *fs)
{
	struct hc_pass *pass = fs->pass;
	uint16_t n_disks = hc_node_n_disks(fs->node);
	struct hc_store_disk_info info;
	int err = -ENODEV;

	for (uint16_t disk = 0; disk < n_disks && disk < 64; disk++) {
		int disk_err = probe_disk(fs, disk);

		if (!disk_err) {
			pass->disks |= (uint64_t)1 << disk;
			continue;
		}
		err = disk_err;
		if (n_disks > 1 && hc_node_disk_info(fs->node, disk, &info) == 0)
			hc_info("fuse", "no passthrough on %s: %s", info.dir, why_not(err));
	}
	if (!pass->disks)
		snprintf(pass->why, sizeof(pass->why), "%s", why_not(err));
}

void hc_pass_probe_begin(struct hc_fs *fs)
{
	pthread_mutex_lock(&fs->pass->probe_lock);
}

void hc_pass_probe(struct hc_fs *fs, bool offered)
{
	struct hc_pass *pass = fs->pass;

	if (fs->options.passthrough_off)
		snprintf(pass->why, sizeof(pass->why), "passthrough=off");
	else if (!offered)
		snprintf(pass->why, sizeof(pass->why),
			 "this kernel does not offer it (it takes 6.9 or later)");
	else
		probe_disks(fs);
	if (pass->disks)
		hc_info("fuse", "passthrough: pages on disk are opened without a copy%s",
			fs->options.passthrough_writes ? "; bodies, too, which is on trial" : "");
	else
		hc_info("fuse", "no passthrough: %s; every byte goes through the daemon",
			pass->why);
	atomic_store(&pass->state, pass->disks ? HC_PASS_ON : HC_PASS_OFF);
	pthread_mutex_unlock(&pass->probe_lock);
}

bool hc_pass_is_on(struct hc_fs *fs)
{
	struct hc_pass *pass = fs->pass;

	if (hc_unlikely(atomic_load(&pass->state) == HC_PASS_ASKED)) {
		/* INIT's answer goes out before the probe: the kernel takes no file earlier. */
		pthread_mutex_lock(&pass->probe_lock);
		pthread_mutex_unlock(&pass->probe_lock);
	}
	return atomic_load(&pass->state) == HC_PASS_ON;
}

bool hc_pass_writes(struct hc_fs *fs)
{
	return fs->options.passthrough_writes && hc_pass_is_on(fs);
}

uint32_t hc_pass_n_ids(struct hc_fs *fs)
{
	return atomic_load(&fs->pass->n_ids);
}

void hc_fs_passthrough_text(struct hc_fs *fs, char *text, size_t room)
{
	bool on = hc_pass_is_on(fs);

	snprintf(text, room, "%s%s",
		 !on                              ? "off: "
		 : fs->options.passthrough_writes ? "on, for writes too"
						  : "on",
		 on ? "" : fs->pass->why);
}

/* --- open inodes --- */

static pthread_mutex_t *lock_of(struct hc_pass *pass, uint64_t ino)
{
	return &pass->locks[ino % HC_PASS_LOCKS];
}

/* Locked. The place in its bucket, or of the end. */
static struct hc_pass_inode **find_locked(struct hc_pass *pass, uint64_t ino)
{
	struct hc_pass_inode **place = &pass->buckets[ino % HC_PASS_BUCKETS];

	while (*place && (*place)->ino != ino)
		place = &(*place)->next;
	return place;
}

_Static_assert(HC_PASS_BUCKETS % HC_PASS_LOCKS == 0, "a bucket has one lock");

static void count_in_locked(struct hc_pass_inode *inode, struct hc_way *way_p)
{
	inode->n_opens++;
	*way_p = (struct hc_way){.path = inode->id ? HC_PATH_FILE : HC_PATH_DAEMON,
				 .id = inode->id,
				 .ino = inode->ino};
}

bool hc_pass_join(struct hc_fs *fs, uint64_t ino, struct hc_way *way_p)
{
	struct hc_pass *pass = fs->pass;
	struct hc_pass_inode *inode;
	bool joined;

	pthread_mutex_lock(lock_of(pass, ino));
	inode = *find_locked(pass, ino);
	joined = inode && inode->id;
	if (joined)
		count_in_locked(inode, way_p);
	pthread_mutex_unlock(lock_of(pass, ino));
	return joined;
}

bool hc_pass_is_open(struct hc_fs *fs, uint64_t ino)
{
	struct hc_pass *pass = fs->pass;
	bool is_open;

	pthread_mutex_lock(lock_of(pass, ino));
	is_open = *find_locked(pass, ino) != NULL;
	pthread_mutex_unlock(lock_of(pass, ino));
	return is_open;
}

bool hc_pass_enter(struct hc_fs *fs, uint64_t ino, uint64_t other, int fd, struct hc_ref *ref,
		   struct hc_way *way_p)
{
	struct hc_pass_inode *fresh = hc_zalloc(sizeof(*fresh)), **place;
	struct hc_pass *pass = fs->pass;
	bool entered;

	if (fresh) {
		fresh->ino = ino;
		fresh->other = other;
	}
	pthread_mutex_lock(lock_of(pass, ino));
	place = find_locked(pass, ino);
	if (!*place && fresh) {
		if (fd >= 0 && backing_open(fs, fd, &fresh->id))
			fresh->id = 0;
		if (fresh->id && ref) {
			fresh->ref = *ref;
			fresh->has_ref = true;
			ref = NULL;
		}
		*place = fresh;
		fresh = NULL;
	}
	entered = *place && (*place)->other == other;
	if (entered)
		count_in_locked(*place, way_p);
	pthread_mutex_unlock(lock_of(pass, ino));
	free(fresh);
	if (ref)
		hc_node_release(fs->node, ref, 1);
	return entered;
}

void hc_pass_leave(struct hc_fs *fs, struct hc_way *way)
{
	struct hc_pass *pass = fs->pass;
	struct hc_pass_inode **place, *last = NULL;

	if (!way->ino)
		return;
	pthread_mutex_lock(lock_of(pass, way->ino));
	place = find_locked(pass, way->ino);
	hc_assert(*place && (*place)->n_opens);
	if (!--(*place)->n_opens) {
		last = *place;
		*place = last->next;
		if (last->id)
			backing_close(fs, last->id);
	}
	pthread_mutex_unlock(lock_of(pass, way->ino));
	if (last && last->has_ref)
		hc_node_release(fs->node, &last->ref, 1);
	free(last);
	way->ino = 0;
	way->path = HC_PATH_DAEMON;
}

bool hc_pass_hold(struct hc_fs *fs, uint64_t ino, uint32_t entry, uint64_t sequence)
{
	struct hc_pass *pass = fs->pass;
	struct hc_pass_inode *inode;
	struct hc_ref ref;
	bool held = false;

	/* Not under a lock of ours: first the ref, then the inode that keeps it. */
	if (hc_node_hold(fs->node, entry, sequence, &ref))
		return false;
	pthread_mutex_lock(lock_of(pass, ino));
	inode = *find_locked(pass, ino);
	if (inode && inode->id && !inode->has_ref) {
		inode->ref = ref;
		inode->has_ref = true;
		ref.entry = HC_ENTRY_NONE;
	}
	held = inode && inode->id;
	pthread_mutex_unlock(lock_of(pass, ino));
	hc_node_release(fs->node, &ref, 1);
	return held;
}

/* What the kernel may open for a handle of a body; -1: nothing. A map for writing may outlive its
 * handle, so who could make one is watched; O_DIRECT is served better from memory. */
static int backing_of(struct hc_fs *fs, const struct hc_handle *handle)
{
	uint16_t disk = 0;
	int fd = hc_body_backing(handle->body, handle->writer, &disk);

	if (fd >= 0 && !(disk < 64 && fs->pass->disks >> disk & 1)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

int hc_pass_open(struct hc_fs *fs, struct hc_handle *handle, uint64_t ino, int flags)
{
	bool detached = hc_fnode_ino(handle->fnode) != ino;
	struct hc_way *way = &handle->way;
	bool as_file = handle->kind == HC_H_BODY && !detached && ino >= HC_INO_BODIES &&
		       (flags & O_ACCMODE) != O_RDWR && !(flags & O_DIRECT) && hc_pass_writes(fs);
	int fd = -1, err = 0;

	/* Ordinary files live in the page cache, and keep their numbers when they become bodies. */
	if (way->ino || handle->kind == HC_H_FILE)
		return 0;
	if (handle->writer)
		err = hc_body_begin(handle->body, as_file);
	if (err || ino < HC_INO_BODIES)
		return err;
	if (as_file)
		fd = backing_of(fs, handle);
	/* What a detached writer writes is another body than the inode's; it is not refused, or a
	 * set would be lost. */
	err = hc_pass_enter(fs, ino, 0, fd, NULL, way) || handle->writer ? 0 : -ESTALE;
	if (fd >= 0)
		close(fd);
	if (err || way->path != HC_PATH_FILE)
		return err;
	/* The file behind the inode is not what this handle writes. Reads and writes come to us; a
	 * map would not. */
	if (detached && (flags & O_ACCMODE) == O_RDWR) {
		hc_fs_count(fs, second_writers_busy);
		return -EBUSY;
	}
	if (!as_file) {
		way->path = HC_PATH_WATCHED;
	} else if (handle->writer) {
		hc_body_outside_begin(handle->body);
		handle->outside = true;
	}
	return 0;
}

/* --- answers --- */

static void open_out(const struct hc_handle *handle, const struct fuse_file_info *fi,
		     struct hc_open_out *out)
{
	*out = (struct hc_open_out){
		.fh = fi->fh,
		.open_flags = HC_FOPEN_PASSTHROUGH | (fi->noflush ? 1u << 5 : 0),
		.backing_id = handle->way.id,
	};
	if (handle->way.path == HC_PATH_WATCHED)
		out->open_flags |= FOPEN_DIRECT_IO;
}

static void count_way(struct hc_fs *fs, const struct hc_handle *handle)
{
	if (handle->way.path == HC_PATH_FILE)
		hc_fs_count(fs, passthrough_opens);
	else
		hc_fs_count(fs, daemon_opens);
}

int hc_pass_reply_open(fuse_req_t req, const struct hc_handle *handle,
		       const struct fuse_file_info *fi)
{
	struct hc_open_out out;

	count_way(hc_req_fs(req), handle);
	if (handle->way.path == HC_PATH_DAEMON)
		return fuse_reply_open(req, fi);
	open_out(handle, fi, &out);
	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}

static void seconds_of(double timeout_s, uint64_t *s_p, uint32_t *ns_p)
{
	*s_p = (uint64_t)timeout_s;
	*ns_p = (uint32_t)((timeout_s - (double)*s_p) * (double)HC_NS_PER_S);
}

static void entry_out(const struct fuse_entry_param *entry, struct fuse_entry_out *out)
{
	const struct stat *st = &entry->attr;

	memset(out, 0, sizeof(*out));
	out->nodeid = entry->ino;
	out->generation = entry->generation;
	seconds_of(entry->entry_timeout, &out->entry_valid, &out->entry_valid_nsec);
	seconds_of(entry->attr_timeout, &out->attr_valid, &out->attr_valid_nsec);
	out->attr = (struct fuse_attr){
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.atime = (uint64_t)st->st_atim.tv_sec,
		.mtime = (uint64_t)st->st_mtim.tv_sec,
		.ctime = (uint64_t)st->st_ctim.tv_sec,
		.atimensec = (uint32_t)st->st_atim.tv_nsec,
		.mtimensec = (uint32_t)st->st_mtim.tv_nsec,
		.ctimensec = (uint32_t)st->st_ctim.tv_nsec,
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.rdev = (uint32_t)st->st_rdev,
		.blksize = (uint32_t)st->st_blksize,
	};
}

int hc_pass_reply_create(fuse_req_t req, const struct hc_handle *handle,
			 const struct fuse_entry_param *entry, const struct fuse_file_info *fi)
{
	struct {
		struct fuse_entry_out entry;
		struct hc_open_out open;
	} out;

	count_way(hc_req_fs(req), handle);
	if (handle->way.path == HC_PATH_DAEMON)
		return fuse_reply_create(req, entry, fi);
	entry_out(entry, &out.entry);
	open_out(handle, fi, &out.open);
	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}
