#ifndef DDP_TRAINER_MEMBER_COLL_FLOW_H
#define DDP_TRAINER_MEMBER_COLL_FLOW_H

#include "trainer/member/coll/group.h"
#include "trainer/member/coll/handshake.h"

/* Two connections of a rank: one to a rank that it sends to, one from a rank that it receives from. A call is one
 * outgoing and one incoming list of pieces of the caller's memory. All ranks make the same calls on a flow. */

enum flow_kind {
    FLOW_ALLREDUCE = 1,
    FLOW_BROADCAST,
    FLOW_ALLGATHER,
    FLOW_EXCHANGE,
    FLOW_SCATTER,
    FLOW_GATHER,
    FLOW_ALLREDUCE_BF16,
    FLOW_SCATTER_BF16,
    FLOW_ALLREDUCE_BLOCKS,
    FLOW_ALLREDUCE_BLOCKS_BF16
};

struct flow;
struct flow_config {
    enum coll_handshake_purpose purpose;
    int to, from; /* ranks */
    struct coll_listener *listener;
    int64_t deadline;
};
/* Sets *out as soon as there is something to close, even if it fails. */
MUST_CHECK enum err_code flow_open(struct flow **out, struct coll_group *g, const struct flow_config *config,
                                   struct err *e);
/* A flow over connections that the handshake made; it owns them from here on. */
struct flow *flow_over(struct coll_group *g, int out, int in);
void flow_close(struct flow *f);                  /* NULL is fine */
void flow_abort(struct flow *f);                  /* shuts the connections down; any thread; NULL is fine */
void flow_ends(const struct flow *f, int fds[2]); /* gets the connections */
bool flow_is_short(const struct flow *f);         /* whether it sends over a short path (send_buffer.h) */

/* A call: flow_start, the pieces in the order of their bytes, flow_run. size: compared between ranks. */
void flow_start(struct flow *f, enum flow_kind kind, uint64_t size);
enum flow_use { FLOW_STORE, FLOW_ADD, FLOW_ADD_BF16 };
/* FLOW_ADD: the incoming floats are added to the floats at `data`. FLOW_ADD_BF16: the same with bf16. Returns the position of
 * the first byte in the incoming stream. */
size_t flow_receive(struct flow *f, void *data, size_t size, enum flow_use use);
/* from: the position at which this data comes in, so that each byte is sent when it has come. FLOW_OWN: this rank has it now. */
#define FLOW_OWN ((size_t)0) /* the header's position */
void flow_send(struct flow *f, const void *data, size_t size, size_t from);
MUST_CHECK enum err_code flow_run(struct coll_group *g, struct flow *f, struct err *e);

#endif
