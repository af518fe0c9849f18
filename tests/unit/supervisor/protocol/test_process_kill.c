/* Leftover processes are counted until they hold nothing any more, also while the kernel releases their memory and their
 * environment cannot be read. */
#include "tests/unit/base/check.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/supervisor/protocol/process_kill.h"

#define MEMORY ((size_t)128 << 20) /* takes the kernel many times as long to release as a search of /proc */
#define SPAWN "7.test-node.1"
#define OWNER "test-process-kill"

/* The program itself as a leftover: writes a byte once it has its memory, and waits. */
static int leftover_main(void)
{
    char *memory = xmalloc(MEMORY);

    memset(memory, 1, MEMORY);
    if (write(1, memory, 1) != 1)
        return 1;
    for (;;)
        pause();
}

static pid_t leftover_start(void)
{
    char program[] = "/proc/self/exe", word[] = "leftover";
    char spawn[] = "DDP_SPAWN_ID=" SPAWN, owner[] = "DDP_AGENT_ID=" OWNER;
    char *argv[] = {program, word, NULL}, *env[] = {spawn, owner, NULL};
    posix_spawn_file_actions_t actions;
    int ready[2];
    pid_t pid;
    char byte;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, ready[1], 1), 0);
    assert_int_equal(posix_spawn(&pid, argv[0], &actions, NULL, argv, env), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* Whether it is a zombie; if so, it is reaped. */
static bool leftover_ended(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) == pid;
}

static void marked_processes_count_until_they_have_ended(void **state)
{
    CLEANUP(process_list_release) struct process_list killed = {0};
    const pid_t pid = leftover_start();
    (void)state;

    assert_int_equal(marked_kill(SPAWN, OWNER, &killed), 1);
    while (marked_kill(SPAWN, OWNER, &killed) > 0)
        poll(NULL, 0, 1);
    assert_true(leftover_ended(pid));
}

static void descendants_count_until_they_have_ended(void **state)
{
    CLEANUP(process_list_release) struct process_list killed = {0};
    const pid_t other = getppid(); /* of a second spawn, so that only its mark tells whose process it is */
    const struct process_mark mark = {
        .over = true, .id = SPAWN, .owner = OWNER, .others = &other, .other_count = 1};
    const pid_t pid = leftover_start();
    (void)state;

    assert_int_equal(descendants_kill(&mark, &killed), 1);
    while (descendants_kill(&mark, &killed) > 0)
        poll(NULL, 0, 1);
    assert_true(leftover_ended(pid));
}

static void strangers_live(void **state)
{
    CLEANUP(process_list_release) struct process_list killed = {0};
    const pid_t pid = leftover_start();
    (void)state;

    assert_int_equal(marked_kill(SPAWN, "somebody-else", &killed), 0);
    assert_int_equal(marked_kill("7.test-node.2", OWNER, &killed), 0);
    assert_int_equal(killed.count, 0);
    assert_false(leftover_ended(pid));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marked_processes_count_until_they_have_ended),
        cmocka_unit_test(descendants_count_until_they_have_ended),
        cmocka_unit_test(strangers_live),
    };
    (void)argv;
    if (argc > 1)
        return leftover_main();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
