#include "daemon/coordinator/token.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crypto/id.h"
#include "base/crypto/secret.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"

#define TOKEN_BYTES 32

static const char *const token_prefixes[] = {
    [TOKEN_CLUSTER] = "", [TOKEN_AGENT] = "ddpa_", [TOKEN_USER] = "ddpu_"};

void token_make(char out[TOKEN_TEXT], enum token_kind kind)
{
    uint8_t secret[TOKEN_BYTES];

    id_random(secret, sizeof secret);
    strcpy(out, token_prefixes[kind]);
    hex_encode(out + strlen(out), secret, sizeof secret);
}

static bool token_valid(const char *text, enum token_kind kind)
{
    const size_t skip = strlen(token_prefixes[kind]);
    uint8_t secret[TOKEN_BYTES];

    return strncmp(text, token_prefixes[kind], skip) == 0 && hex_decode(secret, sizeof secret, text + skip);
}

static enum err_code token_file_create(const char *state, const char *path, enum token_kind kind,
                                       struct err *e)
{
    char line[TOKEN_TEXT + 1];

    if (file_mkdirs(state, 0700, e) != ERR_OK)
        return e->code;
    token_make(line, kind);
    strcat(line, "\n");
    return file_write_atomic(path, line, strlen(line), 0600, e);
}

enum err_code token_read(const char *state, enum token_kind kind, bool create, char **out, struct err *e)
{
    CLEANUP(free_text) char *path = paths_join(state, kind == TOKEN_AGENT ? "agent_token" : "token");
    CLEANUP(buf_release) struct buf text = {0};
    struct stat st;

    if (create && !file_exists(path) && token_file_create(state, path, kind, e) != ERR_OK)
        return e->code;
    if (stat(path, &st) != 0)
        return err_sys(e, errno, "%s (`ddp-coordinator init` creates it)", path);
    if (secret_read(path, 4096, &text, e) != ERR_OK)
        return e->code;
    /* A file written by hand may end in spaces or line ends. */
    while (text.len && strchr(" \r\n", text.data[text.len - 1]))
        text.data[--text.len] = '\0';
    if (text.len && token_valid(text.data, kind)) {
        *out = buf_steal(&text);
        return ERR_OK;
    }
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "%s: not %s: remove the file and run `ddp-coordinator init` to create a new one", path,
                   kind == TOKEN_AGENT ? "an agent token" : "a token of 64 hex digits");
}
