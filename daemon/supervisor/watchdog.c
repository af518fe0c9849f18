#include "daemon/supervisor/watchdog.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"

enum err_code watchdog_open(struct watchdog *w, struct err *e)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};

    signal(SIGALRM, SIG_DFL); /* the parent may have ignored it */
    if (timer_create(CLOCK_MONOTONIC, &event, &w->timer))
        return err_sys(e, errno, "cannot create the timer that ends this supervisor if it hangs");
    w->made = true;
    w->at = 0;
    return ERR_OK;
}

void watchdog_set(struct watchdog *w, int64_t at, int64_t now)
{
    const int64_t left = at > now ? at - now : 1; /* 0 would stop the timer */
    const struct itimerspec when = {.it_value = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000}};
    const struct itimerspec never = {0};

    if (at == w->at)
        return;
    w->at = at;
    if (timer_settime(w->timer, 0, at ? &when : &never, NULL))
        log_warn("watchdog_not_set", "why=%s", LOG_Q(strerror(errno)));
}

void watchdog_delay(struct watchdog *w, int64_t now)
{
    if (w->at && w->at < now + WATCHDOG_MARGIN_MS)
        watchdog_set(w, now + WATCHDOG_MARGIN_MS, now);
}

int64_t watchdog_wait_most(const struct watchdog *w, int64_t now)
{
    const int64_t left = w->at - now;

    if (!w->at)
        return INT64_MAX;
    return left > 0 ? left / 2 : 0; /* the turn of the loop takes time, too */
}

void watchdog_close(struct watchdog *w)
{
    if (w->made)
        timer_delete(w->timer);
    w->made = false;
}
