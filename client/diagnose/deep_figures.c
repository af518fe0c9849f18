#include "client/diagnose/deep_figures.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/text/format.h"

#define LINE_MOST ((size_t)64 << 10)

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

enum err_code deep_figures_add(struct deep_figures *f, const char *line, size_t len, struct err *e)
{
    CLEANUP(json_release) json_t *values = NULL;
    if (json_parse(line, len, LINE_MOST, &values, e) != ERR_OK)
        return err_wrap(e, "the measured rates");
    f->places = array_grow(f->places, f->count, &f->cap, sizeof(*f->places));
    struct deep_place *p = &f->places[f->count++];
    *p = (struct deep_place){
        .node = xstrdup(json_get_text(values, "node", "")),
        .model = xstrdup(json_get_text(values, "model", "")),
        .gpu = strcmp(json_get_text(values, "device", "cpu"), "cpu") != 0,
        .rank = json_get_int(values, "rank", 0),
        .index = json_get_int(values, "local_rank", 0),
    };
    for (size_t k = 0; k < DEEP_RATES; k++) {
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

static void deep_compare_place(const struct deep_figures *f, struct deep_place *p, double share)
{
    double *of_peers = xcalloc(f->count + 1, sizeof(*of_peers));
    for (size_t k = 0; k < DEEP_RATES; k++) {
        struct deep_rate *rate = &p->rates[k];
        size_t count = 0;
        p->peers = 0;
        for (size_t i = 0; i < f->count; i++) {
            if (!deep_are_peers(p, &f->places[i]))
                continue;
            p->peers++;
            if (f->places[i].rates[k].median > 0.0)
                of_peers[count++] = f->places[i].rates[k].median;
        }
        qsort(of_peers, count, sizeof(*of_peers), deep_compare_reals);
        rate->peer_count = count;
        rate->peers = count % 2 ? of_peers[count / 2]
                      : count   ? (of_peers[count / 2 - 1] + of_peers[count / 2]) / 2.0
                                : 0.0;
        rate->slow = rate->median > 0.0 && rate->best < share * rate->peers;
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
}

void deep_figures_release(struct deep_figures *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->places[i].node);
        free(f->places[i].model);
    }
    free(f->places);
    *f = (struct deep_figures){0};
}
