#ifndef DDP_TRAINER_SNAPSHOT_SAFETENSORS_H
#define DDP_TRAINER_SNAPSHOT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

/* The safetensors format: a little-endian u64 with the header's length, a JSON object {"name": {"dtype":
 * "F32", "shape": [..], "data_offsets": [from, to]}, "__metadata__": {"key": "text"}}, then the data, without
 * holes. ddp writes F32, and reads F32, F16 and BF16 as F32. A file may hold other types (such as a mask of
 * booleans), which are not read. Reading any file ends in tensors that lie inside the file, or in an error
 * that names file and tensor. Any thread. */

#define SAFETENSORS_DIMS 4
enum safetensors_type { SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_OTHER };
struct safetensor {
    char name[96];
    enum safetensors_type type; /* must be F32 when writing */
    int dims;
    int64_t shape[SAFETENSORS_DIMS];
    uint64_t from, to; /* bytes, from the start of the data; set by the reader */
    const float *data; /* the data to write; not used by the reader */
};

/* A long write asks this now and then. If `over` returns true, the write ends with CANCELLED. */
struct safetensors_check {
    bool (*over)(void *arg);
    void *arg;
};
MUST_CHECK enum err_code safetensors_ask(const struct safetensors_check *check, const char *path,
                                         struct err *e); /* check NULL: OK */

/* Writes the tensors in the given order; metadata: a JSON object of texts. The file is durable on success
 * (fsync of the file, but not of its directory). check: asked before each tensor and before the fsync; or NULL. */
MUST_CHECK enum err_code safetensors_write(const char *path, const struct safetensor *tensors, size_t count,
                                           const char *metadata, const struct safetensors_check *check,
                                           struct err *e);

struct safetensors {
    char *path;
    int fd;
    uint64_t data_start, data_size;
    struct safetensor *tensors; /* in the order of their data */
    size_t count;
    json_t *metadata; /* an object of texts; may be empty */
};
MUST_CHECK enum err_code safetensors_open(struct safetensors **out, const char *path, struct err *e);
void safetensors_close(struct safetensors *f); /* NULL is fine */
/* Returns NULL if there is no tensor of that name. */
const struct safetensor *safetensors_find(const struct safetensors *f, const char *name);
/* Reads the tensor's data as floats. The tensor must have this shape. With `head`, the file's first dimension
 * may be larger than shape[0]; then its first rows are read. NOT_FOUND: there is no such tensor.
 * FAILED_PRECONDITION: another shape, or an unsupported type. DATA_LOSS: the file is truncated. */
MUST_CHECK enum err_code safetensors_read_head(const struct safetensors *f, const char *name, int dims,
                                               const int64_t *shape, bool head, float *out, struct err *e);
MUST_CHECK enum err_code safetensors_read(const struct safetensors *f, const char *name, int dims,
                                          const int64_t *shape, float *out, struct err *e);

/* Parses the header alone; json: the bytes between length and data. Sets tensors, count and metadata of f;
 * uses its path and data_size. */
MUST_CHECK enum err_code safetensors_parse(struct safetensors *f, const char *json, size_t size,
                                           struct err *e);

#endif
