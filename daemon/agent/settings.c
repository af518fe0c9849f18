#include "daemon/agent/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/conf/conf.h"
#include "base/conf/program.h"
#include "base/crypto/id.h"
#include "base/crypto/secret.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/state_move.h"
#include "proto/rpc_address.h"

#define PORT_FIRST 29700
#define PORT_LAST 30699
#define SLOTS_PER_GPU_MOST 16
#define BYTES_WANTED "a size such as 500MiB or 2GiB, or 0 for no limit"
#define LOG_KEEP_MS (14LL * 24 * 3600 * 1000)
#define LOG_LIMIT ((int64_t)1 << 30)
#define LOG_TOTAL ((int64_t)16 << 30)

static bool parse_ports(const char *text, void *at)
{
    struct settings *s = at;
    int end = 0;

    return sscanf(text, "%d-%d%n", &s->port_first, &s->port_last, &end) == 2 && !text[end] &&
           s->port_first > 0 && s->port_last < 65536 && s->port_first <= s->port_last;
}

/* Parses a size such as "1GiB", "500MiB" or "0". */
static bool parse_bytes(const char *text, void *at)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    int64_t *out = at;
    char *unit;
    long long number;

    errno = 0;
    number = *text >= '0' && *text <= '9' ? strtoll(text, &unit, 10) : -1;
    for (size_t i = 0; number >= 0 && !errno && number < 1 << 20 && i < ARRAY_LEN(units); i++)
        if (!strcmp(unit, units[i]) && (i || !number)) {
            *out = (int64_t)number << (10 * i);
            return true;
        }
    return false;
}

/* A list of numbers and UUIDs, or one word: "all", "none", "0,1". */
static enum err_code read_gpus(const struct conf_node *node, void *at, struct err *e)
{
    CLEANUP(buf_release) struct buf list = {0};
    char **out = at;

    if (conf_is_list(node) && !conf_count(node))
        buf_puts(&list, "none");
    for (size_t i = 0; conf_is_list(node) && i < conf_count(node); i++) {
        const char *word = conf_scalar(conf_at(node, i));
        if (!word || !*word || strchr(word, ','))
            return conf_refuse(conf_at(node, i), "gpus",
                               "a GPU's number or UUID, as nvidia-smi -L prints them", e);
        buf_printf(&list, "%s%s", i ? "," : "", word);
    }
    if (!conf_is_list(node) && !conf_scalar(node))
        return conf_refuse(node, "gpus", "a list such as [0, 1], all or none", e);
    free(*out);
    *out = conf_is_list(node) ? buf_steal(&list) : xstrdup(conf_scalar(node));
    return ERR_OK;
}

/* "only" or a rank */
static bool parse_attach(const char *text, void *at)
{
    int64_t *rank = at;
    char *end = NULL;

    errno = 0;
    *rank = strcmp(text, "only") ? strtoll(text, &end, 10) : ATTACH_ONLY_RANK;
    return *rank == ATTACH_ONLY_RANK || (*text >= '0' && *text <= '9' && !*end && !errno);
}

#define AT(member) .offset = offsetof(struct settings, member)
const struct option_spec settings_join_options[] = {
    {.name = "token",
     .key = "token",
     .type = OPTION_COPY,
     AT(token_file),
     .value = "FILE",
     .help = "file with the agent token or the cluster token; of join, -: stdin"},
    {.name = "node",
     .key = "node",
     .type = OPTION_COPY,
     AT(node),
     .value = "NAME",
     .help = "name of this node",
     .default_text = "host name"},
    {.name = "address",
     .key = "address",
     .type = OPTION_COPY,
     AT(address),
     .value = "ADDRESS",
     .help = "where other nodes reach this node's workers",
     .default_text = "the source address towards the coordinator"},
    {.name = "user",
     .key = "user",
     .type = OPTION_COPY,
     AT(user),
     .value = "NAME",
     .help = "the account that jobs run under; required for root; may be root"},
    {.name = "run-as",
     .key = "run_as",
     .type = OPTION_COPY,
     AT(run_as),
     .value = "submitter",
     .help = "for root, instead of --user: run each job as its user's account"},
    {.name = "config",
     .type = OPTION_COPY,
     AT(config_file),
     .value = "FILE",
     .help = "configuration file",
     .default_text = "/etc/ddp/agent.yaml; if not root, ~/.config/ddp/agent.yaml"},
    {0},
};
static const struct option_spec options[] = {
    {.name = "coordinator",
     .key = "coordinator",
     .type = OPTION_COPY,
     AT(coordinator),
     .value = "ADDRESS",
     .help = "HOST:PORT or unix:/PATH",
     .default_text = "DDP_COORDINATOR, the config file, the local socket, localhost:29600"},
    {.name = "insecure", .key = "insecure", .type = OPTION_FLAG, AT(insecure), .help = "send no token"},
    {.name = "slots",
     .key = "slots",
     .type = OPTION_INT,
     AT(slots),
     .value = "N",
     .min = 1,
     .max = 4096,
     .help = "CPU workers at a time",
     .default_text = "cores"},
    {.name = "gpus",
     .key = "gpus",
     .type = OPTION_COPY,
     AT(gpus),
     .value = "LIST",
     .from_node = read_gpus,
     .help =
         "which GPUs to offer: 0,1 or UUIDs as in nvidia-smi -L, all or none; CUDA_VISIBLE_DEVICES narrows "
         "it further",
     .default_text = "all"},
    {.name = "slots-per-gpu",
     .key = "slots_per_gpu",
     .type = OPTION_INT,
     AT(slots_per_gpu),
     .value = "N",
     .min = 1,
     .max = SLOTS_PER_GPU_MOST,
     .help = "workers that share a GPU",
     .default_text = "1"},
    {.name = "ports",
     .key = "ports",
     .type = OPTION_PARSED,
     .value = "A-B",
     .parse = parse_ports,
     .expected = "a range such as 29700-30699",
     .help = "range for MASTER_PORT",
     .default_text = "29700-30699"},
    {.name = "relay",
     .key = "relay",
     .type = OPTION_COPY,
     AT(relay),
     .value = "HOST:PORT",
     .help = "run a relay for ranks that cannot reach each other; the address at which they reach this node",
     .default_text = "no relay"},
    {.name = "state",
     .key = "state",
     .type = OPTION_COPY,
     AT(state),
     .value = "DIR",
     .help = "directory of the sockets, the exit records and the coordinator's last orders",
     .default_text = "/var/lib/ddp-agent; if not root, ~/.local/state/ddp"},
    {.name = "log-dir",
     .key = "log_dir",
     .type = OPTION_COPY,
     AT(log_dir),
     .value = "DIR",
     .help = "directory of the workers' output",
     .default_text = "/var/log/ddp; if not root, ~/.local/state/ddp/log"},
    {.name = "rejoin",
     .type = OPTION_FLAG,
     AT(rejoin),
     .help = "leave the cluster this node belonged to, and join this one"},
    {.name = "lifeline",
     .type = OPTION_FD,
     AT(lifeline),
     .value = "FD",
     .help = "end, and end every worker, when this pipe is closed"},
    {.name = "own-port",
     .type = OPTION_FLAG,
     AT(own_port),
     .help = "send the token only while this user listens at the coordinator's port on this machine"},
    {.name = "attach",
     .type = OPTION_PARSED,
     AT(attach),
     .value = "RANK|only",
     .parse = parse_attach,
     .expected = "a rank, or only",
     .help = "with --lifeline: give this rank of a command, or its only one, the agent's stdin"},
    {.name = "terminal",
     .type = OPTION_FD,
     AT(terminal),
     .value = "FD",
     .help = "with --attach: a socket to ddpctl's terminal, which the rank gets instead"},
    {.name = "workdir",
     .type = OPTION_COPY,
     AT(workdir),
     .value = "DIR",
     .help = "where commands run, whatever their job says"},
    {0},
};
static const struct conf_field tls_fields[] = {
    {.key = "ca", .type = CONF_TEXT, AT(tls.ca)},
    {.key = "cert", .type = CONF_TEXT, AT(tls.cert)},
    {.key = "key", .type = CONF_TEXT, AT(tls.key)},
    {0},
};
/* Keys without an option. */
static const struct conf_field file_only[] = {
    {.key = "env", .type = CONF_ENV, AT(env)},
    {.key = "log_keep", .type = CONF_DURATION, AT(log_keep_ms)},
    {.key = "log_limit", .type = CONF_PARSED, AT(log_limit), .parse = parse_bytes, .expected = BYTES_WANTED},
    {.key = "log_total", .type = CONF_PARSED, AT(log_total), .parse = parse_bytes, .expected = BYTES_WANTED},
    {.key = "tls", .type = CONF_STRUCT, .offset = 0, .fields = tls_fields},
    {0},
};

static const struct program program = {
    .name = "ddp-agent",
    .usage = "ddp-agent [OPTIONS] [-- COMMAND ARGUMENT...]\n"
             "ddp-agent join HOST:PORT --token FILE|- [OPTIONS]",
    .help = "Runs on every node: starts and watches the workers that the coordinator wants there.\n"
            "Workers outlive the agent; when it is started again, it takes them over.\n"
            "join writes the token and the config file (ddp-agent join --help).\n"
            "\n"
            "A COMMAND runs here instead of the command of each command job; `ddpctl run` uses this when it\n"
            "runs on several hosts.",
};

static void text_replace(char **field, const char *value)
{
    free(*field);
    *field = xstrdup(value);
}

/* A file that --config names must exist; the usual one may be missing. */
static enum err_code config_file_read(struct settings *s, const char *named, struct err *e)
{
    CLEANUP(free_text) char *path = named ? xstrdup(named) : paths_config("agent.yaml");
    struct conf_field *some, *all;
    struct conf_doc *doc;
    enum err_code code;

    if (!named && access(path, R_OK))
        return ERR_OK;
    if (conf_open_file(&doc, path, e))
        return e->code;
    some = option_conf_fields(settings_join_options, file_only);
    all = option_conf_fields(options, some);
    code = conf_read(doc, all, s, e);
    free(some);
    free(all);
    conf_close(doc);
    if (s->coordinator)
        text_replace(&s->coordinator_from, path);
    if (s->token_file)
        text_replace(&s->token_from, path);
    return code;
}

/* Flags win over the file, so the command line is read twice: first to check it and to find --config, then,
 * behind the file, into *s. */
static enum err_code arguments_read(struct settings *s, int argc, char **argv, struct err *e)
{
    CLEANUP(settings_release) struct settings given = {0};
    CLEANUP(option_arguments_release) struct option_arguments args = {0}, again = {0};
    const struct option_set first[] = {{options, &given}, {settings_join_options, &given}, {NULL, NULL}};
    const struct option_set last[] = {{options, s}, {settings_join_options, s}, {NULL, NULL}};
    int code = program_parse(&program, first, argc, argv, &args);

    if (code < 0 && args.count) {
        err_set(e, ERR_INVALID_ARGUMENT, "unexpected argument '%.128s'", args.list[0]);
        code = program_misused(&program, e->msg);
    }
    if (code >= 0)
        exit(code);
    if (config_file_read(s, given.config_file, e) || option_parse(last, argc, argv, NULL, &again, e))
        return e->code;
    if (given.coordinator)
        text_replace(&s->coordinator_from, "--coordinator");
    if (given.token_file)
        text_replace(&s->token_from, "--token");
    if (args.tail && *args.tail)
        s->command = strv_dup(args.tail);
    return ERR_OK;
}

static void find_coordinator(struct settings *s)
{
    const char *env = getenv("DDP_COORDINATOR");
    CLEANUP(free_text) char *state = paths_state();
    CLEANUP(free_text) char *local = paths_join(state, "coordinator.sock");

    if (s->coordinator && s->coordinator_from && !strcmp(s->coordinator_from, "--coordinator"))
        return;
    if (env && *env) {
        text_replace(&s->coordinator, env);
        text_replace(&s->coordinator_from, "DDP_COORDINATOR");
    } else if (!s->coordinator && !access(local, R_OK | W_OK)) {
        s->coordinator = xasprintf("unix:%s", local);
        text_replace(&s->coordinator_from, "the local socket");
    } else if (!s->coordinator) {
        text_replace(&s->coordinator, "localhost:29600");
        text_replace(&s->coordinator_from, "the default");
    }
}

static void make_absolute(char **path)
{
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    char *whole = *path ? paths_join(here ? here : "/", *path) : NULL;

    free(*path);
    *path = whole;
}

static void fill_defaults(struct settings *s)
{
    char host[HOST_NAME_MAX + 1] = "localhost";

    find_coordinator(s);
    if (!s->state)
        s->state = geteuid() == 0 ? xstrdup(STATE_DIR_ROOT) : paths_state();
    if (!s->log_dir)
        s->log_dir = paths_log();
    make_absolute(&s->state);
    make_absolute(&s->log_dir);
    make_absolute(&s->workdir);
    make_absolute(&s->tls.ca); /* workers run in another directory */
    make_absolute(&s->tls.cert);
    make_absolute(&s->tls.key);
    if (!s->node) {
        (void)gethostname(host, sizeof(host));
        host[strcspn(host, ".")] = '\0';
        text_replace(&s->node, host);
    }
}

static enum err_code token_file_read(const char *path, char **out, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};

    if (secret_read(path, 4096, &text, e))
        return e->code;
    if (text.data)
        text.data[strcspn(text.data, " \t\r\n")] = '\0';
    if (!text.data || !*text.data)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: the token file is empty", path);
    *out = xstrdup(text.data);
    return ERR_OK;
}

/* A token file that was named must exist; in the usual places it may be missing. */
static enum err_code token_find(struct settings *s, struct err *e)
{
    CLEANUP(free_text) char *state = paths_state();
    CLEANUP(free_text) char *agents = paths_config("agent.token");
    CLEANUP(free_text) char *own = paths_config("token");
    CLEANUP(free_text) char *beside = paths_join(state, "token");

    if (s->token_file && token_file_read(s->token_file, &s->token, e))
        return err_wrap(e, "token (from %s)", s->token_from);
    if (s->token_file)
        return ERR_OK;
    if (!access(agents, R_OK))
        return token_file_read(agents, &s->token, e);
    if (!access(own, R_OK))
        return token_file_read(own, &s->token, e);
    return access(beside, R_OK) ? ERR_OK : token_file_read(beside, &s->token, e);
}

enum err_code settings_check_run_as(const char *run_as, const char *user, struct err *e)
{
    if (run_as && strcmp(run_as, "submitter") != 0)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "run_as '%s': expected submitter; to run all jobs under one account give user: NAME",
                       run_as);
    if (run_as && user)
        return err_set(e, ERR_INVALID_ARGUMENT, "user and run_as exclude each other: give only one");
    return ERR_OK;
}

static enum err_code settings_check(struct settings *s, struct err *e)
{
    struct rpc_address at;

    if (!id_node_name(s->node))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "node name '%s': give up to 63 letters, digits, '-', '_' and '.' (--node)", s->node);
    if (rpc_address_parse(s->coordinator, &at, e))
        return err_wrap(e, "coordinator (from %s)", s->coordinator_from);
    if (settings_check_run_as(s->run_as, s->user, e))
        return e->code;
    if (s->run_as && geteuid())
        return err_set(e, ERR_INVALID_ARGUMENT, "only root can run jobs as their submitters (run_as)");
    /* Not INVALID_ARGUMENT: after a boot the account database may be on a server that is not reachable yet, and systemd does not
     * start an agent again whose configuration is wrong. */
    if (s->user && !getpwnam(s->user))
        return err_set(e, ERR_NOT_FOUND, "user '%s' does not exist on this node", s->user);
    if (s->user && geteuid() && getpwnam(s->user)->pw_uid != geteuid())
        return err_set(e, ERR_INVALID_ARGUMENT, "only root can run jobs as another user ('%s')", s->user);
    if (!s->tls.ca != !s->tls.cert || !s->tls.ca != !s->tls.key)
        return err_set(e, ERR_INVALID_ARGUMENT, "'tls' needs all of the keys ca, cert and key");
    return ERR_OK;
}

enum err_code settings_read(struct settings *out, int argc, char **argv, struct err *e)
{
    *out = (struct settings){.lifeline = -1,
                             .terminal = -1,
                             .attach = ATTACH_NO_RANK,
                             .slots_per_gpu = 1,
                             .port_first = PORT_FIRST,
                             .port_last = PORT_LAST,
                             .log_keep_ms = LOG_KEEP_MS,
                             .log_limit = LOG_LIMIT,
                             .log_total = LOG_TOTAL};
    if (arguments_read(out, argc, argv, e))
        return e->code;
    fill_defaults(out);
    if (settings_check(out, e))
        return e->code;
    if (out->terminal >= 0)
        (void)fcntl(out->terminal, F_SETFD, FD_CLOEXEC); /* only supervisors inherit it */
    if (out->lifeline < 0)
        out->attach = ATTACH_NO_RANK; /* a daemon's stdin belongs to nobody's job */
    if (out->lifeline >= 0)
        out->log_total = out->log_keep_ms =
            0; /* under `ddpctl run` the logs are the user's: none is removed */
    if (out->insecure || !strncmp(out->coordinator, "unix:", 5))
        return ERR_OK;
    return token_find(out, e);
}

void settings_release(struct settings *s)
{
    free(s->config_file);
    free(s->state);
    free(s->log_dir);
    free(s->gpus);
    free(s->coordinator);
    free(s->coordinator_from);
    free(s->node);
    free(s->address);
    free(s->relay);
    free(s->token_file);
    free(s->token_from);
    free(s->token);
    strv_free(s->env);
    free(s->user);
    free(s->run_as);
    free(s->workdir);
    strv_free(s->command);
    free(s->tls.ca);
    free(s->tls.cert);
    free(s->tls.key);
    memset(s, 0, sizeof(*s));
}
