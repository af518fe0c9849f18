#ifndef DDP_PROTO_RPC_TLS_H
#define DDP_PROTO_RPC_TLS_H

#include "base/err.h"

/* TLS with PEM files. A server requires a certificate of its CA from every client; a client checks the
 * server's certificate and name. Both sides read the files anew when they change (checked at each handshake
 * or new channel), so certificates are replaced by renaming new files into place. Files that cannot be used are
 * tried again each time, and the old ones stay in use until then. */
struct rpc_tls_files {
    const char *ca;   /* the certificate authority to trust */
    const char *cert; /* own certificate chain */
    const char *key;
};

/* Checks that all three files can be read and contain PEM, and that the key belongs to the certificate. So the program
 * fails at its start with the file's name, not at the first handshake. */
MUST_CHECK enum err_code rpc_tls_check(const struct rpc_tls_files *files, struct err *e);

#endif
