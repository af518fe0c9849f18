/* A stand-in for the part of cuDNN that the plugin uses, for machines without a GPU. A plan keeps the graph of
 * operations, and executes one operation after another on the emulated stream. This tests what the graph computes and
 * which arguments the plugin passes. The real library works differently: it has kernels for certain whole graphs.
 *
 * The file is linked instead of cudnn_load.c. The heuristic proposes two engines, and the first declares that its
 * bits may differ from run to run: the plugin must not take it. Plans for contexts below 8 are refused, with an error
 * that cudaGetLastError still returns afterwards. Each plan needs a workspace of 1000 bytes, which it overwrites. */
#include <cudnn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulate.h"
#include "trainer/device/cuda/cudnn/cudnn_load.h"

enum { ATTRIBUTES = 12, TENSORS = 64, OPERATIONS = 32, WORKSPACE = 1000 };

struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t count;
    size_t size; /* bytes of one value */
    void *values;
};
struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final;
    int engine;
    struct attribute attribute[ATTRIBUTES];
    int attributes;
    struct program *program; /* plans only */
};

/* ---- programs */

struct tensor {
    /* reach: number of elements from the first to the last in memory */
    int64_t number, dim[4], stride[4], reach;
    cudnnDataType_t type;
    bool is_virtual, by_value;
};
struct operation {
    cudnnBackendDescriptorType_t type;
    int mode; /* pointwise operations and reductions: cuDNN's mode */
    int64_t axis;
    int a, b, t, y; /* indices of tensors; -1: the operation has no such tensor */
};
struct program {
    int engine, tensors, operations;
    struct tensor tensor[TENSORS];
    struct operation operation[OPERATIONS];
};
struct running {
    struct program program;
    void *pointer[TENSORS]; /* tensors that are neither virtual nor passed by value */
    float value[TENSORS];   /* tensors that are passed by value */
    void *workspace;
};

static void standin_die(const char *why)
{
    (void)fprintf(stderr, "stand-in cuDNN: %s\n", why);
    abort();
}

static void *pointer_checked(void *p)
{
    if (!p)
        standin_die("no memory");
    return p;
}

/* ---- executing a program, in float */

static float element_load(const void *at, int64_t i, cudnnDataType_t type)
{
    if (type == CUDNN_DATA_FLOAT)
        return ((const float *)at)[i];
    if (type != CUDNN_DATA_BFLOAT16)
        standin_die("a type it cannot read");
    uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float value_rounded(float x, cudnnDataType_t type)
{
    uint32_t bits;
    if (type != CUDNN_DATA_BFLOAT16)
        return x;
    memcpy(&bits, &x, sizeof(bits));
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void element_store(void *at, int64_t i, cudnnDataType_t type, float x)
{
    uint32_t bits;
    x = value_rounded(x, type);
    memcpy(&bits, &x, sizeof(bits));
    if (type == CUDNN_DATA_FLOAT)
        ((float *)at)[i] = x;
    else
        ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
}

/* Returns the offset of index i. A dimension of size 1 is broadcast: its index counts as 0. */
static int64_t element_offset(const struct tensor *t, const int64_t i[4])
{
    int64_t at = 0;
    for (int d = 0; d < 4; d++)
        at += t->dim[d] == 1 ? 0 : i[d] * t->stride[d];
    return at;
}

static float pointwise_value(int mode, float x, float b, float t, const int64_t i[4], int64_t axis)
{
    switch (mode) {
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b ? 1.0f : 0.0f;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0.0f ? x : b;
    case CUDNN_POINTWISE_GEN_INDEX:
        return (float)i[axis];
    default:
        standin_die("a mode it does not know");
        return 0.0f;
    }
}

/* Calls each(i) for every index of a shape. */
#define EACH(dim, i)                                                                                         \
    for (int64_t i[4] = {0}; i[0] < (dim)[0]; i[0]++)                                                        \
        for (i[1] = 0; i[1] < (dim)[1]; i[1]++)                                                              \
            for (i[2] = 0; i[2] < (dim)[2]; i[2]++)                                                          \
                for (i[3] = 0; i[3] < (dim)[3]; i[3]++)

static void do_pointwise(const struct program *p, const struct operation *o, float *const *data)
{
    const struct tensor *a = &p->tensor[o->a], *y = &p->tensor[o->y];
    EACH(y->dim, i)
    {
        float b = o->b < 0 ? 0.0f : data[o->b][element_offset(&p->tensor[o->b], i)];
        float t = o->t < 0 ? 0.0f : data[o->t][element_offset(&p->tensor[o->t], i)];
        data[o->y][element_offset(y, i)] = value_rounded(
            pointwise_value(o->mode, data[o->a][element_offset(a, i)], b, t, i, o->axis), y->type);
    }
}

static void do_product(const struct program *p, const struct operation *o, float *const *data)
{
    const struct tensor *a = &p->tensor[o->a], *b = &p->tensor[o->b], *y = &p->tensor[o->y];
    if (a->dim[3] != b->dim[2] || y->dim[2] != a->dim[2] || y->dim[3] != b->dim[3])
        standin_die("a product of matrices that do not fit");
    EACH(y->dim, i)
    {
        float sum = 0.0f;
        for (int64_t k = 0; k < a->dim[3]; k++)
            sum += value_rounded(data[o->a][element_offset(a, (int64_t[4]){i[0], i[1], i[2], k})],
                                 CUDNN_DATA_BFLOAT16) *
                   value_rounded(data[o->b][element_offset(b, (int64_t[4]){i[0], i[1], k, i[3]})],
                                 CUDNN_DATA_BFLOAT16);
        data[o->y][element_offset(y, i)] = value_rounded(sum, y->type);
    }
}

static void do_reduction(const struct program *p, const struct operation *o, float *const *data)
{
    const struct tensor *a = &p->tensor[o->a], *y = &p->tensor[o->y];
    bool most = o->mode == CUDNN_REDUCE_TENSOR_MAX;
    EACH(y->dim, i)
    data[o->y][element_offset(y, i)] = most ? -INFINITY : 0.0f;
    EACH(a->dim, i)
    {
        float x = data[o->a][element_offset(a, i)], *to = &data[o->y][element_offset(y, i)];
        *to = most ? fmaxf(*to, x) : *to + x;
    }
}

/* Copies the elements in memory order: only the shape changes. */
static void do_reshape(const struct program *p, const struct operation *o, float *const *data)
{
    const struct tensor *a = &p->tensor[o->a], *y = &p->tensor[o->y];
    if (a->reach != y->reach)
        standin_die("a reshape to another size");
    for (int64_t i = 0; i < y->reach; i++)
        data[o->y][i] = value_rounded(data[o->a][i], y->type);
}

/* Returns whether tensor i does not overlap the workspace. */
static bool workspace_apart(const struct running *r, int i)
{
    const struct tensor *t = &r->program.tensor[i];
    const char *from = r->pointer[i], *to = from + t->reach * (t->type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
    const char *workspace = r->workspace;
    return t->is_virtual || t->by_value || to <= workspace || workspace + WORKSPACE <= from;
}

static bool program_run(void *closure)
{
    struct running *r = closure;
    const struct program *p = &r->program;
    float *data[TENSORS] = {0};
    bool written[TENSORS] = {0};
    if (p->engine == 0)
        standin_die("the engine whose bits vary was taken");
    memset(r->workspace, 0xff, WORKSPACE);
    for (int i = 0; i < p->tensors; i++) {
        const struct tensor *t = &p->tensor[i];
        if (!workspace_apart(r, i))
            standin_die("a tensor lies in the workspace");
        data[i] = pointer_checked(calloc((size_t)t->reach, sizeof(float)));
        if (t->by_value)
            data[i][0] = r->value[i];
        else if (!t->is_virtual)
            for (int64_t j = 0; j < t->reach; j++)
                data[i][j] = element_load(r->pointer[i], j, t->type);
    }
    for (int i = 0; i < p->operations; i++) {
        const struct operation *o = &p->operation[i];
        if (o->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            do_pointwise(p, o, data);
        else if (o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            do_product(p, o, data);
        else if (o->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            do_reduction(p, o, data);
        else
            do_reshape(p, o, data);
        written[o->y] = true;
    }
    for (int i = 0; i < p->tensors; i++) {
        const struct tensor *t = &p->tensor[i];
        if (written[i] && !t->is_virtual)
            EACH(t->dim, j)
        element_store(r->pointer[i], element_offset(t, j), t->type, data[i][element_offset(t, j)]);
        free(data[i]);
    }
    memset(r->workspace, 0xff, WORKSPACE);
    return true;
}

/* ---- from descriptors to a program */

static const struct attribute *attribute_find(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->attributes; i++)
        if (d->attribute[i].name == name)
            return &d->attribute[i];
    return NULL;
}

static int64_t number_of(const struct descriptor *d, cudnnBackendAttributeName_t name, int64_t without)
{
    const struct attribute *a = attribute_find(d, name);
    if (!a)
        return without;
    if (a->size == 8)
        return *(const int64_t *)a->values;
    return a->size == 1 ? *(const bool *)a->values : *(const int *)a->values;
}

static struct descriptor *part_of(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct attribute *a = attribute_find(d, name);
    return a ? *(struct descriptor **)a->values : NULL;
}

static int tensor_of(struct program *p, const struct descriptor *d)
{
    if (!d)
        return -1;
    struct tensor t = {.number = number_of(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, -1),
                       .type = (cudnnDataType_t)number_of(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1),
                       .is_virtual = number_of(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0),
                       .by_value = number_of(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0),
                       .reach = 1};
    for (int i = 0; i < p->tensors; i++)
        if (p->tensor[i].number == t.number)
            return i;
    memcpy(t.dim, attribute_find(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->values, sizeof(t.dim));
    memcpy(t.stride, attribute_find(d, CUDNN_ATTR_TENSOR_STRIDES)->values, sizeof(t.stride));
    for (int i = 0; i < 4; i++)
        t.reach += (t.dim[i] - 1) * t.stride[i];
    if (p->tensors == TENSORS)
        standin_die("too many tensors");
    p->tensor[p->tensors] = t;
    return p->tensors++;
}

static struct operation operation_of(struct program *p, const struct descriptor *d)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        int how, mode, a, b, t, y; /* cuDNN's attribute names; -1: the operation has no such attribute */
    } rows[] = {
        {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
         CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
         CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
         CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
        {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, -1,
         CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, -1,
         CUDNN_ATTR_OPERATION_MATMUL_CDESC},
        {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
         CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, -1, -1,
         CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
        {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, -1, -1, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, -1, -1,
         CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].type != d->type)
            continue;
        const struct descriptor *how =
            rows[i].how >= 0 ? part_of(d, (cudnnBackendAttributeName_t)rows[i].how) : d;
        struct operation o = {.type = d->type, .mode = -1, .b = -1, .t = -1};
        if (!how)
            standin_die("an operation that does not say how");
        if (rows[i].mode >= 0)
            o.mode = (int)number_of(how, (cudnnBackendAttributeName_t)rows[i].mode, -1);
        o.axis = number_of(how, CUDNN_ATTR_POINTWISE_AXIS, -1);
        o.a = tensor_of(p, part_of(d, (cudnnBackendAttributeName_t)rows[i].a));
        if (rows[i].b >= 0)
            o.b = tensor_of(p, part_of(d, (cudnnBackendAttributeName_t)rows[i].b));
        if (rows[i].t >= 0)
            o.t = tensor_of(p, part_of(d, (cudnnBackendAttributeName_t)rows[i].t));
        o.y = tensor_of(p, part_of(d, (cudnnBackendAttributeName_t)rows[i].y));
        return o;
    }
    standin_die("an operation it does not know");
    return (struct operation){0};
}

struct cudnnContext {
    cudaStream_t stream;
};

/* Aborts if the plan is made during a capture: the real library would load compiled kernels then, which CUDA
 * forbids. */
static void not_captured(const struct descriptor *plan)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const struct attribute *a = attribute_find(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    if (a && cudaStreamIsCapturing((*(cudnnHandle_t *)a->values)->stream, &status) == cudaSuccess &&
        status != cudaStreamCaptureStatusNone)
        standin_die("a plan was made while work was recorded");
}

/* Only engine 5 can be asked for by hand, with two settings: as for Blackwell. */
static cudnnStatus_t config_finish(struct descriptor *config)
{
    static const int64_t wanted[][2] = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}};
    const struct descriptor *engine = part_of(config, CUDNN_ATTR_ENGINECFG_ENGINE);
    const struct attribute *knobs = attribute_find(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES), *all;
    if (!engine || !knobs || knobs->count != 2)
        return CUDNN_STATUS_BAD_PARAM;
    all = attribute_find(part_of(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS);
    for (int i = 0; i < 2; i++) {
        const struct descriptor *knob = ((struct descriptor **)knobs->values)[i];
        if (number_of(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, -1) != wanted[i][0] ||
            number_of(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, -1) != wanted[i][1])
            return CUDNN_STATUS_NOT_SUPPORTED;
    }
    config->engine = (int)number_of(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    config->final = false; /* until the operations are part of it */
    (void)cudnnBackendSetAttribute(config, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   all->count, all->values);
    config->final = true;
    return config->engine == 5 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t plan_finish(struct descriptor *plan)
{
    const struct descriptor *config = part_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const struct attribute *all = attribute_find(config, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (!attribute_find(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
        return CUDNN_STATUS_BAD_PARAM;
    not_captured(plan);
    plan->program = pointer_checked(calloc(1, sizeof(*plan->program)));
    plan->program->engine = config->engine;
    for (int64_t i = 0; i < all->count; i++)
        plan->program->operation[plan->program->operations++] =
            operation_of(plan->program, ((struct descriptor **)all->values)[i]);
    if (plan->program->tensor[0].dim[2] >= 8)
        return CUDNN_STATUS_SUCCESS;
    (void)cudaEventDestroy(NULL);
    return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
}

/* ---- the library */

size_t cudnnGetVersion(void)
{
    const char *described = getenv("DDP_STANDIN_CUDNN_VERSION");
    return described ? strtoul(described, NULL, 10) : 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_NOT_SUPPORTED_SHAPE ? "CUDNN_STATUS_NOT_SUPPORTED_SHAPE" : "another";
}

void cudnnGetLastErrorString(char *message, size_t cap)
{
    (void)snprintf(message, cap, "of the stand-in");
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = pointer_checked(calloc(1, sizeof(**handle)));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    struct descriptor *d = pointer_checked(calloc(1, sizeof(*d)));
    d->type = type;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    struct descriptor *d = descriptor;
    for (int i = 0; i < d->attributes; i++)
        free(d->attribute[i].values);
    free(d->program);
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
        return 1;
    default:
        return 4;
    }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    struct descriptor *d = descriptor;
    if (d->final || d->attributes == ATTRIBUTES || attribute_find(d, name))
        return CUDNN_STATUS_BAD_PARAM;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < count; i++)
            if (!((struct descriptor *const *)values)[i]->final)
                return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    struct attribute *a = &d->attribute[d->attributes++];
    *a = (struct attribute){name, count, size_of(type),
                            pointer_checked(malloc(size_of(type) * (size_t)count))};
    memcpy(a->values, values, a->size * (size_t)count);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    struct descriptor *d = descriptor;
    d->final = true;
    if (d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        return config_finish(d);
    return d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ? plan_finish(d) : CUDNN_STATUS_SUCCESS;
}

/* Fills in the two engine configurations that a heuristic proposes. Each refers to the operations of the graph. */
static void engines_propose(const struct descriptor *ask, struct descriptor *const *config, int64_t *count)
{
    const struct attribute *all =
        attribute_find(part_of(ask, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS);
    *count = 2;
    for (int i = 0; i < 2; i++) {
        (void)cudnnBackendSetAttribute(config[i], CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, all->count, all->values);
        config[i]->engine = i;
        config[i]->final = true;
    }
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t cap, int64_t *count, void *values)
{
    struct descriptor *d = descriptor;
    (void)type;
    *count = 1;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        if (cap < 2)
            return CUDNN_STATUS_BAD_PARAM;
        engines_propose(d, values, count);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct descriptor **)values)->engine = d->engine;
        break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *(int64_t *)values = d->engine;
        break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *(cudnnBackendNumericalNote_t *)values =
            d->engine ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE : CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        break;
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)values = WORKSPACE;
        break;
    default:
        return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    const struct descriptor *with = pack;
    const struct attribute *numbers = attribute_find(with, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct attribute *pointers = attribute_find(with, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    struct running r = {.program = *((struct descriptor *)plan)->program,
                        .workspace = part_of(with, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)};
    for (int i = 0; i < r.program.tensors; i++) {
        const struct tensor *t = &r.program.tensor[i];
        for (int64_t j = 0; j < numbers->count; j++)
            if (((const int64_t *)numbers->values)[j] == t->number)
                r.pointer[i] = ((void *const *)pointers->values)[j];
        if (t->is_virtual)
            continue;
        if (!r.pointer[i] || (!t->by_value && (uintptr_t)r.pointer[i] % 16))
            return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
        if (t->by_value)
            memcpy(&r.value[i], r.pointer[i], sizeof(float));
    }
    return emulated_enqueue(handle->stream, "cuDNN", program_run, &r, sizeof(r)) == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}

enum err_code cudnn_load(struct cudnn *lib, struct err *e)
{
    (void)e;
    *lib = (struct cudnn){cudnnGetVersion,
                          cudnnGetErrorString,
                          cudnnGetLastErrorString,
                          cudnnCreate,
                          cudnnDestroy,
                          cudnnSetStream,
                          cudnnBackendCreateDescriptor,
                          cudnnBackendDestroyDescriptor,
                          cudnnBackendFinalize,
                          cudnnBackendSetAttribute,
                          cudnnBackendGetAttribute,
                          cudnnBackendExecute};
    return ERR_OK;
}
