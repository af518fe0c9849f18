/* Tests the gather of parameters in pieces: each piece is there when its wait returns, and the loss of a peer ends the waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/trainer/member/ranks.h"
#include "tests/unit/trainer/member/sync/plain_device.h"
#include "trainer/member/sync/sync.h"

enum { COUNT = 100003, TAIL = 3, PIECES = 7, ROUNDS = 5 };

struct member {
    struct coll_group *group;
    struct sync *sync;
    struct sync_config config;
    size_t parts[RANKS_MAX + 1], cuts[2 * (PIECES + 1)];
    struct sync_pieces pieces;
};

static float value_of(size_t i, int owner, int round)
{
    return (float)(i % 1000) + (float)owner * 1000.0f + (float)round * 0.25f;
}

static int owner_of(const struct member *m, size_t i)
{
    int r = 0;

    while (i >= m->parts[r + 1])
        r++;
    return r;
}

/* Parts of unlike sizes; the second is empty if there are three ranks or more. */
static void member_open(struct member *m, struct ranks *r, int rank)
{
    struct err e = {0};
    const size_t body = COUNT - TAIL;

    *m = (struct member){.group = ranks_open(r, rank)};
    for (int k = 1; k <= r->world; k++)
        m->parts[k] =
            k == r->world ? body : body * (size_t)(k == 2 && r->world > 2 ? 1 : k) / ((size_t)r->world + 1);
    m->config = (struct sync_config){.spec = {.type = SYNC_ALLREDUCE},
                                     .rank = rank,
                                     .world_size = r->world,
                                     .count = COUNT,
                                     .tail = TAIL,
                                     .parts = m->parts,
                                     .device = &plain_device,
                                     .thread = -1};
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.params, &e), &e);
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.grads, &e), &e);
    RANK_OK(sync_open(&m->sync, m->group, &m->config, &e), &e);
    m->pieces = (struct sync_pieces){.array = m->config.params,
                                     .parts = m->parts,
                                     .cuts = m->cuts,
                                     .lanes = sync_gather_lanes(m->sync),
                                     .count = PIECES};
    for (size_t l = 0; l < m->pieces.lanes; l++) {
        const size_t begin = l ? m->parts[r->world / 2] : 0;
        const size_t end = l + 1 == m->pieces.lanes ? body : m->parts[r->world / 2];

        for (size_t i = 0; i <= PIECES; i++)
            m->cuts[l * (PIECES + 1) + i] = begin + (end - begin) * i / PIECES;
    }
}

static void member_close(struct member *m)
{
    sync_close(m->sync);
    coll_close(m->group);
}

static void wait_for(atomic_int *counter, int least)
{
    while (atomic_load(counter) < least)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void check_piece(const struct member *m, size_t piece, int round)
{
    for (size_t l = 0; l < m->pieces.lanes; l++) {
        const size_t *lane = m->cuts + l * (PIECES + 1);

        for (size_t i = lane[piece]; i < lane[piece + 1]; i++)
            RANK_CHECK(m->config.params[i] == value_of(i, owner_of(m, i), round));
    }
}

/* The others begin when rank 0 is about to wait, so that it has to wait for each piece. */
static void gather_in_pieces(struct ranks *r, int rank)
{
    struct member m;
    struct err e = {0};

    member_open(&m, r, rank);
    const bool beside = sync_gathers_beside(m.sync);
    RANK_CHECK(beside == (r->node_of[r->world - 1] > 0));
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = m.parts[rank]; i < m.parts[rank + 1]; i++)
            m.config.params[i] = value_of(i, rank, round);
        if (beside && rank > 0)
            wait_for(&r->shared->counter, round + 1);
        sync_gather_pieces(m.sync, &m.pieces);
        if (rank == 0)
            atomic_store(&r->shared->counter, round + 1);
        for (size_t i = 0; i < PIECES; i += 1 + (size_t)(round % 2)) {
            RANK_OK(sync_await_pieces(m.sync, i + 1, &e), &e);
            check_piece(&m, i, round);
        }
        RANK_OK(sync_join(m.sync, &e), &e);
        for (size_t i = 0; i < PIECES; i++)
            check_piece(&m, i, round);
        RANK_OK(coll_barrier(m.group, &e), &e);
        for (size_t i = 0; i < COUNT; i++)
            m.config.grads[i] = 1.0f;
        for (size_t end = COUNT; end > 0; end -= end > 30000 ? 30000 : end)
            sync_grads_ready(m.sync, end > 30000 ? end - 30000 : 0, end > 30000 ? 30000 : end);
        RANK_OK(sync_before_step(m.sync, &e), &e);
        for (size_t i = m.parts[rank]; i < m.parts[rank + 1]; i++)
            RANK_CHECK(m.config.grads[i] == (float)r->world);
        RANK_CHECK(m.config.grads[COUNT - 1] == (float)r->world);
        RANK_OK(sync_after_step(m.sync, 1, r->world, &e), &e);
    }
    member_close(&m);
}

static const struct ranks layouts[] = {
    {.world = 2},
    {.world = 3},
    {.world = 2, .node_of = {0, 1}},
    {.world = 3, .node_of = {0, 1, 2}},
    {.world = 4, .node_of = {0, 0, 1, 1}},
    {.world = 5, .node_of = {0, 0, 0, 1, 1}},
    {.world = 6, .node_of = {0, 0, 1, 1, 2, 2}},
};

static void each_piece_is_there_when_its_wait_returns(void **state)
{
    (void)state;
    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        struct ranks r = layouts[l];

        if (!ranks_run(&r, gather_in_pieces))
            fail_msg("layout %zu", l);
        ranks_release(&r);
    }
}

/* The last rank is gone before it has sent anything. */
static void gather_without_the_last(struct ranks *r, int rank)
{
    struct member m;
    struct err e = {0};

    member_open(&m, r, rank);
    if (rank == r->world - 1)
        _exit(0);
    sync_gather_pieces(m.sync, &m.pieces);
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < PIECES && !code; i++)
        code = sync_await_pieces(m.sync, i + 1, &e);
    RANK_CHECK(code == ERR_ABORTED);
    RANK_CHECK(sync_join(m.sync, &e) == ERR_ABORTED);
    member_close(&m);
}

static void a_lost_peer_ends_the_wait(void **state)
{
    (void)state;
    for (size_t l = 2; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        struct ranks r = layouts[l];

        if (r.node_of[r.world - 1] == r.node_of[r.world - 2])
            continue; /* within a node it takes the coordinator to notice */
        if (!ranks_run(&r, gather_without_the_last))
            fail_msg("layout %zu", l);
        ranks_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_piece_is_there_when_its_wait_returns),
        cmocka_unit_test(a_lost_peer_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
