#ifndef DDP_DAEMON_CAPTURE_SHAPE_H
#define DDP_DAEMON_CAPTURE_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/worker/metric.h"

/* The lines in which training programs usually print their metrics:
 *
 *   SHAPE_LINE     iter 100: loss 3.21, time 12.3ms, mfu 4.5%
 *                  step 250: train loss 2.1, val loss 2.2
 *                  step 3: train loss 10.8 (took 35.2 ms)
 *                  step    1/100 | loss 4.3 (+nanz)| norm 1.2 (+nanz)| lr 1e-04 | 12.3 ms | 1234 tok/s
 *                  Epoch [1/5], Step [100/600], Loss: 0.23
 *   SHAPE_RECORD   {'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.1}
 *   SHAPE_BAR      Epoch 0:  10%|#   | 50/500 [00:10<01:30, 5.0it/s, v_num=0, train_loss=2.1]
 *                  Epoch 0/2 ━━━━  50/500 0:00:10 • 0:01:30 5.0it/s train_loss: 2.100
 *
 * A line has one of these shapes only if it names a loss. SHAPE_LINE names a step, or an epoch, or begins with the validation loss.
 * Every other line is SHAPE_NONE. The text may be hostile. No state; any thread. */

enum shape { SHAPE_NONE, SHAPE_LINE, SHAPE_RECORD, SHAPE_BAR };

struct shape_values {
    struct metric_line line; /* a SHAPE_RECORD mostly has no step */
    int64_t total;           /* the last step, 500 in "50/500"; 0: unknown */
    int64_t epoch;           /* SHAPE_BAR: 3 in "Epoch 3:"; -1: unknown */
    int64_t epochs;          /* 5 in "Epoch [2/5]"; 0: unknown */
    bool has_epoch;          /* so `total` is that of one epoch */
    const char *rest;        /* of a bar drawn by rich: its metrics, borrowed from the text; otherwise NULL */
};

#define SHAPE_TEXT_MOST 4096 /* only so many bytes of a line are read */

/* `text` ends with NUL and has no control characters. A SHAPE_BAR may have no loss; then it has no metrics. */
enum shape shape_read(const char *text, struct shape_values *out);

/* rich wraps the metrics of a bar into a column at the right of the next lines. Returns where the text of such a line begins; NULL:
 * it is another line. */
const char *shape_column(const char *text);
/* Reads the metrics of a bar again: `out->rest` and what its next lines have in the column, joined by spaces. */
void shape_rest_read(const char *joined, struct shape_values *out);

#endif
