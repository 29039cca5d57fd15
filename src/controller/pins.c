/* SPDX-License-Identifier: Apache-2.0 */
/* See pins.h. A list: there are as many pieces as a pool has segments. */
#include "controller/pins.h"

#include "util/log.h"

struct pin {
	void *host;
	uint64_t size_bytes;
	hc_device_addr addr;
	uint32_t n_users;
	int err;
};

struct hc_pins {
	struct hc_device *device;
	pthread_mutex_t lock;
	uint32_t n;
	struct pin pins[HC_PINS_MAX];
};

int hc_pins_create(struct hc_device *device, struct hc_pins **pins_p)
{
	struct hc_pins *pins = hc_zalloc(sizeof(*pins));

	if (!pins)
		return -ENOMEM;
	pins->device = device;
	pthread_mutex_init(&pins->lock, NULL);
	*pins_p = pins;
	return 0;
}

void hc_pins_destroy(struct hc_pins *pins)
{
	if (!pins)
		return;
	hc_assert(!pins->n);
	pthread_mutex_destroy(&pins->lock);
	free(pins);
}

static struct pin *find_locked(struct hc_pins *pins, void *host)
{
	for (uint32_t i = 0; i < pins->n; i++) {
		if (pins->pins[i].host == host)
			return &pins->pins[i];
	}
	return NULL;
}

static struct pin *add_locked(struct hc_pins *pins, void *host, uint64_t size_bytes)
{
	struct pin *pin = &pins->pins[pins->n];

	if (pins->n == HC_PINS_MAX) {
		hc_error("controller", "%d pieces of host memory are registered: no more",
			 HC_PINS_MAX);
		return NULL;
	}
	pins->n++;
	*pin = (struct pin){.host = host, .size_bytes = size_bytes};
	pin->err = hc_device_host_register(pins->device, host, size_bytes, false, &pin->addr);
	return pin;
}

int hc_pins_get(struct hc_pins *pins, void *host, uint64_t size_bytes, hc_device_addr *addr_p)
{
	struct pin *pin;
	int err = -ENOSPC;

	pthread_mutex_lock(&pins->lock);
	pin = find_locked(pins, host);
	if (!pin)
		pin = add_locked(pins, host, size_bytes);
	if (pin) {
		pin->n_users++;
		err = pin->size_bytes < size_bytes ? -EEXIST : pin->err;
		if (!err)
			*addr_p = pin->addr;
	}
	pthread_mutex_unlock(&pins->lock);
	return err;
}

void hc_pins_put(struct hc_pins *pins, void *host)
{
	struct pin *pin;

	pthread_mutex_lock(&pins->lock);
	pin = find_locked(pins, host);
	hc_assert(pin && pin->n_users);
	if (!--pin->n_users) {
		if (!pin->err)
			hc_device_host_unregister(pins->device, pin->addr);
		*pin = pins->pins[--pins->n];
	}
	pthread_mutex_unlock(&pins->lock);
}
