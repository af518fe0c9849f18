#ifndef DDP_TRAINER_ENGINE_DESCRIBE_H
#define DDP_TRAINER_ENGINE_DESCRIBE_H

#include "trainer/engine/engine.h"

/* The layout of this engine's snapshots, and the check that a directory holds a model that fits this
 * engine. */

/* Returns the layout of the parameters alone. It borrows *tensors, which the caller frees. */
struct snapshot_layout snapshot_layout_of(const struct model *m, struct snapshot_tensor **tensors);
/* Sets the tensors of n->layout; called after each opening of the model. */
void describe_layout(struct engine *n);
/* Sets moments, extra arrays and small files of n->layout; called once. */
void describe_kept(struct engine *n);
/* Whether snapshots hold the extra array of this name. At first they hold all. */
void describe_use(struct engine *n, const char *name, bool used);
/* From now on snapshots hold this text, unless it is empty, as algorithms.txt. */
void describe_algorithms(struct engine *n, const struct buf *text);

/* Checks what names and shapes do not show: heads, activation and vocabulary. FAILED_PRECONDITION: dir holds
 * another model. */
MUST_CHECK enum err_code describe_check_dir(const struct engine *n, const char *dir, struct err *e);
/* Reads the parameters of train.init_from into n->layout.count floats. */
MUST_CHECK enum err_code describe_read_initial(struct engine *n, float *params, struct err *e);

#endif
