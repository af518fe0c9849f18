#ifndef DDP_TRAINER_PROGRESS_H
#define DDP_TRAINER_PROGRESS_H

#include "trainer/trainer.h"

/* What a worker says: the tutorials' lines on stdout, and JSON reports. */

void progress_epoch(const struct trainer *t); /* the tutorials' line at the start of an epoch */
void progress_resumed(const struct trainer *t);
void progress_saved(struct trainer *t); /* says what the saver finished since the last call */
void progress_report(struct trainer *t, bool evaluated);

double progress_bits(double nats);
/* What a text's bits are called: "bits_per_char", "bits_per_byte"; NULL: it is none. */
const char *progress_bits_name(const struct trainer *t);

#endif
