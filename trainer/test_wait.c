#include "trainer/test_wait.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/member/link/watch.h"
#include "trainer/signals.h"

#define LOOK_NS 20000000 /* waits look this often whether they are over */

void test_wait_pace(struct trainer *t)
{
    const char *text = getenv("DDP_TEST_STEP_MS");
    char *rest;
    if (!text)
        return;
    const int64_t due = t->paced_ns + strtoll(text, &rest, 10) * 1000000;
    const char *file = *rest == ':' ? rest + 1 : NULL;
    int64_t left = t->paced_ns ? due - clock_mono_ns() : 0;
    while (left > 0 && !trainer_stop_signal && !link_stop_asked(t->link) && !link_over(t->link) &&
           !(file && access(file, F_OK))) {
        const struct timespec pause = {.tv_nsec = left < LOOK_NS ? left : LOOK_NS};
        nanosleep(&pause, NULL);
        left = due - clock_mono_ns();
    }
    t->paced_ns = clock_mono_ns();
}

static void hold_while_file_exists(const struct trainer *t, const char *name, int64_t step)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    const char *text = getenv(name);
    char *rest;
    if (!text || strtoll(text, &rest, 10) != step || *rest != ':')
        return;
    if (access(rest + 1, F_OK))
        return;
    log_info("held_for_test", "rank=%d step=%lld", t->formation.rank, (long long)step);
    do
        nanosleep(&pause, NULL);
    while (!access(rest + 1, F_OK));
}

void test_wait_hold(const struct trainer *t)
{
    hold_while_file_exists(t, "DDP_TEST_HOLD_STEP", t->engine.step + 1);
}

void test_wait_copy(const struct trainer *t)
{
    hold_while_file_exists(t, "DDP_TEST_HOLD_COPY", t->engine.step);
}

int64_t test_wait_space(int64_t ms)
{
    const char *text = getenv("DDP_TEST_SPACE_WAIT_MS");
    return text ? strtoll(text, NULL, 10) : ms;
}

/* Also called in a child process, which has one thread but inherits the locks of its parent's threads. So it must not
 * take a lock. */
static bool test_file_has(const char *path, const char *words)
{
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[64];
    const size_t len = strlen(words);

    return fd >= 0 && read(fd, text, sizeof(text)) >= (ssize_t)len && !memcmp(text, words, len);
}

/* A process is in state D while it waits for the child of a vfork. This child has a copy of the memory. */
static void wait_in_kernel(const char *path, const char *words)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    const pid_t parent = getpid();
    const pid_t child = (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);

    if (child < 0)
        return;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent && test_file_has(path, words))
            nanosleep(&pause, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

void test_wait_stuck(const struct trainer *t)
{
    const char *path = getenv("DDP_TEST_STUCK");
    char spin[32], kernel[32];

    if (!path)
        return;
    snprintf(spin, sizeof(spin), "%d spin", (int)getpid());
    snprintf(kernel, sizeof(kernel), "%d kernel", (int)getpid());
    if (test_file_has(path, spin) || test_file_has(path, kernel))
        log_info("stuck_for_test", "rank=%d step=%lld", t->formation.rank, (long long)t->engine.step + 1);
    while (test_file_has(path, spin))
        for (const int64_t end = clock_mono_ns() + LOOK_NS; clock_mono_ns() < end;)
            ;
    if (test_file_has(path, kernel))
        wait_in_kernel(path, kernel);
}
