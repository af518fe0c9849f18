#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/coordinator/backup_commands.h"
#include "daemon/coordinator/command_line.h"
#include "daemon/coordinator/config.h"
#include "daemon/coordinator/init.h"
#include "daemon/coordinator/owner.h"
#include "daemon/coordinator/serve.h"
#include "daemon/coordinator/token.h"
#include "daemon/coordinator/user_commands.h"

/* Reads the command line and the configuration file into a struct config and runs one command. Without a
 * command, the coordinator serves (serve.h). */

enum { EXIT_USAGE = 2, EXIT_DATA_LOST = 3 }; /* systemd does not restart the coordinator after these */

/* Commands that are printed with a path must work in any directory. */
static char *path_absolute(const char *path)
{
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    return paths_join(here ? here : "/", path);
}

/* The path of the configuration file: --config, or else the file in the directory that --state names, since
 * such a directory is a cluster of its own, or else the default. */
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
    if (l->given.web) {
        free(c->web);
        c->web = xstrdup(l->given.web);
    }
    if (l->given.relay) {
        free(c->relay);
        c->relay = xstrdup(l->given.relay);
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
    /* An invalid value in the file is wrong usage, like one on the command line. */
    int failure = code == ERR_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILURE;
    if (code == ERR_OK) {
        code = command_run(&config, &line, path, &e);
        if (command_is(&line, "user") && code == ERR_INVALID_ARGUMENT)
            failure = EXIT_USAGE;
    }
    if (code != ERR_OK)
        fprintf(stderr, "ddp-coordinator: %s\n", e.msg);
    /* `restore` can also return DATA_LOSS, but its own message tells what is wrong with the backup. */
    if (code == ERR_DATA_LOSS && !line.args.count) {
        CLEANUP(buf_release) struct buf choices = {0};
        restore_put_choices(&config, &choices);
        fputs(choices.data, stderr);
        failure = EXIT_DATA_LOST;
    }
    config_release(&config);
    command_line_release(&line);
    return code == ERR_OK ? EXIT_SUCCESS : failure;
}
