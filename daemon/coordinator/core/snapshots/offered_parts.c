/* A snapshot with parts that lies on several nodes is whole only if each of these nodes still has its parts. The rules:
 *
 * - A node of the generation that wrote parts must have them. If one does not, the generation does not start from this
 *   snapshot but from an older whole one; if there is none, the rules for lost snapshots apply (lost_snapshots.c). Its
 *   file system may be missing for a moment only, so its ranks must not lose their state without a word.
 * - A node that is not in the generation is not waited for. The parts that it wrote are dropped: the ranks that take the
 *   place of its ranks start from the shared model and the moments of other ranks. An event says so.
 * - If each part holds moments that no other part has (needs_all), nothing can be dropped: also the parts of nodes that are not in
 *   the generation must be here. */
#include "daemon/coordinator/core/snapshots/offered_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"

/* Names of nodes in all offers of one Join. A rank names the nodes of four snapshots, of up to 10,000 nodes each, and of further
 * ones only while all names have less than 128 KiB (trainer/snapshot/snapshot.h). */
#define JOIN_NAMES_MOST 50000
/* Different names that one generation's ranks may bring. Names stay when the rank that brought them joins again, because other
 * ranks' lists refer to them; so without a limit, a rank that joins again and again would fill the memory. */
#define GENERATION_NAMES_MOST 100000
#define DIGEST_MOST 128 /* bytes, as in a commit */
#define PATH_MOST 4096

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

enum err_code offered_parts_check(const struct spawn *s, const struct core_offer *offers, size_t count,
                                  struct err *e)
{
    size_t names = 0;

    for (size_t i = 0; i < count; i++) {
        if ((offers[i].digest && strlen(offers[i].digest) > DIGEST_MOST) ||
            (offers[i].path && strlen(offers[i].path) > PATH_MOST))
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "an offer has a digest of at most %d bytes and a path of at most %d", DIGEST_MOST,
                           PATH_MOST);
        for (char *const *node = offers[i].elsewhere; node && *node; node++, names++) {
            if (names == JOIN_NAMES_MOST)
                return err_set(e, ERR_INVALID_ARGUMENT, "the offers of a join may name at most %d nodes",
                               JOIN_NAMES_MOST);
            /* The node need not be known: another cluster may have written the snapshot. A trainer writes "" if it does not know the
             * name of its node. */
            if (**node && !id_node_name(*node))
                return err_set(e, ERR_INVALID_ARGUMENT, "an offer has an invalid name of a node: '%.64s'",
                               *node);
        }
    }
    /* Names that are known already count twice here, which saves a search for each. */
    if (s->rank->generation->offer_nodes.count + names > GENERATION_NAMES_MOST)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the joins of generation %" PRId64 " have named more than %d nodes",
                       s->rank->generation->r.number, GENERATION_NAMES_MOST);
    return ERR_OK;
}

void offered_parts_keep(struct spawn *s, const struct core_offer *offers, size_t count)
{
    struct name_table *nodes = &s->rank->generation->offer_nodes;

    s->offer_count = count;
    s->offers = xcalloc(count + 1, sizeof(*s->offers));
    s->elsewhere = xcalloc(count + 1, sizeof(*s->elsewhere));
    for (size_t i = 0; i < count; i++) {
        struct name_numbers *names = &s->elsewhere[i];
        s->offers[i] = offers[i];
        s->offers[i].digest = xstrdup(offers[i].digest ? offers[i].digest : "");
        s->offers[i].path = xstrdup(offers[i].path ? offers[i].path : "");
        s->offers[i].elsewhere = NULL;
        names->list = xcalloc(strv_len(offers[i].elsewhere) + 1, sizeof(*names->list));
        for (char *const *node = offers[i].elsewhere; node && *node; node++) {
            /* All nodes list each other in the same order, and each leaves itself out. */
            const uint32_t likely = names->count ? names->list[names->count - 1] + 1 : 0;
            names->list[names->count++] = name_table_add(nodes, *node, likely);
        }
    }
}

void offered_parts_forget(struct generation *g)
{
    for (int rank = 0; rank < g->r.world_size; rank++) {
        struct spawn *s = g->ranks[rank].spawn;
        if (s->joined_as == &g->ranks[rank]) /* else its offers are those of its next Join */
            spawn_drop_offers(s);
    }
    name_table_release(&g->offer_nodes);
}

/* By the number of a node's name: whether no rank that offers this snapshot sees the parts that the node wrote. *first: what
 * the first of these offers does not see. The caller frees. */
static bool *parts_find_away(const struct generation *g, const char *digest, struct name_numbers *first)
{
    bool *away = xcalloc(g->offer_nodes.count + 1, sizeof(*away));
    size_t *missed = xcalloc(g->offer_nodes.count + 1, sizeof(*missed)), offers = 0;

    *first = (struct name_numbers){0};
    for (int rank = 0; rank < g->r.world_size; rank++) {
        const struct spawn *s = g->ranks[rank].spawn;
        for (size_t i = 0; i < s->offer_count; i++) {
            if (strcmp(s->offers[i].digest, digest) != 0)
                continue;
            if (!offers++)
                *first = s->elsewhere[i];
            /* Counts the offers that miss the node, as long as all of them do. A name that an offer has twice counts once. */
            for (size_t k = 0; k < s->elsewhere[i].count; k++)
                if (missed[s->elsewhere[i].list[k]] == offers - 1)
                    missed[s->elsewhere[i].list[k]] = offers;
        }
    }
    for (size_t i = 0; i < g->offer_nodes.count; i++)
        away[i] = offers && missed[i] == offers;
    free(missed);
    return away;
}

/* By the number of a node's name: whether the node is in the generation. The caller frees. */
static bool *parts_find_here(const struct generation *g)
{
    bool *here = xcalloc(g->offer_nodes.count + 1, sizeof(*here));

    for (int rank = 0; rank < g->r.world_size; rank++) {
        const uint32_t number = name_table_find(&g->offer_nodes, g->ranks[rank].r.node);
        if (number != NAME_NONE)
            here[number] = true;
    }
    return here;
}

enum parts_of {
    PARTS_OF_MEMBERS,
    PARTS_OF_OTHERS,
    PARTS_OF_ALL
}; /* nodes, by whether they are in the generation */

/* The nodes of these whose parts are away. */
static char **parts_list_away(const struct generation *g, const char *digest, enum parts_of of)
{
    struct name_numbers first;
    bool *away = parts_find_away(g, digest, &first), *here = parts_find_here(g);
    char **names = NULL;
    size_t count = 0;

    for (size_t i = 0; i < first.count; i++) {
        const uint32_t number = first.list[i];
        if (!away[number] || (of != PARTS_OF_ALL && here[number] != (of == PARTS_OF_MEMBERS)))
            continue;
        if (!names)
            names = xcalloc(first.count + 1, sizeof(*names));
        names[count++] = xstrdup(name_table_name(&g->offer_nodes, number));
        away[number] = false; /* each node once */
    }
    free(away);
    free(here);
    return names;
}

char **offered_parts_lacking(const struct generation *g, const char *digest)
{
    const struct core_offer *offer = offered_parts_find(g, digest);

    return parts_list_away(g, digest, offer && offer->needs_all ? PARTS_OF_ALL : PARTS_OF_MEMBERS);
}

static void say_number_of_parts(struct core *core, const struct generation *g, int64_t step, int parts)
{
    int world = g->r.world_size, first = world < parts ? world : parts, end = world < parts ? parts : world;
    CLEANUP(free_text)
    char *ranks =
        end - first == 1 ? xasprintf("rank %d", first) : xasprintf("ranks %d to %d", first, end - 1);

    if (world < parts)
        emit_event(core, g->job, "snapshot_parts",
                   "step %s was saved by %d ranks, and %d continue%s: what %s had of %s own is dropped",
                   text_count(step).text, parts, world, world == 1 ? "s" : "", ranks,
                   end - first == 1 ? "its" : "their");
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

    if (!offer || !offer->parts || offer->needs_all)
        return;
    if (offer->parts != g->r.world_size)
        say_number_of_parts(core, g, offer->step, offer->parts);
    char **gone = parts_list_away(g, offer->digest, PARTS_OF_OTHERS);
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
