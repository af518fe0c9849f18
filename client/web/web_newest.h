#ifndef DDP_CLIENT_WEB_WEB_NEWEST_H
#define DDP_CLIENT_WEB_WEB_NEWEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decides how many of the newest points of each series to ask for in each turn, so that nearly all points of a job arrive,
 * and few of them twice. Also decides when to tell viewers that points are missing: viewers then ask for the whole curves,
 * which is expensive. One thread. */

#define WEB_NEWEST_LEAST 32      /* of each series */
#define WEB_NEWEST_MOST 2048     /* of each series of a job that reports this often */
#define WEB_NEWEST_TOTAL 16000   /* of all series: the coordinator leaves points out of a longer answer */
#define WEB_NEWEST_TELLS 4       /* at once, until the number of points fits the job, */
#define WEB_NEWEST_TELL_MS 10000 /* and then at most once in this time */

struct web_newest { /* zeroed at first */
    size_t points;
    bool missing; /* viewers have not been told yet */
    int tells;
    int64_t told_ms;
};

int32_t web_newest_limit(const struct web_newest *n, size_t series);
/* After a turn. limit: how many were asked for. fresh: the largest number of new points of a series. missing: some new
 * points were not among them. */
void web_newest_learn(struct web_newest *n, size_t limit, size_t fresh, bool missing);
/* Whether to tell viewers now that points are missing. */
bool web_newest_tell(struct web_newest *n, int64_t now_ms);

#endif
