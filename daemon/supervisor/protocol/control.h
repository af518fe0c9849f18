#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_CONTROL_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/spawn_fact.h"
#include "daemon/supervisor/protocol/spawn_order.h"

/* What an agent and its supervisors say to each other: one JSON object a datagram, on a unix SEQPACKET socket
 * (socket.h). Everything is a level, so a lost or repeated message does no harm:
 *
 *   agent → supervisor   start   one spawn, whole; again for a known spawn: ignored
 *                        stop    a mode never weaker than the last one
 *                        forget  the exit record of an ended spawn is no longer wanted
 *                        lease   a heartbeat sent at lease_sent (CLOCK_BOOTTIME ms) was acknowledged
 *   supervisor → agent   hello   first, once a connection; then a fact for every spawn, then synced
 *                        fact    a spawn as it is now, after each change
 *                        report  one parsed line of a worker's report pipe
 *                        synced  all that there is was said: absence counts from here
 *
 * Texts and lists are owned by their struct. Not for several threads. */

enum control_op {
    CONTROL_HELLO,
    CONTROL_START,
    CONTROL_STOP,
    CONTROL_FORGET,
    CONTROL_LEASE,
    CONTROL_FACT,
    CONTROL_REPORT,
    CONTROL_SYNCED,
};

enum stop_mode { STOP_NONE, STOP_SNAPSHOT, STOP_TERM, STOP_KILL }; /* numbers as on the wire */

#define REPORT_METRICS 48
#define REPORT_NAME 48
struct spawn_report {
    int64_t spawn, generation, time_ms, step;
    int rank;
    bool has_step;
    size_t count;
    struct {
        char name[REPORT_NAME];
        double value; /* null on the wire is NaN */
    } metrics[REPORT_METRICS];
};

struct control_message {
    enum control_op op;
    int64_t job, spawn; /* hello; stop, forget */
    char *node;         /* hello */
    enum stop_mode mode;
    int64_t grace_ms;
    int signal; /* stop: instead of SIGTERM, 0: that */
    int64_t lease_sent, lease_ms;
    struct spawn_order order;
    struct spawn_fact fact;
    struct spawn_report report;
};

void control_encode(const struct control_message *m, struct buf *out); /* appended */
/* INVALID_ARGUMENT when it is not one of ours; *out is zeroed first, release it whatever the result. */
MUST_CHECK enum err_code control_decode(struct control_message *out, const char *text, size_t len,
                                        struct err *e);
void control_message_release(struct control_message *m); /* for CLEANUP too */

#define CONTROL_MESSAGE_MAX (1 << 20)

#endif
