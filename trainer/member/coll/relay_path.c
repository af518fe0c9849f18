#include "trainer/member/coll/relay_path.h"

#include "base/buf.h"
#include "base/crypto/id.h"
#include "base/log.h"
#include "base/mem.h"

bool relay_path_known(const struct coll_group *g)
{
    return g->relay.address.host[0] != '\0';
}

enum err_code relay_path_connect(int *fd, const struct coll_group *g, struct err *e)
{
    return coll_connect_tcp(fd, &g->relay.address, e);
}

/* Nobody who lacks the generation's key can make the name, so nobody else can take a peer's place. */
static void relay_path_name(uint8_t out[RELAY_NAME], const struct coll_group *g,
                            const struct shake_pair *pair)
{
    uint8_t text[8 + SHAKE_FIELDS] = "relay";

    shake_write_fields(text + 8, g, pair);
    digest_hmac(out, g->key, sizeof(g->key), text, sizeof(text));
}

bool relay_path_ask(const struct shake *s, const struct coll_group *g, enum relay_end end,
                    const struct shake_pair *pair)
{
    struct relay_hello hello = {.job = g->job, .generation = g->generation, .end = end};
    uint8_t out[RELAY_HELLO];

    relay_path_name(hello.name, g, pair);
    relay_write_hello(out, &hello, g->relay.ticket, s->in);
    return shake_send(s->fd, out, sizeof(out));
}

void relay_path_keep(struct coll_group *g, enum relay_end end, int peer, bool relayed)
{
    if (g->relayed)
        g->relayed[2 * peer + (int)end] = relayed;
}

bool relay_path_used(const struct coll_group *g, enum relay_end end, int peer)
{
    return g->relayed && g->relayed[2 * peer + (int)end];
}

void relay_path_log(const struct coll_group *g)
{
    CLEANUP(buf_release) struct buf pairs = {0};

    for (int r = 0; r < g->layout.world_size; r++)
        if (relay_path_used(g, RELAY_CONNECTOR, r) || relay_path_used(g, RELAY_ACCEPTOR, r))
            buf_printf(&pairs, "%srank %d and rank %d", pairs.len ? ", " : "", g->layout.rank, r);
    if (pairs.len)
        log_info("relay", "job=%lld gen=%lld rank=%d relay=%s:%u pairs=%s", (long long)g->job,
                 (long long)g->generation, g->layout.rank, g->relay.address.host, g->relay.address.port,
                 LOG_Q(pairs.data));
}
