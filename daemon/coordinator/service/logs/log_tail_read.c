#include "daemon/coordinator/service/logs/log_tail_read.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"

/* A range of the copy's bytes. */
struct tail_range {
    size_t from, to;
};

static size_t later_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t start_of_date(const struct log_tail *x, int64_t since_ms)
{
    size_t at = 0;

    for (size_t i = 0; i < x->run_count && x->run_us[i] / 1000 < since_ms; i++)
        at += (size_t)x->run_bytes[i];
    return at;
}

/* If the log is longer than the copy, the copy begins inside a line. This line is left out if there is another line. */
static size_t start_of_copy(const struct log_tail *x, int64_t offset)
{
    const char *end = x->offset ? memchr(x->data.data, '\n', x->data.len) : NULL;
    const size_t line =
        end && (size_t)(end + 1 - x->data.data) < x->data.len ? (size_t)(end + 1 - x->data.data) : 0;

    if (offset <= x->offset)
        return line;
    return offset - x->offset < (int64_t)x->data.len ? (size_t)(offset - x->offset) : x->data.len;
}

/* Returns the start of the last `lines` lines before the end. */
static size_t copy_start_of_lines(const struct log_tail *x, size_t from, int64_t lines)
{
    size_t at = x->data.len;

    while (at > from) {
        const char *end = memrchr(x->data.data + from, '\n', at - 1 - from);

        at = end ? (size_t)(end + 1 - x->data.data) : from;
        if (--lines == 0)
            break;
    }
    return at;
}

/* A position in the runs. It only moves forward, because ranges are in order. */
struct run_place {
    size_t run, begin; /* offset of the run's first byte in the copy */
};

static void range_add(const struct log_tail *x, struct tail_range range, struct run_place *place,
                      struct log_piece *out)
{
    for (size_t at = range.from; at < range.to;) {
        while (place->begin + (size_t)x->run_bytes[place->run] <= at)
            place->begin += (size_t)x->run_bytes[place->run++];

        const size_t end = place->begin + (size_t)x->run_bytes[place->run];
        const size_t to = end < range.to ? end : range.to;
        const int64_t bytes = (int64_t)(to - at);

        log_piece_add(out, x->data.data + at, to - at, &bytes, &x->run_us[place->run], 1);
        at = to;
    }
}

/* Finds the next line from range->to on. Returns false if the search takes too long. */
static bool copy_search_line(const struct log_tail *x, struct tail_range *range, struct pattern *pattern,
                             int64_t *left_ns, bool *matches)
{
    const char *text = x->data.data + range->to;
    const size_t left = x->data.len - range->to;
    const char *end = memchr(text, '\n', left);
    const size_t size = end ? (size_t)(end - text) : left;
    CLEANUP(pattern_line_release) struct pattern_line line = {0};
    const int64_t began = clock_mono_ns();
    struct err e;

    range->from = range->to;
    range->to += size + (end != NULL);
    pattern_line_add(&line, text, size);
    pattern_limit_time(pattern, *left_ns);
    const enum err_code code = pattern_line_end(pattern, &line, matches, &e);
    *left_ns -= clock_mono_ns() - began;
    return code == ERR_OK && *left_ns > 0;
}

static bool search_read(const struct log_tail *x, const struct log_tail_choice *choice, size_t from,
                        struct log_piece *out, bool *whole, int64_t *left_ns)
{
    struct tail_range range = {.to = from};
    struct run_place place = {0};
    int64_t found = 0, skip = 0;
    bool matches;

    /* With tail_lines the copy is searched twice: first only to count the lines. */
    while (choice->tail_lines && range.to < x->data.len) {
        if (!copy_search_line(x, &range, choice->pattern, left_ns, &matches))
            return false;
        found += matches;
    }
    skip = choice->tail_lines && found > choice->tail_lines ? found - choice->tail_lines : 0;
    *whole = *whole || skip > 0;
    for (range.to = from; range.to < x->data.len;) {
        if (!copy_search_line(x, &range, choice->pattern, left_ns, &matches))
            return false;
        if (matches && skip-- <= 0)
            range_add(x, range, &place, out);
    }
    return true;
}

bool log_tail_read(const struct log_tail *tail, const struct log_tail_choice *choice, struct log_piece *out,
                   bool *whole, int64_t *left_ns)
{
    const size_t size = tail->data.len;
    const size_t begin = size ? start_of_copy(tail, choice->offset) : 0;
    struct run_place place = {0};
    size_t from = begin;

    if (choice->tail_bytes > 0 && (uint64_t)choice->tail_bytes < size)
        from = later_of(from, size - (size_t)choice->tail_bytes);
    if (choice->since_ms > 0)
        from = later_of(from, start_of_date(tail, choice->since_ms));
    *whole = choice->offset >= tail->offset || from > begin;
    if (from >= size)
        return true;
    if (choice->pattern)
        return search_read(tail, choice, from, out, whole, left_ns);
    if (choice->tail_lines > 0)
        from = copy_start_of_lines(tail, from, choice->tail_lines);
    *whole = *whole || from > begin;
    range_add(tail, (struct tail_range){from, size}, &place, out);
    return true;
}

void log_absence_add(struct log_absence *a, const struct log_tail *tail, int64_t age_ms)
{
    a->logs++;
    if (!tail)
        return;
    a->copies++;
    a->cut = a->cut || tail->offset;
    a->most = later_of(a->most, tail->data.len);
    a->age_ms = age_ms > a->age_ms ? age_ms : a->age_ms;
}

char *log_absence_note(const struct log_absence *a, const char *node, const char *why)
{
    CLEANUP(free_text) char *size = NULL;

    if (!a->copies)
        return xasprintf("node %s %s: its part of the logs is missing, and the coordinator has no copy of it",
                         node, why);
    size = a->most < 1024 ? xasprintf("%zu bytes", a->most) : xasprintf("%zu KiB", a->most / 1024);
    return xasprintf("node %s %s: %s%s%s the coordinator's copy, made %s before the node's last message",
                     node, why, a->cut ? "the last " : "its logs come from", a->cut ? size : "",
                     !a->cut         ? ""
                     : a->copies > 1 ? " of each of its logs come from"
                                     : " of its log come from",
                     text_duration(a->age_ms).text);
}
