#ifndef DDP_TESTS_NUM_PIECES_H
#define DDP_TESTS_NUM_PIECES_H

#include <stddef.h>

#include "base/mem.h"
#include "trainer/model/model.h"

/* Checks that a backward pass reports the gradients as final from the last parameter to the first, in the pieces that model_units
 * says. */
struct pieces {
    size_t end; /* what is before it is not final yet */
    int count;
    struct model_unit units[64]; /* which `ddpctl plan` relies on; not used if there are no rows */
    size_t left;
};

/* Also checks that the units cover the model. */
struct pieces pieces_open(const struct model *m);
/* For model_train; arg: struct pieces. */
void pieces_ready(void *arg, size_t offset, size_t count);

#endif
