#ifndef DDP_COORDINATOR_SERVICE_H
#define DDP_COORDINATOR_SERVICE_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/coordinator/core.h"
#include "proto/rpc_tls.h"

/* The coordinator as a daemon: one libuv loop around the core. What arrives in one turn of the loop becomes
 * one list of changes, one commit, and only then replies and wishes. */
struct service_options {
    const char *state;        /* directory */
    char *const *listen;      /* "host:port" each, NULL-terminated; besides <state>/coordinator.sock */
    const char *metrics;      /* "host:port"; NULL: no HTTP */
    const char *token;        /* the cluster's, hex */
    bool insecure;            /* TCP without a token */
    struct rpc_tls_files tls; /* ca NULL: plain text on TCP */
    int lifeline;             /* a pipe whose other end's closing ends the program; -1: none */
    struct core_config core;
};

/* Serves until SIGTERM, SIGINT or the lifeline's end. */
MUST_CHECK enum err_code service_run(const struct service_options *options, struct err *e);

#endif
