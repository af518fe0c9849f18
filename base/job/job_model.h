#ifndef DDP_BASE_JOB_JOB_MODEL_H
#define DDP_BASE_JOB_JOB_MODEL_H

#include "base/job/job.h"

/* The maps `model` and `data` below `train`. */

/* CONF_CUSTOM: the functions of the two keys */
enum err_code job_model_read(const struct conf_node *node, void *at, struct err *e);
enum err_code job_data_read(const struct conf_node *node, void *at, struct err *e);
/* Checks that model, data and loss fit each other, and sets what follows from the others. map: the one below `train`. */
MUST_CHECK enum err_code job_model_check(struct train_spec *train, const struct conf_node *map,
                                         struct err *e);

#endif
