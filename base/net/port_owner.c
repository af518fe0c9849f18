#include "base/net/port_owner.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define TABLE_BYTES (16 << 20)
#define ROW_BYTES 256 /* a row of tcp6 has fewer than 200 */
#define LISTENS 0x0a  /* TCP_LISTEN, as the kernel prints states */

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

enum port_owner port_owner_in(const char *table, int64_t port, uid_t user)
{
    enum port_owner owner = PORT_OF_NOBODY;
    char mark[16];
    /* Only rows that have the port in some column are parsed: a table may have 100,000 rows, and parsing is slow. */
    snprintf(mark, sizeof(mark), ":%04" PRIX64 " ", port);
    for (const char *hit = table; (hit = strstr(hit, mark)); hit += strcspn(hit, "\n")) {
        const char *line = hit;
        char row[ROW_BYTES]; /* a copy, because sscanf measures the whole text that it is given */
        uid_t listener;
        while (line > table && line[-1] != '\n')
            line--;
        snprintf(row, sizeof(row), "%.*s", (int)strcspn(line, "\n"), line);
        if (!port_row_parse(row, port, &listener))
            continue;
        if (listener != user)
            return PORT_OF_ANOTHER;
        owner = PORT_OF_THIS_USER;
    }
    return owner;
}

enum port_owner port_owner_find(int64_t port)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    enum port_owner owner = PORT_OF_NOBODY;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        CLEANUP(buf_release) struct buf text = {0};
        struct err e;
        if (file_read(tables[i], TABLE_BYTES, &text, &e) || !text.len)
            continue; /* a machine without IPv6 has no second table */
        const enum port_owner here = port_owner_in(text.data, port, geteuid());
        owner = here > owner ? here : owner;
    }
    return owner;
}
