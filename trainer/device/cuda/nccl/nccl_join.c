#include "trainer/device/cuda/nccl/nccl_join.h"

#include "base/mem.h"

cudaError_t nccl_join_open(struct comm *c)
{
    cudaError_t rc = cudaSuccess;

    for (int i = 0; !rc && i < NCCL_JOINS; i++) {
        rc = cudaEventCreateWithFlags(&c->joins[i].from, cudaEventDefault);
        if (!rc)
            rc = cudaEventCreateWithFlags(&c->joins[i].to, cudaEventDefault);
    }
    for (int i = 0; !rc && i < COMM_MARKS; i++)
        rc = cudaEventCreateWithFlags(&c->marks[i], cudaEventDisableTiming);
    return rc;
}

void nccl_join_release(struct comm *c)
{
    for (int i = 0; i < NCCL_JOINS; i++) {
        if (c->joins[i].from)
            (void)cudaEventDestroy(c->joins[i].from);
        if (c->joins[i].to)
            (void)cudaEventDestroy(c->joins[i].to);
    }
    for (int i = 0; i < COMM_MARKS; i++)
        if (c->marks[i])
            (void)cudaEventDestroy(c->marks[i]);
}

/* Adds the times of the joins that the device has passed, in their order. */
static void joins_collect(struct comm *c)
{
    for (; c->joins_read < c->joins_made; c->joins_read++) {
        const struct nccl_joined *j = &c->joins[c->joins_read % NCCL_JOINS];
        float ms = 0.0f;
        if (cudaEventQuery(j->to) != cudaSuccess || cudaEventElapsedTime(&ms, j->from, j->to) != cudaSuccess)
            break;
        c->joined_ns += (int64_t)((double)ms * 1e6);
    }
    (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
}

cudaError_t nccl_join(struct comm *c, cudaEvent_t to)
{
    joins_collect(c);
    /* The host waits for the device at the end of each step, so there is usually a free pair of events. Without one,
     * this join is not measured. */
    struct nccl_joined *j =
        c->joins_made - c->joins_read < NCCL_JOINS ? &c->joins[c->joins_made % NCCL_JOINS] : NULL;
    cudaError_t rc = j ? cudaEventRecord(j->from, c->compute) : cudaSuccess;
    if (!rc)
        rc = cudaStreamWaitEvent(c->compute, to, 0);
    if (!rc && j)
        rc = cudaEventRecord(j->to, c->compute);
    c->joins_made += !rc && j;
    if (!rc)
        rc = cudaEventRecord(c->passed, c->compute);
    c->joined = true;
    return rc;
}

int64_t nccl_joined_ns(struct comm *c)
{
    joins_collect(c);
    return c->joined_ns;
}
