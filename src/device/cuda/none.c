/* SPDX-License-Identifier: Apache-2.0 */
/* The device cuda of a build without the toolkit. */
#include "device/device.h"
#include "util/log.h"

int hc_cuda_open(const struct hc_cuda_config *config, struct hc_device **device_p)
{
	hc_error("cuda", "this build has no CUDA: configure with --with-cuda, or use device cpu");
	return -ENOTSUP;
}
