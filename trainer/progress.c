#include "trainer/progress.h"

#include <math.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/job/job_sync.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/rebalance.h"

void progress_epoch(const struct trainer *t)
{
    if (!t->spec->tutorial_lines)
        return;
    struct cursor start = {t->engine.cursor.epoch, 0};
    struct sampler_batch b;
    sampler_batch(&t->engine.sampler, &start, 0, &b);
    printf("[%s%d] Epoch %lld | Batchsize: %lld | Steps: %lld\n", "GPU", t->formation.rank,
           (long long)t->engine.cursor.epoch, (long long)b.count,
           (long long)sampler_steps(&t->engine.sampler));
    fflush(stdout);
}

void progress_resumed(const struct trainer *t)
{
    if (!t->spec->tutorial_lines)
        return;
    printf("Resuming training from snapshot at Epoch %lld\n", (long long)t->engine.cursor.epoch);
    fflush(stdout);
}

void progress_saved(struct trainer *t)
{
    struct snapshot_place place;
    struct err e = {0};
    if (!t->saver || !saver_take_result(t->saver, &place, &e) || e.code)
        return;
    if (t->spec->tutorial_lines && t->formation.rank == 0) {
        printf("Epoch %lld | Training snapshot saved at %s/step-%lld-g%lld\n", (long long)place.epoch,
               t->spec->snapshot.dir, (long long)place.step, (long long)place.generation);
        fflush(stdout);
    }
}

double progress_bits(double nats)
{
    return nats / log(2.0);
}

const char *progress_bits_name(const struct trainer *t)
{
    if (!t->engine.train->vocabulary)
        return NULL;
    return t->engine.train->vocabulary->type == SYMBOL_BYTE ? "bits_per_byte" : "bits_per_char";
}

static void line_add(struct metric_line *l, const char *name, double value)
{
    BUG_ON(!metric_line_add(l, name, value));
}

static void add_place(const struct trainer *t, struct metric_line *l)
{
    line_add(l, "steps", (double)engine_total_steps(&t->engine));
    line_add(l, "epoch",
             (double)t->engine.cursor.epoch +
                 (double)t->engine.cursor.position / (double)t->engine.sampler.samples);
    line_add(l, "loss", t->engine.loss);
    line_add(l, "lr", t->engine.lr);
    line_add(l, "grad_norm", t->engine.grad_norm);
}

/* On a GPU the host goes on while the device waits for the sums, so only the device can measure that. */
static double interval_exposed(const struct trainer *t)
{
    int64_t joined = coll_joined_ns(t->formation.group);
    return (double)(joined < 0 ? t->interval.exposed_ns : joined - t->interval.joined_ns) / 1e9;
}

/* Adds the speeds of all ranks together. */
static void add_speed(const struct trainer *t, struct metric_line *l, uint64_t wait_ns)
{
    const struct interval *i = &t->interval;
    double seconds = (double)(clock_mono_ns() - i->since_ns) / 1e9, steps = (double)i->steps;
    if (!i->steps || seconds <= 0.0)
        return;
    line_add(l, "samples_per_s", (double)i->samples / seconds);
    line_add(l, "ms_per_step", seconds * 1e3 / steps);
    line_add(l, "wait_ms", (double)(wait_ns - i->wait_ns) / 1e6 / steps);
    if (t->formation.world_size > 1)
        line_add(l, "exposed", interval_exposed(t) / seconds);
    if (!t->engine.train->windows)
        return;
    double flops = model_flops(t->engine.model, i->samples) / seconds;
    line_add(l, "tokens_per_s", (double)(i->samples * t->engine.train->in) / seconds);
    line_add(l, "gflops", flops / 1e9);
    if (t->peak_flops > 0.0)
        line_add(l, "peak_share", flops / t->peak_flops);
}

/* Adds the sizes of the run. Called once, before the first step. */
static void add_sizes(const struct trainer *t, struct metric_line *l)
{
    const struct memory_sizes *s = &t->sizes;
    line_add(l, "parameters", (double)t->engine.model->parameters);
    line_add(l, "parameter_bytes", (double)s->parameters);
    line_add(l, "gradient_bytes", (double)s->gradients);
    line_add(l, "optimizer_bytes", (double)s->optimizer);
    line_add(l, "activation_bytes", (double)s->activations);
    line_add(l, "bytes", (double)s->sum);
    line_add(l, "bytes_per_parameter", s->per_parameter);
    line_add(l, "state_bytes", (double)s->state);
    /* A run that was complete when it began has chosen nothing. */
    if (t->facts.world_size && t->formation.rank == 0)
        sync_choice_put(l, &t->facts, &t->sync);
}

static void add_validation(const struct trainer *t, struct metric_line *l)
{
    const char *bits = progress_bits_name(t);
    line_add(l, "val_loss", t->engine.val_loss);
    if (bits)
        line_add(l, bits, progress_bits(t->engine.val_loss));
    if (t->engine.train->loss == LOSS_CROSS_ENTROPY && !t->engine.train->windows)
        line_add(l, "val_acc", t->engine.val_acc);
}

/* ---- rounds */

/* Rank 0 logs the first round that it reports, with the values that exist, and once that agreement is low. */
static void round_log(struct trainer *t, const struct sync_round *r)
{
    CLEANUP(buf_release) struct buf numbers = {0};
    buf_printf(&numbers, "step=%lld round=%lld wait_ms=%.3f bytes=%llu", (long long)t->engine.step,
               (long long)r->round, (double)r->wait_ns / 1e6, (unsigned long long)r->bytes);
    if (!isnan(r->norm))
        buf_printf(&numbers, " norm=%.6g", r->norm);
    if (!isnan(r->agreement))
        buf_printf(&numbers, " agreement=%.4g", r->agreement);
    if (!t->told_round)
        log_info("first_round", "%s", numbers.data);
    t->told_round = true;
    if (sync_agreement_stays_low(&t->low_rounds, r->agreement))
        log_warn(
            "low_agreement",
            "%s why=\"agreement was below %g in %d rounds in a row: the ranks' changes cancel out, lower "
            "sync.every\"",
            numbers.data, SYNC_LOW_AGREEMENT, SYNC_LOW_ROUNDS);
}

/* Adds the round that was not reported yet. Returns false if there is none. */
static bool add_round(struct trainer *t, struct metric_line *l)
{
    struct sync_round r;
    if (!sync_take_round(t->formation.sync, &r))
        return false;
    line_add(l, "round", (double)r.round);
    line_add(l, "round_steps", (double)r.steps);
    line_add(l, "round_samples", (double)r.samples);
    line_add(l, "round_wait_ms", (double)r.wait_ns / 1e6);
    line_add(l, "round_bytes", (double)r.bytes);
    if (!isnan(r.norm))
        line_add(l, "round_norm", r.norm);
    if (!isnan(r.agreement))
        line_add(l, "round_agreement", r.agreement);
    if (t->formation.rank == 0)
        round_log(t, &r);
    return true;
}

void progress_round(struct trainer *t)
{
    struct metric_line l = {.has_step = true, .step = t->engine.step};
    if (t->sync.every > 1 && add_round(t, &l))
        link_progress(t->link, &l);
}

void progress_report(struct trainer *t, bool evaluated)
{
    struct coll_stats stats;
    struct metric_line l = {.has_step = true, .step = t->engine.step};
    coll_get_stats(t->formation.group, &stats);
    add_place(t, &l);
    add_speed(t, &l, stats.wait_ns);
    line_add(&l, "memory_bytes", (double)memory_resident());
    line_add(&l, "sync_bytes", (double)stats.bytes);
    if (t->engine.train->windows)
        line_add(&l, "tokens", (double)(t->engine.samples * t->engine.train->in));
    if (!t->told_sizes)
        add_sizes(t, &l);
    /* A digest has 64 bits, but a metric is a double, so it is sent in two halves. */
    if (t->formation.rank == 0 && t->digest_step == t->engine.step) {
        line_add(&l, "digest_high", (double)(t->digest >> 32));
        line_add(&l, "digest_low", (double)(t->digest & UINT32_MAX));
    }
    if (evaluated)
        add_validation(t, &l);
    rebalance_report(t, &l);
    if (t->samples_lost && t->formation.rank == 0)
        line_add(&l, "samples_lost", (double)t->samples_lost);
    if (t->samples_back && t->formation.rank == 0)
        line_add(&l, "samples_back", (double)t->samples_back);
    t->samples_lost = t->samples_back = 0;
    (void)add_round(t, &l);
    link_progress(t->link, &l);
    t->told_sizes = true;
    t->interval = (struct interval){.since_ns = clock_mono_ns(), .wait_ns = stats.wait_ns};
    t->interval.joined_ns = coll_joined_ns(t->formation.group);
}
