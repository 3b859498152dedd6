/* What the control groups of this process allow (cgroup v1 and v2): every group up to the root of the mount counts.
 * Thread: any. */
#ifndef ATN_CGROUP_H
#define ATN_CGROUP_H

#include <stdint.h>

/* fs_root goes before /proc and /sys: "" for the machine itself, a made-up tree in tests. */
uint64_t cgroup_cpu_milli(const char *fs_root);    /* thousandths of a CPU; UINT64_MAX: no limit */
uint64_t cgroup_memory_bytes(const char *fs_root); /* UINT64_MAX: no limit */
/* Bytes of memory that this process may use: its groups' limit or the machine's. */
uint64_t cgroup_memory_limit(void);

#endif
