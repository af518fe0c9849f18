#ifndef DDP_COORDINATOR_TEXT_H
#define DDP_COORDINATOR_TEXT_H

#include <stdint.h>

/* Numbers as people read them; each returns its buffer. */
#define TEXT_COUNT 32
#define TEXT_AGO 48
#define TEXT_SPAN 32
const char *text_count(char out[TEXT_COUNT], int64_t n); /* "3,201" */
const char *text_span(char out[TEXT_SPAN], int64_t ms);  /* "12 ms", "0.4 s", "18 s", "3 min" */
const char *text_noticed(char out[TEXT_AGO],
                         int64_t ago_ms); /* ", noticed after 12 ms"; empty when clocks disagree */

#endif
