#include "daemon/coordinator/web/web_bearer.h"

#include <string.h>

#include "base/crypto/id.h"
#include "base/mem.h"

char *web_bearer_print(const char *key, enum web_bearer_kind kind, const char *address, const char *value)
{
    return xasprintf("%s,%c,%s,%s", key, (char)kind, address, value);
}

bool web_bearer_parse(const char *key, const char *text, size_t len, struct web_bearer *out)
{
    const size_t size = strlen(key);
    *out = (struct web_bearer){0};
    if (len < size || !secret_equal(text, key, size))
        return false;
    text += size;
    len -= size;
    if (len < 3 || text[0] != ',' || !memchr("tlu", text[1], 3) || text[2] != ',')
        return true;
    const char *address = text + 3, *comma = memchr(address, ',', len - 3);
    if (!comma || (size_t)(comma - address) >= sizeof(out->address))
        return true;
    memcpy(out->address, address, (size_t)(comma - address));
    out->kind = (enum web_bearer_kind)text[1];
    out->value = comma + 1;
    out->len = len - (size_t)(comma + 1 - text);
    return true;
}
