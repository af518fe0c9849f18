#include "base/plan/step_model.h"

#include <math.h>

#include "base/job/sync_choice.h"

#define PAYLOAD 0.95           /* of a link's rate: Ethernet, IP and TCP headers take the rest */
#define BUCKET_BYTES 4194304.0 /* gradients that are exchanged together (trainer/member/sync/sync.c) */

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

/* The time of a step in which ranks only wait for the gather of parameters. `whole_s`: the time of a gather in one
 * call.
 *
 * If parameters are gathered in pieces, only one rank sends at a time, so the ring's link to that rank is idle. The
 * forward pass of the first micro-batch needs the last piece when it comes to the last layer. Two ends send each
 * other their halves at the same time, so the pass needs all pieces when it comes to the last layer of the first
 * half. It always waits for the first layer. */
static double gather_exposed_s(const struct plan_sizes *sizes, const struct plan_machine *m, double whole_s,
                               double passes_s)
{
    const double ends = (double)(m->gpu ? m->ranks : m->nodes);

    if (ends < 2 || sizes->gathered_bytes <= 0 || m->host_sums)
        return whole_s;
    const bool two = ends < 3;
    const double pieces_s = two ? whole_s : whole_s * ends / (ends - 1);
    const double first_s = pieces_s * sizes->gathered_first_bytes / sizes->gathered_bytes * (two ? 2 : 1);
    const double forward_s = passes_s / 3 / fmax(sizes->micro_batches, 1);
    const double before = fmax((two ? 0.5 : 1) - 1 / fmax(sizes->layers, 1), 0);
    const double beside_s = fmax(fmin(first_s, pieces_s), pieces_s - before * forward_s);
    return sizes->gathered_beside * beside_s + (1 - sizes->gathered_beside) * whole_s;
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
    struct sync_facts f = {
        .compute_ms = p.compute_s * 1e3,
        .allreduce_ms = p.exchange_s * 1e3,
        .overlap = sync_overlap(sizes->arrays, (m->nodes > 1 || m->gpu) && !m->host_sums),
        .bytes = bytes,
        .nodes = (int)m->nodes,
        .world_size = (int)m->ranks,
    };
    if (m->ranks > 1 && sync->type != SYNC_ALLREDUCE) {
        p.exposed_s = round_exposed_s(&f, sync);
    } else if (m->ranks > 1 && shard == SHARD_OPTIMIZER) {
        /* The sums of gradients run beside backward, and the gather of parameters beside the next forward pass. */
        f.allreduce_ms /= 2;
        p.exposed_s = sync_cost_ms(&f, sync) / 1e3 +
                      gather_exposed_s(sizes, m, gather_s, fmax(p.compute_s - p.update_s, 0));
        p.exchange_s = p.exchange_s / 2 + gather_s;
    } else if (m->ranks > 1) {
        p.exposed_s = sync_cost_ms(&f, sync) / 1e3;
    }
    p.step_s = p.compute_s + p.exposed_s;
    p.per_second = sizes->samples * (sizes->tokens > 0 ? sizes->tokens : 1) / p.step_s;
    *out = p;
}
