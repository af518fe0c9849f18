#ifndef DDP_TRAINER_ENGINE_DESCRIBE_H
#define DDP_TRAINER_ENGINE_DESCRIBE_H

#include "trainer/engine/engine.h"

/* The layout of this engine's snapshots, and the check that a directory holds a model that fits this engine. */

/* Of the parameters alone; tensors, which the layout borrows, is the caller's to free. */
struct snapshot_layout snapshot_layout_of(const struct model *m, struct snapshot_tensor **tensors);
void describe_layout(struct engine *n); /* the tensors, after each opening of the model */
void describe_kept(struct engine *n);   /* moments, extra arrays and small files, once */

/* Beyond names and shapes: heads, activation, vocabulary. FAILED_PRECONDITION: it is another model. */
MUST_CHECK enum err_code describe_check_dir(const struct engine *n, const char *dir, struct err *e);
/* The parameters of train.init_from, into n->layout.count floats. */
MUST_CHECK enum err_code describe_read_initial(struct engine *n, float *params, struct err *e);

#endif
