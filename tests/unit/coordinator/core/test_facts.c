/* What a node says of jobs that the coordinator does not know. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/coordinator/core/core_fixture.h"

enum { MANY = 100000, KEPT = 64 };

/* The node runs a worker of each of these jobs, twice. Returns the number of events, and not their texts, because the fixture takes
 * long for many of them. */
static size_t events_of_facts(struct core_fixture *f, uint64_t session, int64_t first, int64_t count)
{
    struct spawn_fact *facts = xcalloc((size_t)count * 2, sizeof(*facts));
    struct core_event event = {.kind = CORE_FACTS, .session = session};
    struct core_out out = {0};
    size_t events = 0;

    for (int64_t i = 0; i < 2 * count; i++) /* in no order */
        facts[i] =
            (struct spawn_fact){.job = first + i * 7919 % count, .spawn = i + 1, .state = SPAWN_RUNNING};
    event.facts.epoch = f->config.epoch;
    event.facts.facts = facts;
    event.facts.count = (size_t)count * 2;
    core_event(f->core, &event, f->now, &out);
    for (size_t i = 0; i < out.change_count; i++)
        events += out.changes[i].kind == CHANGE_EVENT;
    core_out_release(&out);
    free(facts);
    return events;
}

static size_t unknown_jobs(const struct core_fixture *f)
{
    struct core_node_status status;
    struct err e;

    assert_int_equal(core_node_status(f->core, "box1", f->now, &status, &e), ERR_OK);
    const size_t count = status.unknown_count;
    for (size_t i = 1; i < count; i++)
        assert_true(status.unknown_jobs[i - 1] < status.unknown_jobs[i]);
    core_node_status_release(&status);
    return count;
}

static void many_unknown_jobs_make_few_events(void **state)
{
    struct core_fixture *f = *state;
    const uint64_t session = fixture_node(f, "box1", 1);

    assert_int_equal(events_of_facts(f, session, 1000, MANY), KEPT + 1);
    assert_int_equal(unknown_jobs(f), KEPT);
    assert_int_equal(events_of_facts(f, session, 1000, MANY), 0); /* it was said */
    /* as many others: the first of them are new */
    assert_int_equal(events_of_facts(f, session, 1000000, MANY), KEPT);
}

static void each_unknown_job_is_reported_once(void **state)
{
    struct core_fixture *f = *state;
    const uint64_t session = fixture_node(f, "box1", 1);

    assert_int_equal(events_of_facts(f, session, 50, 3), 3);
    assert_int_equal(events_of_facts(f, session, 50, 4), 1);
    assert_int_equal(events_of_facts(f, session, 52, 2), 0);
    assert_int_equal(unknown_jobs(f), 2);
    const struct spawn_fact facts[] = {{.job = 60, .spawn = 1, .state = SPAWN_RUNNING},
                                       {.job = 61, .spawn = 1, .state = SPAWN_EXITED}};
    fixture_facts(f, "box1", facts, 2);
    assert_true(fixture_said(f, "box1 runs job 60, which this coordinator does not know"));
    assert_false(fixture_said(f, "61"));
}

/* The agent refuses the worker, and its facts still answer the wish before. */
static void refuse_unsaved(struct core_fixture *f, uint64_t session, int64_t job)
{
    const struct spawn_fact fact = {.job = job,
                                    .spawn = fixture_spawn(f, job, 0),
                                    .state = SPAWN_EXITED,
                                    .not_started = true,
                                    .node_trouble = true,
                                    .message = "No space left on device"};
    struct core_event event = {.kind = CORE_FACTS, .session = session};
    struct core_wish wish;
    struct err e;

    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    event.facts.epoch = wish.epoch;
    event.facts.revision = wish.revision - 1;
    event.facts.facts = &fact;
    event.facts.count = 1;
    core_wish_release(&wish);
    core_event(f->core, &event, f->now, &f->out);
}

static void a_node_that_cannot_save_its_wish_gets_no_jobs(void **state)
{
    struct core_fixture *f = *state;
    const uint64_t session = fixture_node(f, "box1", 1);
    const int64_t job = fixture_submit(f, "max_restarts: 0\n");

    for (int i = 0; i < 8; i++) { /* more than a node's faults are forgiven */
        assert_int_equal(fixture_job(f, job), JOB_STARTING);
        refuse_unsaved(f, session, job);
        assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
        fixture_pass_beating(f, 31000, "box1"); /* it has rested */
        assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
        fixture_facts(f, "box1", NULL, 0); /* it has saved the newest wish */
    }
    fixture_form(f, job);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(many_unknown_jobs_make_few_events),
        TEST(each_unknown_job_is_reported_once),
        TEST(a_node_that_cannot_save_its_wish_gets_no_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
