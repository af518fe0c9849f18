/* A train job that has committed snapshots never begins at step 0 by itself.
 *
 * The happy path: all ranks have joined, one of them offers the newest committed snapshot, and the generation
 * starts from it. Failure modes: no rank offers a snapshot, because a file system is not mounted, the node
 * that wrote the snapshots is away, or all of them are damaged. Then the generation ends, which does not
 * count as a restart, its slots become free, and the job waits. Every look_ms, and when a node connects, the
 * nodes are asked whether the files are there. As soon as a node has them, the job is placed with that node
 * among its nodes. Files that exist but cannot be loaded would start a new generation each time, so the pause
 * doubles then. If only an older snapshot than the newest is offered, the job starts from it, and an event
 * says so. A snapshot with parts that some node of the generation lacks counts as lost (offered_parts.h), even if the
 * coordinator has no record of it: another coordinator may have committed it. The wait for it ends when those nodes have
 * their files again, or are gone or drained, or when a user resizes the job. If a snapshot needs all of its parts, only the return of
 * those nodes ends the wait, and the job is placed with one of them. */
#include "daemon/coordinator/core/snapshots/lost_snapshots.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/advice.h"
#include "daemon/coordinator/core/placement/capacity.h"
#include "daemon/coordinator/core/snapshots/offered_parts.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

/* In first pauses: a pause that is shorter than this doubles, so it grows to 32 of them. */
#define LOOK_MOST 20
/* Nodes to ask that had no part in the job: a shared file system may be mounted there. */
#define LOOK_NODES 32
#define PROBLEM_CHARS 300

/* The rank that offers the snapshots of a node: the first one there. */
static const struct rank *first_rank_on(const struct generation *g, const char *node)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].r.local_rank == 0 && !strcmp(g->ranks[i].r.node, node))
            return &g->ranks[i];
    return NULL;
}

static bool rank_offers(const struct rank *rank, const struct snapshot_record *expected)
{
    const struct spawn *s = rank->spawn;

    for (size_t i = 0; i < s->offer_count; i++)
        if (!strcmp(s->offers[i].digest, expected->digest))
            return true;
    return false;
}

/* The rank whose node should have the snapshot and does not offer it. expected NULL: a rank that has snapshots which
 * cannot be used. Returns NULL if the generation has no such rank. */
static const struct rank *expected_holder(const struct generation *g, const struct snapshot_record *expected)
{
    for (int i = 0; i < g->r.world_size; i++) {
        const struct rank *rank = &g->ranks[i];
        if (expected ? rank->r.local_rank == 0 && snapshots_has_node(expected, rank->r.node) &&
                           !rank_offers(rank, expected)
                     : rank->spawn->unusable != NULL)
            return rank;
    }
    return NULL;
}

/* Returns the rank's complaint about this snapshot, else about the directory. any: the rank has other, usable
 * snapshots, so a complaint about another snapshot explains nothing. */
static const char *rank_problem(const struct rank *rank, const struct snapshot_record *expected, bool any)
{
    char **list = rank->spawn->unusable;
    const char *name = expected && expected->path ? strrchr(expected->path, '/') : NULL;

    for (char **line = list; name && line && *line; line++) {
        const char *at = strstr(*line, name);
        if (at && strchr("/: ", at[strlen(name)]))
            return *line;
    }
    return list && !(any && strstr(*list, "/step-")) ? *list : NULL;
}

/* The rank offers that snapshot, but with another digest: the files were damaged before COMMITTED.json, which
 * has the digest, was written. */
static const struct core_offer *changed_offer(const struct rank *rank, const struct snapshot_record *expected)
{
    const struct spawn *s = rank->spawn;

    for (size_t i = 0; expected && i < s->offer_count; i++)
        if (s->offers[i].job == expected->job && s->offers[i].generation == expected->generation &&
            s->offers[i].step == expected->step)
            return &s->offers[i];
    return NULL;
}

static const char *describe_node_state(const struct core *core, const char *name)
{
    const struct node *node = core_find_node(core, name);

    if (!node)
        return "no longer in the cluster";
    if (node_gone(node))
        return sm_name(&node_sm, (int)node->r.state);
    return node->r.drain ? "drained" : "not among the job's nodes";
}

/* "step 20 in /out lacks the parts that box2 (lost), box3 wrote" */
static void describe_lacking(const struct core *core, const struct generation *g, int64_t step,
                             char *const *lacking, struct buf *text)
{
    buf_printf(text, "step %s in %s lacks the parts that", text_count(step).text,
               g->job->spec.train.snapshot.dir);
    for (char *const *name = lacking; name && *name; name++) {
        buf_printf(text, "%s %s", name == lacking ? "" : ",", *name);
        if (!generation_has_node(g, *name))
            buf_printf(text, " (%s)", describe_node_state(core, *name));
    }
    buf_puts(text, " wrote");
}

/* What some rank offers of the snapshot needs all parts, and nodes outside of the generation have some of them. The caller frees. */
static char **list_lacking_others(const struct generation *g, const char *digest)
{
    const struct core_offer *offer = offered_parts_find(g, digest);

    return offer && offer->needs_all ? offered_parts_lacking(g, digest) : NULL;
}

/* "/data/run/snap on box2 has none, step 1,200 was committed there at 14:02" */
static void describe_missing(const struct core *core, const struct generation *g,
                             const struct snapshot_record *expected, bool any, struct buf *text)
{
    const struct rank *holder = expected_holder(g, expected);
    const char *problem = holder ? rank_problem(holder, expected, any) : NULL;
    const struct core_offer *changed = holder ? changed_offer(holder, expected) : NULL;
    const char *dir = g->job->spec.train.snapshot.dir, *without = any ? "does not have it" : "has none";

    /* first what a rank has found wrong, which says the most; else where the snapshot was committed */
    if (changed)
        buf_printf(text, "on %s %.*s: the files are not the ones that were committed: damaged",
                   holder->r.node, PROBLEM_CHARS, changed->path);
    else if (problem)
        buf_printf(text, "on %s %.*s", holder->r.node, PROBLEM_CHARS, problem);
    if (!expected)
        return;
    char **lacking = holder ? NULL : list_lacking_others(g, expected->digest);
    const struct text step = text_count(expected->step);
    const struct text at = text_clock(expected->committed_ms, core->now.wall_ms, false);
    if (problem || changed) {
        buf_printf(text, "; step %s was committed there at %s", step.text, at.text);
    } else if (holder) { /* the node that committed it takes part, and its directory is empty */
        buf_printf(text, "%s on %s %s, step %s was committed there at %s", dir, holder->r.node, without,
                   step.text, at.text);
        if (!any)
            buf_puts(text, "; is the file system mounted?");
    } else if (lacking) {
        describe_lacking(core, g, expected->step, lacking, text);
        buf_puts(text, ", and needs all of its parts");
        strv_free(lacking);
    } else { /* the generation is on other nodes: name those that committed it, and what is wrong with them */
        buf_printf(text, "step %s was committed on", step.text);
        for (char **name = expected->nodes; name && *name; name++)
            buf_printf(text, "%s %s (%s)", name == expected->nodes ? "" : ",", *name,
                       describe_node_state(core, *name));
        buf_printf(text, " at %s, and %s on %s %s", at.text, dir, g->ranks[0].r.node, without);
    }
}

/* A snapshot that may not be in the records. "step 20 in /out lacks the parts that box2 wrote" */
static void describe_refused(const struct core *core, const struct generation *g,
                             const struct core_offer *refused, struct buf *text)
{
    char **names = offered_parts_lacking(g, refused->digest);
    const struct rank *rank = names ? first_rank_on(g, names[0]) : NULL;
    const char *problem = rank ? rank_problem(rank, NULL, false) : NULL;

    describe_lacking(core, g, refused->step, names, text);
    if (names && !rank)
        buf_puts(text, ", and needs all of its parts");
    else if (problem)
        buf_printf(text, ": on %s %.*s", rank->r.node, PROBLEM_CHARS, problem);
    else
        buf_puts(text, "; is the file system mounted there?");
    strv_free(names);
}

static void forget_lost(struct job *job)
{
    free(job->lost.said);
    strv_free(job->lost.found);
    strv_free(job->lost.lacks);
    strv_free(job->lost.avoid);
    free(job->went_back);
    job->went_back = job->lost.said = NULL;
    job->lost.needs_all = false;
    job->lost.found = job->lost.lacks = job->lost.avoid = NULL;
    job->lost.look_at = job->lost.pause_ms = 0;
}

/* The job continues from an older snapshot than its newest: an event and a note say why. */
static void say_older_source(struct core *core, const struct generation *g,
                             const struct snapshot_record *expected, const struct core_offer *refused)
{
    struct job *job = g->job;
    CLEANUP(buf_release) struct buf text = {0};

    buf_printf(&text, "went back to step %s: ", text_count(g->r.source_step).text);
    if (expected && snapshots_source_older(g, expected))
        describe_missing(core, g, expected, true, &text);
    else
        describe_refused(core, g, refused, &text);
    emit_event(core, job, "snapshot_older", "%s", text.data);
    text_set(&job->went_back, "%s", text.data);
}

/* The newest snapshot is there, but these nodes of the generation lack parts of it. The caller frees; NULL: none. */
static char **lost_list_lacking(const struct generation *g, const struct snapshot_record *expected,
                                const struct core_offer *refused)
{
    const char *digest = expected ? expected->digest : refused ? refused->digest : NULL;

    return digest ? offered_parts_lacking(g, digest) : NULL;
}

static bool lost_needs_all(const struct generation *g, const struct snapshot_record *expected,
                           const struct core_offer *refused)
{
    const struct core_offer *offer = expected ? offered_parts_find(g, expected->digest) : refused;

    return offer && offer->needs_all;
}

static void wait_for_snapshots(struct core *core, struct generation *g, bool only_tries_show,
                               const char *text)
{
    struct job *job = g->job;

    if (!job->lost.pause_ms)
        job->lost.pause_ms = core->config.look_ms;
    else if ((job->lost.found || only_tries_show) && job->lost.pause_ms < LOOK_MOST * core->config.look_ms)
        job->lost.pause_ms *= 2; /* the files exist but could not be loaded: trying often costs generations */
    strv_free(steal(job->lost.found));
    strv_free(steal(job->lost.avoid));
    job->lost.look_at = core->now.boot_ms + job->lost.pause_ms;
    core_wake(core, job->lost.look_at);
    if (!job->lost.said || strcmp(job->lost.said, text) != 0) {
        text_set(&job->lost.said, "%s", text);
        emit_event(core, job, "snapshots_missing", "%s", text);
    }
    generation_hold(core, g, text);
}

bool lost_snapshots_check(struct core *core, struct generation *g, const struct core_offer *refused)
{
    struct job *job = g->job;
    const struct snapshot_record *expected = snapshots_expected(core, job);
    /* The directory is not in the records: another coordinator wrote it, or this one has lost its records. Nodes lack parts
     * of what is there, or all there is damaged and `resume: continue` names it. */
    bool unknown = !expected && (refused || (job->spec.train.resume == RESUME_CONTINUE &&
                                             !job->r.scratch_generation && expected_holder(g, NULL)));
    bool fails = job->spec.on_lost_snapshots == LOST_FAIL;
    CLEANUP(buf_release) struct buf text = {0};

    /* There is a source, or none is expected: the generation may start. */
    if (g->r.source_rank >= 0 || !(expected || unknown)) {
        forget_lost(job);
        if (refused || (expected && g->r.source_rank >= 0 && snapshots_source_older(g, expected)))
            say_older_source(core, g, expected, refused);
        return false;
    }
    buf_puts(&text, fails ? "its snapshots cannot be found: " : "waits for its snapshots: ");
    if (expected || !refused)
        describe_missing(core, g, expected, false, &text);
    else
        describe_refused(core, g, refused, &text);
    if (fails) {
        generation_fail(core, g, &(struct failure_cause){.fatal = true, .exit_code = 125, .text = text.data});
        return true;
    }
    strv_free(job->lost.lacks);
    job->lost.lacks = lost_list_lacking(g, expected, refused);
    job->lost.needs_all = lost_needs_all(g, expected, refused);
    buf_puts(&text, text.data[text.len - 1] == '?' ? "" : ";");
    if (job->lost.lacks && !job->lost.needs_all)
        advice_print_without(core, job, g->r.node_count, job->lost.lacks, &text);
    buf_printf(&text, " `ddpctl restart %" PRId64 " --from-scratch` starts again at step 0", job->r.id);
    wait_for_snapshots(core, g, unknown, text.data);
    return true;
}

bool lost_snapshots_waits(const struct job *job)
{
    return job->lost.look_at && job->r.state == JOB_RECOVERING;
}

void lost_snapshots_tick(struct core *core, struct job *job)
{
    const struct snapshot_record *expected = snapshots_expected(core, job);
    const struct generation *g = job_current(job);
    int others = 0;

    if (!lost_snapshots_waits(job) || core->now.boot_ms < job->lost.look_at)
        return;
    job->lost.look_at = core->now.boot_ms + job->lost.pause_ms;
    core_wake(core, job->lost.look_at);
    strv_free(steal(job->lost.found)); /* what an earlier look found is asked for again */
    if (!expected) {                   /* the paths are not known, so only a new generation can look */
        job->lost.look_at = 0;
        core_capacity_changed(core);
        return;
    }
    for (size_t i = 0; i < core->node_count; i++) {
        const struct node *node = core->nodes[i];
        bool part = snapshots_has_node(expected, node->r.name) || first_rank_on(g, node->r.name);
        if (!node->session || node_gone(node) || (!part && others++ >= LOOK_NODES))
            continue;
        struct core_effect *effect = emit_effect(core, EFFECT_LOOK);
        effect->session = node->session;
        effect->job = job->r.id;
    }
}

int64_t lost_snapshots_deadline(const struct job *job)
{
    return lost_snapshots_waits(job) ? job->lost.look_at : INT64_MAX;
}

void lost_snapshots_node_back(struct core *core)
{
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *job = core->jobs[i];
        if (!lost_snapshots_waits(job) || job->lost.pause_ms > core->config.look_ms)
            continue; /* a longer pause means that the files were found and useless: a node changes nothing */
        job->lost.look_at = core->now.boot_ms;
        core_wake(core, job->lost.look_at);
    }
}

/* A node that lacked parts has not found them yet, and will be in the next generation. If all parts are needed: none of these nodes
 * has found its parts; some of them may share a directory, so one may do. */
static bool parts_still_lack(const struct core *core, const struct job *job)
{
    for (char **name = job->lost.needs_all ? job->lost.lacks : NULL; name && *name; name++)
        if (names_contain(job->lost.found, *name))
            return false;
    if (job->lost.needs_all && job->lost.lacks)
        return true;
    for (char **name = job->lost.lacks; name && *name; name++) {
        const struct node *node = core_find_node(core, *name);
        if (node && !node_gone(node) && !node->r.drain && !names_contain(job->lost.found, *name))
            return true;
    }
    return false;
}

void lost_snapshots_looked(struct core *core, struct node *node, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->looked.job);

    if (!job || !event->looked.found || job->r.state != JOB_RECOVERING ||
        !(lost_snapshots_waits(job) || job->lost.found) || names_contain(job->lost.found, node->r.name))
        return;
    job->lost.found = strv_append(job->lost.found, node->r.name);
    if (parts_still_lack(core, job))
        return;
    if (job->lost.look_at)
        emit_event(core, job, "snapshots_found", "%s has its snapshots", node->r.name);
    job->lost.look_at = 0;
    core_capacity_changed(core);
}

void lost_snapshots_retry(struct job *job)
{
    strv_free(steal(job->lost.found));
    strv_free(steal(job->lost.lacks));
    strv_free(steal(job->lost.avoid));
    job->lost.needs_all = false;
    job->lost.look_at = job->lost.pause_ms = 0;
}

void lost_snapshots_resized(struct job *job)
{
    const struct generation *g = job_current(job);

    /* No node of the job has its snapshots, so no number of nodes helps. */
    if (!lost_snapshots_waits(job) || !job->lost.lacks || job->lost.needs_all)
        return;
    char **lacking = steal(job->lost.lacks);
    lost_snapshots_retry(job);
    /* If the job fits on the nodes that have their parts, it continues without the others. Else it tries all again. */
    if (job->spec.nodes_max <= g->r.node_count - (int64_t)strv_len(lacking))
        job->lost.avoid = steal(lacking);
    strv_free(lacking);
}

bool lost_snapshots_on_node(const struct job *job, const struct node *node)
{
    return names_contain(job->lost.found, node->r.name);
}

bool lost_snapshots_has_place(const struct job *job, const struct placement_choice *chosen, size_t count)
{
    char *const *wanted = job->lost.needs_all && job->lost.lacks ? job->lost.lacks : job->lost.found;

    if (!job->lost.found)
        return true;
    for (size_t i = 0; i < count; i++)
        if (names_contain(wanted, chosen[i].node->r.name) && lost_snapshots_on_node(job, chosen[i].node))
            return true;
    return false;
}

void lost_snapshots_explain_place(struct core *core, struct job *job, struct buf *text)
{
    bool there = false;

    for (char **name = job->lost.found; *name; name++) {
        const struct node *node = core_find_node(core, *name);
        there |= node && !node_gone(node);
    }
    if (!there) { /* the nodes that had the snapshots are gone again: back to looking */
        strv_free(steal(job->lost.found));
        job->lost.look_at = core->now.boot_ms + job->lost.pause_ms;
        core_wake(core, job->lost.look_at);
        buf_puts(text, job->lost.said);
        return;
    }
    buf_puts(text, "waits for slots on");
    for (char **name = job->lost.found; *name; name++)
        buf_printf(text, "%s %s", name == job->lost.found ? "" : " or", *name);
    buf_puts(text, ", where its snapshots are");
}

static char **append_snapshot_file(char **paths, const struct snapshot_record *snapshot)
{
    CLEANUP(free_text) char *file = xasprintf("%s/model.safetensors", snapshot->path);

    return strv_append(paths, file);
}

char **core_snapshot_paths(const struct core *core, int64_t id)
{
    const struct job *job = core_find_job(core, id);
    const struct snapshot_record *expected = job ? snapshots_expected(core, job) : NULL;
    const struct job *of = expected ? core_find_job(core, expected->job) : NULL;
    char **paths = of ? append_snapshot_file(NULL, expected) : NULL;

    for (size_t i = of ? of->snapshot_count : 0; i-- > 0 && strv_len(paths) < CORE_OFFERS_MOST;)
        if (&of->snapshots[i] != expected && of->snapshots[i].generation > of->r.scratch_generation)
            paths = append_snapshot_file(paths, &of->snapshots[i]);
    return paths;
}
