#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "fixture.h"

/* openssl makes certificates of two authorities, "ours" and "foreign", each for a server and a client. */

#define CLUSTER &ddp__v1__cluster__descriptor

struct identity {
    char *ca, *cert, *key;
};

static char *dir;
static struct identity our_server, our_client, foreign_server, foreign_client;

static void run_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run_shell(const char *fmt, ...)
{
    char command[4096];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    assert_int_equal(system(command), 0);
}

static void make_authority(const char *ca)
{
    run_shell(
        "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=%s "
        "-keyout %s.key -out %s.pem 2>/dev/null",
        dir, ca, ca, ca);
}

static void make_identity(struct identity *id, const char *ca, const char *name)
{
    run_shell(
        "cd %s && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=%s -keyout %s.key "
        "-out %s.csr 2>/dev/null && printf 'subjectAltName=DNS:localhost,DNS:%s,IP:127.0.0.1\\n' >%s.ext && "
        "openssl x509 -req -in %s.csr -CA %s.pem -CAkey %s.key -CAcreateserial -days 2 -extfile %s.ext -out "
        "%s.pem "
        "2>/dev/null",
        dir, name, name, name, name, name, name, ca, ca, name, name);
    id->ca = xasprintf("%s/%s.pem", dir, ca);
    id->cert = xasprintf("%s/%s.pem", dir, name);
    id->key = xasprintf("%s/%s.key", dir, name);
}

static void identity_release(struct identity *id)
{
    free(id->ca);
    free(id->cert);
    free(id->key);
}

static int make_all(void **state)
{
    (void)state;
    dir = fixture_dir();
    make_authority("ours");
    make_authority("foreign");
    make_identity(&our_server, "ours", "coordinator");
    make_identity(&our_client, "ours", "agent-7");
    make_identity(&foreign_server, "foreign", "impostor");
    make_identity(&foreign_client, "foreign", "stranger");
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    identity_release(&our_server);
    identity_release(&our_client);
    identity_release(&foreign_server);
    identity_release(&foreign_client);
    fixture_dir_remove(dir);
    return 0;
}

static struct rpc_tls_files files_of(const struct identity *id)
{
    return (struct rpc_tls_files){.ca = id->ca, .cert = id->cert, .key = id->key};
}

static enum err_code call_on(struct rpc_channel *channel, const char *user, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    Ddp__V1__JobStatus *status;

    request.job = 1;
    if (rpc_channel_call(channel, CLUSTER, "GetJob", &request, (void **)&status, 20000 * test_slow(), 0, e))
        return e->code;
    assert_string_equal(status->name, "tls");
    assert_string_equal(status->user, user);
    rpc_free(status);
    return ERR_OK;
}

/* tls: NULL for plain text. */
static enum err_code call_as(const char *user, const char *target, const struct rpc_tls_files *tls,
                             const char *name, struct err *e)
{
    struct rpc_channel_options options = {.tls = tls, .tls_name = name};
    struct rpc_channel *channel;
    enum err_code code;

    assert_int_equal(rpc_channel_open(&channel, target, &options, e), ERR_OK);
    code = call_on(channel, user, e);
    rpc_channel_close(channel);
    return code;
}

static enum err_code call_with(const char *target, const struct rpc_tls_files *tls, const char *name,
                               struct err *e)
{
    return call_as("agent-7", target, tls, name, e);
}

static void a_server_refuses_foreign_certificates(void **state)
{
    struct rpc_tls_files serving = files_of(&our_server), ours = files_of(&our_client),
                         foreign = files_of(&foreign_client), mixed = files_of(&foreign_client),
                         gullible = files_of(&our_client);
    struct fixture_options options = {.tcp = "127.0.0.1:0", .tls = &serving};
    struct fixture server;
    struct err e;

    (void)state;
    mixed.ca = our_client.ca;        /* a foreign certificate that trusts our CA */
    gullible.ca = foreign_client.ca; /* our certificate, but it trusts the foreign CA */
    fixture_start(&server, &options);
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_OK);
    assert_int_equal(call_with(server.target, &ours, "coordinator", &e), ERR_OK);
    assert_int_equal(call_with(server.target, NULL, NULL, &e), ERR_UNAVAILABLE);
    assert_int_equal(call_with(server.target, &foreign, NULL, &e), ERR_UNAVAILABLE);
    assert_int_equal(call_with(server.target, &mixed, NULL, &e), ERR_UNAVAILABLE);
    assert_int_equal(call_with(server.target, &gullible, NULL, &e), ERR_UNAVAILABLE);
    assert_int_equal(call_with(server.target, &ours, "elsewhere", &e), ERR_UNAVAILABLE);
    assert_int_equal(server.started, 2);
    fixture_stop(&server);
}

static void a_client_refuses_an_impostor(void **state)
{
    struct rpc_tls_files serving = files_of(&foreign_server), ours = files_of(&our_client);
    struct fixture_options options = {.tcp = "127.0.0.1:0", .tls = &serving};
    struct fixture server;
    struct err e;

    (void)state;
    fixture_start(&server, &options);
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_UNAVAILABLE);
    fixture_stop(&server);
}

static void a_client_with_tls_refuses_plain_text(void **state)
{
    struct rpc_tls_files ours = files_of(&our_client);
    struct fixture_options options = {.tcp = "127.0.0.1:0"};
    struct fixture server;
    struct err e;

    (void)state;
    fixture_start(&server, &options);
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_UNAVAILABLE);
    assert_int_equal(server.started, 0);
    fixture_stop(&server);
}

static void a_server_uses_replaced_files_at_the_next_handshake(void **state)
{
    struct identity live = {xasprintf("%s/live-ca.pem", dir), xasprintf("%s/live.pem", dir),
                            xasprintf("%s/live.key", dir)};
    struct rpc_tls_files serving = files_of(&live), ours = files_of(&our_client),
                         theirs = files_of(&foreign_client);
    struct fixture_options options = {.tcp = "127.0.0.1:0", .tls = &serving};
    struct fixture server;
    struct err e;

    (void)state;
    run_shell(
        "cd %s && cp ours.pem live-ca.pem && cp coordinator.pem live.pem && cp coordinator.key live.key",
        dir);
    fixture_start(&server, &options);
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_OK);
    run_shell(
        "cd %s && : >n && mv n live.pem",
        dir); /* only the certificate is replaced, by an empty file: the server goes on with the old ones */
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_OK);
    run_shell("cd %s && cp foreign.pem n && mv n live-ca.pem && cp impostor.key n && mv n live.key && "
              "cp impostor.pem n && mv n live.pem",
              dir);
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_UNAVAILABLE);
    assert_int_equal(call_as("stranger", server.target, &theirs, NULL, &e), ERR_OK);
    fixture_stop(&server);
    identity_release(&live);
}

/* A client's files are replaced between two calls of one channel. */
static void a_client_uses_its_replaced_files(void **state)
{
    struct identity live = {xasprintf("%s/mine-ca.pem", dir), xasprintf("%s/mine.pem", dir),
                            xasprintf("%s/mine.key", dir)};
    struct rpc_tls_files serving = files_of(&our_server), mine = files_of(&live);
    struct fixture_options options = {.tcp = "127.0.0.1:0", .tls = &serving};
    struct rpc_channel_options with = {.tls = &mine};
    struct rpc_channel *channel;
    struct fixture server;
    struct err e;

    (void)state;
    run_shell("cd %s && cp ours.pem mine-ca.pem && cp stranger.pem mine.pem && cp stranger.key mine.key",
              dir);
    fixture_start(&server, &options);
    assert_int_equal(rpc_channel_open(&channel, server.target, &with, &e), ERR_OK);
    assert_int_equal(call_on(channel, "agent-7", &e), ERR_UNAVAILABLE); /* a certificate of the foreign CA */
    run_shell("cd %s && cp agent-7.key n && mv n mine.key && : >n && mv n mine.pem", dir);
    assert_int_equal(call_on(channel, "agent-7", &e), ERR_UNAVAILABLE);
    run_shell("cd %s && cp agent-7.pem n && mv n mine.pem", dir);
    assert_int_equal(call_on(channel, "agent-7", &e), ERR_OK);
    rpc_channel_close(channel);
    fixture_stop(&server);
    identity_release(&live);
}

/* A key that others may read is refused. Then only its mode changes, which neither its content nor its time of
 * modification shows. */
static void a_server_uses_a_key_after_chmod(void **state)
{
    struct identity live = {xasprintf("%s/mode-ca.pem", dir), xasprintf("%s/mode.pem", dir),
                            xasprintf("%s/mode.key", dir)};
    struct rpc_tls_files serving = files_of(&live), ours = files_of(&our_client),
                         theirs = files_of(&foreign_client);
    struct fixture_options options = {.tcp = "127.0.0.1:0", .tls = &serving};
    struct fixture server;
    struct err e;

    (void)state;
    run_shell(
        "cd %s && cp ours.pem mode-ca.pem && cp coordinator.pem mode.pem && cp coordinator.key mode.key",
        dir);
    fixture_start(&server, &options);
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_OK);
    run_shell("cd %s && cp foreign.pem n && mv n mode-ca.pem && cp impostor.pem n && mv n mode.pem && "
              "cp impostor.key n && chmod 644 n && mv n mode.key",
              dir);
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_OK);
    run_shell("chmod 600 %s", live.key);
    assert_int_equal(call_as("stranger", server.target, &theirs, NULL, &e), ERR_OK);
    assert_int_equal(call_with(server.target, &ours, NULL, &e), ERR_UNAVAILABLE);
    fixture_stop(&server);
    identity_release(&live);
}

static void a_client_uses_a_key_after_chmod(void **state)
{
    struct identity live = {xasprintf("%s/own-ca.pem", dir), xasprintf("%s/own.pem", dir),
                            xasprintf("%s/own.key", dir)};
    struct rpc_tls_files serving = files_of(&our_server), mine = files_of(&live);
    struct fixture_options options = {.tcp = "127.0.0.1:0", .tls = &serving};
    struct rpc_channel_options with = {.tls = &mine};
    struct rpc_channel *channel;
    struct fixture server;
    struct err e;

    (void)state;
    run_shell("cd %s && cp ours.pem own-ca.pem && cp stranger.pem own.pem && cp stranger.key own.key", dir);
    fixture_start(&server, &options);
    assert_int_equal(rpc_channel_open(&channel, server.target, &with, &e), ERR_OK);
    run_shell("cd %s && cp agent-7.pem n && mv n own.pem && cp agent-7.key n && chmod 644 n && mv n own.key",
              dir);
    assert_int_equal(call_on(channel, "agent-7", &e), ERR_UNAVAILABLE);
    run_shell("chmod 600 %s", live.key);
    assert_int_equal(call_on(channel, "agent-7", &e), ERR_OK);
    rpc_channel_close(channel);
    fixture_stop(&server);
    identity_release(&live);
}

static void errors_name_unusable_files(void **state)
{
    CLEANUP(free_text) char *empty = xasprintf("%s/empty.pem", dir);
    struct rpc_tls_files files = files_of(&our_server);
    struct rpc_channel *channel;
    struct err e;

    (void)state;
    assert_int_equal(rpc_tls_check(&files, &e), ERR_OK);
    files.key = our_client.key;
    assert_int_equal(rpc_tls_check(&files, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "is not the key of"));
    files.key = files.cert; /* a file that others may read */
    assert_int_equal(rpc_tls_check(&files, &e), ERR_PERMISSION_DENIED);
    files.key = "/nonexistent/key.pem";
    assert_int_equal(rpc_tls_check(&files, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "/nonexistent/key.pem"));
    assert_int_equal(file_write_atomic(empty, "hello", 5, 0600, &e), ERR_OK);
    files.key = empty;
    assert_int_equal(rpc_tls_check(&files, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, empty));
    files.key = NULL;
    assert_int_equal(rpc_tls_check(&files, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(rpc_channel_open(&channel, "h:1", &(struct rpc_channel_options){.tls = &files}, &e),
                     ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_refuses_foreign_certificates),
        cmocka_unit_test(a_client_refuses_an_impostor),
        cmocka_unit_test(a_client_with_tls_refuses_plain_text),
        cmocka_unit_test(a_server_uses_replaced_files_at_the_next_handshake),
        cmocka_unit_test(a_client_uses_its_replaced_files),
        cmocka_unit_test(a_server_uses_a_key_after_chmod),
        cmocka_unit_test(a_client_uses_a_key_after_chmod),
        cmocka_unit_test(errors_name_unusable_files),
    };

    return cmocka_run_group_tests(tests, make_all, remove_all);
}
