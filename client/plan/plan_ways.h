#ifndef DDP_CLIENT_PLAN_PLAN_WAYS_H
#define DDP_CLIENT_PLAN_PLAN_WAYS_H

#include "base/plan/step_model.h"

/* A job by each strategy: plain all-reduce, shard: optimizer, average, diloco. Of average and diloco the job's own values count, if
 * it has some. */
#define PLAN_WAYS 4
struct plan_way {
    char name[64]; /* "diloco every 50, wire int4" */
    struct sync_spec sync;
    enum shard_type shard;
    char refused[200]; /* why the job cannot use it; empty: it can */
    struct plan_sizes sizes;
    struct plan_step step;
};

struct plan {
    struct job_spec job; /* owned */
    struct plan_machine machine;
    double memory;          /* bytes of a rank's device; 0: not known */
    char compute_from[160]; /* "measured on this machine" */
    struct plan_way ways[PLAN_WAYS];
};

/* Fills in the sizes of all strategies. text: the job. */
MUST_CHECK enum err_code plan_ways_size(struct plan *p, const char *text, struct err *e);
/* The job as one rank of it runs alone on this machine: with its micro-batches and its share of the cores. threads: if the job
 * does not say. The caller frees *text. */
MUST_CHECK enum err_code plan_alone_text(const struct plan *p, const char *text, int64_t threads,
                                         const char *directory, char **out, struct err *e);
void plan_ways_step(struct plan *p);
void plan_release(struct plan *p);

#endif
