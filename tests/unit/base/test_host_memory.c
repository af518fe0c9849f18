/* The memory that a process can use, in trees of files that stand for proc and sys. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/host_memory.h"
#include "base/mem.h"

#define MIB ((int64_t)1 << 20)
#define V2_MOUNT "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNTS                                                                                            \
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"                                      \
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define NO_LIMIT "9223372036854771712\n" /* version 1 */

static char dir[64];

static void put(const char *name, const char *text)
{
    CLEANUP(free_text) char *path = xasprintf("%s%s", dir, name);
    struct err e;

    *strrchr(path, '/') = '\0';
    assert_ok(file_mkdirs(path, 0755, &e), &e);
    path[strlen(path)] = '/';
    assert_ok(file_write_renamed(path, text, strlen(text), 0644, false, &e), &e);
}

/* A machine with 8 GiB, of which 6 GiB are available. */
static int make_machine(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ddp-host-memory-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    put("/proc/meminfo",
        "MemTotal:        8388608 kB\nMemFree:          1024 kB\nMemAvailable:    6291456 kB\n");
    return 0;
}

static int remove_machine(void **state)
{
    struct err e;

    (void)state;
    return file_remove_tree(dir, &e) ? -1 : 0;
}

/* The process is in this cgroup, and these trees are mounted. */
static void process_in(const char *cgroup, const char *mountinfo)
{
    put("/proc/self/cgroup", cgroup);
    put("/proc/self/mountinfo", mountinfo);
}

static void cgroup_2(const char *path, const char *limit, const char *use, const char *stat)
{
    static const char *const names[] = {"memory.max", "memory.current", "memory.stat"};
    const char *texts[] = {limit, use, stat};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CLEANUP(free_text) char *name = xasprintf("/sys/fs/cgroup%s/%s", path, names[i]);
        put(name, texts[i]);
    }
}

static void cgroup_1(const char *path, const char *limit, const char *use, const char *stat,
                     const char *inherits)
{
    static const char *const names[] = {"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat",
                                        "memory.use_hierarchy"};
    const char *texts[] = {limit, use, stat, inherits};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CLEANUP(free_text) char *name = xasprintf("/sys/fs/cgroup/memory%s/%s", path, names[i]);
        put(name, texts[i]);
    }
}

static void assert_memory(int64_t total_mib, int64_t available_mib)
{
    struct host_memory m;

    host_memory_read_at(dir, &m);
    assert_int_equal(m.total / MIB, total_mib);
    assert_int_equal(m.available / MIB, available_mib);
}

static void without_a_cgroup_it_is_that_of_the_machine(void **state)
{
    (void)state;
    assert_memory(8192, 6144);
    process_in("0::/user.slice\n", V2_MOUNT); /* no memory controller */
    assert_memory(8192, 6144);
    cgroup_2("/user.slice", "max\n", "5368709120\n", "anon 5368709120\n");
    assert_memory(8192, 6144);
}

static void a_limit_of_version_2_counts(void **state)
{
    (void)state;
    process_in("0::/system.slice/ddp-agent.service\n", V2_MOUNT);
    cgroup_2("/system.slice/ddp-agent.service", "2147483648\n", "1073741824\n",
             "anon 536870912\nfile 536870912\ninactive_file 268435456\nactive_file 134217728\n");
    assert_memory(2048, 1024 + 256 + 128); /* the rest of the files' pages is shared memory */
}

static void the_lowest_limit_of_nested_cgroups_counts(void **state)
{
    (void)state;
    process_in("0::/batch/job_7/step_0\n", V2_MOUNT);
    cgroup_2("/batch", "max\n", "0\n", "");
    cgroup_2("/batch/job_7", "1073741824\n", "104857600\n", "");
    cgroup_2("/batch/job_7/step_0", "4294967296\n", "52428800\n", "");
    assert_memory(1024, 924);
    /* The one above has less left, although its limit is higher: others use it, too. */
    cgroup_2("/batch", "2147483648\n", "1992294400\n", "");
    assert_memory(1024, 148);
    cgroup_2("/batch", "2147483648\n", "3000000000\n", "");
    assert_memory(1024, 0);
}

static void a_limit_of_version_1_counts(void **state)
{
    (void)state;
    process_in("8:pids:/\n4:memory:/slurm/job_7\n3:cpuset:/slurm\n0::/\n",
               V1_MOUNTS "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    cgroup_1("", NO_LIMIT, "7000000000\n", "total_inactive_file 0\n", "1\n");
    cgroup_1("/slurm", NO_LIMIT, "7000000000\n", "total_inactive_file 0\n", "1\n");
    cgroup_1("/slurm/job_7", NO_LIMIT, "7000000000\n", "total_inactive_file 0\n", "1\n");
    assert_memory(8192, 6144);
    cgroup_1("/slurm/job_7", "1073741824\n", "943718400\n",
             "inactive_file 1\ntotal_inactive_file 104857600\ntotal_active_file 209715200\n", "1\n");
    assert_memory(1024, 124 + 100 + 200);
    cgroup_1("/slurm", "536870912\n", "1048576\n", "", "1\n");
    assert_memory(512, 424);
    cgroup_1("/slurm", "536870912\n", "1048576\n", "", "0\n"); /* it does not hold for job_7 */
    assert_memory(1024, 424);
}

static void a_container_sees_its_own_cgroup_as_the_root(void **state)
{
    (void)state;
    /* Docker with version 1: the container's cgroup is mounted, and the path is that of the host. */
    process_in("4:memory:/docker/abc\n",
               "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory\n");
    cgroup_1("", "1073741824\n", "0\n", "", "1\n");
    assert_memory(1024, 1024);
    process_in("4:memory:/docker/abc/job_7\n",
               "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory\n");
    cgroup_1("/job_7", "536870912\n", "0\n", "", "1\n");
    assert_memory(512, 512);
    /* A process that was moved into the container has a path that is not below what is mounted. */
    process_in("4:memory:/../other\n", V1_MOUNTS);
    assert_memory(1024, 1024);
    process_in("4:memory:/docker/abcdef\n",
               "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    assert_memory(1024, 1024);
    /* With a namespace, the path is "/". */
    process_in("4:memory:/\n", V1_MOUNTS);
    assert_memory(1024, 1024);
}

static void a_container_of_version_2_is_limited_at_its_root(void **state)
{
    (void)state;
    process_in("0::/\n", V2_MOUNT);
    cgroup_2("", "3221225472\n", "1073741824\n", "inactive_file 0\n");
    assert_memory(3072, 2048);
}

static void files_that_are_missing_or_damaged_limit_nothing(void **state)
{
    (void)state;
    process_in("nonsense\n4:memory\n\n0::/a\n", "1 2 - cgroup2\n- cgroup2 x y\n" V2_MOUNT);
    put("/sys/fs/cgroup/a/memory.max", "");
    assert_memory(8192, 6144);
    put("/sys/fs/cgroup/a/memory.max", "1073741824\n"); /* how much is used is not known */
    assert_memory(1024, 1024);
}

static void a_full_cgroup_is_not_unknown(void **state)
{
    struct host_memory m;

    (void)state;
    process_in("0::/a\n", V2_MOUNT);
    cgroup_2("/a", "1073741824\n", "1073741824\n", "");
    host_memory_read_at(dir, &m);
    assert_int_equal(m.available, 1);
}

static void numbers_that_no_machine_has_do_not_overflow(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal: 9223372036854775807 kB\nMemAvailable: 9223372036854775807 kB\n");
    process_in("0::/a\n", V2_MOUNT);
    cgroup_2("/a", "1073741824\n", "0\n",
             "inactive_file 9223372036854775807\nactive_file 9223372036854775807\n");
    assert_memory(1024, 1024);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_machine, remove_machine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_cgroup_it_is_that_of_the_machine),
        TEST(a_limit_of_version_2_counts),
        TEST(the_lowest_limit_of_nested_cgroups_counts),
        TEST(a_limit_of_version_1_counts),
        TEST(a_container_sees_its_own_cgroup_as_the_root),
        TEST(a_container_of_version_2_is_limited_at_its_root),
        TEST(files_that_are_missing_or_damaged_limit_nothing),
        TEST(a_full_cgroup_is_not_unknown),
        TEST(numbers_that_no_machine_has_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
