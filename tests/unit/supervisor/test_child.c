/* Tests that a child hears a signal that is sent as soon as its process group exists, and the look-up of its account. */
#include "tests/unit/base/check.h"

#include <errno.h>
#include <nss.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
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

static void an_account_that_cannot_be_looked_up_is_not_missing(void **state)
{
    struct rlimit before, few;
    struct passwd *account;
    struct err e;

    (void)state;
    assert_int_equal(__nss_configure_lookup("passwd", "files"),
                     0); /* a later service may answer without a descriptor */
    assert_int_equal(child_account("nobody-of-that-name", &account, &e), ERR_NOT_FOUND);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    enum err_code code = child_account("nobody-of-that-name", &account, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(code, ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(e.msg, "account of user nobody-of-that-name: Too many open files"));
}

static void failed_storage_is_a_fault_of_the_node(void **state)
{
    static const int of_node[] = {ENOMEM, EMFILE, ENOSPC, EIO, ESTALE, ENOTCONN, ETIMEDOUT};
    static const int of_job[] = {ENOENT, EACCES, ENOEXEC, ENOTDIR, E2BIG};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(of_node); i++)
        assert_true(child_node_failed(&(struct child_failure){.errnum = of_node[i]}));
    for (size_t i = 0; i < ARRAY_LEN(of_job); i++)
        assert_false(child_node_failed(&(struct child_failure){.errnum = of_job[i]}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_right_after_the_start_is_heard),
        cmocka_unit_test(an_account_that_cannot_be_looked_up_is_not_missing),
        cmocka_unit_test(failed_storage_is_a_fault_of_the_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
