#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "client/run/hosts/run_token.h"
#include "client/token_files.h"

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static char home[] = "/tmp/ddp-test-XXXXXX";
static char *file;

static int make_home(void **state)
{
    (void)state;
    struct err e;
    CLEANUP(free_text) char *dir = NULL;
    if (!mkdtemp(home))
        return -1;
    dir = paths_join(home, ".config/ddp");
    file = paths_join(dir, "token");
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("DDP_TOKEN");
    return setenv("HOME", home, 1) || file_mkdirs(dir, 0700, &e) != ERR_OK;
}

static int remove_home(void **state)
{
    (void)state;
    struct err e;
    free(file);
    return file_remove_tree(home, &e) != ERR_OK;
}

static void put_token(const char *text, mode_t mode)
{
    struct err e;
    assert_int_equal(file_write_atomic(file, text, strlen(text), mode, &e), ERR_OK);
    assert_int_equal(chmod(file, mode), 0);
}

static void test_missing_token_message(void **state)
{
    (void)state;
    struct globals g = {0};
    char *token;
    struct err e;
    if (file_exists("/etc/ddp/token"))
        skip();
    assert_null(token_file_find(TOKEN_OF_RUN));
    assert_int_equal(run_token_find(&g, &token, &e), ERR_UNAUTHENTICATED);
    assert_non_null(strstr(e.msg, "DDP_TOKEN"));
    assert_non_null(strstr(e.msg, file));
    assert_non_null(strstr(e.msg, "--insecure"));
    assert_int_equal(!strstr(e.msg, ", /etc/ddp/token ("), geteuid() != 0);
}

/* ddpctl looks in the same files, and then in the state directory. */
static void test_order_of_files(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf run = {0}, cluster = {0};
    token_files_list(TOKEN_OF_RUN, &run);
    token_files_list(TOKEN_OF_CLUSTER, &cluster);
    assert_memory_equal(run.data, file, strlen(file));
    assert_memory_equal(cluster.data, run.data, run.len);
    assert_string_equal(strrchr(cluster.data, '/'), "/token");
    assert_true(cluster.len > run.len);
    put_token(TOKEN "\n", 0600);
    CLEANUP(free_text) char *found = token_file_find(TOKEN_OF_CLUSTER);
    assert_string_equal(found, file);
    assert_int_equal(unlink(file), 0);
}

static void test_environment_wins_and_is_cleared(void **state)
{
    (void)state;
    struct globals g = {0};
    CLEANUP(free_text) char *token = NULL;
    struct err e;
    put_token("ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\n", 0600);
    setenv("DDP_TOKEN", TOKEN, 1);
    assert_int_equal(run_token_find(&g, &token, &e), ERR_OK);
    assert_string_equal(token, TOKEN);
    assert_null(getenv("DDP_TOKEN"));
}

static void test_private_file(void **state)
{
    (void)state;
    struct globals g = {0};
    CLEANUP(free_text) char *token = NULL;
    struct err e;
    put_token(TOKEN "\n", 0600);
    assert_int_equal(run_token_find(&g, &token, &e), ERR_OK);
    assert_string_equal(token, TOKEN);
}

static void test_file_readable_by_others_is_refused(void **state)
{
    (void)state;
    struct globals g = {0};
    char *token;
    struct err e;
    put_token(TOKEN "\n", 0644);
    assert_int_equal(run_token_find(&g, &token, &e), ERR_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "chmod 600"));
}

static void test_invalid_tokens(void **state)
{
    (void)state;
    struct globals g = {0};
    char *token;
    struct err e;
    static const char *const bad[] = {"", "\n", "secret\n", "fifteen letters\n"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        put_token(bad[i], 0600);
        assert_int_equal(run_token_find(&g, &token, &e), ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "openssl rand -hex 32"));
    }
}

/* Every host derives the same 64 digits from a token in another form, from the file as from the variable. */
static void test_token_of_any_form(void **state)
{
    (void)state;
    struct globals g = {0};
    struct err e;
    char *digits[4];
    static const char *const texts[] = {"correct horse battery", "correct horse cattery", TOKEN "00"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        setenv("DDP_TOKEN", texts[i], 1);
        assert_int_equal(run_token_find(&g, &digits[i], &e), ERR_OK);
        assert_int_equal(strlen(digits[i]), strlen(TOKEN));
        assert_int_equal(strspn(digits[i], "0123456789abcdef"), strlen(TOKEN));
    }
    put_token("correct horse battery \n", 0600);
    assert_int_equal(run_token_find(&g, &digits[3], &e), ERR_OK);
    assert_string_equal(digits[3], digits[0]);
    assert_string_not_equal(digits[1], digits[0]);
    assert_string_not_equal(digits[2], TOKEN);
    for (size_t i = 0; i < ARRAY_LEN(digits); i++)
        free(digits[i]);
}

static void test_insecure_has_no_token(void **state)
{
    (void)state;
    struct globals g = {.insecure = true};
    char *token;
    struct err e;
    setenv("DDP_TOKEN", TOKEN, 1);
    assert_int_equal(run_token_find(&g, &token, &e), ERR_OK);
    assert_null(token);
    assert_null(getenv("DDP_TOKEN"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_token_message),
        cmocka_unit_test(test_order_of_files),
        cmocka_unit_test(test_environment_wins_and_is_cleared),
        cmocka_unit_test(test_private_file),
        cmocka_unit_test(test_file_readable_by_others_is_refused),
        cmocka_unit_test(test_invalid_tokens),
        cmocka_unit_test(test_token_of_any_form),
        cmocka_unit_test(test_insecure_has_no_token),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
