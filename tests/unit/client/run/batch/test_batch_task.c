#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/run/batch/batch_task.h"

/* A request in which nothing is set. */
static struct run_request request_unset(void)
{
    return (struct run_request){
        .node_rank = -1, .is_host = -1, .last_call_ms = -1, .signals = {SIGTERM, SIGINT}};
}

/* The second of two nodes of a step of Slurm, the first of `tasks` tasks there. */
static struct batch_allocation slurm_allocation(int64_t tasks)
{
    struct batch_allocation a = {.kind = BATCH_SLURM,
                                 .id = xstrdup("12.3"),
                                 .host = xstrdup("n1"),
                                 .node_count = 2,
                                 .node_rank = 1,
                                 .local_tasks = tasks,
                                 .launched = true};
    return a;
}

static void test_fills_what_is_unset(void **state)
{
    (void)state;
    struct run_request l = request_unset();
    struct batch_allocation a = slurm_allocation(1);
    batch_task_fill(&a, &l);
    assert_int_equal(l.nodes_min, 2);
    assert_int_equal(l.nodes_max, 2);
    assert_int_equal(l.node_rank, 1);
    assert_string_equal(l.host, "n1");
    assert_int_equal(l.port, batch_allocation_port(&a));
    assert_int_equal(l.is_host, 0);
    assert_string_equal(l.id, "slurm-12.3");
    assert_true(l.secondary);
    assert_null(l.procs); /* left to the default or the job file */
    run_request_release(&l);
    batch_allocation_release(&a);
}

static void test_first_node_hosts_the_run(void **state)
{
    (void)state;
    struct run_request l = request_unset();
    struct batch_allocation a = slurm_allocation(1);
    a.node_rank = 0;
    a.first = true;
    batch_task_fill(&a, &l);
    assert_int_equal(l.is_host, 1);
    assert_false(l.secondary);
    run_request_release(&l);
    batch_allocation_release(&a);
}

static void test_tasks_of_a_node_become_workers(void **state)
{
    (void)state;
    struct run_request l = request_unset();
    struct batch_allocation a = slurm_allocation(4);
    batch_task_fill(&a, &l);
    assert_string_equal(l.procs, "4");
    run_request_release(&l);
    l = request_unset();
    a.launched = false; /* a batch script is one process */
    batch_task_fill(&a, &l);
    assert_null(l.procs);
    run_request_release(&l);
    batch_allocation_release(&a);
}

static void test_keeps_what_is_set(void **state)
{
    (void)state;
    struct run_request l = request_unset();
    struct batch_allocation a = slurm_allocation(4);
    l.nodes_min = 1;
    l.nodes_max = 4;
    l.procs = xstrdup("gpu");
    l.host = xstrdup("other");
    l.port = 29400;
    l.node_rank = 3;
    l.id = xstrdup("456");
    batch_task_fill(&a, &l);
    assert_int_equal(l.nodes_min, 1);
    assert_int_equal(l.nodes_max, 4);
    assert_string_equal(l.procs, "gpu");
    assert_string_equal(l.host, "other");
    assert_int_equal(l.port, 29400);
    assert_int_equal(l.is_host, -1); /* the node with that address hosts */
    assert_int_equal(l.node_rank, 3);
    assert_string_equal(l.id, "456");
    run_request_release(&l);
    batch_allocation_release(&a);
}

static void nothing_filled(const struct batch_allocation *a, bool standalone)
{
    struct run_request l = request_unset();
    l.standalone = standalone;
    batch_task_fill(a, &l);
    assert_int_equal(l.nodes_min, 0);
    assert_int_equal(l.node_rank, -1);
    assert_null(l.host);
    assert_null(l.id);
    run_request_release(&l);
}

static void test_one_node_has_no_endpoint(void **state)
{
    (void)state;
    struct batch_allocation a = slurm_allocation(1);
    nothing_filled(&a, true);
    a.node_count = 1;
    a.node_rank = 0;
    nothing_filled(&a, false);
    a.kind = BATCH_NONE;
    a.node_count = 2;
    nothing_filled(&a, false);
    batch_allocation_release(&a);
}

/* A PBS script starts two runs side by side: each of them leads. */
static void test_runs_side_by_side_in_a_script_are_separate(void **state)
{
    (void)state;
    for (int64_t nodes = 1; nodes <= 2; nodes++) {
        struct batch_task b = {.allocation = {.kind = BATCH_PBS, .id = xstrdup("7"), .node_count = 2}};
        struct run_request l = request_unset();
        l.nodes_min = l.nodes_max = nodes;
        batch_task_enter(&b, &l);
        assert_int_equal(b.allocation.local_tasks, nodes == 1 ? 1 : 0);
        run_request_release(&l);
        batch_allocation_release(&b.allocation);
    }
}

static void test_requeued_job_resumes(void **state)
{
    (void)state;
    struct batch_task b = {.allocation = {.kind = BATCH_SLURM}};
    struct job_spec spec = {.kind = JOB_TRAIN};
    assert_false(batch_task_resumes(&b, &spec));
    b.allocation.restarts = 1;
    assert_true(batch_task_resumes(&b, &spec));
    spec.train.resume = RESUME_NEVER;
    assert_false(batch_task_resumes(&b, &spec));
    spec = (struct job_spec){.kind = JOB_COMMAND};
    assert_false(batch_task_resumes(&b, &spec));
}

static void test_warning_signal(void **state)
{
    (void)state;
    struct run_request l = request_unset();
    struct batch_task b = {.allocation = {.kind = BATCH_SLURM}};
    batch_task_signals(&b, JOB_TRAIN, &l);
    assert_int_equal(l.signals[2], SIGUSR1);
    assert_int_equal(l.signals[3], 0);
    batch_task_signals(&b, JOB_TRAIN, &l); /* SIGUSR1 is in the list already */
    assert_int_equal(l.signals[3], 0);
    l = request_unset();
    batch_task_signals(&b, JOB_COMMAND, &l); /* a command may handle SIGUSR1 itself, so ddpctl ignores it */
    assert_int_equal(l.signals[2], 0);
    raise(SIGUSR1);
    b.allocation.kind = BATCH_NONE;
    batch_task_signals(&b, JOB_TRAIN, &l);
    assert_int_equal(l.signals[2], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fills_what_is_unset),
        cmocka_unit_test(test_first_node_hosts_the_run),
        cmocka_unit_test(test_tasks_of_a_node_become_workers),
        cmocka_unit_test(test_keeps_what_is_set),
        cmocka_unit_test(test_one_node_has_no_endpoint),
        cmocka_unit_test(test_runs_side_by_side_in_a_script_are_separate),
        cmocka_unit_test(test_requeued_job_resumes),
        cmocka_unit_test(test_warning_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
