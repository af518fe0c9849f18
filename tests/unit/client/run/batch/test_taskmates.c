#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/run/batch/taskmates.h"

#define MATES 3
#define NO_LEADER 99

static char name[64];

/* A task that exits with the leader's exit code. */
static pid_t start_mate(void)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    struct err e;
    int code = 0;
    if (taskmates_follow(name, &code, &e) != ERR_OK)
        _exit(e.code == ERR_UNAVAILABLE ? NO_LEADER : 98);
    _exit(code);
}

static int code_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_all_get_the_exit_code_of_the_leader(void **state)
{
    struct taskmates lead, second;
    pid_t mates[MATES];
    struct err e;
    (void)state;
    mates[0] = start_mate(); /* this task starts before there is a leader */
    assert_int_equal(taskmates_lead(&lead, name, MATES, &e), ERR_OK);
    for (int i = 1; i < MATES; i++)
        mates[i] = start_mate();
    assert_int_equal(taskmates_lead(&second, name, MATES, &e), ERR_FAILED_PRECONDITION);
    taskmates_end(&lead, 7);
    for (int i = 0; i < MATES; i++)
        assert_int_equal(code_of(mates[i]), 7);
    assert_int_equal(taskmates_lead(&second, name, 0, &e), ERR_OK); /* the name is free again */
    taskmates_end(&second, 0);
}

/* If the number of tasks is unknown, those that have connected are answered, and no others are waited for. */
static void test_unknown_number_of_tasks(void **state)
{
    struct taskmates lead;
    struct err e;
    (void)state;
    assert_int_equal(taskmates_lead(&lead, name, -1, &e), ERR_OK);
    taskmates_end(&lead, 3);
    assert_int_equal(taskmates_lead(&lead, name, 1, &e), ERR_OK);
    lead.until_ms =
        0; /* as if half a minute had passed: the leader does not wait for a task that has not connected */
    taskmates_end(&lead, 3);
    assert_int_equal(taskmates_lead(&lead, name, 1, &e), ERR_OK);
    pid_t mate = start_mate();
    taskmates_end(&lead, 0);
    assert_int_equal(code_of(mate), 0);
}

static bool ignores_signal(pid_t pid, int signal_number)
{
    CLEANUP(free_text) char *path = xasprintf("/proc/%d/status", (int)pid);
    unsigned long long ignored = 0;
    char line[256];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "SigIgn: %llx", &ignored) == 1)
            break;
    fclose(file);
    return ignored & 1ull << (signal_number - 1);
}

/* A signal that ends a step reaches all its tasks; the leader decides what to do. */
static void test_waiting_tasks_ignore_signals(void **state)
{
    struct taskmates lead;
    struct err e;
    (void)state;
    assert_int_equal(taskmates_lead(&lead, name, 1, &e), ERR_OK);
    pid_t mate = start_mate();
    while (!ignores_signal(mate, SIGUSR2)) /* the last signal that a task begins to ignore */
        sched_yield();
    kill(mate, SIGTERM);
    kill(mate, SIGINT);
    kill(mate, SIGUSR1);
    taskmates_end(&lead, 143);
    assert_int_equal(code_of(mate), 143);
}

static void test_killed_leader(void **state)
{
    (void)state;
    pid_t leader = fork();
    if (leader == 0) {
        struct taskmates lead;
        struct err e;
        if (taskmates_lead(&lead, name, 1, &e) != ERR_OK)
            _exit(1);
        struct pollfd mate = {.fd = lead.fd, .events = POLLIN};
        poll(&mate, 1, -1);
        raise(SIGKILL);
    }
    assert_int_equal(code_of(start_mate()), NO_LEADER);
    assert_int_equal(waitpid(leader, NULL, 0), leader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_get_the_exit_code_of_the_leader),
        cmocka_unit_test(test_unknown_number_of_tasks),
        cmocka_unit_test(test_waiting_tasks_ignore_signals),
        cmocka_unit_test(test_killed_leader),
    };
    snprintf(name, sizeof(name), "test-%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
