#include "fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/err.h"

enum { STACK = 128 << 10, GUARD = 4096 };

static void fiber_stack(struct fiber *f)
{
    if (f->stack)
        return;
    f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    BUG_ON(f->stack == MAP_FAILED);
    BUG_ON(mprotect(f->stack, GUARD, PROT_NONE));
}

#ifdef __x86_64__

/* Pushes the registers that a function must preserve onto the old stack, and pops them from the new one. The rounding
 * mode is the same in all fibers, so it is not switched. */
__asm__(".text\n"
        ".globl emulated_fiber_switch\n"
        ".hidden emulated_fiber_switch\n"
        ".type emulated_fiber_switch, @function\n"
        "emulated_fiber_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size emulated_fiber_switch, . - emulated_fiber_switch\n");
void emulated_fiber_switch(void **from_sp, void *to_sp);

void fiber_start(struct fiber *f, void (*entry)(void))
{
    fiber_stack(f);
    /* From the highest address: a return address for the entry, which never returns; the entry; six registers. */
    uintptr_t *sp = (uintptr_t *)(f->stack + STACK) - 8;
    for (int i = 0; i < 8; i++)
        sp[i] = 0;
    sp[6] = (uintptr_t)entry;
    f->sp = sp;
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    emulated_fiber_switch(&from->sp, to->sp);
}

#else

void fiber_start(struct fiber *f, void (*entry)(void))
{
    fiber_stack(f);
    if (!f->context)
        f->context = calloc(1, sizeof(ucontext_t));
    ucontext_t *c = f->context;
    BUG_ON(!c || getcontext(c));
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = STACK;
    c->uc_link = NULL;
    makecontext(c, entry, 0);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    if (!from->context)
        from->context = calloc(1, sizeof(ucontext_t));
    BUG_ON(!from->context || swapcontext(from->context, to->context));
}

#endif
