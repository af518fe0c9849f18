#include "tests/unit/base/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/net/web_url.h"

/* URLs that users write: what is accepted, what may be shown, and which addresses are private. */

static void a_url_has_host_port_and_path(void **state)
{
    struct web_url url;
    struct err e = {0};

    (void)state;
    assert_int_equal(web_url_parse(&url, "https://Hooks.Slack.com/services/T0/B0?x=1", &e), ERR_OK);
    assert_true(url.https);
    assert_string_equal(url.host, "hooks.slack.com");
    assert_int_equal(url.port, 443);
    assert_string_equal(url.path, "/services/T0/B0?x=1");
    assert_int_equal(web_url_parse(&url, "HTTP://[::1]:8080/a", &e), ERR_OK);
    assert_false(url.https);
    assert_string_equal(url.host, "::1");
    assert_int_equal(url.port, 8080);
    assert_int_equal(web_url_parse(&url, "http://box", &e), ERR_OK);
    assert_int_equal(url.port, 80);
    assert_string_equal(url.path, "");
}

static void unclear_urls_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "ntfy.sh/x",
        "ftp://ntfy.sh/x",
        "file:///etc/passwd",
        "https://",
        "https:///x",
        "https://ntfy.sh@evil/x",
        "https://user:secret@ntfy.sh/",
        "https://ntfy.sh\\@evil/",
        "https://ntfy.sh:99999/",
        "https://ntfy.sh:/",
        "https://ntfy.sh:80x/",
        "https://nt fy.sh/",
        "https://ntfy.sh/a\nHost: evil",
        "https://ntfy.sh/\xc3\xa9",
        "https://ntfy.sh/#fragment",
        "https://[::1/",
        "https://[zz]/",
        "https://h/a/../b",
        "https://h/a/..",
        "https://h/./a",
        "https://h/a/%2E%2e/b",
        "https://h/a%2f..%2Fb",
        "https://h/a/..;x/b",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (web_url_valid(bad[i]))
            fail_msg("accepted: %s", bad[i]);
    assert_true(web_url_valid("https://h/a/..b/...?x=../y"));
}

static void assert_shown(const char *url, const char *want)
{
    CLEANUP(free_text) char *text = web_url_shown(url);

    assert_string_equal(text, want);
}

static void a_shown_url_has_no_secret(void **state)
{
    (void)state;
    assert_shown("https://hooks.slack.com/services/T0/B0/SECRET", "https://hooks.slack.com/...");
    assert_shown("http://box:8080?token=SECRET", "http://box:8080/...");
    assert_shown("https://[::1]:444/", "https://[::1]:444");
    assert_shown("https://user:SECRET@box/", "(invalid URL)");
}

static void below_means_the_same_host_and_a_longer_path(void **state)
{
    (void)state;
    assert_true(web_url_below("https://NTFY.sh/topic", "https://ntfy.sh/"));
    assert_true(web_url_below("https://ntfy.sh:443/topic", "https://ntfy.sh"));
    assert_true(web_url_below("https://box/hooks/a", "https://box/hooks/"));
    assert_true(web_url_below("https://box/hooks/a", "https://box/hooks"));
    assert_true(web_url_below("https://box/hooks?a", "https://box/hooks"));
    assert_false(web_url_below("https://box/hooksmore", "https://box/hooks"));
    assert_false(web_url_below("https://box/hooks/../admin", "https://box/hooks/"));
    assert_false(web_url_below("https://ntfy.sh.evil/topic", "https://ntfy.sh/"));
    assert_false(web_url_below("http://ntfy.sh/topic", "https://ntfy.sh/"));
    assert_false(web_url_below("https://ntfy.sh:444/topic", "https://ntfy.sh/"));
}

static bool ipv4_private(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};

    assert_int_equal(inet_pton(AF_INET, text, &address.sin_addr), 1);
    return web_address_private((struct sockaddr *)&address);
}

static bool ipv6_private(const char *text)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};

    assert_int_equal(inet_pton(AF_INET6, text, &address.sin6_addr), 1);
    return web_address_private((struct sockaddr *)&address);
}

static void private_addresses_are_known(void **state)
{
    static const char *const four[] = {"127.0.0.1",   "10.1.2.3",        "172.16.0.1", "172.31.255.255",
                                       "192.168.0.1", "169.254.169.254", "0.0.0.0",    "100.64.0.1",
                                       "224.0.0.1",   "255.255.255.255", "198.18.0.1"};
    static const char *const six[] = {
        "::1",          "::",       "fe80::1",   "fd00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
        "2002:a00:1::", "::7f00:1", "2001:0:1::"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(four); i++)
        assert_true(ipv4_private(four[i]));
    for (size_t i = 0; i < ARRAY_LEN(six); i++)
        assert_true(ipv6_private(six[i]));
    assert_false(ipv4_private("8.8.8.8"));
    assert_false(ipv4_private("172.32.0.1"));
    assert_false(ipv4_private("100.128.0.1"));
    assert_false(ipv6_private("2606:4700::1"));
    assert_false(ipv6_private("::ffff:8.8.8.8"));
    assert_true(web_address_private(&(struct sockaddr){.sa_family = AF_UNIX}));
}

static void assert_hidden(const char *url, const char *text, const char *shown)
{
    char room[128];

    snprintf(room, sizeof room, "%s", text);
    web_url_hide(room, url);
    assert_string_equal(room, shown);
}

static void a_repeated_path_is_hidden(void **state)
{
    static const char slack[] = "https://hooks.slack.com/services/T00/B00/abcdefghijkl";

    (void)state;
    assert_hidden(slack, "no services/T00/B00/abcdefghijkl here", "no ***************************** here");
    assert_hidden(slack, "token 'abcdefghijkl' of services T00", "token '************' of services T00");
    assert_hidden(slack, "cannot POST /services/T00/B0", "cannot POST /***************");
    assert_hidden(slack, "bad token abcdefg", "bad token *******");
    assert_hidden("https://box/a?auth=0123456789abcdef&x=1", "auth=0123456789abcdef",
                  "auth=****************");
    assert_hidden("https://box/*****", "*****, ****** and ****", "*****, ****** and ****");
    assert_hidden("https://box/aaaaa", "aaaaaaaaaaa", "**********a");
    assert_hidden("https://box/abc", "no abc", "no abc");
    assert_hidden("https://box", "not found", "not found");
    assert_hidden("https://box/secret", "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_has_host_port_and_path),
        cmocka_unit_test(unclear_urls_are_refused),
        cmocka_unit_test(a_shown_url_has_no_secret),
        cmocka_unit_test(a_repeated_path_is_hidden),
        cmocka_unit_test(below_means_the_same_host_and_a_longer_path),
        cmocka_unit_test(private_addresses_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
