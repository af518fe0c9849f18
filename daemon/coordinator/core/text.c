#include "daemon/coordinator/core/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

void text_set(char **text, const char *fmt, ...)
{
    char line[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    free(*text);
    *text = xstrdup(line);
}

const char *text_count(char out[TEXT_COUNT], int64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRId64, n), at = 0;

    for (int i = 0; i < len; i++) {
        out[at++] = digits[i];
        if ((len - i - 1) % 3 == 0 && i + 1 < len && digits[i] != '-')
            out[at++] = ',';
    }
    out[at] = 0;
    return out;
}

const char *text_span(char out[TEXT_SPAN], int64_t ms)
{
    if (ms < 100)
        snprintf(out, TEXT_SPAN, "%" PRId64 " ms", ms);
    else if (ms < 10000)
        snprintf(out, TEXT_SPAN, "%.1f s", (double)ms / 1000);
    else if (ms < 100000)
        snprintf(out, TEXT_SPAN, "%" PRId64 " s", (ms + 500) / 1000);
    else
        snprintf(out, TEXT_SPAN, "%" PRId64 " min", (ms + 30000) / 60000);
    return out;
}

const char *text_noticed(char out[TEXT_AGO], int64_t ago_ms)
{
    char span[TEXT_SPAN];

    out[0] = 0;
    if (ago_ms >= 0 && ago_ms < 60000)
        snprintf(out, TEXT_AGO, ", noticed after %s", text_span(span, ago_ms));
    return out;
}

const char *text_clock(char out[TEXT_CLOCK], int64_t wall_ms, int64_t now_ms)
{
    time_t then = (time_t)(wall_ms / 1000), now = (time_t)(now_ms / 1000);
    struct tm a, b;

    localtime_r(&then, &a);
    localtime_r(&now, &b);
    bool today = a.tm_year == b.tm_year && a.tm_yday == b.tm_yday;
    if (!strftime(out, TEXT_CLOCK, today ? "%H:%M" : "%Y-%m-%d %H:%M", &a))
        out[0] = 0;
    return out;
}
