#include "base/isa.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

const char *const isa_names[] = {"auto", "base", "avx2", "avx512", "avx512_bf16", "avx512_amx", NULL};

#if defined(__x86_64__)
/* Bits of CPUID leaf 7 (Intel's manual, volume 2, "CPUID"). GCC 12's __builtin_cpu_supports knows neither the
 * bf16 units nor the tiles. */
#define CPUID7_1_EAX_AVX512_BF16 (1u << 5)
#define CPUID7_0_EDX_AMX_BF16 (1u << 22)
#define CPUID7_0_EDX_AVX512_FP16 (1u << 23)
#define CPUID7_0_EDX_AMX_TILE (1u << 24)
#define CPUID7_0_EDX_AMX_INT8 (1u << 25)
#define XCR0_TILES ((uint64_t)3 << 17)

static bool isa_has_bf16(void)
{
    unsigned a = 0, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & CPUID7_1_EAX_AVX512_BF16) &&
           __builtin_cpu_supports("avx512vnni");
}

/* The processor may have tiles that the kernel does not save: then they cannot be used. */
static bool isa_has_amx(void)
{
    const unsigned all = CPUID7_0_EDX_AMX_BF16 | CPUID7_0_EDX_AMX_TILE | CPUID7_0_EDX_AMX_INT8;
    unsigned a, b, c, d = 0, low, high;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & all) != all)
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (((uint64_t)high << 32 | low) & XCR0_TILES) == XCR0_TILES;
}

enum isa isa_of_cpu(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return ISA_BASE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return ISA_AVX2;
    if (!isa_has_bf16())
        return ISA_AVX512;
    return isa_has_amx() ? ISA_AVX512_AMX : ISA_AVX512_BF16;
}

/* Intel's processors since Sapphire Rapids multiply bf16 fast only in their tiles, and virtual machines often hide the tiles. On
 * Emerald Rapids the bf16 instruction (VDPBF16PS) reached 83 GFLOP/s on a core, and the float instruction (VFMADD231PS) 170.
 * These processors are recognised by AVX512-FP16, which no earlier one has. */
static bool isa_has_slow_bf16(void)
{
    unsigned a, b, c, d = 0;

    return __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (d & CPUID7_0_EDX_AVX512_FP16);
}

enum isa isa_auto(void)
{
    const enum isa best = isa_of_cpu();

    return best == ISA_AVX512_BF16 && isa_has_slow_bf16() ? ISA_AVX512 : best;
}
#else
enum isa isa_of_cpu(void)
{
    return ISA_BASE;
}

enum isa isa_auto(void)
{
    return ISA_BASE;
}
#endif
