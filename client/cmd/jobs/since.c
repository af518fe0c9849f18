#include "client/cmd/jobs/since.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/conf/conf.h"
#include "base/conf/option.h"
#include "base/mem.h"

static bool since_parse_date(const char *text, int64_t *ms)
{
    static const char *const formats[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S",
                                          "%Y-%m-%dT%H:%M:%S"};
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, formats[i], &tm);
        if (!end || *end)
            continue;
        const int month = tm.tm_mon, day = tm.tm_mday;
        const time_t at = mktime(&tm);
        if (tm.tm_mon != month || tm.tm_mday != day) /* 31 February: mktime makes it 3 March */
            return false;
        *ms = (int64_t)at * 1000;
        return at > 0;
    }
    return false;
}

enum err_code since_parse(const char *text, int64_t *ms, struct err *e)
{
    int64_t ago;
    if (since_parse_date(text, ms))
        return ERR_OK;
    /* A number without a unit would be seconds; who types it means something else. */
    if (!text[strspn(text, "0123456789")] || conf_duration(text, &ago, e) != ERR_OK)
        return option_refuse("since", "a duration (90s, 2h, 7d) or a date (2026-11-30, \"2026-11-30 14:00\")",
                             text, e);
    *ms = clock_wall_ms() - ago;
    if (*ms <= 0)
        *ms = 1;
    return ERR_OK;
}
