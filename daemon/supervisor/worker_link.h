#ifndef DDP_DAEMON_SUPERVISOR_WORKER_LINK_H
#define DDP_DAEMON_SUPERVISOR_WORKER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "daemon/supervisor/protocol/control.h"

/* The supervisor's end of DDP_CONTROL_FD, over which a command sends requests (python/ddp.py is an example). It is a
 * unix SEQPACKET socket; each datagram is one JSON object:
 *
 *   worker → supervisor   {"op": "commit", "id": 1, "path": "/data/snapshot", "step": 500, "bytes": 1000}
 *                         {"op": "heed"}                    the program calls should_stop, so a stop needs no signal
 *                         {"op": "promise", "step": 510}    the program does not go past step 510 without an answer
 *   supervisor → worker   {"commit": 1, "error": null, "stale": false, "stop": true, "allowed": 510,
 *                          "stop_step": 512, "number": 3}
 *
 * The answer is the whole state, sent after each change:
 * - `commit`: the id of the last commit that was answered; `error` is null if the snapshot is committed. A commit that the
 *   supervisor refuses is answered too.
 * - `stop`: the job is to stop.
 * - `allowed`: the last promise that the coordinator knows. The program may continue up to this step.
 * - `number`: 1 for the first message, then 2, and so on. The message with the highest number has the newest state.
 * - `stop_step`: all ranks stop at the first call whose step is >= stop_step; 0: not decided yet.
 *
 * The supervisor stores requests in the spawn's fact, and answers come with the coordinator's wish. So no request or
 * answer is lost when the agent or the coordinator restarts. The supervisor cannot answer a request that is not JSON,
 * or a commit without an id. In this case it closes the socket, so that the worker does not wait for ever. A worker
 * that does not read its answers never delays the supervisor. One thread. */

#define WORKER_REQUEST_MAX (16 << 10) /* bytes */
#define WORKER_PATH_MAX 4096

struct worker_link {
    int fd;       /* -1: closed */
    bool blocked; /* the worker's queue is full: wait until the socket is writable */
    bool due;     /* the current state has not been sent to the worker yet */
    int64_t told; /* states that were sent */
    bool stop;
    int64_t id; /* the worker's own number of its last commit */
    struct spawn_answer answer;
    int64_t refused_id; /* the worker's own number of its last commit, if the supervisor refused it; else 0 */
    struct err refusal; /* why it was refused */
    int64_t refused;    /* the number of refused requests */
    struct err first_error; /* why the first request was refused */
};

void worker_link_open(struct worker_link *w, int fd); /* takes fd; -1: there is none */
void worker_link_release(struct worker_link *w);
/* Reads a limited number of the worker's requests and puts them into *asks. Returns whether *asks has changed. */
bool worker_link_hear(struct worker_link *w, struct spawn_asks *asks);
void worker_link_stop(struct worker_link *w); /* the worker is to stop at a step that all ranks agree on */
void worker_link_answer(struct worker_link *w, const struct spawn_answer *answer);
/* Sends the state if it has changed. */
void worker_link_tell(struct worker_link *w, const struct spawn_asks *asks);

/* The part of worker_link_hear that handles one request. INVALID_ARGUMENT: *asks is unchanged. */
MUST_CHECK enum err_code worker_link_take(struct worker_link *w, const char *text, size_t len,
                                          struct spawn_asks *asks, struct err *e);
void worker_link_encode(const struct worker_link *w, const struct spawn_asks *asks, struct buf *out);

#endif
