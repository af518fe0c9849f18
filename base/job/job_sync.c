#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/conf/conf.h"
#include "base/job/job_names.h"
#include "base/job/job_sync.h"
#include "base/job/job_variant.h"
#include "base/mem.h"

/* The map `sync`: the strategies that keep ranks in step, one row each. The row of the same enum value in
 * trainer/member/sync does the work. */

#define AT(member) offsetof(struct train_spec, member)

#define GRACE_AUTO "auto"
#define FIRST_ROUND 4 /* steps of the first round if the job gives a time: enough to measure a step */
/* A run of fewer rounds ends with a lower loss if its outer momentum is constant. Measured with 12 and 15 rounds. */
#define FEW_ROUNDS 40

/* Reads 50 or "30s". */
static enum err_code read_round(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field steps[] = {{"every", CONF_INT, 0, JOB_STEPS}, {0}};
    struct sync_spec *sync = at;
    const char *text = conf_scalar(node);
    struct err why;
    int64_t ms = 0;

    /* A number without unit is a number of steps; conf_duration would read it as seconds. */
    if (conf_is_plain(node) && text && *text && text[strspn(text, "+-0123456789")] == '\0')
        return conf_read_value(node, steps, &sync->every, e);
    if (!text || !text[strspn(text, "0123456789")] || conf_duration(text, &ms, &why) || ms <= 0)
        return conf_refuse(node, "every", "steps or a time, such as 50 or \"30s\"", e);
    sync->every = FIRST_ROUND;
    sync->every_ms = ms;
    return ERR_OK;
}

/* Reads auto or "10s". */
static enum err_code read_grace(const struct conf_node *node, void *at, struct err *e)
{
    struct train_spec *train = at;
    const char *text = conf_scalar(node);
    struct err why;

    train->sync.grace_ms = 0;
    if (text && !strcmp(text, GRACE_AUTO))
        return ERR_OK;
    /* A number without unit could mean rounds or steps; conf_duration would read it as seconds. */
    if (!text || !text[strspn(text, "+-0123456789.")] || conf_duration(text, &train->sync.grace_ms, &why) ||
        train->sync.grace_ms <= 0) {
        train->sync.grace_ms = 0;
        return conf_refuse(node, "grace", "auto or a time with its unit, such as 10s", e);
    }
    return ERR_OK;
}

/* Gradients are summed on their way, so ranks cannot send codes with scales of their own. */
static const char *const allreduce_wires[] = {"fp32", "bf16", NULL};
static const struct conf_field allreduce_keys[] = {
    JOB_TYPE,
    {"wire", CONF_ENUM, AT(sync.wire), .names = allreduce_wires},
    {0},
};
static const struct conf_field auto_keys[] = {JOB_TYPE, {0}};
static const struct conf_field average_keys[] = {
    JOB_TYPE,
    {"every", CONF_CUSTOM, AT(sync), .required = true, .fn = read_round},
    {0},
};

const char *const job_wire_names[] = {"fp32", "bf16", "int8", "int4", NULL};
const char *const job_outer_schedule_names[] = {"constant", "trapezoid", NULL};
static const struct conf_field diloco_keys[] = {
    JOB_TYPE,
    {"every", CONF_CUSTOM, AT(sync), .fn = read_round},
    {"outer_lr", CONF_REAL, AT(sync.outer_lr), JOB_ABOVE_ZERO},
    {"outer_momentum", CONF_REAL, AT(sync.outer_momentum), JOB_BELOW_ONE},
    {"outer_schedule", CONF_ENUM, AT(sync.outer_schedule), .names = job_outer_schedule_names},
    {"wire", CONF_ENUM, AT(sync.wire), .names = job_wire_names},
    {"warm", CONF_INT, AT(sync.warm), JOB_FROM_ZERO},
    {"fragments", CONF_INT, AT(sync.fragments), .min = 1, .max = 1024},
    {"overlap", CONF_INT, AT(sync.overlap), JOB_FROM_ZERO},
    {"mix", CONF_REAL, AT(sync.mix), .min = 0, .max = 1},
    {"quorum", CONF_INT, AT(sync.quorum), .min = 2, .max = 1 << 20},
    {"grace", CONF_CUSTOM, 0, .fn = read_grace},
    {0},
};

static const struct job_variant strategies[] = {
    [SYNC_ALLREDUCE] = {"allreduce", allreduce_keys},
    [SYNC_AVERAGE] = {"average", average_keys},
    [SYNC_DILOCO] = {"diloco", diloco_keys},
    [SYNC_AUTO] = {"auto", auto_keys},
};
/* Of the keys that the strategy has. */
static const struct sync_spec sync_defaults = {.every = 50,
                                               .outer_lr = SYNC_OUTER_LR,
                                               .outer_momentum = SYNC_OUTER_MOMENTUM,
                                               .outer_schedule = OUTER_TRAPEZOID,
                                               .wire = WIRE_FP32,
                                               .fragments = 1,
                                               .mix = 0.5};

/* The strategies that `reproducible: world` allows: their arithmetic does not depend on the number of ranks.
 * */
static const bool independent_of_world_size[ARRAY_LEN(strategies)] = {[SYNC_ALLREDUCE] = true};

/* An exchange ends before the next one begins, and each fragment has its own. */
static enum err_code check_rounds(const struct sync_spec *s, const struct conf_node *map, struct err *e)
{
    const char *split = s->fragments > 1 ? "fragments" : "overlap";

    if (s->every_ms && (s->fragments > 1 || s->overlap))
        return conf_fail(conf_get(map, "every"), e,
                         "'%s' needs 'every' as a number of steps, because it divides the round by steps",
                         split);
    if (s->fragments > s->every)
        return conf_fail(job_either(map, "fragments"), e,
                         "'fragments' must not be above 'every', which is %lld", (long long)s->every);
    if (s->overlap >= s->every / s->fragments)
        return conf_fail(job_either(map, "overlap"), e,
                         "'overlap' must be below %lld, the number of steps between two exchanges",
                         (long long)(s->every / s->fragments));
    return ERR_OK;
}

/* With a quorum, a late rank applies its change of the whole model to a later shared model. */
static enum err_code check_quorum(const struct sync_spec *s, const struct conf_node *map, struct err *e)
{
    const char *split = s->fragments > 1 ? "fragments" : "overlap";

    /* A conflict is reported at the other key. After an error the parser leaves out the key and reads the file again to find more
     * errors: without 'quorum' it would report 'grace' as well. */
    if (!s->quorum && conf_get(map, "grace"))
        return conf_fail(conf_get(map, "grace"), e,
                         "'grace' needs 'quorum': without it a round waits for all ranks");
    if (!s->quorum)
        return ERR_OK;
    if (s->every_ms)
        return conf_fail(
            conf_get(map, "every"), e,
            "'quorum' needs 'every' as a number of steps: rounds of a given time do not wait for slow ranks");
    if (s->fragments > 1 || s->overlap)
        return conf_fail(conf_get(map, split), e, "'quorum' and '%s' exclude each other: remove one of them",
                         split);
    return ERR_OK;
}

enum err_code job_sync_check_quorum(const struct job_spec *spec, const struct conf_node *train, struct err *e)
{
    const int64_t quorum = spec->kind == JOB_TRAIN ? spec->train.sync.quorum : 0;
    const int64_t most = spec->nodes_max * spec->procs_per_node;

    if (!quorum)
        return ERR_OK;
    const struct conf_node *key = conf_get(conf_get(train, "sync"), "quorum");
    if (spec->procs != JOB_PROCS_NUMBER)
        return conf_fail(key, e, "'sync.quorum' needs 'procs_per_node' as a number");
    if (quorum > most)
        return conf_fail(key, e, "'sync.quorum' is %lld, but the job has at most %lld ranks",
                         (long long)quorum, (long long)most);
    if (!spec->max_replacements)
        return conf_fail(
            key, e,
            "'sync.quorum' and 'max_replacements: 0' exclude each other: a rank that was late goes on "
            "from its memory");
    return ERR_OK;
}

enum err_code job_sync_read(const struct conf_node *node, void *at, struct err *e)
{
    struct train_spec *train = at;
    int type;

    if (conf_scalar(node) && !strcmp(conf_scalar(node), strategies[SYNC_AUTO].name)) {
        train->sync.type = SYNC_AUTO;
        return ERR_OK;
    }
    if (job_pick(node, strategies, ARRAY_LEN(strategies), SYNC_ALLREDUCE, "sync", &type, e))
        return e->code;
    if (type == SYNC_DILOCO)
        train->sync = sync_defaults;
    if (job_read_variant(node, strategies, ARRAY_LEN(strategies), "sync", type, train, e))
        return e->code;
    train->sync.type = (enum sync_type)type;
    if (type != SYNC_DILOCO)
        return ERR_OK;
    return check_rounds(&train->sync, node, e) ? e->code : check_quorum(&train->sync, node, e);
}

void job_sync_suit_rounds(struct sync_spec *s, int64_t steps)
{
    /* With `epochs`, or rounds of a given time, the number of rounds is not known here. */
    if (!steps || s->every_ms || (steps - s->warm) / s->every >= FEW_ROUNDS)
        return;
    s->outer_momentum = 0.6;
    s->outer_schedule = OUTER_CONSTANT;
}

void job_sync_choose_outer(struct train_spec *train, const struct conf_node *map)
{
    const struct conf_node *keys = conf_get(map, "sync");

    if (train->sync.type == SYNC_DILOCO && !conf_get(keys, "outer_lr") && !conf_get(keys, "outer_momentum") &&
        !conf_get(keys, "outer_schedule"))
        job_sync_suit_rounds(&train->sync, train->steps);
}

bool job_sync_is_allowed(const struct train_spec *train, enum sync_type type)
{
    return train->reproducible != REPRODUCIBLE_WORLD || independent_of_world_size[type];
}

enum err_code job_sync_check_world(const struct train_spec *train, const struct conf_node *place,
                                   struct err *e)
{
    CLEANUP(buf_release) struct buf names = {0};

    if (train->sync.type == SYNC_ALLREDUCE && train->sync.wire != WIRE_FP32)
        return conf_fail(
            place, e,
            "'reproducible: world' needs 'sync.wire: fp32': how often a sum is rounded to bf16 depends on "
            "the number of ranks");
    if (job_sync_is_allowed(train, train->sync.type))
        return ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++)
        if (independent_of_world_size[i])
            buf_printf(&names, "%s%s", names.len ? " or " : "", strategies[i].name);
    return conf_fail(place, e, "'reproducible: world' needs 'sync' of type %s", names.data);
}

bool job_sync_is_mean(const struct sync_spec *s)
{
    return s->outer_lr == 1.0 && s->outer_momentum == 0.0 && s->wire == WIRE_FP32 && s->fragments == 1 &&
           s->overlap == 0;
}

static enum err_code change_refuse(struct err *e, const char *key, const char *why)
{
    return err_set(e, ERR_FAILED_PRECONDITION, "'sync.%s' cannot change while the job runs%s", key, why);
}

enum err_code job_sync_check_change(const struct sync_spec *from, const struct sync_spec *to, struct err *e)
{
    if (from->type != to->type)
        return change_refuse(e, "type", "");
    if (from->wire != to->wire)
        return change_refuse(e, "wire", "");
    if (from->fragments != to->fragments)
        return change_refuse(e, "fragments", "");
    if (from->quorum != to->quorum)
        return change_refuse(e, "quorum", "");
    /* A value of 0 needs one array less than other values. */
    if ((from->outer_momentum > 0.0) != (to->outer_momentum > 0.0))
        return change_refuse(e, "outer_momentum",
                             " from or to 0: only a momentum above 0 has memory of its own");
    if ((from->overlap > 0) != (to->overlap > 0))
        return change_refuse(
            e, "overlap",
            " from or to 0: only an overlap above 0 has memory for the data that is being sent");
    /* The mean is made without a shared model where there is one rank. */
    if (from->type == SYNC_DILOCO && job_sync_is_mean(from) != job_sync_is_mean(to))
        return change_refuse(e, "outer_lr",
                             " from or to 1 if 'sync.outer_momentum' is 0: only with 1, rounds are "
                             "plain averaging");
    return ERR_OK;
}

enum err_code job_sync_check_clock(const struct train_spec *train, const struct conf_node *place,
                                   struct err *e)
{
    if (train->sync.type == SYNC_AUTO)
        return conf_fail(
            place, e,
            "'reproducible' and 'sync: auto' exclude each other: the measured speed of the link chooses "
            "the strategy, so two runs may differ");
    if (!train->sync.every_ms)
        return ERR_OK;
    return conf_fail(
        place, e,
        "'reproducible' needs 'sync.every' as a number of steps: with a time, the clock decides at "
        "which steps rounds end");
}

void job_sync_print(struct buf *out, const struct train_spec *train)
{
    const struct job_variant *chosen = &strategies[train->sync.type];

    if (train->sync.type == SYNC_ALLREDUCE && train->sync.wire == WIRE_FP32) /* the default */
        return;
    if (train->sync.type == SYNC_AUTO) {
        buf_puts(out, "  sync: auto\n");
        return;
    }
    buf_printf(out, "  sync: {type: %s", chosen->name);
    for (const struct conf_field *f = chosen->fields; f->key; f++) {
        const char *value = (const char *)train + f->offset;

        if (!train->sync.quorum && (f->offset == AT(sync.quorum) || f->fn == read_grace))
            continue; /* the rounds wait for all ranks */
        if (f->type == CONF_INT)
            buf_printf(out, ", %s: %lld", f->key, (long long)*(const int64_t *)(const void *)value);
        else if (f->fn == read_grace && train->sync.grace_ms)
            buf_printf(out, ", grace: %s", conf_duration_text(train->sync.grace_ms).text);
        else if (f->type == CONF_REAL)
            buf_printf(out, ", %s: %.17g", f->key, *(const double *)(const void *)value);
        else if (f->type == CONF_ENUM)
            buf_printf(out, ", %s: %s", f->key, f->names[*(const int *)(const void *)value]);
        else if (f->fn == read_round && train->sync.every_ms)
            buf_printf(out, ", every: %s", conf_duration_text(train->sync.every_ms).text);
        else if (f->fn == read_round)
            buf_printf(out, ", every: %lld", (long long)train->sync.every);
        else
            BUG_ON(f->fn != job_ignore &&
                   f->fn != read_grace); /* add the output of another type of key here */
    }
    buf_puts(out, "}\n");
}
