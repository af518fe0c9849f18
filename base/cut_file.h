#ifndef DDP_BASE_CUT_FILE_H
#define DDP_BASE_CUT_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Cuts the middle out of a log that another process appends to. The first part and the newest part keep their
 * offsets in the file, so the writers need not know of the cut. The middle becomes a hole that uses no disk
 * space. A line at the start of the hole says how many bytes were removed:
 *
 *   [ddp: 000000123456789 bytes of this log are left out here]
 *
 * A later cut makes the hole longer and rewrites the line. */

/* Keeps about `head` bytes of the start and `tail` bytes of the end, and cuts at the end of a line if one is
 * near. *left_out is the number of removed bytes, as in the line. fd is open for reading and writing, without
 * O_APPEND. UNIMPLEMENTED: the file system has no holes. FAILED_PRECONDITION: too little to remove. */
MUST_CHECK enum err_code cut_file_middle(int fd, int64_t head, int64_t tail, int64_t *left_out,
                                         struct err *e);

/* As pread at `at`, but skips the hole: a read that begins in the hole first returns the line. *next is the
 * offset of the next read; it differs from `at` plus the bytes read only by the hole. The line is
 * cut to the buffer's size; CUT_FILE_LINE bytes are enough for it. */
#define CUT_FILE_LINE 128
ssize_t cut_file_read(int fd, char *out, size_t size, int64_t at, int64_t *next);

#endif
