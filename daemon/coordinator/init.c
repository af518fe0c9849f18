#include "daemon/coordinator/init.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/coordinator/owner.h"
#include "daemon/coordinator/token.h"

static const char config_text[] =
    "# ddp-coordinator. Command-line options override this file. Commented keys show the defaults.\n"
    "\n"
    "# The directory for jobs, nodes and events; use a local disk.\n"
    "state: %s\n"
    "\n"
    "# TCP addresses for agents, workers and ddpctl, in addition to the unix socket in the state directory.\n"
    "%slisten: [%s]\n"
    "\n"
    "# Prometheus metrics at http://ADDRESS/metrics, or none.\n"
    "%s"
    "\n"
    "# The web page for users who log in with their token; needs `tls`, or a loopback address.\n"
    "%s"
    "\n"
    "# A relay for ranks that cannot reach each other: the address at which they reach this machine.\n"
    "%s"
    "\n"
    "# TLS on TCP: the CA that signs the clients' certificates, and the coordinator's certificate and key.\n"
    "# tls: {ca: /etc/ddp/ca.pem, cert: /etc/ddp/coordinator.pem, key: /etc/ddp/coordinator.key}\n"
    "\n"
    "# true: TCP needs no token. Everyone who reaches the port can then run commands on every node.\n"
    "%sinsecure: %s\n"
    "\n"
    "# The interval of the agents' heartbeats, and the silence after which a node counts as lost.\n"
    "# heartbeat: 3s\n"
    "# node_timeout: 9s\n"
    "# settle: 5s             # a running job grows when its new nodes have been there for this long\n"
    "# snapshot_look: 30s     # how often nodes are asked for the snapshots that a job waits for\n"
    "\n"
    "# How long finished jobs are kept, and how many at most.\n"
    "# retain: 14d\n"
    "# retain_jobs: 1000\n"
    "\n"
    "# Backups of the database: how often (0s: never), how many are kept, and where (better on another disk).\n"
    "# backup: {every: 1h, keep: 24, dir: %s/backup}\n"
    "\n"
    "# The user name of callers that show the cluster token and no certificate.\n"
    "# shared_user: shared\n"
    "\n"
    "# The audit log: how long lines are kept, and how many at most.\n"
    "# audit_keep: 90d\n"
    "# audit_rows: 100000\n"
    "\n"
    "# Limits of TCP connections: in total, from one address, and those that have shown no token yet.\n"
    "# connections: {total: 20000, per_address: 20000, unauthenticated: 2048,\n"
    "#               unauthenticated_per_address: 1024}\n";

#define METRICS_DEFAULT "127.0.0.1:29601"

/* `web: "127.0.0.1:7002"`; without a value a comment with an example. */
static char *config_line(const char *key, const char *value, const char *example)
{
    return xasprintf("%s%s: \"%s\"\n", value ? "" : "# ", key, value ? value : example);
}

/* Writes the file only if it is missing: an existing one is the administrator's. It has the values of the options, because the
 * coordinator is started without them. */
static enum err_code config_file_create(const char *path, const struct config *config, bool *created,
                                        struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(path);
    CLEANUP(free_text) char *usual = config_default_listen();
    CLEANUP(buf_release) struct buf listen = {0};
    *created = !file_exists(path);
    if (!*created)
        return ERR_OK;
    const bool given =
        config->listen && *config->listen && (config->listen[1] || strcmp(config->listen[0], usual) != 0);
    for (size_t i = 0; given && config->listen[i]; i++)
        buf_printf(&listen, "%s\"%s\"", i ? ", " : "", config->listen[i]);
    if (!given)
        buf_printf(&listen, "\"%s\"", usual);
    const bool usual_metrics = !config->metrics || strcmp(config->metrics, METRICS_DEFAULT) == 0;
    CLEANUP(free_text)
    char *metrics = config_line("metrics", usual_metrics ? NULL : config->metrics, METRICS_DEFAULT);
    CLEANUP(free_text) char *web = config_line("web", config->web, "127.0.0.1:29602");
    CLEANUP(free_text) char *relay = config_line("relay", config->relay, "box1.example.org:7070");
    CLEANUP(free_text)
    char *text = xasprintf(config_text, config->state, given ? "" : "# ", listen.data, metrics, web, relay,
                           config->insecure ? "" : "# ", config->insecure ? "true" : "false", config->state);
    if (file_mkdirs(dirname(copy), 0755, e) != ERR_OK)
        return e->code;
    return file_write_atomic(path, text, strlen(text), 0644, e);
}

/* 127.0.0.1:7001, [::1]:7001, localhost:7001. With `none` there is no TCP port at all. */
static bool address_is_local(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

static bool listens_locally(const struct config *config)
{
    for (char **address = config->listen; address && *address; address++)
        if (!address_is_local(*address) && strcmp(*address, "none") != 0)
            return false;
    return true;
}

/* No other machine can reach the coordinator, so a command for each node would fail there. */
static void next_steps_print_local(const struct config *config, const char *path, const char *flags)
{
    const char *address = config->listen ? config->listen[0] : NULL;
    if (address && strcmp(address, "none") != 0)
        printf("It listens at %s, which only this machine can reach. To make this machine a node:\n"
               "  ddp-coordinator token --agent%s | ddp-agent join %s --token -\n",
               address, flags, address);
    else
        puts("It listens at no TCP address, so other machines cannot reach it.");
    printf("For nodes on other machines, change `listen` in %s first.\n", path);
}

/* Prints where everything is, and the commands to paste: one to start the coordinator, one for each node. */
static void next_steps_print(const struct config *config, const char *path, bool elsewhere)
{
    static const char unit[] = "systemctl enable --now ddp-coordinator";
    const bool root = geteuid() == 0;
    /* The state directory belongs to the account `ddp`, so the coordinator runs under systemd. */
    const bool handed_over = !elsewhere && owner_is_other(config->state);
    const char *colon = config->listen && config->listen[0] ? strrchr(config->listen[0], ':') : NULL;
    CLEANUP(free_text) char *default_path = paths_join(config->state, "coordinator.yaml");
    CLEANUP(free_text) char *flags = xstrdup("");
    char host[256] = "localhost";

    /* Without a flag, the printed commands would use the default state directory. */
    if (elsewhere) {
        free(flags);
        flags = strcmp(default_path, path) == 0 ? xasprintf(" --state %s", config->state)
                                                : xasprintf(" --config %s", path);
    }
    (void)gethostname(host, sizeof host - 1);
    printf("state   %s\n"
           "token   %s/token (allows everything except managing users; use agent_token for nodes, and "
           "`user add NAME` for people)\n"
           "config  %s\n"
           "\n"
           "Start it here: %s%s%s\n",
           config->state, config->state, path, handed_over ? unit : "ddp-coordinator", flags,
           root && !elsewhere && !handed_over ? " (or systemctl enable --now ddp-coordinator)" : "");
    if (listens_locally(config))
        next_steps_print_local(config, path, flags);
    else
        printf("Then run on each node:\n"
               "  ssh %s ddp-coordinator token --agent%s | ddp-agent join %s%s --token -\n",
               host, flags, host, colon ? colon : ":29600");
    if (root)
        puts("If you are root there, add --user NAME, the account that jobs run under (or --run-as "
             "submitter).");
}

/* Refuses an existing directory that the coordinator would refuse when it starts. */
static enum err_code state_check_private(const char *state, struct err *e)
{
    struct stat st;
    if (stat(state, &st) != 0)
        return err_sys(e, errno, "%s", state);
    if (st.st_uid != geteuid() && geteuid() != 0)
        return err_set(e, ERR_PERMISSION_DENIED,
                       "%s belongs to another account: run `chown %u %s` or choose another --state DIR",
                       state, (unsigned)geteuid(), state);
    if (st.st_mode & 077)
        return err_set(e, ERR_PERMISSION_DENIED, "%s: other accounts have access: run `chmod 700 %s`", state,
                       state);
    return ERR_OK;
}

enum err_code init_run(const struct config *config, const char *config_path, bool elsewhere, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    CLEANUP(free_text) char *agent_token = NULL;
    bool created;
    /* Only a new directory at the default place is given to the account `ddp`, whose systemd unit uses it. */
    const bool is_new = !elsewhere && !file_exists(config->state);
    if (file_mkdirs(config->state, 0700, e) != ERR_OK || state_check_private(config->state, e) != ERR_OK ||
        (is_new && owner_assign(config->state, e) != ERR_OK) ||
        token_read(config->state, TOKEN_CLUSTER, true, &token, e) != ERR_OK ||
        token_read(config->state, TOKEN_AGENT, true, &agent_token, e) != ERR_OK ||
        config_file_create(config_path, config, &created, e) != ERR_OK)
        return e->code;
    if (!created)
        fprintf(stderr, "ddp-coordinator: %s exists and is not changed\n", config_path);
    next_steps_print(config, config_path, elsewhere);
    return ERR_OK;
}
