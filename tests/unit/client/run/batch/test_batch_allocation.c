#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/run/batch/batch_allocation.h"

/* Recorded environments of Slurm 22.05, Open MPI 4.1 and MPICH 4.0, without the variables that are not read.
 */

#define ENV(...)                                                                                             \
    ((char **)(uintptr_t)(const char *[]){__VA_ARGS__,                                                       \
                                          NULL}) /* the const is cast away: nothing writes to it */

static struct batch_allocation read_ok(char *const *environment, const char *host)
{
    struct batch_allocation a;
    struct err e;
    if (batch_allocation_read(&a, environment, host, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return a;
}

static void allocation_is_refused(char *const *environment, const char *why)
{
    struct batch_allocation a;
    struct err e;
    assert_int_equal(batch_allocation_read(&a, environment, "vm", &e), ERR_INVALID_ARGUMENT);
    if (!strstr(e.msg, why))
        fail_msg("it says: %s", e.msg);
    assert_null(a.id);
    assert_null(a.nodes);
}

static void test_none(void **state)
{
    (void)state;
    struct batch_allocation a =
        read_ok(ENV("HOME=/root", "SLURM_CONF=/etc/slurm.conf", "PBS_NODEFILE="), "vm");
    assert_int_equal(a.kind, BATCH_NONE);
    assert_int_equal(a.node_count, 1);
    assert_int_equal(a.local_tasks, 1);
    assert_int_equal(a.restarts, 0);
    assert_false(a.first);
    assert_null(a.host);
    batch_allocation_release(&a);
}

#define SLURM_JOB                                                                                            \
    "SLURM_JOB_ID=12", "SLURM_JOBID=12", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_NODELIST=n[1-2]",               \
        "SLURM_JOB_NUM_NODES=2", "SLURM_NNODES=2", "SLURM_TASKS_PER_NODE=2(x2)",                             \
        "SLURM_JOB_CPUS_PER_NODE=2(x2)", "SLURM_CPUS_ON_NODE=2"

static void test_slurm_step(void **state)
{
    (void)state;
    struct batch_allocation a = read_ok(
        ENV(SLURM_JOB, "SLURM_STEP_ID=3", "SLURM_STEPID=3", "SLURM_STEP_NODELIST=n[1-2]",
            "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
            "SLURM_NODEID=1", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=4", "SLURM_RESTART_COUNT=2"),
        "n2");
    assert_int_equal(a.kind, BATCH_SLURM);
    assert_string_equal(a.id, "12.3");
    assert_int_equal(a.node_count, 2);
    assert_string_equal(a.nodes[0], "n1");
    assert_string_equal(a.nodes[1], "n2");
    assert_string_equal(a.host, "n1");
    assert_int_equal(a.node_rank, 1);
    assert_int_equal(a.local_task, 1);
    assert_int_equal(a.local_tasks, 2);
    assert_int_equal(a.restarts, 2);
    assert_true(a.launched);
    assert_false(a.first);
    batch_allocation_release(&a);
}

/* srun -N1 inside an allocation of two nodes: the step's variables count, not the job's. */
static void test_slurm_step_on_some_nodes(void **state)
{
    (void)state;
    struct batch_allocation a =
        read_ok(ENV(SLURM_JOB, "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n2", "SLURM_STEP_NUM_NODES=1",
                    "SLURM_STEP_TASKS_PER_NODE=1", "SLURM_NODEID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0"),
                "n2");
    assert_int_equal(a.node_count, 1);
    assert_string_equal(a.host, "n2");
    assert_int_equal(a.node_rank, 0);
    assert_int_equal(a.local_tasks, 1);
    assert_true(a.first);
    batch_allocation_release(&a);
}

static void test_slurm_batch(void **state)
{
    (void)state;
    struct batch_allocation a =
        read_ok(ENV(SLURM_JOB, "SLURM_NODEID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_GTIDS=0"), "n1");
    assert_string_equal(a.id, "12");
    assert_int_equal(a.node_count, 2);
    assert_int_equal(a.node_rank, 0);
    assert_int_equal(a.local_tasks, 1); /* a batch script is one process, whatever --ntasks-per-node is */
    assert_int_equal(a.restarts, 0);
    assert_false(a.launched);
    assert_true(a.first);
    batch_allocation_release(&a);
    a = read_ok(ENV(SLURM_JOB, "SLURM_STEP_ID=4294967290", "SLURM_STEP_NODELIST=n1", "SLURM_NODEID=0"), "n1");
    assert_false(a.launched); /* salloc's interactive step */
    assert_int_equal(a.node_count, 2);
    assert_string_equal(a.id, "12");
    batch_allocation_release(&a);
}

static void test_slurm_invalid_values(void **state)
{
    (void)state;
    allocation_is_refused(ENV("SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-"), "n[1-");
    allocation_is_refused(ENV("SLURM_JOB_ID=1", "SLURM_STEP_ID=x"), "SLURM_STEP_ID=x is not a number");
    allocation_is_refused(ENV("SLURM_JOB_ID=1", "SLURM_STEP_ID=1", "SLURM_NODEID=-1"), "SLURM_NODEID=-1");
}

static char *node_file(const char *text)
{
    char *entry = xstrdup("PBS_NODEFILE=/tmp/test_allocation_XXXXXX");
    int fd = mkstemp(strchr(entry, '=') + 1);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return entry;
}

static void test_pbs(void **state)
{
    (void)state;
    char *file = node_file("box1.example.org\nbox1.example.org\nbox2.example.org\nbox2.example.org\n");
    struct batch_allocation a =
        read_ok(ENV(file, "PBS_JOBID=77.head", "PBS_NODENUM=0", "PBS_TASKNUM=1"), "box1");
    assert_int_equal(a.kind, BATCH_PBS);
    assert_string_equal(a.id, "77.head");
    assert_int_equal(a.node_count, 2);
    assert_string_equal(a.host, "box1.example.org");
    assert_int_equal(a.slots[0], 0);
    assert_int_equal(a.slots[1], 2);
    assert_int_equal(a.node_rank, 0);
    assert_int_equal(a.local_tasks, 0);
    assert_false(a.launched);
    assert_true(a.first);
    batch_allocation_release(&a);
    /* ssh has passed on PBS_NODENUM of the first node: the host name counts */
    a = read_ok(ENV(file, "PBS_JOBID=77.head", "PBS_NODENUM=0"), "box2");
    assert_int_equal(a.node_rank, 1);
    assert_true(a.launched);
    assert_false(a.first);
    batch_allocation_release(&a);
    /* a host name that the list does not have */
    a = read_ok(ENV(file, "PBS_JOBID=77.head", "PBS_NODENUM=1"), "compute-17");
    assert_int_equal(a.node_rank, 1);
    batch_allocation_release(&a);
    a = read_ok(ENV(file, "PBS_JOBID=77.head", "PBS_NODEID=1"), "compute-17");
    assert_int_equal(a.node_rank, 1);
    batch_allocation_release(&a);
    a = read_ok(ENV(file, "PBS_JOBID=77.head"), "box1.example.com");
    assert_int_equal(a.node_rank, -1); /* another domain is another host */
    batch_allocation_release(&a);
    allocation_is_refused(ENV(file, "PBS_NODENUM=2"), "names 2 nodes");
    unlink(strchr(file, '=') + 1);
    free(file);
}

static void test_pbs_one_node(void **state)
{
    (void)state;
    char *file = node_file("box1\nbox1\n");
    struct batch_allocation a = read_ok(ENV(file, "PBS_JOBID=78.head"), "box1");
    assert_int_equal(a.node_count, 1);
    assert_int_equal(a.local_tasks, 1);
    batch_allocation_release(&a);
    unlink(strchr(file, '=') + 1);
    free(file);
    file = node_file("\n");
    allocation_is_refused(ENV(file), "names no node");
    unlink(strchr(file, '=') + 1);
    free(file);
}

#define OPEN_MPI                                                                                             \
    "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_LOCAL_RANK=0",                \
        "OMPI_COMM_WORLD_NODE_RANK=0", "OMPI_MCA_ess_base_jobid=2140405761", "PMIX_NAMESPACE=2140405761",    \
        "OMPI_MCA_orte_hnp_uri=2140405760.0;tcp://192.0.2.2,10.0.0.2:56959;tcp6://[fd00::2]:35565",          \
        "OMPI_MCA_orte_num_nodes=2"

static void test_open_mpi(void **state)
{
    (void)state;
    struct batch_allocation a = read_ok(ENV(OPEN_MPI, "OMPI_COMM_WORLD_RANK=1"), "box2");
    assert_int_equal(a.kind, BATCH_OPEN_MPI);
    assert_string_equal(a.id, "2140405761");
    assert_int_equal(a.node_count, 2);
    assert_null(a.nodes);
    assert_string_equal(a.host, "192.0.2.2");
    assert_int_equal(a.node_rank, 1);
    assert_true(a.launched);
    assert_false(a.first);
    batch_allocation_release(&a);
}

/* mpirun in a batch script of Slurm: mpirun's tasks on the job's nodes; the step of its daemons does not
 * count. */
static void test_open_mpi_in_slurm(void **state)
{
    (void)state;
    struct batch_allocation a =
        read_ok(ENV(SLURM_JOB, "SLURM_NODEID=1", "SLURM_PROCID=1", "OMPI_COMM_WORLD_RANK=0",
                    "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                    "PMIX_NAMESPACE=99", "SLURM_RESTART_COUNT=1"),
                "n1");
    assert_int_equal(a.kind, BATCH_OPEN_MPI);
    assert_string_equal(a.id, "99");
    assert_int_equal(a.node_count, 2);
    assert_string_equal(a.host, "n1");
    assert_int_equal(a.node_rank, 0);
    assert_int_equal(a.local_tasks, 2);
    assert_int_equal(a.restarts, 1);
    assert_true(a.first);
    batch_allocation_release(&a);
}

static void test_mpich(void **state)
{
    (void)state;
    struct batch_allocation a = read_ok(ENV("HYDI_CONTROL_FD=9", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1",
                                            "PMI_FD=7", "PMI_RANK=3", "PMI_SIZE=4"),
                                        "b");
    assert_int_equal(a.kind, BATCH_MPI);
    assert_string_equal(a.id, "mpi");
    assert_int_equal(a.node_count, 2);
    assert_int_equal(a.local_task, 1);
    assert_int_equal(a.local_tasks, 2);
    assert_int_equal(a.node_rank, -1); /* by the order of joining */
    assert_null(a.host);
    batch_allocation_release(&a);
    allocation_is_refused(ENV("PMI_RANK=0", "PMI_SIZE=9223372036854775807", "MPI_LOCALRANKID=0"),
                          "PMI_SIZE=92");
    allocation_is_refused(ENV("PMI_RANK=0", "PMI_SIZE=1", "MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=2"),
                          "contradict each other");
}

/* srun --mpi=pmi2 sets PMI_RANK too. */
static void test_slurm_with_pmi(void **state)
{
    (void)state;
    struct batch_allocation a = read_ok(ENV(SLURM_JOB, "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n[1-2]",
                                            "SLURM_NODEID=1", "PMI_RANK=1", "PMI_SIZE=2"),
                                        "n2");
    assert_int_equal(a.kind, BATCH_SLURM);
    assert_int_equal(a.node_rank, 1);
    batch_allocation_release(&a);
}

static int64_t port_of(const char *id)
{
    struct batch_allocation a = {.id = xstrdup(id)};
    int64_t port = batch_allocation_port(&a);
    free(a.id);
    return port;
}

static void test_ports(void **state)
{
    (void)state;
    for (int job = 1; job < 4000; job++) {
        CLEANUP(free_text) char *id = xasprintf("%d.0", job);
        CLEANUP(free_text) char *next = xasprintf("%d.0", job + 1);
        assert_in_range(port_of(id), 10000, 28999);
        assert_int_equal(port_of(id), port_of(id));
        assert_int_not_equal(port_of(id), port_of(next));
    }
    assert_int_not_equal(port_of("7.0"), port_of("7.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_slurm_step),
        cmocka_unit_test(test_slurm_step_on_some_nodes),
        cmocka_unit_test(test_slurm_batch),
        cmocka_unit_test(test_slurm_invalid_values),
        cmocka_unit_test(test_pbs),
        cmocka_unit_test(test_pbs_one_node),
        cmocka_unit_test(test_open_mpi),
        cmocka_unit_test(test_open_mpi_in_slurm),
        cmocka_unit_test(test_mpich),
        cmocka_unit_test(test_slurm_with_pmi),
        cmocka_unit_test(test_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
