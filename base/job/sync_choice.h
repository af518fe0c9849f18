#ifndef DDP_BASE_JOB_SYNC_CHOICE_H
#define DDP_BASE_JOB_SYNC_CHOICE_H

#include "base/buf.h"
#include "base/job/job.h"
#include "base/worker/metric.h"

/* `sync: auto`: which strategy keeps communication below SYNC_SHARE_MOST of a step. Nothing here measures. */

#define SYNC_SHARE_MOST 0.1

struct sync_facts {
    double compute_ms;   /* of a step without communication, of the slowest rank */
    double allreduce_ms; /* of all gradients, if nothing else runs */
    double overlap;      /* the part of the gradients that backward has ready before its end, 0 to 1 */
    double bytes;        /* of the gradients */
    int64_t steps;       /* of the run; 0: unknown */
    int nodes, world_size;
};

/* Sets *out to all-reduce if it is fast enough. Else to diloco: the finest wire that allows rounds of up to 16 steps, or
 * the wire that allows the shortest rounds. The round is as short as SYNC_SHARE_MOST allows, at most 500 steps and a tenth
 * of the run, at least 4 steps. */
void sync_choose(const struct sync_facts *f, struct sync_spec *out);
/* The keys that every choice of diloco has. Its arrays are all that any choice needs. */
void sync_choice_base(struct sync_spec *out);

/* The part of the gradients that backward has ready before its end, in an array of so many floats. beside: exchanges run beside
 * computing. */
double sync_overlap(double floats, bool beside);
/* Milliseconds of a step for which ranks stand still for the exchange under all-reduce or diloco. */
double sync_cost_ms(const struct sync_facts *f, const struct sync_spec *spec);
/* How many times as fast as by all-reduce a job makes steps by `spec`. */
double sync_speedup(const struct sync_facts *f, const struct sync_spec *spec);

/* The choice and its facts as metrics, from the trainer to the coordinator and ddpctl: sync_every (1: all-reduce),
 * sync_bits (of a parameter on the wire), sync_compute_ms, ... */
void sync_choice_put(struct metric_line *l, const struct sync_facts *f, const struct sync_spec *spec);
/* Returns false if the line has no choice. */
bool sync_choice_get(const struct metric_line *l, struct sync_facts *f, struct sync_spec *spec);
/* From the values of sync_every and sync_bits. */
void sync_choice_spec(double every, double bits, struct sync_spec *out);

/* "diloco every 50, wire int4" */
void sync_print(struct buf *out, const struct sync_spec *spec);
/* The speed of the link between nodes that the time of the all-reduce means: "10 Mbit/s" */
void sync_print_link(struct buf *out, const struct sync_facts *f);
/* "sync auto: diloco every 50, wire int4: an all-reduce of 4.8 MB takes 3.9 s on this link (10 Mbit/s), a step computes
 * 170 ms" */
void sync_print_choice(struct buf *out, const struct sync_facts *f, const struct sync_spec *spec);

#endif
