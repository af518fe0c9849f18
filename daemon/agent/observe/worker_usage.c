#include "daemon/agent/observe/worker_usage.h"

#include <math.h>

/* A total becomes smaller when a process ends and no parent waits for it. The rate is then unknown. A total below 0 could not
 * be read. */
static double usage_rate(int64_t before, int64_t now, double per)
{
    return before < 0 || now < before ? NAN : (double)(now - before) / per;
}

bool worker_usage_update(struct worker_usage *u, const struct worker_sample *sample, int64_t at,
                         struct usage *out)
{
    struct worker_usage before = *u;
    double ms = (double)(at - before.at);

    if (!sample->there)
        return false;
    *u = (struct worker_usage){.seen = true,
                               .at = at,
                               .cpu_ms = sample->used_cpu_ms,
                               .read_bytes = sample->read_bytes,
                               .write_bytes = sample->write_bytes};
    if (!before.seen || at <= before.at)
        return false;
    usage_init(out);
    out->values[USAGE_CPU] = usage_rate(before.cpu_ms, sample->used_cpu_ms, ms);
    out->values[USAGE_MEMORY] = (double)sample->memory_bytes;
    out->values[USAGE_READ] = usage_rate(before.read_bytes, sample->read_bytes, ms / 1e3);
    out->values[USAGE_WRITE] = usage_rate(before.write_bytes, sample->write_bytes, ms / 1e3);
    return true;
}
