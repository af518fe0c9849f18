#ifndef DDP_BASE_NET_WEB_URL_H
#define DDP_BASE_NET_WEB_URL_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/err.h"

/* The address of a web service that a person wrote: http://HOST[:PORT][/PATH] or https://. The form is strict, so
 * that every reader of the URL finds the same host in it: no user and password, no backslashes, no path that climbs
 * ("/../", also encoded), printable ASCII only. The path may be a secret: show web_url_shown instead. */
#define WEB_URL_BYTES 2048

struct web_url {
    bool https;
    char host[256]; /* lower case; an IPv6 address without its brackets */
    int port;
    const char *path; /* borrowed from the text: "", or from the first '/' or '?' on */
};

/* INVALID_ARGUMENT: the message does not repeat the text. */
MUST_CHECK enum err_code web_url_parse(struct web_url *out, const char *text, struct err *e);
bool web_url_valid(const char *text);
/* "https://hooks.slack.com/...": what may be shown to anyone. The caller frees it. */
char *web_url_shown(const char *text);
/* Overwrites the URL's path in a text that another machine sent: the whole path, its long parts, and the beginning of either
 * at the end of a text that was cut. */
void web_url_hide(char *text, const char *url);
/* Whether the URL has the scheme, host and port of the other one, and a path below its path. */
bool web_url_below(const char *text, const char *above);
/* Whether the address is not one of the public internet: this machine, a private network, a link, a group, or one
 * that contains such an IPv4 address. */
bool web_address_private(const struct sockaddr *address);

#endif
