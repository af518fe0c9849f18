#ifndef DDP_TRAINER_SAMPLE_LOG_H
#define DDP_TRAINER_SAMPLE_LOG_H

#include "trainer/trainer.h"

/* For tests: with DDP_TEST_SAMPLES=DIRECTORY each process appends a line to a file of its own there after each step that all
 * ranks have made together: the step, the epoch, and the numbers of the samples that this rank took. */
struct sample_log {
    struct cursor cursor; /* where the step takes its samples */
};
void sample_log_begin(const struct trainer *t, struct sample_log *log);
void sample_log_end(struct trainer *t, const struct sample_log *log);

#endif
