/* A ring over UCX's TCP transport on the loopback, measured as bench_allreduce measures ours. UCX itself has no collectives. In
 * step s rank r sends chunk r - s to the next rank and receives chunk r - s - 1 (mod N), in pieces, so that a piece is added
 * while the next one comes. All waits poll. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/bench/bench_rounds.h"
#include "trainer/member/coll/sum.h"

#define MAX_RANKS 16
#define PIECE ((size_t)128 << 10) /* floats */

/* Memory of all processes, where they find each other's addresses. */
static struct meeting {
    atomic_int arrived, left;
    size_t length[MAX_RANKS];
    char address[MAX_RANKS][1024];
} * meeting;

struct ring {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h next;
    int rank, ranks;
    bool crowded; /* more ranks than cores */
    float *room;  /* two pieces */
};

static void ucx_check(ucs_status_t status, const char *what)
{
    if (status == UCS_OK)
        return;
    fprintf(stderr, "bench_ucx: %s: %s\n", what, ucs_status_string(status));
    exit(1);
}

static void worker_poll(struct ring *r)
{
    if (!ucp_worker_progress(r->worker) && r->crowded)
        sched_yield();
}

static void request_wait(struct ring *r, ucs_status_ptr_t request)
{
    if (!request)
        return;
    if (UCS_PTR_IS_ERR(request))
        ucx_check(UCS_PTR_STATUS(request), "request");
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        worker_poll(r);
    ucx_check(ucp_request_check_status(request), "request");
    ucp_request_free(request);
}

static ucs_status_ptr_t piece_receive(struct ring *r, float *to, size_t count)
{
    const ucp_request_param_t none = {0};

    return ucp_tag_recv_nbx(r->worker, to, count * sizeof(*to), 1, UINT64_MAX, &none);
}

static size_t piece_size(size_t count, size_t at)
{
    return count - at < PIECE ? count - at : PIECE;
}

/* Receives a chunk, and adds it to the data if `add`. The next piece is on its way meanwhile. */
static void chunk_receive(struct ring *r, float *data, size_t count, bool add)
{
    ucs_status_ptr_t now = count ? piece_receive(r, add ? r->room : data, piece_size(count, 0)) : NULL;

    for (size_t at = 0, i = 0; at < count; at += PIECE, i++) {
        const size_t next = at + PIECE;
        ucs_status_ptr_t later = NULL;

        if (next < count)
            later =
                piece_receive(r, add ? r->room + (i + 1) % 2 * PIECE : data + next, piece_size(count, next));
        request_wait(r, now);
        if (add)
            coll_add(data + at, r->room + i % 2 * PIECE, piece_size(count, at));
        now = later;
    }
}

static float *ring_chunk(const struct ring *r, float *data, size_t count, int index, size_t *size)
{
    const size_t n = (size_t)r->ranks, i = (size_t)((index + 2 * r->ranks) % r->ranks);

    *size = count / n + (i < count % n);
    return data + count / n * i + (i < count % n ? i : count % n);
}

static void ring_sum(void *of, float *data, size_t count)
{
    struct ring *r = of;
    const ucp_request_param_t none = {0};

    for (int s = 0; s < 2 * r->ranks - 2; s++) {
        size_t size;
        float *at = ring_chunk(r, data, count, r->rank - s, &size);
        const size_t pieces = (size + PIECE - 1) / PIECE;
        ucs_status_ptr_t *sends = xcalloc(pieces + 1, sizeof(*sends));

        for (size_t i = 0; i < pieces; i++)
            sends[i] = ucp_tag_send_nbx(r->next, at + i * PIECE, piece_size(size, i * PIECE) * sizeof(*at), 1,
                                        &none);
        at = ring_chunk(r, data, count, r->rank - s - 1, &size);
        chunk_receive(r, at, size, s < r->ranks - 1);
        for (size_t i = 0; i < pieces; i++)
            request_wait(r, sends[i]);
        free(sends);
    }
}

static void ring_share(void *of, int64_t *number)
{
    struct ring *r = of;
    const ucp_request_param_t none = {0};

    if (r->rank > 0)
        request_wait(r, ucp_tag_recv_nbx(r->worker, number, sizeof(*number), 1, UINT64_MAX, &none));
    if (r->rank < r->ranks - 1)
        request_wait(r, ucp_tag_send_nbx(r->next, number, sizeof(*number), 1, &none));
}

static void ring_open(struct ring *r)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_address_t *address;
    size_t length;

    ucx_check(ucp_init(&params, NULL, &r->context), "ucp_init");
    ucx_check(ucp_worker_create(r->context, &worker, &r->worker), "ucp_worker_create");
    ucx_check(ucp_worker_get_address(r->worker, &address, &length), "ucp_worker_get_address");
    if (length > sizeof(meeting->address[0]))
        exit(1);
    memcpy(meeting->address[r->rank], address, length);
    meeting->length[r->rank] = length;
    atomic_fetch_add(&meeting->arrived, 1);
    while (atomic_load(&meeting->arrived) < r->ranks)
        sched_yield();
    ucp_worker_release_address(r->worker, address);
    const ucp_ep_params_t end = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
        .address = (const ucp_address_t *)meeting->address[(r->rank + 1) % r->ranks],
    };
    ucx_check(ucp_ep_create(r->worker, &end, &r->next), "ucp_ep_create");
    r->room = xcalloc(2 * PIECE, sizeof(*r->room));
    r->crowded = r->ranks > sysconf(_SC_NPROCESSORS_ONLN);
}

static void rank_run(const struct bench_rounds *rounds, int rank)
{
    struct ring r = {.rank = rank, .ranks = rounds->ranks};
    const struct bench_peer peer = {&r, ring_sum, ring_share};

    ring_open(&r);
    bench_rounds_run(rounds, &peer, rank);
    /* Peers may still need this rank's progress. */
    atomic_fetch_add(&meeting->left, 1);
    while (atomic_load(&meeting->left) < r.ranks)
        worker_poll(&r);
}

int main(int argc, char **argv)
{
    struct bench_rounds rounds;
    int failed = 0, status;

    bench_rounds_read(&rounds, argc, argv);
    if (rounds.ranks < 2 || rounds.ranks > MAX_RANKS)
        return 2;
    setenv("UCX_TLS", "tcp,self", 0);
    setenv("UCX_NET_DEVICES", "lo", 0);
    meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED)
        return 1;
    for (int r = 0; r < rounds.ranks; r++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank_run(&rounds, r);
            _exit(0);
        }
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
