#include "base/worker/process_wait.h"

#include <string.h>

#include "base/mem.h"

int process_wait_own(const char *call, const char *target)
{
    static const char *const own[] = {"read",  "pread",      "readv", "write",  "pwrite", "writev",
                                      "fsync", "fdatasync",  "flock", "fcntl",  "open",   "stat",
                                      "wait",  "sigsuspend", "pause", "sigwait"};

    if (!strcmp(target, "socket"))
        return 0;
    if (!strcmp(call, "nanosleep") || !strcmp(call, "hrtimer_nanosleep"))
        return 3;
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (!strcmp(call, own[i]))
            return 2;
    return !strcmp(call, "select") ? 1 : 0;
}
