/* Cards: copies of job records that the nodes keep for us. A node that has or had workers of a job keeps the
 * job's card: all records that a coordinator needs to continue the job. The node's wish carries the card
 * while the node's own card is older, until the node's facts answer that wish. A hello lists the node's cards
 * and their progress.
 *
 * A card's progress is a number that only grows. It is made of the generation, its state, the job's state,
 * and the number of the node's own workers in that generation that are dead, to which the revision of the job
 * file is added. Deaths on other nodes are left
 * to the cards of those nodes; otherwise each exit would send a card to every node. So when a wish lets a
 * node drop the exit record of a member of the newest generation, the node's card already contains that exit.
 * Exits of older members may be missing: a restored coordinator finds these dead when it has learned (facts.c). */
#include "daemon/coordinator/core/cards/card.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/wish.h"

#define ENDED (INT64_C(1) << 40) /* beyond all other stages: a job that has ended does not begin again */
/* Beyond all other stages of its generation: a job that is stopping forms no other one. */
#define STOPS (1 << 7)
/* The parts of a progress: the generation, both states, the changes. */
#define GENERATION_SHIFT 24
#define STAGE_SHIFT 16
#define CHANGES UINT16_MAX
/* How many of the newest snapshots a card holds. The files of others say that they are committed. */
#define SNAPSHOTS 4

int64_t card_stage(const struct job_record *job, const struct generation_record *g)
{
    /* Of two ends the one of the later generation counts: a job that was cancelled in the queue of older records may have succeeded
     * before they were restored. */
    if (sm_terminal(&job_sm, job->state))
        return ENDED | (g ? g->number << 8 : 0);
    return (g ? g->number << 8 | (int64_t)g->state << 4 : 0) | (job->state == JOB_STOPPING ? STOPS : 0) |
           (int64_t)job->state;
}

int64_t card_progress(const struct job *job, const char *node)
{
    const struct generation *g = job_current(job);
    int64_t dead = 0, changes;

    for (int i = 0; g && i < g->r.world_size; i++)
        dead += g->ranks[i].spawn->r.dead && !strcmp(g->ranks[i].r.node, node);
    changes = dead + job->r.revision;
    return card_stage(&job->r, g ? &g->r : NULL) << STAGE_SHIFT | (changes < CHANGES ? changes : CHANGES);
}

bool card_due(const struct core *core, const struct node *node, const struct node_card *card)
{
    const struct job *job = core_find_job(core, card->job);

    if (!node->keeps_cards || core->config.no_cards)
        return false;
    return job ? card_progress(job, node->r.name) > card->acked : card->drop;
}

static bool number_in_gap(const struct core *core, int64_t job)
{
    return job >= core->gap_from && job < core->gap_to;
}

static bool number_was_removed(const struct core *core, int64_t job)
{
    for (size_t i = 0; i < core->removed_count; i++)
        if (core->removed[i] == job)
            return true;
    return false;
}

bool card_number_is_known(const struct core *core, int64_t job)
{
    return job < core->next_job && (!number_in_gap(core, job) || number_was_removed(core, job));
}

void card_removed(struct core *core, int64_t job)
{
    if (!number_in_gap(core, job))
        return;
    core->removed =
        array_grow(core->removed, core->removed_count, &core->removed_cap, sizeof(*core->removed));
    core->removed[core->removed_count++] = job;
    emit_number_removed(core, job);
}

bool card_changes_differ(int64_t a, int64_t b)
{
    return a >> GENERATION_SHIFT == b >> GENERATION_SHIFT && (a & CHANGES) != (b & CHANGES);
}

/* Takes the list of the node's cards. Cards that are newer than our records came with the same hello, and
 * have been adopted before. */
void card_heads(struct core *core, struct node *node, const struct core_hello *hello)
{
    node->keeps_cards = hello->keeps_cards;
    node->said_hello = true;
    for (size_t i = 0; i < node->card_count; i++) {
        node->cards[i].acked = -1;
        node->cards[i].revision = 0;
    }
    for (size_t i = 0; i < hello->head_count; i++) {
        struct node_card *card = node_add_card(node, hello->heads[i].job);
        const struct job *job = core_find_job(core, card->job);
        card->acked = hello->heads[i].progress;
        /* retention has removed the job here, so the node may drop its card; the card of a job that these
         * records never had is kept */
        card->drop = !job && card_number_is_known(core, card->job);
    }
    for (size_t i = 0; i < node->card_count; i++)
        node->wish_dirty |= card_due(core, node, &node->cards[i]);
}

/* A card without its job has no data. */
static size_t card_bytes(const struct core *core, const struct node_card *card)
{
    const struct job *job = core_find_job(core, card->job);

    return job ? job_request_bytes(job) : 0;
}

void card_offer(struct core *core, struct node *node)
{
    size_t bytes = 0;

    for (size_t i = 0; i < node->card_count; i++)
        if (node->cards[i].revision && card_due(core, node, &node->cards[i]))
            bytes += card_bytes(core, &node->cards[i]);
    for (size_t i = 0; i < node->card_count; i++) {
        struct node_card *card = &node->cards[i];
        const struct job *job = core_find_job(core, card->job);
        int64_t progress = job ? card_progress(job, node->r.name) : 0;
        if (!card_due(core, node, card) || (card->revision && card->offered == progress))
            continue; /* an earlier revision carries the same card and is not yet answered */
        if (!card->revision) {
            size_t more = card_bytes(core, card);
            if (bytes && bytes + more > WISH_CARDS)
                continue; /* card_kept asks for a wish with it */
            bytes += more;
        }
        card->offered = progress;
        card->revision = node->revision;
    }
}

void card_kept(struct core *core, struct node *node, int64_t revision)
{
    bool kept = false, more = false;

    for (size_t i = 0; i < node->card_count;) {
        struct node_card *card = &node->cards[i];
        const struct job *job = core_find_job(core, card->job);
        if (card->revision && revision >= card->revision) {
            card->acked = card->offered;
            card->revision = 0;
            card->drop = false;
            kept = true;
        }
        /* the node has the last card of a job that ended: nothing is left to be sent */
        const bool due = card_due(core, node, card);
        more |= due && !card->revision;
        if ((!job || job_finished(job)) && !card->revision && !due)
            node->cards[i] = node->cards[--node->card_count];
        else
            i++;
    }
    node->wish_dirty |= kept && more;
}

void card_changed(struct core *core, const struct job *job)
{
    for (size_t i = 0; i < core->node_count; i++) {
        struct node *node = core->nodes[i];
        const struct node_card *card = node_find_card(node, job->r.id);
        if (card && card_due(core, node, card))
            node->wish_dirty = true;
    }
}

/* ---- a job as records */

static bool generation_counts(const struct job *job, const struct generation *g)
{
    return g == job_current(job) || generation_has_living(g);
}

static bool records_have_spawn(const struct records *r, int64_t spawn)
{
    for (size_t i = r->spawn_count; i-- > 0;)
        if (r->spawns[i].spawn == spawn)
            return true;
    return false;
}

static void copy_generation(struct records *out, const struct generation *g)
{
    generation_record_copy(&out->generations[out->generation_count++], &g->r);
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        rank_record_copy(&out->ranks[out->rank_count++], &g->ranks[i].r);
        /* a spawn that an earlier one of these generations has as a member, too, is copied already */
        if (s->r.first_generation != g->r.number && records_have_spawn(out, s->r.spawn))
            continue;
        struct spawn_record *spawn = &out->spawns[out->spawn_count++];
        spawn_record_copy(spawn, &s->r);
        if (spawn->spawn != s->rank->generation->r.failed_spawn)
            free(steal(spawn->stderr_tail)); /* only the tail of the culprit explains a failure; the others
                                                would bloat the card */
    }
}

static int compare_newest_first(const void *a, const void *b)
{
    const struct snapshot_record *x = a, *y = b;

    if (x->generation != y->generation)
        return x->generation > y->generation ? -1 : 1;
    return (x->step < y->step) - (x->step > y->step);
}

static void copy_snapshots(struct records *out, const struct job *job, size_t most)
{
    struct snapshot_record *all = xcalloc(job->snapshot_count + 1, sizeof(*all));

    for (size_t i = 0; i < job->snapshot_count; i++)
        all[i] = job->snapshots[i];
    if (job->snapshot_count)
        qsort(all, job->snapshot_count, sizeof(*all), compare_newest_first);
    out->snapshots = xcalloc(job->snapshot_count + 1, sizeof(*out->snapshots));
    for (size_t i = 0; i < job->snapshot_count && i < most; i++)
        snapshot_record_copy(&out->snapshots[out->snapshot_count++], &all[i]);
    free(all);
}

int card_compare_spawns(const void *a, const void *b)
{
    const struct spawn_record *x = a, *y = b;

    return (x->spawn > y->spawn) - (x->spawn < y->spawn);
}

void card_records(const struct job *job, bool whole, struct records *out)
{
    size_t generations = 0, ranks = 0;

    *out = (struct records){0};
    for (size_t i = 0; i < job->generation_count; i++)
        if (whole || generation_counts(job, job->generations[i])) {
            generations++;
            ranks += (size_t)job->generations[i]->r.world_size;
        }
    out->jobs = xcalloc(1, sizeof(*out->jobs));
    out->generations = xcalloc(generations + 1, sizeof(*out->generations));
    out->ranks = xcalloc(ranks + 1, sizeof(*out->ranks));
    out->spawns = xcalloc(ranks + 1, sizeof(*out->spawns));
    job_record_copy(&out->jobs[out->job_count++], &job->r);
    for (size_t i = 0; i < job->generation_count; i++)
        if (whole || generation_counts(job, job->generations[i]))
            copy_generation(out, job->generations[i]);
    if (out->spawn_count)
        qsort(out->spawns, out->spawn_count, sizeof(*out->spawns), card_compare_spawns);
    copy_snapshots(out, job, whole ? SIZE_MAX : SNAPSHOTS);
}

bool core_card(const struct core *core, int64_t id, struct records *out)
{
    const struct job *job = core_find_job(core, id);

    if (job)
        card_records(job, false, out);
    return job != NULL;
}
