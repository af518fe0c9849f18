#ifndef DDP_TESTS_UNIT_BASE_JOB_JOB_TEXTS_H
#define DDP_TESTS_UNIT_BASE_JOB_JOB_TEXTS_H

#include "tests/unit/base/check.h"

#include "base/job/job.h"

/* Job files for the tests of the parser, and what it makes of them. A macro is the text of a file, or its beginning. */

#define TRAIN_HEAD "train:\n  model: {type: linear, in: 20, out: 1}\n"
#define TRAIN TRAIN_HEAD "  data: {type: synthetic}\n  batch: 32\n  epochs: 2\n"
#define IDX                                                                                                  \
    "train:\n  model: {type: mlp, sizes: [784, 10]}\n  data: {type: idx, dir: /d}\n  batch: 32\n  epochs: "  \
    "2\n"

#define MLP                                                                                                  \
    "train:\n  model: {type: mlp, sizes: [784, 32, 10]}\n  data: {type: idx, dir: /d}\n  batch: 32\n"        \
    "  epochs: 2\n"

#define GPT "train:\n  model: {type: gpt, layers: 2, heads: 4, width: 64, context: 32}\n"
#define RUN "  batch: 4\n  steps: 3\n"

/* Reads the text as jobs/job.yaml. Fails the test if it is refused. */
void accept_job(struct job_spec *spec, const char *text);
/* Reads the text as job.yaml. Fails the test if it is not refused with this message. */
void refuse_job(const char *text, const char *message);

#endif
