#include "proto/rpc_usage.h"

#include <math.h>

void rpc_usage_pack(const struct usage *u, Ddp__V1__Usage *out)
{
    ddp__v1__usage__init(out);
    out->cpu = u->values[USAGE_CPU];
    out->memory_bytes = u->values[USAGE_MEMORY];
    out->read_bytes_per_s = u->values[USAGE_READ];
    out->write_bytes_per_s = u->values[USAGE_WRITE];
    out->gpus = u->gpus;
    out->gpu_utilisation = u->values[USAGE_GPU];
    out->gpu_least = u->gpu_least;
    out->gpu_most = u->gpu_most;
    out->gpu_memory_bytes = u->values[USAGE_GPU_MEMORY];
    out->gpu_watts = u->values[USAGE_GPU_WATTS];
    out->gpu_celsius = u->values[USAGE_GPU_CELSIUS];
}

static double usage_value(double value)
{
    return value >= 0 && value <= 1e18 ? value : NAN; /* no node measures more; clients make integers of it */
}

void rpc_usage_unpack(const Ddp__V1__Usage *m, struct usage *out)
{
    out->values[USAGE_CPU] = usage_value(m->cpu);
    out->values[USAGE_MEMORY] = usage_value(m->memory_bytes);
    out->values[USAGE_READ] = usage_value(m->read_bytes_per_s);
    out->values[USAGE_WRITE] = usage_value(m->write_bytes_per_s);
    out->gpus = m->gpus > 0 ? m->gpus : 0;
    out->values[USAGE_GPU] = usage_value(m->gpu_utilisation);
    out->gpu_least = usage_value(m->gpu_least);
    out->gpu_most = usage_value(m->gpu_most);
    out->values[USAGE_GPU_MEMORY] = usage_value(m->gpu_memory_bytes);
    out->values[USAGE_GPU_WATTS] = usage_value(m->gpu_watts);
    out->values[USAGE_GPU_CELSIUS] = usage_value(m->gpu_celsius);
}
