#include "trainer/member/sync/round_clock.h"

#include <math.h>

#include "base/clock.h"

#define CHANGE_MOST 16     /* of the number of steps, from one round to the next */
#define STEPS_MOST 1000000 /* a float holds it exactly */

int64_t round_clock_next(int64_t steps, int64_t ns, int64_t every_ms)
{
    double fit = ns > 0 ? (double)steps * (double)every_ms * 1e6 / (double)ns : INFINITY;
    double least = fmax((double)steps / CHANGE_MOST, 1.0);
    double most = fmin((double)steps * CHANGE_MOST, STEPS_MOST);

    return llround(fmin(fmax(fit, least), most));
}

/* The last float of the array is average's (lengths_slot). */
static float *proposal_slot(const struct sync *s)
{
    return s->config.params + (s->config.count - 2);
}

void round_clock_start(struct sync *s)
{
    if (s->config.spec.every_ms && s->local_steps && !s->clock.since_ns)
        s->clock.since_ns = clock_mono_ns();
}

void round_clock_propose(struct sync *s)
{
    int64_t now = clock_mono_ns(), steps = s->round;

    if (!s->config.spec.every_ms)
        return;
    if (s->clock.since_ns && s->clock.steps)
        steps = round_clock_next(s->clock.steps, now - s->clock.since_ns, s->config.spec.every_ms);
    s->clock.since_ns = now;
    s->clock.steps = 0;
    sync_put_float(s, proposal_slot(s), (float)steps);
}

void round_clock_take(struct sync *s)
{
    if (!s->config.spec.every_ms)
        return;
    /* If no rank saw a sample, `average` sums nothing, and the slot holds this rank's own proposal. */
    if (s->config.world_size > 1 && s->under_way.global_samples == 0)
        return;
    s->round = llroundf(fmaxf(sync_get_float(s, proposal_slot(s)), 1.0f));
}
