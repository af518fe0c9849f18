#ifndef DDP_DAEMON_CAPTURE_SHAPE_H
#define DDP_DAEMON_CAPTURE_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/metric.h"

/* The lines in which training programs usually print their metrics:
 *
 *   SHAPE_LINE     iter 100: loss 3.21, time 12.3ms, mfu 4.5%
 *                  step 250: train loss 2.1, val loss 2.2
 *                  step    1/100 | loss 4.3 (+nanz)| norm 1.2 (+nanz)| lr 1e-04 | 12.3 ms | 1234 tok/s
 *                  Epoch [1/5], Step [100/600], Loss: 0.23
 *   SHAPE_RECORD   {'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.1}
 *   SHAPE_BAR      Epoch 0:  10%|#   | 50/500 [00:10<01:30, 5.0it/s, v_num=0, train_loss=2.1]
 *
 * A line counts only if it names a loss, and SHAPE_LINE only if it also names a step. Any other line is SHAPE_NONE. The text is
 * not trusted. No state; any thread. */

enum shape { SHAPE_NONE, SHAPE_LINE, SHAPE_RECORD, SHAPE_BAR };

struct shape_values {
    struct metric_line line; /* of SHAPE_RECORD and "val loss 2.2" mostly without a step */
    int64_t total;           /* of the step: "50/500"; 0: unknown */
    int64_t epoch;           /* of a bar: "Epoch 3:"; -1: unknown */
};

#define SHAPE_TEXT_MOST 4096 /* bytes of a line that are looked at */

/* `text` ends with NUL and has no control characters. A bar without a loss has shape SHAPE_BAR and no metrics. */
enum shape shape_read(const char *text, struct shape_values *out);

#endif
