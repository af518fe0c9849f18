/* Computes loss, logits and gradients of a model in a directory, for comparison with another implementation.
 *
 *   gpt_gradients DIR fp32|bf16 TOKENS ROWS OUT
 *
 * TOKENS: int32, ROWS rows of context + 1 tokens: the inputs, each followed by its label. OUT: safetensors
 * with `loss` (1), `logits` (ROWS context, vocabulary; computed by the decoder) and the gradient of the mean
 * loss under each tensor's name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/model/decode.h"
#include "trainer/model/model.h"
#include "trainer/snapshot/gpt2.h"
#include "trainer/snapshot/init.h"
#include "trainer/snapshot/safetensors.h"

struct work {
    struct train_spec spec;
    struct device *device;
    struct model *model;
    struct snapshot_layout layout;
    float *params, *grads, *logits;
    int64_t rows;
    int32_t *token, *label; /* (rows,context) */
};

static void call_must_succeed(enum err_code code, const struct err *e)
{
    if (code == ERR_OK)
        return;
    fprintf(stderr, "gpt_gradients: %s\n", e->msg);
    exit(1);
}

static void open_model(struct work *w, const char *dir, const char *precision)
{
    struct err e = {0};
    void *memory[2] = {0};
    call_must_succeed(gpt2_config_read(dir, &w->spec, &e), &e);
    w->spec.precision = strcmp(precision, "bf16") ? PRECISION_FP32 : PRECISION_BF16;
    call_must_succeed(device_open(&w->device, DEVICE_CPU, 0, 1, 0, &e), &e);
    call_must_succeed(model_open(&w->model, &w->spec, LOSS_CROSS_ENTROPY, w->spec.model.context,
                                 w->spec.model.vocab, w->rows, 0, w->device, &e),
                      &e);
    for (int i = 0; i < 2; i++)
        call_must_succeed(
            device_alloc(w->device, w->model->count * sizeof(float), "parameters", &memory[i], &e), &e);
    w->params = memory[0];
    w->grads = memory[1];
    struct snapshot_tensor *tensors = xcalloc(w->model->tensor_count, sizeof(*tensors));
    for (size_t i = 0; i < w->model->tensor_count; i++) {
        const struct model_tensor *t = &w->model->tensors[i];
        tensors[i] = (struct snapshot_tensor){t->name, t->dims, t->shape, t->offset, t->count};
    }
    w->layout = (struct snapshot_layout){
        .tensors = tensors, .tensor_count = w->model->tensor_count, .count = w->model->count};
    call_must_succeed(init_read(dir, &w->layout, w->params, &e), &e);
}

static void read_tokens(struct work *w, const char *path)
{
    CLEANUP(buf_release) struct buf raw = {0};
    struct err e = {0};
    size_t context = (size_t)w->spec.model.context, rows = (size_t)w->rows;
    call_must_succeed(file_read(path, (size_t)1 << 30, &raw, &e), &e);
    if (raw.len != rows * (context + 1) * sizeof(int32_t)) {
        fprintf(stderr, "gpt_gradients: %s does not hold %zu rows of %zu\n", path, rows, context + 1);
        exit(1);
    }
    w->token = xcalloc(rows * context, sizeof(int32_t));
    w->label = xcalloc(rows * context, sizeof(int32_t));
    for (size_t r = 0; r < rows; r++) {
        const char *row = raw.data + r * (context + 1) * sizeof(int32_t);
        memcpy(w->token + r * context, row, context * sizeof(int32_t));
        memcpy(w->label + r * context, row + sizeof(int32_t), context * sizeof(int32_t));
    }
}

static void logits_decode(struct work *w)
{
    struct decoder *d = NULL;
    struct err e = {0};
    int64_t context = w->spec.model.context, vocab = w->spec.model.vocab;
    w->logits = xcalloc((size_t)(w->rows * context * vocab), sizeof(float));
    call_must_succeed(decoder_open(&d, &w->spec, w->model, w->params, &e), &e);
    for (int64_t r = 0; r < w->rows; r++) {
        decoder_reset(d);
        decoder_feed(d, w->token + r * context, context, w->logits + r * context * vocab, context);
    }
    decoder_close(d);
}

static void write_out(const struct work *w, const char *path, float loss)
{
    size_t n = 0;
    struct err e = {0};
    struct safetensor *out = xcalloc(w->layout.tensor_count + 2, sizeof(*out));
    out[n++] = (struct safetensor){.name = "loss", .dims = 1, .shape = {1}, .data = &loss};
    out[n++] = (struct safetensor){.name = "logits",
                                   .dims = 2,
                                   .shape = {w->rows * w->spec.model.context, w->spec.model.vocab},
                                   .data = w->logits};
    for (size_t i = 0; i < w->layout.tensor_count; i++) {
        const struct snapshot_tensor *t = &w->layout.tensors[i];
        struct safetensor *to = &out[n++];
        snprintf(to->name, sizeof(to->name), "%s", t->name);
        to->dims = t->dims;
        memcpy(to->shape, t->shape, (size_t)t->dims * sizeof(*t->shape));
        to->data = w->grads + t->offset;
    }
    call_must_succeed(safetensors_write(path, out, n, "{}", NULL, &e), &e);
    free(out);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fputs("usage: gpt_gradients DIR fp32|bf16 TOKENS ROWS OUT\n", stderr);
        return 2;
    }
    struct work w = {.rows = atoll(argv[4])};
    struct err e = {0};
    struct device_tally tally = {0};
    open_model(&w, argv[1], argv[2]);
    read_tokens(&w, argv[3]);
    struct model_batch batch = {.token = w.token, .label = w.label, .rows = w.rows};
    model_train(w.model, w.params, w.grads, &batch, 1.0f / (float)w.rows, &tally, NULL, NULL);
    call_must_succeed(w.device->ops->wait(w.device, &e), &e);
    logits_decode(&w);
    write_out(&w, argv[5], (float)(tally.loss / (double)w.rows));
    return 0;
}
