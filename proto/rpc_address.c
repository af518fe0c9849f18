#include "proto/rpc_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/mem.h"

static enum err_code address_bad(const char *text, struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "invalid address '%s': expected host:port, [v6]:port or unix:/path", text);
}

static enum err_code parse_port(const char *text, const char *digits, int *port, struct err *e)
{
    char *end;
    long value;

    if (*digits < '0' || *digits > '9')
        return address_bad(text, e);
    value = strtol(digits, &end, 10);
    if (*end || value > 65535)
        return address_bad(text, e);
    *port = (int)value;
    return ERR_OK;
}

enum err_code rpc_address_parse(const char *text, struct rpc_address *out, struct err *e)
{
    const char *host = text, *end;

    memset(out, 0, sizeof(*out));
    if (strncmp(text, "unix:", 5) == 0) {
        if (text[5] != '/')
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "invalid address '%s': a unix socket needs an absolute path", text);
        out->path = text + 5;
        return ERR_OK;
    }
    if (*text == '[') {
        host = text + 1;
        end = strchr(host, ']');
        if (!end || end[1] != ':')
            return address_bad(text, e);
        if (parse_port(text, end + 2, &out->port, e))
            return e->code;
    } else {
        end = strrchr(text, ':');
        if (!end || memchr(text, ':', (size_t)(end - text)))
            return address_bad(text, e);
        if (parse_port(text, end + 1, &out->port, e))
            return e->code;
    }
    if (end == host || (size_t)(end - host) >= sizeof(out->host))
        return address_bad(text, e);
    memcpy(out->host, host, (size_t)(end - host));
    return ERR_OK;
}

bool rpc_address_absent(const char *text)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct rpc_address address;
    struct err e;

    if (rpc_address_parse(text, &address, &e) || !address.path || strlen(address.path) >= sizeof(at.sun_path))
        return false;
    strcpy(at.sun_path, address.path);
    return connect(fd, (const struct sockaddr *)&at, sizeof(at)) != 0 &&
           (errno == ENOENT || errno == ECONNREFUSED);
}

enum err_code rpc_address_target(const char *text, char **out, struct err *e)
{
    struct rpc_address address;
    struct in_addr v4;
    char *scope;

    if (rpc_address_parse(text, &address, e))
        return e->code;
    if (!address.path && address.port == 0)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "invalid address '%s': expected a port from 1 to 65535, got 0", text);
    scope = strchr(address.host, '%');
    if (address.path)
        *out = xstrdup(text);
    else if (inet_pton(AF_INET, address.host, &v4) == 1)
        *out = xasprintf("ipv4:%s:%d", address.host, address.port);
    else if (strchr(address.host, ':') && scope)
        *out = xasprintf("ipv6:[%.*s%%25%s]:%d", (int)(scope - address.host), address.host, scope + 1,
                         address.port);
    else if (strchr(address.host, ':'))
        *out = xasprintf("ipv6:[%s]:%d", address.host, address.port);
    else
        *out = xasprintf("dns:///%s:%d", address.host, address.port);
    return ERR_OK;
}
