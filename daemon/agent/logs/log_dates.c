#include "daemon/agent/logs/log_dates.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

#define NOTES_A_READ 256

/* Goes over the notes of a stream. */
struct note_reader {
    int fd;
    bool standard_error;
    int64_t at; /* of the note after the current one; LOG_NOTES_END: there is none */
    int64_t
        last_us; /* of the current one: a clock that was set back does not turn the order of lines round */
    int examined;
    uint8_t block[NOTES_A_READ * LOG_NOTE_SIZE];
    size_t used, have; /* in block */
};

static bool next_note(struct note_reader *r, struct log_note *out)
{
    do {
        if (r->used + LOG_NOTE_SIZE > r->have) {
            const ssize_t n = r->fd < 0 ? 0 : pread(r->fd, r->block, sizeof(r->block), r->at);

            r->have = n > 0 ? (size_t)n : 0;
            r->used = 0;
            if (r->have < LOG_NOTE_SIZE || r->examined >= LOG_NOTES_MOST)
                return false;
        }
        *out = log_note_decode(r->block + r->used);
        if (out->wall_us <= 0 || out->size < 0) { /* no supervisor wrote this, as in a hole of the file */
            r->at = LOG_NOTES_END;
            r->have = 0;
            return false;
        }
        r->used += LOG_NOTE_SIZE;
        r->at += LOG_NOTE_SIZE;
        r->examined++;
        if (out->wall_us < r->last_us)
            out->wall_us = r->last_us;
        r->last_us = out->wall_us;
    } while (out->standard_error != r->standard_error);
    return true;
}

static int64_t changed_us(const struct stat *log)
{
    return (int64_t)log->st_mtim.tv_sec * 1000000 + log->st_mtim.tv_nsec / 1000;
}

void log_runs_add(struct log_runs *runs, int64_t bytes, int64_t wall_us)
{
    const size_t cap = runs->cap;

    runs->bytes = array_grow(runs->bytes, runs->count, &runs->cap, sizeof(*runs->bytes));
    if (runs->cap != cap)
        runs->wall_us = xrealloc(runs->wall_us, runs->cap * sizeof(*runs->wall_us));
    runs->bytes[runs->count] = bytes;
    runs->wall_us[runs->count++] = wall_us;
}

void log_runs_find(struct log_runs *runs, int notes, int64_t *notes_at, bool standard_error,
                   const struct stat *log, int64_t begin, int64_t end)
{
    struct note_reader r = {.fd = notes, .standard_error = standard_error, .at = *notes_at};
    struct log_note note;
    int64_t at = begin;

    runs->count = 0;
    while (at < end && next_note(&r, &note)) {
        if (note.size > at) {
            const int64_t to = note.size < end ? note.size : end;

            log_runs_add(runs, to - at, note.wall_us);
            at = to;
        }
        /* A note that reaches beyond `end` dates the next bytes, too. */
        *notes_at = note.size > end ? r.at - LOG_NOTE_SIZE : r.at;
    }
    if (at < end)
        *notes_at = r.at; /* what follows are notes that are still to be made */
    if (at < end)
        log_runs_add(runs, end - at, changed_us(log));
}

void log_runs_release(struct log_runs *runs)
{
    free(runs->bytes);
    free(runs->wall_us);
    *runs = (struct log_runs){0};
}

int64_t log_offset_since(int notes, bool standard_error, const struct stat *log, int64_t wall_us)
{
    struct note_reader r = {.fd = notes, .standard_error = standard_error};
    struct log_note note;
    int64_t before = 0;

    while (next_note(&r, &note)) {
        if (note.wall_us >= wall_us)
            return before;
        before = note.size;
    }
    return changed_us(log) >= wall_us && before >= 0 && before < log->st_size ? before : log->st_size;
}
