#include "trainer/snapshot/init.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/snapshot/safetensors.h"

#define PREFIX "transformer."

static bool dir_holds(const char *dir, const char *name)
{
    CLEANUP(free_text) char *file = xasprintf("%s/%s", dir, name);
    return file_exists(file);
}

enum err_code init_find(const char *path, const char *digest, char **dir, struct err *e)
{
    struct snapshot_list list = {0};
    if (digest || dir_holds(path, "model.safetensors")) {
        if (snapshot_check_model(path, digest, e))
            return e->code;
        *dir = xstrdup(path);
        return ERR_OK;
    }
    if (dir_holds(path, "pytorch_model.bin"))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: has pytorch_model.bin but no model.safetensors: save it with "
                       "save_pretrained(..., safe_serialization=True)",
                       path);
    if (dir_holds(path, "model.safetensors.index.json"))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: the model is in several files: save it with save_pretrained(..., "
                       "max_shard_size='100GB')",
                       path);
    if (snapshot_scan(path, &list, e))
        return e->code;
    *dir = NULL;
    /* The list has the newest snapshot first. A run's directory stands for its newest committed snapshot. */
    for (size_t i = 0; i < list.count && !*dir; i++)
        if (list.items[i].committed)
            *dir = xstrdup(list.items[i].path);
    snapshot_list_release(&list);
    if (!*dir)
        return err_set(e, ERR_NOT_FOUND, "%s: holds neither model.safetensors nor a committed snapshot",
                       path);
    return ERR_OK;
}

static const char *name_bare(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) ? name : name + strlen(PREFIX);
}

/* Returns the file's name of the tensor that the model calls `name`. */
static const char *name_in(const struct safetensors *f, const char *name, char *with, size_t size)
{
    if (safetensors_find(f, name))
        return name;
    if (safetensors_find(f, name_bare(name)))
        return name_bare(name);
    snprintf(with, size, PREFIX "%s", name);
    return safetensors_find(f, with) ? with : name;
}

static bool name_ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && !strcmp(text + n - m, tail);
}

/* Whether the tensor is not a parameter. Some versions also stored the causal mask, and the head that is the
 * token embedding. */
static bool passed_over(const char *name)
{
    return name_ends_with(name, ".attn.bias") || name_ends_with(name, ".attn.masked_bias") ||
           !strcmp(name, "lm_head.weight");
}

static bool in_layout(const struct snapshot_layout *l, const char *name)
{
    for (size_t i = 0; i < l->tensor_count; i++)
        if (!strcmp(name_bare(l->tensors[i].name), name_bare(name)))
            return true;
    return false;
}

static enum err_code check_rest(const struct safetensors *f, const struct snapshot_layout *l, struct err *e)
{
    for (size_t i = 0; i < f->count; i++)
        if (!in_layout(l, f->tensors[i].name) && !passed_over(f->tensors[i].name))
            return err_set(e, ERR_FAILED_PRECONDITION,
                           "%s: unexpected tensor '%s', which the job's model does not have", f->path,
                           f->tensors[i].name);
    return ERR_OK;
}

static enum err_code read_all(const struct safetensors *f, const struct snapshot_layout *l, float *params,
                              struct err *e)
{
    for (size_t i = 0; i < l->tensor_count; i++) {
        const struct snapshot_tensor *t = &l->tensors[i];
        char with[160];
        const char *name = name_in(f, t->name, with, sizeof(with));
        bool positions = !strcmp(name_bare(t->name), "wpe.weight");
        if (safetensors_read_head(f, name, t->dims, t->shape, positions, params + t->offset, e))
            return e->code;
    }
    return check_rest(f, l, e);
}

enum err_code init_read(const char *dir, const struct snapshot_layout *l, float *params, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/model.safetensors", dir);
    struct safetensors *f = NULL;
    if (safetensors_open(&f, path, e))
        return e->code;
    enum err_code code = read_all(f, l, params, e);
    safetensors_close(f);
    return code;
}
