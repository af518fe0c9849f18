#include "base/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t clock_boot_ms(void)
{
    return read_ns(CLOCK_BOOTTIME) / 1000000;
}

int64_t clock_left_ms(int64_t until)
{
    const int64_t now = clock_boot_ms();

    return until > now ? until - now : 0;
}

int64_t clock_wall_ms(void)
{
    return read_ns(CLOCK_REALTIME) / 1000000;
}

int64_t clock_wall_us(void)
{
    return read_ns(CLOCK_REALTIME) / 1000;
}

int64_t clock_mono_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}
