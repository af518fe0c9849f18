/* `sync: auto`: the choice for links and models, and what is said of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/job/sync_choice.h"
#include "base/mem.h"

/* Milliseconds in which a ring of nodes sums 4-byte gradients over links of this speed. */
static struct sync_facts facts_of(double parameters, double mbit, double compute_ms, int nodes, int ranks)
{
    double bytes = parameters * 4;

    return (struct sync_facts){.compute_ms = compute_ms,
                               .allreduce_ms = bytes * 2 * (nodes - 1) / nodes * 8 / mbit / 1e3,
                               .bytes = bytes,
                               .nodes = nodes,
                               .world_size = ranks};
}

static const struct choice_row {
    double parameters, mbit, compute_ms;
    int nodes, ranks;
    int64_t steps;
    double overlap;
    const char *chosen;
} rows[] = {
    {1.2e6, 1e5, 170, 2, 2, 0, 0, "allreduce"},
    {1.2e6, 2200, 170, 2, 2, 0, 0, "allreduce"}, /* 17 ms: just below a tenth */
    {1.2e6, 1900, 170, 2, 2, 0, 0, "diloco every 4, wire fp32"},
    {1.2e6, 100, 170, 2, 2, 0, 0, "diloco every 8, wire int8"}, /* fp32 would need 21 steps */
    {1.2e6, 10, 170, 2, 2, 0, 0, "diloco every 32, wire int4"},
    {1.2e6, 10, 170, 4, 4, 0, 0, "diloco every 50, wire int4"},
    {1.2e6, 1, 170, 2, 2, 0, 0, "diloco every 500, wire int4"},
    {1.2e6, 0.01, 170, 2, 2, 0, 0, "diloco every 500, wire int4"}, /* slower than any round */
    {1.2e6, 1, 170, 2, 2, 1000, 0, "diloco every 100, wire int4"}, /* ten rounds a run */
    {1.2e6, 1, 170, 2, 2, 20, 0, "diloco every 4, wire int4"},
    {124e6, 25000, 4000, 8, 64, 0, 0.99, "allreduce"},                 /* backward hides it */
    {124e6, 1000, 4000, 8, 64, 0, 0.99, "diloco every 16, wire fp32"}, /* eight ranks share a link */
    {124e6, 100, 1000, 4, 4, 0, 0.99, "diloco every 100, wire int4"},
    {763, 400, 0.01, 2, 2, 0, 0, "allreduce"}, /* a tiny model: the loop takes longer than its gradients */
    {1.2e6, 10, 170, 1, 1, 0, 0, "allreduce"},
};

static struct sync_facts row_facts(const struct choice_row *row)
{
    struct sync_facts f = facts_of(row->parameters, row->mbit, row->compute_ms, row->nodes, row->ranks);

    f.steps = row->steps;
    f.overlap = row->overlap;
    return f;
}

static void links_and_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(buf_release) struct buf said = {0};
        struct sync_facts f = row_facts(&rows[i]);
        struct sync_spec chosen;

        sync_choose(&f, &chosen);
        sync_print(&said, &chosen);
        if (strcmp(said.data, rows[i].chosen))
            fail_msg("row %zu: %s, expected %s", i, said.data, rows[i].chosen);
        double cost = sync_cost_ms(&f, &chosen), share = cost / (cost + fmax(f.compute_ms, 1));
        /* Kept, unless the round is at its limit. */
        if (share > SYNC_SHARE_MOST + 1e-9 && chosen.every < 500 && !f.steps)
            fail_msg("row %zu: %.0f %% of a step is communication", i, share * 100);
        assert_true(sync_speedup(&f, &chosen) >= 1);
        assert_true(chosen.type == SYNC_ALLREDUCE || (chosen.every >= 4 && chosen.every <= 500));
    }
}

static void choice_in_words(void **state)
{
    static const struct {
        double parameters, mbit, compute_ms;
        int nodes, ranks;
        const char *says;
    } lines[] = {
        {1.2e6, 10, 170, 2, 2,
         "sync auto: diloco every 32, wire int4: an all-reduce of 4.8 MB takes 3.8 s on this link (10 Mbit/s), a step "
         "computes 170 ms"},
        {1.2e6, 20000, 90, 2, 2,
         "sync auto: allreduce: an all-reduce of 4.8 MB takes 2 ms on this link (20.0 Gbit/s), a step computes 90 ms"},
        {1.2e6, 10, 170, 1, 1, "sync auto: allreduce: there is one rank"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        CLEANUP(buf_release) struct buf said = {0};
        struct sync_facts f =
            facts_of(lines[i].parameters, lines[i].mbit, lines[i].compute_ms, lines[i].nodes, lines[i].ranks);
        struct sync_spec chosen;

        sync_choose(&f, &chosen);
        sync_print_choice(&said, &f, &chosen);
        assert_string_equal(said.data, lines[i].says);
    }
}

/* The coordinator says what the trainer says. */
static void choice_as_metrics(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(buf_release) struct buf said = {0};
        CLEANUP(buf_release) struct buf heard = {0};
        struct sync_facts f = row_facts(&rows[i]), got;
        struct metric_line line = {0};
        struct sync_spec chosen, back;

        sync_choose(&f, &chosen);
        assert_false(sync_choice_get(&line, &got, &back));
        sync_choice_put(&line, &f, &chosen);
        assert_true(sync_choice_get(&line, &got, &back));
        sync_print_choice(&said, &f, &chosen);
        sync_print_choice(&heard, &got, &back);
        assert_string_equal(said.data, heard.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_and_models),
        cmocka_unit_test(choice_in_words),
        cmocka_unit_test(choice_as_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
