/* SPDX-License-Identifier: Apache-2.0 */
/* Names that come, go and move: mkdir, rmdir, unlink, rename; and what is refused. The kernel holds
 * the directories' locks, so none of these runs twice at once in one directory; RELEASEs do come in
 * between. */
#include <fcntl.h>

#include "fuse/internal.h"
#include "util/clock.h"

#define HC_RENAME_TRIES 8 /* a body may turn into a page while it is renamed */

void hc_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct fuse_entry_param entry;
	struct hc_dir_info info;
	struct hc_there there = {0};
	struct hc_fnode *fnode;
	struct hc_owner owner;
	int err;

	err = hc_is_virtual_name(parent, name) ? -EEXIST : hc_dir_of_ino(fs, parent, &info);
	if (!err)
		err = hc_there_look(fs, info.id, name, hc_req_tid(req), &there);
	if (!err && there.kind != HC_F_NONE)
		err = -EEXIST;
	if (!err) {
		hc_owner_new(fs, req, info.id, mode, true, &owner);
		err = hc_dir_make(fs->registry, info.id, name, &owner, &there.dir);
	}
	if (!err) {
		there.kind = HC_F_DIR;
		there.busy = false;
		err = hc_there_entry(fs, &there, &entry, &fnode);
	}
	if (err)
		hc_reply_err(req, err);
	else
		fuse_reply_entry(req, &entry);
	hc_there_end(&there);
}

static uint64_t others_in(struct hc_fs *fs, uint32_t dir)
{
	return hc_node_dir_n_pages(fs->node, dir) + hc_bodies_count_dir(fs, dir);
}

void hc_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_dir_info info, dir;
	uint64_t n_others = 0;
	int err;

	err = hc_is_virtual_name(parent, name) ? -EPERM : hc_dir_of_ino(fs, parent, &info);
	if (!err)
		err = hc_dir_find(fs->registry, info.id, name, &dir);
	if (!err)
		n_others = others_in(fs, dir.id);
	if (!err)
		err = n_others ? -ENOTEMPTY : hc_dir_remove(fs->registry, info.id, name, 0);
	hc_reply_err(req, err);
}

static int unlink_there(struct hc_fs *fs, uint32_t dir, const char *name,
			const struct hc_there *there)
{
	uint64_t id;
	int err;

	switch (there->kind) {
	case HC_F_PAGE:
		return hc_remove_page(fs, &there->page.key) ? 0 : -ENOENT;
	case HC_F_FILE:
		hc_file_unlinked(fs, &there->file);
		err = hc_file_remove(fs->registry, dir, name, &id);
		if (!err)
			hc_file_forget(fs->registry, id);
		return err;
	case HC_F_DIR:
		return -EISDIR;
	default:
		return -ENOENT;
	}
}

void hc_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_dir_info info;
	struct hc_there there;
	int err;

	err = hc_is_virtual_name(parent, name) ? -EISDIR : hc_dir_of_ino(fs, parent, &info);
	if (err) {
		hc_reply_err(req, err == -EACCES ? -EPERM : err);
		return;
	}
	if (!hc_bodies_unlink(fs, info.id, name, hc_req_tid(req))) {
		err = hc_there_look(fs, info.id, name, hc_req_tid(req), &there);
		if (!err) {
			err = unlink_there(fs, info.id, name, &there);
			hc_there_end(&there);
		}
	}
	if (!err)
		hc_fs_count(fs, unlinks);
	hc_reply_err(req, err);
}

/* --- rename --- */

struct hc_move {
	uint32_t dir, new_dir;
	const char *name, *new_name;
	struct hc_opener opener;
	struct hc_there from, to;
};

static int rename_dir(struct hc_fs *fs, const struct hc_move *move)
{
	if (move->to.kind != HC_F_NONE && move->to.kind != HC_F_DIR)
		return -ENOTDIR;
	if (move->to.kind == HC_F_DIR && others_in(fs, move->to.dir.id))
		return -ENOTEMPTY;
	return hc_dir_rename(fs->registry, move->dir, move->name, move->new_dir, move->new_name,
			     others_in(fs, move->from.dir.id));
}

/* What the target showed goes. */
static void clear_target(struct hc_fs *fs, const struct hc_move *move, uint64_t but_file)
{
	if (move->to.kind == HC_F_BODY)
		hc_body_drop(fs, move->to.body);
	hc_name_clear(fs, move->new_dir, move->new_name, 0, but_file);
}

static int rename_file(struct hc_fs *fs, struct hc_move *move)
{
	struct hc_body *body;
	uint64_t replaced = 0;
	int err;

	if (!move->to.is_page_name) {
		err = hc_file_rename(fs->registry, move->from.file.id, move->new_dir,
				     move->new_name, &replaced);
		if (err)
			return err;
		if (replaced)
			hc_file_forget(fs->registry, replaced);
		clear_target(fs, move, move->from.file.id);
		return 0;
	}
	err = hc_file_to_body(fs, &move->from.file, true, &body);
	if (err)
		return err;
	err = hc_body_rename(fs, body, move->new_dir, move->new_name, &move->opener);
	/* As it was: the end of a writer makes it a file again. */
	if (err && hc_body_open(fs, body, true, false) == 0)
		hc_body_release(fs, body, true);
	hc_body_put(body);
	return err;
}

/* The page is there under its new key. The kernel moves what it knows of the old name to the new
 * one: the number goes with it. */
static void move_number(struct hc_fs *fs, const struct hc_move *move)
{
	struct hc_page_info page;
	struct hc_name id;

	if (hc_name_resolve(fs->registry, move->new_dir, move->new_name, false, &id) == 0 &&
	    id.known && hc_node_stat(fs->node, &id.key, false, &page) == 0 &&
	    page.node_id == move->from.page.node_id)
		hc_tree_put(fs->tree, hc_tree_page(fs->tree, &page));
}

/* A page is named by its key: under another name it is another page, made of the same bytes. */
static int rename_page(struct hc_fs *fs, struct hc_move *move)
{
	struct hc_there none = {.kind = HC_F_PAGE, .id = move->to.id, .page = move->from.page};
	struct hc_body *body;
	int err;

	if (move->to.kind == HC_F_PAGE && hc_key_equal(&move->to.page.key, &move->from.page.key))
		return 0;
	err = hc_there_own(fs, &none, move->new_dir, move->new_name, &move->opener,
			   &move->from.page.owner, false, false, &body);
	if (err)
		return err;
	body->mtime_ns = move->from.page.mtime_ns;
	err = hc_body_hold_source(body, &move->opener);
	if (!err) {
		pthread_rwlock_wrlock(&body->rw);
		if (body->page.sequence == move->from.page.sequence)
			body->moved_ino = move->from.page.node_id;
		err = hc_body_copy_up_locked(body);
		pthread_rwlock_unlock(&body->rw);
		atomic_store(&body->wrote, true);
	}
	if (!err && move->to.id.kind != HC_NAME_TEMPORARY)
		err = hc_body_rename(fs, body, move->new_dir, move->new_name, &move->opener);
	if (!err)
		move_number(fs, move);
	if (err) {
		hc_body_drop(fs, body);
	} else if (hc_node_remove_body(fs->node, move->from.page.entry, move->from.page.sequence)) {
		/* evicted or replaced meanwhile */
	}
	hc_body_put(body);
	return err;
}

static int rename_once(struct hc_fs *fs, struct hc_move *move, unsigned int flags)
{
	if (move->from.kind == HC_F_NONE)
		return -ENOENT;
	if (flags & RENAME_NOREPLACE && move->to.kind != HC_F_NONE)
		return -EEXIST;
	if (move->from.kind == HC_F_DIR)
		return rename_dir(fs, move);
	if (move->to.kind == HC_F_DIR)
		return -EISDIR;
	if (move->from.kind == HC_F_FILE)
		return rename_file(fs, move);
	if (move->from.kind == HC_F_PAGE)
		return rename_page(fs, move);
	return hc_body_rename(fs, move->from.body, move->new_dir, move->new_name, &move->opener);
}

static int rename_name(struct hc_fs *fs, struct hc_move *move, unsigned int flags)
{
	int tid = move->opener.tid, err = 0;

	for (int i = 0; i < HC_RENAME_TRIES; i++) {
		bool was_body;

		err = hc_there_look(fs, move->dir, move->name, tid, &move->from);
		if (err)
			return err;
		err = hc_there_look(fs, move->new_dir, move->new_name, tid, &move->to);
		if (!err)
			err = rename_once(fs, move, flags);
		was_body = move->from.kind == HC_F_BODY;
		hc_there_end(&move->from);
		hc_there_end(&move->to);
		if (err != -ENOENT || !was_body)
			break;
	}
	return err;
}

void hc_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		  const char *new_name, unsigned int flags)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_dir_info from, to;
	struct hc_move *move;
	bool renumbered;
	int err = 0;

	if (flags & ~(unsigned int)RENAME_NOREPLACE)
		err = -EINVAL;
	else if (hc_is_virtual_name(parent, name) || hc_is_virtual_name(new_parent, new_name))
		err = -EPERM;
	if (!err)
		err = hc_dir_of_ino(fs, parent, &from);
	if (!err)
		err = hc_dir_of_ino(fs, new_parent, &to);
	if (err) {
		hc_reply_err(req, err);
		return;
	}
	move = hc_zalloc(sizeof(*move));
	if (!move) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	move->dir = from.id;
	move->new_dir = to.id;
	move->name = name;
	move->new_name = new_name;
	hc_opener_of(fs, hc_req_tid(req), &move->opener);
	err = rename_name(fs, move, flags);
	renumbered = move->from.kind == HC_F_PAGE && !move->to.is_page_name;
	free(move);
	/* The kernel keeps what it knew of the old name, as long as it was told, under the new one,
	 * which somebody is about to publish in place, or where the page is no page any more. */
	if (!err && fs->notifier && (renumbered || hc_bodies_busy(fs, to.id, new_name)))
		hc_notify_name(fs->notifier, to.id, new_name);
	if (!err)
		hc_fs_count(fs, renames);
	hc_reply_err(req, err);
}

/* --- refused --- */

void hc_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	fuse_reply_err(req, EPERM);
}

void hc_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

/* Regular files alone: tar(1) makes them so before it sets attributes and writes. An empty file
 * under a page's name is one until somebody writes it. */
static int make_file(struct hc_fs *fs, fuse_req_t req, uint32_t dir, const char *name, mode_t mode)
{
	struct fuse_entry_param entry;
	struct hc_fnode *fnode;
	struct hc_owner owner;
	struct hc_there there;
	uint64_t replaced = 0;
	int err;

	if (!S_ISREG(mode))
		return -EPERM;
	err = hc_there_look(fs, dir, name, hc_req_tid(req), &there);
	if (err)
		return err;
	if (there.kind != HC_F_NONE || there.busy)
		err = -EEXIST;
	if (!err) {
		hc_owner_new(fs, req, dir, mode, false, &owner);
		err = hc_file_make(fs->registry, dir, name, &owner, &there.file, &replaced);
	}
	if (!err) {
		there.kind = HC_F_FILE;
		if (replaced)
			hc_file_forget(fs->registry, replaced);
		err = hc_there_entry(fs, &there, &entry, &fnode);
	}
	hc_there_end(&there);
	if (err)
		return err;
	if (fuse_reply_entry(req, &entry))
		hc_tree_forget(fs->tree, entry.ino, 1);
	hc_tree_put(fs->tree, fnode);
	return 0;
}

void hc_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct hc_fs *fs = hc_req_fs(req);
	struct hc_dir_info info;
	int err;

	err = hc_is_virtual_name(parent, name) ? -EEXIST : hc_dir_of_ino(fs, parent, &info);
	if (!err)
		err = make_file(fs, req, info.id, name, mode);
	if (err)
		hc_reply_err(req, err);
}
