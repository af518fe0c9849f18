#include "daemon/coordinator/service/memory_trim.h"

#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/coordinator/service/service_state.h"

/* malloc keeps freed memory. After a burst (a flood of connections, the facts of many nodes at once), most of
 * the process's memory is free but stays resident, so a large amount of it is returned to the system. */

#define CHECK_MS 10000
#define IDLE_BYTES (32LL << 20) /* free but resident; less is not worth the walk through the heap */

static int64_t memory_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long long total, pages = 0;
    if (file && fscanf(file, "%lld %lld", &total, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void memory_trim_on_timer(uv_timer_t *timer)
{
    struct service *s = timer->data;
    const struct mallinfo2 heap = mallinfo2();
    const int64_t resident = memory_resident_bytes();
    /* Some free memory cannot be returned, because its pages are partly in use. So after a trim, the next one
     * waits until the process has grown. */
    if (resident - (int64_t)(heap.uordblks + heap.hblkhd) < IDLE_BYTES ||
        resident < s->trimmed_bytes + IDLE_BYTES / 2)
        return;
    malloc_trim(0);
    s->trimmed_bytes = memory_resident_bytes();
    if (resident - s->trimmed_bytes > IDLE_BYTES / 2)
        log_info("memory_returned", "before=%lld after=%lld", (long long)resident,
                 (long long)s->trimmed_bytes);
}

void memory_trim_start(struct service *s)
{
    uv_timer_start(&s->memory_timer, memory_trim_on_timer, CHECK_MS, CHECK_MS);
}
