/* SPDX-License-Identifier: Apache-2.0
 *
 * What control groups leave this process: the limits of its own group and of all above it, cgroup v2 or v1.
 */
#ifndef IG_BASE_CGROUP_H
#define IG_BASE_CGROUP_H

#include <stdint.h>

/* `root`: what stands before /proc and /sys/fs/cgroup: "", or a folder of a test. */

/* Bytes that the groups may still take, where pages of files that nobody used of late can go; UINT64_MAX: no limit. */
uint64_t ig_cgroup_memory(const char *root);
/* The quota in whole processors, rounded up; 0: none. */
int ig_cgroup_cpus(const char *root);

#endif
