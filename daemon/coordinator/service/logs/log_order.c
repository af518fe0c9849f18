#include "daemon/coordinator/service/logs/log_order.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

static bool turn_is_before(const struct log_turn *a, const struct log_turn *b)
{
    return a->date != b->date ? a->date < b->date : a->place < b->place;
}

void log_order_put(struct log_order *o, struct log_turn turn)
{
    o->turns = array_grow(o->turns, o->count, &o->cap, sizeof *o->turns);
    size_t at = o->count++;
    for (; at && turn_is_before(&turn, &o->turns[(at - 1) / 2]); at = (at - 1) / 2)
        o->turns[at] = o->turns[(at - 1) / 2];
    o->turns[at] = turn;
}

struct log_turn log_order_take(struct log_order *o)
{
    const struct log_turn first = o->turns[0], last = o->turns[--o->count];
    size_t at = 0;
    for (size_t next = 1; next < o->count; next = 2 * at + 1) {
        if (next + 1 < o->count && turn_is_before(&o->turns[next + 1], &o->turns[next]))
            next++;
        if (turn_is_before(&last, &o->turns[next]))
            break;
        o->turns[at] = o->turns[next];
        at = next;
    }
    o->turns[at] = last;
    return first;
}

int64_t log_order_date(const struct log_order *o)
{
    return o->count ? o->turns[0].date : INT64_MAX;
}

void log_order_release(struct log_order *o)
{
    free(o->turns);
    *o = (struct log_order){0};
}
