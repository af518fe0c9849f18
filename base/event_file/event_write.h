#ifndef DDP_BASE_EVENT_FILE_EVENT_WRITE_H
#define DDP_BASE_EVENT_FILE_EVENT_WRITE_H

#include <stdint.h>

#include "base/buf.h"

/* Writes TensorBoard event files. A file is a sequence of TFRecords, and each record is one Event message
 * (tensorflow/core/util/event.proto):
 *
 *   8 bytes  length of the data, little-endian
 *   4 bytes  masked CRC-32C of these 8 bytes
 *   data
 *   4 bytes  masked CRC-32C of the data
 *
 * Only the fields that scalars need are written. The functions append one whole record. Any thread. */

/* The first record of a file. */
void event_put_version(struct buf *out, double wall_s);
/* A point of the curve `tag`. TensorBoard keeps values as 32-bit floats. */
void event_put_scalar(struct buf *out, double wall_s, int64_t step, const char *tag, double value);

#endif
