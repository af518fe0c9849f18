/* The policy of the page allows its own scripts and styles, and nothing else. */
#include "tests/unit/base/check.h"

#include <string.h>

#include <zlib.h>

#include "base/web/web_page.h"

/* The hashes were made by `printf %s TEXT | openssl dgst -sha256 -binary | base64`. */
static void the_policy_has_the_hashes(void **state)
{
    static const char html[] = "<html><style>a{}</style><script>x=1</script><script>y=2</script></html>";
    struct web_page page;
    (void)state;
    web_page_init(&page, html, strlen(html));
    assert_string_equal(
        page.policy,
        "default-src 'none'; script-src"
        " 'sha256-HyBrEcI+KMwlDe1/wAmNOCOoRnpUNA8axOU1y4VEST8='"
        " 'sha256-POfsO/P6k6xtC8AjgjiIoswDtzv3DJp8XtEFquYbbmw='; style-src"
        " 'sha256-X1RutGBrXCt9KkSaXMK7tHftWiRscFHOhxsS8tv8hBk='; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    web_page_release(&page);
}

static void the_zipped_page_is_the_page(void **state)
{
    static const char html[] = "<html>hello hello hello hello</html>";
    char plain[256];
    struct web_page page;
    z_stream z = {0};
    (void)state;
    web_page_init(&page, html, strlen(html));
    assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
    z.next_in = (Bytef *)page.zipped.data;
    z.avail_in = (uInt)page.zipped.len;
    z.next_out = (Bytef *)plain;
    z.avail_out = sizeof(plain);
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(z.total_out, strlen(html));
    assert_memory_equal(plain, html, strlen(html));
    inflateEnd(&z);
    web_page_release(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_policy_has_the_hashes),
        cmocka_unit_test(the_zipped_page_is_the_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
