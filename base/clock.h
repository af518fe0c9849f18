#ifndef DDP_BASE_CLOCK_H
#define DDP_BASE_CLOCK_H

#include <stdint.h>

/* Times in milliseconds. Leases use CLOCK_BOOTTIME, which also runs while a machine sleeps; times shown to
 * people are wall time. */
int64_t clock_boot_ms(void);
int64_t clock_wall_ms(void); /* since 1970, UTC */
int64_t clock_wall_us(void);
int64_t clock_mono_ns(void); /* for measuring */

#endif
