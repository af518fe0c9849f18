#include "client/run/run_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptor_pass.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/worker/terminal_offer.h"
#include "client/interrupts.h"

#define TYPED_MOST 4096 /* keys that wait for the program; more stay in the user's terminal */
#define KILL_MS 2000    /* three ^C within this time kill the job */

/* The modes that the user's terminal had, for a signal handler that must restore them. */
static struct termios user_modes;
static volatile sig_atomic_t user_modes_changed;

/* ---- the modes of the user's terminal */

static bool terminal_is_ours(void)
{
    return tcgetpgrp(STDIN_FILENO) == getpgrp(); /* else this process is in the background */
}

static void terminal_restore(void)
{
    if (user_modes_changed && terminal_is_ours())
        tcsetattr(STDIN_FILENO, TCSADRAIN, &user_modes);
    user_modes_changed = 0;
}

/* A signal that nobody catches: the terminal is restored before the signal ends the process. */
static void on_fatal_signal(int number)
{
    if (user_modes_changed && terminal_is_ours())
        tcsetattr(STDIN_FILENO, TCSANOW, &user_modes);
    raise(number); /* SA_RESETHAND: it takes effect when this handler has returned */
}

static void fatal_signals_catch(void)
{
    static const int numbers[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM,
                                  SIGXCPU, SIGABRT, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL};
    const struct sigaction action = {.sa_handler = on_fatal_signal, .sa_flags = SA_RESETHAND};

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(numbers[i], &action, NULL);
    }
}

/* Each key passes at once and means nothing here. Output is treated as the pseudo-terminal treats it: the log has what
 * the program wrote, so the user's terminal has to do what the program expects of its own. */
static struct termios terminal_raw_modes(const struct termios *program)
{
    struct termios raw = user_modes;
    raw.c_iflag &= ~(tcflag_t)(IGNBRK | BRKINT | PARMRK | ISTRIP | INLCR | IGNCR | ICRNL | IXON);
    raw.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | ISIG | IEXTEN);
    raw.c_oflag = program->c_oflag;
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    return raw;
}

/* A script or a Makefile may start several ddpctl in the foreground. Only one at a time reads the keys. If two did, each would
 * get some of the keys, and the second would save the raw modes of the first as the user's. */
static bool terminal_lock(struct run_terminal *t)
{
    if (t->lock < 0)
        t->lock = open("/proc/self/fd/0",
                       O_RDONLY | O_NOCTTY | O_CLOEXEC); /* a lock belongs to what open() returned */
    return t->lock < 0 || flock(t->lock, LOCK_EX | LOCK_NB) == 0;
}

static void terminal_unlock(struct run_terminal *t)
{
    close_fd(&t->lock);
    t->lock = -1;
}

static void terminal_take(struct run_terminal *t, const struct termios *program)
{
    struct termios now, raw;
    if (!terminal_lock(t) || tcgetattr(STDIN_FILENO, &now) != 0)
        return;
    if (!t->raw)
        user_modes = now;
    raw = terminal_raw_modes(program);
    /* even if a shell has set other modes meanwhile, as it does when it continues a stopped process */
    if (t->raw && now.c_lflag == raw.c_lflag && now.c_iflag == raw.c_iflag && now.c_oflag == raw.c_oflag)
        return;
    user_modes_changed = 1;
    t->raw = true;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

static void terminal_give_back(struct run_terminal *t)
{
    if (t->raw)
        terminal_restore();
    t->raw = false;
    terminal_unlock(t);
}

/* ---- the rank */

/* The rank has ended, or no process of it has the terminal any more. */
static void rank_leave(struct run_terminal *t)
{
    terminal_give_back(t);
    close_fd(&t->master);
    t->master = -1;
    buf_clear(&t->typed);
    if (t->interrupted && !t->interrupted_end) {
        t->interrupted_end = true;
        interrupts_add(SIGINT);
    }
    t->interrupted = false;
}

static void rank_enter(struct run_terminal *t, int master)
{
    if (t->master >= 0)
        rank_leave(t);
    t->master = master;
}

static void ranks_receive(struct run_terminal *t)
{
    char word;
    struct descriptor_message m = {.data = &word, .len = 1};
    struct err ignored;
    while (t->ours >= 0 && descriptors_receive(t->ours, &m, &ignored) == ERR_OK)
        if (m.count == 1)
            rank_enter(t, m.fds[0]);
}

static bool rank_has_left(const struct run_terminal *t)
{
    struct pollfd end = {.fd = t->master};
    return poll(&end, 1, 0) == 1 && end.revents & POLLHUP;
}

static void size_pass_on(const struct run_terminal *t)
{
    struct winsize user, program;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &user) == 0 && ioctl(t->master, TIOCGWINSZ, &program) == 0 &&
        memcmp(&user, &program, sizeof(user)) != 0)
        ioctl(t->master, TIOCSWINSZ, &user); /* the program gets SIGWINCH */
}

/* ---- keys */

static void keys_write(struct run_terminal *t)
{
    ssize_t n = t->typed.len ? write(t->master, t->typed.data, t->typed.len) : 0;
    if (n > 0)
        buf_consume(&t->typed, (size_t)n);
}

static void interrupt_note(struct run_terminal *t, int64_t now)
{
    const bool third = t->interrupts_ms[1] && now - t->interrupts_ms[1] < KILL_MS;
    t->interrupts_ms[1] = t->interrupts_ms[0];
    t->interrupts_ms[0] = now;
    if (!third)
        return;
    interrupts_add(SIGINT); /* stops the job, */
    interrupts_add(SIGINT); /* and kills it */
}

/* True while a shell with job control inside the rank's terminal has another process group in the foreground: ^Z stops that
 * group, and its shell goes on. Any other rank has no shell that could continue it. The kernel does not stop such a rank on ^Z. */
static bool rank_has_own_jobs(const struct run_terminal *t)
{
    const pid_t leader = tcgetsid(t->master), foreground = tcgetpgrp(t->master);
    return leader > 0 && foreground > 0 && foreground != leader;
}

/* As the terminal's driver does it: the whole process group stops, so that a shell sees its job stopped. */
static void process_stop(struct run_terminal *t)
{
    keys_write(t);
    terminal_give_back(t);
    kill(0, SIGTSTP);
}

/* Sends SIGINT to the whole process group, as the terminal's driver would: another ddpctl of the same script must get it, too.
 * This ddpctl's program gets ^C as a key. */
static void group_interrupt(void)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    if (sigaction(SIGINT, &ignore, &before) != 0)
        return;
    kill(0, SIGINT);
    sigaction(SIGINT, &before, NULL);
}

static void keys_take(struct run_terminal *t, const struct termios *program, const char *keys, size_t len,
                      int64_t now)
{
    const bool signals = program->c_lflag & ISIG;
    for (size_t i = 0; i < len; i++) {
        if (signals && (cc_t)keys[i] == program->c_cc[VSUSP] && !rank_has_own_jobs(t)) {
            process_stop(t);
            continue;
        }
        t->interrupted = signals && (cc_t)keys[i] == program->c_cc[VINTR];
        buf_append(&t->typed, &keys[i], 1);
        if (t->interrupted) {
            keys_write(t); /* before anything else ends the program */
            group_interrupt();
            interrupt_note(t, now);
        }
    }
}

static void keys_read(struct run_terminal *t, const struct termios *program, int64_t now)
{
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    char some[512];
    while (t->raw && t->typed.len < TYPED_MOST && poll(&keys, 1, 0) == 1 && keys.revents & POLLIN) {
        ssize_t n = read(STDIN_FILENO, some, sizeof(some));
        if (n <= 0)
            return; /* the terminal is gone: SIGHUP says so */
        keys_take(t, program, some, (size_t)n, now);
    }
}

/* ---- */

/* The rank's output is on this terminal as it was written: no label, no other place. */
static bool terminal_shows_rank(const struct run_request *r)
{
    return !r->redirects && !r->tee && !r->local_ranks && !r->terminal;
}

static void terminal_offer_send(struct run_terminal *t)
{
    struct terminal_offer offer = {.standard_error = isatty(STDERR_FILENO)};
    int pair[2];
    if (tcgetattr(STDIN_FILENO, &offer.modes) != 0 || ioctl(STDIN_FILENO, TIOCGWINSZ, &offer.size) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    t->ours = pair[0];
    t->theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, 32); /* above the numbers that the agent's descriptors get */
    close(pair[1]);
    if (t->theirs < 0 || send(t->ours, &offer, sizeof(offer), MSG_NOSIGNAL) != (ssize_t)sizeof(offer)) {
        close_fd(&t->ours);
        close_fd(&t->theirs);
        t->ours = t->theirs = -1;
        return;
    }
    fatal_signals_catch();
}

void run_terminal_open(struct run_terminal *t, const struct run_request *r)
{
    *t = (struct run_terminal){.ours = -1, .theirs = -1, .master = -1, .lock = -1};
    /* of a run over several hosts every ddpctl has a stdin, so the user has to say which rank gets it */
    if (r->attach == RUN_ATTACH_NO || (r->host && r->attach < 0))
        return;
    if (isatty(STDIN_FILENO) && (!isatty(STDOUT_FILENO) || !terminal_shows_rank(r)))
        return;
    snprintf(t->number, sizeof(t->number), "%lld", (long long)r->attach);
    t->attach = r->attach >= 0 ? t->number : "only";
    if (isatty(STDIN_FILENO))
        terminal_offer_send(t);
    if (isatty(STDIN_FILENO) && t->theirs < 0)
        t->attach = NULL;
}

void run_terminal_turn(struct run_terminal *t, int64_t now)
{
    struct termios program;
    ranks_receive(t);
    if (t->master < 0)
        return;
    if (interrupts_count()) { /* the job is being stopped: the next ^C is for ddpctl */
        terminal_give_back(t);
        return;
    }
    if (terminal_is_ours() && tcgetattr(t->master, &program) == 0) {
        terminal_take(t, &program);
        size_pass_on(t);
        keys_read(t, &program, now);
        keys_write(t);
    } else {
        t->raw = false; /* what set the modes since owns them */
        terminal_unlock(t);
        user_modes_changed = 0;
    }
    if (rank_has_left(t))
        rank_leave(t);
}

bool run_terminal_is_used(const struct run_terminal *t)
{
    return t->master >= 0;
}

void run_terminal_close(struct run_terminal *t)
{
    terminal_give_back(t);
    close_fd(&t->master);
    close_fd(&t->ours);
    close_fd(&t->theirs);
    buf_release(&t->typed);
    t->master = t->ours = t->theirs = -1;
}
