/* SPDX-License-Identifier: Apache-2.0 */
/* See rows.h. Fields in the order of the structs:
 *
 *   fixed      little-endian (hashes as they are)
 *   number     7 bits a byte, lowest first, high bit: more follow; shortest form only
 *   text       length as a number, then the bytes, no NUL
 *
 * A page row is most of the catalog's bytes: what is usually empty has a bit in `has` and takes no
 * room. Every row has exactly one form, so that what is read back and packed again is the same. */
#include "index/rows.h"

#include <endian.h>

#define HC_ROW_VERSION    1
#define HC_ROW_HAS_PARENT 0x1u
#define HC_ROW_HAS_FILE   0x2u
#define HC_ROW_HAS_NAME   0x4u
#define HC_ROW_HAS_ALL    0x7u

#define HC_ROW_DEPTH_MAX  ((1u << 24) - 1)
#define HC_ROW_MODE_MAX   07777u
#define HC_ROW_PAGE_FLAGS (HC_ROW_PAGE_OPAQUE | HC_ROW_PAGE_UNNAMED)

struct hc_pack {
	uint8_t *out;
	size_t n;
};

static void hc_pack_bytes(struct hc_pack *p, const void *data, size_t n)
{
	memcpy(p->out + p->n, data, n);
	p->n += n;
}

static void hc_pack_fixed(struct hc_pack *p, uint64_t value, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++)
		p->out[p->n++] = (uint8_t)(value >> (8 * i));
}

static void hc_pack_number(struct hc_pack *p, uint64_t value)
{
	while (value >= 0x80) {
		p->out[p->n++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	p->out[p->n++] = (uint8_t)value;
}

static void hc_pack_text(struct hc_pack *p, const char *text, size_t max)
{
	size_t n = strnlen(text, max + 1);

	hc_assert(n <= max);
	hc_pack_number(p, n);
	hc_pack_bytes(p, text, n);
}

/* The first failure sticks; later reads give zeros. */
struct hc_unpack {
	const uint8_t *in;
	size_t n;
	size_t at;
	int rc;
};

static inline void hc_unpack_bytes(struct hc_unpack *u, void *data, size_t n)
{
	if (u->rc || u->n - u->at < n) {
		u->rc = u->rc ? u->rc : -EBADMSG;
		memset(data, 0, n);
		return;
	}
	memcpy(data, u->in + u->at, n);
	u->at += n;
}

static inline uint8_t hc_unpack_byte(struct hc_unpack *u)
{
	if (u->rc || u->at == u->n) {
		u->rc = u->rc ? u->rc : -EBADMSG;
		return 0;
	}
	return u->in[u->at++];
}

static inline uint64_t hc_unpack_u64(struct hc_unpack *u)
{
	uint64_t value;

	hc_unpack_bytes(u, &value, sizeof(value));
	return le64toh(value);
}

static uint64_t hc_unpack_long_number(struct hc_unpack *u, uint64_t max)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && !u->rc; shift += 7) {
		uint8_t b = hc_unpack_byte(u);

		if (shift == 63 && b > 1)
			break;
		value |= (uint64_t)(b & 0x7f) << shift;
		if (b & 0x80)
			continue;
		if ((!b && shift) || value > max)
			break;
		return u->rc ? 0 : value;
	}
	u->rc = u->rc ? u->rc : -EBADMSG;
	return 0;
}

static inline uint64_t hc_unpack_number(struct hc_unpack *u, uint64_t max)
{
	/* Most numbers are small. */
	if (hc_likely(!u->rc && u->at < u->n && u->in[u->at] < 0x80 && u->in[u->at] <= max))
		return u->in[u->at++];
	return hc_unpack_long_number(u, max);
}

/* min: 1 where a name is never empty. */
static void hc_unpack_text(struct hc_unpack *u, char *text, size_t min, size_t max)
{
	size_t n = (size_t)hc_unpack_number(u, max);

	hc_unpack_bytes(u, text, n);
	text[n] = 0;
	if (n < min || memchr(text, 0, n))
		u->rc = u->rc ? u->rc : -EBADMSG;
}

/* One component of a path. */
static void hc_unpack_name(struct hc_unpack *u, char *name)
{
	hc_unpack_text(u, name, 1, HC_NAME_BYTES_MAX);
	if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		u->rc = u->rc ? u->rc : -EBADMSG;
}

static int hc_unpack_begin(struct hc_unpack *u, const void *in, size_t n_bytes)
{
	uint8_t version;

	*u = (struct hc_unpack){.in = in, .n = n_bytes};
	version = hc_unpack_byte(u);
	if (!u->rc && version > HC_ROW_VERSION)
		u->rc = -EPROTO;
	else if (!u->rc && version != HC_ROW_VERSION)
		u->rc = -EBADMSG;
	return u->rc;
}

static int hc_unpack_end(const struct hc_unpack *u)
{
	if (u->rc)
		return u->rc;
	return u->at == u->n ? 0 : -EBADMSG;
}

size_t hc_row_page_pack(const struct hc_row_page *row, void *out)
{
	struct hc_pack p = {.out = out};
	uint8_t has = 0;

	hc_assert(row->mode <= HC_ROW_MODE_MAX && row->depth <= HC_ROW_DEPTH_MAX);
	hc_assert(!(row->flags & ~HC_ROW_PAGE_FLAGS) && row->size_bytes <= UINT32_MAX);
	has |= hc_hash_is_zero(&row->parent) ? 0 : HC_ROW_HAS_PARENT;
	has |= row->file || row->offset ? HC_ROW_HAS_FILE : 0;
	has |= row->name[0] ? HC_ROW_HAS_NAME : 0;
	hc_pack_fixed(&p, HC_ROW_VERSION, 1);
	hc_pack_fixed(&p, has, 1);
	hc_pack_bytes(&p, row->hash.bytes, HC_HASH_BYTES);
	if (has & HC_ROW_HAS_PARENT)
		hc_pack_bytes(&p, row->parent.bytes, HC_HASH_BYTES);
	hc_pack_fixed(&p, row->checksum, 8);
	hc_pack_fixed(&p, row->mtime_ns, 8);
	hc_pack_number(&p, row->size_bytes);
	if (has & HC_ROW_HAS_FILE) {
		hc_pack_number(&p, row->file);
		hc_pack_number(&p, row->offset);
	}
	hc_pack_number(&p, row->series);
	hc_pack_number(&p, row->depth);
	hc_pack_number(&p, row->dir);
	hc_pack_number(&p, row->uid);
	hc_pack_number(&p, row->gid);
	hc_pack_number(&p, row->mode);
	hc_pack_number(&p, row->disk);
	hc_pack_number(&p, row->flags);
	if (has & HC_ROW_HAS_NAME)
		hc_pack_text(&p, row->name, HC_PATH_BYTES_MAX);
	return p.n;
}

int hc_row_page_peek(const void *in, size_t n_bytes, const struct hc_hash **hash_p,
		     const struct hc_hash **parent_p)
{
	const uint8_t *bytes = in;
	size_t n_parent;

	_Static_assert(_Alignof(struct hc_hash) == 1, "may lie anywhere");
	if (n_bytes < 2 || bytes[0] != HC_ROW_VERSION)
		return -EBADMSG;
	n_parent = bytes[1] & HC_ROW_HAS_PARENT ? HC_HASH_BYTES : 0;
	if (n_bytes < 2 + HC_HASH_BYTES + n_parent)
		return -EBADMSG;
	*hash_p = (const struct hc_hash *)(bytes + 2);
	*parent_p = n_parent ? (const struct hc_hash *)(bytes + 2 + HC_HASH_BYTES) : NULL;
	return 0;
}

int hc_row_page_unpack(const void *in, size_t n_bytes, struct hc_row_page *row_p)
{
	struct hc_row_page row;
	struct hc_unpack u;
	uint8_t has;

	/* Most rows have no name: its room is neither cleared nor copied. */
	memset(&row, 0, offsetof(struct hc_row_page, name) + 1);
	if (hc_unpack_begin(&u, in, n_bytes))
		return u.rc;
	has = hc_unpack_byte(&u);
	if (has & ~HC_ROW_HAS_ALL)
		return -EBADMSG;
	hc_unpack_bytes(&u, row.hash.bytes, HC_HASH_BYTES);
	if (has & HC_ROW_HAS_PARENT) {
		hc_unpack_bytes(&u, row.parent.bytes, HC_HASH_BYTES);
		if (hc_hash_is_zero(&row.parent))
			return -EBADMSG;
	}
	row.checksum = hc_unpack_u64(&u);
	row.mtime_ns = hc_unpack_u64(&u);
	row.size_bytes = hc_unpack_number(&u, UINT32_MAX);
	if (has & HC_ROW_HAS_FILE) {
		row.file = hc_unpack_number(&u, UINT64_MAX);
		row.offset = hc_unpack_number(&u, UINT64_MAX);
		if (!row.file && !row.offset)
			return -EBADMSG;
	}
	row.series = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.depth = (uint32_t)hc_unpack_number(&u, HC_ROW_DEPTH_MAX);
	row.dir = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.uid = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.gid = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.mode = (uint16_t)hc_unpack_number(&u, HC_ROW_MODE_MAX);
	row.disk = (uint16_t)hc_unpack_number(&u, UINT16_MAX);
	row.flags = (uint16_t)hc_unpack_number(&u, HC_ROW_PAGE_FLAGS);
	if (has & HC_ROW_HAS_NAME)
		hc_unpack_text(&u, row.name, 1, HC_PATH_BYTES_MAX);
	if (hc_unpack_end(&u))
		return hc_unpack_end(&u);
	memcpy(row_p, &row, offsetof(struct hc_row_page, name) + strlen(row.name) + 1);
	return 0;
}

size_t hc_row_dir_pack(const struct hc_row_dir *row, void *out)
{
	struct hc_pack p = {.out = out};

	hc_assert(row->mode <= HC_ROW_MODE_MAX);
	hc_pack_fixed(&p, HC_ROW_VERSION, 1);
	hc_pack_fixed(&p, row->mtime_ns, 8);
	hc_pack_number(&p, row->parent);
	hc_pack_number(&p, row->uid);
	hc_pack_number(&p, row->gid);
	hc_pack_number(&p, row->mode);
	hc_pack_text(&p, row->name, HC_NAME_BYTES_MAX);
	return p.n;
}

int hc_row_dir_unpack(const void *in, size_t n_bytes, struct hc_row_dir *row_p)
{
	struct hc_row_dir row = {0};
	struct hc_unpack u;

	if (hc_unpack_begin(&u, in, n_bytes))
		return u.rc;
	row.mtime_ns = hc_unpack_u64(&u);
	row.parent = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.uid = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.gid = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.mode = (uint16_t)hc_unpack_number(&u, HC_ROW_MODE_MAX);
	hc_unpack_text(&u, row.name, 0, HC_NAME_BYTES_MAX);
	/* The root of a space or of the mount may be called "." or nothing. */
	if (strchr(row.name, '/') || !strcmp(row.name, ".."))
		return -EBADMSG;
	if (hc_unpack_end(&u))
		return hc_unpack_end(&u);
	*row_p = row;
	return 0;
}

size_t hc_row_file_pack(const struct hc_row_file *row, void *out)
{
	struct hc_pack p = {.out = out};

	hc_assert(row->mode <= HC_ROW_MODE_MAX);
	hc_pack_fixed(&p, HC_ROW_VERSION, 1);
	hc_pack_fixed(&p, row->mtime_ns, 8);
	hc_pack_number(&p, row->size_bytes);
	hc_pack_number(&p, row->dir);
	hc_pack_number(&p, row->uid);
	hc_pack_number(&p, row->gid);
	hc_pack_number(&p, row->mode);
	hc_pack_text(&p, row->name, HC_NAME_BYTES_MAX);
	return p.n;
}

int hc_row_file_unpack(const void *in, size_t n_bytes, struct hc_row_file *row_p)
{
	struct hc_row_file row = {0};
	struct hc_unpack u;

	if (hc_unpack_begin(&u, in, n_bytes))
		return u.rc;
	row.mtime_ns = hc_unpack_u64(&u);
	row.size_bytes = hc_unpack_number(&u, INT64_MAX);
	row.dir = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.uid = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.gid = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.mode = (uint16_t)hc_unpack_number(&u, HC_ROW_MODE_MAX);
	hc_unpack_name(&u, row.name);
	if (hc_unpack_end(&u))
		return hc_unpack_end(&u);
	*row_p = row;
	return 0;
}

size_t hc_row_space_pack(const struct hc_row_space *row, void *out)
{
	struct hc_pack p = {.out = out};

	hc_assert(row->mode <= HC_ROW_MODE_MAX);
	hc_pack_fixed(&p, HC_ROW_VERSION, 1);
	hc_pack_number(&p, row->quota_bytes);
	hc_pack_number(&p, row->max_age_s);
	hc_pack_number(&p, row->uid);
	hc_pack_number(&p, row->gid);
	hc_pack_number(&p, row->mode);
	hc_pack_number(&p, row->priority);
	return p.n;
}

int hc_row_space_unpack(const void *in, size_t n_bytes, struct hc_row_space *row_p)
{
	struct hc_row_space row = {0};
	struct hc_unpack u;

	if (hc_unpack_begin(&u, in, n_bytes))
		return u.rc;
	row.quota_bytes = hc_unpack_number(&u, UINT64_MAX);
	row.max_age_s = hc_unpack_number(&u, UINT64_MAX);
	row.uid = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.gid = (uint32_t)hc_unpack_number(&u, UINT32_MAX);
	row.mode = (uint16_t)hc_unpack_number(&u, HC_ROW_MODE_MAX);
	row.priority = (uint8_t)hc_unpack_number(&u, UINT8_MAX);
	if (hc_unpack_end(&u))
		return hc_unpack_end(&u);
	*row_p = row;
	return 0;
}
