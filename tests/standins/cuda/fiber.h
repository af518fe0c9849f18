#ifndef DDP_TESTS_STANDINS_CUDA_FIBER_H
#define DDP_TESTS_STANDINS_CUDA_FIBER_H

/* Contexts that one thread switches between: a stack each, with a page behind it that nothing may touch. */

struct fiber {
    void *sp; /* where it goes on; of the thread's own context, too */
    char *stack;
    void *context; /* where there is no switch of our own */
};

/* A fiber that will call entry, which never returns. Again on the same fiber: it starts afresh. */
void fiber_start(struct fiber *f, void (*entry)(void));
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
