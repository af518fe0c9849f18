#include "daemon/agent/logs/log_search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cut_file.h"
#include "base/mem.h"

#define BLOCK (64 << 10)
#define LINE_STEPS 16 /* what a line costs beside its bytes and the search */
#define STEP_NS 4

static void line_begin(struct log_search *s, int64_t at)
{
    pattern_line_clear(&s->line);
    s->line_matches = false;
    s->line_start = at;
}

/* The search goes on at `at`, with a new line. */
static void search_restart(struct log_search *s, int64_t at)
{
    line_begin(s, at);
    s->at = at;
    s->pending_from = s->pending_to = 0;
    s->within = false;
}

void log_search_begin(struct log_search *s, struct pattern *pattern, int64_t offset, bool within,
                      int64_t tail)
{
    *s = (struct log_search){.pattern = pattern};
    search_restart(s, offset);
    if (tail > 0) {
        s->collecting = true;
        s->most = (size_t)(tail < LOG_SEARCH_TAIL ? tail : LOG_SEARCH_TAIL);
        s->places = xmalloc(s->most * sizeof(*s->places));
        s->until = -1;
    } else if (within) {
        s->within = s->line_matches = true;
    }
}

void log_search_move(struct log_search *s, int64_t offset)
{
    search_restart(s, offset);
}

static void out_add(struct log_search *s, const char *data, int64_t from, int64_t to)
{
    buf_append(&s->out, data, (size_t)(to - from));
    if (s->region_count && s->regions[s->region_count - 1].to == from) {
        s->regions[s->region_count - 1].to = to;
        return;
    }
    s->regions = array_grow(s->regions, s->region_count, &s->region_cap, sizeof(*s->regions));
    s->regions[s->region_count++] = (struct log_region){from, to};
}

static enum err_code line_search(struct log_search *s, bool *matched, int64_t *budget, struct err *e)
{
    const int64_t began = clock_mono_ns();

    *matched = s->line_matches;
    const enum err_code code = s->line_matches ? ERR_OK : pattern_line_end(s->pattern, &s->line, matched, e);
    *budget -= LINE_STEPS + (clock_mono_ns() - began) / STEP_NS;
    return code ? err_wrap(e, "the line at byte %lld", (long long)s->line_start) : ERR_OK;
}

/* The line from line_start to before `to` has ended. data: the block that ends it, which begins at `base` in the file. */
static enum err_code line_finish(struct log_search *s, const char *data, int64_t base, int64_t to,
                                 size_t wanted, int64_t *budget, struct err *e)
{
    const int64_t from = s->line_start;
    bool matched;
    if (line_search(s, &matched, budget, e))
        return e->code;
    const bool fits = from >= base && s->out.len + (size_t)(to - from) <= wanted;

    line_begin(s, to);
    if (s->collecting && matched)
        s->places[s->found++ % s->most] = from;
    if (s->collecting || !matched || from == to)
        return ERR_OK;
    if (fits) {
        out_add(s, data + (from - base), from, to);
        s->within = false;
    } else {
        s->pending_from = from;
        s->pending_to = to;
    }
    return ERR_OK;
}

/* Searches the lines of a block, which begins at s->at in the file, until one is pending or the budget is used up. */
static enum err_code block_search(struct log_search *s, const char *block, size_t size, size_t wanted,
                                  int64_t *budget, struct err *e)
{
    const int64_t base = s->at;
    size_t at = 0;

    while (at<size && * budget> 0 && !s->pending_to) {
        const char *end = memchr(block + at, '\n', size - at);
        const size_t stop = end ? (size_t)(end - block) : size;

        pattern_line_add(&s->line, block + at, stop - at);
        *budget -= (int64_t)(stop - at);
        at = end ? stop + 1 : stop;
        s->at = base + (int64_t)at;
        if (end && line_finish(s, block, base, s->at, wanted, budget, e))
            return e->code;
    }
    return ERR_OK;
}

/* Reads a part of the pending line again. */
static enum err_code pending_read(struct log_search *s, int fd, char *block, size_t wanted, struct err *e)
{
    int64_t left = s->pending_to - s->pending_from, next;
    const size_t room = wanted - s->out.len < BLOCK ? wanted - s->out.len : BLOCK;
    const ssize_t n =
        cut_file_read(fd, block, left < (int64_t)room ? (size_t)left : room, s->pending_from, &next);

    if (n < 0)
        return err_sys(e, errno, "read");
    /* Behind a cut that was made meanwhile, or at the end of a shorter file, is another line. */
    if (n > 0 && next <= s->pending_to) {
        out_add(s, block, next - n, next);
        s->pending_from = next;
        s->within = next < s->pending_to;
    }
    if (n == 0 || next >= s->pending_to) {
        s->pending_from = s->pending_to = 0;
        s->within = false;
    }
    return ERR_OK;
}

/* The places are known: begins at the first of them, or where the last line has not ended yet. */
static void tail_begin(struct log_search *s)
{
    const size_t first = s->found > s->most ? s->found % s->most : 0;
    const int64_t at = s->found ? s->places[first] : s->line_start;

    free(steal(s->places));
    s->collecting = false;
    search_restart(s, at);
}

/* Returns 0 at the end of what there is to search now, -1 on an error. */
static ssize_t block_read(const struct log_search *s, int fd, char *block, int64_t *next)
{
    const int64_t left = s->collecting ? s->until - s->at : BLOCK;

    return left <= 0 ? 0 : cut_file_read(fd, block, left < BLOCK ? (size_t)left : BLOCK, s->at, next);
}

/* Called at the end of the file. Sets *more if there is still something to do: a line to send, or the lines of the tail. */
static enum err_code search_end(struct log_search *s, bool last, size_t wanted, int64_t *budget, bool *more,
                                struct err *e)
{
    if (last && s->at > s->line_start && line_finish(s, NULL, INT64_MAX, s->at, wanted, budget, e))
        return e->code;
    *more = s->collecting || s->pending_to;
    if (s->collecting)
        tail_begin(s);
    return ERR_OK;
}

/* Searches the next block. Clears *more if the file has no more. */
static enum err_code search_step(struct log_search *s, int fd, char *block, bool last, size_t wanted,
                                 int64_t *budget, bool *more, struct err *e)
{
    int64_t next = 0;
    const ssize_t n = block_read(s, fd, block, &next);

    *more = true;
    if (n < 0)
        return err_sys(e, errno, "read");
    if (n == 0)
        return search_end(s, last, wanted, budget, more, e);
    const int64_t base = next - n;
    const bool hole = base != s->at;
    if (hole && s->at > s->line_start && line_finish(s, NULL, INT64_MAX, s->at, wanted, budget, e))
        return e->code;
    if (hole)
        line_begin(s, base);
    s->at = base;
    return s->pending_to ? ERR_OK : block_search(s, block, (size_t)n, wanted, budget, e);
}

enum log_search_result log_search_run(struct log_search *s, int fd, const struct stat *st, bool last,
                                      size_t wanted, int64_t *budget, struct err *e)
{
    CLEANUP(free_text) char *block = xmalloc(BLOCK);
    bool more = true;

    if (s->why.code) { /* nobody could be told yet */
        *e = s->why;
        return LOG_SEARCH_FAILED;
    }
    if (s->at > st->st_size && !s->pending_to) /* the file was replaced by a shorter one: from the start */
        search_restart(s, 0);
    if (s->collecting && s->until < 0)
        s->until = st->st_size;
    while (more && s->out.len < wanted) {
        if (!s->pending_to && *budget <= 0)
            return LOG_SEARCH_PAUSED;
        if (s->pending_to ? pending_read(s, fd, block, wanted, e)
                          : search_step(s, fd, block, last, wanted, budget, &more, e)) {
            s->why = *e;
            return LOG_SEARCH_FAILED;
        }
    }
    return s->out.len >= wanted ? LOG_SEARCH_FULL : LOG_SEARCH_END;
}

int64_t log_search_place(const struct log_search *s, bool *within)
{
    *within = s->within;
    return s->pending_to ? s->pending_from : s->line_start;
}

/* Adds the bytes of `out` from *done to before `to`, but not the start of a line that has not ended there: a line was written
 * when it ended, and is not passed on in parts. */
static void date_lines(const struct log_search *s, struct log_runs *runs, size_t *done, size_t to,
                       int64_t wall_us)
{
    const char *end = to > *done ? memrchr(s->out.data + *done, '\n', to - *done) : NULL;
    const size_t stop = to == s->out.len ? to : end ? (size_t)(end + 1 - s->out.data) : *done;

    if (stop == *done)
        return;
    if (runs->count && runs->wall_us[runs->count - 1] == wall_us)
        runs->bytes[runs->count - 1] += (int64_t)(stop - *done);
    else
        log_runs_add(runs, (int64_t)(stop - *done), wall_us);
    *done = stop;
}

void log_search_date(const struct log_search *s, struct log_runs *runs, int notes, int64_t *notes_at,
                     bool standard_error, const struct stat *st)
{
    CLEANUP(log_runs_release) struct log_runs part = {0};
    size_t done = 0, to = 0;

    runs->count = 0;
    for (size_t i = 0; i < s->region_count; i++) {
        log_runs_find(&part, notes, notes_at, standard_error, st, s->regions[i].from, s->regions[i].to);
        for (size_t r = 0; r < part.count; r++) {
            to += (size_t)part.bytes[r];
            date_lines(s, runs, &done, to, part.wall_us[r]);
        }
    }
}

void log_search_clear(struct log_search *s)
{
    buf_clear(&s->out);
    s->region_count = 0;
}

void log_search_release(struct log_search *s)
{
    pattern_line_release(&s->line);
    free(s->places);
    buf_release(&s->out);
    free(s->regions);
    *s = (struct log_search){0};
}
