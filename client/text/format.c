#include "client/text/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "client/text/columns.h"

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

struct text fmt_metric(double value)
{
    struct text out;
    double size = fabs(value);
    if (isnan(value))
        return (struct text){"nan"};
    if (isinf(value))
        return value > 0 ? (struct text){"inf"} : (struct text){"-inf"};
    if (size < 1e15 && value == floor(value))
        return text_count((int64_t)value);
    if (size < 1e-3)
        snprintf(out.text, sizeof(out.text), "%.1e", value);
    else
        snprintf(out.text, sizeof(out.text), "%.4g", value);
    shorten_exponent(out.text);
    return out;
}

struct text fmt_percent(double fraction)
{
    struct text out;
    snprintf(out.text, sizeof(out.text), "%.0f %%", fraction * 100);
    return out;
}

struct text fmt_bar(double fraction, int cells)
{
    struct text out = {{0}};
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

struct text fmt_spark(const double *values, size_t count, size_t cells)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    struct text out = {{0}};
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
        const bool known = isfinite(values[i]);
        const int level = known && high > low ? (int)((values[i] - low) / (high - low) * 7 + 0.5) : 0;
        strcat(out.text, known ? blocks[level] : "?");
    }
    return out;
}

size_t text_width(const char *text)
{
    const size_t len = strlen(text);
    size_t width = 0, columns;
    for (size_t i = 0; i < len; width += columns)
        i += columns_of_next(text + i, len - i, &columns);
    return width;
}

size_t text_clip(const char *text, size_t columns)
{
    const size_t len = strlen(text);
    size_t width = 0, i = 0, own;
    while (i < len) {
        const size_t size = columns_of_next(text + i, len - i, &own);
        if (width + own > columns)
            break;
        width += own;
        i += size;
    }
    return i;
}

/* What stands for a character of UTF-8; NULL: nothing does. */
static const char *ascii_for(const char *character, size_t len)
{
    static const struct {
        const char *from, *to;
    } table[] = {{"█", "#"}, {"░", "-"}, {"▁", "_"}, {"▂", "."}, {"▃", "."}, {"▄", ":"}, {"▅", ":"},
                 {"▆", "+"}, {"▇", "*"}, {"→", ">"}, {"×", "x"}, {"°", " "}, {"…", "~"}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strlen(table[i].from) == len && memcmp(table[i].from, character, len) == 0)
            return table[i].to;
    return NULL;
}

void text_fold_ascii(struct buf *text)
{
    CLEANUP(buf_release) struct buf out = {0};
    for (size_t i = 0, len; i < text->len; i += len) {
        const unsigned char first = (unsigned char)text->data[i];
        len = 1;
        while (first >= 0x80 && i + len < text->len && ((unsigned char)text->data[i + len] & 0xC0) == 0x80)
            len++;
        const char *to = first < 0x80 ? NULL : ascii_for(text->data + i, len);
        if (first < 0x80)
            buf_putc(&out, text->data[i]);
        else
            buf_puts(&out, to ? to : "?");
    }
    buf_clear(text);
    buf_append(text, out.data, out.len);
}
