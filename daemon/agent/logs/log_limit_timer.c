#include "daemon/agent/logs/log_limit_timer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_limit_pass.h"

#define EVERY_MS 2000

struct log_limit_timer {
    struct log_limit_options options;
    struct log_limit_pass pass;
    size_t last_live; /* jobs of the last pass: those that have ended since are measured once more */
    bool first;       /* no pass has run yet */
    bool runs, closing;
    enum err_code told; /* the problem that was logged last: each is logged once */
    uv_timer_t timer;
    uv_work_t work;
    uv_loop_t *loop;
};

static void limit_timer_free(struct log_limit_timer *k)
{
    log_limit_pass_release(&k->pass);
    free(k->pass.live);
    free(k);
}

static void on_limit_timer_closed(uv_handle_t *handle)
{
    struct log_limit_timer *k = handle->data;

    if (!k->runs)
        limit_timer_free(k);
    else
        k->closing = true;
}

static void on_limit_work(uv_work_t *work)
{
    struct log_limit_timer *k = work->data;

    log_limit_pass_run(&k->pass);
}

static void limit_pass_log(struct log_limit_timer *k)
{
    const struct log_limit_pass *r = &k->pass;

    if (r->files_cut)
        log_info("logs_cut", "files=%d", r->files_cut);
    if (r->jobs_removed)
        log_info("logs_removed", "jobs=%d why=log_total", r->jobs_removed);
    if (r->problem.code && r->problem.code != k->told)
        log_warn("logs_not_limited", "why=%s", LOG_Q(r->problem.msg));
    k->told = r->problem.code;
}

static void on_limit_work_over(uv_work_t *work, int status)
{
    struct log_limit_timer *k = work->data;

    (void)status;
    k->runs = false;
    free(k->pass.live);
    k->pass.live = NULL;
    if (k->closing) {
        limit_timer_free(k);
        return;
    }
    limit_pass_log(k);
}

static void on_limit_timer(uv_timer_t *timer)
{
    struct log_limit_timer *k = timer->data;
    size_t count;
    int64_t *live;

    if (k->runs)
        return;
    live = k->options.live(k->options.ctx, &count);
    /* without live jobs nothing grows; the first pass measures what earlier agents left */
    if (!count && !k->last_live && !k->first) {
        free(live);
        return;
    }
    k->first = false;
    k->last_live = count;
    k->pass.live = live;
    k->pass.live_count = count;
    k->pass.now_ms = clock_wall_ms();
    k->runs = true;
    k->work.data = k;
    BUG_ON(uv_queue_work(k->loop, &k->work, on_limit_work, on_limit_work_over));
}

struct log_limit_timer *log_limit_timer_create(struct uv_loop_s *loop,
                                               const struct log_limit_options *options)
{
    struct log_limit_timer *k = xcalloc(1, sizeof(*k));

    k->options = *options;
    k->loop = loop;
    k->first = true;
    k->pass = (struct log_limit_pass){.log_dir = options->log_dir,
                                      .node = options->node,
                                      .per_job = options->per_job,
                                      .total = options->total};
    k->timer.data = k;
    BUG_ON(uv_timer_init(loop, &k->timer));
    BUG_ON(uv_timer_start(&k->timer, on_limit_timer, EVERY_MS, EVERY_MS));
    return k;
}

void log_limit_timer_free(struct log_limit_timer *k)
{
    if (k)
        uv_close((uv_handle_t *)&k->timer, on_limit_timer_closed);
}
