#include "daemon/agent/gpu/gpus.h"

#include <math.h>
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
#include "daemon/agent/gpu/gpu_choice.h"
#include "daemon/agent/gpu/gpu_health.h"
#include "daemon/agent/gpu/nvml_thread.h"
#include "proto/rpc_codec.h"

#define LOOK_EVERY_MS 2000
#define STALE_MS 15000 /* a driver that hangs: what was read before says nothing about now */
#define KEPT_MOST (1u << 20)

struct gpu {
    int index; /* the GPU's number in nvidia-smi */
    bool gone; /* NVML does not list it any more, so there are no readings */
    struct nvml_reading reading;
    int64_t read_ms; /* CLOCK_BOOTTIME */
    struct gpu_health health;
    Ddp__V1__Gpu message;
};

struct gpus {
    struct gpus_options options;
    struct nvml_thread *thread; /* NULL: there is nothing to read */
    char *path;                 /* path of gpus.json */
    char boot[64];
    bool stocked;     /* the first readings have come */
    struct gpu *list; /* GPUs that NVML lists, then those that are gone */
    size_t count;
    Ddp__V1__Gpu **messages;
    char driver[80];
};

/* ---- gpus.json: survives a restart of the agent */

static void boot_id_read(char out[64])
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err ignored;

    if (!file_read("/proc/sys/kernel/random/boot_id", 128, &text, &ignored) && text.data)
        snprintf(out, 64, "%.*s", (int)strcspn(text.data, "\n"), text.data);
}

static void kept_write(const struct gpus *g)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout out = {.buf = &text};
    struct err e;

    jout_open(&out, NULL, '{');
    jout_text(&out, "boot", g->boot);
    jout_open(&out, "gpus", '{');
    for (size_t i = 0; i < g->count; i++) {
        const struct gpu *gpu = &g->list[i];
        jout_open(&out, gpu->reading.uuid, '{');
        jout_int(&out, "index", gpu->index);
        jout_text(&out, "name", gpu->reading.name);
        if (gpu->health.sick)
            jout_text(&out, "problem", gpu->health.problem);
        jout_bool(&out, "lost", gpu->health.lost);
        jout_close(&out, '}');
    }
    jout_close(&out, '}');
    jout_close(&out, '}');
    if (file_write_atomic(g->path, text.data, text.len, 0600, &e))
        log_warn("gpus_not_kept", "why=%s", LOG_Q(e.msg));
}

/* Reads the kept state of each GPU, by UUID; NULL: nothing is kept. Only state of this boot counts: NVML
 * reports a fault that a restart of the machine did not remove again. */
static json_t *kept_read(const struct gpus *g)
{
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(json_release) json_t *kept = NULL;
    struct err e;

    if (!file_exists(g->path))
        return NULL;
    if (file_read(g->path, KEPT_MOST, &text, &e) ||
        json_parse(text.data ? text.data : "", text.len, KEPT_MOST, &kept, &e)) {
        log_warn("gpus_not_recalled", "why=%s", LOG_Q(e.msg));
        return NULL;
    }
    return strcmp(json_get_text(kept, "boot", ""), g->boot) ? NULL
                                                            : json_incref(json_object_get(kept, "gpus"));
}

static void kept_recall(struct gpu *gpu, const json_t *kept)
{
    const char *problem = json_get_text(kept, "problem", NULL);

    if (!problem)
        return;
    gpu->health.sick = true;
    gpu->health.lost = json_get_bool(kept, "lost", false);
    snprintf(gpu->health.problem, sizeof(gpu->health.problem), "%s", problem);
}

/* ---- state and health */

/* "NVIDIA H200" -> "H200": the name that fits a column. */
static void gpu_name_shorten(char *name)
{
    static const char *const makers[] = {"NVIDIA ", "Tesla ", "GeForce "};

    for (size_t i = 0; i < ARRAY_LEN(makers); i++)
        if (!strncmp(name, makers[i], strlen(makers[i])))
            memmove(name, name + strlen(makers[i]), strlen(name) - strlen(makers[i]) + 1);
    (void)rpc_utf8_clean(name);
}

static bool gpu_update(struct gpu *gpu, const struct nvml_reading *reading)
{
    bool changed = gpu_health_update(&gpu->health, reading, gpu->index, clock_wall_ms());

    gpu->reading = *reading;
    gpu->read_ms = clock_boot_ms();
    gpu_name_shorten(gpu->reading.name);
    if (changed && gpu->health.sick)
        log_error("gpu_sick", "gpu=%d uuid=%s why=%s", gpu->index, reading->uuid, LOG_Q(gpu->health.problem));
    return changed;
}

void gpus_clear_faults(struct gpus *g)
{
    bool any = false;

    for (size_t i = 0; i < g->count; i++) {
        struct gpu *gpu = &g->list[i];
        if (!gpu->health.sick)
            continue;
        any = true;
        memset(gpu->reading.xids, 0, sizeof(gpu->reading.xids));
        gpu_health_clear(&gpu->health);
        (void)gpu_health_update(&gpu->health, &gpu->reading, gpu->index, clock_wall_ms());
        log_info("gpu_undrained", "gpu=%d uuid=%s still=%s", gpu->index, gpu->reading.uuid,
                 LOG_Q(gpu->health.problem));
    }
    if (!any)
        return;
    kept_write(g);
    g->options.on_change(g->options.user);
}

static bool gpu_is_measured(const struct gpu *gpu)
{
    return gpu->reading.measured && clock_boot_ms() - gpu->read_ms < STALE_MS;
}

static void gpu_message_fill(struct gpus *g, struct gpu *gpu)
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
    m->unmeasured = !gpu_is_measured(gpu);
    m->healthy = !h->sick;
    m->lost = h->lost;
    m->problem = h->sick ? h->problem : h->notice;
    m->driver = g->driver;
}

Ddp__V1__Gpu **gpus_messages(struct gpus *g, size_t *count)
{
    for (size_t i = 0; i < g->count; i++) {
        gpu_message_fill(g, &g->list[i]);
        g->messages[i] = &g->list[i].message;
    }
    *count = g->count;
    return g->messages;
}

void gpus_add_usage(const struct gpus *g, const char *uuid, struct usage *out)
{
    for (size_t i = 0; i < g->count; i++) {
        const struct nvml_reading *r = &g->list[i].reading;

        if (g->list[i].gone || strcmp(r->uuid, uuid))
            continue;
        usage_add_gpu(out, gpu_is_measured(&g->list[i]) ? r->utilisation : NAN, (double)r->memory_used,
                      r->power_watts, r->temperature);
    }
}

size_t gpus_count(const struct gpus *g)
{
    return g->count;
}

/* ---- which GPUs are offered */

static void gpus_offer_listed(struct gpus *g, const struct nvml_reading *readings, size_t count,
                              const bool *chosen, const json_t *kept)
{
    size_t most = count + json_object_size(kept);

    g->list = xcalloc(most + 1, sizeof(*g->list));
    g->messages = xcalloc(most + 1, sizeof(*g->messages));
    for (size_t i = 0; i < count; i++) {
        if (!chosen[i])
            continue;
        struct gpu *gpu = &g->list[g->count++];
        gpu->index = (int)i;
        kept_recall(gpu, json_object_get(kept, readings[i].uuid));
        (void)gpu_update(gpu, &readings[i]);
    }
}

static bool uuid_is_listed(const struct nvml_reading *readings, size_t count, const char *uuid)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(readings[i].uuid, uuid))
            return true;
    return false;
}

/* Adds, as lost, GPUs that were offered before the agent's start and that NVML does not list now. A worker on
 * such a GPU would wait for ever, and the GPU still needs repair. One that was well and not leased is left
 * out: a batch system may simply give other GPUs each time. */
static size_t gpus_offer_gone(struct gpus *g, const struct nvml_reading *readings, size_t count, json_t *kept)
{
    const struct gpus_options *o = &g->options;
    size_t gone = 0;
    const char *uuid;
    json_t *was;

    json_object_foreach(kept, uuid, was)
    {
        struct nvml_reading reading = {.lost = true, .why = "not listed by the driver any more, noticed"};
        if (uuid_is_listed(readings, count, uuid) ||
            (!json_get_text(was, "problem", NULL) && !o->leased(o->user, uuid)))
            continue;
        struct gpu *gpu = &g->list[g->count++];
        gpu->gone = true;
        gpu->index = (int)json_get_int(was, "index", 0);
        snprintf(reading.uuid, sizeof(reading.uuid), "%s", uuid);
        snprintf(reading.name, sizeof(reading.name), "%s", json_get_text(was, "name", ""));
        kept_recall(gpu, was);
        (void)gpu_update(gpu, &reading);
        gone++;
    }
    return gone;
}

static enum err_code gpus_choose(const struct gpus_options *o, const struct nvml_reading *readings,
                                 size_t count, bool *chosen, struct err *e)
{
    const char **uuids = xcalloc(count + 1, sizeof(*uuids));
    enum err_code code = ERR_OK;
    struct err visible;

    for (size_t i = 0; i < count; i++) {
        uuids[i] = readings[i].uuid;
        chosen[i] = readings[i].uuid[0] != '\0';
        if (!chosen[i])
            log_warn("gpu_not_usable", "gpu=%zu why=%s", i, LOG_Q(readings[i].why));
    }
    if (o->configured)
        code = gpu_choice(o->configured, uuids, count, chosen, e);
    if (code)
        err_wrap(e, "gpus");
    /* CUDA_VISIBLE_DEVICES is set by others, so an error in it does not stop the agent. */
    else if (o->visible && gpu_choice(o->visible, uuids, count, chosen, &visible))
        log_error("gpus_not_offered", "CUDA_VISIBLE_DEVICES=%s why=%s", LOG_Q(o->visible),
                  LOG_Q(visible.msg));
    free(uuids);
    return code;
}

/* The first readings. If the list names a GPU that does not exist, nothing is offered: the numbers may have
 * moved, and another user's GPU may have one of them now. */
static void gpus_take_stock(struct gpus *g, const struct nvml_reading *readings, size_t count, struct err *e)
{
    CLEANUP(json_release) json_t *kept = kept_read(g);
    bool *chosen = xcalloc(count + 1, sizeof(*chosen));

    e->code = ERR_OK;
    if (gpus_choose(&g->options, readings, count, chosen, e))
        memset(chosen, 0, count * sizeof(*chosen));
    g->stocked = true;
    snprintf(g->driver, sizeof(g->driver), "%s", nvml_thread_driver(g->thread));
    gpus_offer_listed(g, readings, count, chosen, kept);
    size_t gone = gpus_offer_gone(g, readings, count, kept);
    free(chosen);
    if (g->count && !e->code)
        kept_write(g);
    log_info("gpus", "offered=%zu of=%zu gone=%zu driver=%s", g->count - gone, count, gone, LOG_Q(g->driver));
    if (g->count == gone)
        nvml_thread_close(steal(g->thread));
}

/* The driver came later than the agent. */
static void gpus_arrive(struct gpus *g, const struct nvml_reading *readings, size_t count)
{
    struct err e;

    gpus_take_stock(g, readings, count, &e);
    if (e.code)
        log_error("gpus_not_offered", "why=%s", LOG_Q(e.msg));
    if (g->count)
        g->options.on_arrival(g->options.user);
}

static void on_gpu_readings(void *user, const struct nvml_reading *readings, size_t count)
{
    struct gpus *g = user;
    bool changed = false;

    if (!g->stocked) {
        gpus_arrive(g, readings, count);
        return;
    }
    for (size_t i = 0; i < g->count; i++)
        if (!g->list[i].gone)
            changed |= gpu_update(&g->list[i], &readings[g->list[i].index]);
    if (!changed)
        return;
    kept_write(g);
    g->options.on_change(g->options.user);
}

static void absence_log(const struct gpus_options *o, const struct err *why)
{
    if (o->configured)
        log_error("no_gpus", "why=%s", LOG_Q(why->msg));
    else if (why->code == ERR_NOT_FOUND)
        log_debug("no_gpus", "why=%s", LOG_Q(why->msg));
    else
        log_info("no_gpus_yet", "why=%s", LOG_Q(why->msg));
}

enum err_code gpus_open(struct gpus **out, struct uv_loop_s *loop, const struct gpus_options *options,
                        struct err *e)
{
    struct gpus *g = xcalloc(1, sizeof(*g));
    const struct nvml_reading *readings;
    size_t count;

    g->options = *options;
    g->path = paths_join(options->state, "gpus.json");
    boot_id_read(g->boot);
    *out = g;
    if (gpu_choice_none(options->configured) || gpu_choice_none(options->visible))
        return ERR_OK;
    g->thread = nvml_thread_open(loop, LOOK_EVERY_MS, on_gpu_readings, g);
    if (nvml_thread_wait(g->thread, options->patience_ms, &readings, &count, e)) {
        absence_log(options, e);
        return ERR_OK;
    }
    gpus_take_stock(g, readings, count, e);
    if (e->code &&
        g->count) { /* the list was right before a GPU was lost: its workers' end must be reported */
        log_error("gpus_not_offered", "why=%s", LOG_Q(e->msg));
        return ERR_OK;
    }
    if (!e->code)
        return ERR_OK;
    *out = NULL;
    gpus_close(g);
    return e->code;
}

void gpus_close(struct gpus *g)
{
    if (!g)
        return;
    nvml_thread_close(g->thread);
    free(g->list);
    free(g->messages);
    free(g->path);
    free(g);
}
