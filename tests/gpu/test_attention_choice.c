/* Tests which kernels compute attention, and what is logged about them, with a stand-in that plays several versions of
 * cuDNN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/device/cuda/attention.h"

struct choice {
    const char *version; /* of cuDNN; NULL: DDP_CUDNN=0 */
    int64_t context;
    enum device_type type;
    bool dropout;
    const char *forward, *backward, *brief; /* how what is told begins */
};

static struct device_attention_text choose(const struct choice *c)
{
    struct device_sizes sizes = {
        .n = {2, c->context, 128}, .heads = 2, .type = c->type, .dropout = c->dropout};
    struct device_attention_text told;
    struct attention *a = NULL;
    cudaStream_t stream;
    struct err e = {0};
    if (c->version)
        setenv("DDP_STANDIN_CUDNN_VERSION", c->version, 1);
    else
        setenv("DDP_CUDNN", "0", 1);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(attention_open(&a, stream, &e), ERR_OK);
    attention_tell(a, &told);
    assert_string_equal(told.values, "");
    assert_int_equal(attention_reserve(a, &sizes, &e), ERR_OK);
    attention_tell(a, &told);
    attention_free(a);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    unsetenv("DDP_STANDIN_CUDNN_VERSION");
    unsetenv("DDP_CUDNN");
    return told;
}

static void choices_check(const struct choice *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct device_attention_text told = choose(&rows[i]);
        CLEANUP(free_text) char *start = xasprintf("%s ", rows[i].forward);
        CLEANUP(free_text) char *middle = xasprintf(" %s ", rows[i].backward);
        const char *backward = strstr(told.values, " backward=");
        if (strncmp(told.values, start, strlen(start)) != 0 || !backward ||
            strncmp(backward, middle, strlen(middle)) != 0 || strcmp(told.brief, rows[i].brief) != 0)
            fail_msg("row %zu: told %s, brief %s", i, told.values, told.brief);
        assert_non_null(strstr(told.values, " workspace_bytes="));
    }
}

#define BY(pass, version) pass "=\"cuDNN " version "\" " pass "_engine=1"
#define OWN(pass, why) pass "=own " pass "_why=\"" why "\""
#define TAIL "before 9.15.1 cuDNN's gradient is wrong for a context that is not a multiple of 128"
#define NEVER "cuDNN 9.10.0 and 9.10.1 compute attention in bf16 wrongly, use 9.10.2 or newer"
#define ALONE "cuDNN does not support a context of 1"

static void versions_that_compute_wrongly_are_not_used(void **state)
{
    static const struct choice rows[] = {
        {"91900", 1024, DEVICE_BF16, false, BY("forward", "9.19.0"), BY("backward", "9.19.0"),
         "cuDNN 9.19.0"},
        {"91900", 1000, DEVICE_BF16, false, BY("forward", "9.19.0"), BY("backward", "9.19.0"),
         "cuDNN 9.19.0"},
        {"91501", 1000, DEVICE_BF16, false, BY("forward", "9.15.1"), BY("backward", "9.15.1"),
         "cuDNN 9.15.1"},
        {"91500", 1024, DEVICE_BF16, false, BY("forward", "9.15.0"), BY("backward", "9.15.0"),
         "cuDNN 9.15.0"},
        {"91500", 1000, DEVICE_BF16, false, BY("forward", "9.15.0"), OWN("backward", TAIL), "own kernels"},
        {"90100", 64, DEVICE_BF16, false, BY("forward", "9.1.0"), OWN("backward", TAIL), "own kernels"},
        {"91002", 1024, DEVICE_BF16, false, BY("forward", "9.10.2"), BY("backward", "9.10.2"),
         "cuDNN 9.10.2"},
        {"91000", 1024, DEVICE_BF16, false, OWN("forward", NEVER), OWN("backward", NEVER), "own kernels"},
        {"91001", 1024, DEVICE_BF16, false, OWN("forward", NEVER), OWN("backward", NEVER), "own kernels"},
        {"91900", 1, DEVICE_BF16, false, OWN("forward", ALONE), OWN("backward", ALONE), "own kernels"},
    };
    (void)state;
    choices_check(rows, ARRAY_LEN(rows));
}

#define SHAPE "cuDNN: only bf16 without dropout, head sizes in steps of 8"

static void reasons_are_told(void **state)
{
    static const struct choice rows[] = {
        {NULL, 1024, DEVICE_BF16, false, OWN("forward", "cuDNN: DDP_CUDNN=0"),
         OWN("backward", "cuDNN: DDP_CUDNN=0"), "own kernels"},
        {"91900", 1024, DEVICE_BF16, true, OWN("forward", SHAPE), OWN("backward", SHAPE), "own kernels"},
        {"91900", 1024, DEVICE_F32, false, "forward=plain forward_why=\"" SHAPE "\"",
         "backward=plain backward_why=\"" SHAPE "\"", "plain kernels"},
    };
    (void)state;
    choices_check(rows, ARRAY_LEN(rows));
}

/* For Blackwell cuDNN proposes only a general engine, so the plugin names an engine itself. */
static void blackwell_has_an_engine_of_its_own(void **state)
{
    static const struct {
        const char *capability, *version, *backward;
    } rows[] = {
        {"100", "91900", "backward=\"cuDNN 9.19.0\" backward_engine=5 "},
        {"103", "91800", "backward=\"cuDNN 9.18.0\" backward_engine=5 "},
        {"100", "91700", "backward=\"cuDNN 9.17.0\" backward_engine=1 "},
        {"90", "91900", "backward=\"cuDNN 9.19.0\" backward_engine=1 "},
        /* The stand-in accepts only the settings of 9.18; otherwise an engine that it proposes is used. */
        {"100", "92300", "backward=\"cuDNN 9.23.0\" backward_engine=1 "},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct choice c = {.version = rows[i].version, .context = 1024, .type = DEVICE_BF16};
        setenv("DDP_EMULATED_CAPABILITY", rows[i].capability, 1);
        struct device_attention_text told = choose(&c);
        unsetenv("DDP_EMULATED_CAPABILITY");
        assert_non_null(strstr(told.values, " forward_engine=1 "));
        assert_non_null(strstr(told.values, rows[i].backward));
    }
}

/* Plans are made in the background. Each of these calls waits for them. */
static void plans_are_waited_for(void **state)
{
    struct device_sizes sizes = {.n = {2, 64, 128}, .heads = 2, .type = DEVICE_BF16};
    struct device_attention h = {.n = sizes.n, .heads = 2, .kept = DEVICE_BF16};
    size_t bytes = 2 * 64 * 128 * 3 * 2;
    struct device_attention_text told;
    void *qkv = NULL, *o = NULL, *lse = NULL;
    struct attention *a = NULL;
    cudaStream_t stream;
    struct err e = {0};
    (void)state;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMalloc(&qkv, bytes), cudaSuccess);
    assert_int_equal(cudaMalloc(&o, bytes), cudaSuccess);
    assert_int_equal(cudaMalloc(&lse, bytes), cudaSuccess);
    assert_int_equal(cudaMemset(qkv, 0, bytes), cudaSuccess);
    h.qkv = qkv;
    h.o = o;
    h.lse = lse;
    for (int way = 0; way < 4; way++) {
        assert_int_equal(attention_open(&a, stream, &e), ERR_OK);
        assert_int_equal(attention_reserve(a, &sizes, &e), ERR_OK);
        if (way == 1) /* a larger shape, while the plans of the first are made */
            sizes.n.rows = h.n.rows = 4;
        if (way == 1)
            assert_int_equal(attention_reserve(a, &sizes, &e), ERR_OK);
        if (way == 1)
            sizes.n.rows = h.n.rows = 2;
        if (way == 2) { /* waited for beforehand, as before a recording */
            attention_settle(a);
            size_t before = attention_bytes(a);
            cudaGraph_t graph = NULL;
            assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
            assert_int_equal(attention_forward(a, &h, &e), ERR_OK);
            assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
            assert_int_equal(strncmp(attention_path(a), "cuDNN", 5), 0);
            assert_int_equal(attention_bytes(a), before);
            assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
        }
        if (way != 3) { /* 3: freed while its plans are made */
            assert_int_equal(attention_forward(a, &h, &e), ERR_OK);
            assert_int_equal(strncmp(attention_path(a), "cuDNN", 5), 0);
            attention_tell(a, &told);
            assert_string_equal(told.brief, "cuDNN 9.19.0");
        }
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        attention_free(a);
    }
    void *all[] = {qkv, o, lse};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        assert_int_equal(cudaFree(all[i]), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_that_compute_wrongly_are_not_used),
        cmocka_unit_test(reasons_are_told),
        cmocka_unit_test(blackwell_has_an_engine_of_its_own),
        cmocka_unit_test(plans_are_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
