#ifndef DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/coordinator/core/core.h"
#include "proto/rpc_limits.h"
#include "proto/rpc_tls.h"

/* The coordinator as a daemon: one libuv loop around the core. What arrives in one turn of the loop becomes
 * one list of changes, one commit, and only then replies and wishes. */
struct service_options {
    const char *state;       /* directory */
    char *const *listen;     /* "host:port" each, NULL-terminated; besides <state>/coordinator.sock */
    const char *metrics;     /* "host:port"; NULL: no HTTP */
    const char *token;       /* the cluster token, hex: allows everything */
    const char *agent_token; /* only lets a node join and run jobs */
    const char *shared_user; /* the user name of callers with the cluster token and no certificate */
    int64_t audit_keep_ms, audit_rows; /* how long the audit record is kept, and how much of it */
    bool insecure;                     /* TCP without a token */
    struct rpc_tls_files tls;          /* ca NULL: plain text on TCP */
    struct rpc_limits limits;          /* of connections by TCP */
    int lifeline;                      /* a pipe whose other end's closing ends the program; -1: none */
    const char *backup_dir;
    int64_t backup_every_ms, backup_keep; /* every 0: none are made */
    bool accept_loss;                     /* continue with a database that lacks acknowledged commits */
    struct core_config core;
};

/* Serves until SIGTERM, SIGINT or the lifeline's end. DATA_LOSS: the database is damaged or has lost commits,
 * at the start or meanwhile; starting again does not help. */
MUST_CHECK enum err_code service_run(const struct service_options *options, struct err *e);

/* For the service's own modules. */
struct service;
struct core_now service_now(void);
uint64_t service_handle(struct service *s);            /* a new one */
void service_stop(struct service *s, const char *why); /* answers the calls in progress, then ends */
/* Loads the core from the store and replaces the present core. */
MUST_CHECK enum err_code service_rebuild(struct service *s, struct err *e);

#endif
