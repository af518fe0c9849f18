#include "trainer/member/sync/bucket_cut.h"

#include <stdbool.h>

void bucket_cut_end(struct bucket_cut *c)
{
    if (c->count)
        c->put(c->arg, c->at, c->at + c->count);
    c->count = 0;
}

void bucket_cut_piece(struct bucket_cut *c, size_t offset, size_t count)
{
    bool below = offset + count == c->at, above = offset == c->at + c->count;

    if (c->count && !below && !above)
        bucket_cut_end(c);
    if (!c->count || below)
        c->at = offset;
    c->count += count;
    if (c->count >= c->bucket)
        bucket_cut_end(c);
}

void bucket_cut_whole(const struct bucket_cut *c, size_t count)
{
    for (size_t left = count; left;) {
        size_t part = left < c->bucket ? left : c->bucket;

        left -= part;
        c->put(c->arg, left, left + part);
    }
}
