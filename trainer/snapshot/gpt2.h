#ifndef DDP_TRAINER_SNAPSHOT_GPT2_H
#define DDP_TRAINER_SNAPSHOT_GPT2_H

#include "base/buf.h"
#include "base/err.h"
#include "base/job/job.h"

/* config.json as Hugging Face's GPT2Config has it: what a directory must hold beside model.safetensors so
 * that other tools know its shape, and what says of a foreign directory which model it is. */

/* Of a gpt job's model with this many symbols. */
void gpt2_config_print(struct buf *out, const struct train_spec *spec, int64_t vocab);

/* From dir's config.json into the model's fields of spec (type, layers, heads, width, context, vocab,
 * activation, tied; dropout 0), and from ddp_symbols whether its tokens are those of a text (data.type,
 * data.symbols) or of something else (DATA_TOKENS); the others are left alone. NOT_FOUND: there is no
 * config.json; FAILED_PRECONDITION: it is not a GPT-2, or of a kind that is not built; DATA_LOSS: it cannot
 * be read. */
MUST_CHECK enum err_code gpt2_config_read(const char *dir, struct train_spec *spec, struct err *e);
/* The same from the file's text. */
MUST_CHECK enum err_code gpt2_config_parse(struct train_spec *spec, const char *json, size_t size,
                                           const char *where, struct err *e);

#endif
