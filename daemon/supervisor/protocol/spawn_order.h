#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_SPAWN_ORDER_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_SPAWN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

/* All that a supervisor needs to start one worker. Texts and lists are owned by the struct. */
struct spawn_order {
    int64_t spawn;
    int64_t first_generation; /* as in spawn_fact.h; the membership that it starts with is in env */
    int first_local_rank;
    char *id;    /* DDP_SPAWN_ID */
    char *owner; /* the agent's instance, DDP_AGENT_ID: with id, unique on the machine */
    char **argv; /* argv[0] is looked up in the PATH of env */
    char *
        *env; /* complete but for DDP_REPORT_FD, DDP_TOKEN_FD and DDP_CONTROL_FD, which the supervisor adds */
    char *workdir;
    char *log_dir; /* its own: holds stdout.log, stderr.log, error.json */
    char *token;   /* hexadecimal; NULL: no DDP_TOKEN_FD */
    char *user;    /* the account to run under; NULL: the supervisor's */
    char **gpu_uuids;
    int gpu_slots;   /* how many workers may share one of the GPUs */
    int master_port; /* the port to reserve on this host; 0: MASTER_PORT is on another node */
    bool store;      /* with master_port: ddp-store serves it, before the worker starts */
    char **preload;  /* modules that spares of a Python program import in advance; NULL: no spares */
    char **
        capture; /* of rank 0: {mode} or {mode, argument} of daemon/capture/capture.h; NULL: nothing is captured */
    bool foreground;              /* it gets the terminal or the stdin of `ddpctl run` */
    bool native;                  /* ddp-trainer, which gets STOP_SNAPSHOT from the coordinator directly */
    int64_t lease_sent, lease_ms; /* as in control_message */
    int64_t grace_ms;
};

/* Writes the members of a JSON object that the caller has opened. */
void spawn_order_encode(struct jout *o, const struct spawn_order *s);
/* INVALID_ARGUMENT: spawn, id, owner, argv or log_dir is missing. Release *s whatever the result; it must be
 * zeroed. */
MUST_CHECK enum err_code spawn_order_decode(struct spawn_order *s, const json_t *obj, struct err *e);
void spawn_order_release(struct spawn_order *s);

#endif
