#include "base/web/web_access.h"

#include <string.h>
#include <strings.h>

#include "base/crypto/id.h"
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

#define NAME_MOST 256

/* The name in a Host header, without the port and without the brackets of an IPv6 address. False: it has another form. */
static bool access_host_name(const char *host, char name[NAME_MOST])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    const bool bracket = *host == '[';
    const char *start = host + bracket;
    const size_t len = strspn(start, bracket ? "0123456789abcdefABCDEF.:" : letters);
    const char *rest = start + len;
    if (bracket && *rest++ != ']')
        return false;
    if (!len || len >= NAME_MOST || (*rest && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")])))
        return false;
    memcpy(name, start, len);
    name[len] = '\0';
    return true;
}

static bool access_is_own_host(const struct web_rules *rules, const char *host)
{
    char name[NAME_MOST];
    return web_access_is_loopback(host) ||
           (rules->has_name && access_host_name(host, name) && rules->has_name(rules->user, name));
}

static bool access_is_own_origin(const struct web_rules *rules, const char *origin, const char *host)
{
    const char *scheme = rules->tls ? "https://" : "http://";
    const size_t len = strlen(scheme);
    return strncasecmp(origin, scheme, len) == 0 && strcasecmp(origin + len, host) == 0;
}

static bool access_has_key(const char *key, const char *given)
{
    const size_t len = strlen(key);
    return given && strlen(given) == len && secret_equal(given, key, len);
}

enum err_code web_access_check(const struct web_rules *rules, const struct web_caller *c, struct err *e)
{
    if (!c->host || !access_is_own_host(rules, c->host))
        return err_set(e, ERR_PERMISSION_DENIED,
                       rules->has_name
                           ? "the Host header must be a name in the server's certificate, got '%.100s'"
                           : "the Host header must be localhost, 127.0.0.1 or [::1], got '%.100s'",
                       c->host ? c->host : "");
    if (c->origin && !access_is_own_origin(rules, c->origin, c->host))
        return err_set(e, ERR_PERMISSION_DENIED, "the request comes from a page of another origin: '%.100s'",
                       c->origin);
    if (strncmp(c->path, "/api/", 5) != 0)
        return ERR_OK; /* the page itself holds nothing that is secret */
    if (rules->key && !access_has_key(rules->key, c->key))
        return err_set(e, ERR_PERMISSION_DENIED, "%s: use the URL that ddpctl printed",
                       c->key ? "wrong X-DDP-Key" : "the header X-DDP-Key is missing");
    if (strcmp(c->method, "POST") == 0 && (!c->confirm || strcmp(c->confirm, "1") != 0))
        return err_set(e, ERR_PERMISSION_DENIED, "a POST request needs the header 'X-DDP: 1'");
    return ERR_OK;
}

bool web_access_cookie(const char *header, const char *name, char value[WEB_KEY_TEXT])
{
    const size_t len = strlen(name);
    bool found = false;
    while (*header) {
        header += strspn(header, "; ");
        const size_t size = strcspn(header, "; ");
        if (size > len && strncmp(header, name, len) == 0 && header[len] == '=') {
            const char *text = header + len + 1;
            if (found || size != len + WEB_KEY_TEXT || strspn(text, "0123456789abcdef") < WEB_KEY_TEXT - 1)
                return false;
            memcpy(value, text, WEB_KEY_TEXT - 1);
            value[WEB_KEY_TEXT - 1] = '\0';
            found = true;
        }
        header += size;
    }
    return found;
}
