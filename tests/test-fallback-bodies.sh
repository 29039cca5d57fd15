#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-mount-bodies.sh where every byte goes through the daemon, whatever the kernel lets us.
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}"
HC_TEST_PASSTHROUGH=off
export HC_TEST_PASSTHROUGH
. "$top_srcdir/tests/test-mount-bodies.sh"
