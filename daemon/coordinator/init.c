#include "daemon/coordinator/init.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/paths.h"

#define TOKEN_BYTES 32

static const char config_text[] =
    "# ddp-coordinator. Flags win over this file; what is commented out shows the default.\n"
    "\n"
    "# Jobs, nodes and events: a local disk.\n"
    "state: %s\n"
    "\n"
    "# Where agents, workers and ddpctl connect, besides the unix socket in the state directory.\n"
    "# listen: [\"%s\"]\n"
    "\n"
    "# Prometheus metrics at http://ADDRESS/metrics, or none.\n"
    "# metrics: 127.0.0.1:29601\n"
    "\n"
    "# TCP with certificates: the CA that every client's certificate must come from, and our own.\n"
    "# tls: {ca: /etc/ddp/ca.pem, cert: /etc/ddp/coordinator.pem, key: /etc/ddp/coordinator.key}\n"
    "\n"
    "# How often agents speak, and how long a node may be silent until it is lost.\n"
    "# heartbeat: 3s\n"
    "# node_timeout: 9s\n"
    "# settle: 5s             # nodes must have come by then for a running job to grow to them\n"
    "\n"
    "# How long finished jobs are kept, and how many of them.\n"
    "# retain: 14d\n"
    "# retain_jobs: 1000\n";

static enum err_code make_token(const char *path, struct err *e)
{
    uint8_t secret[TOKEN_BYTES];
    char text[2 * TOKEN_BYTES + 2];
    id_random(secret, sizeof secret);
    hex_encode(text, secret, sizeof secret);
    strcat(text, "\n");
    return file_write_atomic(path, text, strlen(text), 0600, e);
}

static enum err_code parse_token(const char *path, struct buf *text, char **out, struct err *e)
{
    uint8_t secret[TOKEN_BYTES];
    while (text->len && strchr(" \r\n", text->data[text->len - 1]))
        text->data[--text->len] = '\0';
    if (!text->len || !hex_decode(secret, sizeof secret, text->data))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%s: not a token of %d hex digits: remove the file and run"
                       " `ddp-coordinator init` again",
                       path, 2 * TOKEN_BYTES);
    *out = buf_steal(text);
    return ERR_OK;
}

enum err_code token_read(const char *state, bool make, char **out, struct err *e)
{
    CLEANUP(free_text) char *path = paths_join(state, "token");
    CLEANUP(buf_release) struct buf text = {0};
    struct stat st;
    if (make && !file_exists(path)) {
        if (file_mkdirs(state, 0700, e) != ERR_OK || make_token(path, e) != ERR_OK)
            return e->code;
    }
    if (stat(path, &st) != 0)
        return err_sys(e, errno, "%s (`ddp-coordinator init` makes it)", path);
    if (st.st_mode & 077)
        return err_set(e, ERR_PERMISSION_DENIED, "%s: others may read it, say `chmod 600 %s`", path, path);
    if (file_read(path, 4096, &text, e) != ERR_OK)
        return e->code;
    return parse_token(path, &text, out, e);
}

static enum err_code make_config(const char *path, const char *state, bool *made, struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(path);
    CLEANUP(free_text) char *listen = config_default_listen();
    *made = !file_exists(path);
    if (!*made)
        return ERR_OK;
    CLEANUP(free_text) char *text = xasprintf(config_text, state, listen);
    if (file_mkdirs(dirname(copy), 0755, e) != ERR_OK)
        return e->code;
    return file_write_atomic(path, text, strlen(text), 0644, e);
}

static void print_next(const struct config *config, const char *path, bool elsewhere)
{
    char host[256] = "localhost";
    const char *colon = config->listen && config->listen[0] ? strrchr(config->listen[0], ':') : NULL;
    CLEANUP(free_text) char *beside = paths_join(config->state, "coordinator.yaml");
    CLEANUP(free_text) char *flags = NULL;
    if (elsewhere)
        flags = strcmp(beside, path) == 0 ? xasprintf(" --state %s", config->state)
                                          : xasprintf(" --config %s", path);
    (void)gethostname(host, sizeof host - 1);
    printf("state   %s\n"
           "token   %s/token\n"
           "config  %s\n"
           "\n"
           "Start it here: ddp-coordinator%s%s\n"
           "Then paste on each node:\n"
           "  ssh %s ddp-coordinator token%s | ddp-agent join %s%s --token -\n"
           "%s",
           config->state, config->state, path, flags ? flags : "",
           elsewhere || geteuid() ? "" : " (or systemctl enable --now ddp-coordinator)", host,
           flags ? flags : "", host, colon ? colon : ":29600",
           geteuid() ? "" : "As root there, end it with --user NAME: whom jobs run as.\n");
}

/* The directory may have been there; the coordinator would refuse it later. */
static enum err_code check_closed(const char *state, struct err *e)
{
    struct stat st;
    if (stat(state, &st) != 0)
        return err_sys(e, errno, "%s", state);
    if (st.st_uid != geteuid())
        return err_set(e, ERR_PERMISSION_DENIED, "%s: not yours, say `chown %u %s` or --state DIR", state,
                       (unsigned)geteuid(), state);
    if (st.st_mode & 077)
        return err_set(e, ERR_PERMISSION_DENIED, "%s: others may enter it, say `chmod 700 %s`", state, state);
    return ERR_OK;
}

enum err_code init_run(const struct config *config, const char *config_path, bool elsewhere, struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    bool made;
    if (file_mkdirs(config->state, 0700, e) != ERR_OK || check_closed(config->state, e) != ERR_OK ||
        token_read(config->state, true, &token, e) != ERR_OK ||
        make_config(config_path, config->state, &made, e) != ERR_OK)
        return e->code;
    if (!made)
        fprintf(stderr, "ddp-coordinator: %s was there already and is left as it is\n", config_path);
    print_next(config, config_path, elsewhere);
    return ERR_OK;
}
