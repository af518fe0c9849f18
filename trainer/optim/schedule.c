#include "trainer/optim/schedule.h"

#include <math.h>

double schedule_lr(const struct train_spec *spec, int64_t step, double progress)
{
    double base = spec->optimizer.lr, least = spec->schedule.min_lr, lr = base;
    double done = fmin(fmax(progress, 0.0), 1.0);
    if (spec->schedule.type == SCHEDULE_LINEAR)
        lr = least + (base - least) * (1.0 - done);
    else if (spec->schedule.type == SCHEDULE_COSINE)
        lr = least + (base - least) * 0.5 * (1.0 + cos(acos(-1.0) * done));
    if (step + 1 < spec->schedule.warmup)
        lr *= (double)(step + 1) / (double)spec->schedule.warmup;
    return lr;
}
