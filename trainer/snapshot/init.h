#ifndef DDP_TRAINER_SNAPSHOT_INIT_H
#define DDP_TRAINER_SNAPSHOT_INIT_H

#include "base/err.h"
#include "trainer/snapshot/snapshot.h"

/* Parameters that a run starts from (init_from), or that text is generated with: a directory with
 * model.safetensors, ours or one that Hugging Face wrote. */

/* Where the parameters lie: path itself when it holds model.safetensors, else the newest committed snapshot
 * in it. Caller frees. digest: of the snapshot that path has to be, or NULL. NOT_FOUND says what was looked
 * for; FAILED_PRECONDITION, DATA_LOSS: a snapshot that is not committed, or damaged (snapshot_check_model).
 */
MUST_CHECK enum err_code init_find(const char *path, const char *digest, char **dir, struct err *e);

/* Every tensor of the layout into params; names with and without "transformer." in front are the same. A
 * position embedding may be longer in the file: its first rows. What the file has besides (attention masks, a
 * tied head) is passed over, anything else refused. NOT_FOUND, FAILED_PRECONDITION, DATA_LOSS. */
MUST_CHECK enum err_code init_read(const char *dir, const struct snapshot_layout *l, float *params,
                                   struct err *e);

#endif
