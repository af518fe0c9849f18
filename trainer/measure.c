#include "trainer/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "trainer/device/rates.h"
#include "trainer/measure_network.h"

#define ROUNDS 9
#define CPUINFO_MOST ((size_t)8 << 20)

/* What a rank tells rank 0. */
struct measured {
    char device[96], model[96];
    double median[RATE_COUNT], best[RATE_COUNT]; /* 0: the device does not have it */
};

/* "AMD EPYC 7763 64-Core Processor": devices of one model should be equally fast. */
static void measure_find_model(const struct device *d, char *out, size_t cap)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err unread;
    snprintf(out, cap, "%s", d->name);
    if (!d->host || file_read("/proc/cpuinfo", CPUINFO_MOST, &text, &unread) != ERR_OK || !text.len)
        return;
    buf_putc(&text, '\0');
    const char *at = strstr(text.data, "\nmodel name"), *value = at ? strchr(at, ':') : NULL;
    if (value)
        snprintf(out, cap, "%.*s", (int)strcspn(value + 1, "\n"), value + 1);
    memmove(out, out + strspn(out, " "), strlen(out + strspn(out, " ")) + 1);
}

void measure_idle(int64_t from, double slower)
{
    const int64_t left = (int64_t)((double)(clock_mono_ns() - from) * (slower - 1.0));
    const struct timespec pause = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    if (left > 0)
        nanosleep(&pause, NULL);
}

/* DDP_TEST_SLOW_NODE; 1: not slower. */
static double measure_slower(const struct trainer *t)
{
    const char *text = getenv("DDP_TEST_SLOW_NODE"), *factor = text ? strrchr(text, ':') : NULL;
    const struct formation *f = &t->formation;
    const char *node = f->info.peers ? f->info.peers[f->rank].node : NULL;
    if (!factor || !node || strlen(node) != (size_t)(factor - text) ||
        strncmp(node, text, (size_t)(factor - text)) != 0)
        return 1.0;
    return strtod(factor + 1, NULL);
}

static int compare_rates(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The products get half of the time, because they are what a training does most. */
static int64_t measure_time(const struct trainer *t, enum device_rate rate)
{
    const int64_t round = t->spec->measure_ms * 1000000 / ROUNDS;
    const int others = t->engine.device->host ? 1 : RATE_COUNT - 1;
    return rate == RATE_MATRIX ? round / 2 : round / 2 / others;
}

static enum err_code measure_rounds(struct trainer *t, struct device_rates *rates, struct measured *out,
                                    struct err *e)
{
    double all[RATE_COUNT][ROUNDS] = {0};
    const double slower = measure_slower(t);
    for (int round = 0; round < ROUNDS; round++)
        for (enum device_rate rate = 0; rate < RATE_COUNT; rate++) {
            double work = 0;
            if (!device_rate_exists(t->engine.device, rate))
                continue;
            if (coll_barrier(t->formation.group, e))
                return e->code;
            const int64_t from = clock_mono_ns();
            if (rates_run(rates, rate, (int64_t)((double)measure_time(t, rate) / slower), &work, e))
                return e->code;
            measure_idle(from, slower);
            all[rate][round] = work / ((double)(clock_mono_ns() - from) * 1e-9);
        }
    for (enum device_rate rate = 0; rate < RATE_COUNT; rate++) {
        qsort(all[rate], ROUNDS, sizeof(double), compare_rates);
        out->median[rate] = all[rate][ROUNDS / 2];
        out->best[rate] = all[rate][ROUNDS - 1];
    }
    return ERR_OK;
}

static void measure_print(const struct trainer *t, const struct measured *all)
{
    for (int r = 0; r < t->formation.world_size; r++) {
        CLEANUP(buf_release) struct buf line = {0};
        const struct link_peer *peer = t->formation.info.peers ? &t->formation.info.peers[r] : NULL;
        struct jout o = {.buf = &line};
        jout_open(&o, NULL, '{');
        jout_int(&o, "rank", r);
        jout_text(&o, "node", peer && peer->node ? peer->node : "");
        jout_int(&o, "local_rank", peer ? peer->local_rank : 0);
        jout_text(&o, "device", all[r].device);
        jout_text(&o, "model", all[r].model);
        for (enum device_rate rate = 0; rate < RATE_COUNT; rate++) {
            CLEANUP(free_text) char *best = xasprintf("%s_best", device_rate_names[rate]);
            if (!device_rate_exists(t->engine.device, rate))
                continue;
            jout_real(&o, device_rate_names[rate], all[r].median[rate]);
            jout_real(&o, best, all[r].best[rate]);
        }
        jout_close(&o, '}');
        printf("%.*s\n", (int)line.len, line.data);
    }
    fflush(stdout);
}

static void measure_print_network(const struct trainer *t, const struct network_partners *all)
{
    for (int r = 0; r < t->formation.world_size; r++) {
        CLEANUP(buf_release) struct buf line = {0};
        struct jout o = {.buf = &line};
        jout_open(&o, NULL, '{');
        jout_int(&o, "rank", r);
        jout_open(&o, "partners", '[');
        for (int i = 0; i < all[r].count; i++) {
            const struct network_partner *p = &all[r].list[i];
            jout_open(&o, NULL, '{');
            jout_int(&o, "rank", p->rank);
            jout_real(&o, "allreduce", p->rate.median);
            jout_real(&o, "allreduce_best", p->rate.best);
            if (*p->why)
                jout_text(&o, "error", p->why);
            jout_close(&o, '}');
        }
        jout_close(&o, ']');
        jout_close(&o, '}');
        printf("partners %.*s\n", (int)line.len, line.data);
    }
    fflush(stdout);
}

static enum err_code measure_network(struct trainer *t, struct err *e)
{
    struct network_partners mine;
    if (network_measure(t, measure_slower(t), &mine, e))
        return e->code;
    struct network_partners *all = xcalloc((size_t)t->formation.world_size, sizeof(*all));
    enum err_code code = coll_allgather(t->formation.group, &mine, sizeof(mine), all, e);
    if (!code)
        code = network_check_partners(all, t->formation.world_size, e);
    if (!code && t->formation.rank == 0)
        measure_print_network(t, all);
    free(all);
    return code;
}

enum err_code trainer_measure(struct trainer *t, struct err *e)
{
    struct coll_group *group = t->formation.group;
    struct device *device = t->engine.device;
    struct measured mine = {0};
    struct rate_sizes sizes = {0};
    struct err found = {0};
    if (t->formation.rank == 0)
        found.code = rates_choose_sizes(device, &sizes, &found);
    if (formation_agree(&t->formation, 0, &found, e) || coll_broadcast(group, &sizes, sizeof(sizes), 0, e))
        return e->code;
    struct device_rates rates;
    enum err_code code = rates_open(&rates, device, &sizes, e);
    if (!code)
        code = measure_rounds(t, &rates, &mine, e);
    rates_close(&rates);
    if (code)
        return e->code;
    snprintf(mine.device, sizeof(mine.device), "%s", device->ops->name);
    measure_find_model(device, mine.model, sizeof(mine.model));
    struct measured *all = xcalloc((size_t)t->formation.world_size, sizeof(*all));
    code = coll_allgather(group, &mine, sizeof(mine), all, e);
    for (int r = 0; r < t->formation.world_size; r++) {
        all[r].device[sizeof(all[r].device) - 1] = '\0';
        all[r].model[sizeof(all[r].model) - 1] = '\0';
    }
    if (!code && t->formation.rank == 0)
        measure_print(t, all);
    free(all);
    /* Printed already: if the network fails, the rates of the devices are not lost. */
    return code ? code : measure_network(t, e);
}
