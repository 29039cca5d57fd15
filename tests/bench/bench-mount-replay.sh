#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All of a public request trace through the mount, at 5 and 10 % of its unique blocks, a process for each request; and at
# 5 % by 16 processes in turns. Prints hit ratios beside those of evicting least recently used leaves first.
HC_REPLAY_ALL=yes HC_REPLAY_SECONDS=3000 exec sh "${top_srcdir:-.}/tests/test-mount-replay.sh"
