#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "client/diagnose/failed_ranks.h"

/* A failed job whose ranks wrote one or two lines each. */
enum { RANKS_MAX = 10 };
struct fixture {
    Ddp__V1__JobStatus job;
    Ddp__V1__Failure failure;
    Ddp__V1__ProbeJobReply reply;
    Ddp__V1__WorkerProbe workers[RANKS_MAX], *list[RANKS_MAX];
    char lines[RANKS_MAX][2][64], *tails[RANKS_MAX][2];
    struct failed_ranks ranks;
    struct buf out;
};

static void fixture_begin(struct fixture *f, size_t count)
{
    *f = (struct fixture){0};
    ddp__v1__job_status__init(&f->job);
    ddp__v1__failure__init(&f->failure);
    ddp__v1__probe_job_reply__init(&f->reply);
    for (size_t i = 0; i < count; i++) {
        Ddp__V1__WorkerProbe *w = f->list[i] = &f->workers[i];
        ddp__v1__worker_probe__init(w);
        w->rank = (int)i;
        w->node = (char *)"box1";
        w->pid = 100 + (int64_t)i;
        w->ended = w->exit_known = true;
        w->code = 1;
        w->stderr_tail = f->tails[i];
        w->n_stderr_tail = 2;
        for (int k = 0; k < 2; k++)
            f->tails[i][k] = f->lines[i][k];
        snprintf(f->lines[i][0], sizeof(f->lines[i][0]), "Traceback of pid %d:", 100 + (int)i);
        snprintf(f->lines[i][1], sizeof(f->lines[i][1]), "[rank%d]: ValueError: boom", (int)i);
    }
    f->reply.workers = f->list;
    f->reply.n_workers = count;
    f->reply.generation = f->failure.generation = 1;
    f->failure.node = (char *)"box1";
    f->job.failure = &f->failure;
}

static void fixture_first(struct fixture *f, int rank)
{
    f->failure.rank = rank;
    f->failure.stderr_tail = f->tails[rank];
    f->failure.n_stderr_tail = 2;
}

static const char *fixture_print(struct fixture *f, bool (*seen)(void *user, int rank))
{
    failed_ranks_release(&f->ranks);
    failed_ranks_find(&f->ranks, &f->job, &f->reply);
    f->ranks.first_is_told = true;
    buf_clear(&f->out);
    failed_ranks_print(&f->ranks, "", seen, f, &f->out);
    return f->out.data ? f->out.data : "";
}

static void fixture_end(struct fixture *f)
{
    failed_ranks_release(&f->ranks);
    buf_release(&f->out);
}

static void test_equal_lines_are_printed_once(void **state)
{
    (void)state;
    struct fixture f;
    fixture_begin(&f, 8);
    fixture_first(&f, 2);
    assert_string_equal(fixture_print(&f, NULL),
                        "stderr of ranks 0-7:\n  | Traceback of pid 102:\n  | [rank2]: ValueError: boom\n");
    fixture_end(&f);
}

static void test_different_lines_stay_apart(void **state)
{
    (void)state;
    struct fixture f;
    fixture_begin(&f, 5);
    fixture_first(&f, 3);
    for (int i = 0; i < 5; i += 2)
        snprintf(f.lines[i][1], sizeof(f.lines[i][1]), "RuntimeError: peer was lost");
    assert_string_equal(
        fixture_print(&f, NULL),
        "stderr of ranks 1, 3:\n  | Traceback of pid 103:\n  | [rank3]: ValueError: boom\n"
        "stderr of ranks 0, 2, 4:\n  | Traceback of pid 100:\n  | RuntimeError: peer was lost\n");
    assert_true(failed_ranks_are_one(&f.ranks, 1));
    assert_false(failed_ranks_are_one(&f.ranks, 2));
    fixture_end(&f);
}

/* Ranks that ddp ended do not count as failed, unless they wrote the same as a rank that failed. */
static void test_ranks_that_were_stopped(void **state)
{
    (void)state;
    struct fixture f;
    fixture_begin(&f, 6);
    fixture_first(&f, 0);
    for (int i = 1; i < 4; i++)
        snprintf(f.lines[i][1], sizeof(f.lines[i][1]), "50%%");
    f.workers[1].signal = 15;
    f.workers[2].signal = 9;
    f.workers[3].stopped = true;
    f.workers[4].stopped = true;
    f.workers[5].code = 0;
    assert_string_equal(fixture_print(&f, NULL),
                        "stderr of ranks 0, 4:\n  | Traceback of pid 100:\n  | [rank0]: ValueError: boom\n");
    f.workers[4].n_stderr_tail = 0; /* a rank alone that the caller has named needs no heading */
    assert_string_equal(fixture_print(&f, NULL),
                        "  | Traceback of pid 100:\n  | [rank0]: ValueError: boom\n");
    fixture_end(&f);
}

static bool is_rank_4(void *user, int rank)
{
    (void)user;
    return rank == 4;
}

static void test_lines_on_the_screen_are_left_out(void **state)
{
    (void)state;
    struct fixture f;
    fixture_begin(&f, 6);
    fixture_first(&f, 0);
    snprintf(f.lines[5][1], sizeof(f.lines[5][1]), "other");
    assert_string_equal(fixture_print(&f, is_rank_4),
                        "stderr of rank 5:\n  | Traceback of pid 105:\n  | other\n");
    fixture_end(&f);
}

static void test_many_groups_are_cut(void **state)
{
    (void)state;
    struct fixture f;
    fixture_begin(&f, 9);
    fixture_first(&f, 0);
    for (int i = 0; i < 9; i++)
        snprintf(f.lines[i][1], sizeof(f.lines[i][1]), "index %d", i / 2 * 100);
    const char *text = fixture_print(&f, NULL);
    assert_non_null(strstr(text, "stderr of ranks 6, 7:\n"));
    assert_non_null(strstr(text, "\nthe last lines of 1 more rank differ from these\n"));
    fixture_end(&f);
}

/* There is no answer to ProbeJob: the coordinator is older, or the user may not read the logs. */
static void test_only_the_first_failure_is_known(void **state)
{
    (void)state;
    struct fixture f;
    fixture_begin(&f, 3);
    fixture_first(&f, 1);
    failed_ranks_find(&f.ranks, &f.job, NULL);
    f.ranks.first_is_told = true;
    failed_ranks_print(&f.ranks, "", NULL, NULL, &f.out);
    assert_string_equal(f.out.data, "  | Traceback of pid 101:\n  | [rank1]: ValueError: boom\n");
    f.failure.node = (char *)""; /* no rank failed */
    failed_ranks_release(&f.ranks);
    failed_ranks_find(&f.ranks, &f.job, &f.reply);
    assert_int_equal(f.ranks.count, 0);
    fixture_end(&f);
}

static void test_nccl_without_a_gpu_is_explained(void **state)
{
    (void)state;
    struct fixture f;
    fixture_begin(&f, 2);
    fixture_first(&f, 0);
    snprintf(f.lines[0][1], sizeof(f.lines[0][1]), "RuntimeError: nccl2 requires at least one CUDA device");
    f.job.world_size = 1;
    const char *text = fixture_print(&f, NULL);
    assert_non_null(strstr(text, "env -u RANK python3 train.py\n"));
    f.ranks.alone = false;
    assert_null(strstr(failed_ranks_advice(&f.ranks), "env -u RANK"));
    assert_non_null(strstr(failed_ranks_advice(&f.ranks), "gloo"));
    fixture_end(&f);

    fixture_begin(&f, 1);
    fixture_first(&f, 0);
    assert_null(strstr(fixture_print(&f, NULL), "NCCL"));
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_lines_are_printed_once),
        cmocka_unit_test(test_different_lines_stay_apart),
        cmocka_unit_test(test_ranks_that_were_stopped),
        cmocka_unit_test(test_lines_on_the_screen_are_left_out),
        cmocka_unit_test(test_many_groups_are_cut),
        cmocka_unit_test(test_only_the_first_failure_is_known),
        cmocka_unit_test(test_nccl_without_a_gpu_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
