#include "daemon/coordinator/service/receive_delay.h"

#include "base/clock.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/service_state.h"

/* Measures the time in which the coordinator could not receive messages. A silent node counts as lost, so
 * this time must not count as the node's silence. It arises when a turn of the loop takes long or the loop
 * does not run at all, when gRPC or the gate does not read in time (proto/rpc_gate.h), or when nobody can
 * connect. The core is told before it judges nodes. If the whole process stalls, the loop and the gate both
 * see the stall, so the longer of the two times counts. */

#define LATE_MS 250 /* shorter delays are normal on a busy machine */
#define ASK_MS 250

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
    struct receive_delay *h = &s->receive_delay;
    const int64_t now = clock_boot_ms();
    const uint64_t idle = uv_metrics_idle_time(&s->loop);
    const int64_t busy = now - h->turned_ms - (int64_t)((idle - h->idle_ns) / 1000000);
    const int64_t overdue = now - h->due_ms; /* a process that was stopped counts as idle */
    const int64_t late = busy > overdue ? busy : overdue;
    if (late > LATE_MS)
        h->late_ms += late;
    h->turned_ms = now;
    h->idle_ns = idle;
    if (now - h->reported_ms >= ASK_MS)
        receive_delay_report(s);
}

void receive_delay_report(struct service *s)
{
    struct receive_delay *h = &s->receive_delay;
    const int64_t now = clock_boot_ms(), most = now - h->reported_ms;
    struct rpc_traffic *t = &s->stats.traffic;
    rpc_server_traffic(s->server, t);
    int64_t deaf = t->deaf_ms > h->late_ms ? t->deaf_ms : h->late_ms;
    deaf = deaf < most ? deaf : most;
    h->reported_ms = now;
    h->late_ms = 0;
    if (deaf) {
        s->stats.receive_delay_ms += (uint64_t)deaf;
        commit_queue_event(s, &(struct core_event){.kind = CORE_DEAF, .deaf = {.ms = deaf}});
    }
    if (t->shut_ms) {
        s->stats.connect_delay_ms += (uint64_t)t->shut_ms;
        commit_queue_event(
            s, &(struct core_event){.kind = CORE_DEAF, .deaf = {.ms = t->shut_ms, .outside = true}});
    }
}
