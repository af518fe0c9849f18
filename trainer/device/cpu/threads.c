/* Uses the threads of the OpenMP runtime that oneDNN loads: a second thread pool would compete with it for
 * the same cores. The runtime's functions are looked up by name, so that any compiler can build this file.
 * Without the runtime, everything runs on the caller's thread. */
#include "trainer/device/cpu/threads.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define THREADS_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREADS_TSAN
#endif
#endif
#ifdef THREADS_TSAN
/* ThreadSanitizer does not see the runtime's synchronisation, so this file tells it about each one. */
#include <sanitizer/tsan_interface.h>
#define RELEASE(p) __tsan_release(p)
#define ACQUIRE(p) __tsan_acquire(p)
#else
#define RELEASE(p) (void)(p)
#define ACQUIRE(p) (void)(p)
#endif

struct team {
    cpu_part_fn fn;
    void *arg;
    int64_t parts;
    int (*thread_num)(void);
    int (*thread_count)(void);
    char begin, end;
};

/* ISO C has no cast from an object pointer to a function pointer. */
static bool symbol_find(const char *name, void *out)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(out, &symbol, sizeof(symbol));
    return symbol != NULL;
}

void cpu_threads_open(struct cpu_threads *t, int count)
{
    void (*set)(int) = NULL;
    *t = (struct cpu_threads){.count = 1};
    if (!symbol_find("omp_set_num_threads", &set))
        return;
    set(count); /* the runtime counted the cores when it was loaded, before this process was pinned */
    if (symbol_find("GOMP_parallel", &t->parallel) && symbol_find("omp_get_thread_num", &t->thread_num) &&
        symbol_find("omp_get_num_threads", &t->thread_count))
        t->count = count;
}

static void thread_work(void *arg)
{
    struct team *team = arg;
    ACQUIRE(&team->begin);
    for (int64_t i = team->thread_num(); i < team->parts; i += team->thread_count())
        team->fn(team->arg, i, team->thread_num());
    RELEASE(&team->end);
}

void cpu_threads_run(const struct cpu_threads *t, int64_t parts, cpu_part_fn fn, void *arg)
{
    if (t->count > 1 && parts > 1) {
        struct team team = {fn, arg, parts, t->thread_num, t->thread_count, 0, 0};
        RELEASE(&team.begin);
        t->parallel(thread_work, &team, (unsigned)t->count, 0);
        ACQUIRE(&team.end);
        return;
    }
    for (int64_t i = 0; i < parts; i++)
        fn(arg, i, 0);
}
