#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/job/job_model.h"
#include "base/job/job_names.h"
#include "base/job/job_sync.h"
#include "base/job/job_train.h"
#include "base/job/job_variant.h"
#include "base/mem.h"

/* The map under `train`, except `model` and `data` (job_model.c). A value that this version does not support
 * is refused with its line and column. */

const char *const job_loss_names[] = {"auto", "cross_entropy", "mse", NULL};
const char *const job_schedule_names[] = {"constant", "linear", "cosine", NULL};
const char *const job_resume_names[] = {"auto", "continue", "never", NULL};
const char *const job_precision_names[] = {"fp32", "bf16", NULL};
const char *const job_balance_names[] = {"equal", "speed", NULL};
const char *const job_recompute_names[] = {"none", "block", NULL};
const char *const job_shard_names[] = {"none", "optimizer", NULL};
const char *const job_moments_names[] = {"auto", "parts", "whole", NULL};
const char *const job_reproducible_names[] = {"layout", "world", "none", NULL};

#define AT(member) offsetof(struct train_spec, member)

static enum err_code read_betas(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field beta[] = {{"betas", CONF_REAL, 0, JOB_BELOW_ONE, .single = true}, {0}};
    double pair[2];

    if (!conf_is_list(node) || conf_count(node) != 2)
        return conf_refuse(node, "betas", "two numbers, such as [0.9, 0.999]", e);
    for (size_t i = 0; i < 2; i++)
        if (conf_read_value(conf_at(node, i), beta, &pair[i], e))
            return e->code;
    memcpy(at, pair, sizeof(pair));
    return ERR_OK;
}

/* Sets defaults that depend on the optimizer. Those of weight_decay are PyTorch's; Muon has that of AdamW. */
static void default_optimizer(struct train_spec *train)
{
    if (train->optimizer.type != OPTIMIZER_SGD)
        train->optimizer.weight_decay = 0.01;
    if (train->optimizer.type == OPTIMIZER_MUON) {
        train->optimizer.lr = 0.02;
        train->optimizer.momentum = 0.95;
    }
}

#define COMMON                                                                                               \
    JOB_TYPE, {"lr", CONF_REAL, AT(optimizer.lr), JOB_ABOVE_ZERO},                                           \
        {"weight_decay", CONF_REAL, AT(optimizer.weight_decay), JOB_FROM_ZERO},                              \
    {                                                                                                        \
        "clip", CONF_REAL, AT(optimizer.clip), JOB_FROM_ZERO                                                 \
    }
static const struct conf_field sgd_fields[] = {
    COMMON,
    {"momentum", CONF_REAL, AT(optimizer.momentum), JOB_BELOW_ONE, .single = true},
    {"nesterov", CONF_BOOL, AT(optimizer.nesterov)},
    {0},
};
static const struct conf_field adamw_fields[] = {
    COMMON,
    {"betas", CONF_CUSTOM, AT(optimizer.betas), .fn = read_betas},
    {"eps", CONF_REAL, AT(optimizer.eps), JOB_ABOVE_ZERO, .single = true},
    {0},
};
static const struct conf_field muon_adamw_fields[] = {
    {"lr", CONF_REAL, AT(optimizer.adamw_lr), JOB_ABOVE_ZERO},
    {"betas", CONF_CUSTOM, AT(optimizer.betas), .fn = read_betas},
    {"eps", CONF_REAL, AT(optimizer.eps), JOB_ABOVE_ZERO, .single = true},
    {0},
};
static const struct conf_field muon_fields[] = {
    COMMON,
    {"momentum", CONF_REAL, AT(optimizer.momentum), JOB_BELOW_ONE, .single = true},
    {"adamw", CONF_STRUCT, 0, .fields = muon_adamw_fields},
    {0},
};

static enum err_code read_optimizer(const struct conf_node *node, void *at, struct err *e)
{
    static const struct job_variant kinds[] = {[OPTIMIZER_SGD] = {"sgd", sgd_fields},
                                               [OPTIMIZER_ADAMW] = {"adamw", adamw_fields},
                                               [OPTIMIZER_MUON] = {"muon", muon_fields}};
    struct train_spec *train = at;
    int type;

    if (job_pick(node, kinds, ARRAY_LEN(kinds), OPTIMIZER_SGD, "optimizer", &type, e))
        return e->code;
    train->optimizer.type = (enum optimizer_type)type;
    default_optimizer(train);
    if (job_read_variant(node, kinds, ARRAY_LEN(kinds), "optimizer", type, train, e))
        return e->code;
    if (train->optimizer.nesterov && train->optimizer.momentum == 0)
        return conf_fail(node, e, "'nesterov' needs 'momentum' above 0");
    return ERR_OK;
}

/* Reads 500, "10 epochs", "15m" or never. */
static enum err_code read_every(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field steps[] = {{"every", CONF_INT, 0, JOB_STEPS}, {0}};
    const char *text = conf_scalar(node);
    struct job_every every = {0};
    struct err why;
    char *end;

    if (text && !strcmp(text, "never")) {
        *(struct job_every *)at = every;
        return ERR_OK;
    }
    /* A number without unit is a number of steps; conf_duration would read it as seconds. */
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
        return conf_refuse(node, conf_key(node),
                           "steps, epochs or a time, such as 500, \"10 epochs\", \"15m\" or never", e);
    *(struct job_every *)at = every;
    return ERR_OK;
}

static enum err_code read_eval_batches(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field number[] = {{"batches", CONF_INT, 0, JOB_FROM_ONE}, {0}};

    if (conf_scalar(node) && !strcmp(conf_scalar(node), "all")) {
        *(int64_t *)at = 0;
        return ERR_OK;
    }
    if (!conf_is_plain(node))
        return conf_refuse(node, "batches", "a whole number or all", e);
    return conf_read_value(node, number, at, e);
}

/* The sum over shards is a full binary tree, so their number must be a power of two. */
static enum err_code read_shards(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field number[] = {{"shards", CONF_INT, 0, .min = 1, .max = 1024}, {0}};
    int64_t shards = 0;

    if (conf_read_value(node, number, &shards, e))
        return e->code;
    if (shards & (shards - 1))
        return conf_refuse(node, "shards", "a power of two", e);
    *(int64_t *)at = shards;
    return ERR_OK;
}

static const struct conf_field schedule_fields[] = {
    {"type", CONF_ENUM, AT(schedule.type), .names = job_schedule_names},
    {"warmup", CONF_INT, AT(schedule.warmup), JOB_FROM_ZERO},
    {"min_lr", CONF_REAL, AT(schedule.min_lr), JOB_FROM_ZERO},
    {0},
};
static const struct conf_field snapshot_fields[] = {
    {"dir", CONF_TEXT, AT(snapshot.dir), .required = true},
    {"every", CONF_CUSTOM, AT(snapshot.every), .fn = read_every},
    {"keep", CONF_INT, AT(snapshot.keep), JOB_FROM_ONE},
    {"keep_best", CONF_INT, AT(snapshot.keep_best), JOB_FROM_ZERO},
    {"moments", CONF_ENUM, AT(snapshot.moments), .names = job_moments_names},
    {0},
};
static const struct conf_field eval_fields[] = {
    {"every", CONF_CUSTOM, AT(eval.every), .fn = read_every},
    {"batches", CONF_CUSTOM, AT(eval.batches), .fn = read_eval_batches},
    {0},
};
const struct conf_field job_train_fields[] = {
    {"model", CONF_CUSTOM, 0, .required = true, .fn = job_model_read},
    {"init_from", CONF_TEXT, AT(init_from)},
    {"loss", CONF_ENUM, AT(loss), .names = job_loss_names},
    {"data", CONF_CUSTOM, 0, .required = true, .fn = job_data_read},
    {"optimizer", CONF_CUSTOM, 0, .fn = read_optimizer, .fields = sgd_fields},
    {"schedule", CONF_STRUCT, 0, .fields = schedule_fields},
    {"batch", CONF_INT, AT(batch), .min = 1, .max = 1 << 24},
    {"global_batch", CONF_INT, AT(global_batch), .min = 1, .max = 1 << 24},
    {"accumulate", CONF_INT, AT(accumulate), .min = 1, .max = 1 << 16},
    {"epochs", CONF_INT, AT(epochs), JOB_EPOCHS},
    {"steps", CONF_INT, AT(steps), JOB_STEPS},
    {"seed", CONF_INT, AT(seed), JOB_FROM_ZERO},
    {"precision", CONF_ENUM, AT(precision), .names = job_precision_names},
    {"recompute", CONF_ENUM, AT(recompute), .names = job_recompute_names},
    {"balance", CONF_ENUM, AT(balance), .names = job_balance_names},
    {"shard", CONF_ENUM, AT(shard), .names = job_shard_names},
    {"reproducible", CONF_ENUM, AT(reproducible), .names = job_reproducible_names},
    {"shards", CONF_CUSTOM, AT(shards), .fn = read_shards},
    {"isa", CONF_ENUM, AT(isa), .names = isa_names},
    {"threads", CONF_INT, AT(threads), .min = 1, .max = 1024},
    {"pin", CONF_BOOL, AT(pin)},
    {"sync", CONF_CUSTOM, 0, .fn = job_sync_read},
    {"snapshot", CONF_STRUCT, 0, .fields = snapshot_fields},
    {"resume", CONF_ENUM, AT(resume), .names = job_resume_names},
    {"eval", CONF_STRUCT, 0, .fields = eval_fields},
    {"log_every", CONF_INT, AT(log_every), JOB_FROM_ONE},
    {"tutorial_lines", CONF_BOOL, AT(tutorial_lines)},
    {"measure", CONF_DURATION, AT(measure_ms), .min = 100, .max = 600000},
    {0},
};

static enum err_code check_one_of(const struct conf_node *map, const char *a, const char *b, struct err *e)
{
    if (conf_get(map, a) && conf_get(map, b))
        return conf_fail(conf_get(map, b), e, "'%s' and '%s' exclude each other: give only one", a, b);
    if (!conf_get(map, a) && !conf_get(map, b))
        return conf_fail(map, e, "'train' needs '%s' or '%s': add one of them", a, b);
    return ERR_OK;
}

/* Muon updates the matrices of hidden layers. A model without one would be trained by AdamW alone. */
static enum err_code check_optimizer(const struct train_spec *t, const struct conf_node *map, struct err *e)
{
    bool hidden = t->model.type == MODEL_GPT || (t->model.type == MODEL_MLP && t->model.size_count > 2);

    if (t->optimizer.type == OPTIMIZER_MUON && !hidden)
        return conf_fail(conf_get(conf_get(map, "optimizer"), "type"), e,
                         "optimizer muon needs a model with hidden layers: a gpt, or an mlp of three or more "
                         "sizes; use adamw");
    return ERR_OK;
}

/* For the same bits at every world size, no value that depends on the world size may enter the arithmetic. */
static enum err_code check_reproducible(struct train_spec *t, const struct conf_node *map, struct err *e)
{
    const struct conf_node *key = conf_get(map, "reproducible");

    if (key && t->reproducible != REPRODUCIBLE_NONE && job_sync_check_clock(t, key, e))
        return e->code;
    if (t->reproducible != REPRODUCIBLE_WORLD) {
        if (conf_get(map, "shards"))
            return conf_fail(conf_get(map, "shards"), e, "'shards' applies to 'reproducible: world' only");
        return ERR_OK;
    }
    if (job_sync_check_world(t, key, e))
        return e->code;
    if (!t->global_batch)
        return conf_fail(
            key, e,
            "'reproducible: world' needs 'global_batch' in place of 'batch', because the batch must be "
            "the same at every world size");
    t->threads = t->threads ? t->threads : 1;
    return ERR_OK;
}

/* Unequal portions need a strategy that weights gradients by samples at each step. */
static enum err_code check_balance(const struct train_spec *t, const struct conf_node *map, struct err *e)
{
    const struct conf_node *key = conf_get(map, "balance");

    if (t->balance == BALANCE_EQUAL)
        return ERR_OK;
    if (t->sync.type != SYNC_ALLREDUCE)
        return conf_fail(
            key, e,
            "'balance: speed' needs 'sync: {type: allreduce}': ranks of different speeds can average "
            "with 'sync.every' as a time, such as 30s");
    if (t->reproducible == REPRODUCIBLE_WORLD)
        return conf_fail(key, e,
                         "'balance: speed' and 'reproducible: world' exclude each other: the measured speeds "
                         "choose which samples are summed first");
    if (t->data.pad)
        return conf_fail(
            key, e,
            "'balance: speed' and 'data.pad' exclude each other: pad gives all ranks equally many "
            "samples");
    return ERR_OK;
}

/* Ranks that average have moments of their own. */
static enum err_code check_shard(const struct train_spec *t, const struct conf_node *map, struct err *e)
{
    const struct conf_node *key = conf_get(map, "shard");

    if (t->shard == SHARD_NONE)
        return ERR_OK;
    if (t->sync.type != SYNC_ALLREDUCE)
        return conf_fail(key, e,
                         "'shard: optimizer' needs 'sync: {type: allreduce}': with other types each rank has "
                         "an optimizer of its own, which cannot be divided");
    return ERR_OK;
}

static enum err_code check_snapshot(const struct train_spec *t, const struct conf_node *map, struct err *e)
{
    if (t->resume == RESUME_CONTINUE && !t->snapshot.dir)
        return conf_fail(job_either(map, "resume"), e,
                         "'resume: continue' needs a snapshot directory: add 'snapshot.dir'");
    if (t->snapshot.keep_best && t->eval.every.count == 0)
        return conf_fail(conf_get(conf_get(map, "snapshot"), "keep_best"), e,
                         "'keep_best' needs validation losses: set 'eval.every'");
    if (t->snapshot.moments != MOMENTS_AUTO && t->shard == SHARD_NONE)
        return conf_fail(conf_get(conf_get(map, "snapshot"), "moments"), e,
                         "'snapshot.moments' applies to 'shard: optimizer' only");
    return ERR_OK;
}

enum err_code job_train_read(const struct conf_node *node, void *at, struct err *e)
{
    struct train_spec *t = at;

    if (conf_read_map(node, job_train_fields, t, e))
        return e->code;
    job_sync_choose_outer(t, node);
    if (check_one_of(node, "batch", "global_batch", e) || check_one_of(node, "epochs", "steps", e) ||
        job_model_check(t, node, e) || check_optimizer(t, node, e) || check_reproducible(t, node, e) ||
        check_balance(t, node, e) || check_shard(t, node, e) || check_snapshot(t, node, e))
        return e->code;
    if (t->schedule.min_lr > t->optimizer.lr)
        return conf_fail(job_either(node, "schedule"), e,
                         "'min_lr' must not be above the learning rate 'optimizer.lr'");
    return ERR_OK;
}

void job_train_defaults(struct train_spec *t)
{
    t->model.tied = true;
    t->data.samples = 2048;
    t->data.split = 0.9;
    t->data.shuffle = true;
    t->optimizer.type = OPTIMIZER_SGD;
    t->optimizer.lr = t->optimizer.adamw_lr = 1e-3;
    t->optimizer.betas[0] = 0.9;
    t->optimizer.betas[1] = 0.999;
    t->optimizer.eps = 1e-8;
    t->accumulate = 1;
    t->seed = 1;
    t->shards = 4;
    t->snapshot.every = (struct job_every){1, EVERY_EPOCHS};
    t->snapshot.keep = 3;
    t->eval.every = (struct job_every){1, EVERY_EPOCHS};
    t->log_every = 10;
    t->pin = true;
}

void job_train_release(struct train_spec *t)
{
    free(t->model.sizes);
    free(t->init_from);
    free(t->data.dir);
    free(t->data.path);
    free(t->data.val_path);
    free(t->snapshot.dir);
    *t = (struct train_spec){0};
}
