/* SPDX-License-Identifier: Apache-2.0 */
/* See tensors.h. Tensors may overlap in memory, as K and V of one tensor of pages do: what overlaps
 * is one range for the device. */
#include "controller/tensors.h"

#include "util/log.h"

struct range {
	hc_device_addr addr, end;
};

struct hc_tensors {
	struct hc_device *device;
	hc_device_addr *k, *v;
	bool owned;
	uint32_t n_layers;
	uint32_t n_known; /* of the ranges */
	struct range *ranges;
};

const hc_device_addr *hc_tensors_k(const struct hc_tensors *tensors)
{
	return tensors->k;
}

const hc_device_addr *hc_tensors_v(const struct hc_tensors *tensors)
{
	return tensors->v;
}

void hc_tensors_destroy(struct hc_tensors *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->n_known; i++) {
		if (t->owned)
			hc_device_mem_free(t->device, t->ranges[i].addr);
		else
			hc_device_mem_forget(t->device, t->ranges[i].addr);
	}
	free(t->ranges);
	free(t->k);
	free(t->v);
	free(t);
}

/* From a tensor's first byte to behind its last. 0: beyond all memory. */
static uint64_t extent(const struct hc_plan_config *plan)
{
	const struct hc_geometry *g = &plan->geometry;
	uint64_t vector = hc_geometry_vector_bytes(g);
	uint64_t head = plan->head_stride ? plan->head_stride : vector;
	uint64_t token = plan->token_stride ? plan->token_stride : g->n_heads * vector;
	uint64_t page = plan->page_stride ? plan->page_stride : g->n_tokens * token;
	uint64_t bytes, all = vector;

	if (__builtin_mul_overflow(page, plan->device_pages - 1, &bytes) ||
	    __builtin_add_overflow(all, bytes, &all) ||
	    __builtin_mul_overflow(token, (uint64_t)g->n_tokens - 1, &bytes) ||
	    __builtin_add_overflow(all, bytes, &all) ||
	    __builtin_mul_overflow(head, (uint64_t)g->n_heads - 1, &bytes) ||
	    __builtin_add_overflow(all, bytes, &all) || all > INT64_MAX)
		return 0;
	return all;
}

static int by_address(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

/* The tensors' ranges, those that overlap joined. */
static uint32_t join(struct hc_tensors *t, uint64_t bytes)
{
	uint32_t n = 0, n_all = 0;

	for (uint32_t i = 0; i < t->n_layers; i++) {
		t->ranges[n_all++] = (struct range){t->k[i], t->k[i] + bytes};
		if (t->v)
			t->ranges[n_all++] = (struct range){t->v[i], t->v[i] + bytes};
	}
	qsort(t->ranges, n_all, sizeof(*t->ranges), by_address);
	for (uint32_t i = 0; i < n_all; i++) {
		struct range *last = n ? &t->ranges[n - 1] : NULL;

		if (last && t->ranges[i].addr < last->end)
			last->end = hc_max_u64(last->end, t->ranges[i].end);
		else
			t->ranges[n++] = t->ranges[i];
	}
	return n;
}

static int import_all(struct hc_tensors *t, const struct hc_plan_config *plan, uint64_t bytes,
		      char *error)
{
	uint32_t n;
	int err = 0;

	for (uint32_t i = 0; i < t->n_layers; i++) {
		t->k[i] = plan->k[i];
		if (t->v)
			t->v[i] = plan->v[i];
		if (!t->k[i] || (t->v && !t->v[i]) || t->k[i] > UINT64_MAX - bytes ||
		    (t->v && t->v[i] > UINT64_MAX - bytes)) {
			snprintf(error, HC_PLAN_ERROR_BYTES, "layer %u has no tensor", i);
			return -EINVAL;
		}
	}
	n = join(t, bytes);
	while (t->n_known < n && !err) {
		struct range *r = &t->ranges[t->n_known];

		err = hc_device_mem_import(t->device, r->addr, r->end - r->addr);
		t->n_known += !err;
		if (err)
			snprintf(error, HC_PLAN_ERROR_BYTES,
				 "tensors at %#llx, %llu bytes: %s: they must be whole tensors of "
				 "this device",
				 (unsigned long long)r->addr,
				 (unsigned long long)(r->end - r->addr), strerror(-err));
	}
	return err;
}

static int allocate_all(struct hc_tensors *t, uint64_t bytes, char *error)
{
	uint32_t n = t->v ? 2 * t->n_layers : t->n_layers;
	int err = 0;

	t->owned = true;
	for (uint32_t i = 0; i < n && !err; i++) {
		hc_device_addr addr = 0;

		err = hc_device_mem_alloc(t->device, bytes, &addr);
		if (err) {
			snprintf(error, HC_PLAN_ERROR_BYTES,
				 "no device memory for %u tensors of %llu bytes: %s", n,
				 (unsigned long long)bytes, strerror(-err));
			break;
		}
		t->ranges[t->n_known++] = (struct range){addr, addr + bytes};
		*(i < t->n_layers ? &t->k[i] : &t->v[i - t->n_layers]) = addr;
	}
	return err;
}

int hc_tensors_create(struct hc_device *device, const struct hc_plan_config *plan,
		      struct hc_tensors **tensors_p, char error[HC_PLAN_ERROR_BYTES])
{
	const struct hc_geometry *g = &plan->geometry;
	uint64_t bytes = plan->device_pages && !hc_geometry_check(g) ? extent(plan) : 0;
	struct hc_tensors *t;
	int err = -ENOMEM;

	if (!bytes || (plan->k && !plan->v != (g->n_kv == 1)) || (!plan->k && plan->v)) {
		snprintf(error, HC_PLAN_ERROR_BYTES,
			 "%llu pages on the device: the number, the strides or the tensors (K and "
			 "V, "
			 "or K alone with MLA) cannot be",
			 (unsigned long long)plan->device_pages);
		return -EINVAL;
	}
	t = hc_zalloc(sizeof(*t));
	if (t) {
		t->device = device;
		t->n_layers = g->n_layers;
		t->k = hc_zalloc(g->n_layers * sizeof(*t->k));
		t->v = g->n_kv == 2 ? hc_zalloc(g->n_layers * sizeof(*t->v)) : NULL;
		t->ranges = hc_zalloc((size_t)2 * g->n_layers * sizeof(*t->ranges));
	}
	if (!t || !t->k || (g->n_kv == 2 && !t->v) || !t->ranges)
		snprintf(error, HC_PLAN_ERROR_BYTES, "no memory");
	else if (plan->k)
		err = import_all(t, plan, bytes, error);
	else
		err = allocate_all(t, bytes, error);
	if (err) {
		hc_tensors_destroy(t);
		return err;
	}
	*tensors_p = t;
	return 0;
}
