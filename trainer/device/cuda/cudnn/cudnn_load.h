#ifndef DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_LOAD_H
#define DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_LOAD_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* cuDNN's backend interface. The library is opened at run time, when it is first needed; without it everything else
 * works. The text of an error names the function, cuDNN's name for the status and cuDNN's own explanation. */

struct cudnn {
    size_t (*version)(void);
    const char *(*status_text)(cudnnStatus_t status);
    void (*last_error)(char *text, size_t cap);
    cudnnStatus_t (*create)(cudnnHandle_t *handle);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*make)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out);
    cudnnStatus_t (*unmake)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t cap, int64_t *count, void *values);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack);
};

/* UNAVAILABLE: there is no library, or its version is not 9.1 or a later 9. The library stays open. */
MUST_CHECK enum err_code cudnn_load(struct cudnn *lib, struct err *e);

#endif
