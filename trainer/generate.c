#include "trainer/generate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "base/random.h"
#include "trainer/data/vocabulary.h"
#include "trainer/engine/describe.h"
#include "trainer/model/decode.h"
#include "trainer/model/model.h"
#include "trainer/snapshot/gpt2.h"
#include "trainer/snapshot/init.h"

#define PROMPT_LIMIT ((size_t)16 << 20)
#define VOCABULARY_LIMIT ((size_t)32 << 20)

struct speaker {
    const char *dir; /* directory of the model */
    struct train_spec spec;
    struct vocabulary vocabulary; /* count 0: the model has no text, only token numbers */
    struct device *device;
    struct model *model;
    float *params;
    struct decoder *decoder;
    int32_t *past; /* all tokens so far, the prompt's included */
    size_t count, room;
    float *logits;  /* (vocab) */
    int32_t *order; /* (vocab): token numbers, in part sorted by their logits */
};

/* ---- the model */

static enum err_code read_vocabulary(struct speaker *s, const char *dir, struct err *e)
{
    CLEANUP(free_text) char *path = paths_join(dir, "vocab.json");
    CLEANUP(buf_release) struct buf text = {0};
    if (s->spec.data.type != DATA_TEXT)
        return ERR_OK;
    if (s->spec.data.symbols == SYMBOL_BYTE)
        return vocabulary_scan(&s->vocabulary, SYMBOL_BYTE, NULL, 0, path, e);
    if (file_read(path, VOCABULARY_LIMIT, &text, e))
        return e->code;
    return vocabulary_parse(&s->vocabulary, text.data ? text.data : "", text.len, path, e);
}

static enum err_code speaker_check_vocabulary(const struct speaker *s, const char *dir, struct err *e)
{
    if (s->vocabulary.count <= s->spec.model.vocab)
        return ERR_OK;
    return err_set(e, ERR_DATA_LOSS, "%s: vocab.json has %lld symbols, but the model has only %lld", dir,
                   (long long)s->vocabulary.count, (long long)s->spec.model.vocab);
}

static enum err_code read_params(struct speaker *s, const char *dir, struct err *e)
{
    struct snapshot_tensor *tensors = NULL;
    struct snapshot_layout layout = snapshot_layout_of(s->model, &tensors);
    enum err_code code = init_read(dir, &layout, s->params, e);
    free(tensors);
    return code;
}

static enum err_code open_model(struct speaker *s, const char *dir, struct err *e)
{
    const struct train_spec *spec = &s->spec;
    void *params = NULL;
    if (gpt2_config_read(dir, &s->spec, e) || read_vocabulary(s, dir, e) ||
        speaker_check_vocabulary(s, dir, e) || device_open(&s->device, DEVICE_CPU, 0, 1, 0, e) ||
        model_open(&s->model, spec, LOSS_CROSS_ENTROPY, spec->model.context, spec->model.vocab, 1, 0,
                   s->device, e) ||
        device_alloc(s->device, s->model->count * sizeof(float), "parameters", &params, e))
        return e->code;
    s->params = params;
    s->logits = xcalloc((size_t)spec->model.vocab, sizeof(*s->logits));
    s->order = xcalloc((size_t)spec->model.vocab, sizeof(*s->order));
    return read_params(s, dir, e) ? e->code : decoder_open(&s->decoder, spec, s->model, s->params, e);
}

static void close_model(struct speaker *s)
{
    decoder_close(s->decoder);
    if (s->device)
        s->device->ops->free(s->device, s->params);
    model_free(s->model);
    device_close(s->device);
    vocabulary_release(&s->vocabulary);
    free(s->past);
    free(s->logits);
    free(s->order);
}

/* ---- the prompt */

static void token_remember(struct speaker *s, int32_t token)
{
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        s->past = xrealloc(s->past, s->room * sizeof(*s->past));
    }
    s->past[s->count++] = token;
}

static enum err_code read_numbers(struct speaker *s, const char *text, struct err *e)
{
    for (;;) {
        char *end = NULL;
        text += strspn(text, " \t\r\n,");
        if (!*text)
            return ERR_OK;
        long long token = strtoll(text, &end, 10);
        if (end == text || token < 0 || token >= s->spec.model.vocab)
            return err_set(
                e, ERR_INVALID_ARGUMENT,
                "invalid token '%.20s': this model has no vocabulary, so expected numbers from 0 to %lld",
                text, (long long)s->spec.model.vocab - 1);
        token_remember(s, (int32_t)token);
        text = end;
    }
}

static enum err_code read_stdin(struct buf *out, struct err *e)
{
    char piece[4096];
    size_t n;
    while ((n = fread(piece, 1, sizeof(piece), stdin)) > 0 && out->len < PROMPT_LIMIT)
        buf_append(out, piece, n);
    if (ferror(stdin))
        return err_sys(e, errno, "stdin");
    return n ? err_set(e, ERR_INVALID_ARGUMENT, "the prompt on stdin is too long") : ERR_OK;
}

static enum err_code read_prompt(struct speaker *s, const char *prompt, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    int32_t *tokens = NULL;
    size_t count = 0;
    if (strcmp(prompt, "-"))
        buf_puts(&text, prompt);
    else if (read_stdin(&text, e))
        return e->code;
    if (!s->vocabulary.count)
        return read_numbers(s, text.data ? text.data : "", e);
    if (vocabulary_encode(&s->vocabulary, text.data ? text.data : "", text.len, &tokens, &count, e))
        return err_wrap(e, "the prompt");
    for (size_t i = 0; i < count; i++)
        token_remember(s, tokens[i]);
    free(tokens);
    return ERR_OK;
}

/* The model needs at least one token to continue from. Without a prompt this is a line end, which the start
 * of a line follows, or token 0. */
static void speaker_begin(struct speaker *s)
{
    int32_t line = s->vocabulary.count ? vocabulary_find(&s->vocabulary, '\n') : -1;
    if (!s->count)
        token_remember(s, line >= 0 ? line : 0);
}

/* ---- what follows */

static enum err_code token_say(struct speaker *s, int32_t token, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    if (s->vocabulary.count)
        vocabulary_put(&s->vocabulary, token, &text);
    else
        buf_printf(&text, "%d ", (int)token);
    if (fwrite(text.data, 1, text.len, stdout) != text.len || fflush(stdout))
        return err_sys(e, errno, "stdout");
    return ERR_OK;
}

/* Feeds the tokens that the decoder has not read yet. Leaves the logits of the next token in s->logits. */
static void read_past(struct speaker *s, size_t *seen)
{
    size_t context = (size_t)s->spec.model.context, keep = context - context / 2;
    size_t fits = context - (size_t)decoder_position(s->decoder);
    if (s->count - *seen > fits) {
        decoder_reset(s->decoder);
        *seen = s->count > keep ? s->count - keep : 0;
    }
    decoder_feed(s->decoder, s->past + *seen, (int64_t)(s->count - *seen), s->logits, 1);
    *seen = s->count;
}

/* Restores the heap property of order[at, n), largest logit first. The cost of sorting by a heap is small
 * beside that of the model. */
static void choices_sift(const float *logits, int32_t *order, size_t at, size_t n)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && logits[order[child + 1]] > logits[order[child]];
        if (logits[order[at]] >= logits[order[child]])
            return;
        int32_t swap = order[at];
        order[at] = order[child];
        order[child] = swap;
    }
}

/* Sorts the k likeliest tokens to the end of order, the likeliest last. */
static void sort_last(const float *logits, int32_t *order, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (size_t i = n / 2; i-- > 0;)
        choices_sift(logits, order, i, n);
    for (size_t end = n; end-- > n - k && end > 0;) {
        int32_t swap = order[0];
        order[0] = order[end];
        order[end] = swap;
        choices_sift(logits, order, 0, end);
    }
}

/* Returns the number of tokens to choose from. A model may have more outputs than its text has symbols. */
static size_t choices_count(const struct speaker *s)
{
    return (size_t)(s->vocabulary.count ? s->vocabulary.count : s->spec.model.vocab);
}

/* Refuses logits that are not finite, because no token is the likeliest then. */
static enum err_code check_logits(const struct speaker *s, struct err *e)
{
    for (size_t i = 0; i < choices_count(s); i++)
        if (!isfinite(s->logits[i]))
            return err_set(e, ERR_DATA_LOSS,
                           "%s: the model's output is %s after %zu tokens: its parameters are nan or inf, "
                           "or too large",
                           s->dir, isnan(s->logits[i]) ? "nan" : "inf", s->count);
    return ERR_OK;
}

static int32_t token_choose(struct speaker *s, const struct trainer_options *o, struct random *r)
{
    size_t n = choices_count(s);
    size_t k = o->temperature == 0.0 ? 1 : o->top_k < (int64_t)n ? (size_t)o->top_k : n;
    double sum = 0.0, at = (double)random_float(r);
    sort_last(s->logits, s->order, n, k);
    const int32_t *first = s->order + n - k;
    double largest = (double)s->logits[first[k - 1]];
    if (k == 1)
        return first[0];
    for (size_t i = 0; i < k; i++)
        sum += exp(((double)s->logits[first[i]] - largest) / o->temperature);
    at *= sum;
    for (size_t i = k; i-- > 1;) {
        at -= exp(((double)s->logits[first[i]] - largest) / o->temperature);
        if (at < 0.0)
            return first[i];
    }
    return first[0];
}

static enum err_code speaker_speak(struct speaker *s, const struct trainer_options *o, struct err *e)
{
    struct random r = random_stream((uint64_t)o->seed, 0);
    size_t seen = 0;
    for (size_t i = 0; i < s->count; i++)
        if (token_say(s, s->past[i], e))
            return e->code;
    speaker_begin(s);
    for (int64_t n = 0; n < o->tokens; n++) {
        read_past(s, &seen);
        if (s->device->ops->wait(s->device, e) || check_logits(s, e))
            return e->code;
        int32_t next = token_choose(s, o, &r);
        if (token_say(s, next, e))
            return e->code;
        token_remember(s, next);
    }
    fputc('\n', stdout);
    return fflush(stdout) ? err_sys(e, errno, "stdout") : ERR_OK;
}

enum err_code generate_main(const struct trainer_options *o, struct err *e)
{
    CLEANUP(free_text) char *dir = NULL;
    struct speaker s = {0};
    if (init_find(o->generate, o->digest, &dir, e))
        return e->code;
    s.dir = dir;
    if (open_model(&s, dir, e) == ERR_OK && read_prompt(&s, o->prompt, e) == ERR_OK)
        e->code = speaker_speak(&s, o, e);
    close_model(&s);
    return e->code;
}
