/* The screens of `ddpctl top` and what keys make of them: from a model and a state to lines. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/format.h"
#include "client/top/top_view.h"
#include "tests/unit/client/golden.h"
#include "tests/unit/client/samples.h"

#define JOBS 1000
#define NODES 100

static struct term terminal = {.live = true, .colour = true, .columns = 80, .rows = 24, .now_ms = NOW};

static struct top_frame frame_of(const struct term *term)
{
    return (struct top_frame){.term = term, .utf8 = true, .keys = true};
}

/* A cluster of any size. Its texts live until the next call. */
static struct {
    Ddp__V1__JobStatus jobs[JOBS], *job_list[JOBS];
    Ddp__V1__NodeStatus nodes[NODES], *node_list[NODES];
    Ddp__V1__ListJobsReply totals;
    char job_names[JOBS][24], node_names[NODES][24];
} cluster;

static struct top_model sample_cluster(size_t jobs, size_t nodes)
{
    for (size_t i = 0; i < jobs; i++) {
        Ddp__V1__JobStatus *job = cluster.job_list[i] = &cluster.jobs[i];
        if (i == 0)
            sample_running(job);
        else
            sample_queued(job);
        snprintf(cluster.job_names[i], sizeof(cluster.job_names[i]), "job%zu", i + 1);
        job->job = (int64_t)i + 1;
        job->name = cluster.job_names[i];
        if (i > 0) /* the sample's estimate is shared */
            job->start_estimate = NULL;
    }
    for (size_t i = 0; i < nodes; i++) {
        Ddp__V1__NodeStatus *node = cluster.node_list[i] = &cluster.nodes[i];
        ddp__v1__node_status__init(node);
        snprintf(cluster.node_names[i], sizeof(cluster.node_names[i]), "box%03zu", i + 1);
        node->name = cluster.node_names[i];
        node->state = (char *)(uintptr_t)(i == 57 ? "lost" : "alive");
        node->slots = 8;
        node->slots_free = 3;
        node->load = 0.62;
    }
    ddp__v1__list_jobs_reply__init(&cluster.totals);
    cluster.totals.nodes = (int)nodes;
    cluster.totals.slots = (int)nodes * 8;
    cluster.totals.slots_busy = (int)nodes * 5;
    return (struct top_model){.totals = &cluster.totals,
                              .jobs = cluster.job_list,
                              .job_count = jobs,
                              .nodes = cluster.node_list,
                              .node_count = nodes};
}

/* Removes colours, and checks that the screen fits. Returns the text; the caller frees it. */
static char *screen_text(const struct term *term, const struct top_model *m, struct top_state *s)
{
    const struct top_frame frame = frame_of(term);
    CLEANUP(buf_release) struct buf out = {0};
    struct buf plain = {0};
    size_t lines = 0;

    top_settle(s, m, top_room(&frame, m, s));
    top_draw(&frame, m, s, &out);
    for (const char *at = out.data; at && *at; at++) {
        if (*at == '\033') {
            assert_int_equal(at[1], '[');
            while (*at != 'm')
                assert_true(strchr("\033[0123456789;", *at++) != NULL);
            continue;
        }
        buf_putc(&plain, *at);
    }
    CLEANUP(free_text) char *copy = xstrdup(plain.data);
    for (char *line = strtok(copy, "\n"); line; line = strtok(NULL, "\n"))
        if (text_width(line) > term->columns)
            fail_msg("%zu columns: '%s'", text_width(line), line);
    for (size_t i = 0; i < plain.len; i++)
        lines += plain.data[i] == '\n';
    assert_true(lines <= term->rows);
    return buf_steal(&plain);
}

static enum top_action press_keys(struct top_state *s, const struct top_model *m, const char *bytes)
{
    enum top_action action = TOP_NOTHING;

    for (size_t at = 0, len = strlen(bytes); at < len;) {
        struct top_key key;
        at += top_key_take(bytes + at, len - at, &key);
        action = top_press(s, m, &key);
    }
    return action;
}

static void assert_shows(const struct top_model *m, struct top_state *s, const char *part, bool shown)
{
    CLEANUP(free_text) char *text = screen_text(&terminal, m, s);

    if ((strstr(text, part) != NULL) != shown)
        fail_msg("'%s' is %son the screen:\n%s", part, shown ? "not " : "", text);
}

static void two_sizes_of_a_small_cluster(void **state)
{
    struct top_model m = sample_cluster(3, 2);
    struct top_state s = {0};
    struct term wide = {.live = true, .colour = true, .columns = 140, .rows = 20, .now_ms = NOW};
    struct top_frame frame = frame_of(&terminal);
    CLEANUP(buf_release) struct buf out = {0};

    (void)state;
    free(screen_text(&terminal, &m, &s));
    top_draw(&frame, &m, &s, &out);
    golden_check("top-80.term", &out);
    free(screen_text(&wide, &m, &s));
    frame.term = &wide;
    top_draw(&frame, &m, &s, &out);
    golden_check("top-140.term", &out);
    const struct term plain = {.now_ms = NOW};
    frame = (struct top_frame){.term = &plain};
    top_draw(&frame, &m, &s, &out);
    golden_check("top-once.pipe", &out);
}

static void a_large_cluster_fits_any_terminal(void **state)
{
    struct top_model m = sample_cluster(JOBS, NODES);
    struct top_state s = {0};

    (void)state;
    for (size_t rows = 1; rows < 60; rows += 7)
        for (size_t columns = 10; columns < 200; columns += 13) {
            const struct term term = {.live = true, .columns = columns, .rows = rows, .now_ms = NOW};
            for (int page = TOP_JOBS; page <= TOP_JOB; page++) {
                s.page = (enum top_page)page;
                m.open.status = m.jobs[0];
                free(screen_text(&term, &m, &s));
            }
        }
    s.page = TOP_JOBS;
    assert_shows(&m, &s, "box058  lost", true); /* problems come first */
    assert_shows(&m, &s, "and 97 more", true);
    assert_shows(&m, &s, "job1 ", true);
    press_keys(&s, &m, "\033[F");
    assert_int_equal(s.selected, JOBS);
    assert_shows(&m, &s, "job1000", true);
    press_keys(&s, &m, "\033[5~\033[A");
    assert_true(s.selected < JOBS - 5);
    press_keys(&s, &m, "\033[H");
    assert_int_equal(s.selected, 1);
    press_keys(&s, &m, "n\033[F");
    assert_shows(&m, &s, "box100", true);
    assert_int_equal(press_keys(&s, &m, "q"), TOP_NOTHING);
    assert_int_equal(press_keys(&s, &m, "q"), TOP_QUIT);
}

static void the_filter(void **state)
{
    struct top_model m = sample_cluster(30, 1);
    struct top_state s = {0};

    (void)state;
    assert_shows(&m, &s, "job7 ", true);
    press_keys(&s, &m, "/JOB2x\x7f");
    assert_shows(&m, &s, "filter: JOB2_", true);
    assert_shows(&m, &s, "job7 ", false);
    assert_shows(&m, &s, "job21", true);
    assert_int_equal(press_keys(&s, &m, "q\x7f\r"), TOP_NOTHING); /* a letter of the filter */
    assert_string_equal(s.filter, "JOB2");
    assert_int_equal(s.selected, 2);
    press_keys(&s, &m, "/zzz\r");
    assert_shows(&m, &s, "no job matches the filter", true);
    assert_int_equal(s.selected, 0);
    press_keys(&s, &m, "\033");
    assert_shows(&m, &s, "job7 ", true);
}

/* The job below moves up into the row of a job that has gone. */
static void the_selection_stays_on_its_row(void **state)
{
    struct top_model m = sample_cluster(30, 1);
    struct top_state s = {0};

    (void)state;
    free(screen_text(&terminal, &m, &s));
    press_keys(&s, &m, "jjjj");
    assert_int_equal(s.selected, 5);
    memmove(&cluster.job_list[4], &cluster.job_list[5], 25 * sizeof(cluster.job_list[0]));
    m.job_count = 29;
    free(screen_text(&terminal, &m, &s));
    assert_int_equal(s.selected, 6);
    press_keys(&s, &m, "\033[F");
    assert_int_equal(s.selected, 30);
    m.job_count = 28;
    free(screen_text(&terminal, &m, &s));
    assert_int_equal(s.selected, 29); /* no job is below: the last one */
}

/* If a node takes no jobs, neither its free slots nor its last report tell what is busy. */
static void a_node_that_takes_no_jobs_is_not_shown_as_busy(void **state)
{
    Ddp__V1__ListNodesReply reply;
    struct top_model m = sample_cluster(1, 1);
    struct top_state s = {.page = TOP_NODES};

    (void)state;
    sample_nodes(&reply);
    reply.nodes[1]->slots_free = reply.nodes[2]->slots_free = 0;
    reply.nodes[1]->load = 0.71;
    m.nodes = reply.nodes;
    m.node_count = reply.n_nodes;
    assert_shows(&m, &s, "box1    alive    20/32  ", true);
    assert_shows(&m, &s, "box2    drained  32 c   -x------     0     -\n", true);
    assert_shows(&m, &s, "laptop  lost     4 c                 0     -\n", true);
}

static void the_order(void **state)
{
    struct top_model m = sample_cluster(3, 0);
    struct top_state s = {0};
    size_t count;

    (void)state;
    press_keys(&s, &m, "s");
    assert_int_equal(s.sort, TOP_BY_JOB);
    press_keys(&s, &m, "r");
    Ddp__V1__JobStatus **list = top_choose(&s, &m, &count);
    assert_int_equal(count, 3);
    assert_int_equal(list[0]->job, 3);
    free(list);
    cluster.jobs[1].name = (char *)(uintptr_t) "zebra";
    press_keys(&s, &m, "rs");
    assert_int_equal(s.sort, TOP_BY_NAME);
    list = top_choose(&s, &m, &count);
    assert_int_equal(list[2]->job, 2);
    free(list);
    for (int i = TOP_BY_NAME; i < TOP_SORTS; i++)
        press_keys(&s, &m, "s");
    assert_int_equal(s.sort, TOP_BY_TURN);
}

static void cancel_asks_first(void **state)
{
    struct top_model m = sample_cluster(3, 0);
    struct top_state s = {0};

    (void)state;
    free(screen_text(&terminal, &m, &s));
    press_keys(&s, &m, "jc");
    assert_shows(&m, &s, "cancel job 2? y: yes", true);
    assert_int_equal(press_keys(&s, &m, "n"), TOP_NOTHING);
    assert_int_equal(s.page, TOP_JOBS); /* "n" was the answer */
    assert_int_equal(press_keys(&s, &m, "cy"), TOP_CANCEL_JOB);
    assert_int_equal(s.cancels, 2);
    cluster.jobs[1].state = (char *)(uintptr_t) "succeeded";
    press_keys(&s, &m, "c");
    assert_shows(&m, &s, "job 2 has ended", true);
    assert_int_equal(press_keys(&s, &m, "y"), TOP_NOTHING);
}

static void a_job(void **state)
{
    struct top_model m = sample_cluster(3, 0);
    struct top_state s = {0};
    static int64_t steps[100];
    static double values[100];
    char *log[] = {(char *)(uintptr_t) "0 | epoch 1", (char *)(uintptr_t) "0 | epoch 2\033[2J\a", NULL};
    struct term large = {.live = true, .columns = 100, .rows = 50, .now_ms = NOW};

    (void)state;
    for (int i = 0; i < 100; i++) {
        steps[i] = i * 10;
        values[i] = 4 - i * 0.03;
    }
    press_keys(&s, &m, "\r");
    assert_int_equal(s.open, 0); /* nothing is selected before the first screen */
    free(screen_text(&terminal, &m, &s));
    press_keys(&s, &m, "\r");
    assert_int_equal(s.open, 1);
    assert_shows(&m, &s, "waiting for the coordinator", true);
    m.open = (struct top_job){.status = m.jobs[0],
                              .why = "it runs, at step 3,540",
                              .curve_label = "#1 loss",
                              .curve = {.steps = steps, .values = values, .count = 100},
                              .log = log};
    CLEANUP(free_text) char *text = screen_text(&large, &m, &s);
    struct buf out = {0};
    buf_puts(&out, text);
    golden_check("top-job.pipe", &out);
    buf_release(&out);
    assert_shows(&m, &s, "0 | epoch 2?[2J?", true); /* 80x24: the curve makes room for it */
    assert_shows(&m, &s, "job1 #1", true);
    press_keys(&s, &m, "c");
    assert_int_equal(s.cancels, 1);
}

static void hostile_names(void **state)
{
    struct top_model m = sample_cluster(2, 1);
    struct top_state s = {0};

    (void)state;
    cluster.jobs[0].name = (char *)(uintptr_t) "\033]0;title\a\033[2Jx";
    cluster.jobs[0].user = (char *)(uintptr_t) "\xc2\x9b"
                                               "31mred\n\n";
    cluster.jobs[1].name = (char *)(uintptr_t) "\xe5\xad\x97\xe5\xad\x97\xe5\xad\x97\xe5\xad\x97\xe5\xad\x97";
    cluster.jobs[1].reason = (char *)(uintptr_t) "\033[31m";
    cluster.nodes[0].name = (char *)(uintptr_t) "\033[Hbox";
    m.problem = "\033[41mthe coordinator";
    for (int page = TOP_JOBS; page <= TOP_JOB; page++) {
        s.page = (enum top_page)page;
        m.open.status = m.jobs[0];
        CLEANUP(free_text)
        char *text = screen_text(&terminal, &m, &s); /* has checked that only colours are left */
        assert_null(strchr(text, '\a'));
        assert_null(strstr(text, "\xc2\x9b"));
    }
    press_keys(&s, &m, "/\033[2~");
    free(screen_text(&terminal, &m, &s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sizes_of_a_small_cluster),
        cmocka_unit_test(a_large_cluster_fits_any_terminal),
        cmocka_unit_test(the_filter),
        cmocka_unit_test(the_selection_stays_on_its_row),
        cmocka_unit_test(a_node_that_takes_no_jobs_is_not_shown_as_busy),
        cmocka_unit_test(the_order),
        cmocka_unit_test(cancel_asks_first),
        cmocka_unit_test(a_job),
        cmocka_unit_test(hostile_names),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
