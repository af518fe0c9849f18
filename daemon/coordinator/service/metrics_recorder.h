#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_RECORDER_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_RECORDER_H

#include <uv.h>

#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"

/* Metrics on their way to and from their database, which a worker thread of libuv works on, so that a slow
 * disk never holds up the loop. At most RECORDER_PENDING points wait; the oldest go first. Functions belong
 * to the loop's thread. */
#define RECORDER_PENDING 65536

struct recorder;

MUST_CHECK enum err_code recorder_open(struct recorder **out, uv_loop_t *loop, const char *dir,
                                       struct err *e);
void recorder_add(struct recorder *r, const Ddp__V1__Report *report);
void recorder_forget(struct recorder *r, int64_t job);
/* Answers the call with what was added up to now; name empty: all; limit 0: none. */
void recorder_read(struct recorder *r, struct rpc_call *call, int64_t job, const char *name, size_t limit);
uint64_t recorder_dropped(const struct recorder *r);
/* Writes what is pending, waits for it, and closes; NULL is fine. Its loop handles need one more turn of the
 * loop. */
void recorder_close(struct recorder *r);

#endif
