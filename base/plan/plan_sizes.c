#include "base/plan/plan_sizes.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"

#define SIZES_LIMIT ((size_t)1 << 20) /* bytes */

#define FIELD(name)                                                                                          \
    {                                                                                                        \
#name, offsetof(struct plan_sizes, name)                                                             \
    }
static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    FIELD(parameters),      FIELD(arrays),           FIELD(rows),
    FIELD(micro_batches),   FIELD(samples),          FIELD(tokens),
    FIELD(flops),           FIELD(gathered_bytes),   FIELD(gathered_beside),
    FIELD(update_floats),   FIELD(parameter_bytes),  FIELD(gradient_bytes),
    FIELD(optimizer_bytes), FIELD(activation_bytes), FIELD(batch_bytes),
    FIELD(data_bytes),      FIELD(strategy_bytes),   FIELD(workspace_bytes),
    FIELD(sum_bytes),
};

static void exchanges_print(struct jout *o, const char *name, const struct plan_exchange *list, size_t count)
{
    jout_open(o, name, '[');
    for (size_t i = 0; i < count; i++) {
        jout_open(o, NULL, '{');
        jout_real(o, "at", list[i].at);
        jout_real(o, "bytes", list[i].bytes);
        jout_real(o, "link_bytes", list[i].link_bytes);
        jout_close(o, '}');
    }
    jout_close(o, ']');
}

void plan_sizes_print(const struct plan_sizes *s, struct buf *out)
{
    struct jout o = {.buf = out};

    jout_open(&o, NULL, '{');
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        jout_real(&o, fields[i].name, *(const double *)(const void *)((const char *)s + fields[i].offset));
    exchanges_print(&o, "buckets", s->buckets, s->bucket_count);
    exchanges_print(&o, "pieces", s->pieces, s->piece_count);
    jout_close(&o, '}');
}

static bool exchanges_parse(const json_t *object, const char *name, struct plan_exchange **out, size_t *count)
{
    const json_t *list = json_object_get(object, name);

    if (!json_is_array(list))
        return false;
    *count = json_array_size(list);
    *out = xcalloc(*count + 1, sizeof(**out));
    for (size_t i = 0; i < *count; i++) {
        const json_t *item = json_array_get(list, i);
        struct plan_exchange *x = &(*out)[i];
        *x = (struct plan_exchange){json_get_real(item, "at", NAN), json_get_real(item, "bytes", NAN),
                                    json_get_real(item, "link_bytes", NAN)};
        if (!(x->at >= 0 && x->bytes >= 0 && x->link_bytes >= 0))
            return false;
    }
    return true;
}

enum err_code plan_sizes_parse(const char *text, size_t len, struct plan_sizes *out, struct err *e)
{
    CLEANUP(json_release) json_t *object = NULL;
    struct plan_sizes s = {0};

    if (json_parse(text, len, SIZES_LIMIT, &object, e)) {
        e->code = ERR_DATA_LOSS;
        return err_wrap(e, "the sizes of a job");
    }
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        double value = json_get_real(object, fields[i].name, NAN);

        if (!isfinite(value) || value < 0)
            return err_set(e, ERR_DATA_LOSS, "the sizes of a job lack '%s'", fields[i].name);
        *(double *)(void *)((char *)&s + fields[i].offset) = value;
    }
    if (!exchanges_parse(object, "buckets", &s.buckets, &s.bucket_count) ||
        !exchanges_parse(object, "pieces", &s.pieces, &s.piece_count)) {
        plan_sizes_release(&s);
        return err_set(e, ERR_DATA_LOSS, "the sizes of a job lack 'buckets' or 'pieces'");
    }
    *out = s;
    return ERR_OK;
}

void plan_sizes_release(struct plan_sizes *s)
{
    free(s->buckets);
    free(s->pieces);
    *s = (struct plan_sizes){0};
}
