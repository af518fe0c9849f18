#include "tests/unit/base/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/observe/worker_samples.h"

/* The tests look at child processes that are stopped, wait or compute, and at their children. */

static pid_t process_start(void (*body)(int fd), int fd)
{
    pid_t pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(fd);
    _exit(0);
}

static void process_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void wait_in_read(int fd)
{
    char byte;

    (void)!read(fd, &byte, 1);
}

static void compute_forever(int fd)
{
    (void)fd;
    for (volatile unsigned long i = 0;; i++)
        ;
}

static void wait_for_child(int fd)
{
    process_start(wait_in_read, fd);
    wait(NULL);
}

/* Waits until the process shows the state, within a deadline. */
static struct process await_state(pid_t pid, char state)
{
    int64_t end_ms = clock_boot_ms() + 20000;
    struct process p = {0};

    while (clock_boot_ms() < end_ms)
        if (process_read(pid, &p) && p.state == state)
            return p;
    fail_msg("process is %c, not %c", p.state, state);
    return p;
}

static void a_process_shows_its_state(void **state)
{
    int fds[2];
    pid_t pid;
    struct process p;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid = process_start(wait_in_read, fds[0]);
    p = await_state(pid, 'S');
    assert_int_equal(p.parent, getpid());
    assert_in_range(p.threads, 1, 2); /* ThreadSanitizer adds a thread */
    assert_true(p.memory_bytes > 0);
    assert_true(!strncmp(p.name, "test_process", 12));
    kill(pid, SIGSTOP);
    await_state(pid, 'T');
    process_end(pid);
    assert_false(process_read(pid, &p));
}

/* Under qemu-user, /proc has the system calls of the emulator, whose numbers are another processor's. */
static bool calls_are_emulated(void)
{
    FILE *f = fopen("/proc/self/syscall", "r");
    long number = SYS_read;
    bool named = f && fscanf(f, "%ld", &number) == 1; /* the call that reads this line */

    if (f)
        fclose(f);
    return named && number != SYS_read;
}

static void the_system_call_is_named(void **state)
{
    char call[PROCESS_CALL], target[PROCESS_TARGET];
    int fds[2];
    pid_t pid;

    (void)state;
    if (calls_are_emulated()) {
        print_message("/proc/self/syscall has no read() while it is read: system calls are emulated\n");
        skip();
    }
    assert_int_equal(pipe(fds), 0);
    pid = process_start(wait_in_read, fds[0]);
    await_state(pid, 'S');
    process_wait(pid, call, target);
    process_end(pid);
    if (!strcmp(call, "read")) /* only where /proc/PID/syscall may be read */
        assert_string_equal(target, "pipe");
    else
        assert_non_null(strstr(call, "pipe"));
}

static void a_tree_holds_all_descendants(void **state)
{
    CLEANUP(process_list_release) struct process_list all = {0};
    CLEANUP(process_list_release) struct process_list tree = {0};
    CLEANUP(process_list_release) struct process_list none = {0};
    int64_t end_ms = clock_boot_ms() + 20000;
    int fds[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid = process_start(wait_for_child, fds[0]);
    while (tree.count < 2 && clock_boot_ms() < end_ms) {
        process_list_release(&all);
        process_list_release(&tree);
        process_list_all(&all);
        process_tree(&all, pid, &tree);
    }
    assert_int_equal(tree.count, 2);
    assert_int_equal(tree.items[0].pid, pid);
    assert_int_equal(tree.items[1].parent, pid);
    process_end(pid);
    kill(tree.items[1].pid, SIGKILL);
    process_list_release(&all);
    process_list_all(&all);
    process_tree(&all, pid, &none);
    assert_int_equal(none.count, 0);
}

static struct worker_samples *look_at(struct worker_sample *l, struct worker_samples *look)
{
    *look = (struct worker_samples){.items = l, .count = 1};
    worker_samples_take(look);
    return look;
}

static void a_sample_tells_stuck_from_busy_workers(void **state)
{
    char dir[] = "/tmp/ddp-test-look-XXXXXX";
    struct worker_sample l = {0};
    struct worker_samples look;
    struct err e;
    int fds[2];
    pid_t pid;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pipe(fds), 0);
    CLEANUP(free_text) char *log = xasprintf("%s/stderr.log", dir);
    assert_int_equal(file_write_atomic(log, "x", 1, 0600, &e), ERR_OK);

    pid = process_start(wait_in_read, fds[0]);
    await_state(pid, 'S');
    l = (struct worker_sample){.pid = pid, .log_dir = dir};
    look_at(&l, &look);
    assert_true(l.there);
    assert_int_equal(l.stuck, 0);
    assert_true(clock_wall_ms() - l.output_ms < 60000);
    assert_null(l.processes);

    kill(pid, SIGSTOP);
    await_state(pid, 'T');
    l = (struct worker_sample){.pid = pid, .log_dir = dir, .detail = true};
    look_at(&l, &look);
    assert_int_equal(l.stuck, 'T');
    assert_int_equal(l.process_count, 1);
    assert_int_equal(l.processes[0].p.state, 'T');
    strv_free(l.processes[0].stack);
    free(l.processes);
    process_end(pid);

    l = (struct worker_sample){.pid = pid, .log_dir = dir};
    look_at(&l, &look);
    assert_false(l.there);

    pid = process_start(compute_forever, -1);
    int64_t end_ms = clock_boot_ms() + 20000;
    do {
        l = (struct worker_sample){.pid = pid, .log_dir = dir};
        look_at(&l, &look);
    } while (l.cpu_ms < 50 && clock_boot_ms() < end_ms);
    assert_true(l.cpu_ms >= 50);
    process_end(pid);
    assert_int_equal(file_remove_tree(dir, &e), ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_shows_its_state),
        cmocka_unit_test(the_system_call_is_named),
        cmocka_unit_test(a_tree_holds_all_descendants),
        cmocka_unit_test(a_sample_tells_stuck_from_busy_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
