#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/coordinator/backup_commands.h"
#include "daemon/coordinator/config.h"
#include "daemon/coordinator/init.h"
#include "daemon/coordinator/owner.h"
#include "daemon/coordinator/serve.h"
#include "daemon/coordinator/token.h"
#include "daemon/coordinator/user_commands.h"

enum { EXIT_USAGE = 2, EXIT_DATA_LOST = 3 }; /* systemd does not restart the coordinator after these */

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

/* Commands that are printed with a path must work in any directory. */
static char *path_absolute(const char *path)
{
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    return paths_join(here ? here : "/", path);
}

/* The path of the configuration file: --config; without it the file in the directory that --state names, since
 * such a directory is a cluster of its own; without both the default. */
static char *config_path(const struct arguments *a)
{
    if (a->config)
        return path_absolute(a->config);
    if (!a->state)
        return paths_config("coordinator.yaml");
    CLEANUP(free_text) char *state = path_absolute(a->state);
    return paths_join(state, "coordinator.yaml");
}

/* The configuration: defaults, overridden by the file, overridden by the command line. */
static enum err_code config_assemble(struct config *c, const struct arguments *a, const char *path,
                                     struct err *e)
{
    /* `init` creates the file, and every key has a default. Only a file that --config names must exist. */
    const bool may_be_missing = !a->config || (a->command && strcmp(a->command, "init") == 0);
    config_defaults(c);
    if ((file_exists(path) || !may_be_missing) && config_read(c, path, e) != ERR_OK)
        return e->code;
    if (a->state) {
        free(c->state);
        c->state = path_absolute(a->state);
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

static enum err_code token_print(const struct config *c, enum token_kind kind, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    if (token_read(c->state, kind, false, &token, e) != ERR_OK)
        return e->code;
    puts(token);
    return ERR_OK;
}

static enum err_code command_dispatch(const struct config *c, const struct arguments *a, const char *path,
                                      struct err *e)
{
    if (strcmp(a->command, "init") == 0)
        return init_run(c, path, a->state || a->config, e);
    if (strcmp(a->command, "token") == 0)
        return token_print(c, a->agent ? TOKEN_AGENT : TOKEN_CLUSTER, e);
    if (strcmp(a->command, "user") == 0)
        return user_command(c->state, a->words, a->role, e);
    CLEANUP(free_text) char *file = a->file ? path_absolute(a->file) : NULL;
    if (strcmp(a->command, "backup") == 0)
        return backup_command(c, file, e);
    if (strcmp(a->command, "restore") == 0 && !file)
        usage("%s: FILE is missing", "restore");
    if (strcmp(a->command, "restore") == 0)
        return restore_command(c, file, e);
    usage("'%s': unknown command", a->command);
}

static enum err_code command_run(const struct config *c, const struct arguments *a, const char *path,
                                 struct err *e)
{
    if (!a->command)
        return serve_cluster(c, a->lifeline, a->accept_loss, e);
    struct err ignored;
    const enum err_code code = command_dispatch(c, a, path, e);
    /* A command that failed may have left files of root, too. Its own error is the one to report. */
    const enum err_code given = owner_hand_over(c->state, code == ERR_OK ? e : &ignored);
    return code != ERR_OK ? code : given;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct config config;
    log_init("ddp-coordinator", LOG_INFO);
    struct arguments arguments = parse(argc, argv);
    CLEANUP(free_text) char *path = config_path(&arguments);
    enum err_code code = config_assemble(&config, &arguments, path, &e);
    int failure = code == ERR_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILURE;
    if (code == ERR_OK) {
        code = command_run(&config, &arguments, path, &e);
        if (arguments.words && code == ERR_INVALID_ARGUMENT)
            failure = EXIT_USAGE;
    }
    if (code != ERR_OK)
        fprintf(stderr, "ddp-coordinator: %s\n", e.msg);
    if (code == ERR_DATA_LOSS && !arguments.command) {
        restore_print_choices(&config);
        failure = EXIT_DATA_LOST;
    }
    config_release(&config);
    strv_free(arguments.listen);
    return code == ERR_OK ? EXIT_SUCCESS : failure;
}
