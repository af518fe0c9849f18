#ifndef DDP_BASE_WEB_WEB_TLS_H
#define DDP_BASE_WEB_WEB_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The certificate of a web server, from PEM files that are read again when they have changed. One thread: while the
 * server runs, its own. */

struct web_tls_files {
    const char *cert, *key; /* the certificate with its chain; its private key */
};

struct web_tls;
/* The texts are copied. INVALID_ARGUMENT: the files are not a certificate and its key. */
MUST_CHECK enum err_code web_tls_open(struct web_tls **out, const struct web_tls_files *files, struct err *e);
void web_tls_close(struct web_tls *t); /* NULL is allowed */
/* Whether the certificate is valid for a name or an address. */
bool web_tls_has_name(const struct web_tls *t, const char *name);
/* The next handshakes of this thread use this certificate. */
void web_tls_use(struct web_tls *t);
/* GnuTLS calls it at each handshake (gnutls_certificate_retrieve_function2). */
void *web_tls_callback(void);

#endif
