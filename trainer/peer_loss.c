#include "trainer/peer_loss.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "trainer/member/link/watch.h"

static atomic_int wake_fd = -1;

void peer_loss_wake(void)
{
    int saved = errno, fd = atomic_load(&wake_fd);
    uint64_t one = 1;
    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
        /* the counter is full, so the waiter is awake already */
    }
    errno = saved;
}

void peer_loss_await(struct trainer *t, int timeout_ms)
{
    int64_t end = clock_mono_ns() / 1000000 + timeout_ms;
    if (t->formation.world_size < 2 || !t->formation.group)
        return;
    int fd = eventfd(0, EFD_CLOEXEC);
    atomic_store(&wake_fd, fd);
    while (fd >= 0 && !link_over(t->link) && !link_stop_asked(t->link) && !trainer_stop_signal) {
        int64_t left = end - clock_mono_ns() / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0 || (poll(&p, 1, (int)left) < 0 && errno != EINTR))
            break;
    }
    atomic_store(&wake_fd,
                 -1); /* not closed: the Watch thread may still write to it, and the process is ending */
}
