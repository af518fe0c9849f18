#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"

struct text text_count(int64_t n)
{
    struct text out = {{0}};
    char digits[24], *to = out.text;
    int len =
        snprintf(digits, sizeof(digits), "%llu", n < 0 ? -(unsigned long long)n : (unsigned long long)n);

    if (n < 0)
        *to++ = '-';
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    return out;
}

struct text text_id(int64_t n)
{
    struct text out;

    snprintf(out.text, sizeof(out.text), "%" PRId64, n);
    return out;
}

struct text text_counted(int64_t n, const char *noun)
{
    struct text out;

    snprintf(out.text, sizeof(out.text), "%.30s %.31s%s", text_count(n).text, noun, text_plural(n));
    return out;
}

const char *text_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

struct text text_short(double n)
{
    static const char units[] = {0, 'k', 'M', 'G', 'T', 'P'};
    struct text out;
    size_t unit = 0;

    if (!isfinite(n)) {
        snprintf(out.text, sizeof(out.text), "%g", n);
        return out;
    }
    /* 999.95 would print as 1000.0 */
    for (; fabs(n) >= 999.95 && unit + 1 < sizeof(units); unit++)
        n /= 1000;
    if (unit == 0)
        snprintf(out.text, sizeof(out.text), fabs(n) < 10 && n != floor(n) ? "%.1f" : "%.0f", n);
    else
        snprintf(out.text, sizeof(out.text), "%.1f%c", n, units[unit]);
    return out;
}

struct text text_bytes(int64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    struct text out;
    double n = (double)bytes;
    size_t unit = 0;

    for (; fabs(n) >= 999.95 && unit + 1 < ARRAY_LEN(units); unit++)
        n /= 1000;
    snprintf(out.text, sizeof(out.text), unit == 0 || n >= 99.95 ? "%.0f %s" : "%.1f %s", n, units[unit]);
    return out;
}

struct text text_duration(int64_t ms)
{
    struct text out;

    if (ms < 0)
        ms = 0;
    long long s = (ms + 500) / 1000;
    if (ms < 100)
        snprintf(out.text, sizeof(out.text), "%lld ms", (long long)ms);
    else if (ms < 9950) /* 9.95 would print as 10.0 */
        snprintf(out.text, sizeof(out.text), "%.1f s", (double)ms / 1000);
    else if (s < 60)
        snprintf(out.text, sizeof(out.text), "%lld s", s);
    else if (s < 3600)
        snprintf(out.text, sizeof(out.text), "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out.text, sizeof(out.text), "%lldh%02lldm", s / 3600, s % 3600 / 60);
    else
        snprintf(out.text, sizeof(out.text), "%lldd%02lldh", s / 86400, s % 86400 / 3600);
    return out;
}

struct text text_age(int64_t ms)
{
    struct text out;
    long long s = ms < 0 ? 0 : ms / 1000;

    if (s < 60)
        snprintf(out.text, sizeof(out.text), "%llds", s);
    else if (s < 3600)
        snprintf(out.text, sizeof(out.text), "%lldm", s / 60);
    else if (s < 2 * 86400)
        snprintf(out.text, sizeof(out.text), "%lldh", s / 3600);
    else
        snprintf(out.text, sizeof(out.text), "%lldd", s / 86400);
    return out;
}

struct text text_clock(int64_t wall_ms, int64_t now_ms, bool seconds)
{
    time_t then = (time_t)(wall_ms / 1000), now = (time_t)(now_ms / 1000);
    struct text out = {{0}};
    struct tm at, today;

    localtime_r(&then, &at);
    localtime_r(&now, &today);
    size_t date = 0;
    if (at.tm_year != today.tm_year || at.tm_yday != today.tm_yday)
        date = strftime(out.text, sizeof(out.text), "%Y-%m-%d ", &at);
    strftime(out.text + date, sizeof(out.text) - date, seconds ? "%H:%M:%S" : "%H:%M", &at);
    return out;
}

const char *text_separator(size_t i, size_t count, const char *last)
{
    return i == 0 ? "" : i + 1 == count ? last : ", ";
}
