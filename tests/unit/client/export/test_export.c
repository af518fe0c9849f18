/* What `ddpctl export` writes: which points are new, and the forms of a point. */
#include "tests/unit/base/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/event_file/event_read.h"
#include "base/file.h"
#include "base/mem.h"
#include "client/export/export_run.h"
#include "client/export/export_text.h"

#define MOST 16

struct answer {
    Ddp__V1__GetMetricsReply reply;
    Ddp__V1__MetricPoint points[MOST];
    Ddp__V1__MetricPoint *list[MOST];
};

static void answer_add(struct answer *a, const char *name, int rank, int64_t step, int64_t time_ms,
                       double value)
{
    Ddp__V1__MetricPoint *p = &a->points[a->reply.n_points];

    ddp__v1__metric_point__init(p);
    p->name = (char *)(uintptr_t)name;
    p->rank = rank;
    p->step = step;
    p->time_ms = time_ms;
    p->value = value;
    a->list[a->reply.n_points++] = p;
    a->reply.points = a->list;
}

static void points_are_sorted_and_late_ones_are_taken(void **state)
{
    struct answer a = {.reply = DDP__V1__GET_METRICS_REPLY__INIT};
    struct export_points all = {0};

    (void)state;
    answer_add(&a, "loss", 0, 10, 1000, 2);
    answer_add(&a, "loss", 0, 20, 2000, 1);
    answer_add(&a, "loss", 1, 10, 1500, 3);
    answer_add(&a, "lr", 0, 10, 1000, 1e-3);
    char *captured[] = {(char *)(uintptr_t) "loss"};
    a.reply.captured = captured;
    a.reply.n_captured = 1;
    export_points_take(&all, &a.reply);
    export_points_sort(&all);
    assert_int_equal(all.count, 4);
    assert_string_equal(all.points[0].series->name, "loss"); /* by time, then by step, rank and name */
    assert_string_equal(all.points[1].series->name, "lr");
    assert_int_equal(all.points[2].series->rank, 1);
    /* Only rank 0's output is read. */
    assert_true(all.points[0].series->captured && !all.points[1].series->captured &&
                !all.points[2].series->captured);
    assert_int_equal(all.points[3].step, 20);
    all.newest = 7;
    export_points_done(&all);
    assert_int_equal(all.after, 7);

    /* The node of rank 1 was cut off: what it sends now is older than all other points. */
    struct answer late = {.reply = DDP__V1__GET_METRICS_REPLY__INIT};
    answer_add(&late, "loss", 1, 5, 500, 4);
    export_points_take(&all, &late.reply);
    export_points_sort(&all);
    assert_true(all.count == 1 && all.points[0].time_ms == 500 && all.series_count == 3);
    export_points_release(&all);
}

static void a_turn_that_failed_is_taken_again(void **state)
{
    struct answer a = {.reply = DDP__V1__GET_METRICS_REPLY__INIT};
    struct export_points all = {0};

    (void)state;
    answer_add(&a, "loss", 0, 10, 1000, 2);
    export_points_take(&all, &a.reply);
    all.count = 0; /* as the next turn begins; nothing was written */
    export_points_take(&all, &a.reply);
    assert_int_equal(all.count, 1);
    export_points_release(&all);
}

static void names_and_values_are_quoted(void **state)
{
    CLEANUP(buf_release) struct buf out = {0};
    struct export_series s = {.name = (char *)(uintptr_t) "a,\"b\"", .rank = 2};
    struct export_point p = {&s, 7, 1000, NAN};

    (void)state;
    export_put_csv(&out, 9, &p, false);
    assert_string_equal(out.data, "9,7,1000,2,\"a,\"\"b\"\"\",nan,0\n");
    buf_clear(&out);
    export_put_jsonl(&out, 9, &p);
    assert_string_equal(out.data,
                        "{\"job\":9,\"step\":7,\"time_ms\":1000,\"rank\":2,\"name\":\"a,\\\"b\\\"\","
                        "\"value\":null,\"captured\":false}\n");
    buf_clear(&out);
    p.value = 0.1;
    s.captured = true;
    export_put_csv(&out, 9, &p, false);
    assert_non_null(strstr(out.data, ",0.1,1\n"));
}

static void a_terminal_gets_no_control_characters(void **state)
{
    CLEANUP(buf_release) struct buf out = {0};

    (void)state;
    export_put_csv_text(&out, "a\033]0;x\a\xc2\x9bm\xe2\x80\x9d", true);
    assert_string_equal(out.data, "a?]0;x??m\xe2\x80\x9d");
    buf_clear(&out);
    export_put_csv_text(&out, "a\033]0;x\a", false); /* other programs get the name as it is */
    assert_string_equal(out.data, "a\033]0;x\a");
}

struct tags {
    char text[256];
};

static void tag_keep(void *ctx, const struct event_scalar *s)
{
    struct tags *t = ctx;
    const size_t len = strlen(t->text);

    snprintf(t->text + len, sizeof(t->text) - len, "%s=%g@%lld;", s->tag, s->value, (long long)s->step);
}

static void a_run_is_a_directory_with_an_event_file(void **state)
{
    char dir[] = "/tmp/ddp-export-XXXXXX";
    struct answer a = {.reply = DDP__V1__GET_METRICS_REPLY__INIT};
    struct export_points all = {0};
    struct export_run run, second;
    struct tags tags = {""};
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(dir));
    answer_add(&a, "loss", 0, 1, 1000, 2);
    answer_add(&a, "loss", 3, 1, 1001, 4);
    export_points_take(&all, &a.reply);
    for (int again = 0; again < 2; again++) { /* the second export replaces the first */
        CLEANUP(free_text) char *want = xasprintf("%s/9-my_net_2/events.out.tfevents.ddp", dir);

        assert_ok(export_run_open(&run, dir, 9, "my net/2", &e), &e);
        assert_false(again == 0 && file_exists(run.dir)); /* made with the first point */
        assert_ok(export_run_put(&run, &all, &e), &e);
        assert_string_equal(run.path, want);
        assert_ok(export_run_open(&second, dir, 9, "my net/2", &e), &e);
        assert_int_equal(export_run_put(&second, &all, &e), ERR_FAILED_PRECONDITION);
        assert_non_null(strstr(e.msg, "another export"));
        export_run_close(&second);
        export_run_close(&run);
    }
    CLEANUP(free_text) char *path = xasprintf("%s/9-my_net_2/events.out.tfevents.ddp", dir);
    CLEANUP(buf_release) struct buf bytes = {0};
    assert_ok(file_read(path, 1 << 20, &bytes, &e), &e);
    const uint8_t *at = (const uint8_t *)bytes.data;
    for (size_t left = bytes.len; left;) {
        struct event_record r;
        assert_int_equal(event_record_next(at, left, &r), EVENT_DATA);
        assert_true(event_scalars(r.data, r.len, tag_keep, &tags));
        at += r.size;
        left -= r.size;
    }
    assert_string_equal(tags.text, "loss=2@1;loss/rank 3=4@1;");
    export_points_release(&all);
    assert_ok(file_remove_tree(dir, &e), &e);
}

static void a_directory_that_cannot_be_written_is_named(void **state)
{
    struct export_run run;
    struct err e;

    (void)state;
    assert_int_not_equal(export_run_open(&run, "/proc/none", 9, "", &e), ERR_OK);
    assert_non_null(strstr(e.msg, "/proc/none"));
    export_run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_are_sorted_and_late_ones_are_taken),
        cmocka_unit_test(a_turn_that_failed_is_taken_again),
        cmocka_unit_test(names_and_values_are_quoted),
        cmocka_unit_test(a_terminal_gets_no_control_characters),
        cmocka_unit_test(a_run_is_a_directory_with_an_event_file),
        cmocka_unit_test(a_directory_that_cannot_be_written_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
