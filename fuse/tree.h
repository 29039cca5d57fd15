/* SPDX-License-Identifier: Apache-2.0 */
/* Node ids: what a 64-bit number that the kernel remembers stands for. Never reused.
 *
 * Directories need no table: the node id is the directory id of the registry (the root is 1 in both
 * worlds). Virtual files have a range of their own. Ordinary files begin at HC_INO_FILES + file id,
 * bodies and pages take the registry's node ids; these three are in the table while the kernel, a
 * request, a handle or a body refers to them. What a number stands for may change in place (a body
 * becomes a page), the number never changes its body. A body that becomes an ordinary file keeps
 * its number while anybody knows it: one file is one inode, whose cache and size its handles share.
 *
 * Any thread. 64 shards with a lock each; the lock of the numbers of such files comes after it. */
#ifndef HC_FUSE_TREE_H
#define HC_FUSE_TREE_H

#include "node/node.h"

#define HC_INO_VIRTUAL ((uint64_t)1 << 33)
#define HC_INO_FILES   ((uint64_t)1 << 40)
#define HC_INO_BODIES  ((uint64_t)1 << 56) /* the registry's are above: seconds << 32 */
#define HC_TREE_SHARDS 64

struct hc_tree;
struct hc_body;

enum hc_fkind { HC_F_NONE, HC_F_DIR, HC_F_VIRTUAL, HC_F_FILE, HC_F_BODY, HC_F_PAGE, HC_F_GONE };

struct hc_fnode;

/* What a number stood for at one moment. `body` carries a reference (hc_body_put). */
struct hc_fview {
	enum hc_fkind kind;
	uint64_t ino;
	uint32_t dir;
	uint64_t file;
	struct hc_body *body;
	struct hc_key key;
	uint32_t entry;
	uint64_t sequence;
	/* of a page, as the kernel was told, good after it was replaced, too; of a body that is
	 * gone, as it was (mtime_ns 0: not known) */
	uint64_t size_bytes;
	uint64_t mtime_ns;
	struct hc_owner owner;
	uint64_t atime_ns; /* last open of a page here, 0: none */
};

int hc_tree_create(struct hc_tree **tree_p) HC_MUST_CHECK;
void hc_tree_destroy(struct hc_tree *tree);

/* NULL: unknown. Pinned until put. */
struct hc_fnode *hc_tree_get(struct hc_tree *tree, uint64_t ino);
struct hc_fnode *hc_tree_pin(struct hc_tree *tree, struct hc_fnode *fnode);
void hc_tree_put(struct hc_tree *tree, struct hc_fnode *fnode);
uint64_t hc_fnode_ino(const struct hc_fnode *fnode);

/* Found or made; NULL when memory is out. Pinned. */
struct hc_fnode *hc_tree_page(struct hc_tree *tree, const struct hc_page_info *info);
struct hc_fnode *hc_tree_file(struct hc_tree *tree, uint64_t file);
/* Its number. */
uint64_t hc_tree_file_ino(struct hc_tree *tree, uint64_t file);
/* A new number for a body. Takes no reference on the body: the body holds the fnode and calls
 * hc_tree_gone or another become before it ends. */
struct hc_fnode *hc_tree_body(struct hc_tree *tree, uint64_t ino, struct hc_body *body);

void hc_tree_become_page(struct hc_tree *tree, struct hc_fnode *fnode,
			 const struct hc_page_info *info);
void hc_tree_become_file(struct hc_tree *tree, struct hc_fnode *fnode, uint64_t file);
void hc_tree_become_body(struct hc_tree *tree, struct hc_fnode *fnode, struct hc_body *body);
/* was: size, times and owner that the body had, NULL: nobody was told. */
void hc_tree_gone(struct hc_tree *tree, struct hc_fnode *fnode, const struct hc_page_info *was);

void hc_tree_view(struct hc_tree *tree, struct hc_fnode *fnode, struct hc_fview *view_p);
/* Get, view and put in one; kind NONE when unknown. Directories and virtual files too. */
void hc_tree_see(struct hc_tree *tree, uint64_t ino, struct hc_fview *view_p);
void hc_tree_opened(struct hc_tree *tree, struct hc_fnode *fnode, uint64_t atime_ns);

/* The kernel was told, and forgot. */
void hc_tree_remember(struct hc_tree *tree, struct hc_fnode *fnode);
void hc_tree_forget(struct hc_tree *tree, uint64_t ino, uint64_t n);
uint64_t hc_tree_count(struct hc_tree *tree);
/* Numbers of pages that the kernel knows, from *cursor_p (0: begin) on: fills at most n views, 0 at
 * the end. */
size_t hc_tree_pages(struct hc_tree *tree, uint64_t *cursor_p, struct hc_fview *views, size_t n);

#endif
