#include "trainer/device/cpu/limit.h"

#include <dnnl.h>
#include <stdbool.h>
#include <stdlib.h>

#ifdef DDP_X86_KERNELS
static const dnnl_cpu_isa_t limits[] = {
    [ISA_BASE] = dnnl_cpu_isa_sse41,
    [ISA_AVX2] = dnnl_cpu_isa_avx2,
    [ISA_AVX512] = dnnl_cpu_isa_avx512_core,
    [ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
    [ISA_AVX512_AMX] = dnnl_cpu_isa_avx512_core_amx,
};

/* oneDNN's values are masks: a set includes those whose bits it has. Sets that ddp has no name for, such as
 * avx512_core_vnni, count as the largest named one that they include. */
enum isa cpu_isa(void)
{
    dnnl_cpu_isa_t in_use = dnnl_get_effective_cpu_isa();
    enum isa found = ISA_BASE, best = isa_of_cpu();

    for (enum isa i = ISA_BASE; i <= best; i++)
        if ((in_use & limits[i]) == limits[i])
            found = i;
    return found;
}

/* oneDNN 2.7 renamed its variable, so this looks for both names. */
static bool user_limits_isa(void)
{
    const char *now = getenv("ONEDNN_MAX_CPU_ISA"), *before = getenv("DNNL_MAX_CPU_ISA");

    return (now && *now) || (before && *before);
}

enum err_code cpu_limit_isa(enum isa most, struct err *e)
{
    enum isa best = isa_of_cpu(), preferred = isa_auto();

    /* oneDNN knows sets between base and AVX2, which would compute other bits under the same name. */
    if (most == ISA_AUTO && best == ISA_BASE)
        most = ISA_BASE;
    else if (most == ISA_AUTO && preferred < best && !user_limits_isa())
        most = preferred;
    if (most == ISA_AUTO)
        return ERR_OK;
    if (most > best)
        return err_set(e, ERR_FAILED_PRECONDITION, "isa: %s: this node's CPU has no more than %s",
                       isa_names[most], isa_names[best]);
    /* Refused by oneDNN once it has been used: that is fine where it uses this set anyway. */
    if (dnnl_set_max_cpu_isa(limits[most]) == dnnl_success || cpu_isa() == most)
        return ERR_OK;
    return err_set(e, ERR_FAILED_PRECONDITION, "isa: %s: this process computes with %s already",
                   isa_names[most], isa_names[cpu_isa()]);
}
#else
enum isa cpu_isa(void)
{
    return ISA_BASE;
}

enum err_code cpu_limit_isa(enum isa most, struct err *e)
{
    if (most == ISA_AUTO || most == ISA_BASE)
        return ERR_OK;
    return err_set(e, ERR_FAILED_PRECONDITION, "isa: %s: this node's CPU has no such instructions",
                   isa_names[most]);
}
#endif
