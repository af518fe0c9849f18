#include "base/web/web_access.h"

#include <string.h>
#include <strings.h>

#include "base/id.h"
#include "base/mem.h"

void web_access_new_key(char key[WEB_KEY_TEXT])
{
    uint8_t random[(WEB_KEY_TEXT - 1) / 2];
    id_random(random, sizeof(random));
    hex_encode(key, random, sizeof(random));
}

bool web_access_is_loopback(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const size_t len = strlen(names[i]);
        if (strncasecmp(host, names[i], len) != 0)
            continue;
        const char *rest = host + len;
        /* Any port, because `ssh -L` may give the browser another one. */
        if (!*rest || (*rest == ':' && rest[1] && !rest[1 + strspn(rest + 1, "0123456789")]))
            return true;
    }
    return false;
}

static bool access_is_own_origin(const char *origin, const char *host)
{
    const char *scheme = "http://";
    const size_t len = strlen(scheme);
    return strncasecmp(origin, scheme, len) == 0 && strcasecmp(origin + len, host) == 0;
}

static bool access_has_key(const char *key, const char *given)
{
    const size_t len = strlen(key);
    return given && strlen(given) == len && secret_equal(given, key, len);
}

enum err_code web_access_check(const char *key, const struct web_caller *c, struct err *e)
{
    if (!c->host || !web_access_is_loopback(c->host))
        return err_set(e, ERR_PERMISSION_DENIED,
                       "the Host header must be localhost, 127.0.0.1 or [::1], got '%.100s'",
                       c->host ? c->host : "");
    if (c->origin && !access_is_own_origin(c->origin, c->host))
        return err_set(e, ERR_PERMISSION_DENIED, "the request comes from a page of another origin: '%.100s'",
                       c->origin);
    if (strncmp(c->path, "/api/", 5) != 0)
        return ERR_OK; /* the page itself holds nothing that is secret */
    if (!access_has_key(key, c->key))
        return err_set(e, ERR_PERMISSION_DENIED, "%s: use the URL that ddpctl printed",
                       c->key ? "wrong X-DDP-Key" : "the header X-DDP-Key is missing");
    if (strcmp(c->method, "POST") == 0 && (!c->confirm || strcmp(c->confirm, "1") != 0))
        return err_set(e, ERR_PERMISSION_DENIED, "a POST request needs the header 'X-DDP: 1'");
    return ERR_OK;
}
