#include "trainer/member/coll/busy_poll.h"

#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>

#include "base/clock.h"

#define BUSY_NS 50000
#define SKIPS_MOST 63

bool busy_poll_asks(struct busy_poll *b)
{
    if (!b->on)
        return false;
    if (b->skip > 0) {
        b->skip--;
        return false;
    }
    return true;
}

void busy_poll_learn(struct busy_poll *b, bool in_time)
{
    b->skips = in_time ? 0 : 2 * b->skips + 1;
    if (b->skips > SKIPS_MOST)
        b->skips = SKIPS_MOST;
    b->skip = b->skips;
}

/* How often another thread has taken the core from this one. */
static long core_losses(void)
{
    struct rusage use;

    return getrusage(RUSAGE_THREAD, &use) ? 0 : use.ru_nivcsw;
}

int busy_poll(struct busy_poll *b, struct pollfd *fds, nfds_t count)
{
    if (busy_poll_asks(b)) {
        const long losses = core_losses();
        const int64_t end = clock_mono_ns() + BUSY_NS;
        int ready;

        do {
            ready = poll(fds, count, 0);
            if (ready == 0)
                sched_yield(); /* the bytes may come from a rank that waits for this core */
        } while (ready == 0 && core_losses() == losses && clock_mono_ns() < end);
        busy_poll_learn(b, ready != 0 && core_losses() == losses);
        if (ready != 0)
            return ready;
    }
    return poll(fds, count, -1);
}
