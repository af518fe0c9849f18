/* Follows a worker's line from the report pipe to the store: over the supervisor's socket, the agent's queue
 * and the message to the coordinator. */
#include "tests/unit/base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/report_queue.h"
#include "daemon/supervisor/protocol/control.h"
#include "daemon/supervisor/report_reader.h"
#include "proto/rpc_codec.h"
#include "store/metrics.h"

#define JOB 7

/* Does with a valid line what the supervisor and the agent do. */
static void line_forward(void *ctx, const char *line)
{
    CLEANUP(control_message_release) struct control_message arrived = {0};
    CLEANUP(buf_release) struct buf datagram = {0};
    const struct control_message sent = {.op = CONTROL_REPORT,
                                         .report = {.spawn = 3, .time_ms = 1000, .text = line}};
    struct err e;

    control_encode(&sent, &datagram);
    assert_ok(control_decode(&arrived, datagram.data, datagram.len, &e), &e);
    report_queue_add(ctx, JOB, &arrived.report);
}

static Ddp__V1__Reports *batch_receive(struct report_queue *queue)
{
    CLEANUP(buf_release) struct buf wire = {0};
    Ddp__V1__Report *items[REPORT_BATCH_COUNT];
    Ddp__V1__Reports batch;
    void *message;
    struct err e;

    report_queue_batch(queue, &batch, items);
    assert_ok(rpc_pack(&batch, &wire, &e), &e);
    report_queue_sent(queue, &batch);
    assert_ok(rpc_unpack(&ddp__v1__reports__descriptor, (const uint8_t *)wire.data, wire.len, &message, &e),
              &e);
    return message;
}

static void lines_arrive_byte_for_byte(void **state)
{
    static const char *const lines[] = {
        "{\"step\": 1, \"loss\": NaN}",
        "{\"step\":2,\"loss\":1e-310}",
        "  { \"step\" : 3 , \"loss\" : 0.10000000000000001 } \r",
        "{\"step\": 4, \"loss\": 0.1234567890123456789012345, \"note\": \"\\u00e9\\n\\\"é\x7f\xc2\x85\"}",
        "{\"step\": 5, \"loss\": -Infinity, \"deep\": [[1, {\"NaN\": NaN}]]}",
        "{\"step\": 6, \"loss\": -0.0}",
        "{\"step\": 7, \"loss\": 12345678901234567}",
        "{\"step\": 8, \"loss\": null}",
    };
    static const double values[] = {NAN, 1e-310, 0.1, 0.12345678901234568, NAN, -0.0, 12345678901234568.0,
                                    NAN};
    char dir[] = "/tmp/ddp-test-XXXXXX";
    struct report_queue *queue = xcalloc(1, sizeof(*queue));
    struct report_reader reader = {0};
    struct metric_point *points;
    struct metrics *store;
    struct err e;
    size_t count;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_ok(metrics_open(&store, dir, &e), &e);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        report_feed(&reader, lines[i], strlen(lines[i]), line_forward, queue);
        /* The supervisor refuses this line. */
        report_feed(&reader, "\nnot a report\n", 14, line_forward, queue);
    }
    assert_int_equal(reader.refused, ARRAY_LEN(lines));
    Ddp__V1__Reports *reports = batch_receive(queue);
    assert_int_equal(reports->n_reports, ARRAY_LEN(lines));
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        const Ddp__V1__Report *r = reports->reports[i];
        struct metric_line line;

        assert_string_equal(r->line, lines[i]);
        assert_true(r->job == JOB && r->spawn == 3 && r->time_ms == 1000);
        assert_ok(metric_line_parse(r->line, strlen(r->line), &line, &e), &e);
        assert_int_equal(line.count, 1);
        const struct metric_point point = {.job = r->job, .step = line.step, .metric = line.metrics[0]};
        assert_ok(metrics_append(store, &point, 1, &e), &e);
    }
    rpc_release(&reports);
    const struct metrics_query query = {.job = JOB, .name = "loss"};
    assert_ok(metrics_read(store, &query, &points, &count, NULL, &e), &e);
    assert_int_equal(count, ARRAY_LEN(lines));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(points[i].step, i + 1);
        if (isnan(values[i]))
            assert_true(isnan(points[i].metric.value));
        else /* -0.0 may come back as 0.0: SQLite drops the sign */
            assert_true(points[i].metric.value == values[i]);
    }
    free(points);
    metrics_close(store);
    report_queue_release(queue);
    free(queue);
    report_reader_release(&reader);
    assert_ok(file_remove_tree(dir, &e), &e);
}

static void long_lines_fill_neither_memory_nor_a_message(void **state)
{
    CLEANUP(free_text) char *text = xcalloc(1, METRIC_LINE_MAX + 1);
    const struct metric_report report = {.spawn = 1, .text = text};
    struct report_queue *queue = xcalloc(1, sizeof(*queue));
    Ddp__V1__Report *items[REPORT_BATCH_COUNT];
    Ddp__V1__Reports batch;

    (void)state;
    memset(text, ' ', METRIC_LINE_MAX);
    for (int i = 0; i < REPORT_QUEUE_COUNT; i++)
        report_queue_add(queue, JOB, &report);
    assert_int_equal(queue->bytes, REPORT_QUEUE_BYTES);
    assert_int_equal(queue->count + (size_t)queue->dropped, REPORT_QUEUE_COUNT);
    report_queue_batch(queue, &batch, items);
    assert_int_equal(batch.n_reports, REPORT_BATCH_BYTES / METRIC_LINE_MAX);
    assert_int_equal(batch.dropped, queue->dropped);
    report_queue_sent(queue, &batch);
    assert_int_equal(queue->dropped, 0);
    while (queue->count) { /* until the last report is sent */
        report_queue_batch(queue, &batch, items);
        assert_true(batch.n_reports > 0);
        report_queue_sent(queue, &batch);
    }
    assert_int_equal(queue->bytes, 0);
    report_queue_release(queue);
    free(queue);
}

static void a_saved_queue_is_loaded_once(void **state)
{
    struct report_queue *queue = xcalloc(1, sizeof(*queue));
    struct metric_report report = {.spawn = 3, .time_ms = 5, .text = "{\"step\": 1}"};
    char path[] = "/tmp/ddp-reports-XXXXXX";
    struct err e;

    (void)state;
    close(mkstemp(path));
    assert_int_equal(unlink(path), 0);
    assert_ok(report_queue_save(queue, path, &e), &e); /* empty: no file */
    assert_ok(report_queue_load(queue, path, &e), &e);
    assert_int_equal(queue->count, 0);
    report_queue_add(queue, JOB, &report);
    report.captured = "its output";
    report_queue_add(queue, JOB + 1, &report);
    queue->dropped = 4;
    assert_ok(report_queue_save(queue, path, &e), &e);
    report_queue_release(queue);
    queue->dropped = 0;

    assert_ok(report_queue_load(queue, path, &e), &e);
    assert_int_equal(queue->count, 2);
    assert_int_equal(queue->dropped, 4);
    const Ddp__V1__Report *first = queue->items[queue->first], *second = queue->items[queue->first + 1];
    assert_int_equal(first->job, JOB);
    assert_int_equal(first->spawn, 3);
    assert_int_equal(first->time_ms, 5);
    assert_string_equal(first->line, report.text);
    assert_string_equal(first->captured, "");
    assert_int_equal(second->job, JOB + 1);
    assert_string_equal(second->captured, "its output");
    assert_false(file_exists(path));

    assert_ok(file_write_renamed(path, "damaged", 7, 0600, false, &e), &e);
    assert_int_equal(report_queue_load(queue, path, &e), ERR_DATA_LOSS);
    assert_int_equal(queue->count, 2);
    assert_false(file_exists(path));
    report_queue_release(queue);
    free(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_arrive_byte_for_byte),
        cmocka_unit_test(long_lines_fill_neither_memory_nor_a_message),
        cmocka_unit_test(a_saved_queue_is_loaded_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
