/* SPDX-License-Identifier: Apache-2.0 */
/* The front end's life: create, mount, run, stop, unmount, destroy. Workers are our own: a fixed
 * number of threads, each with a buffer of one request, blocked in read(/dev/fuse); stopping wakes
 * them by a signal that does nothing. The order at the end matters: the notifier is joined while
 * workers still serve, or it could wait for ever for a directory whose LOOKUP nobody answers. */
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/stat.h>

#include "fuse/internal.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/sysinfo.h"

#define HC_THREADS_MIN 16 /* an open may wait for the disk: many small engines' threads at once */
#define HC_THREADS_MAX 32
#define HC_KEEPER_NS   (100 * HC_NS_PER_MS)
#define HC_REAP_EVERY  10 /* rounds of the keeper */
#define HC_WAKE_SIGNAL (SIGRTMIN + 4)

/* --- timed requests --- */

#define HC_TIMED(name, params, ...)                                                             \
	static void timed_##name params                                                         \
	{                                                                                       \
		struct hc_fs *fs = hc_req_fs(req);                                              \
		uint64_t begun_ns = hc_clock_now_ns();                                          \
                                                                                                \
		hc_op_##name(__VA_ARGS__);                                                      \
		hc_timing_add(&fs->timings[HC_FS_TIMING_##name], hc_clock_now_ns() - begun_ns); \
	}

HC_TIMED(lookup, (fuse_req_t req, fuse_ino_t parent, const char *name), req, parent, name)
HC_TIMED(open, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), req, ino, fi)
HC_TIMED(create,
	 (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	  struct fuse_file_info *fi),
	 req, parent, name, mode, fi)
HC_TIMED(read, (fuse_req_t req, fuse_ino_t ino, size_t n, off_t offset, struct fuse_file_info *fi),
	 req, ino, n, offset, fi)
HC_TIMED(write,
	 (fuse_req_t req, fuse_ino_t ino, const char *data, size_t n, off_t offset,
	  struct fuse_file_info *fi),
	 req, ino, data, n, offset, fi)
HC_TIMED(flush, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), req, ino, fi)
HC_TIMED(rename,
	 (fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	  const char *new_name, unsigned int flags),
	 req, parent, name, new_parent, new_name, flags)

const struct hc_timing *hc_fs_timing(struct hc_fs *fs, enum hc_fs_timing which)
{
	return &fs->timings[which];
}

static const struct fuse_lowlevel_ops operations;

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
	return value ? value : otherwise;
}

/* --- create --- */

static int check_mountpoint(const char *path)
{
	struct stat st;

	if (!path || !*path) {
		hc_error("fuse", "no mount point given");
		return -EINVAL;
	}
	if (stat(path, &st)) {
		int err = -errno;

		if (err == -ENOTCONN)
			hc_error("fuse",
				 "%s: a file system that died is still mounted there; run: umount "
				 "-l %s",
				 path, path);
		else
			hc_error("fuse", "mount point %s: %m; make the directory first", path);
		return err;
	}
	if (!S_ISDIR(st.st_mode)) {
		hc_error("fuse", "mount point %s is not a directory", path);
		return -ENOTDIR;
	}
	return 0;
}

static int check_device(void)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int err = fd < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	if (err == -ENOENT || err == -ENODEV || err == -ENXIO)
		hc_error("fuse", "/dev/fuse is missing: load the module (modprobe fuse), or give "
				 "the container "
				 "--device /dev/fuse --cap-add SYS_ADMIN");
	else if (err)
		hc_error("fuse",
			 "/dev/fuse cannot be opened: %s; run as root, or let users mount (chmod "
			 "666 "
			 "/dev/fuse)",
			 strerror(-err));
	return err == -ENOENT || err == -ENXIO ? -ENODEV : err;
}

static void free_options(struct hc_fs_options *options)
{
	free((char *)options->mountpoint);
	free((char *)options->mount_options);
}

static int copy_options(struct hc_fs *fs, const struct hc_fs_options *options)
{
	int cpus = hc_sysinfo_cpus();

	fs->options = *options;
	fs->options.mountpoint = strdup(options->mountpoint);
	fs->options.mount_options = strdup(options->mount_options ? options->mount_options : "");
	if (!fs->options.n_threads)
		fs->options.n_threads = cpus * 2 < HC_THREADS_MIN   ? HC_THREADS_MIN
					: cpus * 2 > HC_THREADS_MAX ? HC_THREADS_MAX
								    : (uint32_t)cpus * 2;
	/* One may park, one must serve. */
	if (fs->options.n_threads < 2)
		fs->options.n_threads = 2;
	fs->options.max_page_bytes = or_default(options->max_page_bytes, 64 * HC_MIB);
	fs->options.temporary_age_ns = or_default(options->temporary_age_ns, 3600 * HC_NS_PER_S);
	fs->budget_ns = or_default(options->budget_ns, 2 * HC_NS_PER_S);
	fs->timeout_s =
		(double)or_default(options->timeout_ns, 3600 * HC_NS_PER_S) / (double)HC_NS_PER_S;
	fs->uid = geteuid();
	fs->gid = getegid();
	return fs->options.mountpoint && fs->options.mount_options ? 0 : -ENOMEM;
}

int hc_fs_create(const struct hc_fs_options *options, struct hc_fs **fs_p)
{
	struct hc_fs *fs;
	int err;

	err = check_mountpoint(options->mountpoint);
	if (!err)
		err = check_device();
	if (err)
		return err;
	fs = hc_zalloc(sizeof(*fs));
	if (!fs)
		return -ENOMEM;
	sem_init(&fs->stop, 0, 0);
	err = copy_options(fs, options);
	if (!err)
		err = hc_bodies_init(&fs->bodies);
	if (!err)
		err = hc_tree_create(&fs->tree);
	if (!err)
		err = hc_notifier_create(fs, &fs->notifier);
	if (!err)
		err = hc_openers_create(&fs->openers);
	if (!err)
		err = hc_openfiles_create(&fs->openfiles);
	if (!err)
		err = hc_handles_create(&fs->handles);
	if (!err)
		err = hc_listings_create(&fs->listings);
	if (!err)
		err = hc_pass_create(fs, &fs->pass);
	if (!err)
		err = hc_virtual_create(fs, &fs->virtuals);
	if (err) {
		hc_fs_destroy(fs);
		return err;
	}
	*fs_p = fs;
	return 0;
}

__thread bool hc_fs_quiet;

void hc_fs_event(void *arg, const struct hc_event *event)
{
	struct hc_fs *fs = arg;

	if (!atomic_load(&fs->mounted) || hc_fs_quiet)
		return;
	if (event->kind == HC_EVENT_FLUSH)
		hc_notify_all(fs->notifier);
	else if (event->name && event->dir && (event->node_id || event->kind == HC_EVENT_PUBLISHED))
		hc_notify_name(fs->notifier, event->dir, event->name);
}

/* --- mount --- */

static int new_session(struct hc_fs *fs)
{
	const char *more = fs->options.mount_options;
	hc_autofree char *text = NULL;
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int err = 0;

	/* A service of the node: others may come in, the modes say how far. */
	if (asprintf(&text, "default_permissions,subtype=hicachefs%s%s%s%s",
		     geteuid() == 0 && !strstr(more, "allow_") ? ",allow_other" : "",
		     fs->options.debug ? ",debug" : "", *more ? "," : "", more) < 0)
		return -ENOMEM;
	if (fuse_opt_add_arg(&args, "hicachefs") || fuse_opt_add_arg(&args, "-o") ||
	    fuse_opt_add_arg(&args, text))
		err = -ENOMEM;
	if (!err) {
		fs->session = fuse_session_new(&args, &operations, sizeof(operations), fs);
		if (!fs->session) {
			hc_error("fuse", "libfuse refuses the mount options %s", text);
			err = -EINVAL;
		}
	}
	fuse_opt_free_args(&args);
	return err;
}

int hc_fs_mount(struct hc_fs *fs, struct hc_node *node)
{
	int err;

	fs->node = node;
	fs->registry = hc_node_registry(node);
	err = new_session(fs);
	if (err)
		return err;
	if (fuse_session_mount(fs->session, fs->options.mountpoint)) {
		hc_error("fuse", "cannot mount on %s", fs->options.mountpoint);
		err = -EIO;
	} else {
		err = hc_init_hook(fs);
		if (err)
			fuse_session_unmount(fs->session);
	}
	if (err) {
		fuse_session_destroy(fs->session);
		fs->session = NULL;
		return err;
	}
	atomic_store(&fs->mounted, true);
	return 0;
}

/* --- run --- */

struct hc_crew {
	struct hc_fs *fs;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t n_working;
	bool stopping; /* the keeper */
};

static void *worker_main(void *arg)
{
	struct hc_crew *crew = arg;
	struct fuse_session *session = crew->fs->session;
	struct fuse_buf buf = {.mem = NULL};

	pthread_setname_np(pthread_self(), "hc-fuse");
	while (!fuse_session_exited(session)) {
		int got = fuse_session_receive_buf(session, &buf);

		if (got == -EINTR || got == -EAGAIN)
			continue;
		if (got <= 0)
			break;
		fuse_session_process_buf(session, &buf);
	}
	free(buf.mem);
	pthread_mutex_lock(&crew->lock);
	crew->n_working--;
	pthread_cond_broadcast(&crew->changed);
	pthread_mutex_unlock(&crew->lock);
	sem_post(&crew->fs->stop); /* unmounted from outside: the others are woken, too */
	return NULL;
}

/* What runs by the clock: a notifier that hangs, bodies that nobody wants. */
static void *keeper_main(void *arg)
{
	struct hc_crew *crew = arg;
	struct hc_fs *fs = crew->fs;

	pthread_setname_np(pthread_self(), "hc-fuse-keeper");
	pthread_mutex_lock(&crew->lock);
	for (unsigned round = 1; !crew->stopping; round++) {
		(void)hc_cond_wait_until(&crew->changed, &crew->lock,
					 hc_clock_now_ns() + HC_KEEPER_NS);
		pthread_mutex_unlock(&crew->lock);
		if (hc_notify_is_stuck(fs->notifier))
			hc_notify_unstick(fs->notifier);
		if (round % HC_REAP_EVERY == 0) {
			hc_bodies_reap(fs, fs->options.temporary_age_ns);
			hc_marks_expire(fs);
		}
		pthread_mutex_lock(&crew->lock);
	}
	pthread_mutex_unlock(&crew->lock);
	return NULL;
}

static void wake_handler(int number)
{
}

/* Blocks whatever the workers must not be interrupted by. */
static int start_workers(struct hc_crew *crew, pthread_t *threads, uint32_t n, uint32_t *started_p)
{
	struct sigaction action = {.sa_handler = wake_handler};
	sigset_t all, old;
	int err = 0;

	sigemptyset(&action.sa_mask);
	sigaction(HC_WAKE_SIGNAL, &action, NULL);
	sigfillset(&all);
	sigdelset(&all, HC_WAKE_SIGNAL);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	crew->n_working = n;
	for (*started_p = 0; !err && *started_p < n; ++*started_p) {
		err = -pthread_create(&threads[*started_p], NULL, worker_main, crew);
		if (err)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		hc_error("fuse", "cannot start %u worker threads: %s", n, strerror(-err));
	return err;
}

/* A signal may come just before the read that it should end: again until all are out. */
static void end_workers(struct hc_crew *crew, pthread_t *threads, uint32_t n_started, uint32_t n)
{
	fuse_session_exit(crew->fs->session);
	pthread_mutex_lock(&crew->lock);
	while (crew->n_working > n - n_started) {
		for (uint32_t i = 0; i < n_started; i++)
			pthread_kill(threads[i], HC_WAKE_SIGNAL);
		(void)hc_cond_wait_until(&crew->changed, &crew->lock,
					 hc_clock_now_ns() + 10 * HC_NS_PER_MS);
	}
	pthread_mutex_unlock(&crew->lock);
	for (uint32_t i = 0; i < n_started; i++)
		pthread_join(threads[i], NULL);
}

int hc_fs_run(struct hc_fs *fs)
{
	struct hc_crew crew = {.fs = fs};
	uint32_t n = fs->options.n_threads, n_started = 0;
	hc_autofree pthread_t *threads = calloc(n, sizeof(*threads));
	pthread_t keeper;
	int err;

	if (!threads)
		return -ENOMEM;
	pthread_mutex_init(&crew.lock, NULL);
	hc_cond_init(&crew.changed);
	err = hc_notifier_start(fs->notifier);
	if (!err)
		err = -pthread_create(&keeper, NULL, keeper_main, &crew);
	if (!err) {
		err = start_workers(&crew, threads, n, &n_started);
		while (!err && sem_wait(&fs->stop) && errno == EINTR)
			;
		atomic_store(&fs->mounted, false);
		hc_notifier_stop(fs->notifier);
		end_workers(&crew, threads, n_started, n);
		pthread_mutex_lock(&crew.lock);
		crew.stopping = true;
		pthread_cond_broadcast(&crew.changed);
		pthread_mutex_unlock(&crew.lock);
		pthread_join(keeper, NULL);
	}
	hc_notifier_stop(fs->notifier);
	pthread_mutex_destroy(&crew.lock);
	pthread_cond_destroy(&crew.changed);
	return err;
}

void hc_fs_stop(struct hc_fs *fs)
{
	sem_post(&fs->stop);
}

void hc_fs_unmount(struct hc_fs *fs)
{
	atomic_store(&fs->mounted, false);
	if (!fs->session)
		return;
	fuse_session_unmount(fs->session);
	fuse_session_destroy(fs->session);
	fs->session = NULL;
}

void hc_fs_destroy(struct hc_fs *fs)
{
	if (!fs)
		return;
	hc_fs_unmount(fs);
	if (fs->virtuals)
		hc_virtual_cancel(fs);
	if (fs->node && fs->handles) {
		hc_listings_end(fs);
		hc_handles_end(fs);
		hc_bodies_end(fs);
	}
	hc_virtual_destroy(fs->virtuals);
	hc_handles_destroy(fs->handles);
	hc_listings_destroy(fs->listings);
	hc_pass_destroy(fs->pass);
	hc_openfiles_destroy(fs->openfiles);
	hc_openers_destroy(fs->openers);
	hc_notifier_destroy(fs->notifier);
	hc_tree_destroy(fs->tree);
	hc_bodies_fini(&fs->bodies);
	sem_destroy(&fs->stop);
	free_options(&fs->options);
	free(fs);
}

void hc_fs_stats(struct hc_fs *fs, struct hc_fs_stats *stats_p)
{
	memset(stats_p, 0, sizeof(*stats_p));
#define HC_FS_COUNTER_READ(name) \
	stats_p->name = atomic_load_explicit(&fs->counters.name, memory_order_relaxed);
	HC_FS_COUNTERS(HC_FS_COUNTER_READ)
#undef HC_FS_COUNTER_READ
	stats_p->n_nodes = hc_tree_count(fs->tree);
	stats_p->n_handles = atomic_load(&fs->n_handles);
	stats_p->n_backing_ids = hc_pass_n_ids(fs);
	stats_p->has_epoch = fs->kernel.has_epoch;
	stats_p->has_parallel_dirops = fs->kernel.has_parallel_dirops;
	stats_p->has_direct_mmap = fs->kernel.has_direct_mmap;
	stats_p->has_passthrough = hc_pass_is_on(fs);
	stats_p->proto_minor = fs->kernel.minor;
	pthread_mutex_lock(&fs->bodies.lock);
	stats_p->n_bodies = fs->bodies.n_bodies;
	stats_p->n_temporaries = fs->bodies.n_temporaries;
	pthread_mutex_unlock(&fs->bodies.lock);
}

static void hc_op_init(void *userdata, struct fuse_conn_info *conn)
{
	hc_init_capabilities(userdata, conn);
}

static const struct fuse_lowlevel_ops operations = {
	.init = hc_op_init,
	.lookup = timed_lookup,
	.forget = hc_op_forget,
	.forget_multi = hc_op_forget_multi,
	.getattr = hc_op_getattr,
	.setattr = hc_op_setattr,
	.statfs = hc_op_statfs,
	.mkdir = hc_op_mkdir,
	.rmdir = hc_op_rmdir,
	.unlink = hc_op_unlink,
	.rename = timed_rename,
	.link = hc_op_link,
	.symlink = hc_op_symlink,
	.mknod = hc_op_mknod,
	.open = timed_open,
	.create = timed_create,
	.read = timed_read,
	.write = timed_write,
	.flush = timed_flush,
	.release = hc_op_release,
	.fsync = hc_op_fsync,
	.fallocate = hc_op_fallocate,
	.opendir = hc_op_opendir,
	.readdir = hc_op_readdir,
	.readdirplus = hc_op_readdirplus,
	.releasedir = hc_op_releasedir,
	.fsyncdir = hc_op_fsyncdir,
	.setxattr = hc_op_setxattr,
	.getxattr = hc_op_getxattr,
	.listxattr = hc_op_listxattr,
	.removexattr = hc_op_removexattr,
};
