#include "daemon/agent/join.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf/program.h"
#include "base/crypto/secret.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/settings.h"
#include "proto/rpc_address.h"

static const struct program program = {
    .name = "ddp-agent join",
    .usage = "ddp-agent join HOST:PORT --token FILE|- [OPTIONS]",
    .help =
        "Writes the token file and the config file of this node's agent, with the coordinator at HOST:PORT and\n"
        "the values of the options. For example, on a new node, with the coordinator on box1:\n"
        "  ssh box1 ddp-coordinator token --agent | ddp-agent join box1:29600 --token -",
};

/* --help, --version and unknown options end the program. */
static enum err_code join_options_read(struct settings *s, int argc, char **argv, struct err *e)
{
    CLEANUP(option_arguments_release) struct option_arguments args = {0};
    const struct option_set sets[] = {{settings_join_options, s}, {NULL, NULL}};
    int code = program_parse(&program, sets, argc, argv, &args);

    if (code >= 0)
        exit(code);
    if (args.count != 1 || args.tail || !s->token_file)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "give an address and a token: ddp-agent join HOST:PORT --token FILE|-");
    if (settings_check_run_as(s->run_as, s->user, e))
        return e->code;
    if (s->user && !getpwnam(s->user))
        return err_set(e, ERR_INVALID_ARGUMENT, "user '%s' does not exist on this node", s->user);
    s->coordinator = xstrdup(args.list[0]);
    return ERR_OK;
}

static enum err_code join_token_read(const char *from, struct buf *out, struct err *e)
{
    const bool from_stdin = strcmp(from, "-") == 0;

    if (from_stdin ? file_read("/dev/stdin", 4096, out, e) : secret_read(from, 4096, out, e))
        return e->code;
    if (out->data)
        out->len = strcspn(out->data, " \t\r\n");
    if (!out->data || !out->len)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s holds no token", from);
    out->data[out->len] = '\0';
    return ERR_OK;
}

/* The agent token has its own file, because ddpctl reads `token` and cannot use the agent token. */
static bool token_is_agents(const char *token)
{
    return strncmp(token, "ddpa_", 5) == 0;
}

/* An agent of root must be told the account that jobs run under: the config has a line to be filled in. */
static void config_print(const struct settings *o, const char *token_file, struct buf *out)
{
    buf_printf(out, "# Written by ddp-agent join. Flags override it. All keys: share/ddp/agent.yaml.\n");
    buf_printf(out, "coordinator: \"%s\"\ntoken: \"%s\"\n", o->coordinator, token_file);
    if (o->node)
        buf_printf(out, "node: \"%s\"\n", o->node);
    if (o->address)
        buf_printf(out, "address: \"%s\"\n", o->address);
    if (o->user)
        buf_printf(out, "user: \"%s\"\n", o->user);
    else if (o->run_as)
        buf_printf(out, "run_as: %s\n", o->run_as);
    else if (geteuid() == 0)
        buf_puts(
            out,
            "# the account that jobs run under; root's agent does not start without it\n#user: nobody\n");
}

/* Makes the directory of the config file, and returns the file's absolute path without "..". The file contains the path of the token,
 * and the agent may be started in another directory. */
static enum err_code config_place(const char *named, char **out, struct err *e)
{
    CLEANUP(free_text) char *path = named ? xstrdup(named) : paths_config("agent.yaml");
    CLEANUP(free_text) char *dir_text = xstrdup(path);
    const char *dir = dirname(dir_text), *slash = strrchr(path, '/');

    if (file_mkdirs(dir, 0755, e))
        return e->code;
    CLEANUP(free_text) char *real = path[0] == '/' ? xstrdup(dir) : realpath(dir, NULL);
    if (!real)
        return err_sys(e, errno, "%s", dir);
    *out = paths_join(real, slash ? slash + 1 : path);
    return ERR_OK;
}

enum err_code agent_join(int argc, char **argv, struct err *e)
{
    CLEANUP(settings_release) struct settings o = {0};
    CLEANUP(buf_release) struct buf token = {0};
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(free_text) char *usual = paths_config("agent.yaml");
    CLEANUP(free_text) char *config = NULL;
    CLEANUP(free_text) char *dir = NULL;
    CLEANUP(free_text) char *token_file = NULL;
    struct rpc_address at;

    if (join_options_read(&o, argc, argv, e) || rpc_address_parse(o.coordinator, &at, e) ||
        join_token_read(o.token_file, &token, e) || config_place(o.config_file, &config, e))
        return e->code;
    /* a config file that --config names is replaced silently; for the usual one the user is told */
    dir = xstrdup(config);
    token_file = paths_join(dirname(dir), token_is_agents(token.data) ? "agent.token" : "token");
    if (file_exists(config) && !o.config_file)
        fprintf(stderr, "ddp-agent: replacing %s\n", config);
    buf_putc(&token, '\n');
    config_print(&o, token_file, &text);
    if (file_write_atomic(token_file, token.data, token.len, 0600, e) ||
        file_write_atomic(config, text.data, text.len, 0644, e))
        return e->code;
    fprintf(stderr, "wrote %s and %s\n", config, token_file);
    if (geteuid() == 0 && !o.user && !o.run_as)
        fprintf(stderr, "name the account that jobs run under (user:) in %s, then run:\n", config);
    /* The systemd unit reads the usual file only. */
    if (strcmp(config, usual) != 0)
        printf("ddp-agent --config %s &\n", config);
    else
        puts(geteuid() == 0 ? "systemctl enable --now ddp-agent" : "ddp-agent &");
    return ERR_OK;
}
