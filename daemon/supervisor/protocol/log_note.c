#include "daemon/supervisor/protocol/log_note.h"

#include <endian.h>
#include <string.h>

void log_note_encode(const struct log_note *note, uint8_t out[LOG_NOTE_SIZE])
{
    const uint64_t words[2] = {htole64((uint64_t)note->wall_us << 1 | note->standard_error),
                               htole64((uint64_t)note->size)};

    memcpy(out, words, sizeof(words));
}

struct log_note log_note_decode(const uint8_t in[LOG_NOTE_SIZE])
{
    uint64_t words[2];

    memcpy(words, in, sizeof(words));
    words[0] = le64toh(words[0]);
    return (struct log_note){.wall_us = (int64_t)(words[0] >> 1),
                             .size = (int64_t)le64toh(words[1]),
                             .standard_error = words[0] & 1};
}
