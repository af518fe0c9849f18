#include "trainer/handover.h"

#include "base/clock.h"
#include "base/log.h"
#include "trainer/member/link/watch.h"
#include "trainer/peer_loss.h"
#include "trainer/signals.h"

/* The longest wait for the coordinator, which answers within milliseconds when the last rank waits. Ranks that have gone
 * on meanwhile are taken out of their step when the generation ends, and repeat it. */
#define WORD_MS 10000
/* The same for a rank that has heard no number: the coordinator sends it to all ranks at once, so after this time it has been
 * taken back. If the coordinator is away, other ranks may wait for it, too. */
#define HEAR_MS 1000
/* The same after SIGTERM: the word that this rank is not needed any more may still be on its way. */
#define WORD_AFTER_TERM_MS 2000

float handover_vote(const struct trainer *t)
{
    const int64_t number = link_handover(t->link);
    return number && number != t->handover;
}

static int64_t word_limit_ms(const struct link *link, int64_t heard)
{
    if (trainer_stop_signal)
        return WORD_AFTER_TERM_MS;
    return heard || link_away(link) ? WORD_MS : HEAR_MS;
}

enum err_code handover_await(struct trainer *t, struct err *e)
{
    if (t->no_room) { /* the coordinator hears that this rank does not stay */
        t->handover = link_handover(t->link);
        return ERR_OK;
    }
    const int64_t began = clock_mono_ns() / 1000000, last = t->handover;
    int64_t number = last;
    bool in_time = true;
    while (in_time && !link_over(t->link) && !link_stop_asked(t->link)) {
        const int64_t heard = link_handover(t->link);
        if (number != last && heard != number)
            break; /* it was taken back */
        /* The last number counts again: a rank that heard it later than the others votes when they have gone on. Or a rank has
         * heard the next number, and this one will hear it, too. */
        if (heard) {
            t->handover = number = heard;
            link_set_ready(t->link, heard);
        }
        in_time = peer_loss_sleep(began + word_limit_ms(t->link, heard));
    }
    const int64_t ms = clock_mono_ns() / 1000000 - began;
    t->handed_over = link_over(t->link);
    log_info("waited_for_handover", "rank=%d step=%lld ms=%lld over=%d", t->formation.rank,
             (long long)t->engine.step, (long long)ms, t->handed_over);
    if (t->handed_over)
        return err_set(e, ERR_ABORTED, "the job goes to other nodes after step %lld",
                       (long long)t->engine.step);
    link_set_ready(t->link, 0);
    return ERR_OK;
}
