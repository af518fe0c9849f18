/* Which GPU or slot `ddpctl check --deep` calls slow, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/diagnose/deep_figures.h"

#define SHARE 0.8

static void add_place(struct deep_figures *f, const char *node, int index, const char *device,
                      const char *model, double matrix, double best)
{
    struct err e;
    CLEANUP(free_text)
    char *line =
        xasprintf("{\"rank\":%zu,\"node\":\"%s\",\"local_rank\":%d,\"device\":\"%s\",\"model\":\"%s\","
                  "\"matrix\":%g,\"matrix_best\":%g,\"memory\":1e10,\"memory_best\":1.1e10}",
                  f->count, node, index, device, model, matrix, best);
    if (deep_figures_add(f, line, strlen(line), &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static void expect_findings(struct deep_figures *f, const char *const *wanted, size_t count)
{
    CLEANUP(findings_release) struct findings found = {0};
    deep_figures_judge(f, SHARE, &found);
    for (size_t i = 0; i < found.count && i < count; i++) {
        CLEANUP(free_text) char *said = xasprintf("%s: %s", found.items[i].node, found.items[i].what);
        assert_string_equal(said, wanted[i]);
        assert_true(*found.items[i].fix);
    }
    assert_int_equal(found.count, count);
    deep_figures_release(f);
}

static void one_gpu_of_eight(void **state)
{
    static const char *const wanted[] = {"box3: GPU 2 multiplies at 61 % of the median of its 7 peers"};
    struct deep_figures f = {0};
    (void)state;
    for (int i = 0; i < 8; i++)
        add_place(&f, "box3", i, "cuda", "H200", i == 2 ? 488e12 : 800e12, i == 2 ? 500e12 : 801e12);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

static void several_slots_are_one_finding(void **state)
{
    static const char *const wanted[] = {
        "box1: slots 0 and 1 multiply at 30 % to 40 % of the median of their peers"};
    struct deep_figures f = {0};
    (void)state;
    add_place(&f, "box1", 0, "cpu", "EPYC", 30e9, 31e9);
    add_place(&f, "box1", 1, "cpu", "EPYC", 40e9, 41e9);
    for (int i = 0; i < 6; i++)
        add_place(&f, i < 3 ? "box2" : "box4", i % 3, "cpu", "EPYC", 100e9, 101e9);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

static void two_nodes(void **state)
{
    static const char *const wanted[] = {"box2: slot 0 multiplies at 50 % of the rate of its only peer"};
    struct deep_figures f = {0};
    (void)state;
    add_place(&f, "box1", 0, "cpu", "EPYC", 100e9, 101e9);
    add_place(&f, "box2", 0, "cpu", "EPYC", 50e9, 51e9);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

/* Another model is another speed, and a round that was not disturbed shows that the device is well. */
static void not_accused(void **state)
{
    struct deep_figures f = {0};
    (void)state;
    add_place(&f, "box1", 0, "cpu", "EPYC", 100e9, 101e9);
    add_place(&f, "box2", 0, "cpu", "EPYC", 79e9, 80e9); /* just within */
    add_place(&f, "box3", 0, "cpu", "EPYC", 40e9, 99e9); /* disturbed in most rounds */
    add_place(&f, "box4", 0, "cpu", "EPYC", 100e9, 101e9);
    add_place(&f, "box5", 0, "cpu", "Atom", 10e9, 11e9);
    add_place(&f, "box6", 0, "cuda", "EPYC", 10e9, 11e9);
    expect_findings(&f, NULL, 0);
}

static void add_line(struct deep_figures *f, char *line)
{
    struct err e;
    if (deep_figures_add(f, line, strlen(line), &e) != ERR_OK)
        fail_msg("%s", e.msg);
    free_text(&line);
}

static void add_linked(struct deep_figures *f, const char *node, int index, const char *device)
{
    add_line(f, xasprintf("{\"rank\":%zu,\"node\":\"%s\",\"local_rank\":%d,\"device\":\"%s\",\"model\":\"M\","
                          "\"matrix\":1e12,\"matrix_best\":1e12}",
                          f->count, node, index, device));
}

/* The rank's partners; 0: they could not exchange data; other < 0: there is no second one. */
static void add_partners(struct deep_figures *f, int rank, int mate, double rate, int other,
                         double other_rate)
{
    const char *error = ",\"error\":\"not done after 20 s\"";
    CLEANUP(free_text)
    char *second = other < 0 ? xstrdup("")
                             : xasprintf(",{\"rank\":%d,\"allreduce\":%g,\"allreduce_best\":%g%s}", other,
                                         other_rate, other_rate, other_rate > 0.0 ? "" : error);
    add_line(
        f,
        xasprintf(
            "partners {\"rank\":%d,\"partners\":[{\"rank\":%d,\"allreduce\":%g,\"allreduce_best\":%g%s}%s]}",
            rank, mate, rate, rate, rate > 0.0 ? "" : error, second));
}

/* On CPUs one rank of each node is measured. The other slots are not its peers. */
static void a_node_with_a_slow_link(void **state)
{
    static const char *const wanted[] = {
        "box2: slot 0 exchanges data with other nodes at 10 % of the median of its 2 peers"};
    static const char *const nodes[] = {"box1", "box2", "box3"};
    struct deep_figures f = {0};
    (void)state;
    for (int i = 0; i < 6; i++)
        add_linked(&f, nodes[i / 2], i % 2, "cpu");
    add_partners(&f, 0, 2, 1e8, 4, 1e9);
    add_partners(&f, 2, 0, 1e8, 4, 1e8);
    add_partners(&f, 4, 0, 1e9, 2, 1e8);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

static void gpus_with_slow_network_cards(void **state)
{
    static const char *const wanted[] = {
        "box2: GPUs 0 and 1 exchange data with other nodes at 20 % to 25 % of the median of their peers"};
    static const char *const nodes[] = {"box1", "box2", "box3"};
    static const double slow[] = {5e9, 4e9, 20e9, 20e9};
    struct deep_figures f = {0};
    (void)state;
    for (int i = 0; i < 12; i++)
        add_linked(&f, nodes[i / 4], i % 4, "cuda");
    for (int i = 0; i < 4; i++) {
        add_partners(&f, i, i + 4, slow[i], i + 8, 20e9);
        add_partners(&f, i + 4, i, slow[i], i + 8, slow[i]);
        add_partners(&f, i + 8, i, 20e9, i + 4, slow[i]);
    }
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

/* Two nodes with two GPUs each, so each GPU has one partner. */
static void a_slow_pair_accuses_no_node(void **state)
{
    static const char *const wanted[] = {
        ": GPU 1 of box1 and GPU 1 of box2 exchange data at 25 % of the median of other pairs"};
    struct deep_figures f = {0};
    (void)state;
    for (int i = 0; i < 4; i++)
        add_linked(&f, i < 2 ? "box1" : "box2", i % 2, "cuda");
    for (int i = 0; i < 4; i++)
        add_partners(&f, i, i ^ 2, i % 2 ? 5e9 : 20e9, -1, 0.0);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

static void two_nodes_have_one_rate(void **state)
{
    struct deep_figures f = {0};
    (void)state;
    for (int i = 0; i < 2; i++)
        add_linked(&f, i ? "box2" : "box1", 0, "cpu");
    for (int i = 0; i < 2; i++)
        add_partners(&f, i, 1 - i, 1e6, -1, 0.0);
    expect_findings(&f, NULL, 0);
}

static void a_pair_that_cannot_connect_accuses_no_node(void **state)
{
    static const char *const wanted[] = {
        ": slot 0 of box1 and slot 0 of box2 cannot exchange data: not done after 20 s"};
    static const char *const nodes[] = {"box1", "box2", "box3"};
    struct deep_figures f = {0};
    (void)state;
    for (int i = 0; i < 3; i++)
        add_linked(&f, nodes[i], 0, "cpu");
    add_partners(&f, 0, 1, 0.0, 2, 1e9);
    add_partners(&f, 1, 0, 0.0, 2, 1e9);
    add_partners(&f, 2, 0, 1e9, 1, 1e9);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

/* Only one rank of a pair may see that it fails. */
static void a_pair_that_fails_for_one_rank(void **state)
{
    static const char *const wanted[] = {
        ": slot 0 of box1 and slot 0 of box2 cannot exchange data: not done after 20 s"};
    static const char *const nodes[] = {"box1", "box2", "box3"};
    (void)state;
    for (int failed = 0; failed < 2; failed++) {
        struct deep_figures f = {0};
        for (int i = 0; i < 3; i++)
            add_linked(&f, nodes[i], 0, "cpu");
        add_partners(&f, 0, 1, failed ? 1e9 : 0.0, 2, 1e9);
        add_partners(&f, 1, 0, failed ? 0.0 : 1e9, 2, 1e9);
        add_partners(&f, 2, 0, 1e9, 1, 1e9);
        expect_findings(&f, wanted, ARRAY_LEN(wanted));
    }
}

static void the_reason_of_the_rank_that_knows_it(void **state)
{
    static const char *const wanted[] = {
        ": slot 0 of box1 and slot 0 of box2 cannot exchange data: not done after 20 s"};
    struct deep_figures f = {0};
    (void)state;
    for (int i = 0; i < 2; i++)
        add_linked(&f, i ? "box2" : "box1", 0, "cpu");
    add_line(&f,
             xstrdup("partners {\"rank\":0,\"partners\":[{\"rank\":1,\"allreduce\":0,\"allreduce_best\":0,"
                     "\"error\":\"the process group is over: a peer is gone\"}]}"));
    add_partners(&f, 1, 0, 0.0, -1, 0.0);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

/* GPU 0 of box1 has no peers, so the rate of its pair is low only among the peers of its partner. */
static void a_slow_pair_of_two_models(void **state)
{
    static const char *const wanted[] = {
        ": GPU 0 of box1 and GPU 0 of box2 exchange data at 25 % of the median of other pairs"};
    struct deep_figures f = {0};
    (void)state;
    add_line(&f,
             xstrdup("{\"rank\":0,\"node\":\"box1\",\"local_rank\":0,\"device\":\"cuda\",\"model\":\"other\","
                     "\"matrix\":1e12,\"matrix_best\":1e12}"));
    for (int i = 1; i < 4; i++)
        add_linked(&f, i < 2 ? "box1" : "box2", i % 2, "cuda");
    for (int i = 0; i < 4; i++)
        add_partners(&f, i, i ^ 2, i % 2 ? 20e9 : 5e9, -1, 0.0);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

static void a_node_that_reaches_no_partner(void **state)
{
    static const char *const wanted[] = {
        "box2: slot 0 exchanges data with other nodes at 0 % of the median of its 2 peers"};
    static const char *const nodes[] = {"box1", "box2", "box3"};
    struct deep_figures f = {0};
    (void)state;
    for (int i = 0; i < 3; i++)
        add_linked(&f, nodes[i], 0, "cpu");
    add_partners(&f, 0, 1, 0.0, 2, 1e9);
    add_partners(&f, 1, 0, 0.0, 2, 0.0);
    add_partners(&f, 2, 0, 1e9, 1, 0.0);
    expect_findings(&f, wanted, ARRAY_LEN(wanted));
}

static void other_lines_are_ignored(void **state)
{
    struct deep_figures f = {0};
    (void)state;
    add_line(&f, xstrdup(""));
    add_line(&f, xstrdup("partners of the company"));
    add_line(&f, xstrdup("libfoo: a warning {1}"));
    assert_int_equal(f.count, 0);
    add_linked(&f, "box1", 0, "cpu");
    assert_false(f.places[0].partners_known);
    add_line(&f, xstrdup("partners {\"rank\":0,\"partners\":[]}"));
    assert_true(f.places[0].partners_known);
    deep_figures_release(&f);
}

static void a_line_that_is_no_json(void **state)
{
    struct deep_figures f = {0};
    struct err e;
    (void)state;
    assert_int_equal(deep_figures_add(&f, "{\"rank\":", 8, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "the measured rates"));
    deep_figures_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gpu_of_eight),
        cmocka_unit_test(several_slots_are_one_finding),
        cmocka_unit_test(two_nodes),
        cmocka_unit_test(not_accused),
        cmocka_unit_test(a_node_with_a_slow_link),
        cmocka_unit_test(gpus_with_slow_network_cards),
        cmocka_unit_test(a_slow_pair_accuses_no_node),
        cmocka_unit_test(two_nodes_have_one_rate),
        cmocka_unit_test(a_pair_that_cannot_connect_accuses_no_node),
        cmocka_unit_test(a_pair_that_fails_for_one_rank),
        cmocka_unit_test(the_reason_of_the_rank_that_knows_it),
        cmocka_unit_test(a_slow_pair_of_two_models),
        cmocka_unit_test(a_node_that_reaches_no_partner),
        cmocka_unit_test(other_lines_are_ignored),
        cmocka_unit_test(a_line_that_is_no_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
