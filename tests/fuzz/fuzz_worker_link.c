#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "daemon/supervisor/worker_link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input is what a worker sends to its supervisor, one request a line. What is accepted reaches the coordinator's core
 * as it is: a path that is absolute and UTF-8, numbers that are not negative; and the fact arrives at the agent. */
static void asks_check(const struct spawn_asks *asks)
{
    CLEANUP(control_message_release) struct control_message arrived = {0};
    CLEANUP(buf_release) struct buf datagram = {0};
    const struct control_message sent = {.op = CONTROL_FACT, .fact = {.spawn = 1, .asks = *asks}};
    struct err e;

    BUG_ON(asks->step < 0 || asks->bytes < 0 || asks->promise < 0);
    BUG_ON(asks->commit && (!asks->path || *asks->path != '/' || strlen(asks->path) > WORKER_PATH_MAX));
    BUG_ON(asks->path && !json_text_valid(asks->path));
    control_encode(&sent, &datagram);
    BUG_ON(control_decode(&arrived, datagram.data, datagram.len, &e));
    BUG_ON(arrived.fact.asks.commit != asks->commit || arrived.fact.asks.promise != asks->promise);
    BUG_ON(asks->commit && strcmp(arrived.fact.asks.path, asks->path));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct worker_link link = {.fd = -1};
    struct spawn_asks asks = {0};
    CLEANUP(buf_release) struct buf news = {0};

    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t)(end - data) - at : size - at;
        const struct spawn_asks before = asks;
        struct err e;

        if (worker_link_take(&link, (const char *)data + at, len, &asks, &e))
            BUG_ON(memcmp(&before, &asks, sizeof(asks)));
        asks_check(&asks);
        at += len + 1;
    }
    worker_link_encode(&link, &asks, &news);
    spawn_fact_set_text(&asks.path, NULL);
    return 0;
}
