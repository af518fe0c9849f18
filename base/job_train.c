#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/job_parts.h"
#include "base/mem.h"

/* The map under `train`. The maps with a `type` read that key first and then by the type's own table, so that
 * a key of another type is an unknown key. What the job file names but this version does not do is refused
 * where it stands. */

const char *const job_activation_names[] = {"relu", "gelu", "tanh", "gelu_tanh", NULL};
const char *const job_loss_names[] = {"auto", "cross_entropy", "mse", NULL};
const char *const job_schedule_names[] = {"constant", "linear", "cosine", NULL};
const char *const job_resume_names[] = {"auto", "continue", "never", NULL};

#define AT(member) offsetof(struct train_spec, member)
#define FROM_ONE .min = 1, .max = INFINITY
#define FROM_ZERO .min = 0, .max = INFINITY
#define ABOVE_ZERO .min = 0, .max = INFINITY, .above = true
#define BELOW_ONE .min = 0, .max = 1, .below = true
#define WIDTH .min = 1, .max = 1 << 24

struct variant {
    const char *name;
    const struct conf_field *fields; /* NULL: known to the job file, not to this version */
};

/* Names of the variants that can be used: "linear or mlp". */
static void list_variants(struct buf *out, const struct variant *all, size_t count)
{
    size_t usable = 0, seen = 0;

    for (size_t i = 0; i < count; i++)
        usable += all[i].fields != NULL;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].fields)
            continue;
        seen++;
        buf_printf(out, "%s%s", seen == 1 ? "" : seen == usable ? " or " : ", ", all[i].name);
    }
}

static enum err_code unusable(const struct conf_node *place, const struct variant *all, size_t count,
                              bool known, const char *kind, struct err *e)
{
    CLEANUP(buf_release) struct buf names = {0};

    list_variants(&names, all, count);
    if (known)
        return conf_fail(place, e, "%s type '%.64s' is not supported yet, use %s", kind, conf_scalar(place),
                         names.data);
    return conf_fail(place, e, "%s type must be %s, not '%.64s'", kind, names.data, conf_scalar(place));
}

/* Finds the row named by `type`, or fallback's where the key is absent (-1: it must be there). */
static enum err_code pick(const struct conf_node *map, const struct variant *all, size_t count, int fallback,
                          const char *kind, int *index, struct err *e)
{
    const struct conf_node *type;
    CLEANUP(buf_release) struct buf names = {0};

    if (!conf_is_map(map))
        return conf_fail(map, e, "'%s' wants a map, as in {type: %s}", kind, all[0].name);
    type = conf_get(map, "type");
    if (!type && fallback >= 0) {
        *index = fallback;
        return ERR_OK;
    }
    list_variants(&names, all, count);
    if (!type)
        return conf_fail(map, e, "'%s' lacks the key 'type': %s", kind, names.data);
    if (!conf_is_scalar(type))
        return conf_fail(type, e, "%s type must be %s", kind, names.data);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(conf_scalar(type), all[i].name))
            continue;
        if (!all[i].fields)
            return unusable(type, all, count, true, kind, e);
        *index = (int)i;
        return ERR_OK;
    }
    return unusable(type, all, count, false, kind, e);
}

static enum err_code ignore(const struct conf_node *node, void *at, struct err *e)
{
    (void)node;
    (void)at;
    (void)e;
    return ERR_OK;
}
#define TYPE                                                                                                 \
    {                                                                                                        \
        "type", CONF_CUSTOM, .fn = ignore                                                                    \
    }

static void free_sizes(int64_t **sizes)
{
    free(*sizes);
}

static enum err_code read_sizes(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field width[] = {{"sizes", CONF_INT, 0, WIDTH}, {0}};
    struct train_spec *train = at;
    size_t count = conf_is_list(node) ? conf_count(node) : 0;
    CLEANUP(free_sizes) int64_t *sizes = NULL;

    if (count < 2 || count > 64)
        return conf_fail(node, e,
                         "'sizes' wants a list of 2 to 64 widths, input first, as in [784, 512, 10]");
    sizes = xcalloc(count, sizeof(*sizes));
    for (size_t i = 0; i < count; i++)
        if (conf_read_value(conf_at(node, i), width, &sizes[i], e))
            return e->code;
    free(train->model.sizes);
    train->model.sizes = steal(sizes);
    train->model.size_count = count;
    return ERR_OK;
}

static enum err_code read_model(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field linear[] = {
        TYPE,
        {"in", CONF_INT, AT(model.in), .required = true, WIDTH},
        {"out", CONF_INT, AT(model.out), .required = true, WIDTH},
        {0},
    };
    static const struct conf_field mlp[] = {
        TYPE,
        {"sizes", CONF_CUSTOM, 0, .required = true, .fn = read_sizes},
        {"activation", CONF_ENUM, AT(model.activation), .names = job_activation_names},
        {0},
    };
    static const struct variant models[] = {{"linear", linear}, {"mlp", mlp}, {"gpt", NULL}};
    struct train_spec *train = at;
    int type;

    if (pick(node, models, ARRAY_LEN(models), -1, "model", &type, e) ||
        conf_read_map(node, models[type].fields, train, e))
        return e->code;
    train->model.type = (enum model_type)type;
    return ERR_OK;
}

static enum err_code read_data(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field synthetic[] = {
        TYPE,
        {"samples", CONF_INT, AT(data.samples), .min = 1, .max = 1 << 30},
        {"in", CONF_INT, AT(data.in), WIDTH},
        {"out", CONF_INT, AT(data.out), WIDTH},
        {"pad", CONF_BOOL, AT(data.pad)},
        {"shuffle", CONF_BOOL, AT(data.shuffle)},
        {0},
    };
    static const struct conf_field idx[] = {
        TYPE,
        {"dir", CONF_TEXT, AT(data.dir), .required = true},
        {"pad", CONF_BOOL, AT(data.pad)},
        {"shuffle", CONF_BOOL, AT(data.shuffle)},
        {0},
    };
    static const struct variant kinds[] = {{"synthetic", synthetic}, {"idx", idx}, {"text", NULL}};
    struct train_spec *train = at;
    int type;

    if (pick(node, kinds, ARRAY_LEN(kinds), -1, "data", &type, e) ||
        conf_read_map(node, kinds[type].fields, train, e))
        return e->code;
    train->data.type = (enum data_type)type;
    return ERR_OK;
}

static enum err_code read_betas(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field beta[] = {{"betas", CONF_REAL, 0, BELOW_ONE}, {0}};
    double pair[2];

    if (!conf_is_list(node) || conf_count(node) != 2)
        return conf_fail(node, e, "'betas' wants two numbers, as in [0.9, 0.999]");
    for (size_t i = 0; i < 2; i++)
        if (conf_read_value(conf_at(node, i), beta, &pair[i], e))
            return e->code;
    memcpy(at, pair, sizeof(pair));
    return ERR_OK;
}

static enum err_code read_optimizer(const struct conf_node *node, void *at, struct err *e)
{
#define COMMON                                                                                               \
    TYPE, {"lr", CONF_REAL, AT(optimizer.lr), ABOVE_ZERO},                                                   \
        {"weight_decay", CONF_REAL, AT(optimizer.weight_decay), FROM_ZERO},                                  \
    {                                                                                                        \
        "clip", CONF_REAL, AT(optimizer.clip), FROM_ZERO                                                     \
    }
    static const struct conf_field sgd[] = {
        COMMON,
        {"momentum", CONF_REAL, AT(optimizer.momentum), BELOW_ONE},
        {"nesterov", CONF_BOOL, AT(optimizer.nesterov)},
        {0},
    };
    static const struct conf_field adamw[] = {
        COMMON,
        {"betas", CONF_CUSTOM, AT(optimizer.betas), .fn = read_betas},
        {"eps", CONF_REAL, AT(optimizer.eps), ABOVE_ZERO},
        {0},
    };
    static const struct variant kinds[] = {{"sgd", sgd}, {"adamw", adamw}};
    struct train_spec *train = at;
    int type;

    if (pick(node, kinds, ARRAY_LEN(kinds), OPTIMIZER_SGD, "optimizer", &type, e))
        return e->code;
    train->optimizer.type = (enum optimizer_type)type;
    train->optimizer.weight_decay = type == OPTIMIZER_ADAMW ? 0.01 : 0;
    if (conf_read_map(node, kinds[type].fields, train, e))
        return e->code;
    if (train->optimizer.nesterov && train->optimizer.momentum == 0)
        return conf_fail(node, e, "'nesterov' wants a momentum above 0");
    return ERR_OK;
}

static enum err_code read_sync(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field allreduce[] = {TYPE, {0}};
    static const struct conf_field average[] = {
        TYPE,
        {"every", CONF_INT, AT(sync.every), .required = true, FROM_ONE},
        {0},
    };
    static const struct variant kinds[] = {{"allreduce", allreduce}, {"average", average}, {"diloco", NULL}};
    struct train_spec *train = at;
    int type;

    if (pick(node, kinds, ARRAY_LEN(kinds), SYNC_ALLREDUCE, "sync", &type, e) ||
        conf_read_map(node, kinds[type].fields, train, e))
        return e->code;
    train->sync.type = (enum sync_type)type;
    return ERR_OK;
}

/* 500 · "10 epochs" · "15m" · never */
static enum err_code read_every(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field steps[] = {{"every", CONF_INT, 0, FROM_ONE}, {0}};
    const char *text = conf_scalar(node);
    struct job_every every = {0};
    struct err why;
    char *end;

    if (text && !strcmp(text, "never")) {
        *(struct job_every *)at = every;
        return ERR_OK;
    }
    if (conf_is_plain(node) && *text && text[strspn(text, "+-0123456789")] == '\0') {
        if (conf_read_value(node, steps, &every.count, e))
            return e->code;
        *(struct job_every *)at = every;
        return ERR_OK;
    }
    every.count = text ? strtoll(text, &end, 10) : 0;
    if (text && every.count > 0 && every.count < 1000000000 &&
        (!strcmp(end, " epochs") || !strcmp(end, " epoch")))
        every.unit = EVERY_EPOCHS;
    else if (text && !conf_duration(text, &every.count, &why) && every.count > 0 &&
             text[strspn(text, "0123456789")])
        every.unit = EVERY_MS;
    else
        return conf_fail(node, e, "'%s' wants steps, epochs or a time: 500, \"10 epochs\", \"15m\" or never",
                         conf_key(node));
    *(struct job_every *)at = every;
    return ERR_OK;
}

static enum err_code read_eval_batches(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field number[] = {{"batches", CONF_INT, 0, FROM_ONE}, {0}};

    if (conf_scalar(node) && !strcmp(conf_scalar(node), "all")) {
        *(int64_t *)at = 0;
        return ERR_OK;
    }
    if (!conf_is_plain(node))
        return conf_fail(node, e, "'batches' wants a whole number or all");
    return conf_read_value(node, number, at, e);
}

static enum err_code refuse(const struct conf_node *node, void *at, struct err *e)
{
    (void)at;
    return conf_fail(node, e, "'%s' is not supported yet, leave it out", conf_key(node));
}

static enum err_code only(const struct conf_node *node, const char *value, struct err *e)
{
    if (conf_scalar(node) && !strcmp(conf_scalar(node), value))
        return ERR_OK;
    return conf_fail(node, e, "'%s' must be %s, others are not supported yet", conf_key(node), value);
}

static enum err_code read_precision(const struct conf_node *node, void *at, struct err *e)
{
    (void)at;
    return only(node, "fp32", e);
}

static enum err_code read_reproducible(const struct conf_node *node, void *at, struct err *e)
{
    (void)at;
    return only(node, "layout", e);
}

static const struct conf_field schedule_fields[] = {
    {"type", CONF_ENUM, AT(schedule.type), .names = job_schedule_names},
    {"warmup", CONF_INT, AT(schedule.warmup), FROM_ZERO},
    {"min_lr", CONF_REAL, AT(schedule.min_lr), FROM_ZERO},
    {0},
};
static const struct conf_field snapshot_fields[] = {
    {"dir", CONF_TEXT, AT(snapshot.dir), .required = true},
    {"every", CONF_CUSTOM, AT(snapshot.every), .fn = read_every},
    {"keep", CONF_INT, AT(snapshot.keep), FROM_ONE},
    {"keep_best", CONF_CUSTOM, 0, .fn = refuse},
    {0},
};
static const struct conf_field eval_fields[] = {
    {"every", CONF_CUSTOM, AT(eval.every), .fn = read_every},
    {"batches", CONF_CUSTOM, AT(eval.batches), .fn = read_eval_batches},
    {0},
};
static const struct conf_field train_fields[] = {
    {"model", CONF_CUSTOM, 0, .required = true, .fn = read_model},
    {"init_from", CONF_CUSTOM, 0, .fn = refuse},
    {"loss", CONF_ENUM, AT(loss), .names = job_loss_names},
    {"data", CONF_CUSTOM, 0, .required = true, .fn = read_data},
    {"optimizer", CONF_CUSTOM, 0, .fn = read_optimizer},
    {"schedule", CONF_STRUCT, 0, .fields = schedule_fields},
    {"batch", CONF_INT, AT(batch), .min = 1, .max = 1 << 24},
    {"global_batch", CONF_INT, AT(global_batch), .min = 1, .max = 1 << 24},
    {"accumulate", CONF_INT, AT(accumulate), .min = 1, .max = 1 << 16},
    {"epochs", CONF_INT, AT(epochs), FROM_ONE},
    {"steps", CONF_INT, AT(steps), FROM_ONE},
    {"seed", CONF_INT, AT(seed), FROM_ZERO},
    {"precision", CONF_CUSTOM, 0, .fn = read_precision},
    {"reproducible", CONF_CUSTOM, 0, .fn = read_reproducible},
    {"sync", CONF_CUSTOM, 0, .fn = read_sync},
    {"snapshot", CONF_STRUCT, 0, .fields = snapshot_fields},
    {"resume", CONF_ENUM, AT(resume), .names = job_resume_names},
    {"eval", CONF_STRUCT, 0, .fields = eval_fields},
    {"log_every", CONF_INT, AT(log_every), FROM_ONE},
    {"tutorial_lines", CONF_BOOL, AT(tutorial_lines)},
    {0},
};

static const struct conf_node *either(const struct conf_node *map, const char *key)
{
    const struct conf_node *node = conf_get(map, key);

    return node ? node : map;
}

static enum err_code check_one_of(const struct conf_node *map, const char *a, const char *b, struct err *e)
{
    if (conf_get(map, a) && conf_get(map, b))
        return conf_fail(conf_get(map, b), e, "'%s' and '%s' exclude each other, give one", a, b);
    if (!conf_get(map, a) && !conf_get(map, b))
        return conf_fail(map, e, "'train' wants '%s' or '%s'", a, b);
    return ERR_OK;
}

/* Synthetic data takes its widths from the model where it gives none. */
static enum err_code check_widths(struct train_spec *t, const struct conf_node *map, struct err *e)
{
    bool mlp = t->model.type == MODEL_MLP;
    int64_t in = mlp ? t->model.sizes[0] : t->model.in;
    int64_t out = mlp ? t->model.sizes[t->model.size_count - 1] : t->model.out;
    const struct conf_node *data = conf_get(map, "data");

    if (t->data.type != DATA_SYNTHETIC)
        return ERR_OK;
    t->data.in = t->data.in ? t->data.in : in;
    t->data.out = t->data.out ? t->data.out : out;
    if (t->data.in != in)
        return conf_fail(either(data, "in"), e, "data has %lld inputs, the model takes %lld",
                         (long long)t->data.in, (long long)in);
    if (t->data.out != out)
        return conf_fail(either(data, "out"), e, "data has %lld outputs, the model gives %lld",
                         (long long)t->data.out, (long long)out);
    return ERR_OK;
}

static enum err_code check_loss(struct train_spec *t, const struct conf_node *map, struct err *e)
{
    bool labels = t->data.type == DATA_IDX;

    if (t->loss == LOSS_AUTO)
        t->loss = labels ? LOSS_CROSS_ENTROPY : LOSS_MSE;
    if (labels && t->loss == LOSS_MSE)
        return conf_fail(either(map, "loss"), e, "loss mse wants real targets, idx data has labels");
    if (!labels && t->loss == LOSS_CROSS_ENTROPY)
        return conf_fail(either(map, "loss"), e,
                         "loss cross_entropy wants labels, synthetic data has real targets");
    return ERR_OK;
}

enum err_code job_train_read(const struct conf_node *node, void *at, struct err *e)
{
    struct train_spec *t = at;

    if (conf_read_map(node, train_fields, t, e))
        return e->code;
    if (check_one_of(node, "batch", "global_batch", e) || check_one_of(node, "epochs", "steps", e) ||
        check_widths(t, node, e) || check_loss(t, node, e))
        return e->code;
    if (t->resume == RESUME_CONTINUE && !t->snapshot.dir)
        return conf_fail(either(node, "resume"), e,
                         "resume: continue wants a snapshot directory, add snapshot.dir");
    if (t->schedule.min_lr > t->optimizer.lr)
        return conf_fail(either(node, "schedule"), e, "'min_lr' is above the learning rate");
    return ERR_OK;
}

void job_train_defaults(struct train_spec *t)
{
    t->data.samples = 2048;
    t->data.shuffle = true;
    t->optimizer.type = OPTIMIZER_SGD;
    t->optimizer.lr = 1e-3;
    t->optimizer.betas[0] = 0.9;
    t->optimizer.betas[1] = 0.999;
    t->optimizer.eps = 1e-8;
    t->accumulate = 1;
    t->seed = 1;
    t->snapshot.every = (struct job_every){1, EVERY_EPOCHS};
    t->snapshot.keep = 3;
    t->eval.every = (struct job_every){1, EVERY_EPOCHS};
    t->log_every = 10;
    t->tutorial_lines = true;
}

void job_train_release(struct train_spec *t)
{
    free(t->model.sizes);
    free(t->data.dir);
    free(t->snapshot.dir);
    *t = (struct train_spec){0};
}
