#ifndef DDP_TESTS_STANDINS_CUDA_FIBER_H
#define DDP_TESTS_STANDINS_CUDA_FIBER_H

/* Fibers: execution contexts, between which one thread switches. Each has a stack, and an inaccessible page below
 * it. */

struct fiber {
    void *sp; /* the saved stack pointer, while the fiber does not run */
    char *stack;
    void *context; /* a ucontext_t, on processors for which fiber.c has no switch in assembler */
};

/* Prepares a fiber: the first switch to it calls `entry`, which must never return. A fiber that has run already is
 * discarded and begins again. */
void fiber_start(struct fiber *f, void (*entry)(void));
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
