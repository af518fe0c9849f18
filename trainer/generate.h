#ifndef DDP_TRAINER_GENERATE_H
#define DDP_TRAINER_GENERATE_H

#include "base/err.h"
#include "trainer/options.h"

/* Text from a language model: ddp-trainer --generate DIR [--prompt TEXT] [--tokens N] [--temperature T]
 * [--top-k K] [--seed S] [--digest D]. DIR holds model.safetensors and config.json, or committed snapshots;
 * or is the snapshot of digest D. What COMMITTED.json does not name is not read: FAILED_PRECONDITION,
 * DATA_LOSS, as init_find has it. DATA_LOSS, too, where the model comes to no numbers. The prompt and what
 * follows it go to stdout as they come: text where the symbols are known (ddp_symbols of config.json, and
 * vocab.json), else token numbers. The context is a window: when it is full, the later half is read again. */
MUST_CHECK enum err_code generate_main(const struct trainer_options *o, struct err *e);

#endif
