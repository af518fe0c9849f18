#include "tests/unit/base/check.h"

#include <string.h>

#include "base/job/job.h"
#include "base/job/tell.h"
#include "base/mem.h"

/* The `tell` of a job: its shape, and which URLs a coordinator allows. */

static void the_host_gives_the_shape(void **state)
{
    (void)state;
    assert_int_equal(tell_shape_of(TELL_AUTO, "https://hooks.slack.com/services/a"), TELL_SLACK);
    assert_int_equal(tell_shape_of(TELL_AUTO, "https://discord.com/api/webhooks/1/a/slack?wait=1"),
                     TELL_SLACK);
    assert_int_equal(tell_shape_of(TELL_AUTO, "https://discord.com/api/webhooks/1/a"), TELL_DISCORD);
    assert_int_equal(tell_shape_of(TELL_AUTO, "https://discordapp.com/api/webhooks/1/slack/a?wait=1"),
                     TELL_DISCORD);
    assert_int_equal(tell_shape_of(TELL_AUTO, "https://ntfy.sh/topic"), TELL_NTFY);
    assert_int_equal(tell_shape_of(TELL_AUTO, "https://ntfy.example.org/topic"), TELL_NTFY);
    assert_int_equal(tell_shape_of(TELL_AUTO, "https://example.org/ntfy"), TELL_JSON);
    assert_int_equal(tell_shape_of(TELL_NTFY, "https://hooks.slack.com/a"), TELL_NTFY);
}

static bool url_refused(const char *url, char *const *allow, const char *why)
{
    struct err e = {0};

    if (tell_check(url, allow, &e) == ERR_OK)
        return false;
    assert_non_null(strstr(e.msg, why));
    assert_null(strstr(e.msg, "SECRET"));
    return true;
}

static void the_coordinator_restricts_urls(void **state)
{
    char *const none[] = {(char[]){"none"}, NULL};
    char *const two[] = {(char[]){"https://ntfy.sh/"}, (char[]){"http://box/hooks/"}, NULL};

    (void)state;
    assert_false(url_refused("https://anywhere.org/SECRET", NULL, ""));
    assert_true(url_refused("http://anywhere.org/SECRET", NULL, "use https"));
    assert_true(url_refused("https://ntfy.sh/SECRET", none, "allows no `tell`"));
    assert_false(url_refused("https://ntfy.sh/SECRET", two, ""));
    assert_false(url_refused("http://box/hooks/SECRET", two, ""));
    assert_true(url_refused("http://box/SECRET", two, "allows https://ntfy.sh, http://box/..."));
}

static void a_bad_url_is_refused_without_repeating_it(void **state)
{
    static const char text[] = "tell: https://me:SECRET@box/\ncommand: [\"true\"]\n";
    struct job_spec spec;
    struct err e = {0};

    (void)state;
    assert_int_equal(job_parse(&spec, text, strlen(text), "job.yaml", &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "job.yaml:1:7: invalid value for 'tell': the URL may not have a user"));
    assert_null(strstr(e.msg, "SECRET"));
    job_release(&spec);
}

static void a_shape_needs_a_url(void **state)
{
    static const char text[] = "tell_as: slack\ncommand: [\"true\"]\n";
    struct job_spec spec;
    struct err e = {0};

    (void)state;
    assert_int_equal(job_parse(&spec, text, strlen(text), "job.yaml", &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "'tell_as' needs 'tell'"));
    job_release(&spec);
}

static void a_printed_job_keeps_it(void **state)
{
    static const char text[] = "tell: https://box/a\ntell_as: ntfy\ncommand: [\"true\"]\n";
    struct job_spec spec, again;
    struct err e = {0};

    (void)state;
    assert_int_equal(job_parse(&spec, text, strlen(text), "job.yaml", &e), ERR_OK);
    CLEANUP(free_text) char *printed = job_print(&spec);
    assert_int_equal(job_parse(&again, printed, strlen(printed), "printed", &e), ERR_OK);
    assert_string_equal(again.tell, "https://box/a");
    assert_int_equal(again.tell_as, TELL_NTFY);
    job_release(&spec);
    job_release(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_gives_the_shape),
        cmocka_unit_test(the_coordinator_restricts_urls),
        cmocka_unit_test(a_bad_url_is_refused_without_repeating_it),
        cmocka_unit_test(a_shape_needs_a_url),
        cmocka_unit_test(a_printed_job_keeps_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
