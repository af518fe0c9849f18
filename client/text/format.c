#include "client/text/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct fmt fmt_count(int64_t n)
{
    char digits[24];
    struct fmt out = {{0}};
    int len = snprintf(digits, sizeof(digits), "%lld", n < 0 ? -(long long)n : (long long)n);
    char *to = out.text;
    if (n < 0)
        *to++ = '-';
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    return out;
}

struct fmt fmt_short(double n)
{
    static const char units[] = {0, 'k', 'M', 'G', 'T', 'P'};
    struct fmt out;
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

struct fmt fmt_bytes(int64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    struct fmt out;
    double n = (double)bytes;
    size_t unit = 0;
    for (; fabs(n) >= 999.95 && unit + 1 < sizeof(units) / sizeof(*units); unit++)
        n /= 1000;
    snprintf(out.text, sizeof(out.text), unit == 0 || n >= 99.95 ? "%.0f %s" : "%.1f %s", n, units[unit]);
    return out;
}

struct fmt fmt_duration(int64_t ms)
{
    struct fmt out;
    if (ms < 0)
        ms = 0;
    long long s = (ms + 500) / 1000;
    if (ms < 100)
        snprintf(out.text, sizeof(out.text), "%lld ms", (long long)ms);
    else if (ms < 59950)
        snprintf(out.text, sizeof(out.text), "%.1f s", (double)ms / 1000);
    else if (s < 3600)
        snprintf(out.text, sizeof(out.text), "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out.text, sizeof(out.text), "%lldh%02lldm", s / 3600, s % 3600 / 60);
    else
        snprintf(out.text, sizeof(out.text), "%lldd%02lldh", s / 86400, s % 86400 / 3600);
    return out;
}

struct fmt fmt_age(int64_t ms)
{
    struct fmt out;
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

/* "4.1e-04" -> "4.1e-4" */
static void shorten_exponent(char *text)
{
    char *e = strchr(text, 'e');
    if (!e)
        return;
    char *digits = e + 2;
    size_t zeros = strspn(digits, "0");
    if (zeros && digits[zeros])
        memmove(digits, digits + zeros, strlen(digits + zeros) + 1);
}

struct fmt fmt_metric(double value)
{
    struct fmt out;
    double size = fabs(value);
    if (isnan(value))
        return (struct fmt){"nan"};
    if (isinf(value))
        return value > 0 ? (struct fmt){"inf"} : (struct fmt){"-inf"};
    if (size < 1e15 && value == floor(value))
        return fmt_count((int64_t)value);
    if (size < 1e-3)
        snprintf(out.text, sizeof(out.text), "%.1e", value);
    else
        snprintf(out.text, sizeof(out.text), "%.4g", value);
    shorten_exponent(out.text);
    return out;
}

struct fmt fmt_percent(double fraction)
{
    struct fmt out;
    snprintf(out.text, sizeof(out.text), "%.0f %%", fraction * 100);
    return out;
}

struct fmt fmt_bar(double fraction, int cells)
{
    struct fmt out = {{0}};
    if (!(fraction > 0))
        fraction = 0;
    if (fraction > 1)
        fraction = 1;
    if (cells > 20)
        cells = 20;
    int full = (int)(fraction * cells + 0.5);
    for (int i = 0; i < cells; i++)
        strcat(out.text, i < full ? "█" : "░");
    return out;
}

struct fmt fmt_spark(const double *values, size_t count, size_t cells)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    struct fmt out = {{0}};
    if (cells > 16)
        cells = 16;
    if (count > cells) {
        values += count - cells;
        count = cells;
    }
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(values[i])) {
            low = fmin(low, values[i]);
            high = fmax(high, values[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        int level = high > low ? (int)((values[i] - low) / (high - low) * 7 + 0.5) : 0;
        strcat(out.text, isfinite(values[i]) ? blocks[level] : "?");
    }
    return out;
}

size_t text_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

size_t text_clip(const char *text, size_t columns)
{
    size_t width = 0, i = 0;
    for (; text[i]; i++) {
        if (((unsigned char)text[i] & 0xC0) == 0x80)
            continue;
        if (width == columns)
            break;
        width++;
    }
    return i;
}
