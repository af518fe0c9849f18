#include "trainer/device/cpu/sets.h"

#include "base/mem.h"

extern const struct cpu_kernels cpu_kernels_base, cpu_kernels_avx2, cpu_kernels_avx512;
extern const struct cpu_layers cpu_layers_base, cpu_layers_avx2, cpu_layers_avx512, cpu_layers_bf16;
extern const struct cpu_attention cpu_attention_base, cpu_attention_avx2, cpu_attention_avx512,
    cpu_attention_bf16;
extern const struct cpu_muon cpu_muon_base, cpu_muon_avx2, cpu_muon_avx512;

static const struct cpu_set sets[] = {
    {"base", ISA_BASE, &cpu_kernels_base, &cpu_layers_base, &cpu_attention_base, &cpu_muon_base},
#ifdef DDP_X86_KERNELS
    {"avx2", ISA_AVX2, &cpu_kernels_avx2, &cpu_layers_avx2, &cpu_attention_avx2, &cpu_muon_avx2},
    {"avx512", ISA_AVX512, &cpu_kernels_avx512, &cpu_layers_avx512, &cpu_attention_avx512, &cpu_muon_avx512},
#endif
};

const struct cpu_half *cpu_half(void)
{
#ifdef DDP_X86_KERNELS
    static const struct cpu_half half = {&cpu_attention_bf16, &cpu_layers_bf16};
    return &half;
#else
    return NULL;
#endif
}

const struct cpu_set *cpu_sets(int *count)
{
    *count = 1;
#ifdef DDP_X86_KERNELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        *count = 2;
    if (*count == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        *count = 3;
#endif
    return sets;
}
