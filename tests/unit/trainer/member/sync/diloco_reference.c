#include "tests/unit/trainer/member/sync/diloco_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD_MOST = 5 };

struct world {
    const struct quadratic *u;
    int size;
    double theta[WORLD_MOST][PARAMS], g[PARAMS], v[PARAMS], e[WORLD_MOST][PARAMS], x[WORLD_MOST][PARAMS];
    double seen[8][WORLD_MOST]; /* samples by fragment */
    double weights[WORLD_MOST];
    double progress; /* when the changes were sent */
};

static double bf16_nearest(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent);

    return ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8);
}

/* What arrives of tensor t of a member. */
static void wire_pass(enum wire_type wire, const struct sync_tensor *t, const double *x, double *q)
{
    double limit = wire == WIRE_INT8 ? 127 : 7;

    for (size_t block = 0; block < t->count; block += 64) {
        size_t end = block + 64 < t->count ? block + 64 : t->count;
        double most = 0, scale;

        for (size_t i = block; i < end; i++)
            most = fmax(most, fabs(x[t->offset + i]));
        scale = bf16_nearest(most / limit);
        for (size_t i = t->offset + block; i < t->offset + end; i++)
            if (wire == WIRE_FP32)
                q[i] = x[i];
            else if (wire == WIRE_BF16)
                q[i] = bf16_nearest(x[i]);
            else
                q[i] = scale > 0 ? nearbyint(x[i] / scale) * scale : 0;
    }
}

static void reference_send(struct world *w, int fragment, double progress)
{
    double all = 0;

    w->progress = progress;
    for (int m = 0; m < w->size; m++)
        all += w->seen[fragment][m];
    for (int m = 0; m < w->size; m++) {
        w->weights[m] = all > 0 ? w->seen[fragment][m] / all : 1.0 / w->size;
        w->seen[fragment][m] = 0;
        for (size_t i = 0; i < PARAMS; i++)
            w->x[m][i] = w->g[i] - w->theta[m][i] + w->e[m][i];
    }
}

/* The gain 1 / (1 - mu) over the run: from 1 up to that of the job's momentum, level, and down to 1. */
static double reference_momentum(const struct sync_spec *c, double progress)
{
    double most = 1 / (1 - c->outer_momentum), gain = most;

    if (c->outer_schedule == OUTER_CONSTANT)
        return c->outer_momentum;
    if (progress < 0.25)
        gain = 1 + (most - 1) * progress / 0.25;
    else if (progress > 0.5)
        gain = most - (most - 1) * (progress - 0.5) / 0.5;
    return (gain - 1) / gain;
}

/* D, and what remains of each member's x. */
static void reference_merge(struct world *w, int fragment, size_t t, double *merged)
{
    static double q[WORLD_MOST][PARAMS], sum[PARAMS];

    for (int m = 0; m < w->size; m++)
        wire_pass(w->u->spec.wire, &quadratic_tensors[t], w->x[m], q[m]);
    for (size_t i = quadratic_tensors[t].offset; i < quadratic_tensors[t].offset + quadratic_tensors[t].count;
         i++) {
        int owner = quadratic_owner(w->u, w->size, fragment, i);

        sum[i] = owner < 0 ? 0 : w->weights[owner] * (w->x[owner][i] - w->e[owner][i]) + w->e[owner][i];
        for (int m = 0; m < w->size; m++)
            if (m != owner) {
                sum[i] += w->weights[m] * q[m][i];
                if (w->weights[m] > 0) /* else nothing of e has arrived */
                    w->e[m][i] = w->x[m][i] - q[m][i];
            }
    }
    wire_pass(w->u->spec.wire, &quadratic_tensors[t], sum, merged);
    for (size_t i = quadratic_tensors[t].offset; i < quadratic_tensors[t].offset + quadratic_tensors[t].count;
         i++) {
        int owner = quadratic_owner(w->u, w->size, fragment, i);

        if (owner < 0)
            merged[i] = sum[i];
        else
            w->e[owner][i] = sum[i] - merged[i];
    }
}

static void reference_apply(struct world *w, int fragment, double mix)
{
    const struct sync_spec *c = &w->u->spec;
    const double mu = reference_momentum(c, w->progress);
    static double merged[PARAMS];

    for (size_t t = 0; t < TENSORS; t++) {
        if (!quadratic_in_fragment(w->u, t, fragment))
            continue;
        reference_merge(w, fragment, t, merged);
        for (size_t i = quadratic_tensors[t].offset;
             i < quadratic_tensors[t].offset + quadratic_tensors[t].count; i++) {
            w->v[i] = mu * w->v[i] + merged[i];
            w->g[i] -= c->outer_lr * (merged[i] + mu * w->v[i]);
            for (int m = 0; m < w->size; m++)
                w->theta[m][i] = mix * w->theta[m][i] + (1 - mix) * w->g[i];
        }
    }
}

static void reference_step(struct world *w, int step, bool warm)
{
    double n = (double)quadratic_samples_of_all(w->u, w->size, step);

    for (size_t i = 0; i < PARAMS; i++) {
        double sum = 0;

        for (int m = 0; m < w->size; m++)
            sum += (double)quadratic_samples(w->u, m, step) * quadratic_gradient(w->u, w->theta[m][i], m, i);
        for (int m = 0; m < w->size; m++) {
            double own =
                quadratic_samples(w->u, m, step) ? quadratic_gradient(w->u, w->theta[m][i], m, i) : 0;

            w->theta[m][i] -= (double)RATE * (warm ? (n > 0 ? sum / n : 0) : own);
        }
        if (warm)
            w->g[i] = w->theta[0][i];
    }
    for (int f = 0; !warm && f < w->u->spec.fragments; f++)
        for (int m = 0; m < w->size; m++)
            w->seen[f][m] += (double)quadratic_samples(w->u, m, step);
}

/* Rounds in which members make unlike numbers of steps. */
static void reference_rounds_unlike(struct world *w)
{
    for (int round = 0; round < ROUNDS; round++) {
        int most = 0; /* steps */

        for (int m = 0; m < w->size; m++)
            most = quadratic_steps(m, round) > most ? quadratic_steps(m, round) : most;
        for (int m = 0; m < w->size; m++)
            for (int step = 0; step < quadratic_steps(m, round); step++) {
                int64_t samples = quadratic_samples(w->u, m, step);

                for (size_t i = 0; samples && i < PARAMS; i++)
                    w->theta[m][i] -= (double)RATE * quadratic_gradient(w->u, w->theta[m][i], m, i);
                w->seen[0][m] += (double)samples;
            }
        reference_send(w, 0, (double)quadratic_progress(round, most) / (double)quadratic_progress(ROUNDS, 0));
        reference_apply(w, 0, 0);
    }
}

void diloco_reference(double *out, int size, const struct quadratic *u)
{
    const struct sync_spec *c = &u->spec;
    struct world *w = calloc(1, sizeof(*w));
    int64_t fragments = c->fragments, gap = EVERY / fragments, sent = -1;
    int turn = 0;

    w->u = u;
    w->size = size;
    for (size_t i = 0; i < PARAMS; i++) {
        w->g[i] = quadratic_start(i);
        for (int m = 0; m < size; m++)
            w->theta[m][i] = quadratic_start(i);
    }
    if (u->timed) /* nothing is left to settle */
        reference_rounds_unlike(w);
    for (int step = 0; !u->timed && step < STEPS; step++) {
        int64_t made = step + 1 - c->warm; /* steps of rounds */

        reference_step(w, step, step < c->warm);
        if (made > 0 && made % gap == 0) {
            reference_send(w, turn, (double)(step + 1) / STEPS);
            sent = made;
        }
        if (sent >= 0 && made == sent + c->overlap) {
            reference_apply(w, turn, c->overlap ? c->mix : 0);
            turn = (turn + 1) % (int)fragments;
            sent = -1;
        }
    }
    if (sent >= 0) { /* settle first takes what is under way */
        reference_apply(w, turn, c->mix);
        turn = (turn + 1) % (int)fragments;
    }
    for (int f = 0; !u->timed && f < fragments; f++) {
        reference_send(w, turn, 1);
        reference_apply(w, turn, 0);
        turn = (turn + 1) % (int)fragments;
    }
    memcpy(out, w->g, PARAMS * sizeof(*out));
    free(w);
}
