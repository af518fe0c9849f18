/* The processors of machines that are described by files as Linux has them in /sys/devices/system. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/topology.h"

struct machine {
    char root[64];
    struct topology t;
};

static void file_put(const struct machine *m, const char *name, const char *content)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", m->root, name);
    CLEANUP(free_text) char *dir = xstrdup(path);
    struct err e;
    *strrchr(dir, '/') = '\0';
    assert_int_equal(file_mkdirs(dir, 0755, &e), ERR_OK);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    assert_int_equal(fclose(f), 0);
}

static void siblings_put(const struct machine *m, const char *file, int cpu, const char *list)
{
    CLEANUP(free_text) char *name = xasprintf("cpu/cpu%d/topology/%s", cpu, file);
    file_put(m, name, list);
}

static void machine_open(struct machine *m)
{
    *m = (struct machine){.root = "/tmp/ddp-topology-XXXXXX"};
    assert_non_null(mkdtemp(m->root));
}

static const struct topology *machine_read(struct machine *m, const char *allowed)
{
    struct topology_set set = {{0}};
    topology_parse(allowed, &set);
    topology_release(&m->t);
    topology_read(&m->t, m->root, &set);
    return &m->t;
}

static void machine_close(struct machine *m)
{
    struct err e;
    topology_release(&m->t);
    assert_int_equal(file_remove_tree(m->root, &e), ERR_OK);
}

/* "0/0@0 16/0@0 ...": processor/core@node, in the order of the topology */
static void expect(const struct topology *t, const char *text)
{
    CLEANUP(buf_release) struct buf found = {0};
    for (size_t i = 0; i < t->count; i++)
        buf_printf(&found, "%s%d/%d@%d", i ? " " : "", t->cpus[i].cpu, t->cpus[i].core, t->cpus[i].node);
    assert_string_equal(found.len ? found.data : "", text);
}

/* Two sockets of two cores, each with two hardware threads: Linux numbers the second threads last. */
static void two_sockets(struct machine *m)
{
    machine_open(m);
    file_put(m, "cpu/online", "0-7\n");
    file_put(m, "node/node0/cpulist", "0-1,4-5\n");
    file_put(m, "node/node1/cpulist", "2-3,6-7\n");
    file_put(m, "node/possible", "0-1\n"); /* no node */
    for (int i = 0; i < 8; i++) {
        CLEANUP(free_text) char *pair = xasprintf("%d,%d\n", i % 4, i % 4 + 4);
        siblings_put(m, i % 2 ? "core_cpus_list" : "thread_siblings_list", i, pair);
    }
}

static void threads_of_a_core_and_cores_of_a_node(void **state)
{
    struct machine m;
    (void)state;
    two_sockets(&m);
    expect(machine_read(&m, "0-7"), "0/0@0 4/0@0 1/1@0 5/1@0 2/2@1 6/2@1 3/3@1 7/3@1");
    assert_int_equal(topology_cores(&m.t), 4);
    machine_close(&m);
}

/* Where the first thread of a core may not be used, the second one is its only one. */
static void only_allowed_processors_count(void **state)
{
    struct machine m;
    (void)state;
    two_sockets(&m);
    expect(machine_read(&m, "1,4-6"), "1/1@0 5/1@0 4/4@0 6/6@1");
    machine_close(&m);
}

static void offline_processors_do_not_count(void **state)
{
    struct machine m;
    (void)state;
    two_sockets(&m);
    file_put(&m, "cpu/online", "0,2-4\n");
    file_put(&m, "node/node0/cpulist", "0,4\n");
    file_put(&m, "node/node1/cpulist", "2-3\n");
    siblings_put(&m, "thread_siblings_list", 2, "2\n");
    siblings_put(&m, "core_cpus_list", 3, "3\n");
    expect(machine_read(&m, "0-7"), "0/0@0 4/0@0 2/2@1 3/3@1");
    machine_close(&m);
}

static void nodes_without_processors_are_left_out(void **state)
{
    struct machine m;
    (void)state;
    two_sockets(&m);
    file_put(&m, "node/node2/cpulist", "\n");
    expect(machine_read(&m, "0-3"), "0/0@0 1/1@0 2/2@1 3/3@1");
    machine_close(&m);
}

/* Old kernels on ARM have no lists of siblings, kernels without NUMA no nodes; in a container sysfs may be missing. */
static void without_files_each_processor_is_a_core_of_one_node(void **state)
{
    struct machine m;
    (void)state;
    machine_open(&m);
    expect(machine_read(&m, "0-2"), "0/0@0 1/1@0 2/2@0");
    file_put(&m, "cpu/online", "0-63\n");
    file_put(&m, "node/node1/cpulist", "1\n");
    siblings_put(&m, "core_cpus_list", 0, "\n");
    siblings_put(&m, "core_cpus_list", 2, "nonsense\n");
    expect(machine_read(&m, "0-2"), "0/0@0 2/2@0 1/1@1");
    file_put(&m, "cpu/online", "8-9\n"); /* of another machine */
    expect(machine_read(&m, "1"), "1/1@1");
    machine_close(&m);
}

static void lists_are_parsed_and_printed(void **state)
{
    static const int numbers[] = {0, 1, 2, 5, 7, 8};
    struct topology_set set = {{0}};
    CLEANUP(buf_release) struct buf text = {0}, none = {0};
    (void)state;
    topology_parse("5,0-2,7-8,9000-9001", &set);
    assert_int_equal(CPU_COUNT_S(sizeof(set), topology_cpus(&set)), ARRAY_LEN(numbers));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        assert_true(CPU_ISSET_S((size_t)numbers[i], sizeof(set), topology_cpus(&set)));
    topology_parse("3-", &set);
    topology_parse("x", &set);
    topology_print(numbers, ARRAY_LEN(numbers), &text);
    assert_string_equal(text.data, "0-2,5,7-8");
    topology_print(numbers, 0, &none);
    assert_int_equal(none.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_a_core_and_cores_of_a_node),
        cmocka_unit_test(only_allowed_processors_count),
        cmocka_unit_test(offline_processors_do_not_count),
        cmocka_unit_test(nodes_without_processors_are_left_out),
        cmocka_unit_test(without_files_each_processor_is_a_core_of_one_node),
        cmocka_unit_test(lists_are_parsed_and_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
