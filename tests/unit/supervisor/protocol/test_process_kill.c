/* A leftover process counts until it has ended. While it ends, only the list of killed processes tells that it belongs to the
 * spawn. */
#include "tests/unit/base/check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/supervisor/protocol/process_kill.h"

#define SPAWN "7.test-node.1"
#define OTHER_SPAWN "7.test-node.2"
#define DEADLINE_S 30

static char
    owner[32]; /* with this process's pid, because the test may run several times at once on one machine */
static pid_t leftover; /* 0: none */

/* ---- the leftover is this program with an argument */

static void leftover_ready(void)
{
    if (write(STDOUT_FILENO, "", 1) != 1)
        _exit(1);
}

static void *last_thread(void *unused)
{
    (void)unused;
    leftover_ready();
    for (;;)
        pause();
    return NULL;
}

static _Noreturn void leftover_main(bool first_thread_ends)
{
    pthread_t thread;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (first_thread_ends && !pthread_create(&thread, NULL, last_thread, NULL))
        syscall(SYS_exit, 0); /* of this thread alone */
    leftover_ready();
    for (;;)
        pause();
}

static void leftover_start(const char *how, const char *spawn)
{
    char program[] = "/proc/self/exe";
    char *mark = xasprintf("DDP_SPAWN_ID=%s", spawn), *mine = xasprintf("DDP_AGENT_ID=%s", owner);
    char *word = xstrdup(how), *argv[] = {program, word, NULL}, *env[] = {mark, mine, NULL};
    posix_spawn_file_actions_t actions;
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, ready[1], STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn(&leftover, argv[0], &actions, NULL, argv, env), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    free(mark);
    free(mine);
    free(word);
}

/* If it has ended, it is reaped. */
static bool leftover_ended(void)
{
    if (waitpid(leftover, NULL, WNOHANG) != leftover)
        return false;
    leftover = 0;
    return true;
}

static int leftover_stop(void **state)
{
    (void)state;
    if (leftover) {
        kill(leftover, SIGKILL);
        waitpid(leftover, NULL, 0);
    }
    leftover = 0;
    return 0;
}

static char leftover_state(void)
{
    char path[64], text[512] = "", *name_end;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)leftover);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    name_end = strrchr(text, ')');
    assert_non_null(name_end);
    return name_end[2];
}

static void wait_a_little(time_t began)
{
    if (time(NULL) > began + (time_t)DEADLINE_S * test_slow())
        fail_msg("waited %d s", DEADLINE_S * test_slow());
    poll(NULL, 0, 1);
}

/* ---- tests */

static void wait_for_end(struct process_list *killed)
{
    const time_t began = time(NULL);

    while (marked_kill(SPAWN, owner, killed) > 0)
        wait_a_little(began);
}

static void marked_processes_count_until_they_have_ended(void **state)
{
    CLEANUP(process_list_release) struct process_list killed = {0};
    (void)state;

    leftover_start("whole", SPAWN);
    assert_false(process_exiting(leftover));
    assert_int_equal(marked_kill(SPAWN, owner, &killed), 1);
    assert_int_equal(killed.count, 1);
    assert_int_equal(killed.items[0].pid, leftover);
    wait_for_end(&killed);
    assert_true(process_exiting(leftover));
    assert_true(leftover_ended());
}

static void descendants_count_until_they_have_ended(void **state)
{
    CLEANUP(process_list_release) struct process_list killed = {0};
    const pid_t other = getppid(); /* of a second spawn, so that only its mark tells whose process it is */
    const struct process_mark mark = {
        .over = true, .id = SPAWN, .owner = owner, .others = &other, .other_count = 1};
    const time_t began = time(NULL);
    (void)state;

    leftover_start("whole", SPAWN);
    assert_int_equal(descendants_kill(&mark, &killed), 1);
    assert_int_equal(killed.count, 1);
    assert_int_equal(killed.items[0].pid, leftover);
    while (descendants_kill(&mark, &killed) > 0)
        wait_a_little(began);
    assert_true(leftover_ended());
}

/* The list keeps the start time, too, so a later process with the same pid does not count. */
static void remembered_processes_count(void **state)
{
    CLEANUP(process_list_release) struct process_list killed = {0};
    (void)state;

    leftover_start("whole", OTHER_SPAWN);
    process_list_add(&killed, leftover);
    process_list_add(&killed, leftover);
    assert_int_equal(killed.count, 1);
    killed.items[0].started++;
    assert_int_equal(marked_kill(SPAWN, owner, &killed), 0);
    assert_false(leftover_ended());
    killed.items[0].started--;
    assert_int_equal(marked_kill(SPAWN, owner, &killed), 1);
    wait_for_end(&killed);
    assert_true(leftover_ended());
}

static void a_process_counts_until_its_last_thread_ends(void **state)
{
    CLEANUP(process_list_release) struct process_list killed = {0};
    const time_t began = time(NULL);
    (void)state;

    leftover_start("first thread ends", SPAWN);
    while (leftover_state() != 'Z') /* the state of the first thread */
        wait_a_little(began);
    assert_false(process_exiting(leftover));
    assert_int_equal(marked_kill(OTHER_SPAWN, owner, &killed), 0);
    assert_int_equal(marked_kill(SPAWN, owner, &killed), 1);
    wait_for_end(&killed);
    assert_true(leftover_ended());
}

static void strangers_live(void **state)
{
    CLEANUP(process_list_release) struct process_list killed = {0};
    (void)state;

    leftover_start("whole", SPAWN);
    assert_int_equal(marked_kill(SPAWN, "somebody-else", &killed), 0);
    assert_int_equal(marked_kill(OTHER_SPAWN, owner, &killed), 0);
    assert_int_equal(killed.count, 0);
    assert_false(leftover_ended());
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(marked_processes_count_until_they_have_ended, leftover_stop),
        cmocka_unit_test_teardown(descendants_count_until_they_have_ended, leftover_stop),
        cmocka_unit_test_teardown(remembered_processes_count, leftover_stop),
        cmocka_unit_test_teardown(a_process_counts_until_its_last_thread_ends, leftover_stop),
        cmocka_unit_test_teardown(strangers_live, leftover_stop),
    };

    if (argc > 1)
        leftover_main(!strcmp(argv[1], "first thread ends"));
    snprintf(owner, sizeof(owner), "test-%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
