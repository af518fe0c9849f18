#include "tests/gpu/lives.h"

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
#include "trainer/engine/memory.h"
#include "trainer/engine/step.h"
#include "trainer/resume.h"

enum {
    FIRST = 11,
    ERA_S = 10,
    NEWS_KB = 8192,
    ROOM_KB = 4100 /* allocated once, when a rank first sends its state to others */
};

struct board {
    struct meeting meeting;
    atomic_int now; /* the era that the witness has reached */
    uint64_t hash[ERAS_MOST + 1][SLOTS];
    double loss[ERAS_MOST][SLOTS]; /* of the last step */
};
_Static_assert(sizeof(struct board) <= sizeof(((struct ranks_shared *)0)->result), "room for the board");
_Static_assert((int)ERAS_MOST <= (int)MEETING_ROUNDS, "each era has a round of its own");

unsigned draw(uint64_t *seed, unsigned below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*seed >> 33) % below;
}

int size_of(unsigned slots)
{
    return __builtin_popcount(slots);
}

bool has_slot(unsigned slots, int slot)
{
    return slots >> slot & 1;
}

int rank_of(unsigned members, int slot)
{
    return size_of(members & ((1u << slot) - 1));
}

int lowest_of(unsigned slots)
{
    return __builtin_ctz(slots);
}

unsigned pick_one(uint64_t *seed, unsigned from)
{
    from &= ~(1u << WITNESS);
    if (!from)
        return 0;
    for (unsigned skip = draw(seed, (unsigned)size_of(from)); skip; skip--)
        from &= from - 1;
    return 1u << lowest_of(from);
}

int eras_wanted(int few)
{
    const char *eras = getenv("DDP_TEST_ERAS");

    return eras ? atoi(eras) : few;
}

/* ---- one process in one era */

static struct board *board_of(struct ranks *r)
{
    return (struct board *)(void *)r->shared->result;
}

void faults_set(const struct era *era, int slot)
{
    static const char *const killed[WITHIN + 1] = {"", "killed-before-sum", "killed-after-sending",
                                                   "killed-forming", ""};
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

static void era_leave(struct ranks *r, struct trainer *t, int g, int slot)
{
    struct err e = {0};

    RANK_CHECK(trainer_leave(t));
    (void)!t->engine.device->ops->wait(t->engine.device, &e); /* it may report that a wait was cut off */
    RANK_OK(step_settle(&t->engine, &e), &e);
    board_of(r)->loss[g][slot] = t->engine.loss;
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

/* Of the state, and of the shared model where that is another array. */
static uint64_t era_hash(const struct trainer *t)
{
    static float shared[MEETING_FLOATS];
    const size_t bytes = t->engine.model->count * sizeof(float);
    const struct device_ops *ops = t->engine.device->ops;

    RANK_CHECK(bytes <= sizeof(shared));
    ops->download(t->engine.device, shared, sync_shared(t->formation.sync), bytes);
    return meeting_hash(t) * 31 + ranks_hash(shared, bytes) * 7 +
           (uint64_t)(t->engine.step * 1000000 + t->engine.samples);
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
    board_of(r)->hash[g][slot] = era_hash(t);
    RANK_CHECK(coll_joined_ns(t->formation.group) >= 0); /* NCCL sums, not the host */
    scene->work(scene, t, era, slot);
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
        era_leave(r, &t, g, slot);
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

static void plan_play(struct ranks *r)
{
    struct err e = {0};

    ranks_prepare(r);
    CLEANUP(free_text) char *node = xasprintf("%s/0", r->directory);
    assert_int_equal(mkdir(node, 0700), 0);
    plan_run(r);
    assert_int_equal(file_remove_tree(r->directory, &e), ERR_OK);
}

static void era_compare(const struct scene *scene, const struct board *one, const struct board *other, int g)
{
    const struct era *era = g < ERAS_MOST ? &scene->plan->eras[g] : NULL;

    for (int slot = 0; slot < SLOTS; slot++) {
        if (one->hash[g][slot] != other->hash[g][slot])
            fail_msg("%s: slot %d has other bits in era %d", scene->sync, slot, g);
        if (scene->own_losses && era && has_slot(era->members & ~era->lost, slot) &&
            memcmp(&one->loss[g][slot], &other->loss[g][slot], sizeof(double)))
            fail_msg("%s: slot %d has another loss in era %d", scene->sync, slot, g);
    }
}

void both_give_the_same_bits(const struct scene *scene)
{
    const struct plan *plan = scene->plan;
    struct ranks ranks[2];

    for (int i = 0; i < 2; i++) {
        struct scene played = *scene;

        played.disturbed = i;
        ranks[i] = (struct ranks){.world = 0, .arg = &played};
        plan_play(&ranks[i]);
    }
    for (int g = 0; g <= ERAS_MOST; g++)
        if (g == ERAS_MOST || (g < plan->count && plan->eras[g].end != FORMING))
            era_compare(scene, board_of(&ranks[0]), board_of(&ranks[1]), g);
    for (int i = 0; i < 2; i++)
        ranks_release(&ranks[i]);
}
