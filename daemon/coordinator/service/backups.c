#include "daemon/coordinator/service/backups.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/backup.h"

#define FIRST_MS 10000 /* the earliest backup after a start */

struct backups {
    struct backups_options options;
    uv_loop_t *loop;
    uv_timer_t timer;
    uv_work_t work;
    bool busy;
    atomic_bool stop;  /* the coordinator ends: the backup in progress is given up */
    char *path;        /* path of the backup; owned by the pool thread while busy */
    struct err result; /* result of the backup; owned by the pool thread while busy */
    int64_t newest_ms; /* wall; 0: there is none */
    uint64_t failures;
    char *problem;
};

static void backups_arm(struct backups *b, int64_t least);

/* ---- on the worker thread */

static void backups_on_worker(uv_work_t *req)
{
    struct backups *b = req->data;

    b->result = (struct err){0};
    /* First, since it may make the room that the backup needs. If it fails, the backup matters more. */
    if (backup_remove_unfinished(b->options.dir, &b->result) != ERR_OK)
        log_warn("backup_not_removed", "why=%s", LOG_Q(b->result.msg));
    b->result = (struct err){0};
    if (backup_make(b->options.state, b->path, &b->stop, &b->result) == ERR_OK)
        (void)(backup_prune(b->options.dir, (size_t)b->options.keep, b->path, &b->result) == ERR_OK);
}

/* ---- on the loop */

static void backups_on_failed(struct backups *b)
{
    const bool first = !b->problem; /* one event for a disk that stays full, not one an hour */

    b->failures++;
    free(b->problem);
    b->problem = xstrdup(b->result.msg);
    log_error("backup_failed", "file=%s why=%s", LOG_Q(b->path), LOG_Q(b->problem));
    if (first)
        b->options.failed(b->options.user, b->problem);
}

static void backups_on_done(uv_work_t *req, int status)
{
    struct backups *b = req->data;

    (void)status;
    b->busy = false;
    if (b->stop && b->result.code == ERR_CANCELLED) {
        log_info("backup_stopped", "file=%s", LOG_Q(b->path));
    } else if (b->result.code != ERR_OK) {
        backups_on_failed(b);
    } else {
        log_info("backup", "file=%s", LOG_Q(b->path));
        b->newest_ms = clock_wall_ms();
        free_text(&b->problem);
    }
    free_text(&b->path);
    backups_arm(b, b->options.every_ms);
}

static void backups_on_due(uv_timer_t *timer)
{
    struct backups *b = timer->data;

    if (b->busy) /* the disk is slow: backups_on_done starts the timer again */
        return;
    b->busy = true;
    b->path = backup_name(b->options.dir);
    b->work.data = b;
    BUG_ON(uv_queue_work(b->loop, &b->work, backups_on_worker, backups_on_done) != 0);
}

/* Starts the timer for when the newest backup is every_ms old, but not before `least` ms from now: a backup
 * that failed must not be tried again at once. */
static void backups_arm(struct backups *b, int64_t least)
{
    int64_t wait = b->newest_ms + b->options.every_ms - clock_wall_ms();

    if (wait < least)
        wait = least;
    if (wait > b->options.every_ms)
        wait = b->options.every_ms; /* the newest backup is from the future: the clock was set back */
    uv_timer_start(&b->timer, backups_on_due, (uint64_t)wait, 0);
}

void backups_open(struct backups **out, uv_loop_t *loop, const struct backups_options *options)
{
    struct backups *b = xcalloc(1, sizeof *b);
    struct backup *list = NULL;
    size_t count = 0;
    struct err e;

    b->options = *options;
    b->loop = loop;
    uv_timer_init(loop, &b->timer);
    b->timer.data = b;
    uv_unref((uv_handle_t *)&b->timer);
    if (backup_list(options->dir, options->state, &list, &count, &e) != ERR_OK)
        log_warn("backups_not_listed", "why=%s", LOG_Q(e.msg)); /* the first backup is made soon */
    b->newest_ms = count && list[0].own ? list[0].time_ms : 0;  /* own backups come first */
    backups_free(list, count);
    if (options->every_ms)
        backups_arm(b, FIRST_MS);
    *out = b;
}

int64_t backups_age_ms(const struct backups *b)
{
    const int64_t age = clock_wall_ms() - b->newest_ms;

    if (!b->newest_ms)
        return -1;
    return age > 0 ? age : 0; /* the clock was ahead when it was made */
}

uint64_t backups_failures(const struct backups *b)
{
    return b->failures;
}

const char *backups_problem(const struct backups *b)
{
    return b->problem;
}

static void backups_on_closed(uv_handle_t *timer)
{
    struct backups *b = timer->data;

    free(b->problem);
    free(b);
}

void backups_close(struct backups *b)
{
    if (!b)
        return;
    uv_timer_stop(&b->timer);
    b->stop = true; /* systemd waits for 20 s, and a large copy with its check may take longer */
    while (b->busy)
        uv_run(b->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&b->timer, backups_on_closed);
}
