#ifndef DDP_TRAINER_GENERATE_H
#define DDP_TRAINER_GENERATE_H

#include "base/err.h"
#include "trainer/options.h"

/* Generates text with a language model: ddp-trainer --generate DIR [--prompt TEXT] [--tokens N]
 * [--temperature T] [--top-k K] [--seed S] [--digest D]. DIR holds model.safetensors and config.json, or
 * committed snapshots; with --digest it is the snapshot of that digest. Files that COMMITTED.json does not
 * name are not read. The prompt and its continuation go to stdout as they are made: as text if the symbols
 * are known (ddp_symbols of config.json, and vocab.json), else as token numbers. When the context is full,
 * its later half is read again, and the rest is forgotten. FAILED_PRECONDITION, DATA_LOSS: as init_find;
 * DATA_LOSS also if the model's output is not finite. */
MUST_CHECK enum err_code generate_main(const struct trainer_options *o, struct err *e);

#endif
