#include "daemon/agent/logs/log_expiry_timer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_expiry_pass.h"

#define FIRST_MS (60u * 1000)
#define EVERY_MS (3600u * 1000)
#define AGAIN_MS 1000u /* a deleted job still has a process */
#define LIST_BYTES (1u << 20)
/* Between two writes of the list: each waits for the disk, and many jobs may be deleted at once. */
#define LIST_PAUSE_MS 500

struct log_expiry_timer {
    struct log_expiry_options options;
    uv_timer_t timer;
    uv_work_t work;
    uv_loop_t *loop;
    char *list;
    int64_t list_at; /* when the list may be written again */
    bool list_due;   /* it lacks a job */
    bool runs, closing;
    int64_t *deleted; /* jobs whose logs are still to be removed, without those in `going` */
    size_t deleted_count, deleted_cap;
    /* arguments of the running pass */
    int64_t *live, *going;
    size_t live_count, going_count;
    /* its results, which are the pool thread's until it is over */
    int64_t *failed; /* jobs of `going` whose logs could not be removed */
    size_t failed_count;
    int removed;
    struct err problem; /* code ERR_OK: no problem */
};

static bool jobs_contain(const int64_t *jobs, size_t count, int64_t job)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i] == job)
            return true;
    return false;
}

static enum log_fate expiry_job_fate(void *ctx, int64_t job)
{
    const struct log_expiry_timer *t = ctx;

    if (jobs_contain(t->live, t->live_count, job))
        return LOGS_STAY;
    if (jobs_contain(t->going, t->going_count, job))
        return LOGS_DELETE;
    return t->options.keep_ms ? LOGS_EXPIRE : LOGS_STAY;
}

static void expiry_keep_failed(struct log_expiry_timer *t)
{
    for (size_t i = 0; i < t->going_count; i++)
        if (log_expiry_finds(t->options.log_dir, t->options.node, t->going[i]))
            t->failed[t->failed_count++] = t->going[i];
}

/* In a pool thread: users can make these directories large. */
static void on_expiry_work(uv_work_t *work)
{
    struct log_expiry_timer *t = work->data;
    struct err e;

    t->problem.code = ERR_OK;
    if (log_expiry_pass(t->options.log_dir, t->options.node, t->options.keep_ms, clock_wall_ms(),
                        expiry_job_fate, t, &t->removed, &e))
        t->problem = e;
    expiry_keep_failed(t);
}

static void expiry_timer_free(struct log_expiry_timer *t)
{
    free(t->live);
    free(t->going);
    free(t->failed);
    free(t->deleted);
    free(t->list);
    free(t);
}

static void on_expiry_timer(uv_timer_t *timer);

/* One number a line. Without the file, logs of deleted jobs may stay until they expire, which is logged. */
static void expiry_list_write(struct log_expiry_timer *t)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;

    t->list_due = false;
    if (!t->list)
        return;
    t->list_at = clock_boot_ms() + LIST_PAUSE_MS;
    for (size_t i = 0; i < t->deleted_count + t->going_count; i++)
        buf_printf(&text, "%" PRId64 "\n",
                   i < t->deleted_count ? t->deleted[i] : t->going[i - t->deleted_count]);
    if (text.len ? file_write_atomic(t->list, text.data, text.len, 0600, &e) != ERR_OK
                 : unlink(t->list) != 0 && errno != ENOENT && err_sys(&e, errno, "%s", t->list))
        log_warn("deleted_jobs_not_noted", "why=%s", LOG_Q(e.msg));
}

static void expiry_add_deleted(struct log_expiry_timer *t, int64_t job)
{
    if (jobs_contain(t->deleted, t->deleted_count, job))
        return;
    t->deleted = array_grow(t->deleted, t->deleted_count, &t->deleted_cap, sizeof(*t->deleted));
    t->deleted[t->deleted_count++] = job;
}

static void expiry_list_read(struct log_expiry_timer *t)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;

    if (!t->list || !file_exists(t->list))
        return;
    if (file_read(t->list, LIST_BYTES, &text, &e)) {
        log_warn("deleted_jobs_not_read", "why=%s", LOG_Q(e.msg));
        return;
    }
    for (char *at = text.data, *end; at && *at; at = end + (*end == '\n')) {
        const long long job = strtoll(at, &end, 10);
        if (end == at || (*end && *end != '\n')) {
            log_warn("deleted_jobs_not_read", "why=\"%s is damaged\"", t->list);
            return;
        }
        expiry_add_deleted(t, job);
    }
}

static void on_expiry_work_over(uv_work_t *work, int status)
{
    struct log_expiry_timer *t = work->data;
    const size_t waiting = t->deleted_count;

    (void)status;
    t->runs = false;
    for (size_t i = 0; i < t->failed_count; i++)
        expiry_add_deleted(t, t->failed[i]);
    const bool done = t->failed_count < t->going_count; /* the list has become shorter */
    free(steal(t->live));
    free(steal(t->going));
    free(steal(t->failed));
    t->going_count = t->failed_count = 0;
    if (done)
        expiry_list_write(t);
    if (t->problem.code)
        log_warn("old_logs_not_removed", "why=%s", LOG_Q(t->problem.msg));
    if (t->removed)
        log_info("old_logs_removed", "jobs=%d", t->removed);
    if (t->closing) {
        expiry_timer_free(t);
        return;
    }
    /* Soon again for jobs that came meanwhile or still have a process. What could not be removed waits for the next pass. */
    if (waiting && !uv_is_closing((uv_handle_t *)&t->timer))
        BUG_ON(uv_timer_start(&t->timer, on_expiry_timer, AGAIN_MS, EVERY_MS));
}

/* Hands the deleted jobs that have no process any more to the pass. The others wait. */
static void expiry_choose_deleted(struct log_expiry_timer *t)
{
    size_t left = 0;

    t->going = xcalloc(t->deleted_count + 1, sizeof(*t->going));
    t->going_count = 0;
    for (size_t i = 0; i < t->deleted_count; i++)
        if (jobs_contain(t->live, t->live_count, t->deleted[i]))
            t->deleted[left++] = t->deleted[i];
        else
            t->going[t->going_count++] = t->deleted[i];
    t->deleted_count = left;
    t->failed = xcalloc(t->going_count + 1, sizeof(*t->failed));
    t->failed_count = 0;
}

static void on_expiry_timer(uv_timer_t *timer)
{
    struct log_expiry_timer *t = timer->data;

    if (t->list_due)
        expiry_list_write(t);
    if (t->runs)
        return;
    t->runs = true;
    t->live = t->options.live(t->options.ctx, &t->live_count);
    expiry_choose_deleted(t);
    t->work.data = t;
    BUG_ON(uv_queue_work(t->loop, &t->work, on_expiry_work, on_expiry_work_over));
}

struct log_expiry_timer *log_expiry_timer_create(struct uv_loop_s *loop,
                                                 const struct log_expiry_options *options)
{
    struct log_expiry_timer *t = xcalloc(1, sizeof(*t));

    t->options = *options;
    t->list = options->list ? xstrdup(options->list) : NULL;
    t->loop = loop;
    t->timer.data = t;
    BUG_ON(uv_timer_init(loop, &t->timer));
    expiry_list_read(t);
    BUG_ON(uv_timer_start(&t->timer, on_expiry_timer, t->deleted_count ? AGAIN_MS : FIRST_MS, EVERY_MS));
    return t;
}

void log_expiry_timer_delete(struct log_expiry_timer *t, int64_t job)
{
    expiry_add_deleted(t, job);
    t->list_due = t->list;
    if (t->list_due && clock_boot_ms() >= t->list_at)
        expiry_list_write(t);
    if (!t->runs || t->list_due)
        BUG_ON(uv_timer_start(&t->timer, on_expiry_timer, t->list_due ? LIST_PAUSE_MS : 0, EVERY_MS));
}

static void on_expiry_timer_closed(uv_handle_t *handle)
{
    struct log_expiry_timer *t = handle->data;

    if (t->runs)
        t->closing = true; /* the pass still uses it, and frees it when it is over */
    else
        expiry_timer_free(t);
}

void log_expiry_timer_free(struct log_expiry_timer *t)
{
    if (t && t->list_due)
        expiry_list_write(t);
    if (t)
        uv_close((uv_handle_t *)&t->timer, on_expiry_timer_closed);
}
