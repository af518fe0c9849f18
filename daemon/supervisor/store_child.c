#include "daemon/supervisor/store_child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/supervisor/child.h"
#include "daemon/supervisor/spawn.h"

#define MARK "program_serves_port"
enum { OWNER_FD = 0, LISTENER_FD = 3, FIRST_CLOSED_FD = 4, BACKLOG = 4096 };

static int listener_open(int family, const struct sockaddr *at, socklen_t size, int *out)
{
    CLEANUP(close_fd) int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) /* the socket also accepts IPv4 */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, at, size) || listen(fd, BACKLOG))
        return errno;
    *out = fd;
    fd = -1;
    return 0;
}

static enum err_code store_listen(int port, int *fd, struct err *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    int rc = listener_open(AF_INET6, (struct sockaddr *)&v6, sizeof(v6), fd);

    if (rc && rc != EADDRINUSE) /* a machine without IPv6 */
        rc = listener_open(AF_INET, (struct sockaddr *)&v4, sizeof(v4), fd);
    if (rc == EADDRINUSE)
        return err_set(e, ERR_ALREADY_EXISTS, "port %d is in use", port);
    return rc ? err_sys(e, rc, "port %d", port) : ERR_OK;
}

struct store_plan {
    const char *program;
    const struct passwd *user;
    pid_t parent;
    int owner, listener, failure; /* above the numbers that they get */
};

/* The store gets only the log level: the agent's environment may hold secrets, and the store runs under the job's
 * account. */
static char **store_environment(void)
{
    const char *level = getenv("DDP_LOG");
    CLEANUP(free_text) char *entry = level ? xasprintf("DDP_LOG=%s", level) : NULL;

    return entry ? strv_append(NULL, entry) : xcalloc(1, sizeof(char *));
}

static void environment_free(char ***env)
{
    strv_free(*env);
}

static _Noreturn void store_child_main(const struct store_plan *p, char **env)
{
    char *argv[] = {(char *)"ddp-store", (char *)"--listener", (char *)"3",
                    (char *)"--owner",   (char *)"0",          NULL};
    int errnum;

    /* Under another account it must not be able to write to the supervisor's log. */
    int null = p->user ? open("/dev/null", O_WRONLY | O_CLOEXEC) : 2;
    if (!child_detach(p->user, p->parent) && dup2(p->owner, OWNER_FD) >= 0 && dup2(null, 2) >= 0 &&
        dup2(2, 1) >= 0 && dup2(p->listener, LISTENER_FD) >= 0) {
        (void)syscall(SYS_close_range, FIRST_CLOSED_FD, ~0u, 1u << 2 /* CLOSE_RANGE_CLOEXEC */);
        execve(p->program, argv, env);
    }
    errnum = errno;
    if (write(p->failure, &errnum, sizeof(errnum)) < 0)
        _exit(126);
    _exit(127);
}

/* Returns 0 when the program runs, else why it could not be started. The pipe closes at exec, so this waits for
 * milliseconds. */
static int store_exec_wait(int fd)
{
    int errnum = 0;
    ssize_t n;

    do
        n = read(fd, &errnum, sizeof(errnum));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(errnum) ? errnum : 0;
}

static enum err_code pipe_high(int fds[2], struct err *e)
{
    if (pipe2(fds, O_CLOEXEC))
        return err_sys(e, errno, "pipe");
    for (int i = 0; i < 2; i++)
        if (descriptor_lift(&fds[i], e)) {
            close(fds[0]);
            close(fds[1]);
            return e->code;
        }
    return ERR_OK;
}

enum err_code store_child_start(struct store_child *out, int64_t generation, int port,
                                const struct passwd *account, struct err *e)
{
    CLEANUP(free_text) char *program = NULL;
    CLEANUP(environment_free) char **env = store_environment();
    CLEANUP(close_fd) int listener = -1;
    CLEANUP(close_fd) int owner = -1;
    CLEANUP(close_fd) int failure = -1;
    CLEANUP(close_fd) int owner_write = -1;
    CLEANUP(close_fd) int failure_write = -1;
    struct store_plan plan = {.user = account, .parent = getpid()};
    int fds[2], errnum;
    pid_t pid;

    if (paths_program("ddp-store", &program, e) || store_listen(port, &listener, e) ||
        descriptor_lift(&listener, e))
        return e->code;
    if (pipe_high(fds, e))
        return e->code;
    owner = fds[0];
    owner_write = fds[1];
    if (pipe_high(fds, e))
        return e->code;
    failure = fds[0];
    failure_write = fds[1];
    plan.program = program;
    plan.owner = owner;
    plan.listener = listener;
    plan.failure = failure_write;
    pid = fork();
    if (pid < 0)
        return err_sys(e, errno, "fork");
    if (!pid)
        store_child_main(&plan, env);
    close_fd(&failure_write);
    failure_write = -1;
    errnum = store_exec_wait(failure);
    if (errnum) {
        (void)waitpid(pid, NULL, 0);
        return err_sys(e, errnum, "%s", program);
    }
    *out = (struct store_child){.pid = pid, .generation = generation, .owner_fd = owner_write};
    owner_write = -1;
    return ERR_OK;
}

void store_children_take(struct store_children *all, struct store_child *s)
{
    if (!s->pid)
        return;
    all->items = array_grow(all->items, all->count, &all->cap, sizeof(*all->items));
    all->items[all->count++] = *s;
    *s = (struct store_child){.owner_fd = -1};
}

void store_children_tick(struct store_children *all, struct spawn *const *spawns, size_t count)
{
    for (size_t i = 0; i < all->count; i++) {
        struct store_child *s = &all->items[i];
        bool alive = false;

        for (size_t k = 0; k < count; k++) {
            const struct spawn *worker = spawns[k];

            if (worker->fact.first_generation != s->generation)
                continue;
            alive |= !spawn_ended(worker);
            s->failed |= spawn_ended(worker) && (worker->fact.code || worker->fact.signal);
            s->stopped |= worker->stop != STOP_NONE;
        }
        /* A worker that waits for a key does not look at signals, and a worker that has failed will never set its keys. But
         * one that has exited with 0 has set them: the others may still need them for a last checkpoint. */
        if (alive && !(s->stopped && s->failed))
            continue;
        close_fd(&s->owner_fd);
        s->owner_fd = -1;
        if (s->stopped || s->failed)
            (void)kill(s->pid, SIGKILL);
    }
}

void store_children_reaped(struct store_children *all, pid_t pid, int status, int64_t job)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->items[i].pid != pid)
            continue;
        if (all->items[i].owner_fd >= 0) /* its workers need it */
            log_error("store_lost", "job=%" PRId64 " gen=%" PRId64 " status=%d", job,
                      all->items[i].generation, status);
        close_fd(&all->items[i].owner_fd);
        all->items[i] = all->items[--all->count];
        return;
    }
}

void store_children_release(struct store_children *all)
{
    for (size_t i = 0; i < all->count; i++) {
        (void)kill(all->items[i].pid, SIGKILL);
        close_fd(&all->items[i].owner_fd);
    }
    free(all->items);
    *all = (struct store_children){0};
}

void store_child_forbid(const char *dir)
{
    CLEANUP(free_text) char *path = xasprintf("%s/" MARK, dir);
    struct err e;

    if (file_write_atomic(path, "", 0, 0600, &e))
        log_warn("mark_not_written", "why=%s", LOG_Q(e.msg));
}

bool store_child_allowed(const char *dir)
{
    CLEANUP(free_text) char *path = xasprintf("%s/" MARK, dir);

    return !file_exists(path);
}
