/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes. user.hicache.* of a page is computed, except for hints (pinned, priority,
 * session); every other user.* is the engines' own: kept with pages, directories, ordinary files
 * and bodies under construction, and handed on when a body becomes a page or file. Other namespaces
 * are EOPNOTSUPP, before anything is looked up: ls(1) asks for them once a file system.
 *
 * What cannot be set is EPERM on a page or directory, and ignored on a body or an ordinary file: so
 * that copies which carry all attributes go in. */
#include <sys/xattr.h>

#include "fuse/internal.h"
#include "fuse/xattr.h"

#define HC_XATTR_TRIES 4 /* a body becomes a page while it is looked at */

/* The name behind "user.", NULL: another namespace. */
static const char *user_name(const char *name)
{
	return strncmp(name, "user.", 5) == 0 ? name + 5 : NULL;
}

static bool is_ours(const char *name)
{
	return strncmp(name, HC_XATTR_PREFIX, strlen(HC_XATTR_PREFIX)) == 0;
}

/* A copy of what is kept with an object. -ESTALE: the view is of the past. */
static int stored(struct hc_fs *fs, const struct hc_fview *view, struct hc_attrset *set_p)
{
	struct hc_attrs *attrs = hc_registry_attrs(fs->registry);
	int err = 0;

	*set_p = (struct hc_attrset){0};
	switch (view->kind) {
	case HC_F_PAGE:
		return hc_attrs_get(attrs, HC_ATTRS_PAGE, view->sequence, set_p);
	case HC_F_DIR:
		return hc_attrs_get(attrs, HC_ATTRS_DIR, view->dir, set_p);
	case HC_F_FILE:
		return hc_attrs_get(attrs, HC_ATTRS_FILE, view->file, set_p);
	case HC_F_BODY:
		pthread_rwlock_rdlock(&view->body->rw);
		if (view->body->fill)
			err = hc_attrset_copy(view->body->attrs.bytes, view->body->attrs.n_bytes,
					      set_p);
		else
			err = -ESTALE;
		pthread_rwlock_unlock(&view->body->rw);
		return err;
	case HC_F_VIRTUAL:
		return 0;
	default:
		return -ENODATA;
	}
}

/* Views are repeated while a body becomes something else. */
static int see(struct hc_fs *fs, uint64_t ino, struct hc_fview *view, struct hc_attrset *set_p)
{
	int err = -ESTALE;

	for (int i = 0; err == -ESTALE && i < HC_XATTR_TRIES; i++) {
		if (i)
			hc_body_put(view->body);
		hc_tree_see(fs->tree, ino, view);
		err = stored(fs, view, set_p);
	}
	return err;
}

static void reply_bytes(fuse_req_t req, const void *data, size_t n, size_t size)
{
	if (!size)
		fuse_reply_xattr(req, n);
	else if (n > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, data, n);
}

/* --- get and list --- */

static int get(struct hc_fs *fs, const struct hc_fview *view, const struct hc_attrset *set,
	       const char *name, char computed[HC_XATTR_VALUE_BYTES], const void **value_p,
	       size_t *n_p)
{
	int err;

	/* What holds comes before what was set: a hint is judged with those of directories. */
	if (is_ours(name)) {
		err = hc_xattr_compute(fs, view, name + strlen(HC_XATTR_PREFIX), computed);
		if (!err) {
			*value_p = computed;
			*n_p = strlen(computed);
		}
		if (err != -ENODATA)
			return err;
	}
	*value_p = hc_attrset_find(set, name, n_p);
	return *value_p ? 0 : -ENODATA;
}

void hc_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct hc_fs *fs = hc_req_fs(req);
	char computed[HC_XATTR_VALUE_BYTES];
	const void *value = NULL;
	struct hc_attrset set;
	struct hc_fview view;
	size_t n = 0;
	int err;

	hc_fs_count(fs, getxattrs);
	name = user_name(name);
	if (!name) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	err = see(fs, ino, &view, &set);
	if (!err)
		err = get(fs, &view, &set, name, computed, &value, &n);
	if (err)
		fuse_reply_err(req, -err);
	else
		reply_bytes(req, value, n, size);
	hc_attrset_fini(&set);
	hc_body_put(view.body);
}

struct list {
	char *text;
	size_t n, room;
	int err;
};

static void list_add(struct list *list, const char *prefix, const char *name)
{
	size_t n = strlen("user.") + strlen(prefix) + strlen(name) + 1;

	if (list->n + n > list->room) {
		size_t room = 2 * (list->n + n);
		char *text = realloc(list->text, room);

		if (!text) {
			list->err = -ENOMEM;
			return;
		}
		list->text = text;
		list->room = room;
	}
	list->n += (size_t)snprintf(list->text + list->n, n, "user.%s%s", prefix, name) + 1;
}

void hc_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct hc_fs *fs = hc_req_fs(req);
	char name[HC_ATTR_NAME_BYTES], computed[HC_XATTR_VALUE_BYTES];
	struct list list = {0};
	struct hc_attrset set;
	struct hc_fview view;
	const void *value;
	size_t at = 0, n;

	hc_fs_count(fs, listxattrs);
	list.err = see(fs, ino, &view, &set);
	for (size_t i = 0; !list.err && view.kind == HC_F_PAGE && hc_xattr_listed(i); i++)
		if (!hc_xattr_compute(fs, &view, hc_xattr_listed(i), computed))
			list_add(&list, HC_XATTR_PREFIX, hc_xattr_listed(i));
	while (!list.err && hc_attrset_next(&set, &at, name, &value, &n))
		list_add(&list, "", name);
	if (list.err)
		fuse_reply_err(req, -list.err);
	else
		reply_bytes(req, list.text, list.n, size);
	free(list.text);
	hc_attrset_fini(&set);
	hc_body_put(view.body);
}

/* --- set and remove --- */

struct change {
	const char *name;
	const void *value; /* NULL: remove */
	size_t n;
	int flags;
};

static int apply(void *arg, struct hc_attrset *set)
{
	const struct change *change = arg;

	if (!change->value)
		return hc_attrset_remove(set, change->name);
	return hc_attrset_set(set, change->name, change->value, change->n,
			      change->flags & XATTR_CREATE, change->flags & XATTR_REPLACE);
}

static int change_body(struct hc_body *body, struct change *change)
{
	int err;

	pthread_rwlock_wrlock(&body->rw);
	err = body->fill ? apply(change, &body->attrs) : -ESTALE;
	pthread_rwlock_unlock(&body->rw);
	return err;
}

static int change_view(struct hc_fs *fs, const struct hc_fview *view, struct change *change)
{
	struct hc_attrs *attrs = hc_registry_attrs(fs->registry);
	int err;

	switch (view->kind) {
	case HC_F_BODY:
		return change_body(view->body, change);
	case HC_F_PAGE:
		if (view->entry == HC_ENTRY_NONE)
			return -ENOENT;
		err = hc_node_attrs_change(fs->node, view->entry, view->sequence, apply, change);
		return err == -ESTALE ? -ENOENT : err;
	case HC_F_DIR:
		err = hc_attrs_change(attrs, HC_ATTRS_DIR, view->dir, apply, change);
		if (!err && hc_hint_of(change->name) != HC_HINT_N)
			err = hc_node_hints_below(fs->node, view->dir);
		return err;
	case HC_F_FILE:
		return hc_attrs_change(attrs, HC_ATTRS_FILE, view->file, apply, change);
	default:
		return -ENOENT;
	}
}

/* Whether this caller may change that name: 0, -EPERM, -EINVAL; -ECANCELED: say yes and do nothing.
 */
static int judge(struct hc_fs *fs, fuse_req_t req, const struct hc_fview *view,
		 const struct change *change)
{
	bool copy = view->kind == HC_F_BODY || view->kind == HC_F_FILE;
	uint32_t uid = fuse_req_ctx(req)->uid;
	enum hc_hint hint;
	int value;

	if (view->kind == HC_F_VIRTUAL)
		return -EOPNOTSUPP;
	if (!is_ours(change->name))
		return 0;
	hint = hc_hint_of(change->name);
	/* A pin keeps memory from everybody. */
	if (hint == HC_HINT_N || (hint == HC_HINT_PINNED && uid && uid != fs->uid))
		return copy && change->value ? -ECANCELED : -EPERM;
	if (!change->value)
		return 0;
	return hc_hint_parse(hint, change->value, change->n, &value);
}

static void change_xattr(fuse_req_t req, fuse_ino_t ino, struct change *change)
{
	struct hc_fs *fs = hc_req_fs(req);
	int err = -ESTALE;

	for (int i = 0; err == -ESTALE && i < HC_XATTR_TRIES; i++) {
		struct hc_fview view;

		hc_tree_see(fs->tree, ino, &view);
		err = judge(fs, req, &view, change);
		if (!err)
			err = change_view(fs, &view, change);
		hc_body_put(view.body);
	}
	hc_reply_err(req, err == -ECANCELED ? 0 : err);
}

void hc_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		    size_t size, int flags)
{
	struct change change = {user_name(name), size ? value : "", size, flags};

	hc_fs_count(hc_req_fs(req), setxattrs);
	if (change.name)
		change_xattr(req, ino, &change);
	else
		fuse_reply_err(req, EOPNOTSUPP);
}

void hc_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct change change = {.name = user_name(name)};

	hc_fs_count(hc_req_fs(req), setxattrs);
	if (change.name)
		change_xattr(req, ino, &change);
	else
		fuse_reply_err(req, EOPNOTSUPP);
}
