#include "base/web/web_headers.h"

#include <string.h>
#include <strings.h>

#define TOKEN_MARKS "!#$%&'*+-.^_`|~" /* RFC 9110, 5.6.2 */
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

void web_headers_add(struct web_headers *h, const char *name, const char *value)
{
    /* libmicrohttpd takes "Content-Length " for another header than "Content-Length", and a proxy may not. */
    h->bad_name = h->bad_name || !*name || name[strspn(name, LETTERS TOKEN_MARKS)];
    h->hosts += strcasecmp(name, "Host") == 0;
    h->origins += strcasecmp(name, "Origin") == 0;
    h->lengths += strcasecmp(name, "Content-Length") == 0;
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        h->encodings++;
        h->bad_encoding = h->bad_encoding || strcasecmp(value ? value : "", "chunked") != 0;
    }
}

enum err_code web_headers_check(const struct web_headers *h, struct err *e)
{
    if (h->bad_name)
        return err_set(e, ERR_INVALID_ARGUMENT, "the request has a header with an invalid name");
    if (h->hosts > 1 || h->origins > 1)
        return err_set(e, ERR_INVALID_ARGUMENT, "the request has two headers %s",
                       h->hosts > 1 ? "Host" : "Origin");
    if (h->bad_encoding)
        return err_set(e, ERR_INVALID_ARGUMENT, "Transfer-Encoding: only 'chunked' is supported");
    if (h->lengths + h->encodings > 1)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the request has more than one header Content-Length or Transfer-Encoding");
    return ERR_OK;
}
