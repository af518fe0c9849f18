#include "client/run/run_session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/cmd/command.h"
#include "client/cmd/output.h"
#include "client/interrupts.h"
#include "client/job_probe.h"
#include "client/job_status.h"
#include "client/job_watch.h"
#include "client/output_targets.h"
#include "client/run/run_error.h"
#include "client/run/run_failure.h"
#include "client/run/run_logs.h"
#include "client/run/worker_output.h"
#include "client/screen/screen_follow.h"
#include "client/text/term.h"

#define QUEUE_MS 60000    /* a job that has been queued this long on a private cluster will never start */
#define BUSY_WAIT_MS 4    /* between reads of the log files while there is output, */
#define TYPING_WAIT_MS 10 /* when there is none, but somebody may type, */
#define IDLE_WAIT_MS 40   /* and when there has been none for a second */

static bool run_session_flush(struct run_session *s)
{
    CLEANUP(buf_release) struct buf end = {0};
    if (s->screen && s->talk.len) /* the message follows the line that is redrawn */
        follow_view_break(&s->view, &end);
    stderr_put(&end);
    output_merge_say(&s->tail.merge, true, &s->talk);
    buf_clear(&s->talk);
    return output_targets_put(&s->tail.merge);
}

static void run_session_say(struct run_session *s, const char *text)
{
    term_printf_safe(&s->talk, "ddpctl: %s", text);
    buf_putc(&s->talk, '\n');
}

static void run_session_copy_all(struct run_session *s)
{
    while (log_tail_read(&s->tail, clock_boot_ms()))
        if (!run_session_flush(s))
            return;
}

/* The workers of the generation have ended: their output is complete. */
static void run_session_finish_output(struct run_session *s)
{
    run_session_copy_all(s);
    output_merge_finish(&s->tail.merge, clock_boot_ms());
    run_session_flush(s);
}

static const char *run_session_node(const struct run_session *s, const Ddp__V1__JobStatus *job)
{
    return s->node ? s->node : job->nodes[0];
}

static void run_session_new_generation(struct run_session *s, const Ddp__V1__JobStatus *job)
{
    const char *node = run_session_node(s, job);
    const struct output_targets_options options = {
        .several = job->world_size > 1,
        .raw = s->request->raw,
        .terminal = s->request->terminal,
        .own = s->terminal.theirs >= 0 && (job->world_size == 1 || s->request->attach >= 0),
        .own_rank = job->world_size == 1 ? 0 : (int)s->request->attach};
    run_session_finish_output(s);
    /* a generation may begin and end between two states; it left log files, too */
    for (int64_t g = s->generation + 1; g <= job->generation; g++)
        run_logs_attempt(s->local.logs, s->job, g, node);
    s->generation = job->generation;
    s->several = job->world_size > 1;
    output_targets_set(&s->tail.merge, &options);
    log_tail_open(&s->tail, s->local.logs, s->job, job->generation, node);
    if (!s->screen)
        worker_output_add(&s->tail, s->request, job, node);
}

/* At the end of a failed job, prints what else is known about the failure, and writes the error file for the
 * program that started ddpctl (TORCHELASTIC_ERROR_FILE, as torchrun does). */
static void run_session_explain_failure(struct run_session *s, const Ddp__V1__JobStatus *job)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    CLEANUP(run_error_release) struct run_error first;
    CLEANUP(rpc_release) void *probe = s->request->secondary ? NULL : job_probe_failure(&s->link, job);
    struct err e;
    run_error_find(&first, job, run_session_node(s, job), s->tail.dir);
    const struct run_failure failure = {
        .job = job, .probe = probe, .first = &first, .seen = output_targets_show, .user = &s->tail.merge};
    if (!s->request->secondary)
        run_failure_print(&failure, &s->talk);
    if (path && *path && run_error_copy(&first, job->failure, path, &e) != ERR_OK)
        buf_printf(&s->talk, "ddpctl: warning: TORCHELASTIC_ERROR_FILE: %s\n", e.msg);
}

/* A job may wait for GPUs that other programs use now. If the machine has no GPUs, waiting is useless. */
static enum err_code run_session_check_gpus(struct run_session *s, struct err *e)
{
    Ddp__V1__ListNodesRequest request = DDP__V1__LIST_NODES_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    size_t gpus = 0;
    if (!s->without_gpus)
        return ERR_OK;
    if (link_call(&s->link, "ListNodes", &request, &message, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__ListNodesReply *reply = message;
    for (size_t i = 0; i < reply->n_nodes; i++)
        gpus += reply->nodes[i]->n_gpus;
    if (gpus)
        return ERR_OK;
    return err_set(e, ERR_FAILED_PRECONDITION,
                   "the job cannot start on this machine: it needs GPUs and there are none; use %s",
                   s->without_gpus);
}

/* A job that cannot start on this machine is given up after QUEUE_MS. A job that has already run waits
 * without limit: it may wait for its own last processes, or for a device that comes back. */
static enum err_code run_session_check_queue(struct run_session *s, struct err *e)
{
    int64_t now = clock_boot_ms();
    bool say = waiting_turn(&s->waiting, s->state, s->reason, now);
    if (!s->generation && s->waiting.since_ms && now - s->waiting.since_ms >= QUEUE_MS)
        return err_set(e, ERR_FAILED_PRECONDITION, "the job cannot start on this machine: %s", s->reason);
    if (!say)
        return ERR_OK;
    if (!s->generation && run_session_check_gpus(s, e) != ERR_OK)
        return e->code;
    if (!s->quiet)
        run_session_say(s, s->reason);
    return ERR_OK;
}

/* --attach names a rank of the whole job, which may be elsewhere. */
static enum err_code run_session_check_attach(const struct run_session *s, const Ddp__V1__JobStatus *job,
                                              struct err *e)
{
    const int64_t rank = s->request->attach;
    if (rank < 0)
        return ERR_OK;
    for (size_t i = 0; i < job->n_ranks; i++)
        if (job->ranks[i]->rank == rank && strcmp(job->ranks[i]->node, run_session_node(s, job)) == 0)
            return ERR_OK;
    for (size_t i = 0; i < job->n_ranks; i++)
        if (job->ranks[i]->rank == rank)
            return err_set(
                e, ERR_FAILED_PRECONDITION,
                "--attach %lld: rank %lld runs on %s; give --attach to the ddpctl that was started there",
                (long long)rank, (long long)rank, job->ranks[i]->node);
    return err_set(e, ERR_FAILED_PRECONDITION, "--attach %lld: the job has %d ranks, counted from 0",
                   (long long)rank, job->world_size);
}

/* A train job's log lines say less than its progress, and its log files keep them. Whoever asks for output, or whose
 * output goes into a file, gets it. */
static bool run_session_has_screen(const struct run_session *s, const Ddp__V1__JobStatus *job)
{
    const struct run_request *r = s->request;
    return strcmp(job->kind, "train") == 0 && s->view.term.live && term_of(STDOUT_FILENO).live && !s->quiet &&
           !r->secondary && !r->raw && !r->tee && !r->redirects && !r->local_ranks;
}

static void run_session_view(struct run_session *s, const Ddp__V1__JobStatus *job)
{
    CLEANUP(buf_release) struct buf text = {0};
    follow_view_update(&s->view, job, s->screen ? &text : &s->talk);
    screen_fold(&text);
    stderr_put(&text);
}

static enum err_code run_session_update(struct run_session *s, const Ddp__V1__JobStatus *job, struct err *e)
{
    if (!*s->state && run_session_has_screen(s, job)) {
        s->screen = s->view.own = true;
        s->view.brief = false;
    }
    if (job->generation > s->generation && job->n_nodes) {
        if (!s->generation && run_session_check_attach(s, job, e) != ERR_OK)
            return e->code;
        run_session_new_generation(s, job);
    }
    if (job_status_ended(job)) { /* all output comes before the message about the end */
        run_session_finish_output(s);
        s->ended = true;
        s->exit_code = job_status_exit_code(job);
    }
    s->view.term.now_ms = clock_wall_ms();
    /* The user saw how the rank ended by ^C: nothing about it is news. */
    const bool typed = s->terminal.interrupted_end;
    if (!s->request->secondary && !typed)
        run_session_view(s, job);
    if (s->ended && !typed && s->generation && job->failure && strcmp(job->state, "failed") == 0)
        run_session_explain_failure(s, job);
    snprintf(s->state, sizeof(s->state), "%s", job->state);
    snprintf(s->reason, sizeof(s->reason), "%s", *job->reason ? job->reason : "the job is not placed yet");
    return ERR_OK;
}

/* Passes on a signal that has not been passed on yet. The first ^C stops the job, the second kills it, the
 * third ends ddpctl without waiting. */
static enum err_code run_session_obey(struct run_session *s, struct err *e)
{
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    char why[128] = "";
    if (s->stops >= interrupts_count())
        return ERR_OK;
    s->stops++;
    if (s->stops > 2)
        return err_set(e, ERR_CANCELLED, "gave up waiting");
    request.job = s->job;
    request.kill = s->stops == 2;
    if (s->node)
        snprintf(why, sizeof(why), "%s was interrupted", s->node);
    request.why = why;
    request.signal = interrupt_signal();
    if (!s->unread && (s->several || s->stops > 1 || !s->terminal.interrupted_end))
        buf_puts(&s->talk, s->stops == 1 ? "ddpctl: stopping the job, ^C again kills it\n"
                                         : "ddpctl: killing the job\n");
    run_session_flush(s);
    if (link_call(&s->link, "CancelJob", &request, &reply, 0, e) != ERR_OK &&
        e->code != ERR_FAILED_PRECONDITION) /* it has ended meanwhile */
        return e->code;
    return ERR_OK;
}

static enum err_code run_session_loop(struct run_session *s, struct err *e)
{
    while (!s->ended) {
        CLEANUP(rpc_release) Ddp__V1__JobStatus *job = NULL;
        int64_t now = clock_boot_ms();
        int64_t idle = run_terminal_is_used(&s->terminal) ? TYPING_WAIT_MS : IDLE_WAIT_MS;
        int64_t wait = now - s->active_ms < 1000 ? BUSY_WAIT_MS : idle;
        enum err_code code = job_watch_next(&s->watch, wait, &job, e);
        /* A dead daemon explains an UNAVAILABLE coordinator better than the call's error does. */
        if (local_cluster_check(&s->local, e) != ERR_OK || (code != ERR_OK && code != ERR_UNAVAILABLE))
            return e->code;
        run_terminal_turn(&s->terminal,
                          now); /* before the job's end is printed: it ends a use of the terminal */
        if (job && run_session_update(s, job, e) != ERR_OK)
            return e->code;
        if ((s->turn ? s->turn : run_session_check_queue)(s, e) != ERR_OK)
            return e->code;
        if (log_tail_read(&s->tail, now) || job)
            s->active_ms = now;
        if (!run_session_flush(s) && output_reader_left() && !s->unread) {
            s->unread = true;
            interrupts_add_reader_left(); /* stdout is a closed pipe: end, as any command in a pipe does */
        }
        if (run_session_obey(s, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

void run_session_init(struct run_session *s, const struct run_request *request, bool quiet)
{
    *s = (struct run_session){.request = request, .quiet = quiet, .local = LOCAL_CLUSTER_INIT};
    interrupts_catch_these(request->signals);
    run_terminal_open(&s->terminal, request);
    log_tail_init(&s->tail);
    follow_view_init(&s->view, term_of(STDERR_FILENO));
    s->view.brief = true;
    s->view.tells_end = !quiet;
}

enum err_code run_session_run(struct run_session *s, struct err *e)
{
    job_watch_open(&s->watch, &s->link, s->job);
    s->active_ms = clock_boot_ms();
    enum err_code code = run_session_loop(s, e);
    run_terminal_close(&s->terminal); /* before anybody prints the error */
    if (code != ERR_OK) { /* the lines that are on the terminal end before the message about the error */
        output_merge_finish(&s->tail.merge, clock_boot_ms());
        run_session_flush(s);
    }
    return code;
}

enum err_code run_session_serve_web(struct run_session *s, const char *host, struct err *e)
{
    CLEANUP(buf_release) struct buf talk = {0};
    struct link link = {0}; /* a connection of its own */
    if (!s->serves_web)
        return ERR_OK;
    if (local_cluster_link(&s->local, &link, e) != ERR_OK)
        return e->code;
    if (web_session_open(&s->web, &link, 0, e) != ERR_OK)
        return err_wrap(e, "--web");
    const char *url = web_session_url(s->web);
    const long port = strtol(strrchr(url, ':') + 1, NULL, 10);
    buf_printf(&talk, "ddpctl: the web page of this run is %s%s%s\n", url, host ? " on " : "",
               host ? host : "");
    if (host)
        buf_printf(
            &talk,
            "ddpctl: to open it on another machine, first run `ssh -N -L %ld:127.0.0.1:%ld %s` there\n", port,
            port, host);
    stderr_put(&talk);
    return ERR_OK;
}

void run_session_release(struct run_session *s, int code)
{
    bool stopped = interrupts_count() || strcmp(s->state, "cancelled") == 0;
    /* The logs of a failure are kept for the user, and those of which stdout got only a part. Nobody needs those of a run that was
     * interrupted. */
    bool keep = s->request->log_dir || s->request->redirects ||
                ((code != EXIT_DONE || stdout_lost()) && s->generation && !stopped);
    if (keep && s->local.logs)
        buf_printf(&s->talk, "ddpctl: logs are in %s%s%s\n", s->local.logs, s->node ? " on " : "",
                   s->node ? s->node : "");
    if (keep && !s->quiet)
        run_session_flush(s);
    run_terminal_close(&s->terminal);
    web_session_close(s->web);
    job_watch_close(&s->watch);
    link_close(&s->link);
    local_cluster_stop(&s->local, keep);
    log_tail_release(&s->tail);
    buf_release(&s->talk);
}
