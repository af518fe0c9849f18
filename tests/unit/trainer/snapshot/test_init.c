/* Tests the parameters that a run starts from: tensor names, types and config.json of Hugging Face and of
 * ddp. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/snapshot/gpt2.h"
#include "trainer/snapshot/init.h"
#include "trainer/snapshot/safetensors.h"

static char dir[64];
static const int64_t wte[] = {3, 2}, wpe[] = {2, 2}, bias[] = {2};
static const struct snapshot_tensor tensors[] = {{"transformer.wte.weight", 2, wte, 0, 6},
                                                 {"transformer.wpe.weight", 2, wpe, 16, 4},
                                                 {"transformer.ln_f.bias", 1, bias, 32, 2}};
static const struct snapshot_layout layout = {.tensors = tensors, .tensor_count = 3, .count = 48};

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ddp-init-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct err e;
    (void)state;
    return file_remove_tree(dir, &e) ? -1 : 0;
}

static void file_put(const char *name, const char *text, size_t size)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, text, size, 0600, &e), ERR_OK);
}

static void put_model(const char *header, const void *data, size_t size)
{
    CLEANUP(buf_release) struct buf file = {0};
    uint64_t length = strlen(header);
    buf_append(&file, &length, 8);
    buf_puts(&file, header);
    buf_append(&file, data, size);
    file_put("model.safetensors", file.data, file.len);
}

#define TENSOR(name, dtype, shape, from, to)                                                                 \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

/* The files of an old GPT-2: names without prefix, masks beside the parameters, more positions than the model
 * has, and three types. */
static void foreign_names_types_and_masks(void **state)
{
    static const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x3555};
    static const uint16_t brain[] = {0x3f80, 0xc000, 0x4040, 0x0080, 1, 2};
    static const float plain[] = {1.5f, -2.5f};
    static const float expect[] = {1.0f, -2.0f, 0x1p-24f, 65504.0f, -0.0f, 0x1.554p-2f};
    char data[12 + 12 + 4 + 8];
    float params[48] = {0};
    struct err e = {0};
    (void)state;
    memcpy(data, half, 12);
    memcpy(data + 12, brain, 12);
    memset(data + 24, 1, 4);
    memcpy(data + 28, plain, 8);
    put_model("{" TENSOR("wte.weight", "F16", "[3,2]", 0,
                         12) "," TENSOR("wpe.weight", "BF16", "[3,2]", 12,
                                        24) "," TENSOR("h.0.attn.bias", "BOOL", "[1,1,2,2]", 24,
                                                       28) "," TENSOR("ln_f.bias", "F32", "[2]", 28, 36) "}",
              data, sizeof(data));
    if (init_read(dir, &layout, params, &e))
        fail_msg("%s", e.msg);
    assert_memory_equal(params, expect, sizeof(expect));
    assert_true(signbit(params[4]));
    assert_true(params[16] == 1.0f && params[17] == -2.0f && params[18] == 3.0f && params[19] == 0x1p-126f);
    assert_true(params[20] == 0.0f); /* the third position is not used */
    assert_memory_equal(params + 32, plain, sizeof(plain));
}

static void file_refused(const char *header, size_t size, enum err_code code, const char *says)
{
    char data[64] = {0};
    float params[48] = {0};
    struct err e = {0};
    put_model(header, data, size);
    assert_int_equal(init_read(dir, &layout, params, &e), code);
    if (!strstr(e.msg, says))
        fail_msg("'%s' does not say '%s'", e.msg, says);
}

static void errors_name_the_tensor_that_does_not_fit(void **state)
{
    (void)state;
    file_refused("{" TENSOR("wte.weight", "F32", "[3,2]", 0, 24) "}", 24, ERR_NOT_FOUND,
                 "tensor 'transformer.wpe.weight' is missing");
    file_refused("{" TENSOR("wte.weight", "F32", "[4,2]", 0, 32) "," TENSOR(
                     "wpe.weight", "F16", "[2,2]", 32, 40) "," TENSOR("ln_f.bias", "F32", "[2]", 40, 48) "}",
                 48, ERR_FAILED_PRECONDITION, "tensor 'wte.weight': expected shape (3,2), got (4,2)");
    file_refused("{" TENSOR("wte.weight", "F16", "[3,2]", 0, 12) "," TENSOR(
                     "wpe.weight", "F16", "[1,2]", 12, 16) "," TENSOR("ln_f.bias", "F32", "[2]", 16, 24) "}",
                 24, ERR_FAILED_PRECONDITION, "expected shape (2,2), got (1,2)");
    file_refused("{" TENSOR("wte.weight", "F16", "[3,2]", 0, 12) "," TENSOR(
                     "wpe.weight", "F16", "[2,2]", 12, 20) "," TENSOR("ln_f.bias", "F64", "[2]", 20, 36) "}",
                 36, ERR_FAILED_PRECONDITION, "unsupported type, expected F32, F16 or BF16");
    file_refused("{" TENSOR("wte.weight", "F16", "[3,2]", 0, 12) "," TENSOR(
                     "wpe.weight", "F16", "[2,2]", 12,
                     20) "," TENSOR("ln_f.bias", "F32", "[2]", 20, 28) "," TENSOR("ln_f.gate", "F32", "[2]",
                                                                                  28, 36) "}",
                 36, ERR_FAILED_PRECONDITION, "unexpected tensor 'ln_f.gate'");
}

static void where_the_model_lies(void **state)
{
    CLEANUP(free_text) char *found = NULL;
    struct err e = {0};
    (void)state;
    assert_int_equal(init_find(dir, NULL, &found, &e), ERR_NOT_FOUND);
    file_put("pytorch_model.bin", "", 0);
    assert_int_equal(init_find(dir, NULL, &found, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "safe_serialization=True"));
    file_put("model.safetensors", "", 0);
    assert_int_equal(init_find(dir, NULL, &found, &e), ERR_OK);
    assert_string_equal(found, dir);
}

static void the_newest_committed_snapshot(void **state)
{
    CLEANUP(free_text) char *found = NULL;
    float flat[48] = {0};
    struct err e = {0};
    (void)state;
    for (int64_t step = 1; step <= 3; step++) {
        struct snapshot_place place = {.job = 1, .generation = 1, .step = step};
        struct snapshot_files files = {0};
        assert_int_equal(snapshot_write(dir, &layout, &place, flat, NULL, NULL, &files, &e), ERR_OK);
        if (step < 3)
            assert_int_equal(snapshot_mark_committed(&files, &place, &e), ERR_OK);
        snapshot_files_release(&files);
    }
    assert_int_equal(init_find(dir, NULL, &found, &e), ERR_OK);
    assert_non_null(strstr(found, "/step-2-g1"));
}

/* A snapshot's own directory, with and without COMMITTED.json. */
static void one_snapshot_by_itself(void **state)
{
    CLEANUP(free_text) char *found = NULL;
    float flat[48] = {0};
    struct err e = {0};
    struct snapshot_place place = {.job = 1, .generation = 1, .step = 7};
    struct snapshot_files files = {0};
    const char *strange = "0000000000000000000000000000000000000000000000000000000000000000";
    (void)state;
    assert_int_equal(snapshot_write(dir, &layout, &place, flat, NULL, NULL, &files, &e), ERR_OK);
    assert_int_equal(init_find(files.path, NULL, &found, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "step-7-g1: is not committed"));
    assert_int_equal(init_find(files.path, strange, &found, &e), ERR_DATA_LOSS);
    assert_int_equal(init_find(files.path, files.digest, &found, &e), ERR_OK);
    free(steal(found));
    /* A copy under another name is read as any other model, even if that name begins with the snapshot's. */
    CLEANUP(free_text) char *copy = xasprintf("%s.bak", files.path);
    assert_int_equal(rename(files.path, copy), 0);
    assert_int_equal(init_find(copy, NULL, &found, &e), ERR_OK);
    free(steal(found));
    assert_int_equal(rename(copy, files.path), 0);
    assert_int_equal(snapshot_mark_committed(&files, &place, &e), ERR_OK);
    assert_int_equal(init_find(files.path, strange, &found, &e), ERR_DATA_LOSS);
    assert_int_equal(init_find(files.path, files.digest, &found, &e), ERR_OK);
    free(found);
    assert_int_equal(init_find(files.path, NULL, &found, &e), ERR_OK);
    CLEANUP(free_text) char *more = xasprintf("%s/vocab.json", found);
    assert_int_equal(file_write_atomic(more, "{}", 2, 0600, &e), ERR_OK); /* the file did not exist before */
    free(steal(found));
    assert_int_equal(init_find(files.path, files.digest, &found, &e), ERR_DATA_LOSS);
    assert_non_null(strstr(e.msg, "vocab.json: not the file that was committed"));
    snapshot_files_release(&files);
}

static void config_reads_back(void **state)
{
    struct train_spec spec = {0}, back = {0};
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};
    (void)state;
    spec.model.layers = 3;
    spec.model.heads = 4;
    spec.model.width = 48;
    spec.model.context = 129;
    spec.model.activation = ACTIVATION_GELU_TANH;
    spec.model.tied = true;
    spec.data.type = DATA_TEXT;
    spec.data.symbols = SYMBOL_BYTE;
    gpt2_config_print(&text, &spec, 65);
    file_put("config.json", text.data, text.len);
    assert_int_equal(gpt2_config_read(dir, &back, &e), ERR_OK);
    assert_int_equal(back.model.type, MODEL_GPT);
    assert_int_equal(back.model.layers, 3);
    assert_int_equal(back.model.heads, 4);
    assert_int_equal(back.model.width, 48);
    assert_int_equal(back.model.context, 129);
    assert_int_equal(back.model.vocab, 65);
    assert_int_equal(back.model.activation, ACTIVATION_GELU_TANH);
    assert_true(back.model.tied);
    assert_int_equal(back.data.type, DATA_TEXT);
    assert_int_equal(back.data.symbols, SYMBOL_BYTE);
}

static void other_models_are_refused(void **state)
{
#define SIZES "\"vocab_size\":65,\"n_positions\":8,\"n_embd\":48,\"n_layer\":1,\"n_head\":4"
    static const struct {
        const char *json, *says;
        enum err_code code;
    } rows[] = {
        {"{\"model_type\":\"llama\"," SIZES "}", "'model_type': expected gpt2, got 'llama'",
         ERR_FAILED_PRECONDITION},
        {"{\"activation_function\":\"relu\"," SIZES "}", "gelu_pytorch_tanh, got 'relu'",
         ERR_FAILED_PRECONDITION},
        {"{\"layer_norm_epsilon\":0.1," SIZES "}", "expected 1e-05, got 0.1", ERR_FAILED_PRECONDITION},
        {"{\"n_inner\":100," SIZES "}", "'n_inner': expected 4 x n_embd (192), got 100",
         ERR_FAILED_PRECONDITION},
        {"{\"vocab_size\":65}", "'n_positions': expected a number from 1 to 16777216",
         ERR_FAILED_PRECONDITION},
        {"{\"vocab_size\":65,\"n_positions\":8,\"n_embd\":50,\"n_layer\":1,\"n_head\":4}",
         "expected a multiple of n_head (4), got 50", ERR_FAILED_PRECONDITION},
        {"{\"vocab_size\":65,\"n_positions\":8,\"n_embd\":48,\"n_layer\":2147483647,\"n_head\":4}",
         "'n_layer': expected a number from 1 to 4096", ERR_FAILED_PRECONDITION},
        {"{", "config.json", ERR_DATA_LOSS},
        {"[]", "not an object", ERR_DATA_LOSS},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct train_spec spec = {0};
        struct err e = {0};
        file_put("config.json", rows[i].json, strlen(rows[i].json));
        assert_int_equal(gpt2_config_read(dir, &spec, &e), rows[i].code);
        if (!strstr(e.msg, rows[i].says))
            fail_msg("'%s' does not say '%s'", e.msg, rows[i].says);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(foreign_names_types_and_masks), TEST(errors_name_the_tensor_that_does_not_fit),
        TEST(where_the_model_lies),          TEST(the_newest_committed_snapshot),
        TEST(one_snapshot_by_itself),        TEST(config_reads_back),
        TEST(other_models_are_refused),
    };
    return cmocka_run_group_tests_name("init", tests, NULL, NULL);
}
