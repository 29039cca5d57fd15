/* SPDX-License-Identifier: Apache-2.0 */
/* Which host memory is registered with a device: each piece once, however many transfers use it,
 * for a driver refuses what is registered already. Long lock: registering takes 0.1 s a GiB. */
#ifndef HC_CONTROLLER_PINS_H
#define HC_CONTROLLER_PINS_H

#include "device/device.h"

/* Segments of all pools, and imported buffers. */
#define HC_PINS_MAX 4096

struct hc_pins;

int hc_pins_create(struct hc_device *device, struct hc_pins **pins_p) HC_MUST_CHECK;
/* Nothing may be in use. */
void hc_pins_destroy(struct hc_pins *pins);
/* Registers it, or uses the registration that is there. Errors of hc_device_host_register; what
 * failed is not tried again while somebody uses it. Undone by hc_pins_put, also after an error but
 * -ENOSPC (HC_PINS_MAX). */
int hc_pins_get(struct hc_pins *pins, void *host, uint64_t size_bytes,
		hc_device_addr *addr_p) HC_MUST_CHECK;
void hc_pins_put(struct hc_pins *pins, void *host);

#endif
