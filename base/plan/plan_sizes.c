#include "base/plan/plan_sizes.h"

#include <math.h>

#include "base/json.h"
#include "base/mem.h"

#define SIZES_LIMIT ((size_t)1 << 16) /* bytes */

#define FIELD(name)                                                                                          \
    {                                                                                                        \
#name, offsetof(struct plan_sizes, name)                                                             \
    }
static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    FIELD(parameters),
    FIELD(arrays),
    FIELD(rows),
    FIELD(micro_batches),
    FIELD(samples),
    FIELD(tokens),
    FIELD(flops),
    FIELD(gathered_bytes),
    FIELD(layers),
    FIELD(gathered_first_bytes),
    FIELD(gathered_beside),
    FIELD(update_floats),
    FIELD(parameter_bytes),
    FIELD(gradient_bytes),
    FIELD(optimizer_bytes),
    FIELD(activation_bytes),
    FIELD(batch_bytes),
    FIELD(data_bytes),
    FIELD(strategy_bytes),
    FIELD(workspace_bytes),
    FIELD(sum_bytes),
};

void plan_sizes_print(const struct plan_sizes *s, struct buf *out)
{
    struct jout o = {.buf = out};

    jout_open(&o, NULL, '{');
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        jout_real(&o, fields[i].name, *(const double *)(const void *)((const char *)s + fields[i].offset));
    jout_close(&o, '}');
}

enum err_code plan_sizes_parse(const char *text, size_t len, struct plan_sizes *out, struct err *e)
{
    CLEANUP(json_release) json_t *object = NULL;
    struct plan_sizes s;

    if (json_parse(text, len, SIZES_LIMIT, &object, e))
        return err_set(e, ERR_DATA_LOSS, "the sizes of a job: %.200s", e->msg);
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        double value = json_get_real(object, fields[i].name, NAN);

        if (!isfinite(value) || value < 0)
            return err_set(e, ERR_DATA_LOSS, "the sizes of a job lack '%s'", fields[i].name);
        *(double *)(void *)((char *)&s + fields[i].offset) = value;
    }
    *out = s;
    return ERR_OK;
}
