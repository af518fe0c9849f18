#ifndef DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_GRAPH_H
#define DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_GRAPH_H

#include "trainer/device/cuda/cudnn/cudnn_engine.h"
#include "trainer/device/cuda/cudnn/cudnn_load.h"

/* Translates a status. UNIMPLEMENTED: cuDNN does not support it. RESOURCE_EXHAUSTED: out of memory. UNAVAILABLE: the
 * driver refuses. Else INTERNAL. */
enum err_code cudnn_failed(const struct cudnn *lib, cudnnStatus_t status, const char *what, struct err *e);

/* A graph of operations. It keeps its first error; every later call on it does nothing. */

enum { CUDNN_GRAPH_PARTS = 192, CUDNN_GRAPH_OPERATIONS = 32 };
struct cudnn_graph {
    const struct cudnn *lib;
    cudnnBackendDescriptor_t
        part[CUDNN_GRAPH_PARTS]; /* all descriptors that were made; released with the graph */
    cudnnBackendDescriptor_t operation[CUDNN_GRAPH_OPERATIONS];
    int parts, operations;
    int64_t next; /* the next virtual tensor's number */
    enum err_code failed;
    struct err *e;
};

/* Tensors have four dimensions, (rows,heads,context,size), in elements. A virtual tensor exists only inside a kernel. A
 * value is one number that is read from the host at each call. */
struct cudnn_shape {
    int64_t dim[4], stride[4];
};

void cudnn_graph_init(struct cudnn_graph *g, const struct cudnn *lib, struct err *e);
void cudnn_graph_release(struct cudnn_graph *g);

/* number: the name of the tensor in the variant pack, from 1 to 99 */
cudnnBackendDescriptor_t cudnn_tensor(struct cudnn_graph *g, int64_t number, cudnnDataType_t type,
                                      const struct cudnn_shape *shape);
cudnnBackendDescriptor_t cudnn_value(struct cudnn_graph *g, int64_t number, cudnnDataType_t type);
cudnnBackendDescriptor_t cudnn_virtual(struct cudnn_graph *g, cudnnDataType_t type,
                                       const struct cudnn_shape *shape);

/* Each writes to y. b is NULL for operations with one operand; t is the mask of a selection, else NULL; axis is the
 * dimension of GEN_INDEX, else -1. */
void cudnn_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t computed,
                     cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                     int64_t axis, cudnnBackendDescriptor_t y);
void cudnn_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t by, cudnnBackendDescriptor_t x,
                  cudnnBackendDescriptor_t y);
void cudnn_multiply(struct cudnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                    cudnnBackendDescriptor_t y);
void cudnn_reshape(struct cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);

/* The device for which a plan is made: that of the handle or, if handle is NULL, a described one. */
struct cudnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t described;
    const struct cudnn_engine *first; /* tried before the engines that cuDNN proposes; NULL: none */
};
struct cudnn_plan {
    cudnnBackendDescriptor_t plan;
    int64_t engine, workspace; /* workspace: bytes */
};

/* Makes a plan with the first engine, in target's and then in cuDNN's order, that takes the graph and gives the same bits every time.
 * UNIMPLEMENTED: there is none. UNAVAILABLE: there is one and its kernels compile, but the driver does not load them;
 * out then holds the engine's number and workspace. */
MUST_CHECK enum err_code cudnn_plan_make(struct cudnn_graph *g, const struct cudnn_target *target,
                                         struct cudnn_plan *out, struct err *e);
void cudnn_plan_release(const struct cudnn *lib, struct cudnn_plan *plan);
MUST_CHECK enum err_code cudnn_plan_run(const struct cudnn *lib, const struct cudnn_plan *plan,
                                        cudnnHandle_t handle, int64_t count, const int64_t *numbers,
                                        void *const *pointers, void *workspace, struct err *e);

#endif
