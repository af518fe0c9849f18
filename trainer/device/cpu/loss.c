#include "trainer/device/cpu/loss.h"

#include "trainer/device/cpu/work.h"

static void rows_of(const struct cpu_work *w, int64_t part, int64_t *from, int64_t *to)
{
    *from = cpu_part_start(w->rows, w->parts, part);
    *to = cpu_part_start(w->rows, w->parts, part + 1);
}

static void cross_entropy_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    int64_t from, to;
    (void)thread;
    rows_of(w, part, &from, &to);
    w->k->cross_entropy(w->h, from, to, w->tallies + from);
}

/* Each row has a tally of its own, so that any number of threads can take part. They are added up in parts that depend on the number
 * of rows alone. */
void loss_cross_entropy(struct device *d, const struct device_classes *h)
{
    struct cpu_work w = {.h = h, .rows = h->rows};
    const int64_t parts = cpu_parts(h->rows);
    BUG_ON(h->kept != DEVICE_F32);
    w.tallies = cpu_scratch(cpu_of(d), (size_t)h->rows * sizeof(*w.tallies));
    if (!w.tallies)
        return;
    work_run(d, &w, cpu_even_parts(cpu_of(d), h->rows), cross_entropy_part);
    for (int64_t p = 0; p < parts; p++) {
        struct device_tally part = {0};
        for (int64_t i = cpu_part_start(h->rows, parts, p); i < cpu_part_start(h->rows, parts, p + 1); i++) {
            part.loss += w.tallies[i].loss;
            part.correct += w.tallies[i].correct;
        }
        h->tally->loss += part.loss;
        h->tally->correct += part.correct;
    }
}

static void mse_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    int64_t from, to;
    (void)thread;
    rows_of(w, part, &from, &to);
    w->k->mse(w->to ? w->to + from * w->cols : NULL, w->x + from * w->cols, w->y + from * w->cols, to - from,
              w->cols, w->scale, w->tallies + from);
}

void loss_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
              float scale, struct device_tally *tally)
{
    struct cpu_work w = {.to = dx, .x = x, .y = y, .rows = rows, .cols = cols, .scale = scale};
    w.tallies = cpu_scratch(cpu_of(d), (size_t)rows * sizeof(*w.tallies));
    if (!w.tallies)
        return;
    work_run(d, &w, cpu_even_parts(cpu_of(d), rows), mse_part);
    for (int64_t i = 0; i < rows; i++)
        tally->loss += w.tallies[i].loss;
}

void loss_tally_mean(struct device *d, float *to, const struct device_tally *tally, double divisor)
{
    (void)d;
    *to = (float)(tally->loss / divisor);
}
