#include "client/connect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/crypto/secret.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "client/token_files.h"

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
                                       struct target *t, struct err *e)
{
    CLEANUP(free_text) char *found = NULL;
    CLEANUP(buf_release) struct buf places = {0};
    const char *named = g->token_file ? g->token_file : config->token_file;
    if (!g->token_file && connect_env("DDP_TOKEN")) {
        t->token = xstrdup(connect_env("DDP_TOKEN"));
        t->token_from = xstrdup("DDP_TOKEN");
        return ERR_OK;
    }
    if (!named)
        named = found = token_file_find(TOKEN_OF_CLUSTER);
    if (named) {
        t->token_from = xstrdup(named);
        return connect_read_token(named, &t->token, e);
    }
    token_files_list(TOKEN_OF_CLUSTER, &places);
    t->token_from = xasprintf("none in DDP_TOKEN, %s", places.data);
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
    /* --insecure sends no token, even if there is one: it would cross the network unencrypted */
    if (!globals->insecure && !local && target_find_token(globals, &config, &t, e) != ERR_OK) {
        target_release(&t);
        return e->code;
    }
    *out = t;
    return ERR_OK;
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

enum err_code link_call_once(const struct globals *globals, const char *method, const void *request,
                             void **reply, struct err *e)
{
    struct link link;
    if (link_open(&link, globals, e) != ERR_OK)
        return e->code;
    const enum err_code code = link_call(&link, method, request, reply, 0, e);
    link_close(&link);
    return code;
}
