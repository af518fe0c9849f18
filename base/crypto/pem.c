#include "base/crypto/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

static int no_passphrase(char *text, int size, int writing, void *user)
{
    (void)text;
    (void)size;
    (void)writing;
    (void)user;
    return 0;
}

enum err_code pem_pair_check(const struct pem_text *cert, const struct pem_text *key, struct err *e)
{
    BIO *cert_text = BIO_new_mem_buf(cert->data, (int)cert->len);
    BIO *key_text = BIO_new_mem_buf(key->data, (int)key->len);
    X509 *x509 = cert_text ? PEM_read_bio_X509(cert_text, NULL, no_passphrase, NULL) : NULL;
    EVP_PKEY *pkey = key_text ? PEM_read_bio_PrivateKey(key_text, NULL, no_passphrase, NULL) : NULL;
    enum err_code code = ERR_OK;

    if (!x509)
        code = err_set(e, ERR_INVALID_ARGUMENT, "TLS certificate '%s': the file contains no certificate",
                       cert->name);
    else if (!pkey)
        code = err_set(e, ERR_INVALID_ARGUMENT,
                       "TLS key '%s': the file contains no key without passphrase: remove the passphrase",
                       key->name);
    else if (X509_check_private_key(x509, pkey) != 1)
        code = err_set(e, ERR_INVALID_ARGUMENT, "TLS: %s is not the key of %s", key->name, cert->name);
    EVP_PKEY_free(pkey);
    X509_free(x509);
    BIO_free(key_text);
    BIO_free(cert_text);
    ERR_clear_error(); /* The error queue belongs to the thread, and gRPC reads it, too. */
    return code;
}
