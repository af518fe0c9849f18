#include "client/cmd/follow.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

static volatile sig_atomic_t interrupt_count, interrupt_number;

/* The same word twice is one wish, but for ^C: terminals that close and batch systems tell it more than once,
 * and a snapshot may be on its way. */
static void on_interrupt(int number)
{
    if (number == interrupt_number && number != SIGINT)
        return;
    interrupt_number = number;
    interrupt_count++;
}

void interrupts_catch_these(const int *signals)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    for (; *signals; signals++) {
        struct sigaction before;
        bool nohup =
            *signals == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!nohup)
            sigaction(*signals, &action, NULL);
    }
}

void interrupts_catch(void)
{
    static const int signals[] = {SIGINT, SIGTERM, 0};
    interrupts_catch_these(signals);
}

int interrupts(void)
{
    return interrupt_count;
}

int interrupt_signal(void)
{
    return interrupt_number;
}

void job_watch_open(struct job_watch *w, struct link *link, int64_t job)
{
    *w = (struct job_watch){.link = link, .job = job};
}

void job_watch_close(struct job_watch *w)
{
    rpc_stream_close(w->stream);
    w->stream = NULL;
}

static enum err_code start(struct job_watch *w, struct err *e)
{
    Ddp__V1__WatchJobRequest request = DDP__V1__WATCH_JOB_REQUEST__INIT;
    request.job = w->job;
    return rpc_stream_open(&w->stream, w->link->channel, &ddp__v1__cluster__descriptor, "WatchJob", &request,
                           0, 0, e);
}

static enum err_code broke(struct job_watch *w, struct err *e)
{
    job_watch_close(w);
    if (e->code != ERR_UNAVAILABLE && e->code != ERR_OK)
        return link_explain(w->link, e);
    w->retry_ms = w->retry_ms ? w->retry_ms * 2 : 100;
    if (w->retry_ms > 1000)
        w->retry_ms = 1000;
    w->retry_at_ms = clock_boot_ms() + w->retry_ms;
    if (e->code == ERR_OK)
        return err_set(e, ERR_UNAVAILABLE, "the coordinator ended the watch");
    return link_explain(w->link, e);
}

enum err_code job_watch_next(struct job_watch *w, int64_t wait_ms, Ddp__V1__JobStatus **job, struct err *e)
{
    void *message = NULL;
    *job = NULL;
    if (!w->stream) {
        int64_t pause = w->retry_at_ms - clock_boot_ms();
        if (w->retry_at_ms && pause > 0) {
            usleep((useconds_t)(pause < wait_ms ? pause : wait_ms) * 1000);
            if (pause > wait_ms)
                return err_set(e, ERR_UNAVAILABLE, "the coordinator is away");
        }
        if (start(w, e) != ERR_OK)
            return broke(w, e);
    }
    enum err_code code = rpc_stream_next(w->stream, wait_ms, &message, e);
    if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(w->stream))
        return w->retry_at_ms ? err_set(e, ERR_UNAVAILABLE, "the coordinator is away") : ERR_OK;
    if (code != ERR_OK)
        return broke(w, e);
    if (!message) {
        *e = (struct err){0};
        return broke(w, e);
    }
    w->retry_ms = w->retry_at_ms = 0;
    *job = message;
    return ERR_OK;
}

int job_exit_code(const Ddp__V1__JobStatus *job)
{
    if (job_succeeded(job))
        return EXIT_DONE;
    if (strcmp(job->state, "cancelled") == 0)
        return job->exit_code ? job->exit_code : EXIT_FAILED;
    return job->exit_code ? job->exit_code : EXIT_DDP;
}

static void detach(struct follow_view *view, int64_t job, struct buf *out)
{
    CLEANUP(buf_release) struct buf talk = {0};
    follow_view_break(view, out);
    stdout_put(out);
    buf_printf(&talk,
               "ddpctl: detached, job %lld goes on\n   ddpctl status %lld --watch\n   ddpctl cancel %lld\n",
               (long long)job, (long long)job, (long long)job);
    stderr_put(&talk);
}

enum err_code follow_job(struct link *link, int64_t job, int *exit_code, struct err *e)
{
    struct follow_view view;
    struct job_watch watch;
    CLEANUP(buf_release) struct buf out = {0};
    bool answered = false, over = false;
    interrupts_catch();
    follow_view_init(&view, term_of(STDOUT_FILENO));
    job_watch_open(&watch, link, job);
    *exit_code = EXIT_DONE;
    while (!over) {
        Ddp__V1__JobStatus *status;
        enum err_code code = job_watch_next(&watch, 100, &status, e);
        view.term.now_ms = clock_wall_ms();
        if (code == ERR_UNAVAILABLE && answered) {
            follow_view_away(&view, &out);
        } else if (code != ERR_OK) {
            job_watch_close(&watch);
            return e->code;
        }
        if (status) {
            answered = true;
            follow_view_update(&view, status, &out);
            over = job_ended(status);
            if (over)
                *exit_code = job_exit_code(status);
            rpc_free(status);
        }
        bool read = stdout_put(&out);
        if (!over && (interrupts() || !read)) {
            detach(&view, job, &out);
            over = true;
        }
    }
    job_watch_close(&watch);
    return ERR_OK;
}
