/* SPDX-License-Identifier: Apache-2.0
 *
 * What control groups leave a process, read from folders that look like /proc and /sys/fs/cgroup.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <ftw.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/cgroup.h"
#include "unit/temp_dir.h"

static temp_dir dir;

/* Writes a file and makes the folders that it lies in. */
static void put(const char *name, const char *text) {
    char path[512];
    temp_dir_path(&dir, name, path, sizeof path);
    for (char *at = path + strlen(dir.path) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0700);
    }
    temp_dir_write(&dir, name, text, strlen(text));
}

static int open_dir(void **state) {
    (void)state;
    dir = temp_dir_open();
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where) {
    (void)st, (void)kind, (void)where;
    return remove(path);
}

static int close_dir(void **state) {
    (void)state;
    return nftw(dir.path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void nothing_is_told(void **state) {
    (void)state;
    assert_true(ig_cgroup_memory(dir.path) == UINT64_MAX);
    assert_int_equal(ig_cgroup_cpus(dir.path), 0);
    put("proc/self/cgroup", "0::/a/b\n"); /* but no such folder is seen */
    assert_true(ig_cgroup_memory(dir.path) == UINT64_MAX);
    assert_int_equal(ig_cgroup_cpus(dir.path), 0);
}

/* Of a container: its own group is the topmost that it sees. */
static void the_topmost(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_true(ig_cgroup_memory(dir.path) == UINT64_MAX);
    assert_int_equal(ig_cgroup_cpus(dir.path), 0);
    put("sys/fs/cgroup/memory.max", "1000000\n");
    assert_int_equal(ig_cgroup_memory(dir.path), 1000000);
    put("sys/fs/cgroup/memory.current", "400000\n");
    put("sys/fs/cgroup/memory.stat", "anon 5\nfile 250000\ninactive_file 100000\nactive_file 150000\n");
    assert_int_equal(ig_cgroup_memory(dir.path), 700000);
    put("sys/fs/cgroup/memory.current", "1200000\n");
    assert_int_equal(ig_cgroup_memory(dir.path), 0);
    put("sys/fs/cgroup/cpu.max", "250000 100000\n");
    assert_int_equal(ig_cgroup_cpus(dir.path), 3);
    put("proc/self/cgroup", "0::/../../elsewhere\n");
    assert_int_equal(ig_cgroup_cpus(dir.path), 3);
}

/* Of a service: a limit may stand at any level. */
static void the_least_of_all_above(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/system.slice/infinigen.service\n");
    put("sys/fs/cgroup/system.slice/memory.max", "9000\n");
    put("sys/fs/cgroup/system.slice/memory.current", "8000\n");
    put("sys/fs/cgroup/system.slice/infinigen.service/memory.max", "5000\n");
    put("sys/fs/cgroup/system.slice/infinigen.service/memory.current", "100\n");
    assert_int_equal(ig_cgroup_memory(dir.path), 1000);
    put("sys/fs/cgroup/system.slice/memory.current", "200\n");
    assert_int_equal(ig_cgroup_memory(dir.path), 4900);
    put("sys/fs/cgroup/system.slice/infinigen.service/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/system.slice/cpu.max", "400000 100000\n");
    assert_int_equal(ig_cgroup_cpus(dir.path), 4);
    put("sys/fs/cgroup/system.slice/infinigen.service/cpu.max", "50000 100000\n");
    assert_int_equal(ig_cgroup_cpus(dir.path), 1);
}

static void version_1(void **state) {
    (void)state;
    put("proc/self/cgroup", "5:cpuset:/x\n4:memory:/docker/1\n3:cpu,cpuacct:/docker/2\n1:name=systemd:/y\n0::/z\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "1000000\n");
    put("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "900000\n");
    put("sys/fs/cgroup/memory/docker/1/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n");
    assert_int_equal(ig_cgroup_memory(dir.path), 300000);
    put("sys/fs/cgroup/cpu/docker/2/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/docker/2/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(ig_cgroup_cpus(dir.path), 0);
    put("sys/fs/cgroup/cpu/docker/2/cpu.cfs_quota_us", "150000\n");
    assert_int_equal(ig_cgroup_cpus(dir.path), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_told, open_dir, close_dir),
        cmocka_unit_test_setup_teardown(the_topmost, open_dir, close_dir),
        cmocka_unit_test_setup_teardown(the_least_of_all_above, open_dir, close_dir),
        cmocka_unit_test_setup_teardown(version_1, open_dir, close_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
