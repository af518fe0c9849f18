#ifndef DDP_CLIENT_OUTPUT_TARGETS_H
#define DDP_CLIENT_OUTPUT_TARGETS_H

#include "client/text/output_merge.h"

/* Connects an output_merge to this process's stdout and stderr. */
struct output_targets_options {
    bool several; /* several ranks: merged, with [rank] on a terminal; false: one rank, unchanged */
    bool own;     /* own_rank has the terminal: its output passes unchanged as it comes */
    int own_rank;
    bool raw; /* --raw: a terminal gets every byte */
    const char
        *terminal; /* --terminal (run_request.h): which of the streams are terminals; NULL: ask isatty */
};

/* Sets the targets up. What was merged before must have been finished and written. */
void output_targets_set(struct output_merge *m, const struct output_targets_options *o);
/* Writes the targets' texts. False: stdout or stderr can no longer be written. */
bool output_targets_put(struct output_merge *m);
/* True if the rank's last lines on stderr are still on the screen: fewer lines were printed after them than the terminal has
 * rows. In a pipe or a file, a fixed number of rows counts instead. merge: a struct output_merge. */
bool output_targets_show(void *merge, int rank);

#endif
