#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/follow.h"
#include "client/local.h"
#include "client/submit.h"
#include "client/tail.h"

/* run: one job in the foreground on a private cluster of this machine.
 *
 * Happy path: start the cluster, submit, watch the job, and meanwhile copy what the workers write (straight
 * from their log files) until the job has ended and all is copied; then end the cluster and exit with the
 * job's code. The first ^C cancels (snapshot, then stop), the second kills; when this process dies in any
 * way, the lifeline ends all. ^Z stops the display only. */

#define QUEUE_SAY_MS 2000 /* then it is said what the job waits for, */
#define QUEUE_MS 60000    /* and then it will never fit here */
#define BUSY_WAIT_MS 4    /* between looks at the log files while something happens, */
#define IDLE_WAIT_MS 40   /* and when nothing has for a second */

struct run_options {
    struct job_flags job; /* first: job_flag_options fill it */
    const char *log_dir;
    bool tee, quiet;
};

static const struct option_spec options[] = {
    {.name = "log-dir",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, log_dir),
     .value = "DIR",
     .help =
         "keep the workers' logs there (else only those of a failed run are); a later run's in run-2 ..."},
    {.name = "tee",
     .type = OPTION_FLAG,
     .offset = offsetof(struct run_options, tee),
     .help = "begin the lines of several ranks with [rank] in a pipe, too"},
    {.name = "quiet",
     .letter = 'q',
     .type = OPTION_FLAG,
     .offset = offsetof(struct run_options, quiet),
     .help = "say nothing but errors; the workers' output comes all the same"},
    {0},
};

struct session {
    const struct run_options *options;
    struct local local;
    struct link link;
    struct watch watch;
    struct tail tail;
    struct follow_view view;
    struct buf out, err;
    int64_t job, generation, started_ms, active_ms;
    int stops; /* cancels that were sent */
    bool ended, unread, queue_said;
    char state[16], reason[256]; /* of the job, as last heard */
    int exit_code;
};

static bool flush(struct session *s)
{
    bool talk = put_err(&s->err);
    return put_out(&s->out) && talk;
}

static void drain(struct session *s)
{
    while (tail_read(&s->tail, &s->out, &s->err))
        if (!flush(s))
            return;
}

static void new_generation(struct session *s, const Ddp__V1__JobStatus *job)
{
    bool several = job->world_size > 1;
    drain(s);
    tail_finish(&s->tail, &s->out, &s->err);
    s->generation = job->generation;
    s->tail.out.raw = s->tail.err.raw = !several;
    s->tail.out.wanted = several && (isatty(STDOUT_FILENO) || s->options->tee);
    s->tail.err.wanted = several && (isatty(STDERR_FILENO) || s->options->tee);
    s->tail.out.colour = term_of(STDOUT_FILENO).colour;
    s->tail.err.colour = term_of(STDERR_FILENO).colour;
    tail_open(&s->tail, s->local.logs, s->job, job->generation, job->nodes[0], job->world_size);
}

static enum err_code check_queue(struct session *s, struct err *e)
{
    int64_t waited = clock_boot_ms() - s->started_ms;
    if (strcmp(s->state, "queued") != 0 || s->generation || waited < QUEUE_SAY_MS)
        return ERR_OK;
    if (waited >= QUEUE_MS)
        return err_set(e, ERR_FAILED_PRECONDITION, "the job does not start on this machine: %s", s->reason);
    if (!s->queue_said && !s->options->quiet)
        buf_printf(&s->err, "ddpctl: %s\n", s->reason);
    s->queue_said = true;
    return ERR_OK;
}

static void update(struct session *s, const Ddp__V1__JobStatus *job)
{
    if (job->generation > s->generation && job->n_nodes)
        new_generation(s, job);
    if (job_ended(job)) {
        drain(s);
        tail_finish(&s->tail, &s->out, &s->err);
        flush(s);
        s->ended = true;
        s->exit_code = job_exit_code(job);
    }
    s->view.term.now_ms = clock_wall_ms();
    follow_view_update(&s->view, job, &s->err);
    snprintf(s->state, sizeof(s->state), "%s", job->state);
    snprintf(s->reason, sizeof(s->reason), "%s", *job->reason ? job->reason : "it is not placed yet");
}

/* Each ^C beyond what was sent so far: the first stops, the second kills, the third does not wait for
 * anything. */
static enum err_code obey(struct session *s, struct err *e)
{
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    if (s->stops >= interrupts())
        return ERR_OK;
    s->stops++;
    if (s->stops > 2)
        return err_set(e, ERR_CANCELLED, "gave up waiting");
    request.job = s->job;
    request.kill = s->stops == 2;
    if (!s->unread)
        buf_puts(&s->err, s->stops == 1 ? "ddpctl: stopping, ^C again kills\n" : "ddpctl: killing\n");
    flush(s);
    if (link_call(&s->link, "CancelJob", &request, &reply, 0, e) != ERR_OK &&
        e->code != ERR_FAILED_PRECONDITION)
        return e->code;
    return ERR_OK;
}

static enum err_code loop(struct session *s, struct err *e)
{
    while (!s->ended) {
        CLEANUP(rpc_release) Ddp__V1__JobStatus *job = NULL;
        int64_t now = clock_boot_ms();
        int64_t wait = now - s->active_ms < 1000 ? BUSY_WAIT_MS : IDLE_WAIT_MS;
        enum err_code code = watch_next(&s->watch, wait, &job, e);
        if (local_check(&s->local, e) != ERR_OK || (code != ERR_OK && code != ERR_UNAVAILABLE))
            return e->code;
        if (job)
            update(s, job);
        if (check_queue(s, e) != ERR_OK)
            return e->code;
        if (tail_read(&s->tail, &s->out, &s->err) || job)
            s->active_ms = now;
        if (!flush(s) && !s->unread) {
            s->unread = true;
            raise(SIGTERM); /* nobody reads any more: end as a command in a pipe would */
        }
        if (obey(s, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

/* The slots the job needs here: a private agent offers at least these, however few the cores. */
static enum err_code check_job(const char *text, int64_t *slots, struct err *e)
{
    struct job_spec spec;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    enum err_code code = job_parse(&spec, text, strlen(text), "job file", e);
    *slots = cores > 0 ? cores : 1;
    if (code == ERR_OK && spec.nodes_min > 1)
        code = err_set(
            e, ERR_INVALID_ARGUMENT,
            "run uses this machine alone and the job wants %lld nodes, say --nodes 1 or ddpctl submit",
            (long long)spec.nodes_min);
    if (code == ERR_OK && spec.procs == JOB_PROCS_NUMBER && spec.procs_per_node > *slots)
        *slots = spec.procs_per_node;
    if (code == ERR_OK && access(spec.workdir, X_OK) != 0)
        code = err_set(e, ERR_INVALID_ARGUMENT, "workdir %s: %s", spec.workdir, strerror(errno));
    job_release(&spec);
    return code;
}

static enum err_code start(struct session *s, const char *text, int64_t slots, struct err *e)
{
    struct submission submission = {.text = text};
    if (local_start(&s->local, slots, s->options->log_dir, e) != ERR_OK ||
        local_link(&s->local, &s->link, e) != ERR_OK)
        return e->code;
    if (submit_send(&s->link, &submission, &s->job, e) != ERR_OK)
        return e->code;
    watch_open(&s->watch, &s->link, s->job);
    s->started_ms = s->active_ms = clock_boot_ms();
    return loop(s, e);
}

/* ddp's own failure; a refused job keeps its meaning. */
static int failed(const struct err *e)
{
    int code = complain(e);
    return code == EXIT_USAGE ? EXIT_USAGE : EXIT_DDP;
}

static void finish(struct session *s, int code)
{
    bool keep = s->options->log_dir || (code != EXIT_DONE && s->generation && !interrupts());
    if (keep && s->local.logs)
        buf_printf(&s->err, "ddpctl: logs are in %s\n", s->local.logs);
    if (keep && !s->options->quiet)
        put_err(&s->err);
    watch_close(&s->watch);
    link_close(&s->link);
    local_stop(&s->local, keep);
    tail_release(&s->tail);
    buf_release(&s->out);
    buf_release(&s->err);
}

static int run(struct invocation *in)
{
    const struct run_options *o = in->options;
    struct session s = {.options = o, .local = {.lock = -1, .lifeline = -1}};
    struct job_flags flags = o->job;
    CLEANUP(free_text) char *text = NULL;
    struct err e;
    int64_t slots;
    if (in->args.tail && !flags.max_restarts)
        flags.max_restarts = "0"; /* as torchrun: a command is started once unless asked otherwise */
    if (submit_text(&in->args, &flags, &text, &e) != ERR_OK || check_job(text, &slots, &e) != ERR_OK)
        return complain(&e);
    interrupts_catch();
    tail_init(&s.tail);
    follow_view_init(&s.view, term_of(STDERR_FILENO));
    s.view.brief = true;
    int code = start(&s, text, slots, &e) == ERR_OK ? s.exit_code : failed(&e);
    if (interrupts())
        code = 128 + interrupt_signal();
    finish(&s, code);
    return code;
}

const struct command cmd_run = {
    .name = "run",
    .usage = "run [OPTIONS] -- COMMAND [ARGUMENTS]\nrun JOB.yaml [OPTIONS]",
    .summary = "run one job here, in the foreground; nothing to start first",
    .help = "Starts a private coordinator and agent, runs the job on this machine, copies the output of its "
            "ranks and\n"
            "exits with the first failing rank's own code (128 + signal; 125 where ddp itself failed). One "
            "rank's\n"
            "output passes as it is; that of several comes in whole lines, on a terminal each behind its "
            "[rank]. The\n"
            "first ^C lets a train job leave a snapshot and stops (exit 130), the second kills. When ddpctl "
            "dies,\n"
            "all dies. ^Z stops the display, not the job. A COMMAND is not restarted unless --max-restarts "
            "says so.\n\n"
            "  ddpctl run --procs-per-node 4 -- python3 train.py\n"
            "  ddpctl run examples/single.yaml --set train.epochs=3",
    .options = options,
    .shared = job_flag_options,
    .size = sizeof(struct run_options),
    .most = 1,
    .tail = true,
    .offline = true,
    .run = run,
};
