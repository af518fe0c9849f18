/* A snapshot with parts that lies on several nodes is whole only if each of these nodes still has its parts. The rules:
 *
 * - A node of the generation that wrote parts must have them. If one does not, the generation does not start from this
 *   snapshot but from an older whole one; if there is none, the rules for lost snapshots apply (lost_snapshots.c). Its
 *   file system may be missing for a moment only, so its ranks must not lose their state without a word.
 * - A node that is not in the generation is not waited for. The parts that it wrote are dropped: the ranks that take the
 *   place of its ranks start from the shared model and the moments of other ranks. An event says so. */
#include "daemon/coordinator/core/offered_parts.h"

#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"

const struct core_offer *offered_parts_find(const struct generation *g, const char *digest)
{
    for (int rank = 0; rank < g->r.world_size; rank++) {
        const struct spawn *s = g->ranks[rank].spawn;
        for (size_t i = 0; i < s->offer_count; i++)
            if (!strcmp(s->offers[i].digest, digest))
                return &s->offers[i];
    }
    return NULL;
}

/* No rank that offers this snapshot sees the parts that the node wrote. */
static bool parts_are_away(const struct generation *g, const char *digest, const char *node)
{
    for (int rank = 0; rank < g->r.world_size; rank++) {
        const struct spawn *s = g->ranks[rank].spawn;
        for (size_t i = 0; i < s->offer_count; i++)
            if (!strcmp(s->offers[i].digest, digest) && !names_contain(s->offers[i].elsewhere, node))
                return false;
    }
    return true;
}

static bool generation_has_node(const struct generation *g, const char *node)
{
    for (int rank = 0; rank < g->r.world_size; rank++)
        if (!strcmp(g->ranks[rank].r.node, node))
            return true;
    return false;
}

/* Nodes, in the generation or not, whose parts are away. */
static char **parts_list_away(const struct generation *g, const struct core_offer *offer, bool here)
{
    char **names = NULL;

    for (char *const *node = offer->elsewhere; node && *node; node++)
        if (generation_has_node(g, *node) == here && parts_are_away(g, offer->digest, *node))
            names = strv_append(names, *node);
    return names;
}

char **offered_parts_lacking(const struct generation *g, const struct core_offer *offer)
{
    return parts_list_away(g, offer, true);
}

static void say_number_of_parts(struct core *core, const struct generation *g, int64_t step, int parts)
{
    int world = g->r.world_size, first = world < parts ? world : parts, end = world < parts ? parts : world;
    CLEANUP(free_text)
    char *ranks =
        end - first == 1 ? xasprintf("rank %d", first) : xasprintf("ranks %d to %d", first, end - 1);

    if (world < parts)
        emit_event(core, g->job, "snapshot_parts",
                   "step %s was saved by %d ranks, and %d continue: what %s had of their own is dropped",
                   text_count(step).text, parts, world, ranks);
    else
        emit_event(
            core, g->job, "snapshot_parts",
            "step %s was saved by %s, and %d continue: %s start%s from the shared model and other ranks' moments",
            text_count(step).text, text_counted(parts, "rank").text, world, ranks,
            end - first == 1 ? "s" : "");
}

void offered_parts_say(struct core *core, const struct generation *g)
{
    const struct core_offer *offer = g->r.source_rank >= 0 ? offered_parts_find(g, g->r.source_digest) : NULL;
    CLEANUP(buf_release) struct buf text = {0};

    if (!offer || !offer->parts)
        return;
    if (offer->parts != g->r.world_size)
        say_number_of_parts(core, g, offer->step, offer->parts);
    char **gone = parts_list_away(g, offer, false);
    if (!gone)
        return;
    for (char **node = gone; *node; node++)
        buf_printf(&text, "%s%s", node == gone ? "" : ", ", *node);
    strv_free(gone);
    emit_event(
        core, g->job, "snapshot_parts",
        "the parts of step %s that %s wrote are dropped: each rank without a part starts from the shared "
        "model and another rank's moments",
        text_count(offer->step).text, text.data);
}
