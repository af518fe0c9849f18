#ifndef DDP_BASE_JOB_JOB_TRAIN_H
#define DDP_BASE_JOB_JOB_TRAIN_H

#include "base/conf/conf.h"
#include "base/job/job.h"

/* The map `train`. */

extern const struct conf_field job_train_fields[];

void job_train_defaults(struct train_spec *train);
void job_train_release(struct train_spec *train);
/* CONF_CUSTOM: the function of the key; at is the struct train_spec */
enum err_code job_train_read(const struct conf_node *node, void *at, struct err *e);

#endif
