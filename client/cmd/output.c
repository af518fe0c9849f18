#include "client/cmd/output.h"

#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "client/cmd/command.h"
#include "client/text/format.h"
#include "client/text/term_filter.h"

static bool is_lost, reader_left;

/* Waits while the pipe is full, even if it is non-blocking: other processes share it, and ssh makes its own output
 * non-blocking. */
static enum err_code output_write(int fd, const struct buf *b, struct err *e)
{
    for (size_t done = 0; done < b->len;) {
        const ssize_t n = write(fd, b->data + done, b->len - done);

        if (n >= 0) {
            done += (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            (void)poll(&p, 1, -1);
        } else if (errno != EINTR) {
            reader_left |= errno == EPIPE || errno == EIO; /* EIO: the terminal has closed */
            return err_sys(e, errno, "write");
        }
    }
    return ERR_OK;
}

bool stdout_put(struct buf *b)
{
    struct err e;
    errno = 0;
    enum err_code code = output_write(STDOUT_FILENO, b, &e);
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

bool output_reader_left(void)
{
    return reader_left;
}

bool stderr_put(struct buf *b)
{
    struct err e;
    enum err_code code = output_write(STDERR_FILENO, b, &e);
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
