#ifndef DDP_TRAINER_DEVICE_RANGES_H
#define DDP_TRAINER_DEVICE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* Ranges of flat arrays that one operation of a device handles at once. They rise and do not overlap.
 *
 * A block of a GPU's threads takes DEVICE_RANGE_BLOCK floats of one range. It finds its range in `items` by the number of
 * blocks that the ranges before have. */

enum { DEVICE_RANGE_BLOCK = 4096 };

struct device_range {
    uint64_t offset, count; /* floats */
    uint64_t second;        /* adamw_ranges: where the range's second moments begin, in v */
    uint64_t blocks_before; /* set by device_ranges_open */
    uint64_t decays;        /* adamw_ranges: 1 if weight decay applies, else 0 */
};

struct device_ranges {
    struct device_range *items; /* device memory; NULL: there are none */
    size_t count, blocks;
    bool aligned; /* all of them begin at multiples of 16 bytes, if the arrays do */
};

/* Copies the ranges, none of which is empty, to device memory. Sets their blocks_before. RESOURCE_EXHAUSTED: out of memory. */
MUST_CHECK enum err_code device_ranges_open(struct device_ranges *out, struct device *d,
                                            struct device_range *items, size_t count, struct err *e);
void device_ranges_close(struct device_ranges *r, struct device *d); /* all zero is fine */

#endif
