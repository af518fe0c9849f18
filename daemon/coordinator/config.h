#ifndef DDP_COORDINATOR_CONFIG_H
#define DDP_COORDINATOR_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* coordinator.yaml, and what the command line says instead. All texts are owned. */
struct config {
    char *state;   /* directory */
    char **listen; /* "host:port"; empty: the unix socket alone */
    char *metrics; /* "host:port", or "none" */
    bool insecure; /* TCP without a token */
    struct {
        char *ca, *cert, *key;
    } tls;
    int64_t heartbeat_ms, node_timeout_ms; /* 0: the core's own */
    int64_t settle_ms;                     /* 0: the core's own */
    int64_t retain_ms, retain_jobs;        /* 0: the core's own */
};

void config_defaults(struct config *c);
/* Keys that the file has replace the defaults. */
MUST_CHECK enum err_code config_read(struct config *c, const char *path, struct err *e);
/* Checks what can only be said of the whole. */
MUST_CHECK enum err_code config_check(const struct config *c, struct err *e);
void config_release(struct config *c);

char *config_default_listen(void); /* every address of this machine, port 29600; the caller frees */

#endif
