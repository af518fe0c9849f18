#include "client/top/top_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "client/text/term.h"

#define ENTER "\033[?1049h\033[?25l" /* the second screen, no cursor */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

/* For signal handlers, which any thread may run. */
static struct termios user_modes, own_modes;
static volatile sig_atomic_t is_taken;
static int wake_pipe[2] = {-1, -1};

/* ---- both directions: they call only what a signal handler may call */

static void top_write_text(const char *text)
{
    const size_t len = strlen(text);
    ssize_t done = write(STDOUT_FILENO, text, len);

    (void)done; /* the terminal is gone: nothing is left to restore */
}

static void top_terminal_take(void)
{
    is_taken = 1;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &own_modes);
    top_write_text(ENTER);
}

static void top_terminal_give_back(void)
{
    if (!is_taken)
        return;
    is_taken = 0;
    top_write_text(LEAVE);
    tcsetattr(STDIN_FILENO, TCSANOW, &user_modes);
}

/* ---- signals */

static void top_wake_loop(void)
{
    const int before = errno;
    ssize_t done = write(wake_pipe[1], "", 1);

    (void)done; /* full: the loop wakes anyway */
    errno = before;
}

static void top_on_end(int number)
{
    top_terminal_give_back();
    raise(number); /* SA_RESETHAND: it takes effect when this handler has returned */
}

static void top_on_stop(int number)
{
    (void)number;
    top_terminal_give_back();
    raise(SIGSTOP);
}

static void top_on_continue(int number)
{
    (void)number;
    /* in the background this stops the process again, until `fg` */
    top_terminal_take();
    top_wake_loop();
}

static void top_on_resize(int number)
{
    (void)number;
    top_wake_loop();
}

static void top_signals_catch(void)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = top_on_end, .sa_flags = SA_RESETHAND};

    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        sigaction(ends[i], &action, NULL);
    action = (struct sigaction){.sa_handler = top_on_stop, .sa_flags = SA_RESTART};
    sigaction(SIGTSTP, &action, NULL);
    action.sa_handler = top_on_continue;
    sigaction(SIGCONT, &action, NULL);
    action.sa_handler = top_on_resize;
    sigaction(SIGWINCH, &action, NULL);
}

static void top_signals_release(void)
{
    static const int numbers[] = {SIGTSTP, SIGCONT, SIGWINCH};

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        signal(numbers[i], SIG_DFL);
}

/* ---- the screen */

bool top_terminal_possible(void)
{
    return isatty(STDIN_FILENO) && term_of(STDOUT_FILENO).live;
}

bool top_terminal_open(void)
{
    if (tcgetattr(STDIN_FILENO, &user_modes) != 0 || pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    own_modes = user_modes;
    own_modes.c_lflag &= ~(tcflag_t)(ECHO | ICANON); /* ^C and ^Z stay signals */
    own_modes.c_cc[VMIN] = 0;
    own_modes.c_cc[VTIME] = 0;
    top_signals_catch();
    top_terminal_take();
    return true;
}

void top_terminal_close(void)
{
    top_signals_release();
    top_terminal_give_back();
    close_fd(&wake_pipe[0]);
    close_fd(&wake_pipe[1]);
}

void top_terminal_draw(const struct buf *lines)
{
    CLEANUP(buf_release) struct buf out = {0};
    struct err e;
    const char *at = lines->len ? lines->data : "";

    buf_puts(&out, "\033[?7l\033[H"); /* a character that is wider than expected is cut, not wrapped */
    while (*at) {
        const size_t len = strcspn(at, "\n");
        buf_append(&out, at, len);
        buf_puts(&out, "\033[K");
        at += len + (at[len] == '\n');
        if (*at)
            buf_puts(&out, "\r\n"); /* none behind the last line, which would scroll */
    }
    buf_puts(&out, "\033[J\033[?7h");
    if (fd_write_all(STDOUT_FILENO, out.data, out.len, &e) != ERR_OK)
        buf_clear(&out); /* the next read says that the terminal is gone */
}

static void top_drain_wakes(void)
{
    char bytes[64];

    while (read(wake_pipe[0], bytes, sizeof(bytes)) > 0)
        ;
}

long top_terminal_wait(int64_t wait_ms, char *bytes, size_t size)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = wake_pipe[0], .events = POLLIN}};

    if (poll(fds, ARRAY_LEN(fds), wait_ms > 0 ? (int)wait_ms : 0) <= 0)
        return 0;
    top_drain_wakes();
    if (!fds[0].revents)
        return 0;
    const ssize_t count = read(STDIN_FILENO, bytes, size);
    if (count > 0)
        return (long)count;
    return count == 0 ? -1 : errno == EINTR || errno == EAGAIN ? 0 : -1;
}
