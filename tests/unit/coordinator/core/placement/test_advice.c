/* What a user is told at submit: which asks the nodes cannot meet, and the nearest one that would run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/advice.h"
#include "tests/unit/coordinator/core/core_fixture.h"

/* A node with GPUs becomes alive. */
static void add_gpu_node(struct core_fixture *f, const char *node, int slots, int gpus)
{
    fixture_hello(f, node, node, slots, gpus);
    fixture_facts(f, node, NULL, 0);
}

static struct advice make_advice(const struct core_fixture *f, const char *file, bool now)
{
    struct job job = {.r = {.user = (char[]){"ana"}}};
    struct advice advice;
    struct err e;
    CLEANUP(free_text) char *whole = xasprintf("%s" COMMAND, file);
    if (job_parse(&job.spec, whole, strlen(whole), "job file", &e) != ERR_OK)
        fail_msg("%s", e.msg);
    advice_make(f->core, &job, now, &advice);
    job_release(&job.spec);
    return advice;
}

static void expect_advice(const struct core_fixture *f, const char *file, const char *wanted)
{
    const struct advice advice = make_advice(f, file, true);
    assert_string_equal(advice.text ? advice.text : "starts", wanted);
    assert_int_equal(advice.starts, !advice.text);
    free(advice.text);
}

static void asks_that_cannot_be_met(void **state)
{
    struct core_fixture *f = *state;

    expect_advice(f, "", "no node is alive");
    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 4);
    expect_advice(f, "nodes: 2\nprocs_per_node: 4\n", "starts");
    expect_advice(f, "device: cuda\n", "no node has a GPU; with --device cpu it would start now");
    expect_advice(f, "procs_per_node: gpu\n",
                  "no node has a GPU; with --procs-per-node cpu --device cpu it would start now");
    expect_advice(f, "nodes: 3\nprocs_per_node: 2\n",
                  "2 nodes are alive, the job needs 3; with --nodes 2 it would start now");
    expect_advice(f, "nodes: \"3:5\"\n",
                  "2 nodes are alive, the job needs 3; with --nodes 2:5 it would start now");
    expect_advice(f, "procs_per_node: 8\n",
                  "no node has 8 slots, the largest has 4; with --procs-per-node 4 it would start now");
    expect_advice(f, "nodes: 3\nprocs_per_node: 8\ndevice: cuda\n",
                  "no node has a GPU; with --nodes 2 --procs-per-node 4 --device cpu it would start now");
}

static void nodes_of_different_sizes(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "small", 1);
    fixture_node(f, "large", 8);
    /* most workers: 6 on the large node, not 1 on each of both */
    expect_advice(f, "nodes: 2\nprocs_per_node: 6\n",
                  "1 of 2 nodes can take its workers, the job needs 2; with --nodes 1 it would start now");
}

static void gpus_that_are_too_few(void **state)
{
    struct core_fixture *f = *state;

    add_gpu_node(f, "box1", 4, 2);
    expect_advice(f, "device: cuda\nprocs_per_node: 4\n",
                  "no node has 4 GPUs, the largest has 2; with --procs-per-node 2 it would start now");
    expect_advice(f, "device: cuda\ngpus_per_proc: 4\n",
                  "no node has 4 GPUs, the largest has 2; with --gpus-per-proc 2 it would start now");
    expect_advice(f, "procs_per_node: 4\n", "starts"); /* device auto: on the CPUs */
    /* a smaller ask on the CPUs keeps the GPUs of a worker, which do not matter there */
    expect_advice(f, "procs_per_node: 6\ngpus_per_proc: 3\n",
                  "no node has 6 slots, the largest has 4; with --procs-per-node 4 it would start now");
}

static void slots_that_are_in_use(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_form(f, fixture_submit(f, "procs_per_node: 3\n"));
    expect_advice(
        f, "procs_per_node: 2\n",
        "other jobs use the slots that it needs, or wait for them; with --procs-per-node 1 it would start now");
    fixture_form(f, fixture_submit(f, ""));
    expect_advice(f, "", "other jobs use the slots that it needs, or wait for them");
    expect_advice(
        f, "procs_per_node: 8\n",
        "no node has 8 slots, the largest has 4; with --procs-per-node 4 it would start when other jobs end");
    /* nobody asks for advice about a job that only waits */
    const struct advice waits = make_advice(f, "", false);
    assert_true(waits.possible && !waits.starts);
    assert_null(waits.text);
}

/* Free slots that are kept for a job before it are not free for this one. */
static void slots_that_are_reserved(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_form(f, fixture_submit(f, "procs_per_node: 3\n"));
    fixture_submit(f, "procs_per_node: 4\n");
    expect_advice(f, "", "other jobs use the slots that it needs, or wait for them");
    expect_advice(f, "priority: 5\n", "starts");
}

static const struct core_effect *submit_now(struct core_fixture *f, const char *file, bool now)
{
    struct core_event event = {.kind = CORE_SUBMIT, .call = ++f->handles};
    char id[32];
    snprintf(id, sizeof(id), "n%d", (int)f->handles);
    event.submit.request_id = id;
    event.submit.job_file = file;
    event.submit.user = "ana";
    event.submit.now = now;
    core_event(f->core, &event, f->now, &f->out);
    return fixture_reply(f, event.call);
}

static void warnings_and_refusals_of_a_submit(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    const struct core_effect *reply = submit_now(f, "device: cuda\n" COMMAND, false);
    assert_int_equal(reply->err.code, ERR_OK);
    assert_string_equal(reply->texts[0], "no node has a GPU; with --device cpu it would start now");
    assert_int_equal(fixture_job(f, reply->job), JOB_QUEUED);
    const size_t jobs = f->core->job_count;
    reply = submit_now(f, "device: cuda\n" COMMAND, true);
    assert_int_equal(reply->err.code, ERR_FAILED_PRECONDITION);
    assert_string_equal(reply->err.msg, "the job cannot start now and is not queued: no node has a GPU; "
                                        "with --device cpu it would start now");
    assert_int_equal(f->core->job_count, jobs);
    reply = submit_now(f, "device: cpu\nprocs_per_node: 4\n" COMMAND, true);
    assert_int_equal(reply->err.code, ERR_OK);
    assert_null(reply->texts);
    assert_int_equal(fixture_job(f, reply->job), JOB_STARTING);
    /* it waits for other jobs only: no warning, but --now refuses */
    reply = submit_now(f, "device: cpu\n" COMMAND, false);
    assert_null(reply->texts);
    reply = submit_now(f, "device: cpu\n" COMMAND, true);
    assert_int_equal(reply->err.code, ERR_FAILED_PRECONDITION);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(asks_that_cannot_be_met), CASE(nodes_of_different_sizes),
        CASE(gpus_that_are_too_few),   CASE(slots_that_are_in_use),
        CASE(slots_that_are_reserved), CASE(warnings_and_refusals_of_a_submit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
