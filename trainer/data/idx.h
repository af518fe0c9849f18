#ifndef DDP_TRAINER_DATA_IDX_H
#define DDP_TRAINER_DATA_IDX_H

#include "trainer/data/dataset.h"

/* IDX files, the format of MNIST: two zero bytes, a type byte (8: unsigned byte), the number of dimensions,
 * each dimension as a big-endian 32-bit number, then the data. Files may be gzipped. Every error message
 * names the file. */

#define IDX_DIMS 4
struct idx_array {
    uint8_t *data; /* unsigned bytes */
    int dims;
    int64_t shape[IDX_DIMS];
    int64_t count; /* product of shape */
};
/* Parses bytes that are already decompressed; the array gets a copy of the data. DATA_LOSS: the bytes are not
 * one complete IDX array. */
MUST_CHECK enum err_code idx_parse(struct idx_array *out, const uint8_t *bytes, size_t size, struct err *e);
/* Reads the file `path`, or path.gz if there is no such file. */
MUST_CHECK enum err_code idx_read(struct idx_array *out, const char *path, struct err *e);
void idx_release(struct idx_array *a);

/* Opens the data set in dir: train-images-idx3-ubyte and train-labels-idx1-ubyte for training, the files with
 * t10k- instead of train- for validation, each with or without .gz. Pixels are normalised by the mean and the
 * standard deviation of all training pixels. */
MUST_CHECK enum err_code idx_open_pair(struct dataset **train, struct dataset **test, const char *dir,
                                       struct err *e);

#endif
