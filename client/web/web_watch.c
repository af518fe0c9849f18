#include "client/web/web_watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/cmd/jobs/job_pages.h"
#include "client/text/json_print.h"
#include "client/web/web_watched_job.h"

#define EVERY_MS 1000
#define COMMENT_MS 10000 /* viewers write a comment, so that a connection that is gone is noticed */
/* Of all viewers together. Output takes a stream for each job. The connection to the coordinator has 1,000, and all users of the
 * coordinator's page share it. */
#define JOBS_MOST 256
#define LOGS_MOST 64
#define LOGS_MOST_OF_USER 12

struct web_watch {
    struct link *link;
    struct web_levels *levels;
    struct web_watched_job *jobs; /* that viewers name */
    size_t job_count;
    bool away; /* the coordinator did not answer */
    bool ending;
    pthread_t thread;
};

static bool watch_ends(const struct web_watch *w)
{
    return __atomic_load_n(&w->ending, __ATOMIC_ACQUIRE);
}

static enum err_code watch_put_jobs(struct web_watch *w, struct err *e)
{
    CLEANUP(job_pages_release) struct job_pages pages = {0};
    CLEANUP(buf_release) struct buf json = {0};
    if (job_pages_fetch(w->link, false, &pages, e) != ERR_OK)
        return e->code;
    web_levels_mark(w->levels, TOPIC_JOB);
    for (size_t i = 0; i < pages.count; i++) {
        json_print(&pages.jobs[i]->base, &json);
        web_levels_put(w->levels, TOPIC_JOB, pages.jobs[i]->job, "", "job", &json, true);
        buf_clear(&json);
    }
    web_levels_sweep(w->levels, TOPIC_JOB);
    Ddp__V1__ListJobsReply totals = *pages.totals;
    totals.n_jobs = 0;
    json_print(&totals.base, &json);
    web_levels_put(w->levels, TOPIC_CLUSTER, 0, "totals", "cluster", &json, true);
    return ERR_OK;
}

static enum err_code watch_put_nodes(struct web_watch *w, struct err *e)
{
    Ddp__V1__ListNodesRequest request = DDP__V1__LIST_NODES_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(buf_release) struct buf json = {0};
    if (link_call(w->link, "ListNodes", &request, &message, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__ListNodesReply *reply = message;
    web_levels_mark(w->levels, TOPIC_NODE);
    for (size_t i = 0; i < reply->n_nodes; i++) {
        json_print(&reply->nodes[i]->base, &json);
        web_levels_put(w->levels, TOPIC_NODE, 0, reply->nodes[i]->name, "node", &json, true);
        buf_clear(&json);
    }
    web_levels_sweep(w->levels, TOPIC_NODE);
    return ERR_OK;
}

static struct web_watched_job *watch_find(struct web_watch *w, int64_t job)
{
    for (size_t i = 0; i < w->job_count; i++)
        if (w->jobs[i].job == job)
            return &w->jobs[i];
    return NULL;
}

static bool watch_has(const int64_t *jobs, size_t count, int64_t job)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i] == job)
            return true;
    return false;
}

static void watch_forget_jobs(struct web_watch *w)
{
    while (w->job_count)
        web_watched_job_release(&w->jobs[--w->job_count]);
}

/* Takes over which jobs the viewers name now. */
static void watch_choose_jobs(struct web_watch *w)
{
    int64_t *lists[2] = {NULL, NULL};
    size_t counts[2] = {0, 0};
    const size_t most[2] = {JOBS_MOST, w->link->inside ? LOGS_MOST_OF_USER : LOGS_MOST};
    for (int logs = 0; logs < 2; logs++)
        web_levels_wanted(w->levels, logs, most[logs], &lists[logs], &counts[logs]);
    for (size_t i = 0; i < w->job_count;) {
        struct web_watched_job *job = &w->jobs[i];
        job->curves = watch_has(lists[0], counts[0], job->job);
        job->logs = watch_has(lists[1], counts[1], job->job);
        if (job->curves || job->logs) {
            i++;
            continue;
        }
        web_watched_job_release(job);
        *job = w->jobs[--w->job_count];
    }
    for (int logs = 0; logs < 2; logs++) {
        for (size_t i = 0; i < counts[logs]; i++) {
            struct web_watched_job *job = watch_find(w, lists[logs][i]);
            if (!job) {
                w->jobs = xrealloc(w->jobs, (w->job_count + 1) * sizeof(*w->jobs));
                job = &w->jobs[w->job_count++];
                *job = (struct web_watched_job){.job = lists[logs][i]};
            }
            *(logs ? &job->logs : &job->curves) = true;
        }
        free(lists[logs]);
    }
}

static enum err_code watch_put_watched(struct web_watch *w, struct err *e)
{
    static const enum web_topic topics[] = {TOPIC_JOB_DETAIL, TOPIC_POINTS, TOPIC_USAGE, TOPIC_EVENTS,
                                            TOPIC_LOG};
    watch_choose_jobs(w);
    for (size_t t = 0; t < ARRAY_LEN(topics); t++)
        web_levels_mark(w->levels, topics[t]);
    for (size_t i = 0; i < w->job_count && !watch_ends(w); i++)
        if (web_watched_job_put(&w->jobs[i], w->link, w->levels, e) != ERR_OK)
            return e->code;
    for (size_t t = 0; t < ARRAY_LEN(topics); t++)
        web_levels_sweep(w->levels, topics[t]);
    return ERR_OK;
}

/* Tells once that the coordinator does not answer, and once that it does again. */
static void watch_tell(struct web_watch *w, const struct err *e)
{
    CLEANUP(buf_release) struct buf json = {0};
    struct jout o = {.buf = &json};
    const bool away = e->code != ERR_OK;
    if (away == w->away)
        return;
    w->away = away;
    jout_open(&o, NULL, '{');
    if (away)
        jout_text(&o, "error", e->msg);
    jout_close(&o, '}');
    web_levels_put(w->levels, TOPIC_CLUSTER, 0, "away", away ? "away" : "back", &json, false);
}

static void watch_turn(struct web_watch *w)
{
    struct err e = {0};
    if (watch_put_jobs(w, &e) == ERR_OK && watch_put_nodes(w, &e) == ERR_OK &&
        watch_put_watched(w, &e) == ERR_OK)
        e.code = ERR_OK;
    if (!watch_ends(w))
        watch_tell(w, &e);
}

static void *watch_main(void *arg)
{
    struct web_watch *w = arg;
    int64_t comment_ms = clock_boot_ms() + COMMENT_MS;
    while (!watch_ends(w)) {
        if (!web_levels_wait_viewer(w->levels, 100)) {
            watch_forget_jobs(w);
            continue;
        }
        const int64_t next = clock_boot_ms() + EVERY_MS;
        watch_turn(w);
        if (clock_boot_ms() >= comment_ms) {
            web_levels_tick(w->levels);
            comment_ms = clock_boot_ms() + COMMENT_MS;
        }
        /* A new viewer of a job that nobody named is served within a tenth of a second. */
        while (!watch_ends(w) && clock_boot_ms() < next && !web_levels_take_entered(w->levels))
            link_sleep(w->link, 100);
    }
    return NULL;
}

struct web_watch *web_watch_open(struct link *link, struct web_levels *levels)
{
    struct web_watch *w = xcalloc(1, sizeof(*w));
    sigset_t all, before;
    w->link = link;
    w->levels = levels;
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    BUG_ON(pthread_create(&w->thread, NULL, watch_main, w) != 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w;
}

void web_watch_close(struct web_watch *w)
{
    if (!w)
        return;
    __atomic_store_n(&w->ending, true, __ATOMIC_RELEASE);
    pthread_join(w->thread, NULL);
    watch_forget_jobs(w);
    free(w->jobs);
    free(w);
}
