#include "base/job/balance.h"

#include <string.h>

#include "base/mem.h"

#define LISTED_MOST 8 /* nodes or ranks that are named one by one */
#define TIMES_LEAST 1.05

/* ---- dividing */

/* How many samples a rank computes within the time: at least 1, at most all that the other ranks leave. */
static int64_t samples_within(const struct balance_speed *speed, int64_t time_ns, int64_t most)
{
    int64_t fit = (time_ns - speed->update_ns) / speed->sample_ns;

    fit = fit > 1 ? fit : 1;
    return fit < most ? fit : most;
}

static int64_t all_within(const struct balance_speed *speeds, int ranks, int64_t time_ns, int64_t most)
{
    int64_t sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += samples_within(&speeds[r], time_ns, most);
    return sum;
}

void balance_divide(const struct balance_speed *speeds, int ranks, int64_t samples, int64_t *portions)
{
    const int64_t most = samples - ranks + 1; /* the others have one each */
    int64_t low = 0, high = speeds[0].update_ns + speeds[0].sample_ns * most, sum = 0;

    /* The shortest time in (low, high] within which the ranks together compute all samples. Within the longest one, rank 0
     * alone could compute all that the others leave. */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        if (all_within(speeds, ranks, middle, most) >= samples)
            high = middle;
        else
            low = middle;
    }
    for (int r = 0; r < ranks; r++)
        sum += portions[r] = samples_within(&speeds[r], high, most);
    /* Several ranks may end at exactly that time, where fewer are enough. */
    for (int r = ranks - 1; r >= 0 && sum > samples; r--)
        if (portions[r] > samples_within(&speeds[r], high - 1, most)) {
            portions[r]--;
            sum--;
        }
}

int64_t balance_slowest_ns(const struct balance_speed *speeds, int ranks, const int64_t *portions)
{
    int64_t slowest = 0;

    for (int r = 0; r < ranks; r++) {
        const int64_t ns = speeds[r].update_ns + portions[r] * speeds[r].sample_ns;
        slowest = ns > slowest ? ns : slowest;
    }
    return slowest;
}

bool balance_is_faster(const struct balance_speed *speeds, int ranks, const int64_t *from, const int64_t *to)
{
    const int64_t before = balance_slowest_ns(speeds, ranks, from);

    return balance_slowest_ns(speeds, ranks, to) <= before - before / 20;
}

/* ---- printing */

static bool same_node(const struct balance_rank *a, const struct balance_rank *b)
{
    return strcmp(a->node, b->node) == 0;
}

/* Whether each node's ranks have equal portions, and there is more than one node. */
static bool nodes_tell_all(const struct balance_rank *ranks, size_t count)
{
    bool several = false;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++) {
            if (!same_node(&ranks[i], &ranks[k]))
                several = true;
            else if (ranks[i].samples != ranks[k].samples)
                return false;
        }
    return several;
}

static void put_name(struct buf *out, const struct balance_rank *r, bool nodes)
{
    if (nodes)
        buf_puts(out, r->node);
    else
        buf_printf(out, "rank %d", r->rank);
}

/* "box1 24, box2 8". Returns how many were named; *out then may hold only the first of them. */
static size_t put_each(struct buf *out, const struct balance_rank *ranks, size_t count, bool nodes)
{
    size_t named = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t samples = 0;
        bool first = true;

        for (size_t k = 0; k < count; k++)
            if (k == i || (nodes && same_node(&ranks[i], &ranks[k]))) {
                samples += ranks[k].samples;
                first &= k >= i;
            }
        if (!first)
            continue;
        if (named++ >= LISTED_MOST)
            return named;
        buf_puts(out, named > 1 ? ", " : "");
        put_name(out, &ranks[i], nodes);
        buf_printf(out, " %lld", (long long)samples);
    }
    return named;
}

/* "from 4 (rank 7) to 24 (rank 0) each" */
static void put_range(struct buf *out, const struct balance_rank *ranks, size_t count)
{
    size_t least = 0, most = 0;

    for (size_t i = 1; i < count; i++) {
        least = ranks[i].samples < ranks[least].samples ? i : least;
        most = ranks[i].samples > ranks[most].samples ? i : most;
    }
    buf_printf(out, "from %lld (rank %d) to %lld (rank %d)", (long long)ranks[least].samples,
               ranks[least].rank, (long long)ranks[most].samples, ranks[most].rank);
}

/* ": box2 takes 3.1 times as long" */
static void put_times(struct buf *out, const struct balance_rank *ranks, size_t count, bool nodes)
{
    size_t fast = 0, slow = 0;

    for (size_t i = 0; i < count; i++) {
        if (!(ranks[i].sample_ms > 0))
            return;
        fast = ranks[i].sample_ms < ranks[fast].sample_ms ? i : fast;
        slow = ranks[i].sample_ms > ranks[slow].sample_ms ? i : slow;
    }
    if (ranks[slow].sample_ms < TIMES_LEAST * ranks[fast].sample_ms)
        return;
    buf_puts(out, ": ");
    put_name(out, &ranks[slow], nodes);
    buf_printf(out, " takes %.3g times as long", ranks[slow].sample_ms / ranks[fast].sample_ms);
}

void balance_print(struct buf *out, const struct balance_rank *ranks, size_t count)
{
    CLEANUP(buf_release) struct buf each = {0};
    const bool nodes = nodes_tell_all(ranks, count);
    int64_t samples = 0;

    for (size_t i = 0; i < count; i++)
        samples += ranks[i].samples;
    buf_puts(out, "balance: ");
    if (put_each(&each, ranks, count, nodes) <= LISTED_MOST)
        buf_puts(out, each.data);
    else
        put_range(out, ranks, count);
    buf_printf(out, " samples of %lld", (long long)samples);
    put_times(out, ranks, count, nodes);
}
