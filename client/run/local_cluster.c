#include "client/run/local_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/paths.h"
#include "client/interrupts.h"
#include "client/run/run_directory.h"
#include "proto/rpc_address.h"

enum { LIFELINE_FD = 3, TERMINAL_FD = 4 };
/* If a daemon ended without a log and its directory has less room than this, the lack of room is the reason. */
#define ROOM_BYTES (UINT64_C(1) << 20)
#define START_MS 20000
#define STOP_MS 10000 /* then SIGKILL; the closed lifeline shortens the supervisor's grace */

/* $TMPDIR, unless it is so long that the path of a unix socket below it would exceed 107 bytes. */
static const char *local_cluster_temporary_dir(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && dir[0] == '/' && strlen(dir) < 50 ? dir : "/tmp";
}

/* Claims a place for the logs below log_dir. The job of a private cluster is always number 1, so if log_dir
 * holds a run already, this one uses log_dir/run-2, run-3 and so on. */
static enum err_code local_cluster_claim_logs(struct local_cluster *l, const char *log_dir, struct err *e)
{
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    CLEANUP(free_text) char *base = paths_join(here ? here : "/", log_dir);
    for (int n = 1;; n++) {
        free(l->logs);
        l->logs = n == 1 ? xstrdup(base) : xasprintf("%s/run-%d", base, n);
        CLEANUP(free_text) char *job = paths_join(l->logs, "1");
        if (file_mkdirs(l->logs, 0777, e) != ERR_OK)
            return e->code;
        if (mkdir(job, 0777) == 0)
            return ERR_OK;
        if (errno != EEXIST)
            return err_sys(e, errno, "%s", job);
    }
}

static enum err_code local_cluster_make_dir(struct local_cluster *l, const char *log_dir, struct err *e)
{
    if (run_directory_make(local_cluster_temporary_dir(), &l->dir, &l->lock, e) != ERR_OK)
        return e->code;
    if (log_dir)
        return local_cluster_claim_logs(l, log_dir, e);
    l->logs = paths_join(l->dir, "logs");
    return file_mkdirs(l->logs, 0777, e);
}

/* The child gets the lifeline as descriptor 3, and its output goes to a log file. An agent with a rank to attach keeps
 * this process's stdin, and the terminal as descriptor 4; all others read /dev/null. */
static enum err_code daemon_spawn(const struct local_cluster *l, const struct local_cluster_agent *agent,
                                  const char *name, char *const *argv, pid_t *pid, struct err *e)
{
    CLEANUP(free_text) char *program = NULL;
    CLEANUP(free_text) char *log = xasprintf("%s/%s.log", l->dir, name);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    if (paths_program(name, &program, e) != ERR_OK)
        return e->code;
    posix_spawn_file_actions_init(&actions);
    if (!agent || !agent->attach || agent->terminal >= 0)
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_adddup2(&actions, l->child_end, LIFELINE_FD);
    if (agent && agent->terminal >= 0)
        posix_spawn_file_actions_adddup2(&actions, agent->terminal, TERMINAL_FD);
    /* ddpctl ignores SIGPIPE and catches the others; the child must not inherit that */
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    limits_restore_files(l->files); /* the child passes this limit on to the workers */
    int rc = posix_spawn(pid, program, &actions, &attributes, argv, environ);
    (void)limits_raise_files();
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return rc == 0 ? ERR_OK : err_sys(e, rc, "%s", program);
}

#define MOST_ARGUMENTS 32

/* An argv of borrowed texts. The const is cast away: posix_spawn does not write to them. */
struct words {
    char *list[MOST_ARGUMENTS];
    size_t count;
};

static void words_add(struct words *w, const char *word)
{
    BUG_ON(w->count + 1 >= MOST_ARGUMENTS);
    w->list[w->count++] = (char *)(uintptr_t)word;
}

/* Adds nothing if the value is NULL. */
static void words_add_option(struct words *w, const char *name, const char *value)
{
    if (!value)
        return;
    words_add(w, name);
    words_add(w, value);
}

static enum err_code local_cluster_write_token(const char *dir, const char *token, char **path, struct err *e)
{
    CLEANUP(buf_release) struct buf line = {0};
    buf_printf(&line, "%s\n", token);
    *path = paths_join(dir, "token");
    if (file_mkdirs(dir, 0700, e) != ERR_OK)
        return e->code;
    return file_write_atomic(*path, line.data, line.len, 0600, e);
}

static enum err_code daemon_start_coordinator(struct local_cluster *l, const char *listen, const char *token,
                                              struct err *e)
{
    CLEANUP(free_text) char *state = paths_join(l->dir, "coordinator");
    CLEANUP(free_text) char *file = NULL;
    struct words w = {.list = {(char *)(uintptr_t) "ddp-coordinator"}, .count = 1};
    if (listen && token && local_cluster_write_token(state, token, &file, e) != ERR_OK)
        return e->code;
    words_add_option(&w, "--state", state);
    words_add_option(&w, "--listen", listen ? listen : "none");
    words_add_option(&w, "--metrics", "none");
    words_add_option(&w, "--lifeline", "3");
    if (listen && !token)
        words_add(&w, "--insecure");
    return daemon_spawn(l, NULL, "ddp-coordinator", w.list, &l->coordinator, e);
}

enum err_code local_cluster_start_agent(struct local_cluster *l, const struct local_cluster_agent *a,
                                        struct err *e)
{
    CLEANUP(free_text) char *state = paths_join(l->dir, "agent");
    CLEANUP(free_text) char *here = xasprintf("unix:%s/coordinator/coordinator.sock", l->dir);
    CLEANUP(free_text) char *count = xasprintf("%lld", (long long)a->slots);
    CLEANUP(free_text) char *file = NULL;
    const struct passwd *user = getpwuid(geteuid());
    struct words w = {.list = {(char *)(uintptr_t) "ddp-agent"}, .count = 1};
    if (a->token && local_cluster_write_token(l->dir, a->token, &file, e) != ERR_OK)
        return e->code;
    words_add_option(&w, "--config", "/dev/null");
    words_add_option(&w, "--state", state);
    words_add_option(&w, "--coordinator", a->coordinator ? a->coordinator : here);
    words_add_option(&w, "--lifeline", "3");
    words_add_option(&w, "--log-dir", l->logs);
    words_add_option(&w, "--slots", count);
    words_add_option(&w, "--token", file);
    words_add_option(&w, "--node", a->node);
    words_add_option(&w, "--address", a->address);
    words_add_option(&w, "--ports", a->ports);
    words_add_option(&w, "--workdir", a->workdir);
    words_add_option(&w, "--attach", a->attach);
    words_add_option(&w, "--terminal", a->attach && a->terminal >= 0 ? "4" : NULL);
    if (a->coordinator && !a->token)
        words_add(&w, "--insecure");
    if (a->own_port)
        words_add(&w, "--own-port");
    if (user && geteuid() == 0) /* an agent of root wants to know as whom jobs run: as the caller */
        words_add_option(&w, "--user", user->pw_name);
    char **argv = strv_dup(w.list);
    if (a->command)
        argv = strv_append(argv, "--");
    for (char *const *word = a->command; word && *word; word++)
        argv = strv_append(argv, *word);
    enum err_code code = daemon_spawn(l, a, "ddp-agent", argv, &l->agent, e);
    strv_free(argv);
    return code;
}

/* A daemon that could not write its log, either, most likely had no room for it. */
static void daemon_explain_no_log(const struct local_cluster *l, const char *log, char *out, size_t size)
{
    struct statvfs fs;
    const bool known = statvfs(l->dir, &fs) == 0;
    const uint64_t room = known ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    const bool no_room = known && room < ROOM_BYTES, no_inodes = known && fs.f_files && !fs.f_favail;
    const char *tmp = local_cluster_temporary_dir();
    if (no_room)
        snprintf(
            out, size,
            "it could not write its log: %s has only %llu KiB left; free some, or set TMPDIR to another directory",
            tmp, (unsigned long long)room / 1024);
    else if (no_inodes)
        snprintf(
            out, size,
            "it could not write its log: %s has no free inodes; remove files, or set TMPDIR to another directory",
            tmp);
    else
        snprintf(out, size, "its log %s is empty", log);
}

/* The last lines of a daemon's log, for a message. */
static void daemon_last_lines(const struct local_cluster *l, const char *name, char *out, size_t size)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s.log", l->dir, name);
    CLEANUP(buf_release) struct buf text = {0};
    struct err ignored;
    if (file_read(path, 1 << 20, &text, &ignored) != ERR_OK || !text.len) {
        daemon_explain_no_log(l, path, out, size);
        return;
    }
    const char *from = text.len > size - 1 ? text.data + text.len - (size - 1) : text.data;
    const char *line = from == text.data ? NULL : strchr(from, '\n');
    snprintf(out, size, "%s", line && line[1] ? line + 1 : from);
    for (size_t end = strlen(out); end && out[end - 1] == '\n'; end--)
        out[end - 1] = 0;
}

static enum err_code daemon_check(const struct local_cluster *l, pid_t *pid, const char *name, struct err *e)
{
    int status;
    char words[300];
    if (*pid <= 0 || waitpid(*pid, &status, WNOHANG) != *pid)
        return ERR_OK;
    *pid = 0;
    daemon_last_lines(l, name, words, sizeof(words));
    return err_set(e, ERR_UNAVAILABLE, "%s %s %d: %s", name,
                   WIFSIGNALED(status) ? "was killed by signal" : "ended with",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), words);
}

enum err_code local_cluster_check(struct local_cluster *l, struct err *e)
{
    if (daemon_check(l, &l->coordinator, "ddp-coordinator", e) != ERR_OK)
        return e->code;
    return daemon_check(l, &l->agent, "ddp-agent", e);
}

static enum err_code local_cluster_wait_socket(struct local_cluster *l, struct err *e)
{
    CLEANUP(free_text) char *address = xasprintf("unix:%s/coordinator/coordinator.sock", l->dir);
    int64_t end = clock_boot_ms() + START_MS;
    while (rpc_address_absent(address)) {
        if (local_cluster_check(l, e) != ERR_OK)
            return e->code;
        if (interrupts_count())
            return err_set(e, ERR_CANCELLED, "interrupted");
        if (clock_boot_ms() > end)
            return err_set(e, ERR_UNAVAILABLE, "the private coordinator did not start within %d s",
                           START_MS / 1000);
        poll(NULL, 0, 1);
    }
    return ERR_OK;
}

enum err_code local_cluster_start_coordinator(struct local_cluster *l, const char *listen, const char *token,
                                              struct err *e)
{
    if (daemon_start_coordinator(l, listen, token, e) != ERR_OK)
        return e->code;
    return local_cluster_wait_socket(l, e);
}

enum err_code local_cluster_open(struct local_cluster *l, const char *log_dir, struct err *e)
{
    int ends[2];
    *l = (struct local_cluster)LOCAL_CLUSTER_INIT;
    l->files = limits_raise_files();
    if (local_cluster_make_dir(l, log_dir, e) != ERR_OK)
        return e->code;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return err_sys(e, errno, "pipe");
    l->child_end = ends[0];
    l->lifeline = ends[1];
    if (l->child_end <= TERMINAL_FD) { /* dup2 onto the same number would keep close-on-exec */
        int moved = fcntl(l->child_end, F_DUPFD_CLOEXEC, TERMINAL_FD + 1);
        close(l->child_end);
        l->child_end = moved;
    }
    return ERR_OK;
}

enum err_code local_cluster_start(struct local_cluster *l, const struct local_cluster_agent *agent,
                                  const char *log_dir, struct err *e)
{
    if (local_cluster_open(l, log_dir, e) != ERR_OK || daemon_start_coordinator(l, NULL, NULL, e) != ERR_OK ||
        local_cluster_start_agent(l, agent, e) != ERR_OK) /* the agent waits for the coordinator's socket */
        return e->code;
    return local_cluster_wait_socket(l, e);
}

enum err_code local_cluster_link(const struct local_cluster *l, struct link *link, struct err *e)
{
    CLEANUP(free_text) char *address = xasprintf("unix:%s/coordinator/coordinator.sock", l->dir);
    struct globals globals = {.coordinator = address, .config = "/dev/null"};
    return link_open(link, &globals, e);
}

/* Waits until the deadline for the child, then kills it. */
static void daemon_reap(pid_t pid, int64_t deadline_ms)
{
    int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pid <= 0)
        return;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    int64_t left = deadline_ms - clock_boot_ms();
    while (fd >= 0 && left > 0 && poll(&ended, 1, (int)left) < 0 && errno == EINTR)
        left = deadline_ms - clock_boot_ms();
    if (waitpid(pid, NULL, WNOHANG) == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (fd >= 0)
        close(fd);
}

/* Removes the directory, or everything in it but the workers' logs. */
static void local_cluster_remove_files(struct local_cluster *l, bool keep_logs)
{
    static const char *const parts[] = {"coordinator",   "agent", "ddp-coordinator.log",
                                        "ddp-agent.log", "token", "lock"};
    struct err ignored;
    if (!keep_logs && file_remove_tree(l->dir, &ignored) == ERR_OK)
        return; /* if this failed, the next run's sweep removes the rest */
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        CLEANUP(free_text) char *path = paths_join(l->dir, parts[i]);
        if (unlink(path) != 0 && file_remove_tree(path, &ignored) != ERR_OK)
            return;
    }
    rmdir(l->dir); /* fails if the logs are in it */
}

void local_cluster_end(struct local_cluster *l)
{
    int64_t deadline = clock_boot_ms() + STOP_MS;
    close_fd(&l->child_end);
    close_fd(&l->lifeline);
    daemon_reap(l->agent, deadline);
    daemon_reap(l->coordinator, deadline);
    l->agent = l->coordinator = 0;
}

void local_cluster_stop(struct local_cluster *l, bool keep_logs)
{
    local_cluster_end(l);
    if (l->logs) {
        CLEANUP(free_text) char *job = paths_join(l->logs, "1");
        rmdir(job); /* fails unless it was claimed and no worker wrote a log */
    }
    if (l->dir)
        local_cluster_remove_files(l, keep_logs);
    close_fd(&l->lock);
    free(l->dir);
    free(l->logs);
    *l = (struct local_cluster)LOCAL_CLUSTER_INIT;
}
