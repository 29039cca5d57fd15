/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual files below .hicache: the table of fs.h as nodes, snapshots and commands. Nodes are made
 * at look-up and stay (at most HC_VNODES_MAX). A background command has a thread and a handle of
 * its own; the handle lives until both the kernel and the thread have let it go. A read that finds
 * nothing waits as a request, not as a thread. */
#include <fcntl.h>

#include "fuse/internal.h"
#include "util/clock.h"
#include "util/log.h"

#define HC_VNODES_MAX    65536u
#define HC_VLINE_BYTES   (16 * HC_KIB) /* longest line: a path, every byte of it escaped */
#define HC_VANSWER_BYTES (64 * HC_MIB) /* what a command may have printed and nobody read */

struct hc_vnode {
	const struct hc_vfile *file; /* NULL: .hicache itself */
	char *instance;              /* of itself, or of the nearest above; NULL: none */
	bool is_instance;
	uint32_t parent;
	char name[HC_NAME_BYTES];
};

struct hc_virtual {
	struct hc_fs *fs;
	pthread_mutex_t lock; /* nodes and n_running */
	pthread_cond_t idle;
	struct hc_vnode **nodes;
	uint32_t n_nodes;
	uint32_t n_running;
	struct hc_vhandle *handles;
	uint64_t start_ns;
};

struct hc_vhandle {
	struct hc_virtual *virtuals;
	struct hc_vnode *vnode;
	struct hc_vhandle *next, **place; /* under the virtuals' lock */
	pthread_mutex_t lock;             /* what follows */
	char *text;
	size_t length, room;
	size_t cursor; /* of commands' answers: read once, in order */
	bool commands; /* opened for writing */
	bool snapshot; /* text is what the file had at open, not an answer */
	bool running;
	bool interrupted;
	uint32_t n_refs;
	fuse_req_t waiting;
	size_t waiting_n;
	atomic_bool cancel;
	struct hc_vcaller caller;
	char *line;
	char *part; /* begin of a line whose end is to come: a write may come in pieces */
	size_t part_n;
	bool refused; /* the line is too long: dropped up to its end */
};

int hc_virtual_create(struct hc_fs *fs, struct hc_virtual **virtuals_p)
{
	struct hc_virtual *v = hc_zalloc(sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->fs = fs;
	v->start_ns = hc_clock_wall_ns();
	pthread_mutex_init(&v->lock, NULL);
	hc_cond_init(&v->idle);
	v->nodes = calloc(HC_VNODES_MAX, sizeof(*v->nodes));
	if (v->nodes)
		v->nodes[0] = hc_zalloc(sizeof(*v->nodes[0]));
	if (!v->nodes || !v->nodes[0]) {
		hc_virtual_destroy(v);
		return -ENOMEM;
	}
	v->n_nodes = 1;
	*virtuals_p = v;
	return 0;
}

void hc_virtual_destroy(struct hc_virtual *v)
{
	if (!v)
		return;
	for (uint32_t i = 0; i < v->n_nodes; i++) {
		free(v->nodes[i]->instance);
		free(v->nodes[i]);
	}
	free(v->nodes);
	pthread_mutex_destroy(&v->lock);
	pthread_cond_destroy(&v->idle);
	free(v);
}

static struct hc_vnode *node_of(struct hc_virtual *v, uint64_t ino)
{
	struct hc_vnode *node = NULL;

	pthread_mutex_lock(&v->lock);
	if (ino - HC_INO_VIRTUAL < v->n_nodes)
		node = v->nodes[ino - HC_INO_VIRTUAL];
	pthread_mutex_unlock(&v->lock);
	return node;
}

/* The table below a directory; NULL: its children are instances, or it is a file. */
static const struct hc_vfile *table_of(struct hc_fs *fs, const struct hc_vnode *node)
{
	if (!node->file)
		return fs->options.vfiles;
	return node->file->list && !node->is_instance ? NULL : node->file->children;
}

static bool is_dir(const struct hc_vnode *node)
{
	return !node->file || node->file->children;
}

/* The node of a child, made when it is new. 0: none left. */
static uint64_t child_ino(struct hc_virtual *v, uint32_t parent, const struct hc_vfile *file,
			  const char *name, const char *instance, bool is_instance)
{
	struct hc_vnode *node;
	uint64_t ino = 0;

	pthread_mutex_lock(&v->lock);
	for (uint32_t i = 1; i < v->n_nodes; i++) {
		node = v->nodes[i];
		if (node->parent == parent && node->file == file && strcmp(node->name, name) == 0) {
			ino = HC_INO_VIRTUAL + i;
			break;
		}
	}
	node = !ino && v->n_nodes < HC_VNODES_MAX ? hc_zalloc(sizeof(*node)) : NULL;
	if (node) {
		node->file = file;
		node->parent = parent;
		node->is_instance = is_instance;
		snprintf(node->name, sizeof(node->name), "%s", name);
		node->instance = instance ? strdup(instance) : NULL;
		ino = HC_INO_VIRTUAL + v->n_nodes;
		v->nodes[v->n_nodes++] = node;
	}
	pthread_mutex_unlock(&v->lock);
	return ino;
}

static void free_names(char **names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

static int instances(struct hc_fs *fs, const struct hc_vnode *node, char ***names_p, size_t *n_p)
{
	return node->file->list(fs->options.vfiles_arg, names_p, n_p);
}

int hc_virtual_lookup(struct hc_fs *fs, uint64_t parent, const char *name, uint64_t *ino_p)
{
	struct hc_virtual *v = fs->virtuals;
	struct hc_vnode *node = node_of(v, parent);
	const struct hc_vfile *file;
	uint64_t ino = 0;
	char **names;
	size_t n;

	if (!node || !is_dir(node))
		return -ENOENT;
	file = table_of(fs, node);
	if (file || !node->file) {
		while (file && file->name && strcmp(file->name, name) != 0)
			file++;
		if (file && file->name)
			ino = child_ino(v, (uint32_t)(parent - HC_INO_VIRTUAL), file, name,
					node->instance, false);
	} else if (instances(fs, node, &names, &n) == 0) {
		for (size_t i = 0; i < n && !ino; i++)
			if (strcmp(names[i], name) == 0)
				ino = child_ino(v, (uint32_t)(parent - HC_INO_VIRTUAL), node->file,
						name, name, true);
		free_names(names, n);
	}
	if (!ino)
		return -ENOENT;
	*ino_p = ino;
	return 0;
}

int hc_virtual_attr(struct hc_fs *fs, uint64_t ino, struct stat *st)
{
	struct hc_vnode *node = node_of(fs->virtuals, ino);

	if (!node)
		return -ENOENT;
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_uid = fs->uid;
	st->st_gid = fs->gid;
	st->st_nlink = is_dir(node) ? 2 : 1;
	if (is_dir(node))
		st->st_mode =
			S_IFDIR | (node->file && node->file->mode ? node->file->mode | 0111 : 0555);
	else
		st->st_mode = S_IFREG | node->file->mode;
	st->st_mtim.tv_sec = (time_t)(fs->virtuals->start_ns / HC_NS_PER_S);
	st->st_ctim = st->st_mtim;
	st->st_atim = st->st_mtim;
	return 0;
}

int hc_virtual_list(struct hc_fs *fs, uint64_t ino, struct hc_virtual_item **items_p, size_t *n_p)
{
	struct hc_vnode *node = node_of(fs->virtuals, ino);
	const struct hc_vfile *file;
	struct hc_virtual_item *items;
	char **names = NULL;
	size_t n = 0, out = 0;
	int err = 0;

	if (!node || !is_dir(node))
		return -ENOTDIR;
	file = table_of(fs, node);
	if (!file && node->file)
		err = instances(fs, node, &names, &n);
	for (; !err && file && file[n].name; n++)
		;
	items = err ? NULL : calloc(n ? n : 1, sizeof(*items));
	for (size_t i = 0; items && i < n; i++) {
		const char *name = names ? names[i] : file[i].name;

		if (hc_virtual_lookup(fs, ino, name, &items[out].ino))
			continue;
		items[out].is_dir = names || file[i].children;
		snprintf(items[out++].name, HC_NAME_BYTES, "%s", name);
	}
	if (names)
		free_names(names, n);
	if (!err && !items)
		err = -ENOMEM;
	if (err)
		return err;
	*items_p = items;
	*n_p = out;
	return 0;
}

/* --- handles --- */

static void handle_put(struct hc_vhandle *h)
{
	struct hc_virtual *v = h->virtuals;
	bool last;

	pthread_mutex_lock(&h->lock);
	last = --h->n_refs == 0;
	pthread_mutex_unlock(&h->lock);
	if (!last)
		return;
	pthread_mutex_lock(&v->lock);
	*h->place = h->next;
	if (h->next)
		h->next->place = h->place;
	pthread_mutex_unlock(&v->lock);
	pthread_mutex_destroy(&h->lock);
	free(h->text);
	free(h->line);
	free(h->part);
	free(h);
}

/* Locked. Answers a waiting read when there is something, or nothing to wait for. */
static void serve_locked(struct hc_vhandle *h)
{
	size_t n = h->length - h->cursor;
	fuse_req_t req = h->waiting;

	if (!req || (!n && h->running))
		return;
	h->waiting = NULL;
	n = n < h->waiting_n ? n : h->waiting_n;
	fuse_reply_buf(req, n ? h->text + h->cursor : NULL, n);
	h->cursor += n;
}

/* Locked. */
static int append_locked(struct hc_vhandle *h, const char *data, size_t n)
{
	if (h->length + n > HC_VANSWER_BYTES)
		return -ENOSPC;
	if (h->length + n > h->room) {
		size_t room = (h->length + n) * 2;
		char *text = realloc(h->text, room);

		if (!text)
			return -ENOMEM;
		h->text = text;
		h->room = room;
	}
	memcpy(h->text + h->length, data, n);
	h->length += n;
	return 0;
}

static ssize_t answer_write(void *cookie, const char *data, size_t n)
{
	struct hc_vhandle *h = cookie;
	int err;

	pthread_mutex_lock(&h->lock);
	err = append_locked(h, data, n);
	serve_locked(h);
	pthread_mutex_unlock(&h->lock);
	if (err) {
		errno = -err;
		return 0;
	}
	return (ssize_t)n;
}

static FILE *answer_file(struct hc_vhandle *h)
{
	cookie_io_functions_t io = {.write = answer_write};

	return fopencookie(h, "w", io);
}

static struct hc_vhandle *handle_new(struct hc_virtual *v, struct hc_vnode *node)
{
	struct hc_vhandle *h = hc_zalloc(sizeof(*h));

	if (!h)
		return NULL;
	h->virtuals = v;
	h->vnode = node;
	h->n_refs = 1;
	pthread_mutex_init(&h->lock, NULL);
	pthread_mutex_lock(&v->lock);
	h->next = v->handles;
	h->place = &v->handles;
	if (h->next)
		h->next->place = &h->next;
	v->handles = h;
	pthread_mutex_unlock(&v->lock);
	return h;
}

void hc_virtual_open(struct hc_fs *fs, fuse_req_t req, uint64_t ino, struct fuse_file_info *fi)
{
	struct hc_vnode *node = node_of(fs->virtuals, ino);
	bool reads = (fi->flags & O_ACCMODE) != O_WRONLY,
	     writes = (fi->flags & O_ACCMODE) != O_RDONLY;
	struct hc_vhandle *h;
	FILE *out;
	int err = 0;

	if (!node || is_dir(node)) {
		fuse_reply_err(req, node ? EISDIR : ESTALE);
		return;
	}
	if (writes && !node->file->write) {
		fuse_reply_err(req, EACCES);
		return;
	}
	h = handle_new(fs->virtuals, node);
	if (!h) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	h->commands = writes;
	h->snapshot = reads && node->file->read;
	if (reads && node->file->read) {
		out = answer_file(h);
		err = out ? node->file->read(fs->options.vfiles_arg, node->instance, out) : -ENOMEM;
		if (out && fclose(out) && !err)
			err = -ENOMEM;
	}
	if (err) {
		handle_put(h);
		fuse_reply_err(req, -err);
		return;
	}
	fi->fh = (uintptr_t)h;
	fi->direct_io = 1;
	fi->noflush = !writes;
	fi->nonseekable = writes;
	if (fuse_reply_open(req, fi))
		handle_put(h);
}

static void interrupted(fuse_req_t req, void *arg)
{
	struct hc_vhandle *h = arg;
	bool mine;

	pthread_mutex_lock(&h->lock);
	mine = h->waiting == req;
	if (mine)
		h->waiting = NULL;
	else
		h->interrupted = true;
	pthread_mutex_unlock(&h->lock);
	if (mine)
		fuse_reply_err(req, EINTR);
}

static int end_line(struct hc_vhandle *h);

/* An answer is a stream; a snapshot can be read anywhere. */
void hc_virtual_read(struct hc_fs *fs, fuse_req_t req, size_t n, off_t offset,
		     struct fuse_file_info *fi)
{
	struct hc_vhandle *h = (struct hc_vhandle *)(uintptr_t)fi->fh;
	int err = 0;

	pthread_mutex_lock(&h->lock);
	if (!h->commands) {
		size_t from = hc_min_u64((uint64_t)offset, h->length);

		n = hc_min_u64(n, h->length - from);
		fuse_reply_buf(req, n ? h->text + from : NULL, n);
		pthread_mutex_unlock(&h->lock);
		return;
	}
	h->interrupted = false;
	pthread_mutex_unlock(&h->lock);
	err = -end_line(h);
	fuse_req_interrupt_func(req, interrupted, h);
	pthread_mutex_lock(&h->lock);
	if (!err && h->interrupted)
		err = EINTR;
	else if (!err && h->waiting)
		err = EBUSY;
	if (!err) {
		h->waiting = req;
		h->waiting_n = n;
		serve_locked(h);
	}
	pthread_mutex_unlock(&h->lock);
	if (err)
		fuse_reply_err(req, err);
}

static void *command_main(void *arg)
{
	struct hc_vhandle *h = arg;
	struct hc_virtual *v = h->virtuals;
	const struct hc_vfile *file = h->vnode->file;
	FILE *answer = answer_file(h);

	pthread_setname_np(pthread_self(), "hc-command");
	if (answer) {
		(void)file->write(v->fs->options.vfiles_arg, h->vnode->instance, &h->caller,
				  h->line, answer, &h->cancel);
		fclose(answer);
	}
	pthread_mutex_lock(&h->lock);
	h->running = false;
	serve_locked(h);
	pthread_mutex_unlock(&h->lock);
	handle_put(h);
	pthread_mutex_lock(&v->lock);
	v->n_running--;
	pthread_cond_broadcast(&v->idle);
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

static int begin(struct hc_vhandle *h, const char *line, size_t n, bool background)
{
	char *copy = strndup(line, n);
	int err = copy ? 0 : -ENOMEM;

	pthread_mutex_lock(&h->lock);
	if (!err && h->running)
		err = -EBUSY;
	if (!err) {
		free(h->line);
		h->line = copy;
		h->running = background;
		h->n_refs += background;
	}
	pthread_mutex_unlock(&h->lock);
	if (err)
		free(copy);
	return err;
}

static int run_background(struct hc_vhandle *h)
{
	struct hc_virtual *v = h->virtuals;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_mutex_lock(&v->lock);
	v->n_running++;
	pthread_mutex_unlock(&v->lock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = -pthread_create(&thread, &attr, command_main, h);
	pthread_attr_destroy(&attr);
	if (!err)
		return 0;
	pthread_mutex_lock(&v->lock);
	v->n_running--;
	pthread_mutex_unlock(&v->lock);
	pthread_mutex_lock(&h->lock);
	h->running = false;
	h->n_refs--;
	pthread_mutex_unlock(&h->lock);
	return err;
}

static int run_line(struct hc_vhandle *h, const char *line, size_t n)
{
	const struct hc_vfile *file = h->vnode->file;
	FILE *answer;
	int err;

	err = begin(h, line, n, file->background);
	if (err)
		return err;
	if (file->background)
		return run_background(h);
	answer = answer_file(h);
	if (!answer)
		return -ENOMEM;
	err = file->write(h->virtuals->fs->options.vfiles_arg, h->vnode->instance, &h->caller,
			  h->line, answer, &h->cancel);
	if (fclose(answer) && !err)
		err = -ENOMEM;
	return err;
}

/* Adds to the line that is being written; ends: it is whole, *line_p is the caller's (NULL when it
 * is empty). -E2BIG for each piece of a line that is too long. */
static int add_part(struct hc_vhandle *h, const char *data, size_t n, bool ends, char **line_p)
{
	char *line = NULL;
	int err = 0;

	pthread_mutex_lock(&h->lock);
	if (!h->part)
		h->part = malloc(HC_VLINE_BYTES);
	if (!h->part)
		err = -ENOMEM;
	else if (h->refused || h->part_n + n > HC_VLINE_BYTES)
		err = -E2BIG;
	if (!err) {
		memcpy(h->part + h->part_n, data, n);
		h->part_n += n;
	}
	if (!err && ends && h->part_n) {
		line = strndup(h->part, h->part_n);
		err = line ? 0 : -ENOMEM;
	}
	if (err || ends)
		h->part_n = 0;
	h->refused = err && !ends;
	pthread_mutex_unlock(&h->lock);
	if (!err)
		*line_p = line;
	return err;
}

/* Runs what is whole of the lines. The first that is refused ends it. */
static int feed(struct hc_vhandle *h, const char *data, size_t n, bool ends)
{
	const char *stop;
	char *line;
	int err = 0;

	do {
		size_t length;

		stop = n ? memchr(data, '\n', n) : NULL;
		length = stop ? (size_t)(stop - data) : n;
		line = NULL;
		err = add_part(h, data, length, stop || ends, &line);
		if (!err && line)
			err = run_line(h, line, strlen(line));
		free(line);
		data += length + 1;
		n -= length + (stop != NULL);
	} while (!err && n);
	return err;
}

/* Whether there is a line behind the first: which of them should hold? */
static bool has_second(const char *data, size_t n)
{
	const char *stop = memchr(data, '\n', n);

	for (; stop && stop < data + n; stop++) {
		if (*stop != '\n')
			return true;
	}
	return false;
}

static int refuse_second(struct hc_vhandle *h)
{
	FILE *answer = answer_file(h);

	if (answer) {
		fprintf(answer, "error %s: one line is wanted; nothing is changed\n",
			h->vnode->file->name);
		fclose(answer);
	}
	return -EINVAL;
}

void hc_virtual_write(struct hc_fs *fs, fuse_req_t req, const char *data, size_t n,
		      struct fuse_file_info *fi)
{
	struct hc_vhandle *h = (struct hc_vhandle *)(uintptr_t)fi->fh;
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	int err;

	pthread_mutex_lock(&h->lock);
	if (!h->running && !h->part_n) {
		/* Answers that nobody has read yet stay: lines may come in several writes. */
		if (h->snapshot || h->cursor == h->length) {
			h->length = 0;
			h->cursor = 0;
		}
		h->snapshot = false;
		h->caller = (struct hc_vcaller){ctx->uid, ctx->gid, ctx->pid};
	}
	pthread_mutex_unlock(&h->lock);
	if (h->vnode->file->single && has_second(data, n))
		err = refuse_second(h);
	else
		err = memchr(data, '\0', n) ? -EINVAL : feed(h, data, n, false);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, n);
}

/* A line without an end is whole when its writer closes the file, or asks for the answer. */
static int end_line(struct hc_vhandle *h)
{
	bool partial;

	pthread_mutex_lock(&h->lock);
	partial = h->part_n;
	pthread_mutex_unlock(&h->lock);
	return partial ? feed(h, "", 0, true) : 0;
}

/* What a killed writer did not finish is no command. */
void hc_virtual_flush(struct hc_fs *fs, fuse_req_t req, struct fuse_file_info *fi)
{
	bool killed = hc_req_is_killed(req);

	fuse_reply_err(req, killed ? 0 : -end_line((struct hc_vhandle *)(uintptr_t)fi->fh));
}

void hc_virtual_release(struct hc_fs *fs, struct fuse_file_info *fi)
{
	struct hc_vhandle *h = (struct hc_vhandle *)(uintptr_t)fi->fh;

	h->cancel = true;
	handle_put(h);
}

void hc_virtual_cancel(struct hc_fs *fs)
{
	struct hc_virtual *v = fs->virtuals;
	uint64_t deadline_ns = hc_clock_now_ns() + 60 * HC_NS_PER_S;

	pthread_mutex_lock(&v->lock);
	for (struct hc_vhandle *h = v->handles; h; h = h->next)
		h->cancel = true;
	while (v->n_running)
		if (hc_cond_wait_until(&v->idle, &v->lock, deadline_ns) == -ETIMEDOUT)
			break;
	if (v->n_running)
		hc_error("fuse", "%u commands do not end", v->n_running);
	pthread_mutex_unlock(&v->lock);
	/* What the kernel did not release. */
	while (v->handles) {
		v->handles->waiting = NULL;
		v->handles->n_refs = 1;
		handle_put(v->handles);
	}
}
