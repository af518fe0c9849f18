#include "daemon/supervisor/lease.h"

void lease_renew(struct lease *l, int64_t sent, int64_t length)
{
    if (length <= 0 || sent < l->sent) /* acknowledgements may arrive late */
        return;
    l->sent = sent;
    l->length = length;
}

bool lease_held(const struct lease *l)
{
    return l->length > 0;
}

int64_t lease_term(const struct lease *l, int64_t grace)
{
    return lease_end(l) - (grace < l->length / 6 ? grace : l->length / 6);
}

int64_t lease_end(const struct lease *l)
{
    return l->sent + l->length;
}
