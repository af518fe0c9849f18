#include "tests/unit/base/check.h"

#include "base/mem.h"
#include "daemon/coordinator/service/logs/log_gaps.h"

static void expect_gaps(const struct log_gaps *g, bool started, bool job_ended, const char *wanted)
{
    CLEANUP(free_text) char *note = log_gaps_note(g, started, job_ended);

    if (wanted)
        assert_string_equal(note, wanted);
    else
        assert_null(note);
}

static void notes_name_ranks_and_reasons(void **state)
{
    CLEANUP(log_gaps_release) struct log_gaps g = {0};

    (void)state;
    expect_gaps(&g, true, true, NULL);
    log_gaps_add(&g, 3, false);
    log_gaps_add(&g, 3, false); /* its other log */
    expect_gaps(&g, false, true, "rank 3 did not start");
    expect_gaps(&g, false, false, "rank 3 has not started yet");
    expect_gaps(&g, true, true, NULL);
    log_gaps_add(&g, 1, false);
    log_gaps_add(&g, 2, true);
    expect_gaps(&g, false, false, "ranks 1 and 3 have not started yet");
    expect_gaps(&g, true, true, "the log of rank 2 has expired or was removed");
    for (int rank = 10; rank < 20; rank++)
        log_gaps_add(&g, rank, true);
    expect_gaps(&g, true, true,
                "the logs of ranks 2, 10, 11, 12, 13, 14, 15, 16 and 3 more have expired or were removed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_name_ranks_and_reasons),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
