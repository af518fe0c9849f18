/* Translates the errors of CUDA. */
#include "trainer/device/cuda/error.h"
#include "trainer/device/cuda/cuda.h"

/* These errors leave CUDA's context unusable, so the process must be restarted. CUDA's header says so about each but
 * 214, 220 and 709, whose consequences it does not describe. They are given by number, because headers before CUDA 13
 * have no names for 226 and 721. The other numbers from 700 to 721 are launches that were refused and calls that came
 * twice or too late; they leave the context as it was. */
bool cuda_ends_context(cudaError_t code)
{
    switch ((int)code) {
    case 214: /* uncorrectable memory error */
    case 220: /* uncorrectable NVLink error */
    case 226: /* contained hardware error, or an error in a peer's memory over NVLink */
    case 700: /* illegal address */
    case 702: /* launch timeout: a kernel ran too long on a GPU with a display */
    case 709: /* context destroyed */
    case 710: /* assertion in a kernel */
    case 714: /* error in a kernel's stack */
    case 715: /* illegal instruction */
    case 716: /* misaligned address */
    case 717: /* address in the wrong address space */
    case 718: /* invalid program counter */
    case 719: /* launch failure of another kind */
    case 721: /* a kernel did not free its tensor memory */
    case 810: /* the MPS server ended its client, this process */
    case 911: /* signal of an external device */
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
        return ERR_UNAVAILABLE;
    /* cudaErrorSystemNotReady is not among them: the GPU is there, and its machine has just started (the fabric manager of
     * NVSwitch). A job must not end for good at once, nor move to the CPU. */
    default:
        return ERR_INTERNAL;
    }
}

enum err_code cuda_error(cudaError_t code, const char *what, struct err *e)
{
    (void)cudaGetLastError(); /* else the next kernel launch would report this error as its own */
    return err_set(e, cuda_error_code(code), "%s: %s (%s)%s", what, cudaGetErrorString(code),
                   cudaGetErrorName(code), cuda_ends_context(code) ? ", this process must end" : "");
}
