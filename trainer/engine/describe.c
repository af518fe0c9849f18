#include "trainer/engine/describe.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/snapshot/gpt2.h"
#include "trainer/snapshot/init.h"

#define VOCABULARY_LIMIT ((size_t)32 << 20)

static void describe_add_file(struct engine *n, const char *name, const struct buf *text)
{
    n->layout.extras[n->layout.extra_count++] = (struct snapshot_extra){name, text->data, text->len};
}

static void describe_extra_files(struct engine *n)
{
    const struct vocabulary *v = n->train->vocabulary;
    if (n->spec->model.type != MODEL_GPT)
        return;
    gpt2_config_print(&n->config_json, n->spec, n->model->out);
    describe_add_file(n, "config.json", &n->config_json);
    if (!v || v->type != SYMBOL_CHARACTER)
        return;
    vocabulary_print(v, &n->vocab_json);
    describe_add_file(n, "vocab.json", &n->vocab_json);
}

void describe_algorithms(struct engine *n, const struct buf *text)
{
    bool described = n->algorithms.len > 0;
    if (!text->len)
        return;
    buf_clear(&n->algorithms);
    buf_append(&n->algorithms, text->data, text->len);
    if (!described) {
        describe_add_file(n, SNAPSHOT_ALGORITHMS_FILE, &n->algorithms);
        return;
    }
    struct snapshot_extra *last = &n->layout.extras[n->layout.extra_count - 1];
    *last = (struct snapshot_extra){SNAPSHOT_ALGORITHMS_FILE, n->algorithms.data, n->algorithms.len};
}

struct snapshot_layout snapshot_layout_of(const struct model *m, struct snapshot_tensor **tensors)
{
    *tensors = xcalloc(m->tensor_count, sizeof(**tensors));
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct model_tensor *t = &m->tensors[i];
        (*tensors)[i] = (struct snapshot_tensor){t->name, t->dims, t->shape, t->offset, t->count};
    }
    return (struct snapshot_layout){.tensors = *tensors, .tensor_count = m->tensor_count, .count = m->count};
}

void describe_layout(struct engine *n)
{
    struct snapshot_layout fresh;
    free(n->tensors);
    fresh = snapshot_layout_of(n->model, &n->tensors);
    n->layout.tensors = fresh.tensors;
    n->layout.tensor_count = fresh.tensor_count;
    n->layout.count = fresh.count;
}

/* Where moment number `moment` of each tensor lies in a state. */
static void describe_places(struct engine *n, size_t moment)
{
    size_t arrays = moment < n->optim->state_count ? 0 : moment - n->optim->state_count;
    for (size_t i = 0; i < n->model->tensor_count; i++) {
        size_t offset = n->model->tensors[i].offset,
               at = n->optim->whole_floats + arrays * n->model->count + offset;
        if (moment < n->optim->state_count)
            at = optim_moment_at(n->optim, moment, offset);
        n->places[moment * n->model->tensor_count + i] =
            at == OPTIM_NONE ? SNAPSHOT_NONE : n->model->count + at;
    }
}

void describe_kept(struct engine *n)
{
    size_t count = 0;
    for (; count < n->optim->state_count; count++) {
        n->kept[count] = n->optim->ops->state_names[count];
        n->own[count] = true;
    }
    size_t moments = count;
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].kept) {
            n->own[count] = n->extras[i].own;
            n->kept[count++] = n->extras[i].name;
        }
    n->places = xcalloc(count * n->model->tensor_count + 1, sizeof(*n->places));
    for (size_t i = 0; i < count; i++)
        describe_places(n, i);
    n->layout.moments = n->kept;
    n->layout.own = n->own;
    n->layout.moment_count = count;
    n->layout.unused = n->unused;
    n->layout.optional = n->optional;
    n->layout.places = n->places;
    n->layout.floats = n->model->count * (1 + count - moments) + n->optim->whole_floats;
    describe_extra_files(n);
}

void describe_use(struct engine *n, const char *name, bool used)
{
    for (size_t i = n->optim->state_count; i < n->layout.moment_count; i++)
        if (!strcmp(n->kept[i], name))
            n->unused[i] = !used;
}

/* Parameters for another vocabulary would produce other symbols. Without the file this cannot be checked. */
static enum err_code describe_check_vocabulary(const struct engine *n, const char *dir, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/vocab.json", dir);
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(vocabulary_release) struct vocabulary there = {0};
    if (!n->vocab_json.len || !file_exists(path))
        return ERR_OK;
    if (file_read(path, VOCABULARY_LIMIT, &text, e) ||
        vocabulary_parse(&there, text.data ? text.data : "", text.len, path, e))
        return e->code;
    const struct vocabulary *here = n->train->vocabulary;
    bool same = there.count == here->count &&
                !memcmp(there.symbols, here->symbols, (size_t)here->count * sizeof(*here->symbols));
    if (!same)
        err_set(e, ERR_FAILED_PRECONDITION,
                "%s: its vocabulary (%lld symbols) is not that of %s (%lld symbols)", path,
                (long long)there.count, n->spec->data.path, (long long)here->count);
    return same ? ERR_OK : e->code;
}

/* Checks what the shapes do not show. */
static enum err_code describe_check_config(const struct engine *n, const char *dir, struct err *e)
{
    struct train_spec there = {0};
    struct err why = {0};
    if (gpt2_config_read(dir, &there, &why)) {
        /* A directory of another tool may have no config.json: then only the shapes are checked. */
        if (why.code == ERR_NOT_FOUND)
            return ERR_OK;
        *e = why;
        return e->code;
    }
    const struct train_spec *here = n->spec;
    if (there.model.heads != here->model.heads)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s: the model has %lld heads, but the job's model has %lld: set train.model.heads to %lld", dir,
            (long long)there.model.heads, (long long)here->model.heads, (long long)there.model.heads);
    if (there.data.type == DATA_TEXT && here->data.type == DATA_TEXT &&
        there.data.symbols != here->data.symbols)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: the model was trained on other symbols: set train.data.symbols to %s", dir,
                       there.data.symbols == SYMBOL_BYTE ? "byte" : "character");
    if (there.model.activation != here->model.activation)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: the model has another activation: set train.model.activation to %s", dir,
                       there.model.activation == ACTIVATION_GELU ? "gelu" : "gelu_tanh");
    if (there.model.tied != here->model.tied)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: the model has %s head: set train.model.tied to %s",
                       dir, there.model.tied ? "a tied" : "an untied", there.model.tied ? "true" : "false");
    return ERR_OK;
}

enum err_code describe_check_dir(const struct engine *n, const char *dir, struct err *e)
{
    if (n->spec->model.type != MODEL_GPT)
        return ERR_OK;
    return describe_check_config(n, dir, e) ? e->code : describe_check_vocabulary(n, dir, e);
}

enum err_code describe_read_initial(struct engine *n, float *params, struct err *e)
{
    CLEANUP(free_text) char *dir = NULL;
    if (init_find(n->spec->init_from, NULL, &dir, e) || describe_check_dir(n, dir, e) ||
        init_read(dir, &n->layout, params, e))
        return err_wrap(e, "train.init_from");
    log_info("init", "from=%s", LOG_Q(dir));
    return ERR_OK;
}
