/* The training loop: a step, then the evaluation, snapshot and report that are due. */
#include <math.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/compare.h"
#include "trainer/evaluate.h"
#include "trainer/handover.h"
#include "trainer/keep.h"
#include "trainer/moments.h"
#include "trainer/progress.h"
#include "trainer/rebalance.h"
#include "trainer/round/live_round.h"
#include "trainer/round/quorum.h"
#include "trainer/round/round_stop.h"
#include "trainer/sample_log.h"
#include "trainer/signals.h"
#include "trainer/step.h"
#include "trainer/trainer.h"
#include "trainer/tune.h"

/* ---- what is due */

/* Whether a multiple of `every` lies behind `before`, up to `now`. */
static bool multiple_passed(int64_t before, int64_t now, int64_t every)
{
    return now / every > before / every;
}

static bool action_due(const struct job_every *every, const struct trainer *t, const struct run_mark *before,
                       bool time_voted)
{
    if (every->count <= 0)
        return false;
    switch (every->unit) {
    case EVERY_STEPS:
        return multiple_passed(before->step, t->engine.step, every->count);
    case EVERY_EPOCHS:
        return multiple_passed(before->epoch, t->engine.cursor.epoch, every->count);
    case EVERY_MS:
        break;
    }
    return time_voted;
}

/* ---- the run */

static bool must_stop(const struct step *s)
{
    return s->tail[TAIL_STOP] > 0.0f || s->tail[TAIL_SIGNAL] > 0.0f;
}

/* Within a round, ranks may be at different steps. An evaluation that all make must then be at a step that all reach. */
static bool evaluation_due(const struct trainer *t, const struct step *s, const struct run_mark *before)
{
    bool meet = sync_votes_each_step(t->formation.sync) || sync_voted(t->formation.sync);
    if (sync_catches_up(t->formation.sync)) /* others are past this step, also if `eval.every` is new */
        return false;
    return (t->eval_due && meet) || action_due(&t->spec->eval.every, t, before, s->tail[TAIL_EVAL] > 0.0f);
}

/* Before an evaluation within a round: others may have stopped before its step. */
static enum err_code meet_for_evaluation(struct trainer *t, struct step *s, const struct run_mark *before,
                                         struct err *e)
{
    if (engine_finished(&t->engine) || must_stop(s) || sync_voted(t->formation.sync) ||
        !round_stop_meets(t) || !evaluation_due(t, s, before))
        return ERR_OK;
    return round_stop_meet(t, false, s->tail, e);
}

/* Before the exchange that ends the run within a round. */
static enum err_code meet_at_end(struct trainer *t, bool *stopped, struct err *e)
{
    struct step s = {0};
    if (*stopped || !round_stop_meets(t) || sync_settled(t->formation.sync))
        return ERR_OK;
    if (round_stop_meet_to_exchange(t, false, s.tail, e))
        return e->code;
    *stopped = must_stop(&s);
    t->asked = s.tail[TAIL_STOP] > 0.0f;
    return ERR_OK;
}

static enum err_code after_step(struct trainer *t, const struct step *s, const struct run_mark *before,
                                struct err *e)
{
    bool over = engine_finished(&t->engine) || must_stop(s), evaluated = false;
    progress_saved(t);
    if (over)
        return ERR_OK; /* run_finish does the rest */
    if (evaluation_due(t, s, before)) {
        if (trainer_evaluate(t, e))
            return e->code;
        evaluated = true;
    }
    bool best = evaluated && t->spec->snapshot.keep_best && t->engine.best_step == t->engine.step;
    /* A snapshot that is due waits for the end of the round, when ranks have the least of their own to keep. One of the
     * best evaluation must be of this step. */
    t->snapshot_due |= action_due(&t->spec->snapshot.every, t, before, s->tail[TAIL_SNAPSHOT] > 0.0f);
    bool keep = best || (t->snapshot_due && sync_voted(t->formation.sync));
    bool log = multiple_passed(before->step, t->engine.step, t->spec->log_every);
    if ((keep || log) && trainer_compare(t, e))
        return e->code;
    if (evaluated || log)
        progress_report(t, evaluated);
    else
        progress_round(t);
    if (best)
        keep_await(t);
    t->snapshot_due &= !keep;
    if (keep && keep_snapshot(t, false, e))
        return e->code;
    t->eval_due &= !evaluated; /* not earlier: the group may break between the evaluation and its snapshot */
    return ERR_OK;
}

/* Logs only the values that exist: a run that was complete when it began has no loss. */
static void log_end(const struct trainer *t, bool stopped)
{
    CLEANUP(buf_release) struct buf numbers = {0};
    buf_printf(&numbers, "step=%lld", (long long)t->engine.step);
    if (!isnan(t->engine.loss))
        buf_printf(&numbers, " loss=%g", t->engine.loss);
    if (!isnan(t->engine.val_loss))
        buf_printf(&numbers, " val_loss=%g", t->engine.val_loss);
    if (!isnan(t->engine.val_loss) && progress_bits_name(t))
        buf_printf(&numbers, " %s=%g", progress_bits_name(t), progress_bits(t->engine.val_loss));
    if (!isnan(t->engine.val_acc) && t->engine.train->loss == LOSS_CROSS_ENTROPY && !t->engine.train->windows)
        buf_printf(&numbers, " val_acc=%g", t->engine.val_acc);
    log_info(stopped ? "stopped" : "finished", "%s", numbers.data);
}

/* The end of the run: averages the ranks' parameters if they differ, evaluates the model, and takes the last
 * snapshot. A stop only takes the snapshot, because it must be quick. */
static enum err_code run_finish(struct trainer *t, bool stopped, struct err *e)
{
    if (!stopped) {
        if (sync_settle(t->formation.sync, e) || trainer_evaluate(t, e))
            return e->code;
    }
    if (trainer_compare(t, e))
        return e->code;
    progress_report(t, !stopped);
    if (keep_snapshot(t, true, e))
        return e->code;
    if (coll_barrier(t->formation.group, e))
        return e->code;
    if (t->formation.rank == 0)
        log_end(t, stopped);
    return ERR_OK;
}

static void mark_served(struct trainer *t)
{
    t->served = (struct run_mark){t->engine.step, t->engine.cursor.epoch};
}

static enum err_code step_serve(struct trainer *t, struct step *s, const struct run_mark *before,
                                bool *stopped, struct err *e)
{
    *stopped = must_stop(s);
    if (quorum_is_late(t)) { /* the others make the reports, evaluations and snapshots that are due */
        t->served_step = t->engine.step;
        return ERR_OK;
    }
    if (meet_for_evaluation(t, s, before, e))
        return e->code;
    *stopped = must_stop(s);
    /* A stop that the coordinator asked for ends with exit code 0. A stop by a signal alone does not. */
    t->asked = s->tail[TAIL_STOP] > 0.0f;
    if (after_step(t, s, before, e) || (s->tail[TAIL_TUNE] > 0.0f && tune_take(t, e)))
        return e->code;
    t->served_step = t->engine.step;
    if (!t->sync.every_ms || sync_voted(t->formation.sync))
        mark_served(t);
    if (s->tail[TAIL_HANDOVER] == 0.0f || *stopped || engine_finished(&t->engine))
        return ERR_OK;
    return moments_hold(t, e) || handover_await(t, e) ? e->code : ERR_OK;
}

/* What the generation before had not done after its last step, and the exchange that had failed then. Votes that a lost
 * exchange had brought are gone. Those by time and by the user come again. */
static enum err_code step_catch_up(struct trainer *t, bool at_start, bool *stopped, struct err *e)
{
    const struct run_mark last = {t->engine.step - 1, t->engine.cursor.epoch - at_start};
    const struct run_mark before = live_has_rounds(t) && t->round_timed ? t->served : last;
    struct step s = {0};
    bool again = (live_has_rounds(t) || t->apart) && sync_round_due(t->formation.sync);
    if (again && trainer_exchange_again(t, &s, e))
        return e->code;
    if (t->owed || must_stop(&s) || (again && sync_voted(t->formation.sync))) {
        if (step_serve(t, &s, &before, stopped, e))
            return e->code;
        mark_served(t);
        return ERR_OK;
    }
    t->served_step = t->engine.step;
    return ERR_OK;
}

static enum err_code run_generation(struct trainer *t, struct err *e)
{
    /* A generation that goes on from memory, or within a round, is in the midst of an epoch. */
    bool within = t->formation.info.live || t->owed;
    bool stopped = false, at_start = !within || t->engine.cursor.position == 0;
    trainer_running = 1;
    sync_at_step(t->formation.sync, t->engine.step, engine_total_steps(&t->engine));
    if (t->resumed && t->formation.rank == 0)
        progress_resumed(t);
    /* Compares the ranks first, because ranks that loaded different files must not begin to train. Those of a generation that
     * goes on from memory have compared already what they hold in common. */
    if (!t->formation.info.live && trainer_compare(t, e))
        return e->code;
    rebalance_begin(t);
    progress_report(t, false);
    if (!live_has_rounds(t))
        mark_served(t);
    if (step_catch_up(t, at_start, &stopped, e))
        return e->code;
    while (!stopped && !engine_finished(&t->engine)) {
        struct step s;
        if (at_start)
            progress_epoch(t);
        struct run_mark before = {t->engine.step, t->engine.cursor.epoch};
        struct sample_log log;
        sample_log_begin(t, &log);
        if (trainer_step(t, &s, &at_start, e))
            return e->code;
        sample_log_end(t, &log);
        moments_release(t); /* held moments belong to the previous step */
        t->interval.steps += t->engine.step - before.step;
        t->interval.samples += s.global;
        /* A round of a given time makes many steps at once, some of them maybe before the group went on within it. */
        if (t->sync.every_ms && sync_voted(t->formation.sync))
            before = t->served;
        if (rebalance_deal(t, e) || step_serve(t, &s, &before, &stopped, e))
            return e->code;
        if (fault_hit("trainer.step"))
            return err_set(e, ERR_INTERNAL, "fault after step %lld", (long long)t->engine.step);
    }
    if (meet_at_end(t, &stopped, e))
        return e->code;
    t->stopped = stopped && (t->stopped_within || !engine_finished(&t->engine));
    return run_finish(t, t->stopped, e);
}

enum err_code trainer_run(struct trainer *t, struct err *e)
{
    enum err_code code = run_generation(t, e);
    t->engine.narrowed = false; /* between generations, parameters are restored, averaged and exchanged */
    return code;
}
