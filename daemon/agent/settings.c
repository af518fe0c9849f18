#include "daemon/agent/settings.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/conf.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/paths.h"
#include "base/secret.h"
#include "daemon/agent/state_move.h"
#include "proto/rpc_address.h"

#define PORT_FIRST 29700
#define PORT_LAST 30699
#define SLOTS_PER_GPU_MOST 16
#define LOG_KEEP_MS (14LL * 24 * 3600 * 1000)
#define LOG_LIMIT ((int64_t)1 << 30)
#define LOG_TOTAL ((int64_t)16 << 30)

static const char help[] =
    "usage: ddp-agent [options] [-- COMMAND ARGUMENT...]\n"
    "       ddp-agent join HOST:PORT --token FILE|-\n"
    "\n"
    "Runs on every node: starts and watches the workers that the coordinator wants here.\n"
    "Workers outlive it; started again, it takes them over.\n"
    "\n"
    "  --coordinator ADDR   host:port or unix:/path (DDP_COORDINATOR, the config file, the\n"
    "                       local socket, localhost:29600)\n"
    "  --token FILE         the agent token or the cluster token\n"
    "  --insecure           send no token\n"
    "  --node NAME          this node's name (host name)\n"
    "  --address ADDR       where other nodes reach its workers (the source address\n"
    "                       towards the coordinator)\n"
    "  --slots N            CPU workers at a time (cores)\n"
    "  --gpus LIST          which GPUs to offer: 0,1 or UUIDs as nvidia-smi -L has them, none\n"
    "                       (all; CUDA_VISIBLE_DEVICES narrows it further)\n"
    "  --slots-per-gpu N    workers that share a GPU (1)\n"
    "  --ports A-B          range for MASTER_PORT (29700-30699)\n"
    "  --user NAME          the account that jobs run under; required for root; may be root\n"
    "  --run-as submitter   for root, instead of --user: run each job as its user's account\n"
    "  --state DIR          the kept wish, sockets and exit records (/var/lib/ddp-agent,\n"
    "                       as a user ~/.local/state/ddp)\n"
    "  --log-dir DIR        the workers' output (/var/log/ddp, ~/.local/state/ddp/log)\n"
    "  --config FILE        (/etc/ddp/agent.yaml, ~/.config/ddp/agent.yaml)\n"
    "  --rejoin             leave the cluster this node belonged to, and join this one\n"
    "  --lifeline FD        end, and end every worker, when this pipe is closed\n"
    "  --workdir DIR        where commands run, whatever their job says\n"
    "  -- COMMAND ...       what command jobs run here, instead of their own; as `ddpctl run`\n"
    "                       on several hosts wants it\n"
    "  --help, --version\n"
    "\n"
    "join writes the token and the config file, with --user or --run-as, --node and\n"
    "--address if they are given. Typed on the node, where box1 coordinates:\n"
    "  ssh box1 ddp-coordinator token --agent | ddp-agent join box1:29600 --token -\n";

enum {
    OPT_PORTS = 256,
    OPT_USER,
    OPT_RUN_AS,
    OPT_REJOIN,
    OPT_LIFELINE,
    OPT_INSECURE,
    OPT_WORKDIR,
    OPT_GPUS,
    OPT_GPU_SLOTS
};

static const struct option options[] = {
    {"state", required_argument, NULL, 's'},
    {"config", required_argument, NULL, 'f'},
    {"coordinator", required_argument, NULL, 'c'},
    {"node", required_argument, NULL, 'n'},
    {"address", required_argument, NULL, 'a'},
    {"slots", required_argument, NULL, 'p'},
    {"log-dir", required_argument, NULL, 'l'},
    {"token", required_argument, NULL, 't'},
    {"gpus", required_argument, NULL, OPT_GPUS},
    {"slots-per-gpu", required_argument, NULL, OPT_GPU_SLOTS},
    {"ports", required_argument, NULL, OPT_PORTS},
    {"user", required_argument, NULL, OPT_USER},
    {"run-as", required_argument, NULL, OPT_RUN_AS},
    {"insecure", no_argument, NULL, OPT_INSECURE},
    {"rejoin", no_argument, NULL, OPT_REJOIN},
    {"workdir", required_argument, NULL, OPT_WORKDIR},
    {"lifeline", required_argument, NULL, OPT_LIFELINE},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {NULL, 0, NULL, 0},
};

static enum err_code read_ports(const struct conf_node *node, void *at, struct err *e);
static enum err_code read_gpus(const struct conf_node *node, void *at, struct err *e);
static enum err_code read_bytes(const struct conf_node *node, void *at, struct err *e);

static const struct conf_field tls_fields[] = {
    {.key = "ca", .type = CONF_TEXT, .offset = offsetof(struct settings, tls.ca)},
    {.key = "cert", .type = CONF_TEXT, .offset = offsetof(struct settings, tls.cert)},
    {.key = "key", .type = CONF_TEXT, .offset = offsetof(struct settings, tls.key)},
    {0},
};
static const struct conf_field fields[] = {
    {.key = "coordinator", .type = CONF_TEXT, .offset = offsetof(struct settings, coordinator)},
    {.key = "token", .type = CONF_TEXT, .offset = offsetof(struct settings, token_file)},
    {.key = "insecure", .type = CONF_BOOL, .offset = offsetof(struct settings, insecure)},
    {.key = "node", .type = CONF_TEXT, .offset = offsetof(struct settings, node)},
    {.key = "address", .type = CONF_TEXT, .offset = offsetof(struct settings, address)},
    {.key = "slots", .type = CONF_INT, .offset = offsetof(struct settings, slots), .min = 1, .max = 4096},
    {.key = "gpus", .type = CONF_CUSTOM, .offset = offsetof(struct settings, gpus), .fn = read_gpus},
    {.key = "slots_per_gpu",
     .type = CONF_INT,
     .offset = offsetof(struct settings, slots_per_gpu),
     .min = 1,
     .max = SLOTS_PER_GPU_MOST},
    {.key = "ports", .type = CONF_CUSTOM, .offset = 0, .fn = read_ports},
    {.key = "env", .type = CONF_ENV, .offset = offsetof(struct settings, env)},
    {.key = "user", .type = CONF_TEXT, .offset = offsetof(struct settings, user)},
    {.key = "run_as", .type = CONF_TEXT, .offset = offsetof(struct settings, run_as)},
    {.key = "state", .type = CONF_TEXT, .offset = offsetof(struct settings, state)},
    {.key = "log_dir", .type = CONF_TEXT, .offset = offsetof(struct settings, log_dir)},
    {.key = "log_keep", .type = CONF_DURATION, .offset = offsetof(struct settings, log_keep_ms)},
    {.key = "log_limit",
     .type = CONF_CUSTOM,
     .offset = offsetof(struct settings, log_limit),
     .fn = read_bytes},
    {.key = "log_total",
     .type = CONF_CUSTOM,
     .offset = offsetof(struct settings, log_total),
     .fn = read_bytes},
    {.key = "tls", .type = CONF_STRUCT, .offset = 0, .fields = tls_fields},
    {0},
};

static bool parse_ports(const char *text, int *first, int *last)
{
    int end = 0;

    return sscanf(text, "%d-%d%n", first, last, &end) == 2 && !text[end] && *first > 0 && *last < 65536 &&
           *first <= *last;
}

static enum err_code read_ports(const struct conf_node *node, void *at, struct err *e)
{
    struct settings *s = at;
    const char *text = conf_scalar(node);

    if (!text || !parse_ports(text, &s->port_first, &s->port_last))
        return conf_fail(node, e, "ports must be a range such as 29700-30699");
    return ERR_OK;
}

/* "1GiB", "500MiB", "0". */
static enum err_code read_bytes(const struct conf_node *node, void *at, struct err *e)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    const char *text = conf_scalar(node);
    int64_t *out = at;
    char *unit;
    long long number;

    errno = 0;
    number = text && *text >= '0' && *text <= '9' ? strtoll(text, &unit, 10) : -1;
    for (size_t i = 0; number >= 0 && !errno && number < 1 << 20 && i < ARRAY_LEN(units); i++)
        if (!strcmp(unit, units[i]) && (i || !number)) {
            *out = (int64_t)number << (10 * i);
            return ERR_OK;
        }
    return conf_fail(node, e, "expected a size such as 500MiB or 2GiB, or 0 for no limit");
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
            return conf_fail(conf_at(node, i), e,
                             "a GPU's number or UUID is wanted, as nvidia-smi -L has them");
        buf_printf(&list, "%s%s", i ? "," : "", word);
    }
    if (!conf_is_list(node) && !conf_scalar(node))
        return conf_fail(node, e, "gpus must be a list such as [0, 1], all or none");
    free(*out);
    *out = conf_is_list(node) ? buf_steal(&list) : xstrdup(conf_scalar(node));
    return ERR_OK;
}

static void set(char **field, const char *value)
{
    free(*field);
    *field = xstrdup(value);
}

static enum err_code read_number(const char *flag, const char *text, long least, long most, long *out,
                                 struct err *e)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s %s: give a number from %ld to %ld", flag, text, least,
                       most);
    *out = value;
    return ERR_OK;
}

static enum err_code set_option(struct settings *s, int option, const char *value, struct err *e)
{
    long number = 0;

    switch (option) {
    case 's':
        set(&s->state, value);
        break;
    case 'c':
        set(&s->coordinator, value);
        set(&s->coordinator_from, "--coordinator");
        break;
    case 'n':
        set(&s->node, value);
        break;
    case 'a':
        set(&s->address, value);
        break;
    case 'l':
        set(&s->log_dir, value);
        break;
    case 't':
        set(&s->token_file, value);
        break;
    case OPT_USER:
        set(&s->user, value);
        break;
    case OPT_RUN_AS:
        set(&s->run_as, value);
        break;
    case OPT_WORKDIR:
        set(&s->workdir, value);
        break;
    case OPT_INSECURE:
        s->insecure = true;
        break;
    case OPT_REJOIN:
        s->rejoin = true;
        break;
    case OPT_PORTS:
        if (!parse_ports(value, &s->port_first, &s->port_last))
            return err_set(e, ERR_INVALID_ARGUMENT, "--ports %s: give a range such as 29700-30699", value);
        break;
    case 'p':
        if (read_number("--slots", value, 1, 4096, &number, e))
            return e->code;
        s->slots = number;
        break;
    case OPT_GPUS:
        set(&s->gpus, value);
        break;
    case OPT_GPU_SLOTS:
        if (read_number("--slots-per-gpu", value, 1, SLOTS_PER_GPU_MOST, &number, e))
            return e->code;
        s->slots_per_gpu = number;
        break;
    case OPT_LIFELINE:
        if (read_number("--lifeline", value, 0, INT_MAX, &number, e))
            return e->code;
        s->lifeline = (int)number;
        break;
    default:
        break;
    }
    return ERR_OK;
}

/* Flags win, so the file is read first: one pass for --config, one for the rest. */
static enum err_code read_config(struct settings *s, int argc, char **argv, struct err *e)
{
    CLEANUP(free_text) char *path = NULL;
    struct conf_doc *doc;
    enum err_code code;
    int c;

    optind = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == '?') {
            fputs("ddp-agent: try --help\n", stderr);
            exit(2);
        }
        if (c == 'h' || c == 'v') {
            fputs(c == 'h' ? help : "ddp-agent " DDP_VERSION "\n", stdout);
            exit(0);
        }
        if (c == 'f')
            set(&path, optarg);
    }
    if (optind < argc && strcmp(argv[optind - 1], "--") != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s is not an option, try --help", argv[optind]);
    if (optind < argc)
        s->command = strv_dup(argv + optind);
    if (!path) {
        path = paths_config("agent.yaml");
        if (access(path, R_OK))
            return ERR_OK;
    }
    if (conf_open_file(&doc, path, e))
        return e->code;
    code = conf_read(doc, fields, s, e);
    conf_close(doc);
    if (s->coordinator)
        set(&s->coordinator_from, path);
    return code;
}

static void find_coordinator(struct settings *s)
{
    const char *env = getenv("DDP_COORDINATOR");
    CLEANUP(free_text) char *state = paths_state();
    CLEANUP(free_text) char *local = paths_join(state, "coordinator.sock");

    if (s->coordinator && s->coordinator_from && !strcmp(s->coordinator_from, "--coordinator"))
        return;
    if (env && *env) {
        set(&s->coordinator, env);
        set(&s->coordinator_from, "DDP_COORDINATOR");
    } else if (!s->coordinator && !access(local, R_OK | W_OK)) {
        s->coordinator = xasprintf("unix:%s", local);
        set(&s->coordinator_from, "the local socket");
    } else if (!s->coordinator) {
        set(&s->coordinator, "localhost:29600");
        set(&s->coordinator_from, "the default");
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
        set(&s->node, host);
    }
}

static enum err_code read_token(const char *path, char **out, struct err *e)
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

/* A file that was named must be there; the usual places are only looked at. */
static enum err_code find_token(struct settings *s, struct err *e)
{
    CLEANUP(free_text) char *state = paths_state();
    CLEANUP(free_text) char *agents = paths_config("agent.token");
    CLEANUP(free_text) char *own = paths_config("token");
    CLEANUP(free_text) char *beside = paths_join(state, "token");

    if (s->token_file)
        return read_token(s->token_file, &s->token, e);
    if (!access(agents, R_OK))
        return read_token(agents, &s->token, e);
    if (!access(own, R_OK))
        return read_token(own, &s->token, e);
    return access(beside, R_OK) ? ERR_OK : read_token(beside, &s->token, e);
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

static enum err_code check(struct settings *s, struct err *e)
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
    if (s->user && !getpwnam(s->user))
        return err_set(e, ERR_INVALID_ARGUMENT, "user '%s' does not exist on this node", s->user);
    if (s->user && geteuid() && getpwnam(s->user)->pw_uid != geteuid())
        return err_set(e, ERR_INVALID_ARGUMENT, "only root can run jobs as another user ('%s')", s->user);
    if (!s->tls.ca != !s->tls.cert || !s->tls.ca != !s->tls.key)
        return err_set(e, ERR_INVALID_ARGUMENT, "tls wants all of ca, cert and key");
    return ERR_OK;
}

enum err_code settings_read(struct settings *out, int argc, char **argv, struct err *e)
{
    int c;

    *out = (struct settings){.lifeline = -1,
                             .slots_per_gpu = 1,
                             .port_first = PORT_FIRST,
                             .port_last = PORT_LAST,
                             .log_keep_ms = LOG_KEEP_MS,
                             .log_limit = LOG_LIMIT,
                             .log_total = LOG_TOTAL};
    if (read_config(out, argc, argv, e))
        return e->code;
    optind = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (set_option(out, c, optarg, e))
            return e->code;
    fill_defaults(out);
    if (check(out, e))
        return e->code;
    if (out->lifeline >= 0)
        out->log_total = out->log_keep_ms =
            0; /* of one job of somebody's, in a directory of theirs: nothing there is old to us */
    if (out->insecure || !strncmp(out->coordinator, "unix:", 5))
        return ERR_OK;
    return find_token(out, e);
}

void settings_release(struct settings *s)
{
    free(s->state);
    free(s->log_dir);
    free(s->gpus);
    free(s->coordinator);
    free(s->coordinator_from);
    free(s->node);
    free(s->address);
    free(s->token_file);
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
