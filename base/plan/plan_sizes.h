#ifndef DDP_BASE_PLAN_PLAN_SIZES_H
#define DDP_BASE_PLAN_PLAN_SIZES_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Gradients that are summed together, or parameters that are gathered together.
 * at: for gradients, the fraction of the backward pass after which all of them are complete; for parameters, the fraction of the forward
 * pass after which the first of them is needed. */
struct plan_exchange {
    double at;
    double bytes;      /* of the array */
    double link_bytes; /* on the busiest link of a ring through all nodes, or on GPUs through all ranks */
};

/* What a train job needs of each rank, as `ddp-trainer --sizes` prints it and `ddpctl plan` reads it: one JSON object, whose keys
 * are the names of the fields. The trainer fills it in by the code that allocates when the job runs. */
struct plan_sizes {
    double parameters;    /* number of parameters of the model */
    double arrays;        /* number of floats in the array of parameters, with its gaps and its tail */
    double rows;          /* samples of a rank's largest micro-batch */
    double micro_batches; /* of a step */
    double samples;       /* of a step, of all ranks */
    double tokens;        /* of a sample; 0: the model is not a language model */
    double flops;         /* of a rank in a step: model_flops (trainer/model/model.h) */
    double
        gathered_bytes; /* shard: optimizer: of all parameters as ranks send them after an update, the mean over steps */
    double
        gathered_beside; /* the fraction of the steps in which parameters may arrive during the next forward pass */
    double update_floats; /* floats that the optimizer reads or writes for each parameter */
    /* Bytes of a rank. On a GPU they are device memory. */
    double parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, batch_bytes, data_bytes;
    double strategy_bytes;  /* arrays of the strategy that keeps ranks in step */
    double workspace_bytes; /* of the device, and on a GPU of its libraries; bf16 weights */
    double sum_bytes;
    /* Owned. buckets: of the gradients of a step with all-reduce or shard: optimizer, in the order in which they are summed. pieces: of
     * the parameters with shard: optimizer, in the order in which they are gathered; none: the gather is one call. */
    struct plan_exchange *buckets, *pieces;
    size_t bucket_count, piece_count;
};

void plan_sizes_release(struct plan_sizes *s);
void plan_sizes_print(const struct plan_sizes *s, struct buf *out);
/* DATA_LOSS: it is no such object, or a value is missing. */
MUST_CHECK enum err_code plan_sizes_parse(const char *text, size_t len, struct plan_sizes *out,
                                          struct err *e);

#endif
