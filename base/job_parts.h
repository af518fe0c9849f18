#ifndef DDP_BASE_JOB_PARTS_H
#define DDP_BASE_JOB_PARTS_H

#include "base/buf.h"
#include "base/job.h"

/* What the files of job.h share: the names of every enum, in enum order, and the halves of parsing and
 * printing. */

extern const char *const job_device_names[];
extern const char *const job_activation_names[];
extern const char *const job_loss_names[];
extern const char *const job_schedule_names[];
extern const char *const job_resume_names[];

void job_train_defaults(struct train_spec *train);
void job_train_release(struct train_spec *train);
/* For CONF_CUSTOM: the map under `train`; at is the struct train_spec. */
enum err_code job_train_read(const struct conf_node *node, void *at, struct err *e);
void job_train_print(struct buf *out, const struct train_spec *train);
void job_quote(struct buf *out, const char *text); /* double-quoted YAML */

#endif
