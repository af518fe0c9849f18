#ifndef DDP_DAEMON_AGENT_GPU_NVML_H
#define DDP_DAEMON_AGENT_GPU_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The driver's own account of the GPUs, by libnvidia-ml.so.1 opened at run time: no header, no CUDA context.
 * What a GPU or a driver does not tell is 0 or empty. One thread at a time; every call may block as long as
 * the driver pleases. */

struct nvml;

struct nvml_reading {
    char uuid[96]; /* "GPU-8-4-4-4-12"; "": lost before this began, or another's: not to be used */
    char name[96];
    char why[64]; /* it is not usable, or lost; "": nothing was said */
    int64_t memory_bytes, memory_used;
    int temperature;    /* °C */
    int power_watts;    /* drawn */
    double utilisation; /* 0..1 of the time since the last look */
    int64_t ecc_errors; /* not corrected, since the driver was loaded */
    uint64_t slowed_by; /* NVML_SLOWED_ bits */
    int xids[8];        /* errors since the last reading, ended by 0 */
    bool mig;           /* cut into pieces */
    bool lost;          /* fell off the bus */
    bool stuck;         /* nothing goes on it before a reset */
};

#define NVML_SLOWED_BY_HARDWARE 0x08u
#define NVML_SLOWED_BY_HEAT (0x20u | 0x40u)
#define NVML_SLOWED_BY_POWER 0x80u

/* NOT_FOUND: no such library; UNAVAILABLE: no driver, or one that lists no GPU. Either may come later. */
MUST_CHECK enum err_code nvml_open(struct nvml **out, struct err *e);
void nvml_close(struct nvml *n);
size_t nvml_count(const struct nvml *n); /* as nvidia-smi numbers them */
const char *nvml_driver(const struct nvml *n);
void nvml_read(struct nvml *n, size_t index, struct nvml_reading *out);
enum nvml_news {
    NVML_QUIET,
    NVML_NEWS,
    NVML_DEAF
}; /* deaf: this driver tells no events, nothing was waited for */
/* Waits for Xid errors, which the next nvml_read tells; returns at once when there are some. */
enum nvml_news nvml_wait(struct nvml *n, unsigned timeout_ms);

#endif
