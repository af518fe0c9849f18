#ifndef DDP_BASE_JOB_JOB_VARIANT_H
#define DDP_BASE_JOB_JOB_VARIANT_H

#include <math.h>

#include "base/job/job.h"

/* Maps of the job file with a `type` key. The `type` is read first and then the map by the table of that type. */

/* ranges of a conf_field */
#define JOB_FROM_ONE .min = 1, .max = INFINITY
/* Far above any run, and small enough for sums and for products with small numbers. */
#define JOB_STEPS .min = 1, .max = 1e12
#define JOB_EPOCHS .min = 1, .max = 1e9
#define JOB_FROM_ZERO .min = 0, .max = INFINITY
#define JOB_ABOVE_ZERO .min = 0, .max = INFINITY, .above = true
#define JOB_BELOW_ONE .min = 0, .max = 1, .below = true
#define JOB_WIDTH .min = 1, .max = 1 << 24

struct job_variant {
    const char *name;
    const struct conf_field *fields; /* NULL: the job file knows this type, but this version does not */
};
/* Finds the row that `type` names, or row `fallback` if the key is absent (-1: the key is required). */
MUST_CHECK enum err_code job_pick(const struct conf_node *map, const struct job_variant *all, size_t count,
                                  int fallback, const char *kind, int *index, struct err *e);
/* Reads the map by row `type`. If a key belongs only to other types, the error names these types. */
MUST_CHECK enum err_code job_read_variant(const struct conf_node *map, const struct job_variant *all,
                                          size_t count, const char *kind, int type, void *at, struct err *e);
/* CONF_CUSTOM: the function of `type` */
enum err_code job_ignore(const struct conf_node *node, void *at, struct err *e);
#define JOB_TYPE                                                                                             \
    {                                                                                                        \
        "type", CONF_CUSTOM, .fn = job_ignore                                                                \
    }
/* Returns the key's value, or the map if the key is absent: the place that a message names. */
const struct conf_node *job_either(const struct conf_node *map, const char *key);

#endif
