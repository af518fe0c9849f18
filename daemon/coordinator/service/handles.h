#ifndef DDP_DAEMON_COORDINATOR_SERVICE_HANDLES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A map from handles to pointers, with open addressing. 0 is not a handle. Zero-initialise. One thread. */
struct handles {
    struct handle_slot *slots;
    size_t cap, count;
};

void handles_put(struct handles *h, uint64_t key, void *value); /* the key must be new */
void *handles_get(const struct handles *h, uint64_t key);       /* NULL: there is no such key */
void *handles_take(struct handles *h, uint64_t key); /* removes the key; NULL: there was no such key */
/* Removes all keys for which `gone` returns true, and gives the memory of the table back. */
void handles_sweep(struct handles *h, bool (*gone)(uint64_t key, const void *user), const void *user);
void handles_release(struct handles *h); /* frees the table, but not the values */

#endif
