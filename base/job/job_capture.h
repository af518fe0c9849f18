#ifndef DDP_BASE_JOB_JOB_CAPTURE_H
#define DDP_BASE_JOB_JOB_CAPTURE_H

#include "base/buf.h"
#include "base/conf/conf.h"
#include "base/job/job.h"

/* The key `capture` of command jobs: auto, none, {pattern: EXPRESSION} or {tensorboard: DIR}. */
enum err_code job_capture_read(const struct conf_node *node, void *at,
                               struct err *e); /* at: the spec's `capture` */
void job_capture_print(struct buf *out, const struct job_capture *c);
void job_capture_release(struct job_capture *c);

#endif
