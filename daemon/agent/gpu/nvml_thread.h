#ifndef DDP_DAEMON_AGENT_GPU_NVML_THREAD_H
#define DDP_DAEMON_AGENT_GPU_NVML_THREAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/agent/gpu/nvml.h"

/* Reads NVML on a thread of its own, since a sick driver can keep its caller for minutes, and hands what it
 * read to the loop's thread. Where there is no driver yet it looks for one again, after 0.25 s, 0.5 s,
 * 1 s, ... and then every five minutes: a machine that boots may have it later than this program. */

struct uv_loop_s;
struct nvml_thread;

/* The readings are borrowed, one a GPU, always as many and in the same order. */
typedef void (*nvml_thread_fn)(void *user, const struct nvml_reading *readings, size_t count);

/* Looks are every_ms apart, and at once after an Xid. fn may close it. */
struct nvml_thread *nvml_thread_open(struct uv_loop_s *loop, int64_t every_ms, nvml_thread_fn fn, void *user);
/* Waits for the first look, as long as there is hope. NOT_FOUND, UNAVAILABLE: there is no NVML, or no driver;
 * DEADLINE_EXCEEDED: it did not answer in time. After an error fn tells the first look, if there is one. */
MUST_CHECK enum err_code nvml_thread_wait(struct nvml_thread *c, int64_t patience_ms,
                                          const struct nvml_reading **readings, size_t *count, struct err *e);
/* Ends the thread; one that NVML does not let go is left behind. NULL is fine. */
void nvml_thread_close(struct nvml_thread *c);

const char *nvml_thread_driver(const struct nvml_thread *c); /* after the first look */

#endif
