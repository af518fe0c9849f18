#ifndef DDP_BASE_FAULT_H
#define DDP_BASE_FAULT_H

#include <stdbool.h>

/* Named fault points, in test builds only (DDP_FAULTS). DDP_FAULT="store.commit:3,coll.send:1+" in the
 * environment makes the third hit of store.commit fail, and every hit of coll.send from the first;
 * "name:2=kill" ends the process by SIGKILL there, "name:2=kill@1" only where RANK is 1 in the environment. Outside test builds this costs nothing. */
#ifdef DDP_FAULTS
bool fault_hit(const char *name);
#else
static inline bool fault_hit(const char *name)
{
    (void)name;
    return false;
}
#endif

#endif
