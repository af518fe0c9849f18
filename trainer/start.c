/* What a language model's directory holds beside parameters and moments, and what a run starts from when it
 * does not resume. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/snapshot/gpt2.h"
#include "trainer/snapshot/init.h"
#include "trainer/trainer.h"

#define VOCABULARY_LIMIT ((size_t)32 << 20)

static void add_extra(struct trainer *t, const char *name, const struct buf *text)
{
    t->layout.extras[t->layout.extra_count++] = (struct snapshot_extra){name, text->data, text->len};
}

static void describe_extras(struct trainer *t)
{
    const struct vocabulary *v = t->train->vocabulary;
    if (t->spec->model.type != MODEL_GPT)
        return;
    gpt2_config_print(&t->config_json, t->spec, t->model->out);
    add_extra(t, "config.json", &t->config_json);
    if (!v || v->type != SYMBOL_CHARACTER)
        return;
    vocabulary_print(v, &t->vocab_json);
    add_extra(t, "vocab.json", &t->vocab_json);
}

struct snapshot_layout trainer_layout(const struct model *m, struct snapshot_tensor **tensors)
{
    *tensors = xcalloc(m->tensor_count, sizeof(**tensors));
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct model_tensor *t = &m->tensors[i];
        (*tensors)[i] = (struct snapshot_tensor){t->name, t->dims, t->shape, t->offset, t->count};
    }
    return (struct snapshot_layout){.tensors = *tensors, .tensor_count = m->tensor_count, .count = m->count};
}

void trainer_describe(struct trainer *t)
{
    t->layout = trainer_layout(t->model, &t->tensors);
    memcpy(t->kept, t->optim->ops->state_names, sizeof(t->optim->ops->state_names));
    t->layout.moments = t->kept;
    t->layout.moment_count =
        t->optim->state_count + sync_kept_arrays(&t->spec->sync, t->kept + t->optim->state_count);
    describe_extras(t);
}

/* Parameters of another vocabulary would speak of other symbols. Without the file nobody can tell. */
static enum err_code check_vocabulary(const struct trainer *t, const char *dir, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/vocab.json", dir);
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(vocabulary_release) struct vocabulary there = {0};
    if (!t->vocab_json.len || !file_exists(path))
        return ERR_OK;
    if (file_read(path, VOCABULARY_LIMIT, &text, e) ||
        vocabulary_parse(&there, text.data ? text.data : "", text.len, path, e))
        return e->code;
    const struct vocabulary *here = t->train->vocabulary;
    bool same = there.count == here->count &&
                !memcmp(there.symbols, here->symbols, (size_t)here->count * sizeof(*here->symbols));
    if (!same)
        err_set(e, ERR_FAILED_PRECONDITION, "%s: its %lld symbols are not the %lld of %s", path,
                (long long)there.count, (long long)here->count, t->spec->data.path);
    return same ? ERR_OK : e->code;
}

/* What shapes do not tell. */
static enum err_code check_config(const struct trainer *t, const char *dir, struct err *e)
{
    struct train_spec there = {0};
    struct err why = {0};
    if (gpt2_config_read(dir, &there, &why)) {
        if (why.code == ERR_NOT_FOUND)
            return ERR_OK;
        *e = why;
        return e->code;
    }
    const struct train_spec *here = t->spec;
    if (there.model.heads != here->model.heads)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: has %lld heads, the job's model %lld", dir,
                       (long long)there.model.heads, (long long)here->model.heads);
    if (there.data.type == DATA_TEXT && here->data.type == DATA_TEXT &&
        there.data.symbols != here->data.symbols)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: its symbols are %s, set train.data.symbols to that",
                       dir, there.data.symbols == SYMBOL_BYTE ? "byte" : "character");
    if (there.model.activation != here->model.activation)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: has another activation than the job's model: %s", dir,
                       there.model.activation == ACTIVATION_GELU ? "gelu" : "gelu_tanh");
    if (there.model.tied != here->model.tied)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: has %s head, set train.model.tied to %s", dir,
                       there.model.tied ? "a tied" : "an untied", there.model.tied ? "true" : "false");
    return ERR_OK;
}

enum err_code trainer_check_dir(const struct trainer *t, const char *dir, struct err *e)
{
    if (t->spec->model.type != MODEL_GPT)
        return ERR_OK;
    return check_config(t, dir, e) ? e->code : check_vocabulary(t, dir, e);
}

static enum err_code read_params(struct trainer *t, float *params, struct err *e)
{
    CLEANUP(free_text) char *dir = NULL;
    if (init_find(t->spec->init_from, NULL, &dir, e) || trainer_check_dir(t, dir, e) ||
        init_read(dir, &t->layout, params, e))
        return err_wrap(e, "train.init_from");
    log_info("init", "from=%s", LOG_Q(dir));
    return ERR_OK;
}

/* Rank 0 reads; all have it, or all end for the same reason. */
static enum err_code start_from_model(struct trainer *t, struct err *e)
{
    struct err found = {0};
    size_t bytes = t->model->count * sizeof(float);
    float *params = calloc(t->model->count, sizeof(float));
    if (!params)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "a copy of the parameters: out of memory");
    if (t->rank == 0 && read_params(t, params, &found))
        log_error("init_failed", "why=%s", LOG_Q(found.msg));
    enum err_code code = trainer_agree(t, 0, &found, e);
    if (code == ERR_OK)
        code = coll_broadcast(t->group, params, bytes, 0, e);
    if (code == ERR_OK)
        t->device->ops->upload(t->device, t->params, params, bytes);
    free(params);
    return code;
}

/* Every rank draws the same ones. They cost a second or two for a hundred million, so only who needs them
 * does. */
static void start_from_seed(struct trainer *t)
{
    model_init(t->model, t->params, (uint64_t)t->spec->seed);
    if (t->rank == 0)
        log_info("init", "seed=%lld", (long long)t->spec->seed);
}

enum err_code trainer_start(struct trainer *t, struct err *e)
{
    if (t->spec->init_from)
        return start_from_model(t, e);
    start_from_seed(t);
    return ERR_OK;
}
