#include "client/cmd/follow.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/interrupts.h"
#include "client/job_status.h"
#include "client/job_watch.h"
#include "client/screen/screen_follow.h"

static void follow_detach(struct follow_view *view, int64_t job, struct buf *out)
{
    CLEANUP(buf_release) struct buf talk = {0};
    follow_view_break(view, out);
    screen_put(out);
    buf_printf(&talk,
               "ddpctl: detached, job %lld continues\n   ddpctl status %lld --watch\n   ddpctl cancel %lld\n",
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
        /* A coordinator that has answered once is waited for; one that never answered is an error. */
        if (code == ERR_UNAVAILABLE && answered) {
            follow_view_away(&view, &out);
        } else if (code != ERR_OK) {
            job_watch_close(&watch);
            return e->code;
        }
        if (status) {
            answered = true;
            follow_view_update(&view, status, &out);
            over = job_status_ended(status);
            if (over)
                *exit_code = job_status_exit_code(status);
            rpc_free(status);
        }
        bool read = screen_put(&out);
        if (!over && (interrupts_count() || !read)) {
            follow_detach(&view, job, &out);
            over = true;
        }
    }
    job_watch_close(&watch);
    return ERR_OK;
}
