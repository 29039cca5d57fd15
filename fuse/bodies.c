/* SPDX-License-Identifier: Apache-2.0 */
/* Names and lives of bodies; see bodies.h. Bytes: body-io.c. Becoming a page or file: settle.c.
 * Marks: marks.c. What a directory has: bodies-list.c. */
#include "fuse/bodies.h"

#include <signal.h>
#include <xxhash.h>

#include "fuse/internal.h"
#include "util/clock.h"
#include "util/log.h"

#define HC_ORPHAN_NS (5 * HC_NS_PER_S)

uint64_t hc_bname_hash(uint32_t dir, const char *name)
{
	uint64_t hash = XXH3_64bits_withSeed(name, strlen(name), dir);

	return hash ? hash : 1;
}

int hc_bodies_init(struct hc_bodies *bodies)
{
	if (pthread_mutex_init(&bodies->lock, NULL))
		return -ENOMEM;
	hc_cond_init(&bodies->changed);
	return 0;
}

void hc_bodies_fini(struct hc_bodies *bodies)
{
	pthread_mutex_destroy(&bodies->lock);
	pthread_cond_destroy(&bodies->changed);
}

struct hc_body *hc_body_get(struct hc_body *body)
{
	atomic_fetch_add_explicit(&body->n_refs, 1, memory_order_relaxed);
	return body;
}

void hc_body_put(struct hc_body *body)
{
	if (!body || atomic_fetch_sub_explicit(&body->n_refs, 1, memory_order_acq_rel) != 1)
		return;
	if (body->fill)
		hc_fill_discard(body->fill);
	if (body->has_page)
		hc_node_release(body->fs->node, &body->page, 1);
	if (body->has_hold)
		hc_node_release(body->fs->node, &body->hold, 1);
	if (body->fd >= 0)
		close(body->fd);
	if (atomic_load(&body->of))
		hc_openfile_release(body->fs, atomic_load(&body->of), false);
	/* Not before: who found the body by its name pins the node by it. */
	hc_tree_put(body->fs->tree, body->fnode);
	hc_attrset_fini(&body->attrs);
	pthread_rwlock_destroy(&body->rw);
	free(body);
}

/* --- names; all _locked: hc_bodies.lock held --- */

static struct hc_bname *name_find_locked(struct hc_bodies *bodies, uint32_t dir, const char *name,
					 uint64_t hash)
{
	struct hc_bname *n = bodies->buckets[hash % HC_BODIES_BUCKETS];

	while (n && (n->hash != hash || n->dir != dir || strcmp(n->text, name) != 0))
		n = n->next;
	return n;
}

static struct hc_bname *name_make_locked(struct hc_bodies *bodies, uint32_t dir, const char *name,
					 bool temporary)
{
	uint64_t hash = hc_bname_hash(dir, name);
	struct hc_bname *n = name_find_locked(bodies, dir, name, hash);
	size_t length = strlen(name) + 1;

	if (n)
		return n;
	n = hc_zalloc(sizeof(*n) + length);
	if (!n)
		return NULL;
	n->hash = hash;
	n->dir = dir;
	n->temporary = temporary;
	memcpy(n->text, name, length);
	n->next = bodies->buckets[hash % HC_BODIES_BUCKETS];
	bodies->buckets[hash % HC_BODIES_BUCKETS] = n;
	atomic_fetch_add(&bodies->filter[hash % HC_BODIES_FILTER], 1);
	return n;
}

static void name_reap_locked(struct hc_bodies *bodies, struct hc_bname *n)
{
	struct hc_bname **place = &bodies->buckets[n->hash % HC_BODIES_BUCKETS];

	if (n->made || n->shown || n->n_settling || n->n_renaming || n->n_waiting)
		return;
	while (*place != n)
		place = &(*place)->next;
	*place = n->next;
	atomic_fetch_sub(&bodies->filter[n->hash % HC_BODIES_FILTER], 1);
	free(n);
}

static void attach_locked(struct hc_bodies *bodies, struct hc_bname *n, struct hc_body *body,
			  enum hc_bstate state)
{
	hc_assert(!body->name);
	body->name = n;
	body->state = state;
	if (state == HC_B_SHOWN || state == HC_B_SHARED) {
		hc_assert(!n->shown);
		n->shown = body;
		bodies->n_shown++;
		atomic_fetch_add(&bodies->n_moves, 1);
		return;
	}
	body->next = n->made;
	n->made = body;
	bodies->n_temporaries += n->temporary;
}

static void detach_locked(struct hc_bodies *bodies, struct hc_body *body)
{
	struct hc_bname *n = body->name;

	if (!n)
		return;
	if (n->shown == body) {
		n->shown = NULL;
		bodies->n_shown--;
	} else {
		struct hc_body **place = &n->made;

		while (*place != body)
			place = &(*place)->next;
		*place = body->next;
		bodies->n_temporaries -= n->temporary;
	}
	body->name = NULL;
	body->next = NULL;
	body->pending_tid = 0;
	if (body->state != HC_B_DONE)
		body->state = HC_B_UNNAMED;
	name_reap_locked(bodies, n);
	pthread_cond_broadcast(&bodies->changed);
}

/* True: the caller ends it after unlocking (body_finish). */
static bool ends_locked(struct hc_bodies *bodies, struct hc_body *body)
{
	if (body->ended || body->name || body->n_opens || body->settling || body->pending_tid)
		return false;
	body->ended = true;
	bodies->n_bodies--;
	return true;
}

/* The number forgets the body, and the body's own reference goes. */
static void body_finish(struct hc_fs *fs, struct hc_body *body)
{
	struct hc_page_info was = {0};

	if (body->state != HC_B_DONE) {
		was.size_bytes = hc_body_size(body);
		pthread_rwlock_rdlock(&body->rw);
		was.owner = body->owner;
		was.mtime_ns = body->mtime_ns;
		pthread_rwlock_unlock(&body->rw);
		hc_tree_gone(fs->tree, body->fnode, &was);
	}
	hc_body_put(body);
}

/* Waits until nobody settles a body under this name or renames one to it; bounded, since these are.
 */
static struct hc_bname *wait_settled_locked(struct hc_bodies *bodies, uint32_t dir,
					    const char *name, uint64_t hash)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_SETTLE_NS;
	struct hc_bname *n;

	while ((n = name_find_locked(bodies, dir, name, hash)) &&
	       (n->n_settling || n->n_renaming)) {
		if (hc_cond_wait_until(&bodies->changed, &bodies->lock, deadline_ns) == -ETIMEDOUT)
			break;
	}
	return n;
}

static void wait_unsettled_locked(struct hc_bodies *bodies, struct hc_body *body, uint64_t wait_ns)
{
	uint64_t deadline_ns = hc_clock_now_ns() + wait_ns;

	while (body->settling)
		if (hc_cond_wait_until(&bodies->changed, &bodies->lock, deadline_ns) == -ETIMEDOUT)
			break;
}

static bool same_process(const struct hc_opener *a, const struct hc_opener *b)
{
	return a->tgid && a->tgid == b->tgid && a->start_ticks == b->start_ticks;
}

/* Whose body does this thread mean? Never one that another thread has yet to open: it is for that
 * one alone; nor one that is a page or a file by now, which has another name already. */
static struct hc_body *pick_locked(struct hc_bname *n, const struct hc_opener *opener)
{
	struct hc_body *process = NULL, *closed = NULL, *newest = NULL;

	for (struct hc_body *body = n->made; body; body = body->next) {
		if (body->state == HC_B_DONE)
			continue;
		if (opener->tid && body->maker.tid == opener->tid)
			return body;
		if (body->pending_tid)
			continue;
		if (!process && same_process(&body->maker, opener))
			process = body;
		if (!closed && !body->n_writers)
			closed = body;
		if (!newest)
			newest = body;
	}
	return process ? process : closed ? closed : newest;
}

static struct hc_body *shows_locked(struct hc_bname *n, const struct hc_opener *opener)
{
	for (struct hc_body *body = n->made; body; body = body->next)
		if (opener->tid && body->pending_tid == opener->tid)
			return body;
	if (n->temporary && n->made)
		return pick_locked(n, opener);
	/* What it became is there already, and is all there is to copy. */
	return n->shown && n->shown->state != HC_B_DONE ? n->shown : NULL;
}

/* --- births --- */

static struct hc_body *body_alloc(struct hc_fs *fs, const struct hc_body_make *make)
{
	struct hc_body *body = hc_zalloc(sizeof(*body));

	if (!body)
		return NULL;
	body->fs = fs;
	atomic_init(&body->n_refs, 1);
	body->maker = make->maker;
	body->created = make->created;
	body->pending_tid = make->pending_tid;
	body->owner = make->owner;
	body->space = make->space;
	body->source_bytes = make->source_bytes;
	body->source_key = make->source_key;
	body->mtime_ns = hc_clock_wall_ns();
	body->idle_ns = hc_clock_now_ns();
	body->fd = -1;
	pthread_rwlock_init(&body->rw, NULL);
	return body;
}

static int make_fill(struct hc_fs *fs, struct hc_body *body, uint64_t size_hint)
{
	struct hc_space_info space;
	struct hc_domain domain;
	int err;

	err = hc_space_get(fs->registry, body->space, &space);
	if (err)
		return err;
	domain = (struct hc_domain){space.owner.uid, space.owner.gid, space.owner.mode};
	if (size_hint > fs->options.max_page_bytes)
		size_hint = 0;
	if (!hc_pass_writes(fs))
		return hc_fill_create(fs->node, body->space, &domain, size_hint, &body->fill);
	/* Where its bytes go is decided by how it is opened. */
	err = hc_fill_create(fs->node, body->space, &domain, 0, &body->fill);
	if (!err)
		hc_fill_expect(body->fill, size_hint);
	return err;
}

int hc_body_create(struct hc_fs *fs, const struct hc_body_make *make, struct hc_body **body_p)
{
	struct hc_body *body;
	struct hc_bname *n;
	int err = -ENOMEM;

	/* Engines take it for a full disk: they go on without storing. */
	if (hc_node_draining(fs->node))
		return -ENOSPC;
	body = body_alloc(fs, make);

	if (!body)
		return -ENOMEM;
	err = make_fill(fs, body, make->size_hint);
	if (err)
		goto err_body;
	err = -ENOMEM;
	body->ino = hc_registry_next_node_id(fs->registry);
	body->fnode = hc_tree_body(fs->tree, body->ino, body);
	if (!body->fnode)
		goto err_body;
	pthread_mutex_lock(&fs->bodies.lock);
	n = name_make_locked(&fs->bodies, make->dir, make->name, make->temporary);
	if (n) {
		attach_locked(&fs->bodies, n, body,
			      make->temporary ? HC_B_TEMPORARY : HC_B_PRIVATE);
		fs->bodies.n_bodies++;
		hc_body_get(body);
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	if (!n)
		goto err_fnode;
	*body_p = body;
	return 0;
err_fnode:
	hc_tree_gone(fs->tree, body->fnode, NULL);
err_body:
	hc_body_put(body);
	return err;
}

int hc_body_create_shared(struct hc_fs *fs, const struct hc_body_make *make,
			  const struct hc_body_share *share, struct hc_body **body_p)
{
	struct hc_body *body = body_alloc(fs, make);
	struct hc_bname *n = NULL;
	int err;

	if (!body)
		return -ENOMEM;
	err = make_fill(fs, body, make->size_hint);
	if (!err)
		err = hc_body_copy_file(body, share->fd);
	if (!err)
		err = hc_attrs_get(hc_registry_attrs(fs->registry), HC_ATTRS_FILE, share->file,
				   &body->attrs);
	if (err) {
		hc_body_put(body);
		return err;
	}
	body->ino = hc_fnode_ino(share->fnode);
	body->fnode = hc_tree_pin(fs->tree, share->fnode);
	body->n_opens = share->n_opens;
	body->n_writers = share->n_writers;
	body->state = HC_B_UNNAMED;
	atomic_store(&body->wrote, true);
	pthread_mutex_lock(&fs->bodies.lock);
	if (make->name)
		n = name_make_locked(&fs->bodies, make->dir, make->name, make->temporary);
	if (n && !n->shown)
		attach_locked(&fs->bodies, n, body, HC_B_SHARED);
	fs->bodies.n_bodies++;
	hc_body_get(body);
	pthread_mutex_unlock(&fs->bodies.lock);
	hc_tree_become_body(fs->tree, share->fnode, body);
	*body_p = body;
	return 0;
}

/* --- look-ups --- */

bool hc_bodies_busy(struct hc_fs *fs, uint32_t dir, const char *name)
{
	return atomic_load(&fs->bodies.filter[hc_bname_hash(dir, name) % HC_BODIES_FILTER]) != 0;
}

struct hc_body *hc_bodies_show(struct hc_fs *fs, uint32_t dir, const char *name, int tid,
			       bool *busy_p)
{
	struct hc_opener opener = {0};
	struct hc_body *body = NULL;
	struct hc_bname *n;

	*busy_p = false;
	if (!hc_bodies_busy(fs, dir, name))
		return NULL;
	hc_opener_of(fs, tid, &opener);
	pthread_mutex_lock(&fs->bodies.lock);
	n = name_find_locked(&fs->bodies, dir, name, hc_bname_hash(dir, name));
	if (n) {
		*busy_p = true;
		body = shows_locked(n, &opener);
		if (body)
			hc_body_get(body);
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	return body;
}

/* A RELEASE is on its way, or being worked on. */
static bool coming_locked(struct hc_bname *n)
{
	if (n->n_settling && !n->shown)
		return true;
	for (struct hc_body *body = n->made; body; body = body->next)
		if (body->state == HC_B_PRIVATE && body->flushed && !body->killed &&
		    (body->created || atomic_load(&body->wrote)))
			return true;
	return false;
}

void hc_bodies_park(struct hc_fs *fs, uint32_t dir, const char *name)
{
	uint64_t hash = hc_bname_hash(dir, name), begun_ns, deadline_ns;
	struct hc_bodies *bodies = &fs->bodies;
	struct hc_bname *n;
	bool parked = false;

	if (!atomic_load(&bodies->filter[hash % HC_BODIES_FILTER]))
		return;
	begun_ns = hc_clock_now_ns();
	pthread_mutex_lock(&bodies->lock);
	/* Half of the workers at most: the RELEASE needs one, too. */
	if (atomic_load(&bodies->n_parked) < fs->options.n_threads / 2) {
		atomic_fetch_add(&bodies->n_parked, 1);
		while ((n = name_find_locked(bodies, dir, name, hash)) && !n->temporary &&
		       coming_locked(n)) {
			parked = true;
			/* A RELEASE that is being worked on ends: its disk may take a while. One
			 * that has not come may never come (a duplicate of the descriptor). */
			deadline_ns =
				begun_ns + (n->n_settling ? hc_max_u64(fs->budget_ns, HC_PARK_NS)
							  : HC_PARK_NS);
			if (hc_clock_now_ns() < deadline_ns) {
				hc_ignore(hc_cond_wait_until(&bodies->changed, &bodies->lock,
							     deadline_ns));
				continue;
			}
			for (struct hc_body *b = n ? n->made : NULL; b; b = b->next)
				b->flushed = false;
			hc_fs_count(fs, parked_timeouts);
			break;
		}
		atomic_fetch_sub(&bodies->n_parked, 1);
	}
	pthread_mutex_unlock(&bodies->lock);
	if (parked)
		hc_fs_count(fs, parked);
}

static bool coming_dir_locked(struct hc_bodies *bodies, uint32_t dir)
{
	for (uint32_t i = 0; bodies->n_bodies && i < HC_BODIES_BUCKETS; i++)
		for (struct hc_bname *n = bodies->buckets[i]; n; n = n->next)
			if (n->dir == dir && !n->temporary && coming_locked(n))
				return true;
	return false;
}

void hc_bodies_park_dir(struct hc_fs *fs, uint32_t dir)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_PARK_NS;
	struct hc_bodies *bodies = &fs->bodies;

	pthread_mutex_lock(&bodies->lock);
	if (atomic_load(&bodies->n_parked) < fs->options.n_threads / 2) {
		atomic_fetch_add(&bodies->n_parked, 1);
		while (coming_dir_locked(bodies, dir) && hc_clock_now_ns() < deadline_ns)
			hc_ignore(hc_cond_wait_until(&bodies->changed, &bodies->lock, deadline_ns));
		atomic_fetch_sub(&bodies->n_parked, 1);
	}
	pthread_mutex_unlock(&bodies->lock);
}

bool hc_body_is_own(struct hc_body *body, const struct hc_opener *opener, bool trunc)
{
	struct hc_bodies *bodies = &body->fs->bodies;
	bool own;

	pthread_mutex_lock(&bodies->lock);
	own = body->state == HC_B_SHARED;
	if (!own && opener->tid && !body->settling &&
	    (body->state == HC_B_PRIVATE || body->state == HC_B_TEMPORARY))
		own = body->pending_tid == opener->tid || body->maker.tid == opener->tid ||
		      (!trunc && !body->n_writers && same_process(&body->maker, opener));
	pthread_mutex_unlock(&bodies->lock);
	return own;
}

bool hc_body_is_pending(struct hc_body *body, const struct hc_opener *opener)
{
	bool pending;

	pthread_mutex_lock(&body->fs->bodies.lock);
	pending = opener->tid && body->pending_tid == opener->tid && !body->n_opens;
	pthread_mutex_unlock(&body->fs->bodies.lock);
	return pending;
}

/* --- handles --- */

int hc_body_open(struct hc_fs *fs, struct hc_body *body, bool writer, bool trunc)
{
	int err = 0;

	pthread_mutex_lock(&fs->bodies.lock);
	/* On its way to be a page or a file: no bytes of it can be written any more, and whoever
	 * sees it by the page's name opens the page. */
	if (body->state == HC_B_PRIVATE || (writer && body->state == HC_B_SHARED))
		wait_unsettled_locked(&fs->bodies, body, fs->budget_ns);
	if (body->ended || body->state == HC_B_DONE || (writer && body->settling)) {
		err = -ESTALE;
	} else {
		body->n_opens++;
		body->n_writers += writer;
		body->pending_tid = 0;
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	if (!err && trunc) {
		err = hc_body_truncate(body, 0);
		if (err)
			hc_body_release(fs, body, writer);
	}
	return err;
}

void hc_body_flush(struct hc_fs *fs, struct hc_body *body, bool killed)
{
	pthread_mutex_lock(&fs->bodies.lock);
	body->flushed = true;
	body->killed = killed;
	pthread_mutex_unlock(&fs->bodies.lock);
}

/* What the last RELEASE of a writer does. True: settle it (it is marked so). */
static bool last_writer_locked(struct hc_fs *fs, struct hc_body *body)
{
	bool empty_file = body->created && !atomic_load(&body->wrote);

	if (!body->name || body->settling || body->state == HC_B_TEMPORARY)
		return false;
	if (body->state == HC_B_PRIVATE && body->killed) {
		hc_fs_count(fs, killed_writers);
		detach_locked(&fs->bodies, body);
		return false;
	}
	if (body->state == HC_B_PRIVATE && !atomic_load(&body->wrote) && !empty_file) {
		detach_locked(&fs->bodies, body);
		return false;
	}
	body->settling = true;
	return true;
}

static bool shows_other(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name)
{
	struct hc_bname *n;
	bool shows;

	pthread_mutex_lock(&fs->bodies.lock);
	n = name_find_locked(&fs->bodies, dir, name, hc_bname_hash(dir, name));
	shows = n && n->shown && n->shown != body;
	pthread_mutex_unlock(&fs->bodies.lock);
	return shows;
}

/* A body that was created, never written, and meanwhile something else has the name: nothing to
 * publish. */
static bool is_idle_create(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name)
{
	struct hc_file_info file;
	struct hc_page_info page;
	struct hc_name id;

	if (atomic_load(&body->wrote))
		return false;
	if (shows_other(fs, body, dir, name))
		return true;
	if (hc_file_find(fs->registry, dir, name, &file) == 0)
		return true;
	return hc_name_resolve(fs->registry, dir, name, false, &id) == 0 && id.known &&
	       hc_node_stat(fs->node, &id.key, false, &page) == 0;
}

/* Drops a SHARED body of a name, with renamed also a SHOWN one, but not `body`, which, with done,
 * is a page or a file from this moment on: nobody sees the old one behind its successor. */
static void drop_shown(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		       bool renamed, bool done)
{
	struct hc_body *old = NULL;
	struct hc_bname *n;
	bool end = false;

	pthread_mutex_lock(&fs->bodies.lock);
	if (done)
		body->state = HC_B_DONE;
	n = name_find_locked(&fs->bodies, dir, name, hc_bname_hash(dir, name));
	if (n && n->shown && n->shown != body && (renamed || n->shown->state == HC_B_SHARED)) {
		old = n->shown;
		detach_locked(&fs->bodies, old);
		end = ends_locked(&fs->bodies, old);
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	if (end)
		body_finish(fs, old);
}

void hc_body_done(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		  bool renamed)
{
	drop_shown(fs, body, dir, name, renamed, true);
}

/* Settles under the name it has; a new RELEASE of the same name waits its turn, so the last one
 * wins whole. */
static void settle_here(struct hc_fs *fs, struct hc_body *body)
{
	struct hc_bodies *bodies = &fs->bodies;
	enum hc_settled settled;
	char name[HC_NAME_BYTES];
	struct hc_bname *n;
	uint32_t dir = 0;
	int err = 0;

	pthread_mutex_lock(&bodies->lock);
	n = body->name;
	if (n) {
		dir = n->dir;
		snprintf(name, sizeof(name), "%s", n->text);
		wait_settled_locked(bodies, dir, name, n->hash);
	}
	n = body->name; /* it may have been unlinked or replaced meanwhile */
	if (n)
		n->n_settling++;
	else
		body->settling = false;
	pthread_mutex_unlock(&bodies->lock);
	if (!n)
		return;
	/* A body that is SHOWN was renamed to the name meanwhile. */
	err = is_idle_create(fs, body, dir, name)
		      ? -EEXIST
		      : hc_body_settle(fs, body, dir, name, false, &settled);
	/* What the name was before must not come back when the scratch file goes. */
	if (!err && settled == HC_SETTLED_SCRATCH) {
		hc_name_clear(fs, dir, name, body->ino, 0);
		drop_shown(fs, body, dir, name, true, false);
	}
	pthread_mutex_lock(&bodies->lock);
	n->n_settling--;
	body->settling = false;
	if (err || settled != HC_SETTLED_SCRATCH) {
		detach_locked(bodies, body);
	} else if (body->state == HC_B_PRIVATE || body->state == HC_B_SHOWN) {
		n->n_waiting++;
		detach_locked(bodies, body);
		attach_locked(bodies, n, body, HC_B_SHARED);
		n->n_waiting--;
	}
	if (name_find_locked(bodies, dir, name, hc_bname_hash(dir, name)) == n)
		name_reap_locked(bodies, n);
	pthread_cond_broadcast(&bodies->changed);
	pthread_mutex_unlock(&bodies->lock);
	if (err && err != -EEXIST)
		hc_fs_count(fs, publish_failed);
	else if (!err)
		hc_fs_count(fs, published_release);
}

void hc_body_release(struct hc_fs *fs, struct hc_body *body, bool writer)
{
	bool settle = false, end;

	pthread_mutex_lock(&fs->bodies.lock);
	hc_assert(body->n_opens > 0 && body->n_writers >= writer);
	body->n_writers -= writer;
	if (writer && !body->n_writers)
		settle = last_writer_locked(fs, body);
	if (!settle) {
		body->n_opens--;
		body->idle_ns = hc_clock_now_ns();
	}
	end = ends_locked(&fs->bodies, body);
	pthread_mutex_unlock(&fs->bodies.lock);
	if (settle) {
		settle_here(fs, body);
		pthread_mutex_lock(&fs->bodies.lock);
		body->n_opens--;
		body->idle_ns = hc_clock_now_ns();
		end = ends_locked(&fs->bodies, body);
		pthread_mutex_unlock(&fs->bodies.lock);
	}
	if (end)
		body_finish(fs, body);
}

/* --- names that go or move --- */

bool hc_bodies_unlink(struct hc_fs *fs, uint32_t dir, const char *name, int tid)
{
	uint64_t hash = hc_bname_hash(dir, name);
	struct hc_opener opener = {0};
	struct hc_body *body = NULL;
	struct hc_bname *n;
	bool end = false;

	if (!hc_bodies_busy(fs, dir, name))
		return false;
	hc_opener_of(fs, tid, &opener);
	pthread_mutex_lock(&fs->bodies.lock);
	n = wait_settled_locked(&fs->bodies, dir, name, hash);
	if (n)
		body = shows_locked(n, &opener);
	if (body) {
		body->pending_tid = 0;
		detach_locked(&fs->bodies, body);
		end = ends_locked(&fs->bodies, body);
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	if (end)
		body_finish(fs, body);
	return body != NULL;
}

void hc_body_drop(struct hc_fs *fs, struct hc_body *body)
{
	bool end;

	pthread_mutex_lock(&fs->bodies.lock);
	body->pending_tid = 0;
	detach_locked(&fs->bodies, body);
	end = ends_locked(&fs->bodies, body);
	pthread_mutex_unlock(&fs->bodies.lock);
	if (end)
		body_finish(fs, body);
}

/* Puts a body, in whatever state, under another name. What was SHOWN there goes. */
static int move_to(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		   bool temporary, enum hc_bstate state, const struct hc_opener *opener)
{
	struct hc_body *old = NULL;
	struct hc_bname *n;
	bool end = false;

	pthread_mutex_lock(&fs->bodies.lock);
	n = name_make_locked(&fs->bodies, dir, name, temporary);
	if (n) {
		n->n_waiting++; /* keeps it while both are detached */
		/* A temporary renamed over its own kind replaces the one that it meets. */
		old = temporary ? shows_locked(n, opener) : n->shown;
		if (old == body)
			old = NULL;
		if (old) {
			old->pending_tid = 0;
			detach_locked(&fs->bodies, old);
			end = ends_locked(&fs->bodies, old);
		}
		detach_locked(&fs->bodies, body);
		attach_locked(&fs->bodies, n, body, state);
		n->n_waiting--;
		pthread_cond_broadcast(&fs->bodies.changed);
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	if (end)
		body_finish(fs, old);
	return n ? 0 : -ENOMEM;
}

/* The target shows what it is to show. */
static void rename_over_locked(struct hc_bodies *bodies, struct hc_bname *to)
{
	to->n_renaming--;
	name_reap_locked(bodies, to);
	pthread_cond_broadcast(&bodies->changed);
}

/* Published at once: nobody writes it any more. */
static int rename_settle(struct hc_fs *fs, struct hc_body *body, struct hc_bname *to,
			 const struct hc_opener *opener)
{
	const char *name = to->text;
	uint32_t dir = to->dir;
	enum hc_settled settled = HC_SETTLED_PAGE;
	bool end = false;
	int err;

	err = hc_body_settle(fs, body, dir, name, true, &settled);
	if (!err && settled == HC_SETTLED_SCRATCH) {
		err = move_to(fs, body, dir, name, false, HC_B_SHARED, opener);
		if (!err)
			hc_name_clear(fs, dir, name, body->ino, 0);
	}
	pthread_mutex_lock(&fs->bodies.lock);
	body->settling = false;
	if (!err && settled != HC_SETTLED_SCRATCH)
		detach_locked(&fs->bodies, body);
	rename_over_locked(&fs->bodies, to);
	end = ends_locked(&fs->bodies, body);
	pthread_mutex_unlock(&fs->bodies.lock);
	if (end)
		body_finish(fs, body);
	hc_fs_add(fs, publish_failed, err != 0);
	hc_fs_add(fs, published_rename, err == 0);
	return err;
}

/* Somebody writes it still, and may end while what the name showed is cleared: a page or file that
 * came of that would be cleared, too. So it counts as settling meanwhile, and is settled here. An
 * ordinary file has one body for all writers. */
static int rename_shown(struct hc_fs *fs, struct hc_body *body, struct hc_bname *to,
			enum hc_bstate state, const struct hc_opener *opener)
{
	bool settle, end;
	int err;

	err = move_to(fs, body, to->dir, to->text, false, state, opener);
	if (!err) {
		hc_fs_count(fs, unsealed);
		hc_name_clear(fs, to->dir, to->text, body->ino, 0);
	}
	pthread_mutex_lock(&fs->bodies.lock);
	rename_over_locked(&fs->bodies, to);
	settle = !err && !body->n_writers && body->name;
	body->settling = settle;
	body->n_opens += settle;
	pthread_mutex_unlock(&fs->bodies.lock);
	if (settle)
		settle_here(fs, body);
	pthread_mutex_lock(&fs->bodies.lock);
	body->n_opens -= settle;
	pthread_cond_broadcast(&fs->bodies.changed);
	end = ends_locked(&fs->bodies, body);
	pthread_mutex_unlock(&fs->bodies.lock);
	if (end)
		body_finish(fs, body);
	return err;
}

int hc_body_rename(struct hc_fs *fs, struct hc_body *body, uint32_t dir, const char *name,
		   const struct hc_opener *opener)
{
	bool settle = false, gone = false, temporary;
	struct hc_bname *to = NULL;
	struct hc_name id;
	int err;

	err = hc_name_resolve(fs->registry, dir, name, false, &id);
	if (err)
		return err;
	temporary = id.kind == HC_NAME_TEMPORARY;
	pthread_mutex_lock(&fs->bodies.lock);
	wait_unsettled_locked(&fs->bodies, body, HC_SETTLE_NS);
	wait_settled_locked(&fs->bodies, dir, name, hc_bname_hash(dir, name));
	gone = !body->name || body->settling;
	settle = !gone && !temporary && !body->n_writers;
	if (!gone && !temporary) {
		to = name_make_locked(&fs->bodies, dir, name, false);
		err = to ? 0 : -ENOMEM;
	}
	if (to)
		to->n_renaming++;
	if (!gone && !err) {
		body->settling = !temporary;
		body->pending_tid = 0;
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	if (gone || err)
		return gone ? -ENOENT : err;
	if (temporary)
		return move_to(fs, body, dir, name, true, HC_B_TEMPORARY, opener);
	if (settle)
		return rename_settle(fs, body, to, opener);
	return rename_shown(fs, body, to, id.kind == HC_NAME_ORDINARY ? HC_B_SHARED : HC_B_SHOWN,
			    opener);
}

/* --- those that wait too long, and the end --- */

/* Its process is gone, for a moment already: nobody is left to rename it. A shell whose commands
 * make and move it one after the other has that moment. */
static bool is_orphan(const struct hc_body *body, uint64_t age_ns)
{
	return body->state == HC_B_TEMPORARY && age_ns > HC_ORPHAN_NS && body->maker.tgid &&
	       kill(body->maker.tgid, 0) && errno == ESRCH;
}

/* Locked. What has waited too long: a temporary nobody holds (one whose writer was killed: a
 * sixtieth of the time; max_age_ns 0: an orphan), or a body made for an OPEN that did not come. */
static bool is_overdue(const struct hc_body *body, uint64_t now_ns, uint64_t max_age_ns)
{
	uint64_t age_ns = now_ns > body->idle_ns ? now_ns - body->idle_ns : 0;

	if (body->n_opens || body->settling)
		return false;
	if (body->pending_tid || body->state == HC_B_PRIVATE)
		return age_ns > HC_MARK_NS;
	if (!max_age_ns)
		return is_orphan(body, age_ns);
	return body->state == HC_B_TEMPORARY &&
	       age_ns > (body->killed ? max_age_ns / 60 : max_age_ns);
}

static struct hc_body *overdue_locked(struct hc_bodies *bodies, uint64_t now_ns,
				      uint64_t max_age_ns)
{
	for (uint32_t i = 0; bodies->n_bodies && i < HC_BODIES_BUCKETS; i++)
		for (struct hc_bname *n = bodies->buckets[i]; n; n = n->next)
			for (struct hc_body *body = n->made; body; body = body->next)
				if (is_overdue(body, now_ns, max_age_ns))
					return body;
	return NULL;
}

uint64_t hc_bodies_reap(struct hc_fs *fs, uint64_t max_age_ns)
{
	struct hc_bodies *bodies = &fs->bodies;
	uint64_t now_ns = hc_clock_now_ns(), n_reaped = 0;

	for (;;) {
		struct hc_body *body;
		bool end = false, temporary = false;

		pthread_mutex_lock(&bodies->lock);
		body = overdue_locked(bodies, now_ns, max_age_ns);
		if (body) {
			temporary = body->state == HC_B_TEMPORARY && !body->pending_tid;
			body->pending_tid = 0;
			detach_locked(bodies, body);
			end = ends_locked(bodies, body);
		}
		pthread_mutex_unlock(&bodies->lock);
		if (!body)
			return n_reaped;
		n_reaped += temporary;
		if (temporary)
			hc_fs_count(fs, temporaries_reaped);
		if (end)
			body_finish(fs, body);
	}
}

static struct hc_body *any_locked(struct hc_bodies *bodies)
{
	for (uint32_t i = 0; i < HC_BODIES_BUCKETS; i++)
		for (struct hc_bname *n = bodies->buckets[i]; n; n = n->next)
			if (n->shown || n->made)
				return n->shown ? n->shown : n->made;
	return NULL;
}

void hc_bodies_end(struct hc_fs *fs)
{
	struct hc_bodies *bodies = &fs->bodies;

	for (;;) {
		struct hc_body *body;
		bool end, settle = false;

		pthread_mutex_lock(&bodies->lock);
		body = any_locked(bodies);
		if (body) {
			body->n_opens++;
			settle = body->state == HC_B_SHOWN && !body->settling;
			body->settling = body->settling || settle;
		}
		pthread_mutex_unlock(&bodies->lock);
		if (!body)
			return;
		if (settle)
			settle_here(fs, body);
		pthread_mutex_lock(&bodies->lock);
		body->pending_tid = 0;
		detach_locked(bodies, body);
		body->n_opens--;
		end = ends_locked(bodies, body);
		pthread_mutex_unlock(&bodies->lock);
		if (end)
			body_finish(fs, body);
	}
}
