#ifndef DDP_DAEMON_AGENT_SESSION_H
#define DDP_DAEMON_AGENT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* The stream to the coordinator: dials, says hello, beats, and dials again for ever. Loop thread. */

struct uv_loop_s;
struct settings;
struct session;

struct session_events {
    void (*fill_hello)(void *user, Ddp__V1__Hello *hello); /* borrowed texts, valid during the call */
    void (*fill_heartbeat)(void *user, Ddp__V1__Heartbeat *beat);
    /* FAILED_PRECONDITION ends the stream: the coordinator is not ours. */
    enum err_code (*on_welcome)(void *user, const Ddp__V1__Welcome *welcome, struct err *e);
    void (*on_ack)(void *user, int64_t sent); /* a hello or heartbeat sent at this BOOTTIME ms was received */
    void (*on_wish)(void *user, const Ddp__V1__Wish *wish);
    Ddp__V1__JobCard *(*on_card_wanted)(void *user, int64_t job); /* NULL: not there; for rpc_free */
    void (*on_log_read)(void *user, const Ddp__V1__LogRead *read);
    void (*on_probe)(void *user, const Ddp__V1__Probe *probe);
    void (*on_check)(void *user, const Ddp__V1__CheckAsk *ask);
    void (*on_gpus_cleared)(void *user); /* the operator holds the GPUs for well */
    void (*on_sendable)(void *user);
    void (*on_lost)(void *user);
    void *user;
};

MUST_CHECK enum err_code session_open(struct session **out, struct uv_loop_s *loop,
                                      const struct settings *settings, const struct session_events *events,
                                      struct err *e);
void session_close(struct session *s, void (*on_closed)(void *user),
                   void *user); /* freed when on_closed comes */

/* Tells the coordinator that this node's workers are dead and will not be back, then closes. */
void session_leave(struct session *s, void (*on_closed)(void *user), void *user);

/* Ends the stream and dials again after a pause; the coordinator then says everything anew. */
void session_redial(struct session *s);
void session_renew(struct session *s); /* the same, and nothing went wrong: the hello has news */
void session_beat(struct session *s);  /* a heartbeat now: there is news in it */
bool session_welcomed(const struct session *s);
/* UNAVAILABLE: not welcomed; RESOURCE_EXHAUSTED: full, on_sendable follows. */
MUST_CHECK enum err_code session_send(struct session *s, const Ddp__V1__AgentUp *message, struct err *e);

#endif
