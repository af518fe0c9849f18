#ifndef DDP_CLIENT_DIAGNOSE_DEEP_FIGURES_H
#define DDP_CLIENT_DIAGNOSE_DEEP_FIGURES_H

#include "client/diagnose/preflight.h"

/* What `ddpctl check --deep` has measured, and which GPU or CPU slot is slower than its peers. No input or output; deep_run
 * measures, and screen_deep prints.
 *
 * The peers of a GPU or a slot are all others of the same model that one check measures. It is slow if a rate stays below a share
 * of the median of its peers' rates in every round: its best round is compared with their medians. So a device is not
 * called slow because another program used it for a while.
 *
 * All-reduces are measured with up to four partners on other nodes. The rate with the fastest of them counts, so it is low only if the
 * GPU or slot is slow with all of them. With a single partner nobody knows which of the two is slow: then the finding is about the
 * pair, and names no node that could be drained. */

#define DEEP_RATES 5
#define DEEP_ALLREDUCE 4 /* in deep_rate_kinds */
#define DEEP_PARTNERS 4

/* How a rate is named in the trainer's lines (trainer/measure.h) and in sentences. */
struct deep_rate_kind {
    const char *name;
    const char *does, *do_; /* "GPU 2 multiplies", "GPUs 2 and 3 multiply" */
    const char *gpu_fix, *cpu_fix;
};
extern const struct deep_rate_kind deep_rate_kinds[DEEP_RATES];

struct deep_rate {
    double median, best; /* of the rounds; 0: the device does not have this rate */
    double peers;        /* the median of the peers' medians; 0: no peer has this rate */
    size_t peer_count;   /* number of peers that have this rate */
    bool low;            /* below the share of its peers */
    bool slow;           /* low, and the place is to blame for it */
};
struct deep_partner {    /* another place, with which this one has made all-reduces */
    int64_t rank;        /* in the same job */
    double median, best; /* 0: they could not exchange data */
    char *why;           /* in that case; else NULL */
};
struct deep_place { /* a GPU or a slot */
    char *node, *model;
    bool gpu;
    int64_t rank;  /* in the job that measured it */
    int64_t index; /* GPU 2, slot 0 */
    size_t peers;
    struct deep_rate rates[DEEP_RATES];
    struct deep_partner partners[DEEP_PARTNERS];
    size_t partner_count;
    bool partners_known; /* the job has told them, even if there are none */
};
struct deep_figures {
    struct deep_place *places;
    size_t count, cap;
};

/* Takes a line that rank 0 of a measuring job has printed: the rates of a device, which are a new place, or the partners of the last
 * place of that rank. Other lines are ignored. */
MUST_CHECK enum err_code deep_figures_add(struct deep_figures *f, const char *line, size_t len,
                                          struct err *e);
/* Compares all places, and adds a finding for each node and rate that is below `share` of its peers, and for each pair of nodes that
 * is slow or could not exchange data, if neither of the two is to blame. */
void deep_figures_judge(struct deep_figures *f, double share, struct findings *found);
void deep_figures_release(struct deep_figures *f); /* for CLEANUP too */

#endif
