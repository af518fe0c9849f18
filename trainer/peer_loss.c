#include "trainer/peer_loss.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "trainer/member/link/watch.h"
#include "trainer/signals.h"

#define ASK_MS 5000 /* how often a survivor asks a silent coordinator again */

/* Opened once and never closed, since the Watch thread and the signal thread may write to it at any time. */
static atomic_int wake_fd = -1;

void peer_loss_wake(void)
{
    int fd = atomic_load(&wake_fd);
    uint64_t one = 1;
    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
        /* the counter is full, so the waiter is awake already */
    }
}

static int wake_open(void)
{
    int fd = atomic_load(&wake_fd);
    if (fd < 0) {
        fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        atomic_store(&wake_fd, fd);
    }
    return fd;
}

/* Returns whether it was woken. ms < 0: no limit. */
static bool wake_wait(int fd, int64_t ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t count;
    if (poll(&p, 1, (int)ms) == 0)
        return false;
    if (fd >= 0 && read(fd, &count, sizeof(count)) < 0) {
        /* a signal ended the wait */
    }
    return true;
}

bool peer_loss_sleep(int64_t end_ms)
{
    /* What happened before the descriptor was open woke nobody, so the caller looks once more. */
    if (atomic_load(&wake_fd) < 0 && wake_open() >= 0)
        return true;
    const int64_t left = end_ms - clock_mono_ns() / 1000000;
    if (end_ms >= 0 && left <= 0)
        return false;
    wake_wait(wake_open(), end_ms < 0 ? -1 : left < INT_MAX ? left : INT_MAX);
    return end_ms < 0 || clock_mono_ns() / 1000000 < end_ms;
}

/* The word about the generation that was joined last. One that this process has tried in vain is over, too. */
static enum link_word word_now(const struct trainer *t, const struct link_member *tried,
                               struct link_member *next)
{
    enum link_word word = link_after(t->link, next);
    return word == LINK_JOIN && next->generation <= tried->generation ? LINK_SILENT : word;
}

bool peer_loss_await(struct trainer *t, int timeout_ms, struct link_member *as)
{
    int64_t end = clock_mono_ns() / 1000000 + timeout_ms;
    const bool stays = link_stays(t->link);
    struct link_member next;
    /* A process is told nothing before its first generation has formed. One that ends waits for a peer's sake only. */
    if (stays ? !t->formation.link && as->generation == link_first_member(t->link)->generation
              : t->formation.world_size < 2 || !t->formation.group)
        return false;
    if (stays && !link_over(t->link))
        link_set_broken(t->link);
    int fd = wake_open();
    while (!link_stop_asked(t->link) && !trainer_stop_signal) {
        const enum link_word word = word_now(t, as, &next);
        const int64_t now = clock_mono_ns() / 1000000;
        if (stays && word == LINK_JOIN) {
            *as = next;
            return true;
        }
        if (word == LINK_DISMISSED || (!stays && link_over(t->link)))
            return false;
        /* A coordinator that is away cannot say what follows. The supervisor ends this process with its lease. */
        if (word == LINK_WAIT || (stays && link_away(t->link)))
            end = now + timeout_ms;
        if (now >= end)
            return false;
        /* Silence counts only if the coordinator is there. Until the generation is over, others that compute are waited for as
         * long as the coordinator says so each time. */
        const bool asks = word == LINK_SILENT || (word == LINK_WAIT && !link_over(t->link));
        if (!wake_wait(fd, end - now < ASK_MS ? end - now : ASK_MS) && stays && asks && !link_away(t->link))
            link_ask(t->link);
    }
    return false;
}
