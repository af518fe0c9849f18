#include <string.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/job_probe.h"
#include "client/job_status.h"
#include "client/job_watch.h"
#include "client/screen/screen_parts.h"

/* `wait` prints nothing for a job that succeeds; otherwise the reason goes to stderr. */
static int wait_print_end(struct link *link, const Ddp__V1__JobStatus *job)
{
    CLEANUP(buf_release) struct buf talk = {0};
    int code = job_status_exit_code(job);
    if (!job_status_succeeded(job)) {
        struct term plain = {0};
        const bool failed = strcmp(job->state, "failed") == 0;
        buf_printf(&talk, "ddpctl: job %lld %s", (long long)job->job, job->state);
        if (failed && screen_reason_is_failure(job)) { /* the failure says it with more words */
            CLEANUP(rpc_release) void *probe = job_probe_failure(link, job);
            buf_puts(&talk, ": ");
            screen_failure(job, probe, &plain, &talk);
        } else {
            screen_reason(job, &talk);
            buf_putc(&talk, '\n');
        }
        screen_not_restarted(job, "", &talk);
        if (failed)
            screen_next(job, &talk);
    }
    stderr_put(&talk);
    return code;
}

static int wait_for_job(struct link *link, int64_t job, const void *unused)
{
    struct job_watch watch;
    struct err e;
    int result = -1;
    bool answered = false;
    (void)unused;
    job_watch_open(&watch, link, job);
    while (result < 0) {
        Ddp__V1__JobStatus *status;
        enum err_code code = job_watch_next(&watch, 1000, &status, &e);
        /* A coordinator that has answered once may restart, and the job goes on meanwhile. */
        if (code != ERR_OK && !(code == ERR_UNAVAILABLE && answered))
            result = error_print(&e);
        if (status && job_status_ended(status))
            result = wait_print_end(link, status);
        answered = answered || status;
        rpc_free(status);
    }
    job_watch_close(&watch);
    return result;
}

static int cmd_wait_run(struct invocation *in)
{
    /* the order does not matter, since all must end */
    return jobs_run(in, NULL, wait_for_job, NULL);
}

const struct command cmd_wait = {
    .name = "wait",
    .usage = "wait JOB...",
    .summary = "wait until jobs have ended, and exit with their exit code",
    .help =
        "Exit codes: 0 if the job succeeded, 1 if it was cancelled, else that of the first rank that failed\n"
        "(128 + N for signal N). It is 125 if ddp ended the job (a time limit, a stall, no node left) or failed\n"
        "itself. If the coordinator stops answering, this command waits until it is back. Of several jobs, the\n"
        "first one named that failed gives the exit code.",
    .least = 1,
    .most = JOBS_MOST,
    .run = cmd_wait_run,
};
