#include <math.h>
#include <stddef.h>

#include "base/job/job_sync.h"
#include "base/job/job_variant.h"
#include "base/mem.h"

/* The map `sync`: the strategies that keep ranks in step, one row each. The row of the same enum value in
 * trainer/member/sync does the work. */

#define AT(member) offsetof(struct train_spec, member)

static const struct conf_field allreduce_keys[] = {JOB_TYPE, {0}};
static const struct conf_field average_keys[] = {
    JOB_TYPE,
    {"every", CONF_INT, AT(sync.every), .required = true, JOB_FROM_ONE},
    {0},
};

static const struct job_variant strategies[] = {
    [SYNC_ALLREDUCE] = {"allreduce", allreduce_keys},
    [SYNC_AVERAGE] = {"average", average_keys},
    {"diloco", NULL},
};

/* The strategies that `reproducible: world` allows: their arithmetic does not depend on the number of ranks. */
static const bool independent_of_world_size[ARRAY_LEN(strategies)] = {[SYNC_ALLREDUCE] = true};

enum err_code job_sync_read(const struct conf_node *node, void *at, struct err *e)
{
    struct train_spec *train = at;
    int type;

    if (job_pick(node, strategies, ARRAY_LEN(strategies), SYNC_ALLREDUCE, "sync", &type, e) ||
        conf_read_map(node, strategies[type].fields, train, e))
        return e->code;
    train->sync.type = (enum sync_type)type;
    return ERR_OK;
}

enum err_code job_sync_check_world(const struct train_spec *train, const struct conf_node *place,
                                   struct err *e)
{
    CLEANUP(buf_release) struct buf names = {0};

    if (independent_of_world_size[train->sync.type])
        return ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++)
        if (independent_of_world_size[i])
            buf_printf(&names, "%s%s", names.len ? " or " : "", strategies[i].name);
    return conf_fail(place, e, "'reproducible: world' needs 'sync' of type %s", names.data);
}

void job_sync_print(struct buf *out, const struct train_spec *train)
{
    const struct job_variant *chosen = &strategies[train->sync.type];

    if (train->sync.type == SYNC_ALLREDUCE) /* the default */
        return;
    buf_printf(out, "  sync: {type: %s", chosen->name);
    for (const struct conf_field *f = chosen->fields; f->key; f++) {
        const char *value = (const char *)train + f->offset;

        if (f->type == CONF_INT)
            buf_printf(out, ", %s: %lld", f->key, (long long)*(const int64_t *)(const void *)value);
        else
            BUG_ON(f->type != CONF_CUSTOM); /* add the output of another type of key here */
    }
    buf_puts(out, "}\n");
}
