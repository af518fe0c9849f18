#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_RECORDER_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_RECORDER_H

#include <uv.h>

#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"

/* Metrics on their way to and from their database, which a worker thread of libuv works on, so that a slow
 * disk never holds up the loop. At most METRICS_RECORDER_PENDING points wait; the oldest go first. Functions belong
 * to the loop's thread. */
#define METRICS_RECORDER_PENDING 65536

struct metrics_recorder;

MUST_CHECK enum err_code metrics_recorder_open(struct metrics_recorder **out, uv_loop_t *loop,
                                               const char *dir, struct err *e);
void metrics_recorder_add(struct metrics_recorder *r, const Ddp__V1__Report *report);
void metrics_recorder_forget(struct metrics_recorder *r, int64_t job);
/* Answers the call with what was added up to now; name empty: all; limit 0: none. */
void metrics_recorder_read(struct metrics_recorder *r, struct rpc_call *call, int64_t job, const char *name,
                           size_t limit);
uint64_t metrics_recorder_dropped(const struct metrics_recorder *r);
/* Writes what is pending, waits for it, and closes; NULL is fine. Its loop handles need one more turn of the
 * loop. */
void metrics_recorder_close(struct metrics_recorder *r);

#endif
