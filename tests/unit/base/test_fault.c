#include "tests/unit/base/check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"

/* This test is built with fault points, whatever the preset. */

struct outcome {
    int signal;
    unsigned hits; /* bit i: hit i+1 failed */
};

/* A process reads its plan once, so each plan is tried in a process of its own. */
static struct outcome run_plan(const char *plan)
{
    struct outcome out = {0};
    int status, ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        unsigned hits = 0;

        close(STDERR_FILENO);
        setenv("DDP_FAULT", plan, 1);
        for (int i = 0; i < 4; i++)
            hits |= (unsigned)fault_hit("store.commit") << i;
        fault_hit("other");
        _exit(write(ends[1], &hits, sizeof(hits)) != sizeof(hits));
    }
    close(ends[1]);
    if (read(ends[0], &out.hits, sizeof(out.hits)) < 0)
        out.hits = ~0u;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    out.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return out;
}

static void faults_occur_at_the_planned_hits(void **state)
{
    (void)state;
    assert_int_equal(run_plan("").hits, 0);
    assert_int_equal(run_plan("store.commit").hits, 1);
    assert_int_equal(run_plan("store.commit:3").hits, 4);
    assert_int_equal(run_plan("store.commit:2+").hits, 14);
    assert_int_equal(run_plan("else:1,store.commit:1").hits, 1);
    assert_int_equal(run_plan("store:1,store.commit.x:1").hits, 0);
}

static void kill_ends_the_process(void **state)
{
    (void)state;
    assert_int_equal(run_plan("store.commit:2=kill").signal, SIGKILL);
    assert_int_equal(run_plan("store.commit:5=kill").signal, 0);
}

static void a_fault_of_another_rank_does_not_occur(void **state)
{
    (void)state;
    setenv("RANK", "1", 1);
    assert_int_equal(run_plan("store.commit:2=kill@1").signal, SIGKILL);
    assert_int_equal(run_plan("store.commit:2=kill@11").signal, 0);
    assert_int_equal(run_plan("store.commit:1@0,store.commit:3@1").hits, 4);
    unsetenv("RANK");
    assert_int_equal(run_plan("store.commit@1").hits, 0);
}

static void an_invalid_plan_is_refused(void **state)
{
    (void)state;
    assert_int_equal(run_plan("store.commit:0").signal, SIGABRT);
    assert_int_equal(run_plan("store.commit:x").signal, SIGABRT);
    assert_int_equal(run_plan(":1").signal, SIGABRT);
    assert_int_equal(run_plan("store.commit:1=stop").signal, SIGABRT);
    assert_int_equal(run_plan("store.commit:1@x").signal, SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_occur_at_the_planned_hits),
        cmocka_unit_test(kill_ends_the_process),
        cmocka_unit_test(a_fault_of_another_rank_does_not_occur),
        cmocka_unit_test(an_invalid_plan_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
