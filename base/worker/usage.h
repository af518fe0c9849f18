#ifndef DDP_BASE_WORKER_USAGE_H
#define DDP_BASE_WORKER_USAGE_H

#include <stdbool.h>

/* What the processes of a rank and its GPUs use, as its node measures it every few seconds, whatever program runs.
 * docs/reference/metrics.md describes the values. Any thread. */

enum usage_metric {
    USAGE_CPU,    /* cores: CPU time divided by time */
    USAGE_MEMORY, /* resident bytes of all processes */
    USAGE_READ,   /* bytes per second from storage */
    USAGE_WRITE,
    USAGE_GPU,        /* utilisation, 0..1: the mean of the rank's GPUs */
    USAGE_GPU_MEMORY, /* bytes in use on its GPUs */
    USAGE_GPU_WATTS,
    USAGE_GPU_CELSIUS, /* of the hottest */
    USAGE_METRICS
};
extern const char *const usage_names[USAGE_METRICS]; /* "sys.cpu", "gpu.utilisation" */

struct usage {
    double values[USAGE_METRICS]; /* NaN: not known */
    double gpu_least, gpu_most;   /* utilisation of the least busy GPU and of the busiest; NaN: not known */
    int gpus;
};

void usage_init(struct usage *u); /* nothing is known */
/* Adds a GPU. Utilisation NaN, watts 0 or celsius 0: its driver does not report the value, so it is unknown for the rank. */
void usage_add_gpu(struct usage *u, double utilisation, double memory_bytes, double watts, double celsius);
/* Whether a metric has one of usage_names. A program's own metrics have other names. */
bool usage_is_metric(const char *name);
/* Whether the largest value of this metric matters rather than its mean: memory and temperature. */
bool usage_is_peak(const char *name);

#endif
