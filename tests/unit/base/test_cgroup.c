/* Control group limits, from made-up file trees. */
#include "core/base/cgroup.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>

static char root[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int new_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/attnd-test-cgroup-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int drop_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file below the root, with its folders. */
static void put(const char *path, const char *text)
{
    char full[300];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_none(void **state)
{
    (void)state;
    assert_true(cgroup_cpu_milli(root) == UINT64_MAX);
    assert_true(cgroup_memory_bytes(root) == UINT64_MAX);
    put("proc/self/cgroup", "garbage\n0::/gone\n3:cpu\n");
    assert_true(cgroup_cpu_milli(root) == UINT64_MAX);
    assert_true(cgroup_memory_bytes(root) == UINT64_MAX);
}

static void test_v2_least_of_all_levels(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/kube/pod/box\n");
    put("sys/fs/cgroup/kube/pod/box/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/kube/pod/cpu.max", "250000 100000\n");
    put("sys/fs/cgroup/kube/cpu.max", "400000 100000\n");
    put("sys/fs/cgroup/kube/pod/box/memory.max", "2147483648\n");
    put("sys/fs/cgroup/kube/pod/memory.max", "max\n");
    put("sys/fs/cgroup/kube/memory.max", "1073741824\n");
    assert_int_equal(cgroup_cpu_milli(root), 2500);
    assert_int_equal(cgroup_memory_bytes(root), 1 << 30);
}

static void test_v2_in_a_namespace(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    put("sys/fs/cgroup/memory.max", "123456789\n");
    assert_int_equal(cgroup_cpu_milli(root), 500);
    assert_int_equal(cgroup_memory_bytes(root), 123456789);
}

static void test_v1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/other\n1:name=systemd:/\n");
    /* the host's path does not exist inside the container: the root of the mount holds the limits */
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
    put("sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "1000\n"); /* not the CPU controller */
    put("sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cgroup_cpu_milli(root), 3000);
    assert_int_equal(cgroup_memory_bytes(root), 536870912);
}

static void test_v1_without_limits(void **state)
{
    (void)state;
    put("proc/self/cgroup", "5:memory:/a\n4:cpuacct,cpu:/a\n");
    put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(cgroup_cpu_milli(root) == UINT64_MAX);
    assert_true(cgroup_memory_bytes(root) == UINT64_MAX);
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n"); /* nonsense divides nothing */
    assert_true(cgroup_cpu_milli(root) == UINT64_MAX);
}

static void test_hybrid(void **state)
{
    (void)state;
    put("proc/self/cgroup", "4:memory:/a\n1:cpu:/\n0::/b\n");
    put("sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n");
    put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
    assert_int_equal(cgroup_cpu_milli(root), 2000);
    assert_int_equal(cgroup_memory_bytes(root), 1000000);
}

static void test_this_process(void **state)
{
    (void)state;
    assert_in_range(cgroup_memory_limit(), 1 << 20,
                    (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    assert_true(cgroup_memory_limit() <= cgroup_memory_bytes(""));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, new_root, drop_root)
    const struct CMUnitTest tests[] = {
        CASE(test_none),         CASE(test_v2_least_of_all_levels), CASE(test_v2_in_a_namespace),
        CASE(test_v1),           CASE(test_v1_without_limits),      CASE(test_hybrid),
        CASE(test_this_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
