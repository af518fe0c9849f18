#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/connect.h"
#include "client/text/series.h"

struct digests {
    struct series high[2], low[2];
};

static void verify_digests_release(struct digests *d)
{
    for (int i = 0; i < 2; i++) {
        series_release(&d->high[i]);
        series_release(&d->low[i]);
    }
}

static enum err_code verify_fetch_series(struct link *link, int64_t job, const char *name, struct series *out,
                                         struct err *e)
{
    Ddp__V1__GetMetricsRequest request = DDP__V1__GET_METRICS_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    request.job = job;
    request.name = (char *)(uintptr_t)name;
    if (link_call(link, "GetMetrics", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    series_take(out, reply, name);
    return ERR_OK;
}

static enum err_code verify_fetch_digests(struct link *link, const int64_t jobs[2], struct digests *d,
                                          struct err *e)
{
    for (int i = 0; i < 2; i++) {
        if (verify_fetch_series(link, jobs[i], "digest_high", &d->high[i], e) != ERR_OK ||
            verify_fetch_series(link, jobs[i], "digest_low", &d->low[i], e) != ERR_OK)
            return e->code;
        if (d->high[i].count == 0)
            return err_set(e, ERR_FAILED_PRECONDITION,
                           "job %lld has reported no digests; train jobs report them every log_every steps",
                           (long long)jobs[i]);
    }
    return ERR_OK;
}

static int verify_compare_jobs(struct link *link, const int64_t jobs[2])
{
    CLEANUP(verify_digests_release) struct digests d = {0};
    CLEANUP(buf_release) struct buf out = {0};
    struct series_difference difference;
    struct err e;
    if (verify_fetch_digests(link, jobs, &d, &e) != ERR_OK)
        return error_print(&e);
    series_compare(&difference, d.high, d.low);
    if (difference.compared == 0) {
        err_set(&e, ERR_FAILED_PRECONDITION,
                "jobs %lld and %lld reported no step in common; give them the same log_every",
                (long long)jobs[0], (long long)jobs[1]);
        return error_print(&e);
    }
    series_print_difference(&difference, jobs, &out);
    stdout_put(&out);
    return difference.differ ? EXIT_FAILED : EXIT_DONE;
}

static int cmd_verify_run(struct invocation *in)
{
    struct link link;
    struct err e;
    int64_t jobs[2];
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    int code = job_find(&link, "verify", in->args.list[0], &jobs[0], &e) == ERR_OK &&
                       job_find(&link, "verify", in->args.list[1], &jobs[1], &e) == ERR_OK
                   ? verify_compare_jobs(&link, jobs)
                   : error_print(&e);
    link_close(&link);
    return code;
}

const struct command cmd_verify = {
    .name = "verify",
    .usage = "verify JOB JOB",
    .summary = "check whether two jobs computed the same, bit for bit",
    .help =
        "Compares the digests of their parameters at the steps that both reported, and names the first step\n"
        "where they differ. Exit code 0: they agree at every such step; 1: they differ.",
    .least = 2,
    .most = 2,
    .run = cmd_verify_run,
};
