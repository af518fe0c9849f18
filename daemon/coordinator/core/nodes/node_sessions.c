#include "daemon/coordinator/core/nodes/node_sessions.h"

#include <string.h>

#include "base/mem.h"

/* The place of the session in the table, or where it belongs. */
static size_t session_place(const struct core *core, uint64_t session)
{
    size_t low = 0, high = core->session_count;

    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (core->sessions[mid].session < session)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct node *node_sessions_find(const struct core *core, uint64_t session)
{
    const size_t at = session_place(core, session);
    return at < core->session_count && core->sessions[at].session == session ? core->sessions[at].node : NULL;
}

static void session_remove(struct core *core, uint64_t session)
{
    const size_t at = session_place(core, session);

    /* The nodes of a rehearsal have sessions that are not in its table. */
    if (at == core->session_count || core->sessions[at].session != session)
        return;
    core->session_count--;
    memmove(core->sessions + at, core->sessions + at + 1,
            (core->session_count - at) * sizeof(*core->sessions));
}

void node_sessions_set(struct core *core, struct node *node, uint64_t session)
{
    if (node->session == session)
        return;
    session_remove(core, node->session);
    node->session = session;
    if (!session)
        return;
    const size_t at = session_place(core, session);
    BUG_ON(at < core->session_count && core->sessions[at].session == session);
    core->sessions =
        array_grow(core->sessions, core->session_count, &core->session_cap, sizeof(*core->sessions));
    memmove(core->sessions + at + 1, core->sessions + at,
            (core->session_count - at) * sizeof(*core->sessions));
    core->sessions[at] = (struct node_session){.session = session, .node = node};
    core->session_count++;
}
