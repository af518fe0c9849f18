/* Which snapshots with parts a generation starts from. Each node has its own directory, and its own part of each snapshot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/random.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/snapshots/parts_fixture.h"

static void a_snapshot_that_lacks_a_part_is_not_the_source(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    const struct core_offer one[] = {parts_offer(job, 20, parts_on_box2),
                                     parts_offer(job, 10, parts_on_box2)};
    const struct core_offer two[] = {parts_offer(job, 10, parts_on_box1)};

    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, one, 2);
    fixture_join_telling(f, job, 1, two, 1, parts_gone);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_true(
        fixture_said(f, "went back to step 10: on box2 /out/step: "
                        "/out/parts-step-20-g1-j1/rank-00001.safetensors is missing; step 20 was committed"));
    assert_false(fixture_said(f, "wrote are dropped"));
}

/* box2 has lost its newest snapshots, however many. */
static void a_job_goes_back_as_far_as_it_must(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    struct core_offer one[9], two = parts_offer(job, 10, parts_on_box1);
    static const char *const digests[] = {"d10", "d20", "d30", "d40", "d50", "d60", "d70", "d80", "d90"};
    bool pending;

    for (int i = 2; i < 9; i++)
        for (int rank = 0; rank < 2; rank++)
            fixture_commit_part(f, job, rank, 10 * (i + 1), 2, digests[i], &pending);
    for (int i = 0; i < 9; i++) {
        one[i] = parts_offer(job, 10 * (9 - i), parts_on_box2);
        one[i].digest = digests[8 - i];
    }
    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, one, 9);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    assert_true(
        fixture_said(f, "went back to step 10: /out on box2 does not have it, step 90 was committed"));
}

static void parts_of_all_nodes_make_a_snapshot_whole(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    const struct core_offer one = parts_offer(job, 20, parts_on_box2),
                            two = parts_offer(job, 20, parts_on_box1), all = parts_offer(job, 20, NULL);

    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    /* the parts may lie on any of its nodes: here on box1, to which they were copied */
    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, &all, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_false(fixture_said(f, "went back to"));
}

/* Averaging drops the parts of box2. Divided moments cannot be dropped. An older snapshot has no parts. */
static void divided_moments_need_the_parts_of_lost_nodes_too(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    struct core_offer one[] = {parts_offer_divided(job, 20, parts_on_box2), parts_offer(job, 10, NULL)};

    one[1].parts = 0;
    parts_lose_box2(f, job);
    fixture_join_with(f, job, 0, one, 2);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    assert_true(
        fixture_said(f, "went back to step 10: step 20 in /out lacks the parts that box2 (lost) wrote, and "
                        "needs all of its parts"));
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* The moments are cut again for other numbers of ranks: nothing is dropped, and nothing is said of it. */
static void divided_moments_fit_any_number_of_ranks(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    struct core_offer one = parts_offer_divided(job, 20, NULL);

    one.parts = 5;
    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_false(fixture_said(f, "dropped"));
    assert_false(fixture_said(f, "continue"));
}

static void another_number_of_ranks_is_reported(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    struct core_offer o = parts_offer(job, 20, NULL);

    o.parts = 4;
    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, &o, 1);
    fixture_join_with(f, job, 1, &o, 1);
    assert_true(fixture_said(
        f, "step 20 was saved by 4 ranks, and 2 continue: what ranks 2 to 3 had of their own is dropped"));
    fixture_put(f, job, "id");
    o.parts = 1;
    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, &o, 1);
    fixture_join_with(f, job, 1, &o, 1);
    assert_true(fixture_said(
        f, "step 20 was saved by 1 rank, and 2 continue: rank 1 starts from the shared model and other "
           "ranks' moments"));
}

static void an_older_source_than_an_unknown_snapshot_is_reported(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_that_continues(f, "");
    const struct core_offer one[] = {parts_offer_foreign(20, parts_on_box2),
                                     parts_offer_foreign(10, parts_on_box2)};
    const struct core_offer two = parts_offer_foreign(10, parts_on_box1);

    fixture_join_with(f, job, 0, one, 2);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    assert_true(
        fixture_said(f, "went back to step 10: step 20 in /out lacks the parts that box2 wrote; is the file "
                        "system mounted there?"));
}

/* ---- how much a worker may make the coordinator keep */

enum { MANY_NAMES = 100000, LARGE_JOB = 40000 };

/* `count` names that no other list has. The caller frees. */
static char **make_names(int list, int count)
{
    char **names = xcalloc((size_t)count + 1, sizeof(char *));

    for (int i = 0; i < count; i++)
        names[i] = xasprintf("n%d-%d", list, i);
    return names;
}

static enum err_code join_naming(struct core_fixture *f, int64_t job, int list, int count)
{
    char **names = make_names(list, count);
    const struct core_offer offer = parts_offer_foreign(20, names);
    const struct core_effect *reply = fixture_reply(f, fixture_join_with(f, job, 0, &offer, 1));
    const enum err_code code = reply ? reply->err.code : ERR_OK;

    strv_free(names);
    return code;
}

static size_t names_kept(const struct core_fixture *f, int64_t job)
{
    return job_current(core_find_job(f->core, job))->offer_nodes.count;
}

static void a_join_names_no_more_nodes_than_large_jobs_have(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_that_continues(f, "");

    for (int list = 0; list < 2; list++) {
        assert_int_equal(join_naming(f, job, list, MANY_NAMES), ERR_INVALID_ARGUMENT);
        assert_int_equal(names_kept(f, job), 0);
    }
    for (int list = 0; list < 5; list++)
        assert_int_equal(join_naming(f, job, list, LARGE_JOB), list < 2 ? ERR_OK : ERR_INVALID_ARGUMENT);
    assert_int_equal(names_kept(f, job), 2 * LARGE_JOB);
    assert_int_equal(join_naming(f, job, 0, 1), ERR_OK); /* a refused Join harms no later one */
}

static enum err_code join_offering(struct core_fixture *f, int64_t job, const struct core_offer *offer)
{
    const struct core_effect *reply = fixture_reply(f, fixture_join_with(f, job, 0, offer, 1));

    return reply ? reply->err.code : ERR_OK;
}

static void an_offer_names_only_what_may_be_a_node(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_that_continues(f, "");
    static char long_text[4200], *const bad[] = {(char *)"box2", (char *)"a node", NULL};
    struct core_offer offer = parts_offer_foreign(20, bad);

    memset(long_text, 'x', sizeof(long_text) - 1);
    assert_int_equal(join_offering(f, job, &offer), ERR_INVALID_ARGUMENT);
    offer = parts_offer_foreign(20, parts_on_box2);
    offer.path = long_text;
    assert_int_equal(join_offering(f, job, &offer), ERR_INVALID_ARGUMENT);
    offer.path = "/out/step";
    offer.digest = long_text;
    assert_int_equal(join_offering(f, job, &offer), ERR_INVALID_ARGUMENT);
    assert_int_equal(names_kept(f, job), 0);
}

/* The records of an ended generation stay for weeks. */
static void offers_are_kept_only_while_a_generation_forms(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    const struct core_offer one = parts_offer(job, 20, parts_on_box2),
                            two = parts_offer(job, 20, parts_on_box1);
    const struct job *of = core_find_job(f->core, job);

    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    assert_int_equal(names_kept(f, job), 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_int_equal(names_kept(f, job), 0); /* it has formed */

    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    const struct generation *g = job_current(of);
    assert_int_equal(g->offer_nodes.count, 1);
    fixture_exit(f, job, 1, 1, 0); /* it ends before it has formed */
    assert_false(generation_open(g));
    assert_int_equal(g->offer_nodes.count, 0);
    for (size_t i = 0; i < of->spawn_count; i++)
        assert_int_equal(of->spawns[i]->offer_count, 0);
}

/* ---- random offers, against a plain reading of the rules */

enum { CHANCE_NODES = 4, CHANCE_NAMES = 7, CHANCE_STEPS = 3, CHANCE_ROUNDS = 200 };

struct chance_world {
    char nodes[CHANCE_NODES][8];                          /* by rank */
    struct core_offer offers[CHANCE_NODES][CHANCE_STEPS]; /* by rank, then in a random order of their steps */
    size_t counts[CHANCE_NODES];
    char *elsewhere[CHANCE_NODES][CHANCE_STEPS][CHANCE_NAMES + 1];
};

static char chance_names[CHANCE_NAMES][8], chance_digests[CHANCE_STEPS][8];

/* Some of the names, from a random one on. The ranks of the generation are among the names. */
static void draw_elsewhere(struct random *r, char *out[CHANCE_NAMES + 1])
{
    size_t count = 0, from = (size_t)(random_u64(r) % CHANCE_NAMES);

    for (size_t i = 0; i < CHANCE_NAMES; i++)
        if (random_u64(r) % 4)
            out[count++] = chance_names[(from + i) % CHANCE_NAMES];
    out[count] = NULL;
}

static void draw_offers(struct random *r, struct chance_world *w, int64_t base)
{
    for (int rank = 0; rank < CHANCE_NODES; rank++) {
        size_t from = (size_t)(random_u64(r) % CHANCE_STEPS);
        w->counts[rank] = 0;
        for (size_t i = 0; i < CHANCE_STEPS; i++) {
            size_t step = (from + i) % CHANCE_STEPS, at = w->counts[rank];
            if (random_u64(r) % 4 == 0)
                continue;
            draw_elsewhere(r, w->elsewhere[rank][at]);
            w->offers[rank][at] = parts_offer_foreign(base + (int64_t)step, w->elsewhere[rank][at]);
            w->offers[rank][at].digest = chance_digests[step];
            w->counts[rank]++;
        }
    }
}

static bool node_takes_part(const struct chance_world *w, const char *node)
{
    for (int rank = 0; rank < CHANCE_NODES; rank++)
        if (!strcmp(w->nodes[rank], node))
            return true;
    return false;
}

static bool nobody_sees_parts(const struct chance_world *w, int64_t step, const char *node)
{
    for (int rank = 0; rank < CHANCE_NODES; rank++)
        for (size_t i = 0; i < w->counts[rank]; i++) {
            bool missed = w->offers[rank][i].step != step;
            for (char *const *name = w->offers[rank][i].elsewhere; !missed && *name; name++)
                missed = !strcmp(*name, node);
            if (!missed)
                return false;
        }
    return true;
}

/* "box2, box1": nodes that nobody sees the parts of, in the order of the lowest rank's offer. False: no rank offers the step. */
static bool name_nodes_away(const struct chance_world *w, int64_t step, bool take_part, struct buf *out)
{
    for (int rank = 0; rank < CHANCE_NODES; rank++)
        for (size_t i = 0; i < w->counts[rank]; i++) {
            if (w->offers[rank][i].step != step)
                continue;
            for (char *const *name = w->offers[rank][i].elsewhere; *name; name++)
                if (node_takes_part(w, *name) == take_part && nobody_sees_parts(w, step, *name))
                    buf_printf(out, "%s%s", out->len ? ", " : "", *name);
            return true;
        }
    return false;
}

/* What the coordinator made of the offers: the newest whole step, which nodes lack parts, and whose parts are dropped. */
static void judged_as_by_the_rules(struct core_fixture *f, int64_t job, const struct chance_world *w,
                                   int64_t base)
{
    int64_t source = -1, refused = -1;

    for (int64_t step = base + CHANCE_STEPS - 1; step >= base && source < 0; step--) {
        CLEANUP(buf_release) struct buf lacking = {0};
        if (!name_nodes_away(w, step, true, &lacking))
            continue;
        source = lacking.len ? -1 : step;
        refused = lacking.len && refused < 0 ? step : refused;
    }
    const struct generation_record *g = fixture_generation(f, job);
    assert_int_equal(g->source_rank >= 0 ? g->source_step : -1, source);
    if (refused >= 0) {
        CLEANUP(buf_release) struct buf lacking = {0};
        name_nodes_away(w, refused, true, &lacking);
        CLEANUP(free_text)
        char *text = xasprintf("step %d in /out lacks the parts that %s wrote;", (int)refused, lacking.data);
        assert_true(fixture_said(f, text));
        assert_true(source >= 0 || strstr(fixture_waits(f, job), text));
    }
    if (source >= 0) {
        CLEANUP(buf_release) struct buf gone = {0};
        name_nodes_away(w, source, false, &gone);
        CLEANUP(free_text)
        char *text = xasprintf("the parts of step %d that %s wrote are dropped", (int)source,
                               gone.len ? gone.data : "");
        assert_true(fixture_said(f, text) == (gone.len > 0));
    }
}

static void random_offers_are_judged_by_the_rules(void **state)
{
    struct core_fixture *f = *state;
    struct random r = random_stream(7, 0);
    int whole = 0;

    for (int i = 0; i < CHANCE_NAMES; i++)
        snprintf(chance_names[i], sizeof(chance_names[i]), "box%d", i + 1);
    for (int i = 0; i < CHANCE_STEPS; i++)
        snprintf(chance_digests[i], sizeof(chance_digests[i]), "d%d", i);
    for (int i = 0; i < CHANCE_NODES; i++)
        fixture_node(f, chance_names[i], 1);
    for (int round = 0; round < CHANCE_ROUNDS; round++) {
        static struct chance_world w;
        int64_t base = 100 + CHANCE_STEPS * round; /* so that texts of other rounds have other steps */
        int64_t job = fixture_submit(f, "nodes: 4\n" TRAIN "  resume: continue\n" SNAPSHOTS);
        draw_offers(&r, &w, base);
        for (int rank = 0; rank < CHANCE_NODES; rank++)
            snprintf(w.nodes[rank], sizeof(w.nodes[rank]), "%s", fixture_node_of(f, job, rank));
        for (int rank = 0; rank < CHANCE_NODES; rank++) /* in another order than that of the ranks */
            fixture_join_with(f, job, rank ^ 1, w.offers[rank ^ 1], w.counts[rank ^ 1]);
        judged_as_by_the_rules(f, job, &w, base);
        whole += fixture_generation(f, job)->source_rank >= 0;
        fixture_cancel(f, job, true);
        for (int i = 0; i < CHANCE_NODES; i++)
            fixture_all_obey(f, chance_names[i]);
        assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
    }
    assert_in_range(whole, CHANCE_ROUNDS / 10, CHANCE_ROUNDS * 9 / 10); /* both results are common */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_snapshot_that_lacks_a_part_is_not_the_source),
        TEST(a_job_goes_back_as_far_as_it_must),
        TEST(parts_of_all_nodes_make_a_snapshot_whole),
        TEST(divided_moments_need_the_parts_of_lost_nodes_too),
        TEST(divided_moments_fit_any_number_of_ranks),
        TEST(another_number_of_ranks_is_reported),
        TEST(an_older_source_than_an_unknown_snapshot_is_reported),
        TEST(a_join_names_no_more_nodes_than_large_jobs_have),
        TEST(an_offer_names_only_what_may_be_a_node),
        TEST(offers_are_kept_only_while_a_generation_forms),
        TEST(random_offers_are_judged_by_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
