/* cuDNN's backend descriptors: tensors, operations, engines and plans. See cudnn_graph.h. */
#include <string.h>

#include "trainer/device/cuda/cudnn/cudnn_graph.h"

enum { FIRST_VIRTUAL = 100 }; /* lower numbers belong to the caller's tensors */

enum err_code cudnn_failed(const struct cudnn *lib, cudnnStatus_t status, const char *what, struct err *e)
{
    /* cuDNN explains its last error in a text that may have several lines; a message has one. */
    char detail[256] = "";
    lib->last_error(detail, sizeof(detail));
    detail[sizeof(detail) - 1] = 0;
    for (char *c = detail; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    enum err_code code = ERR_INTERNAL;
    /* Thousands are the class of a status: each reason why something is not supported has a number of its own. */
    if (status / 1000 * 1000 == CUDNN_STATUS_NOT_SUPPORTED)
        code = ERR_UNIMPLEMENTED;
    else if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
             status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        code = ERR_RESOURCE_EXHAUSTED;
    else if (status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER)
        code = ERR_UNAVAILABLE;
    return err_set(e, code, "cuDNN: %s: %s%s%s", what, lib->status_text(status), detail[0] ? ": " : "",
                   detail);
}

void cudnn_graph_init(struct cudnn_graph *g, const struct cudnn *lib, struct err *e)
{
    memset(g, 0, sizeof(*g));
    g->lib = lib;
    g->next = FIRST_VIRTUAL;
    g->e = e;
}

void cudnn_graph_release(struct cudnn_graph *g)
{
    while (g->parts > 0)
        (void)g->lib->unmake(g->part[--g->parts]);
}

static void graph_check(struct cudnn_graph *g, cudnnStatus_t status, const char *what)
{
    if (!g->failed && status != CUDNN_STATUS_SUCCESS)
        g->failed = cudnn_failed(g->lib, status, what, g->e);
}

static cudnnBackendDescriptor_t descriptor_create(struct cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                                  const char *what)
{
    cudnnBackendDescriptor_t made = NULL;
    if (g->failed)
        return NULL;
    BUG_ON(g->parts == CUDNN_GRAPH_PARTS);
    graph_check(g, g->lib->make(type, &made), what);
    if (!g->failed)
        g->part[g->parts++] = made;
    return made;
}

static void descriptor_set_attribute(struct cudnn_graph *g, cudnnBackendDescriptor_t to,
                                     cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                     int64_t count, const void *values)
{
    if (!g->failed)
        graph_check(g, g->lib->set(to, name, type, count, values), "attribute");
}

static void set_part(struct cudnn_graph *g, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t part)
{
    descriptor_set_attribute(g, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void descriptor_finalize(struct cudnn_graph *g, cudnnBackendDescriptor_t made, const char *what)
{
    if (!g->failed)
        graph_check(g, g->lib->finalize(made), what);
}

/* ---- tensors */

static cudnnBackendDescriptor_t graph_tensor(struct cudnn_graph *g, int64_t number, cudnnDataType_t type,
                                             const struct cudnn_shape *shape, bool is_virtual, bool by_value)
{
    int64_t alignment = by_value ? 4 : 16;
    cudnnBackendDescriptor_t t = descriptor_create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    descriptor_set_attribute(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    descriptor_set_attribute(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape->dim);
    descriptor_set_attribute(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape->stride);
    descriptor_set_attribute(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    descriptor_set_attribute(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    descriptor_set_attribute(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    descriptor_set_attribute(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    descriptor_finalize(g, t, "tensor");
    return t;
}

cudnnBackendDescriptor_t cudnn_tensor(struct cudnn_graph *g, int64_t number, cudnnDataType_t type,
                                      const struct cudnn_shape *shape)
{
    return graph_tensor(g, number, type, shape, false, false);
}

cudnnBackendDescriptor_t cudnn_value(struct cudnn_graph *g, int64_t number, cudnnDataType_t type)
{
    return graph_tensor(g, number, type, &(struct cudnn_shape){{1, 1, 1, 1}, {1, 1, 1, 1}}, false, true);
}

cudnnBackendDescriptor_t cudnn_virtual(struct cudnn_graph *g, cudnnDataType_t type,
                                       const struct cudnn_shape *shape)
{
    return graph_tensor(g, g->next++, type, shape, true, false);
}

/* ---- operations */

static void graph_add_operation(struct cudnn_graph *g, cudnnBackendDescriptor_t operation, const char *what)
{
    descriptor_finalize(g, operation, what);
    if (g->failed)
        return;
    BUG_ON(g->operations == CUDNN_GRAPH_OPERATIONS);
    g->operation[g->operations++] = operation;
}

void cudnn_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t computed,
                     cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                     int64_t axis, cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t how = descriptor_create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise");
    descriptor_set_attribute(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    descriptor_set_attribute(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    if (axis >= 0)
        descriptor_set_attribute(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    descriptor_finalize(g, how, "pointwise");
    cudnnBackendDescriptor_t o =
        descriptor_create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise");
    set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t)
        set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    graph_add_operation(g, o, "pointwise operation");
}

void cudnn_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t by, cudnnBackendDescriptor_t x,
                  cudnnBackendDescriptor_t y)
{
    cudnnDataType_t computed = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = descriptor_create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
    descriptor_set_attribute(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                             &by);
    descriptor_set_attribute(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    descriptor_finalize(g, how, "reduction");
    cudnnBackendDescriptor_t o =
        descriptor_create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction");
    set_part(g, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_part(g, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_part(g, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    graph_add_operation(g, o, "reduction operation");
}

void cudnn_multiply(struct cudnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                    cudnnBackendDescriptor_t y)
{
    cudnnDataType_t computed = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = descriptor_create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul");
    descriptor_set_attribute(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    descriptor_finalize(g, how, "matmul");
    cudnnBackendDescriptor_t o = descriptor_create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul");
    set_part(g, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_part(g, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_part(g, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_part(g, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    graph_add_operation(g, o, "matmul operation");
}

void cudnn_reshape(struct cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t o = descriptor_create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape");
    set_part(g, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_part(g, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    graph_add_operation(g, o, "reshape operation");
}

/* ---- plans */

static cudnnBackendDescriptor_t graph_finalize(struct cudnn_graph *g, const struct cudnn_target *target)
{
    cudnnBackendDescriptor_t all = descriptor_create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    descriptor_set_attribute(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                             g->operations, g->operation);
    if (target->handle)
        descriptor_set_attribute(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                 &target->handle);
    descriptor_finalize(g, all, "graph");
    return all;
}

enum { ENGINES = 16 };

/* Asks cuDNN for engines, best first. Returns their number; the graph owns their configurations. */
static int graph_find_engines(struct cudnn_graph *g, const struct cudnn_target *target,
                              cudnnBackendDescriptor_t all, cudnnBackendDescriptor_t config[ENGINES])
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    cudnnBackendDescriptor_t ask = descriptor_create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristic");
    set_part(g, ask, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    descriptor_set_attribute(g, ask, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target->described)
        set_part(g, ask, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->described);
    descriptor_finalize(g, ask, "heuristic");
    /* cuDNN fills in descriptors that the caller has made. */
    for (int i = 0; i < ENGINES; i++)
        config[i] = descriptor_create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine");
    if (!g->failed)
        graph_check(g,
                    g->lib->get(ask, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES,
                                &count, config),
                    "heuristic");
    return g->failed ? 0 : count < ENGINES ? (int)count : ENGINES;
}

/* Describes an engine and its settings by hand. NULL: this version of cuDNN does not have them. */
static cudnnBackendDescriptor_t
graph_configure_engine(struct cudnn_graph *g, const struct cudnn_target *target, cudnnBackendDescriptor_t all)
{
    const struct cudnn_engine *first = target->first;
    cudnnBackendDescriptor_t knobs[CUDNN_KNOBS];
    struct err before = *g->e;
    cudnnBackendDescriptor_t engine = descriptor_create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    set_part(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, all);
    descriptor_set_attribute(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &first->number);
    if (target->described)
        set_part(g, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, target->described);
    descriptor_finalize(g, engine, "engine");
    for (int i = 0; i < first->knobs; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)first->knob[i].type;
        knobs[i] = descriptor_create(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "setting");
        descriptor_set_attribute(g, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                                 &type);
        descriptor_set_attribute(g, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                                 &first->knob[i].value);
        descriptor_finalize(g, knobs[i], "setting");
    }
    cudnnBackendDescriptor_t config = descriptor_create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine");
    set_part(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    descriptor_set_attribute(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                             first->knobs, knobs);
    descriptor_finalize(g, config, "engine");
    if (!g->failed)
        return config;
    /* The engines that cuDNN proposes are left. */
    g->failed = ERR_OK;
    *g->e = before;
    return NULL;
}

/* Reads the engine's number. Returns whether it gives the same bits every time. */
static bool engine_is_deterministic(struct cudnn_graph *g, cudnnBackendDescriptor_t config, int64_t *number)
{
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    cudnnBackendDescriptor_t engine = descriptor_create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    if (g->failed)
        return false;
    graph_check(
        g,
        g->lib->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
        "engine");
    if (!g->failed)
        graph_check(g,
                    g->lib->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, number),
                    "engine");
    if (!g->failed)
        graph_check(g,
                    g->lib->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, note),
                    "engine");
    /* An engine says of itself if its bits may change from run to run. */
    for (int64_t i = 0; !g->failed && i < count; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return !g->failed;
}

static cudnnStatus_t plan_compile_engine(const struct cudnn *lib, const struct cudnn_target *target,
                                         cudnnBackendDescriptor_t config, struct cudnn_plan *out)
{
    int64_t count = 0;
    cudnnBackendDescriptor_t plan = NULL;
    /* The workspace is read before the plan exists, so that it is known even if the driver cannot load the kernels. */
    cudnnStatus_t status =
        lib->get(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &out->workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (status == CUDNN_STATUS_SUCCESS && target->handle)
        status = lib->set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    if (status == CUDNN_STATUS_SUCCESS && target->described)
        status = lib->set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                          &target->described);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                          &config);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->finalize(plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                          &out->workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        out->plan = plan;
    else if (plan)
        (void)lib->unmake(plan);
    return status;
}

enum err_code cudnn_plan_make(struct cudnn_graph *g, const struct cudnn_target *target,
                              struct cudnn_plan *out, struct err *e)
{
    cudnnBackendDescriptor_t config[1 + ENGINES], first = NULL;
    struct cudnn_plan made = {0};
    cudnnBackendDescriptor_t all = graph_finalize(g, target);
    if (!g->failed && target->first)
        first = graph_configure_engine(g, target, all);
    config[0] = first;
    int proposed = graph_find_engines(g, target, all, config + (first != NULL)) + (first != NULL);
    if (g->failed)
        return g->failed;
    enum err_code code =
        err_set(e, ERR_UNIMPLEMENTED,
                "cuDNN: none of its %d engines for this graph gives the same bits every time", proposed);
    for (int i = 0; i < proposed; i++) {
        if (!engine_is_deterministic(g, config[i], &made.engine))
            continue;
        cudnnStatus_t status = plan_compile_engine(g->lib, target, config[i], &made);
        code = status == CUDNN_STATUS_SUCCESS ? ERR_OK : cudnn_failed(g->lib, status, "plan", e);
        /* UNAVAILABLE: the kernels compile, but the driver refuses them; out tells which engine that is. */
        if (!code || code == ERR_UNAVAILABLE) {
            *out = made;
            return code;
        }
    }
    return g->failed ? g->failed : code;
}

void cudnn_plan_release(const struct cudnn *lib, struct cudnn_plan *plan)
{
    if (plan->plan)
        (void)lib->unmake(plan->plan);
    plan->plan = NULL;
}

enum err_code cudnn_plan_run(const struct cudnn *lib, const struct cudnn_plan *plan, cudnnHandle_t handle,
                             int64_t count, const int64_t *numbers, void *const *pointers, void *workspace,
                             struct err *e)
{
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status = lib->make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->finalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->execute(handle, plan->plan, pack);
    enum err_code code = status == CUDNN_STATUS_SUCCESS ? ERR_OK : cudnn_failed(lib, status, "execution", e);
    if (pack)
        (void)lib->unmake(pack);
    return code;
}
