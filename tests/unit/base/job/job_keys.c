#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/conf/conf.h"
#include "base/job/job.h"
#include "base/job/job_variant.h"
#include "base/mem.h"

/* Prints every key of the job file for scripts/reference, from the tables in base/job: a line for each key and type
 * of its map, with tabs between path, type, values, default and release.
 *
 * The tables are static there. Each of the job files below makes the parser read one map. The linker replaces calls
 * of conf_read and conf_read_map by calls of __wrap_conf_read and __wrap_conf_read_map (CMakeLists.txt). These
 * functions see the table, and the values that the map has without the key: its defaults. A key that has its own
 * parsing function has no type in its table. Its values are what the parser expects when it refuses a wrong one, and
 * its default is in `told`. */

#define FIRST_RELEASE "0.1.0"
#define MODEL "  model: {type: linear, in: 20, out: 1}\n"
#define DATA "  data: {type: synthetic}\n"
#define REST "  batch: 4\n  steps: 9\n"
#define TRAIN(more) "train:\n" MODEL DATA REST more
#define GPT "{type: gpt, layers: 1, heads: 1, width: 8, context: 8"
#define OF_MODEL(model) "train:\n  model: " model "}\n" DATA REST
#define OF_DATA(data) "train:\n  model: " GPT ", vocab: 9}\n  data: " data "}\n" REST

/* A map of the job file: where it is, its type, and a file that has it, with as few keys as it may have. The last map in
 * the file that has this name counts. */
struct sample {
    const char *path, *type, *text;
};
static const struct sample samples[] = {
    {"", "command", "command: [true]\n"},
    {"", "train", TRAIN("")},
    {"capture", "", "command: [true]\ncapture: {pattern: '(?<loss>x)'}\n"},
    {"train", "", TRAIN("")},
    {"train.model", "linear", OF_MODEL("{type: linear, in: 20, out: 1")},
    {"train.model", "mlp", OF_MODEL("{type: mlp, sizes: [20, 1]")},
    {"train.model", "gpt", OF_DATA("{type: text, path: a")},
    {"train.data", "synthetic", TRAIN("")},
    {"train.data", "idx",
     "train:\n  model: {type: mlp, sizes: [784, 10]}\n  data: {type: idx, dir: a}\n" REST},
    {"train.data", "text", OF_DATA("{type: text, path: a")},
    {"train.data", "tokens", OF_DATA("{type: tokens, path: a")},
    {"train.optimizer", "sgd", TRAIN("  optimizer: {type: sgd}\n")},
    {"train.optimizer", "adamw", TRAIN("  optimizer: {type: adamw}\n")},
    {"train.optimizer", "muon",
     "train:\n  model: {type: mlp, sizes: [20, 9, 1]}\n" DATA REST "  optimizer: {type: muon}\n"},
    {"train.sync", "allreduce", TRAIN("  sync: {type: allreduce}\n")},
    {"train.sync", "average", TRAIN("  sync: {type: average, every: 4}\n")},
    {"train.sync", "diloco", "procs_per_node: 4\n" TRAIN("  sync: {type: diloco}\n")},
    {"train.sync", "auto", TRAIN("  sync: {type: auto}\n")},
};

/* Defaults that no table has. `same`: a file with this value means the same as one without the key. */
static const struct {
    const char *path, *text;
    bool same;
} told[] = {
    {"name", "the name of the file, or of the program", false},
    {"nodes", "1", true},
    {"procs_per_node", "1", true},
    {"gpus_per_proc", "1", true},
    {"only_nodes", "all nodes", false},
    {"time_limit", "no limit", false},
    {"idle", "nothing happens while GPUs are idle", false},
    {"idle.after", "30m", false},
    {"env", "no variables", false},
    {"workdir", "the directory in which you submit", false},
    {"command", "required, or `train`", false},
    {"preload", "no modules", false},
    {"capture", "auto", true},
    {"capture.pattern", "required, or `tensorboard`", false},
    {"capture.tensorboard", "required, or `pattern`", false},
    {"role", "default", false},
    {"run_id", "ddp- and the job's number", false},
    {"tell", "no messages", false},
    {"train", "required, or `command`", false},
    {"train.init_from", "random parameters", false},
    {"train.optimizer", "{type: sgd}", true},
    {"train.optimizer.betas", "[0.9, 0.999]", true},
    {"train.optimizer.adamw.betas", "[0.9, 0.999]", true},
    {"train.batch", "required, or `global_batch`", false},
    {"train.global_batch", "required, or `batch`", false},
    {"train.epochs", "required, or `steps`", false},
    {"train.steps", "required, or `epochs`", false},
    {"train.threads", "the rank's share of the cores; 1 with `reproducible: world`", false},
    {"train.shards", "4", false}, /* only with reproducible: world */
    {"train.sync", "{type: allreduce}", true},
    {"train.snapshot", "no snapshots", false},
    {"train.snapshot.every", "1 epoch", false}, /* only with dir */
    {"train.eval", "each epoch, all batches", false},
    {"train.eval.every", "1 epoch", true},
    {"train.eval.batches", "all", true},
    {"train.measure", "nothing is measured: the job trains", false},
    {"train.schedule", "{type: constant}", true},
    {"train.model.activation", "gelu_tanh", true}, /* of a gpt: the others have theirs in the table */
    {"train.model.vocab", "the number of symbols of the text; required for tokens", false},
    {"train.data.in", "that of the model", false},
    {"train.data.out", "that of the model", false},
    {"train.data.val_path", "`path` is split", false},
    {"train.sync.every", "50", true}, /* of diloco: average requires it */
    {"train.sync.outer_momentum", "0.8, or 0.6 in fewer than 40 rounds", false}, /* job_sync.c chooses */
    {"train.sync.outer_schedule", "trapezoid, or constant in fewer than 40 rounds", false},
    {"train.sync.quorum", "all ranks", false},
    {"train.sync.grace", "auto", false}, /* only with quorum */
    {"train.optimizer.adamw", "the defaults of its keys", false},
    {"train.model.type", "required", false},
    {"train.data.type", "required", false},
    {"train.optimizer.type", "sgd", false},
    {"train.sync.type", "allreduce", false},
};
static bool told_used[ARRAY_LEN(told)];

static const struct sample *sample; /* the one that is parsed */
static bool printing;               /* else the parse is a probe */
static struct buf lines;            /* of the last map with the sample's name */
static int failures;

static void report(const char *path, const char *what)
{
    fprintf(stderr, "job_keys: %s: %s\n", path, what);
    failures++;
}

/* ---- values */

/* What the parser says of `key: value` in the sample's map: "" if it accepts the value. */
static void probe(const char *path, const char *value, struct err *e)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    const bool was = printing;
    struct conf_doc *doc;

    printing = false;
    *e = (struct err){0};
    if (conf_open(&doc, sample->text, strlen(sample->text), "job.yaml", e) == ERR_OK) {
        if (conf_set_as(doc, path, value, "probe", e) == ERR_OK && job_read(&spec, doc, e) == ERR_OK)
            e->msg[0] = '\0';
        conf_close(doc);
    }
    printing = was;
}

/* Finds "EXPECTED" in "invalid value for 'KEY': expected EXPECTED, got VALUE". */
static bool expected_in(const struct err *e, const char *key, struct buf *out)
{
    CLEANUP(free_text) char *start = xasprintf("invalid value for '%s': expected ", key);
    const char *at = strstr(e->msg, start), *end;

    if (!at)
        return false;
    at += strlen(start);
    end = strstr(at, ", got ");
    out->len = 0;
    buf_append(out, at, end ? (size_t)(end - at) : strlen(at));
    return true;
}

/* What a key accepts that a function reads: from the message that refuses a map, else a list, and the range of its numbers. */
static void print_accepted(const char *path, const char *key, struct buf *out)
{
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(buf_release) struct buf range = {0};
    struct err e;

    probe(path, "{zzzz: 1}", &e);
    if (!expected_in(&e, key, &text)) {
        probe(path, "[[zzzz]]", &e);
        if (!expected_in(&e, key, &text)) {
            report(path, e.msg);
            return;
        }
    }
    buf_puts(out, text.data);
    probe(path, "0", &e);
    if (expected_in(&e, key, &range) && strstr(range.data, "number") && strcmp(range.data, text.data) != 0)
        buf_printf(out, "; %s", range.data);
    probe(path, "3", &e);
    if (expected_in(&e, key, &range) && strcmp(range.data, text.data) != 0)
        buf_printf(out, "; %s", range.data);
}

static void print_range(const struct conf_field *f, const char *what, struct buf *out)
{
    const bool none = f->min == 0 && f->max == 0 && !f->above;

    buf_puts(out, what);
    if (none)
        return;
    if (isinf(f->max))
        buf_printf(out, ", %s %.15g", f->above ? "above" : "at least", f->min);
    else if (f->above || f->below)
        buf_printf(out, ", %s %.15g and %s %.15g", f->above ? "above" : "at least", f->min,
                   f->below ? "below" : "at most", f->max);
    else
        buf_printf(out, " from %.15g to %.15g", f->min, f->max);
}

static void print_values(const struct conf_field *f, const char *path, struct buf *out)
{
    switch (f->type) {
    case CONF_TEXT:
        buf_puts(out, "text");
        return;
    case CONF_INT:
        print_range(f, "whole number", out);
        return;
    case CONF_REAL:
        print_range(f, "number", out);
        return;
    case CONF_BOOL:
        buf_puts(out, "true or false");
        return;
    case CONF_ENUM:
        for (size_t i = 0; f->names[i]; i++)
            buf_printf(out, "%s`%s`", i ? ", " : "", f->names[i]);
        return;
    case CONF_DURATION:
        buf_puts(out, "duration");
        if (f->max > 0 && isinf(f->max) && f->min > 0)
            buf_printf(out, ", at least %s", conf_duration_text((int64_t)f->min).text);
        else if (f->max > 0 && !isinf(f->max)) {
            buf_printf(out, " from %s", conf_duration_text((int64_t)f->min).text);
            buf_printf(out, " to %s", conf_duration_text((int64_t)f->max).text);
        }
        return;
    case CONF_STRUCT:
        buf_puts(out, "map");
        return;
    case CONF_PARSED:
        buf_puts(out, f->expected);
        return;
    case CONF_TEXTS:
    case CONF_ENV:
    case CONF_CUSTOM:
        print_accepted(path, f->key, out);
    }
}

/* The types of a map: from "invalid model type: expected linear, mlp or gpt, got 'zzzz'". */
static void print_types(const char *path, struct buf *out)
{
    struct err e;
    const char *list, *end;

    probe(path, "zzzz", &e);
    list = strstr(e.msg, "expected ");
    end = list ? strstr(list, ", got ") : NULL;
    if (end)
        buf_append(out, list + strlen("expected "), (size_t)(end - list) - strlen("expected "));
    else
        report(path, e.msg);
}

/* ---- defaults */

static char *job_text(const char *path, const char *value)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    struct conf_doc *doc;
    struct err e;
    char *text = NULL;

    if (conf_open(&doc, sample->text, strlen(sample->text), "job.yaml", &e) != ERR_OK)
        return NULL;
    if ((!value || conf_set_as(doc, path, value, "told", &e) == ERR_OK) && job_read(&spec, doc, &e) == ERR_OK)
        text = job_print(&spec);
    conf_close(doc);
    return text;
}

static void check_same(const char *path, const char *value)
{
    const bool was = printing;

    printing = false;
    CLEANUP(free_text) char *without = job_text(path, NULL);
    CLEANUP(free_text) char *with = job_text(path, value);
    printing = was;
    if (!without || !with || strcmp(without, with) != 0)
        report(path, "the default in tests/unit/base/job/job_keys.c is not that of the parser");
}

/* Whether a number that no range holds means that there is no value, such as `time_limit` 0. */
static bool in_range(const struct conf_field *f, double value)
{
    return (f->min == 0 && f->max == 0) || (value >= f->min && value <= f->max);
}

static bool print_value(const struct conf_field *f, const char *at, struct buf *out)
{
    switch (f->type) {
    case CONF_INT:
        buf_printf(out, "%lld", (long long)*(const int64_t *)(const void *)at);
        return in_range(f, (double)*(const int64_t *)(const void *)at);
    case CONF_REAL:
        buf_printf(out, "%.15g", *(const double *)(const void *)at);
        return in_range(f, *(const double *)(const void *)at);
    case CONF_DURATION:
        buf_puts(out, conf_duration_text(*(const int64_t *)(const void *)at).text);
        return in_range(f, (double)*(const int64_t *)(const void *)at);
    case CONF_BOOL:
        buf_puts(out, *(const bool *)(const void *)at ? "true" : "false");
        return true;
    case CONF_ENUM:
        buf_puts(out, f->names[*(const int *)(const void *)at]);
        return true;
    case CONF_PARSED: /* the only one is a share */
        buf_printf(out, "%.15g", *(const double *)(const void *)at);
        return true;
    case CONF_TEXT:
    case CONF_TEXTS:
    case CONF_ENV:
    case CONF_STRUCT:
    case CONF_CUSTOM:
        break;
    }
    return false;
}

static bool has_table(enum conf_type type)
{
    return type != CONF_CUSTOM && type != CONF_TEXTS && type != CONF_ENV && type != CONF_STRUCT &&
           type != CONF_TEXT;
}

static void print_default(const struct conf_field *f, const char *path, const char *at, struct buf *out)
{
    CLEANUP(buf_release) struct buf value = {0};
    /* The activation of a linear model or an mlp is in its table; that of a gpt is not. */
    const bool known = has_table(f->type) && at && print_value(f, at, &value);
    bool plain = false;

    if (f->required) {
        buf_puts(out, "required");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(told); i++) {
        if (strcmp(told[i].path, path) != 0 || (!strcmp(path, "train.model.activation") && known))
            continue;
        told_used[i] = true;
        plain = true;
        buf_puts(out, told[i].text);
        if (told[i].same)
            check_same(path, told[i].text);
    }
    if (!plain && known)
        buf_puts(out, value.data);
    else if (!plain)
        report(path, "has no default: add it to tests/unit/base/job/job_keys.c");
}

/* Whether the parser refuses the key in this kind of job, whatever its value: "'store' applies to commands only". */
static bool is_of_other_jobs(const struct conf_field *f, const char *path, const char *at)
{
    CLEANUP(buf_release) struct buf value = {0};
    const char *tried[] = {"[torch]", "auto", NULL};
    struct err e;

    if (has_table(f->type) && at && print_value(f, at, &value))
        tried[2] = value.data;
    for (size_t i = 0; i < ARRAY_LEN(tried); i++) {
        if (!tried[i])
            continue;
        probe(path, tried[i], &e);
        if (strstr(e.msg, " applies to commands only") || strstr(e.msg, " applies to train jobs only"))
            return true;
    }
    return false;
}

/* ---- maps */

static void print_map(const char *path, const struct conf_field *fields, const char *base)
{
    for (const struct conf_field *f = fields; f->key; f++) {
        CLEANUP(free_text) char *full = xasprintf("%s%s%s", path, *path ? "." : "", f->key);
        const char *at = base ? base + f->offset : NULL;

        if (is_of_other_jobs(f, full, at))
            continue;
        buf_printf(&lines, "%s\t%s\t", full, sample->type);
        if (f->fn == job_ignore)
            print_types(full, &lines);
        else
            print_values(f, full, &lines);
        buf_puts(&lines, "\t");
        print_default(f, full, at, &lines);
        buf_printf(&lines, "\t%s\n", f->since ? f->since : FIRST_RELEASE);
        if (f->type == CONF_STRUCT)
            print_map(full, f->fields, at);
    }
}

enum err_code __real_conf_read(const struct conf_doc *doc, const struct conf_field *fields, void *base,
                               struct err *e);
enum err_code __wrap_conf_read(const struct conf_doc *doc, const struct conf_field *fields, void *base,
                               struct err *e);
enum err_code __real_conf_read_map(const struct conf_node *map, const struct conf_field *fields, void *base,
                                   struct err *e);
enum err_code __wrap_conf_read_map(const struct conf_node *map, const struct conf_field *fields, void *base,
                                   struct err *e);

static void see_map(const char *name, const struct conf_field *fields, const char *base)
{
    const char *dot = strrchr(sample->path, '.');

    if (!printing || strcmp(name, dot ? dot + 1 : sample->path) != 0)
        return;
    lines.len = 0;
    print_map(sample->path, fields, base);
}

enum err_code __wrap_conf_read(const struct conf_doc *doc, const struct conf_field *fields, void *base,
                               struct err *e)
{
    const enum err_code code = __real_conf_read(doc, fields, base, e);

    see_map("", fields, base);
    return code;
}

enum err_code __wrap_conf_read_map(const struct conf_node *map, const struct conf_field *fields, void *base,
                                   struct err *e)
{
    const enum err_code code = __real_conf_read_map(map, fields, base, e);

    see_map(conf_key(map), fields, base);
    return code;
}

int main(void)
{
    for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
        CLEANUP(job_release) struct job_spec spec = {0};
        struct err e;

        sample = &samples[i];
        printing = true;
        lines.len = 0;
        if (job_parse(&spec, sample->text, strlen(sample->text), "job.yaml", &e) != ERR_OK)
            report(sample->path, e.msg);
        if (!lines.len)
            report(sample->path, "the map was not read");
        fputs(lines.data ? lines.data : "", stdout);
    }
    for (size_t i = 0; i < ARRAY_LEN(told); i++)
        if (!told_used[i])
            report(told[i].path,
                   "the job file has no such key: remove it from tests/unit/base/job/job_keys.c");
    buf_release(&lines);
    return failures > 0;
}
