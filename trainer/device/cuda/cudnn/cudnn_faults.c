#include "trainer/device/cuda/cudnn/cudnn_faults.h"

/* The list comes from the checks of cudnn-frontend 1.16 and later (its issue 160), and from the known issues in cuDNN's
 * release notes. */
const char *cudnn_fault(size_t version, const struct cudnn_heads *n, bool backward)
{
    if (version == 91000 || version == 91001)
        return "cuDNN 9.10.0 and 9.10.1 compute attention in bf16 wrongly, use 9.10.2 or newer";
    /* The engines accept it without an error. */
    if (n->context == 1)
        return "cuDNN does not support a context of 1";
    /* The gradient has NaNs, and a recorded graph reads memory outside of its arrays. */
    if (backward && n->context % 128 != 0 && version < 91501)
        return "before 9.15.1 cuDNN's gradient is wrong for a context that is not a multiple of 128";
    return NULL;
}
