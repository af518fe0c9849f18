#include "base/net/web_url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define HIDDEN_LEAST 5       /* bytes of a path that is hidden; a shorter one is no secret */
#define HIDDEN_PART_LEAST 12 /* the same of one part: shorter parts may be usual words, such as "services" */

static bool url_has_plain_letters(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~' || strchr("\"<>\\^`{|}#", *text))
            return false;
    return true;
}

/* Finds "/../", "/./" and their encoded forms. A server may resolve them, and the path would then lead out of the allowed
 * one. */
static bool url_path_climbs(const char *path)
{
    size_t end = strcspn(path, "?");
    for (size_t i = 0; i < end;) {
        size_t dots = 0;
        i += path[i] == '/' ? 1 : 3; /* past the slash */
        for (;;) {
            if (path[i] == '.' && i < end)
                i++;
            else if (strncasecmp(path + i, "%2e", 3) == 0 && i < end)
                i += 3;
            else
                break;
            dots++;
        }
        if ((dots == 1 || dots == 2) &&
            (i >= end || path[i] == '/' || path[i] == ';' || strncasecmp(path + i, "%2f", 3) == 0))
            return true;
        while (i < end && path[i] != '/' && strncasecmp(path + i, "%2f", 3) != 0)
            i++;
    }
    return false;
}

/* The host and port up to the path. Returns false if they are invalid. */
static bool url_read_authority(struct web_url *out, const char *text, size_t len)
{
    const bool six = len && *text == '[';
    const char *end = six ? memchr(text, ']', len) : memchr(text, ':', len);
    const char *host = text + six;
    struct in6_addr ignored;
    if (six && !end)
        return false;
    const size_t size = end ? (size_t)(end - host) : len;
    if (!size || size >= sizeof(out->host))
        return false;
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)host[i];
        if (!isalnum(c) && !strchr(six ? ":." : "-._", c))
            return false;
        out->host[i] = (char)tolower(c);
    }
    out->host[size] = '\0';
    if (six && inet_pton(AF_INET6, out->host, &ignored) != 1)
        return false;
    const char *rest = end ? end + six : text + len;
    if (rest == text + len)
        return true;
    if (*rest++ != ':' || rest == text + len || text + len - rest > 5)
        return false;
    out->port = 0;
    for (; rest < text + len; rest++) {
        if (!isdigit((unsigned char)*rest))
            return false;
        out->port = out->port * 10 + (*rest - '0');
    }
    return out->port > 0 && out->port <= 65535;
}

enum err_code web_url_parse(struct web_url *out, const char *text, struct err *e)
{
    const bool https = strncasecmp(text, "https://", 8) == 0;
    if (!https && strncasecmp(text, "http://", 7) != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "expected a URL that begins with https:// or http://");
    if (strlen(text) > WEB_URL_BYTES)
        return err_set(e, ERR_INVALID_ARGUMENT, "the URL is longer than %d bytes", WEB_URL_BYTES);
    if (!url_has_plain_letters(text))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the URL has a character that must be written as %%XX, or a '#'");
    const char *authority = text + (https ? 8 : 7);
    const size_t len = strcspn(authority, "/?");
    if (memchr(authority, '@', len))
        return err_set(e, ERR_INVALID_ARGUMENT, "the URL may not have a user or password before its host");
    *out = (struct web_url){.https = https, .port = https ? 443 : 80, .path = authority + len};
    if (!url_read_authority(out, authority, len))
        return err_set(e, ERR_INVALID_ARGUMENT, "expected https://HOST[:PORT]/PATH");
    if (url_path_climbs(out->path))
        return err_set(e, ERR_INVALID_ARGUMENT, "the URL may not have '.' or '..' as a part of its path");
    return ERR_OK;
}

bool web_url_valid(const char *text)
{
    struct web_url url;
    struct err e;
    return web_url_parse(&url, text, &e) == ERR_OK;
}

char *web_url_shown(const char *text)
{
    struct web_url url;
    struct err e;
    if (web_url_parse(&url, text, &e) != ERR_OK)
        return xstrdup("(invalid URL)");
    const char *scheme = url.https ? "https" : "http";
    const bool six = strchr(url.host, ':');
    CLEANUP(free_text) char *host = xasprintf(six ? "[%s]" : "%s", url.host);
    const char *more = *url.path && strcmp(url.path, "/") != 0 ? "/..." : "";
    if (url.port == (url.https ? 443 : 80))
        return xasprintf("%s://%s%s", scheme, host, more);
    return xasprintf("%s://%s:%d%s", scheme, host, url.port, more);
}

static void text_hide(char *text, const char *secret, size_t size)
{
    for (char *at = text; *at; at++) {
        size_t same = 0;
        while (same < size && at[same] == secret[same])
            same++;
        if (same == size || (same >= HIDDEN_LEAST && !at[same])) {
            memset(at, '*', same);
            at += same - 1;
        }
    }
}

void web_url_hide(char *text, const char *url)
{
    struct web_url parts;
    struct err e;
    if (web_url_parse(&parts, url, &e) != ERR_OK || !*parts.path)
        return;
    const char *secret = parts.path + 1;
    if (strlen(secret) >= HIDDEN_LEAST)
        text_hide(text, secret, strlen(secret));
    while (*secret) {
        const size_t size = strcspn(secret, "/?&=");
        if (size >= HIDDEN_PART_LEAST)
            text_hide(text, secret, size);
        secret += size + (secret[size] != '\0');
    }
}

bool web_url_below(const char *text, const char *above)
{
    struct web_url a, b;
    struct err e;
    if (web_url_parse(&a, text, &e) != ERR_OK || web_url_parse(&b, above, &e) != ERR_OK)
        return false;
    if (a.https != b.https || a.port != b.port || strcmp(a.host, b.host) != 0)
        return false;
    const size_t len = strlen(b.path);
    if (len <= 1)
        return true; /* the whole host */
    return strncmp(a.path, b.path, len) == 0 &&
           (b.path[len - 1] == '/' || !a.path[len] || strchr("/?", a.path[len]));
}

static bool address4_private(uint32_t a)
{
    static const struct {
        uint32_t net;
        int bits;
    } nets[] = {
        {0x00000000, 8},  /* this network */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* shared, behind a provider's NAT */
        {0x7f000000, 8},  /* this machine */
        {0xa9fe0000, 16}, /* link, with the metadata service of clouds */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* protocols */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* benchmarks */
        {0xe0000000, 3},  /* groups, and reserved */
    };
    for (size_t i = 0; i < ARRAY_LEN(nets); i++)
        if ((a ^ nets[i].net) >> (32 - nets[i].bits) == 0)
            return true;
    return false;
}

static uint32_t address4_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool address6_private(const uint8_t *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, none[12] = {0};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    if (memcmp(a, mapped, 12) == 0 || memcmp(a, none, 12) == 0 || memcmp(a, nat64, 12) == 0)
        return address4_private(address4_at(a + 12)) || memcmp(a, none, 12) == 0;
    if (a[0] == 0x20 && a[1] == 0x02) /* 6to4 */
        return address4_private(address4_at(a + 2));
    /* Only 2000::/3 is public, except Teredo, whose addresses contain an IPv4 address. */
    return (a[0] & 0xe0) != 0x20 || (a[0] == 0x20 && a[1] == 0x01 && a[2] == 0 && a[3] == 0);
}

bool web_address_private(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return address4_private(ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    if (address->sa_family == AF_INET6)
        return address6_private(((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr);
    return true;
}
