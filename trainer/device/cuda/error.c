/* Errors of CUDA, translated. */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/error.h"

/* After which CUDA's context is unusable, and the process must be relaunched: as CUDA's header says of each,
 * but for 214, 220 and 709, of which it does not say what follows. By number: 226 and 721 have no name in
 * headers before CUDA 13. What is missing of 700 to 721 are launches that were refused and calls that came
 * twice, or too late: they leave all as it was. */
bool cuda_ends_context(cudaError_t code)
{
    switch ((int)code) {
    case 214: /* memory: an error that cannot be corrected */
    case 220: /* the same of NVLink */
    case 226: /* contained by the GPU: a peer's memory over NVLink, hardware */
    case 700: /* an illegal address */
    case 702: /* a kernel that took too long for a GPU with a display */
    case 709: /* the context is destroyed */
    case 710: /* an assertion in a kernel */
    case 714: /* a kernel's stack */
    case 715: /* an illegal instruction */
    case 716: /* an address that is not aligned */
    case 717: /* one of the wrong address space */
    case 718: /* an invalid program counter */
    case 719: /* a kernel failed otherwise */
    case 721: /* tensor memory that a kernel did not give back */
    case 810: /* MPS's server ended its client, this process */
    case 911: /* an external device's signal */
        return true;
    default:
        return false;
    }
}

static enum err_code cuda_error_code(cudaError_t code)
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
    return err_set(e, cuda_error_code(code), "%s: %s (%s)%s", what, cudaGetErrorString(code),
                   cudaGetErrorName(code), cuda_ends_context(code) ? ", this process must end" : "");
}
