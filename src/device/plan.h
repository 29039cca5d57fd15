/* SPDX-License-Identifier: Apache-2.0 */
/* How the bytes of pages get from an engine's tensors to host memory and back: which runs, merged
 * how far, moved by what. Both sides are affine (model/layout.h): the host side by a layout inside
 * slots or by that of a whole imported pool, the device side by a base for K and one for V in each
 * layer and strides for page, token and head. Everything is computed when the plan is made but the
 * merging of neighbouring pages. A plan is immutable: any thread.
 *
 * Mechanisms. COPY: the copy engines, one descriptor for each run, runs of neighbouring pages
 * merged. KERNEL: one page copy for each layer. STAGED: through device memory in the order of the
 * host: a write gathers whole pages there and copies each as one; a load copies some layers of each
 * page at once and scatters them. Left to itself the plan takes COPY for runs of at least
 * HC_PLAN_COPY_BYTES, below that STAGED where pages are whole in host memory and there is staging,
 * else KERNEL, and COPY where the device has no kernels or the rows do not suit them. */
#ifndef HC_DEVICE_PLAN_H
#define HC_DEVICE_PLAN_H

#include "device/device.h"
#include "model/layout.h"

/* Limits from figures that others published for H100 over PCIe 5 (ARCHITECTURE.md, "A load" has
 * them): a batch of the copy engine does 0.94 of the link at 64 KiB a descriptor, 0.1 to 0.3 at 4
 * to 24 KiB. Constants, not calibrated at start: check-device prints where they choose badly. */
#define HC_PLAN_COPY_BYTES (64 * HC_KIB)
/* Pieces of a staged load: as many layers as make a run of it, well above the limit. */
#define HC_PLAN_SLICE_BYTES (128 * HC_KIB)
#define HC_PLAN_ERROR_BYTES 256

enum hc_io { HC_IO_AUTO, HC_IO_DIRECT, HC_IO_KERNEL };
enum hc_plan_way { HC_PLAN_COPY, HC_PLAN_STAGED, HC_PLAN_KERNEL, HC_PLAN_WAYS };
enum hc_plan_direction { HC_PLAN_LOAD, HC_PLAN_WRITE };

struct hc_plan_config {
	struct hc_geometry geometry;
	enum hc_layout layout; /* of slots; UNDECLARED where pool_layout says how it lies */
	enum hc_pool_layout pool_layout; /* of a whole buffer of pool_pages; 0: slots */
	uint64_t pool_pages;
	const hc_device_addr *k, *v; /* of each layer; v NULL: MLA, or one object of a pair */
	uint64_t device_pages;       /* in each tensor */
	uint64_t page_stride, token_stride, head_stride; /* 0: tight */
	enum hc_io io;
	bool kernels; /* the device has them */
};

struct hc_plan;

/* A page on both sides: the device's address of its first byte in host memory, and its number in
 * the engine's tensors. */
struct hc_plan_page {
	hc_device_addr host;
	uint32_t device;
};

/* Words: "auto", "direct", "kernel". -EINVAL. */
int hc_io_parse(const char *text, enum hc_io *io_p) HC_MUST_CHECK;
const char *hc_plan_way_name(enum hc_plan_way way);

/* -EINVAL with the reason in error: a pair that has no meaning (page_head with MLA, an undeclared
 * or unknown layout), tensors that do not fit the geometry, kernel forced on rows or strides that
 * 16-byte accesses do not divide; -ENOTSUP: kernel forced on a device that has none. */
int hc_plan_create(const struct hc_plan_config *config, struct hc_plan **plan_p,
		   char error[HC_PLAN_ERROR_BYTES]) HC_MUST_CHECK;
void hc_plan_destroy(struct hc_plan *plan);

uint64_t hc_plan_page_bytes(const struct hc_plan *plan);
/* Of a pool: how far page_i's first byte is from the buffer's. */
uint64_t hc_plan_pool_offset(const struct hc_plan *plan, uint64_t page_i);
/* By host address, as SGLang does for direct copies of layer_first pools: neighbours merge. Does
 * nothing for other pools and slots, whose order is kept. */
void hc_plan_sort(const struct hc_plan *plan, struct hc_plan_page *pages, size_t n);
/* Descriptors that COPY needs for one layer of these pages. */
uint64_t hc_plan_count(const struct hc_plan *plan, uint32_t layer, const struct hc_plan_page *pages,
		       size_t n);
/* staging_bytes: what one staging buffer holds; 0: none. */
enum hc_plan_way hc_plan_choose(const struct hc_plan *plan, enum hc_plan_direction direction,
				const struct hc_plan_page *pages, size_t n, uint64_t staging_bytes);

/* The next descriptors of one layer, at most n_max; *cursor_p starts at 0. Returns how many; 0:
 * that was all. */
size_t hc_plan_copies(const struct hc_plan *plan, enum hc_plan_direction direction, uint32_t layer,
		      const struct hc_plan_page *pages, size_t n, uint64_t *cursor_p,
		      struct hc_device_copy *copies, size_t n_max);
/* A page copy of one layer between the tensors and host memory (staged: pages in the order of the
 * host, anywhere in device memory). pairs, n_pages: the caller's; a pair has the page's address on
 * the host's side and hc_plan_device_offset on the other. */
void hc_plan_page_copy(const struct hc_plan *plan, enum hc_plan_direction direction, uint32_t layer,
		       bool staged, struct hc_page_copy *copy_p);
uint64_t hc_plan_device_offset(const struct hc_plan *plan, uint32_t device_page);

/* Staged: the bytes of layers [first, first + n) of a page are slice_bytes from slice_offset on. A
 * write always takes all layers. */
uint32_t hc_plan_slice_layers(const struct hc_plan *plan);
uint64_t hc_plan_slice_offset(const struct hc_plan *plan, uint32_t first);
uint64_t hc_plan_slice_bytes(const struct hc_plan *plan, uint32_t n_layers);
/* A whole page between staging and host memory: 1 or 2 descriptors, for a pool may keep K and V
 * apart. Neighbours of the last of copies[0..n_p) are merged into it. */
void hc_plan_stage_copies(const struct hc_plan *plan, enum hc_plan_direction direction,
			  hc_device_addr host, hc_device_addr staging,
			  struct hc_device_copy *copies, size_t *n_p);

#endif
