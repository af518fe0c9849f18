#include "daemon/coordinator/service/receive_delay.h"

#include "base/clock.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/service_state.h"

/* A silent node counts as lost, so time in which the coordinator itself could not receive messages must not
 * count as a node's silence. Three things cause such time:
 *
 * - The loop is late: a turn takes long, or the process does not run at all. Measured here, turn by turn.
 * - gRPC or the gate does not read its sockets in time. Measured by the gate (proto/rpc_gate.h).
 * - Nobody can connect, because the port's queue is full. Also measured by the gate; it concerns only nodes
 *   that are not connected.
 *
 * If the whole process stalls, the loop and the gate both see the stall, so the longer of the two times
 * counts, not their sum. */

#define LATE_MS 250 /* shorter delays are normal on a busy machine */
#define REPORT_EVERY_MS 250

void receive_delay_start(struct service *s)
{
    const int64_t now = clock_boot_ms();
    s->receive_delay = (struct receive_delay){
        .reported_ms = now, .due_ms = now, .turned_ms = now, .idle_ns = uv_metrics_idle_time(&s->loop)};
}

void receive_delay_next_turn(struct service *s, int64_t wait_ms)
{
    s->receive_delay.due_ms = clock_boot_ms() + wait_ms;
}

void receive_delay_turn_ended(struct service *s)
{
    struct receive_delay *d = &s->receive_delay;
    const int64_t now = clock_boot_ms();
    const uint64_t idle = uv_metrics_idle_time(&s->loop);
    /* Two clocks, since each misses one case. The busy time shows a long turn, but counts a process that was
     * stopped while it waited for work as idle. The overdue time shows that, but not a turn that was long and
     * began early. */
    const int64_t busy = now - d->turned_ms - (int64_t)((idle - d->idle_ns) / 1000000);
    const int64_t overdue = now - d->due_ms;
    const int64_t late = busy > overdue ? busy : overdue;
    if (late > LATE_MS)
        d->late_ms += late;
    d->turned_ms = now;
    d->idle_ns = idle;
    if (now - d->reported_ms >= REPORT_EVERY_MS)
        receive_delay_report(s);
}

void receive_delay_report(struct service *s)
{
    struct receive_delay *d = &s->receive_delay;
    const int64_t now = clock_boot_ms(), elapsed = now - d->reported_ms;
    struct rpc_traffic *t = &s->stats.traffic;
    rpc_server_traffic(s->server, t);
    int64_t delay = t->deaf_ms > d->late_ms ? t->deaf_ms : d->late_ms;
    delay = delay < elapsed ? delay : elapsed; /* delays that overlap are not counted twice */
    d->reported_ms = now;
    d->late_ms = 0;
    if (delay) {
        s->stats.receive_delay_ms += (uint64_t)delay;
        commit_queue_event(s, &(struct core_event){.kind = CORE_DEAF, .deaf = {.ms = delay}});
    }
    /* Connected nodes are heard while others cannot connect, so this is an event of its own. */
    if (t->shut_ms) {
        s->stats.connect_delay_ms += (uint64_t)t->shut_ms;
        commit_queue_event(
            s, &(struct core_event){.kind = CORE_DEAF, .deaf = {.ms = t->shut_ms, .outside = true}});
    }
}
