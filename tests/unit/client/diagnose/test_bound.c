#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/diagnose/bound.h"
#include "client/diagnose/diagnosis.h"

/* What `ddpctl why` says bounds a running job, from the times of its ranks and from what their nodes measure. */

#define TEXT(s) ((char *)(uintptr_t)(s))
#define RANKS 4

struct rank_row {
    double step_ms, wait_ms; /* 0: not reported */
    double cpu, gpu, read;   /* below 0: not known; gpu NaN: the rank has none */
};

struct pattern {
    const char *name;
    struct rank_row ranks[RANKS];
    int count;
    double data_ms; /* metric of the job; 0: none */
    enum bound_kind kind;
    int rank; /* -1: none */
    const char *text;
};

#define CPU(c)                                                                                               \
    {                                                                                                        \
        0, 0, c, NAN, 0                                                                                      \
    }
#define GPU(c, g)                                                                                            \
    {                                                                                                        \
        0, 0, c, g, 0                                                                                        \
    }
#define STEP(s, w)                                                                                           \
    {                                                                                                        \
        s, w, 0.9, NAN, 0                                                                                    \
    }

static const struct pattern patterns[] = {
    {"all compute",
     {CPU(0.98), CPU(0.97)},
     2,
     0,
     BOUND_COMPUTE,
     -1,
     "bound by compute: each rank uses 98 % of a core"},
    {"threads", {CPU(3.9)}, 1, 0, BOUND_COMPUTE, -1, "bound by compute: each rank uses 3.9 cores"},
    {"one rank waits for something that the others spin for",
     {CPU(0.98), CPU(0.98), CPU(0.98), CPU(0.12)},
     4,
     0,
     BOUND_RANK,
     3,
     "rank 3 on n2 uses 12 % of a core while the others use 98 %"},
    {"one rank works, the others sleep",
     {CPU(0.97), CPU(0.01), CPU(0.01)},
     3,
     0,
     BOUND_RANK,
     0,
     "rank 0 on n1 uses 97 % of a core while the others use 1 %"},
    {"waits that are longer than the steps",
     {STEP(100, 150), STEP(100, 120)},
     2,
     0,
     BOUND_LINK,
     -1,
     "bound by the link: every rank waits for the others' data for 100 % of each step"},
    {"all wait",
     {CPU(0.01), CPU(0)},
     2,
     0,
     BOUND_WAIT,
     -1,
     "all ranks are idle: each uses 0 % of a core, and no storage"},
    {"storage",
     {{0, 0, 0.3, NAN, 80e6}, {0, 0, 0.3, NAN, 80e6}},
     2,
     0,
     BOUND_DATA,
     -1,
     "bound by data: each rank reads 80.0 MB a second from storage and uses 30 % of a core"},
    {"neither", {CPU(0.4), CPU(0.5)}, 2, 0, BOUND_UNKNOWN, -1, "each rank uses 45 % of a core"},
    {"one rank is not measured", {CPU(0.98), CPU(-1)}, 2, 0, BOUND_UNKNOWN, -1, ""},
    {"busy GPUs",
     {GPU(1, 0.97), GPU(1, 0.95)},
     2,
     0,
     BOUND_COMPUTE,
     -1,
     "bound by compute: the GPUs are busy for 96 % of the time"},
    {"GPUs that wait for their CPU",
     {GPU(1, 0.2), GPU(1, 0.22)},
     2,
     0,
     BOUND_DATA,
     -1,
     "bound by the CPU: the GPUs are busy for 21 % of the time while each rank uses 100 % of a core, probably to prepare data"},
    {"one GPU",
     {GPU(1, 0.96), GPU(1, 0.12), GPU(1, 0.98)},
     3,
     0,
     BOUND_RANK,
     1,
     "rank 1 on n2 keeps its GPU busy for 12 % of the time, the others for 97 %"},
    {"idle GPUs and CPUs",
     {GPU(0.01, 0), GPU(0.01, 0)},
     2,
     0,
     BOUND_WAIT,
     -1,
     "all ranks are idle: each uses 1 % of a core, and no storage"},
    {"a GPU whose driver tells nothing",
     {GPU(0.98, -1), GPU(0.98, 0.5)},
     2,
     0,
     BOUND_COMPUTE,
     -1,
     "bound by compute: each rank uses 98 % of a core"},
    {"reported: compute",
     {STEP(100, 3), STEP(100, 5)},
     2,
     0,
     BOUND_COMPUTE,
     -1,
     "bound by compute: 97 % of each step"},
    {"reported: the link",
     {STEP(100, 40), STEP(100, 42)},
     2,
     0,
     BOUND_LINK,
     -1,
     "bound by the link: every rank waits for the others' data for 40 % of each step"},
    {"reported: a slow rank", {STEP(100, 40), STEP(100, 1)}, 2, 0, BOUND_RANK, 1, ""},
    {"reported: data",
     {STEP(100, 5)},
     1,
     62,
     BOUND_DATA,
     -1,
     "bound by data: 62 % of each step waits for input"},
};

struct fixture {
    Ddp__V1__JobStatus job;
    Ddp__V1__Progress progress;
    Ddp__V1__Metric metric, *metrics[1];
    Ddp__V1__ProbeJobReply reply;
    Ddp__V1__RankStatus ranks[RANKS], *list[RANKS];
    Ddp__V1__Usage usages[RANKS];
    Ddp__V1__WorkerProbe workers[RANKS], *worker_list[RANKS];
};

static void build_rank(struct fixture *f, int i, const struct rank_row *row)
{
    Ddp__V1__RankStatus *r = f->list[i] = &f->ranks[i];
    Ddp__V1__WorkerProbe *w = f->worker_list[i] = &f->workers[i];

    ddp__v1__rank_status__init(r);
    r->rank = i;
    r->node = TEXT(i % 2 ? "n2" : "n1");
    r->ms_per_step = row->step_ms;
    r->wait_ms = row->wait_ms;
    ddp__v1__usage__init(&f->usages[i]);
    f->usages[i].cpu = row->cpu;
    f->usages[i].gpus = !isnan(row->gpu);
    f->usages[i].gpu_utilisation = row->gpu;
    f->usages[i].read_bytes_per_s = row->read;
    r->usage = row->cpu < 0 ? NULL : &f->usages[i];
    ddp__v1__worker_probe__init(w);
    w->rank = i;
    w->node = r->node;
    w->pid = 4100 + i;
    w->probed = true;
    w->output_age_ms = w->report_age_ms = 100;
    f->job.n_ranks++;
    f->reply.n_workers++;
}

static void build_reply(struct fixture *f, const struct pattern *p)
{
    *f = (struct fixture){0};
    ddp__v1__job_status__init(&f->job);
    ddp__v1__probe_job_reply__init(&f->reply);
    f->job.state = TEXT("running");
    f->job.ranks = f->list;
    f->reply.job = &f->job;
    f->reply.workers = f->worker_list;
    for (int i = 0; i < p->count; i++)
        build_rank(f, i, &p->ranks[i]);
    ddp__v1__progress__init(&f->progress);
    ddp__v1__metric__init(&f->metric);
    f->metric.name = TEXT("data_ms");
    f->metric.value = p->data_ms;
    f->metrics[0] = &f->metric;
    f->progress.metrics = f->metrics;
    f->progress.n_metrics = p->data_ms > 0;
    f->job.progress = &f->progress;
}

static void test_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        const struct pattern *p = &patterns[i];
        CLEANUP(bound_release) struct bound b = {0};
        struct fixture f;

        build_reply(&f, p);
        bound_find(&f.reply, &b);
        const char *text = b.text.data ? b.text.data : "";
        if (b.kind != p->kind || (b.rank ? b.rank->rank : -1) != p->rank || strcmp(text, p->text) != 0)
            fail_msg("%s: %s, rank %d: %s", p->name, bound_name(b.kind), b.rank ? b.rank->rank : -1, text);
    }
}

static void test_the_sentence_ends_with_the_bound(void **state)
{
    CLEANUP(diagnosis_release) struct diagnosis d = {0};
    struct fixture f;

    (void)state;
    build_reply(&f, &patterns[2]);
    diagnosis_find(&f.reply, &d);
    assert_int_equal(d.kind, DIAGNOSIS_RUNNING);
    assert_int_equal(d.bound, BOUND_RANK);
    assert_string_equal(d.sentence.data,
                        "it runs, the last output or report was 0.1 s ago; rank 3 on n2 uses 12 % of a "
                        "core while the others use 98 %");
    assert_int_equal(d.rank->rank, 3);
    assert_int_equal(d.pid, 4103);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_the_sentence_ends_with_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
