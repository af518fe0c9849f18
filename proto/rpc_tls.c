#include "proto/rpc_tls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/grpc_security.h>

#include "base/buf.h"
#include "base/crypto/pem.h"
#include "base/crypto/secret.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/rpc_creds.h"

#define PEM_LIMIT ((size_t)1024 * 1024)

struct pems {
    struct buf ca, cert, key;
};

static void pems_release(struct pems *pems)
{
    if (pems->key.data)
        explicit_bzero(pems->key.data, pems->key.len);
    buf_release(&pems->ca);
    buf_release(&pems->cert);
    buf_release(&pems->key);
}

static enum err_code pem_read(const char *path, const char *what, struct buf *out, struct err *e)
{
    const bool is_secret = strcmp(what, "key") == 0;

    if (is_secret ? secret_read(path, PEM_LIMIT, out, e) : file_read(path, PEM_LIMIT, out, e))
        return err_wrap(e, "TLS %s", what);
    if (out->len == 0 || strlen(out->data) != out->len || !strstr(out->data, "-----BEGIN "))
        return err_set(e, ERR_INVALID_ARGUMENT, "TLS %s: %s: not a PEM file", what, path);
    return ERR_OK;
}

static enum err_code pems_read(const struct rpc_tls_files *files, struct pems *out, struct err *e)
{
    if (pem_read(files->ca, "ca", &out->ca, e) || pem_read(files->cert, "certificate", &out->cert, e) ||
        pem_read(files->key, "key", &out->key, e))
        return e->code;
    /* With the key of another certificate gRPC only reports that no connection comes about. */
    return pem_pair_check(&(struct pem_text){files->cert, out->cert.data, out->cert.len},
                          &(struct pem_text){files->key, out->key.data, out->key.len}, e);
}

enum err_code rpc_tls_check(const struct rpc_tls_files *files, struct err *e)
{
    CLEANUP(pems_release) struct pems pems = {0};

    if (!files->ca || !files->cert || !files->key)
        return err_set(e, ERR_INVALID_ARGUMENT, "TLS needs three files: ca, certificate and key");
    return pems_read(files, &pems, e);
}

bool rpc_tls_changed(const struct rpc_tls_files *files, struct pem_watch *watch)
{
    return pem_watch_look(watch, (const char *const[]){files->ca, files->cert, files->key}, 3);
}

/* ---- server: reads changed files again at the next handshake ---- */

struct rpc_tls_source {
    struct rpc_tls_files files; /* own copies */
    pthread_mutex_t lock;       /* handshakes run on gRPC's threads */
    struct pem_watch watch;
    bool loaded;
};

struct rpc_tls_source *rpc_tls_source_create(const struct rpc_tls_files *files)
{
    struct rpc_tls_source *source = xcalloc(1, sizeof(*source));

    source->files = (struct rpc_tls_files){xstrdup(files->ca), xstrdup(files->cert), xstrdup(files->key)};
    pthread_mutex_init(&source->lock, NULL);
    return source;
}

void rpc_tls_source_free(struct rpc_tls_source *source)
{
    if (!source)
        return;
    free((char *)source->files.ca);
    free((char *)source->files.cert);
    free((char *)source->files.key);
    pthread_mutex_destroy(&source->lock);
    free(source);
}

static grpc_ssl_certificate_config_reload_status source_fetch(void *user,
                                                              grpc_ssl_server_certificate_config **config)
{
    struct rpc_tls_source *source = user;
    grpc_ssl_certificate_config_reload_status result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    CLEANUP(pems_release) struct pems pems = {0};
    struct err e = {0};
    bool changed;

    pthread_mutex_lock(&source->lock);
    changed = rpc_tls_changed(&source->files, &source->watch);
    if (!changed && source->loaded && !source->watch.failed) {
        /* The usual case: no file has changed. */
    } else if (pems_read(&source->files, &pems, &e)) {
        source->watch.failed = true;
        /* Each handshake tries again, but the same files are reported once. */
        if (changed || !source->loaded)
            log_warn("tls_not_reloaded", "why=%s", LOG_Q(e.msg));
        if (!source->loaded)
            result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    } else {
        grpc_ssl_pem_key_cert_pair pair = {.private_key = pems.key.data, .cert_chain = pems.cert.data};

        *config = grpc_ssl_server_certificate_config_create(pems.ca.data, &pair, 1);
        if (source->loaded)
            log_info("tls_reloaded", "certificate=%s", LOG_Q(source->files.cert));
        source->loaded = true;
        source->watch.failed = false;
        result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    pthread_mutex_unlock(&source->lock);
    return result;
}

enum err_code rpc_creds_server(struct rpc_tls_source *source, grpc_server_credentials **out, struct err *e)
{
    grpc_ssl_server_credentials_options *options =
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, source_fetch, source);
    grpc_server_credentials *creds = grpc_ssl_server_credentials_create_with_options(options);

    if (!creds)
        return err_set(e, ERR_INVALID_ARGUMENT, "TLS: certificate %s and key %s do not fit together",
                       source->files.cert, source->files.key);
    *out = creds;
    return ERR_OK;
}

enum err_code rpc_creds_client(const struct rpc_tls_files *files, grpc_channel_credentials **out,
                               struct err *e)
{
    CLEANUP(pems_release) struct pems pems = {0};
    grpc_ssl_pem_key_cert_pair pair;
    grpc_channel_credentials *creds;

    if (pems_read(files, &pems, e))
        return e->code;
    pair.private_key = pems.key.data;
    pair.cert_chain = pems.cert.data;
    creds = grpc_ssl_credentials_create_ex(pems.ca.data, &pair, NULL, NULL);
    if (!creds)
        return err_set(e, ERR_INVALID_ARGUMENT, "TLS: certificate %s and key %s do not fit together",
                       files->cert, files->key);
    *out = creds;
    return ERR_OK;
}
