#ifndef DDP_DAEMON_AGENT_SESSION_H
#define DDP_DAEMON_AGENT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* The agent's stream to the coordinator. Happy path: it dials, sends a hello, hears the welcome, and then
 * sends a heartbeat every heartbeat_ms, each of which the coordinator acknowledges. An acknowledgement may name a
 * longer interval for the next one, which ends with the next wish. When the stream ends,
 * when the welcome does not come, or when four heartbeats in a row, heartbeat_ms apart, are not acknowledged, it
 * dials again, after 0.1 s and up to 5 s. It never gives up. Loop thread. */

struct uv_loop_s;
struct settings;
struct session;

/* gRPC's pings, for a connection that carries nothing else. A heartbeat is more frequent. */
#define SESSION_KEEPALIVE_MS 20000

struct session_events {
    void (*fill_hello)(void *user, Ddp__V1__Hello *hello); /* borrowed texts, valid during the call */
    void (*fill_heartbeat)(void *user, Ddp__V1__Heartbeat *beat);
    /* An error ends the stream: this coordinator is of another cluster. */
    enum err_code (*on_welcome)(void *user, const Ddp__V1__Welcome *welcome, struct err *e);
    void (*on_ack)(void *user, int64_t sent); /* a hello or heartbeat sent at this BOOTTIME ms was received */
    void (*on_log_tail_rate)(void *user, int64_t bytes_per_second);
    void (*on_wish)(void *user, const Ddp__V1__Wish *wish);
    /* NULL: there is no such card; freed with rpc_free. */
    Ddp__V1__JobCard *(*on_card_wanted)(void *user, int64_t job);
    void (*on_log_read)(void *user, const Ddp__V1__LogRead *read);
    void (*on_probe)(void *user, const Ddp__V1__Probe *probe);
    void (*on_check)(void *user, const Ddp__V1__CheckAsk *ask);
    void (*on_logs_deleted)(void *user, int64_t job); /* the job was deleted: its log files go */
    void (*on_gpus_cleared)(void *user); /* the operator has undrained the node: forget the GPUs' faults */
    void (*on_sendable)(void *user);     /* after session_send has failed because the queue was full */
    void (*on_lost)(void *user);         /* a welcomed stream has ended */
    void *user;
};

MUST_CHECK enum err_code session_open(struct session **out, struct uv_loop_s *loop,
                                      const struct settings *settings, const struct session_events *events,
                                      struct err *e);
/* Ends the stream and frees the session; on_closed comes when this is done. */
void session_close(struct session *s, void (*on_closed)(void *user), void *user);

/* Tells the coordinator that this node's workers are dead and that the node will not come back, then closes.
 */
void session_leave(struct session *s, void (*on_closed)(void *user), void *user);

/* Ends the stream and dials again after a pause, because the hello has changed. The coordinator then sends everything anew. */
void session_renew(struct session *s);
void session_beat(struct session *s); /* sends a heartbeat now: its content has changed */
bool session_welcomed(const struct session *s);
/* UNAVAILABLE: there is no welcomed stream. RESOURCE_EXHAUSTED: the queue is full; on_sendable follows. */
MUST_CHECK enum err_code session_send(struct session *s, const Ddp__V1__AgentUp *message, struct err *e);

#endif
