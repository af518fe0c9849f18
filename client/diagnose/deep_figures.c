#include "client/diagnose/deep_figures.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/text/format.h"

#define LINE_MOST ((size_t)64 << 10)
#define PARTNERS_LINE "partners "

#define CPU_SPEED                                                                                            \
    "look for a limit of processor time (`cat /sys/fs/cgroup/cpu.max`), heat, a saving mode, or another program"
#define GPU_LINK "compare the PCIe link with that of its peers: `nvidia-smi -q | grep -A 9 'GPU Link Info'`"
#define CABLE                                                                                                \
    "compare the speed and the errors of the network card with its peers': `ethtool DEVICE`, `ip -s link`"

const struct deep_rate_kind deep_rate_kinds[DEEP_RATES] = {
    {"matrix", "multiplies", "multiply",
     "look for heat, a power limit or another program: `nvidia-smi -q -d PERFORMANCE,POWER,CLOCK`",
     CPU_SPEED},
    {"memory", "reads and writes memory", "read and write memory",
     "look for a lowered memory clock: `nvidia-smi -q -d CLOCK`",
     "look for memory modules in too few slots, or another program"},
    {"upload", "copies from the host", "copy from the host", GPU_LINK, ""},
    {"download", "copies to the host", "copy to the host", GPU_LINK, ""},
    {"allreduce", "exchanges data with other nodes", "exchange data with other nodes",
     CABLE ", `ibstat`, `nvidia-smi topo -m`", CABLE},
};

static void deep_take_partners(struct deep_place *p, const json_t *list)
{
    struct deep_rate *rate = &p->rates[DEEP_ALLREDUCE];
    for (size_t i = 0; i < json_array_size(list) && p->partner_count < DEEP_PARTNERS; i++) {
        const json_t *values = json_array_get(list, i);
        struct deep_partner *partner = &p->partners[p->partner_count++];
        const char *why = json_get_text(values, "error", NULL);
        *partner = (struct deep_partner){.rank = json_get_int(values, "rank", 0),
                                         .median = json_get_real(values, "allreduce", 0.0),
                                         .best = json_get_real(values, "allreduce_best", 0.0),
                                         .why = why ? xstrdup(why) : NULL};
        rate->median = partner->median > rate->median ? partner->median : rate->median;
        rate->best = partner->best > rate->best ? partner->best : rate->best;
    }
}

enum err_code deep_figures_add(struct deep_figures *f, const char *line, size_t len, struct err *e)
{
    CLEANUP(json_release) json_t *values = NULL;
    const size_t prefix = strlen(PARTNERS_LINE);
    if (len > prefix && !memcmp(line, PARTNERS_LINE, prefix)) {
        line += prefix;
        len -= prefix;
    }
    if (!len || *line != '{')
        return ERR_OK;
    if (json_parse(line, len, LINE_MOST, &values, e) != ERR_OK)
        return err_wrap(e, "the measured rates");
    const json_t *partners = json_object_get(values, "partners");
    if (partners) {
        for (size_t i = f->count; i-- > 0;)
            if (f->places[i].rank == json_get_int(values, "rank", -1)) {
                deep_take_partners(&f->places[i], partners);
                f->places[i].partners_known = true;
                return ERR_OK;
            }
        return err_set(e, ERR_INVALID_ARGUMENT, "the measured rates: a rank has partners but no device");
    }
    f->places = array_grow(f->places, f->count, &f->cap, sizeof(*f->places));
    struct deep_place *p = &f->places[f->count++];
    *p = (struct deep_place){
        .node = xstrdup(json_get_text(values, "node", "")),
        .model = xstrdup(json_get_text(values, "model", "")),
        .gpu = strcmp(json_get_text(values, "device", "cpu"), "cpu") != 0,
        .rank = json_get_int(values, "rank", 0),
        .index = json_get_int(values, "local_rank", 0),
    };
    for (size_t k = 0; k < DEEP_ALLREDUCE; k++) {
        CLEANUP(free_text) char *best = xasprintf("%s_best", deep_rate_kinds[k].name);
        p->rates[k].median = json_get_real(values, deep_rate_kinds[k].name, 0.0);
        p->rates[k].best = json_get_real(values, best, 0.0);
    }
    return ERR_OK;
}

static int deep_compare_reals(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool deep_are_peers(const struct deep_place *a, const struct deep_place *b)
{
    return a != b && a->gpu == b->gpu && !strcmp(a->model, b->model);
}

/* Whether the place has this rate. A rate of 0 is one, too, if all of several partners could not be reached. */
static bool deep_has_rate(const struct deep_place *p, size_t k)
{
    return p->rates[k].median > 0.0 || (k == DEEP_ALLREDUCE && p->partner_count > 1);
}

/* The only partner of the place; NULL: it has several, or none. */
static const struct deep_place *deep_only_partner(const struct deep_figures *f, const struct deep_place *p)
{
    for (size_t i = 0; p->partner_count == 1 && i < f->count; i++)
        if (f->places[i].gpu == p->gpu && f->places[i].rank == p->partners[0].rank)
            return &f->places[i];
    return NULL;
}

static void deep_compare_place(const struct deep_figures *f, struct deep_place *p, double share)
{
    double *of_peers = xcalloc(f->count + 1, sizeof(*of_peers));
    const struct deep_place *partner = deep_only_partner(f, p);
    for (size_t k = 0; k < DEEP_RATES; k++) {
        struct deep_rate *rate = &p->rates[k];
        size_t count = 0;
        p->peers = 0;
        for (size_t i = 0; i < f->count; i++) {
            if (!deep_are_peers(p, &f->places[i]))
                continue;
            p->peers++;
            /* A pair is compared with other pairs. */
            if (deep_has_rate(&f->places[i], k) && (k != DEEP_ALLREDUCE || &f->places[i] != partner))
                of_peers[count++] = f->places[i].rates[k].median;
        }
        qsort(of_peers, count, sizeof(*of_peers), deep_compare_reals);
        rate->peer_count = count;
        rate->peers = count % 2 ? of_peers[count / 2]
                      : count   ? (of_peers[count / 2 - 1] + of_peers[count / 2]) / 2.0
                                : 0.0;
        rate->low = deep_has_rate(p, k) && rate->best < share * rate->peers;
        rate->slow = rate->low && (k != DEEP_ALLREDUCE || p->partner_count > 1);
    }
    free(of_peers);
}

/* "GPU 2 multiplies at 61 % of the median of its 7 peers", "slots 0, 1 and 2 multiply at 58 % to 61 % of the median of their
 * peers": the places of the node, from place `first` on, that are slow in this way. */
static char *deep_say(const struct deep_figures *f, size_t first, size_t k)
{
    CLEANUP(buf_release) struct buf text = {0}, list = {0};
    const struct deep_place *p = &f->places[first];
    double least = 1.0, most = 0.0;
    size_t count = 0, named = 0;
    for (size_t i = first; i < f->count; i++)
        count +=
            !strcmp(f->places[i].node, p->node) && f->places[i].gpu == p->gpu && f->places[i].rates[k].slow;
    for (size_t i = first; i < f->count; i++) {
        const struct deep_place *q = &f->places[i];
        if (strcmp(q->node, p->node) != 0 || q->gpu != p->gpu || !q->rates[k].slow)
            continue;
        const double part = q->rates[k].median / q->rates[k].peers;
        least = part < least ? part : least;
        most = part > most ? part : most;
        buf_printf(&list, "%s%lld", text_separator(named, count, " and "), (long long)q->index);
        named++;
    }
    buf_printf(&text, "%s%s %s %s at %s", p->gpu ? "GPU" : "slot", count > 1 ? "s" : "", list.data,
               count > 1 ? deep_rate_kinds[k].do_ : deep_rate_kinds[k].does, fmt_percent(least).text);
    if (count > 1 && strcmp(fmt_percent(least).text, fmt_percent(most).text) != 0)
        buf_printf(&text, " to %s", fmt_percent(most).text);
    if (count > 1)
        buf_puts(&text, " of the median of their peers");
    else if (p->rates[k].peer_count == 1)
        buf_puts(&text, " of the rate of its only peer");
    else
        buf_printf(&text, " of the median of its %zu peers", p->rates[k].peer_count);
    return buf_steal(&text);
}

/* Whether an earlier place of the node is slow in the same way, so that the finding is there already. */
static bool deep_is_said(const struct deep_figures *f, size_t at, size_t k)
{
    for (size_t i = 0; i < at; i++)
        if (!strcmp(f->places[i].node, f->places[at].node) && f->places[i].gpu == f->places[at].gpu &&
            f->places[i].rates[k].slow)
            return true;
    return false;
}

/* "GPU 3 of box1 and GPU 3 of box2" */
static void deep_name_pair(const struct deep_place *a, const struct deep_place *b, struct buf *out)
{
    buf_printf(out, "%s %lld of %s and %s %lld of %s", a->gpu ? "GPU" : "slot", (long long)a->index, a->node,
               b->gpu ? "GPU" : "slot", (long long)b->index, b->node);
}

/* Each of the two may tell a reason. A rank that only sees the end of the group does not know why the other has ended it. */
static const char *deep_pair_why(const struct deep_partner *a, const struct deep_partner *b)
{
    const char *other = b ? b->why : NULL;
    if (other && (!a->why || strstr(a->why, "the process group is over")))
        return other;
    return a->why ? a->why : "no reason is known";
}

/* Pairs of which nobody knows which of the two is to blame. The place comes before its partner, so a pair is said once. */
static void deep_judge_pair(const struct deep_figures *f, const struct deep_place *p,
                            const struct deep_partner *with, struct findings *found)
{
    const struct deep_rate *rate = &p->rates[DEEP_ALLREDUCE];
    CLEANUP(buf_release) struct buf text = {0};
    const struct deep_place *q = NULL;
    for (size_t i = 0; i < f->count; i++)
        if (f->places[i].gpu == p->gpu && f->places[i].rank == with->rank)
            q = &f->places[i];
    if (!q || rate->slow || q->rates[DEEP_ALLREDUCE].slow)
        return;
    const bool single = p->partner_count == 1 || q->partner_count == 1;
    const struct deep_rate *other = &q->rates[DEEP_ALLREDUCE];
    const struct deep_partner *back = NULL; /* the pair as q has seen it */
    for (size_t i = 0; i < q->partner_count; i++)
        if (q->partners[i].rank == p->rank)
            back = &q->partners[i];
    const bool low = (p->partner_count == 1 && rate->low) || (q->partner_count == 1 && other->low);
    if (!(with->median > 0.0) || (back && !(back->median > 0.0))) {
        deep_name_pair(p, q, &text);
        buf_printf(&text, " cannot exchange data: %s", deep_pair_why(with, back));
        findings_add(found, "", buf_steal(&text),
                     xstrdup("see whether the nodes reach each other: `ddpctl check`"));
    } else if (single && low) {
        const double peers = p->partner_count == 1 && rate->low ? rate->peers : other->peers;
        deep_name_pair(p, q, &text);
        buf_printf(&text, " exchange data at %s of the median of other pairs",
                   fmt_percent(with->median / peers).text);
        findings_add(found, "", buf_steal(&text),
                     xasprintf("measure them with a third node to learn which of the two is slow; %s",
                               p->gpu ? deep_rate_kinds[DEEP_ALLREDUCE].gpu_fix
                                      : deep_rate_kinds[DEEP_ALLREDUCE].cpu_fix));
    }
}

void deep_figures_judge(struct deep_figures *f, double share, struct findings *found)
{
    for (size_t i = 0; i < f->count; i++)
        deep_compare_place(f, &f->places[i], share);
    for (size_t i = 0; i < f->count; i++)
        for (size_t k = 0; k < DEEP_RATES; k++) {
            const struct deep_place *p = &f->places[i];
            const struct deep_rate_kind *kind = &deep_rate_kinds[k];
            if (p->rates[k].slow && !deep_is_said(f, i, k))
                findings_add(found, p->node, deep_say(f, i, k),
                             xstrdup(p->gpu ? kind->gpu_fix : kind->cpu_fix));
        }
    for (size_t i = 0; i < f->count; i++)
        for (size_t k = 0; k < f->places[i].partner_count; k++)
            if (f->places[i].rank < f->places[i].partners[k].rank)
                deep_judge_pair(f, &f->places[i], &f->places[i].partners[k], found);
}

void deep_figures_release(struct deep_figures *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->places[i].node);
        free(f->places[i].model);
        for (size_t k = 0; k < f->places[i].partner_count; k++)
            free(f->places[i].partners[k].why);
    }
    free(f->places);
    *f = (struct deep_figures){0};
}
