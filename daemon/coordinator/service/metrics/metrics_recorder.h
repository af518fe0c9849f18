#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_METRICS_RECORDER_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_METRICS_RECORDER_H

#include <uv.h>

#include "base/worker/metric.h"
#include "base/worker/usage.h"
#include "proto/rpc_server.h"
#include "store/metrics.h"

/* Writes the workers' metrics to metrics.db and reads them for users. A worker thread of libuv uses the
 * database, so that a slow disk never delays the loop. At most METRICS_RECORDER_PENDING points wait to be written; beyond
 * that, points of the jobs that have reported most are dropped (metrics_shares.h). Call the functions on the loop's thread. */
#define METRICS_RECORDER_PENDING 65536
#define METRICS_RECORDER_READS 64 /* that wait for the one in progress */

struct metrics_recorder;

MUST_CHECK enum err_code metrics_recorder_open(struct metrics_recorder **out, uv_loop_t *loop,
                                               const char *dir, struct err *e);
/* Calls `damaged` on the loop after a damaged metrics.db was moved aside and replaced; why: one line. */
typedef void (*metrics_damage_fn)(void *user, const char *why);
void metrics_recorder_on_damage(struct metrics_recorder *r, metrics_damage_fn damaged, void *user);
/* Adds the metrics of the report's line. Leaves out metrics that are named like usage (sys.cpu), which only nodes
 * measure. job_step: the job's step. A report without a step gets it if its worker has reported no step since the
 * coordinator started. */
void metrics_recorder_add(struct metrics_recorder *r, const struct metric_report *report, int rank,
                          int64_t job_step);
/* Adds what the rank uses, `second` seconds after its job was submitted. */
void metrics_recorder_add_usage(struct metrics_recorder *r, int64_t job, int rank, int64_t second,
                                int64_t wall_ms, const struct usage *usage);
/* Deletes the job's points, and forgets the steps of its workers, with the next write. */
void metrics_recorder_forget(struct metrics_recorder *r, int64_t job);
/* Replies to the call with the job's points, including those just added. Of more than 20,000 points it leaves some out,
 * unless they are those of one name and one rank. Reads are answered one after the other. RESOURCE_EXHAUSTED if
 * METRICS_RECORDER_READS of them wait. */
void metrics_recorder_read(struct metrics_recorder *r, struct rpc_call *call,
                           const struct metrics_query *query);
uint64_t metrics_recorder_dropped(const struct metrics_recorder *r); /* points that were never written */
/* Writes the pending points before it returns; NULL is fine. The timer is closed in the loop's next turn. */
void metrics_recorder_close(struct metrics_recorder *r);

#endif
