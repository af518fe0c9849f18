#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/job/job_model.h"
#include "base/job/job_names.h"
#include "base/job/job_variant.h"
#include "base/mem.h"

/* The maps under `train.model` and `train.data`, and the check that they fit each other. */

const char *const job_activation_names[] = {"relu", "gelu", "tanh", "gelu_tanh", NULL};
const char *const job_symbol_names[] = {"character", "byte", NULL};

#define AT(member) offsetof(struct train_spec, member)
#define BYTES 256 /* symbols of text by byte */

static void free_sizes(int64_t **sizes)
{
    free(*sizes);
}

static enum err_code read_sizes(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field width[] = {{"sizes", CONF_INT, 0, JOB_WIDTH}, {0}};
    struct train_spec *train = at;
    size_t count = conf_is_list(node) ? conf_count(node) : 0;
    CLEANUP(free_sizes) int64_t *sizes = NULL;

    if (count < 2 || count > 64)
        return conf_refuse(node, "sizes", "a list of 2 to 64 widths, input first, such as [784, 512, 10]", e);
    sizes = xcalloc(count, sizeof(*sizes));
    for (size_t i = 0; i < count; i++)
        if (conf_read_value(conf_at(node, i), width, &sizes[i], e))
            return e->code;
    free(train->model.sizes);
    train->model.sizes = steal(sizes);
    train->model.size_count = count;
    return ERR_OK;
}

static const struct conf_field linear_fields[] = {
    JOB_TYPE,
    {"in", CONF_INT, AT(model.in), .required = true, JOB_WIDTH},
    {"out", CONF_INT, AT(model.out), .required = true, JOB_WIDTH},
    {0},
};

static enum err_code read_gpt_activation(const struct conf_node *node, void *at, struct err *e)
{
    static const char *const names[] = {"gelu_tanh", "gelu", NULL};
    static const struct conf_field one[] = {{"activation", CONF_ENUM, 0, .names = names}, {0}};
    int kind = 0;

    if (conf_read_value(node, one, &kind, e))
        return e->code;
    *(enum activation_type *)at = kind ? ACTIVATION_GELU : ACTIVATION_GELU_TANH;
    return ERR_OK;
}

static const struct conf_field mlp_fields[] = {
    JOB_TYPE,
    {"sizes", CONF_CUSTOM, 0, .required = true, .fn = read_sizes},
    {"activation", CONF_ENUM, AT(model.activation), .names = job_activation_names},
    {0},
};
static const struct conf_field gpt_fields[] = {
    JOB_TYPE,
    {"layers", CONF_INT, AT(model.layers), .required = true, .min = 1, .max = 1024},
    {"heads", CONF_INT, AT(model.heads), .required = true, .min = 1, .max = 1024},
    {"width", CONF_INT, AT(model.width), .required = true, .min = 1, .max = 1 << 20},
    {"context", CONF_INT, AT(model.context), .required = true, .min = 1, .max = 1 << 20},
    {"vocab", CONF_INT, AT(model.vocab), .min = 1, .max = 1 << 20},
    {"dropout", CONF_REAL, AT(model.dropout), JOB_BELOW_ONE, .single = true},
    {"activation", CONF_CUSTOM, AT(model.activation), .fn = read_gpt_activation},
    {"tied", CONF_BOOL, AT(model.tied)},
    {0},
};

enum err_code job_model_read(const struct conf_node *node, void *at, struct err *e)
{
    static const struct job_variant models[] = {
        {"linear", linear_fields}, {"mlp", mlp_fields}, {"gpt", gpt_fields}};
    struct train_spec *train = at;
    int type;

    if (job_pick(node, models, ARRAY_LEN(models), -1, "model", &type, e))
        return e->code;
    train->model.type = (enum model_type)type;
    train->model.activation = type == MODEL_GPT ? ACTIVATION_GELU_TANH : ACTIVATION_RELU;
    if (job_read_variant(node, models, ARRAY_LEN(models), "model", type, train, e))
        return e->code;
    if (type == MODEL_GPT && train->model.width % train->model.heads)
        return conf_fail(conf_get(node, "width"), e,
                         "invalid value for 'width': expected a multiple of 'heads' (%lld), got %lld",
                         (long long)train->model.heads, (long long)train->model.width);
    return ERR_OK;
}

#define SAMPLING                                                                                             \
    {"pad", CONF_BOOL, AT(data.pad)},                                                                        \
    {                                                                                                        \
        "shuffle", CONF_BOOL, AT(data.shuffle)                                                               \
    }
#define SPLITTING                                                                                            \
    {"path", CONF_TEXT, AT(data.path), .required = true}, {"val_path", CONF_TEXT, AT(data.val_path)},        \
    {                                                                                                        \
        "split", CONF_REAL, AT(data.split), .min = 0, .max = 1, .above = true, .below = true                 \
    }

static const struct conf_field synthetic_fields[] = {
    JOB_TYPE,
    {"samples", CONF_INT, AT(data.samples), .min = 1, .max = 1 << 30},
    {"in", CONF_INT, AT(data.in), JOB_WIDTH},
    {"out", CONF_INT, AT(data.out), JOB_WIDTH},
    SAMPLING,
    {0},
};
static const struct conf_field idx_fields[] = {
    JOB_TYPE,
    {"dir", CONF_TEXT, AT(data.dir), .required = true},
    SAMPLING,
    {0},
};
static const struct conf_field text_fields[] = {
    JOB_TYPE, SPLITTING, {"symbols", CONF_ENUM, AT(data.symbols), .names = job_symbol_names}, SAMPLING, {0},
};
static const struct conf_field token_fields[] = {JOB_TYPE, SPLITTING, SAMPLING, {0}};

enum err_code job_data_read(const struct conf_node *node, void *at, struct err *e)
{
    static const struct job_variant kinds[] = {{"synthetic", synthetic_fields},
                                               {"idx", idx_fields},
                                               {"text", text_fields},
                                               {"tokens", token_fields}};
    struct train_spec *train = at;
    int type;

    if (job_pick(node, kinds, ARRAY_LEN(kinds), -1, "data", &type, e) ||
        job_read_variant(node, kinds, ARRAY_LEN(kinds), "data", type, train, e))
        return e->code;
    if (train->data.val_path && conf_get(node, "split"))
        return conf_fail(conf_get(node, "split"), e,
                         "'val_path' and 'split' exclude each other: give only one");
    train->data.type = (enum data_type)type;
    return ERR_OK;
}

/* ---- model against data */

/* Synthetic data without widths takes them from the model. */
static enum err_code job_check_widths(struct train_spec *t, const struct conf_node *map, struct err *e)
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
        return conf_fail(job_either(data, "in"), e, "the data has %lld inputs, but the model takes %lld",
                         (long long)t->data.in, (long long)in);
    if (t->data.out != out)
        return conf_fail(job_either(data, "out"), e, "the data has %lld outputs, but the model gives %lld",
                         (long long)t->data.out, (long long)out);
    return ERR_OK;
}

static bool is_language(const struct train_spec *t)
{
    return t->data.type == DATA_TEXT || t->data.type == DATA_TOKENS;
}

static enum err_code job_check_kinds(const struct train_spec *t, const struct conf_node *map, struct err *e)
{
    bool gpt = t->model.type == MODEL_GPT;

    if (gpt && !is_language(t))
        return conf_fail(conf_get(conf_get(map, "data"), "type"), e,
                         "a gpt model needs data of type text or tokens");
    if (!gpt && is_language(t))
        return conf_fail(conf_get(conf_get(map, "model"), "type"), e, "data of type %s needs a gpt model",
                         t->data.type == DATA_TEXT ? "text" : "tokens");
    if (!gpt && t->precision == PRECISION_BF16)
        return conf_fail(conf_get(map, "precision"), e, "'precision: bf16' needs a gpt model");
    if (!gpt && t->recompute == RECOMPUTE_BLOCK)
        return conf_fail(conf_get(map, "recompute"), e, "'recompute: block' needs a gpt model");
    if (!gpt && t->init_from)
        return conf_fail(conf_get(map, "init_from"), e, "'init_from' needs a gpt model");
    return ERR_OK;
}

/* The number of symbols of a text is known when the text is read. A vocabulary may be larger than that, for a
 * width that devices compute faster. */
static enum err_code job_check_vocabulary(const struct train_spec *t, const struct conf_node *map,
                                          struct err *e)
{
    const struct conf_node *model = conf_get(map, "model");

    if (t->data.type == DATA_TOKENS && !t->model.vocab)
        return conf_fail(
            model, e,
            "a file of tokens does not contain the size of its vocabulary: add 'vocab' (50257 for "
            "GPT-2's tokens)");
    if (t->data.type == DATA_TEXT && t->data.symbols == SYMBOL_BYTE && t->model.vocab &&
        t->model.vocab < BYTES)
        return conf_fail(conf_get(model, "vocab"), e,
                         "invalid value for 'vocab': expected at least %d for 'symbols: byte', got %lld",
                         BYTES, (long long)t->model.vocab);
    return ERR_OK;
}

static enum err_code job_check_loss(struct train_spec *t, const struct conf_node *map, struct err *e)
{
    static const char *const words[] = {"synthetic", "idx", "text", "tokens"};
    bool labels = t->data.type != DATA_SYNTHETIC;

    if (t->loss == LOSS_AUTO)
        t->loss = labels ? LOSS_CROSS_ENTROPY : LOSS_MSE;
    if (labels && t->loss == LOSS_MSE)
        return conf_fail(job_either(map, "loss"), e,
                         "'loss: mse' needs real targets, but data of type %s has labels",
                         words[t->data.type]);
    if (!labels && t->loss == LOSS_CROSS_ENTROPY)
        return conf_fail(job_either(map, "loss"), e,
                         "'loss: cross_entropy' needs labels, but synthetic data has real targets");
    return ERR_OK;
}

enum err_code job_model_check(struct train_spec *t, const struct conf_node *map, struct err *e)
{
    if (job_check_kinds(t, map, e) || job_check_widths(t, map, e) || job_check_vocabulary(t, map, e))
        return e->code;
    return job_check_loss(t, map, e);
}
