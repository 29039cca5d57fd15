/* SPDX-License-Identifier: Apache-2.0 */
/* The device's side of transfers: a tensor for K and one for V in each layer. An engine's are made
 * known to the device by pointer and strides, and stay the engine's; else they are allocated here,
 * tight. Not locked; immutable once made. */
#ifndef HC_CONTROLLER_TENSORS_H
#define HC_CONTROLLER_TENSORS_H

#include "device/plan.h"

struct hc_tensors;

/* From a plan's configuration: geometry, k and v (NULL: to be allocated), device_pages, strides.
 * error: as of a plan. -EXDEV: not memory of this device. */
int hc_tensors_create(struct hc_device *device, const struct hc_plan_config *plan,
		      struct hc_tensors **tensors_p, char error[HC_PLAN_ERROR_BYTES]) HC_MUST_CHECK;
void hc_tensors_destroy(struct hc_tensors *tensors);
/* Of each layer; v: NULL where a page has one object. */
const hc_device_addr *hc_tensors_k(const struct hc_tensors *tensors);
const hc_device_addr *hc_tensors_v(const struct hc_tensors *tensors);

#endif
