#include "client/text/rank_list.h"

void rank_list_put(struct buf *out, const int *ranks, size_t count)
{
    buf_puts(out, count == 1 ? "rank " : "ranks ");
    for (size_t i = 0, end; i < count; i = end + 1) {
        end = i;
        while (end + 1 < count && ranks[end + 1] == ranks[end] + 1)
            end++;
        if (end == i + 1) /* "0, 1" is as short as "0-1" and says that there is none between */
            end = i;
        buf_printf(out, i ? ", %d" : "%d", ranks[i]);
        if (end > i)
            buf_printf(out, "-%d", ranks[end]);
    }
}
