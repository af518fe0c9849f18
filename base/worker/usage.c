#include "base/worker/usage.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

const char *const usage_names[USAGE_METRICS] = {
    "sys.cpu",
    "sys.memory_bytes",
    "sys.read_bytes_per_s",
    "sys.write_bytes_per_s",
    "gpu.utilisation",
    "gpu.memory_bytes",
    "gpu.watts",
    "gpu.celsius",
};

void usage_init(struct usage *u)
{
    *u = (struct usage){.gpu_least = NAN, .gpu_most = NAN};
    for (int i = 0; i < USAGE_METRICS; i++)
        u->values[i] = NAN;
}

void usage_add_gpu(struct usage *u, double utilisation, double memory_bytes, double watts, double celsius)
{
    double *v = u->values, before = u->gpus;

    if (!u->gpus++) {
        v[USAGE_GPU] = v[USAGE_GPU_MEMORY] = v[USAGE_GPU_WATTS] = v[USAGE_GPU_CELSIUS] = 0;
        u->gpu_least = 1;
        u->gpu_most = 0;
    }
    /* a value that is unknown for one GPU is unknown for the rank */
    v[USAGE_GPU] = (v[USAGE_GPU] * before + utilisation) / u->gpus;
    u->gpu_least = isnan(v[USAGE_GPU]) ? NAN : fmin(u->gpu_least, utilisation);
    u->gpu_most = isnan(v[USAGE_GPU]) ? NAN : fmax(u->gpu_most, utilisation);
    v[USAGE_GPU_MEMORY] += memory_bytes;
    v[USAGE_GPU_WATTS] += watts > 0 ? watts : NAN;
    v[USAGE_GPU_CELSIUS] =
        celsius > 0 && !isnan(v[USAGE_GPU_CELSIUS]) ? fmax(v[USAGE_GPU_CELSIUS], celsius) : NAN;
}

bool usage_is_metric(const char *name)
{
    for (int i = 0; i < USAGE_METRICS; i++)
        if (!strcmp(name, usage_names[i]))
            return true;
    return false;
}

bool usage_is_peak(const char *name)
{
    static const enum usage_metric peaks[] = {USAGE_MEMORY, USAGE_GPU_MEMORY, USAGE_GPU_CELSIUS};

    for (size_t i = 0; i < ARRAY_LEN(peaks); i++)
        if (strcmp(name, usage_names[peaks[i]]) == 0)
            return true;
    return false;
}
