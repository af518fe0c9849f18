#include "daemon/agent/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/gpu_choice.h"
#include "daemon/agent/gpu_courier.h"
#include "daemon/agent/gpu_health.h"
#include "proto/rpc_codec.h"

#define LOOK_EVERY_MS 2000
#define PATIENCE_MS 30000 /* a driver that starts for its first user takes seconds a GPU */
#define KEPT_MOST (1u << 20)

struct gpu {
    int index; /* nvidia-smi's */
    struct nvml_reading reading;
    struct gpu_health health;
    Ddp__V1__Gpu message;
};

struct gpus {
    struct gpu_courier *courier; /* NULL: there are none */
    char *path;                  /* of what is kept */
    char boot[64];
    struct gpu *list; /* offered */
    size_t count;
    Ddp__V1__Gpu **messages;
    char driver[80];
    void (*on_change)(void *user);
    void *user;
};

/* ---- what is kept over a restart of the agent */

static void read_boot(char out[64])
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err ignored;

    if (!file_read("/proc/sys/kernel/random/boot_id", 128, &text, &ignored) && text.data)
        snprintf(out, 64, "%.*s", (int)strcspn(text.data, "\n"), text.data);
}

static void keep(const struct gpus *g)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout out = {.buf = &text};
    struct err e;

    jout_open(&out, NULL, '{');
    jout_text(&out, "boot", g->boot);
    jout_open(&out, "sick", '{');
    for (size_t i = 0; i < g->count; i++) {
        const struct gpu *gpu = &g->list[i];
        if (!gpu->health.sick)
            continue;
        jout_open(&out, gpu->reading.uuid, '{');
        jout_text(&out, "problem", gpu->health.problem);
        jout_bool(&out, "lost", gpu->health.lost);
        jout_close(&out, '}');
    }
    jout_close(&out, '}');
    jout_close(&out, '}');
    if (file_write_atomic(g->path, text.data, text.len, 0600, &e))
        log_warn("sick_gpus_not_kept", "why=%s", LOG_Q(e.msg));
}

/* Of this boot only: what the machine's start did not cure, NVML tells again. */
static void recall(struct gpus *g)
{
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(json_release) json_t *kept = NULL;
    struct err e;

    if (!file_exists(g->path))
        return;
    if (file_read(g->path, KEPT_MOST, &text, &e) ||
        json_parse(text.data ? text.data : "", text.len, KEPT_MOST, &kept, &e)) {
        log_warn("sick_gpus_not_recalled", "why=%s", LOG_Q(e.msg));
        return;
    }
    if (strcmp(json_get_text(kept, "boot", ""), g->boot) != 0)
        return;
    for (size_t i = 0; i < g->count; i++) {
        const json_t *sick = json_object_get(json_object_get(kept, "sick"), g->list[i].reading.uuid);
        struct gpu_health *h = &g->list[i].health;
        if (!sick)
            continue;
        h->sick = true;
        h->lost = json_get_bool(sick, "lost", false);
        snprintf(h->problem, sizeof(h->problem), "%s", json_get_text(sick, "problem", "was sick"));
    }
}

/* ---- how they are */

/* "NVIDIA H200" -> "H200": the name that fits a column. */
static void shorten(char *name)
{
    static const char *const makers[] = {"NVIDIA ", "Tesla ", "GeForce "};

    for (size_t i = 0; i < ARRAY_LEN(makers); i++)
        if (!strncmp(name, makers[i], strlen(makers[i])))
            memmove(name, name + strlen(makers[i]), strlen(name) - strlen(makers[i]) + 1);
    (void)rpc_utf8_clean(name);
}

static bool update(struct gpu *gpu, const struct nvml_reading *reading)
{
    bool changed = gpu_health_update(&gpu->health, reading, gpu->index, clock_wall_ms());

    gpu->reading = *reading;
    shorten(gpu->reading.name);
    if (changed && gpu->health.sick)
        log_error("gpu_sick", "gpu=%d uuid=%s why=%s", gpu->index, reading->uuid, LOG_Q(gpu->health.problem));
    return changed;
}

static void on_readings(void *user, const struct nvml_reading *readings, size_t count)
{
    struct gpus *g = user;
    bool changed = false;

    for (size_t i = 0; i < g->count; i++)
        if ((size_t)g->list[i].index < count)
            changed |= update(&g->list[i], &readings[g->list[i].index]);
    if (!changed)
        return;
    keep(g);
    g->on_change(g->user);
}

void gpus_pardon(struct gpus *g)
{
    bool any = false;

    for (size_t i = 0; i < g->count; i++) {
        struct gpu *gpu = &g->list[i];
        if (!gpu->health.sick)
            continue;
        any = true;
        memset(gpu->reading.xids, 0, sizeof(gpu->reading.xids));
        gpu_health_pardon(&gpu->health);
        (void)gpu_health_update(&gpu->health, &gpu->reading, gpu->index, clock_wall_ms());
        log_info("gpu_undrained", "gpu=%d uuid=%s still=%s", gpu->index, gpu->reading.uuid,
                 LOG_Q(gpu->health.problem));
    }
    if (!any)
        return;
    keep(g);
    g->on_change(g->user);
}

static void fill(struct gpus *g, struct gpu *gpu)
{
    Ddp__V1__Gpu *m = &gpu->message;
    struct gpu_health *h = &gpu->health;
    const struct nvml_reading *r = &gpu->reading;

    ddp__v1__gpu__init(m);
    m->uuid = gpu->reading.uuid;
    m->name = gpu->reading.name;
    m->index = gpu->index;
    m->memory_bytes = r->memory_bytes;
    m->memory_used = r->memory_used;
    m->temperature = r->temperature;
    m->power_watts = r->power_watts;
    m->utilisation = r->utilisation;
    m->healthy = !h->sick;
    m->lost = h->lost;
    m->problem = h->sick ? h->problem : h->notice;
    m->driver = g->driver;
}

Ddp__V1__Gpu **gpus_messages(struct gpus *g, size_t *count)
{
    for (size_t i = 0; i < g->count; i++) {
        fill(g, &g->list[i]);
        g->messages[i] = &g->list[i].message;
    }
    *count = g->count;
    return g->messages;
}

size_t gpus_count(const struct gpus *g)
{
    return g->count;
}

/* ---- which they are */

static void offer(struct gpus *g, const struct nvml_reading *readings, size_t count, const bool *chosen)
{
    g->list = xcalloc(count + 1, sizeof(*g->list));
    g->messages = xcalloc(count + 1, sizeof(*g->messages));
    for (size_t i = 0; i < count; i++) {
        if (!chosen[i])
            continue;
        struct gpu *gpu = &g->list[g->count++];
        gpu->index = (int)i;
        gpu->reading = readings[i];
    }
}

static enum err_code choose(const struct gpus_options *o, const struct nvml_reading *readings, size_t count,
                            bool *chosen, struct err *e)
{
    const char **uuids = xcalloc(count + 1, sizeof(*uuids));
    enum err_code code = ERR_OK;
    struct err visible;

    for (size_t i = 0; i < count; i++) {
        uuids[i] = readings[i].uuid;
        chosen[i] = readings[i].uuid[0] != '\0';
    }
    if (o->configured)
        code = gpu_choice(o->configured, uuids, count, chosen, e);
    if (code)
        err_wrap(e, "gpus");
    else if (o->visible && gpu_choice(o->visible, uuids, count, chosen, &visible))
        log_error("gpus_not_offered", "CUDA_VISIBLE_DEVICES=%s why=%s", LOG_Q(o->visible),
                  LOG_Q(visible.msg));
    free(uuids);
    return code;
}

static enum err_code take_stock(struct gpus *g, const struct gpus_options *o, struct err *e)
{
    size_t count;
    const struct nvml_reading *readings = gpu_courier_readings(g->courier, &count);
    bool *chosen = xcalloc(count + 1, sizeof(*chosen));
    enum err_code code = choose(o, readings, count, chosen, e);

    if (!code)
        offer(g, readings, count, chosen);
    free(chosen);
    if (code)
        return code;
    snprintf(g->driver, sizeof(g->driver), "%s", gpu_courier_driver(g->courier));
    recall(g);
    bool sick = false;
    for (size_t i = 0; i < g->count; i++)
        sick |= update(&g->list[i], &readings[g->list[i].index]);
    if (sick)
        keep(g);
    log_info("gpus", "offered=%zu of=%zu driver=%s", g->count, count, LOG_Q(g->driver));
    return ERR_OK;
}

enum err_code gpus_open(struct gpus **out, struct uv_loop_s *loop, const struct gpus_options *options,
                        struct err *e)
{
    struct gpus *g = xcalloc(1, sizeof(*g));
    struct err none;

    g->path = paths_join(options->state, "gpus.json");
    g->on_change = options->on_change;
    g->user = options->user;
    read_boot(g->boot);
    if (gpu_courier_open(&g->courier, loop, LOOK_EVERY_MS, PATIENCE_MS, on_readings, g, &none)) {
        if (none.code == ERR_UNAVAILABLE && !options->configured)
            log_debug("no_gpus", "why=%s", LOG_Q(none.msg));
        else
            log_error("no_gpus", "why=%s", LOG_Q(none.msg));
        offer(g, NULL, 0, NULL);
        *out = g;
        return ERR_OK;
    }
    if (take_stock(g, options, e)) {
        gpus_close(g);
        return e->code;
    }
    if (!g->count)
        gpu_courier_close(steal(g->courier));
    *out = g;
    return ERR_OK;
}

void gpus_close(struct gpus *g)
{
    if (!g)
        return;
    gpu_courier_close(g->courier);
    free(g->list);
    free(g->messages);
    free(g->path);
    free(g);
}
