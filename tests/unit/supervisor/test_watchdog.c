#include "tests/unit/base/check.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/supervisor/watchdog.h"

/* A loop that waits as long as it may, and does nothing else, stays alive. */
static void the_wait_ends_before_the_watchdog(void **state)
{
    struct watchdog w = {0};
    struct err e;

    (void)state;
    assert_ok(watchdog_open(&w, &e), &e);
    assert_true(watchdog_wait_most(&w, 1000) == INT64_MAX);
    watchdog_set(&w, 1000 + WATCHDOG_MARGIN_MS, 1000);
    assert_true(watchdog_wait_most(&w, 1000) <= WATCHDOG_MARGIN_MS / 2);
    assert_true(watchdog_wait_most(&w, 1000) > 0);
    assert_int_equal(watchdog_wait_most(&w, 1000 + WATCHDOG_MARGIN_MS), 0);
    assert_int_equal(watchdog_wait_most(&w, 9000 + WATCHDOG_MARGIN_MS), 0);
    watchdog_delay(&w, 1000); /* the end is not nearer than the margin */
    assert_int_equal(w.at, 1000 + WATCHDOG_MARGIN_MS);
    watchdog_delay(&w, 1700);
    assert_int_equal(w.at, 1700 + WATCHDOG_MARGIN_MS);
    watchdog_set(&w, 0, 1000);
    watchdog_delay(&w, 1700);
    assert_true(watchdog_wait_most(&w, 1000) == INT64_MAX);
    watchdog_close(&w);
}

static void the_end_comes_by_sigalrm(void **state)
{
    const pid_t child = fork();
    int status;

    (void)state;
    if (child == 0) {
        struct watchdog w = {0};
        struct err e;
        signal(SIGALRM, SIG_IGN); /* a parent may have done so */
        if (watchdog_open(&w, &e))
            _exit(1);
        watchdog_set(&w, clock_boot_ms() + 60000, clock_boot_ms());
        watchdog_set(&w, clock_boot_ms() - 1, clock_boot_ms());
        for (;;)
            pause();
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGALRM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wait_ends_before_the_watchdog),
        cmocka_unit_test(the_end_comes_by_sigalrm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
