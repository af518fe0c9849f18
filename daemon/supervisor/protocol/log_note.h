#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_LOG_NOTE_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_LOG_NOTE_H

#include <stdbool.h>
#include <stdint.h>

/* times.log, beside a worker's stdout.log and stderr.log, notes when these two grew, so that `ddpctl logs` can print
 * the output of all ranks in the order in which it was written. It holds notes of LOG_NOTE_SIZE bytes, in the order of
 * time:
 *
 *   8 bytes  wall clock in microseconds, times 2; plus 1 for stderr.log
 *   8 bytes  size of that file by then
 *
 * both little-endian. Like the other two files, it belongs to the job's user, so a reader must cope with any
 * content. */
#define LOG_NOTE_FILE "times.log"
#define LOG_NOTE_SIZE 16

struct log_note {
    int64_t wall_us;
    int64_t size;
    bool standard_error;
};

void log_note_encode(const struct log_note *note, uint8_t out[LOG_NOTE_SIZE]);
struct log_note log_note_decode(const uint8_t in[LOG_NOTE_SIZE]);

#endif
