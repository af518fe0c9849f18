/* Runs a kernel: its blocks one after another, and the threads of a block as fibers.
 *
 * A fiber runs threads one by one, each to its end. A thread that must wait, for its block or for lanes of its warp,
 * keeps its fiber, and another fiber goes on with the remaining threads. Therefore the threads of a kernel that never
 * waits all run on one fiber, as in a plain loop. If no thread can go on and some have not ended, the kernel has a
 * mistake: threads wait for others that have ended or that wait elsewhere.
 *
 * With a seed, blocks and threads run in another order each time, so that a kernel whose result depends on the order
 * gives wrong results. Shared memory holds NaN at the start of a block. */
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/mem.h"
#include "fiber.h"
#include "include/emulated_block.h"
#include "internal.h"

enum { THREADS = 1024, LANES = 32, VALUE = 32, SHARED = 101376, POISON = 0xff, COPIES = 64 };

/* The values that the lanes of a mask exchange. It is taken from the free ones when the first lane arrives, and freed
 * when all lanes have begun their next exchange. */
struct exchange {
    unsigned mask, arrived, holders;
    enum emulated_kind kind;
    int line;
    size_t bytes;
    const char *file;
    _Alignas(16) unsigned char values[LANES][VALUE];
};

struct copy {
    void *to;
    const void *from; /* NULL: fill with zeros */
    size_t bytes;
};

struct thread {
    struct fiber fiber;
    struct emulated_place here;
    unsigned id;
    struct copy copies[COPIES]; /* copies that the thread has begun and not waited for */
    unsigned n_copies;
};

struct warp {
    struct exchange *of[LANES]; /* the exchange that a lane reads or waits for */
    struct thread *waiting[LANES];
};

struct order { /* position i runs number (i * step + first) % count */
    uint64_t count, step, first;
};

static struct {
    const struct kernel_call *kernel;
    void *arguments;
    struct thread *threads[THREADS]; /* all fibers made so far; later launches use them again */
    unsigned made;
    struct thread *idle[THREADS], *ready[THREADS], *waiting[THREADS];
    unsigned n_idle, ready_first, n_ready, n_waiting;
    unsigned count, started, ended;
    struct order order;
    bool backwards; /* the thread that became ready last runs first */
    const char *file;
    int line; /* file and line of the barrier at which the threads in `waiting` wait */
    struct warp warps[THREADS / LANES];
    struct exchange exchanges[2 * THREADS], *free_exchanges[2 * THREADS];
    unsigned n_free_exchanges;
    struct thread *now;
    struct emulated_place place; /* the running block; its `thread` is unused */
    struct fiber main;
    char *shared; /* as large as a block may have; an inaccessible page follows */
    char fault[512];
} at;

const struct emulated_place *emulated_here;

const char *block_running(void)
{
    return at.kernel ? at.kernel->name : NULL;
}

static uint64_t order_at(const struct order *o, uint64_t i)
{
    return (i * o->step + o->first) % o->count;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static struct order order_draw(uint64_t count)
{
    struct order o = {count, 1, 0};
    if (!emulated_seed() || count < 2)
        return o;
    o.first = emulated_draw(count);
    o.step = 1 + emulated_draw(count < 1 << 20 ? count : 1 << 20);
    while (common_divisor(o.step, count) != 1)
        o.step++;
    return o;
}

/* ---- scheduling */

static void block_entry(void);

static void thread_resume(struct thread *t)
{
    struct thread *from = at.now;
    if (from == t)
        return;
    at.now = t;
    emulated_here = t ? &t->here : NULL;
    fiber_switch(from ? &from->fiber : &at.main, t ? &t->fiber : &at.main);
}

static struct thread *thread_idle(void)
{
    if (at.n_idle)
        return at.idle[--at.n_idle];
    BUG_ON(at.made == THREADS);
    struct thread *t = xcalloc(1, sizeof *t);
    at.threads[at.made++] = t;
    fiber_start(&t->fiber, block_entry);
    t->here = at.place;
    return t;
}

static struct thread *ready_pop(void)
{
    if (!at.n_ready)
        return NULL;
    at.n_ready--;
    if (at.backwards)
        return at.ready[(at.ready_first + at.n_ready) % THREADS];
    struct thread *t = at.ready[at.ready_first];
    at.ready_first = (at.ready_first + 1) % THREADS;
    return t;
}

static void ready_push(struct thread *t)
{
    at.ready[(at.ready_first + at.n_ready++) % THREADS] = t;
}

/* Switches to a fiber that can go on, because the calling one cannot. If there is none, switches to the context of
 * the launch, which then explains the stall. */
static void pass_on(void)
{
    struct thread *next = ready_pop();
    if (!next && at.started < at.count)
        next = thread_idle();
    thread_resume(next);
}

static void thread_begin(struct thread *t)
{
    const unsigned *n = at.kernel->block;
    t->id = (unsigned)order_at(&at.order, at.started++);
    t->n_copies = 0;
    t->here.block = at.place.block;
    t->here.threads = at.place.threads;
    t->here.blocks = at.place.blocks;
    if (n[0] == at.count)
        t->here.thread = (struct emulated_index){t->id, 0, 0};
    else
        t->here.thread = (struct emulated_index){t->id % n[0], t->id / n[0] % n[1], t->id / n[0] / n[1]};
}

static void block_entry(void)
{
    for (;;) {
        struct thread *t = at.now;
        while (at.started < at.count) {
            thread_begin(t);
            at.kernel->call(at.arguments);
            if (t->n_copies)
                emulated_trap("ends with %u copies under way", t->n_copies);
            at.ended++;
        }
        at.idle[at.n_idle++] = t;
        thread_resume(ready_pop());
    }
}

/* ---- what threads call */

void emulated_trap(const char *format, ...)
{
    char what[384];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const struct emulated_index *t = &at.now->here.thread, *b = &at.now->here.block;
    snprintf(at.fault, sizeof at.fault, "thread (%u,%u,%u) of block (%u,%u,%u): %s", t->x, t->y, t->z, b->x,
             b->y, b->z, what);
    thread_resume(NULL);
    BUG_ON(true); /* the launch discards this fiber, so this point is never reached */
    __builtin_unreachable();
}

void *emulated_dynamic_shared(void)
{
    return at.shared + SHARED - (at.kernel->shared + 15) / 16 * 16;
}

int emulated_lane(void)
{
    return (int)(at.now->id % LANES);
}

static bool is_place(const char *file, int line, const char *other, int other_line)
{
    return line == other_line && (file == other || strcmp(file, other) == 0);
}

void emulated_barrier(const char *file, int line)
{
    if (at.n_waiting && !is_place(at.file, at.line, file, line))
        emulated_trap("is at the barrier of %s:%d, others at that of %s:%d", file, line, at.file, at.line);
    if (at.n_waiting + 1 == at.count) {
        for (unsigned i = 0; i < at.n_waiting; i++)
            ready_push(at.waiting[i]);
        at.n_waiting = 0;
        return;
    }
    at.file = file;
    at.line = line;
    at.waiting[at.n_waiting++] = at.now;
    pass_on();
}

static void exchange_release(struct warp *w, int lane)
{
    struct exchange *x = w->of[lane];
    w->of[lane] = NULL;
    if (x && --x->holders == 0)
        at.free_exchanges[at.n_free_exchanges++] = x;
}

/* Returns the exchange in which other lanes of this mask already wait, or else a new one. */
static struct exchange *exchange_join(struct warp *w, unsigned mask)
{
    for (int i = 0; i < LANES; i++)
        if (mask >> i & 1 && w->waiting[i] && w->of[i]->mask == mask)
            return w->of[i];
    BUG_ON(!at.n_free_exchanges);
    struct exchange *x = at.free_exchanges[--at.n_free_exchanges];
    x->mask = mask;
    x->arrived = 0;
    x->holders = 0;
    return x;
}

const unsigned char *emulated_exchange(enum emulated_kind kind, unsigned mask, const void *mine, size_t bytes,
                                       const char *file, int line)
{
    int lane = emulated_lane();
    struct warp *w = &at.warps[at.now->id / LANES];
    if (!(mask >> lane & 1))
        emulated_trap("%s:%d: the mask %08x leaves out the lane that calls, %d", file, line, mask, lane);
    BUG_ON(bytes > VALUE);
    exchange_release(w, lane);
    struct exchange *x = exchange_join(w, mask);
    if (x->arrived && (x->kind != kind || x->bytes != bytes || !is_place(x->file, x->line, file, line)))
        emulated_trap("is at %s:%d, other lanes of its mask at %s:%d", file, line, x->file, x->line);
    x->kind = kind;
    x->bytes = bytes;
    x->file = file;
    x->line = line;
    x->arrived |= 1u << lane;
    x->holders++;
    w->of[lane] = x;
    if (bytes)
        memcpy(x->values[lane], mine, bytes);
    if (x->arrived != mask) {
        w->waiting[lane] = at.now;
        pass_on();
        return x->values[0];
    }
    for (int i = 0; i < LANES; i++)
        if (mask >> i & 1 && i != lane) {
            ready_push(w->waiting[i]);
            w->waiting[i] = NULL;
        }
    return x->values[0];
}

static void copy_do(const struct copy *c)
{
    if (c->from)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, 0, c->bytes);
}

void emulated_copy_begin(void *to, const void *from, size_t bytes)
{
    struct thread *t = at.now;
    struct copy c = {to, from, bytes};
    if (emulated_seed() && emulated_draw(2)) {
        copy_do(&c);
        return;
    }
    if (t->n_copies == COPIES)
        emulated_trap("%d copies under way", COPIES);
    t->copies[t->n_copies++] = c;
}

void emulated_copy_wait(void)
{
    for (unsigned i = 0; i < at.now->n_copies; i++)
        copy_do(&at.now->copies[i]);
    at.now->n_copies = 0;
}

/* ---- a block */

/* The memory of all `__shared__` variables: they are thread-local variables of this library, and this is the calling
 * thread's instance of them. */
struct storage {
    void *start;
    size_t bytes;
};

static _Thread_local char present; /* so the library always has a thread-local segment, in which this lies */

static int storage_find(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    struct storage *s = arg;
    const char *begin = info->dlpi_tls_data;
    for (int i = 0; begin && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_TLS && &present >= begin && &present < begin + p->p_memsz) {
            s->start = info->dlpi_tls_data;
            s->bytes = p->p_memsz;
        }
    }
    return s->start != NULL;
}

static struct storage storage_of_thread(void)
{
    struct storage s = {NULL, 0};
    present = 1;
    dl_iterate_phdr(storage_find, &s);
    return s;
}

static void explain_stall(void)
{
    unsigned lanes = 0;
    const struct exchange *x = NULL;
    for (unsigned i = 0; i < (at.count + LANES - 1) / LANES; i++)
        for (int j = 0; j < LANES; j++)
            if (at.warps[i].waiting[j]) {
                lanes++;
                x = at.warps[i].of[j];
            }
    int n = snprintf(at.fault, sizeof at.fault, "block (%u,%u,%u): %u of %u threads ended", at.place.block.x,
                     at.place.block.y, at.place.block.z, at.ended, at.count);
    if (at.n_waiting)
        n += snprintf(at.fault + n, sizeof at.fault - (size_t)n, ", %u wait at the barrier of %s:%d",
                      at.n_waiting, at.file, at.line);
    if (lanes)
        snprintf(at.fault + n, sizeof at.fault - (size_t)n, ", %u for lanes of their mask, %08x, at %s:%d",
                 lanes, x->mask, x->file, x->line);
}

static void block_reset(void)
{
    at.n_ready = at.ready_first = at.n_waiting = at.started = at.ended = 0;
    for (unsigned i = 0; i < (at.count + LANES - 1) / LANES; i++)
        memset(&at.warps[i], 0, sizeof at.warps[i]);
    at.n_free_exchanges = 0;
    for (unsigned i = 0; i < at.count * 2; i++)
        at.free_exchanges[at.n_free_exchanges++] = &at.exchanges[at.count * 2 - 1 - i];
}

/* Discards fibers that were left in the middle of a block. */
static void fibers_restart(void)
{
    at.n_idle = 0;
    for (unsigned i = 0; i < at.made; i++) {
        fiber_start(&at.threads[i]->fiber, block_entry);
        at.idle[at.n_idle++] = at.threads[i];
    }
}

static void block_run(const struct storage *fixed)
{
    memset(fixed->start, POISON, fixed->bytes);
    size_t dynamic = (at.kernel->shared + 15) / 16 * 16;
    memset(at.shared + SHARED - dynamic, POISON, dynamic);
    block_reset();
    at.order = order_draw(at.count);
    at.backwards = emulated_seed() && emulated_draw(2);
    thread_resume(thread_idle());
    if (at.ended != at.count) {
        if (!at.fault[0])
            explain_stall();
        fibers_restart();
    }
}

static void shared_make(void)
{
    enum { PAGE = 4096, ROOM = (SHARED + PAGE - 1) / PAGE * PAGE };
    if (at.shared)
        return;
    char *p = mmap(NULL, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BUG_ON(p == MAP_FAILED || mprotect(p + ROOM, PAGE, PROT_NONE));
    at.shared = p + ROOM - SHARED;
}

void block_run_all(const struct kernel_call *k, void *arguments)
{
    struct storage fixed = storage_of_thread();
    shared_make();
    at.kernel = k;
    at.arguments = arguments;
    at.count = k->block[0] * k->block[1] * k->block[2];
    at.place.threads = (struct emulated_index){k->block[0], k->block[1], k->block[2]};
    at.place.blocks = (struct emulated_index){k->grid[0], k->grid[1], k->grid[2]};
    at.fault[0] = '\0';
    struct order blocks = order_draw((uint64_t)k->grid[0] * k->grid[1] * k->grid[2]);
    for (uint64_t i = 0; i < blocks.count && !at.fault[0]; i++) {
        uint64_t id = order_at(&blocks, i);
        at.place.block =
            (struct emulated_index){(unsigned)(id % k->grid[0]), (unsigned)(id / k->grid[0] % k->grid[1]),
                                    (unsigned)(id / k->grid[0] / k->grid[1])};
        block_run(&fixed);
    }
    at.kernel = NULL;
    if (at.fault[0])
        runtime_break(cudaErrorLaunchFailure, "kernel %s: %s", k->name, at.fault);
}
