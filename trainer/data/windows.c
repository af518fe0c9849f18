#include "trainer/data/windows.h"

#include <stdlib.h>

#include "base/digest.h"
#include "base/mem.h"
#include "trainer/data/corpus.h"

/* The files of both splits: one file that both share, or one file each. */
struct corpora {
    int users;
    struct corpus train, test;
};

struct windows {
    struct dataset base;
    struct corpora *files;
    const struct corpus *corpus; /* of the two corpora */
    int64_t first, stride;       /* window i starts at symbol first + i * stride */
};

static void files_leave(struct corpora *files)
{
    if (--files->users > 0)
        return;
    corpus_release(&files->train);
    corpus_release(&files->test);
    free(files);
}

static void windows_free(struct dataset *d)
{
    struct windows *w = (struct windows *)(void *)d;
    files_leave(w->files);
    free(w);
}

/* The label of each symbol is the symbol after it. So a window's labels are its own symbols moved by one
 * place, and only the last label is read from the corpus. */
static enum err_code windows_gather(const struct dataset *d, const int64_t *index, int64_t rows,
                                    const struct dataset_rows *out, struct err *e)
{
    const struct windows *w = (const struct windows *)(const void *)d;
    for (int64_t i = 0; i < rows; i++) {
        int32_t *token = out->token + i * d->in, *label = out->label + i * d->in;
        int64_t at = w->first + index[i] * w->stride;
        if (corpus_read(w->corpus, at, d->in, token, e) ||
            corpus_read(w->corpus, at + d->in, 1, label + d->in - 1, e))
            return e->code;
        for (int64_t j = 0; j + 1 < d->in; j++)
            label[j] = token[j + 1];
    }
    return ERR_OK;
}

static const struct dataset_ops windows_ops = {.free = windows_free, .gather = windows_gather};

struct span { /* a range of a corpus, in symbols */
    const struct corpus *corpus;
    int64_t first, count;
    const char *what;
};

static enum err_code open_span(struct dataset **out, struct corpora *files, const struct span *s,
                               int64_t context, int64_t stride, struct err *e)
{
    if (s->count < context + 1)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s: the %s split is too short for a context of %lld: expected at least %lld symbols, got %lld",
            s->corpus->path, s->what, (long long)context, (long long)context + 1, (long long)s->count);
    struct windows *w = xcalloc(1, sizeof(*w));
    *w = (struct windows){
        .base = {.ops = &windows_ops,
                 /* The last window needs one symbol more than the context: its last label. */
                 .count = (s->count - context - 1) / stride + 1,
                 .in = context,
                 .out = files->train.symbols,
                 .windows = true,
                 .loss = LOSS_CROSS_ENTROPY,
                 .vocabulary = files->train.vocabulary.count ? &files->train.vocabulary : NULL},
        .files = files,
        .corpus = s->corpus,
        .first = s->first,
        .stride = stride,
    };
    files->users++;
    *out = &w->base;
    return ERR_OK;
}

static enum err_code open_files(struct corpora *files, const struct train_spec *spec, struct err *e)
{
    const char *path = spec->data.path, *val = spec->data.val_path;
    if (spec->data.type == DATA_TOKENS) {
        if (corpus_open_tokens(&files->train, path, spec->model.vocab, e) ||
            (val && corpus_open_tokens(&files->test, val, spec->model.vocab, e)))
            return e->code;
        return ERR_OK;
    }
    if (corpus_open_text(&files->train, path, spec->data.symbols, NULL, e) ||
        (val && corpus_open_text(&files->test, val, spec->data.symbols, &files->train.vocabulary, e)))
        return e->code;
    if (spec->model.vocab && spec->model.vocab < files->train.symbols)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s: invalid value for model.vocab: expected at least %lld, the number of symbols, got %lld",
            path, (long long)files->train.symbols, (long long)spec->model.vocab);
    return ERR_OK;
}

static size_t decoded_bytes(const struct corpus *c)
{
    return c->decoded ? (size_t)(c->count * c->width) : 0;
}

static enum err_code open_splits(struct dataset **train, struct dataset **test, struct corpora *files,
                                 const struct train_spec *spec, struct err *e)
{
    const struct corpus *one = &files->train, *two = &files->test;
    int64_t context = spec->model.context, cut = (int64_t)((double)one->count * spec->data.split);
    struct span first = {one, 0, two->path ? one->count : cut, "training"};
    struct span rest = {one, cut, one->count - cut, "validation"};
    if (two->path)
        rest = (struct span){two, 0, two->count, "validation"};
    if (open_span(train, files, &first, context, 1, e) || open_span(test, files, &rest, context, context, e))
        return e->code;
    (*train)->bytes = decoded_bytes(one) + decoded_bytes(two);
    (*train)->mark = one->mark;
    if (two->path) {
        (*train)->mark.bytes += two->mark.bytes;
        (*train)->mark.digest = digest64(one->mark.digest, &two->mark.digest, sizeof(two->mark.digest));
    }
    return ERR_OK;
}

enum err_code windows_open_pair(struct dataset **train, struct dataset **test, const struct train_spec *spec,
                                struct err *e)
{
    struct corpora *files = xcalloc(1, sizeof(*files));
    *train = *test = NULL;
    files->users = 1;
    enum err_code code = open_files(files, spec, e);
    if (!code)
        code = open_splits(train, test, files, spec, e);
    files_leave(files);
    if (code) {
        dataset_free(*train);
        dataset_free(*test);
        *train = *test = NULL;
    }
    return code;
}
