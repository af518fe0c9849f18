#include "daemon/supervisor/spawn.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/supervisor/child.h"
#include "daemon/supervisor/outcome.h"
#include "daemon/supervisor/protocol/cgroup.h"
#include "daemon/supervisor/protocol/process_kill.h"
#include "daemon/supervisor/protocol/record.h"

#define LEFTOVER_RETRY_MS 10  /* first pause before processes are killed again */
#define LEFTOVER_MOST_MS 1000 /* longest pause */
#define NATIVE_STOP_MS 5000   /* from the order to stop until SIGTERM, for a native worker */
#define RECORD_RETRY_MS 1000  /* on a full disk */
#define ADDRESS_BUSY                                                                                                \
    "an address is in use. ddp's store listens on MASTER_PORT; if the program listens there itself, start it with " \
    "`--store program`, or `store: program` in the job file"

static void report_pipe_close(struct spawn *s)
{
    close_fd(&s->report_fd);
    s->report_fd = -1;
}

static void exec_pipe_close(struct spawn *s)
{
    close_fd(&s->exec_fd);
    s->exec_fd = -1;
}

static void holds_drop(struct spawn *s)
{
    close_fd(&s->port_fd);
    s->port_fd = -1;
    hold_drop(s->gpu_fds);
}

/* Marks the spawn as exited, once. Afterwards its record is written and the agent is told. */
static void spawn_finish(struct spawn *s, const struct spawn_site *site)
{
    exec_pipe_close(s);
    report_pipe_close(s);
    worker_link_release(&s->worker);
    log_times_end(&s->times, clock_boot_ms());
    capture_child_stop(&s->capture);
    holds_drop(s);
    if (s->reader.refused)
        log_warn("reports_refused", "job=%" PRId64 " spawn=%" PRId64 " lines=%" PRId64, site->job,
                 s->fact.spawn, s->reader.refused);
    if (s->fact.cgroup)
        cgroup_remove(s->fact.cgroup);
    s->fact.state = SPAWN_EXITED;
    s->fact.ended_ms = clock_wall_ms();
    s->dirty = true;
    s->next_try = 0;
    log_info("spawn_exited",
             "job=%" PRId64 " spawn=%" PRId64 " code=%d signal=%d oom=%d lease_expired=%d message=%s",
             site->job, s->fact.spawn, s->fact.code, s->fact.signal, s->fact.out_of_memory,
             s->fact.lease_expired, LOG_Q(s->fact.message));
}

static void spawn_fail_start(struct spawn *s, const struct spawn_site *site, const struct err *why)
{
    s->fact.not_started = true;
    /* ALREADY_EXISTS without a held port came from hold_port: the job gets another port, and this does not count as a
     * restart */
    s->fact.port_busy = why->code == ERR_ALREADY_EXISTS && s->port_fd < 0 && s->order.master_port;
    s->fact.node_trouble |= why->code == ERR_RESOURCE_EXHAUSTED;
    s->fact.code = 127; /* as a shell reports a command that could not be started */
    spawn_fact_set_text(&s->fact.message, xstrdup(why->msg));
    spawn_finish(s, site);
}

/* Called before rank 0 is forked, so that every rank finds the port open. */
static enum err_code spawn_start_store(struct spawn *s, const struct spawn_site *site, struct err *e)
{
    struct passwd *account;

    if (!s->order.store || !store_child_allowed(site->dir))
        return ERR_OK;
    if (child_account(s->order.user, &account, e)) {
        s->fact.node_trouble = true;
        return err_wrap(e, "%s", site->node);
    }
    if (store_child_start(&s->store, s->fact.first_generation, s->order.master_port, account, e) == ERR_OK)
        return ERR_OK;
    s->fact.node_trouble = e->code != ERR_ALREADY_EXISTS;
    if (e->code == ERR_ALREADY_EXISTS) { /* the port was taken after hold_port; another port can be used */
        close_fd(&s->port_fd);
        s->port_fd = -1;
    }
    return err_wrap(e, "%s", site->node);
}

static enum err_code spawn_fork(struct spawn *s, const struct spawn_site *site, struct spares *spares,
                                struct err *e)
{
    struct child child;
    struct err unseen;

    kernel_kills_begin(&s->kernel_kills, kernel_oom_kills(), clock_boot_ms());
    if (child_fork(&s->order, s->fact.cgroup, site->files, &site->terminal, spares, &child, e)) {
        /* The node lacks the account, a place for the logs, descriptors or processes. The command is not the reason: that
         * comes from the child (spawn_exec_ready). */
        s->fact.node_trouble = true;
        return err_wrap(e, "%s", site->node);
    }
    s->pid = s->session = child.pid;
    s->fact.pid = child.pid;
    s->warm = child.warm;
    s->report_fd = child.report_fd;
    s->exec_fd = child.exec_fd;
    s->terminal = child.terminal;
    s->at_terminal = s->terminal.master >= 0 && site->terminal.offer.standard_error;
    if (s->terminal.master >= 0 && pseudo_terminal_show(&s->terminal, &site->terminal, &unseen))
        log_warn("terminal_not_shown", "job=%" PRId64 " why=%s", site->job, LOG_Q(unseen.msg));
    worker_link_open(&s->worker, child.control_fd);
    capture_child_plan(&s->capture, &s->order, &child.logs, clock_boot_ms());
    log_times_begin(&s->times, site->log_watch, &child.logs);
    return ERR_OK;
}

static enum err_code spawn_make_cgroup(struct spawn *s, struct err *e)
{
    CLEANUP(free_text) char *name = xasprintf("ddp-%.8s-%s", s->order.owner, s->order.id);
    char *cgroup;

    if (cgroup_make(name, &cgroup, e))
        return e->code;
    spawn_fact_set_text(&s->fact.cgroup, cgroup);
    return ERR_OK;
}

/* A spare has ended before it became the rank, for example because memory ran out. This is not a failure of the
 * rank. */
static void spawn_start_again(struct spawn *s, const struct spawn_site *site)
{
    struct err e;

    log_warn("spare_not_used", "job=%" PRId64 " spawn=%" PRId64 " why=\"it ended\" then=\"a new process\"",
             site->job, s->fact.spawn);
    report_pipe_close(s);
    worker_link_release(&s->worker);
    log_times_end(&s->times, clock_boot_ms());
    s->next_try = s->pause = 0;
    s->dirty = true;
    if (s->fact
            /* a new cgroup, because Linux 6.14 and later kill processes that are cloned into a killed cgroup */
            .cgroup)
        cgroup_remove(s->fact.cgroup);
    if (spawn_make_cgroup(s, &e) || spawn_fork(s, site, NULL, &e))
        spawn_fail_start(s, site, &e);
}

static enum err_code spawn_try_start(struct spawn *s, const struct spawn_site *site, struct err *e)
{
    /* a busy port is not a problem of the node: another port on the same node can be used */
    if (s->order.master_port && hold_port(s->order.master_port, &s->port_fd, e))
        return e->code;
    if (hold_gpus(s->order.gpu_uuids, s->order.gpu_slots, s->gpu_fds, e) || spawn_make_cgroup(s, e)) {
        s->fact.node_trouble = true;
        return e->code;
    }
    /* before the fork: if this supervisor dies, the next one finds the worker by the record */
    if (record_write(site->dir, &s->fact, !site->brief, e)) {
        s->fact.node_trouble = true;
        return e->code;
    }
    if (spawn_start_store(s, site, e))
        return e->code;
    return spawn_fork(s, site, site->spares, e);
}

struct spawn *spawn_begin(struct spawn_order *order, const struct spawn_site *site)
{
    struct spawn *s = xcalloc(1, sizeof(*s));
    struct err e;

    log_times_init(&s->times);
    capture_child_init(&s->capture);
    s->order = *order;
    memset(order, 0, sizeof(*order));
    s->report_fd = s->exec_fd = s->port_fd = s->gpu_fds[0] = s->terminal.master = s->terminal.log = -1;
    s->worker.fd = -1;
    s->fact = (struct spawn_fact){.job = site->job,
                                  .spawn = s->order.spawn,
                                  .first_generation = s->order.first_generation,
                                  .first_local_rank = s->order.first_local_rank,
                                  .started_ms = clock_wall_ms(),
                                  .id = xstrdup(s->order.id),
                                  .owner = xstrdup(s->order.owner)};
    s->dirty = true;
    if (spawn_try_start(s, site, &e))
        spawn_fail_start(s, site, &e);
    return s;
}

struct spawn *spawn_found(const struct spawn_fact *fact)
{
    struct spawn *s = xcalloc(1, sizeof(*s));

    s->report_fd = s->exec_fd = s->port_fd = s->gpu_fds[0] = s->terminal.master = s->terminal.log = -1;
    s->worker.fd = -1;
    log_times_init(&s->times);
    capture_child_init(&s->capture);
    spawn_fact_copy(&s->fact, fact);
    s->found = s->dirty = true;
    s->saved = spawn_ended(s);
    return s;
}

void spawn_free(struct spawn *s)
{
    if (!s)
        return;
    exec_pipe_close(s);
    report_pipe_close(s);
    close_fd(&s->terminal.master);
    close_fd(&s->terminal.log);
    worker_link_release(&s->worker);
    log_times_end(&s->times, clock_boot_ms());
    capture_child_stop(&s->capture);
    holds_drop(s);
    report_reader_release(&s->reader);
    spawn_order_release(&s->order);
    spawn_fact_release(&s->fact);
    process_list_release(&s->leftovers);
    free(s);
}

bool spawn_ended(const struct spawn *s)
{
    return s->fact.state == SPAWN_EXITED;
}

void spawn_stop_by(struct spawn *s, int number)
{
    static const int good[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU};

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (number == good[i] && !s->order.native) /* ddp-trainer knows only SIGTERM */
            s->stop_signal = number;
}

void spawn_stop(struct spawn *s, enum stop_mode mode, int64_t grace, int64_t now)
{
    if (mode == STOP_NONE || mode < s->stop || spawn_ended(s))
        return;
    if (s->stop == STOP_NONE) {
        /* When a worker fails, its peers fail too, and the coordinator then stops all workers. This stop may arrive
         * while the first worker is still ending. Its end is then not caused by the stop: the coordinator looks for the
         * first failure. */
        s->stop_at = now;
        s->kill_at = INT64_MAX;
        s->unasked = s->pid && process_exiting(s->pid);
        s->fact.state = SPAWN_STOPPING;
        s->dirty = true;
    }
    s->stop = mode;
    if (mode == STOP_SNAPSHOT)
        worker_link_stop(&s->worker);
    if (now + grace < s->kill_at)
        s->kill_at = now + grace;
}

void spawn_interrupt(struct spawn *s, int64_t now)
{
    /* When a machine shuts down, the worker gets SIGTERM from the system, too, and may be a zombie already. So it does
     * not matter here whether it was ending before the stop: its exit code, also 0, is the answer to that SIGTERM. */
    if (s->pid && s->stop == STOP_NONE)
        s->fact.interrupted = true;
    spawn_stop(s, STOP_TERM, s->order.grace_ms, now);
}

void spawn_exec_ready(struct spawn *s, const struct spawn_site *site)
{
    struct child_failure why;
    ssize_t n = read(s->exec_fd, &why, sizeof(why));
    struct err e;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    exec_pipe_close(s);
    if (n <= 0 && s->warm)
        return; /* it is reaped, and spawn_bury starts a new process */
    s->warm = false;
    if (n == (ssize_t)sizeof(why) && why.stage != CHILD_BEGUN) {
        (void)child_explain(&why, &s->order, site->node, &e);
        s->fact.not_started = true;
        s->fact.node_trouble = child_node_failed(&why);
        spawn_fact_set_text(&s->fact.message, xstrdup(e.msg));
        return; /* the child ends at once, and is reaped */
    }
    if (s->fact.state == SPAWN_STARTING) {
        s->fact.state = SPAWN_RUNNING;
        s->running_at = clock_boot_ms();
        s->dirty = true;
    }
}

void spawn_read_reports(struct spawn *s, size_t limit, void (*fn)(void *, const char *line), void *ctx)
{
    char chunk[16384];

    while (s->report_fd >= 0 && limit) {
        const bool first = s->reader.refused == 0;
        ssize_t n = read(s->report_fd, chunk, sizeof(chunk) < limit ? sizeof(chunk) : limit);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            report_pipe_close(s);
            return;
        }
        report_feed(&s->reader, chunk, (size_t)n, fn, ctx);
        if (s->reader.taken) /* the program reports metrics itself */
            capture_child_stop(&s->capture);
        if (first && s->reader.refused) /* only one: all lines of a program may be like this */
            log_warn("report_refused", "job=%" PRId64 " spawn=%" PRId64 " why=%s", s->fact.job, s->fact.spawn,
                     LOG_Q(s->reader.first_error.msg));
        limit -= (size_t)n;
    }
}

void spawn_hear_worker(struct spawn *s)
{
    const int64_t refused = s->worker.refused;

    s->worker.blocked = false;
    s->dirty |= worker_link_hear(&s->worker, &s->fact.asks);
    if (!refused && s->worker.refused)
        log_warn("request_refused", "job=%" PRId64 " spawn=%" PRId64 " why=%s", s->fact.job, s->fact.spawn,
                 LOG_Q(s->worker.first_error.msg));
}

void spawn_answer_worker(struct spawn *s, const struct spawn_answer *answer)
{
    worker_link_answer(&s->worker, answer);
}

void spawn_reaped(struct spawn *s, int status)
{
    s->pid = 0;
    s->fact.stopped = s->fact.interrupted || (s->stop != STOP_NONE && !s->unasked);
    s->status = status;
    s->next_try = 0;
}

static void outcome_read(struct spawn *s)
{
    if (WIFSIGNALED(s->status))
        s->fact.signal = WTERMSIG(s->status);
    else
        s->fact.code = WEXITSTATUS(s->status);
    const long long in_group = s->fact.cgroup ? cgroup_oom_kills(s->fact.cgroup) : -1;
    /* Without memory accounting in a cgroup, a SIGKILL that nobody here sent counts as the kernel's if the
     * machine's count of such kills has grown lately. */
    const bool by_kernel = s->fact.signal == SIGKILL && !s->killed;
    s->fact.out_of_memory =
        in_group >= 0 ? in_group > 0 : by_kernel && kernel_kills_grew(&s->kernel_kills, kernel_oom_kills());
    if (!s->fact.code && !s->fact.signal)
        return; /* success needs no explanation */
    s->fact.stderr_tail = outcome_tail(s->order.log_dir, s->at_terminal ? "stdout.log" : "stderr.log");
    if (!s->fact.message)
        s->fact.message = outcome_message(s->order.log_dir);
    /* if the worker was told to stop, a busy port is not the cause */
    s->fact.port_busy = s->stop == STOP_NONE && outcome_port_busy(&s->order, s->fact.stderr_tail);
}

static int members_kill(struct spawn *s, const struct spawn_peers *peers)
{
    struct process_mark mark = {.main = s->session,
                                .over = !s->pid,
                                .id = s->fact.id,
                                .owner = s->fact.owner,
                                .others = peers->mains,
                                .other_count = peers->count,
                                .spared = peers->stores,
                                .spared_count = peers->store_count};
    int left = s->fact.cgroup ? cgroup_kill(s->fact.cgroup, &s->leftovers) : 0;

    if (s->found &&
        s->fact
            /* The spare of its slot died with its supervisor, which could not end the processes of the spare. */
            .cgroup) {
        CLEANUP(free_text) char *spare = xasprintf("%s" SPARE_CGROUP, s->fact.cgroup);
        left += cgroup_kill(spare, &s->leftovers);
        if (!left)
            cgroup_remove(spare);
    }
    if (left)
        return left;
    /* A process may have moved itself to another cgroup, and there may be no cgroup at all. The processes of
     * a dead supervisor are not descendants of this one: their marks find them. */
    if (s->found)
        return s->fact.id && s->fact.owner ? marked_kill(s->fact.id, s->fact.owner, &s->leftovers) : 0;
    return descendants_kill(&mark, &s->leftovers);
}

/* A process that SIGKILL has not ended by the next try is stuck in the kernel. The pauses grow, since each
 * try reads all of /proc. */
static int64_t leftover_retry_at(struct spawn *s, int64_t now)
{
    s->pause = s->pause ? s->pause * 2 : LEFTOVER_RETRY_MS;
    if (s->pause > LEFTOVER_MOST_MS)
        s->pause = LEFTOVER_MOST_MS;
    s->next_try = now + s->pause;
    return s->next_try;
}

/* Rank 0 wanted to listen on the port of ddp-store. The coordinator starts the job again, with another port. */
static void spawn_leave_port(struct spawn *s, const struct spawn_site *site)
{
    store_child_forbid(site->dir);
    log_warn("store_left_out", "job=%" PRId64 " why=\"the program listens on MASTER_PORT itself\"",
             site->job);
    if (!s->fact.message)
        spawn_fact_set_text(
            &s->fact.message,
            xstrdup("the program listens on MASTER_PORT itself: ddp leaves the port to it from now "
                    "on, as with `store: program`"));
}

/* The worker has ended. The processes that it started are killed before its end is reported, so that nothing holds its
 * ports, GPUs and files when the next generation starts. */
static int64_t spawn_bury(struct spawn *s, const struct spawn_site *site, const struct spawn_peers *peers,
                          int64_t now)
{
    if (now < s->next_try)
        return s->next_try;
    if (members_kill(s, peers) > 0)
        return leftover_retry_at(s, now);
    if (s->terminal.master >= 0)
        pseudo_terminal_end(&s->terminal, now); /* the last lines are in the log before they are read */
    if (s->warm && s->stop == STOP_NONE) {
        spawn_start_again(s, site);
        return now;
    }
    /* The last points must arrive before the end of the worker is reported. */
    const int64_t capture_at =
        capture_child_finish(&s->capture, &s->order, s->fact.started_ms, s->status != 0, now);
    if (capture_at)
        return capture_at;
    if (s->found)
        s->fact.lost = true;
    else
        outcome_read(s);
    if (s->fact.port_busy && s->order.store && store_child_allowed(site->dir))
        spawn_leave_port(s, site);
    if (!s->found && s->stop == STOP_NONE && !s->fact.message && store_child_allowed(site->dir) &&
        outcome_address_busy(&s->order, s->fact.stderr_tail))
        spawn_fact_set_text(&s->fact.message, xstrdup(ADDRESS_BUSY));
    spawn_finish(s, site);
    return now;
}

static int64_t spawn_save(struct spawn *s, const struct spawn_site *site, int64_t now)
{
    struct err e;

    if (s->saved)
        return INT64_MAX;
    if (now < s->next_try)
        return s->next_try;
    if (!record_write(site->dir, &s->fact, !site->brief, &e)) {
        s->saved = true;
        return INT64_MAX;
    }
    if (e.code != s->save_code) /* once for each cause: the disk may be full for days */
        log_warn("record_not_written", "job=%" PRId64 " spawn=%" PRId64 " why=%s", site->job, s->fact.spawn,
                 LOG_Q(e.msg));
    s->save_code = e.code;
    s->next_try = now + RECORD_RETRY_MS;
    return s->next_try;
}

/* SIGTERM when it is due, SIGKILL to all processes when patience ends. Returns the time of the next step. */
static int64_t spawn_escalate(struct spawn *s, const struct spawn_peers *peers, int64_t now)
{
    bool waits = s->stop == STOP_SNAPSHOT && s->order.native;
    bool agrees = s->stop == STOP_SNAPSHOT && (s->fact.asks.heeds || s->worker.answer.agrees);
    int64_t half = (s->kill_at - s->stop_at) / 2;
    /* The coordinator tells a native worker to stop. SIGTERM follows later, in case the coordinator could not reach the
     * worker; a worker that is already stopping ignores it. */
    int64_t term_at = waits ? s->stop_at + (half < NATIVE_STOP_MS ? half : NATIVE_STOP_MS) : s->stop_at;
    int64_t kill_at = s->stop == STOP_KILL ? now : s->kill_at;

    /* the program stops at a step that all ranks agree on; SIGTERM is for a program that does not reach this step */
    if (agrees)
        term_at = s->stop_at + (s->kill_at - s->stop_at) / 4 * 3;
    if (s->stop == STOP_NONE)
        return INT64_MAX;
    if (!s->termed && now >= term_at && now < kill_at) {
        if (kill(-s->pid, s->stop_signal ? s->stop_signal : SIGTERM))
            return now + LEFTOVER_RETRY_MS; /* forked, but not yet the leader of its process group */
        (void)kill(-s->pid, SIGCONT);       /* a stopped process could not handle the signal */
        s->termed = true;
    }
    if (now < kill_at)
        return s->termed ? kill_at : term_at;
    if (now < s->next_try)
        return s->next_try;
    s->killed = true;
    (void)kill(s->pid, SIGKILL);
    (void)members_kill(s, peers);
    return leftover_retry_at(s, now);
}

int64_t spawn_tick(struct spawn *s, const struct spawn_site *site, const struct spawn_peers *peers,
                   int64_t now)
{
    int64_t at;

    if (spawn_ended(s))
        return spawn_save(s, site, now);
    if (!s->pid)
        return spawn_bury(s, site, peers, now);
    if (kernel_kills_due(&s->kernel_kills, now))
        kernel_kills_note(&s->kernel_kills, kernel_oom_kills(), now);
    at = spawn_escalate(s, peers, now);
    const int64_t others[] = {pseudo_terminal_tick(&s->terminal, now), log_times_tick(&s->times, now),
                              capture_child_tick(&s->capture, &s->order, s->fact.started_ms, now)};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        at = others[i] < at ? others[i] : at;
    return at;
}
