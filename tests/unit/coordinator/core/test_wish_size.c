#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/wish.h"
#include "tests/unit/coordinator/core/core_fixture.h"

/* The size of a node's wish: an agent receives no larger message than 16 MiB, and without wishes it does nothing that anybody asks. */

enum { LARGE = 250 << 10, MANY = 60 };

static int64_t submit_large(struct core_fixture *f)
{
    CLEANUP(free_text) char *comment = xcalloc(LARGE + 1, 1);
    CLEANUP(free_text) char *file = NULL;

    memset(comment, 'x', LARGE);
    file = xasprintf("# %s\n", comment);
    return fixture_submit(f, file);
}

static void node_with_cards(struct core_fixture *f)
{
    f->keeps_cards = true;
    fixture_node(f, "box1", MANY);
}

static void wish_of_box1(struct core_fixture *f, struct core_wish *out)
{
    struct err e = {0};

    assert_ok(core_wish(f->core, "box1", out, &e), &e);
}

static size_t bytes_of_groups(struct core_fixture *f)
{
    struct core_wish wish;
    size_t bytes = 0;

    wish_of_box1(f, &wish);
    for (size_t i = 0; i < wish.group_count; i++)
        bytes += strlen(wish.groups[i].job_file);
    core_wish_release(&wish);
    return bytes;
}

static void a_node_gets_no_more_jobs_than_a_wish_can_hold(void **state)
{
    struct core_fixture *f = *state;
    int64_t first, last;

    node_with_cards(f);
    first = last = submit_large(f);
    while (fixture_job(f, last) == JOB_STARTING && last < MANY)
        last = submit_large(f);
    assert_int_equal(fixture_job(f, last), JOB_QUEUED);
    assert_true(bytes_of_groups(f) <= WISH_REQUESTS);
    assert_true(bytes_of_groups(f) > WISH_REQUESTS - LARGE - 1000);
    assert_string_equal(fixture_waits(f, last),
                        "waits for jobs on box1 to end: with this one, the job files and environments of its "
                        "jobs have more than 10 MiB");
    fixture_form(f, first);
    fixture_exit(f, first, 0, 0, 0);
    assert_int_equal(fixture_job(f, last), JOB_STARTING);
    assert_true(bytes_of_groups(f) <= WISH_REQUESTS);
}

static size_t cards_of_wish(struct core_fixture *f)
{
    struct core_wish wish;

    wish_of_box1(f, &wish);
    size_t count = wish.card_count;
    core_wish_release(&wish);
    return count;
}

/* Each card has a copy of its job's file, so a node that has lost its cards gets them in several wishes. */
static void cards_come_in_several_wishes(void **state)
{
    struct core_fixture *f = *state;
    const size_t jobs = 30, most = WISH_CARDS / LARGE;
    size_t came = 0, wishes = 0;

    node_with_cards(f);
    for (size_t i = 0; i < jobs; i++)
        assert_int_equal(fixture_job(f, submit_large(f)), JOB_STARTING);
    while (cards_of_wish(f) > 0) {
        assert_true(cards_of_wish(f) <= most);
        fixture_all_run(f, "box1"); /* tells that this wish has come */
        assert_true(++wishes < 10);
    }
    fixture_hello(f, "box1", "box1", MANY, 0);
    for (wishes = 0; cards_of_wish(f) > 0; wishes++) {
        assert_true(cards_of_wish(f) <= most);
        came += cards_of_wish(f);
        fixture_all_run(f, "box1");
    }
    assert_int_equal(came, jobs);
    assert_int_equal(wishes, (jobs + most - 1) / most);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_node_gets_no_more_jobs_than_a_wish_can_hold, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(cards_come_in_several_wishes, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
