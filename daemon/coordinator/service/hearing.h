#ifndef DDP_DAEMON_COORDINATOR_SERVICE_HEARING_H
#define DDP_DAEMON_COORDINATOR_SERVICE_HEARING_H

#include <stdint.h>

/* Measures for how long the loop could not receive messages and tells the core. Loop thread. */

struct service;

struct hearing {
    int64_t asked_ms;  /* boot: everything before this time was reported to the core */
    int64_t due_ms;    /* boot: the loop's next turn should have ended by then */
    int64_t turned_ms; /* boot: its last turn's end ... */
    uint64_t idle_ns;  /* ... and how long it had waited for work until then */
    int64_t late_ms;   /* that it was late since asked_ms */
};

void hearing_open(struct service *s);
void hearing_turn(struct service *s); /* at each turn's end */
void hearing_tell(struct service *s); /* before the core judges silences */
void hearing_due(struct service *s, int64_t wait_ms);

#endif
