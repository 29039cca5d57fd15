/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine has: memory, cgroup limits, processors. Reads /proc and /sys at each call; any
 * thread. */
#ifndef HC_UTIL_SYSINFO_H
#define HC_UTIL_SYSINFO_H

#include "util/base.h"

/* MemTotal and MemAvailable of /proc/meminfo in bytes. */
int hc_sysinfo_memory(uint64_t *total_bytes_p, uint64_t *available_bytes_p) HC_MUST_CHECK;
/* Room below the smallest memory limit of this process's cgroups (v2 memory.max and memory.high, v1
 * memory.limit_in_bytes), page cache that can be reclaimed counted as free; UINT64_MAX without a
 * limit. */
uint64_t hc_sysinfo_cgroup_room_bytes(void);
/* Free huge pages of the default size, and that size. 0 and 0 where there are none. */
void hc_sysinfo_hugetlb(uint64_t *free_pages_p, uint64_t *page_bytes_p);
int hc_sysinfo_cpus(void);
/* Thread group of a thread id and the start time of the process (clock ticks since boot, field 22
 * of stat). -ESRCH when it is gone. */
int hc_sysinfo_tgid(int tid, int *tgid_p, uint64_t *start_ticks_p) HC_MUST_CHECK;
/* A thread that is on its way out, or is a zombie, is ended by a signal, as against by exit. Where
 * its exit code may be read (as for ptrace: the same user, CAP_SYS_PTRACE) that is the whole truth;
 * else a thread that another one's exit() ends counts as killed, too. False when it cannot be seen.
 */
bool hc_sysinfo_is_killed(int tid);

#endif
