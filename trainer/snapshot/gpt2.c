#include "trainer/snapshot/gpt2.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define CONFIG_LIMIT ((size_t)1 << 20)
#define SYMBOLS_KEY "ddp_symbols" /* a key of ddp's own: Hugging Face keeps keys that it does not know */
#define NORM_EPSILON 1e-5         /* epsilon of every layer norm, in ddp and in the models that it reads */

static const char *activation_name(const struct train_spec *spec)
{
    return spec->model.activation == ACTIVATION_GELU ? "gelu" : "gelu_new";
}

void gpt2_config_print(struct buf *out, const struct train_spec *spec, int64_t vocab)
{
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_open(&o, "architectures", '[');
    jout_text(&o, NULL, "GPT2LMHeadModel");
    jout_close(&o, ']');
    jout_text(&o, "model_type", "gpt2");
    jout_int(&o, "vocab_size", vocab);
    jout_int(&o, "n_positions", spec->model.context);
    jout_int(&o, "n_ctx", spec->model.context);
    jout_int(&o, "n_embd", spec->model.width);
    jout_int(&o, "n_layer", spec->model.layers);
    jout_int(&o, "n_head", spec->model.heads);
    jout_raw(&o, "n_inner", "null");
    jout_text(&o, "activation_function", activation_name(spec));
    jout_real(&o, "resid_pdrop", spec->model.dropout);
    jout_real(&o, "embd_pdrop", spec->model.dropout);
    jout_real(&o, "attn_pdrop", spec->model.dropout);
    jout_real(&o, "layer_norm_epsilon", NORM_EPSILON);
    jout_real(&o, "initializer_range", 0.02);
    jout_bool(&o, "tie_word_embeddings", spec->model.tied);
    jout_raw(&o, "bos_token_id", "null");
    jout_raw(&o, "eos_token_id", "null");
    jout_text(&o, "torch_dtype", "float32");
    if (spec->data.type == DATA_TEXT)
        jout_text(&o, SYMBOLS_KEY, spec->data.symbols == SYMBOL_BYTE ? "byte" : "character");
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

static enum err_code read_sizes(const char *path, const json_t *root, struct train_spec *spec, struct err *e)
{
    const struct {
        const char *key;
        /* Largest accepted value: larger than in any model, and products of the sizes do not overflow. */
        int64_t *to, most;
    } sizes[] = {
        {"vocab_size", &spec->model.vocab, 1 << 24}, {"n_positions", &spec->model.context, 1 << 24},
        {"n_embd", &spec->model.width, 1 << 20},     {"n_layer", &spec->model.layers, 4096},
        {"n_head", &spec->model.heads, 1 << 20},
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        *sizes[i].to = json_get_int(root, sizes[i].key, 0);
        if (*sizes[i].to < 1 || *sizes[i].to > sizes[i].most)
            return err_set(e, ERR_FAILED_PRECONDITION,
                           "%s: invalid value for '%s': expected a number from 1 to %lld", path, sizes[i].key,
                           (long long)sizes[i].most);
    }
    if (spec->model.width % spec->model.heads)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: invalid value for 'n_embd': expected a multiple of n_head (%lld), got %lld", path,
                       (long long)spec->model.heads, (long long)spec->model.width);
    int64_t inner = json_get_int(root, "n_inner", 0);
    if (inner && inner != 4 * spec->model.width)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: invalid value for 'n_inner': expected 4 x n_embd (%lld), got %lld", path,
                       (long long)(4 * spec->model.width), (long long)inner);
    return ERR_OK;
}

static void read_symbols(const json_t *root, struct train_spec *spec)
{
    const char *symbols = json_get_text(root, SYMBOLS_KEY, "");
    bool byte = !strcmp(symbols, "byte");
    spec->data.type = byte || !strcmp(symbols, "character") ? DATA_TEXT : DATA_TOKENS;
    spec->data.symbols = byte ? SYMBOL_BYTE : SYMBOL_CHARACTER;
}

static enum err_code read_kind(const char *path, const json_t *root, struct train_spec *spec, struct err *e)
{
    const char *activation = json_get_text(root, "activation_function", "gelu_new");
    if (strcmp(json_get_text(root, "model_type", "gpt2"), "gpt2"))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: invalid value for 'model_type': expected gpt2, got '%.40s'", path,
                       json_get_text(root, "model_type", ""));
    if (!strcmp(activation, "gelu"))
        spec->model.activation = ACTIVATION_GELU;
    else if (!strcmp(activation, "gelu_new") || !strcmp(activation, "gelu_pytorch_tanh"))
        spec->model.activation = ACTIVATION_GELU_TANH;
    else
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: invalid value for 'activation_function': expected gelu, gelu_new or "
                       "gelu_pytorch_tanh, got '%.40s'",
                       path, activation);
    if (fabs(json_get_real(root, "layer_norm_epsilon", NORM_EPSILON) - NORM_EPSILON) > 1e-9)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: invalid value for 'layer_norm_epsilon': expected %g, got %g", path, NORM_EPSILON,
                       json_get_real(root, "layer_norm_epsilon", NORM_EPSILON));
    if (json_get_bool(root, "scale_attn_by_inverse_layer_idx", false) ||
        !json_get_bool(root, "scale_attn_weights", true))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: unsupported scaling of attention: expected 'scale_attn_weights' true and "
                       "'scale_attn_by_inverse_layer_idx' false",
                       path);
    spec->model.tied = json_get_bool(root, "tie_word_embeddings", true);
    read_symbols(root, spec);
    return ERR_OK;
}

enum err_code gpt2_config_parse(struct train_spec *spec, const char *json, size_t size, const char *where,
                                struct err *e)
{
    CLEANUP(json_release) json_t *root = NULL;
    if (json_parse(json, size, CONFIG_LIMIT, &root, e)) {
        e->code = ERR_DATA_LOSS;
        return err_wrap(e, "%s", where);
    }
    if (!json_is_object(root))
        return err_set(e, ERR_DATA_LOSS, "%s: not an object", where);
    spec->model.type = MODEL_GPT;
    spec->model.dropout = 0.0;
    return read_kind(where, root, spec, e) ? e->code : read_sizes(where, root, spec, e);
}

enum err_code gpt2_config_read(const char *dir, struct train_spec *spec, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/config.json", dir);
    CLEANUP(buf_release) struct buf text = {0};
    if (!file_exists(path))
        return err_set(e, ERR_NOT_FOUND, "%s: not a language model: there is no config.json", dir);
    if (file_read(path, CONFIG_LIMIT, &text, e))
        return e->code;
    return gpt2_config_parse(spec, text.data ? text.data : "", text.len, path, e);
}
