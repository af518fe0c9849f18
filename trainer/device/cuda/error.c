/* Errors of CUDA, translated. */
#include "trainer/device/cuda/cuda.h"

/* Memory that cannot be corrected, a lost NVLink, and what a kernel can do wrong: CUDA's context is unusable
 * from then on. 704 and 705 in between are about access to peers. */
bool cuda_ends_context(cudaError_t code)
{
    int n = (int)code;
    return n == 214 || n == 220 || (n >= 700 && n <= 720 && n != 704 && n != 705);
}

static enum err_code code_of(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return ERR_RESOURCE_EXHAUSTED;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
    case cudaErrorSystemNotReady:
        return ERR_UNAVAILABLE;
    default:
        return ERR_INTERNAL;
    }
}

enum err_code cuda_error(cudaError_t code, const char *what, struct err *e)
{
    (void)cudaGetLastError();
    return err_set(e, code_of(code), "%s: %s (%s)%s", what, cudaGetErrorString(code), cudaGetErrorName(code),
                   cuda_ends_context(code) ? ", this process must end" : "");
}
