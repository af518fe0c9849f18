#ifndef DDP_DAEMON_COORDINATOR_SERVICE_RECEIVE_DELAY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_RECEIVE_DELAY_H

#include <stdint.h>

/* Measures for how long the loop could not receive messages and tells the core. Loop thread. */

struct service;

struct receive_delay {
    int64_t reported_ms; /* boot: everything before this time was reported to the core */
    int64_t due_ms;      /* boot: the loop's next turn should have ended by then */
    int64_t turned_ms;   /* boot: its last turn's end ... */
    uint64_t idle_ns;    /* ... and how long it had waited for work until then */
    int64_t late_ms;     /* that it was late since reported_ms */
};

void receive_delay_start(struct service *s);
void receive_delay_turn_ended(struct service *s); /* at each turn's end */
void receive_delay_report(struct service *s);     /* before the core judges silences */
void receive_delay_next_turn(struct service *s, int64_t wait_ms);

#endif
