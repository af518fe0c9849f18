/* The points that the HTTP interface sends of a reply. */
#include "tests/unit/base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/web/web_points.h"

static Ddp__V1__GetMetricsReply *make_reply(void)
{
    static const char *const names[] = {"loss", "loss", "lr"};
    Ddp__V1__GetMetricsReply *reply = malloc(sizeof(*reply));
    ddp__v1__get_metrics_reply__init(reply);
    reply->points = malloc(3000 * sizeof(Ddp__V1__MetricPoint *));
    for (int i = 0; i < 3000; i++) {
        Ddp__V1__MetricPoint *p = reply->points[reply->n_points++] = malloc(sizeof(*p));
        ddp__v1__metric_point__init(p);
        p->name = strdup(names[i / 1000]);
        p->rank = i / 1000 == 1;
        p->step = i % 1000;
        p->time_ms = i % 1000 * 10;
        p->value = i == 1555 ? NAN : i == 1556 ? 100 : 1;
    }
    return reply;
}

static void each_series_keeps_its_extremes(void **state)
{
    Ddp__V1__GetMetricsReply *reply = make_reply();
    bool nan = false, spike = false;
    size_t of_lr = 0;
    (void)state;
    web_points_choose(reply, NULL, 0, 10);
    assert_in_range(reply->n_points, 30, 120);
    for (size_t i = 0; i < reply->n_points; i++) {
        nan = nan || isnan(reply->points[i]->value);
        spike = spike || reply->points[i]->value == 100;
        of_lr += strcmp(reply->points[i]->name, "lr") == 0;
    }
    assert_true(nan && spike && of_lr >= 10);
    ddp__v1__get_metrics_reply__free_unpacked(reply, NULL);
}

static void names_and_steps_choose(void **state)
{
    Ddp__V1__GetMetricsReply *reply = make_reply();
    CLEANUP(buf_release) struct buf out = {0};
    (void)state;
    web_points_choose(reply, "acc,loss", 998, 0);
    assert_int_equal(reply->n_points, 4);
    reply->points[3]->value = NAN;
    reply->captured = malloc(sizeof(*reply->captured));
    reply->captured[reply->n_captured++] = strdup("loss"); /* of rank 0 */
    web_points_print_series(reply, 9, &out);
    assert_string_equal(
        out.data,
        "{\"job\":9,\"series\":["
        "{\"name\":\"loss\",\"rank\":0,\"captured\":true,\"step\":[998,999],\"time_ms\":[9980,9990],\"value\":[1,1]},"
        "{\"name\":\"loss\",\"rank\":1,\"step\":[998,999],\"time_ms\":[9980,9990],\"value\":[1,null]}]}\n");
    ddp__v1__get_metrics_reply__free_unpacked(reply, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_series_keeps_its_extremes),
        cmocka_unit_test(names_and_steps_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
