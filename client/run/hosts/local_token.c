#include "client/run/hosts/local_token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crypto/id.h"
#include "base/crypto/secret.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"

#define TOKEN_BYTES 32

/* The user's own state directory, for root too: /var/lib/ddp belongs to the coordinator's account. */
static char *local_token_dir(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/')
        return paths_join(state, "ddp");
    return xasprintf("%s/.local/state/ddp", home && *home == '/' ? home : "");
}

char *local_token_file(void)
{
    CLEANUP(free_text) char *dir = local_token_dir();
    return paths_join(dir, "run_token");
}

/* Makes the file in one step: of two ddpctl that start together, one makes it and both read it. */
static enum err_code local_token_create(const char *path, struct err *e)
{
    uint8_t secret[TOKEN_BYTES];
    char line[2 * TOKEN_BYTES + 2], name[ID_TEXT];
    id_text(name);
    CLEANUP(free_text) char *part = xasprintf("%s.%s", path, name);
    CLEANUP(close_fd) int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "%s", part);
    id_random(secret, sizeof(secret));
    hex_encode(line, secret, sizeof(secret));
    strcat(line, "\n");
    enum err_code code = fd_write_all(fd, line, strlen(line), e);
    if (code == ERR_OK && link(part, path) != 0 && errno != EEXIST)
        code = err_sys(e, errno, "%s", path);
    unlink(part);
    return code;
}

enum err_code local_token_get(char **token, struct err *e)
{
    CLEANUP(free_text) char *dir = local_token_dir();
    CLEANUP(free_text) char *path = local_token_file();
    CLEANUP(buf_release) struct buf text = {0};
    uint8_t secret[TOKEN_BYTES];
    if (!file_exists(path) && (file_mkdirs(dir, 0700, e) != ERR_OK || local_token_create(path, e) != ERR_OK))
        return err_wrap(e, "no token was given, and one for this machine cannot be made");
    if (secret_read_own(path, 4096, &text, e) != ERR_OK)
        return e->code;
    buf_putc(&text, 0);
    text.data[strcspn(text.data, "\n")] = 0;
    if (!hex_decode(secret, sizeof(secret), text.data))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: not a token of 64 hex digits; remove the file", path);
    *token = buf_steal(&text);
    return ERR_OK;
}
