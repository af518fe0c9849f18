#include "trainer/device/cpu/pin.h"

#include <errno.h>
#include <sched.h>

/* Sets *mine to part number local_rank of the cores in `all`, which are divided into local_ranks equal parts.
 * If there are more ranks than cores, rank i gets core i mod n. */
static int cores_part(const cpu_set_t *all, int local_rank, int local_ranks, cpu_set_t *mine)
{
    int cores = CPU_COUNT(all);
    int each = cores / local_ranks > 0 ? cores / local_ranks : 1;
    int first = local_rank * each % cores, seen = 0;
    CPU_ZERO(mine);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, all))
            continue;
        if (seen >= first && seen < first + each)
            CPU_SET(cpu, mine);
        seen++;
    }
    return each;
}

enum err_code cpu_pin(int local_rank, int local_ranks, int *threads, struct err *e)
{
    cpu_set_t all, mine;
    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        return err_sys(e, errno, "cannot read which cores this process may use");
    *threads = cores_part(&all, local_rank, local_ranks, &mine);
    if (sched_setaffinity(0, sizeof(mine), &mine) < 0)
        return err_sys(e, errno, "cannot pin this process to its cores");
    return ERR_OK;
}
