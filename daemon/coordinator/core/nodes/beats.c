#include "daemon/coordinator/core/nodes/beats.h"

#define MINUTE_MS 60000

static int64_t idle_interval(const struct core *core)
{
    const int64_t often = core->config.heartbeat_ms, most = core->config.node_timeout_ms * 16 / 9;
    /* busy nodes that are not connected make this too small, which only means more heartbeats */
    const int64_t idle =
        core->session_count > core->busy_count ? (int64_t)(core->session_count - core->busy_count) : 0;
    int64_t interval = idle * MINUTE_MS / core->config.idle_beats;

    if (interval > most)
        interval = most;
    return interval > often ? interval : often;
}

int64_t beats_next(const struct core *core, struct node *node)
{
    beats_usual(core, node);
    if (node->spawn_count == 0)
        node->beat_ms = idle_interval(core);
    if (node->beat_ms > core->config.heartbeat_ms && node->beat_ms * 9 / 4 > node->silence_ms)
        node->silence_ms = node->beat_ms * 9 / 4;
    return node->beat_ms;
}

void beats_usual(const struct core *core, struct node *node)
{
    node->beat_ms = core->config.heartbeat_ms;
    node->silence_ms = core->config.node_timeout_ms;
}
