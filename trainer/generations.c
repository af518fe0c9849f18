/* A process outlives its generation. When a peer is lost, the group's calls return ABORTED, and then:
 *
 *     peer_loss_await     waits for the coordinator's word: this process is a member of a later generation
 *     trainer_leave       gives the group up; parameters, moments and the place in the run stay in the engine
 *     trainer_join        joins the later generation; live_share brings all ranks to the newest step in memory
 *     trainer_run         goes on with the step that was interrupted
 *
 * An interrupted step has changed nothing: parameters change only after the sum, and the place moves at the end. A rank
 * may have finished the sum that others have not; then its state is the newest, and the others take it. Within rounds of
 * averaging ranks have states of their own, which they keep (round/live_round.h).
 *
 * With shard: optimizer the moments of a lost rank are gone. Then no rank has a state when it joins, and trainer_restore reads the newest
 * snapshot. If nobody was lost, the moments are handed over (moments.h).
 *
 * A later generation may fail, too, at any of these calls. Its ABORTED leads back to the first of them. */
#include "trainer/generations.h"

#include <stdio.h>

#include "base/log.h"
#include "trainer/algorithms.h"
#include "trainer/choose_sync.h"
#include "trainer/engine/step.h"
#include "trainer/measure.h"
#include "trainer/member/link/watch.h"
#include "trainer/peer_loss.h"
#include "trainer/resume.h"
#include "trainer/round/quorum.h"
#include "trainer/signals.h"

#define VERDICT_MS 15000 /* longer than the time in which the coordinator notices a lost node */

static bool peer_was_lost(const struct err *e)
{
    return e->code == ERR_ABORTED || e->code == ERR_CANCELLED;
}

/* A GPU may still report that its last wait was cut off. An error after that is this rank's own, and becomes the process's. */
static bool rank_is_sound(struct trainer *t, struct err *e)
{
    struct err cut_off, own;
    (void)!t->engine.device->ops->wait(t->engine.device, &cut_off);
    if (step_settle(&t->engine, &own) == ERR_OK)
        return true;
    *e = own;
    return false;
}

/* Returns false if this process ends: it is not a member of a later generation, it was told to end, or its device has
 * failed. */
static bool generation_leave(struct trainer *t, struct link_member *as, struct err *why)
{
    /* Plain text on stderr, because a failed job shows the last lines of stderr. */
    if (!t->handed_over && !(t->sync.quorum && link_over(t->link)))
        fprintf(stderr, "peer lost: %s\n", why->msg);
    quorum_hold_outside(t);
    if (!peer_loss_await(t, VERDICT_MS, as))
        return false;
    log_info("goes_on", "gen=%lld rank=%d step=%lld why=%s", (long long)as->generation, as->rank,
             (long long)t->engine.step, LOG_Q(why->msg));
    if (!trainer_leave(t) || !rank_is_sound(t, why))
        return false;
    /* From here to the first step there is nothing that a snapshot could take, so SIGTERM ends the process at once. */
    trainer_running = 0;
    return !trainer_stop_signal;
}

/* What a process does in a generation that it has joined. */
static enum err_code generation_work(struct trainer *t, struct err *e)
{
    if (t->spec->measure_ms)
        return trainer_measure(t, e);
    if (trainer_restore(t, e) || trainer_choose_algorithms(t, e) || trainer_choose_sync(t, e))
        return e->code;
    return trainer_run(t, e);
}

enum err_code generations_run(struct trainer *t, struct err *e)
{
    struct link_member as = *link_first_member(t->link);
    do {
        *e = (struct err){0};
        t->handed_over = false;
        link_set_ready(t->link, 0);
        link_set_arrived(t->link, 0, false);
        if (trainer_join(t, &as, e) == ERR_OK && generation_work(t, e) == ERR_OK)
            return ERR_OK;
    } while (peer_was_lost(e) && generation_leave(t, &as, e));
    struct link_member next;
    if (t->handed_over && link_after(t->link, &next) == LINK_DISMISSED) {
        /* The others go on with the same state. */
        *e = (struct err){0};
        t->stopped = t->asked = true;
        log_info("not_needed", "step=%lld", (long long)t->engine.step);
    }
    return e->code;
}
