/* Closes rounds when quorum.c decides so: ends the generation, and forms the next one from the members that have arrived at the
 * exchange and those that come back. No placement is needed, because all of them keep their slots. */
#include "daemon/coordinator/core/placement/round_close.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/generation_form.h"
#include "daemon/coordinator/core/placement/quorum.h"

#define LATE_ROUNDS_MOST 2 /* the trainer drops older changes: its LIVE_LATE_MOST is the same */

/* The spawn's rank in the generation, or -1. */
static int rank_in(const struct generation *g, const struct spawn *s)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn == s)
            return i;
    return -1;
}

/* Returns the newest generation that had all of them as members, or NULL. The next generation keeps the order of its ranks. */
static const struct generation *find_common(const struct job *job, struct spawn **list, int count)
{
    for (size_t i = job->generation_count; i-- > 0;) {
        int found = 0;
        while (found < count && rank_in(job->generations[i], list[found]) >= 0)
            found++;
        if (found == count)
            return job->generations[i];
    }
    return NULL;
}

static bool comes_before(const struct generation *common, const struct spawn *a, const struct spawn *b)
{
    const int by_node = strcmp(a->r.node, b->r.node);

    if (common)
        return rank_in(common, a) < rank_in(common, b);
    return by_node ? by_node < 0 : a->r.first_local_rank < b->r.first_local_rank;
}

static void sort_members(const struct job *job, struct spawn **list, int count)
{
    const struct generation *common = find_common(job, list, count);

    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && comes_before(common, list[k], list[k - 1]); k--) {
            struct spawn *s = list[k];
            list[k] = list[k - 1];
            list[k - 1] = s;
        }
}

static void leave_late(struct core *core, struct spawn *s, int members, int of)
{
    s->late_from = s->job->round.exchange;
    emit_event(core, s->job, "rank_late",
               "rank %d (%s) was late for round %" PRId64 ": the round closed with %d of %d", s->rank->r.rank,
               s->r.node, s->job->round.exchange, members, of);
}

static void say_returned(struct core *core, const struct spawn *s)
{
    static const char *const counts[] = {"counts in full", "counts half", "counts a quarter"};
    const int64_t missed = s->job->round.exchange - s->arrived;
    const struct text rounds = text_counted(missed, "round");

    if (missed >= 0 && missed <= LATE_ROUNDS_MOST)
        emit_event(core, s->job, "rank_returned", "rank %d (%s) came back after %s: its change %s",
                   s->rank->r.rank, s->r.node, rounds.text, counts[missed]);
    else
        emit_event(core, s->job, "rank_returned", "rank %d (%s) came back after %s: its change is dropped",
                   s->rank->r.rank, s->r.node, rounds.text);
}

/* Ends the generation, and forms the next one of the members that have come and those that return. */
static void close_round(struct core *core, struct job *job, const struct quorum_attendance *a)
{
    struct generation *g = job_current(job);
    const int64_t exchange = job->round.exchange;
    struct spawn **list = xcalloc((size_t)(a->come + a->return_), sizeof(struct spawn *));
    const int of = g->r.world_size + a->return_;
    int count = 0;
    CLEANUP(buf_release) struct buf why = {0};

    for (int i = 0; i < g->r.world_size; i++)
        if (quorum_has_come(job, g->ranks[i].spawn))
            list[count++] = g->ranks[i].spawn;
        else
            leave_late(core, g->ranks[i].spawn, a->come + a->return_, of);
    for (size_t i = 0; i < job->spawn_count; i++)
        if (a->return_ && quorum_returns(job->spawns[i])) {
            say_returned(core, job->spawns[i]);
            list[count++] = job->spawns[i];
        }
    buf_printf(&why, "round %" PRId64 " closes with %d of %d ranks", job->round.exchange, count, of);
    sort_members(job, list, count);
    generation_hand_over(core, g, why.data);
    generation_form_with(core, job, list, count);
    job->round.formed_at = exchange;
    for (size_t i = 0; i < job->spawn_count;
         i++) { /* a member that is left out reports its next arrival itself */
        job->spawns[i]->arrived = 0;
        job->spawns[i]->holds = false;
    }
    free(list);
}

void round_close_all(struct core *core)
{
    struct quorum_attendance a;

    for (size_t i = 0; i < core->job_count; i++)
        if (quorum_round_closes(core, core->jobs[i], &a))
            close_round(core, core->jobs[i], &a);
}
