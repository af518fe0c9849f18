#include "daemon/coordinator/service/waiting_effects.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/service_state.h"

/* Two effects with the same subject: carrying out the newer one is enough. A watch sends the present state of its member
 * (rendezvous.c), and the others only mark what is sent at the end of a turn (effects.c). The newer one keeps its place, so it
 * does not overtake an effect on which it depends. */
struct effect_subject {
    enum core_effect_kind kind;
    uint64_t id;
    const char *node;
    size_t place;
};

/* False: each effect of this kind counts. */
static bool subject_find(const struct core_effect *f, size_t place, struct effect_subject *out)
{
    *out = (struct effect_subject){.kind = f->kind, .node = "", .place = place};
    switch (f->kind) {
    case EFFECT_WATCH:
        out->id = f->call;
        return true;
    case EFFECT_WISH:
        out->id = f->session;
        return true;
    case EFFECT_JOB_CHANGED:
        out->id = (uint64_t)f->job;
        return true;
    case EFFECT_NODE_CHANGED:
        out->node = f->node;
        return true;
    default:
        return false;
    }
}

static int subject_compare(const struct effect_subject *a, const struct effect_subject *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return strcmp(a->node, b->node);
}

static int compare_subject_places(const void *a, const void *b)
{
    const struct effect_subject *x = a, *y = b;
    const int order = subject_compare(x, y);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Nobody is left who could get it. */
static bool effect_is_moot(const struct service *s, const struct core_effect *f)
{
    switch (f->kind) {
    case EFFECT_REPLY:
    case EFFECT_JOIN:
    case EFFECT_WATCH:
        return !handles_get(&s->calls, f->call);
    case EFFECT_JOB_CHANGED:
    case EFFECT_NODE_CHANGED:
        return false;
    default:
        return !handles_get(&s->sessions, f->session);
    }
}

void waiting_effects_thin(const struct service *s, struct core_out *out)
{
    struct effect_subject *subjects = xcalloc(out->effect_count + 1, sizeof *subjects);
    bool *drop = xcalloc(out->effect_count + 1, sizeof *drop);
    size_t count = 0, kept = 0;

    for (size_t i = 0; i < out->effect_count; i++) {
        drop[i] = effect_is_moot(s, &out->effects[i]);
        count += subject_find(&out->effects[i], i, &subjects[count]);
    }
    qsort(subjects, count, sizeof *subjects, compare_subject_places);
    for (size_t i = 0; i + 1 < count; i++)
        if (subject_compare(&subjects[i], &subjects[i + 1]) == 0)
            drop[subjects[i].place] = true;
    for (size_t i = 0; i < out->effect_count; i++) {
        if (!drop[i]) {
            out->effects[kept++] = out->effects[i];
            continue;
        }
        free(out->effects[i].node);
        strv_free(out->effects[i].texts);
    }
    out->effect_count = kept;
    free(subjects);
    free(drop);
}
