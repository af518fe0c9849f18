#ifndef DDP_BASE_WEB_WEB_HEADERS_H
#define DDP_BASE_WEB_WEB_HEADERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Checks that the headers of a request are not ambiguous about where its body ends and for which host it is. A proxy may
 * read ambiguous headers in another way than libmicrohttpd, and so pass on a request that it has not checked, hidden in the
 * body of another one (request smuggling). No state; any thread. */

struct web_headers { /* zeroed at first */
    size_t hosts, origins, lengths, encodings;
    bool bad_name, bad_encoding;
};

void web_headers_add(struct web_headers *h, const char *name, const char *value);
/* INVALID_ARGUMENT: ambiguous. The connection must be closed after the answer. */
MUST_CHECK enum err_code web_headers_check(const struct web_headers *h, struct err *e);

#endif
