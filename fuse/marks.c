/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: threads whose open() was answered ESTALE and is repeated by the kernel. By thread alone:
 * OPEN does not say by which name it came. The repetition asks the last component's name anew,
 * whatever the kernel knows, and opens what it is told: so a mark takes the first name that then
 * shows something and the node that was told, and only the OPEN of that node is the repeated one. A
 * mark that an open() left behind (it failed on its way) meets another name or another node. One
 * table, the bodies' lock; a thread without a mark costs one load while nobody has any. */
#include "fuse/internal.h"
#include "util/clock.h"

/* A thread's mark is in one of a few places. */
static struct hc_mark *place(struct hc_bodies *bodies, int tid, unsigned i)
{
	return &bodies->marks[((unsigned)tid * 2654435761u / 4096 + i) % HC_MARKS_MAX];
}

static bool is_over(const struct hc_mark *mark, uint64_t now_ns)
{
	return now_ns - mark->set_ns >= (mark->kind == HC_MARK_READ ? HC_MARK_READ_NS : HC_MARK_NS);
}

static struct hc_mark *find_locked(struct hc_bodies *bodies, int tid, uint64_t now_ns)
{
	for (unsigned i = 0; i < HC_MARK_PLACES; i++) {
		struct hc_mark *mark = place(bodies, tid, i);

		if (mark->tid == tid && !is_over(mark, now_ns))
			return mark;
	}
	return NULL;
}

static void clear_locked(struct hc_bodies *bodies, struct hc_mark *mark)
{
	mark->tid = 0;
	atomic_fetch_sub(&bodies->n_marks, 1);
}

bool hc_mark_set(struct hc_fs *fs, int tid, enum hc_mark_kind kind)
{
	struct hc_bodies *bodies = &fs->bodies;
	struct hc_mark *mark = NULL;
	uint64_t now_ns;

	if (!tid)
		return false;
	pthread_mutex_lock(&bodies->lock);
	now_ns = hc_clock_now_ns(); /* under the lock: no mark is younger */
	for (unsigned i = 0; i < HC_MARK_PLACES; i++) {
		struct hc_mark *m = place(bodies, tid, i);

		if (m->tid && (m->tid == tid || is_over(m, now_ns)))
			clear_locked(bodies, m);
		if (!m->tid && !mark)
			mark = m;
	}
	if (mark) {
		*mark = (struct hc_mark){.tid = tid, .kind = kind, .set_ns = now_ns};
		atomic_fetch_add(&bodies->n_marks, 1);
	}
	pthread_mutex_unlock(&bodies->lock);
	return mark != NULL;
}

enum hc_mark_kind hc_mark_get(struct hc_fs *fs, int tid, uint32_t dir, const char *name)
{
	enum hc_mark_kind kind = HC_MARK_NONE;
	struct hc_mark *mark;

	if (!tid || !atomic_load(&fs->bodies.n_marks))
		return HC_MARK_NONE;
	pthread_mutex_lock(&fs->bodies.lock);
	mark = find_locked(&fs->bodies, tid, hc_clock_now_ns());
	if (mark && mark->kind != HC_MARK_READ &&
	    (!mark->ino || (mark->dir == dir && strcmp(mark->name, name) == 0)))
		kind = mark->kind;
	pthread_mutex_unlock(&fs->bodies.lock);
	return kind;
}

bool hc_mark_show(struct hc_fs *fs, int tid, uint32_t dir, const char *name, uint64_t ino)
{
	struct hc_mark *mark;
	bool is = false;

	if (!tid || !atomic_load(&fs->bodies.n_marks))
		return false;
	pthread_mutex_lock(&fs->bodies.lock);
	mark = find_locked(&fs->bodies, tid, hc_clock_now_ns());
	if (mark) {
		if (mark->ino && (mark->dir != dir || strcmp(mark->name, name) != 0)) {
			clear_locked(&fs->bodies, mark);
		} else {
			mark->ino = ino;
			mark->dir = dir;
			snprintf(mark->name, sizeof(mark->name), "%s", name);
			is = true;
		}
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	return is;
}

bool hc_mark_is_for(struct hc_fs *fs, int tid, uint64_t ino)
{
	struct hc_mark *mark;
	bool is;

	if (!tid || !atomic_load(&fs->bodies.n_marks))
		return false;
	pthread_mutex_lock(&fs->bodies.lock);
	mark = find_locked(&fs->bodies, tid, hc_clock_now_ns());
	is = mark && mark->ino == ino;
	pthread_mutex_unlock(&fs->bodies.lock);
	return is;
}

bool hc_mark_name(struct hc_fs *fs, int tid, uint64_t ino, uint32_t *dir_p,
		  char name[HC_NAME_BYTES])
{
	struct hc_mark *mark;
	bool is;

	pthread_mutex_lock(&fs->bodies.lock);
	mark = find_locked(&fs->bodies, tid, hc_clock_now_ns());
	is = mark && mark->ino == ino;
	if (is) {
		*dir_p = mark->dir;
		memcpy(name, mark->name, HC_NAME_BYTES);
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	return is;
}

void hc_mark_clear(struct hc_fs *fs, int tid)
{
	struct hc_bodies *bodies = &fs->bodies;

	if (!tid || !atomic_load(&bodies->n_marks))
		return;
	pthread_mutex_lock(&bodies->lock);
	for (unsigned i = 0; i < HC_MARK_PLACES; i++)
		if (place(bodies, tid, i)->tid == tid)
			clear_locked(bodies, place(bodies, tid, i));
	pthread_mutex_unlock(&bodies->lock);
}

void hc_marks_expire(struct hc_fs *fs)
{
	struct hc_bodies *bodies = &fs->bodies;
	uint64_t now_ns;

	if (!atomic_load(&bodies->n_marks))
		return;
	pthread_mutex_lock(&bodies->lock);
	now_ns = hc_clock_now_ns();
	for (unsigned i = 0; i < HC_MARKS_MAX; i++)
		if (bodies->marks[i].tid && is_over(&bodies->marks[i], now_ns))
			clear_locked(bodies, &bodies->marks[i]);
	pthread_mutex_unlock(&bodies->lock);
}
