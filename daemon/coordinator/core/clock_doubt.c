#include "daemon/coordinator/core/clock_doubt.h"

#include <stdlib.h>

#include "daemon/coordinator/core/emit.h"

#define HOUR_MS (3600 * 1000LL)
#define DAY_MS (24 * HOUR_MS)

/* How far the clock is ahead of what it should show. The time that the coordinator was off counts, since nobody knows it. */
static int64_t clock_lead(const struct core *core, struct core_now now)
{
    return now.wall_ms - core->clock_wall - (now.boot_ms - core->clock_boot);
}

void clock_doubt_load(struct core *core, int64_t trusted_wall_ms)
{
    core->clock_wall = core->clock_saved = trusted_wall_ms;
    core->clock_boot = core->now.boot_ms;
}

void clock_doubt_check(struct core *core)
{
    const int64_t lead = core->clock_wall ? clock_lead(core, core->now) : 0;

    if (lead > DAY_MS && !core->clock_until) {
        core->clock_until = core->now.boot_ms + HOUR_MS;
        emit_event(
            core, NULL, "clock_ahead",
            "the clock is %lld h ahead of the last time that the coordinator knew (it is wrong, or the coordinator"
            " was off): no old records are removed for an hour",
            (long long)(lead / HOUR_MS));
    }
    /* Meanwhile the doubted time must not be stored: a restart would take it for right. */
    if (lead > DAY_MS && core->now.boot_ms < core->clock_until)
        return;
    core->clock_until = 0;
    core->clock_wall = core->now.wall_ms;
    core->clock_boot = core->now.boot_ms;
    /* once an hour, and not while the records are loaded, so that a start alone commits nothing */
    if (core->retain_at && llabs(core->clock_wall - core->clock_saved) >= HOUR_MS) {
        core->clock_saved = core->clock_wall;
        emit_meta(core, "clock_ms", core->clock_saved);
    }
}

bool clock_doubt_holds(const struct core *core, struct core_now now)
{
    return core->clock_until || (core->clock_wall && clock_lead(core, now) > DAY_MS);
}
