#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_PIECE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_PIECE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Bytes of one log that have come from its node and were not passed on yet, with the times at which they were
 * written. All zeros: empty. */
struct log_piece {
    struct buf data;
    size_t passed; /* bytes of data that were passed on */
    struct log_run {
        size_t bytes;
        int64_t wall_us; /* 0: unknown */
    } * runs;            /* of the bytes after `passed`, from run `at` on */
    size_t count, cap, at;
};

/* Appends bytes whose runs are given by two arrays; bytes that the runs do not cover get the time 0. */
void log_piece_add(struct log_piece *p, const void *data, size_t size, const int64_t *run_bytes,
                   const int64_t *run_us, size_t run_count);
size_t log_piece_left(const struct log_piece *p); /* bytes that were not passed on */
const uint8_t *log_piece_bytes(const struct log_piece *p);
/* When the first of these bytes was written; 0: unknown. The piece must not be empty. */
int64_t log_piece_date(const struct log_piece *p);
int64_t log_piece_last_date(const struct log_piece *p); /* when the last byte was written */
/* How many bytes at the front were written at `wall_us` or before. The first run always counts. */
size_t log_piece_until(const struct log_piece *p, int64_t wall_us);
void log_piece_pass(struct log_piece *p, size_t bytes); /* removes them; bytes: a result of log_piece_until */
void log_piece_release(struct log_piece *p);

#endif
