#ifndef DDP_DAEMON_AGENT_GPU_NVML_THREAD_H
#define DDP_DAEMON_AGENT_GPU_NVML_THREAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/agent/gpu/nvml.h"

/* Reads NVML in a thread of its own, since a sick driver can block its caller for minutes, and hands the
 * readings to the loop's thread. Where there is no driver, it looks for one again after 0.25 s, 0.5 s, 1 s,
 * ... and at last every five minutes: a machine that boots may load the driver after it has started this
 * program. */

struct uv_loop_s;
struct nvml_thread;

/* The readings are borrowed: one for each GPU, always the same number in the same order. */
typedef void (*nvml_thread_fn)(void *user, const struct nvml_reading *readings, size_t count);

/* Reads every every_ms, and at once after an Xid error. fn may close the thread. */
struct nvml_thread *nvml_thread_open(struct uv_loop_s *loop, int64_t every_ms, nvml_thread_fn fn, void *user);
/* Waits for the first readings. NOT_FOUND: there is no NVML library. UNAVAILABLE: there is no driver, or no
 * GPU. DEADLINE_EXCEEDED: the driver did not answer in time. After an error fn gets the first readings, if
 * they come. */
MUST_CHECK enum err_code nvml_thread_wait(struct nvml_thread *c, int64_t patience_ms,
                                          const struct nvml_reading **readings, size_t *count, struct err *e);
/* Ends the thread. If it is blocked in NVML, it is left behind and ends when NVML returns. NULL is fine. */
void nvml_thread_close(struct nvml_thread *c);

const char *nvml_thread_driver(const struct nvml_thread *c); /* valid after the first readings */

#endif
