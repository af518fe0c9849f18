/* Jobs that ask for more than the cluster has: what they cost, what runs past them, and that their reason stays right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/coordinator/core/placement/capacity.h"
#include "tests/unit/coordinator/core/core_fixture.h"

static size_t scans; /* of all nodes, for one job each */

size_t __real_capacity_candidates(const struct core *core, const struct job *job, enum slot_kind kind,
                                  enum capacity_when when, struct placement_choice *out);
size_t __wrap_capacity_candidates(const struct core *core, const struct job *job, enum slot_kind kind,
                                  enum capacity_when when, struct placement_choice *out);
size_t __wrap_capacity_candidates(const struct core *core, const struct job *job, enum slot_kind kind,
                                  enum capacity_when when, struct placement_choice *out)
{
    scans++;
    return __real_capacity_candidates(core, job, kind, when, out);
}

bool __real_capacity_feasible(const struct core *core, const struct job *job, enum slot_kind kind);
bool __wrap_capacity_feasible(const struct core *core, const struct job *job, enum slot_kind kind);
bool __wrap_capacity_feasible(const struct core *core, const struct job *job, enum slot_kind kind)
{
    scans++;
    return __real_capacity_feasible(core, job, kind);
}

enum slot_kind __real_capacity_slot_kind(const struct core *core, const struct job *job);
enum slot_kind __wrap_capacity_slot_kind(const struct core *core, const struct job *job);
enum slot_kind __wrap_capacity_slot_kind(const struct core *core, const struct job *job)
{
    scans++; /* with `device: auto` it looks at all nodes, too */
    return __real_capacity_slot_kind(core, job);
}

#define TOO_LARGE "nodes: 50\n"

static void submit_too_large(struct core_fixture *f, int count)
{
    for (int i = 0; i < count; i++)
        fixture_submit(f, TOO_LARGE);
}

static void jobs_that_are_too_large_are_looked_at_once(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t first = fixture_submit(f, ""), second = fixture_submit(f, "");
    submit_too_large(f, 1000);
    fixture_form(f, first);
    scans = 0;
    fixture_exit(f, first, 0, 0, 0);
    assert_int_equal(fixture_job(f, second), JOB_STARTING);
    assert_in_range(scans, 1, 20);
    assert_string_equal(fixture_waits(f, second + 1000),
                        "waits for 50 nodes with 1 slot each: the cluster has 1");
}

static void any_number_of_them_lets_later_jobs_pass(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 1);
    int64_t running = fixture_submit(f, ""), large = fixture_submit(f, "procs_per_node: 2\n");
    int64_t head = fixture_submit(f, "only_nodes: [box1]\n");
    submit_too_large(f, 300);
    int64_t behind = fixture_submit(f, "only_nodes: [box2]\n");
    fixture_form(f, running);
    assert_string_equal(fixture_node_of(f, running, 0), "box2");
    assert_string_equal(fixture_node_of(f, large, 0), "box1");
    assert_int_equal(fixture_job(f, head), JOB_QUEUED);
    assert_int_equal(fixture_job(f, behind), JOB_QUEUED);
    fixture_exit(f, running, 0, 0, 0);
    assert_int_equal(fixture_job(f, behind), JOB_STARTING);
}

#define WAITS(has) "waits for 50 nodes with 1 slot each: the cluster has " has

static void their_reason_follows_the_nodes(void **state)
{
    struct core_fixture *f = *state;
    const char *const ana[] = {"ana", "no account ana on box1", NULL}, *const none[] = {NULL};
    int64_t job = fixture_submit(f, TOO_LARGE);

    assert_string_equal(fixture_waits(f, job), WAITS("0"));
    fixture_node(f, "box1", 1);
    assert_string_equal(fixture_waits(f, job), WAITS("1"));
    fixture_node(f, "box2", 1);
    assert_string_equal(fixture_waits(f, job), WAITS("2"));
    fixture_operator(f, CORE_DRAIN, "box2");
    assert_string_equal(fixture_waits(f, job), WAITS("1, 1 more is lost or drained"));
    fixture_operator(f, CORE_UNDRAIN, "box2");
    fixture_accounts(f, "box1", ana);
    assert_string_equal(fixture_waits(f, job), WAITS("1, no account ana on box1"));
    fixture_accounts(f, "box1", none);
    assert_string_equal(fixture_waits(f, job), WAITS("2"));
}

static void their_reason_follows_the_job(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, TOO_LARGE);
    assert_int_equal(fixture_order(f, CORE_HOLD, job, 0, true), ERR_OK);
    assert_non_null(strstr(fixture_waits(f, job), "on hold"));
    assert_int_equal(fixture_order(f, CORE_HOLD, job, 0, false), ERR_OK);
    assert_string_equal(fixture_waits(f, job), WAITS("1"));
    assert_int_equal(fixture_resize(f, job, 9, 9), ERR_OK);
    assert_string_equal(fixture_waits(f, job), "waits for 9 nodes with 1 slot each: the cluster has 1");
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

/* The nodes are as before, but what the job waits for has changed twice since. */
static void a_reason_of_former_nodes_comes_back(void **state)
{
    struct core_fixture *f = *state;
    static const char small[] =
        "waits for 2 nodes with 1 slot each: the cluster has 1, 1 more is lost or drained";

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_form(f, fixture_submit(f, "only_nodes: [box1]\n"));
    fixture_form(f, fixture_submit(f, "only_nodes: [box2]\n"));
    fixture_operator(f, CORE_DRAIN, "box2");
    int64_t job = fixture_submit(f, "nodes: 2\n");
    assert_string_equal(fixture_waits(f, job), small);
    fixture_operator(f, CORE_UNDRAIN, "box2");
    assert_non_null(strstr(fixture_waits(f, job), "waits for 2 slots"));
    fixture_operator(f, CORE_DRAIN, "box2");
    assert_string_equal(fixture_waits(f, job), small);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(jobs_that_are_too_large_are_looked_at_once),
        TEST(any_number_of_them_lets_later_jobs_pass),
        TEST(their_reason_follows_the_nodes),
        TEST(their_reason_follows_the_job),
        TEST(a_reason_of_former_nodes_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
