#include "trainer/device/cpu/gemm.h"

#include <dnnl.h>

enum err_code cpu_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                       const float *b, float beta, float *c, struct err *e)
{
    dnnl_status_t status = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0f, a,
                                      trans_a ? m : k, b, trans_b ? k : n, beta, c, n);
    if (status != dnnl_success)
        return err_set(e, ERR_INTERNAL, "oneDNN: sgemm %lld x %lld x %lld failed with status %d",
                       (long long)m, (long long)n, (long long)k, (int)status);
    return ERR_OK;
}
