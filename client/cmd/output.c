#include "client/cmd/output.h"

#include <errno.h>
#include <langinfo.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "client/cmd/command.h"
#include "client/text/format.h"
#include "client/text/term_filter.h"

static bool is_lost;

bool stdout_put(struct buf *b)
{
    struct err e;
    errno = 0;
    enum err_code code = b->len ? fd_write_all(STDOUT_FILENO, b->data, b->len, &e) : ERR_OK;
    /* A closed pipe is the reader's choice (`| head`) and needs no message. */
    if (code != ERR_OK && errno != EPIPE && !is_lost) {
        is_lost = true;
        CLEANUP(buf_release) struct buf talk = {0};
        buf_printf(&talk, "ddpctl: stdout: %s\n", e.msg);
        stderr_put(&talk);
    }
    buf_clear(b);
    return code == ERR_OK;
}

void screen_fold(struct buf *b)
{
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        text_fold_ascii(b);
}

bool screen_put(struct buf *b)
{
    screen_fold(b);
    return stdout_put(b);
}

bool stdout_lost(void)
{
    return is_lost;
}

bool stderr_put(struct buf *b)
{
    struct err e;
    enum err_code code = b->len ? fd_write_all(STDERR_FILENO, b->data, b->len, &e) : ERR_OK;
    buf_clear(b);
    return code == ERR_OK;
}

int error_print(const struct err *e)
{
    CLEANUP(buf_release) struct buf line = {0};
    const int code = error_put(e, &line);

    stderr_put(&line);
    return code;
}

void error_print_keep(const struct err *e, int *first)
{
    const int code = error_print(e);

    *first = *first == EXIT_DONE ? code : *first;
}

int error_put(const struct err *e, struct buf *out)
{
    struct term_filter filter = {0};
    buf_puts(out, "ddpctl: ");
    /* the message may quote text of a job or a node, with control sequences in it */
    term_filter_add(&filter, e->msg, strlen(e->msg), out);
    term_filter_finish(&filter, out);
    buf_putc(out, '\n');
    switch (e->code) {
    case ERR_INVALID_ARGUMENT:
        return EXIT_USAGE;
    case ERR_UNAVAILABLE:
        return EXIT_UNREACHABLE;
    default:
        return EXIT_FAILED;
    }
}
