#include "daemon/coordinator/core/nodes/inventory.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "daemon/coordinator/core/model.h"

static const char *text_or_empty(const char *t)
{
    return t ? t : "";
}

static void gpu_copy(struct core_gpu *to, const struct core_gpu *from)
{
    *to = *from;
    to->uuid = xstrdup(from->uuid ? from->uuid : "");
    to->name = xstrdup(from->name);
    to->problem = xstrdup(from->problem);
    to->driver = xstrdup(from->driver);
}

static void gpu_release(struct core_gpu *gpu)
{
    free(gpu->uuid);
    free(gpu->name);
    free(gpu->problem);
    free(gpu->driver);
}

void inventory_free(struct node *node)
{
    for (size_t i = 0; i < node->gpu_count; i++)
        gpu_release(&node->gpus[i]);
    free(steal(node->gpus));
    node->gpu_count = 0;
}

struct core_gpu *inventory_find(const struct node *node, const char *uuid)
{
    for (size_t i = 0; i < node->gpu_count; i++)
        if (!strcmp(node->gpus[i].uuid, uuid))
            return &node->gpus[i];
    return NULL;
}

int inventory_holders(const struct node *node, const char *uuid)
{
    int count = 0;

    for (size_t i = 0; i < node->spawn_count; i++)
        for (char **held = node->spawns[i]->r.gpu_uuids; held && *held; held++)
            count += !strcmp(*held, uuid);
    return count;
}

/* Leases name GPUs by UUID, so GPUs without one, or with that of another, are left out. */
void inventory_set(struct node *node, const struct core_gpu *gpus, size_t count)
{
    inventory_free(node);
    if (!count)
        return;
    node->gpus = xcalloc(count, sizeof(*node->gpus));
    for (size_t i = 0; i < count; i++)
        if (gpus[i].uuid && *gpus[i].uuid && !inventory_find(node, gpus[i].uuid))
            gpu_copy(&node->gpus[node->gpu_count++], &gpus[i]);
}

bool inventory_update(struct node *node, const struct core_gpu *gpus, size_t count)
{
    bool changed = false;

    for (size_t i = 0; i < count; i++) {
        struct core_gpu *old = gpus[i].uuid ? inventory_find(node, gpus[i].uuid) : NULL;
        if (!old)
            continue;
        changed |=
            gpus[i].healthy != old->healthy || gpus[i].lost != old->lost ||
            (!gpus[i].healthy && strcmp(text_or_empty(gpus[i].problem), text_or_empty(old->problem)) != 0);
        gpu_release(old);
        gpu_copy(old, &gpus[i]);
    }
    return changed;
}

char *inventory_print(const struct node *node)
{
    struct buf text = {0};
    struct jout out = {.buf = &text};

    jout_open(&out, NULL, '[');
    for (size_t i = 0; i < node->gpu_count; i++) {
        const struct core_gpu *gpu = &node->gpus[i];
        jout_open(&out, NULL, '{');
        jout_text(&out, "uuid", gpu->uuid);
        jout_text(&out, "name", gpu->name);
        jout_text(&out, "problem", gpu->problem);
        jout_text(&out, "driver", gpu->driver);
        jout_int(&out, "memory_bytes", gpu->memory_bytes);
        jout_int(&out, "index", gpu->index);
        jout_int(&out, "slots", node->gpu_slots);
        jout_bool(&out, "healthy", gpu->healthy);
        jout_bool(&out, "lost", gpu->lost);
        jout_close(&out, '}');
    }
    jout_close(&out, ']');
    return buf_steal(&text);
}

/* Entries that cannot be read are left out. The node's next hello brings the whole list again. */
void inventory_parse(struct node *node)
{
    CLEANUP(json_release) json_t *list = NULL;
    struct err e;

    inventory_free(node);
    if (!node->r.gpus || json_parse(node->r.gpus, strlen(node->r.gpus), 1 << 20, &list, &e) != ERR_OK)
        return;
    node->gpus = xcalloc(json_array_size(list) + 1, sizeof(*node->gpus));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        struct core_gpu gpu = {
            .uuid = (char *)json_get_text(item, "uuid", ""),
            .name = (char *)json_get_text(item, "name", NULL),
            .problem = (char *)json_get_text(item, "problem", NULL),
            .driver = (char *)json_get_text(item, "driver", NULL),
            .memory_bytes = json_get_int(item, "memory_bytes", 0),
            .index = (int)json_get_int(item, "index", 0),
            .healthy = json_get_bool(item, "healthy", false),
            .lost = json_get_bool(item, "lost", false),
        };
        gpu_copy(&node->gpus[node->gpu_count++], &gpu);
        /* the same for all GPUs of a node */
        node->gpu_slots = (int)json_get_int(item, "slots", 1);
    }
}
