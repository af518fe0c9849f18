#ifndef DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_OFFERED_PARTS_H
#define DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_OFFERED_PARTS_H

#include "daemon/coordinator/core/model.h"

/* Which parts of an offered snapshot a generation has. A node offers a snapshot only if all parts that lie on the node
 * are good, and names the nodes that wrote the others. So a part is here if at least one rank's offer does not list it as missing. */

/* The generation keeps the names of nodes that its ranks' offers bring, until it has formed or ended. INVALID_ARGUMENT if these
 * offers have more names than those of a real job, or if a name is not one of a node. */
MUST_CHECK enum err_code offered_parts_check(const struct spawn *s, const struct core_offer *offers,
                                             size_t count, struct err *e);
/* The spawn has joined its generation with these offers, which are copied and have been checked. It has none before. */
void offered_parts_keep(struct spawn *s, const struct core_offer *offers, size_t count);
/* Nodes of the generation that wrote parts of this snapshot which no rank offers: they lack them, or theirs are damaged. If the
 * snapshot needs all of its parts, also such nodes that are not in the generation. In the order of the parts. The caller frees; NULL: none, and the generation may start from this snapshot. All ranks have
 * joined. Takes time in proportion to what the offers hold. */
char **offered_parts_lacking(const struct generation *g, const char *digest);
/* The offer of the snapshot with this digest, by the lowest rank; NULL: none. */
const struct core_offer *offered_parts_find(const struct generation *g, const char *digest);
/* The generation has formed or ended: drops the offers with which its ranks joined it, and their complaints. */
void offered_parts_forget(struct generation *g);
/* The generation starts from its source: an event says which parts have no rank, and which ranks have no part. */
void offered_parts_say(struct core *core, const struct generation *g);

#endif
