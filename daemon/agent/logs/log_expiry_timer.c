#include "daemon/agent/logs/log_expiry_timer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_expiry_pass.h"

#define FIRST_MS (60u * 1000)
#define EVERY_MS (3600u * 1000)

struct log_expiry_timer {
    struct log_expiry_options options;
    uv_timer_t timer;
    uv_work_t work;
    uv_loop_t *loop;
    bool runs, closing;
    /* arguments of the running pass */
    int64_t *live;
    size_t live_count;
    int removed;
    struct err problem; /* code ERR_OK: no problem */
};

static bool expiry_keeps_job(void *ctx, int64_t job)
{
    const struct log_expiry_timer *t = ctx;

    for (size_t i = 0; i < t->live_count; i++)
        if (t->live[i] == job)
            return true;
    return false;
}

/* In a pool thread: users can make these directories large. */
static void on_expiry_work(uv_work_t *work)
{
    struct log_expiry_timer *t = work->data;
    struct err e;

    t->problem.code = ERR_OK;
    if (log_expiry_pass(t->options.log_dir, t->options.keep_ms, clock_wall_ms(), expiry_keeps_job, t,
                        &t->removed, &e))
        t->problem = e;
}

static void expiry_timer_free(struct log_expiry_timer *t)
{
    free(t->live);
    free(t);
}

static void on_expiry_work_over(uv_work_t *work, int status)
{
    struct log_expiry_timer *t = work->data;

    (void)status;
    t->runs = false;
    free(steal(t->live));
    if (t->problem.code)
        log_warn("old_logs_not_removed", "why=%s", LOG_Q(t->problem.msg));
    if (t->removed)
        log_info("old_logs_removed", "jobs=%d", t->removed);
    if (t->closing)
        expiry_timer_free(t);
}

static void on_expiry_timer(uv_timer_t *timer)
{
    struct log_expiry_timer *t = timer->data;

    if (t->runs)
        return;
    t->runs = true;
    t->live = t->options.live(t->options.ctx, &t->live_count);
    t->work.data = t;
    BUG_ON(uv_queue_work(t->loop, &t->work, on_expiry_work, on_expiry_work_over));
}

struct log_expiry_timer *log_expiry_timer_create(struct uv_loop_s *loop,
                                                 const struct log_expiry_options *options)
{
    struct log_expiry_timer *t = xcalloc(1, sizeof(*t));

    t->options = *options;
    t->loop = loop;
    t->timer.data = t;
    BUG_ON(uv_timer_init(loop, &t->timer));
    BUG_ON(uv_timer_start(&t->timer, on_expiry_timer, FIRST_MS, EVERY_MS));
    return t;
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
    if (t)
        uv_close((uv_handle_t *)&t->timer, on_expiry_timer_closed);
}
