#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/match/nearest.h"
#include "base/mem.h"
#include "client/cmd/command.h"
#include "client/cmd/foreign_words.h"
#include "client/text/help_fill.h"

/* ddpctl, the program that users type. This file finds the command, parses its options and answers --help. */

const struct command *const commands[] = {
    &cmd_submit,  &cmd_run,     &cmd_status, &cmd_top,      &cmd_logs,     &cmd_wait,    &cmd_cancel,
    &cmd_resize,  &cmd_restart, &cmd_tune,   &cmd_priority, &cmd_hold,     &cmd_release, &cmd_resume,
    &cmd_delete,  &cmd_metrics, &cmd_export, &cmd_verify,   &cmd_generate, &cmd_show,    &cmd_events,
    &cmd_why,     &cmd_check,   &cmd_bench,  &cmd_plan,     &cmd_web,      &cmd_nodes,   &cmd_drain,
    &cmd_undrain, &cmd_forget,  &cmd_tell,   &cmd_audit,    &cmd_whoami,   &cmd_version, NULL,
};

static const struct option_spec global_options[] = {
    {.name = "coordinator",
     .type = OPTION_TEXT,
     .offset = offsetof(struct globals, coordinator),
     .value = "ADDRESS",
     .help = "HOST:PORT or unix:/PATH",
     .default_text = "DDP_COORDINATOR, the config file, the local socket, localhost:29600"},
    {.name = "token",
     .type = OPTION_TEXT,
     .offset = offsetof(struct globals, token_file),
     .value = "FILE",
     .help = "file that holds your token (DDP_TOKEN is the token itself)"},
    {.name = "config",
     .type = OPTION_TEXT,
     .offset = offsetof(struct globals, config),
     .value = "FILE",
     .help = "config file, instead of ddpctl.yaml in /etc/ddp or ~/.config/ddp"},
    {.name = "tls-ca",
     .type = OPTION_TEXT,
     .offset = offsetof(struct globals, tls_ca),
     .value = "FILE",
     .help = "certificate authority; needs --tls-cert and --tls-key too"},
    {.name = "tls-cert",
     .type = OPTION_TEXT,
     .offset = offsetof(struct globals, tls_cert),
     .value = "FILE",
     .help = "your certificate"},
    {.name = "tls-key",
     .type = OPTION_TEXT,
     .offset = offsetof(struct globals, tls_key),
     .value = "FILE",
     .help = "the key of your certificate"},
    {.name = "insecure",
     .type = OPTION_FLAG,
     .offset = offsetof(struct globals, insecure),
     .help = "send no token"},
    {.name = "help",
     .letter = 'h',
     .type = OPTION_FLAG,
     .offset = offsetof(struct globals, help),
     .help = "print this help"},
    {0},
};

static int main_print_overview(void)
{
    CLEANUP(buf_release) struct buf out = {0};
    buf_puts(&out, "usage: ddpctl COMMAND [OPTIONS] [ARGUMENTS]\n\n"
                   "Trains models on the machines of a ddp cluster, or on this machine.\n\n");
    for (size_t i = 0; commands[i]; i++)
        buf_printf(&out, "  %-12s%s\n", commands[i]->name, commands[i]->summary);
    buf_puts(&out, "\n`ddpctl COMMAND --help` describes a command. `ddpctl run` needs no cluster:\n"
                   "  ddpctl run --procs-per-node 2 -- python3 train.py\n\n"
                   "The coordinator's address is the first of: --coordinator, DDP_COORDINATOR, the config "
                   "file, the local\n"
                   "socket, localhost:29600. Exit codes: 0 done, 1 failed, 2 usage error, 3 coordinator "
                   "unreachable. run,\n"
                   "wait and submit --follow exit with the code of the first rank that failed (128 + N for "
                   "signal N), or\n"
                   "with 125 if ddp ended the job (a time limit, a stall, no node left) or failed itself.\n");
    const struct term term = term_of(STDOUT_FILENO);
    help_fill(&term, &out);
    return stdout_put(&out) ? EXIT_DONE : EXIT_FAILED;
}

static int main_print_help(const struct command *c)
{
    CLEANUP(buf_release) struct buf out = {0};
    const char *line = c->usage;
    for (bool first = true; *line; first = false) {
        size_t len = strcspn(line, "\n");
        buf_printf(&out, "%s ddpctl %.*s\n", first ? "usage:" : "      ", (int)len, line);
        line += len + (line[len] == '\n');
    }
    buf_printf(&out, "\n%s\n", c->help);
    if (c->options && c->options->name)
        buf_putc(&out, '\n');
    if (c->options)
        option_help(c->options, &out);
    if (c->shared)
        option_help(c->shared, &out);
    if (!c->offline) {
        buf_puts(&out, "\n");
        option_help(global_options, &out);
    }
    const struct term term = term_of(STDOUT_FILENO);
    help_fill(&term, &out);
    return stdout_put(&out) ? EXIT_DONE : EXIT_FAILED;
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int main_report_no_command(const char *name)
{
    const char *names[64];
    size_t count = 0;
    struct err e;
    for (; commands[count]; count++)
        names[count] = commands[count]->name;
    const char *foreign = foreign_command(name), *near = nearest_name(name, names, count);
    if (*name == '-')
        err_set(&e, ERR_INVALID_ARGUMENT, "options come after the command: ddpctl COMMAND %s ...", name);
    else if (foreign)
        err_set(&e, ERR_INVALID_ARGUMENT, "ddpctl has no '%s': %s", name, foreign);
    else if (near)
        err_set(&e, ERR_INVALID_ARGUMENT, "no command '%s', did you mean '%s'?", name, near);
    else
        err_set(&e, ERR_INVALID_ARGUMENT, "no command '%s': `ddpctl --help` lists the commands", name);
    return error_print(&e);
}

static enum err_code main_check_arguments(const struct command *c, const struct option_arguments *args,
                                          struct err *e)
{
    if (args->tail && !c->tail)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s takes no '-- COMMAND': see `ddpctl %s --help`", c->name,
                       c->name);
    if (args->count < c->least || args->count > c->most)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: %s, usage: ddpctl %.*s", c->name,
                       args->count < c->least ? "an argument is missing" : "too many arguments",
                       (int)strcspn(c->usage, "\n"), c->usage);
    return ERR_OK;
}

static int main_run_command(const struct command *c, int argc, char **argv)
{
    struct globals globals = {0};
    void *options = xcalloc(1, c->size ? c->size : 1);
    struct option_set sets[4] = {{global_options, &globals}};
    size_t count = 1;
    struct invocation in = {.globals = &globals, .options = options, .argv = argv + 1};
    struct err e;
    int code;
    struct option_rules rules = c->rules;
    rules.foreign = foreign_option;
    rules.context = c->name;
    if (c->options)
        sets[count++] = (struct option_set){c->options, options};
    if (c->shared)
        sets[count++] = (struct option_set){c->shared, options};
    enum err_code parsed = option_parse(sets, argc, argv, &rules, &in.args, &e);
    /* --help wins over a mistake in the other options: the user may be asking about them */
    if (globals.help)
        code = main_print_help(c);
    else if (parsed != ERR_OK || main_check_arguments(c, &in.args, &e) != ERR_OK)
        code = error_print(&e);
    else
        code = c->run(&in);
    /* output that is cut off must not look like success to whoever reads the file */
    if (code == EXIT_DONE && stdout_lost())
        code = EXIT_FAILED;
    option_arguments_release(&in.args);
    option_release(c->options, options);
    option_release(c->shared, options);
    free(options);
    return code;
}

/* Opens /dev/null for reading as each standard descriptor that the caller closed. Otherwise a socket could get the
 * number: output would go there, and a rank that shares stdin would read from it. Reading then ends at once, and
 * writing still fails, as it should. The constructors of libraries run before main and may have taken the number
 * for themselves. Such a descriptor closes on exec, which none from the caller does, so the program starts again
 * with /dev/null in its place. */
static void main_occupy_standard_fds(char **argv)
{
    bool again = false;
    int null = open("/dev/null", O_RDONLY);
    while (null >= 0 && null <= STDERR_FILENO)
        null = open("/dev/null", O_RDONLY);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == FD_CLOEXEC)
            again = dup2(null, fd) == fd || again;
    close_fd(&null);
    if (again)
        execv("/proc/self/exe", argv);
}

static bool main_is_called(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, name) == 0;
}

/* Asks no coordinator, unlike the command `version`. */
static int main_print_version(void)
{
    CLEANUP(buf_release) struct buf out = {0};

    buf_puts(&out, "ddpctl " DDP_VERSION "\n");
    return stdout_put(&out) ? EXIT_DONE : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    main_occupy_standard_fds(argv);
    setlocale(LC_CTYPE, ""); /* plots use UTF-8 characters where the locale has them */
    signal(SIGPIPE, SIG_IGN);
    log_init("ddpctl", LOG_WARN);
    if (argc && main_is_called(argv[0], "ddprun")) { /* takes the place of torchrun in a script */
        bool version = argc > 1 && strcmp(argv[1], "--version") == 0;
        return version ? main_print_version() : main_run_command(&cmd_run, argc, argv);
    }
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        const struct command *c = argc > 2 ? command_find(argv[2]) : NULL;
        int code = c          ? main_print_help(c)
                   : argc > 2 ? main_report_no_command(argv[2])
                              : main_print_overview();
        return argc < 2 ? EXIT_USAGE : code;
    }
    if (strcmp(argv[1], "--version") == 0)
        return main_print_version();
    const struct command *c = command_find(argv[1]);
    return c ? main_run_command(c, argc - 1, argv + 1) : main_report_no_command(argv[1]);
}
