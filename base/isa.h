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

/* What ISA_AUTO stands for on this machine: the largest set whose instructions are worth using. That is isa_of_cpu, except on
 * processors whose bf16 instruction computes less than their float instruction in the same time. */
enum isa isa_auto(void);

#endif
