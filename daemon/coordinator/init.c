#include "daemon/coordinator/init.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/paths.h"
#include "base/secret.h"
#include "daemon/coordinator/owner.h"

#define TOKEN_BYTES 32

static const char *const prefixes[] = {"ddpu_", "ddpa_"};

static const char config_text[] =
    "# ddp-coordinator. Flags win over this file; what is commented out shows the default.\n"
    "\n"
    "# Jobs, nodes and events: a local disk.\n"
    "state: %s\n"
    "\n"
    "# Where agents, workers and ddpctl connect, besides the unix socket in the state directory.\n"
    "# listen: [\"%s\"]\n"
    "\n"
    "# Prometheus metrics at http://ADDRESS/metrics, or none.\n"
    "# metrics: 127.0.0.1:29601\n"
    "\n"
    "# TCP with certificates: the CA that every client's certificate must come from, and our own.\n"
    "# tls: {ca: /etc/ddp/ca.pem, cert: /etc/ddp/coordinator.pem, key: /etc/ddp/coordinator.key}\n"
    "\n"
    "# How often agents speak, and how long a node may be silent until it is lost.\n"
    "# heartbeat: 3s\n"
    "# node_timeout: 9s\n"
    "# settle: 5s             # nodes must have come by then for a running job to grow to them\n"
    "# snapshot_look: 30s     # how often to ask the nodes for the snapshots that a job waits for\n"
    "\n"
    "# How long finished jobs are kept, and how many of them.\n"
    "# retain: 14d\n"
    "# retain_jobs: 1000\n"
    "\n"
    "# Copies of the database: how often (0s: never), how many to keep, and where; another disk is better.\n"
    "# backup: {every: 1h, keep: 24, dir: %s/backup}\n"
    "\n"
    "# The user name of callers that use the cluster token without a certificate.\n"
    "# shared_user: shared\n"
    "\n"
    "# The audit log: how long lines are kept, and how many lines at most.\n"
    "# audit_keep: 90d\n"
    "# audit_rows: 100000\n"
    "\n"
    "# Connections by TCP, in all and of one address, and how many of them may have shown no token yet.\n"
    "# connections: {total: 20000, per_address: 20000, unauthenticated: 2048,\n"
    "#               unauthenticated_per_address: 1024}\n";

static void random_hex(char *out)
{
    uint8_t secret[TOKEN_BYTES];
    id_random(secret, sizeof secret);
    hex_encode(out, secret, sizeof secret);
}

void token_make(char out[TOKEN_TEXT], enum token_kind kind)
{
    strcpy(out, prefixes[kind]);
    random_hex(out + strlen(out));
}

bool token_is(const char *text, enum token_kind kind)
{
    const size_t skip = strlen(prefixes[kind]);
    uint8_t secret[TOKEN_BYTES];
    return strncmp(text, prefixes[kind], skip) == 0 && hex_decode(secret, sizeof secret, text + skip);
}

static enum err_code make_token(const char *path, bool of_agents, struct err *e)
{
    char text[TOKEN_TEXT + 1];
    if (of_agents)
        token_make(text, TOKEN_AGENT);
    else
        random_hex(text);
    strcat(text, "\n");
    return file_write_atomic(path, text, strlen(text), 0600, e);
}

static enum err_code parse_token(const char *path, bool of_agents, struct buf *text, char **out,
                                 struct err *e)
{
    uint8_t secret[TOKEN_BYTES];
    while (text->len && strchr(" \r\n", text->data[text->len - 1]))
        text->data[--text->len] = '\0';
    if (of_agents && text->len && !token_is(text->data, TOKEN_AGENT))
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "%s: not a token of agents: remove the file, `ddp-coordinator token --agent` makes a new one",
            path);
    if (!text->len || (!of_agents && !hex_decode(secret, sizeof secret, text->data)))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%s: not a token of %d hex digits: remove the file and run"
                       " `ddp-coordinator init` again",
                       path, 2 * TOKEN_BYTES);
    *out = buf_steal(text);
    return ERR_OK;
}

static enum err_code read_file(const char *state, bool of_agents, bool make, char **out, struct err *e)
{
    CLEANUP(free_text) char *path = paths_join(state, of_agents ? "agent_token" : "token");
    CLEANUP(buf_release) struct buf text = {0};
    struct stat st;
    if (make && !file_exists(path)) {
        if (file_mkdirs(state, 0700, e) != ERR_OK || make_token(path, of_agents, e) != ERR_OK)
            return e->code;
    }
    if (stat(path, &st) != 0)
        return err_sys(e, errno, "%s (`ddp-coordinator init` makes it)", path);
    if (secret_read(path, 4096, &text, e) != ERR_OK)
        return e->code;
    return parse_token(path, of_agents, &text, out, e);
}

enum err_code token_read(const char *state, bool make, char **out, struct err *e)
{
    return read_file(state, false, make, out, e);
}

enum err_code agent_token_read(const char *state, bool make, char **out, struct err *e)
{
    return read_file(state, true, make, out, e);
}

static enum err_code make_config(const char *path, const char *state, bool *made, struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(path);
    CLEANUP(free_text) char *listen = config_default_listen();
    *made = !file_exists(path);
    if (!*made)
        return ERR_OK;
    CLEANUP(free_text) char *text = xasprintf(config_text, state, listen, state);
    if (file_mkdirs(dirname(copy), 0755, e) != ERR_OK)
        return e->code;
    return file_write_atomic(path, text, strlen(text), 0644, e);
}

static void print_next(const struct config *config, const char *path, bool elsewhere)
{
    char host[256] = "localhost";
    const char *colon = config->listen && config->listen[0] ? strrchr(config->listen[0], ':') : NULL;
    CLEANUP(free_text) char *beside = paths_join(config->state, "coordinator.yaml");
    CLEANUP(free_text) char *flags = NULL;
    if (elsewhere)
        flags = strcmp(beside, path) == 0 ? xasprintf(" --state %s", config->state)
                                          : xasprintf(" --config %s", path);
    (void)gethostname(host, sizeof host - 1);
    const bool handed = !elsewhere && owner_is_other(config->state);
    static const char unit[] = "systemctl enable --now ddp-coordinator";
    printf(
        "state   %s\n"
        "token   %s/token (allows everything; nodes can use agent_token, people a token from user add NAME)\n"
        "config  %s\n"
        "\n"
        "Start it here: %s%s%s\n"
        "Then run on each node:\n"
        "  ssh %s ddp-coordinator token --agent%s | ddp-agent join %s%s --token -\n"
        "%s",
        config->state, config->state, path, handed ? unit : "ddp-coordinator", flags ? flags : "",
        elsewhere || geteuid() || handed ? "" : " (or systemctl enable --now ddp-coordinator)", host,
        flags ? flags : "", host, colon ? colon : ":29600",
        geteuid()
            ? ""
            : "As root there, add --user NAME, the account that jobs run under (or --run-as submitter).\n");
}

/* The directory may have been there; the coordinator would refuse it later. */
static enum err_code check_closed(const char *state, struct err *e)
{
    struct stat st;
    if (stat(state, &st) != 0)
        return err_sys(e, errno, "%s", state);
    if (st.st_uid != geteuid() && geteuid() != 0)
        return err_set(e, ERR_PERMISSION_DENIED, "%s: not yours, say `chown %u %s` or --state DIR", state,
                       (unsigned)geteuid(), state);
    if (st.st_mode & 077)
        return err_set(e, ERR_PERMISSION_DENIED, "%s: others may enter it, say `chmod 700 %s`", state, state);
    return ERR_OK;
}

enum err_code init_run(const struct config *config, const char *config_path, bool elsewhere, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    CLEANUP(free_text) char *agent_token = NULL;
    bool made;
    const bool is_new = !elsewhere && !file_exists(config->state);
    if (file_mkdirs(config->state, 0700, e) != ERR_OK || check_closed(config->state, e) != ERR_OK ||
        (is_new && owner_assign(config->state, e) != ERR_OK) ||
        token_read(config->state, true, &token, e) != ERR_OK ||
        agent_token_read(config->state, true, &agent_token, e) != ERR_OK ||
        make_config(config_path, config->state, &made, e) != ERR_OK)
        return e->code;
    if (!made)
        fprintf(stderr, "ddp-coordinator: %s was there already and is left as it is\n", config_path);
    print_next(config, config_path, elsewhere);
    return ERR_OK;
}
