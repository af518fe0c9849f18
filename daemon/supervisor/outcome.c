#include "daemon/supervisor/outcome.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_at.h"
#include "base/json.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/log_place.h"

#define ERROR_FILE_MAX (1 << 20)

/* The directory belongs to the job's user, who may put a FIFO there, or a link to a file that only root may
 * read. So the open descriptor is checked, never the path. -1: there is no such plain file. */
static int user_file_open(const char *log_dir, const char *name, struct stat *st)
{
    CLEANUP(close_fd) int dir = -1;
    struct err ignored;
    int fd;

    if (log_place_open(log_dir, &dir, &ignored) || file_at_open_plain(dir, name, O_RDONLY, &fd, st, &ignored))
        return -1;
    return fd;
}

/* The last TAIL_BYTES of the file, without a first line that was cut. */
static char *file_read_end(const char *log_dir, const char *name)
{
    struct stat st;
    CLEANUP(close_fd) int fd = user_file_open(log_dir, name, &st);
    CLEANUP(free_text) char *text = xcalloc(1, TAIL_BYTES + 1);
    off_t from;
    ssize_t n;
    char *line;

    if (fd < 0)
        return NULL;
    from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
    n = pread(fd, text, TAIL_BYTES, from);
    if (n <= 0)
        return NULL;
    for (ssize_t i = 0; i < n; i++)
        if (!text[i]) /* the tail is a text from here on */
            text[i] = '?';
    text[n] = '\0';
    line = from ? strchr(text, '\n') : NULL;
    return line && line[1] ? xstrdup(line + 1) : steal(text);
}

char *outcome_tail(const char *log_dir, const char *name)
{
    CLEANUP(free_text) char *text = file_read_end(log_dir, name);
    size_t len = text ? strlen(text) : 0;
    int lines = 0;
    char *at;

    while (len && text[len - 1] == '\n')
        text[--len] = '\0';
    if (!len)
        return NULL;
    for (at = text + len; at > text; at--)
        if (at[-1] == '\n' && ++lines == TAIL_LINES)
            break;
    return xstrdup(at);
}

static bool file_read_whole(const char *log_dir, const char *name, struct buf *text)
{
    struct stat st;
    CLEANUP(close_fd) int fd = user_file_open(log_dir, name, &st);
    char piece[16384];
    ssize_t n;

    if (fd < 0)
        return false;
    while ((n = read(fd, piece, sizeof(piece))) > 0 && text->len <= ERROR_FILE_MAX)
        buf_append(text, piece, (size_t)n);
    return n == 0 && text->len > 0;
}

/* The file is torchrun's: {"message": {"message": "...", "extraInfo": {...}}}, or {"message": "..."}. */
char *outcome_message(const char *log_dir)
{
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(json_release) json_t *obj = NULL;
    const json_t *message;
    const char *line;
    struct err ignored;

    if (!file_read_whole(log_dir, "error.json", &text) ||
        json_parse(text.data, text.len, ERROR_FILE_MAX, &obj, &ignored))
        return NULL;
    message = json_object_get(obj, "message");
    line = json_is_object(message) ? json_get_text(message, "message", NULL) : json_string_value(message);
    if (!line || !*line)
        return NULL;
    return xasprintf("%.*s", (int)strcspn(line, "\n") < 500 ? (int)strcspn(line, "\n") : 500, line);
}

/* Looks for the whole number: a longer number, such as a step or a job id, may contain the digits of the port. */
static bool text_has_number(const char *text, int number)
{
    char digits[16];
    int len = snprintf(digits, sizeof(digits), "%d", number);

    for (const char *at = text; (at = strstr(at, digits)); at++)
        if ((at == text || !isdigit((unsigned char)at[-1])) && !isdigit((unsigned char)at[len]))
            return true;
    return false;
}

static bool text_has_busy_address(const char *text)
{
    return strstr(text, "EADDRINUSE") || strcasestr(text, "address already in use");
}

bool outcome_port_busy(const struct spawn_order *order, const char *tail)
{
    if (!order->master_port || !tail)
        return false;
    return text_has_number(tail, order->master_port) && text_has_busy_address(tail);
}

bool outcome_address_busy(const struct spawn_order *order, const char *tail)
{
    return order->master_port && order->store && tail && text_has_busy_address(tail) &&
           !text_has_number(tail, order->master_port);
}
