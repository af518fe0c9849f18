/* From the bytes of a program's output to lines for the supervisor. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/capture/output_points.h"

struct reader {
    struct point_writer writer;
    struct output_points output;
};

static void reader_begin(struct reader *r)
{
    memset(r, 0, sizeof(*r));
    r->output.writer = &r->writer;
}

static void reader_write(struct reader *r, bool standard_error, const char *text)
{
    output_points_feed(&r->output, standard_error, text, strlen(text), 1000);
}

/* Returns what was written, and forgets it. */
static void reader_expect(struct reader *r, const char *want)
{
    output_points_turn(&r->output);
    const char *got = r->writer.out.len ? r->writer.out.data : "";
    assert_string_equal(got, want);
    buf_clear(&r->writer.out);
}

static void reader_end(struct reader *r)
{
    output_points_release(&r->output);
    point_writer_release(&r->writer);
}

static void lines_come_in_any_pieces(void **state)
{
    static const char text[] = "hello\niter 1: loss 2.5, time 3ms\r\n\x1b[32miter 2: loss 2.25\x1b[0m\n";
    struct reader r;

    (void)state;
    for (size_t piece = 1; piece < sizeof(text); piece++) {
        reader_begin(&r);
        for (size_t at = 0; at < sizeof(text) - 1; at += piece) {
            const size_t left = sizeof(text) - 1 - at;
            output_points_feed(&r.output, false, text + at, left < piece ? left : piece, 1000);
        }
        reader_expect(&r, "{\"step\":1,\"loss\":2.5,\"ms_per_step\":3}\n{\"step\":2,\"loss\":2.25}\n");
        reader_end(&r);
    }
}

static void a_line_without_end_takes_no_memory(void **state)
{
    struct reader r;
    char *junk = xmalloc(1 << 20);

    (void)state;
    reader_begin(&r);
    for (int i = 0; i < 1 << 20; i++)
        junk[i] = (char)(i * 31 + 1);
    for (int i = 0; i < 1 << 20; i++)
        junk[i] = junk[i] == '\n' || junk[i] == '\r' ? 0 : junk[i];
    for (int i = 0; i < 100; i++) /* 100 MiB, binary */
        output_points_feed(&r.output, false, junk, 1 << 20, 1000);
    assert_true(r.output.streams[0].line.cap <= 2 * LINE_CUT_MOST + 1024);
    reader_write(&r, false, "\nstep 3 loss 1\n");
    reader_expect(&r, "{\"step\":3,\"loss\":1}\n");
    reader_end(&r);
    free(junk);
}

static void bars_count_on_from_pass_to_pass(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(
        &r, true,
        "\r 50%|##   | 1/2 [00:01<00:01, 1it/s, loss=4]\r 50%|##   | 1/2 [00:01<00:01, 1it/s, loss=4]");
    reader_write(&r, true, "\r100%|#####| 2/2 [00:02<00:00, 1it/s, loss=3]\n");
    reader_write(&r, true, "\r 50%|##   | 1/2 [00:01<00:01, 1it/s, loss=2]\n");
    reader_expect(&r, "{\"step\":1,\"loss\":4,\"steps\":2}\n{\"step\":2,\"loss\":3}\n"
                      "{\"step\":3,\"loss\":2,\"steps\":4}\n");
    reader_end(&r);

    reader_begin(&r); /* a bar that names its pass */
    reader_write(&r, false, "Epoch 3:  50%|##   | 5/10 [00:01<00:01, 1it/s, train_loss=2]\r\n");
    reader_expect(&r, "{\"step\":35,\"loss\":2}\n");
    reader_end(&r);
}

/* As Lightning draws it: the next step with the values of the one before, then its own; at the end of a pass the result of the
 * evaluation, and the bar of the next pass with the values of this one. */
static void the_last_values_of_a_step_of_a_bar_count(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(&r, false, "\rEpoch 0:  50%|#  | 1/2 [00:01<00:01, 1it/s]");
    reader_write(&r, false, "\rEpoch 0:  50%|#  | 1/2 [00:01<00:01, 1it/s, train_loss=4.430]");
    reader_write(&r, false, "\rEpoch 0: 100%|###| 2/2 [00:01<00:00, 1it/s, train_loss=4.430]");
    reader_write(&r, false, "\rEpoch 0: 100%|###| 2/2 [00:01<00:00, 1it/s, train_loss=0.222]\r");
    reader_expect(&r, "{\"step\":1,\"loss\":4.43}\n{\"step\":2,\"loss\":0.222}\n");
    reader_write(&r, false, "\rEpoch 0: 100%|###| 2/2 [00:01<00:00, 1it/s, train_loss=0.222]\r");
    reader_expect(&r, "");
    reader_write(&r, false,
                 "\rEpoch 0: 100%|###| 2/2 [00:02<00:00, 1it/s, train_loss=0.222, val_loss=0.045]\n");
    reader_write(&r, false, "\rEpoch 0:   0%|   | 0/2 [00:00<?, ?it/s, train_loss=0.222, val_loss=0.045]");
    reader_write(&r, false, "\rEpoch 1:   0%|   | 0/2 [00:00<?, ?it/s, train_loss=0.222, val_loss=0.045]\r");
    reader_expect(&r, "{\"step\":2,\"loss\":0.222,\"val_loss\":0.045}\n");
    reader_write(&r, false,
                 "\rEpoch 1:  50%|#  | 1/2 [00:00<00:00, 1it/s, train_loss=nan, val_loss=0.045]\r");
    reader_write(&r, false,
                 "\rEpoch 1:  50%|#  | 1/2 [00:00<00:00, 1it/s, train_loss=nan, val_loss=0.045]\r");
    reader_expect(&r, "{\"step\":3,\"loss\":null}\n"); /* val_loss is still that of step 2 */
    reader_write(
        &r, false,
        "\rEpoch 1: 100%|###| 2/2 [00:00<00:00, 1it/s, train_loss=0.2, val_loss=0.045, acc_epoch=1]\r");
    reader_expect(&r, "{\"step\":4,\"loss\":0.2,\"acc_epoch\":1}\n");
    reader_write(
        &r, false,
        "\rEpoch 1: 100%|###| 2/2 [00:00<00:00, 1it/s, train_loss=0.2, val_loss=0.04, acc_epoch=1]\r");
    reader_expect(&r, "{\"step\":4,\"loss\":0.2,\"val_loss\":0.04}\n");
    reader_end(&r);
}

/* Beyond POINT_LINES_MOST lines a second the writer leaves lines out. */
static void a_result_in_a_bar_that_was_left_out_comes_later(void **state)
{
    struct reader r;
    char text[128];

    (void)state;
    reader_begin(&r);
    for (int i = 1; i <= POINT_LINES_MOST + 3; i++) {
        snprintf(text, sizeof(text), "\r 9%%|# | %d/999 [00:01<00:09, 999it/s, loss=1, val_loss=%d]\r", i,
                 i <= POINT_LINES_MOST ? 7 : 5); /* from the first line on that is left out */
        reader_write(&r, true, text);
    }
    output_points_turn(&r.output);
    point_flush(&r.writer, INT64_MAX);
    const char *last = strstr(r.writer.out.data, "\"step\":203");
    assert_non_null(last);
    assert_string_equal(last, "\"step\":203,\"loss\":1,\"val_loss\":5}\n");
    reader_end(&r);
}

#define RICH "\r\x1b[2K\x1b[1A\x1b[2KEpoch "
#define BAR " \x1b[35m\xe2\x94\x81\xe2\x94\x81\x1b[0m "
#define TIMES " \x1b[2m0:00:01 \xe2\x80\xa2 0:00:00\x1b[0m 35.1it/s "
#define COLUMN "\n                             \x1b[3m"

/* Lightning with rich: the result of an evaluation is shown when the next pass begins; the metrics are wrapped into a column. */
static void a_bar_of_rich_is_read_with_its_column(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(&r, false, RICH "0/2" BAR "0/40" TIMES "val_loss: 4.274");
    reader_write(&r, false, RICH "0/2" BAR "1/40" TIMES "train_loss: 5.928");
    reader_write(&r, false, RICH "0/2" BAR "40/40" TIMES "train_loss: 0.002\n");
    reader_write(&r, false, "Validation" BAR "2/10" TIMES);
    reader_write(&r, false, RICH "0/2" BAR "40/40" TIMES "train_loss: 0.002\n");
    reader_write(&r, false, "Validation" BAR "7/10" TIMES);
    reader_write(&r, false, RICH "1/2" BAR "0/40" TIMES "train_loss: 0.002 val_loss:" COLUMN "0.001    ");
    reader_write(&r, false, RICH "1/2" BAR "1/40" TIMES "train_loss: 0.001 val_loss:" COLUMN "0.001    ");
    reader_write(&r, false,
                 RICH "1/2" BAR "2/40" TIMES "learning_ra\xe2\x80\xa6" COLUMN "0.1 val_loss:" COLUMN
                      "0.001 train_loss:" COLUMN "0.5");
    reader_write(&r, false, "\n\nval_loss is fine\n");
    reader_expect(
        &r,
        "{\"step\":1,\"loss\":5.928,\"steps\":120}\n{\"step\":40,\"loss\":0.002}\n{\"step\":40,\"val_loss\":0.001}\n"
        "{\"step\":41,\"loss\":0.001}\n{\"step\":42,\"loss\":0.5}\n");
    reader_end(&r);

    reader_begin(&r); /* without a terminal rich draws the last bar only */
    reader_write(
        &r, false,
        "Epoch 2/2 \xe2\x94\x81\xe2\x94\x81 40/40 0:00:01 \xe2\x80\xa2 0:00:00 34.95it/s train_loss: 0.125\n"
        "                                        val_loss: 0.250  \n");
    reader_expect(&r, "{\"step\":120,\"loss\":0.125,\"val_loss\":0.25,\"steps\":120}\n");
    reader_end(&r);
}

static void the_steps_of_the_run_are_told(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(&r, false, "Epoch [1/5], Step [100/600], Loss: 0.5\n");
    reader_expect(&r, "{\"step\":100,\"epoch\":1,\"loss\":0.5,\"steps\":3000}\n");
    reader_write(&r, false, "Epoch [2/5], Step [50/600], Loss: 0.25\n");
    reader_expect(&r, "{\"step\":650,\"epoch\":2,\"loss\":0.25}\n");
    reader_end(&r);
}

static void lines_without_a_step_are_numbered(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(&r, false, "val_loss: 0.3\nval_loss: 0.2\n");
    reader_expect(&r, "{\"step\":1,\"val_loss\":0.3}\n{\"step\":2,\"val_loss\":0.2}\n");
    reader_write(&r, false, "val_loss: 0.1\n");
    reader_expect(&r, "{\"step\":3,\"val_loss\":0.1}\n");
    reader_end(&r);

    reader_begin(&r); /* the first one does not wait for long */
    reader_write(&r, false, "val_loss: 0.3\n");
    reader_expect(&r, "");
    for (int i = 0; i < OUTPUT_HELD_TURNS; i++)
        output_points_turn(&r.output);
    reader_expect(&r, "{\"step\":1,\"val_loss\":0.3}\n");
    reader_end(&r);

    reader_begin(&r); /* nor for the end */
    reader_write(&r, false, "val_loss: 0.3\n");
    output_points_end(&r.output);
    reader_expect(&r, "{\"step\":1,\"val_loss\":0.3}\n");
    reader_end(&r);

    reader_begin(&r); /* llm.c: an evaluation before the first step */
    reader_write(&r, false, "val loss 11\nstep 1/9 | loss 4\nval loss 3\n");
    reader_expect(
        &r,
        "{\"step\":0,\"val_loss\":11}\n{\"step\":1,\"loss\":4,\"steps\":9}\n{\"step\":1,\"val_loss\":3}\n");
    reader_end(&r);

    reader_begin(&r); /* the same before the first record */
    reader_write(&r, false, "val_loss: 11\n");
    reader_expect(&r, "");
    reader_write(&r, false, "{'loss': 4.0}\n");
    reader_expect(&r, "{\"step\":0,\"val_loss\":11}\n{\"step\":1,\"loss\":4}\n");
    reader_end(&r);

    reader_begin(&r); /* also if a bar has begun meanwhile */
    reader_write(&r, false, "val_loss: 11\n{'loss': 4.0}\n");
    reader_write(&r, true, "\r 40%|# | 2/5 [00:00<00:00, 5it/s]\r");
    reader_expect(&r, "{\"step\":0,\"val_loss\":11}\n{\"step\":2,\"loss\":4}\n");
    reader_end(&r);

    reader_begin(&r); /* and during the first steps of a bar */
    reader_write(&r, false, "val_loss: 11\n");
    reader_write(&r, true, "\r 40%|# | 2/5 [00:00<00:00, 5it/s]\r");
    reader_expect(&r, "{\"step\":2,\"val_loss\":11}\n");
    reader_end(&r);

    reader_begin(&r); /* epochs, each with its evaluation */
    reader_write(&r, false, "Epoch 0 loss 4\nval_loss: 5\nEpoch 1 loss 3\nval_loss: 4\n");
    reader_expect(&r, "{\"step\":1,\"epoch\":0,\"loss\":4}\n{\"step\":1,\"val_loss\":5}\n"
                      "{\"step\":2,\"epoch\":1,\"loss\":3}\n{\"step\":2,\"val_loss\":4}\n");
    reader_end(&r);

    reader_begin(&r); /* records of evaluations alone */
    reader_write(&r, false, "{'eval_loss': 4.0}\n{'eval_loss': 3.0}\n");
    reader_expect(&r, "{\"step\":1,\"val_loss\":4}\n{\"step\":2,\"val_loss\":3}\n");
    reader_end(&r);

    reader_begin(&r); /* a bar for each pass counts the steps */
    for (int pass = 0; pass < 2; pass++) {
        reader_write(&r, true, "\r  0%|  | 0/5 [00:00<?]\r100%|##| 5/5 [00:01<00:00, 5it/s]\n");
        reader_write(&r, false, pass ? "val_loss: 0.1\n" : "val_loss: 0.2\n");
    }
    reader_expect(&r, "{\"step\":5,\"val_loss\":0.2}\n{\"step\":10,\"val_loss\":0.1}\n");
    reader_end(&r);
}

static void the_mean_of_an_epoch_does_not_replace_the_loss_of_a_step(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(&r, false, "epoch 0 step 10 loss 2.5\nEpoch 0 done | avg loss 3.5 | 1.2s\n");
    reader_expect(&r,
                  "{\"step\":10,\"epoch\":0,\"loss\":2.5}\n{\"step\":10,\"epoch\":0,\"loss_epoch\":3.5}\n");
    reader_end(&r);

    reader_begin(&r); /* the steps are those of a bar */
    reader_write(&r, true, "\r 10%|#   | 50/500 [00:10<01:30, 5.0it/s, loss=2.5]");
    reader_write(&r, true, "\r 10%|#   | 51/500 [00:10<01:30, 5.0it/s, loss=2.25]\n");
    reader_expect(&r, "{\"step\":50,\"loss\":2.5,\"steps\":500}\n{\"step\":51,\"loss\":2.25}\n");
    reader_write(&r, false, "Epoch 0 done | avg loss 3.5\n");
    reader_expect(&r, "{\"step\":51,\"epoch\":0,\"loss_epoch\":3.5}\n");
    reader_write(&r, false, "Epoch 1 done | loss 2 | loss_epoch 3\n"); /* a line names a metric once */
    reader_expect(&r, "{\"step\":51,\"epoch\":1,\"loss\":2,\"loss_epoch\":3}\n");
    reader_end(&r);

    reader_begin(&r); /* alone it is the loss */
    reader_write(&r, false, "Epoch 0 done | avg loss 3.5\nEpoch 1 done | avg loss 3\n");
    reader_expect(&r, "{\"step\":1,\"epoch\":0,\"loss\":3.5}\n{\"step\":2,\"epoch\":1,\"loss\":3}\n");
    reader_end(&r);
}

static void records_have_the_step_of_the_bar(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(&r, false, "{'loss': 4.0, 'epoch': 0.1}\n");
    reader_write(&r, true, "\r 10%|#    | 10/100 [00:01<00:09, 9it/s]\n");
    reader_expect(&r, "{\"step\":10,\"loss\":4,\"epoch\":0.1}\n");
    reader_write(&r, false, "{'loss': 3.0}\n{'loss': 2.0}\n{'eval_loss': 5.0}\n");
    reader_write(&r, true, "\r 30%|#    | 30/100 [00:01<00:09, 9it/s]\n");
    reader_expect(&r, "{\"step\":20,\"loss\":3}\n{\"step\":30,\"loss\":2}\n{\"step\":30,\"val_loss\":5}\n");
    reader_end(&r);

    reader_begin(&r); /* without a bar they are numbered */
    reader_write(&r, false, "{'loss': 4.0}\n{'loss': 3.0}\n{'eval_loss': 5.0}\n");
    reader_expect(&r, "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n{\"step\":2,\"val_loss\":5}\n");
    reader_end(&r);
}

/* A program may print more records in one turn than wait for its end. */
static void every_record_is_counted(void **state)
{
    enum { RECORDS = 2 * OUTPUT_WAITING_MOST + 1 };
    CLEANUP(buf_release) struct buf wanted = {0};
    struct reader r;

    (void)state;
    reader_begin(&r);
    for (int i = 1; i <= RECORDS; i++) {
        reader_write(&r, false, "{'loss': 4.0}\n");
        buf_printf(&wanted, "{\"step\":%d,\"loss\":4}\n", i);
    }
    reader_expect(&r, wanted.data);
    reader_end(&r);

    reader_begin(&r); /* with a bar the last record has its step */
    reader_write(&r, true, "\r 10%|#    | 10/1000 [00:01<00:09, 9it/s]\n");
    reader_expect(&r, "");
    for (int i = 1; i <= RECORDS; i++)
        reader_write(&r, false, "{'loss': 4.0}\n");
    reader_write(&r, true, "\r 50%|#    | 500/1000 [00:01<00:09, 9it/s]\n");
    output_points_turn(&r.output);
    assert_non_null(strstr(r.writer.out.data, "{\"step\":500,\"loss\":4}\n"));
    assert_null(strstr(r.writer.out.data, "{\"step\":10,"));
    reader_end(&r);
}

static void a_value_that_is_not_a_number_is_null(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(&r, false, "step 1 loss nan\n");
    reader_expect(&r, "{\"step\":1,\"loss\":null}\n");
    reader_end(&r);
}

static void standard_error_counts_for_bars_only(void **state)
{
    struct reader r;

    (void)state;
    reader_begin(&r);
    reader_write(&r, true, "step 1 loss 2\n{'loss': 2}\n");
    reader_expect(&r, "");
    reader_end(&r);
}

static void a_pattern_names_the_metrics(void **state)
{
    struct reader r;
    struct err e;

    (void)state;
    reader_begin(&r);
    assert_ok(pattern_compile("\\[(?<step>\\d+)\\] l=(?<loss>\\S+)( a=(?<acc>\\S+))?", &r.output.pattern, &e),
              &e);
    reader_write(&r, false, "[10] l=2.5\n[20] l=nan a=0.5\n[x] l=1\nstep 30 loss 1\n[40] l=red\n");
    reader_expect(&r, "{\"step\":10,\"loss\":2.5}\n{\"step\":20,\"acc\":0.5,\"loss\":null}\n");
    reader_end(&r);

    reader_begin(&r);
    assert_ok(pattern_compile("^(a+)+$(?<loss>)", &r.output.pattern, &e), &e);
    reader_write(&r, false, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\n");
    output_points_turn(&r.output);
    assert_non_null(strstr(r.writer.out.data, "{\"note\":\"capture: the expression takes too long"));
    reader_end(&r);
}

static void a_flood_of_points_is_thinned(void **state)
{
    struct reader r;
    char line[64];
    int count = 0;

    (void)state;
    reader_begin(&r);
    for (int i = 0; i < 10000; i++) {
        snprintf(line, sizeof(line), "step %d loss 1\n", i);
        reader_write(&r, false, line);
    }
    for (size_t i = 0; i < r.writer.out.len; i++)
        count += r.writer.out.data[i] == '\n';
    assert_int_equal(count, POINT_LINES_MOST);
    buf_clear(&r.writer.out);
    point_flush(&r.writer, 1999);
    assert_int_equal(r.writer.out.len, 0);
    point_flush(&r.writer, 2000);
    reader_expect(&r, "{\"step\":9999,\"loss\":1}\n"); /* the present value */
    reader_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_in_any_pieces),
        cmocka_unit_test(a_line_without_end_takes_no_memory),
        cmocka_unit_test(bars_count_on_from_pass_to_pass),
        cmocka_unit_test(the_last_values_of_a_step_of_a_bar_count),
        cmocka_unit_test(a_result_in_a_bar_that_was_left_out_comes_later),
        cmocka_unit_test(a_bar_of_rich_is_read_with_its_column),
        cmocka_unit_test(lines_without_a_step_are_numbered),
        cmocka_unit_test(the_steps_of_the_run_are_told),
        cmocka_unit_test(the_mean_of_an_epoch_does_not_replace_the_loss_of_a_step),
        cmocka_unit_test(records_have_the_step_of_the_bar),
        cmocka_unit_test(every_record_is_counted),
        cmocka_unit_test(a_value_that_is_not_a_number_is_null),
        cmocka_unit_test(standard_error_counts_for_bars_only),
        cmocka_unit_test(a_pattern_names_the_metrics),
        cmocka_unit_test(a_flood_of_points_is_thinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
