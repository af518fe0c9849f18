#include "base/plan/step_model.h"

#include <math.h>

#include "base/job/sync_choice.h"

#define PAYLOAD 0.95           /* of a link's rate: Ethernet, IP and TCP headers take the rest */
#define BUCKET_BYTES 4194304.0 /* gradients that are exchanged together (trainer/member/sync/bucket_cut.h) */
#define FORWARD (1 / 3.0)      /* of the passes of a micro-batch */

/* One all-reduce of `bytes`, if nothing else runs. */
static double allreduce_s(const struct plan_machine *m, double bytes)
{
    double nodes = (double)m->nodes, ranks = (double)m->ranks, buckets = ceil(bytes / BUCKET_BYTES);
    double inside = 0, network = 0, hops = 0;

    if (m->ranks < 2)
        return 0;
    /* NCCL: one ring through all ranks. Each rank sends (W - 1) / W of the array twice. */
    double around = 2 * (m->gpu ? (ranks - 1) / ranks : (nodes - 1) / nodes) * bytes;
    if (m->ranks > m->nodes)
        inside = (m->gpu ? around : bytes) / m->inside;
    if (m->nodes > 1) {
        network = around / (m->link * PAYLOAD);
        hops = buckets * 2 * (nodes - 1) * m->hop_s;
    }
    /* A GPU's ring uses both kinds of links at the same time. On CPUs the ranks of a node first add up their arrays. */
    return (m->gpu ? fmax(inside, network) : inside + network) + hops;
}

static double update_s(const struct plan_sizes *sizes, const struct plan_machine *m)
{
    return m->memory_rate > 0 ? sizes->parameters * sizes->update_floats * sizeof(float) / m->memory_rate : 0;
}

/* The time to exchange one part of the array. rounds: an all-reduce goes twice around the ring; a reduce-scatter or a gather goes once. */
static double exchange_s(const struct plan_machine *m, const struct plan_exchange *x, double rounds)
{
    double inside = 0, network = 0;

    if (m->ranks > m->nodes)
        inside = (m->gpu ? x->link_bytes : x->bytes * rounds / 2) / m->inside;
    if (m->nodes > 1)
        network = x->link_bytes / (m->link * PAYLOAD) + rounds * (double)(m->nodes - 1) * m->hop_s;
    return m->gpu ? fmax(inside, network) : inside + network;
}

static bool overlaps(const struct plan_machine *m)
{
    return (m->nodes > 1 || m->gpu) && !m->host_sums;
}

/* The time in which ranks only wait for the sums of gradients. Buckets are summed one after the other. Each can begin when the backward
 * pass of the last micro-batch has completed its gradients. */
static double sums_exposed_s(const struct plan_sizes *sizes, const struct plan_machine *m, double passes_s,
                             double rounds)
{
    const double backward_s = overlaps(m) ? (1 - FORWARD) * passes_s / fmax(sizes->micro_batches, 1) : 0;
    double over_s = 0;

    for (size_t i = 0; i < sizes->bucket_count; i++)
        over_s = fmax(over_s, sizes->buckets[i].at * backward_s) + exchange_s(m, &sizes->buckets[i], rounds);
    return fmax(over_s - backward_s, 0);
}

/* The same for the gather of parameters. whole_s: the time of a gather in one call, after which parameters are compared. In pieces they
 * come in the order in which the forward pass of the first micro-batch needs them. */
static double gather_exposed_s(const struct plan_sizes *sizes, const struct plan_machine *m, double whole_s,
                               double passes_s)
{
    const double forward_s = FORWARD * passes_s / fmax(sizes->micro_batches, 1);
    double over_s = 0, waited_s = 0;

    if (!overlaps(m) || !sizes->piece_count)
        return whole_s;
    for (size_t i = 0; i < sizes->piece_count; i++) {
        over_s += exchange_s(m, &sizes->pieces[i], 1);
        waited_s = fmax(waited_s, over_s - sizes->pieces[i].at * forward_s);
    }
    return sizes->gathered_beside * waited_s + (1 - sizes->gathered_beside) * whole_s;
}

/* A round of a given time has as many steps as fit. `overlap` steps run while the round's exchange is under way. */
static double round_exposed_s(const struct sync_facts *f, const struct sync_spec *sync)
{
    struct sync_spec spec = *sync;

    if (spec.every_ms > 0)
        spec.every = (int64_t)fmax(1, floor((double)spec.every_ms / f->compute_ms));
    double exchange_ms = sync_cost_ms(f, &spec) * (double)spec.every;
    double hidden_ms = fmin(exchange_ms, (double)spec.overlap * f->compute_ms);
    return (exchange_ms - hidden_ms) / (double)spec.every / 1e3;
}

void plan_step(const struct plan_sizes *sizes, const struct plan_machine *m, const struct sync_spec *sync,
               enum shard_type shard, struct plan_step *out)
{
    const double bytes = sizes->arrays * sizeof(float), whole_s = update_s(sizes, m);
    const bool half = sync->type == SYNC_ALLREDUCE && sync->wire == WIRE_BF16;
    const double gather_s = allreduce_s(m, sizes->gathered_bytes) / 2; /* of parameters */
    struct plan_step p = {.update_s = whole_s, .exchange_s = allreduce_s(m, half ? bytes / 2 : bytes)};

    p.compute_s = m->step_s > 0 ? m->step_s : sizes->flops / m->rate + whole_s;
    if (shard == SHARD_OPTIMIZER) {
        p.update_s = whole_s / (double)m->ranks;
        p.compute_s = fmax(p.compute_s - whole_s + p.update_s, 0);
    }
    const double passes_s = fmax(p.compute_s - p.update_s, 0);
    const struct sync_facts f = {
        .compute_ms = p.compute_s * 1e3,
        .allreduce_ms = p.exchange_s * 1e3,
        .bytes = bytes,
        .nodes = (int)m->nodes,
        .world_size = (int)m->ranks,
    };
    if (m->ranks > 1 && sync->type != SYNC_ALLREDUCE) {
        p.exposed_s = round_exposed_s(&f, sync);
    } else if (m->ranks > 1 && shard == SHARD_OPTIMIZER) {
        /* The sums of gradients run beside backward, and the gather of parameters beside the next forward pass. */
        p.exposed_s = sums_exposed_s(sizes, m, passes_s, 1) + gather_exposed_s(sizes, m, gather_s, passes_s);
        p.exchange_s = gather_s;
        for (size_t i = 0; i < sizes->bucket_count; i++)
            p.exchange_s += exchange_s(m, &sizes->buckets[i], 1);
    } else if (m->ranks > 1) {
        p.exposed_s = sums_exposed_s(sizes, m, passes_s, 2);
    }
    p.step_s = p.compute_s + p.exposed_s;
    p.per_second = sizes->samples * (sizes->tokens > 0 ? sizes->tokens : 1) / p.step_s;
    *out = p;
}
