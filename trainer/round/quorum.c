#include "trainer/round/quorum.h"

#include "base/clock.h"
#include "base/log.h"
#include "trainer/member/link/watch.h"
#include "trainer/peer_loss.h"
#include "trainer/signals.h"

/* The longest time for which a rank holds for a returning rank. The coordinator takes the returning rank in when the last rank
 * has arrived. A rank that arrived much earlier need not hold until then, because the last one does. */
#define HOLD_MS 10000

static int64_t next_exchange(const struct trainer *t)
{
    return sync_rounds(t->formation.sync) + 1;
}

static bool must_hold(const struct trainer *t)
{
    const int64_t from = link_hold(t->link);
    return from && next_exchange(t) >= from && !link_over(t->link) && !link_stop_asked(t->link) &&
           !link_away(t->link);
}

void quorum_arrive(struct trainer *t)
{
    if (!t->sync.quorum || !t->formation.link)
        return;
    const int64_t began = clock_mono_ns() / 1000000, exchange = next_exchange(t);
    const bool holds = must_hold(t);
    link_set_arrived(t->link, exchange, holds);
    while (must_hold(t) && peer_loss_sleep(began + HOLD_MS))
        ;
    if (!holds)
        return;
    log_info("held_for_late_rank", "rank=%d exchange=%lld ms=%lld over=%d", t->formation.rank,
             (long long)exchange, (long long)(clock_mono_ns() / 1000000 - began), link_over(t->link));
    link_set_arrived(t->link, exchange, link_over(t->link));
}

bool quorum_is_late(const struct trainer *t)
{
    return t->sync.quorum && link_over(t->link) && link_late(t->link) && !trainer_stop_signal;
}

void quorum_hold_outside(struct trainer *t)
{
    if (t->sync.quorum && t->formation.sync)
        link_set_arrived(t->link, next_exchange(t), true);
}
