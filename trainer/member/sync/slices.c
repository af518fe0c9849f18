#include "trainer/member/sync/slices.h"

#include <stdlib.h>

#include "base/mem.h"
#include "trainer/member/sync/wire.h"

static size_t size_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t blocks_of(size_t floats)
{
    return (floats + WIRE_BLOCK - 1) / WIRE_BLOCK;
}

static void window_add(struct slices *s, size_t at, size_t count, size_t code)
{
    s->windows = array_grow(s->windows, s->count, &s->room, sizeof(*s->windows));
    s->windows[s->count++] = (struct slices_window){at, count, code};
}

void slices_cut(struct slices *s, const struct sync_tensor *tensors, size_t count, enum wire_type wire,
                int owners)
{
    size_t all = 0, block = 0, code = 0, n = (size_t)owners, owner = 0;

    s->owners = owners;
    s->count = 0;
    s->first = xrealloc(s->first, (n + 1) * sizeof(*s->first));
    s->codes = xrealloc(s->codes, (n + 1) * sizeof(*s->codes));
    s->first[0] = s->codes[0] = 0;
    for (size_t t = 0; t < count; t++)
        all += blocks_of(tensors[t].count);
    for (size_t t = 0; t < count; t++)
        for (size_t done = 0, part; done < tensors[t].count; done += part) {
            /* A model of fewer blocks than owners gives some owners nothing. */
            for (; block == all * (owner + 1) / n; owner++) {
                s->first[owner + 1] = s->count;
                s->codes[owner + 1] = code;
            }
            part = size_least(size_least(tensors[t].count - done, SLICES_WINDOW),
                              (all * (owner + 1) / n - block) * WIRE_BLOCK);
            window_add(s, tensors[t].offset + done, part, code);
            block += blocks_of(part);
            code += wire_bytes(wire, part);
        }
    for (; owner < n; owner++) {
        s->first[owner + 1] = s->count;
        s->codes[owner + 1] = code;
    }
}

void slices_release(struct slices *s)
{
    free(s->windows);
    free(s->first);
    free(s->codes);
    *s = (struct slices){0};
}

size_t slices_floats(const struct slices *s, int owner)
{
    size_t floats = 0;

    for (size_t i = s->first[owner]; i < s->first[owner + 1]; i++)
        floats += s->windows[i].count;
    return floats;
}

size_t slices_most(const struct slices *s)
{
    size_t most = 0;

    for (int k = 0; k < s->owners; k++)
        if (s->codes[k + 1] - s->codes[k] > most)
            most = s->codes[k + 1] - s->codes[k];
    return most;
}
