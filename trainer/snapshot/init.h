#ifndef DDP_TRAINER_SNAPSHOT_INIT_H
#define DDP_TRAINER_SNAPSHOT_INIT_H

#include "base/err.h"
#include "trainer/snapshot/snapshot.h"

/* Reads the parameters that a run starts from (init_from) or that text is generated with, from a directory
 * with a model.safetensors that ddp or Hugging Face's tools wrote. */

/* Sets *dir to the directory of the parameters: path itself if it holds model.safetensors, else the newest
 * committed snapshot in it. The caller frees it. digest: of the snapshot that path must be, or NULL.
 * NOT_FOUND: there is neither; the message says what was expected. FAILED_PRECONDITION, DATA_LOSS: the
 * snapshot is not committed, or is damaged (snapshot_check_model). */
MUST_CHECK enum err_code init_find(const char *path, const char *digest, char **dir, struct err *e);

/* Reads every tensor of the layout into params. Names with and without "transformer." in front are the same.
 * If the file's position embedding is longer, its first rows are read. Attention masks and a tied head in the
 * file are ignored; other additional tensors are refused. NOT_FOUND, FAILED_PRECONDITION, DATA_LOSS. */
MUST_CHECK enum err_code init_read(const char *dir, const struct snapshot_layout *l, float *params,
                                   struct err *e);

#endif
