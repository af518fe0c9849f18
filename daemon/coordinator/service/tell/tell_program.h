#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_PROGRAM_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_PROGRAM_H

#include <uv.h>

#include "daemon/coordinator/service/tell/tell_attempt.h"
#include "store/record.h"

/* A program that is started for a notice. It gets the notice as JSON on stdin and as variables DDP_EVENT, ... in its
 * environment, runs in a session of its own and without a shell, and is killed with its process group when its time
 * limit is over. Exit code 0 means that the notice is delivered. Its output goes into the coordinator's log, up to a
 * limit. */
struct tell_program;

/* A failed start is also reported through `done`, by the loop. argv, json and env are copied. */
struct tell_program *tell_program_start(uv_loop_t *loop, char *const *argv,
                                        const struct notice_record *notice, const char *json,
                                        int64_t timeout_ms, tell_done_fn done, void *user);
/* Kills the group. `done` is not called any more; the memory is freed when the loop has closed the handles. */
void tell_program_abandon(struct tell_program *p);

#endif
