#include "daemon/supervisor/pseudo_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor_pass.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#define HELD_MS 20 /* the \n of a pair may come this much later than its \r */
#define SLAVE_MODE 0620
#define END_REST (1 << 20) /* more than a terminal holds; more than this means that somebody still writes */

enum err_code terminal_link_open(struct terminal_link *link, int socket, struct err *e)
{
    ssize_t n;

    *link = (struct terminal_link){.socket = -1};
    if (socket < 0)
        return ERR_OK;
    n = recv(socket, &link->offer, sizeof(link->offer), MSG_PEEK | MSG_DONTWAIT);
    if (n != (ssize_t)sizeof(link->offer))
        return err_set(e, ERR_UNAVAILABLE, "no terminal is offered on descriptor %d", socket);
    (void)fcntl(socket, F_SETFD, FD_CLOEXEC);
    link->socket = socket;
    return ERR_OK;
}

enum err_code pseudo_terminal_open(struct pseudo_terminal *t, const struct terminal_offer *offer, uid_t user,
                                   int *slave, struct err *e)
{
    CLEANUP(close_fd) int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    CLEANUP(close_fd) int other = -1;

    if (master < 0 || grantpt(master) || unlockpt(master))
        return err_sys(e, errno, "pseudo-terminal");
    /* not by its name, which may mean another terminal in this mount namespace */
    other = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (other < 0)
        return err_sys(e, errno, "pseudo-terminal");
    if (tcsetattr(other, TCSANOW, &offer->modes) || ioctl(other, TIOCSWINSZ, &offer->size))
        return err_sys(e, errno, "pseudo-terminal");
    if (user != geteuid() && (fchown(other, user, (gid_t)-1) || fchmod(other, SLAVE_MODE)))
        return err_sys(e, errno, "pseudo-terminal");
    *t = (struct pseudo_terminal){.master = master, .log = -1};
    *slave = other;
    master = other = -1;
    return ERR_OK;
}

enum err_code pseudo_terminal_show(const struct pseudo_terminal *t, const struct terminal_link *link,
                                   struct err *e)
{
    char word = 't';
    const struct descriptor_message m = {.data = &word, .len = 1, .fds = {t->master}, .count = 1};

    return descriptors_send(link->socket, &m, e);
}

static void terminal_close(struct pseudo_terminal *t)
{
    close_fd(&t->master);
    close_fd(&t->log);
    t->master = t->log = -1;
}

static void terminal_log_put(struct pseudo_terminal *t, const char *data, size_t len)
{
    struct err e;

    if (!len || !fd_write_all(t->log, data, len, &e) || t->failed)
        return;
    t->failed = true; /* a full disk: the rank continues, and output that does not fit is lost */
    log_error("terminal_output_lost", "why=%s", LOG_Q(e.msg));
}

/* Whether the terminal currently writes \r\n for each \n. */
static bool terminal_adds_returns(const struct pseudo_terminal *t)
{
    struct termios modes;

    return !tcgetattr(t->master, &modes) && (modes.c_oflag & OPOST) && (modes.c_oflag & ONLCR);
}

/* Removes the \r before each \n in place. A \r at the end is held back. Returns the new length. */
static size_t terminal_plain(struct pseudo_terminal *t, char *data, size_t len)
{
    size_t kept = 0;

    for (size_t i = 0; i < len; i++)
        if (data[i] != '\r' || (i + 1 < len && data[i + 1] != '\n'))
            data[kept++] = data[i];
    t->held = data[len - 1] == '\r';
    return kept;
}

void pseudo_terminal_copy(struct pseudo_terminal *t, size_t limit, int64_t now)
{
    char data[1 + 16384];

    while (t->master >= 0 && limit) {
        /* the first byte is for a \r that was held back */
        ssize_t n = read(t->master, data + 1, sizeof(data) - 1 < limit ? sizeof(data) - 1 : limit);
        char *from = data + !t->held;
        size_t len;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) { /* EIO: no process has the other side */
            terminal_log_put(t, "\r", t->held);
            terminal_close(t);
            return;
        }
        limit -= (size_t)n;
        len = (size_t)n + t->held;
        data[0] = '\r';
        t->held = false;
        t->held_at = now;
        if (terminal_adds_returns(t))
            len = terminal_plain(t, from, len);
        terminal_log_put(t, from, len);
    }
}

int64_t pseudo_terminal_tick(struct pseudo_terminal *t, int64_t now)
{
    if (t->master < 0 || !t->held)
        return INT64_MAX;
    if (now < t->held_at + HELD_MS)
        return t->held_at + HELD_MS;
    terminal_log_put(t, "\r", 1);
    t->held = false;
    return INT64_MAX;
}

void pseudo_terminal_end(struct pseudo_terminal *t, int64_t now)
{
    pseudo_terminal_copy(t, END_REST, now);
    if (t->master < 0)
        return;
    terminal_log_put(t, "\r", t->held);
    terminal_close(t);
}
