#ifndef DDP_BASE_EVENT_FILE_EVENT_WRITE_H
#define DDP_BASE_EVENT_FILE_EVENT_WRITE_H

#include <stdint.h>

#include "base/buf.h"

/* Writes TensorBoard event files. A file is a sequence of records (TFRecord):
 *
 *   8 bytes  the length of the data, little-endian
 *   4 bytes  CRC-32C of the length, masked (crc32c.h)
 *   n bytes  the data: one message Event of tensorflow/core/util/event.proto
 *   4 bytes  CRC-32C of the data, masked
 *
 * Only those fields of Event are written that scalars need. Each function appends one whole record. Any thread. */

/* A file begins with this record. */
void event_put_version(struct buf *out, double wall_s);
/* A point of the curve `tag`. TensorBoard keeps values as 32-bit floats. */
void event_put_scalar(struct buf *out, double wall_s, int64_t step, const char *tag, double value);

#endif
