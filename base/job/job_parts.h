#ifndef DDP_BASE_JOB_JOB_PARTS_H
#define DDP_BASE_JOB_JOB_PARTS_H

#include "base/buf.h"
#include "base/job/job.h"

/* What the files of job.h share: the names of every enum, in enum order, and the halves of parsing and
 * printing. */

extern const char *const job_device_names[];
extern const char *const job_lost_names[];
extern const char *const job_symbol_names[];
extern const char *const job_precision_names[];
extern const char *const job_reproducible_names[];
extern const char *const job_activation_names[];
extern const char *const job_loss_names[];
extern const char *const job_schedule_names[];
extern const char *const job_resume_names[];

/* ---- ranges of a conf_field */
#define JOB_FROM_ONE .min = 1, .max = INFINITY
#define JOB_FROM_ZERO .min = 0, .max = INFINITY
#define JOB_ABOVE_ZERO .min = 0, .max = INFINITY, .above = true
#define JOB_BELOW_ONE .min = 0, .max = 1, .below = true
#define JOB_WIDTH .min = 1, .max = 1 << 24

/* ---- maps with a `type`: that key is read first and then the map by the type's own table, so that a key of
 * another type is an unknown key. */
struct job_variant {
    const char *name;
    const struct conf_field *fields; /* NULL: known to the job file, not to this version */
};
/* Finds the row named by `type`, or fallback's where the key is absent (-1: it must be there). */
MUST_CHECK enum err_code job_pick(const struct conf_node *map, const struct job_variant *all, size_t count,
                                  int fallback, const char *kind, int *index, struct err *e);
enum err_code job_ignore(const struct conf_node *node, void *at,
                         struct err *e); /* CONF_CUSTOM: fn of `type` */
#define JOB_TYPE                                                                                             \
    {                                                                                                        \
        "type", CONF_CUSTOM, .fn = job_ignore                                                                \
    }
/* The key's value, or the map where it is absent: a place for a message. */
const struct conf_node *job_either(const struct conf_node *map, const char *key);

/* ---- job_model.c: `model` and `data`, CONF_CUSTOM of the map under `train` */
enum err_code job_model_read(const struct conf_node *node, void *at, struct err *e);
enum err_code job_data_read(const struct conf_node *node, void *at, struct err *e);
/* Whether model, data and loss go together; fills in what follows from the others. map: that under `train`.
 */
MUST_CHECK enum err_code job_model_check(struct train_spec *train, const struct conf_node *map,
                                         struct err *e);

/* ---- job_sync.c: `sync`, CONF_CUSTOM of the map under `train`; at is the struct train_spec */
enum err_code job_sync_read(const struct conf_node *node, void *at, struct err *e);
/* For reproducible: world: refuses strategies whose arithmetic depends on the number of ranks. */
MUST_CHECK enum err_code job_sync_check_world(const struct train_spec *train, const struct conf_node *place,
                                              struct err *e);
void job_sync_print(struct buf *out, const struct train_spec *train);

void job_train_defaults(struct train_spec *train);
void job_train_release(struct train_spec *train);
/* For CONF_CUSTOM: the map under `train`; at is the struct train_spec. */
enum err_code job_train_read(const struct conf_node *node, void *at, struct err *e);
void job_train_print(struct buf *out, const struct train_spec *train);
void job_quote(struct buf *out, const char *text); /* double-quoted YAML */

#endif
