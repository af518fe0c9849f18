#ifndef DDP_DAEMON_AGENT_GPU_NVML_H
#define DDP_DAEMON_AGENT_GPU_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* What the driver reports of the GPUs, by libnvidia-ml.so.1, which is opened at run time: no NVIDIA header
 * and no CUDA context. A value that a GPU or a driver does not report is 0 or empty. One thread at a time;
 * every call may block for as long as the driver does. */

struct nvml;

struct nvml_reading {
    char uuid[96]; /* "GPU-8-4-4-4-12"; "": not usable, because it was lost before or belongs to others */
    char name[96];
    char why[64]; /* why it is not usable, or lost; "": unknown */
    int64_t memory_bytes, memory_used;
    int temperature;    /* °C */
    int power_watts;    /* drawn */
    double utilisation; /* 0..1 of the time since the last reading */
    bool measured;      /* utilisation is known: its driver tells it */
    int64_t ecc_errors; /* uncorrected ones since the driver was loaded */
    uint64_t slowed_by; /* NVML_SLOWED_ bits */
    int xids[8];        /* errors since the last reading, ended by 0 */
    bool mig;           /* MIG mode: the GPU is cut into slices */
    bool lost;          /* it fell off the bus */
    bool stuck;         /* the driver demands a reset */
};

#define NVML_SLOWED_BY_HARDWARE 0x08u
#define NVML_SLOWED_BY_HEAT (0x20u | 0x40u)
#define NVML_SLOWED_BY_POWER 0x80u

/* NOT_FOUND: there is no such library. UNAVAILABLE: there is no driver, or it lists no GPU. Both may change
 * later. */
MUST_CHECK enum err_code nvml_open(struct nvml **out, struct err *e);
void nvml_close(struct nvml *n);
size_t nvml_count(const struct nvml *n); /* as nvidia-smi numbers them */
const char *nvml_driver(const struct nvml *n);
void nvml_read(struct nvml *n, size_t index, struct nvml_reading *out);
enum nvml_news {
    NVML_QUIET, /* the time has passed without an Xid error */
    NVML_NEWS,  /* there are Xid errors: nvml_read reports them */
    NVML_DEAF   /* this driver reports no events; the call did not wait */
};
/* Waits for Xid errors, and returns at once when there are some. */
enum nvml_news nvml_wait(struct nvml *n, unsigned timeout_ms);

#endif
