#ifndef DDP_BASE_CLOCK_H
#define DDP_BASE_CLOCK_H

#include <stdint.h>

/* Times in milliseconds. Leases use CLOCK_BOOTTIME, which also runs while a machine sleeps; times shown to
 * people are wall time. */
int64_t clock_boot_ms(void);
int64_t clock_left_ms(int64_t until); /* from clock_boot_ms() to `until`; 0 if that has passed */
int64_t clock_wall_ms(void);          /* since 1970, UTC */
int64_t clock_wall_us(void);
int64_t clock_mono_ns(void); /* for measuring */

#endif
