/* Tests that a child hears a signal that is sent as soon as its process group exists. */
#include "tests/unit/base/check.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/signals.h"
#include "daemon/supervisor/child.h"

#define CHILDREN 300
#define DEADLINE_MS 20000

/* Sends SIGTERM as soon as the child's process group exists. */
static void stop_group(pid_t child)
{
    const int64_t end_ms = clock_boot_ms() + DEADLINE_MS * test_slow();

    while (kill(-child, SIGTERM)) {
        assert_int_equal(errno, ESRCH);
        assert_true(clock_boot_ms() < end_ms);
        sched_yield();
    }
}

static void a_stop_right_after_the_start_is_heard(void **state)
{
    (void)state;
    signals_leave_to_parent(); /* as the supervisor of `ddpctl run` does, which therefore ignores SIGTERM */
    for (int i = 0; i < CHILDREN; i++) {
        const pid_t parent = getpid(), child = fork();
        int status;

        if (child == 0) {
            if (child_detach(NULL, parent))
                _exit(1);
            alarm(20); /* ends a child that did not hear the signal */
            for (;;)
                pause();
        }
        assert_true(child > 0);
        stop_group(child);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGTERM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_right_after_the_start_is_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
