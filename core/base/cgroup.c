/* Control group limits, read once at start.
 *
 * /proc/self/cgroup names this process' group for each hierarchy ("0::/a/b" in v2, "4:cpu,cpuacct:/a/b" in v1). A limit may
 * sit on any ancestor, so the files of every level are read. Inside a container the path may be that of the host while
 * the mount starts at the container's own group: levels that do not exist are skipped, the root of the mount always counts. */
#include "core/base/cgroup.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 4096 };

/* The first bytes of a small file as text. */
static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool read_level(const char *dir, const char *file, char *text, size_t size)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", dir, file);
    return n > 0 && (size_t)n < sizeof path && read_text(path, text, size);
}

static uint64_t cpu_at(const char *dir, bool v2)
{
    char text[64];
    int64_t quota = -1, period = 0;
    if (v2) { /* "max 100000" or "150000 100000" */
        if (read_level(dir, "cpu.max", text, sizeof text)) {
            sscanf(text, "%" SCNd64 " %" SCNd64, &quota, &period);
        }
    } else if (read_level(dir, "cpu.cfs_quota_us", text, sizeof text)) {
        quota = strtoll(text, NULL, 10);
        period = read_level(dir, "cpu.cfs_period_us", text, sizeof text) ? strtoll(text, NULL, 10) : 0;
    }
    if (quota <= 0 || period <= 0 || quota > INT64_MAX / 1000) {
        return UINT64_MAX;
    }
    return (uint64_t)quota * 1000 / (uint64_t)period;
}

static uint64_t memory_at(const char *dir, bool v2)
{
    char text[64];
    char *end;
    if (!read_level(dir, v2 ? "memory.max" : "memory.limit_in_bytes", text, sizeof text)) {
        return UINT64_MAX;
    }
    uint64_t bytes = strtoull(text, &end, 10);
    /* v1 writes "no limit" as the greatest number of whole pages; v2 as "max", which is no number. */
    return end == text || bytes > INT64_MAX / 2 ? UINT64_MAX : bytes;
}

/* The least limit of the group `path` and its ancestors below `mount`. */
static uint64_t least(const char *mount, const char *path, bool v2, uint64_t (*limit_at)(const char *, bool))
{
    char dir[PATH_BYTES];
    size_t root = strlen(mount);
    int n = snprintf(dir, sizeof dir, "%s%s", mount, path);
    if (n < 0 || (size_t)n >= sizeof dir) {
        dir[root] = '\0';
    }
    uint64_t low = UINT64_MAX;
    for (;;) {
        uint64_t here = limit_at(dir, v2);
        low = here < low ? here : low;
        char *slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < root) {
            return low;
        }
        *slash = '\0';
    }
}

/* Is name one of the comma-separated words of list? */
static bool lists(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

static uint64_t limit(const char *fs_root, const char *controller, uint64_t (*limit_at)(const char *, bool))
{
    char text[LINE_BYTES], path[PATH_BYTES], mount[PATH_BYTES];
    uint64_t low = UINT64_MAX;
    int n = snprintf(path, sizeof path, "%s/proc/self/cgroup", fs_root);
    if (n < 0 || (size_t)n >= sizeof path || !read_text(path, text, sizeof text)) {
        return low;
    }
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *names = strchr(line, ':');
        char *group = names != NULL ? strchr(names + 1, ':') : NULL;
        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        names++;
        if (strcmp(group, "/") == 0) {
            *group = '\0';
        }
        bool v2 = *names == '\0';
        if (!v2 && !lists(names, controller)) {
            continue;
        }
        /* v1 hierarchies are mounted under their list of controllers, with links from each single name. v2 is the mount
         * itself, or "unified" beside v1. */
        const char *const folders[] = {v2 ? "" : names, v2 ? "unified" : controller};
        for (size_t i = 0; i < 2; i++) {
            n = snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", fs_root, *folders[i] ? "/" : "", folders[i]);
            if (n > 0 && (size_t)n < sizeof mount) {
                uint64_t here = least(mount, group, v2, limit_at);
                low = here < low ? here : low;
            }
        }
    }
    return low;
}

uint64_t cgroup_cpu_milli(const char *fs_root)
{
    return limit(fs_root, "cpu", cpu_at);
}

uint64_t cgroup_memory_bytes(const char *fs_root)
{
    return limit(fs_root, "memory", memory_at);
}

uint64_t cgroup_memory_limit(void)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t group = cgroup_memory_bytes("");
    return group < machine ? group : machine;
}
