/* `ddpctl metrics --usage`: means over the time of a run, although the coordinator keeps fewer points of its start. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "client/cmd/usage_table.h"

#define MOST_POINTS 2048

struct usage_answer {
    Ddp__V1__GetMetricsReply reply;
    Ddp__V1__MetricPoint points[MOST_POINTS];
    Ddp__V1__MetricPoint *list[MOST_POINTS];
};

/* A point of each `every` seconds from `from` to before `until`. */
static void usage_add(struct usage_answer *a, const char *name, int rank, int64_t from, int64_t until,
                      int64_t every, double value)
{
    a->reply.points = a->list;
    for (int64_t step = from; step < until; step += every) {
        assert_true(a->reply.n_points < MOST_POINTS);
        Ddp__V1__MetricPoint *p = &a->points[a->reply.n_points];
        ddp__v1__metric_point__init(p);
        p->name = (char *)(uintptr_t)name;
        p->rank = rank;
        p->step = step;
        p->value = value;
        a->list[a->reply.n_points++] = p;
    }
}

static void usage_assert_table(const struct usage_answer *a, const char *want)
{
    CLEANUP(buf_release) struct buf out = {0};

    usage_table_print(&a->reply, &out);
    assert_string_equal(out.data, want);
}

static void a_thinned_start_counts_with_its_time(void **state)
{
    static struct usage_answer a = {.reply = DDP__V1__GET_METRICS_REPLY__INIT};

    (void)state;
    usage_add(&a, "gpu.utilisation", 0, 0, 82800, 160, 0.95); /* 23 hours at work */
    usage_add(&a, "gpu.utilisation", 0, 82800, 86400, 5,
              0);                                      /* and an idle one, of which all points are left */
    usage_add(&a, "gpu.utilisation", 1, 0, 5, 5, 0.5); /* one point */
    usage_assert_table(&a, "RANK   GPU\n   0  91 %\n   1  50 %\n");
}

static void a_pause_does_not_count(void **state)
{
    static struct usage_answer a = {.reply = DDP__V1__GET_METRICS_REPLY__INIT};

    (void)state;
    usage_add(&a, "sys.cpu", 3, 0, 500, 5, 1);
    usage_add(&a, "sys.cpu", 3, 90000, 90500, 5, 0.5); /* the job waited for a day */
    usage_assert_table(&a, "RANK   CPU\n   3  75 %\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thinned_start_counts_with_its_time),
        cmocka_unit_test(a_pause_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
