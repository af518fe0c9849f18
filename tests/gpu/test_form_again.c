/* Tests that processes with GPUs go on in one generation after another: members are killed, new ones come, and the others keep
 * their state in device memory. The GPU is emulated, and a stand-in for NCCL sums. The ranks do the coordinator's part
 * themselves, from a plan that all know. Without losses the same plan gives the same bits. One process, the witness, lives
 * through all generations and must hold no more at the end than at the beginning.
 *
 * With shard: optimizer the moments of a lost rank are gone. So here members only leave in order, or are lost while a group forms.
 * Each generation has another size, so each rank has another part of the moments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/unit/base/check.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/engine/memory.h"
#include "trainer/moments.h"
#include "trainer/resume.h"
#include "trainer/step.h"

enum {
    SLOTS = 8,
    WITNESS = 1,
    ERAS_MOST = 256,
    ERAS_FEW = 10,
    FIRST = 11,
    ERA_S = 10,
    NEWS_KB = 8192,
    ROOM_KB = 4100 /* allocated once, when a rank first sends its state to others */
};

/* ---- the plan: one era for each generation. Sets of slots are bits. */

enum end {
    IN_ORDER,      /* members leave between two steps, as in a hand-over */
    BEFORE_SUM,    /* members are killed before they send their gradients, so nobody has the sum */
    AFTER_SENDING, /* a member is killed with its gradients sent, so others may have the sum */
    FORMING,       /* a member is killed while NCCL forms, so no step is made */
    ENDS,
};
struct era {
    unsigned members, lost;
    enum end end;
    int steps;       /* before the step in which members are lost */
    bool ahead;      /* all but rank 0, which collects what is summed, finish that step */
    bool late_abort; /* ncclCommAbort takes a while */
    bool unnoticed;  /* NCCL does not notice the loss */
    unsigned newest; /* members of the next generation that have the newest state */
};
struct plan {
    int count;
    struct era eras[ERAS_MOST];
};

struct board {
    struct meeting meeting;
    atomic_int now; /* the era that the witness has reached */
    uint64_t hash[ERAS_MOST + 1][SLOTS];
};
_Static_assert(sizeof(struct board) <= sizeof(((struct ranks_shared *)0)->result), "room for the board");
_Static_assert((int)ERAS_MOST <= (int)MEETING_ROUNDS, "each era has a round of its own");

struct scene {
    const struct plan *plan;
    const char *sync; /* of the job file */
    bool disturbed, divided;
};

static unsigned draw(uint64_t *seed, unsigned below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*seed >> 33) % below;
}

static int size_of(unsigned slots)
{
    return __builtin_popcount(slots);
}

static bool has_slot(unsigned slots, int slot)
{
    return slots >> slot & 1;
}

static int rank_of(unsigned members, int slot)
{
    return size_of(members & ((1u << slot) - 1));
}

static int lowest_of(unsigned slots)
{
    return __builtin_ctz(slots);
}

/* A random slot of the set, but not the witness. */
static unsigned pick_one(uint64_t *seed, unsigned from)
{
    from &= ~(1u << WITNESS);
    if (!from)
        return 0;
    for (unsigned skip = draw(seed, (unsigned)size_of(from)); skip; skip--)
        from &= from - 1;
    return 1u << lowest_of(from);
}

static void era_draw(uint64_t *seed, const struct era *before, struct era *era, bool one_sum, bool divided)
{
    const int world = size_of(era->members);

    do
        era->end = (enum end)draw(seed, ENDS);
    while ((era->end == FORMING &&
            (!before || before->ahead)) || /* the only newest state could be lost with that member */
           (divided && era->end != IN_ORDER && era->end != FORMING));
    era->steps = era->end == FORMING ? 0 : (int)draw(seed, 3);
    era->steps += !before; /* without a step there is no state yet */
    if (era->end != IN_ORDER || (world > 2 && draw(seed, 2)))
        era->lost = pick_one(seed, era->members);
    if (era->end == BEFORE_SUM && world > 3 && draw(seed, 2))
        era->lost |= pick_one(seed, era->members);
    era->ahead = era->end == AFTER_SENDING && one_sum &&
                 (world > 2 || rank_of(era->members, lowest_of(era->lost)) == 0);
    era->late_abort = draw(seed, 2);
    era->unnoticed = era->end == BEFORE_SUM && draw(seed, 8) == 0;
    era->newest = era->end == FORMING ? before->newest : era->members;
    era->newest &= ~era->lost;
    if (era->ahead)
        era->newest &=
            ~(1u << lowest_of(era->members)); /* rank 0, if it is not the lost one, is a step behind */
}

/* one_sum: a step has one sum, so a rank that has it finishes the step. */
static void plan_draw(struct plan *plan, int count, uint64_t seed, bool one_sum, bool divided)
{
    unsigned members = 0x7; /* three ranks */

    *plan = (struct plan){.count = count};
    for (int g = 0; g < count; g++) {
        struct era *era = &plan->eras[g];

        era->members = members;
        era_draw(&seed, g ? &plan->eras[g - 1] : NULL, era, one_sum, divided);
        members &= ~era->lost;
        for (int wanted = 2 + (int)draw(&seed, SLOTS - 1); size_of(members) < wanted;)
            members |= pick_one(&seed, ~members & ((1u << SLOTS) - 1));
    }
}

/* ---- one process in one era */

static struct board *board_of(struct ranks *r)
{
    return (struct board *)(void *)r->shared->result;
}

/* Of this process, for the step or the forming in which members are lost. */
static void faults_set(const struct era *era, int slot)
{
    static const char *const killed[ENDS] = {"", "killed-before-sum", "killed-after-sending",
                                             "killed-forming"};
    const bool first = rank_of(era->members, slot) == 0, dies = has_slot(era->lost, slot);
    CLEANUP(free_text) char *faults = NULL;

    faults = xasprintf("%s,%s,%s,%s", dies ? killed[era->end] : "", era->late_abort ? "late-abort" : "",
                       era->unnoticed ? "unnoticed-death" : "",
                       era->end == AFTER_SENDING && first && !dies ? "fails-after-sum" : "");
    setenv("DDP_STANDIN_NCCL_FAULT", faults, 1);
}

static enum err_code era_form(struct ranks *r, struct trainer *t, const struct plan *plan, int g, int slot,
                              struct err *e)
{
    const struct era *era = &plan->eras[g];
    const struct meeting_place at = {
        .round = g,
        .generation = FIRST + g,
        .rank = rank_of(era->members, slot),
        .world = size_of(era->members),
        .live = g > 0,
        .source = g > 0 ? rank_of(era->members, lowest_of(plan->eras[g - 1].newest)) : 0,
    };
    return meeting_form(r, &board_of(r)->meeting, t, &at, e);
}

/* The step in which a member is lost. */
static void step_lost(struct trainer *t, const struct era *era, int slot)
{
    const int64_t before = t->engine.step;
    struct step s;
    struct err e = {0};
    bool epoch_ended;

    faults_set(era, slot);
    enum err_code code = trainer_step(t, &s, &epoch_ended, &e);
    RANK_CHECK(!has_slot(era->lost, slot)); /* it is dead */
    if (era->ahead && t->formation.rank > 0) {
        RANK_OK(code, &e);
    } else {
        RANK_CHECK(code == ERR_ABORTED);
        RANK_CHECK(t->engine.step == before);
    }
    RANK_CHECK(t->engine.whole);
}

static void era_leave(struct trainer *t)
{
    const struct device_ops *ops = t->engine.device->ops;
    struct err e = {0};

    RANK_CHECK(trainer_leave(t));
    if (ops->wait(t->engine.device, &e))
        RANK_OK(ops->wait(t->engine.device, &e), &e);
    setenv("DDP_STANDIN_NCCL_FAULT", "", 1);
}

/* ---- what the witness holds */

struct holds {
    int files, threads;
    long handles;
    size_t device, resident;
};

static int entries_of(const char *directory)
{
    DIR *d = opendir(directory);
    int count = 0;

    RANK_CHECK(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* From the emulated plugin, which is loaded already. */
static void *emulated_symbol(const char *name)
{
    void *plugin = dlopen(getenv("DDP_CUDA_PLUGIN"), RTLD_NOW), *found = plugin ? dlsym(plugin, name) : NULL;

    RANK_CHECK(found);
    dlclose(plugin);
    return found;
}

static struct holds holds_now(void)
{
    size_t (*device_bytes)(void);
    long (*handles)(void);
    void *at = emulated_symbol("emulated_device_bytes");

    memcpy(&device_bytes, &at, sizeof(at));
    at = emulated_symbol("emulated_handles");
    memcpy(&handles, &at, sizeof(at));
    return (struct holds){entries_of("/proc/self/fd"), entries_of("/proc/self/task"), handles(),
                          device_bytes(), memory_resident()};
}

/* This also holds after eras that failed to form. Every rank that could be lost had come when the group was opened on
 * the device. So all ranks had taken rank 0's id, and its socket ended with the group. */
static void holds_no_more(const struct holds *first)
{
    const struct holds now = holds_now();

    RANK_CHECK(now.files <= first->files);
    RANK_CHECK(now.threads == first->threads);
    RANK_CHECK(now.handles == first->handles);
    RANK_CHECK(now.device <= first->device + ((size_t)ROOM_KB << 10));
#ifndef __SANITIZE_ADDRESS__ /* it keeps freed memory for a while */
    RANK_CHECK(now.resident < first->resident + ((size_t)NEWS_KB << 10));
#endif
}

/* ---- the life of a process */

static void wait_for_era(struct ranks *r, int g)
{
    while (atomic_load(&board_of(r)->now) < g)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Makes the steps of the era. In an era that is disturbed, survivors come out of it without a group. */
static void era_train(struct trainer *t, const struct era *era, int slot, bool disturbed)
{
    RANK_CHECK(coll_joined_ns(t->formation.group) >= 0); /* NCCL sums, not the host */
    meeting_train(t, era->steps);
    if (disturbed && era->lost && era->end != IN_ORDER)
        step_lost(t, era, slot);
    else
        meeting_train(t, era->ahead);
    t->served_step = t->engine.step;
}

/* What ranks do before a hand-over. */
static void era_hold(struct trainer *t)
{
    struct err e = {0};

    RANK_OK(moments_hold(t, &e), &e);
    RANK_CHECK(moments_held(t));
}

/* Returns false if the process ends with the era. */
static bool era_live(struct ranks *r, struct trainer *t, int g, int slot)
{
    const struct scene *scene = r->arg;
    const struct era *era = &scene->plan->eras[g];
    struct err e = {0};

    if (era->end == FORMING && !scene->disturbed)
        return !has_slot(era->lost, slot);
    wait_for_era(r, g);
    if (era->end == FORMING)
        faults_set(era, slot);
    enum err_code code = era_form(r, t, scene->plan, g, slot, &e);
    if (era->end == FORMING) {
        RANK_CHECK(code == ERR_ABORTED);
        return true;
    }
    RANK_OK(code, &e);
    RANK_OK(trainer_restore(t, &e), &e);
    RANK_CHECK(t->engine.whole);
    board_of(r)->hash[g][slot] = meeting_hash(t);
    era_train(t, era, slot, scene->disturbed);
    if (scene->divided)
        era_hold(t);
    return !has_slot(era->lost, slot);
}

static void slot_live(struct ranks *r, int slot, int first)
{
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    struct holds holds = {0};
    const int warm = scene->plan->count / 4;

    meeting_open_trainer(&t, &config, scene->sync, "");
    for (int g = first; g < scene->plan->count; g++) {
        if (slot == WITNESS)
            atomic_store(&board_of(r)->now, g);
        if (!era_live(r, &t, g, slot))
            break;
        era_leave(&t);
        if (slot == WITNESS && g == warm)
            holds = holds_now();
        else if (slot == WITNESS && g > warm)
            holds_no_more(&holds);
    }
    if (has_slot(scene->plan->eras[scene->plan->count - 1].newest, slot))
        board_of(r)->hash[ERAS_MOST][slot] = meeting_hash(&t);
    meeting_close_trainer(&t, &config);
}

/* ---- the processes */

static pid_t slot_start(struct ranks *r, int slot, int first)
{
    const struct scene *scene = r->arg;

    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm((unsigned)(scene->plan->count * ERA_S * test_slow()));
        slot_live(r, slot, first);
        fflush(NULL);
        _exit(0);
    }
    return pid;
}

/* Returns the first era from `from` on in which the slot is a member; plan->count: none. */
static int next_member(const struct plan *plan, int slot, int from)
{
    while (from < plan->count && !has_slot(plan->eras[from].members, slot))
        from++;
    return from;
}

/* Returns the era in which a process ends that begins in `from`; plan->count: it reaches the end of the plan. */
static int life_end(const struct plan *plan, int slot, int from)
{
    while (from < plan->count && !has_slot(plan->eras[from].lost, slot))
        from++;
    return from;
}

/* Starts a process for each slot, and another one when a process has ended as planned. */
static void plan_run(struct ranks *r)
{
    const struct scene *scene = r->arg;
    const struct plan *plan = scene->plan;
    pid_t pids[SLOTS] = {0};
    int first[SLOTS], alive = 0, status;

    for (int slot = 0; slot < SLOTS; slot++) {
        first[slot] = next_member(plan, slot, 0);
        if (first[slot] < plan->count)
            pids[slot] = slot_start(r, slot, first[slot]);
        alive += pids[slot] > 0;
    }
    while (alive > 0) {
        const pid_t pid = waitpid(-1, &status, 0);
        int slot = 0;

        while (slot < SLOTS && pids[slot] != pid)
            slot++;
        assert_true(slot < SLOTS);
        const int end = life_end(plan, slot, first[slot]);
        const bool killed = scene->disturbed && end < plan->count && plan->eras[end].end != IN_ORDER;
        const bool good = killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
        if (!good)
            print_error("slot %d from era %d to %d ended with status %#x\n", slot, first[slot], end,
                        (unsigned)status);
        assert_true(good); /* the others end with this process */
        first[slot] = next_member(plan, slot, end + 1);
        pids[slot] = first[slot] < plan->count ? slot_start(r, slot, first[slot]) : 0;
        alive -= !pids[slot];
    }
}

/* Runs the plan with losses and without. */
static void both_give_the_same_bits(int count, uint64_t seed, const char *sync, bool one_sum, bool divided)
{
    static struct plan plan;
    struct ranks ranks[2];

    plan_draw(&plan, count, seed, one_sum, divided);
    for (int i = 0; i < 2; i++) {
        const struct scene scene = {.plan = &plan, .sync = sync, .disturbed = i, .divided = divided};
        struct err e = {0};

        ranks[i] = (struct ranks){.world = 0, .arg = &scene};
        ranks_prepare(&ranks[i]);
        CLEANUP(free_text) char *node = xasprintf("%s/0", ranks[i].directory);
        assert_int_equal(mkdir(node, 0700), 0);
        plan_run(&ranks[i]);
        assert_int_equal(file_remove_tree(ranks[i].directory, &e), ERR_OK);
    }
    for (int g = 0; g <= ERAS_MOST; g++)
        for (int slot = 0; slot < SLOTS; slot++)
            if (g == ERAS_MOST || (g < count && plan.eras[g].end != FORMING))
                assert_true(board_of(&ranks[0])->hash[g][slot] == board_of(&ranks[1])->hash[g][slot]);
    for (int i = 0; i < 2; i++)
        ranks_release(&ranks[i]);
}

static int eras_wanted(void)
{
    const char *eras = getenv("DDP_TEST_ERAS");

    return eras ? atoi(eras) : ERAS_FEW;
}

static void members_are_lost_and_come_and_the_bits_stay(void **state)
{
    (void)state;
    both_give_the_same_bits(eras_wanted(), 7, "{type: allreduce}", true, false);
}

/* Each group has memory on the device for these sums. Loss and votes are a sum of their own, as floats. */
static void the_same_with_gradients_as_bf16(void **state)
{
    (void)state;
    both_give_the_same_bits(eras_wanted(), 8, "{type: allreduce, wire: bf16}", false, false);
}

static void the_same_with_an_optimizer_in_parts(void **state)
{
    (void)state;
    both_give_the_same_bits(eras_wanted(), 9, "{type: allreduce}\n  shard: optimizer", true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_lost_and_come_and_the_bits_stay),
        cmocka_unit_test(the_same_with_gradients_as_bf16),
        cmocka_unit_test(the_same_with_an_optimizer_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
