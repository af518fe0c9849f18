#ifndef DDP_DAEMON_AGENT_GPU_COURIER_H
#define DDP_DAEMON_AGENT_GPU_COURIER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/agent/nvml.h"

/* Reads NVML on a thread of its own, since a sick driver can keep its caller for minutes, and hands what it
 * read to the loop's thread. */

struct uv_loop_s;
struct gpu_courier;

/* The readings are borrowed, one a GPU, always as many and in the same order. */
typedef void (*gpu_courier_fn)(void *user, const struct nvml_reading *readings, size_t count);

/* Waits for the first look. UNAVAILABLE: there is no NVML; DEADLINE_EXCEEDED: it did not answer in time.
 * After an error there is nothing to close. Later looks are every_ms apart, and at once after an Xid. */
MUST_CHECK enum err_code gpu_courier_open(struct gpu_courier **out, struct uv_loop_s *loop, int64_t every_ms,
                                          int64_t patience_ms, gpu_courier_fn fn, void *user, struct err *e);
/* Ends the thread; one that NVML does not let go is left behind. NULL is fine. */
void gpu_courier_close(struct gpu_courier *c);

/* The first look's, until fn is called for the first time. */
const struct nvml_reading *gpu_courier_readings(const struct gpu_courier *c, size_t *count);
const char *gpu_courier_driver(const struct gpu_courier *c);

#endif
