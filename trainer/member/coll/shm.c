/* The control segment of a node. There are two sets of mailboxes and staging areas, which alternate: a rank
 * that enters meeting k + 2 has passed meeting k + 1, and every rank entered that one after it was done with
 * the data of meeting k. Therefore one barrier is enough for a small call, and mail needs no second barrier
 * to protect it.
 *
 * A waiter spins first (peers on other cores arrive within a microsecond), then calls sched_yield (with more
 * ranks than cores, the peer needs this core), then waits on a futex. After each futex wait of 2 ms the
 * sockets are checked: end of file means that the peer has died, unless the barrier is complete, since a peer
 * may leave after the last barrier. */
#include "trainer/member/coll/shm.h"
#include "trainer/member/coll/listener.h"

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/member/coll/fd_passing.h"
#include "trainer/member/coll/handshake.h"
#include "trainer/member/coll/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 200
#define YIELDS 100
#define FUTEX_NS 2000000
#define PHASE 2u
#define STOPPED 1u

struct slot {
    _Alignas(64) struct shm_intent intent;
    uint64_t sequence;
    char mail[SHM_MAIL];
};

struct control {
    _Alignas(64) atomic_uint arrived;
    /* The futex word: number of completed barriers times PHASE, and the flag STOPPED. */
    _Alignas(64) atomic_uint phase;
    atomic_uint sleepers;
    _Alignas(4096) char stage[2][SHM_STAGE];
    struct slot slots[]; /* [2][locals] */
};

struct shm {
    _Atomic(struct control *) control;
    size_t size;
    int *links; /* sockets: the first rank has one to each other rank, the others have one to the first */
    int link_count;
    uint64_t sequence; /* number of the current meeting */
};

static long futex_call(atomic_uint *word, int op, unsigned value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static void spin_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* ---- stopping */

void shm_abort(struct coll_group *g)
{
    struct shm *s = g->shm;
    struct control *c = s ? atomic_load(&s->control) : NULL;

    if (!c)
        return;
    /* A thread that is about to sleep sees a changed value, and does not sleep. */
    atomic_fetch_or(&c->phase, STOPPED);
    futex_call(&c->phase, FUTEX_WAKE, INT32_MAX, NULL);
    for (int i = 0; i < s->link_count; i++)
        if (s->links[i] >= 0)
            shutdown(s->links[i], SHUT_RDWR);
}

const int *shm_links(const struct coll_group *g, int *count)
{
    *count = g->shm ? g->shm->link_count : 0;
    return g->shm ? g->shm->links : NULL;
}

static bool peer_died(const struct coll_group *g)
{
    const struct shm *s = g->shm;
    char byte;

    for (int i = 0; i < s->link_count; i++) {
        ssize_t n = recv(s->links[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return true;
    }
    /* The other ranks of this node may wait for a pair with the lost peer. This rank waits for them, so it must end their wait. */
    return g->opening_pairs && ring_hung_up(g);
}

static enum err_code give_up(struct coll_group *g, struct err *e)
{
    coll_fail(g);
    return coll_stopped(e);
}

/* ---- the barrier */

/* A completed barrier succeeds, even if the group was stopped right after it. */
static bool phase_completed(struct control *c, unsigned phase)
{
    return ((atomic_load(&c->phase) ^ phase) & ~STOPPED) != 0;
}

static bool phase_spin(struct control *c, unsigned phase)
{
    for (int i = 0; i < SPINS + YIELDS; i++) {
        if (atomic_load_explicit(&c->phase, memory_order_acquire) != phase)
            return true;
        if (i < SPINS)
            spin_relax();
        else
            sched_yield();
    }
    return false;
}

static void phase_sleep(struct coll_group *g, struct control *c, unsigned phase)
{
    const struct timespec timeout = {.tv_nsec = FUTEX_NS};

    atomic_fetch_add(&c->sleepers, 1);
    /* A peer that was killed does not wake the waiters, so each timeout checks the sockets. */
    while (atomic_load(&c->phase) == phase && !atomic_load(&g->stop.set))
        if (futex_call(&c->phase, FUTEX_WAIT, phase, &timeout) && errno == ETIMEDOUT && peer_died(g))
            break;
    atomic_fetch_sub(&c->sleepers, 1);
}

static enum err_code wait_phase(struct coll_group *g, struct control *c, unsigned phase, struct err *e)
{
    int64_t start;

    if (atomic_load_explicit(&c->phase, memory_order_acquire) == phase) {
        start = clock_mono_ns();
        if (!phase_spin(c, phase))
            phase_sleep(g, c, phase);
        g->wait_ns += (uint64_t)(clock_mono_ns() - start);
    }
    return phase_completed(c, phase) ? ERR_OK : give_up(g, e);
}

enum err_code shm_barrier(struct coll_group *g, struct err *e)
{
    struct control *c = atomic_load_explicit(&g->shm->control, memory_order_relaxed);
    unsigned phase = atomic_load(&c->phase);

    if ((phase & STOPPED) || atomic_load(&g->stop.set))
        return give_up(g, e);
    if (atomic_fetch_add(&c->arrived, 1) + 1 < (unsigned)g->layout.locals)
        return wait_phase(g, c, phase, e);
    atomic_store(&c->arrived, 0);
    atomic_fetch_add(&c->phase, PHASE);
    if (atomic_load(&c->sleepers))
        futex_call(&c->phase, FUTEX_WAKE, INT32_MAX, NULL);
    return ERR_OK;
}

/* ---- meetings */

static struct slot *slot_of(struct coll_group *g, uint64_t sequence, int local)
{
    struct control *c = atomic_load_explicit(&g->shm->control, memory_order_relaxed);

    return &c->slots[(size_t)(sequence & 1) * (size_t)g->layout.locals + (size_t)local];
}

void *shm_mail(struct coll_group *g, int local)
{
    return slot_of(g, g->shm->sequence, local)->mail;
}

void *shm_stage(struct coll_group *g)
{
    return atomic_load_explicit(&g->shm->control, memory_order_relaxed)->stage[g->shm->sequence & 1];
}

static enum err_code intent_mismatch(struct coll_group *g, int local, struct err *e)
{
    struct slot *mine = slot_of(g, g->shm->sequence, g->layout.local);
    struct slot *theirs = slot_of(g, g->shm->sequence, local);

    coll_fail(g);
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "ranks disagree about call %llu: rank %d is in kind %llu with size %llu, rank %d in kind %llu "
        "with size %llu",
        (unsigned long long)g->shm->sequence, g->layout.rank, (unsigned long long)mine->intent.kind,
        (unsigned long long)mine->intent.size, coll_layout_rank(&g->layout, g->layout.node, local),
        (unsigned long long)theirs->intent.kind, (unsigned long long)theirs->intent.size);
}

void shm_begin(struct coll_group *g)
{
    g->shm->sequence++;
}

enum err_code shm_meet(struct coll_group *g, const struct shm_intent *intent, struct err *e)
{
    struct slot *mine = slot_of(g, g->shm->sequence, g->layout.local);

    mine->intent = *intent;
    mine->sequence = g->shm->sequence;
    if (shm_barrier(g, e))
        return e->code;
    for (int i = 0; i < g->layout.locals; i++) {
        struct slot *theirs = slot_of(g, g->shm->sequence, i);

        if (theirs->sequence != mine->sequence || memcmp(&theirs->intent, intent, sizeof(*intent)))
            return intent_mismatch(g, i, e);
    }
    return ERR_OK;
}

/* ---- forming */

static size_t control_size(const struct coll_group *g)
{
    return sizeof(struct control) + 2 * (size_t)g->layout.locals * sizeof(struct slot);
}

static enum err_code map_control(struct coll_group *g, int fd, struct err *e)
{
    void *at = mmap(NULL, g->shm->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED)
        return err_sys(e, errno, "map the control segment");
    atomic_store(&g->shm->control, at);
    return atomic_load(&g->stop.set) ? coll_stopped(e) : ERR_OK;
}

static enum err_code give_control(struct coll_group *g, struct err *e)
{
    CLEANUP(close_fd) int fd = -1;
    struct fd_message message = {.bytes = g->shm->size};

    if (device_shared_pages(&fd, "ddp-control", g->shm->size, e) || map_control(g, fd, e))
        return e->code;
    for (int i = 0; i < g->shm->link_count; i++)
        if (fd_send(g, g->shm->links[i], &message, fd, e))
            return e->code;
    return ERR_OK;
}

static enum err_code take_control(struct coll_group *g, struct err *e)
{
    CLEANUP(close_fd) int fd = -1;
    struct fd_message message;

    if (fd_receive(g, g->shm->links[0], &message, &fd, e))
        return e->code;
    if (fd < 0 || message.bytes != g->shm->size)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the first rank of this node runs another version of ddp-trainer");
    return map_control(g, fd, e);
}

static enum err_code connect_node(struct coll_group *g, struct coll_listener *listener, int64_t deadline,
                                  struct err *e)
{
    const struct coll_layout *l = &g->layout;
    const int *node = l->ranks + l->first[l->node];
    bool first = l->local == 0;
    struct coll_handshake meet = {
        .group = g,
        .purpose = COLL_HANDSHAKE_NODE,
        .listener = coll_listener_unix(listener),
        .to = node,
        .out = g->shm->links,
        .to_count = first ? 0 : 1,
        .from = node + 1,
        .in = g->shm->links,
        .from_count = first ? l->locals - 1 : 0,
        .deadline = deadline,
    };

    return coll_handshake_run(&meet, e);
}

enum err_code shm_open_node(struct coll_group *g, struct coll_listener *listener, int64_t deadline,
                            struct err *e)
{
    struct shm *s = xcalloc(1, sizeof(*s));

    s->size = control_size(g);
    s->link_count = g->layout.local ? 1 : g->layout.locals - 1;
    s->links = xcalloc((size_t)s->link_count, sizeof(int));
    for (int i = 0; i < s->link_count; i++)
        s->links[i] = -1;
    g->shm = s;
    if (connect_node(g, listener, deadline, e))
        return e->code;
    return g->layout.local ? take_control(g, e) : give_control(g, e);
}

void shm_close(struct coll_group *g)
{
    struct shm *s = g->shm;

    if (!s)
        return;
    for (int i = 0; i < s->link_count; i++)
        close_fd(&s->links[i]);
    if (atomic_load(&s->control))
        munmap(atomic_load(&s->control), s->size);
    free(s->links);
    free(s);
    g->shm = NULL;
}
