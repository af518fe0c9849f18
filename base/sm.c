#include "base/sm.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

static bool sm_has(const struct sm *sm, int state)
{
    return state >= 0 && state < sm->count;
}

bool sm_may(const struct sm *sm, int from, int to)
{
    return sm_has(sm, from) && sm_has(sm, to) && (sm->states[from].next >> to & 1u);
}

void sm_check(const struct sm *sm, int from, int to)
{
    char move[128];

    if (sm_may(sm, from, to))
        return;
    snprintf(move, sizeof(move), "%s: no move from %s to %s", sm->name, sm_name(sm, from), sm_name(sm, to));
    err_bug(__FILE__, __LINE__, move);
}

const char *sm_name(const struct sm *sm, int state)
{
    return sm_has(sm, state) ? sm->states[state].name : "?";
}

int sm_find(const struct sm *sm, const char *name)
{
    for (int i = 0; i < sm->count; i++)
        if (!strcmp(sm->states[i].name, name))
            return i;
    return -1;
}

bool sm_terminal(const struct sm *sm, int state)
{
    return sm_has(sm, state) && sm->states[state].next == 0;
}
