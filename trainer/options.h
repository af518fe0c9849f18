#ifndef DDP_TRAINER_OPTIONS_H
#define DDP_TRAINER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The command line of ddp-trainer. Texts are borrowed from argv. */
struct trainer_options {
    bool plugin;
    bool standalone;
    bool sizes;
    int64_t world, per_node,
        gpu_memory; /* with sizes: number of ranks; of these on each node, 0: all; bytes of a GPU, 0: CPUs */
    const char *job_file; /* NULL without --standalone or --sizes */
    char **set;           /* "train.epochs=20": owned */
    const char *generate; /* the model's directory; NULL: do not generate text */
    const char *prompt, *digest;
    int64_t tokens, top_k, seed;
    double temperature;
};

/* Reads argv, and sets the defaults. Returns -1, or the exit code if the command line ends the program: after
 * --help, --version and usage errors, which are printed. Without arguments all fields are zero: a supervisor
 * started this worker. */
int trainer_options_read(struct trainer_options *o, int argc, char **argv);
void trainer_options_release(struct trainer_options *o);

#endif
