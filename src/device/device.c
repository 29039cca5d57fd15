/* SPDX-License-Identifier: Apache-2.0 */
/* What all devices share: the ranges of memory they know, the checks of arguments and addresses,
 * the counters. See device.h. A call goes on to the implementation only when every address in it
 * was found in a known range. Locks: ranges_lock, a leaf, never held while the device is called. */
#include "device/device.h"

#include "util/log.h"

enum range_kind { RANGE_MEM, RANGE_IMPORT, RANGE_HOST, RANGE_REGISTERED };

void hc_device_init(struct hc_device *device, const struct hc_device_ops *ops)
{
	device->ops = ops;
	pthread_rwlock_init(&device->ranges_lock, NULL);
}

void hc_device_fini(struct hc_device *device)
{
	pthread_rwlock_destroy(&device->ranges_lock);
	free(device->ranges);
}

/* Index of the first range that ends beyond addr. */
static uint32_t range_lower(const struct hc_device *device, hc_device_addr addr)
{
	uint32_t low = 0, high = device->n_ranges;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct hc_device_range *r = &device->ranges[middle];

		if (r->addr + r->size_bytes <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The range that holds all of [addr, addr + size), NULL if none does. */
static struct hc_device_range *range_find(struct hc_device *device, hc_device_addr addr,
					  uint64_t size_bytes)
{
	uint32_t i = range_lower(device, addr);
	struct hc_device_range *r = &device->ranges[i];

	if (i == device->n_ranges || addr < r->addr || size_bytes > r->size_bytes ||
	    addr - r->addr > r->size_bytes - size_bytes)
		return NULL;
	return r;
}

static struct hc_device_range *range_at(struct hc_device *device, hc_device_addr addr, int kind)
{
	struct hc_device_range *r = range_find(device, addr, 1);

	return r && r->addr == addr && r->kind == kind ? r : NULL;
}

static int ranges_grow(struct hc_device *device)
{
	uint32_t room = device->n_ranges_room ? device->n_ranges_room * 2 : 32;
	struct hc_device_range *ranges;

	if (device->n_ranges < device->n_ranges_room)
		return 0;
	if (device->n_ranges == HC_DEVICE_RANGES_MAX)
		return -ENOMEM;
	ranges = realloc(device->ranges, room * sizeof(*ranges));
	if (!ranges)
		return -ENOMEM;
	device->ranges = ranges;
	device->n_ranges_room = room;
	return 0;
}

static int range_add_locked(struct hc_device *device, const struct hc_device_range *range)
{
	uint32_t i = range_lower(device, range->addr);
	int err;

	if (range->addr + range->size_bytes < range->addr)
		return -EINVAL;
	if (i < device->n_ranges && device->ranges[i].addr < range->addr + range->size_bytes)
		return -EEXIST;
	err = ranges_grow(device);
	if (err)
		return err;
	memmove(&device->ranges[i + 1], &device->ranges[i],
		(device->n_ranges - i) * sizeof(*device->ranges));
	device->ranges[i] = *range;
	device->n_ranges++;
	return 0;
}

static int range_add(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes, void *real,
		     enum range_kind kind, bool read_only)
{
	struct hc_device_range range = {addr, size_bytes, real, 1, (uint8_t)kind, read_only};
	int err;

	pthread_rwlock_wrlock(&device->ranges_lock);
	err = range_add_locked(device, &range);
	pthread_rwlock_unlock(&device->ranges_lock);
	if (err)
		hc_error(device->ops->name, "%#llx, %llu bytes: %s", (unsigned long long)addr,
			 (unsigned long long)size_bytes,
			 err == -EEXIST ? "overlaps memory that is known already"
					: "cannot be noted: too many ranges, or no memory");
	return err;
}

/* Takes the range out; false while more imports hold it. Programmer error if there is none. */
static bool range_remove(struct hc_device *device, hc_device_addr addr, enum range_kind kind,
			 struct hc_device_range *range_p)
{
	struct hc_device_range *r;
	bool gone;

	pthread_rwlock_wrlock(&device->ranges_lock);
	r = range_at(device, addr, kind);
	hc_assert(r);
	gone = --r->n_refs == 0;
	*range_p = *r;
	if (gone) {
		device->n_ranges--;
		memmove(r, r + 1, (size_t)(&device->ranges[device->n_ranges] - r) * sizeof(*r));
	}
	pthread_rwlock_unlock(&device->ranges_lock);
	return gone;
}

void *hc_device_real(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes)
{
	struct hc_device_range *r;
	void *real = NULL;

	pthread_rwlock_rdlock(&device->ranges_lock);
	r = range_find(device, addr, size_bytes);
	if (r && r->real)
		real = (char *)r->real + (addr - r->addr);
	pthread_rwlock_unlock(&device->ranges_lock);
	return real;
}

hc_device_addr hc_device_alias(struct hc_device *device, const void *host, uint64_t size_bytes)
{
	hc_device_addr alias = 0;

	pthread_rwlock_rdlock(&device->ranges_lock);
	for (uint32_t i = 0; i < device->n_ranges && !alias; i++) {
		const struct hc_device_range *r = &device->ranges[i];
		uint64_t offset = (uint64_t)((uintptr_t)host - (uintptr_t)r->real);

		if ((r->kind == RANGE_HOST || r->kind == RANGE_REGISTERED) &&
		    size_bytes <= r->size_bytes && offset <= r->size_bytes - size_bytes)
			alias = r->addr + offset;
	}
	pthread_rwlock_unlock(&device->ranges_lock);
	return alias;
}

static int count(struct hc_device *device, int err)
{
	if (err && err != -EINPROGRESS)
		device->n_errors++;
	return err;
}

void hc_device_close(struct hc_device *device)
{
	if (device)
		device->ops->close(device);
}

const char *hc_device_name(const struct hc_device *device)
{
	return device->ops->name;
}

int hc_device_health(struct hc_device *device)
{
	return device->ops->health(device);
}

void hc_device_info(struct hc_device *device, struct hc_device_info *info_p)
{
	memset(info_p, 0, sizeof(*info_p));
	info_p->numa_node = -1;
	device->ops->info(device, info_p);
}

void hc_device_stats(struct hc_device *device, struct hc_device_stats *stats_p)
{
	*stats_p = (struct hc_device_stats){
		.n_copies = device->n_copies,
		.copy_bytes = device->copy_bytes,
		.n_batches = device->n_batches,
		.n_page_copies = device->n_page_copies,
		.page_copy_bytes = device->page_copy_bytes,
		.n_records = device->n_records,
		.n_waits = device->n_waits,
		.n_errors = device->n_errors,
		.registered_bytes = device->registered_bytes,
	};
}

int hc_device_mem_alloc(struct hc_device *device, uint64_t size_bytes, hc_device_addr *addr_p)
{
	hc_device_addr addr;
	void *real = NULL;
	int err = size_bytes ? device->ops->mem_alloc(device, size_bytes, &addr, &real) : -EINVAL;

	if (err)
		return count(device, err);
	err = range_add(device, addr, size_bytes, real, RANGE_MEM, false);
	if (err) {
		device->ops->mem_free(device, addr, size_bytes);
		return count(device, err);
	}
	*addr_p = addr;
	return 0;
}

void hc_device_mem_free(struct hc_device *device, hc_device_addr addr)
{
	struct hc_device_range range;

	if (addr && range_remove(device, addr, RANGE_MEM, &range))
		device->ops->mem_free(device, addr, range.size_bytes);
}

/* One more holder of an import that is there already. */
static bool import_again(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes)
{
	struct hc_device_range *r;
	bool again;

	pthread_rwlock_wrlock(&device->ranges_lock);
	r = range_at(device, addr, RANGE_IMPORT);
	again = r && r->size_bytes == size_bytes;
	if (again)
		r->n_refs++;
	pthread_rwlock_unlock(&device->ranges_lock);
	return again;
}

int hc_device_mem_import(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes)
{
	void *real = NULL;
	int err;

	if (!addr || !size_bytes)
		return count(device, -EINVAL);
	if (import_again(device, addr, size_bytes))
		return 0;
	err = device->ops->mem_import(device, addr, size_bytes, &real);
	if (!err)
		err = range_add(device, addr, size_bytes, real, RANGE_IMPORT, false);
	return count(device, err);
}

void hc_device_mem_forget(struct hc_device *device, hc_device_addr addr)
{
	struct hc_device_range range;

	if (addr)
		range_remove(device, addr, RANGE_IMPORT, &range);
}

int hc_device_host_alloc(struct hc_device *device, uint64_t size_bytes, void **host_p,
			 hc_device_addr *addr_p)
{
	hc_device_addr addr;
	void *host;
	int err = size_bytes ? device->ops->host_alloc(device, size_bytes, &host, &addr) : -EINVAL;

	if (err)
		return count(device, err);
	err = range_add(device, addr, size_bytes, host, RANGE_HOST, false);
	if (err) {
		device->ops->host_free(device, host, addr, size_bytes);
		return count(device, err);
	}
	*host_p = host;
	*addr_p = addr;
	return 0;
}

void hc_device_host_free(struct hc_device *device, hc_device_addr addr)
{
	struct hc_device_range range;

	if (addr && range_remove(device, addr, RANGE_HOST, &range))
		device->ops->host_free(device, range.real, addr, range.size_bytes);
}

/* Two registrations of the same host bytes, at whatever aliases. */
static bool host_overlaps(struct hc_device *device, const void *host, uint64_t size_bytes)
{
	uintptr_t at = (uintptr_t)host;
	bool overlaps = false;

	pthread_rwlock_rdlock(&device->ranges_lock);
	for (uint32_t i = 0; i < device->n_ranges && !overlaps; i++) {
		const struct hc_device_range *r = &device->ranges[i];
		uintptr_t real = (uintptr_t)r->real;

		overlaps = (r->kind == RANGE_HOST || r->kind == RANGE_REGISTERED) &&
			   at < real + r->size_bytes && real < at + size_bytes;
	}
	pthread_rwlock_unlock(&device->ranges_lock);
	return overlaps;
}

int hc_device_host_register(struct hc_device *device, void *host, uint64_t size_bytes,
			    bool read_only, hc_device_addr *addr_p)
{
	hc_device_addr addr;
	int err;

	if (!host || !size_bytes || (uintptr_t)host % HC_BLOCK_BYTES ||
	    size_bytes % HC_BLOCK_BYTES) {
		hc_error(device->ops->name,
			 "cannot register %p, %llu bytes: not made of whole 4 KiB blocks", host,
			 (unsigned long long)size_bytes);
		return count(device, -EINVAL);
	}
	if (host_overlaps(device, host, size_bytes)) {
		hc_error(device->ops->name,
			 "cannot register %p, %llu bytes: overlaps a registration", host,
			 (unsigned long long)size_bytes);
		return count(device, -EEXIST);
	}
	err = device->ops->host_register(device, host, size_bytes, read_only, &addr);
	if (err)
		return count(device, err);
	err = range_add(device, addr, size_bytes, host, RANGE_REGISTERED, read_only);
	if (err) {
		device->ops->host_unregister(device, host, addr, size_bytes);
		return count(device, err);
	}
	device->registered_bytes += size_bytes;
	*addr_p = addr;
	return 0;
}

void hc_device_host_unregister(struct hc_device *device, hc_device_addr addr)
{
	struct hc_device_range range;

	if (!addr || !range_remove(device, addr, RANGE_REGISTERED, &range))
		return;
	device->registered_bytes -= range.size_bytes;
	device->ops->host_unregister(device, range.real, addr, range.size_bytes);
}

int hc_device_stream_create(struct hc_device *device, enum hc_device_priority priority,
			    struct hc_device_stream **stream_p)
{
	return count(device, device->ops->stream_create(device, priority, stream_p));
}

int hc_device_stream_import(struct hc_device *device, uint64_t handle,
			    struct hc_device_stream **stream_p)
{
	return count(device, device->ops->stream_import(device, handle, stream_p));
}

void hc_device_stream_destroy(struct hc_device_stream *stream)
{
	if (stream)
		stream->device->ops->stream_destroy(stream);
}

uint64_t hc_device_stream_handle(struct hc_device_stream *stream)
{
	return stream->device->ops->stream_handle(stream);
}

int hc_device_stream_check(struct hc_device_stream *stream)
{
	return count(stream->device, stream->device->ops->stream_check(stream));
}

int hc_device_stream_drain(struct hc_device_stream *stream, uint64_t deadline_ns)
{
	return count(stream->device, stream->device->ops->stream_drain(stream, deadline_ns));
}

int hc_device_stream_wait(struct hc_device_stream *stream, struct hc_device_event *event)
{
	hc_assert(stream->device == event->device);
	stream->device->n_waits++;
	return count(stream->device, stream->device->ops->stream_wait(stream, event));
}

int hc_device_event_create(struct hc_device *device, struct hc_device_event **event_p)
{
	return count(device, device->ops->event_create(device, event_p));
}

void hc_device_event_destroy(struct hc_device_event *event)
{
	if (event)
		event->device->ops->event_destroy(event);
}

int hc_device_event_record(struct hc_device_event *event, struct hc_device_stream *stream)
{
	hc_assert(stream->device == event->device);
	stream->device->n_records++;
	return count(stream->device, stream->device->ops->event_record(event, stream));
}

int hc_device_event_query(struct hc_device_event *event)
{
	return count(event->device, event->device->ops->event_query(event));
}

static bool range_ok(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes, bool write)
{
	const struct hc_device_range *r = range_find(device, addr, size_bytes);

	return r && !(write && r->read_only);
}

static int refuse_address(struct hc_device *device, hc_device_addr src, hc_device_addr dst,
			  uint64_t size_bytes)
{
	hc_error(device->ops->name,
		 "copy of %llu bytes from %#llx to %#llx refused: not all of it is in memory that "
		 "was registered, allocated or imported, or the destination is read-only",
		 (unsigned long long)size_bytes, (unsigned long long)src, (unsigned long long)dst);
	return count(device, -EFAULT);
}

int hc_device_copy(struct hc_device_stream *stream, const struct hc_device_copy *copies, size_t n)
{
	struct hc_device *device = stream->device;
	uint64_t size_bytes = 0;
	size_t i;

	if (!n)
		return 0;
	if (n > HC_DEVICE_BATCH_MAX)
		return count(device, -EINVAL);
	pthread_rwlock_rdlock(&device->ranges_lock);
	for (i = 0; i < n; i++) {
		const struct hc_device_copy *c = &copies[i];

		if (!c->size_bytes || !range_ok(device, c->src, c->size_bytes, false) ||
		    !range_ok(device, c->dst, c->size_bytes, true))
			break;
		size_bytes += c->size_bytes;
	}
	pthread_rwlock_unlock(&device->ranges_lock);
	if (i < n && !copies[i].size_bytes)
		return count(device, -EINVAL);
	if (i < n)
		return refuse_address(device, copies[i].src, copies[i].dst, copies[i].size_bytes);
	device->n_copies += n;
	device->copy_bytes += size_bytes;
	device->n_batches++;
	return count(device, device->ops->copy(stream, copies, n));
}

/* One side of a page copy: every run within the loops of `dims` (a bit each), the first at addr. A
 * box that is not in one range is cut along its longest stride: K and V may be two buffers. */
static bool box_ok(struct hc_device *device, const struct hc_page_copy *c, const int64_t *stride,
		   hc_device_addr addr, uint32_t dims, bool write)
{
	int64_t low = 0, end = c->run_bytes;
	int longest = -1;

	for (int i = 0; i < HC_PAGE_COPY_DIMS; i++) {
		int64_t reach = (int64_t)(c->count[i] - 1) * stride[i];

		if (!(dims & 1u << i) || c->count[i] == 1)
			continue;
		if (reach < 0)
			low += reach;
		else
			end += reach;
		if (longest < 0 || llabs(stride[i]) > llabs(stride[longest]))
			longest = i;
	}
	if (range_ok(device, addr + (uint64_t)low, (uint64_t)(end - low), write))
		return true;
	if (longest < 0)
		return false;
	for (uint32_t i = 0; i < c->count[longest]; i++) {
		if (!box_ok(device, c, stride, addr + (uint64_t)stride[longest] * i,
			    dims & ~(1u << longest), write))
			return false;
	}
	return true;
}

/* i_p: the first pair that is not wholly in known memory. */
static int check_pairs(struct hc_device *device, const struct hc_page_copy *c,
		       const struct hc_page_pair *pairs, uint32_t *i_p)
{
	const uint32_t all = (1u << HC_PAGE_COPY_DIMS) - 1;

	for (uint32_t i = 0; i < c->n_pages; i++) {
		*i_p = i;
		if ((pairs[i].src | pairs[i].dst) % HC_PAGE_COPY_UNIT)
			return -EINVAL;
		if (!box_ok(device, c, c->src_stride, c->src + pairs[i].src, all, false) ||
		    !box_ok(device, c, c->dst_stride, c->dst + pairs[i].dst, all, true))
			return -EFAULT;
	}
	return 0;
}

int hc_device_page_copy(struct hc_device_stream *stream, enum hc_page_copy_kind kind,
			const struct hc_page_copy *copy)
{
	struct hc_device *device = stream->device;
	const struct hc_page_pair *pairs;
	uint32_t i = 0;
	int err = hc_page_copy_check(copy);

	if (err || (unsigned int)kind >= HC_PAGE_COPY_KINDS) {
		hc_error(device->ops->name,
			 "page copy refused: runs of %u bytes, %u pages; sizes, strides and "
			 "addresses must be multiples of %d",
			 copy->run_bytes, copy->n_pages, HC_PAGE_COPY_UNIT);
		return count(device, -EINVAL);
	}
	pairs = hc_device_real(device, copy->pairs, copy->n_pages * sizeof(*pairs));
	if (!pairs)
		return refuse_address(device, copy->pairs, 0, copy->n_pages * sizeof(*pairs));
	pthread_rwlock_rdlock(&device->ranges_lock);
	err = check_pairs(device, copy, pairs, &i);
	pthread_rwlock_unlock(&device->ranges_lock);
	if (err == -EFAULT)
		return refuse_address(device, copy->src + pairs[i].src, copy->dst + pairs[i].dst,
				      copy->run_bytes);
	if (err)
		return count(device, err);
	device->n_page_copies++;
	device->page_copy_bytes +=
		(uint64_t)hc_page_copy_units_per_page(copy) * copy->n_pages * HC_PAGE_COPY_UNIT;
	return count(device, device->ops->page_copy(stream, kind, copy));
}
