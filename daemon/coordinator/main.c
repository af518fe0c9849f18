#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/paths.h"
#include "base/program.h"
#include "daemon/coordinator/backup_commands.h"
#include "daemon/coordinator/config.h"
#include "daemon/coordinator/init.h"
#include "daemon/coordinator/owner.h"
#include "daemon/coordinator/serve.h"
#include "daemon/coordinator/token.h"
#include "daemon/coordinator/user_commands.h"

enum { EXIT_USAGE = 2, EXIT_DATA_LOST = 3 }; /* systemd does not restart the coordinator after these */

struct command_line {
    struct config given; /* the options of config.h that were given */
    const char *config_file, *role;
    bool agent, accept_loss;
    int lifeline;
    struct option_arguments args; /* the command and its arguments; none: serve */
};

#define AT(member) .offset = offsetof(struct command_line, member)
static const struct option_spec options[] = {
    {.name = "config",
     .type = OPTION_TEXT,
     AT(config_file),
     .value = "FILE",
     .help = "configuration file",
     .default_text = "/etc/ddp/coordinator.yaml; if not root, ~/.config/ddp/coordinator.yaml; with --state, "
                     "DIR/coordinator.yaml"},
    {.name = "accept-loss",
     .type = OPTION_FLAG,
     AT(accept_loss),
     .help = "start with a database that lacks acknowledged changes; the loss is recorded as an event"},
    {.name = "agent", .type = OPTION_FLAG, AT(agent), .help = "with token: print the agent token"},
    {.name = "role",
     .type = OPTION_CHOICE,
     AT(role),
     .value = "view|submit|operate",
     .help = "with user add: what the user may do",
     .default_text = "submit"},
    {.name = "lifeline",
     .type = OPTION_FD,
     AT(lifeline),
     .value = "FD",
     .help = "end when the other end of this pipe is closed"},
    {0},
};

static const struct program program = {
    .name = "ddp-coordinator",
    .usage = "ddp-coordinator [OPTIONS]\n"
             "ddp-coordinator init [OPTIONS]\n"
             "ddp-coordinator token [--agent] [OPTIONS]\n"
             "ddp-coordinator user add NAME [--role ROLE] | list | remove NAME | token NAME\n"
             "ddp-coordinator backup [FILE] [OPTIONS]\n"
             "ddp-coordinator restore FILE [OPTIONS]",
    .help = "Without a command it serves until SIGTERM: it keeps a cluster's jobs, nodes and ranks in one SQLite\n"
            "file, and tells every ddp-agent what to run. Run one coordinator for each cluster. It may be killed\n"
            "and started again at any time: jobs go on meanwhile, and nothing is lost.\n"
            "\n"
            "init         make the state directory, the tokens and the configuration file, and print the\n"
            "             command that adds a node\n"
            "token        print the cluster token, which allows everything; with --agent the agent token,\n"
            "             which only lets a node join and run jobs\n"
            "user add     add a user and print the user's token once\n"
            "user list    list the users; user remove removes a user at once; user token makes a new token\n"
            "backup       copy the database, also while the coordinator runs\n"
            "restore      replace the database by a backup, only while the coordinator is stopped",
    .more = "Signals: SIGTERM and SIGINT finish the calls in progress and end; running jobs are not touched.\n"
            "Environment: DDP_LOG=debug|info|warn|error; NOTIFY_SOCKET as systemd sets it.\n"
            "Exit code: 0 stopped as requested, 1 failed, 2 wrong usage, 3 the database is damaged or has lost\n"
            "commits.",
};

static const struct {
    const char *name;
    size_t arguments_min, arguments_max;
} commands[] = {
    {"init", 0, 0}, {"token", 0, 0}, {"user", 0, SIZE_MAX}, {"backup", 0, 1}, {"restore", 1, 1},
};

static bool command_is(const struct command_line *l, const char *name)
{
    return l->args.count && strcmp(l->args.list[0], name) == 0;
}

static bool is_pipe(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

static enum err_code command_check(const struct command_line *l, struct err *e)
{
    const char *names[ARRAY_LEN(commands)];
    size_t at = 0;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        names[i] = commands[i].name;
    while (l->args.count && at < ARRAY_LEN(commands) && strcmp(commands[at].name, l->args.list[0]) != 0)
        at++;
    if (at == ARRAY_LEN(commands)) {
        const char *near = nearest_name(l->args.list[0], names, ARRAY_LEN(names));
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown command '%s'%s%s%s", l->args.list[0],
                       near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (l->args.tail || (l->args.count && l->args.count - 1 > commands[at].arguments_max))
        return err_set(e, ERR_INVALID_ARGUMENT, "too many arguments");
    if (l->args.count && l->args.count - 1 < commands[at].arguments_min)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: FILE is missing", l->args.list[0]);
    if (l->role && !command_is(l, "user"))
        return err_set(e, ERR_INVALID_ARGUMENT, "option '--role' works only with user add");
    if (l->agent && !command_is(l, "token"))
        return err_set(e, ERR_INVALID_ARGUMENT, "option '--agent' works only with token");
    if (l->lifeline >= 0 && !is_pipe(l->lifeline))
        return err_set(e, ERR_INVALID_ARGUMENT, "option '--lifeline' wants a pipe, got %d, which is no pipe",
                       l->lifeline);
    return ERR_OK;
}

/* Ends the program on --help, --version and misuse. */
static void command_line_read(struct command_line *l, int argc, char **argv)
{
    const struct option_set sets[] = {{config_options, &l->given}, {options, l}, {NULL, NULL}};
    struct err e;
    *l = (struct command_line){.lifeline = -1};
    int code = program_parse(&program, sets, argc, argv, &l->args);
    if (code < 0 && command_check(l, &e) != ERR_OK)
        code = program_misused(&program, e.msg);
    if (code >= 0)
        exit(code);
}

/* Commands that are printed with a path must work in any directory. */
static char *path_absolute(const char *path)
{
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    return paths_join(here ? here : "/", path);
}

/* The path of the configuration file: --config; without it the file in the directory that --state names, since
 * such a directory is a cluster of its own; without both the default. */
static char *config_path(const struct command_line *l)
{
    if (l->config_file)
        return path_absolute(l->config_file);
    if (!l->given.state)
        return paths_config("coordinator.yaml");
    CLEANUP(free_text) char *state = path_absolute(l->given.state);
    return paths_join(state, "coordinator.yaml");
}

/* The configuration: defaults, overridden by the file, overridden by the command line. */
static enum err_code config_assemble(struct config *c, const struct command_line *l, const char *path,
                                     struct err *e)
{
    /* `init` creates the file, and every key has a default. Only a file that --config names must exist. */
    const bool may_be_missing = !l->config_file || command_is(l, "init");
    config_defaults(c);
    if ((file_exists(path) || !may_be_missing) && config_read(c, path, e) != ERR_OK)
        return e->code;
    if (l->given.state) {
        free(c->state);
        c->state = path_absolute(l->given.state);
    }
    if (l->given.metrics) {
        free(c->metrics);
        c->metrics = xstrdup(l->given.metrics);
    }
    if (l->given.listen) {
        strv_free(c->listen);
        c->listen = strv_dup(l->given.listen);
    }
    c->insecure |= l->given.insecure;
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

static enum err_code command_dispatch(const struct config *c, const struct command_line *l, const char *path,
                                      struct err *e)
{
    if (command_is(l, "init"))
        return init_run(c, path, l->given.state || l->config_file, e);
    if (command_is(l, "token"))
        return token_print(c, l->agent ? TOKEN_AGENT : TOKEN_CLUSTER, e);
    if (command_is(l, "user"))
        return user_command(c->state, l->args.list + 1, l->role, e);
    CLEANUP(free_text) char *file = l->args.count > 1 ? path_absolute(l->args.list[1]) : NULL;
    return command_is(l, "backup") ? backup_command(c, file, e) : restore_command(c, file, e);
}

static enum err_code command_run(const struct config *c, const struct command_line *l, const char *path,
                                 struct err *e)
{
    if (!l->args.count)
        return serve_cluster(c, l->lifeline, l->accept_loss, e);
    struct err ignored;
    const enum err_code code = command_dispatch(c, l, path, e);
    /* A command that failed may have left files of root, too. Its own error is the one to report. */
    const enum err_code given = owner_hand_over(c->state, code == ERR_OK ? e : &ignored);
    return code != ERR_OK ? code : given;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct config config;
    log_init("ddp-coordinator", LOG_INFO);
    struct command_line line;
    command_line_read(&line, argc, argv);
    CLEANUP(free_text) char *path = config_path(&line);
    enum err_code code = config_assemble(&config, &line, path, &e);
    int failure = code == ERR_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILURE;
    if (code == ERR_OK) {
        code = command_run(&config, &line, path, &e);
        if (command_is(&line, "user") && code == ERR_INVALID_ARGUMENT)
            failure = EXIT_USAGE;
    }
    if (code != ERR_OK)
        fprintf(stderr, "ddp-coordinator: %s\n", e.msg);
    if (code == ERR_DATA_LOSS && !line.args.count) {
        restore_print_choices(&config);
        failure = EXIT_DATA_LOST;
    }
    config_release(&config);
    option_release(config_options, &line.given);
    option_arguments_release(&line.args);
    return code == ERR_OK ? EXIT_SUCCESS : failure;
}
