#include "client/run/hosts/local_token.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/paths.h"
#include "base/secret.h"
#include "client/interrupts.h"

#define TOKEN_BYTES 32
#define TABLE_BYTES (16 << 20)
#define ROW_BYTES 256 /* a row of tcp6 has fewer than 200 */
#define LISTENS 0x0a  /* TCP_LISTEN, as the kernel prints states */

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

/* Whether the kernel's hexadecimal address is a loopback address or stands for all addresses. The kernel
 * prints the four bytes of a word in the machine's order. */
static bool address_is_local(const char *hex)
{
    uint32_t word[4] = {0};
    uint8_t b[16];
    size_t len = strlen(hex);
    for (size_t i = 0; i < len / 8 && i < 4; i++)
        sscanf(hex + 8 * i, "%8" SCNx32, &word[i]);
    memcpy(b, word, sizeof(b));
    static const uint8_t none[16] = {0}, mapped[12] = {[10] = 0xff, [11] = 0xff}, six[16] = {[15] = 1};
    if (len == 8)
        return b[0] == 127 || !word[0];
    return memcmp(b, none, sizeof(none)) == 0 || memcmp(b, six, sizeof(six)) == 0 ||
           (memcmp(b, mapped, sizeof(mapped)) == 0 && (b[12] == 127 || !word[3]));
}

/* The user who listens at the port of this row, if the row is of such a listener. */
static bool port_row_parse(const char *row, int64_t port, uid_t *user)
{
    char address[33];
    unsigned at, state, uid;
    /* sl: local:port remote:port state queues timer retransmits uid */
    if (sscanf(row, " %*u: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %u", address, &at, &state,
               &uid) != 4 ||
        state != LISTENS || at != port || !address_is_local(address))
        return false;
    *user = uid;
    return true;
}

enum port_owner local_port_owner_in(const char *table, int64_t port, uid_t user)
{
    enum port_owner owner = PORT_OF_NOBODY;
    const int stops = interrupts_count();
    for (const char *line = strchr(table, '\n'); line; line = strchr(line, '\n')) {
        char row[ROW_BYTES]; /* a copy, because sscanf measures the whole text that it is given */
        uid_t listener;
        line++;
        snprintf(row, sizeof(row), "%.*s", (int)strcspn(line, "\n"), line);
        if (interrupts_count() != stops)
            return PORT_OF_NOBODY;
        if (!port_row_parse(row, port, &listener))
            continue;
        if (listener != user)
            return PORT_OF_ANOTHER;
        owner = PORT_OF_THIS_USER;
    }
    return owner;
}

enum port_owner local_port_owner(int64_t port)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    enum port_owner owner = PORT_OF_NOBODY;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        CLEANUP(buf_release) struct buf text = {0};
        struct err e;
        if (file_read(tables[i], TABLE_BYTES, &text, &e) != ERR_OK || !text.len)
            continue; /* a machine without IPv6 has no second table */
        enum port_owner here = local_port_owner_in(text.data, port, geteuid());
        owner = here > owner ? here : owner;
    }
    return owner;
}
