/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HICACHE_H
#define HICACHE_H
#endif
