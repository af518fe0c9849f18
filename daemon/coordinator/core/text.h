#ifndef DDP_DAEMON_COORDINATOR_CORE_TEXT_H
#define DDP_DAEMON_COORDINATOR_CORE_TEXT_H

#include <stdint.h>

/* Replaces an owned text; the new one is cut at 1,023 bytes. */
void text_set(char **text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Numbers for people; each function returns its buffer. */
#define TEXT_COUNT 32
#define TEXT_AGO 48
#define TEXT_SPAN 32
const char *text_count(char out[TEXT_COUNT], int64_t n); /* "3,201" */
const char *text_span(char out[TEXT_SPAN], int64_t ms);  /* "12 ms", "0.4 s", "18 s", "3 min" */
#define TEXT_CLOCK 32
/* "14:02"; "2026-01-31 14:02" if that is not today. Local time. */
const char *text_clock(char out[TEXT_CLOCK], int64_t wall_ms, int64_t now_ms);
const char *text_noticed(char out[TEXT_AGO],
                         int64_t ago_ms); /* ", noticed after 12 ms"; empty when clocks disagree */

#endif
