#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf/conf.h"
#include "base/job/job_capture.h"
#include "base/job/job_names.h"
#include "base/job/job_print.h"
#include "base/job/job_sync.h"
#include "base/job/tell.h"
#include "base/json.h"
#include "base/mem.h"

/* Prints a job as YAML text, without the fields that have their defaults. job_parse reads the same job from it. */

/* Returns the bytes of a code point at s that JSON takes as it is but YAML folds or refuses, or 0: C1 controls
 * with U+0085, the line and paragraph separators, the byte order mark and the two non-characters beside it. */
static size_t yaml_special(const unsigned char *s, unsigned *code)
{
    if (s[0] == 0xc2 && s[1] < 0xa0) {
        *code = s[1];
        return 2;
    }
    if ((s[0] == 0xe2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9)) ||
        (s[0] == 0xef && s[1] == 0xbb && s[2] == 0xbf) || (s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe)) {
        *code = (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u);
        return 3;
    }
    return 0;
}

void job_quote(struct buf *out, const char *text)
{
    CLEANUP(buf_release) struct buf json = {0};
    struct jout o = {.buf = &json};

    jout_text(&o, NULL,
              text); /* Except for these code points, a JSON string is a double-quoted YAML string. */
    for (const unsigned char *s = (const unsigned char *)json.data; *s;) {
        unsigned code;
        size_t n = yaml_special(s, &code);

        if (n)
            buf_printf(out, "\\u%04x", code);
        else
            buf_putc(out, (char)*s);
        s += n ? n : 1;
    }
}

static void job_put_text(struct buf *out, const char *key, const char *text)
{
    if (!text)
        return;
    buf_printf(out, "%s: ", key);
    job_quote(out, text);
    buf_putc(out, '\n');
}

static void put_int(struct buf *out, const char *key, int64_t value, int64_t standard)
{
    if (value != standard)
        buf_printf(out, "%s: %lld\n", key, (long long)value);
}

static void put_ms(struct buf *out, const char *key, int64_t ms, int64_t standard)
{
    if (ms != standard)
        buf_printf(out, "%s: %s\n", key, conf_duration_text(ms).text);
}

static void put_shape(struct buf *out, const struct job_spec *spec)
{
    static const char *const procs[] = {NULL, "gpu", "cpu", "auto"};

    if (spec->nodes_min != spec->nodes_max)
        buf_printf(out, "nodes: \"%lld:%lld\"\n", (long long)spec->nodes_min, (long long)spec->nodes_max);
    else
        put_int(out, "nodes", spec->nodes_min, 1);
    if (spec->procs == JOB_PROCS_NUMBER)
        put_int(out, "procs_per_node", spec->procs_per_node, 1);
    else
        buf_printf(out, "procs_per_node: %s\n", procs[spec->procs]);
    if (spec->gpus_per_proc == JOB_GPUS_ALL)
        buf_puts(out, "gpus_per_proc: all\n");
    else
        put_int(out, "gpus_per_proc", spec->gpus_per_proc, 1);
    if (spec->device != JOB_DEVICE_AUTO)
        buf_printf(out, "device: %s\n", job_device_names[spec->device]);
}

static void put_texts(struct buf *out, const char *key, char *const *texts)
{
    if (!strv_len(texts))
        return;
    buf_printf(out, "%s:\n", key);
    for (; *texts; texts++) {
        buf_puts(out, "  - ");
        job_quote(out, *texts);
        buf_putc(out, '\n');
    }
}

static void put_lists(struct buf *out, const struct job_spec *spec)
{
    size_t names = strv_len(spec->env);

    if (names)
        buf_puts(out, "env:\n");
    for (size_t i = 0; i < names; i++) {
        const char *equals = strchr(spec->env[i], '=');

        buf_printf(out, "  %.*s: ", (int)(equals - spec->env[i]), spec->env[i]);
        job_quote(out, equals + 1);
        buf_putc(out, '\n');
    }
    put_texts(out, "only_nodes", spec->only_nodes);
    put_texts(out, "preload", spec->preload);
    put_texts(out, "command", spec->command);
}

char *job_print(const struct job_spec *spec)
{
    CLEANUP(buf_release) struct buf out = {0};
    struct job_spec standard;

    job_defaults(&standard, spec->kind);
    job_put_text(&out, "name", spec->name);
    put_shape(&out, spec);
    put_int(&out, "max_restarts", spec->max_restarts, standard.max_restarts);
    if (spec->restart_on != RESTART_ON_FAULT)
        buf_printf(&out, "restart_on: %s\n", job_restart_names[spec->restart_on]);
    put_int(&out, "max_replacements", spec->max_replacements, standard.max_replacements);
    put_int(&out, "priority", spec->priority, standard.priority);
    if (spec->hold)
        buf_puts(&out, "hold: true\n");
    put_ms(&out, "time_limit", spec->time_limit_ms, standard.time_limit_ms);
    put_ms(&out, "lease", spec->lease_ms, standard.lease_ms);
    put_ms(&out, "join_timeout", spec->join_timeout_ms, standard.join_timeout_ms);
    put_ms(&out, "grace", spec->grace_ms, standard.grace_ms);
    put_ms(&out, "stall_timeout", spec->stall_timeout_ms, standard.stall_timeout_ms);
    if (spec->idle.after_ms)
        buf_printf(&out, "idle: {gpu: %.17g, after: %s, then: %s}\n", spec->idle.gpu,
                   conf_duration_text(spec->idle.after_ms).text, job_idle_names[spec->idle.then]);
    if (spec->on_lost_snapshots != LOST_WAIT)
        buf_printf(&out, "on_lost_snapshots: %s\n", job_lost_names[spec->on_lost_snapshots]);
    job_put_text(&out, "workdir", spec->workdir);
    job_put_text(&out, "role", spec->role);
    job_put_text(&out, "run_id", spec->run_id);
    if (spec->logs == JOB_LOGS_PRIVATE)
        buf_puts(&out, "logs: private\n");
    job_capture_print(&out, &spec->capture);
    if (spec->store != JOB_STORE_PROGRAM)
        buf_printf(&out, "store: %s\n", job_store_names[spec->store]);
    job_put_text(&out, "tell", spec->tell);
    if (spec->tell_as)
        buf_printf(&out, "tell_as: %s\n", tell_shape_names[spec->tell_as]);
    if (spec->virtual_local_rank)
        buf_puts(&out, "virtual_local_rank: true\n");
    put_lists(&out, spec);
    if (spec->kind == JOB_TRAIN)
        job_train_print(&out, &spec->train);
    return buf_steal(&out);
}

static void print_every(struct buf *out, const struct job_every *every)
{
    if (every->count == 0) {
        buf_puts(out, "never");
        return;
    }
    switch (every->unit) {
    case EVERY_EPOCHS:
        buf_printf(out, "\"%lld epochs\"", (long long)every->count);
        break;
    case EVERY_MS:
        buf_printf(out, "%s", conf_duration_text(every->count).text);
        break;
    default:
        buf_printf(out, "%lld", (long long)every->count);
    }
}

static const char *yaml_bool(bool value)
{
    return value ? "true" : "false";
}

static void print_gpt(struct buf *out, const struct train_spec *t)
{
    buf_printf(out, "  model: {type: gpt, layers: %lld, heads: %lld, width: %lld, context: %lld, ",
               (long long)t->model.layers, (long long)t->model.heads, (long long)t->model.width,
               (long long)t->model.context);
    if (t->model.vocab)
        buf_printf(out, "vocab: %lld, ", (long long)t->model.vocab);
    buf_printf(out, "dropout: %.17g, activation: %s, tied: %s}\n", t->model.dropout,
               job_activation_names[t->model.activation], yaml_bool(t->model.tied));
}

static void print_model(struct buf *out, const struct train_spec *t)
{
    if (t->model.type == MODEL_GPT) {
        print_gpt(out, t);
        return;
    }
    if (t->model.type == MODEL_LINEAR) {
        buf_printf(out, "  model: {type: linear, in: %lld, out: %lld}\n", (long long)t->model.in,
                   (long long)t->model.out);
        return;
    }
    buf_puts(out, "  model: {type: mlp, sizes: [");
    for (size_t i = 0; i < t->model.size_count; i++)
        buf_printf(out, "%s%lld", i ? ", " : "", (long long)t->model.sizes[i]);
    buf_printf(out, "], activation: %s}\n", job_activation_names[t->model.activation]);
}

static void print_path(struct buf *out, const char *key, const char *path)
{
    buf_printf(out, "    %s: ", key);
    job_quote(out, path);
    buf_putc(out, '\n');
}

static void print_symbols(struct buf *out, const struct train_spec *t)
{
    bool text = t->data.type == DATA_TEXT;

    buf_printf(out, "    type: %s\n", text ? "text" : "tokens");
    print_path(out, "path", t->data.path);
    if (t->data.val_path)
        print_path(out, "val_path", t->data.val_path);
    else
        buf_printf(out, "    split: %.17g\n", t->data.split);
    if (text)
        buf_printf(out, "    symbols: %s\n", job_symbol_names[t->data.symbols]);
}

static void print_data(struct buf *out, const struct train_spec *t)
{
    buf_puts(out, "  data:\n");
    switch (t->data.type) {
    case DATA_IDX:
        buf_puts(out, "    type: idx\n");
        print_path(out, "dir", t->data.dir);
        break;
    case DATA_TEXT:
    case DATA_TOKENS:
        print_symbols(out, t);
        break;
    case DATA_SYNTHETIC:
        buf_printf(out, "    type: synthetic\n    samples: %lld\n", (long long)t->data.samples);
    }
    buf_printf(out, "    pad: %s\n    shuffle: %s\n", yaml_bool(t->data.pad), yaml_bool(t->data.shuffle));
}

static void print_adamw(struct buf *out, const struct train_spec *t)
{
    buf_printf(out, "betas: [%.17g, %.17g], eps: %.17g}", t->optimizer.betas[0], t->optimizer.betas[1],
               t->optimizer.eps);
}

static void print_optimizer(struct buf *out, const struct train_spec *t)
{
    static const char *const names[] = {
        [OPTIMIZER_SGD] = "sgd", [OPTIMIZER_ADAMW] = "adamw", [OPTIMIZER_MUON] = "muon"};

    buf_printf(out, "  optimizer: {type: %s, lr: %.17g, weight_decay: %.17g, clip: %.17g, ",
               names[t->optimizer.type], t->optimizer.lr, t->optimizer.weight_decay, t->optimizer.clip);
    switch (t->optimizer.type) {
    case OPTIMIZER_SGD:
        buf_printf(out, "momentum: %.17g, nesterov: %s}", t->optimizer.momentum,
                   yaml_bool(t->optimizer.nesterov));
        break;
    case OPTIMIZER_ADAMW:
        print_adamw(out, t);
        break;
    case OPTIMIZER_MUON:
        buf_printf(out, "momentum: %.17g, adamw: {lr: %.17g, ", t->optimizer.momentum, t->optimizer.adamw_lr);
        print_adamw(out, t);
        buf_putc(out, '}');
    }
    buf_putc(out, '\n');
    buf_printf(out, "  schedule: {type: %s, warmup: %lld, min_lr: %.17g}\n",
               job_schedule_names[t->schedule.type], (long long)t->schedule.warmup, t->schedule.min_lr);
}

static void print_snapshot(struct buf *out, const struct train_spec *t)
{
    if (!t->snapshot.dir)
        return;
    buf_puts(out, "  snapshot:\n    dir: ");
    job_quote(out, t->snapshot.dir);
    buf_puts(out, "\n    every: ");
    print_every(out, &t->snapshot.every);
    buf_printf(out, "\n    keep: %lld\n", (long long)t->snapshot.keep);
    if (t->snapshot.keep_best)
        buf_printf(out, "    keep_best: %lld\n", (long long)t->snapshot.keep_best);
    if (t->snapshot.moments != MOMENTS_AUTO)
        buf_printf(out, "    moments: %s\n", job_moments_names[t->snapshot.moments]);
}

static void print_arithmetic(struct buf *out, const struct train_spec *t)
{
    if (t->precision != PRECISION_FP32)
        buf_printf(out, "  precision: %s\n", job_precision_names[t->precision]);
    if (t->recompute != RECOMPUTE_NONE)
        buf_printf(out, "  recompute: %s\n", job_recompute_names[t->recompute]);
    if (t->reproducible == REPRODUCIBLE_WORLD)
        buf_printf(out, "  reproducible: world\n  shards: %lld\n", (long long)t->shards);
    if (t->reproducible == REPRODUCIBLE_NONE)
        buf_puts(out, "  reproducible: none\n");
    if (t->shard != SHARD_NONE)
        buf_printf(out, "  shard: %s\n", job_shard_names[t->shard]);
    if (t->balance != BALANCE_EQUAL)
        buf_printf(out, "  balance: %s\n", job_balance_names[t->balance]);
    if (t->isa != ISA_AUTO)
        buf_printf(out, "  isa: %s\n", isa_names[t->isa]);
    if (t->threads)
        buf_printf(out, "  threads: %lld\n", (long long)t->threads);
    if (!t->pin)
        buf_puts(out, "  pin: false\n");
    if (t->init_from) {
        buf_puts(out, "  init_from: ");
        job_quote(out, t->init_from);
        buf_putc(out, '\n');
    }
}

void job_train_print(struct buf *out, const struct train_spec *t)
{
    buf_puts(out, "train:\n");
    print_model(out, t);
    print_data(out, t);
    print_optimizer(out, t);
    buf_printf(out, "  %s: %lld\n", t->batch ? "batch" : "global_batch",
               (long long)(t->batch ? t->batch : t->global_batch));
    buf_printf(out, "  %s: %lld\n", t->epochs ? "epochs" : "steps",
               (long long)(t->epochs ? t->epochs : t->steps));
    buf_printf(out, "  loss: %s\n  accumulate: %lld\n  seed: %lld\n", job_loss_names[t->loss],
               (long long)t->accumulate, (long long)t->seed);
    job_sync_print(out, t);
    print_arithmetic(out, t);
    print_snapshot(out, t);
    buf_printf(out, "  resume: %s\n  eval:\n    every: ", job_resume_names[t->resume]);
    print_every(out, &t->eval.every);
    if (t->eval.batches)
        buf_printf(out, "\n    batches: %lld", (long long)t->eval.batches);
    buf_printf(out, "\n  log_every: %lld\n  tutorial_lines: %s\n", (long long)t->log_every,
               t->tutorial_lines ? "true" : "false");
    if (t->measure_ms)
        buf_printf(out, "  measure: %lldms\n", (long long)t->measure_ms);
}
