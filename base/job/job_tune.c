#include "base/job/job_tune.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/job/job_names.h"
#include "base/job/job_sync.h"
#include "base/json.h"
#include "base/match/nearest.h"
#include "base/mem.h"

#define ASSIGNMENTS_MOST 64
#define ASSIGNMENT_BYTES 256 /* a value is a number or a time */

/* ---- the table of keys */

static bool any_job(const struct train_spec *t)
{
    (void)t;
    return true;
}

static bool has_decay(const struct train_spec *t)
{
    return t->schedule.type != SCHEDULE_CONSTANT;
}

static bool has_momentum(const struct train_spec *t)
{
    return t->optimizer.type != OPTIMIZER_ADAMW;
}

static bool has_adamw_keys(const struct train_spec *t)
{
    return t->optimizer.type == OPTIMIZER_ADAMW;
}

static bool has_muon_keys(const struct train_spec *t)
{
    return t->optimizer.type == OPTIMIZER_MUON;
}

static bool has_rounds(const struct train_spec *t)
{
    return t->sync.type == SYNC_AVERAGE || t->sync.type == SYNC_DILOCO;
}

static bool has_outer_optimizer(const struct train_spec *t)
{
    return t->sync.type == SYNC_DILOCO;
}

static bool has_snapshots(const struct train_spec *t)
{
    return t->snapshot.dir != NULL;
}

enum tunable_type {
    TUNABLE_REAL,
    TUNABLE_INT,
    TUNABLE_PAIR,
    TUNABLE_EVERY,
    TUNABLE_ROUND,
    TUNABLE_BATCHES,
};

#define AT(member) offsetof(struct job_spec, member)
/* A key's place in the job file is the key itself if it begins with one of the coordinator's keys, and else below
 * `train`. */
static const struct tunable {
    const char *key;
    enum tunable_type type;
    size_t offset; /* in struct job_spec */
    bool (*has)(const struct train_spec *t);
    bool coordinator; /* not below `train`: no worker reads it */
} tunables[] = {
    {"optimizer.lr", TUNABLE_REAL, AT(train.optimizer.lr), any_job, false},
    {"optimizer.weight_decay", TUNABLE_REAL, AT(train.optimizer.weight_decay), any_job, false},
    {"optimizer.clip", TUNABLE_REAL, AT(train.optimizer.clip), any_job, false},
    {"optimizer.momentum", TUNABLE_REAL, AT(train.optimizer.momentum), has_momentum, false},
    {"optimizer.betas", TUNABLE_PAIR, AT(train.optimizer.betas), has_adamw_keys, false},
    {"optimizer.eps", TUNABLE_REAL, AT(train.optimizer.eps), has_adamw_keys, false},
    {"optimizer.adamw.lr", TUNABLE_REAL, AT(train.optimizer.adamw_lr), has_muon_keys, false},
    {"optimizer.adamw.betas", TUNABLE_PAIR, AT(train.optimizer.betas), has_muon_keys, false},
    {"optimizer.adamw.eps", TUNABLE_REAL, AT(train.optimizer.eps), has_muon_keys, false},
    {"schedule.warmup", TUNABLE_INT, AT(train.schedule.warmup), any_job, false},
    {"schedule.min_lr", TUNABLE_REAL, AT(train.schedule.min_lr), has_decay, false},
    {"sync.every", TUNABLE_ROUND, AT(train.sync), has_rounds, false},
    {"sync.outer_lr", TUNABLE_REAL, AT(train.sync.outer_lr), has_outer_optimizer, false},
    {"sync.outer_momentum", TUNABLE_REAL, AT(train.sync.outer_momentum), has_outer_optimizer, false},
    {"sync.overlap", TUNABLE_INT, AT(train.sync.overlap), has_outer_optimizer, false},
    {"sync.mix", TUNABLE_REAL, AT(train.sync.mix), has_outer_optimizer, false},
    {"snapshot.every", TUNABLE_EVERY, AT(train.snapshot.every), has_snapshots, false},
    {"eval.every", TUNABLE_EVERY, AT(train.eval.every), any_job, false},
    {"eval.batches", TUNABLE_BATCHES, AT(train.eval.batches), any_job, false},
    {"log_every", TUNABLE_INT, AT(train.log_every), any_job, false},
    {"max_restarts", TUNABLE_INT, AT(max_restarts), any_job, true},
};

static const struct tunable *tunable_find(const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(tunables); i++)
        if (!strcmp(tunables[i].key, key))
            return &tunables[i];
    return NULL;
}

/* ---- values as text */

static void put_real(struct buf *out, double value)
{
    char text[REAL_TEXT];

    real_text(text, value);
    buf_puts(out, text);
}

/* "15m"; the largest unit that gives a whole number */
static void put_duration(struct buf *out, int64_t ms)
{
    static const struct {
        int64_t ms;
        const char *name;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
    size_t i = 0;

    while (ms % units[i].ms)
        i++;
    buf_printf(out, "%" PRId64 "%s", ms / units[i].ms, units[i].name);
}

static void put_every(struct buf *out, const struct job_every *every)
{
    if (!every->count)
        buf_puts(out, "never");
    else if (every->unit == EVERY_MS)
        put_duration(out, every->count);
    else if (every->unit == EVERY_EPOCHS)
        buf_printf(out, "%" PRId64 " epoch%s", every->count, every->count == 1 ? "" : "s");
    else
        buf_printf(out, "%" PRId64, every->count);
}

/* The caller frees. A text that the job file takes, or "auto". */
static char *tunable_print(const struct tunable *t, const struct job_spec *spec)
{
    const void *at = (const char *)spec + t->offset;
    const double *real = at;
    const int64_t *whole = at;
    const struct sync_spec *round = at;
    struct buf out = {0};

    switch (t->type) {
    case TUNABLE_REAL:
        put_real(&out, *real);
        break;
    case TUNABLE_PAIR:
        buf_putc(&out, '[');
        put_real(&out, real[0]);
        buf_puts(&out, ", ");
        put_real(&out, real[1]);
        buf_putc(&out, ']');
        break;
    case TUNABLE_EVERY:
        put_every(&out, at);
        break;
    case TUNABLE_ROUND:
        if (round->every_ms)
            put_duration(&out, round->every_ms);
        else
            buf_printf(&out, "%" PRId64, round->every);
        break;
    case TUNABLE_BATCHES:
        if (*whole)
            buf_printf(&out, "%" PRId64, *whole);
        else
            buf_puts(&out, "all");
        break;
    case TUNABLE_INT:
        buf_printf(&out, "%" PRId64, *whole);
    }
    return buf_steal(&out);
}

/* Returns whether the value changes. */
static bool tunable_copy(const struct tunable *t, struct job_spec *to, const struct job_spec *from)
{
    CLEANUP(free_text) char *old = tunable_print(t, to), *new = tunable_print(t, from);
    void *at = (char *)to + t->offset;
    const void *source = (const char *)from + t->offset;

    switch (t->type) {
    case TUNABLE_REAL:
        memcpy(at, source, sizeof(double));
        break;
    case TUNABLE_PAIR:
        memcpy(at, source, 2 * sizeof(double));
        break;
    case TUNABLE_EVERY:
        memcpy(at, source, sizeof(struct job_every));
        break;
    case TUNABLE_ROUND:
        to->train.sync.every = from->train.sync.every;
        to->train.sync.every_ms = from->train.sync.every_ms;
        break;
    case TUNABLE_BATCHES:
    case TUNABLE_INT:
        memcpy(at, source, sizeof(int64_t));
    }
    return strcmp(old, new) != 0;
}

struct job_change *job_tunable(const struct job_spec *spec, size_t *count)
{
    struct job_change *out = xcalloc(ARRAY_LEN(tunables), sizeof(*out));

    *count = 0;
    for (size_t i = 0; i < ARRAY_LEN(tunables); i++)
        if (tunables[i].has(&spec->train))
            out[(*count)++] =
                (struct job_change){.key = tunables[i].key, .from = tunable_print(&tunables[i], spec)};
    return out;
}

void job_changes_free(struct job_change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(changes[i].from);
        free(changes[i].to);
    }
    free(changes);
}

/* ---- a new version of a job */

static void tune_doc_close(struct conf_doc **doc)
{
    if (*doc)
        conf_close(*doc);
}

/* Whether the job file has the key: whether the text with this value is a job. */
static bool key_is_known(const char *text, const char *path, const char *value, struct err *e)
{
    CLEANUP(tune_doc_close) struct conf_doc *doc = NULL;
    CLEANUP(job_release) struct job_spec spec = {0};

    return !conf_open(&doc, text, strlen(text), "job file", e) && !conf_set_as(doc, path, value, path, e) &&
           !job_read(&spec, doc, e);
}

/* Says what is wrong with a key that cannot be tuned. */
static enum err_code key_refuse(const char *text, const char *key, const char *value, struct err *e)
{
    CLEANUP(free_text) char *below = xasprintf("train.%s", key);
    const char *names[ARRAY_LEN(tunables)], *near;

    if (key_is_known(text, key, value, e) || key_is_known(text, below, value, e))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "'%.64s' cannot change while the job runs; `ddpctl tune JOB` lists the keys that can",
                       key);
    for (size_t i = 0; i < ARRAY_LEN(tunables); i++)
        names[i] = tunables[i].key;
    near = nearest_name(key, names, ARRAY_LEN(names));
    if (near)
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown key '%.64s', did you mean '%s'?", key, near);
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "unknown key '%.64s'; `ddpctl tune JOB` lists the keys that can change", key);
}

/* before: the job without this change. */
static enum err_code assignment_apply(struct conf_doc *doc, const char *text, const struct train_spec *before,
                                      const char *assignment, struct err *e)
{
    const char *equals = strchr(assignment, '=');
    CLEANUP(free_text) char *key = NULL, *path = NULL;
    const struct tunable *t;

    if (!equals || equals == assignment)
        return err_set(e, ERR_INVALID_ARGUMENT, "expected KEY=VALUE, such as optimizer.lr=1e-4, got '%.200s'",
                       assignment);
    if (strlen(assignment) > ASSIGNMENT_BYTES)
        return err_set(e, ERR_INVALID_ARGUMENT, "'%.64s...' is longer than %d bytes", assignment,
                       ASSIGNMENT_BYTES);
    key = xasprintf("%.*s", (int)(equals - assignment), assignment);
    if (!strncmp(key, "train.", strlen("train.")))
        memmove(key, key + strlen("train."), strlen(key + strlen("train.")) + 1);
    t = tunable_find(key);
    if (!t)
        return key_refuse(text, key, equals + 1, e);
    if (!t->has(before))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "this job has no key '%s'; `ddpctl tune JOB` lists the keys that it has", key);
    path = xasprintf("%s%s", t->coordinator ? "" : "train.", key);
    return conf_set_as(doc, path, equals + 1, key, e);
}

/* If the job file has no key of the outer optimizer, its values follow from the number of rounds (job_sync.h): a new sync.every, or
 * a first such key, would change values that the user did not name, and outer_schedule cannot change while the job runs. So
 * the new file names the values that are in use. */
static enum err_code outer_pin(struct conf_doc *doc, const struct sync_spec *before,
                               const struct sync_spec *after, struct err *e)
{
    const struct conf_node *keys = conf_get(conf_get(conf_root(doc), "train"), "sync");
    char momentum[REAL_TEXT];

    if (after->type != SYNC_DILOCO || before->type != SYNC_DILOCO ||
        after->outer_schedule == before->outer_schedule)
        return ERR_OK;
    real_text(momentum, before->outer_momentum);
    if (!conf_get(keys, "outer_momentum") &&
        conf_set_as(doc, "train.sync.outer_momentum", momentum, "sync.outer_momentum", e))
        return e->code;
    return conf_set_as(doc, "train.sync.outer_schedule", job_outer_schedule_names[before->outer_schedule],
                       "sync.outer_schedule", e);
}

static void list_changes(struct job_tuned *out, const struct job_spec *before)
{
    out->changes = xcalloc(ARRAY_LEN(tunables), sizeof(*out->changes));
    for (size_t i = 0; i < ARRAY_LEN(tunables); i++) {
        const struct tunable *t = &tunables[i];
        char *from, *to;

        if (!t->has(&before->train))
            continue;
        from = tunable_print(t, before);
        to = tunable_print(t, &out->spec);
        if (!strcmp(from, to)) {
            free(from);
            free(to);
            continue;
        }
        out->changes[out->count++] = (struct job_change){t->key, from, to};
        out->train |= !t->coordinator;
    }
}

/* Values that need other memory than the workers have. */
static enum err_code check_arrays(const struct train_spec *from, const struct train_spec *to, struct err *e)
{
    if (from->optimizer.type == OPTIMIZER_SGD &&
        (from->optimizer.momentum > 0) != (to->optimizer.momentum > 0))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "'optimizer.momentum' cannot change while the job runs from or to 0: only a momentum above 0 "
            "has memory of its own");
    return job_sync_check_change(&from->sync, &to->sync, e);
}

enum err_code job_tune(struct job_tuned *out, const char *text, char *const *assignments, struct err *e)
{
    CLEANUP(tune_doc_close) struct conf_doc *doc = NULL;
    CLEANUP(job_release) struct job_spec before = {0};
    CLEANUP(job_tuned_release) struct job_tuned tuned = {0};

    *out = (struct job_tuned){0};
    if (strv_len(assignments) > ASSIGNMENTS_MOST)
        return err_set(e, ERR_INVALID_ARGUMENT, "at most %d keys can change at once", ASSIGNMENTS_MOST);
    if (job_parse(&before, text, strlen(text), "job file", e) ||
        conf_open(&doc, text, strlen(text), "job file", e))
        return e->code;
    if (before.kind != JOB_TRAIN)
        return err_set(e, ERR_FAILED_PRECONDITION, "only train jobs can be tuned, not commands");
    for (size_t i = 0; assignments[i]; i++)
        if (assignment_apply(doc, text, &before.train, assignments[i], e))
            return e->code;
    if (job_read(&tuned.spec, doc, e) || outer_pin(doc, &before.train.sync, &tuned.spec.train.sync, e))
        return e->code;
    job_release(&tuned.spec);
    if (job_read(&tuned.spec, doc, e) || check_arrays(&before.train, &tuned.spec.train, e))
        return e->code;
    list_changes(&tuned, &before);
    tuned.text = conf_print(doc);
    *out = tuned;
    tuned = (struct job_tuned){0};
    return ERR_OK;
}

void job_tuned_release(struct job_tuned *tuned)
{
    free(tuned->text);
    job_release(&tuned->spec);
    job_changes_free(tuned->changes, tuned->count);
    *tuned = (struct job_tuned){0};
}

bool job_tune_copy(struct job_spec *to, const struct job_spec *from)
{
    bool sync = false;

    for (size_t i = 0; i < ARRAY_LEN(tunables); i++) {
        bool changed = tunables[i].has(&to->train) && tunable_copy(&tunables[i], to, from);

        sync |= changed && !strncmp(tunables[i].key, "sync.", strlen("sync."));
    }
    /* A coordinator of an earlier version lets it change with the number of rounds. All ranks must follow the job file, as those do
     * that start from it. */
    if (has_outer_optimizer(&to->train)) {
        sync |= to->train.sync.outer_schedule != from->train.sync.outer_schedule;
        to->train.sync.outer_schedule = from->train.sync.outer_schedule;
    }
    return sync;
}
