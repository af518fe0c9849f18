#include "trainer/handover.h"

#include "base/clock.h"
#include "base/log.h"
#include "trainer/member/link/watch.h"
#include "trainer/peer_loss.h"

/* The longest wait for the coordinator, which answers within milliseconds when the last rank waits. Ranks that have gone
 * on meanwhile are taken out of their step when the generation ends, and repeat it. */
#define WORD_MS 10000
/* The same after SIGTERM: the word that this rank is not needed any more may still be on its way. */
#define WORD_AFTER_TERM_MS 2000

float handover_vote(const struct trainer *t)
{
    const int64_t number = link_handover(t->link);
    return number && number != t->handover;
}

enum err_code handover_await(struct trainer *t, struct err *e)
{
    const int64_t began = clock_mono_ns() / 1000000, last = t->handover;
    int64_t number = 0; /* a rank may have to wait before it hears the number itself */
    bool in_time = true;
    while (in_time && !link_over(t->link) && !link_stop_asked(t->link)) {
        const int64_t now = link_handover(t->link);
        if (!number && now != last)
            t->handover = number = now;
        if (number)
            link_set_ready(t->link, number);
        if (number && now != number)
            break; /* it was taken back */
        in_time = peer_loss_sleep(began + (trainer_stop_signal ? WORD_AFTER_TERM_MS : WORD_MS));
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
