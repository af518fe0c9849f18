/* Tests which ranks write snapshots and how a writer locks its directory, in jobs whose rounds close without late ranks (sync.quorum);
 * and when a generation that ends stops a snapshot that is being written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/unit/base/check.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/keep.h"
#include "trainer/resume.h"

#define JOB                                                                                                  \
    "name: keep\n"                                                                                           \
    "device: cpu\n"                                                                                          \
    "nodes: 2\n"                                                                                             \
    "procs_per_node: 2\n"                                                                                    \
    "train:\n"                                                                                               \
    "  model: {type: mlp, sizes: [20, 24, 1]}\n"                                                             \
    "  data: {type: synthetic, samples: 512}\n"                                                              \
    "  optimizer: {type: adamw, lr: 0.01}\n"                                                                 \
    "  batch: 4\n"                                                                                           \
    "  steps: 1000\n"                                                                                        \
    "  threads: 1\n"                                                                                         \
    "  sync: %s\n"                                                                                           \
    "  snapshot: {dir: %s}\n"

#define QUORUM "{type: diloco, every: 6, quorum: 2}"
#define CLUSTER "0a4cce5e"
enum { OWN_JOB = 7, FIRST = 5 };

static char directory[] = "/tmp/ddp-test-keep-XXXXXX";

static void trainer_open_in(struct trainer *t, struct trainer_config *config, const char *dir, int local_rank,
                            const char *sync)
{
    CLEANUP(free_text) char *text = xasprintf(JOB, sync, dir);
    struct link *link;
    struct err e = {0};

    setenv("DDP_CLUSTER_ID", CLUSTER, 1);
    setenv("DDP_JOB_ID", "7", 1);
    *config = (struct trainer_config){.local_rank = local_rank, .local_world_size = 2};
    RANK_OK(job_parse(&config->job, text, strlen(text), "job", &e), &e);
    RANK_OK(link_open(&link, false, &e), &e);
    RANK_OK(trainer_open(t, config, link, &e), &e);
}

static struct meeting *meeting_of(struct ranks *r)
{
    return (struct meeting *)(void *)r->shared->result;
}

/* ---- who writes: the generation lacks the first local rank of node 1 */

enum { MEMBERS = 3 };
static const int node_of[MEMBERS] = {0, 0, 1}, local_of[MEMBERS] = {0, 1, 1};

static void member_keeps(struct ranks *r, int rank)
{
    const bool shared = *(const bool *)r->arg;
    const bool writer = rank == 0 || (rank == 2 && !shared);
    CLEANUP(free_text) char *dir = xasprintf("%s/%d", directory, shared ? 0 : node_of[rank]);
    const struct meeting_place at = {
        .generation = FIRST, .rank = rank, .world = MEMBERS, .node_of = node_of, .local_of = local_of};
    struct snapshot_list found = {0};
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    trainer_open_in(&t, &config, dir, local_of[rank], QUORUM);
    RANK_OK(meeting_form(r, meeting_of(r), &t, &at, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    RANK_CHECK(t.writer == writer);
    RANK_CHECK((t.dir_lock.fd >= 0) == writer);
    RANK_CHECK(t.home == (rank == 2 && !shared ? 2 : 0));
    meeting_train(&t, 2); /* within a round, so each rank has a part */
    RANK_OK(keep_snapshot(&t, true, &e), &e);
    RANK_OK(coll_barrier(t.formation.group, &e), &e); /* all parts are written */
    /* The node can load what it has written. */
    if (writer) {
        RANK_OK(snapshot_scan(dir, &found, &e), &e);
        RANK_CHECK(found.count == 1 && found.items[0].committed && found.items[0].step == 2);
        snapshot_list_release(&found);
    }
    meeting_close_trainer(&t, &config);
}

static void keep_on_nodes(bool shared)
{
    struct ranks r = {.world = MEMBERS, .arg = &shared};

    memcpy(r.node_of, node_of, sizeof(node_of));
    assert_true(ranks_run(&r, member_keeps));
    ranks_release(&r);
}

static void a_node_without_its_first_rank_has_a_writer(void **state)
{
    (void)state;
    keep_on_nodes(false);
}

static void a_shared_directory_has_one_writer(void **state)
{
    (void)state;
    keep_on_nodes(true);
}

/* ---- the lock of the directory: the linker passes the calls on */

static int takes;   /* calls since it was set to 0 */
static int refused; /* so many of the next calls find a holder of this job */

enum err_code __real_snapshot_lock_take(struct snapshot_lock *lock, const char *dir,
                                        const struct snapshot_place *place, struct snapshot_holder *holder,
                                        struct err *e);
enum err_code __wrap_snapshot_lock_take(struct snapshot_lock *lock, const char *dir,
                                        const struct snapshot_place *place, struct snapshot_holder *holder,
                                        struct err *e);

enum err_code __wrap_snapshot_lock_take(struct snapshot_lock *lock, const char *dir,
                                        const struct snapshot_place *place, struct snapshot_holder *holder,
                                        struct err *e)
{
    takes++;
    if (refused-- <= 0)
        return __real_snapshot_lock_take(lock, dir, place, holder, e);
    *holder = (struct snapshot_holder){.job = OWN_JOB, .cluster = CLUSTER};
    return err_set(e, ERR_ALREADY_EXISTS, "held");
}

/* Rank 0 is the writer of both ranks. `late`: the generation after a round that has closed without a late rank. */
static void member_locks(struct ranks *r, int rank)
{
    const bool late = *(const bool *)r->arg;
    struct meeting_place at = {.generation = FIRST, .rank = rank, .world = 2};
    struct snapshot_place place = {.cluster = CLUSTER, .job = OWN_JOB, .generation = FIRST};
    struct snapshot_lock held = {.fd = -1};
    struct snapshot_holder holder;
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    trainer_open_in(&t, &config, directory, rank, QUORUM);
    RANK_OK(meeting_form(r, meeting_of(r), &t, &at, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    RANK_CHECK((t.dir_lock.fd >= 0) == (rank == 0));
    meeting_train(&t, 2);
    RANK_CHECK(trainer_leave(&t));
    if (late && rank == 0)
        RANK_OK(__real_snapshot_lock_take(&held, directory, &place, &holder, &e), &e);
    at.round = 1;
    at.generation++;
    at.live = late;
    takes = 0;
    refused = late ? 0 : 3;
    RANK_OK(meeting_form(r, meeting_of(r), &t, &at, &e), &e);
    if (late && rank == 0) {
        /* It did not wait, because the holder may be late for a long time. */
        RANK_CHECK(takes == 1 && t.dir_lock.fd < 0);
        snapshot_lock_release(&held);
    } else if (rank == 0) {
        /* It waited, because the holder may be ending. */
        RANK_CHECK(takes == 4 && t.dir_lock.fd >= 0);
    }
    if (late) {
        RANK_OK(keep_snapshot(&t, true, &e), &e);
        RANK_CHECK((t.dir_lock.fd >= 0) == (rank == 0));
    }
    meeting_close_trainer(&t, &config);
}

static void lock_beside_holder(bool late)
{
    struct ranks r = {.world = 2, .arg = &late};

    assert_true(ranks_run(&r, member_locks));
    ranks_release(&r);
}

static void a_round_without_a_late_writer_does_not_wait_for_its_lock(void **state)
{
    (void)state;
    lock_beside_holder(true);
}

static void a_generation_waits_for_a_writer_that_is_ending(void **state)
{
    (void)state;
    lock_beside_holder(false);
}

/* ---- a snapshot that is being written when the generation ends */

static bool over;

bool __real_link_over(const struct link *r);
bool __wrap_link_over(const struct link *r);

bool __wrap_link_over(const struct link *r)
{
    return over || __real_link_over(r);
}

struct end_scene {
    const char *sync;
    bool apart;   /* each rank has a directory of its own */
    bool written; /* although the generation is over */
};

static void member_ends(struct ranks *r, int rank)
{
    const struct end_scene *scene = r->arg;
    CLEANUP(free_text) char *dir = xasprintf("%s/%d", directory, scene->apart ? rank : 0);
    CLEANUP(free_text) char *path = xasprintf("%s/step-2-g%d", dir, (int)FIRST);
    const struct meeting_place at = {.generation = FIRST, .rank = rank, .world = 2, .apart = scene->apart};
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    trainer_open_in(&t, &config, dir, 0, scene->sync);
    RANK_OK(meeting_form(r, meeting_of(r), &t, &at, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    meeting_train(&t, 2);
    over = true;
    const enum err_code code = keep_snapshot(&t, true, &e);
    RANK_CHECK(code == (scene->written || !t.saver ? ERR_OK : ERR_CANCELLED));
    RANK_CHECK(file_exists(path) == scene->written);
    over = false;
    meeting_close_trainer(&t, &config);
}

static void end_while_writing(const struct end_scene *scene)
{
    struct ranks r = {.world = 2, .arg = scene};

    for (int i = 0; i < 2; i++)
        r.node_of[i] = scene->apart ? i : 0;
    assert_true(ranks_run(&r, member_ends));
    ranks_release(&r);
}

static void a_snapshot_that_nobody_can_commit_is_not_written(void **state)
{
    (void)state;
    end_while_writing(&(struct end_scene){.sync = "{type: allreduce}"});
    end_while_writing(&(struct end_scene){.sync = QUORUM, .apart = true});
}

/* The other writer may have committed the same snapshot, and this node may be the only one that is left with it. */
static void a_copy_of_a_snapshot_that_may_count_is_written(void **state)
{
    (void)state;
    end_while_writing(&(struct end_scene){.sync = "{type: allreduce}", .apart = true, .written = true});
}

/* ---- */

static int directory_make(void **state)
{
    (void)state;
    memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
    return mkdtemp(directory) ? 0 : -1;
}

static int directory_remove(void **state)
{
    struct err e;

    (void)state;
    return file_remove_tree(directory, &e) ? -1 : 0;
}

#define KEEP_TEST(fn) cmocka_unit_test_setup_teardown(fn, directory_make, directory_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEEP_TEST(a_node_without_its_first_rank_has_a_writer),
        KEEP_TEST(a_shared_directory_has_one_writer),
        KEEP_TEST(a_round_without_a_late_writer_does_not_wait_for_its_lock),
        KEEP_TEST(a_generation_waits_for_a_writer_that_is_ending),
        KEEP_TEST(a_snapshot_that_nobody_can_commit_is_not_written),
        KEEP_TEST(a_copy_of_a_snapshot_that_may_count_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
