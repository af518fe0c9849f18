#include "client/connect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "base/secret.h"
#include "client/diagnose/reach.h"
#include "client/run/hosts/local_token.h"
#include "proto/rpc_resolve.h"

#define CALL_MS 10000
#define RESOLVE_MS 3000

struct client_config { /* <config>/ddpctl.yaml */
    char *coordinator, *token_file;
    struct {
        char *ca, *cert, *key;
    } tls;
};

static const struct conf_field tls_fields[] = {
    {.key = "ca", .type = CONF_TEXT, .offset = offsetof(struct client_config, tls.ca)},
    {.key = "cert", .type = CONF_TEXT, .offset = offsetof(struct client_config, tls.cert)},
    {.key = "key", .type = CONF_TEXT, .offset = offsetof(struct client_config, tls.key)},
    {0},
};
static const struct conf_field config_fields[] = {
    {.key = "coordinator", .type = CONF_TEXT, .offset = offsetof(struct client_config, coordinator)},
    {.key = "token", .type = CONF_TEXT, .offset = offsetof(struct client_config, token_file)},
    {.key = "tls", .type = CONF_STRUCT, .offset = 0, .fields = tls_fields},
    {0},
};

static void client_config_release(struct client_config *c)
{
    free(c->coordinator);
    free(c->token_file);
    free(c->tls.ca);
    free(c->tls.cert);
    free(c->tls.key);
}

static enum err_code client_config_load(const struct globals *g, struct client_config *out, struct err *e)
{
    CLEANUP(free_text) char *path = g->config ? xstrdup(g->config) : paths_config("ddpctl.yaml");
    struct conf_doc *doc;
    if (!g->config && !file_exists(path))
        return ERR_OK;
    if (conf_open_file(&doc, path, e) != ERR_OK)
        return e->code;
    enum err_code code = conf_read(doc, config_fields, out, e);
    conf_close(doc);
    return code;
}

static const char *connect_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static void target_find_address(const struct globals *g, const struct client_config *config, struct target *t)
{
    if (g->coordinator) {
        t->address = xstrdup(g->coordinator);
        t->from = "--coordinator";
    } else if (connect_env("DDP_COORDINATOR")) {
        t->address = xstrdup(connect_env("DDP_COORDINATOR"));
        t->from = "DDP_COORDINATOR";
    } else if (config->coordinator) {
        t->address = xstrdup(config->coordinator);
        t->from = "the config file";
    } else {
        CLEANUP(free_text) char *state = paths_state();
        CLEANUP(free_text) char *path = paths_join(state, "coordinator.sock");
        /* Without permission for the socket the user is a client like any other, over TCP. */
        bool here = access(path, R_OK | W_OK) == 0;
        t->address = here ? xasprintf("unix:%s", path) : xstrdup("localhost:29600");
        t->from = here ? "the local socket" : "the default";
    }
}

static enum err_code connect_read_token(const char *path, char **out, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    if (secret_read(path, 4096, &text, e) != ERR_OK)
        return e->code;
    size_t len = text.data ? strcspn(text.data, " \t\r\n") : 0;
    if (len == 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: the token file is empty", path);
    buf_putc(&text, 0);
    text.data[len] = 0;
    *out = buf_steal(&text);
    return ERR_OK;
}

/* A token file that the user or the config names must exist. The files in the default places are optional: a
 * coordinator that runs with --insecure needs no token. */
static enum err_code target_find_token(const struct globals *g, const struct client_config *config,
                                       char **out, struct err *e)
{
    if (g->token_file)
        return connect_read_token(g->token_file, out, e);
    if (connect_env("DDP_TOKEN")) {
        *out = xstrdup(connect_env("DDP_TOKEN"));
        return ERR_OK;
    }
    if (config->token_file)
        return connect_read_token(config->token_file, out, e);
    CLEANUP(free_text) char *state = paths_state();
    CLEANUP(free_text) char *second = paths_join(state, "token");
    CLEANUP(free_text) char *first = paths_config("token");
    if (file_exists(first))
        return connect_read_token(first, out, e);
    if (file_exists(second))
        return connect_read_token(second, out, e);
    return ERR_OK;
}

static char *connect_pick_file(const char *flag, const char *config)
{
    return xstrdup(flag ? flag : config);
}

enum err_code target_find(const struct globals *globals, struct target *out, struct err *e)
{
    CLEANUP(client_config_release) struct client_config config = {0};
    struct target t = {0};
    if (client_config_load(globals, &config, e) != ERR_OK)
        return e->code;
    target_find_address(globals, &config, &t);
    /* On the unix socket the kernel says who calls, so neither TLS nor a token is used. */
    const bool local = strncmp(t.address, "unix:", 5) == 0;
    if (!local) {
        t.tls_ca = connect_pick_file(globals->tls_ca, config.tls.ca);
        t.tls_cert = connect_pick_file(globals->tls_cert, config.tls.cert);
        t.tls_key = connect_pick_file(globals->tls_key, config.tls.key);
    }
    /* --insecure sends no token, even if there is one: it would cross the network in clear */
    if (!globals->insecure && !local && target_find_token(globals, &config, &t.token, e) != ERR_OK) {
        target_release(&t);
        return e->code;
    }
    *out = t;
    return ERR_OK;
}

void target_release(struct target *t)
{
    free(t->address);
    free(t->token);
    free(t->tls_ca);
    free(t->tls_cert);
    free(t->tls_key);
    *t = (struct target){0};
}

enum err_code link_open(struct link *link, const struct globals *globals, struct err *e)
{
    *link = (struct link){0};
    if (target_find(globals, &link->target, e) != ERR_OK)
        return e->code;
    const struct target *t = &link->target;
    struct rpc_tls_files tls = {.ca = t->tls_ca, .cert = t->tls_cert, .key = t->tls_key};
    bool secure = t->tls_ca || t->tls_cert || t->tls_key;
    struct rpc_channel_options options = {.token = t->token, .tls = secure ? &tls : NULL};
    if (secure && !(t->tls_ca && t->tls_cert && t->tls_key)) {
        link_close(link);
        return err_set(e, ERR_INVALID_ARGUMENT, "TLS needs all of --tls-ca, --tls-cert and --tls-key");
    }
    if (rpc_channel_open(&link->channel, t->address, &options, e) != ERR_OK) {
        link_close(link);
        return e->code;
    }
    return ERR_OK;
}

void link_close(struct link *link)
{
    rpc_channel_close(link->channel);
    target_release(&link->target);
    link->channel = NULL;
}

void link_sleep(struct link *link, int64_t pause_ms)
{
    if (link->own_port) /* another user may listen there by now, so only a call connects, after link_check_owner */
        usleep((useconds_t)pause_ms * 1000);
    else
        rpc_channel_sleep(link->channel, pause_ms);
}

enum err_code link_check_owner(const struct link *link, struct err *e)
{
    const enum port_owner owner = link->own_port ? local_port_owner(link->own_port) : PORT_OF_THIS_USER;
    if (owner == PORT_OF_ANOTHER)
        return err_set(e, ERR_PERMISSION_DENIED,
                       "another user listens at %s now, so this user's token is not sent there",
                       link->target.address);
    if (owner == PORT_OF_NOBODY)
        return err_set(e, ERR_UNAVAILABLE, "nobody listens at %s", link->target.address);
    return ERR_OK;
}

enum err_code link_call(struct link *link, const char *method, const void *request, void **reply,
                        int64_t patience_ms, struct err *e)
{
    const ProtobufCServiceDescriptor *cluster = &ddp__v1__cluster__descriptor;
    CLEANUP(buf_release) struct buf talk = {0};
    if (link_check_owner(link, e) != ERR_OK)
        return e->code;
    enum err_code code = rpc_channel_call(link->channel, cluster, method, request, reply, CALL_MS, 0, e);
    /* A first attempt without waiting, so that a coordinator that is down is reported before the user
     * wonders. */
    if (code == ERR_UNAVAILABLE && patience_ms) {
        buf_printf(&talk, "ddpctl: the coordinator at %s does not answer; retrying for %lld s\n",
                   link->target.address, (long long)patience_ms / 1000);
        stderr_put(&talk);
        code =
            rpc_channel_call(link->channel, cluster, method, request, reply, patience_ms, RPC_IDEMPOTENT, e);
    }
    return code == ERR_OK ? code : link_explain(link, e);
}

enum err_code link_call_within(struct link *link, const char *method, const void *request, void **reply,
                               int64_t limit_ms, struct err *e)
{
    if (link_check_owner(link, e) != ERR_OK)
        return e->code;
    enum err_code code = rpc_channel_call(link->channel, &ddp__v1__cluster__descriptor, method, request,
                                          reply, limit_ms, 0, e);
    return code == ERR_OK ? code : link_explain(link, e);
}

/* gRPC lists every address that it tried. Only the error of the last attempt is worth showing. */
static const char *connect_last_cause(const char *msg)
{
    static const char mark[] = "last error: ";
    const char *last = strstr(msg, mark);
    return last ? last + sizeof(mark) - 1 : msg;
}

/* A name server that does not answer takes longer than the call's deadline, so gRPC reports no more than the
 * deadline. This asks the resolver directly to find out. */
static enum err_code connect_explain_name(const struct target *t, struct err *e)
{
    struct err name;
    if (rpc_resolve(t->address, RESOLVE_MS, &name) == ERR_OK)
        return ERR_OK;
    return err_set(e, ERR_UNAVAILABLE, "%s (from %s): %s; check the name, /etc/hosts and /etc/resolv.conf",
                   t->address, t->from, name.msg);
}

/* The port takes connections, but the connection fails: one side uses TLS and the other does not, or the
 * certificates do not match, or the program there is not a coordinator. */
static enum err_code connect_explain_refusal(const struct target *t, const char *cause, struct err *e)
{
    if (t->tls_ca)
        return err_set(
            e, ERR_UNAVAILABLE,
            "%s (from %s) accepts connections, but the TLS handshake fails (%.120s): check the certificates "
            "of both sides and the host name in the coordinator's certificate",
            t->address, t->from, cause);
    return err_set(
        e, ERR_UNAVAILABLE,
        "%s (from %s) accepts connections, but closes them (%.100s): check that a coordinator listens there; "
        "if it uses TLS, give --tls-ca, --tls-cert and --tls-key",
        t->address, t->from, cause);
}

enum err_code link_explain(const struct link *link, struct err *e)
{
    const struct target *t = &link->target;
    struct err was = *e;
    switch (was.code) {
    case ERR_UNAVAILABLE:
        if (strncmp(t->address, "unix:", 5) == 0 && strstr(was.msg, "Permission denied"))
            return err_set(
                e, ERR_PERMISSION_DENIED,
                "%s (from %s) is open to its owner and root only: use --coordinator HOST:PORT and a token",
                t->address, t->from);
        if (connect_explain_name(t, e) != ERR_OK)
            return e->code;
        /* a port that accepts connections is not a coordinator that is down */
        if (reach_listens(t->address))
            return connect_explain_refusal(t, connect_last_cause(was.msg), e);
        /* fall through */
    case ERR_DEADLINE_EXCEEDED: /* the name server may be the one that does not answer */
        if (was.code == ERR_DEADLINE_EXCEEDED && connect_explain_name(t, e) != ERR_OK)
            return e->code;
        return err_set(
            e, ERR_UNAVAILABLE,
            "the coordinator at %s (from %s) does not answer (%.160s): start ddp-coordinator there, or give "
            "another address with --coordinator",
            t->address, t->from, connect_last_cause(was.msg));
    case ERR_UNAUTHENTICATED:
        return err_set(e, was.code,
                       "the coordinator at %s refuses %s: give --token FILE; on the coordinator's machine, "
                       "`ddp-coordinator token` prints the cluster token and "
                       "`ddp-coordinator user add NAME` makes a user token",
                       t->address, t->token ? "this token" : "a call without a token");
    default:
        return was.code;
    }
}
