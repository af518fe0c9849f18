#ifndef DDP_TRAINER_DATA_IDX_H
#define DDP_TRAINER_DATA_IDX_H

#include "trainer/data/dataset.h"

/* IDX files, the format of MNIST and its kin: two zero bytes, a type byte (8: unsigned byte), the number of
 * dimensions, each dimension as a big-endian 32-bit number, then the data. Also gzipped. Every error names
 * the file. */

#define IDX_DIMS 4
struct idx_array {
    uint8_t *data; /* unsigned bytes */
    int dims;
    int64_t shape[IDX_DIMS];
    int64_t count; /* product of shape */
};
/* From bytes already decompressed; the data is a copy. DATA_LOSS where they are not an IDX array, whole and
 * of the right length. */
MUST_CHECK enum err_code idx_parse(struct idx_array *out, const uint8_t *bytes, size_t size, struct err *e);
/* path, or path.gz where there is no path. */
MUST_CHECK enum err_code idx_read(struct idx_array *out, const char *path, struct err *e);
void idx_release(struct idx_array *a);

/* dir holds train-images-idx3-ubyte, train-labels-idx1-ubyte and the same with t10k-, each with or without
 * .gz. Pixels are normalised by the mean and standard deviation of all training pixels. */
MUST_CHECK enum err_code idx_open_pair(struct dataset **train, struct dataset **test, const char *dir,
                                       struct err *e);

#endif
