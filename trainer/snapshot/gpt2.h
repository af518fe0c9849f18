#ifndef DDP_TRAINER_SNAPSHOT_GPT2_H
#define DDP_TRAINER_SNAPSHOT_GPT2_H

#include "base/buf.h"
#include "base/err.h"
#include "base/job/job.h"

/* config.json in the format of Hugging Face's GPT2Config. A directory needs it beside model.safetensors so
 * that other tools know the shapes, and in a foreign directory it names the model. */

/* Prints the config.json of a gpt job's model; vocab: number of symbols. */
void gpt2_config_print(struct buf *out, const struct train_spec *spec, int64_t vocab);

/* Reads dir's config.json. Sets the model's fields of spec (type, layers, heads, width, context, vocab,
 * activation, tied; dropout 0). By ddp_symbols it also sets data.type and data.symbols if the tokens are
 * those of a text, else DATA_TOKENS. Other fields do not change. NOT_FOUND: there is no config.json.
 * FAILED_PRECONDITION: it is not a GPT-2, or a variant that ddp does not support. DATA_LOSS: it cannot be
 * read. */
MUST_CHECK enum err_code gpt2_config_read(const char *dir, struct train_spec *spec, struct err *e);
/* The same from the file's text; where: the file name for messages. */
MUST_CHECK enum err_code gpt2_config_parse(struct train_spec *spec, const char *json, size_t size,
                                           const char *where, struct err *e);

#endif
