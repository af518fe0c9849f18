#include "daemon/supervisor/spare.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor_pass.h"
#include "base/file.h"
#include "base/file_at.h"
#include "base/job/job_python.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/supervisor/child.h"
#include "daemon/supervisor/protocol/cgroup.h"
#include "daemon/supervisor/protocol/log_place.h"
#include "daemon/supervisor/protocol/socket.h"
#include "daemon/supervisor/spawn.h"

#define LOADING_MS 120000 /* the next spare does not wait for one that imports for longer than this */
#define PAUSE_FIRST_MS 2000
#define PAUSE_MOST_MS 60000
#define CGROUP_ROUNDS 20 /* of waiting for killed processes, so that their cgroup can be removed */
#define CGROUP_PAUSE_MS 5
#define MARK_ROOM 160 /* bytes of DDP_SPAWN_ID in the memory of a spare, where its rank's is written later */

/* Receives the program (spare.py) as the first message. */
#define LOADER                                                                                               \
    "import socket; control = socket.socket(fileno=3); "                                                     \
    "exec(compile(control.recv(1 << 20), '<ddp spare>', 'exec'), {'control': control})"

extern const char spare_program[]; /* spare.py, made by CMake */

/* ---- one spare */

/* Variables that differ between the starts of a rank anyway. A module that reads one of them at import sees an old
 * value: docs/reference/jobfile.md. */
static bool variable_is_of_start(const char *entry)
{
    static const char *const begins[] = {
        "RANK=",         "LOCAL_", "WORLD_SIZE=",           "GROUP_",      "ROLE_", "MASTER_",
        "TORCHELASTIC_", "DDP_",   "CUDA_VISIBLE_DEVICES=", "NCCL_HOSTID="};

    for (size_t i = 0; i < ARRAY_LEN(begins); i++)
        if (!strncmp(entry, begins[i], strlen(begins[i])))
            return true;
    return false;
}

static char *const *variable_next(char *const *env)
{
    while (env && *env && variable_is_of_start(*env))
        env++;
    return env;
}

static bool environments_match(char *const *a, char *const *b)
{
    for (a = variable_next(a), b = variable_next(b); a && b && *a && *b;
         a = variable_next(a + 1), b = variable_next(b + 1))
        if (strcmp(*a, *b) != 0)
            return false;
    return (!a || !*a) && (!b || !*b);
}

static bool texts_match(char *const *a, char *const *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!a[i] || !b[i] || strcmp(a[i], b[i]) != 0)
            return false;
    return true;
}

static bool names_match(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Whether the spare has the same state as the order's rank would have after its imports. */
static bool spare_fits(const struct spare *s, const struct spawn_order *order)
{
    struct job_python mine, theirs;

    return job_python_find(s->order.argv, &mine) && job_python_find(order->argv, &theirs) &&
           mine.options == theirs.options && texts_match(s->order.argv, order->argv, mine.options) &&
           strv_len(s->order.preload) == strv_len(order->preload) &&
           texts_match(s->order.preload, order->preload, strv_len(order->preload)) &&
           names_match(s->order.user, order->user) && environments_match(s->order.env, order->env);
}

static void spare_free(struct spare *s)
{
    if (s->pid)
        (void)kill(s->pid, SIGKILL);
    if (s->cgroup) { /* its modules may have started processes */
        for (int i = 0; i < CGROUP_ROUNDS && cgroup_kill(s->cgroup, NULL) > 0; i++)
            poll(NULL, 0, CGROUP_PAUSE_MS);
        cgroup_remove(s->cgroup);
    }
    free(s->cgroup);
    close_fd(&s->socket);
    spawn_order_release(&s->order);
    free(s);
}

static void spares_drop(struct spares *all, size_t i)
{
    spare_free(all->items[i]);
    memmove(&all->items[i], &all->items[i + 1], (all->count - i - 1) * sizeof(*all->items));
    all->count--;
}

/* ---- starting */

static void spare_order_copy(struct spawn_order *out, const struct spawn_order *from)
{
    *out = (struct spawn_order){.first_local_rank = from->first_local_rank,
                                .argv = strv_dup(from->argv),
                                .env = from->env ? strv_dup(from->env) : NULL,
                                .workdir = from->workdir ? xstrdup(from->workdir) : NULL,
                                .user = from->user ? xstrdup(from->user) : NULL,
                                .log_dir = xstrdup(from->log_dir),
                                .preload = strv_dup(from->preload)};
}

/* The rank's environment, but with a long DDP_SPAWN_ID, to make room for the id that is written there later. */
static char **spare_environment(char *const *env)
{
    char mark[MARK_ROOM + 1] = "spare";
    CLEANUP(free_text) char *entry = NULL;
    char **out = NULL;

    memset(mark + strlen(mark), '.', MARK_ROOM - strlen(mark));
    entry = xasprintf("DDP_SPAWN_ID=%s", mark);
    for (; env && *env; env++)
        if (strncmp(*env, "DDP_SPAWN_ID=", strlen("DDP_SPAWN_ID=")) != 0)
            out = strv_append(out, *env);
    return strv_append(out, entry);
}

static void plan_put(struct jout *o, const struct spawn_order *order, char *const *env,
                     const struct job_python *python)
{
    CLEANUP(free_text) char *here = order->workdir ? NULL : getcwd(NULL, 0);

    jout_open(o, "argv", '[');
    for (char *const *word = order->argv; *word; word++)
        jout_text(o, NULL, *word);
    jout_close(o, ']');
    jout_open(o, "env", '[');
    for (; env && *env; env++)
        jout_text(o, NULL, *env);
    jout_close(o, ']');
    jout_int(o, "program", (int64_t)python->program);
    jout_bool(o, "module", python->module);
    jout_text(o, "cwd", order->workdir ? order->workdir : here ? here : "/");
}

static enum err_code spare_send_plan(int socket, const struct spawn_order *order, char *const *env,
                                     const struct job_python *python, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout o = {.buf = &text};

    jout_open(&o, NULL, '{');
    plan_put(&o, order, env, python);
    jout_open(&o, "modules", '[');
    for (char *const *name = order->preload; *name; name++)
        jout_text(&o, NULL, *name);
    jout_close(&o, ']');
    jout_close(&o, '}');
    if (control_send_text(socket, spare_program, strlen(spare_program), e))
        return e->code;
    return control_send_text(socket, text.data, text.len, e);
}

static enum err_code spare_start(const struct spawn_order *order, rlim_t files, int64_t now,
                                 struct spare **out, struct err *e)
{
    CLEANUP(spawn_order_release) struct spawn_order loader = {0};
    CLEANUP(close_fd) int ours = -1;
    CLEANUP(close_fd) int theirs = -1;
    CLEANUP(free_text) char *name = xasprintf("ddp-%.8s-%s" SPARE_CGROUP, order->owner, order->id);
    CLEANUP(free_text) char *cgroup = NULL;
    struct job_python python;
    struct spare *s;
    int pair[2];

    if (!job_python_find(order->argv, &python))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s is not a Python script or module", order->argv[0]);
    if (control_pair(pair, e))
        return e->code;
    ours = pair[0];
    theirs = pair[1];
    spare_order_copy(&loader, order);
    strv_free(loader.argv);
    loader.argv = NULL;
    for (size_t i = 0; i < python.options; i++)
        loader.argv = strv_append(loader.argv, order->argv[i]);
    loader.argv = strv_append(strv_append(loader.argv, "-c"), LOADER);
    strv_free(loader.env);
    loader.env = spare_environment(order->env);
    if (descriptor_lift(&theirs, e) || spare_send_plan(ours, order, loader.env, &python, e))
        return e->code;
    if (cgroup_make(name, &cgroup, e))
        return e->code;
    s = xcalloc(1, sizeof(*s));
    *s = (struct spare){.socket = -1, .begun = now};
    if (child_fork_idle(&loader, cgroup, files, theirs, &s->pid, e)) {
        free(s);
        return e->code;
    }
    s->cgroup = steal(cgroup);
    spare_order_copy(&s->order, order);
    s->socket = ours;
    ours = -1;
    *out = s;
    return ERR_OK;
}

/* ---- all of them */

static bool spawn_wants_spare(const struct spawn *s, int64_t now)
{
    return s->order.preload && s->fact.state == SPAWN_RUNNING && s->pid && s->stop == STOP_NONE &&
           now - s->running_at >= SPARE_DELAY_MS;
}

static struct spare *spares_of_slot(struct spares *all, int slot, size_t *at)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i]->order.first_local_rank == slot) {
            *at = i;
            return all->items[i];
        }
    return NULL;
}

static bool spares_loading(const struct spares *all, int64_t now)
{
    for (size_t i = 0; i < all->count; i++)
        if (!all->items[i]->ready && now - all->items[i]->begun < LOADING_MS)
            return true;
    return false;
}

/* Writes one line for the user into the rank's own log. */
static void preload_failure_tell(const char *log_dir, const char *why)
{
    CLEANUP(free_text) char *line = xasprintf("ddp: preload failed, ranks start without it: %s\n", why);
    CLEANUP(close_fd) int dir = -1;
    CLEANUP(close_fd) int fd = -1;
    struct stat st;
    struct err e;

    if (log_place_open(log_dir, &dir, &e) ||
        file_at_open_plain(dir, "stderr.log", O_WRONLY | O_APPEND, &fd, &st, &e)) {
        log_warn("message_not_written", "why=%s", LOG_Q(e.msg));
        return;
    }
    /* the directory is the user's, who could have linked a file there that only root may write */
    if (st.st_nlink == 1 && fd_write_all(fd, line, strlen(line), &e))
        log_warn("message_not_written", "why=%s", LOG_Q(e.msg));
}

static void spares_begin(struct spares *all, const struct spawn *spawn, rlim_t files, int64_t now)
{
    struct spare *s = NULL;
    struct err e;

    if (spare_start(&spawn->order, files, now, &s, &e)) {
        log_warn("preload_failed", "job=%" PRId64 " why=%s", spawn->fact.job, LOG_Q(e.msg));
        all->given_up = e.code == ERR_INVALID_ARGUMENT;
        all->pause = PAUSE_MOST_MS;
        all->retry_at = now + all->pause;
        return;
    }
    all->items = array_grow(all->items, all->count, &all->cap, sizeof(*all->items));
    all->items[all->count++] = s;
    log_info("spare_started", "job=%" PRId64 " slot=%d pid=%d", spawn->fact.job, s->order.first_local_rank,
             (int)s->pid);
}

/* Sets how long spares are kept for the next generation. */
static void spares_note_workers(struct spares *all, struct spawn *const *spawns, size_t count, int64_t now)
{
    bool good = count > 0;

    for (size_t i = 0; i < count; i++) {
        const struct spawn_fact *fact = &spawns[i]->fact;

        if (!spawn_ended(spawns[i])) {
            all->until = now + SPARE_LINGER_MS;
            return;
        }
        good = good && !fact->code && !fact->signal && !fact->stopped && !fact->lost;
    }
    if (good)
        all->until = 0;
}

int64_t spares_tick(struct spares *all, struct spawn *const *spawns, size_t count, rlim_t files, int64_t now)
{
    int64_t next = INT64_MAX;

    spares_note_workers(all, spawns, count, now);
    for (size_t i = 0; i < count && !all->given_up; i++) {
        const struct spawn *s = spawns[i];
        int64_t due = s->running_at + SPARE_DELAY_MS;
        struct spare *spare;
        size_t at;

        if (!s->order.preload || !s->running_at || spawn_ended(s))
            continue;
        if (!spawn_wants_spare(s, now)) {
            next = due > now && due < next ? due : next;
            continue;
        }
        spare = spares_of_slot(all, s->order.first_local_rank, &at);
        if (spare && spare_fits(spare, &s->order))
            continue;
        if (spare) /* made for another environment */
            spares_drop(all, at);
        if (now < all->retry_at)
            next = all->retry_at < next ? all->retry_at : next;
        else if (!spares_loading(all, now)) /* one after the other, because the ranks need the processors */
            spares_begin(all, s, files, now);
    }
    return next;
}

static void spare_end(struct spare *s)
{
    close_fd(&s->socket);
    s->socket = -1;
    if (s->pid)
        (void)kill(s->pid, SIGKILL);
}

/* Reads the message of a spare: why its modules could not be imported; NULL: it is ready. */
static char *failure_read(const char *text, size_t len)
{
    CLEANUP(json_release) json_t *said = NULL;
    const char *why;
    struct err e;

    if (json_parse(text, len, len, &said, &e))
        return xasprintf("the spare has written an invalid message: %s", e.msg);
    why = json_get_text(said, "failed", NULL);
    return why ? xstrdup(why) : NULL;
}

void spares_hear(struct spares *all, size_t index)
{
    struct spare *s = all->items[index];
    char text[8192]; /* 1000 characters, each as \u0001 */
    ssize_t n = recv(s->socket, text, sizeof(text) - 1, MSG_DONTWAIT);
    CLEANUP(free_text) char *why = NULL;

    if (n < 0)
        return;
    /* End of file: the spare has ended, or a module has closed the socket; waitpid tells which. A spare sends only one
     * message, and further messages of a module must not fill the log. */
    if (n == 0 || s->ready) {
        spare_end(s);
        return;
    }
    why = failure_read(text, (size_t)n);
    if (!why) {
        s->ready = true;
        log_info("spare_ready", "slot=%d pid=%d ms=%" PRId64, s->order.first_local_rank, (int)s->pid,
                 clock_boot_ms() - s->begun);
        return;
    }
    spare_end(s);
    if (all->given_up)
        return;
    all->given_up = true; /* the next one would fail, too */
    log_warn("preload_failed", "why=%s then=\"ranks start without it\"", LOG_Q(why));
    preload_failure_tell(s->order.log_dir, why);
}

bool spares_reaped(struct spares *all, pid_t pid, int status, int64_t now)
{
    for (size_t i = 0; i < all->count; i++) {
        struct spare *s = all->items[i];

        if (s->pid != pid)
            continue;
        s->pid = 0;
        if (s->socket >= 0)
            spares_hear(all, i); /* its last words */
        if (!all->given_up) {
            all->pause = all->pause ? all->pause * 2 : PAUSE_FIRST_MS;
            all->pause = all->pause > PAUSE_MOST_MS ? PAUSE_MOST_MS : all->pause;
            all->retry_at = now + all->pause;
            log_warn("spare_ended", "slot=%d pid=%d %s=%d again_ms=%" PRId64, s->order.first_local_rank,
                     (int)pid, WIFSIGNALED(status) ? "signal" : "code",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), all->pause);
        }
        spares_drop(all, i);
        return true;
    }
    return false;
}

bool spares_linger(const struct spares *all, int64_t now)
{
    return all->count && now < all->until;
}

void spares_release(struct spares *all)
{
    while (all->count)
        spares_drop(all, all->count - 1);
    free(all->items);
    *all = (struct spares){0};
}

/* ---- becoming a rank */

static enum err_code spare_send_order(struct spare *s, const struct spawn_order *order, char *const *env,
                                      bool terminal, const int *descriptors, const int *numbers, size_t count,
                                      struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout o = {.buf = &text};
    struct job_python python;
    struct descriptor_message m = {.count = count};

    BUG_ON(!job_python_find(order->argv, &python)); /* it fits */
    jout_open(&o, NULL, '{');
    plan_put(&o, order, env, &python);
    jout_open(&o, "fds", '[');
    for (size_t i = 0; i + 1 < count; i++)
        jout_int(&o, NULL, numbers[i]);
    jout_close(&o, ']');
    jout_bool(&o, "terminal", terminal);
    jout_text(&o, "mark", order->id);
    jout_close(&o, '}');
    m.data = text.data;
    m.len = text.len;
    memcpy(m.fds, descriptors, count * sizeof(*descriptors));
    return descriptors_send(s->socket, &m, e);
}

/* Moves the spare into the rank's cgroup, and with it the processes that its imported modules have started. From now on all
 * of them belong to the rank. */
static enum err_code spare_enter_cgroup(struct spare *s, const char *cgroup, struct err *e)
{
    if (cgroup_enter(cgroup, s->pid, e))
        return e->code;
    if (s->cgroup)
        cgroup_move_all(s->cgroup, cgroup);
    return ERR_OK;
}

enum err_code spares_take(struct spares *all, const struct spawn_order *order, const char *cgroup,
                          char *const *env, bool terminal, const int *descriptors, const int *numbers,
                          size_t count, pid_t *pid, struct err *e)
{
    enum err_code code = ERR_OK;
    struct spare *s;
    size_t at;

    s = order->preload && strlen(order->id) <= MARK_ROOM ? spares_of_slot(all, order->first_local_rank, &at)
                                                         : NULL;
    if (!s || !s->ready || s->socket < 0 || !spare_fits(s, order))
        return err_set(e, ERR_NOT_FOUND, "no spare is ready");
    if (cgroup)
        code = spare_enter_cgroup(s, cgroup, e);
    if (!code)
        code = spare_send_order(s, order, env, terminal, descriptors, numbers, count, e);
    if (!code) {
        *pid = s->pid;
        s->pid = 0; /* a worker's from now on */
        all->pause = 0;
    }
    spares_drop(all, at);
    return code;
}
