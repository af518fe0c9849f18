#ifndef DDP_DAEMON_AGENT_SUPERVISOR_H
#define DDP_DAEMON_AGENT_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/supervisor/protocol/control.h"

/* One supervisor as its agent sees it: the connection, and what is known of its spawns. supervisors.h holds
 * all of a node's. Facts come from the record files until the supervisor has spoken, and from the supervisor
 * after that. When it dies, the facts stay until its successor has spoken. Loop thread. */

struct uv_loop_s;
struct uv_poll_s;

struct supervisor_events {
    void (*on_change)(void *user); /* a fact has changed, or a supervisor was found or lost */
    void (*on_report)(void *user, int64_t job, const struct metric_report *report);
    void *user;
};

struct supervised_spawn {
    struct spawn_fact fact;
    enum stop_mode asked;         /* the strongest stop that was sent over this connection */
    struct spawn_answer answered; /* the last answer that was sent over this connection */
    bool heard;                   /* the supervisor has named it over this connection */
};

struct supervisor {
    const struct supervisor_events *events; /* borrowed */
    struct uv_loop_s *loop;
    int64_t job;
    char *dir; /* <state>/run/<job> */
    int fd;    /* -1: not connected */
    struct uv_poll_s *poll;
    bool synced;        /* it has named all its spawns over this connection */
    bool needed;        /* an order waits for it */
    bool launched;      /* this agent has started it over this connection */
    int early_ends;     /* how many in a row were started and ended before they were synced */
    int64_t retry_at;   /* BOOTTIME ms: when to try to reach or start it again */
    struct err trouble; /* why it cannot be started; without a code: it can, or no try was needed */
    struct supervised_spawn *spawns;
    size_t count, cap;
};

struct supervisor *supervisor_create(struct uv_loop_s *loop, int64_t job, char *dir,
                                     const struct supervisor_events *events); /* takes dir */
void supervisor_free(struct supervisor *s); /* run the loop once more, so that its handle closes */
/* Adds the spawns of the record files in dir. */
MUST_CHECK enum err_code supervisor_load_records(struct supervisor *s, struct err *e);

void supervisor_connected(struct supervisor *s, int fd); /* takes fd, and listens to it */
void supervisor_disconnect(struct supervisor *s);
/* The same, but first takes what the supervisor has sent: reports would be lost with the connection. */
void supervisor_let_go(struct supervisor *s);

struct supervised_spawn *supervisor_find_spawn(struct supervisor *s, int64_t spawn); /* NULL: not known */
struct supervised_spawn *supervisor_add_spawn(struct supervisor *s);                 /* zeroed */
void supervisor_drop_spawn(struct supervisor *s, size_t at);

#endif
