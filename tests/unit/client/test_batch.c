#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/run/batch.h"

/* What nobody said yet. */
static struct launch unsaid(void)
{
    return (struct launch){.node_rank = -1, .is_host = -1, .last_call_ms = -1, .signals = {SIGTERM, SIGINT}};
}

/* The second of two nodes of a step of Slurm, the first of `tasks` tasks there. */
static struct allocation slurm(int64_t tasks)
{
    struct allocation a = {.kind = ALLOCATION_SLURM,
                           .id = xstrdup("12.3"),
                           .host = xstrdup("n1"),
                           .node_count = 2,
                           .node_rank = 1,
                           .local_tasks = tasks,
                           .launched = true};
    return a;
}

static void test_fills_what_nobody_said(void **state)
{
    (void)state;
    struct launch l = unsaid();
    struct allocation a = slurm(1);
    batch_fill(&a, &l);
    assert_int_equal(l.nodes_min, 2);
    assert_int_equal(l.nodes_max, 2);
    assert_int_equal(l.node_rank, 1);
    assert_string_equal(l.host, "n1");
    assert_int_equal(l.port, allocation_port(&a));
    assert_int_equal(l.is_host, 0);
    assert_string_equal(l.id, "slurm-12.3");
    assert_true(l.told);
    assert_null(l.procs); /* the default, or the job file's own */
    launch_release(&l);
    allocation_release(&a);
}

static void test_first_node_hosts(void **state)
{
    (void)state;
    struct launch l = unsaid();
    struct allocation a = slurm(1);
    a.node_rank = 0;
    a.first = true;
    batch_fill(&a, &l);
    assert_int_equal(l.is_host, 1);
    assert_false(l.told);
    launch_release(&l);
    allocation_release(&a);
}

static void test_tasks_are_workers(void **state)
{
    (void)state;
    struct launch l = unsaid();
    struct allocation a = slurm(4);
    batch_fill(&a, &l);
    assert_string_equal(l.procs, "4");
    launch_release(&l);
    l = unsaid();
    a.launched = false; /* a batch script is one process */
    batch_fill(&a, &l);
    assert_null(l.procs);
    launch_release(&l);
    allocation_release(&a);
}

static void test_leaves_alone_what_was_said(void **state)
{
    (void)state;
    struct launch l = unsaid();
    struct allocation a = slurm(4);
    l.nodes_min = 1;
    l.nodes_max = 4;
    l.procs = xstrdup("gpu");
    l.host = xstrdup("other");
    l.port = 29400;
    l.node_rank = 3;
    l.id = xstrdup("456");
    batch_fill(&a, &l);
    assert_int_equal(l.nodes_min, 1);
    assert_int_equal(l.nodes_max, 4);
    assert_string_equal(l.procs, "gpu");
    assert_string_equal(l.host, "other");
    assert_int_equal(l.port, 29400);
    assert_int_equal(l.is_host, -1); /* whoever owns that address */
    assert_int_equal(l.node_rank, 3);
    assert_string_equal(l.id, "456");
    launch_release(&l);
    allocation_release(&a);
}

static void nothing_filled(const struct allocation *a, bool standalone)
{
    struct launch l = unsaid();
    l.standalone = standalone;
    batch_fill(a, &l);
    assert_int_equal(l.nodes_min, 0);
    assert_int_equal(l.node_rank, -1);
    assert_null(l.host);
    assert_null(l.id);
    launch_release(&l);
}

static void test_one_node_meets_nobody(void **state)
{
    (void)state;
    struct allocation a = slurm(1);
    nothing_filled(&a, true);
    a.node_count = 1;
    a.node_rank = 0;
    nothing_filled(&a, false);
    a.kind = ALLOCATION_NONE;
    a.node_count = 2;
    nothing_filled(&a, false);
    allocation_release(&a);
}

/* Two programs side by side in one script of PBS: neither is the other's mate. */
static void test_one_node_in_a_script_leads(void **state)
{
    (void)state;
    for (int64_t nodes = 1; nodes <= 2; nodes++) {
        struct batch b = {.allocation = {.kind = ALLOCATION_PBS, .id = xstrdup("7"), .node_count = 2}};
        struct launch l = unsaid();
        l.nodes_min = l.nodes_max = nodes;
        batch_enter(&b, &l);
        assert_int_equal(b.allocation.local_tasks, nodes == 1 ? 1 : 0);
        launch_release(&l);
        allocation_release(&b.allocation);
    }
}

static void test_requeued_trains_on(void **state)
{
    (void)state;
    struct batch b = {.allocation = {.kind = ALLOCATION_SLURM}};
    struct job_spec spec = {.kind = JOB_TRAIN};
    assert_false(batch_resumes(&b, &spec));
    b.allocation.restarts = 1;
    assert_true(batch_resumes(&b, &spec));
    spec.train.resume = RESUME_NEVER;
    assert_false(batch_resumes(&b, &spec));
    spec = (struct job_spec){.kind = JOB_COMMAND};
    assert_false(batch_resumes(&b, &spec));
}

static void test_warning_signal(void **state)
{
    (void)state;
    struct launch l = unsaid();
    struct batch b = {.allocation = {.kind = ALLOCATION_SLURM}};
    batch_signals(&b, JOB_TRAIN, &l);
    assert_int_equal(l.signals[2], SIGUSR1);
    assert_int_equal(l.signals[3], 0);
    batch_signals(&b, JOB_TRAIN, &l); /* chosen already */
    assert_int_equal(l.signals[3], 0);
    l = unsaid();
    batch_signals(&b, JOB_COMMAND, &l); /* its own affair: ddpctl goes on */
    assert_int_equal(l.signals[2], 0);
    raise(SIGUSR1);
    b.allocation.kind = ALLOCATION_NONE;
    batch_signals(&b, JOB_TRAIN, &l);
    assert_int_equal(l.signals[2], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fills_what_nobody_said), cmocka_unit_test(test_first_node_hosts),
        cmocka_unit_test(test_tasks_are_workers),      cmocka_unit_test(test_leaves_alone_what_was_said),
        cmocka_unit_test(test_one_node_meets_nobody),  cmocka_unit_test(test_one_node_in_a_script_leads),
        cmocka_unit_test(test_requeued_trains_on),     cmocka_unit_test(test_warning_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
