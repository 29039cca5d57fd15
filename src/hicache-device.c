/* SPDX-License-Identifier: Apache-2.0 */
/* See hicache.h: devices and their streams. */
#include "controller/pins.h"
#include "hicache-internal.h"

#define HC_DEVICE_PARAMS_BYTES_MIN offsetof(struct hicache_device_params, flags)
/* Numbers of devices beyond it are typing mistakes. */
#define HC_ORDINAL_MAX 4095

struct hc_public_stream {
	struct hc_public_stream *next;
	struct hc_device_stream *stream;
	uint64_t handle;
};

/* "cuda", "cuda:N". */
static int hc_public_ordinal(const char *what, int *ordinal_p)
{
	const char *digits = what + 5;
	char *end;
	long n;

	*ordinal_p = 0;
	if (!strcmp(what, "cuda"))
		return 0;
	if (strncmp(what, "cuda:", 5) || *digits < '0' || *digits > '9')
		return -EINVAL;
	errno = 0;
	n = strtol(digits, &end, 10);
	if (*end || errno || n > HC_ORDINAL_MAX)
		return -EINVAL;
	*ordinal_p = (int)n;
	return 0;
}

static int hc_public_device_find(const char *what, const struct hicache_device_params *params,
				 struct hc_device **device_p)
{
	struct hc_cuda_config cuda = {.library = params->library,
				      .no_batch = params->flags & HICACHE_DEVICE_NO_BATCH};
	struct hc_cpu_config cpu = {.seed = 1};
	bool any = what && !strcmp(what, "auto");
	int rc;

	if (what && !strcmp(what, "cpu"))
		return hc_cpu_open(&cpu, device_p);
	if (!what || (!any && hc_public_ordinal(what, &cuda.ordinal))) {
		hc_error(HC_PUBLIC, "device '%s': there are cuda, cuda:N, cpu and auto",
			 what ? what : "");
		return -EINVAL;
	}
	rc = hc_cuda_open(&cuda, device_p);
	if (any && (rc == -ENODEV || rc == -ENOTSUP)) {
		hc_info(HC_PUBLIC, "no GPU can be used (%s): pages are copied by the CPU",
			strerror(-rc));
		return hc_cpu_open(&cpu, device_p);
	}
	if (rc)
		hc_error(HC_PUBLIC, "device '%s': %s", what,
			 rc == -ENOTSUP ? "the library was built without CUDA" : strerror(-rc));
	return rc;
}

/* What every call asks first. `name`: what else it must have, or NULL. */
static int hc_device_enter(const struct hicache_device *device, const char *call, const char *name,
			   const void *p)
{
	int rc = hc_public_need(call, "the device", device);

	if (!rc && hc_public_device_foreign(device))
		return -ESTALE;
	return rc || !name ? rc : hc_public_need(call, name, p);
}

int hicache_device_open(const char *what, const struct hicache_device_params *given,
			struct hicache_device **device_p)
{
	struct hicache_device_params params;
	struct hicache_device *device;
	int rc = hc_public_need(__func__, "device_p", device_p);

	if (!rc)
		rc = hc_public_params("device params", given, HC_DEVICE_PARAMS_BYTES_MIN, &params,
				      sizeof(params));
	if (!rc && params.flags & ~HICACHE_DEVICE_NO_BATCH) {
		hc_error(HC_PUBLIC, "device params: flags %#x: unknown bits", params.flags);
		rc = -EINVAL;
	}
	if (rc)
		return rc;
	device = hc_zalloc(sizeof(*device));
	if (!device)
		return hc_public_result(__func__, -ENOMEM);
	rc = hc_public_device_find(what, &params, &device->device);
	if (!rc)
		rc = hc_pins_create(device->device, &device->pins);
	if (rc) {
		hc_device_close(device->device);
		free(device);
		return hc_public_result(__func__, rc);
	}
	pthread_mutex_init(&device->lock, NULL);
	device->pid = (int)getpid();
	*device_p = device;
	return 0;
}

int hicache_device_close(struct hicache_device *device)
{
	bool busy;

	if (!device)
		return 0;
	if (hc_public_device_foreign(device))
		return -ESTALE;
	pthread_mutex_lock(&device->lock);
	busy = device->streams || atomic_load(&device->n_transfers);
	pthread_mutex_unlock(&device->lock);
	if (busy) {
		hc_error(HC_PUBLIC,
			 "device: transfers or streams of it are open: close them first");
		return -EBUSY;
	}
	hc_pins_destroy(device->pins);
	hc_device_close(device->device);
	pthread_mutex_destroy(&device->lock);
	free(device);
	return 0;
}

int hicache_device_get(struct hicache_device *device, struct hicache_device_info *info)
{
	struct hicache_device_info own = {0};
	struct hc_device_stats stats;
	struct hc_device_info found;
	int rc = hc_device_enter(device, __func__, "the info", info);

	if (rc)
		return rc;
	hc_device_info(device->device, &found);
	hc_device_stats(device->device, &stats);
	own.free_bytes = found.free_bytes;
	own.registered_bytes = stats.registered_bytes;
	own.n_errors = stats.n_errors;
	own.health = hc_device_health(device->device);
	own.numa_node = found.numa_node;
	own.driver_version = (uint32_t)found.driver_version;
	own.kernels = found.kernels;
	own.batches = found.batch_native;
	snprintf(own.kind, sizeof(own.kind), "%s", hc_device_name(device->device));
	snprintf(own.name, sizeof(own.name), "%s", found.name);
	return hc_public_fill("device info", info, &own, sizeof(own));
}

int hicache_stream_create(struct hicache_device *device, uint64_t *stream_p)
{
	struct hc_public_stream *stream;
	int rc = hc_device_enter(device, __func__, "stream_p", stream_p);

	if (rc)
		return rc;
	stream = hc_zalloc(sizeof(*stream));
	if (!stream)
		return hc_public_result(__func__, -ENOMEM);
	rc = hc_device_stream_create(device->device, HC_DEVICE_PRIORITY_HIGH, &stream->stream);
	if (rc) {
		free(stream);
		return hc_public_result(__func__, rc);
	}
	stream->handle = hc_device_stream_handle(stream->stream);
	pthread_mutex_lock(&device->lock);
	stream->next = device->streams;
	device->streams = stream;
	pthread_mutex_unlock(&device->lock);
	*stream_p = stream->handle;
	return 0;
}

int hicache_stream_destroy(struct hicache_device *device, uint64_t handle)
{
	struct hc_public_stream **at, *stream;
	int rc = hc_device_enter(device, __func__, NULL, NULL);

	if (rc)
		return rc;
	pthread_mutex_lock(&device->lock);
	at = &device->streams;
	while (*at && (*at)->handle != handle)
		at = &(*at)->next;
	stream = *at;
	if (stream)
		*at = stream->next;
	pthread_mutex_unlock(&device->lock);
	if (!stream) {
		hc_error(HC_PUBLIC, "stream %#llx was not made by hicache_stream_create",
			 (unsigned long long)handle);
		return -EINVAL;
	}
	hc_device_stream_destroy(stream->stream);
	free(stream);
	return 0;
}

int hicache_stream_sync(struct hicache_device *device, uint64_t handle, uint32_t timeout_ms)
{
	struct hc_device_stream *stream;
	int rc = hc_device_enter(device, __func__, NULL, NULL);

	if (rc)
		return rc;
	rc = hc_device_stream_import(device->device, handle, &stream);
	if (rc)
		return hc_public_result(__func__, rc);
	rc = hc_device_stream_drain(stream, hc_public_deadline(timeout_ms));
	hc_device_stream_destroy(stream);
	return rc;
}
