/* Which lines of training programs are read, and what is read of them. */
#include "tests/unit/base/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/capture/shape.h"

/* "LINE 100/0 loss=3.21 ms_per_step=12.3" */
static char *shape_text(const char *text)
{
    static const char *const kinds[] = {"NONE", "LINE", "RECORD", "BAR"};
    CLEANUP(buf_release) struct buf out = {0};
    struct shape_values v;

    buf_puts(&out, kinds[shape_read(text, &v)]);
    if (v.line.has_step)
        buf_printf(&out, " %lld/%lld", (long long)v.line.step, (long long)v.total);
    for (size_t i = 0; i < v.line.count; i++)
        buf_printf(&out, " %s=%g", v.line.metrics[i].name, v.line.metrics[i].value);
    return buf_steal(&out);
}

static void check_lines(const char *const (*rows)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CLEANUP(free_text) char *found = shape_text(rows[i][0]);
        if (strcmp(found, rows[i][1]) != 0)
            fail_msg("'%s'\n  is read as '%s'\n  expected   '%s'", rows[i][0], found, rows[i][1]);
    }
}

static void lines_with_a_step_and_a_loss(void **state)
{
    static const char *const rows[][2] = {
        {"iter 100: loss 3.2134, time 12.30ms, mfu 4.51%",
         "LINE 100/0 loss=3.2134 ms_per_step=12.3 mfu=4.51"},
        {"iter 0: loss 10.9, time 900.5ms, mfu -100.00%", "LINE 0/0 loss=10.9 ms_per_step=900.5 mfu=-100"},
        {"step 250: train loss 2.1034, val loss 2.2051", "LINE 250/0 train_loss=2.1034 val_loss=2.2051"},
        {"step    1/100 | loss 4.370240 (+nanz)| norm 15.3 (+nanz)| lr 1.00e-04 | 412.34 ms | 45.1% bf16 MFU | 39751 tok/s",
         "LINE 1/100 loss=4.37024 grad_norm=15.3 lr=0.0001 ms_per_step=412.34 tokens_per_s=39751"},
        {"Epoch [2/5], Step [100/600], Loss: 0.2315", "LINE 100/600 epoch=2 loss=0.2315"},
        {"2026-01-31 12:30:05,120 INFO trainer: step=40 loss=nan lr=3e-4", "LINE 40/0 loss=nan lr=0.0003"},
        {"[rank 0] global_step 7 - training loss: 1.5 - grad norm: 0.25", "LINE 7/0 loss=1.5 grad_norm=0.25"},
        {"step 3: train loss 10.805656 (took 4531.130302 ms)", "LINE 3/0 loss=10.8057 ms_per_step=4531.13"},
        {"step    1/6 | train loss 10.975024 | norm 16.6911 | lr 1.00e-04 | (1521.66 ms | 11 tok/s)",
         "LINE 1/6 loss=10.975 grad_norm=16.6911 lr=0.0001 ms_per_step=1521.66 tokens_per_s=11"},
        {"step 4: loss 2 (best 1.5 at 300, eta 5min)", "LINE 4/0 loss=2"},
        {"val loss 3.281", "LINE val_loss=3.281"},
        {"Iteration 12 Loss inf", "LINE 12/0 loss=nan"},
        {"Epoch 3/10, Loss: 0.25", "LINE epoch=3 loss=0.25"}, /* the step is counted */
        {"Epoch 3, steps: 64, loss: 0.25", "LINE epoch=3 loss=0.25"},
        {"Epoch: 3, Steps: 64 | Train Loss: 0.5 Val Loss: 0.25", "LINE epoch=3 train_loss=0.5 val_loss=0.25"},
        {"steps: 64, loss: 0.25", "LINE 64/0 loss=0.25"},
    };

    (void)state;
    check_lines(rows, ARRAY_LEN(rows));
}

static void records_of_a_trainer(void **state)
{
    static const char *const rows[][2] = {
        {"{'loss': 1.2034, 'grad_norm': 0.51, 'learning_rate': 5e-05, 'epoch': 0.1}",
         "RECORD loss=1.2034 grad_norm=0.51 lr=5e-05 epoch=0.1"},
        {"{'loss': '1.2', 'grad_norm': 'nan', 'learning_rate': '5e-05', 'epoch': '0.1'}",
         "RECORD loss=1.2 grad_norm=nan lr=5e-05 epoch=0.1"},
        {"{'eval_loss': 2.5, 'eval_runtime': 1.1, 'eval_samples_per_second': 90.0, 'epoch': 1.0}",
         "RECORD val_loss=2.5 eval_runtime=1.1 eval_samples_per_second=90 epoch=1"},
        {"  0%|          | 0/100{\"step\": 5, \"loss\": 0.5, \"ok\": true, \"run\": \"a\"}",
         "RECORD 5/0 loss=0.5"},
        {"{'train_runtime': 3.2, 'train_loss': 1.5, 'epoch': 3.0}",
         "RECORD train_runtime=3.2 train_loss=1.5 epoch=3"},
        {"{'loss': {'a': 1}}", "NONE"},
        {"{'loss': 1.0", "NONE"},
        {"{'accuracy': 1.0}", "NONE"},
    };

    (void)state;
    check_lines(rows, ARRAY_LEN(rows));
}

static void progress_bars(void **state)
{
    static const char *const rows[][2] = {
        {"Epoch 0:  10%|\xe2\x96\x88         | 50/500 [00:10<01:30,  5.00it/s, v_num=0, train_loss=2.10]",
         "BAR 50/500 loss=2.1"},
        {" 30%|###       | 3/10 [00:01<00:02,  2.9it/s, loss=0.3, acc=0.75]", "BAR 3/10 loss=0.3 acc=0.75"},
        {"train: 100%|##########| 10/10 [00:03<00:00,  3.1it/s, loss=nan]", "BAR 10/10 loss=nan"},
        {"Validating:  50%|##5| 10/20 [00:03<00:03,  3.1it/s, loss=0.8]", "BAR 10/20"},
        {" 50%|#####     | 50/100 [00:10<00:10,  4.9it/s]", "BAR 50/100"},
        {" 50%|#####     | 50/100 [00:10<00:10,  4.9it/s, lo", "BAR 50/100"},
        {" 50%|#####     | 1.2k/2k [00:10<00:10, loss=1]", "NONE"},
        /* drawn by rich */
        {"Epoch 0/2  \xe2\x94\x81\xe2\x95\xb8          1/40 0:00:00 \xe2\x80\xa2 -:--:-- 0.00it/s train_loss: 5.928",
         "BAR 1/40 loss=5.928"},
        {"Epoch 0/2              0/40 0:00:00 \xe2\x80\xa2 -:--:-- 0.00it/s  ", "BAR 0/40"},
        {"Epoch 1/2  \xe2\x94\x81 40/40 0:00:01 \xe2\x80\xa2 0:00:00 32.49it/s v_num: 3.000 accuracy_of_trai\xe2\x80\xa6 0.5 "
         "val_loss: nan",
         "BAR 40/40 val_loss=nan"},
        {"Validation  \xe2\x94\x81\xe2\x94\x81 2/10 0:00:00 \xe2\x80\xa2 0:00:01 432.63it/s", "NONE"},
        {"Epoch 1/2 40/", "NONE"},
    };

    (void)state;
    check_lines(rows, ARRAY_LEN(rows));
}

static void other_lines_are_left_alone(void **state)
{
    static const char *const rows[][2] = {
        {"", "NONE"},
        {"loss", "NONE"},
        {"loading checkpoint at step 100", "NONE"},
        {"the loss is high", "NONE"},
        {"loss 3.2", "NONE"}, /* of which step? */
        {"step 10 accuracy 0.5", "NONE"},
        {"step -3 loss 2", "NONE"},
        {"step 0x10 loss 2", "NONE"},
        {"packet loss 3 at step", "NONE"},
    };

    (void)state;
    check_lines(rows, ARRAY_LEN(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_with_a_step_and_a_loss),
        cmocka_unit_test(records_of_a_trainer),
        cmocka_unit_test(progress_bars),
        cmocka_unit_test(other_lines_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
