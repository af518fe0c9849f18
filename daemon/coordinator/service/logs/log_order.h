#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_ORDER_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* Log reads with data, by the time when the data was written. Of data of one time, that of the read with the lower place comes
 * first. A binary heap, so that one of thousands of reads is found without a look at all. */
struct log_read;

struct log_turn {
    int64_t date;
    size_t place;
    struct log_read *read; /* borrowed */
};

struct log_order {
    struct log_turn *turns; /* the turn at i comes before those at 2i+1 and 2i+2 */
    size_t count, cap;
};

void log_order_put(struct log_order *o, struct log_turn turn);
struct log_turn log_order_take(struct log_order *o); /* removes the first one; there is one */
int64_t log_order_date(const struct log_order *o);   /* of the first one; INT64_MAX: there is none */
void log_order_release(struct log_order *o);

#endif
