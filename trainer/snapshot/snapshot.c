#include "trainer/snapshot/snapshot.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "trainer/snapshot/examine.h"
#include "trainer/snapshot/parts.h"
#include "trainer/snapshot/run.h"
#include "trainer/snapshot/safetensors.h"
#include "trainer/snapshot/tensors.h"

/* The metadata keys of the numbers of a place (safetensors has texts only). The numbers that name the run are
 * in run.json, so that equal runs write equal files. */
static const struct {
    const char *key;
    size_t offset;
} place_keys[] = {
    {"ddp.step", offsetof(struct snapshot_place, step)},
    {"ddp.epoch", offsetof(struct snapshot_place, epoch)},
    {"ddp.position", offsetof(struct snapshot_place, position)},
    {"ddp.seed", offsetof(struct snapshot_place, seed)},
    {"ddp.updates", offsetof(struct snapshot_place, updates)},
    {"ddp.samples", offsetof(struct snapshot_place, samples)},
    {"ddp.world_size", offsetof(struct snapshot_place, world_size)},
    {"ddp.round_steps", offsetof(struct snapshot_place, round_steps)},
    {"ddp.round_samples", offsetof(struct snapshot_place, round_samples)},
    {"ddp.parts", offsetof(struct snapshot_place, parts)},
};

static int64_t *place_at(struct snapshot_place *p, size_t i)
{
    return (int64_t *)(void *)((char *)p + place_keys[i].offset);
}

size_t snapshot_floats(const struct snapshot_layout *l)
{
    return l->places ? l->floats : l->count * (1 + l->moment_count);
}

void snapshot_files_release(struct snapshot_files *f)
{
    free(f->path);
    free(f->sums);
    *f = (struct snapshot_files){0};
}

/* ---- writing */

static void metadata_number(struct jout *o, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    jout_text(o, key, text);
}

static void print_deal(struct jout *o, const struct snapshot_place *place)
{
    CLEANUP(buf_release) struct buf text = {0};
    buf_printf(&text, "%lld %lld %lld", (long long)place->step_samples, (long long)place->dealt_epoch,
               (long long)place->dealt_position);
    for (int64_t i = 0; i < place->piece_count; i++)
        buf_printf(&text, " %lld:%lld+%lld", (long long)place->pieces[i].epoch,
                   (long long)place->pieces[i].position, (long long)place->pieces[i].count);
    jout_text(o, "ddp.dealt", text.data);
}

static void print_portions(struct jout *o, const struct snapshot_place *place)
{
    CLEANUP(buf_release) struct buf text = {0};
    for (int64_t i = 0; i < place->portion_count; i++)
        buf_printf(&text, "%s%lld", i ? " " : "", (long long)place->portions[i]);
    if (place->portion_count)
        jout_text(o, "ddp.portions", text.data);
}

/* Prints the values that only some runs have, and that older snapshots lack. */
static void print_judgement(struct jout *o, const struct snapshot_place *place)
{
    char text[64];
    snprintf(text, sizeof(text), "%.17g", place->val_loss);
    if (place->judged)
        jout_text(o, "ddp.val_loss", text);
    snprintf(text, sizeof(text), "%lld %.17g", (long long)place->best_step, place->best_loss);
    if (place->best_step)
        jout_text(o, "ddp.best", text);
    snprintf(text, sizeof(text), "%lld %016llx", (long long)place->data_bytes,
             (unsigned long long)place->data_digest);
    if (place->data_bytes)
        jout_text(o, "ddp.data", text);
    snprintf(text, sizeof(text), "%lld %d", (long long)place->epoch_samples, place->shuffled);
    if (place->epoch_samples)
        jout_text(o, "ddp.order", text);
    if (place->own_params)
        jout_text(o, "ddp.own_params", "1");
    if (place->divided)
        jout_text(o, "ddp.divided", "1");
    snprintf(text, sizeof(text), "%lld %lld", (long long)place->turn, (long long)place->turn_steps);
    if (place->turn)
        jout_text(o, "ddp.turn", text);
    if (place->fragments)
        metadata_number(o, "ddp.fragments", place->fragments);
    if (place->dealt)
        print_deal(o, place);
    print_portions(o, place);
}

static void print_behind(struct jout *o, const struct snapshot_behind *b)
{
    char text[96];
    snprintf(text, sizeof(text), "%lld %lld %lld %lld", (long long)b->steps, (long long)b->epoch,
             (long long)b->position, (long long)b->samples);
    if (b->steps)
        jout_text(o, "ddp.behind", text);
}

static void print_metadata(struct buf *out, const struct snapshot_place *place, int64_t part_samples)
{
    struct jout o = {.buf = out};
    struct snapshot_place copy = *place;
    jout_open(&o, NULL, '{');
    jout_text(&o, "format", "pt"); /* readers of PyTorch weights need this key */
    for (size_t i = 0; i < ARRAY_LEN(place_keys); i++)
        metadata_number(&o, place_keys[i].key, *place_at(&copy, i));
    print_judgement(&o, place);
    if (part_samples >= 0) {
        metadata_number(&o, "ddp.part_samples", part_samples);
        print_behind(&o, &place->behind);
    }
    jout_close(&o, '}');
}

/* Returns where a tensor begins in a state; moment < 0: the parameter itself. */
size_t snapshot_tensor_place(const struct snapshot_layout *l, size_t tensor, int moment)
{
    if (l->places && moment >= 0)
        return l->places[(size_t)moment * l->tensor_count + tensor];
    return l->count * (size_t)(moment + 1) + l->tensors[tensor].offset;
}

/* Describes a tensor, or one of its moments. moment < 0: the parameter itself. */
static void tensor_describe(struct safetensor *out, const struct snapshot_layout *l, size_t tensor,
                            int moment, const float *state)
{
    const struct snapshot_tensor *t = &l->tensors[tensor];
    if (moment < 0)
        snprintf(out->name, sizeof(out->name), "%s", t->name);
    else
        snprintf(out->name, sizeof(out->name), "%s.%s", t->name, l->moments[moment]);
    out->dims = t->dims;
    memcpy(out->shape, t->shape, (size_t)t->dims * sizeof(*t->shape));
    out->data = state + snapshot_tensor_place(l, tensor, moment);
}

bool snapshot_chosen(const struct snapshot_layout *l, int moment, enum snapshot_choice choice)
{
    if (moment < 0)
        return choice & SNAPSHOT_PARAMS;
    if (l->unused && l->unused[moment])
        return false;
    return choice & (!l->own || l->own[moment] ? SNAPSHOT_OWN : SNAPSHOT_SHARED);
}

static bool moment_is_optional(const struct snapshot_layout *l, int moment)
{
    for (size_t i = 0; moment >= 0 && l->optional && l->optional[i]; i++)
        if (!strcmp(l->moments[moment], l->optional[i]))
            return true;
    return false;
}

static size_t count_chosen(const struct snapshot_layout *l, enum snapshot_choice choice, bool optional)
{
    size_t count = 0;
    for (int moment = -1; moment < (int)l->moment_count; moment++) {
        if (!snapshot_chosen(l, moment, choice) || (!optional && moment_is_optional(l, moment)))
            continue;
        for (size_t i = 0; i < l->tensor_count; i++)
            count += snapshot_tensor_place(l, i, moment) != SNAPSHOT_NONE;
    }
    return count;
}

enum err_code snapshot_write_described(const char *path, const struct safetensor *tensors, size_t count,
                                       const struct snapshot_place *place, int64_t part_samples,
                                       const struct safetensors_check *check, struct err *e)
{
    CLEANUP(buf_release) struct buf metadata = {0};
    print_metadata(&metadata, place, part_samples);
    if (fault_hit("snapshot.file"))
        return err_set(e, ERR_INTERNAL, "%s: fault before it was written", path);
    return safetensors_write(path, tensors, count, metadata.data, check, e);
}

enum err_code snapshot_write_tensors(const char *path, const struct snapshot_layout *l,
                                     const struct snapshot_place *place, int64_t part_samples,
                                     enum snapshot_choice choice, const float *state, struct err *e)
{
    size_t count = 0;
    struct safetensor *tensors = xcalloc(count_chosen(l, choice, true) + 1, sizeof(*tensors));
    for (int moment = -1; moment < (int)l->moment_count; moment++)
        for (size_t i = 0; i < l->tensor_count && snapshot_chosen(l, moment, choice); i++)
            if (snapshot_tensor_place(l, i, moment) != SNAPSHOT_NONE)
                tensor_describe(&tensors[count++], l, i, moment, state);
    enum err_code code = snapshot_write_described(path, tensors, count, place, part_samples, l->check, e);
    free(tensors);
    return code;
}

static enum err_code write_file(const char *tmp, const char *name, const struct snapshot_layout *l,
                                const struct snapshot_place *place, enum snapshot_choice choice,
                                const float *state, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", tmp, name);
    return snapshot_write_tensors(path, l, place, -1, choice, state, e);
}

static enum err_code write_extra(const char *tmp, const struct snapshot_extra *extra, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", tmp, extra->name);
    return file_write_atomic(path, extra->text, extra->length, 0644, e);
}

static enum err_code write_parts(const char *tmp, const struct snapshot_place *place,
                                 const struct snapshot_part *parts, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    snapshot_parts_print(&text, parts, (size_t)place->parts);
    struct snapshot_extra extra = {SNAPSHOT_PARTS_FILE, text.data, text.len};
    return write_extra(tmp, &extra, e);
}

static enum err_code write_run(const char *tmp, const struct snapshot_place *place, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    snapshot_run_print(&text, place);
    struct snapshot_extra extra = {SNAPSHOT_RUN_FILE, text.data, text.len};
    return write_extra(tmp, &extra, e);
}

static enum err_code write_all(const char *tmp, const struct snapshot_layout *l,
                               const struct snapshot_place *place, const float *state, const float *model,
                               const struct snapshot_part *parts, struct err *e)
{
    for (size_t i = 0; i < l->extra_count; i++)
        if (write_extra(tmp, &l->extras[i], e))
            return e->code;
    if (write_run(tmp, place, e))
        return e->code;
    if (write_file(tmp, "model.safetensors", l, place, SNAPSHOT_PARAMS, parts ? model : state, e))
        return e->code;
    if (!parts && count_chosen(l, SNAPSHOT_OWN | SNAPSHOT_SHARED, true) > 0 &&
        write_file(tmp, "optimizer.safetensors", l, place, SNAPSHOT_OWN | SNAPSHOT_SHARED, state, e))
        return e->code;
    if (parts && count_chosen(l, SNAPSHOT_SHARED, true) > 0 &&
        write_file(tmp, "shared.safetensors", l, place, SNAPSHOT_SHARED, state, e))
        return e->code;
    if (parts && write_parts(tmp, place, parts, e))
        return e->code;
    return file_sync_dir(tmp, e);
}

static bool snapshot_lacks(const char *path, const char *name)
{
    CLEANUP(free_text) char *file = xasprintf("%s/%s", path, name);
    return file_presence(file) == FILE_MISSING;
}

/* Job numbers begin at 1 in each cluster, and generations at 1 in each job, so names of snapshots recur. */
enum err_code snapshot_check_name(const char *dir, const struct snapshot_place *own, struct err *e)
{
    CLEANUP(free_text)
    char *path = xasprintf("%s/step-%lld-g%lld", dir, (long long)own->step, (long long)own->generation);
    struct snapshot_place place = {0};
    struct err why = {0};
    if (file_presence(path) == FILE_MISSING)
        return ERR_OK;
    if (snapshot_run_read(path, &place, &why) && snapshot_read_place(path, &place, &why)) {
        /* What a removal has left. A model without run.json may be another run's snapshot that was not copied completely, and a
         * file that cannot be read now may say so later. */
        if (why.code == ERR_NOT_FOUND && snapshot_lacks(path, SNAPSHOT_RUN_FILE) &&
            snapshot_lacks(path, "model.safetensors"))
            return ERR_OK;
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s is not replaced, since it may be another run's (%.300s): move it to another directory", path,
            why.msg);
    }
    if (place.job != own->job || strcmp(place.cluster, own->cluster))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s is a snapshot of another run (job %lld of cluster '%s'): move it to another directory", path,
            (long long)place.job, place.cluster);
    return ERR_OK;
}

static enum err_code snapshot_publish(const char *dir, const char *tmp, const char *path,
                                      const struct snapshot_place *place, struct err *e)
{
    if (fault_hit("snapshot.rename"))
        return err_set(e, ERR_INTERNAL, "fault before the rename");
    /* A snapshot of the same generation and step exists if an earlier run had no coordinator, because such
     * runs number generations from 1 each time. */
    if (snapshot_remove(dir, path, place, e))
        return e->code;
    if (rename(tmp, path) < 0)
        return err_sys(e, errno, "cannot rename %s to %s", tmp, path);
    return file_sync_dir(dir, e);
}

/* Refuses values that are not finite. The loss of the next step will end such a run. Until then its snapshot
 * must not replace a good one, because a run resumes from the newest snapshot. */
enum err_code snapshot_check_finite(const struct snapshot_place *place, const float *state, size_t floats,
                                    struct err *e)
{
    const uint32_t exponent = 0x7f800000;
    bool bad = false;
    for (size_t i = 0; i < floats; i++) {
        uint32_t bits;
        memcpy(&bits, &state[i], sizeof(bits));
        bad |= (bits & exponent) == exponent;
    }
    if (bad)
        return err_set(e, ERR_OUT_OF_RANGE,
                       "parameters or moments are nan or inf after step %lld and are not kept: lower the "
                       "learning rate or set clip",
                       (long long)place->step);
    return ERR_OK;
}

enum err_code snapshot_write(const char *dir, const struct snapshot_layout *l,
                             const struct snapshot_place *place, const float *state, const float *model,
                             const struct snapshot_part *parts, struct snapshot_files *out, struct err *e)
{
    CLEANUP(snapshot_files_release) struct snapshot_files f = {0};
    CLEANUP(free_text)
    char *tmp = xasprintf("%s/.tmp-step-%lld-g%lld-j%lld", dir, (long long)place->step,
                          (long long)place->generation, (long long)place->job);
    CLEANUP(free_text)
    char *path = xasprintf("%s/step-%lld-g%lld", dir, (long long)place->step, (long long)place->generation);
    struct err ignored;
    if (safetensors_ask(l->check, path, e) ||
        (state && snapshot_check_finite(place, state, snapshot_floats(l), e)) ||
        (model && snapshot_check_finite(place, model, l->count, e)))
        return e->code;
    if (snapshot_check_name(dir, place, e) || file_mkdirs(dir, 0755, e) || file_remove_tree(tmp, e) ||
        file_mkdirs(tmp, 0755, e))
        return e->code;
    if (write_all(tmp, l, place, state, model, parts, e) || snapshot_sum_unless(tmp, l->check, &f, e) ||
        snapshot_publish(dir, tmp, path, place, e)) {
        if (file_remove_tree(tmp, &ignored)) {
            /* the next write of this step, or the next prune, tries again */
        }
        return e->code;
    }
    free(f.path);
    f.path = steal(path);
    *out = f;
    f = (struct snapshot_files){0};
    return ERR_OK;
}

static void print_sums(struct jout *o, const char *sums) /* lines of "<64 digits>  <name>" */
{
    for (const char *line = sums, *end; (end = strchr(line, '\n')); line = end + 1) {
        CLEANUP(free_text)
        char *name = xasprintf("%.*s", (int)(end - line) - DIGEST_TEXT - 1, line + DIGEST_TEXT + 1);
        CLEANUP(free_text) char *sum = xasprintf("%.*s", DIGEST_TEXT - 1, line);
        jout_text(o, name, sum);
    }
}

enum err_code snapshot_mark_committed(const struct snapshot_files *files, const struct snapshot_place *place,
                                      struct err *e)
{
    CLEANUP(buf_release) struct buf json = {0};
    CLEANUP(free_text) char *name = xasprintf("%s/COMMITTED.json", files->path);
    struct jout o = {.buf = &json};
    jout_open(&o, NULL, '{');
    jout_text(&o, "cluster", place->cluster);
    jout_int(&o, "job", place->job);
    jout_int(&o, "generation", place->generation);
    jout_int(&o, "step", place->step);
    jout_int(&o, "committed_ms", clock_wall_ms());
    jout_text(&o, "digest", files->digest);
    jout_open(&o, "files", '{');
    print_sums(&o, files->sums);
    jout_close(&o, '}');
    jout_close(&o, '}');
    buf_putc(&json, '\n');
    if (fault_hit("snapshot.committed"))
        return err_set(e, ERR_INTERNAL, "fault before COMMITTED.json");
    return file_write_atomic(name, json.data, json.len, 0644, e);
}

/* ---- reading */

enum err_code snapshot_metadata_int(const struct safetensors *f, const char *key, int64_t *out, struct err *e)
{
    const char *text = json_get_text(f->metadata, key, "");
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!*text || *end || errno || value < 0)
        return err_set(e, ERR_DATA_LOSS, "%s: invalid metadata '%s': expected a number", f->path, key);
    *out = value;
    return ERR_OK;
}

static void close_tensors(struct safetensors **f)
{
    safetensors_close(*f);
}

static enum err_code open_file(struct safetensors **out, const char *path, const char *name, struct err *e)
{
    CLEANUP(free_text) char *file = xasprintf("%s/%s", path, name);
    return safetensors_open(out, file, e);
}

static enum err_code read_deal(const struct safetensors *f, struct snapshot_place *p, struct err *e)
{
    const char *text = json_get_text(f->metadata, "ddp.dealt", NULL);
    long long a = 0, b = 0, c = 0;
    int used = 0;
    if (!text)
        return ERR_OK;
    bool good = sscanf(text, "%lld %lld %lld%n", &a, &b, &c, &used) == 3 && a >= 0 && b >= 0 && c >= 0 &&
                c < p->epoch_samples;
    p->dealt = true;
    p->step_samples = a;
    p->dealt_epoch = b;
    p->dealt_position = c;
    for (text += used; good && *text && p->piece_count < SNAPSHOT_PIECES; text += used) {
        good = sscanf(text, " %lld:%lld+%lld%n", &a, &b, &c, &used) == 3 && a >= 0 && b >= 0 && c > 0 &&
               b < p->epoch_samples && c <= p->epoch_samples - b;
        p->pieces[p->piece_count++] = (struct snapshot_piece){a, b, c};
    }
    return good ? ERR_OK : err_set(e, ERR_DATA_LOSS, "%s: metadata 'ddp.dealt' is damaged", f->path);
}

static enum err_code read_portions(const struct safetensors *f, struct snapshot_place *p, struct err *e)
{
    const char *text = json_get_text(f->metadata, "ddp.portions", "");
    while (*text) {
        char *end;
        errno = 0;
        long long samples = strtoll(text, &end, 10);
        if (end == text || errno || samples < 1 || samples > UINT32_MAX ||
            p->portion_count == SNAPSHOT_PORTIONS)
            return err_set(e, ERR_DATA_LOSS, "%s: metadata 'ddp.portions' is damaged", f->path);
        p->portions[p->portion_count++] = samples;
        text = end;
    }
    return ERR_OK;
}

static enum err_code read_turn(const struct safetensors *f, struct snapshot_place *p, struct err *e)
{
    const char *text = json_get_text(f->metadata, "ddp.turn", NULL),
               *number = json_get_text(f->metadata, "ddp.fragments", NULL);
    long long turn = 0, steps = 0, fragments = 0;
    if (number && (sscanf(number, "%lld", &fragments) != 1 || fragments < 1))
        return err_set(e, ERR_DATA_LOSS, "%s: metadata 'ddp.fragments' is damaged", f->path);
    if (text && (sscanf(text, "%lld %lld", &turn, &steps) != 2 || turn < 1 || steps < 0))
        return err_set(e, ERR_DATA_LOSS, "%s: metadata 'ddp.turn' is damaged", f->path);
    p->turn = turn;
    p->turn_steps = steps;
    p->fragments = fragments;
    return ERR_OK;
}

static enum err_code read_judgement(const struct safetensors *f, struct snapshot_place *p, struct err *e)
{
    const char *loss = json_get_text(f->metadata, "ddp.val_loss", NULL),
               *best = json_get_text(f->metadata, "ddp.best", NULL),
               *data = json_get_text(f->metadata, "ddp.data", NULL),
               *order = json_get_text(f->metadata, "ddp.order", NULL);
    int shuffled = 0;
    long long number = 0;
    unsigned long long digest = 0;
    p->judged = loss != NULL;
    if ((loss && sscanf(loss, "%lf", &p->val_loss) != 1) ||
        (best && sscanf(best, "%lld %lf", &number, &p->best_loss) != 2))
        return err_set(e, ERR_DATA_LOSS, "%s: metadata of the validation loss is damaged", f->path);
    p->best_step = number;
    p->own_params = json_get_text(f->metadata, "ddp.own_params", NULL) != NULL;
    p->divided = json_get_text(f->metadata, "ddp.divided", NULL) != NULL;
    number = 0;
    if (data && sscanf(data, "%lld %llx", &number, &digest) != 2)
        return err_set(e, ERR_DATA_LOSS, "%s: metadata 'ddp.data' is damaged", f->path);
    p->data_bytes = number;
    p->data_digest = digest;
    number = 0;
    if (order && sscanf(order, "%lld %d", &number, &shuffled) != 2)
        return err_set(e, ERR_DATA_LOSS, "%s: metadata 'ddp.order' is damaged", f->path);
    p->epoch_samples = number;
    p->shuffled = shuffled;
    return ERR_OK;
}

/* f: model.safetensors. Earlier versions named the run in its metadata. */
static enum err_code read_run(const struct safetensors *f, const char *path, struct snapshot_place *p,
                              struct err *e)
{
    if (!json_get_text(f->metadata, "ddp.job", NULL))
        return snapshot_run_read(path, p, e);
    snprintf(p->cluster, sizeof(p->cluster), "%s", json_get_text(f->metadata, "ddp.cluster", ""));
    if (snapshot_metadata_int(f, "ddp.job", &p->job, e))
        return e->code;
    return snapshot_metadata_int(f, "ddp.generation", &p->generation, e);
}

enum err_code snapshot_read_place(const char *path, struct snapshot_place *out, struct err *e)
{
    CLEANUP(close_tensors) struct safetensors *f = NULL;
    struct snapshot_place p = {0};
    if (open_file(&f, path, "model.safetensors", e))
        return e->code;
    for (size_t i = 0; i < ARRAY_LEN(place_keys); i++)
        if (snapshot_metadata_int(f, place_keys[i].key, place_at(&p, i), e))
            return e->code;
    if (read_judgement(f, &p, e) || read_turn(f, &p, e) || read_deal(f, &p, e) || read_portions(f, &p, e) ||
        read_run(f, path, &p, e))
        return e->code;
    if (p.parts > 0 && p.parts != p.world_size)
        return err_set(e, ERR_DATA_LOSS, "%s: expected a part of each of %lld ranks, got %lld", f->path,
                       (long long)p.world_size, (long long)p.parts);
    *out = p;
    return ERR_OK;
}

/* Whether the file has the moment of this name of every tensor. */
static bool file_has_moment(const struct safetensors *f, const struct snapshot_layout *l, const char *moment)
{
    char name[sizeof(f->tensors->name)];
    for (size_t i = 0; i < l->tensor_count; i++) {
        snprintf(name, sizeof(name), "%s.%s", l->tensors[i].name, moment);
        if (!safetensors_find(f, name))
            return false;
    }
    return true;
}

static void zero_optional(const struct snapshot_layout *l, enum snapshot_choice choice, float *state)
{
    for (int moment = 0; moment < (int)l->moment_count; moment++) {
        if (!snapshot_chosen(l, moment, choice) || !moment_is_optional(l, moment))
            continue;
        for (size_t i = 0; i < l->tensor_count; i++)
            if (snapshot_tensor_place(l, i, moment) != SNAPSHOT_NONE)
                memset(state + snapshot_tensor_place(l, i, moment), 0, l->tensors[i].count * sizeof(*state));
    }
}

static enum err_code check_count(const struct safetensors *f, const struct snapshot_layout *l,
                                 enum snapshot_choice choice, struct err *e)
{
    size_t want = count_chosen(l, choice, false), got = f->count;
    for (size_t i = 0; choice != SNAPSHOT_PARAMS && l->optional && l->optional[i]; i++)
        if (file_has_moment(f, l, l->optional[i]))
            got -= l->tensor_count;
    if (got != want)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: expected %zu tensors for the job's model and optimizer, got %zu", f->path, want,
                       got);
    return ERR_OK;
}

enum err_code snapshot_read_tensors(const struct safetensors *f, const struct snapshot_layout *l,
                                    enum snapshot_choice choice, float *state, struct err *e)
{
    if (check_count(f, l, choice, e))
        return e->code;
    zero_optional(l, choice, state);
    for (int moment = -1; moment < (int)l->moment_count; moment++) {
        if (moment_is_optional(l, moment) && !file_has_moment(f, l, l->moments[moment]))
            continue;
        for (size_t i = 0; i < l->tensor_count && snapshot_chosen(l, moment, choice); i++) {
            struct safetensor want = {0};
            size_t place = snapshot_tensor_place(l, i, moment);
            if (place == SNAPSHOT_NONE)
                continue;
            tensor_describe(&want, l, i, moment, state);
            if (safetensors_read(f, want.name, want.dims, want.shape, state + place, e))
                return e->code;
        }
    }
    return ERR_OK;
}

static enum err_code read_file(const char *path, const char *name, const struct snapshot_layout *l,
                               enum snapshot_choice choice, float *state, struct err *e)
{
    CLEANUP(close_tensors) struct safetensors *f = NULL;
    if (open_file(&f, path, name, e))
        return e->code;
    return snapshot_read_tensors(f, l, choice, state, e);
}

/* A file of optional moments only may be missing. */
static enum err_code read_moments(const char *path, const char *name, const struct snapshot_layout *l,
                                  enum snapshot_choice choice, float *state, struct err *e)
{
    CLEANUP(free_text) char *file = xasprintf("%s/%s", path, name);
    bool missing = !count_chosen(l, choice, false) && !file_exists(file);
    if (missing)
        zero_optional(l, choice, state);
    return missing || !count_chosen(l, choice, true) ? ERR_OK : read_file(path, name, l, choice, state, e);
}

enum err_code snapshot_read(const char *path, const struct snapshot_layout *l, float *state, struct err *e)
{
    CLEANUP(free_text) char *parts = xasprintf("%s/%s", path, SNAPSHOT_PARTS_FILE);
    if (read_file(path, "model.safetensors", l, SNAPSHOT_PARAMS, state, e))
        return e->code;
    if (file_exists(parts))
        return read_moments(path, "shared.safetensors", l, SNAPSHOT_SHARED, state, e);
    return read_moments(path, "optimizer.safetensors", l, SNAPSHOT_OWN | SNAPSHOT_SHARED, state, e);
}

enum err_code snapshot_read_part(const char *path, const struct snapshot_layout *l, int part, float *state,
                                 int64_t *samples, struct err *e)
{
    CLEANUP(close_tensors) struct safetensors *f = NULL;
    char name[64];
    snprintf(name, sizeof(name), "rank-%05d.safetensors", part);
    if (open_file(&f, path, name, e) || snapshot_metadata_int(f, "ddp.part_samples", samples, e))
        return e->code;
    return snapshot_read_tensors(f, l, SNAPSHOT_PARAMS | SNAPSHOT_OWN | SNAPSHOT_SHARED, state, e);
}
