#include "daemon/coordinator/config.h"

#include <math.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/conf/conf.h"
#include "base/crypto/id.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/coordinator/hook_config.h"

static const struct conf_field tls_fields[] = {
    {.key = "ca", .type = CONF_TEXT, .offset = offsetof(struct config, tls.ca), .required = true},
    {.key = "cert", .type = CONF_TEXT, .offset = offsetof(struct config, tls.cert), .required = true},
    {.key = "key", .type = CONF_TEXT, .offset = offsetof(struct config, tls.key), .required = true},
    {.key = NULL},
};
static const struct conf_field backup_fields[] = {
    {.key = "every", .type = CONF_DURATION, .offset = offsetof(struct config, backup.every_ms)},
    {.key = "keep", .type = CONF_INT, .offset = offsetof(struct config, backup.keep), .min = 1, .max = 1e5},
    {.key = "dir", .type = CONF_TEXT, .offset = offsetof(struct config, backup.dir)},
    {.key = NULL},
};
#define CONNECTIONS(name, least)                                                                             \
    {                                                                                                        \
        .key = #name, .type = CONF_INT, .offset = offsetof(struct config, connections.name), .min = (least), \
        .max = 1e6                                                                                           \
    }
static const struct conf_field connections_fields[] = {
    CONNECTIONS(total, 16),
    CONNECTIONS(per_address, 1),
    CONNECTIONS(unauthenticated, 8),
    CONNECTIONS(unauthenticated_per_address, 1),
    {.key = NULL},
};
/* "none" or HOST:PORT */
static bool address_valid(const char *text)
{
    const char *colon = strrchr(text, ':');
    char *end;
    if (strcmp(text, "none") == 0)
        return true;
    if (!colon || colon == text || !colon[1])
        return false;
    const long port = strtol(colon + 1, &end, 10);
    return !*end && port >= 0 && port <= 65535;
}

const struct option_spec config_options[] = {
    {.name = "state",
     .key = "state",
     .type = OPTION_COPY,
     .offset = offsetof(struct config, state),
     .value = "DIR",
     .help = "the directory of the database and the tokens, on a local disk",
     .default_text = "/var/lib/ddp; if not root, ~/.local/state/ddp"},
    {.name = "listen",
     .key = "listen",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct config, listen),
     .value = "HOST:PORT",
     .check = address_valid,
     .expected = "HOST:PORT or none",
     .help = "TCP address for agents, workers and ddpctl; may be repeated; none: only the unix socket "
             "DIR/coordinator.sock",
     .default_text = "every address, port 29600"},
    {.name = "metrics",
     .key = "metrics",
     .type = OPTION_COPY,
     .offset = offsetof(struct config, metrics),
     .value = "HOST:PORT",
     .check = address_valid,
     .expected = "HOST:PORT or none",
     .help = "Prometheus metrics at /metrics, or none",
     .default_text = "127.0.0.1:29601"},
    {.name = "web",
     .key = "web",
     .type = OPTION_COPY,
     .offset = offsetof(struct config, web),
     .value = "HOST:PORT",
     .check = address_valid,
     .expected = "HOST:PORT or none",
     .help =
         "serve the web page and the HTTP interface to users who log in with their token; a HOST that is not a "
         "loopback address needs the files of `tls`",
     .default_text = "none"},
    {.name = "relay",
     .key = "relay",
     .type = OPTION_COPY,
     .offset = offsetof(struct config, relay),
     .value = "HOST:PORT",
     .help = "run a relay for ranks that cannot reach each other; the address at which they reach this "
             "machine",
     .default_text = "no relay"},
    {.name = "insecure",
     .key = "insecure",
     .type = OPTION_FLAG,
     .offset = offsetof(struct config, insecure),
     .help = "serve TCP without a token: anyone who reaches the port can run commands on every node"},
    {0},
};
/* Keys of coordinator.yaml that have no command-line option. */
static const struct conf_field file_only[] = {
    {.key = "tls", .type = CONF_STRUCT, .offset = 0, .fields = tls_fields},
    {.key = "heartbeat", .type = CONF_DURATION, .offset = offsetof(struct config, heartbeat_ms)},
    {.key = "node_timeout", .type = CONF_DURATION, .offset = offsetof(struct config, node_timeout_ms)},
    {.key = "settle", .type = CONF_DURATION, .offset = offsetof(struct config, settle_ms)},
    {.key = "snapshot_look", .type = CONF_DURATION, .offset = offsetof(struct config, look_ms)},
    {.key = "retain", .type = CONF_DURATION, .offset = offsetof(struct config, retain_ms)},
    {.key = "retain_jobs",
     .type = CONF_INT,
     .offset = offsetof(struct config, retain_jobs),
     .min = 1,
     .max = 1e6},
    {.key = "backup", .type = CONF_STRUCT, .offset = 0, .fields = backup_fields},
    {.key = "shared_user", .type = CONF_TEXT, .offset = offsetof(struct config, shared_user)},
    {.key = "audit_keep",
     .type = CONF_DURATION,
     .offset = offsetof(struct config, audit_keep_ms),
     .min = 3600e3,
     .max = INFINITY},
    {.key = "audit_rows",
     .type = CONF_INT,
     .offset = offsetof(struct config, audit_rows),
     .min = 1000,
     .max = 1e8},
    {.key = "hooks", .type = CONF_CUSTOM, .offset = offsetof(struct config, hooks), .fn = hook_config_read},
    {.key = "tell",
     .type = CONF_CUSTOM,
     .offset = offsetof(struct config, hooks),
     .fn = hook_config_read_tell},
    {.key = "connections", .type = CONF_STRUCT, .offset = 0, .fields = connections_fields},
    {.key = NULL},
};

/* "[::]" also accepts IPv4, but only a machine with IPv6 can bind it. */
char *config_default_listen(void)
{
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    CLEANUP(close_fd) int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool six = fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any) == 0;
    return xstrdup(six ? "[::]:29600" : "0.0.0.0:29600");
}

char *config_backup_dir(const struct config *c)
{
    return c->backup.dir ? xstrdup(c->backup.dir) : paths_join(c->state, "backup");
}

void config_defaults(struct config *c)
{
    CLEANUP(free_text) char *listen = config_default_listen();
    *c = (struct config){.state = paths_state(),
                         .metrics = xstrdup("127.0.0.1:29601"),
                         .shared_user = xstrdup("shared"),
                         .audit_keep_ms = 90 * 24 * 3600 * 1000LL,
                         .audit_rows = 100000};
    c->backup.every_ms = 3600 * 1000;
    c->backup.keep = 24;
    c->listen = strv_append(NULL, listen);
}

enum err_code config_read(struct config *c, const char *path, struct err *e)
{
    struct conf_doc *doc = NULL;
    if (conf_open_file(&doc, path, e) != ERR_OK)
        return e->code;
    struct conf_field *fields = option_conf_fields(config_options, file_only);
    const enum err_code code = conf_read(doc, fields, c, e);
    free(fields);
    conf_close(doc);
    return code;
}

enum err_code config_check(const struct config *c, struct err *e)
{
    const int64_t heartbeat = c->heartbeat_ms ? c->heartbeat_ms : 3000;
    const int64_t timeout = c->node_timeout_ms ? c->node_timeout_ms : 9000;
    if (heartbeat < 50)
        return err_set(e, ERR_INVALID_ARGUMENT, "heartbeat: must be at least 50 ms");
    if (timeout < 2 * heartbeat)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "node_timeout (%lld ms): must be at least twice the heartbeat (%lld ms)",
                       (long long)timeout, (long long)heartbeat);
    if (c->backup.every_ms && c->backup.every_ms < 100)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "backup.every: must be at least 100 ms, or 0s for no backups");
    if (!c->state[0])
        return err_set(e, ERR_INVALID_ARGUMENT, "state: the path is empty");
    if (!id_node_name(c->shared_user))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "shared_user '%s': expected up to 63 letters, digits, '-', '_' and '.'",
                       c->shared_user);
    return ERR_OK;
}

void config_release(struct config *c)
{
    free(c->state);
    strv_free(c->listen);
    free(c->metrics);
    free(c->web);
    free(c->relay);
    free(c->shared_user);
    free(c->tls.ca);
    free(c->tls.cert);
    free(c->tls.key);
    free(c->backup.dir);
    hook_list_release(&c->hooks);
    *c = (struct config){0};
}
