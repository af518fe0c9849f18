#include "trainer/test_wait.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "trainer/member/link/watch.h"

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

void test_wait_hold(const struct trainer *t)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    const char *text = getenv("DDP_TEST_HOLD_STEP");
    char *rest;
    if (!text || strtoll(text, &rest, 10) != t->engine.step + 1 || *rest != ':')
        return;
    if (access(rest + 1, F_OK))
        return;
    log_info("held_for_test", "rank=%d step=%lld", t->formation.rank, (long long)t->engine.step + 1);
    do
        nanosleep(&pause, NULL);
    while (!access(rest + 1, F_OK));
}
