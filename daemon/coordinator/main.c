#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/coordinator/config.h"
#include "daemon/coordinator/init.h"
#include "daemon/coordinator/service.h"

enum { EXIT_USAGE = 2 };

static const char help[] =
    "usage: ddp-coordinator [options]          serve until SIGTERM\n"
    "       ddp-coordinator init [options]     make state, token and config; print what to paste on each "
    "node\n"
    "       ddp-coordinator token [options]    print the cluster's token\n"
    "\n"
    "Keeps a cluster's jobs, nodes and ranks in one SQLite file, and tells every ddp-agent what to run. "
    "Start it\n"
    "once a cluster. It may be killed and started again at any time: jobs go on meanwhile, and nothing is "
    "lost.\n"
    "\n"
    "  --state DIR         where all of it is kept, on a local disk (default %s)\n"
    "  --config FILE       default %s, with --state DIR/coordinator.yaml\n"
    "  --listen HOST:PORT  for agents, workers and ddpctl; may be given again; none: only "
    "DIR/coordinator.sock\n"
    "                      (default every address, port 29600)\n"
    "  --metrics HOST:PORT Prometheus metrics at /metrics, or none (default 127.0.0.1:29601)\n"
    "  --insecure          serve TCP without a token: anyone who reaches the port can run commands here\n"
    "  --lifeline FD       end when the other end of this pipe is closed\n"
    "  --help, --version\n"
    "\n"
    "Signals: SIGTERM and SIGINT finish the calls in progress and end; running jobs are not touched.\n"
    "Environment: DDP_LOG=debug|info|warn|error; NOTIFY_SOCKET as systemd sets it.\n"
    "Exit code: 0 ended as told, 1 failed, 2 wrong usage.\n";

static const struct option options[] = {
    {"state", required_argument, NULL, 's'},
    {"config", required_argument, NULL, 'c'},
    {"listen", required_argument, NULL, 'l'},
    {"metrics", required_argument, NULL, 'm'},
    {"insecure", no_argument, NULL, 'i'},
    {"lifeline", required_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {NULL, 0, NULL, 0},
};

struct arguments {
    const char *command; /* NULL: serve */
    const char *state, *config, *metrics;
    char **listen;
    bool insecure;
    int lifeline;
};

static _Noreturn void usage(const char *fmt, const char *what)
{
    fprintf(stderr, "ddp-coordinator: ");
    fprintf(stderr, fmt, what);
    fprintf(stderr, ", see ddp-coordinator --help\n");
    exit(EXIT_USAGE);
}

static _Noreturn void print_help(void)
{
    CLEANUP(free_text) char *state = paths_state();
    CLEANUP(free_text) char *config = paths_config("coordinator.yaml");
    printf(help, state, config);
    exit(EXIT_SUCCESS);
}

static int parse_fd(const char *text)
{
    char *end;
    const long fd = strtol(text, &end, 10);
    if (end == text || *end || fd < 0 || fd > 65535)
        usage("--lifeline '%s': expected a descriptor's number", text);
    struct stat st;
    if (fstat((int)fd, &st) != 0 || !(S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
        usage("--lifeline '%s': that descriptor is no pipe", text);
    return (int)fd;
}

static const char *parse_address(const char *flag, const char *text)
{
    const char *colon = strrchr(text, ':');
    char *end;
    if (strcmp(text, "none") == 0)
        return text;
    const long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || colon == text || colon[1] == '\0' || *end || port < 0 || port > 65535)
        usage(flag, text);
    return text;
}

static struct arguments parse(int argc, char **argv)
{
    struct arguments a = {.lifeline = -1};
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's':
            a.state = optarg;
            break;
        case 'c':
            a.config = optarg;
            break;
        case 'l':
            a.listen =
                strv_append(a.listen, parse_address("--listen '%s': expected host:port or none", optarg));
            break;
        case 'm':
            a.metrics = parse_address("--metrics '%s': expected host:port or none", optarg);
            break;
        case 'i':
            a.insecure = true;
            break;
        case 'f':
            a.lifeline = parse_fd(optarg);
            break;
        case 'h':
            print_help();
        case 'v':
            printf("ddp-coordinator %s\n", DDP_VERSION);
            exit(EXIT_SUCCESS);
        default:
            usage("'%s': unknown option, or its value is missing", argv[optind - 1]);
        }
    }
    if (optind < argc)
        a.command = argv[optind++];
    if (optind < argc)
        usage("'%s': one argument too many", argv[optind]);
    return a;
}

/* A relative --state is made absolute, so that what is printed can be pasted. */
static char *absolute(const char *path)
{
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    return paths_join(here ? here : "/", path);
}

/* --config, else the file in the directory that --state names (it stands for itself), else the default. */
static char *config_path(const struct arguments *a)
{
    if (a->config)
        return absolute(a->config);
    if (!a->state)
        return paths_config("coordinator.yaml");
    CLEANUP(free_text) char *state = absolute(a->state);
    return paths_join(state, "coordinator.yaml");
}

/* The command line wins over the file. */
static enum err_code settle(struct config *c, const struct arguments *a, const char *path, struct err *e)
{
    const bool may_be_missing = !a->config || (a->command && strcmp(a->command, "init") == 0);
    config_defaults(c);
    if ((file_exists(path) || !may_be_missing) && config_read(c, path, e) != ERR_OK)
        return e->code;
    if (a->state) {
        free(c->state);
        c->state = absolute(a->state);
    }
    if (a->metrics) {
        free(c->metrics);
        c->metrics = xstrdup(a->metrics);
    }
    if (a->listen) {
        strv_free(c->listen);
        c->listen = strv_dup(a->listen);
    }
    c->insecure |= a->insecure;
    return config_check(c, e);
}

static char **addresses(const struct config *c)
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
    if (c->retain_ms)
        core.retain_jobs_ms = c->retain_ms;
    if (c->retain_jobs)
        core.retain_jobs = c->retain_jobs;
    return core;
}

/* Each agent is a descriptor. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        log_warn("descriptor_limit", "why=%s", LOG_Q(strerror(errno)));
}

static enum err_code serve(const struct config *c, int lifeline, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    if (token_read(c->state, true, &token, e) != ERR_OK)
        return e->code;
    char **listen = addresses(c);
    raise_descriptor_limit();
    const struct service_options o = {
        .state = c->state,
        .listen = listen,
        .metrics = strcmp(c->metrics, "none") == 0 ? NULL : c->metrics,
        .token = token,
        .insecure = c->insecure,
        .tls = {c->tls.ca, c->tls.cert, c->tls.key},
        .lifeline = lifeline,
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

static enum err_code print_token(const struct config *c, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    if (token_read(c->state, false, &token, e) != ERR_OK)
        return e->code;
    puts(token);
    return ERR_OK;
}

static enum err_code run(const struct config *c, const struct arguments *a, const char *path, struct err *e)
{
    if (!a->command)
        return serve(c, a->lifeline, e);
    if (strcmp(a->command, "init") == 0)
        return init_run(c, path, a->state || a->config, e);
    if (strcmp(a->command, "token") == 0)
        return print_token(c, e);
    usage("'%s': unknown command", a->command);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct config config;
    log_init("ddp-coordinator", LOG_INFO);
    struct arguments arguments = parse(argc, argv);
    CLEANUP(free_text) char *path = config_path(&arguments);
    enum err_code code = settle(&config, &arguments, path, &e);
    const int failure = code == ERR_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILURE;
    if (code == ERR_OK)
        code = run(&config, &arguments, path, &e);
    if (code != ERR_OK)
        fprintf(stderr, "ddp-coordinator: %s\n", e.msg);
    config_release(&config);
    strv_free(arguments.listen);
    return code == ERR_OK ? EXIT_SUCCESS : failure;
}
