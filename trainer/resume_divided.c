/* Normal sequence: all ranks tell each other which parameters they need moments of, and which parts they see. Each rank reads its
 * parts, and all tell each other what they have read. Then each part that a rank still lacks is read by the lowest rank that sees it,
 * and passed on, tensor by tensor. The digest of a part is known when all of it was read; then it counts as done.
 *
 * Failures: a rank that reads a damaged copy still lacks the part. If the copy that is passed on is damaged, it is struck for all ranks
 * of its node, and the part comes from another node that sees one. If no copy is left, all ranks return the same error. An error that
 * another copy cannot repair ends the restore on all ranks. */
#include "trainer/resume_divided.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/state.h"
#include "trainer/resume_parts.h"

struct divided_span { /* parameters in a row, in the order of the model's tensors */
    int64_t first, count;
};

enum part_progress { PART_NOT_NEEDED, PART_NEEDED, PART_DONE };

struct divided_restore {
    const struct snapshot_place *place;
    const struct snapshot_part *parts;
    int ranks, count;            /* count: of the parts */
    struct divided_span *needs;  /* by rank */
    bool *sees;                  /* by rank, then by part */
    uint8_t *progress;           /* by rank, then by part: enum part_progress */
    struct snapshot_ranges need; /* of this rank */
    float *moments;              /* need.floats of them */
    size_t taken;                /* floats of `need` that the parts have had */
    float *data;                 /* room for the largest tensor */
    struct err last;             /* of a copy that is bad */
};

static void divided_restore_release(struct divided_restore *r)
{
    free(r->needs);
    free(r->sees);
    free(r->progress);
    divided_release(&r->need);
    free(r->moments);
    free(r->data);
}

/* ---- who needs and who sees what */

static bool spans_meet(const struct divided_span *need, const struct snapshot_part *part)
{
    return part->count > 0 && need->first < part->first + part->count &&
           part->first < need->first + need->count;
}

static enum err_code divided_look(struct trainer *t, struct divided_restore *r, struct err *e)
{
    const struct formation *f = &t->formation;
    const struct optim *o = t->engine.optim;
    const struct snapshot_layout *l = &t->engine.layout;
    struct divided_span mine = {0};
    bool *sees = xcalloc((size_t)r->count, sizeof(*sees));
    if (o->floats > 0) {
        mine.first = (int64_t)divided_parameters_before(l, o->first);
        mine.count = (int64_t)divided_parameters_before(l, o->first + o->count) - mine.first;
    }
    for (int part = 0; part < r->count; part++)
        sees[part] = t->snapshot_dir && snapshot_part_exists(t->snapshot_dir, r->place, part);
    enum err_code code = coll_allgather(f->group, &mine, sizeof(mine), r->needs, e);
    if (!code)
        code = coll_allgather(f->group, sees, (size_t)r->count * sizeof(*sees), r->sees, e);
    free(sees);
    for (int rank = 0; rank < r->ranks && !code; rank++)
        for (int part = 0; part < r->count; part++)
            r->progress[rank * r->count + part] =
                spans_meet(&r->needs[rank], &r->parts[part]) ? PART_NEEDED : PART_NOT_NEEDED;
    return code;
}

/* The lowest rank that sees a good copy; -1: none. */
static int part_find_reader(const struct divided_restore *r, int part)
{
    for (int rank = 0; rank < r->ranks; rank++)
        if (r->sees[rank * r->count + part])
            return rank;
    return -1;
}

static bool part_is_lacking(const struct divided_restore *r, int part)
{
    for (int rank = 0; rank < r->ranks; rank++)
        if (r->progress[rank * r->count + part] == PART_NEEDED)
            return true;
    return false;
}

/* The copy on this rank's node does not count any more. The ranks there need another one. */
static void part_strike(const struct trainer *t, struct divided_restore *r, int rank, int part)
{
    const struct link_peer *peers = t->formation.info.peers;
    for (int i = 0; i < r->ranks; i++)
        if (peers[i].node_rank == peers[rank].node_rank)
            r->sees[i * r->count + part] = false;
}

/* ---- reading */

static enum err_code divided_room(struct trainer *t, struct divided_restore *r)
{
    const struct snapshot_layout *l = &t->engine.layout;
    size_t largest = 1;
    for (size_t i = 0; i < l->tensor_count; i++)
        largest = l->tensors[i].count > largest ? l->tensors[i].count : largest;
    state_ranges(&t->engine, &r->need);
    r->moments = calloc(r->need.floats + 1, sizeof(*r->moments));
    r->data = calloc(largest, sizeof(*r->data));
    return r->moments && r->data
               ? ERR_OK
               : err_set(&r->last, ERR_RESOURCE_EXHAUSTED, "a copy of the moments: out of memory");
}

static enum err_code read_own(struct trainer *t, struct divided_restore *r, int part, struct err *e)
{
    CLEANUP(free_text) char *path = snapshot_part_path(t->snapshot_dir, r->place, part);
    CLEANUP(divided_close) struct divided_file file;
    size_t taken = 0;
    if (divided_open(&file, path, &t->engine.layout, e))
        return e->code;
    for (;;) {
        const struct snapshot_range *range;
        if (divided_next(&file, &r->parts[part], &range, r->data, e))
            return e->code;
        if (!range)
            break;
        taken += divided_take(&r->need, range, r->data, r->moments);
    }
    r->taken += taken;
    return ERR_OK;
}

/* Notes the errors of all ranks. Returns one that no other copy can repair. */
static enum err_code divided_agree(struct trainer *t, const struct err *found, struct divided_restore *r,
                                   struct err *e)
{
    struct err *all = xcalloc((size_t)r->ranks, sizeof(*all));
    enum err_code code = coll_allgather(t->formation.group, found, sizeof(*found), all, e);
    for (int rank = 0; rank < r->ranks && !code; rank++) {
        if (all[rank].code && !parts_copy_is_bad(&all[rank])) {
            *e = all[rank];
            code = e->code;
        } else if (all[rank].code)
            r->last = all[rank];
    }
    free(all);
    return code;
}

/* Each rank reads the parts that it needs and sees, and tells the others. */
static enum err_code read_seen(struct trainer *t, struct divided_restore *r, struct err *e)
{
    const size_t count = (size_t)r->count, own = (size_t)t->formation.rank * count;
    uint8_t *mine = xmemdup(r->progress + own, count);
    struct err found = {0}, bad = {0};
    for (size_t part = 0; part < count && !found.code; part++) {
        if (mine[part] != PART_NEEDED || !r->sees[own + part])
            continue;
        mine[part] = PART_DONE;
        if (!read_own(t, r, (int)part, &found))
            continue;
        log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
        if (!parts_copy_is_bad(&found))
            break;
        mine[part] = PART_NEEDED; /* another copy may do */
        bad = found;
        found = (struct err){0};
    }
    enum err_code code = divided_agree(t, found.code ? &found : &bad, r, e);
    if (!code)
        code = coll_allgather(t->formation.group, mine, count, r->progress, e);
    free(mine);
    return code;
}

/* What goes before each tensor of a part that is passed on. */
struct divided_note {
    struct err found;
    struct snapshot_range range; /* count 0: the part is complete */
};

static void read_note(struct divided_file *file, const struct snapshot_part *want, float *data,
                      struct divided_note *note)
{
    const struct snapshot_range *range = NULL;
    if (!note->found.code && divided_next(file, want, &range, data, &note->found))
        log_error("snapshot_unreadable", "why=%s", LOG_Q(note->found.msg));
    note->range = range ? *range : (struct snapshot_range){0};
}

/* From the rank that sees it to the ranks that lack it. *found: the reader's error. */
static enum err_code pass_on(struct trainer *t, struct divided_restore *r, int part, int reader,
                             struct err *found, struct err *e)
{
    struct formation *f = &t->formation;
    CLEANUP(divided_close) struct divided_file file = {0};
    struct divided_note note = {0};
    size_t taken = 0;
    if (f->rank == reader) {
        CLEANUP(free_text) char *path = snapshot_part_path(t->snapshot_dir, r->place, part);
        if (divided_open(&file, path, &t->engine.layout, &note.found))
            log_error("snapshot_unreadable", "why=%s", LOG_Q(note.found.msg));
    }
    for (;;) {
        if (f->rank == reader)
            read_note(&file, &r->parts[part], r->data, &note);
        if (coll_broadcast(f->group, &note, sizeof(note), reader, e))
            return e->code;
        if (note.found.code || !note.range.count)
            break;
        if (coll_broadcast(f->group, r->data, note.range.count * sizeof(*r->data), reader, e))
            return e->code;
        if (r->progress[f->rank * r->count + part] == PART_NEEDED)
            taken += divided_take(&r->need, &note.range, r->data, r->moments);
    }
    *found = note.found;
    r->taken += note.found.code ? 0 : taken;
    return ERR_OK;
}

static enum err_code divided_is_missing(const struct trainer *t, const struct divided_restore *r, int part,
                                        struct err *e)
{
    if (r->last.code) { /* which says more than that there is no other copy */
        *e = r->last;
        return e->code;
    }
    CLEANUP(free_text)
    char *path = snapshot_part_path(t->snapshot_dir ? t->snapshot_dir : "", r->place, part);
    return err_set(
        e, ERR_NOT_FOUND,
        "%s of step %lld is missing: rank %d wrote it on '%.64s', and no other file has its moments", path,
        (long long)r->place->step, part, r->parts[part].node);
}

/* A part that some ranks lack, from one copy after the other. */
static enum err_code read_lacking(struct trainer *t, struct divided_restore *r, int part, struct err *e)
{
    for (;;) {
        struct err found = {0};
        const int reader = part_find_reader(r, part);
        if (reader < 0)
            return divided_is_missing(t, r, part, e);
        if (pass_on(t, r, part, reader, &found, e))
            return e->code;
        if (!found.code)
            break;
        if (!parts_copy_is_bad(&found)) {
            *e = found;
            return e->code;
        }
        r->last = found;
        part_strike(t, r, reader, part);
    }
    for (int rank = 0; rank < r->ranks; rank++)
        if (r->progress[rank * r->count + part] == PART_NEEDED)
            r->progress[rank * r->count + part] = PART_DONE;
    if (t->formation.rank == 0)
        log_info("part_passed_on", "part=%d of=%d step=%lld", part, r->count, (long long)r->place->step);
    return ERR_OK;
}

static enum err_code divided_read_all(struct trainer *t, struct divided_restore *r, struct err *e)
{
    if (divided_look(t, r, e))
        return e->code;
    struct err room = {0};
    if (divided_room(t, r))
        room = r->last;
    if (divided_agree(t, &room, r, e) || read_seen(t, r, e))
        return e->code;
    for (int part = 0; part < r->count; part++)
        if (part_is_lacking(r, part) && read_lacking(t, r, part, e))
            return e->code;
    /* The parts are those of another optimizer, which had fewer moments. */
    struct err lacks = {0};
    if (r->taken != divided_floats(&r->need))
        (void)err_set(
            &lacks, ERR_FAILED_PRECONDITION,
            "the parts of the snapshot of step %lld hold %zu of the %zu moments that rank %d needs: they are of "
            "another model or optimizer",
            (long long)r->place->step, r->taken, divided_floats(&r->need), t->formation.rank);
    return divided_agree(t, &lacks, r, e);
}

enum err_code restore_divided(struct trainer *t, const struct snapshot_place *place,
                              const struct snapshot_part *parts, struct err *e)
{
    struct engine *n = &t->engine;
    CLEANUP(divided_restore_release)
    struct divided_restore r = {
        .place = place, .parts = parts, .ranks = t->formation.world_size, .count = (int)place->parts};
    const size_t cells = (size_t)r.ranks * (size_t)r.count;
    r.needs = xcalloc((size_t)r.ranks, sizeof(*r.needs));
    r.sees = xcalloc(cells, sizeof(*r.sees));
    r.progress = xcalloc(cells, sizeof(*r.progress));
    if (divided_read_all(t, &r, e))
        return e->code;
    if (n->optim->floats > 0)
        n->device->ops->upload(n->device, n->optim->state, r.moments, n->optim->floats * sizeof(float));
    return n->device->ops->wait(n->device, e);
}
