#ifndef DDP_DAEMON_COORDINATOR_SERVICE_RECEIVE_DELAY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_RECEIVE_DELAY_H

#include <stdint.h>

/* Measures the time in which the coordinator could not receive messages, so that it does not count as the
 * nodes' silence. Loop thread. */

struct service;

struct receive_delay {
    int64_t reported_ms; /* boot: delays before this time were reported to the core */
    int64_t due_ms;      /* boot: when the loop's next turn should end at the latest */
    int64_t turned_ms;   /* boot: when its last turn ended ... */
    uint64_t idle_ns;    /* ... and the loop's total idle time at that moment */
    int64_t late_ms;     /* the loop's own delays since reported_ms */
};

void receive_delay_start(struct service *s);
void receive_delay_turn_ended(struct service *s);                 /* at the end of each turn */
void receive_delay_next_turn(struct service *s, int64_t wait_ms); /* the next turn comes within wait_ms */
/* Tells the core of the delays since the last report. Called before the core looks for silent nodes. */
void receive_delay_report(struct service *s);

#endif
