#ifndef DDP_TRAINER_PROGRESS_H
#define DDP_TRAINER_PROGRESS_H

#include "trainer/trainer.h"

/* The output of a worker: the lines of PyTorch's tutorials on stdout, and reports in JSON. */

void progress_epoch(const struct trainer *t); /* prints the tutorials' line at the start of an epoch */
void progress_resumed(const struct trainer *t);
/* Prints the snapshots that the saver has written since the last call. */
void progress_saved(struct trainer *t);
/* Also reports the last round, if it was not reported. */
void progress_report(struct trainer *t, bool evaluated);
/* For a step without a report: reports the round that ended with it, unless every step ends one. */
void progress_round(struct trainer *t);

double progress_bits(double nats);
/* Returns the name of the loss in bits: "bits_per_char" or "bits_per_byte"; NULL if the data is not a
 * text. */
const char *progress_bits_name(const struct trainer *t);

#endif
