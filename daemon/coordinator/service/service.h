#ifndef DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/coordinator/core/core.h"
#include "proto/rpc_limits.h"
#include "proto/rpc_tls.h"

struct hook_list;

/* The coordinator as a daemon: one libuv loop around the core. All events of one turn of the loop become one
 * commit, and replies and wishes are sent only after it (commit_queue.h). */
struct service_options {
    const char *state;       /* directory */
    char *const *listen;     /* "host:port" each, NULL-terminated; in addition to <state>/coordinator.sock */
    const char *metrics;     /* "host:port"; NULL: no HTTP */
    const char *web;         /* "host:port" of the web page; NULL: none */
    const char *relay;       /* "host:port", where ranks that cannot reach each other meet; NULL: no relay */
    const char *token;       /* the cluster token, hex: allows everything */
    const char *agent_token; /* only lets a node join and run jobs */
    const char *shared_user; /* the user name of callers with the cluster token and no certificate */
    int64_t audit_keep_ms, audit_rows; /* how long lines of the audit log are kept, and how many */
    bool insecure;                     /* TCP without a token */
    struct rpc_tls_files tls;          /* ca NULL: plain text on TCP */
    struct rpc_limits limits;          /* of TCP connections */
    int lifeline;                      /* a pipe; when its other end closes, the program ends; -1: none */
    const char *backup_dir;
    int64_t backup_every_ms, backup_keep; /* backup_every_ms 0: no backups */
    bool accept_loss;                     /* continue with a database that lacks acknowledged commits */
    const struct hook_list *hooks;        /* service/tell/hook.h */
    struct core_config core;
};

/* Serves until SIGTERM, SIGINT or the end of the lifeline. DATA_LOSS: the database is damaged or has lost
 * commits; starting again does not help. */
MUST_CHECK enum err_code service_run(const struct service_options *options, struct err *e);

/* For the service's own modules. */
struct service;
struct core_now service_now(void);
uint64_t service_handle(struct service *s);            /* a new handle, never 0 */
void service_stop(struct service *s, const char *why); /* finishes the calls in progress, then ends */
/* Loads the core from the store and replaces the present core. */
MUST_CHECK enum err_code service_rebuild(struct service *s, struct err *e);

#endif
