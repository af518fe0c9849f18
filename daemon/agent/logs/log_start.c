#include "daemon/agent/logs/log_start.h"

#include <string.h>
#include <unistd.h>

#include "daemon/agent/logs/log_dates.h"

bool log_start_given(const struct log_start *start)
{
    return start->tail_bytes > 0 || start->tail_lines > 0 || start->since_ms > 0;
}

static int64_t start_of_lines(int fd, int64_t size, int64_t lines)
{
    const int64_t first = size > LOG_START_SEARCH ? size - LOG_START_SEARCH : 0;
    char block[65536];

    for (int64_t end = size; end > first;) {
        const int64_t begin = end - first > (int64_t)sizeof(block) ? end - (int64_t)sizeof(block) : first;

        if (pread(fd, block, (size_t)(end - begin), begin) != end - begin)
            return begin; /* the file was shortened meanwhile */
        for (int64_t at = end; at-- > begin;)
            /* The end of the last line ends no line before it. */
            if (block[at - begin] == '\n' && at != size - 1 && --lines == 0)
                return at + 1;
        end = begin;
    }
    return first;
}

int64_t log_start_find(const struct log_start *start, int fd, int notes, bool standard_error,
                       const struct stat *log)
{
    const int64_t size = log->st_size;
    int64_t offset = 0;

    if (start->tail_bytes > 0 && size > start->tail_bytes)
        offset = size - start->tail_bytes;
    if (start->tail_lines > 0) {
        const int64_t lines = start_of_lines(fd, size, start->tail_lines);
        offset = lines > offset ? lines : offset;
    }
    if (start->since_ms > 0) {
        const int64_t us = start->since_ms < INT64_MAX / 1000 ? start->since_ms * 1000 : INT64_MAX;
        const int64_t since = log_offset_since(notes, standard_error, log, us);
        offset = since > offset ? since : offset;
    }
    return offset;
}
