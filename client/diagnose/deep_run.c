#include "client/diagnose/deep_run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/job/job_print.h"
#include "base/mem.h"
#include "client/cmd/output.h"
#include "client/cmd/submit/submission.h"
#include "client/interrupts.h"
#include "client/job_status.h"
#include "client/job_watch.h"
#include "client/rank_output.h"

#define LOOK_MS 200
#define LIMIT_MS                                                                                             \
    120000 /* of a job, in addition to three times the time of measuring (trainer/measure_network.c) */

static void deep_skip(struct deep_result *r, const char *node, char *why)
{
    r->skipped = array_grow(r->skipped, r->skipped_count, &r->skipped_cap, sizeof(*r->skipped));
    r->skipped[r->skipped_count++] = (struct deep_skipped){xstrdup(node), why};
}

static bool deep_names(char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (!strcmp(*names, name))
            return true;
    return false;
}

static int deep_healthy_gpus(const Ddp__V1__NodeStatus *node)
{
    int count = 0;
    for (size_t i = 0; i < node->n_gpus; i++)
        count += node->gpus[i]->healthy;
    return count;
}

/* Why the node cannot be measured now; NULL: it can. The caller frees it. */
static char *deep_why_not(const Ddp__V1__NodeStatus *node, bool gpus)
{
    if (strcmp(node->state, "alive") != 0)
        return xasprintf("is %s", node->state);
    if (node->n_jobs == 1)
        return xasprintf("runs job %lld", (long long)node->jobs[0]);
    if (node->n_jobs)
        return xasprintf("runs %zu jobs", node->n_jobs);
    if (gpus && !deep_healthy_gpus(node))
        return xstrdup("has no healthy GPU");
    return NULL;
}

/* Whether the node's GPUs are measured, or else its slots. */
static bool deep_on_gpus(const struct deep_ask *ask, const Ddp__V1__NodeStatus *node)
{
    if (ask->job && ask->job->device == JOB_DEVICE_CPU)
        return false;
    return (ask->job && ask->job->device == JOB_DEVICE_CUDA) || node->n_gpus > 0;
}

/* The names of the free nodes of this kind; strv_free. */
static char **deep_choose(const struct deep_ask *ask, const Ddp__V1__ListNodesReply *nodes, bool gpus,
                          struct deep_result *r)
{
    char **chosen = NULL;
    for (size_t i = 0; i < nodes->n_nodes; i++) {
        const Ddp__V1__NodeStatus *node = nodes->nodes[i];
        if ((ask->only && !deep_names(ask->only, node->name)) ||
            (ask->job && ask->job->only_nodes && !deep_names(ask->job->only_nodes, node->name)) ||
            deep_on_gpus(ask, node) != gpus)
            continue;
        char *why = deep_why_not(node, gpus);
        if (why)
            deep_skip(r, node->name, why);
        else
            chosen = strv_append(chosen, node->name);
    }
    return chosen;
}

static enum err_code deep_check_names(const struct deep_ask *ask, const Ddp__V1__ListNodesReply *nodes,
                                      struct err *e)
{
    for (char *const *name = ask->only; name && *name; name++) {
        bool known = false;
        for (size_t i = 0; i < nodes->n_nodes; i++)
            known = known || !strcmp(nodes->nodes[i]->name, *name);
        if (!known)
            return err_set(e, ERR_INVALID_ARGUMENT, "there is no node %s; `ddpctl nodes` lists the nodes",
                           *name);
    }
    return ERR_OK;
}

static void deep_job_text(const struct deep_ask *ask, char *const *nodes, bool gpus, struct buf *out)
{
    buf_printf(out, "name: check-deep\nnodes: %zu\nonly_nodes:\n", strv_len(nodes));
    for (; *nodes; nodes++) {
        buf_puts(out, "  - ");
        job_quote(out, *nodes);
        buf_putc(out, '\n');
    }
    buf_printf(
        out,
        "procs_per_node: %s\ndevice: %s\nmax_restarts: 0\nmax_replacements: 0\ntime_limit: %lldms\n"
        "train:\n  model: {type: linear, in: 1, out: 1}\n  data: {type: synthetic, samples: 1, in: 1, out: 1}\n"
        "  batch: 1\n  steps: 1\n  eval: {every: never}\n  measure: %lldms\n",
        gpus ? "gpu" : "cpu", gpus ? "cuda" : "cpu", (long long)(LIMIT_MS + 3 * ask->measure_ms),
        (long long)ask->measure_ms);
}

static void deep_cancel(struct link *link, int64_t job)
{
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    struct err e;
    request.job = job;
    request.kill = true;
    if (link_call(link, "CancelJob", &request, &reply, 0, &e) != ERR_OK)
        (void)error_print(&e); /* the job ends by itself after its time limit */
}

/* Waits for the job's end. *job: rpc_free. */
static enum err_code deep_await(struct link *link, int64_t number, Ddp__V1__JobStatus **job, struct err *e)
{
    struct job_watch watch;
    enum err_code code = ERR_OK;
    bool answered = false;
    *job = NULL;
    job_watch_open(&watch, link, number);
    while (!*job && !code) {
        Ddp__V1__JobStatus *status;
        code = job_watch_next(&watch, LOOK_MS, &status, e);
        if (code == ERR_UNAVAILABLE && answered)
            code = ERR_OK; /* it may restart, and the job goes on meanwhile */
        if (interrupts_count())
            code = err_set(e, ERR_CANCELLED, "interrupted");
        answered = answered || status;
        if (status && job_status_ended(status))
            *job = status;
        else
            rpc_free(status);
    }
    job_watch_close(&watch);
    if (code == ERR_CANCELLED)
        deep_cancel(link, number);
    return code;
}

/* A rank knows its place among the ranks of its node. The coordinator knows which GPU it has: "gpu2 H200". */
static void deep_number_places(struct deep_figures *f, size_t first, const Ddp__V1__JobStatus *job)
{
    for (size_t i = first; i < f->count; i++)
        for (size_t k = 0; k < job->n_ranks; k++)
            if (job->ranks[k]->rank == f->places[i].rank && !strncmp(job->ranks[k]->device, "gpu", 3))
                f->places[i].index = strtoll(job->ranks[k]->device + 3, NULL, 10);
}

static enum err_code deep_take_output(struct deep_figures *f, const Ddp__V1__JobStatus *job,
                                      struct buf *output, struct err *e)
{
    const size_t first = f->count;
    char *end;
    while (output->len && (end = memchr(output->data, '\n', output->len))) {
        const size_t len = (size_t)(end - output->data);
        if (deep_figures_add(f, output->data, len, e) != ERR_OK)
            return e->code;
        buf_consume(output, len + 1);
    }
    if (f->count - first != (size_t)job->world_size)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "job %lld has measured %zu of %d ranks: see ddpctl logs %lld", (long long)job->job,
                       f->count - first, (int)job->world_size, (long long)job->job);
    deep_number_places(f, first, job);
    return ERR_OK;
}

/* The job has measured the devices of the places from `first` on. Older trainers do not measure all-reduces. The caller frees it. */
static char *deep_find_unfinished(const struct deep_figures *f, size_t first, size_t nodes,
                                  const Ddp__V1__JobStatus *job)
{
    const long long number = job->job;
    bool known = true;
    for (size_t i = first; i < f->count; i++)
        known = known && f->places[i].partners_known;
    const bool missing = nodes > 1 && !known;
    const char *prefix = missing ? "all-reduces between nodes were not measured: " : "";
    if (job_status_succeeded(job))
        return missing
                   ? xasprintf("%sjob %lld did not report them; the nodes may have an older version of ddp",
                               prefix, number)
                   : NULL;
    return xasprintf("%sjob %lld %s%s%s%s: see ddpctl why %lld", prefix, number,
                     strcmp(job->state, "failed") ? "was cancelled" : "failed",
                     missing ? "" : " after it had measured", *job->reason ? ": " : "", job->reason, number);
}

static enum err_code deep_measure(struct link *link, const struct deep_ask *ask, char *const *nodes,
                                  bool gpus, struct deep_result *r, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0}, output = {0};
    int64_t number;
    deep_job_text(ask, nodes, gpus, &text);
    const struct submission submission = {.text = text.data, .env = ask->env, .now = true};
    if (submit_send(link, &submission, &number, e) != ERR_OK)
        return e->code;
    r->jobs[r->job_count++] = number;
    if (isatty(STDERR_FILENO)) {
        CLEANUP(buf_release) struct buf talk = {0};
        buf_printf(&talk, "job %lld measures %zu %s\n", (long long)number, strv_len(nodes),
                   strv_len(nodes) == 1 ? "node" : "nodes");
        stderr_put(&talk);
    }
    Ddp__V1__JobStatus *job;
    struct err failed = {0};
    if (deep_await(link, number, &job, e) != ERR_OK) {
        rpc_free(job);
        return e->code;
    }
    if (!job_status_succeeded(job))
        (void)!err_set(&failed, ERR_FAILED_PRECONDITION,
                       "job %lld, which measures, %s%s%s: see ddpctl why %lld", (long long)number,
                       strcmp(job->state, "failed") ? "is cancelled" : "has failed", *job->reason ? ": " : "",
                       job->reason, (long long)number);
    const size_t first = r->figures.count;
    enum err_code code = rank_output_read(link, number, 0, &output, e);
    if (!code)
        code = deep_take_output(&r->figures, job, &output, e);
    /* The devices are measured first, so the job may have told their rates before it failed. */
    if (failed.code && code)
        code = err_set(e, failed.code, "%s", failed.msg);
    else if (!code)
        r->unfinished[r->job_count - 1] = deep_find_unfinished(&r->figures, first, strv_len(nodes), job);
    rpc_free(job);
    r->measured += strv_len(nodes);
    return code;
}

enum err_code deep_run(struct link *link, const struct deep_ask *ask, struct deep_result *out, struct err *e)
{
    Ddp__V1__ListNodesRequest request = DDP__V1__LIST_NODES_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    enum err_code code = link_call(link, "ListNodes", &request, &reply, 0, e);
    if (code == ERR_OK)
        code = deep_check_names(ask, reply, e);
    for (int gpus = 1; gpus >= 0 && !code; gpus--) {
        char **nodes = deep_choose(ask, reply, gpus, out);
        if (nodes)
            code = deep_measure(link, ask, nodes, gpus, out, e);
        strv_free(nodes);
    }
    return code;
}

void deep_result_release(struct deep_result *r)
{
    deep_figures_release(&r->figures);
    for (size_t i = 0; i < r->skipped_count; i++) {
        free(r->skipped[i].node);
        free(r->skipped[i].why);
    }
    free(r->skipped);
    for (size_t i = 0; i < ARRAY_LEN(r->unfinished); i++)
        free(r->unfinished[i]);
    *r = (struct deep_result){0};
}
