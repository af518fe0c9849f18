#include "trainer/device/cpu/loss.h"

#include "trainer/device/cpu/work.h"

static void cross_entropy_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    int64_t from = cpu_part_start(w->rows, w->parts, part), to = cpu_part_start(w->rows, w->parts, part + 1);
    (void)thread;
    w->tallies[part] = (struct device_tally){0};
    w->k->cross_entropy(w->h, from, to, &w->tallies[part]);
}

void loss_cross_entropy(struct device *d, const struct device_classes *h)
{
    struct device_tally tallies[32];
    struct cpu_work w = {.h = h, .rows = h->rows, .tallies = tallies};
    int64_t parts = cpu_parts(h->rows);
    BUG_ON(h->kept != DEVICE_F32);
    work_run(d, &w, parts, cross_entropy_part);
    for (int64_t i = 0; i < parts; i++) {
        h->tally->loss += tallies[i].loss;
        h->tally->correct += tallies[i].correct;
    }
}

void loss_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
              float scale, struct device_tally *tally)
{
    cpu_of(d)->set.kernels->mse(dx, x, y, rows, cols, scale, tally);
}

void loss_tally_mean(struct device *d, float *to, const struct device_tally *tally, double divisor)
{
    (void)d;
    *to = (float)(tally->loss / divisor);
}
