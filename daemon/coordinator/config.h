#ifndef DDP_DAEMON_COORDINATOR_CONFIG_H
#define DDP_DAEMON_COORDINATOR_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf/option.h"
#include "base/err.h"
#include "daemon/coordinator/service/tell/hook.h"

/* The configuration: coordinator.yaml, overridden by the command line. Owns its texts. 0 stands for the
 * core's default where noted (core_config_defaults). */
struct config {
    char *state;   /* directory */
    char **listen; /* "host:port"; empty: the unix socket alone */
    char *metrics; /* "host:port", or "none" */
    char *web;     /* "host:port" of the web page, or "none"; NULL: none */
    char *relay;   /* "host:port"; NULL: no relay */
    bool insecure; /* TCP without a token */
    struct {
        char *ca, *cert, *key;
    } tls;
    int64_t heartbeat_ms, node_timeout_ms; /* 0: the core's default */
    int64_t settle_ms;                     /* 0: the core's default */
    int64_t look_ms;                       /* snapshot_look; 0: the core's default */
    int64_t retain_ms, retain_jobs;        /* 0: the core's default */
    struct {
        int64_t every_ms, keep; /* every_ms 0: no backups */
        char *dir;              /* NULL: <state>/backup */
    } backup;
    char *shared_user; /* the user name of callers with the cluster token and no certificate */
    int64_t audit_keep_ms, audit_rows;
    struct {
        int64_t total, per_address, unauthenticated,
            unauthenticated_per_address; /* 0: see proto/rpc_limits.h */
    } connections;
    struct hook_list hooks; /* and `tell` */
};

/* The keys of coordinator.yaml that are also command-line options; offsets into struct config. */
extern const struct option_spec config_options[];

void config_defaults(struct config *c);
/* The keys in the file replace the values in *c. */
MUST_CHECK enum err_code config_read(struct config *c, const char *path, struct err *e);
/* Checks the values that depend on each other. INVALID_ARGUMENT. */
MUST_CHECK enum err_code config_check(const struct config *c, struct err *e);
void config_release(struct config *c);

char *config_backup_dir(const struct config *c); /* the caller frees */
char *config_default_listen(void); /* every address of this machine, port 29600; the caller frees */

#endif
