#ifndef DDP_BASE_ISA_H
#define DDP_BASE_ISA_H

/* CPU instruction sets that change the bits of a training run: matrix products and attention round differently
 * with wider vectors, fused operations and bf16 units. Ordered from the smallest set to the largest; each
 * includes those before it. On processors other than x86-64 there is only ISA_BASE. */
enum isa {
    ISA_AUTO,        /* what isa_auto returns */
    ISA_BASE,        /* what every processor of the architecture has */
    ISA_AVX2,        /* with FMA */
    ISA_AVX512,      /* F, BW, DQ, VL */
    ISA_AVX512_BF16, /* and VNNI */
    ISA_AVX512_AMX,  /* and tiles for bf16 and int8 */
};

extern const char *const isa_names[]; /* by enum isa, ended by NULL; as in job files */

/* The largest set that this machine's CPU and kernel support. */
enum isa isa_of_cpu(void);

/* The set that `isa: auto` uses on this machine: isa_of_cpu(), or ISA_AVX512 if the CPU's instruction for bf16 is slower than the
 * one for floats. */
enum isa isa_auto(void);

#endif
