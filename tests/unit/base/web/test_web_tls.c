#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <gnutls/abstract.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/web/web_tls.h"

/* openssl makes certificates for the names "first" and "second". */

typedef int (*give_fn)(gnutls_session_t, const gnutls_datum_t *, int, const gnutls_pk_algorithm_t *, int,
                       gnutls_pcert_st **, unsigned *, gnutls_privkey_t *);

static char dir[] = "/tmp/ddp-web-tls-XXXXXX";

static void run_in_dir(const char *command)
{
    CLEANUP(free_text) char *all = xasprintf("cd %s && %s", dir, command);

    assert_int_equal(system(all), 0);
}

static void make_certificate(const char *name)
{
    CLEANUP(free_text)
    char *command =
        xasprintf("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=%s "
                  "-addext subjectAltName=DNS:%s -keyout %s.key -out %s.pem 2>/dev/null",
                  name, name, name, name);

    run_in_dir(command);
}

static int dir_make(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int dir_remove(void **state)
{
    struct err e;

    (void)state;
    return file_remove_tree(dir, &e) ? -1 : 0;
}

/* Does what GnuTLS does at a handshake. */
static void shake_hands(struct web_tls *t)
{
    const give_fn give = (give_fn)(uintptr_t)web_tls_callback();
    gnutls_pcert_st *chain = NULL;
    gnutls_privkey_t key = NULL;
    unsigned count = 0;

    web_tls_use(t);
    assert_int_equal(give(NULL, NULL, 0, NULL, 0, &chain, &count, &key), 0);
    assert_int_equal(count, 1);
    assert_non_null(chain);
    assert_non_null(key);
}

/* A key that others may read is refused. Then only its mode changes, which neither its content nor its time of
 * modification shows. */
static void a_web_server_uses_a_key_after_chmod(void **state)
{
    CLEANUP(free_text) char *cert = xasprintf("%s/live.pem", dir);
    CLEANUP(free_text) char *key = xasprintf("%s/live.key", dir);
    struct web_tls *t = NULL;
    struct err e;

    (void)state;
    make_certificate("first");
    make_certificate("second");
    run_in_dir("cp first.pem live.pem && cp first.key live.key && chmod 600 live.key");
    assert_int_equal(web_tls_open(&t, &(struct web_tls_files){cert, key}, &e), ERR_OK);
    run_in_dir("mv second.pem live.pem && chmod 644 second.key && mv second.key live.key");
    shake_hands(t);
    assert_true(web_tls_has_name(t, "first"));
    run_in_dir("chmod 600 live.key");
    shake_hands(t);
    assert_true(web_tls_has_name(t, "second"));
    web_tls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_web_server_uses_a_key_after_chmod),
    };

    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
