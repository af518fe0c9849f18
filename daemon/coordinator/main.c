#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/coordinator/config.h"
#include "daemon/coordinator/init.h"
#include "daemon/coordinator/owner.h"
#include "daemon/coordinator/service/service.h"
#include "store/backup.h"

#define BACKUPS_SHOWN 5
#include "daemon/coordinator/user_commands.h"

enum { EXIT_USAGE = 2, EXIT_DATA_LOST = 3 }; /* the unit does not start it again after these */

static const char help[] =
    "usage: ddp-coordinator [options]          serve until SIGTERM\n"
    "       ddp-coordinator init [options]     make state, token and config; print what to paste on each "
    "node\n"
    "       ddp-coordinator token [--agent]    print the cluster token; with --agent the agent token,\n"
    "                                          which only lets a node join and run jobs\n"
    "       ddp-coordinator user add NAME [--role view|submit|operate]\n"
    "                                          add a user (default role submit) and print the token once\n"
    "       ddp-coordinator user list | remove NAME | token NAME\n"
    "                                          list users, remove a user at once, make a new token\n"
    "       ddp-coordinator backup [FILE] [options]   copy the database; works while the coordinator runs\n"
    "       ddp-coordinator restore FILE [options]    replace the database by a backup; only while the\n"
    "                                                 coordinator is stopped\n"
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
    "  --accept-loss       start with a database that lacks acknowledged changes; the loss is recorded as an "
    "event\n"
    "  --agent             with token: print the agent token\n"
    "  --role ROLE         with user add: view, submit or operate\n"
    "  --lifeline FD       end when the other end of this pipe is closed\n"
    "  --help, --version\n"
    "\n"
    "Signals: SIGTERM and SIGINT finish the calls in progress and end; running jobs are not touched.\n"
    "Environment: DDP_LOG=debug|info|warn|error; NOTIFY_SOCKET as systemd sets it.\n"
    "Exit code: 0 stopped as requested, 1 failed, 2 wrong usage, 3 the database is damaged or has lost "
    "commits.\n";

static const struct option options[] = {
    {"state", required_argument, NULL, 's'},    {"config", required_argument, NULL, 'c'},
    {"listen", required_argument, NULL, 'l'},   {"metrics", required_argument, NULL, 'm'},
    {"insecure", no_argument, NULL, 'i'},       {"accept-loss", no_argument, NULL, 'A'},
    {"lifeline", required_argument, NULL, 'f'}, {"agent", no_argument, NULL, 'a'},
    {"role", required_argument, NULL, 'r'},     {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},        {NULL, 0, NULL, 0},
};

struct arguments {
    const char *command; /* NULL: serve */
    const char *file;    /* of backup and restore */
    const char *state, *config, *metrics;
    char **listen;
    char *const *words; /* of the command, NULL-terminated */
    const char *role;
    bool insecure, agent, accept_loss;
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
        case 'A':
            a.accept_loss = true;
            break;
        case 'f':
            a.lifeline = parse_fd(optarg);
            break;
        case 'a':
            a.agent = true;
            break;
        case 'r':
            a.role = optarg;
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
    if (optind < argc && a.command && (!strcmp(a.command, "backup") || !strcmp(a.command, "restore")))
        a.file = argv[optind++];
    if (a.command && strcmp(a.command, "user") == 0)
        a.words = argv + optind;
    else if (optind < argc)
        usage("'%s': one argument too many", argv[optind]);
    else if (a.role)
        usage("'%s': only with user add", "--role");
    if (a.agent && !(a.command && strcmp(a.command, "token") == 0))
        usage("'%s': only with token", "--agent");
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
    if (c->look_ms)
        core.look_ms = c->look_ms;
    if (c->retain_ms)
        core.retain_jobs_ms = c->retain_ms;
    if (c->retain_jobs)
        core.retain_jobs = c->retain_jobs;
    return core;
}

/* A cluster that is over with this process has no use for a file; and where none can be written (a full
 * disk), nodes that have no such token go on with the one they have. */
static enum err_code find_agent_token(const struct config *c, bool passing, char **out, struct err *e)
{
    char made[TOKEN_TEXT];
    if (!passing && agent_token_read(c->state, true, out, e) == ERR_OK)
        return ERR_OK;
    if (!passing && e->code != ERR_RESOURCE_EXHAUSTED)
        return e->code;
    if (!passing)
        log_warn("agent_token", "why=%s", LOG_Q(e->msg));
    token_make(made, TOKEN_AGENT);
    *out = xstrdup(made);
    return ERR_OK;
}

static enum err_code serve(const struct config *c, const struct arguments *a, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    CLEANUP(free_text) char *backup_dir = config_backup_dir(c);
    CLEANUP(free_text) char *agent_token = NULL;
    (void)limits_raise_files(); /* each agent is a descriptor */
    if (owner_hand_over(c->state, e) != ERR_OK || owner_become(c->state, e) != ERR_OK ||
        token_read(c->state, true, &token, e) != ERR_OK ||
        find_agent_token(c, a->lifeline >= 0, &agent_token, e) != ERR_OK)
        return e->code;
    char **listen = addresses(c);
    const struct service_options o = {
        .state = c->state,
        .listen = listen,
        .metrics = strcmp(c->metrics, "none") == 0 ? NULL : c->metrics,
        .token = token,
        .agent_token = agent_token,
        .shared_user = c->shared_user,
        .audit_keep_ms = c->audit_keep_ms,
        .audit_rows = c->audit_rows,
        .insecure = c->insecure,
        .tls = {c->tls.ca, c->tls.cert, c->tls.key},
        .limits = {.total = (size_t)c->connections.total,
                   .per_address = (size_t)c->connections.per_address,
                   .strangers = (size_t)c->connections.unauthenticated,
                   .strangers_per_address = (size_t)c->connections.unauthenticated_per_address},
        .lifeline = a->lifeline,
        .backup_dir = backup_dir,
        .backup_every_ms = c->backup.every_ms,
        .backup_keep = c->backup.keep,
        .accept_loss = a->accept_loss,
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

/* A state directory of an older version has no token of agents yet; a coordinator that runs reads it at its
 * next start. */
static enum err_code print_token(const struct config *c, bool of_agents, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    if ((of_agents ? agent_token_read : token_read)(c->state, false, &token, e) != ERR_OK)
        return e->code;
    puts(token);
    return ERR_OK;
}

static enum err_code make_backup(const struct config *c, const char *file, struct err *e)
{
    CLEANUP(free_text) char *dir = config_backup_dir(c);
    CLEANUP(free_text) char *to = file ? absolute(file) : backup_name(dir);
    if (backup_make(c->state, to, e) != ERR_OK)
        return e->code;
    puts(to);
    return ERR_OK;
}

static enum err_code restore_backup(const struct config *c, const char *file, struct err *e)
{
    CLEANUP(buf_release) struct buf said = {0};
    if (!file)
        usage("%s: FILE is missing", "restore");
    CLEANUP(free_text) char *from = absolute(file);
    if (backup_restore(c->state, from, &said, e) != ERR_OK)
        return e->code;
    fputs(said.data, stdout);
    return ERR_OK;
}

static void print_copies(const struct backup *list, size_t count)
{
    for (size_t i = 0; i < count && i < BACKUPS_SHOWN; i++)
        fprintf(stderr, "    %s  (%lld min old, %lld jobs, the last is number %lld)\n", list[i].path,
                (long long)((clock_wall_ms() - list[i].time_ms) / 60000), (long long)list[i].jobs,
                (long long)list[i].last_job);
}

/* After a refusal: the ways to go on. What was rescued comes first, since no backup is newer. */
static void print_way_out(const struct config *c)
{
    CLEANUP(free_text) char *dir = config_backup_dir(c);
    struct backup *list, *rescued;
    size_t count, rescues;
    backup_list(dir, &list, &count);
    backup_list_rescued(c->state, &rescued, &rescues);
    fprintf(stderr,
            "Possible causes: a damaged disk, a damaged write-ahead log (ddp.db-wal), a deleted file, or an "
            "older copy "
            "in its place.\n"
            "To go on, with the same --state or --config:\n");
    if (rescues)
        fprintf(stderr,
                "  ddp-coordinator restore FILE     restores what was saved of a deleted database:\n");
    print_copies(rescued, rescues);
    fprintf(stderr, "  ddp-coordinator restore FILE     restores a backup; in %s:%s\n", dir,
            count ? "" : " none");
    print_copies(list, count);
    fprintf(stderr, "  ddp-coordinator --accept-loss    continues without the missing commits\n");
    backups_free(list, count);
    backups_free(rescued, rescues);
}

static enum err_code run_command(const struct config *c, const struct arguments *a, const char *path,
                                 struct err *e)
{
    if (strcmp(a->command, "init") == 0)
        return init_run(c, path, a->state || a->config, e);
    if (strcmp(a->command, "token") == 0)
        return print_token(c, a->agent, e);
    if (strcmp(a->command, "user") == 0)
        return user_command(c->state, a->words, a->role, e);
    if (strcmp(a->command, "backup") == 0)
        return make_backup(c, a->file, e);
    if (strcmp(a->command, "restore") == 0)
        return restore_backup(c, a->file, e);
    usage("'%s': unknown command", a->command);
}

static enum err_code run(const struct config *c, const struct arguments *a, const char *path, struct err *e)
{
    if (!a->command)
        return serve(c, a, e);
    struct err other;
    const enum err_code code = run_command(c, a, path, e);
    const enum err_code given =
        owner_hand_over(c->state, code == ERR_OK ? e : &other); /* also what a failure left */
    return code != ERR_OK ? code : given;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct config config;
    log_init("ddp-coordinator", LOG_INFO);
    struct arguments arguments = parse(argc, argv);
    CLEANUP(free_text) char *path = config_path(&arguments);
    enum err_code code = settle(&config, &arguments, path, &e);
    int failure = code == ERR_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILURE;
    if (code == ERR_OK) {
        code = run(&config, &arguments, path, &e);
        if (arguments.words && code == ERR_INVALID_ARGUMENT)
            failure = EXIT_USAGE;
    }
    if (code != ERR_OK)
        fprintf(stderr, "ddp-coordinator: %s\n", e.msg);
    if (code == ERR_DATA_LOSS && !arguments.command) {
        print_way_out(&config);
        failure = EXIT_DATA_LOST;
    }
    config_release(&config);
    strv_free(arguments.listen);
    return code == ERR_OK ? EXIT_SUCCESS : failure;
}
