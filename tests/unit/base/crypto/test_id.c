#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crypto/id.h"

static void hex_of(char *out, const uint8_t *digest)
{
    hex_encode(out, digest, DIGEST_BYTES);
}

/* FIPS 180-2, appendix B.1. */
static void sha256_of_a_known_text(void **state)
{
    uint8_t digest[DIGEST_BYTES];
    char text[DIGEST_TEXT];

    (void)state;
    digest_sha256(digest, "abc", 3);
    hex_of(text, digest);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* RFC 4231, test case 2. */
static void hmac_of_a_known_text(void **state)
{
    uint8_t digest[DIGEST_BYTES];
    char text[DIGEST_TEXT];

    (void)state;
    digest_hmac(digest, "Jefe", 4, "what do ya want for nothing?", 28);
    hex_of(text, digest);
    assert_string_equal(text, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void file_digest_equals_the_digest_of_its_bytes(void **state)
{
    char path[] = "/tmp/ddp-base-id-XXXXXX", want[DIGEST_TEXT], got[DIGEST_TEXT];
    size_t size = 200000;
    char *data = malloc(size);
    uint8_t digest[DIGEST_BYTES];
    struct err e = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 31);
    assert_int_equal(write(fd, data, size), size);
    close(fd);
    digest_sha256(digest, data, size);
    hex_of(want, digest);
    assert_ok(digest_file(got, path, &e), &e);
    assert_string_equal(got, want);
    unlink(path);
    free(data);
    assert_int_equal(digest_file(got, path, &e), ERR_NOT_FOUND);
}

static void hex_round_trip(void **state)
{
    uint8_t in[4] = {0x00, 0x9f, 0xab, 0xff}, out[4] = {0};
    char text[9];

    (void)state;
    hex_encode(text, in, 4);
    assert_string_equal(text, "009fabff");
    assert_true(hex_decode(out, 4, text));
    assert_memory_equal(in, out, 4);
    assert_true(hex_decode(out, 4, "009FABFF"));
    assert_false(hex_decode(out, 4, "009fabf"));
    assert_false(hex_decode(out, 4, "009fabff0"));
    assert_false(hex_decode(out, 4, "009fabfg"));
    assert_false(hex_decode(out, 4, ""));
}

static void ids_differ(void **state)
{
    char a[ID_TEXT], b[ID_TEXT];

    (void)state;
    id_text(a);
    id_text(b);
    assert_int_equal(strlen(a), 32);
    assert_string_not_equal(a, b);
}

static void secrets_compare(void **state)
{
    (void)state;
    assert_true(secret_equal("token", "token", 5));
    assert_false(secret_equal("token", "tokem", 5));
    assert_true(secret_equal("a", "b", 0));
}

static void node_names(void **state)
{
    char longest[65];

    (void)state;
    memset(longest, 'n', 64);
    longest[64] = 0;
    assert_true(id_node_name("box-1_a.lan"));
    assert_true(id_node_name(longest + 1));
    assert_false(id_node_name(longest));
    assert_false(id_node_name(""));
    assert_false(id_node_name("-box"));
    assert_false(id_node_name("../box"));
    assert_false(id_node_name("a/b"));
    assert_false(id_node_name("box\x1b[2J"));
    assert_false(id_node_name("box\xc3\xa4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_of_a_known_text),
        cmocka_unit_test(hmac_of_a_known_text),
        cmocka_unit_test(file_digest_equals_the_digest_of_its_bytes),
        cmocka_unit_test(hex_round_trip),
        cmocka_unit_test(ids_differ),
        cmocka_unit_test(secrets_compare),
        cmocka_unit_test(node_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
