#include "daemon/coordinator/service/handles.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

struct handle_slot {
    uint64_t key; /* 0: free */
    void *value;
};

static size_t slot_home(const struct handles *h, uint64_t key)
{
    return (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (h->cap - 1);
}

/* The key's slot, or the free one where it would go. */
static struct handle_slot *slot_find(const struct handles *h, uint64_t key)
{
    size_t at = slot_home(h, key);
    while (h->slots[at].key && h->slots[at].key != key)
        at = (at + 1) & (h->cap - 1);
    return &h->slots[at];
}

static void slots_grow(struct handles *h)
{
    const struct handles old = *h;
    h->cap = old.cap ? 2 * old.cap : 64;
    h->slots = xcalloc(h->cap, sizeof *h->slots);
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i].key)
            *slot_find(h, old.slots[i].key) = old.slots[i];
    free(old.slots);
}

void handles_put(struct handles *h, uint64_t key, void *value)
{
    if (2 * (h->count + 1) > h->cap) /* at most half full, so that runs stay short */
        slots_grow(h);
    struct handle_slot *slot = slot_find(h, key);
    BUG_ON(key == 0 || slot->key == key);
    *slot = (struct handle_slot){key, value};
    h->count++;
}

void *handles_get(const struct handles *h, uint64_t key)
{
    return h->cap ? slot_find(h, key)->value : NULL;
}

/* Moves later slots of the same run into the gap, since a search ends at the first free slot. */
static void slots_close_gap(struct handles *h, size_t gap)
{
    const size_t mask = h->cap - 1;
    for (size_t at = (gap + 1) & mask; h->slots[at].key; at = (at + 1) & mask) {
        const size_t start = slot_home(h, h->slots[at].key);
        if (((at - start) & mask) < ((at - gap) & mask))
            continue; /* its home lies after the gap */
        h->slots[gap] = h->slots[at];
        gap = at;
    }
    h->slots[gap] = (struct handle_slot){0};
}

void *handles_take(struct handles *h, uint64_t key)
{
    if (!h->cap)
        return NULL;
    struct handle_slot *slot = slot_find(h, key);
    void *value = slot->value;
    if (!slot->key)
        return NULL;
    slots_close_gap(h, (size_t)(slot - h->slots));
    h->count--;
    return value;
}

void handles_sweep(struct handles *h, bool (*gone)(uint64_t key, const void *user), const void *user)
{
    struct handles old = *h;
    *h = (struct handles){0};
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i].key && !gone(old.slots[i].key, user))
            handles_put(h, old.slots[i].key, old.slots[i].value);
    handles_release(&old);
}

void handles_release(struct handles *h)
{
    free(h->slots);
    *h = (struct handles){0};
}
