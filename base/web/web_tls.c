#include "base/web/web_tls.h"

#include <stdlib.h>
#include <string.h>

#include <gnutls/abstract.h>
#include <gnutls/x509.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto/pem.h"
#include "base/crypto/pem_watch.h"
#include "base/crypto/secret.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#define PEM_LIMIT ((size_t)1 << 20)
#define CHAIN_MOST 8
#define LINGER_MS 120000 /* longer than a handshake may take */

struct certificate {
    gnutls_x509_crt_t own; /* the first of the chain, for its names */
    gnutls_pcert_st chain[CHAIN_MOST];
    unsigned count;
    gnutls_privkey_t key;
    int64_t replaced_ms;
    struct certificate *older; /* handshakes may still use it */
};
struct web_tls {
    char *cert, *key;
    struct pem_watch watch;
    struct certificate *newest;
};

/* GnuTLS gives the callback no pointer of ours. libmicrohttpd accepts a connection and makes its handshake in one thread, and each
 * server has its own thread. */
static _Thread_local struct web_tls *server_tls;

static void certificate_free(struct certificate *c)
{
    for (unsigned i = 0; i < c->count; i++)
        gnutls_pcert_deinit(&c->chain[i]);
    if (c->own)
        gnutls_x509_crt_deinit(c->own);
    if (c->key)
        gnutls_privkey_deinit(c->key);
    free(c);
}

static int certificate_import(struct certificate *c, const struct buf *cert, const struct buf *key)
{
    const gnutls_datum_t cert_text = {(unsigned char *)cert->data, (unsigned)cert->len};
    const gnutls_datum_t key_text = {(unsigned char *)key->data, (unsigned)key->len};
    gnutls_x509_crt_t list[CHAIN_MOST];
    unsigned count = CHAIN_MOST;
    int rc = gnutls_x509_crt_list_import(list, &count, &cert_text, GNUTLS_X509_FMT_PEM, 0);
    if (rc < 0)
        return rc;
    rc = 0;
    for (unsigned i = 0; i < count; i++) {
        if (rc >= 0)
            rc = gnutls_pcert_import_x509(&c->chain[i], list[i], 0);
        c->count += rc >= 0;
        if (i == 0)
            c->own = list[0];
        else
            gnutls_x509_crt_deinit(list[i]);
    }
    if (rc >= 0)
        rc = gnutls_privkey_init(&c->key);
    return rc >= 0 ? gnutls_privkey_import_x509_raw(c->key, &key_text, GNUTLS_X509_FMT_PEM, NULL, 0) : rc;
}

static void key_text_release(struct buf *text)
{
    if (text->data)
        explicit_bzero(text->data, text->len);
    buf_release(text);
}

static enum err_code certificate_read(const struct web_tls *t, struct certificate **out, struct err *e)
{
    CLEANUP(buf_release) struct buf cert = {0};
    CLEANUP(key_text_release) struct buf key = {0};
    if (file_read(t->cert, PEM_LIMIT, &cert, e) != ERR_OK ||
        secret_read(t->key, PEM_LIMIT, &key, e) != ERR_OK)
        return err_wrap(e, "TLS");
    const struct pem_text cert_text = {t->cert, cert.data ? cert.data : "", cert.len};
    const struct pem_text key_text = {t->key, key.data ? key.data : "", key.len};
    if (pem_pair_check(&cert_text, &key_text, e) != ERR_OK)
        return e->code;
    struct certificate *c = xcalloc(1, sizeof(*c));
    const int rc = certificate_import(c, &cert, &key);
    if (rc < 0) {
        certificate_free(c);
        return err_set(e, ERR_INVALID_ARGUMENT, "TLS: %s and %s: %s", t->cert, t->key, gnutls_strerror(rc));
    }
    *out = c;
    return ERR_OK;
}

static bool tls_files_changed(struct web_tls *t)
{
    return pem_watch_look(&t->watch, (const char *const[]){t->cert, t->key}, 2);
}

static void tls_replace(struct web_tls *t, struct certificate *fresh)
{
    const int64_t now = clock_boot_ms();
    struct certificate **at = &t->newest;
    while (*at) {
        struct certificate *c = *at;
        if (c->replaced_ms && now - c->replaced_ms > LINGER_MS) {
            *at = c->older;
            certificate_free(c);
        } else {
            c->replaced_ms = c->replaced_ms ? c->replaced_ms : now;
            at = &c->older;
        }
    }
    fresh->older = t->newest;
    t->newest = fresh;
}

enum err_code web_tls_open(struct web_tls **out, const struct web_tls_files *files, struct err *e)
{
    struct web_tls *t = xcalloc(1, sizeof(*t));
    t->cert = xstrdup(files->cert);
    t->key = xstrdup(files->key);
    (void)tls_files_changed(t);
    if (certificate_read(t, &t->newest, e) != ERR_OK) {
        web_tls_close(t);
        return e->code;
    }
    *out = t;
    return ERR_OK;
}

void web_tls_close(struct web_tls *t)
{
    if (!t)
        return;
    for (struct certificate *c = t->newest, *older; c; c = older) {
        older = c->older;
        certificate_free(c);
    }
    free(t->cert);
    free(t->key);
    free(t);
}

bool web_tls_has_name(const struct web_tls *t, const char *name)
{
    return gnutls_x509_crt_check_hostname(t->newest->own, name) != 0;
}

void web_tls_use(struct web_tls *t)
{
    server_tls = t;
}

static int tls_give_certificate(gnutls_session_t session, const gnutls_datum_t *authorities,
                                int authority_count, const gnutls_pk_algorithm_t *algorithms,
                                int algorithm_count, gnutls_pcert_st **chain, unsigned *count,
                                gnutls_privkey_t *key)
{
    struct web_tls *t = server_tls;
    struct certificate *fresh;
    struct err e;
    (void)session;
    (void)authorities;
    (void)authority_count;
    (void)algorithms;
    (void)algorithm_count;
    BUG_ON(!t);
    const bool changed = tls_files_changed(t);
    if (changed || t->watch.failed) {
        t->watch.failed = certificate_read(t, &fresh, &e) != ERR_OK;
        if (!t->watch.failed) {
            tls_replace(t, fresh);
            log_info("web_tls_reloaded", "certificate=%s", LOG_Q(t->cert));
        } else if (changed) { /* each handshake tries again, but the same files are reported once */
            log_warn("web_tls_not_reloaded", "why=%s", LOG_Q(e.msg));
        }
    }
    *chain = t->newest->chain;
    *count = t->newest->count;
    *key = t->newest->key;
    return 0;
}

void *web_tls_callback(void)
{
    return (void *)(uintptr_t)tls_give_certificate;
}
