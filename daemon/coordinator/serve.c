#include "daemon/coordinator/serve.h"

#include <libgen.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/coordinator/owner.h"
#include "daemon/coordinator/service/service.h"
#include "daemon/coordinator/token.h"

/* `listen: [none]` leaves only the unix socket. */
static char **listen_addresses(const struct config *c)
{
    char **list = NULL;
    for (size_t i = 0; c->listen && c->listen[i]; i++)
        if (strcmp(c->listen[i], "none") != 0)
            list = strv_append(list, c->listen[i]);
    return list;
}

static struct core_config core_settings(const struct config *c)
{
    struct core_config core;
    core_config_defaults(&core);
    if (c->heartbeat_ms)
        core.heartbeat_ms = c->heartbeat_ms;
    if (c->node_timeout_ms)
        core.node_timeout_ms = c->node_timeout_ms;
    if (c->settle_ms)
        core.settle_ms = c->settle_ms;
    if (c->look_ms)
        core.look_ms = c->look_ms;
    if (c->retain_ms)
        core.retain_jobs_ms = c->retain_ms;
    if (c->retain_jobs)
        core.retain_jobs = c->retain_jobs;
    core.hooks = c->hooks.rules;
    core.hook_count = c->hooks.count;
    core.tell_allow = c->hooks.tell_allow;
    return core;
}

/* Only a file makes the agent token survive a restart. Two cases do without the file and use a random token
 * for this process: a coordinator of `ddpctl run`, whose cluster ends with it, and a full disk. In the second
 * case, nodes that use the cluster token can still connect. */
static enum err_code agent_token_find(const char *state, bool temporary, char **out, struct err *e)
{
    char made[TOKEN_TEXT];
    if (!temporary) {
        if (token_read(state, TOKEN_AGENT, true, out, e) == ERR_OK)
            return ERR_OK;
        if (e->code != ERR_RESOURCE_EXHAUSTED)
            return e->code;
        log_warn("agent_token", "why=%s", LOG_Q(e->msg));
    }
    token_make(made, TOKEN_AGENT);
    *out = xstrdup(made);
    return ERR_OK;
}

/* A mistyped directory, or a disk that is not mounted, must not become a new, empty cluster. The default directory may be
 * the first thing below ~/.local/state. */
static enum err_code state_check_parent(const char *state, struct err *e)
{
    CLEANUP(free_text) char *usual = paths_state();
    CLEANUP(free_text) char *copy = xstrdup(state);
    const char *parent = dirname(copy);

    if (strcmp(state, usual) == 0 || file_exists(parent))
        return ERR_OK;
    return err_set(
        e, ERR_NOT_FOUND,
        "state directory '%s': %s does not exist; for a new cluster run `ddp-coordinator init --state %s`",
        state, parent, state);
}

enum err_code serve_cluster(const struct config *c, int lifeline, bool accept_loss, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    CLEANUP(free_text) char *backup_dir = config_backup_dir(c);
    CLEANUP(free_text) char *agent_token = NULL;

    (void)limits_raise_files(); /* each agent is a descriptor */
    /* The order matters: what root wrote must belong to the owner before this process stops being root. */
    if (state_check_parent(c->state, e) != ERR_OK || owner_hand_over(c->state, e) != ERR_OK ||
        owner_become(c->state, e) != ERR_OK ||
        token_read(c->state, TOKEN_CLUSTER, true, &token, e) != ERR_OK ||
        agent_token_find(c->state, lifeline >= 0, &agent_token, e) != ERR_OK)
        return e->code;
    char **listen = listen_addresses(c);
    const struct service_options o = {
        .state = c->state,
        .listen = listen,
        .metrics = strcmp(c->metrics, "none") == 0 ? NULL : c->metrics,
        .web = c->web && strcmp(c->web, "none") != 0 ? c->web : NULL,
        .relay = c->relay,
        .token = token,
        .agent_token = agent_token,
        .shared_user = c->shared_user,
        .audit_keep_ms = c->audit_keep_ms,
        .audit_rows = c->audit_rows,
        .insecure = c->insecure,
        .tls = {c->tls.ca, c->tls.cert, c->tls.key},
        .limits = {.total = (size_t)c->connections.total,
                   .per_address = (size_t)c->connections.per_address,
                   .unauthenticated = (size_t)c->connections.unauthenticated,
                   .unauthenticated_per_address = (size_t)c->connections.unauthenticated_per_address},
        .lifeline = lifeline,
        .backup_dir = backup_dir,
        .backup_every_ms = c->backup.every_ms,
        .backup_keep = c->backup.keep,
        .accept_loss = accept_loss,
        .hooks = &c->hooks,
        .core = core_settings(c),
    };
    enum err_code code = ERR_OK;
    if (o.insecure && listen)
        log_warn("insecure",
                 "listen=%s meaning=\"anyone who reaches this port can run commands on every node\"",
                 LOG_Q(listen[0]));
    if (o.tls.ca)
        code = rpc_tls_check(&o.tls, e);
    if (code == ERR_OK)
        code = service_run(&o, e);
    strv_free(listen);
    return code;
}
