#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_CONTROL_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/worker/metric.h"
#include "base/worker/spawn_fact.h"
#include "daemon/supervisor/protocol/spawn_order.h"

/* The messages between an agent and its supervisors: one JSON object a datagram, on a unix SEQPACKET socket (socket.h).
 * Each message states what holds, not what changed, so a lost or repeated one does no harm:
 *
 *   agent → supervisor   start   the whole order for one spawn; ignored for a known spawn
 *                        stop    a mode; a mode that is weaker than the last one is ignored
 *                        forget  the exit record of an ended spawn is no longer wanted
 *                        answer  what a worker has asked for (worker_link.h)
 *                        lease   a heartbeat sent at lease_sent (CLOCK_BOOTTIME ms) was acknowledged
 *   supervisor → agent   hello   the first message of a connection; then a fact for every spawn, then synced
 *                        fact    one spawn as it is now, after each change
 *                        report  one line of a worker's report pipe, as the worker wrote it
 *                        synced  all facts have been sent: a spawn without a fact does not exist here
 *
 * Happy path: the agent connects, gets hello, facts and synced, sends its orders, and gets a fact after each change.
 * When the agent dies, the supervisor continues, and sends everything again to the next agent. When the supervisor
 * dies, its socket closes, and the agent starts another one, which finds the records (record.h).
 *
 * Texts and lists are owned by their struct. One thread at a time. */

enum control_op {
    CONTROL_HELLO,
    CONTROL_START,
    CONTROL_STOP,
    CONTROL_FORGET,
    CONTROL_LEASE,
    CONTROL_FACT,
    CONTROL_REPORT,
    CONTROL_SYNCED,
    CONTROL_ANSWER,
};

/* From weak to strong; the numbers are those of StopMode in proto/ddp.proto. */
enum stop_mode { STOP_NONE, STOP_SNAPSHOT, STOP_TERM, STOP_KILL };

/* The coordinator's answers to struct spawn_asks; zeroed: none. */
struct spawn_answer {
    int64_t commit;    /* number of the commit that is answered */
    bool stale;        /* with error: the generation has ended */
    bool agrees;       /* the ranks agree on a step before they stop, so SIGTERM waits */
    int64_t allowed;   /* the promise that the coordinator knows */
    int64_t stop_step; /* all ranks stop at the first step from this one on; 0: not known yet */
    const char *error; /* why the snapshot was not committed; NULL: it is committed */
};
bool spawn_answer_equal(const struct spawn_answer *a, const struct spawn_answer *b);
void spawn_answer_copy(struct spawn_answer *to,
                       const struct spawn_answer *from); /* releases what was in `to` */
void spawn_answer_release(struct spawn_answer *a);

struct control_message {
    enum control_op op;
    int64_t job;         /* hello */
    int64_t spawn;       /* stop, forget, answer */
    char *node;          /* hello */
    enum stop_mode mode; /* stop */
    int64_t grace_ms;    /* stop: from the first signal to SIGKILL */
    int signal;          /* stop: sent instead of SIGTERM; 0: SIGTERM */
    int64_t lease_sent;  /* lease: when the heartbeat was sent that was acknowledged, CLOCK_BOOTTIME ms */
    int64_t lease_ms;    /* lease: how long the workers may run from then on */
    struct spawn_order order;
    struct spawn_fact fact;
    struct metric_report report;
    struct spawn_answer answer;
};

void control_encode(const struct control_message *m, struct buf *out); /* appended */
/* INVALID_ARGUMENT: not a message of this protocol. *out is zeroed first; release it whatever the result. */
MUST_CHECK enum err_code control_decode(struct control_message *out, const char *text, size_t len,
                                        struct err *e);
void control_message_release(struct control_message *m); /* for CLEANUP too */

#define CONTROL_MESSAGE_MAX (1 << 20)

#endif
