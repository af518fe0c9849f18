#include "client/cmd/submit/follow.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/interrupts.h"
#include "client/job_logs.h"
#include "client/job_probe.h"
#include "client/job_status.h"
#include "client/job_watch.h"
#include "client/output_targets.h"
#include "client/screen/screen_follow.h"

/* --follow: shows the progress of a train job, or the output of a command.
 *
 * WatchJob delivers the job's states (job_watch.h), ReadLogs a command's output (job_logs.h). Both continue
 * automatically after the coordinator was away. A command's stdout goes to stdout and its stderr to stderr, merged as
 * by `run`. ddpctl's own messages go to stderr. Output arrives later than states, so a failure is printed FAILURE_MS
 * after its state has arrived, to follow the last lines of the rank that failed. When the job ends, all output is
 * printed before the last line. */
#define WATCH_MS 100
#define OUTPUT_MS 20
#define FAILURE_MS 700
#define RETRY_MS 500     /* between attempts to open the output again */
#define GIVE_UP_MS 10000 /* for these attempts after the job has ended */

struct follower {
    struct link *link;
    int64_t job;
    struct job_watch watch;
    struct follow_view view;
    struct job_logs logs;
    struct output_merge merge;
    struct buf out;              /* of the view */
    Ddp__V1__JobStatus *pending; /* the newest state that is not shown yet; owned */
    int64_t pending_ms, opened_ms;
    int64_t generation; /* of the newest output */
    bool answered, command, refused, unread;
    int exit_code;
};

/* Prints the view's text: to stdout for a train job, to stderr for a command. */
static void follower_put(struct follower *f)
{
    if (!f->command) {
        f->unread |= !screen_put(&f->out);
    } else if (!f->view.yielded) { /* no output yet: the view may redraw its line */
        screen_fold(&f->out);
        stderr_put(&f->out);
    } else {
        screen_fold(&f->out);
        output_merge_say(&f->merge, true, &f->out);
        buf_clear(&f->out);
        f->unread |= !output_targets_put(&f->merge);
    }
}

static void follower_say(struct follower *f, const char *text)
{
    term_printf_safe(&f->out, "ddpctl: %s", text);
    buf_putc(&f->out, '\n');
    follower_put(f);
}

/* Shows a state. */
static void follower_update(struct follower *f, const Ddp__V1__JobStatus *status)
{
    const bool over = job_status_ended(status);
    CLEANUP(rpc_release) void *probe = over ? job_probe_failure(f->link, status) : NULL;
    f->view.probe = probe;
    f->view.term.now_ms = clock_wall_ms();
    follow_view_update(&f->view, status, &f->out);
    f->view.probe = NULL;
    follower_put(f);
}

/* ---- the output of a command */

static void follower_begin_output(struct follower *f, const Ddp__V1__JobStatus *status)
{
    const struct output_targets_options targets = {.several = status->world_size > 1};
    f->generation = status->generation;
    output_targets_set(&f->merge, &targets);
}

static void follower_take_output(struct follower *f, const Ddp__V1__LogData *data)
{
    if (!f->view.yielded) {
        follow_view_yield(&f->view, &f->out);
        stderr_put(&f->out);
    }
    if (data->generation != f->generation &&
        data->data.len) { /* the previous generation's lines have ended */
        output_merge_finish(&f->merge, clock_boot_ms());
        f->generation = data->generation;
    }
    if (*data->note)
        follower_say(f, data->note);
    if (!data->data.len)
        return;
    output_merge_add(&f->merge, data->rank, data->standard_error, (const char *)data->data.data,
                     data->data.len, clock_boot_ms());
    f->unread |= !output_targets_put(&f->merge);
}

/* Opens the output, even after the coordinator was away. If the user may not read it, only states are shown. */
static void follower_open_output(struct follower *f)
{
    const int64_t now = clock_boot_ms();
    struct err e;
    if (f->refused || job_logs_are_open(&f->logs) || (f->opened_ms && now - f->opened_ms < RETRY_MS))
        return;
    f->opened_ms = now;
    if (job_logs_open(&f->logs, &e) != ERR_OK && e.code != ERR_UNAVAILABLE) {
        f->refused = true;
        follower_say(f, e.msg);
    }
}

/* Prints the output that arrives within wait_ms. */
static void follower_read_output(struct follower *f, int64_t wait_ms)
{
    CLEANUP(rpc_release) Ddp__V1__LogData *data = NULL;
    struct err e;
    follower_open_output(f);
    if (!job_logs_are_open(&f->logs)) {
        link_sleep(f->link, wait_ms);
        return;
    }
    if (job_logs_next(&f->logs, wait_ms, &data, &e) != ERR_OK && e.code != ERR_UNAVAILABLE) {
        f->refused = true;
        follower_say(f, e.msg);
    } else if (data) {
        follower_take_output(f, data);
    } else {
        output_merge_tick(&f->merge, clock_boot_ms());
        f->unread |= !output_targets_put(&f->merge);
    }
}

/* The job has ended: prints the rest of its output. */
static void follower_drain(struct follower *f)
{
    int64_t last = clock_boot_ms();
    while (!f->logs.over && !f->refused && !interrupts_count() && !f->unread) {
        follower_read_output(f, OUTPUT_MS);
        if (job_logs_are_open(&f->logs)) {
            last = clock_boot_ms();
        } else if (clock_boot_ms() - last > GIVE_UP_MS) {
            f->refused = true;
            follower_say(f, "the coordinator does not answer: the rest of the output is not shown");
        }
    }
    output_merge_finish(&f->merge, clock_boot_ms());
    f->unread |= !output_targets_put(&f->merge);
}

/* ---- the job */

static bool follower_is_interrupted(const struct follower *f)
{
    return interrupts_count() || f->unread;
}

static void follower_detach(struct follower *f)
{
    CLEANUP(buf_release) struct buf talk = {0};
    if (f->command) {
        output_merge_finish(&f->merge, clock_boot_ms());
        output_targets_put(&f->merge);
    }
    follow_view_break(&f->view, &f->out);
    follower_put(f);
    buf_printf(&talk,
               "ddpctl: detached, job %lld continues\n   ddpctl status %lld --watch\n   ddpctl cancel %lld\n",
               (long long)f->job, (long long)f->job, (long long)f->job);
    if (f->command)
        buf_printf(&talk, "   ddpctl logs %lld -f\n", (long long)f->job);
    stderr_put(&talk);
}

static void follower_take_status(struct follower *f, Ddp__V1__JobStatus *status)
{
    if (!f->answered && strcmp(status->kind, "command") == 0) {
        f->command = f->view.streams = true;
        f->view.term = term_of(STDERR_FILENO);
        f->view.seen = output_targets_show;
        f->view.seen_by = &f->merge;
    }
    f->answered = true;
    if (f->command && !f->generation && status->generation)
        follower_begin_output(f, status);
    if (!f->pending)
        f->pending_ms = clock_boot_ms();
    rpc_free(f->pending);
    f->pending = status;
}

/* Shows the pending state when it is due. Returns true if the job has ended with it. */
static bool follower_show_status(struct follower *f)
{
    Ddp__V1__JobStatus *status = f->pending;
    const bool over = status && job_status_ended(status);
    const bool fails =
        status && f->command && status->failure && (status->failure->generation > f->view.failed_generation);
    if (!status || (fails && !over && clock_boot_ms() - f->pending_ms < FAILURE_MS))
        return false;
    if (over && f->generation)
        follower_drain(f);
    if (over && f->generation && follower_is_interrupted(f) && !f->logs.over && !f->refused)
        follower_say(f, "the rest of the output is left out");
    f->pending = NULL;
    follower_update(f, status);
    if (over)
        f->exit_code = job_status_exit_code(status);
    rpc_free(status);
    return over;
}

static enum err_code follower_run(struct follower *f, struct err *e)
{
    for (;;) {
        Ddp__V1__JobStatus *status;
        const bool reads = f->generation && !f->refused && !f->logs.over;
        const enum err_code code = job_watch_next(&f->watch,
                                                  reads        ? 0
                                                  : f->pending ? OUTPUT_MS
                                                               : WATCH_MS,
                                                  &status, e);
        /* Once the coordinator has answered, ddpctl waits for it to come back. If it never answered, that is an error. */
        if (code == ERR_UNAVAILABLE && f->answered) {
            follow_view_away(&f->view, &f->out);
            follower_put(f);
        } else if (code != ERR_OK) {
            return code;
        }
        if (status)
            follower_take_status(f, status);
        if (reads)
            follower_read_output(f, OUTPUT_MS);
        if (follower_show_status(f))
            return ERR_OK;
        if (follower_is_interrupted(f)) {
            /* The job's end is not known. 0 would say that it has succeeded. */
            f->exit_code = 128 + (interrupts_count() ? interrupt_signal() : SIGPIPE);
            follower_detach(f);
            return ERR_OK;
        }
    }
}

enum err_code follow_job(struct link *link, int64_t job, int *exit_code, struct err *e)
{
    struct follower f = {.link = link, .job = job, .exit_code = EXIT_DONE};
    interrupts_catch();
    follow_view_init(&f.view, term_of(STDOUT_FILENO));
    job_watch_open(&f.watch, link, job);
    job_logs_init(&f.logs, link, job);
    output_merge_init(&f.merge);
    const enum err_code code = follower_run(&f, e);
    *exit_code = f.exit_code;
    job_watch_close(&f.watch);
    job_logs_release(&f.logs);
    output_merge_release(&f.merge);
    rpc_free(f.pending);
    buf_release(&f.out);
    return code;
}
