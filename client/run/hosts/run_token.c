#include "client/run/hosts/run_token.h"

#include <stdlib.h>
#include <string.h>

#include "base/crypto/id.h"
#include "base/crypto/secret.h"
#include "base/mem.h"
#include "client/token_files.h"

#define TOKEN_BYTES 32
#define CHARACTERS_MIN 16
#define FILE_BYTES 4096
#define MAKE "openssl rand -hex 32 makes one"

static enum err_code run_token_read_file(const char *path, char **token, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    if (secret_read(path, FILE_BYTES, &text, e) != ERR_OK)
        return e->code;
    buf_putc(&text, 0);
    text.data[strcspn(text.data, "\r\n")] = 0;
    *token = buf_steal(&text);
    return ERR_OK;
}

/* *from: the name of the source, for messages. */
static enum err_code run_token_search(const struct globals *g, char **token, char **from, struct err *e)
{
    CLEANUP(free_text) char *found = g->token_file ? xstrdup(g->token_file) : token_file_find(TOKEN_OF_RUN);
    CLEANUP(buf_release) struct buf places = {0};
    const char *value = getenv("DDP_TOKEN");
    if (!g->token_file && value && *value) {
        *from = xstrdup("DDP_TOKEN");
        *token = xstrdup(value);
        return ERR_OK;
    }
    if (!found) {
        token_files_list(TOKEN_OF_RUN, &places);
        return err_set(e, ERR_UNAUTHENTICATED,
                       "the hosts of a run need a token: give each the same in one of DDP_TOKEN, %s (" MAKE
                       "), or use --insecure",
                       places.data);
    }
    *from = steal(found);
    return run_token_read_file(*from, token, e);
}

/* A token in another form than the coordinator's: every host derives the same 64 digits from it. */
static char *run_token_derive(const char *text)
{
    uint8_t digest[DIGEST_BYTES];
    char hex[DIGEST_TEXT];
    digest_sha256(digest, text, strlen(text));
    hex_encode(hex, digest, sizeof(digest));
    return xstrdup(hex);
}

enum err_code run_token_find(const struct globals *globals, char **token, struct err *e)
{
    CLEANUP(free_text) char *found = NULL;
    CLEANUP(free_text) char *from = NULL;
    uint8_t secret[TOKEN_BYTES];
    *token = NULL;
    enum err_code code = globals->insecure ? ERR_OK : run_token_search(globals, &found, &from, e);
    unsetenv("DDP_TOKEN");
    if (code != ERR_OK || globals->insecure)
        return code;
    for (size_t len = strlen(found); len && strchr(" \t\r\n", found[len - 1]); len--)
        found[len - 1] = 0; /* a line's end does not belong to the token */
    if (strlen(found) < CHARACTERS_MIN)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: a token has %d characters or more; " MAKE, from,
                       CHARACTERS_MIN);
    *token = hex_decode(secret, sizeof(secret), found) ? steal(found) : run_token_derive(found);
    return ERR_OK;
}
