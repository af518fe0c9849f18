#ifndef DDP_TRAINER_SNAPSHOT_SAFETENSORS_H
#define DDP_TRAINER_SNAPSHOT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

/* The safetensors format: a little-endian u64 with the header's length, a JSON object {"name": {"dtype":
 * "F32", "shape": [..], "data_offsets": [from, to]}, "__metadata__": {"key": "text"}}, then the data, without
 * holes. F32 is written; F32, F16 and BF16 are read, as F32. Other types may lie in a file (a mask of
 * booleans) but are not read. Whatever a file holds, reading it ends in tensors that lie inside it
 * or in an error that names file and tensor. Any thread. */

#define SAFETENSORS_DIMS 4
enum safetensors_type { SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_OTHER };
struct safetensor {
    char name[96];
    enum safetensors_type type; /* F32 where it is to be written */
    int dims;
    int64_t shape[SAFETENSORS_DIMS];
    uint64_t from, to; /* bytes, from the start of the data; set by the reader */
    const float *data; /* what to write; not used by the reader */
};

/* Data in the order given; metadata: a JSON object of texts. Durable after OK (fsync of the file; not its
 * directory). */
MUST_CHECK enum err_code safetensors_write(const char *path, const struct safetensor *tensors, size_t count,
                                           const char *metadata, struct err *e);

struct safetensors {
    char *path;
    int fd;
    uint64_t data_start, data_size;
    struct safetensor *tensors; /* in the order of their data */
    size_t count;
    json_t *metadata; /* an object of texts, may be empty */
};
MUST_CHECK enum err_code safetensors_open(struct safetensors **out, const char *path, struct err *e);
void safetensors_close(struct safetensors *f); /* NULL is fine */
/* NULL when there is none of that name. */
const struct safetensor *safetensors_find(const struct safetensors *f, const char *name);
/* The tensor's data, where it has this very shape; of the first dimension, shape[0] may be fewer than the
 * file has: its first rows then, where `head`. NOT_FOUND, FAILED_PRECONDITION (shape, type), DATA_LOSS. */
MUST_CHECK enum err_code safetensors_read_head(const struct safetensors *f, const char *name, int dims,
                                               const int64_t *shape, bool head, float *out, struct err *e);
MUST_CHECK enum err_code safetensors_read(const struct safetensors *f, const char *name, int dims,
                                          const int64_t *shape, float *out, struct err *e);

/* The header alone: json is the bytes between length and data. Fills tensors, count and metadata of f; uses
 * its path and data_size. */
MUST_CHECK enum err_code safetensors_parse(struct safetensors *f, const char *json, size_t size,
                                           struct err *e);

#endif
