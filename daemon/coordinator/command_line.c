#include "daemon/coordinator/command_line.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/match/nearest.h"
#include "base/mem.h"

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
     .help = "exit when the other end of this pipe is closed"},
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
    .help =
        "Without a command, serves until SIGTERM: keeps a cluster's jobs, nodes and ranks in one SQLite file,\n"
        "and tells every ddp-agent what to run. Run one coordinator for each cluster. It can be killed and\n"
        "restarted at any time: jobs continue meanwhile, and nothing is lost.\n"
        "\n"
        "init         create the state directory, the tokens and the configuration file, and print the\n"
        "             command that adds a node\n"
        "token        print the cluster token, which allows everything except managing users; with\n"
        "             --agent, print the agent token, which only lets a node join and run jobs\n"
        "user add     add a user and print the user's token, which is shown only once\n"
        "user list    list the users\n"
        "user remove  remove a user; the user's token stops working at once\n"
        "user token   replace a user's token by a new one and print it\n"
        "backup       copy the database; works while the coordinator runs\n"
        "restore      replace the database by a backup; stop the coordinator first",
    .more =
        "Signals: SIGTERM and SIGINT finish the calls in progress and exit; running jobs are not affected.\n"
        "Environment: DDP_LOG=debug|info|warn|error; NOTIFY_SOCKET as set by systemd.\n"
        "Exit code: 0 stopped as requested, 1 failed, 2 wrong usage, 3 the database is damaged or has lost\n"
        "commits.",
};

static const struct {
    const char *name;
    size_t arguments_min, arguments_max;
} commands[] = {
    {"init", 0, 0}, {"token", 0, 0}, {"user", 0, SIZE_MAX}, {"backup", 0, 1}, {"restore", 1, 1},
};

bool command_is(const struct command_line *l, const char *name)
{
    return l->args.count && strcmp(l->args.list[0], name) == 0;
}

static bool descriptor_is_pipe(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* Checks what the table of options cannot express: which option belongs to which command. */
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
    /* `tail` is what follows "--", which no command takes. */
    if (l->args.tail || (l->args.count && l->args.count - 1 > commands[at].arguments_max))
        return err_set(e, ERR_INVALID_ARGUMENT, "too many arguments");
    if (l->args.count && l->args.count - 1 < commands[at].arguments_min)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: FILE is missing", l->args.list[0]);
    if (l->role && !command_is(l, "user"))
        return err_set(e, ERR_INVALID_ARGUMENT, "option '--role' works only with user add");
    if (l->agent && !command_is(l, "token"))
        return err_set(e, ERR_INVALID_ARGUMENT, "option '--agent' works only with token");
    if (l->lifeline >= 0 && !descriptor_is_pipe(l->lifeline))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "invalid value for option '--lifeline': descriptor %d is not a pipe", l->lifeline);
    return ERR_OK;
}

void command_line_read(struct command_line *l, int argc, char **argv)
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

void command_line_release(struct command_line *l)
{
    option_release(config_options, &l->given);
    option_arguments_release(&l->args);
}
