#include "daemon/coordinator/service/logs/log_piece.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

static void add_run(struct log_piece *p, size_t bytes, int64_t wall_us)
{
    p->runs = array_grow(p->runs, p->count, &p->cap, sizeof *p->runs);
    p->runs[p->count++] = (struct log_run){bytes, wall_us};
}

void log_piece_add(struct log_piece *p, const void *data, size_t size, const int64_t *run_bytes,
                   const int64_t *run_us, size_t run_count)
{
    size_t left = size;

    buf_append(&p->data, data, size);
    for (size_t i = 0; i < run_count && left; i++) {
        const size_t bytes = run_bytes[i] > 0 && (uint64_t)run_bytes[i] < left ? (size_t)run_bytes[i] : left;

        if (run_bytes[i] <= 0)
            continue;
        add_run(p, bytes, run_us[i] > 0 ? run_us[i] : 0);
        left -= bytes;
    }
    if (left)
        add_run(p, left, 0);
}

size_t log_piece_left(const struct log_piece *p)
{
    return p->data.len - p->passed;
}

const uint8_t *log_piece_bytes(const struct log_piece *p)
{
    return (const uint8_t *)p->data.data + p->passed;
}

int64_t log_piece_date(const struct log_piece *p)
{
    return p->runs[p->at].wall_us;
}

int64_t log_piece_last_date(const struct log_piece *p)
{
    return p->runs[p->count - 1].wall_us;
}

size_t log_piece_until(const struct log_piece *p, int64_t wall_us)
{
    size_t bytes = p->runs[p->at].bytes;

    for (size_t i = p->at + 1; i < p->count && p->runs[i].wall_us <= wall_us; i++)
        bytes += p->runs[i].bytes;
    return bytes;
}

void log_piece_pass(struct log_piece *p, size_t bytes)
{
    p->passed += bytes;
    while (bytes) {
        BUG_ON(p->at == p->count || p->runs[p->at].bytes > bytes);
        bytes -= p->runs[p->at++].bytes;
    }
    if (log_piece_left(p))
        return;
    buf_clear(&p->data);
    p->passed = p->count = p->at = 0;
}

void log_piece_release(struct log_piece *p)
{
    buf_release(&p->data);
    free(p->runs);
    *p = (struct log_piece){0};
}
