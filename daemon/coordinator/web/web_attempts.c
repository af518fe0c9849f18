#include "daemon/coordinator/web/web_attempts.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define PLACES 1024
#define MINUTE_MS 60000

struct attempt_place {
    uint8_t origin[16]; /* an IPv6 network, or an IPv4 address as IPv6 maps it */
    int64_t since_ms;
    int count; /* 0: the place is free */
};
struct web_attempts {
    pthread_mutex_t lock;
    struct attempt_place places[PLACES];
};

struct web_attempts *web_attempts_create(void)
{
    struct web_attempts *a = xcalloc(1, sizeof(*a));
    pthread_mutex_init(&a->lock, NULL);
    return a;
}

void web_attempts_free(struct web_attempts *a)
{
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static void attempt_origin(const char *address, uint8_t origin[16])
{
    struct in_addr four;
    memset(origin, 0, 16);
    if (inet_pton(AF_INET, address, &four) == 1) {
        origin[10] = origin[11] = 0xff;
        memcpy(origin + 12, &four, 4);
        return;
    }
    char text[64] = "";
    memcpy(text, address, strcspn(address, "%") < sizeof(text) - 1 ? strcspn(address, "%") : 0);
    if (inet_pton(AF_INET6, text, origin) == 1)
        memset(origin + 8, 0, 8); /* /64 */
}

static struct attempt_place *attempt_find(struct web_attempts *a, const uint8_t origin[16], int64_t now_ms)
{
    for (size_t i = 0; i < PLACES; i++) {
        struct attempt_place *p = &a->places[i];
        if (p->count && memcmp(p->origin, origin, 16) == 0 && now_ms - p->since_ms < MINUTE_MS)
            return p;
    }
    return NULL;
}

int64_t web_attempts_wait_ms(struct web_attempts *a, const char *address, int64_t now_ms)
{
    uint8_t origin[16];
    attempt_origin(address, origin);
    pthread_mutex_lock(&a->lock);
    const struct attempt_place *p = attempt_find(a, origin, now_ms);
    const int64_t wait = p && p->count >= WEB_ATTEMPTS_MOST ? p->since_ms + MINUTE_MS - now_ms : 0;
    pthread_mutex_unlock(&a->lock);
    return wait;
}

int web_attempts_add(struct web_attempts *a, const char *address, int64_t now_ms)
{
    uint8_t origin[16];
    attempt_origin(address, origin);
    pthread_mutex_lock(&a->lock);
    struct attempt_place *p = attempt_find(a, origin, now_ms);
    if (!p) {
        p = &a->places[0];
        for (size_t i = 0; i < PLACES && p->count; i++)
            if (!a->places[i].count || a->places[i].since_ms < p->since_ms)
                p = &a->places[i];
        *p = (struct attempt_place){.since_ms = now_ms};
        memcpy(p->origin, origin, 16);
    }
    const int count = ++p->count;
    pthread_mutex_unlock(&a->lock);
    return count;
}
